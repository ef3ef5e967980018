// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The Rust crate `uvmrust` on the real /dev/nvidia-uvm: that it finds the
//! descriptor, what discard and prefetch do through it, from several threads too.
//! `tests/kselftest/uvm_library.c` is the same for C.
//!
//! Runs on the unmodified driver as well, which cannot discard and must say so.

mod tools;
mod top;

use std::os::fd::AsRawFd;
use std::process::ExitCode;

use uvm_suite::{ensure, skip, Allowed, Failure, Joined, Outcome, Pass, Suite};
use uvmrust::{
    discard, discard_lazy, Backend, Discarded, Error, Left, Linux, Managed, Mode, Place, Range,
    Sys, Uvm,
};
use vgpu_client::{driver_version, Buffer, DriverStats, Gpu, Kernel, Op, Process, BLOCK, PAGE};

const HELP: &str = "usage: library [--only TEXT]
  --only TEXT   only tests whose name holds TEXT
  --stay        no test: have a VA space until the input ends
";

const NONE: &[Allowed] = &[];
const OLD: u64 = 0x0100_0000_0000;
const NEW: u64 = 0x0300_0000_0000;
/// Bit of `UVM_RUST_GET_VERSION`: the driver can discard.
const FEATURE_DISCARD: u64 = uvm_uapi::UVM_RUST_FEATURE_DISCARD as u64;

fn main() -> ExitCode {
    use lexopt::prelude::*;
    let mut only = None;
    let mut parser = lexopt::Parser::from_env();
    while let Ok(Some(argument)) = parser.next() {
        match argument {
            Long("only") => only = parser.value().ok().and_then(|v| v.string().ok()),
            Long("stay") => return tools::stay(),
            Long("help") => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            other => {
                eprint!("library: {}\n{HELP}", other.unexpected());
                return ExitCode::from(2);
            }
        }
    }
    let mut suite = Suite::new("library", only);
    suite.test("finds the descriptor, or takes one", NONE, finds);
    suite.test("without discard nothing changes", NONE, without);
    suite.test("eager: written at once, and kept", NONE, eager);
    suite.test("lazy: given away until it is prefetched", NONE, lazy);
    suite.test("batch: counts, and where it stopped", NONE, batch);
    suite.test("discard and prefetch moves nothing", NONE, both_at_once);
    suite.test("a GPU that is not there", NONE, no_such_gpu);
    suite.test("threads that discard and prefetch", NONE, threads);
    suite.test("a descriptor that was closed", NONE, closed);
    suite.test("a parent's descriptor is no child's", NONE, foreign);
    suite.test("a child discards nothing of its parent's", NONE, || {
        child(false)
    });
    suite.test("a child of clone discards nothing either", NONE, || {
        child(true)
    });
    suite.test(
        "uvmtop's numbers are the statistics'",
        NONE,
        top::equals_statistics,
    );
    suite.test(
        "uvmtop shows what thrashes, is discarded and may be had",
        NONE,
        top::thrash_is_shown,
    );
    suite.test(
        "uvmtop --tools: what UVM's tools count",
        NONE,
        tools::counts,
    );
    suite.test(
        "uvmtop --tools: who ends is let go",
        NONE,
        tools::who_ends_is_let_go,
    );
    suite.finish()
}

struct Rig {
    process: Process,
    gpu: Gpu,
    uvm: Uvm,
}

/// A buffer that nothing uses but the test that has it.
struct Owned(Buffer<u64>);

// SAFETY: a test waits for its GPU programs, and hands out no reference to the
// memory; the buffer keeps its place, and each of its words may hold anything.
unsafe impl Managed for Owned {
    fn range(&self) -> Range {
        Range {
            base: self.0.address(),
            length: self.0.bytes(),
        }
    }
}

fn failed(error: Error) -> Failure {
    format!("{error:?}").into()
}

impl Rig {
    fn new() -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let uvm = Uvm::new(Linux::new());
        uvm.use_fd(Some(process.uvm_fd().as_raw_fd()));
        Ok(Self { process, gpu, uvm })
    }

    /// `None` if this driver cannot discard.
    fn with_discard() -> Result<Option<Self>, Failure> {
        let rig = Self::new()?;
        Ok((rig.uvm.backend() != Backend::None).then_some(rig))
    }

    fn place(&self) -> Place {
        Place::Gpu(self.gpu.uuid().0)
    }

    /// Some blocks, written on the GPU: value + index.
    fn written(&self, blocks: u64, value: u64) -> Result<Owned, Failure> {
        let buffer = Owned(Buffer::managed(
            &self.process,
            (blocks * BLOCK / 8) as usize,
        )?);
        self.write(&buffer, value)?;
        Ok(buffer)
    }

    fn write(&self, buffer: &Owned, value: u64) -> Result<(), Failure> {
        let op = Op::write(&buffer.0).pattern(value, 1).warps(8);
        self.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        // The kernel may be done before the calls of the fault service that helped it, which move bytes.
        self.gpu.drain_faults()?;
        Ok(())
    }

    /// Bytes moved between host and GPU until now; 0 on a driver that does not count.
    fn moved(&self) -> u64 {
        let Ok(s) = DriverStats::get(&self.process, self.gpu.uuid(), false) else {
            return 0;
        };
        let both = s.host_to_gpu.iter().chain(&s.gpu_to_host);
        both.map(|t| t.bytes).sum()
    }
}

fn kept(buffer: &Owned, value: u64) -> Result<(), Failure> {
    let other = buffer.0.first_other(|i| value + i as u64);
    ensure!(other.is_none(), "(word, value) is {other:x?}");
    Ok(())
}

/// A discarded buffer, to look at what is in it.
fn readable(discarded: Discarded<Owned>) -> Owned {
    // SAFETY: our driver, the only one here that discards, gives zeros or older values,
    // which the buffer may hold: they are what is tested.
    unsafe { discarded.assume_written() }
}

fn zeros_or_old(buffer: &Owned, old: u64) -> Result<(), Failure> {
    let mut words = vec![0; buffer.0.len()];
    buffer.0.copy_out(0, &mut words);
    let other = (0u64..).zip(words).find(|&(i, w)| w != 0 && w != old + i);
    ensure!(other.is_none(), "(word, value) is {other:x?}");
    Ok(())
}

fn finds() -> Outcome {
    let rig = Rig::new()?;
    let can = driver_version(&rig.process)?.is_some_and(|(_, f)| f & FEATURE_DISCARD != 0);
    let ours = rig.uvm.backend() == Backend::UvmRust;
    ensure!(ours == can, "the backend is {:?}", rig.uvm.backend());
    // By itself: this process has files of UVM that are not initialised, too.
    let alone = Uvm::new(Linux::new());
    ensure!(
        alone.backend() == rig.uvm.backend(),
        "by itself it found {:?}",
        alone.backend()
    );
    ensure!(
        Uvm::process().backend() == rig.uvm.backend(),
        "the process's is {:?}",
        Uvm::process().backend()
    );
    alone.use_fd(Some(0));
    ensure!(
        alone.backend() == Backend::None,
        "a descriptor of another file gave {:?}",
        alone.backend()
    );
    Ok(Pass::Ok)
}

/// UVM itself tells a child, also one that nobody told that it is one.
fn foreign() -> Outcome {
    let rig = Rig::new()?;
    let fd = rig.process.uvm_fd().as_raw_fd();
    ensure!(!Linux::new().foreign(fd), "it is taken for another's");
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let foreign = Linux::new().foreign(fd);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(foreign)) };
    }
    let mut status = 0;
    // SAFETY: the output is writable.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    ensure!(
        ended == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1,
        "the child takes it for its own: {status:#x}"
    );
    Ok(Pass::Ok)
}

/// Ends with 0 if nothing of the parent's can be used, and what the child opens itself can.
fn in_the_child(rig: &Rig, range: Range, can: bool) -> i32 {
    let uvm = &rig.uvm;
    // SAFETY: the data are the parent's; that they are not discarded is the test.
    let refused = unsafe { uvm.discard(range, Mode::Eager) };
    if refused != Err(Error::NotSupported) || uvm.backend() != Backend::None {
        return 1;
    }
    if Uvm::process().backend() != Backend::None
        || uvm.prefetch(range, Place::Host) != Err(Error::NotSupported)
    {
        return 2;
    }
    let Ok(own) = Process::new() else { return 3 };
    uvm.use_fd(Some(own.uvm_fd().as_raw_fd()));
    i32::from((uvm.backend() == Backend::UvmRust) != can) * 4
}

/// `clone`: as clone(2) makes one, which tells no handler of `pthread_atfork`.
fn child(clone: bool) -> Outcome {
    let rig = Rig::new()?;
    let can = rig.uvm.backend() == Backend::UvmRust;
    let buffer = rig.written(2, OLD)?;
    let range = buffer.range();
    let child = match clone {
        // SAFETY: without CLONE_VM this is a fork; this program has one thread here, so that
        // the child may go on as it likes.
        true => unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 },
        // SAFETY: as above.
        false => unsafe { libc::fork() },
    };
    if child == 0 {
        let code = in_the_child(&rig, range, can);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the output is writable.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    ensure!(
        ended == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "the child ended with {status:#x}"
    );
    kept(&buffer, OLD)?;
    ensure!(
        (rig.uvm.backend() == Backend::UvmRust) == can,
        "the parent's backend is {:?} now",
        rig.uvm.backend()
    );
    Ok(Pass::Ok)
}

fn without() -> Outcome {
    let rig = Rig::new()?;
    if rig.uvm.backend() != Backend::None {
        skip!("this driver can discard");
    }
    let buffer = rig.written(2, OLD)?;
    let Err((Left::Discarded(same), Error::NotSupported)) = discard(&rig.uvm, buffer) else {
        return Err("a discard was not refused".into());
    };
    let Err((same, Error::NotSupported)) = discard_lazy(&rig.uvm, readable(same)) else {
        return Err("a lazy discard was not refused".into());
    };
    let buffer = readable(same);
    rig.uvm
        .prefetch(buffer.range(), Place::Host)
        .map_err(failed)?;
    kept(&buffer, OLD)?;
    Ok(Pass::Ok)
}

fn eager() -> Outcome {
    let Some(rig) = Rig::with_discard()? else {
        skip!("this driver cannot discard");
    };
    let buffer = rig.written(2, OLD)?;
    let discarded = discard(&rig.uvm, buffer).map_err(|(_, e)| failed(e))?;
    let buffer = readable(discarded);
    let at = rig.process.residency(buffer.0.address())?;
    ensure!(at.mapped.is_empty(), "still mapped: {at:?}");
    zeros_or_old(&buffer, OLD)?;
    let buffer = readable(discard(&rig.uvm, buffer).map_err(|(_, e)| failed(e))?);
    rig.write(&buffer, NEW)?;
    kept(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn lazy() -> Outcome {
    let Some(rig) = Rig::with_discard()? else {
        skip!("this driver cannot discard");
    };
    let mut buffer = rig.written(2, OLD)?;
    for (round, place) in [rig.place(), Place::Host, rig.place()]
        .into_iter()
        .enumerate()
    {
        let before = rig.moved();
        let lazy = discard_lazy(&rig.uvm, buffer).map_err(|(_, e)| failed(e))?;
        buffer = readable(lazy.prefetch(&rig.uvm, place).map_err(|(_, e)| failed(e))?);
        let moved = rig.moved() - before;
        ensure!(moved == 0, "round {round}: {moved} bytes were moved");
        zeros_or_old(&buffer, OLD)?;
        rig.write(&buffer, OLD)?;
        kept(&buffer, OLD)?;
        rig.write(&buffer, OLD)?;
    }
    Ok(Pass::Ok)
}

fn batch() -> Outcome {
    let Some(rig) = Rig::with_discard()? else {
        skip!("this driver cannot discard");
    };
    let buffer = rig.written(4, OLD)?;
    let block = |i| Range {
        base: buffer.0.address() + i * BLOCK,
        length: BLOCK,
    };
    let stranger = Range {
        base: 0x1000_0000,
        length: PAGE,
    };
    let run = |ranges: &[Range]| {
        let mut outcome = uvmrust::Outcome::default();
        // SAFETY: as for `Owned`; what is discarded is eager, and only read below.
        let result = unsafe { rig.uvm.discard_batch(ranges, Mode::Eager, &mut outcome) };
        (result, outcome)
    };
    let (stopped, outcome) = run(&[block(0), stranger, block(1)]);
    ensure!(stopped == Err(Error::NotManaged), "{stopped:?}");
    ensure!(outcome.done == 1, "stopped at {}", outcome.done);
    let (result, outcome) = run(&[block(1), block(3)]);
    result.map_err(failed)?;
    ensure!(outcome.done == 2, "{} done", outcome.done);
    if outcome.counted {
        let seen = (
            outcome.blocks_discarded,
            outcome.blocks_skipped,
            outcome.blocks_partial,
        );
        ensure!(seen == (2, 0, 0), "{seen:?} blocks, not (2, 0, 0)");
    }
    let words = (BLOCK / 8) as usize;
    let lost = (2 * words..3 * words).find(|&i| buffer.0.get(i) != OLD + i as u64);
    ensure!(lost.is_none(), "word {lost:?} of what was kept is lost");
    zeros_or_old(&buffer, OLD)?;
    Ok(Pass::Ok)
}

fn both_at_once() -> Outcome {
    let Some(rig) = Rig::with_discard()? else {
        skip!("this driver cannot discard");
    };
    let buffer = rig.written(2, OLD)?;
    // On the host, from where a prefetch alone would copy it.
    kept(&buffer, OLD)?;
    let before = rig.moved();
    // SAFETY: as for `Owned`.
    unsafe { rig.uvm.discard_and_prefetch(buffer.range(), rig.place()) }.map_err(failed)?;
    let moved = rig.moved() - before;
    ensure!(moved == 0, "{moved} bytes were moved");
    let at = rig.process.residency(buffer.0.address())?;
    ensure!(at.resident == [rig.gpu.uuid()], "resident: {at:?}");
    rig.write(&buffer, NEW)?;
    kept(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn no_such_gpu() -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.written(1, OLD)?;
    let refused = rig.uvm.prefetch(buffer.range(), Place::Gpu([7; 16]));
    ensure!(refused == Err(Error::NoDevice), "{refused:?}");
    kept(&buffer, OLD)?;
    Ok(Pass::Ok)
}

fn threads() -> Outcome {
    const ROUNDS: u64 = 6;
    let Some(rig) = Rig::with_discard()? else {
        skip!("this driver cannot discard");
    };
    let buffers = [0, 1, 2, 3].map(|_| rig.written(1, OLD));
    let work = |buffer: Owned| -> Result<(), Failure> {
        let mut buffer = buffer;
        for round in 0..ROUNDS {
            let lazy = discard_lazy(&rig.uvm, buffer).map_err(|(_, e)| failed(e))?;
            let prefetched = lazy.prefetch(&rig.uvm, rig.place());
            buffer = readable(prefetched.map_err(|(_, e)| failed(e))?);
            buffer.0.fill(|i| NEW + round + i as u64);
            kept(&buffer, NEW + round)?;
            buffer = readable(discard(&rig.uvm, buffer).map_err(|(_, e)| failed(e))?);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = buffers.map(|b| scope.spawn(move || work(b?)));
        threads.into_iter().try_for_each(|t| t.joined()?)
    })?;
    Ok(Pass::Ok)
}

fn closed() -> Outcome {
    let Some(rig) = Rig::with_discard()? else {
        skip!("this driver cannot discard");
    };
    let Rig { process, gpu, uvm } = rig;
    drop((gpu, process));
    let range = Range {
        base: 0x2000_0000_0000,
        length: BLOCK,
    };
    // SAFETY: nothing is mapped there any more.
    let refused = unsafe { uvm.discard(range, Mode::Eager) };
    ensure!(refused.is_err(), "a closed descriptor discarded");
    ensure!(
        uvm.backend() == Backend::None,
        "a closed descriptor still discards: {:?}",
        uvm.backend()
    );
    Ok(Pass::Ok)
}
