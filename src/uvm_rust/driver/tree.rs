// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The tree prefetcher: `policy/tree.rs` on a va_block of upstream's, whose lock is held.
//!
//! Where the driver picks for each process what comes along with faults (`driver/choose.rs`), the fault loop notes the pick
//! while it services a va_block. Upstream's service asks the tree in the same thread, and the tree finds the pick there.
//! Faults of the CPU, faults that are not replayable, and memory that ATS maps have what upstream says: for none of these
//! does the fault loop's thread grow a va_block's tree.

use super::fault;
use crate::ffi::bindings::uvm_rust_tree;
use crate::ffi::seam;
use crate::policy::chooser::Along;
use crate::policy::mask::{PageMask, Region};
use crate::policy::tree::{grow as grown, prefetch as prefetched, Shape};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

fn shape(tree: &uvm_rust_tree) -> Shape {
    Shape {
        max: Region::new(tree.first, tree.outer),
        offset: tree.offset,
        leaves: tree.leaves,
    }
}

/// Adds to `leaves` the `big` pages, of `granule` pages, with a fault and no page that thrashes.
pub(crate) fn grow(
    tree: &uvm_rust_tree,
    big: Region,
    granule: u16,
    faulted: &PageMask,
    thrashing: Option<&PageMask>,
    mut leaves: PageMask,
) -> PageMask {
    grown(&mut leaves, shape(tree), big, granule, faulted, thrashing);
    if let Some(now) = fault::serviced_here() {
        now.grows();
    }
    leaves
}

/// What comes along with the `faulted` pages that are `within`. The process of the fault may have a `threshold` of its own.
pub(crate) fn prefetch(
    tree: &uvm_rust_tree,
    within: Region,
    threshold: u32,
    faulted: &PageMask,
    leaves: &PageMask,
) -> PageMask {
    let threshold = match fault::serviced_here() {
        Some(now) => now.threshold(threshold),
        None => threshold,
    };
    prefetched(leaves, shape(tree), faulted, within, threshold)
}

/// What comes along with the faults that a thread services now.
pub(crate) struct Now {
    /// The thread; 0 for none.
    thread: AtomicU64,
    /// The pick, as its place in [`Along::ALL`].
    along: AtomicU32,
    /// Whether the next tree is that of a va_block.
    is_of_block: AtomicBool,
}

impl Now {
    pub(crate) const fn new() -> Self {
        Self {
            thread: AtomicU64::new(0),
            along: AtomicU32::new(0),
            is_of_block: AtomicBool::new(false),
        }
    }

    /// Calls `service` in this thread, with this pick for the faults that it services.
    pub(crate) fn picks<R>(&self, along: Option<Along>, service: impl FnOnce() -> R) -> R {
        let Some(along) = along else {
            return service();
        };
        let place = Along::ALL.iter().position(|pick| *pick == along);
        self.along.store(place.unwrap_or(0) as u32, Relaxed);
        self.is_of_block.store(false, Relaxed);
        self.thread.store(seam::this_thread(), Relaxed);
        let result = service();
        self.thread.store(0, Relaxed);
        result
    }

    /// Whether it is this thread's.
    pub(crate) fn is_here(&self) -> bool {
        self.thread.load(Relaxed) == seam::this_thread()
    }

    /// The next tree that this thread asks is that of a va_block.
    pub(crate) fn grows(&self) {
        self.is_of_block.store(true, Relaxed);
    }

    /// The threshold of the tree that this thread asks, whose own is `threshold`.
    pub(crate) fn threshold(&self, threshold: u32) -> u32 {
        let along = Along::ALL.get(self.along.load(Relaxed) as usize);
        match along.filter(|_| self.is_of_block.swap(false, Relaxed)) {
            Some(along) => along.threshold(threshold),
            None => threshold,
        }
    }
}
