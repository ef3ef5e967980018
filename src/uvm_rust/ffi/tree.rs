// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls of the tree prefetcher (`policy/tree.rs`).
//!
//! All masks are upstream's, of a va_block whose lock is held, and live for the call
//! (I-call, I-lock).

// What each asks of its caller is in uvm_rust_fault_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings::{uvm_rust_mask, uvm_rust_tree};
use super::discard::{read, write};
use crate::policy::mask::Region;
use crate::policy::tree::{grow, prefetch, Shape};

super::check_exports!(uvm_rust_tree_grow, uvm_rust_tree_prefetch);

fn shape(tree: &uvm_rust_tree) -> Shape {
    Shape {
        max: Region::new(tree.first, tree.outer),
        offset: tree.offset,
        leaves: tree.leaves,
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tree_grow(
    tree: *const uvm_rust_tree,
    big_first: u16,
    big_outer: u16,
    granule: u16,
    faulted: *const uvm_rust_mask,
    thrashing: *const uvm_rust_mask,
    leaves: *mut uvm_rust_mask,
) {
    // SAFETY: I-call for all of them; `thrashing` may be null, and is not read then.
    let (tree, faulted, mut grown, thrashing) = unsafe {
        let thrashing = (!thrashing.is_null()).then(|| read(thrashing));
        (&*tree, read(faulted), read(leaves), thrashing)
    };
    let big = Region::new(big_first, big_outer);
    grow(
        &mut grown,
        shape(tree),
        big,
        granule,
        &faulted,
        thrashing.as_ref(),
    );
    // SAFETY: I-call.
    unsafe { write(leaves, &grown) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tree_prefetch(
    tree: *const uvm_rust_tree,
    first: u16,
    outer: u16,
    threshold: u32,
    faulted: *const uvm_rust_mask,
    leaves: *const uvm_rust_mask,
    out: *mut uvm_rust_mask,
) {
    // SAFETY: I-call for all of them.
    let (tree, faulted, leaves) = unsafe { (&*tree, read(faulted), read(leaves)) };
    let within = Region::new(first, outer);
    let taken = prefetch(&leaves, shape(tree), &faulted, within, threshold);
    // SAFETY: I-call.
    unsafe { write(out, &taken) };
}
