// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What upstream does with chunks and pages of a va_block that has a state, with the block's lock held.

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
    // As upstream does for a new chunk: all of it at once.
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
    // Untracked, all that is handed out there is zeroed first.
    let _ = block.track(memory, &PageMask::EMPTY);
    block.added(memory, chunk, &zeroed);
}
