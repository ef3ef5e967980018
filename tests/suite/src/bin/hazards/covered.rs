// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process reserves addresses for memory of the driver's where it has ordinary memory, which is on a GPU: that memory stays the
//! process', and nobody else's.

use std::io;

use uvm_suite::{ensure, Failure, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Process, PAGE};

use crate::orphans::close_mm;
use crate::{gpu_writes, start, start_ordinary, still_works, NONE, WORDS};

/// Pages that are covered: the first of a block.
const COVERED: u64 = 16;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "covered: ordinary memory of a process whose memory the driver has let go is nobody else's",
        NONE,
        without_mm,
    );
    suite.test(
        "covered: ordinary memory that may not be accessed just then is nobody else's",
        NONE,
        without_access,
    );
    suite.test(
        "covered: ordinary memory that mremap() moved before a range covers it comes to the CPU",
        NONE,
        moved_before,
    );
    suite.test(
        "covered: ordinary memory that mremap() moves under a range comes to the CPU",
        NONE,
        moved_under,
    );
}

/// The file that keeps the process' memory is closed first. CPUs may still read what a GPU wrote.
fn without_mm() -> Outcome {
    let (process, gpu) =
        start_ordinary!("the unmodified driver gives that memory to other processes");
    let owner = Process::new()?;
    let buffer = Buffer::<u64>::ordinary(2 * WORDS)?;
    gpu_writes(&owner.gpu(0)?, &buffer, MINE)?;
    close_mm(&owner)?;
    owner.create_external_range(buffer.address(), COVERED * PAGE)?;
    let _theirs = others_write()?;
    all_mine(&buffer)?;
    drop((buffer, owner));
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// Linux leaves on the GPU what may be neither read nor written to.
fn without_access() -> Outcome {
    let (process, gpu) =
        start_ordinary!("the unmodified driver gives that memory to other processes");
    let buffer = Buffer::<u64>::ordinary(2 * WORDS)?;
    gpu_writes(&gpu, &buffer, MINE)?;
    may_be_accessed(&buffer, false)?;
    process.create_external_range(buffer.address(), COVERED * PAGE)?;
    let _theirs = others_write()?;
    may_be_accessed(&buffer, true)?;
    all_mine(&buffer)?;
    drop(buffer);
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// No va_block leads to what is moved.
fn moved_before() -> Outcome {
    let (process, gpu) = start_ordinary!("the unmodified driver makes a va_block within the range");
    let buffer = Buffer::<u64>::ordinary(2 * WORDS)?;
    gpu_writes(&gpu, &buffer, MINE)?;
    let moved = buffer.moved(buffer.len())?;
    process.create_external_range(moved.address(), COVERED * PAGE)?;
    all_mine(&moved)?;
    drop((buffer, moved));
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// The range is there before anything is on a GPU.
fn moved_under() -> Outcome {
    let (process, gpu) = start_ordinary!("the unmodified driver makes a va_block within the range");
    let buffer = Buffer::<u64>::ordinary(2 * WORDS)?;
    let place = Buffer::<u64>::ordinary(2 * WORDS)?;
    gpu_writes(&gpu, &buffer, MINE)?;
    process.create_external_range(place.address(), COVERED * PAGE)?;
    place.take_pages_of(&buffer)?;
    all_mine(&place)?;
    drop((buffer, place));
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// What the GPU writes for the process, and for others.
pub(crate) const MINE: u64 = 1 << 32;
pub(crate) const THEIRS: u64 = 1 << 48;

/// Another process, which gets what is free on the GPU, in pages as small as those that are covered.
pub(crate) fn others_write() -> Result<(Process, Buffer<u64>), Failure> {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::ordinary(4 * WORDS)?;
    gpu_writes(&gpu, &buffer, THEIRS)?;
    Ok((process, buffer))
}

pub(crate) fn all_mine(buffer: &Buffer<u64>) -> Result<(), Failure> {
    match buffer.first_other(|i| MINE + i as u64) {
        None => Ok(()),
        Some((i, seen)) if seen >= THEIRS => {
            Err(format!("word {i} is another process', {seen:#x}").into())
        }
        Some((i, seen)) => Err(format!("word {i} is {seen:#x}").into()),
    }
}

fn may_be_accessed(buffer: &Buffer<u64>, it_may: bool) -> Result<(), Failure> {
    let protection = match it_may {
        true => libc::PROT_READ | libc::PROT_WRITE,
        false => libc::PROT_NONE,
    };
    let address = buffer.address() as *mut libc::c_void;
    // SAFETY: the memory is the buffer's, of which nobody has a reference, and nobody accesses it while it may not be.
    let ret = unsafe { libc::mprotect(address, buffer.bytes() as usize, protection) };
    ensure!(ret == 0, "mprotect: {}", io::Error::last_os_error());
    Ok(())
}
