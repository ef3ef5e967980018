// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The driver's state of each GPU: a registry, by upstream's number of the GPU.
//!
//! Invariant besides those of `ffi.rs`, kept by `uvm_rust_gpu.c`:
//!
//! - **I-gpu**: the state in the place of a GPU changes under the `list_lock` of that GPU's PMM. It is destroyed
//!   only after it was taken from its place. A caller that looks the state up holds that lock, retains the GPU,
//!   or is the GPU's bottom half or its file in debugfs; upstream ends all of these before
//!   (`uvm_rust_gpu_install` in the header), but for the file, which the destruction removes first. The queues are
//!   used under the lock only.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::seam::{self, SeqFile};
use crate::driver::evict;
use crate::driver::stats::Gpu;
use crate::policy::evict::{Queue, RootChunks};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_void, CStr};
use core::marker::PhantomData;
use core::ptr::{null_mut, NonNull};
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

/// The driver's state of one GPU.
struct State {
    /// Its file in debugfs, which shows nothing as long as the state is in no place; null without statistics.
    file: *mut bindings::dentry,
    /// How many root chunks its PMM has.
    root_chunks: u32,
    /// The GPU's statistics; `None` if they are off.
    stats: Option<Arc<Gpu>>,
    /// Invariant: looked into under the `list_lock` of the GPU's PMM only.
    queues: UnsafeCell<Option<RootChunks>>,
}

impl State {
    fn new(index: u32, root_chunks: u32, counted: bool, address: &CStr) -> Result<KBox<Self>> {
        let queued = cfg!(not(uvm_native)) && seam::has_queues();
        let stats = (seam::stats_enabled() && counted)
            .then(|| Gpu::new(root_chunks, address, queued))
            .transpose()?;
        let mut state = KBox::new(
            Self {
                file: null_mut(),
                root_chunks,
                stats,
                queues: UnsafeCell::new(None),
            },
            GFP_KERNEL,
        )?;
        if queued {
            add_queues(state.queues.get_mut(), root_chunks)?;
        }
        if state.stats.is_some() {
            // Last, as the destruction removes the file, which a failure behind this would not come to.
            // SAFETY: no preconditions. The file looks the state up by the GPU's number (I-gpu), and is removed before the
            // state goes.
            state.file = unsafe { bindings::uvm_seam_gpu_file(index) };
        }
        Ok(state)
    }
}

/// Makes the queues of so many root chunks, in a stack frame of its own: the queues are large for a kernel's stack.
#[inline(never)]
fn add_queues(queues: &mut Option<RootChunks>, root_chunks: u32) -> Result {
    let made = RootChunks::with_policy(root_chunks, evict::policy());
    *queues = Some(made.map_err(|_| ENOMEM)?);
    Ok(())
}

/// The place of a GPU in the registry.
struct Place {
    /// Null, or a `State` that `uvm_rust_gpu_create` boxed.
    state: AtomicPtr<State>,
    /// How often the state was exchanged. Numbers that one set of queues gave mean nothing to the next set.
    generation: AtomicU32,
}

static PLACES: [Place; bindings::UVM_RUST_MAX_GPUS as usize] = [const {
    Place {
        state: AtomicPtr::new(null_mut()),
        generation: AtomicU32::new(0),
    }
};
    bindings::UVM_RUST_MAX_GPUS as usize];

/// The state of a GPU, if the GPU is registered.
///
/// # Safety
///
/// One of the things that I-gpu names is held for `'a`.
unsafe fn state_of<'a>(gpu: u32) -> Option<&'a State> {
    let state = PLACES.get(gpu as usize)?.state.load(Acquire);
    // SAFETY: by I-gpu it lives for `'a`, and only shared references are made of it.
    unsafe { state.as_ref() }
}

/// The statistics of a GPU, if they are on.
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

/// The queues of a GPU, if there are any, and what is counted of it, if it is.
///
/// # Safety
///
/// The caller holds the `list_lock` of the GPU's PMM for `'a`, and no other reference to the queues exists meanwhile.
#[cfg(not(uvm_native))]
pub(super) unsafe fn counted_queues<'a>(gpu: u32) -> Option<(&'a mut RootChunks, Option<&'a Gpu>)> {
    // SAFETY: this function's contract is that of both.
    let (queues, stats) = unsafe { (queues(gpu)?, stats(gpu)) };
    Some((queues, stats.map(|gpu| &**gpu)))
}

/// A GPU that upstream has, with its number.
///
/// Invariant: the GPU exists for `'a`, because the owner of this value retains it or holds the `list_lock` of its PMM
/// (I-gpu). The number is that GPU's.
#[derive(Clone, Copy)]
pub(crate) struct GpuHandle<'a> {
    gpu: *mut bindings::uvm_gpu_struct,
    index: u32,
    _kept: PhantomData<&'a ()>,
}

impl<'a> GpuHandle<'a> {
    /// # Safety
    ///
    /// As the type's invariant.
    pub(super) unsafe fn new(gpu: *mut bindings::uvm_gpu_struct, index: u32) -> Self {
        Self {
            gpu,
            index,
            _kept: PhantomData,
        }
    }

    pub(super) fn as_ptr(self) -> *mut bindings::uvm_gpu_struct {
        self.gpu
    }

    /// The GPU's number, as in `uvm_id_gpu_index()`.
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// The GPU's statistics, if they are on.
    pub(crate) fn stats(self) -> Option<&'a Gpu> {
        // SAFETY: I-gpu, by the type's invariant.
        unsafe { stats(self.index) }.map(|gpu| &**gpu)
    }

    /// The number of its parent, if that has replayable faults.
    #[cfg(not(uvm_native))]
    pub(crate) fn parent(self) -> Option<u32> {
        let (mut number, mut parent) = (0, 0);
        // SAFETY: by the type's invariant; the numbers are ours for the call.
        unsafe { bindings::uvm_seam_gpu_numbers(self.gpu, &mut number, &mut parent) }
            .then_some(parent)
    }

    /// How many chunks of 2 MiB no one has allocated. No lock is taken, so the number may be old.
    #[cfg(not(uvm_native))]
    pub(crate) fn pma_free(self) -> u32 {
        // SAFETY: by the type's invariant.
        u32::try_from(unsafe { bindings::uvm_seam_pma_free(self.gpu) }).unwrap_or(u32::MAX)
    }

    /// Takes the `list_lock` of the GPU's PMM; the caller does not hold it yet. The caller neither sleeps nor allocates
    /// until the lock is released.
    pub(crate) fn chunks(self) -> Chunks<'a> {
        // SAFETY: by the type's invariant; `Drop` gives it back.
        unsafe { bindings::uvm_seam_lock_chunks(self.gpu) };
        Chunks {
            gpu: self,
            is_ours: true,
        }
    }
}

/// The root chunks of a GPU.
///
/// Invariant: the `list_lock` of the GPU's PMM is held as long as this value lives. Dropping the value releases the
/// lock if it `is_ours`.
pub(crate) struct Chunks<'a> {
    gpu: GpuHandle<'a>,
    is_ours: bool,
}

impl Drop for Chunks<'_> {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: `GpuHandle::chunks` took it.
            unsafe { bindings::uvm_seam_unlock_chunks(self.gpu.gpu) };
        }
    }
}

impl<'a> Chunks<'a> {
    /// The chunks of a GPU whose `list_lock` C holds.
    ///
    /// # Safety
    ///
    /// As the type's invariant; no other value of this type exists for the GPU.
    pub(super) unsafe fn held(gpu: GpuHandle<'a>) -> Self {
        Self {
            gpu,
            is_ours: false,
        }
    }

    /// The GPU that has these chunks.
    pub(crate) fn gpu(&self) -> GpuHandle<'a> {
        self.gpu
    }

    /// The GPU's queues, if it has any; and upstream's lists.
    pub(crate) fn queues(&mut self) -> (Option<&mut RootChunks>, Lists<'_>) {
        // SAFETY: I-gpu, and the type's invariant. The references end with the borrow of `self`.
        let (state, queues) = unsafe { (state_of(self.gpu.index), queues(self.gpu.index)) };
        let count = state.map_or(0, |state| state.root_chunks);
        (queues, Lists(self.gpu, count))
    }

    /// The generation of the queues.
    pub(crate) fn generation(&self) -> u32 {
        let place = PLACES.get(self.gpu.index as usize);
        place.map_or(0, |place| place.generation.load(Relaxed))
    }

    /// How many root chunks this `queue` has; without queues, upstream's list, of which no more than `most` are
    /// counted.
    pub(crate) fn length(&mut self, queue: Queue, most: u32) -> u32 {
        match self.queues() {
            (Some(queues), _) => queues.length(queue).min(most),
            (None, lists) => lists.chunks(queue as u32).take(most as usize).count() as u32,
        }
    }

    /// Which chunk to evict next; `by_default` if the default policy is to choose it.
    #[cfg(not(uvm_native))]
    pub(crate) fn choose(&mut self, by_default: bool) -> Option<u32> {
        let (queues, mut lists) = self.queues();
        let queues = queues?;
        queues.set_by_default(by_default);
        queues.choose(&mut lists)
    }

    /// Which chunk of this owner's to evict next.
    #[cfg(not(uvm_native))]
    pub(crate) fn choose_of(&mut self, holder: u64) -> Option<u32> {
        let (queues, mut lists) = self.queues();
        queues?.choose_of(holder, &mut lists)
    }

    /// The chunk that `choose` takes from the queues, and what holds it: its name, and where it begins.
    #[cfg(not(uvm_native))]
    pub(crate) fn pick(
        &mut self,
        choose: impl FnOnce(&RootChunks) -> Option<u32>,
    ) -> Option<(u32, Option<(BlockName, u64)>)> {
        let (Some(queues), lists) = self.queues() else {
            return None;
        };
        let chunk = choose(queues).filter(|c| *c < lists.1)?;
        let mut start = 0;
        // SAFETY: the `list_lock` is held, and the PMM has such a root chunk.
        let block = unsafe { bindings::uvm_seam_prefetch_holds(lists.0.gpu, chunk, &mut start) };
        let name = NonNull::new(block).map(|block| (BlockName(block), start));
        Some((chunk, name))
    }
}

/// The name of a va_block, which may be gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockName(pub(super) NonNull<bindings::uvm_va_block_struct>);

/// Upstream's lists of a GPU's root chunks.
///
/// Invariant: the `list_lock` of its PMM is held for `'a`, which has so many root chunks.
pub(crate) struct Lists<'a>(GpuHandle<'a>, u32);

impl Lists<'_> {
    /// The chunks that are on the list that is this `UVM_RUST_QUEUE_*`; those that are free, zeroed or not.
    pub(crate) fn chunks(&self, queue: u32) -> impl Iterator<Item = u32> + '_ {
        let is_free = queue == bindings::UVM_RUST_QUEUE_FREE;
        let zeroed = is_free.then_some(bindings::UVM_RUST_LIST_ZEROED);
        let lists = [Some(queue), zeroed].into_iter().flatten();
        lists.flat_map(move |list| {
            // SAFETY: by the type's invariant; a chunk is one that the same list had under the same lock.
            let next = move |after: u32| unsafe {
                let chunk = bindings::uvm_seam_list_next(self.0.gpu, list, after);
                (chunk != bindings::UVM_RUST_NO_CHUNK).then_some(chunk)
            };
            core::iter::successors(next(bindings::UVM_RUST_NO_CHUNK), move |&after| next(after))
        })
    }
}

#[cfg(not(uvm_native))]
impl crate::policy::evict::Lists for Lists<'_> {
    fn evictable(&mut self, chunk: u32) -> bool {
        // SAFETY: by the type's invariant, and there is such a chunk. C looks at the PMM alone, and not into the queues.
        chunk < self.1 && unsafe { bindings::uvm_seam_chunk_evictable(self.0.gpu, chunk) }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_create(
    index: u32,
    root_chunks: u32,
    counted: bool,
    address: *const c_char,
) -> *mut bindings::uvm_rust_gpu {
    // SAFETY: I-call: the kernel's name of a device, which ends with a NUL.
    let address = unsafe { CStr::from_ptr(address) };
    match State::new(index, root_chunks, counted, address) {
        Ok(state) => state.into_foreign().cast_mut().cast(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_destroy(gpu: *mut bindings::uvm_rust_gpu) {
    // SAFETY: I-own: `gpu` came from `into_foreign` and this is its one destroy. I-gpu: its file alone may still show it, and
    // does no more once it is removed.
    let state = unsafe {
        bindings::uvm_seam_gpu_file_remove((*gpu.cast::<State>()).file);
        <KBox<State> as ForeignOwnable>::from_foreign(gpu.cast::<c_void>())
    };
    // What it served refers to it, until a call of the fault service ends: on a partition of a GPU that may be never.
    if let Some(stats) = &state.stats {
        stats.end_service();
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_install(
    index: u32,
    gpu: *mut bindings::uvm_rust_gpu,
) -> *mut bindings::uvm_rust_gpu {
    // C asserts that no index is larger. The registry would keep nothing of such a GPU.
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
    // SAFETY: I-gpu and I-lock: the `list_lock` is held; I-call for `of`.
    let chunks = unsafe { Chunks::held(GpuHandle::new(of, gpu_index)) };
    evict::leaves(chunks, root_index, free);
}
