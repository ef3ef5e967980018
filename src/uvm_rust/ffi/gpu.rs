// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What there is of each GPU: one registry, by the number that upstream has for it.
//!
//! Invariant besides those of `ffi.rs`, kept by `uvm_rust_gpu.c`:
//!
//! - **I-gpu**: what stands in the place of a GPU changes under the `list_lock` of that GPU's PMM,
//!   and is destroyed after it was taken from there. Who looks it up holds that lock, or the GPU,
//!   or is its bottom half, or its file in debugfs, and upstream ends all of these first
//!   (`uvm_rust_gpu_install` in the header). The queues are used under the lock only.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::seam::SeqFile;
use crate::driver::stats::Gpu;
use crate::policy::evict::{reclaimed_from, Choice, RootChunks};
use crate::policy::stats::Queue;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_gpu_create,
    uvm_rust_gpu_destroy,
    uvm_rust_gpu_install,
    uvm_rust_gpu_is_known,
    uvm_rust_gpu_show,
    uvm_rust_note_replay,
    uvm_rust_note_served,
    uvm_rust_chunk_leaves,
);

/// The number of the policy that `uvm_rust_evict_policy` names; at first the default's.
pub(super) static EVICT_POLICY: AtomicU32 = AtomicU32::new(0);

/// The eviction policy of a GPU that is registered now.
pub(super) fn evict_policy() -> Choice {
    Choice::from_number(EVICT_POLICY.load(Relaxed)).unwrap_or_default()
}

/// What there is of one GPU.
struct State {
    /// What is counted of it; `None` without statistics.
    stats: Option<Arc<Gpu>>,
    /// Invariant: looked into under the `list_lock` of the GPU's PMM only.
    queues: UnsafeCell<Option<RootChunks>>,
}

impl State {
    fn new(root_chunks: u32, counted: bool) -> Result<Self> {
        // SAFETY: parameters, which nobody writes once the module is loaded.
        let (stats, evict) = unsafe {
            (
                bindings::uvm_rust_stats,
                cfg!(not(uvm_native)) && bindings::uvm_rust_evict,
            )
        };
        let queues = evict
            .then(|| RootChunks::with_policy(root_chunks, evict_policy()))
            .transpose();
        Ok(Self {
            stats: (stats && counted)
                .then(|| Gpu::new(root_chunks))
                .transpose()?,
            queues: UnsafeCell::new(queues.map_err(|_| ENOMEM)?),
        })
    }
}

/// The place of a GPU in the registry.
struct Place {
    /// Null, or a `State` that `uvm_rust_gpu_create` boxed.
    state: AtomicPtr<State>,
    /// How often that changed: what one set of queues has numbered means nothing to the next.
    generation: AtomicU32,
}

static PLACES: [Place; bindings::UVM_RUST_MAX_GPUS as usize] = [const {
    Place {
        state: AtomicPtr::new(null_mut()),
        generation: AtomicU32::new(0),
    }
};
    bindings::UVM_RUST_MAX_GPUS as usize];

/// What there is of a GPU, if it is there.
///
/// # Safety
///
/// One of the things that I-gpu names is held for `'a`.
unsafe fn state_of<'a>(gpu: u32) -> Option<&'a State> {
    let state = PLACES.get(gpu as usize)?.state.load(Acquire);
    // SAFETY: by I-gpu it lives for `'a`, and only shared references are made of it.
    unsafe { state.as_ref() }
}

/// What is counted of a GPU, if it is.
///
/// # Safety
///
/// As for [`state_of`].
pub(super) unsafe fn stats<'a>(gpu: u32) -> Option<&'a Arc<Gpu>> {
    // SAFETY: this function's contract.
    unsafe { state_of(gpu) }?.stats.as_ref()
}

/// The queues of a GPU, if there are any.
///
/// # Safety
///
/// The `list_lock` of the GPU's PMM is held for `'a`; one such reference exists at a time.
pub(super) unsafe fn queues<'a>(gpu: u32) -> Option<&'a mut RootChunks> {
    // SAFETY: this function's contract is that of `state_of`, and nobody else is under the lock.
    unsafe { (*state_of(gpu)?.queues.get()).as_mut() }
}

/// Upstream's lists of a GPU's root chunks.
///
/// Invariant: the GPU is there, and the `list_lock` of its PMM held for `'a`.
pub(super) struct Lists<'a>(*mut bindings::uvm_gpu_struct, PhantomData<&'a ()>);

impl<'a> Lists<'a> {
    /// # Safety
    ///
    /// The GPU is there, and the `list_lock` of its PMM held for `'a`.
    pub(super) unsafe fn of(gpu: *mut bindings::uvm_gpu_struct) -> Self {
        Self(gpu, PhantomData)
    }

    /// The chunks that are on the list that is this `UVM_RUST_QUEUE_*`; those that are free, zeroed or not.
    pub(super) fn chunks(&self, queue: u32) -> impl Iterator<Item = u32> + '_ {
        let is_free = queue == bindings::UVM_RUST_QUEUE_FREE;
        let zeroed = is_free.then_some(bindings::UVM_RUST_LIST_ZEROED);
        let lists = [Some(queue), zeroed].into_iter().flatten();
        lists.flat_map(move |list| {
            // SAFETY: by the type's invariant; a chunk is one that the same list had under the same lock.
            let next = move |after: u32| unsafe {
                let chunk = bindings::uvm_seam_list_next(self.0, list, after);
                (chunk != bindings::UVM_RUST_NO_CHUNK).then_some(chunk)
            };
            core::iter::successors(next(bindings::UVM_RUST_NO_CHUNK), move |&after| next(after))
        })
    }
}

/// Which of a GPU's queues these are. They do not change while the PMM's `list_lock` is held.
pub(super) fn generation(gpu: u32) -> u32 {
    let place = PLACES.get(gpu as usize);
    place.map_or(0, |place| place.generation.load(Relaxed))
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_create(
    root_chunks: u32,
    counted: bool,
) -> *mut bindings::uvm_rust_gpu {
    let state = State::new(root_chunks, counted).and_then(|s| Ok(KBox::new(s, GFP_KERNEL)?));
    match state {
        Ok(state) => state.into_foreign().cast_mut().cast(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_destroy(gpu: *mut bindings::uvm_rust_gpu) {
    // SAFETY: I-own: `gpu` came from `into_foreign` and this is its one destroy.
    drop(unsafe { <KBox<State> as ForeignOwnable>::from_foreign(gpu.cast::<c_void>()) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_install(
    index: u32,
    gpu: *mut bindings::uvm_rust_gpu,
) -> *mut bindings::uvm_rust_gpu {
    // There are so many at most: C asserts it. Were there more, nothing would be kept of them.
    let Some(place) = PLACES.get(index as usize) else {
        return gpu;
    };
    place.generation.fetch_add(1, Relaxed);
    place.state.swap(gpu.cast(), AcqRel).cast()
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_is_known(index: u32) -> bool {
    let place = PLACES.get(index as usize);
    place.is_some_and(|place| !place.state.load(Relaxed).is_null())
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_show(gpu_index: u32, seq: *mut bindings::seq_file) {
    // SAFETY: I-gpu: the file is open. I-call for `seq`.
    let (gpu, mut out) = unsafe { (stats(gpu_index), SeqFile::new(seq)) };
    // An overflow makes seq_file call again with more room.
    let _ = gpu.map(|gpu| gpu.show(&mut out));
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_replay(gpu_index: u32) {
    // SAFETY: I-gpu: the caller is the GPU's bottom half.
    if let Some(gpu) = unsafe { stats(gpu_index) } {
        gpu.note_replays(1);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_served(gpu_index: u32, replays: u64) {
    // SAFETY: I-gpu: the caller is the GPU's bottom half.
    if let Some(gpu) = unsafe { stats(gpu_index) } {
        gpu.note_replays(replays);
        gpu.end_service();
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_chunk_leaves(
    gpu_index: u32,
    root_index: u32,
    free: bool,
    of: *mut bindings::uvm_gpu_struct,
) {
    // SAFETY: I-gpu and I-lock: the `list_lock` is held.
    let (gpu, queues) = unsafe { (stats(gpu_index), queues(gpu_index)) };
    let list = || {
        if free {
            return Queue::Free;
        }
        // SAFETY: I-call, and I-lock.
        let lists = unsafe { Lists::of(of) };
        // Upstream takes the first of a list; any other is asked for by address.
        let first = |&queue: &Queue| lists.chunks(queue as u32).next() == Some(root_index);
        let mut from = [Queue::Used, Queue::Discarded, Queue::Unused].into_iter();
        from.find(first).unwrap_or(Queue::Address)
    };
    let from = reclaimed_from(queues, root_index, list);
    if let Some(gpu) = gpu {
        gpu.note_reclaim(root_index, from);
    }
}
