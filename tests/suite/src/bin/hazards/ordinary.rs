// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Accesses of a GPU to ordinary memory that Linux does not let the driver migrate, or not access at all. Whoever may open
//! `/dev/nvidia-uvm` can make them, and they may cost nobody else anything.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use uvm_suite::{ensure, file_in_memory, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::vgpu::{OP_ATOMIC_ADD, OP_READ};
use vgpu_client::{Buffer, Gpu, Kernel, Op, Outcome as Ended};

use crate::half_way::ACROSS_POLICIES;
use crate::{gpu_writes, start, start_ordinary, NONE, PAGE_WORDS, WORDS};

/// How long a fault may take that nothing holds up. A thousandth of it is enough on an idle machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run(suite: &mut Suite) {
    // Of one page and its neighbours all but that page are migrated.
    for (words, what) in [
        (PAGE_WORDS, "a page"),
        (16 * PAGE_WORDS, "one of some pages"),
        (2 * WORDS, "a part of a huge page"),
    ] {
        for (access, does) in [(Access::Write, "writes to"), (Access::Atomic, "adds to")] {
            let name = format!("ordinary: a GPU {does} {what} that somebody holds");
            suite.test(&name, NONE, || held(words, access));
        }
    }
    suite.test(
        "ordinary: a GPU reads zeros in memory for reading only that stays on the host",
        ACROSS_POLICIES,
        zeros_stay,
    );
    suite.test(
        "ordinary: an atomic to shared memory costs nobody else a fault",
        NONE,
        || hits_only_itself(Offence::Atomic),
    );
    suite.test(
        "ordinary: a read beyond the end of a file costs nobody else a fault",
        NONE,
        || hits_only_itself(Offence::Beyond),
    );
}

/// Linux maps its one page of zeros where memory for reading only is read first, which the unmodified driver refuses. A page that Linux puts
/// in place of that has no policy any more, so that the va_block has two meanwhile.
fn zeros_stay() -> Outcome {
    let (process, gpu) = start_ordinary!("the unmodified driver ends the kernel");
    let buffer = Buffer::<u64>::ordinary(WORDS)?;
    buffer.huge_pages(false)?;
    buffer.protect()?;
    process.set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    let check = Op::check(&buffer).pattern(0, 0).warps(4);
    gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    Ok(Pass::Ok)
}

/// How the GPU accesses what somebody holds.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    /// It writes, which it can where the page is.
    Write,
    /// An atomic, for which the driver wants the page for the GPU alone. The kernel waits until nobody holds it.
    Atomic,
}

/// A page with one reference more than Linux knows of is not migrated. The GPU accesses it where it is, and another
/// process' faults are serviced meanwhile.
fn held(words: usize, access: Access) -> Outcome {
    let (_process, gpu) =
        start_ordinary!("the unmodified driver tries to migrate the page for ever");
    let (other_process, other_gpu) = start()?;
    let theirs = Buffer::<u64>::managed(&other_process, WORDS)?;
    let buffer = Buffer::<u64>::ordinary(words)?;
    buffer.huge_pages(words > WORDS)?;
    buffer.fill(|i| i as u64);
    // The middle of four megabytes is in a block of 2 MiB that is whole, or at its end.
    let held = buffer.hold_page(words / 2)?;
    let op = match access {
        Access::Write => Op::write(&buffer),
        Access::Atomic => Op::atomic_add(&buffer),
    };
    let op = op.pattern(1, u64::from(access == Access::Write)).warps(4);
    let launched = gpu.launch(&Kernel::new().op(op))?;
    // The driver is at it when the other's faults come.
    std::thread::sleep(Duration::from_millis(200));
    let write = Op::write(&theirs).pattern(7, 1).warps(4);
    let others = other_gpu.launch(&Kernel::new().op(write))?;
    let ended = others.wait_for(PATIENCE);
    ensure!(
        ended.is_ok(),
        "another process' faults wait for the page: {ended:?}"
    );
    if access == Access::Write {
        let ended = launched.wait_for(PATIENCE);
        ensure!(ended.is_ok(), "the kernel waits for the page: {ended:?}");
    }
    drop(held);
    launched.wait_for(PATIENCE)?.ok()?;
    // Once nobody holds it, it is like others.
    let add = Op::atomic_add(&buffer).pattern(1, 0).warps(4);
    gpu.launch(&Kernel::new().op(add))?.wait()?.ok()?;
    let wrong = buffer.first_other(|i| i as u64 + 2);
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    let wrong = theirs.first_other(|i| i as u64 + 7);
    ensure!(
        wrong.is_none(),
        "of the other process, (word, value) is {wrong:x?}"
    );
    Ok(Pass::Ok)
}

/// What the driver refuses a GPU, by an error of its own.
#[derive(Clone, Copy)]
enum Offence {
    /// An atomic of the GPU needs the page for itself, which memory shared with other processes cannot be.
    Atomic,
    /// The CPU would get SIGBUS.
    Beyond,
}

/// Memory shared with other processes: two pages, of which the file has one.
pub(crate) struct Shared {
    pub(crate) address: u64,
    _file: File,
}

impl Shared {
    pub(crate) const PAGE: usize = 8 * PAGE_WORDS;

    pub(crate) fn new() -> Result<Self, Failure> {
        let file = file_in_memory(c"shared")?;
        file.set_len(Self::PAGE as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (length, fd) = (2 * Self::PAGE, file.as_raw_fd());
        // SAFETY: a new mapping, where nothing is.
        let address = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        ensure!(address != libc::MAP_FAILED, "mmap failed");
        Ok(Self {
            address: address as u64,
            _file: file,
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's, and no reference to it is ever made.
        unsafe { libc::munmap(self.address as *mut libc::c_void, 2 * Self::PAGE) };
    }
}

/// Who makes it ends with a fatal fault each time. Another process, whose kernels fault all the while, does not.
fn hits_only_itself(offence: Offence) -> Outcome {
    const ROUNDS: u64 = 30;
    let _hmm = start_ordinary!("the unmodified driver cancels the faults of all processes");
    let (other_process, other_gpu) = start()?;
    let theirs = Buffer::<u64>::managed(&other_process, 4 * WORDS)?;
    for round in 0..ROUNDS {
        // All of it is on the host, so that the GPU faults for each block.
        theirs.fill(|_| 0);
        let write = Op::write(&theirs).pattern(round, 1).warps(32);
        let others = other_gpu.launch(&Kernel::new().op(write))?;
        offends(offence)?;
        others.wait()?.ok()?;
        let wrong = theirs.first_other(|i| round + i as u64);
        ensure!(wrong.is_none(), "round {round}: {wrong:x?}");
    }
    let (process, gpu) = start()?;
    gpu_writes(&gpu, &Buffer::managed(&process, WORDS)?, 1)?;
    Ok(Pass::Ok)
}

/// A process of its own, whose kernel does it and ends with a fatal fault.
fn offends(offence: Offence) -> Result<(), Failure> {
    let (_process, gpu): (_, Gpu) = start()?;
    let shared = Shared::new()?;
    let op = match offence {
        Offence::Atomic => Op::wild(OP_ATOMIC_ADD, shared.address),
        Offence::Beyond => Op::wild(OP_READ, shared.address + Shared::PAGE as u64),
    };
    let report = gpu.launch(&Kernel::new().op(op))?.wait_for(PATIENCE)?;
    ensure!(
        report.outcome == Ended::Faulted,
        "the offender ended as {:?}",
        report.outcome
    );
    Ok(())
}
