// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is known of a va_block's pages.
//!
//! For each page: whether GPU memory has it (`gpu`), whether its contents matter (`live`), and
//! whether host memory or the SSD hold a valid copy (`host`, `ssd`). A page's contents are in at
//! least one of the three while it is live. A write on the GPU makes the other copies invalid.

use uvm_policy::mask::PageMask;

/// The pages of a va_block: where each has a copy, and what is known of it.
#[derive(Clone, Default)]
pub(crate) struct Block {
    /// Pages in GPU memory.
    pub gpu: PageMask,
    /// Pages whose contents matter.
    pub live: PageMask,
    /// Pages with a valid copy in host memory.
    pub host: PageMask,
    /// Pages with a valid copy on the SSD.
    pub ssd: PageMask,
    /// Pages that were discarded, and not populated or migrated since.
    pub discarded: PageMask,
    /// Pages in GPU memory that an eager discard has unmapped.
    pub unmapped: PageMask,
    /// Pages of tensors that are dead, whatever the machine knows of it.
    pub dead: PageMask,
    /// Pages that are asked to leave.
    pub(super) leaving: PageMask,
    /// Pages that the GPU has ever had.
    pub seen: PageMask,
    /// When what was last copied in is there.
    pub ready_at: u64,
    /// When what was last copied out is gone.
    pub gone_at: u64,
    /// Whether it holds a root chunk.
    pub chunk: bool,
    /// Requests for it in the prefetch queues.
    pub queued: u32,
    /// The queue of the last of these.
    pub(super) queue: u8,
    /// Whether it is in the list of clean host copies.
    pub(super) clean_listed: bool,
}

impl Block {
    /// Pages that the GPU can access without a fault.
    pub(crate) fn mapped(&self) -> PageMask {
        self.gpu - self.unmapped
    }
}
