// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What Rust asks of upstream, as safe types around the seam's C functions.

#[cfg(not(uvm_native))]
use super::prefetch;
use super::{bindings, entry, gpu};
#[cfg(not(uvm_native))]
use crate::driver::prefetch::Process;
use crate::driver::stats::{Gpu, Space};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

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
    /// Invariant: the number of a GPU that is retained for `'a`.
    index: u32,
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
        unsafe { bindings::uvm_seam_space_lock(self.space.as_ptr()) };
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
        // SAFETY: valid by the type's invariant; `counts` is ours for the call.
        unsafe { bindings::uvm_seam_discard(self.space.as_ptr(), base, length, eager, counts) }
    }

    /// Whether the page at `address` is discarded. Returns NVIDIA's status code.
    pub(crate) fn discard_status(&self, address: u64, discarded: &mut bool) -> u32 {
        let mut page = bindings::UVM_RUST_PAGE_LIVE;
        let uuid = core::ptr::null();
        // SAFETY: valid by the type's invariant; `page` is ours for the call.
        let result =
            unsafe { bindings::uvm_seam_test_look(self.space.as_ptr(), address, uuid, &mut page) };
        *discarded = page != bindings::UVM_RUST_PAGE_LIVE;
        result
    }

    /// The eviction queue of the root chunk behind `address` on a GPU. Returns
    /// NVIDIA's status code.
    pub(crate) fn alloc_list(&self, address: u64, uuid: &[u8; 16], queue: &mut u32) -> u32 {
        let uuid = uuid.as_ptr();
        // SAFETY: valid by the type's invariant; `uuid` has the 16 bytes that are
        // read and `queue` is ours for the call.
        unsafe { bindings::uvm_seam_test_look(self.space.as_ptr(), address, uuid, queue) }
    }
}

impl VaSpace<'_> {
    /// Moves a range between host memory and the SSD. Sleeps, and takes the VA space's
    /// lock itself. Returns 0 or a negative errno.
    pub(crate) fn flash_move(&self, base: u64, length: u64, to_host: bool) -> i32 {
        // SAFETY: valid by the type's invariant.
        unsafe { bindings::uvm_seam_flash_move(self.space.as_ptr(), base, length, to_host) }
    }
}

impl LockedVaSpace<'_> {
    /// The statistics of this VA space, if they are kept.
    pub(crate) fn stats(&self) -> Option<&Space> {
        // SAFETY: valid by the invariant of `VaSpace`, and the lock is held.
        let state = unsafe { bindings::uvm_seam_space_state(self.0.space.as_ptr()) };
        // SAFETY: I-own: not null, so from `uvm_rust_space_create`; destroyed only
        // under this lock in write mode, and `self` holds it in read mode.
        (!state.is_null()).then(|| unsafe { entry::borrow_space(state) })
    }

    /// How many root chunks each queue of a GPU has now; nothing changes if there is
    /// no such GPU.
    pub(crate) fn queued(
        &self,
        uuid: &[u8; 16],
        out: &mut [u64; bindings::UVM_RUST_QUEUE_MAX as usize],
    ) {
        // SAFETY: valid by the invariant of `VaSpace`, the lock is held, and the
        // arrays have the lengths that are read and written.
        unsafe { bindings::uvm_seam_queued(self.0.space.as_ptr(), uuid.as_ptr(), out.as_mut_ptr()) }
    }

    /// What is known of this VA space's kernels; `None` if none are announced.
    #[cfg(not(uvm_native))]
    pub(crate) fn process(&self) -> Option<&Process> {
        // SAFETY: valid by the invariant of `VaSpace`, and the lock is held.
        let state = unsafe { bindings::uvm_seam_prefetch_of(self.0.space.as_ptr()) };
        // SAFETY: I-own: not null, so from `uvm_rust_prefetch_create`; destroyed only
        // under this lock in write mode, and `self` holds it in read mode.
        (!state.is_null()).then(|| unsafe { prefetch::borrow(state) })
    }

    /// The number of the parent of a GPU, if it has replayable faults.
    #[cfg(not(uvm_native))]
    pub(crate) fn replays_faults(&self, gpu: &VaSpaceGpu<'_>) -> Option<u32> {
        let mut parent = 0;
        let space = self.0.space.as_ptr();
        // SAFETY: valid by the invariant of `VaSpace`, the lock is held, which keeps the GPU, and
        // `parent` is written once.
        unsafe { bindings::uvm_seam_prefetch_parent(space, gpu.index, &mut parent) }
            .then_some(parent)
    }

    /// The GPU with this UUID, if it is registered in this VA space.
    pub(crate) fn gpu(&self, uuid: &[u8; 16]) -> Option<VaSpaceGpu<'_>> {
        // SAFETY: valid by the invariant of `VaSpace`, the lock is held, and `uuid`
        // has the 16 bytes that are read.
        let index = unsafe { bindings::uvm_seam_space_gpu(self.0.space.as_ptr(), uuid.as_ptr()) };
        // A VA space retains the GPUs that are registered in it.
        (index != bindings::UVM_RUST_CPU).then_some(VaSpaceGpu {
            index,
            _lock: PhantomData,
        })
    }
}

impl Drop for LockedVaSpace<'_> {
    fn drop(&mut self) {
        // SAFETY: `lock` took it, and this is the one release.
        unsafe { bindings::uvm_seam_space_unlock(self.0.space.as_ptr()) };
    }
}

impl VaSpaceGpu<'_> {
    /// Its number, as in `uvm_id_gpu_index()`.
    pub(crate) fn index(&self) -> u32 {
        self.index
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
    cfg!(not(uvm_native)) && unsafe { bindings::uvm_seam_tests_enabled() }
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
    // SAFETY: reads a parameter that never changes after load.
    cfg!(not(uvm_native)) && unsafe { bindings::uvm_seam_flash_enabled() }
}

/// Attaches a device. Returns 0 or a negative errno.
pub(crate) fn flash_attach(attach: &bindings::uvm_rust_flash_attach) -> i32 {
    // SAFETY: `attach` is read during the call; what it points to is copied from user
    // space as such.
    unsafe { bindings::uvm_seam_flash_attach(attach) }
}

/// Detaches it. Returns 0 or a negative errno.
pub(crate) fn flash_detach() -> i32 {
    // SAFETY: no preconditions.
    unsafe { bindings::uvm_seam_flash_detach() }
}

/// Fills all but the first two fields.
pub(crate) fn flash_stats(space: Option<&VaSpace<'_>>, stats: &mut bindings::uvm_rust_flash_stats) {
    let space = space.map_or(core::ptr::null_mut(), |space| space.space.as_ptr());
    // SAFETY: null or valid by the type's invariant; `stats` is ours for the call.
    unsafe { bindings::uvm_seam_flash_stats(space, stats) }
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
        unsafe { bindings::uvm_seam_seq_write(self.seq, s.as_ptr(), s.len() as _) };
        Ok(())
    }
}
