// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What C calls of the tree prefetcher (`driver/tree.rs`).
//!
//! All masks are upstream's, of a va_block whose lock is held, and live for the call
//! (I-call, I-lock).

// What each asks of its caller is in uvm_rust_fault_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings::{uvm_rust_mask, uvm_rust_tree};
use super::discard::{read, write};
use crate::driver::tree;
use crate::policy::mask::Region;

super::check_exports!(uvm_rust_tree_grow, uvm_rust_tree_prefetch);

#[no_mangle]
unsafe extern "C" fn uvm_rust_tree_grow(
    of: *const uvm_rust_tree,
    big_first: u16,
    big_outer: u16,
    granule: u16,
    faulted: *const uvm_rust_mask,
    thrashing: *const uvm_rust_mask,
    leaves: *mut uvm_rust_mask,
) {
    let big = Region::new(big_first, big_outer);
    // SAFETY: I-call for all of them; `thrashing` may be null, and is not read then.
    unsafe {
        let thrashing = (!thrashing.is_null()).then(|| read(thrashing));
        let (faulted, before) = (read(faulted), read(leaves));
        let after = tree::grow(&*of, big, granule, &faulted, thrashing.as_ref(), before);
        write(leaves, &after);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tree_prefetch(
    of: *const uvm_rust_tree,
    first: u16,
    outer: u16,
    threshold: u32,
    faulted: *const uvm_rust_mask,
    leaves: *const uvm_rust_mask,
    out: *mut uvm_rust_mask,
) {
    let within = Region::new(first, outer);
    // SAFETY: I-call for all of them.
    unsafe {
        let (faulted, leaves) = (read(faulted), read(leaves));
        let taken = tree::prefetch(&*of, within, threshold, &faulted, &leaves);
        write(out, &taken);
    }
}
