// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! C's calls on the discard state of a va_block; and a discard of a range, as the walk
//! sees it (call.rs).
//!
//! Each call on a state is made under the va_block's lock (I-lock), so that one thread at a time
//! uses the state behind the pointer.

// What each asks of its caller is in uvm_rust_discard_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings::{self, uvm_rust_mask};
use crate::driver::discard::pages;
use crate::policy::discard::{BlockState, Memory};
use crate::policy::mask::{PageMask, Region};
use core::ffi::c_void;
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

#[cfg(not(uvm_native))]
pub(crate) mod call;
#[cfg(not(uvm_native))]
mod drops;
#[cfg(not(uvm_native))]
pub(crate) mod split;

super::check_exports!(
    uvm_rust_block_destroy,
    uvm_rust_block_zeroing,
    uvm_rust_block_added,
    uvm_rust_block_prepare,
    uvm_rust_block_zeroing_host,
);

/// The block behind a pointer that C keeps.
///
/// # Safety
///
/// `block` came from `KBox::into_foreign`, is not destroyed during `'a`, and the va_block's
/// lock is held for `'a`; one such reference exists at a time.
pub(super) unsafe fn borrow<'a>(block: *mut bindings::uvm_rust_block) -> &'a mut BlockState {
    // SAFETY: by this function's contract `block` points to a live, boxed `BlockState`
    // that nobody else uses.
    unsafe { &mut *block.cast::<BlockState>() }
}

impl uvm_rust_mask {
    /// The mask as the policies take it.
    pub(crate) fn set(&self) -> PageMask {
        PageMask::from_words(self.words)
    }
}

/// The block's state, from the place where C keeps the pointer; `None` if the block has none.
///
/// # Safety
///
/// The place is a va_block's, whose lock is held for `'a`; one such reference exists at a time.
#[cfg(not(uvm_native))]
pub(super) unsafe fn state_at<'a>(
    place: *mut *mut bindings::uvm_rust_block,
) -> Option<&'a mut BlockState> {
    // SAFETY: by this function's contract; I-own.
    unsafe { (*place).as_mut().map(|state| borrow(state)) }
}

/// # Safety
///
/// `mask` is valid for reading.
pub(super) unsafe fn read(mask: *const uvm_rust_mask) -> PageMask {
    // SAFETY: by this function's contract.
    PageMask::from_words(unsafe { *mask }.words)
}

pub(super) fn as_c(mask: &PageMask) -> uvm_rust_mask {
    uvm_rust_mask {
        words: *mask.words(),
    }
}

/// # Safety
///
/// `out` is valid for writing.
pub(super) unsafe fn write(out: *mut uvm_rust_mask, mask: &PageMask) -> bool {
    // SAFETY: by this function's contract.
    unsafe { *out = as_c(mask) };
    !mask.is_empty()
}

/// Numbers of pages and of memories come from C as `u32` and are far below 2^16.
pub(super) fn short(n: u32) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

fn memory(number: u32) -> Memory {
    Memory(short(number))
}

fn region(first: u32, outer: u32) -> Region {
    Region::new(short(first), short(outer))
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_destroy(block: *mut bindings::uvm_rust_block) {
    if !block.is_null() {
        // SAFETY: I-own: `block` came from `KBox::into_foreign` and this is its one destroy.
        drop(unsafe { <KBox<BlockState> as ForeignOwnable>::from_foreign(block.cast::<c_void>()) });
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_zeroing(
    block: *mut bindings::uvm_rust_block,
    number: u32,
    first: u32,
    outer: u32,
    resident: *const uvm_rust_mask,
    resident_there: *const uvm_rust_mask,
    out: *mut uvm_rust_mask,
) -> bool {
    // SAFETY: I-own and I-lock for `block`, I-call for the masks.
    unsafe {
        let (resident, there) = (read(resident), read(resident_there));
        let (memory, chunk) = (memory(number), region(first, outer));
        write(
            out,
            &pages::zeroing(borrow(block), memory, chunk, &resident, &there),
        )
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_added(
    block: *mut bindings::uvm_rust_block,
    number: u32,
    first: u32,
    outer: u32,
    resident: *const uvm_rust_mask,
    was_zero: bool,
) {
    // SAFETY: I-own and I-lock for `block`, I-call for `resident`.
    let (block, resident) = unsafe { (borrow(block), read(resident)) };
    pages::added(
        block,
        memory(number),
        region(first, outer),
        resident,
        was_zero,
    );
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_prepare(
    block: *mut bindings::uvm_rust_block,
    number: u32,
    pages: *const uvm_rust_mask,
) {
    // SAFETY: I-own and I-lock for `block`, I-call for `pages`.
    unsafe { borrow(block).prepare(memory(number), &read(pages)) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_zeroing_host(
    block: *mut bindings::uvm_rust_block,
    wanted: *const uvm_rust_mask,
    allocated: *const uvm_rust_mask,
    resident: *const uvm_rust_mask,
    out: *mut uvm_rust_mask,
) -> bool {
    // SAFETY: I-own and I-lock for `block`, I-call for the masks.
    unsafe {
        let (wanted, allocated, resident) = (read(wanted), read(allocated), read(resident));
        write(
            out,
            &borrow(block).zeroing_host(&wanted, &allocated, &resident),
        )
    }
}
