// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The tree prefetcher: `policy/tree.rs` on a va_block of upstream's, whose lock is held.

use crate::ffi::bindings::uvm_rust_tree;
use crate::policy::mask::{PageMask, Region};
use crate::policy::tree::{grow as grown, prefetch as prefetched, Shape};

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
    leaves
}

/// What comes along with the `faulted` pages that are `within`.
pub(crate) fn prefetch(
    tree: &uvm_rust_tree,
    within: Region,
    threshold: u32,
    faulted: &PageMask,
    leaves: &PageMask,
) -> PageMask {
    prefetched(leaves, shape(tree), faulted, within, threshold)
}
