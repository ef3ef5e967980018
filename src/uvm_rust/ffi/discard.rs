// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls about the discard state of a va_block.
//!
//! All of these hold the va_block's lock (I-lock), so that the state behind the
//! pointer is used by one thread at a time.

// What each asks of its caller is in uvm_rust_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings::{self, uvm_rust_mask};
use crate::driver::discard::Block;
use crate::policy::discard::{BlockState, Facts, Memory, Mode, Status};
use crate::policy::evict::Queue;
use crate::policy::mask::{PageMask, Region};
use core::ffi::c_void;
use core::ptr::null_mut;
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_block_create,
    uvm_rust_block_destroy,
    uvm_rust_block_track,
    uvm_rust_block_plan,
    uvm_rust_block_commit,
    uvm_rust_block_queue,
    uvm_rust_block_stale,
    uvm_rust_block_zeroing,
    uvm_rust_block_needless,
    uvm_rust_block_dropped,
    uvm_rust_block_added,
    uvm_rust_block_released,
    uvm_rust_block_prepare,
    uvm_rust_block_accessed,
    uvm_rust_block_upper,
    uvm_rust_block_truncate,
    uvm_rust_block_status,
);

/// The block behind a pointer that C keeps.
///
/// # Safety
///
/// `block` came from [`uvm_rust_block_create`] or [`uvm_rust_block_upper`], is not
/// destroyed during `'a`, and the va_block's lock is held for `'a`; one such
/// reference exists at a time.
unsafe fn borrow<'a>(block: *mut c_void) -> &'a mut Block {
    // SAFETY: by this function's contract `block` points to a live, boxed `Block`
    // that nobody else uses.
    unsafe { &mut *block.cast::<Block>() }
}

/// # Safety
///
/// `mask` is valid for reading.
pub(super) unsafe fn read(mask: *const uvm_rust_mask) -> PageMask {
    // SAFETY: by this function's contract.
    PageMask::from_words(unsafe { *mask }.words)
}

/// # Safety
///
/// `out` is valid for writing.
pub(super) unsafe fn write(out: *mut uvm_rust_mask, mask: &PageMask) -> bool {
    // SAFETY: by this function's contract.
    unsafe {
        *out = uvm_rust_mask {
            words: *mask.words(),
        }
    };
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

fn boxed(state: BlockState) -> *mut c_void {
    match KBox::new(Block::new(state), GFP_KERNEL_ACCOUNT) {
        Ok(block) => block.into_foreign().cast_mut(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_create(pages: u32) -> *mut c_void {
    boxed(BlockState::new(short(pages)))
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_destroy(block: *mut c_void) {
    // SAFETY: I-own: `block` came from `into_foreign` and this is its one destroy.
    drop(unsafe { <KBox<Block> as ForeignOwnable>::from_foreign(block) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_track(
    block: *mut c_void,
    number: u32,
    resident: *const uvm_rust_mask,
) -> bool {
    // SAFETY: I-own and I-lock for `block`, I-call for `resident`.
    let (block, resident) = unsafe { (borrow(block), read(resident)) };
    block.state.track(memory(number), &resident).is_ok()
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_plan(
    block: *mut c_void,
    discard: *mut bindings::uvm_rust_discard,
) {
    // SAFETY: I-own and I-lock for `block`; I-call for `discard`, which is C's own
    // local variable.
    let (block, discard) = unsafe { (borrow(block), &mut *discard) };
    let mode = if discard.eager {
        Mode::Eager
    } else {
        Mode::Lazy
    };
    let facts = Facts {
        resident: PageMask::from_words(discard.resident.words),
        mapped_2m: discard.mapped_2m,
    };
    let range = region(discard.first, discard.outer);
    let plan = block.state.plan(range, mode, discard.granule_shift, &facts);
    discard.drop = uvm_rust_mask {
        words: *plan.drop.words(),
    };
    discard.done = uvm_rust_mask {
        words: *plan.discarded.words(),
    };
    discard.discarded = plan.discarded.count().into();
    discard.ignored = plan.ignored.count().into();
    block.plan = Some(plan);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_commit(block: *mut c_void) {
    // SAFETY: I-own and I-lock.
    let block = unsafe { borrow(block) };
    if let Some(plan) = block.plan.take() {
        block.state.commit(&plan);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_queue(
    block: *mut c_void,
    number: u32,
    resident_there: *const uvm_rust_mask,
) -> u32 {
    // SAFETY: I-own and I-lock for `block`, I-call for `resident_there`.
    let (block, there) = unsafe { (borrow(block), read(resident_there)) };
    match block.state.queue(memory(number), &there) {
        Queue::Discarded => bindings::UVM_RUST_QUEUE_DISCARDED,
        Queue::Free | Queue::Unused => bindings::UVM_RUST_QUEUE_UNUSED,
        Queue::Used => bindings::UVM_RUST_QUEUE_USED,
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_stale(
    block: *mut c_void,
    pages: *const uvm_rust_mask,
    resident_at_destination: *const uvm_rust_mask,
    out: *mut uvm_rust_mask,
) -> bool {
    // SAFETY: I-own and I-lock for `block`, I-call for the masks.
    unsafe {
        let stale = borrow(block)
            .state
            .stale(&read(pages), &read(resident_at_destination));
        write(out, &stale)
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_zeroing(
    block: *mut c_void,
    number: u32,
    first: u32,
    outer: u32,
    wanted: *const uvm_rust_mask,
    resident: *const uvm_rust_mask,
    resident_there: *const uvm_rust_mask,
    out: *mut uvm_rust_mask,
) -> bool {
    // SAFETY: I-own and I-lock for `block`, I-call for the masks.
    unsafe {
        let (wanted, resident, there) = (read(wanted), read(resident), read(resident_there));
        let state = &borrow(block).state;
        let zeroing = state.zeroing(
            memory(number),
            region(first, outer),
            &wanted,
            &resident,
            &there,
        );
        write(out, &zeroing.pages())
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_needless(
    block: *mut c_void,
    first: u32,
    outer: u32,
    resident_there: *const uvm_rust_mask,
    out: *mut uvm_rust_mask,
) -> bool {
    // SAFETY: I-own and I-lock for `block`, I-call for the masks.
    unsafe {
        let needless = borrow(block)
            .state
            .needless(region(first, outer), &read(resident_there));
        write(out, &needless)
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_dropped(block: *mut c_void, pages: *const uvm_rust_mask) {
    // SAFETY: I-own and I-lock for `block`, I-call for `pages`.
    unsafe { borrow(block).state.dropped(&read(pages)) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_added(
    block: *mut c_void,
    number: u32,
    first: u32,
    outer: u32,
    zeroed: *const uvm_rust_mask,
) {
    // SAFETY: I-own and I-lock for `block`, I-call for `zeroed`.
    let (block, zeroed) = unsafe { (borrow(block), read(zeroed)) };
    // Untracked, all that is handed out there is zeroed first.
    let _ = block.state.track(memory(number), &PageMask::EMPTY);
    block
        .state
        .added(memory(number), region(first, outer), &zeroed);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_released(
    block: *mut c_void,
    number: u32,
    pages: *const uvm_rust_mask,
) {
    // SAFETY: I-own and I-lock for `block`, I-call for `pages`.
    let (block, pages) = unsafe { (borrow(block), read(pages)) };
    for run in pages.runs() {
        block.state.released(memory(number), run);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_prepare(
    block: *mut c_void,
    number: u32,
    pages: *const uvm_rust_mask,
) {
    // SAFETY: I-own and I-lock for `block`, I-call for `pages`.
    unsafe { borrow(block).state.prepare(memory(number), &read(pages)) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_accessed(block: *mut c_void, pages: *const uvm_rust_mask) {
    // SAFETY: I-own and I-lock for `block`, I-call for `pages`.
    unsafe { borrow(block).state.accessed(&read(pages)) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_upper(block: *mut c_void, at: u32) -> *mut c_void {
    // SAFETY: I-own and I-lock.
    match unsafe { borrow(block) }.state.upper(short(at)) {
        Ok(upper) => boxed(upper),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_truncate(block: *mut c_void, at: u32) {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(block) }.state.truncate(short(at));
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_status(block: *mut c_void, page: u32) -> u32 {
    // SAFETY: I-own and I-lock.
    match unsafe { borrow(block) }.state.status(short(page)) {
        Status::Live => bindings::UVM_RUST_PAGE_LIVE,
        Status::Lazy => bindings::UVM_RUST_PAGE_LAZY,
        Status::Eager => bindings::UVM_RUST_PAGE_EAGER,
    }
}
