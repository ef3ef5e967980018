// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What Rust asks of upstream, as safe types around the seam's C functions.

use super::gpu::{self, Lists};
use super::{bindings, discard, space};
use crate::driver::discard::status;
#[cfg(not(uvm_native))]
use crate::driver::prefetch::Process;
use crate::driver::stats::{Gpu, Space};
use crate::policy::discard::{BlockState, Status};
use crate::policy::evict::{Queue, RootChunks};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{null_mut, NonNull};
use kernel::prelude::*;

/// An open `/dev/nvidia-uvm`, for the length of one call.
pub(crate) struct File<'a> {
    /// Invariant: valid for `'a`.
    filp: *mut bindings::file,
    _call: PhantomData<&'a ()>,
}

/// A VA space, kept by its open file.
pub(crate) struct VaSpace<'a> {
    /// Invariant: valid for `'a`.
    space: NonNull<bindings::uvm_seam_space>,
    _file: PhantomData<&'a ()>,
}

/// A VA space whose lock is held in read mode until this is dropped.
pub(crate) struct LockedVaSpace<'a>(&'a VaSpace<'a>);

/// A GPU registered in a VA space, which stays so while the lock is held.
pub(crate) struct VaSpaceGpu<'a> {
    /// Invariant: the number of a GPU that is retained for `'a`, and that GPU.
    index: u32,
    gpu: *mut bindings::uvm_gpu_struct,
    _lock: PhantomData<&'a ()>,
}

impl<'a> File<'a> {
    /// # Safety
    ///
    /// `filp` is an open file of this driver for `'a`.
    pub(super) unsafe fn new(filp: *mut bindings::file) -> Self {
        Self {
            filp,
            _call: PhantomData,
        }
    }

    /// Its VA space; `None` before `UVM_INITIALIZE`.
    pub(crate) fn space(&self) -> Option<VaSpace<'a>> {
        // SAFETY: `filp` is valid by the type's invariant.
        let space = NonNull::new(unsafe { bindings::uvm_seam_space_of(self.filp) })?;
        // A VA space lives as long as its file, so `'a` fits.
        Some(VaSpace {
            space,
            _file: PhantomData,
        })
    }
}

impl VaSpace<'_> {
    /// Takes the lock in read mode. Sleeps.
    pub(crate) fn lock(&self) -> LockedVaSpace<'_> {
        // SAFETY: valid by the type's invariant; released by `Drop`.
        unsafe { bindings::uvm_seam_space_lock(self.space.as_ptr(), false) };
        LockedVaSpace(self)
    }

    /// Discards an address range. Sleeps, and takes the VA space's lock itself.
    /// Returns NVIDIA's status code; the blocks are added to `counts`.
    pub(crate) fn discard(
        &self,
        base: u64,
        length: u64,
        eager: bool,
        counts: &mut bindings::uvm_seam_discarded,
    ) -> u32 {
        #[cfg(uvm_native)]
        use super::native::discard;
        #[cfg(not(uvm_native))]
        use bindings::uvm_seam_discard as discard;
        // SAFETY: valid by the type's invariant; `counts` is ours for the call.
        unsafe { discard(self.space.as_ptr(), base, length, eager, counts) }
    }

    /// Whether the page at `address` is discarded.
    ///
    /// # Errors
    ///
    /// NVIDIA's status code.
    pub(crate) fn is_discarded(&self, address: u64) -> Result<bool, u32> {
        self.lock().in_block(address, |state, page, _| {
            state.is_some_and(|state| state.status(page) != Status::Live)
        })
    }

    /// The eviction queue of the root chunk behind `address` on a GPU.
    ///
    /// # Errors
    ///
    /// NVIDIA's status code.
    pub(crate) fn alloc_list(&self, address: u64, uuid: &[u8; 16]) -> Result<u32, u32> {
        let space = self.lock();
        let gpu = space.gpu(uuid).ok_or(status::INVALID_DEVICE)?;
        let queue = space.in_block(address, |_, _, block| {
            // SAFETY: the va_block is locked, and the GPU retained, by the invariant of `VaSpaceGpu`.
            let chunk = unsafe { bindings::uvm_seam_block_chunk(block, gpu.gpu, address) };
            let chunk = (chunk != bindings::UVM_RUST_NO_CHUNK).then_some(chunk)?;
            gpu.with_chunks(|roots| match roots {
                Some(roots) => roots.queue_of(chunk).map(|queue| queue as u32),
                None => {
                    // SAFETY: the `list_lock` is held.
                    let lists = unsafe { Lists::of(gpu.gpu) };
                    let held = [Queue::Unused, Queue::Discarded, Queue::Used];
                    let mut held = held.into_iter().map(|queue| queue as u32);
                    held.find(|&queue| lists.chunks(queue).any(|listed| listed == chunk))
                }
            })
        })?;
        queue.ok_or(status::INVALID_STATE)
    }
}

impl VaSpace<'_> {
    /// For who asks C about it, for as long as `self` is there.
    pub(super) fn as_ptr(&self) -> *mut bindings::uvm_seam_space {
        self.space.as_ptr()
    }
}

impl LockedVaSpace<'_> {
    /// The statistics of this VA space, if they are kept.
    pub(crate) fn stats(&self) -> Option<&Space> {
        // SAFETY: valid by the invariant of `VaSpace`, and `self` holds the lock.
        unsafe { space::of(self.0.space.as_ptr()) }?
            .stats
            .as_ref()
    }

    /// Calls `look` with the state of the va_block that has `address`, the page there, and the va_block,
    /// whose lock is held.
    fn in_block<R>(
        &self,
        address: u64,
        look: impl FnOnce(Option<&BlockState>, u16, *mut bindings::uvm_va_block_struct) -> R,
    ) -> Result<R, u32> {
        let (mut block, mut span) = (core::ptr::null_mut(), bindings::uvm_rust_span::default());
        let space = self.0.space.as_ptr().cast();
        // SAFETY: valid by the invariant of `VaSpace`, and its lock is held, which keeps its va_blocks;
        // `block` and `span` are ours for the calls.
        unsafe {
            match bindings::uvm_va_block_find(space, address, &mut block) {
                status::OK => {}
                failed => return Err(failed),
            }
            bindings::uvm_seam_block_span(block, &mut span);
        }
        let page = (address - span.first) / kernel::page::PAGE_SIZE as u64;
        // SAFETY: as above. What is at the place is I-own's, and under the lock of the va_block nobody
        // else uses it.
        unsafe {
            let state = *bindings::uvm_seam_block_lock(block);
            let state = (!state.is_null()).then(|| &*discard::borrow(state));
            let found = look(state, u16::try_from(page).unwrap_or(u16::MAX), block);
            bindings::uvm_seam_block_unlock(block);
            Ok(found)
        }
    }

    /// What is known of this VA space's kernels; `None` if none are announced.
    #[cfg(not(uvm_native))]
    pub(crate) fn process(&self) -> Option<&Process> {
        // SAFETY: valid by the invariant of `VaSpace`, and `self` holds the lock.
        unsafe { space::of(self.0.space.as_ptr()) }?
            .process
            .as_deref()
    }

    /// The number of the parent of a GPU, if it has replayable faults.
    #[cfg(not(uvm_native))]
    pub(crate) fn replays_faults(&self, gpu: &VaSpaceGpu<'_>) -> Option<u32> {
        let (mut number, mut parent) = (0, 0);
        // SAFETY: the GPU is retained by its type's invariant; the numbers are ours for the call.
        unsafe { bindings::uvm_seam_gpu_numbers(gpu.gpu, &mut number, &mut parent) }
            .then_some(parent)
    }

    /// The GPU with this UUID, if it is registered in this VA space.
    pub(crate) fn gpu(&self, uuid: &[u8; 16]) -> Option<VaSpaceGpu<'_>> {
        let mut gpu = core::ptr::null_mut();
        let space = self.0.space.as_ptr();
        // SAFETY: valid by the invariant of `VaSpace`, the lock is held, `uuid` has the 16 bytes that
        // are read, and `gpu` is ours for the call.
        let memory = unsafe { bindings::uvm_seam_space_gpu(space, uuid.as_ptr(), &mut gpu) };
        // A VA space retains the GPUs that are registered in it.
        Some(VaSpaceGpu {
            index: space::gpu_of(memory)?,
            gpu,
            _lock: PhantomData,
        })
    }
}

impl Drop for LockedVaSpace<'_> {
    fn drop(&mut self) {
        // SAFETY: `lock` took it, and this is the one release.
        unsafe { bindings::uvm_seam_space_unlock(self.0.space.as_ptr(), null_mut()) };
    }
}

impl VaSpaceGpu<'_> {
    /// Its number, as in `uvm_id_gpu_index()`.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Calls `look` with the queues of this GPU, if it has any, and the `list_lock` of its PMM held: it
    /// neither sleeps nor allocates.
    fn with_chunks<R>(&self, look: impl FnOnce(Option<&mut RootChunks>) -> R) -> R {
        // SAFETY: the GPU is retained, by the type's invariant. The lock is held until the unlock, and
        // `look` can neither keep the reference nor get another.
        unsafe {
            bindings::uvm_seam_lock_chunks(self.gpu);
            let result = look(gpu::queues(self.index));
            bindings::uvm_seam_unlock_chunks(self.gpu);
            result
        }
    }

    /// How many root chunks each of its queues has now; without queues, each of upstream's lists. What
    /// there is, both know; not in which order, or how it is used.
    pub(crate) fn queued(&self, out: &mut [u64; bindings::UVM_RUST_QUEUE_MAX as usize]) {
        self.with_chunks(|roots| {
            // SAFETY: the `list_lock` is held.
            let lists = unsafe { Lists::of(self.gpu) };
            let listed = |queue| lists.chunks(queue as u32).count() as u64;
            let length = |queue| match &roots {
                Some(roots) => roots.length(queue).into(),
                None => listed(queue),
            };
            for (queue, out) in Queue::ORDER.into_iter().zip(out.iter_mut()) {
                *out = length(queue);
            }
            if cfg!(uvm_checks) && roots.is_some() {
                let held: u64 = [Queue::Unused, Queue::Discarded, Queue::Used]
                    .map(length)
                    .iter()
                    .sum();
                if length(Queue::Free) != listed(Queue::Free) || held != listed(Queue::Used) {
                    pr_err!("Assert failed: the queues have other chunks than upstream's lists\n");
                }
            }
        });
    }

    /// The statistics of this GPU, if they are kept.
    pub(crate) fn stats(&self) -> Option<&Gpu> {
        // SAFETY: I-gpu: it is retained while `self` is, by the type's invariant.
        Some(unsafe { gpu::stats(self.index) }?)
    }
}

/// Whether upstream works at all: false after a fatal error of the driver.
pub(crate) fn healthy() -> bool {
    global_status() == 0
}

/// Whether statistics are kept (module parameter `uvm_rust_stats`).
pub(crate) fn stats_enabled() -> bool {
    // SAFETY: a parameter, which nobody writes once the module is loaded.
    unsafe { bindings::uvm_rust_stats }
}

/// Whether the calling thread may see what all processes together did: it has
/// `CAP_SYS_ADMIN`, or the module parameter `uvm_rust_stats_public` is set.
pub(crate) fn sees_others() -> bool {
    // SAFETY: reads a parameter that never changes after load, and the credentials of
    // the calling thread; no preconditions.
    unsafe { bindings::uvm_seam_sees_others() }
}

/// Whether discard is offered (module parameter `uvm_rust_discard`), as it is where upstream has
/// its own.
pub(crate) fn discard_enabled() -> bool {
    // SAFETY: a parameter, which nobody writes once the module is loaded.
    cfg!(uvm_native) || unsafe { bindings::uvm_rust_discard }
}

/// Whether the built-in tests are (NVIDIA's `uvm_enable_builtin_tests`), unless upstream answers
/// them all.
pub(crate) fn tests_enabled() -> bool {
    // SAFETY: reads a parameter that never changes after load.
    cfg!(not(uvm_native)) && unsafe { bindings::uvm_enable_builtin_tests != 0 }
}

/// Whether announcements are taken (module parameter `uvm_rust_announce`), which needs our hooks.
pub(crate) fn announce_enabled() -> bool {
    // SAFETY: a parameter, which nobody writes once the module is loaded.
    cfg!(not(uvm_native)) && unsafe { bindings::uvm_rust_announce }
}

/// NVIDIA's status code of the whole driver: not 0 after a fatal error.
pub(crate) fn global_status() -> u32 {
    // SAFETY: reads one word; no preconditions.
    unsafe { bindings::uvm_seam_global_status() }
}

/// Whether there is an SSD tier (module parameter `uvm_rust_flash`), which needs our hooks.
pub(crate) fn flash_enabled() -> bool {
    #[cfg(not(uvm_native))]
    let has_tier = !super::flash::current().is_null();
    #[cfg(uvm_native)]
    let has_tier = false;
    has_tier
}

/// Text output of a debugfs file.
pub(crate) struct SeqFile<'a> {
    /// Invariant: valid for `'a`.
    seq: *mut bindings::seq_file,
    _call: PhantomData<&'a mut ()>,
}

impl SeqFile<'_> {
    /// # Safety
    ///
    /// `seq` is valid and used by nobody else for the returned value's lifetime.
    pub(super) unsafe fn new(seq: *mut bindings::seq_file) -> Self {
        Self {
            seq,
            _call: PhantomData,
        }
    }
}

impl fmt::Write for SeqFile<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // SAFETY: `seq` is valid by the type's invariant, and `s` has `len` bytes.
        unsafe { bindings::seq_write(self.seq, s.as_ptr().cast(), s.len() as _) };
        Ok(())
    }
}
