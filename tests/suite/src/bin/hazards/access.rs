// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a debugger has UVM read and write of ordinary memory: no more than the process itself may.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use uvm_suite::{ensure, file_in_memory, this_program, Failure, Forked, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Gpu, Process};

use crate::charge::child;
use crate::{gpu_writes, start_ordinary, still_works, NONE, PAGE_WORDS, WORDS};

/// What is written, in the middle of three pages, and where.
const WRITTEN: u64 = 1 << 40;
const FIRST: usize = 100;
const COUNT: usize = 2 * PAGE_WORDS;
/// Words of the memory.
const SOME: usize = 16 * PAGE_WORDS;

/// Where memory is that a process has in common with its child, and whether it may be written to.
const SHARED: [(&str, bool, bool); 3] = [
    (
        "access: a child does not see what a debugger writes (on the GPU)",
        true,
        true,
    ),
    (
        "access: a child does not see what a debugger writes (on the host)",
        false,
        true,
    ),
    (
        "access: a child does not see what a debugger writes (on the host, for reading only)",
        false,
        false,
    ),
];

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "access: a debugger reads and writes memory wherever it is",
        NONE,
        as_it_may,
    );
    suite.test(
        "access: no debugger writes to a file that is mapped for reading only",
        NONE,
        file_for_reading,
    );
    for (name, huge) in [
        (
            "access: no debugger writes to Linux's zeros (a huge page)",
            true,
        ),
        ("access: no debugger writes to Linux's zeros (pages)", false),
    ] {
        suite.test(name, NONE, move || zeros(huge));
    }
    for (name, ..) in SHARED {
        suite.test(name, NONE, || stays(name));
    }
}

fn words() -> Vec<u64> {
    (0..COUNT as u64).map(|word| WRITTEN + word).collect()
}

/// What a buffer has, once the words have been written, that had numbers which count from `first` on.
fn after(first: u64) -> impl Fn(usize) -> u64 {
    move |word| match word.checked_sub(FIRST) {
        Some(written) if written < COUNT => WRITTEN + written as u64,
        _ => first + word as u64,
    }
}

/// Has the words written, and sees them by the debugger and by a CPU.
fn written(process: &Process, buffer: &Buffer<u64>, first: u64, what: &str) -> Result<(), Failure> {
    let before: Vec<_> = (0..COUNT).map(|i| first + (FIRST + i) as u64).collect();
    let seen = process.debugger_reads(buffer, FIRST, COUNT)?;
    ensure!(seen == before, "the debugger does not read what {what} has");
    process.debugger_writes(buffer, FIRST, &words())?;
    let seen = process.debugger_reads(buffer, FIRST, COUNT)?;
    ensure!(
        seen == words(),
        "the debugger does not read what it wrote: {what}"
    );
    let wrong = buffer.first_other(after(first));
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?} in {what}");
    Ok(())
}

fn as_it_may() -> Outcome {
    let (process, gpu) = start_ordinary!("a debugger writes to what others have");
    let managed = Buffer::<u64>::managed(&process, WORDS)?;
    gpu_writes(&gpu, &managed, 3)?;
    written(&process, &managed, 3, "managed memory")?;

    let ordinary = Buffer::<u64>::ordinary(SOME)?;
    ordinary.fill(|word| 7 + word as u64);
    written(&process, &ordinary, 7, "memory of the host")?;
    gpu_writes(&gpu, &ordinary, 9)?;
    is_on_gpu(&process, &gpu, &ordinary)?;
    written(&process, &ordinary, 9, "memory of the GPU")?;
    gpu_writes(&gpu, &ordinary, 11)?;
    let wrong = ordinary.first_other(|word| 11 + word as u64);
    ensure!(wrong.is_none(), "after the GPU has it again: {wrong:x?}");

    ordinary.protect()?;
    let seen = process.debugger_reads(&ordinary, 0, 1)?;
    ensure!(seen == [11], "what is for reading only reads as {seen:x?}");
    no_more_than_upstream(&process)?;
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// What UVM has never read for anybody: ordinary memory where a range of its own is, or in a VA space that several share.
fn no_more_than_upstream(process: &Process) -> Result<(), Failure> {
    let covered = Buffer::<u64>::ordinary(WORDS)?;
    process.create_external_range(covered.address(), covered.bytes())?;
    ensure!(
        process.debugger_reads(&covered, 0, 1).is_err(),
        "what lies where UVM has a range was read"
    );
    let ordinary = Buffer::<u64>::ordinary(SOME)?;
    ensure!(
        Process::shared()?.debugger_reads(&ordinary, 0, 1).is_err(),
        "ordinary memory of a VA space without any was read"
    );
    Ok(())
}

fn is_on_gpu(process: &Process, gpu: &Gpu, buffer: &Buffer<u64>) -> Result<(), Failure> {
    let there = process.residency(buffer.address_of(FIRST))?.resident;
    ensure!(there == [gpu.uuid()], "the memory is on {there:?}");
    Ok(())
}

/// The call is refused, and nothing is written.
fn refused(process: &Process, buffer: &Buffer<u64>, first: u64) -> Result<(), Failure> {
    let done = process.debugger_writes(buffer, FIRST, &words());
    let wrong = buffer.first_other(|word| first + word as u64);
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    ensure!(done.is_err(), "it was allowed");
    Ok(())
}

fn file_for_reading() -> Outcome {
    let (process, gpu) = start_ordinary!("it writes to the file");
    let file = file_in_memory(c"for reading")?;
    let kept: Vec<u8> = (0..SOME as u64)
        .flat_map(|word| (5 + word).to_ne_bytes())
        .collect();
    file.write_all_at(&kept, 0)?;
    let opened = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let buffer = Buffer::<u64>::of_file_alone(opened.as_fd(), SOME)?;
    buffer.protect()?;
    refused(&process, &buffer, 5)?;
    let mut seen = vec![0; kept.len()];
    file.read_exact_at(&mut seen, 0)?;
    ensure!(seen == kept, "the file has changed");
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// Memory that nobody has written to is one page of zeros, for all processes.
fn zeros(huge: bool) -> Outcome {
    let (process, gpu) = start_ordinary!("it writes to what all processes have for zeros");
    let of_zeros = || -> Result<Buffer<u64>, Failure> {
        let buffer = Buffer::<u64>::ordinary(WORDS)?;
        buffer.huge_pages(huge)?;
        Ok(buffer)
    };
    let buffer = of_zeros()?;
    let wrong = buffer.first_other(|_| 0);
    ensure!(wrong.is_none(), "new memory has {wrong:x?}");
    buffer.protect()?;
    let done = process.debugger_writes(&buffer, FIRST, &words());
    let wrong = of_zeros()?.first_other(|_| 0);
    ensure!(wrong.is_none(), "new memory has {wrong:x?} now");
    ensure!(done.is_err(), "it was allowed");
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// In a program of one thread, as only such a one forks.
fn stays(way: &str) -> Outcome {
    let (process, gpu) = start_ordinary!("the child sees it");
    let ended = this_program()?.args(["--child-debugs", way]).status()?;
    ensure!(ended.success(), "the process that forks ended with {ended}");
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// Run by the test above.
pub(crate) fn child_debugs(way: &str) -> ExitCode {
    child(|| forks(way))
}

fn forks(way: &str) -> Result<(), Failure> {
    let known = SHARED.iter().find(|(name, ..)| *name == way);
    let (_, on_gpu, may_write) = *known.ok_or("there is no such way")?;
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let buffer = Buffer::<u64>::ordinary(SOME)?;
    buffer.huge_pages(false)?;
    buffer.fill(|word| 100 + word as u64);
    if on_gpu {
        gpu_writes(&gpu, &buffer, 100)?;
        is_on_gpu(&process, &gpu, &buffer)?;
    }
    let (mut here, there) = UnixStream::pair()?;
    let forked = Forked::new(|| keeps(&buffer, &there))?;
    if may_write {
        written(&process, &buffer, 100, "the parent's memory")?;
    } else {
        buffer.protect()?;
        refused(&process, &buffer, 100)?;
    }
    here.write_all(&[1])?;
    let status = forked.wait()?;
    ensure!(
        status.success(),
        "the child sees what was written for its parent"
    );
    Ok(())
}

/// Whether the child still sees what it inherited, once its parent says so.
fn keeps(buffer: &Buffer<u64>, mut parent: &UnixStream) -> bool {
    parent.read_exact(&mut [0]).is_ok() && buffer.first_other(|word| 100 + word as u64).is_none()
}
