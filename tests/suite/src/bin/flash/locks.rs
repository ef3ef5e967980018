// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process that has the lock of its memory held for as long as it likes. Its own GPU faults wait for that. Those of other
//! processes do not, and no process that ends does.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{ChildStdin, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use uvm_suite::{ensure, skip, this_program, Failure, Joined, Killed, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Kernel, Op, Process, PAGE};

use crate::failures::{has_dmsetup, Dm, PATIENCE};
use crate::queue::{all_well, reap, request, submit};
use crate::rig::{check, plain, write, Done, Rig, WORDS};
use crate::silent::{map_and_unmap, one_after_the_other, Page, Step};
use crate::stripe::second_device;
use crate::waits::ends_in;
use crate::SILENT;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "no process' GPU faults wait for the lock of another one's memory",
        SILENT,
        others,
    );
    suite.test(
        "no process that ends waits for the lock of another one's memory",
        SILENT,
        evicted,
    );
    suite.test(
        "no suspend waits for the lock of a process' memory behind its writes",
        SILENT,
        slept,
    );
}

/// Pages of the other process, which the GPU and the CPU use in turn. There are few, as a test of one CPU shares it with the
/// faults that come back.
const PAGES: usize = 8;

/// What a child says that can begin.
const READY: &str = "ready";

/// Says that all is there, and waits until it is told to begin.
pub(crate) fn wait_to_begin() -> Done {
    println!("{READY}");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// What a child's work comes to.
pub(crate) fn ends_with(work: impl FnOnce() -> Done) -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure:?}");
            ExitCode::FAILURE
        }
    }
}

/// Run by the test below: has GPU faults serviced, once it is told to begin.
pub(crate) fn child_faults() -> ExitCode {
    ends_with(|| {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, PAGES * PAGE as usize / 8)?;
        wait_to_begin()?;
        let op = Op::write(&buffer).pattern(3, 1).warps(1);
        gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        check(&buffer, 3)
    })
}

/// Run by the test below: takes from the GPU what others have there, once it is told to begin. Then a process of its own
/// comes and goes, and so does this one.
pub(crate) fn child_evicts() -> ExitCode {
    ends_with(|| {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        wait_to_begin()?;
        let mut evicted = 0;
        while gpu.evict_any()? {
            evicted += 1;
        }
        ensure!(evicted > 0, "nothing was evicted");
        drop(Process::new()?);
        drop((gpu, process));
        Ok(())
    })
}

/// Run by the test below: the system sleeps, once it is told to begin.
pub(crate) fn child_sleeps() -> ExitCode {
    ends_with(|| {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        wait_to_begin()?;
        Ok(gpu.suspend(Duration::from_millis(100))?)
    })
}

/// A child that waits until it is told to begin, and what tells it.
pub(crate) struct Other(pub(crate) Killed, ChildStdin);

impl Other {
    /// It is there before a lock is taken, which a new process needs.
    pub(crate) fn ready(argument: &str) -> Result<Self, Failure> {
        let mut command = this_program()?;
        command.arg(argument).stdin(Stdio::piped());
        let mut child = Killed(command.stdout(Stdio::piped()).spawn()?);
        let mut output = child.0.stdout.take().ok_or("there is no output")?;
        output.read_exact(&mut [0; READY.len() + 1])?;
        let tell = child.0.stdin.take().ok_or("there is no input")?;
        Ok(Self(child, tell))
    }

    pub(crate) fn begins(&mut self) -> Done {
        Ok(writeln!(self.1)?)
    }

    /// Has it begin; whether it has ended before anybody loses patience.
    pub(crate) fn ends(&mut self) -> Result<bool, Failure> {
        self.begins()?;
        ends_in(&mut self.0, PATIENCE / 2)
    }

    pub(crate) fn succeeds(mut self) -> Done {
        let status = self.0 .0.wait()?;
        ensure!(status.success(), "the other process ended with {status}");
        Ok(())
    }
}

/// A thread of this process holds the lock of its memory until the device answers. A second one waits to change what memory
/// there is, and whoever wants the lock after that waits behind it. `work` is done meanwhile, and `prepare` before the lock is
/// taken, when all that this program has of memory is there.
fn while_locked(prepare: impl FnOnce() -> Done, work: impl FnOnce() -> Done) -> Done {
    // A page of this program's that is not there yet would need the lock as well.
    // SAFETY: it changes where memory is, and nothing in it.
    let is_there = unsafe { libc::mlockall(libc::MCL_CURRENT) } == 0;
    ensure!(is_there, "no memory");
    prepare()?;
    let device = Dm::new()?;
    let page = Page::of(&device, 0, &[1])?;
    let at = page.0 as u64;
    let memory = File::open("/proc/self/mem")?;
    let steps: Vec<Step<'_>> = vec![
        Box::new(|| memory.read_at(&mut [0], at).map_or(-1, |_| 0)),
        Box::new(map_and_unmap),
    ];
    let silence = device.suspend()?;
    let got = one_after_the_other(silence, steps, usize::MAX, work)?;
    // SAFETY: as above.
    unsafe { libc::munlockall() };
    ensure!(got == [0, 0], "{got:?}");
    Ok(())
}

/// While the lock is held come this process' GPU faults, and another one's.
fn others() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let buffer: Buffer<u64> = Buffer::managed(&process, WORDS)?;
    let mut other = Other::ready("--child-faults")?;
    let kernel = Kernel::new().op(Op::write(&buffer).pattern(5, 1).warps(1));
    gpu.launch(&kernel)?.wait()?.ok()?;
    let set = || {
        buffer.set(0, 0);
        Ok(())
    };
    let mut launch = None;
    while_locked(set, || {
        let kernel = launch.insert(gpu.launch(&kernel)?);
        std::thread::sleep(Duration::from_millis(300));
        ensure!(other.ends()?, "the other process' faults are not serviced");
        let early = kernel.wait_for(Duration::from_millis(1));
        let errno = early.err().and_then(|error| error.errno());
        ensure!(
            errno == Some(libc::ETIMEDOUT),
            "this process' lock was free"
        );
        Ok(())
    })?;
    other.succeeds()?;
    launch.ok_or("nothing was launched")?.wait()?.ok()?;
    check(&buffer, 5)?;
    Ok(Pass::Ok)
}

/// While the lock is held, this process' data is evicted, which the GPU is to be able to access wherever it is. The GPU
/// gets its mapping of it by a fault, later.
fn evicted() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let buffer: Buffer<u64> = Buffer::managed(&process, WORDS)?;
    process.set_accessed_by(buffer.address(), buffer.bytes(), gpu.uuid())?;
    let mut other = Other::ready("--child-evicts")?;
    let to_gpu = || {
        process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
        let write = Op::write(&buffer).pattern(7, 1).warps(1);
        gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
        Ok(())
    };
    while_locked(to_gpu, || {
        ensure!(other.ends()?, "the other process does not end");
        Ok(())
    })?;
    other.succeeds()?;
    let read = Op::check(&buffer).pattern(7, 1).warps(1);
    gpu.launch(&Kernel::new().op(read))?.wait()?.ok()?;
    check(&buffer, 7)?;
    Ok(Pass::Ok)
}

/// While the lock is held a call has the tenant's turn to write, and waits for the lock. A worker waits for the turn, and
/// lets the system sleep.
fn slept() -> Outcome {
    let (true, Some(path)) = (has_dmsetup(), second_device()) else {
        skip!("no dmsetup, or no $SECOND_SSD");
    };
    let rig = Rig::with(plain(&path, 1 << 10))?;
    let (one, two) = (rig.buffer(1)?, rig.buffer(1)?);
    write(&one, 11);
    write(&two, 13);
    let mut other = Other::ready("--child-sleeps")?;
    let begins = AtomicBool::new(false);
    let moved = std::thread::scope(|threads| {
        // It is there before the lock is taken, which a new thread needs.
        let call = threads.spawn(|| {
            while !begins.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
            rig.spill(&one)
        });
        let slept = while_locked(
            || Ok(()),
            || {
                begins.store(true, Relaxed);
                std::thread::sleep(Duration::from_millis(300));
                ensure!(!call.is_finished(), "this process' lock was free");
                submit(&rig, &[request(&two, 0, 1)])?;
                std::thread::sleep(Duration::from_millis(300));
                ensure!(other.ends()?, "the system does not sleep");
                Ok(())
            },
        );
        begins.store(true, Relaxed);
        let moved = call.joined()?;
        slept.and(moved)
    });
    moved?;
    other.succeeds()?;
    all_well(&reap(&rig, 1)?)?;
    check(&one, 11)?;
    check(&two, 13)?;
    Ok(Pass::Ok)
}
