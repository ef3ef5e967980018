// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls about the eviction queues of a GPU.
//!
//! All but creating and destroying hold the PMM's `list_lock` (I-lock), so that the
//! queues behind the pointer are used by one thread at a time, and that thread may
//! neither sleep nor allocate.

// What each asks of its caller is in uvm_rust_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use crate::policy::evict::{Queue, RootChunks};
use core::ffi::c_void;
use core::ptr::null_mut;
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_queues_create,
    uvm_rust_queues_destroy,
    uvm_rust_queues_set,
    uvm_rust_queues_insert,
    uvm_rust_queues_remove,
    uvm_rust_queues_pick,
    uvm_rust_queues_of,
    uvm_rust_queues_length,
    uvm_rust_queues_add_owner,
    uvm_rust_queues_remove_owner,
    uvm_rust_queues_set_now,
    uvm_rust_queues_expect,
    uvm_rust_queues_unexpect,
    uvm_rust_queues_pick_is_expected,
    uvm_rust_queues_pick_early,
    uvm_rust_queues_used,
    uvm_rust_queues_pass_over,
    uvm_rust_queues_free,
);

/// The queues behind a pointer that C keeps.
///
/// # Safety
///
/// `queues` came from [`uvm_rust_queues_create`], is not destroyed during `'a`, and
/// the PMM's `list_lock` is held for `'a`; one such reference exists at a time.
unsafe fn borrow<'a>(queues: *mut c_void) -> &'a mut RootChunks {
    // SAFETY: by this function's contract `queues` points to live, boxed
    // `RootChunks` that nobody else uses.
    unsafe { &mut *queues.cast::<RootChunks>() }
}

fn queue_from(number: u32) -> Option<Queue> {
    match number {
        bindings::UVM_RUST_QUEUE_UNUSED => Some(Queue::Unused),
        bindings::UVM_RUST_QUEUE_DISCARDED => Some(Queue::Discarded),
        bindings::UVM_RUST_QUEUE_USED => Some(Queue::Used),
        _ => None,
    }
}

fn number_of(queue: Option<Queue>) -> u32 {
    match queue {
        Some(Queue::Free) => bindings::UVM_RUST_QUEUE_FREE,
        Some(Queue::Unused) => bindings::UVM_RUST_QUEUE_UNUSED,
        Some(Queue::Discarded) => bindings::UVM_RUST_QUEUE_DISCARDED,
        Some(Queue::Used) => bindings::UVM_RUST_QUEUE_USED,
        None => bindings::UVM_RUST_QUEUE_ADDRESS,
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_create(root_chunks: u32) -> *mut c_void {
    let Ok(queues) = RootChunks::new(root_chunks) else {
        return null_mut();
    };
    match KBox::new(queues, GFP_KERNEL) {
        Ok(queues) => queues.into_foreign().cast_mut(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_destroy(queues: *mut c_void) {
    // SAFETY: I-own: `queues` came from `into_foreign` and this is its one destroy.
    drop(unsafe { <KBox<RootChunks> as ForeignOwnable>::from_foreign(queues) });
}

// A chunk number that is out of range would be C's mistake, which costs no more than
// the order of one chunk: the lists in C stay the truth.

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_set(queues: *mut c_void, chunk: u32, queue: u32) {
    // SAFETY: I-own and I-lock.
    let queues = unsafe { borrow(queues) };
    if let Some(queue) = queue_from(queue) {
        let _ = queues.set(chunk, queue);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_insert(queues: *mut c_void, chunk: u32, holder: u64) {
    // SAFETY: I-own and I-lock.
    let _ = unsafe { borrow(queues) }.insert(chunk, holder);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_remove(queues: *mut c_void, chunk: u32) -> u32 {
    // SAFETY: I-own and I-lock.
    number_of(unsafe { borrow(queues) }.remove(chunk))
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_pick(queues: *mut c_void) -> u32 {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }
        .pick()
        .unwrap_or(bindings::UVM_RUST_NO_CHUNK)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_of(queues: *mut c_void, chunk: u32) -> u32 {
    // SAFETY: I-own and I-lock.
    number_of(unsafe { borrow(queues) }.queue_of(chunk))
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_length(queues: *mut c_void, queue: u32) -> u32 {
    // SAFETY: I-own and I-lock.
    let queues = unsafe { borrow(queues) };
    queue_from(queue).map_or(0, |queue| queues.length(queue))
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_add_owner(queues: *mut c_void) -> u32 {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }.add_owner()
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_remove_owner(queues: *mut c_void, owner: u32) {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }.remove_owner(owner);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_set_now(queues: *mut c_void, owner: u32, now: u32) -> bool {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }.set_now(owner, now)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_expect(
    queues: *mut c_void,
    chunk: u32,
    owner: u32,
    until: u32,
) {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }.expect(chunk, owner, until);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_unexpect(queues: *mut c_void, chunk: u32) {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }.unexpect(chunk);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_pick_is_expected(queues: *mut c_void) -> bool {
    // SAFETY: I-own and I-lock.
    let victim = unsafe { borrow(queues) }.victim();
    victim.is_some_and(|v| v.expected)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_pick_early(queues: *mut c_void, holder: u64) -> u32 {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }
        .pick_early(holder)
        .unwrap_or(bindings::UVM_RUST_NO_CHUNK)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_used(queues: *mut c_void, chunk: u32, holder: u64) {
    // SAFETY: I-own and I-lock.
    let _ = unsafe { borrow(queues) }.used_by(chunk, holder);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_pass_over(queues: *mut c_void, chunk: u32, holder: u64) {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }.pass_over(chunk, holder);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_free(queues: *mut c_void, chunk: u32) {
    // SAFETY: I-own and I-lock.
    unsafe { borrow(queues) }.free(chunk);
}
