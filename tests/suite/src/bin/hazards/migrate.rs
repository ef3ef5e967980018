// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! UVM_MIGRATE where the unmodified driver goes wrong.

use uvm_suite::{ensure, skip, Allowed, Failure, Outcome, Pass, Suite, EVICTING_ORDINARY};
use vgpu_client::{driver_version, Buffer, Kernel, Op, Process, BLOCK, PAGE};

use crate::held::leave;
use crate::{gpu_writes, spared, start, start_ordinary, NONE, WORDS};

/// What the unmodified driver's checks say of a page with two copies that may
/// be written.
const TWO_COPIES: &[Allowed] = &[Allowed {
    text: "Too many resident copies for pages with write_mappings",
    times: 10,
}];

pub(crate) fn run(suite: &mut Suite) {
    let ours = Process::new().is_ok_and(|p| matches!(driver_version(&p), Ok(Some(_))));
    suite.test(
        "migrate: an unmapped page with two copies is not made writable",
        if ours { NONE } else { TWO_COPIES },
        two_copies,
    );
    suite.test(
        "migrate: ordinary memory of which a part is evicted",
        EVICTING_ORDINARY,
        a_part_is_evicted,
    );
    suite.test(
        "migrate: ordinary memory that mremap() moved is evicted",
        NONE,
        moved_by_mremap,
    );
    suite.test(
        "migrate: ordinary memory that mremap() moved from where managed memory is now",
        NONE,
        moved_from_managed,
    );
    suite.test(
        "migrate: ordinary memory that a child keeps is evicted",
        NONE,
        kept_by_a_child,
    );
    suite.test(
        "migrate: ordinary memory that the CPU reads while it is evicted",
        EVICTING_ORDINARY,
        read_while_evicted,
    );
    suite.test(
        "migrate: ordinary memory that the CPU reads while its GPU goes",
        NONE,
        read_while_gpu_goes,
    );
    suite.test(
        "migrate: ordinary memory with a page that somebody holds",
        NONE,
        somebody_holds_a_page,
    );
}

/// A va_block that lies in two root chunks, of which one is evicted: the pages of the other stay.
fn a_part_is_evicted() -> Outcome {
    let (_process, gpu) = start_ordinary!("the unmodified driver's kernel oopses");
    let page = (PAGE / 8) as usize;
    for round in 1..=10u64 {
        let some = Buffer::<u64>::ordinary(100 * page)?;
        let all = Buffer::<u64>::ordinary(WORDS)?;
        for buffer in [&some, &all] {
            buffer.huge_pages(false)?;
            gpu_writes(&gpu, buffer, round << 32)?;
        }
        ensure!(gpu.evict_any()?, "there is nothing to evict");
        let check = Op::check(&all).pattern(round << 32, 1);
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
        for buffer in [&some, &all] {
            holds(buffer, round << 32)?;
        }
    }
    Ok(Pass::Ok)
}

/// Pages that the GPU has, at an address that it never saw: to upstream their chunks still belong
/// to the va_block of the old one, where it looks for them without end.
fn moved_by_mremap() -> Outcome {
    let (_process, gpu) = start_ordinary!("the unmodified driver never comes back");
    let words = (BLOCK / 8) as usize;
    let (old, new) = (
        Buffer::<u64>::ordinary(words)?,
        Buffer::<u64>::ordinary(words)?,
    );
    old.fill(|i| i as u64);
    gpu_writes(&gpu, &old, 7)?;
    new.take_pages_of(&old)?;
    // All that the GPU has, until there is nothing to evict.
    while gpu.evict_any()? {}
    if let Some((i, seen)) = new.first_other(|i| 7 + i as u64) {
        return Err(format!("word {i} is {seen:#x} after it was moved and evicted").into());
    }
    ensure!(old.get(5) == 0, "the old place still holds something");
    let check = Op::check(&new).pattern(7, 1);
    gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    Ok(Pass::Ok)
}

/// The va_block that they were of is gone, and its memory another's: chunks that still named it
/// would lead there.
fn moved_from_managed() -> Outcome {
    let (process, gpu) = start_ordinary!("the unmodified driver takes a va_block that was freed");
    for round in 1..=4u64 {
        let old = Buffer::<u64>::ordinary(WORDS)?;
        let new = Buffer::<u64>::ordinary(WORDS)?;
        gpu_writes(&gpu, &old, round << 32)?;
        new.take_pages_of(&old)?;
        let address = old.address();
        drop(old);
        let managed = Buffer::<u64>::managed_at(&process, address, WORDS)?;
        managed.fill(|i| i as u64);
        while gpu.evict_any()? {}
        holds(&new, round << 32)?;
        holds(&managed, 0)?;
    }
    Ok(Pass::Ok)
}

/// Pages that the GPU has, of a process that has unmapped them; its child, which knows nothing of
/// GPUs, has them still.
fn kept_by_a_child() -> Outcome {
    let (_process, gpu) = start_ordinary!("the unmodified driver never comes back");
    let buffer = Buffer::<u64>::ordinary(WORDS)?;
    buffer.huge_pages(false)?;
    gpu_writes(&gpu, &buffer, 7)?;
    let child = Stopped::child_that(|| buffer.first_other(|i| 7 + i as u64).is_none())?;
    drop(buffer);
    while gpu.evict_any()? {}
    ensure!(child.goes_on()?, "the child reads something else");
    Ok(Pass::Ok)
}

/// The elements count from `first` on.
pub(crate) fn holds(buffer: &Buffer<u64>, first: u64) -> Result<(), Failure> {
    let wrong = buffer.first_other(|i| first + i as u64);
    ensure!(wrong.is_none(), "{wrong:x?} is not what was written");
    Ok(())
}

/// A child of this process that waits to be told to go on.
struct Stopped(libc::pid_t);

impl Stopped {
    /// One that then looks whether `holds`, which may read memory and do nothing else. It
    /// has none of this process's descriptors.
    fn child_that(holds: impl FnOnce() -> bool) -> Result<Self, Failure> {
        // SAFETY: the child, which may be of a process with threads, makes system calls, reads
        // memory by `holds`, and ends; it takes no lock and allocates nothing.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        if child == 0 {
            // SAFETY: nothing here uses a descriptor any more, and the child ends here.
            unsafe {
                libc::close_range(3, u32::MAX, 0);
                libc::raise(libc::SIGSTOP);
                libc::_exit(i32::from(!holds()));
            }
        }
        let child = Self(child);
        child.wait(libc::WUNTRACED)?;
        Ok(child)
    }

    /// Lets it go on; whether what it looked for held.
    fn goes_on(self) -> Result<bool, Failure> {
        // SAFETY: the process is a child of this one that nobody has waited for.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
        Ok(self.wait(0)? == 0)
    }

    fn wait(&self, options: i32) -> Result<i32, Failure> {
        let mut status = 0;
        // SAFETY: `status` is valid for writing.
        match unsafe { libc::waitpid(self.0, &mut status, options) } {
            got if got == self.0 => Ok(status),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }
}

impl Drop for Stopped {
    /// Where the test has failed before. One that has ended is no child any more.
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: the numbers of processes that were waited for are not this one's children's:
        // then the first call says so, and nothing is ended.
        unsafe {
            if libc::waitpid(self.0, &mut status, libc::WNOHANG) == 0 {
                libc::kill(self.0, libc::SIGKILL);
                libc::waitpid(self.0, &mut status, 0);
            }
        }
    }
}

/// A page that the CPU faults on has one more reference, so that Linux does not let it go,
/// and the driver must not take its memory either.
fn read_while_evicted() -> Outcome {
    const READERS: usize = 6;
    const ROUNDS: u64 = 40;
    // Root chunks that RM leaves to UVM: the fewer, the sooner a round comes to its evictions.
    const CHUNKS: u64 = 8;
    let (process, gpu) = start_ordinary!("the unmodified driver takes the memory");
    let _rm = leave(&process, &gpu, CHUNKS)?;
    let words = 2 * (BLOCK / 8) as usize;
    let buffer = Buffer::<u64>::ordinary(words)?;
    buffer.huge_pages(false)?;
    let page = (PAGE / 8) as usize;
    for round in 1..=ROUNDS {
        gpu_writes(&gpu, &buffer, round << 32)?;
        std::thread::scope(|s| {
            for reader in 0..READERS {
                let buffer = &buffer;
                s.spawn(move || {
                    for p in (reader..words / page).step_by(READERS) {
                        buffer.get(p * page);
                    }
                });
            }
            // All of the GPU's memory that RM has left, and more: what is there already has to go.
            let all = Buffer::<u64>::managed(&process, (CHUNKS as usize + 1) * WORDS)?;
            process.migrate(all.address(), all.bytes(), gpu.uuid())
        })?;
        if let Some((i, seen)) = buffer.first_other(|i| (round << 32) + i as u64) {
            return Err(format!("round {round}: word {i} is {seen:#x}").into());
        }
    }
    Ok(Pass::Ok)
}

/// Who unregisters the GPU wants all of its pages, and the CPU's faults hold one each.
fn read_while_gpu_goes() -> Outcome {
    const READERS: usize = 4;
    for round in 1..=6u64 {
        let (_process, gpu) = start_ordinary!("the unmodified driver never comes back");
        let buffer = Buffer::<u64>::ordinary(WORDS)?;
        buffer.huge_pages(false)?;
        gpu_writes(&gpu, &buffer, round << 32)?;
        let page = (PAGE / 8) as usize;
        std::thread::scope(|s| {
            for reader in 0..READERS {
                let buffer = &buffer;
                // From the end, as the GPU's pages are taken from the start.
                let words = (0..WORDS / page).rev().skip(reader).step_by(READERS);
                s.spawn(move || {
                    for p in words {
                        buffer.get(p * page);
                    }
                });
            }
            gpu.unregister()
        })?;
        holds(&buffer, round << 32)?;
    }
    Ok(Pass::Ok)
}

/// A page that Linux does not let go stays, and the others move. The driver's context for it is
/// memory that others have used: here, memory that was full of a pattern.
fn somebody_holds_a_page() -> Outcome {
    let (process, gpu) = start_ordinary!("the unmodified driver reads what nobody has set");
    let page = (PAGE / 8) as usize;
    for round in 0..20u64 {
        let first = round << 32 | 1;
        let buffer = Buffer::<u64>::ordinary(16 * page)?;
        buffer.huge_pages(false)?;
        buffer.fill(|i| first + i as u64);
        let held = buffer.hold_page(5 * page)?;
        // Free memory is what the driver gets next.
        let used = Buffer::<u64>::ordinary(8 * (BLOCK / 8) as usize)?;
        used.fill(|_| 0x0a5e_0a5e_0a5e_0a5e);
        drop(used);
        process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
        holds(&buffer, first)?;
        drop(held);
        let check = Op::check(&buffer).pattern(first, 1);
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    }
    Ok(Pass::Ok)
}

/// On the host and not mapped, as eviction leaves it, then read-duplicated by a
/// migration: the GPU's writes must be seen by the CPU.
fn two_copies() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, (PAGE / 8) as usize)?;
    let launch = |op: Op| gpu.launch(&Kernel::new().op(op))?.wait()?.ok();
    launch(Op::write(&buffer).pattern(1, 1))?;
    ensure!(gpu.evict(buffer.address())?, "nothing was evicted");
    process.read_duplication(buffer.address(), buffer.bytes(), true)?;
    process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
    let there = process.residency(buffer.address())?;
    ensure!(there.resident.len() == 2, "not two copies: {there:?}");
    launch(Op::write(&buffer).pattern(2, 1))?;
    let Some((i, seen)) = buffer.first_other(|i| 2 + i as u64) else {
        return Ok(Pass::Ok);
    };
    let what = format!("the CPU sees an old {seen:#x} in word {i}");
    if spared(&process)? {
        skip!("a bug of upstream's, see docs/fixes.md: {what}");
    }
    Err(what.into())
}
