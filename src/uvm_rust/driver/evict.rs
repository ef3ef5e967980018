// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Eviction in the driver: the reports to a GPU's queues (`policy/evict/lists.rs`), and the waits of allocations when
//! the GPU's memory is all in use (`policy/evict/reclaim.rs`, `wait.rs`).
//!
//! Each function on the queues is called under the PMM's `list_lock`, so it may neither sleep nor allocate.

#[cfg(not(uvm_native))]
use super::{discard::status, stats::Gpu};
#[cfg(not(uvm_native))]
use crate::ffi::evict::Allocation;
use crate::ffi::gpu::{Chunks, GpuHandle};
use crate::ffi::{bindings, seam};
#[cfg(not(uvm_native))]
use crate::ffi::{status::Status, time};
use crate::policy::evict::reclaim::{Guess, Guesses, Reclaim, Thread};
use crate::policy::evict::wait::{self, Asks, Ended, Lack, Tried};
use crate::policy::evict::{reclaimed_from, Change, Choice, Queue, RootChunks};
use crate::policy::stats;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kernel::prelude::*;

/// The number of the policy that `uvm_rust_evict_policy` names; at first the default's.
static POLICY: AtomicU32 = AtomicU32::new(0);

/// The eviction policy of a GPU that is registered now.
pub(crate) fn policy() -> Choice {
    Choice::from_number(POLICY.load(Relaxed)).unwrap_or_default()
}

/// Takes the policy that the module parameter names, for the GPUs that are registered from now on.
///
/// # Errors
///
/// `EINVAL`, and lines in the log with the names that there are, if there is none of this name.
#[cfg(not(uvm_native))]
pub(crate) fn choose_policy() -> Result {
    let Some(choice) = seam::evict_policy().and_then(|name| Choice::named(name.trim_ascii_end()))
    else {
        pr_err!("uvm_rust_evict_policy: there is no such policy; there are:\n");
        for choice in Choice::ALL {
            pr_err!("uvm_rust_evict_policy: {}\n", choice.name());
        }
        return Err(EINVAL);
    };
    POLICY.store(choice.number(), Relaxed);
    Ok(())
}

/// How many root chunks each queue of a GPU has now; without queues, how many each of upstream's lists has. Both count
/// the same chunks, though their orders differ.
pub(crate) fn queued(gpu: GpuHandle<'_>, out: &mut [u64; bindings::UVM_RUST_QUEUE_MAX as usize]) {
    let mut chunks = gpu.chunks();
    for (queue, out) in Queue::ORDER.into_iter().zip(out.iter_mut()) {
        *out = chunks.length(queue, u32::MAX).into();
    }
    if let (true, (Some(queues), lists)) = (cfg!(uvm_checks), chunks.queues()) {
        let has_just = |those: &[Queue], list| queues.has_just(those, lists.chunks(list as u32));
        if !has_just(&[Queue::Free], Queue::Free) || !has_just(&Queue::HELD, Queue::Used) {
            pr_err!("Assert failed: the queues have other chunks than upstream's lists\n");
        }
    }
}

/// The queue that root chunk `chunk` is in; without queues, upstream's list.
pub(crate) fn queue_of(gpu: GpuHandle<'_>, chunk: u32) -> Option<Queue> {
    match gpu.chunks().queues() {
        (Some(queues), _) => queues.queue_of(chunk),
        (None, lists) => {
            let listed = |queue: &Queue| lists.chunks(*queue as u32).any(|listed| listed == chunk);
            Queue::HELD.into_iter().find(listed)
        }
    }
}

/// Root chunk `chunk`, which is `free` or not, is about to be reclaimed.
#[cfg_attr(uvm_native, allow(clippy::needless_option_as_deref))]
pub(crate) fn leaves(mut chunks: Chunks<'_>, chunk: u32, free: bool) {
    let stats = chunks.gpu().stats();
    let (mut queues, lists) = chunks.queues();
    let list = || {
        if free {
            return stats::Queue::Free;
        }
        // Upstream takes the first of a list; any other is asked for by address.
        let first = |queue: &stats::Queue| lists.chunks(*queue as u32).next() == Some(chunk);
        let mut from = [
            stats::Queue::Used,
            stats::Queue::Discarded,
            stats::Queue::Unused,
        ]
        .into_iter();
        from.find(first).unwrap_or(stats::Queue::Address)
    };
    let early = queues.as_ref().is_some_and(|queues| queues.is_early(chunk));
    let from = reclaimed_from(queues.as_deref_mut(), chunk, list);
    if let Some(gpu) = stats {
        gpu.note_reclaim(chunk, from, early);
        // What becomes of the eviction is not told where upstream's queues are.
        #[cfg(uvm_native)]
        gpu.count_reclaim(chunk);
    }
    #[cfg(not(uvm_native))]
    if let Some(queues) = queues {
        note_holder(queues, stats, chunk);
    }
}

// A chunk number that is out of range would be C's mistake. Such a chunk is on no queue, and is
// not chosen.

/// Reports that the contents of `chunk` changed, so that it belongs to this `UVM_RUST_QUEUE_*`.
#[cfg(not(uvm_native))]
pub(crate) fn set(
    (queues, stats): (&mut RootChunks, Option<&Gpu>),
    chunk: u32,
    queue: u32,
    holder: u64,
) {
    let _ = match Queue::from_number(queue) {
        Some(Queue::Free) => queues.evicted(chunk),
        Some(Queue::Used) if holder == u64::from(bindings::UVM_RUST_HOLDER_UNKNOWN) => {
            queues.used_by_claimant(chunk)
        }
        Some(Queue::Used) => queues.used_by(chunk, holder),
        Some(queue) => queues.set(chunk, queue),
        None => Ok(()),
    };
    note_holder(queues, stats, chunk);
}

/// Reports the new state of `chunk`: `UVM_RUST_CHUNK_*`.
#[cfg(not(uvm_native))]
pub(crate) fn change(
    (queues, stats): (&mut RootChunks, Option<&Gpu>),
    chunk: u32,
    change: u32,
    holder: u64,
) {
    let change = match change {
        bindings::UVM_RUST_CHUNK_FREE => Change::Free { zeroed: false },
        bindings::UVM_RUST_CHUNK_FREE_ZEROED => Change::Free { zeroed: true },
        bindings::UVM_RUST_CHUNK_SPLIT => Change::Split,
        bindings::UVM_RUST_CHUNK_WHOLE => Change::Whole(holder),
        bindings::UVM_RUST_CHUNK_STAYS => Change::Stays,
        _ => Change::Pinned,
    };
    let _ = queues.change(chunk, change);
    note_holder(queues, stats, chunk);
}

/// Reports that `chunk`, which is pinned, was allocated for `holder`.
#[cfg(not(uvm_native))]
pub(crate) fn claim((queues, stats): (&mut RootChunks, Option<&Gpu>), chunk: u32, holder: u64) {
    let _ = queues.claim(chunk, holder);
    note_holder(queues, stats, chunk);
}

/// Counts `chunk` for whom the queues know it as now.
#[cfg(not(uvm_native))]
fn note_holder(queues: &RootChunks, stats: Option<&Gpu>, chunk: u32) {
    if let Some(gpu) = stats {
        gpu.note_holder(chunk, queues.holder_of(chunk), queues.contents_of(chunk));
    }
}

/// Reclaim of each GPU's memory, by its index.
#[cfg(not(uvm_native))]
static RECLAIMS: [Reclaim; bindings::UVM_RUST_MAX_GPUS as usize] =
    [const { Reclaim::new() }; bindings::UVM_RUST_MAX_GPUS as usize];

/// The reclaim of the GPU with this index. C asserts that no index is larger than the array; if one were, all such
/// GPUs would share the last entry.
#[cfg(not(uvm_native))]
pub(crate) fn reclaim_of(gpu: u32) -> &'static Reclaim {
    let [.., last] = &RECLAIMS;
    RECLAIMS.get(gpu as usize).unwrap_or(last)
}

/// The threads that allocate for a prefetch, on whichever GPU.
#[cfg(not(uvm_native))]
static GUESSES: Guesses = Guesses::new();

/// What this thread allocates on a GPU is for a prefetch as long as the result lives; `None` if too many threads do so, or too
/// many of this tenant's. Those that move blocks for requests have the number's complement, as they number tenants otherwise.
#[cfg(not(uvm_native))]
pub(crate) fn guess(tenant: u64) -> Option<Guess<'static>> {
    GUESSES.begin(seam::this_thread(), tenant)
}

/// Notes that the eviction of root chunk `chunk` ended with this status. Returns the status with which the evicting call
/// ends. The caller holds the PMM's lock, so that one thread at a time calls this for a GPU.
#[cfg(not(uvm_native))]
pub(crate) fn eviction_ended(gpu: GpuHandle<'_>, chunk: u32, status: u32, thread: Thread) -> u32 {
    let mut how = match status {
        status::OK => Ended::Got,
        status::IN_USE if GUESSES.has(thread) => Ended::Guessed,
        // Without queues it is unknown how many chunks there are to choose from.
        status::IN_USE => Ended::Held { of: u32::MAX },
        _ => Ended::Failed,
    };
    {
        // The GPU may be on its way out, when RM evicts: what there is of it stays as long as the lock is held.
        let mut chunks = gpu.chunks();
        let stats = gpu.stats();
        if let (Some(queues), _) = chunks.queues() {
            how = queues.eviction_ended(chunk, how);
            note_holder(queues, stats, chunk);
        }
        if let Some(gpu) = stats.filter(|_| status == status::OK) {
            gpu.count_reclaim(chunk);
        }
    }
    // Only held evictions make a row, so all others need not read the clock.
    let at = match how {
        Ended::Held { .. } => time::now(),
        _ => 0,
    };
    if reclaim_of(gpu.index()).eviction_ended(how, thread, at) {
        status::NO_MEMORY
    } else {
        status
    }
}

/// Allocates a chunk, and waits for memory if there is none and the allocation is one that waits. Returns an `NV_STATUS`.
/// May sleep.
#[cfg(not(uvm_native))]
pub(crate) fn allocate(c: Allocation<'_>, gpu: u32, thread: Thread, asks: Asks) -> u32 {
    let mut allocating = Allocating {
        c,
        reclaim: reclaim_of(gpu),
        thread,
    };
    match wait::allocate(&mut allocating, asks) {
        Ok(Tried::Got) => status::OK,
        Ok(Tried::Lacks(Lack::Gone)) => status::NO_MEMORY,
        Ok(Tried::Lacks(Lack::Again)) => status::AGAIN,
        Err(failed) => failed.number(),
    }
}

/// An allocation by this thread.
#[cfg(not(uvm_native))]
struct Allocating<'a> {
    c: Allocation<'a>,
    reclaim: &'static Reclaim,
    thread: Thread,
}

#[cfg(not(uvm_native))]
impl wait::Machine for Allocating<'_> {
    type Error = Status;

    fn allocate(&mut self, evict: bool) -> Result<Tried, Status> {
        match self.c.attempt(evict) {
            status::NO_MEMORY => Ok(Tried::Lacks(Lack::Gone)),
            status::AGAIN => Ok(Tried::Lacks(Lack::Again)),
            other => Status::check(other).map(|()| Tried::Got),
        }
    }

    fn guesses(&mut self) -> bool {
        GUESSES.has(self.thread)
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
        time::now()
    }

    fn dying(&mut self) -> bool {
        time::rest()
    }

    fn nap(&mut self) {
        time::nap();
    }
}
