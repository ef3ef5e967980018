// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls about the eviction queues of a GPU, and when its memory is all in use.
//!
//! All that is called about queues holds the PMM's `list_lock` (I-lock), so that a GPU's queues
//! (I-gpu) are used by one thread at a time, and that thread may neither sleep nor allocate.

// What each asks of its caller is in uvm_rust_evict_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::gpu::{self, queues};
use super::status::Status;
use crate::driver::discard::status;
use crate::policy::evict::reclaim::{Reclaim, Thread};
use crate::policy::evict::wait::{self, Ended};
use crate::policy::evict::{Change, Choice, Chunk, Lists, Queue};
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use kernel::prelude::*;

super::check_exports!(
    uvm_rust_queues_set,
    uvm_rust_queues_change,
    uvm_rust_queues_choose,
    uvm_rust_reclaim_begin,
    uvm_rust_eviction_begins,
    uvm_rust_eviction_ended,
    uvm_rust_rm_call_begins,
    uvm_rust_rm_call_ended,
    uvm_rust_wait_for_memory,
);

/// Takes the policy that the module parameter names, for the GPUs that are registered from now on.
///
/// # Errors
///
/// `EINVAL`, and lines in the log with the names that there are, if there is none of this name.
pub(super) fn choose_policy() -> Result {
    // SAFETY: a parameter, which nobody writes once the module is loaded: a string that ends with a NUL.
    let name = unsafe { CStr::from_ptr(bindings::uvm_rust_evict_policy) }.to_bytes();
    let named = core::str::from_utf8(name.trim_ascii_end());
    let Some(choice) = named.ok().and_then(Choice::named) else {
        pr_err!("uvm_rust_evict_policy: there is no such policy; there are:\n");
        for choice in Choice::ALL {
            pr_err!("uvm_rust_evict_policy: {}\n", choice.name());
        }
        return Err(EINVAL);
    };
    gpu::EVICT_POLICY.store(choice.number(), Relaxed);
    Ok(())
}

// A chunk number that is out of range would be C's mistake. Such a chunk is on no queue, and is
// not chosen.

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_set(gpu: u32, chunk: u32, queue: u32, holder: u64) {
    // SAFETY: I-lock.
    let Some(queues) = (unsafe { queues(gpu) }) else {
        return;
    };
    let _ = match Queue::from_number(queue) {
        Some(Queue::Free) => queues.evicted(chunk),
        Some(Queue::Used) => queues.used_by(chunk, holder),
        Some(queue) => queues.set(chunk, queue),
        None => Ok(()),
    };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_change(gpu: u32, chunk: u32, change: u32, holder: u64) {
    let change = match change {
        bindings::UVM_RUST_CHUNK_FREE => Change::Free { zeroed: false },
        bindings::UVM_RUST_CHUNK_FREE_ZEROED => Change::Free { zeroed: true },
        bindings::UVM_RUST_CHUNK_SPLIT => Change::Split,
        bindings::UVM_RUST_CHUNK_WHOLE => Change::Whole(holder),
        _ => Change::Pinned,
    };
    // SAFETY: I-lock.
    if let Some(queues) = unsafe { queues(gpu) } {
        let _ = queues.change(chunk, change);
    }
}

/// A GPU; the `list_lock` of its PMM is held.
///
/// Invariant: valid, and the lock held, as long as this is.
struct Pmm(*mut bindings::uvm_gpu_struct);

impl Lists for Pmm {
    fn evictable(&mut self, chunk: Chunk) -> bool {
        // SAFETY: valid, and locked, by the type's invariant; the queues have as many chunks as
        // the PMM has root chunks. C looks at the PMM alone, and not into the queues.
        unsafe { bindings::uvm_seam_chunk_evictable(self.0, chunk) }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_queues_choose(gpu: u32, of: *mut bindings::uvm_gpu_struct) -> u32 {
    // SAFETY: I-lock; I-call for `of`.
    unsafe { queues(gpu) }
        .and_then(|queues| queues.choose(&mut Pmm(of)))
        .unwrap_or(bindings::UVM_RUST_NO_CHUNK)
}

/// Reclaim of each GPU's memory, by its index.
static RECLAIMS: [Reclaim; bindings::UVM_RUST_MAX_GPUS as usize] =
    [const { Reclaim::new() }; bindings::UVM_RUST_MAX_GPUS as usize];

/// Of the GPU with this index. C asserts that there are so many at most; were there more, the
/// last ones would share one.
fn reclaim_of(gpu: u32) -> &'static Reclaim {
    let [.., last] = &RECLAIMS;
    RECLAIMS.get(gpu as usize).unwrap_or(last)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_reclaim_begin(gpu: u32, thread: u64) -> u32 {
    reclaim_of(gpu).begin(thread)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_eviction_begins(gpu: u32) {
    reclaim_of(gpu).eviction_begins();
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_eviction_ended(gpu: u32, status: u32, thread: u64) -> u32 {
    let how = match status {
        status::OK => Ended::Got,
        status::IN_USE => Ended::Held,
        _ => Ended::Failed,
    };
    // Of a row there is only where chunks are held: all others need not look at the clock.
    let at = if how == Ended::Held { now() } else { 0 };
    // I-lock: the PMM's lock is held, so that this is called once at a time for a GPU.
    if reclaim_of(gpu).eviction_ended(how, thread, at) {
        status::NO_MEMORY
    } else {
        status
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_rm_call_begins(gpu: u32) {
    reclaim_of(gpu).rm_call_begins();
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_rm_call_ended(gpu: u32, got: bool) {
    reclaim_of(gpu).rm_call_ended(got);
}

/// Microseconds, from some time on.
pub(super) fn now_us() -> u64 {
    // SAFETY: no preconditions.
    let ns = unsafe { bindings::ktime_get() };
    ns.unsigned_abs() / 1000
}

/// Milliseconds, by the same clock.
pub(super) fn now() -> u64 {
    now_us() / 1000
}

/// Sleeps for a moment, a millisecond at most. No spinlock is held.
pub(super) fn nap() {
    // SAFETY: one that held a spinlock would be told by the kernel; memory is safe all the same.
    unsafe { bindings::uvm_seam_sleep(NAP_US) };
}

/// Half of what [`nap`] may take.
const NAP_US: u64 = 500;

/// An allocation of C's.
///
/// Invariant: `c` is valid, and this thread's, as long as this is; no spinlock is held.
struct Alloc {
    c: *mut bindings::uvm_seam_alloc,
    reclaim: &'static Reclaim,
    thread: Thread,
}

impl wait::Machine for Alloc {
    type Error = Status;

    fn allocate(&mut self, evict: bool) -> Result<bool, Status> {
        let mut got = false;
        // SAFETY: by the type's invariant; `got` is written once.
        Status::check(unsafe { bindings::uvm_seam_alloc_try(self.c, evict, &mut got) })?;
        Ok(got)
    }

    fn begin(&mut self) -> u32 {
        self.reclaim.begin(self.thread)
    }

    fn goes_on(&mut self, gains: u32) -> bool {
        self.reclaim.goes_on(gains)
    }

    fn given_up(&mut self, gains: u32) -> bool {
        self.reclaim.given_up(self.thread, gains)
    }

    fn now(&mut self) -> u64 {
        now()
    }

    fn dying(&mut self) -> bool {
        // SAFETY: no spinlock is held.
        unsafe { bindings::uvm_seam_rest() }
    }

    fn nap(&mut self) {
        nap();
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_wait_for_memory(
    alloc: *mut bindings::uvm_seam_alloc,
    gpu: u32,
    thread: u64,
    gains: u32,
) -> u32 {
    let began = now();
    // I-call, and I-lock: C may sleep there.
    let mut alloc = Alloc {
        c: alloc,
        reclaim: reclaim_of(gpu),
        thread,
    };
    match wait::wait_for_memory(&mut alloc, gains, began) {
        Ok(true) => status::OK,
        Ok(false) => status::NO_MEMORY,
        Err(failed) => failed.number(),
    }
}
