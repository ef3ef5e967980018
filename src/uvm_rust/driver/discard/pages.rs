// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Upstream's changes of chunks and pages, in a va_block that has a discard state. The block's lock is held.

use crate::policy::discard::{BlockState, Memory};
use crate::policy::mask::{PageMask, Region};

/// What is to be zeroed of a chunk that is `there`: `resident` pages are somewhere.
pub(crate) fn zeroing(
    block: &mut BlockState,
    memory: Memory,
    chunk: Region,
    resident: &PageMask,
    there: &PageMask,
) -> PageMask {
    // Upstream zeroes all of a new chunk at once; so does this.
    let zeroing = block.zeroing(memory, chunk, &PageMask::FULL, resident, there);
    zeroing.pages()
}

/// Upstream has just zeroed what is not `resident` anywhere, unless the chunk was zero as it came.
pub(crate) fn added(
    block: &mut BlockState,
    memory: Memory,
    chunk: Region,
    resident: PageMask,
    was_zero: bool,
) {
    let zeroed = if was_zero {
        PageMask::FULL
    } else {
        PageMask::FULL - resident
    };
    // Without a record, every page of this memory is zeroed before it is handed out.
    let _ = block.track(memory, &PageMask::EMPTY);
    block.added(memory, chunk, &zeroed);
}
