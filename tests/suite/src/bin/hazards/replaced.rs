// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Managed memory that is mapped over ordinary memory, which a GPU has used: none of the latter's pages come to lie in the former.

use std::io;
use std::os::fd::AsRawFd;

use uvm_suite::{ensure, Failure, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Process};

use crate::{gpu_writes, start_ordinary, still_works, NONE, WORDS};

/// Words of 64 KiB.
const PIECE: usize = 8 << 10;
/// What the GPU writes before, and afterwards.
const BEFORE: u64 = 1 << 32;
const AFTER: u64 = 1 << 48;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "replaced: managed memory is new where ordinary memory was, and others keep theirs",
        NONE,
        managed_over_ordinary,
    );
}

/// Half of the memory; and of a block the pieces after the first, whose neighbours stay on the GPU.
fn managed_over_ordinary() -> Outcome {
    let (process, gpu) =
        start_ordinary!("the unmodified driver puts pages of a VMA there that is freed");
    for (first, words) in [(0, WORDS), (PIECE, 2 * PIECE)] {
        let buffer = Buffer::<u64>::ordinary(2 * WORDS)?;
        gpu_writes(&gpu, &buffer, BEFORE)?;
        manages(&process, &buffer, first, words)?;
        let managed = first..first + words;
        for word in (0..buffer.len()).filter(|word| !managed.contains(word)) {
            let seen = buffer.get(word);
            ensure!(
                seen == BEFORE + word as u64,
                "word {word} beside it is {seen:#x}"
            );
        }
        gpu_writes(&gpu, &buffer, AFTER)?;
        if let Some((word, seen)) = buffer.first_other(|word| AFTER + word as u64) {
            return Err(format!("word {word} is {seen:#x} to a CPU").into());
        }
        // Linux looks up whose pages these are.
        buffer.page_out()?;
        let wrong = buffer.first_other(|word| AFTER + word as u64);
        ensure!(wrong.is_none(), "once it was swapped it has {wrong:?}");
    }
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// Maps managed memory in place of `words` of the buffer, which keeps the addresses.
fn manages(
    process: &Process,
    buffer: &Buffer<u64>,
    first: usize,
    words: usize,
) -> Result<(), Failure> {
    let at = buffer.address_of(first);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the memory is the buffer's, of which nobody has a reference: it is read by atomic accesses, and stays readable. The
    // buffer unmaps whatever is there.
    let mapped = unsafe {
        libc::mmap(
            at as *mut libc::c_void,
            words * 8,
            access,
            libc::MAP_SHARED | libc::MAP_FIXED,
            process.uvm_fd().as_raw_fd(),
            at as i64,
        )
    };
    ensure!(
        mapped != libc::MAP_FAILED,
        "mmap: {}",
        io::Error::last_os_error()
    );
    Ok(())
}
