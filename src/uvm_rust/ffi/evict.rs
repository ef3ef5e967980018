// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What C calls about the eviction queues of a GPU, and when its memory is all in use (`driver/evict.rs`).
//!
//! All that is called about queues holds the PMM's `list_lock` (I-lock), so that a GPU's queues
//! (I-gpu) are used by one thread at a time.

// What each asks of its caller is in uvm_rust_evict_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::gpu::{counted_queues, Chunks, GpuHandle};
use super::vaspace::VaSpace;
use super::{bindings, space};
use crate::driver::evict::{self, reclaim_of};
use crate::driver::quota;
use crate::driver::stats::Share;
use crate::policy::evict::wait::Asks;
use crate::policy::quota::counts;
use core::ptr::NonNull;
use kernel::sync::ArcBorrow;

super::check_exports!(
    uvm_rust_queues_set,
    uvm_rust_queues_change,
    uvm_rust_chunk_is_leaving,
    uvm_rust_queues_choose,
    uvm_rust_quota_begin,
    uvm_rust_quota_end,
    uvm_rust_eviction_begins,
    uvm_rust_eviction_ended,
    uvm_rust_rm_call_begins,
    uvm_rust_rm_call_ended,
    uvm_rust_alloc,
);

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_set(gpu: u32, chunk: u32, queue: u32, holder: u64) {
    // SAFETY: I-lock.
    if let Some(counted) = unsafe { counted_queues(gpu) } {
        evict::set(counted, chunk, queue, holder);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_change(gpu: u32, chunk: u32, change: u32, holder: u64) {
    // SAFETY: I-lock.
    if let Some(counted) = unsafe { counted_queues(gpu) } {
        evict::change(counted, chunk, change, holder);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_chunk_is_leaving(gpu: u32, chunk: u32) -> bool {
    // SAFETY: I-lock.
    unsafe { counted_queues(gpu) }.is_some_and(|(queues, _)| queues.is_leaving(chunk))
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_choose(
    gpu: u32,
    of: *mut bindings::uvm_gpu_struct,
    space: *mut bindings::uvm_seam_space,
) -> u32 {
    // SAFETY: I-lock; I-call for `of`.
    let mut chunks = unsafe { Chunks::held(GpuHandle::new(of, gpu)) };
    let chosen = if space.is_null() {
        chunks.choose(reclaim_of(gpu).is_in_vain())
    } else {
        chunks.choose_of(space as usize as u64)
    };
    chosen.unwrap_or(bindings::UVM_RUST_NO_CHUNK)
}

/// What a VA space has of the GPU with number `index`.
///
/// # Safety
///
/// The VA space's lock is held for `'a`.
unsafe fn share_of<'a>(
    space: *mut bindings::uvm_seam_space,
    index: u32,
) -> Option<ArcBorrow<'a, Share>> {
    // SAFETY: this function's contract.
    unsafe { space::of(space) }?.stats()?.share(index)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_quota_begin(
    space: *mut bindings::uvm_seam_space,
    gpu: *mut bindings::uvm_gpu_struct,
    index: u32,
    is_root: bool,
    evict: bool,
    frees: bool,
) -> u32 {
    let Some(of) = NonNull::new(space).filter(|_| counts(is_root, frees)) else {
        return bindings::UVM_RUST_QUOTA_OTHER;
    };
    // SAFETY: I-lock: the VA space's lock is held, which keeps the GPUs that are registered in it.
    let (share, gpu) = unsafe { (share_of(space, index), GpuHandle::new(gpu, index)) };
    // SAFETY: as above.
    let begin = |share: ArcBorrow<'_, Share>| unsafe {
        quota::begin(gpu, share.quota(), VaSpace::new(of), evict)
    };
    if share.is_none_or(begin) {
        bindings::UVM_RUST_QUOTA_COUNTS
    } else {
        bindings::UVM_RUST_QUOTA_FULL
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_quota_end(
    space: *mut bindings::uvm_seam_space,
    gpu: *mut bindings::uvm_gpu_struct,
    index: u32,
    chunk: u32,
) {
    // SAFETY: as in `uvm_rust_quota_begin`.
    let (share, gpu) = unsafe { (share_of(space, index), GpuHandle::new(gpu, index)) };
    if let Some(share) = share {
        quota::end(gpu, share.quota(), space as usize as u64, chunk);
    }
}

impl GpuHandle<'_> {
    /// Evicts a root chunk of `space`, and returns an `NV_STATUS`; `NOTHING_TO_DO` if none can be evicted now. Sleeps.
    ///
    /// The caller holds the VA space's lock, and neither a spinlock nor a va_block's lock.
    pub(crate) fn evict_of(self, space: VaSpace<'_>) -> u32 {
        // SAFETY: by the types' invariants.
        unsafe { bindings::uvm_seam_evict_of(self.as_ptr(), space.as_ptr()) }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_eviction_begins(gpu: u32) {
    reclaim_of(gpu).eviction_begins();
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_eviction_ended(
    of: *mut bindings::uvm_gpu_struct,
    gpu: u32,
    chunk: u32,
    status: u32,
    thread: u64,
) -> u32 {
    // SAFETY: I-call. I-lock: the PMM's lock is held, and not its `list_lock`.
    let gpu = unsafe { GpuHandle::new(of, gpu) };
    evict::eviction_ended(gpu, chunk, status, thread)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_rm_call_begins(gpu: u32) {
    reclaim_of(gpu).rm_call_begins();
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_rm_call_ended(gpu: u32, got: bool) {
    reclaim_of(gpu).rm_call_ended(got);
}

/// An allocation of C's, which may sleep.
///
/// Invariant: C's part of it is valid, and this thread's, for `'a`.
pub(crate) struct Allocation<'a>(&'a mut bindings::uvm_seam_alloc);

impl Allocation<'_> {
    /// Tries it, and evicts for it if it may and is to `evict`. Returns an `NV_STATUS`.
    pub(crate) fn attempt(&mut self, evict: bool) -> u32 {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_alloc_try(self.0, evict) }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_alloc(
    alloc: *mut bindings::uvm_seam_alloc,
    gpu: u32,
    thread: u64,
    evicts: bool,
    for_users: bool,
    frees: bool,
) -> u32 {
    // SAFETY: I-call, and I-lock: C may sleep there if the allocation evicts, and only such a one waits.
    let alloc = Allocation(unsafe { &mut *alloc });
    let asks = Asks {
        evicts,
        for_users,
        frees,
    };
    evict::allocate(alloc, gpu, thread, asks)
}
