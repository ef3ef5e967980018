// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Dropping what is discarded, where others would copy it.

// What each asks of its caller is in uvm_rust_discard_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::super::bindings;
use super::{as_c, borrow, read};
use crate::driver::discard::status;
use crate::policy::mask::PageMask;
use bindings::{uvm_rust_block, uvm_rust_mask, uvm_seam_context, uvm_va_block_struct};
use core::ptr::null_mut;

super::super::check_exports!(uvm_rust_block_drop_stale, uvm_rust_block_drop_needless);

/// Drops `pages`, and what is discarded is not there any more; `unmap`, of which they are a part, is unmapped.
///
/// # Safety
///
/// The block is locked, and of its VA space; `state` is its state (I-own, I-lock), and the context is kept.
unsafe fn drop_pages(
    of: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    state: *mut uvm_rust_block,
    unmap: &PageMask,
    pages: &PageMask,
) -> u32 {
    // SAFETY: by this function's contract. While the lock is held throughout, the state is
    // there, and nobody else uses it.
    unsafe {
        let result = super::drop_pages(of, context, unmap, pages);
        if result == status::OK {
            borrow(state).dropped(pages);
        }
        result
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_drop_stale(
    of: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    state: *mut uvm_rust_block,
    pages: *const uvm_rust_mask,
    resident_at_destination: *const uvm_rust_mask,
) -> u32 {
    // SAFETY: I-own and I-lock for the block, I-call for the rest.
    unsafe {
        let stale = borrow(state).stale(&read(pages), &read(resident_at_destination));
        if stale.is_empty() {
            return status::OK;
        }
        drop_pages(of, context, state, &stale, &stale)
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_drop_needless(
    of: *mut uvm_va_block_struct,
    state: *mut uvm_rust_block,
    leaving: *const uvm_rust_mask,
) -> u32 {
    // SAFETY: I-own and I-lock for the block, I-call for the mask.
    unsafe {
        let leaving = read(leaving);
        let pages = borrow(state).needless(&leaving);
        if pages.is_empty() {
            return status::OK;
        }
        let context = bindings::uvm_seam_context_new(null_mut());
        if context.is_null() {
            return status::NO_MEMORY;
        }
        // Whatever leaves with the chunk is unmapped in one go, so that no large mapping is split for it.
        let result = drop_pages(of, context, state, &leaving, &pages);
        bindings::uvm_seam_context_free(context);
        if result == status::OK {
            bindings::uvm_seam_block_forget_thrashing(of, &as_c(&pages));
        }
        result
    }
}
