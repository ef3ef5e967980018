// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A VA space, and the operations on it that need its lock. A value that borrows a [`LockedVaSpace`], such as a
//! registered GPU, is valid as long as the lock is held.

use super::bindings::{self, uvm_seam_space};
use super::gpu::GpuHandle;
use super::space;
#[cfg(not(uvm_native))]
use crate::driver::prefetch::Process;
use crate::driver::space::State;
use crate::driver::stats::Space;
use crate::policy::discard::{Kind, Span};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::{null_mut, NonNull};

/// Upstream's VA space of a file descriptor.
///
/// Invariant: the VA space is set up and lives for `'a`, so that its lock may be taken.
#[derive(Clone, Copy)]
pub(crate) struct VaSpace<'a>(NonNull<uvm_seam_space>, PhantomData<&'a ()>);

impl<'a> VaSpace<'a> {
    /// # Safety
    ///
    /// As the type's invariant.
    pub(super) unsafe fn new(space: NonNull<uvm_seam_space>) -> Self {
        Self(space, PhantomData)
    }

    /// The pointer for calls of C, valid as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut uvm_seam_space {
        self.0.as_ptr()
    }

    /// The number by which root chunks know the VA space.
    pub(crate) fn holder(&self) -> u64 {
        self.as_ptr() as usize as u64
    }

    /// Takes the lock in read mode; the caller does not hold it yet. Sleeps.
    pub(crate) fn lock(&self) -> LockedVaSpace<'a> {
        self.lock_within(None)
    }

    fn lock_within(&self, mm: Option<MmLock<'a>>) -> LockedVaSpace<'a> {
        // SAFETY: by the type's invariant; `Drop` gives it back.
        unsafe { bindings::uvm_seam_space_lock(self.as_ptr()) };
        LockedVaSpace { space: *self, mm }
    }

    /// Takes the lock in read mode, if that can be had at once.
    #[cfg(not(uvm_native))]
    pub(crate) fn try_lock(&self) -> Option<LockedVaSpace<'a>> {
        // SAFETY: by the type's invariant; `Drop` gives it back.
        let locked = unsafe { bindings::uvm_seam_space_trylock(self.as_ptr()) };
        locked.then(|| LockedVaSpace {
            space: *self,
            mm: None,
        })
    }

    /// Takes the lock of the process' memory; `None` if the thread is killed before. What the process does may have that
    /// lock held for as long as the process likes. So the caller has no lock, also not that of power management.
    pub(crate) fn lock_mm(&self) -> Option<MmLock<'a>> {
        self.mm_lock(true)
    }

    /// Takes the lock of the process' memory, if that can be had at once. The caller has none but that of power
    /// management.
    #[cfg(not(uvm_native))]
    pub(crate) fn try_lock_mm(&self) -> Option<MmLock<'a>> {
        self.mm_lock(false)
    }

    fn mm_lock(&self, waits: bool) -> Option<MmLock<'a>> {
        let mut mm = null_mut();
        // SAFETY: by the type's invariant; `mm` is ours for the call; `Drop` gives the lock back.
        let is_taken = unsafe { bindings::uvm_seam_mm_lock(self.as_ptr(), waits, &mut mm) };
        // Made only if it is taken: what `then_some` is given would be dropped otherwise, and unlock.
        is_taken.then(|| MmLock { space: *self, mm })
    }
}

/// Holds the lock of a VA space's process' memory in read mode until this is dropped, and keeps that memory. It is outside
/// the VA space's lock. A VA space without a process that lives has none to hold.
pub(crate) struct MmLock<'a> {
    space: VaSpace<'a>,
    /// Invariant: what `uvm_seam_mm_lock` gave for the VA space, and `drop` gives back.
    mm: *mut bindings::mm_struct,
}

impl<'a> MmLock<'a> {
    /// Takes the VA space's lock within this one. Sleeps.
    pub(crate) fn lock_space(self) -> LockedVaSpace<'a> {
        let space = self.space;
        space.lock_within(Some(self))
    }

    /// The memory for calls of C, which hand it to [`MmLock::from_raw`].
    #[cfg(not(uvm_native))]
    pub(super) fn into_raw(self) -> *mut bindings::mm_struct {
        ManuallyDrop::new(self).mm
    }

    /// # Safety
    ///
    /// `mm` came from [`MmLock::into_raw`] of this VA space, and comes here once.
    #[cfg(not(uvm_native))]
    pub(super) unsafe fn from_raw(space: VaSpace<'a>, mm: *mut bindings::mm_struct) -> Self {
        Self { space, mm }
    }
}

impl Drop for MmLock<'_> {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_mm_unlock(self.space.as_ptr(), self.mm) };
    }
}

/// The VA space of a va_block; null for a dead one.
///
/// # Safety
///
/// The va_block is valid, and its lock or that of its VA space is held.
#[cfg(not(uvm_native))]
pub(super) unsafe fn space_of_block(
    block: *mut bindings::uvm_va_block_struct,
) -> *mut uvm_seam_space {
    // SAFETY: by this function's contract.
    unsafe { bindings::uvm_va_block_get_va_space(block) }.cast()
}

/// A VA space whose lock is held in read mode until this is dropped, and that of the process' memory, if that was taken
/// before.
pub(crate) struct LockedVaSpace<'a> {
    pub(super) space: VaSpace<'a>,
    /// It goes after the VA space's lock.
    mm: Option<MmLock<'a>>,
}

impl<'a> LockedVaSpace<'a> {
    /// A VA space whose lock C holds, and releases.
    ///
    /// # Safety
    ///
    /// C holds it as long as the result.
    #[cfg(not(uvm_native))]
    pub(super) unsafe fn held(space: VaSpace<'a>) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { space, mm: None })
    }
}

impl LockedVaSpace<'_> {
    /// The process' memory, which is kept and locked as long as `self`; null if it was not locked, or is not there.
    pub(super) fn mm(&self) -> *mut bindings::mm_struct {
        self.mm.as_ref().map_or(null_mut(), |lock| lock.mm)
    }

    fn state(&self) -> Option<&State> {
        // SAFETY: by the invariant of `VaSpace`, and `self` holds the lock.
        unsafe { space::of(self.space.as_ptr()) }
    }

    /// The VA space's statistics, if they are on.
    pub(crate) fn stats(&self) -> Option<&Space> {
        self.state()?.stats()
    }

    /// The predictors of the VA space's kernels; `None` if announcements are off.
    #[cfg(not(uvm_native))]
    pub(crate) fn process(&self) -> Option<&Process> {
        self.state()?.process()
    }

    /// The GPU with this UUID, if it is registered here.
    pub(crate) fn gpu(&self, uuid: &[u8; 16]) -> Option<GpuHandle<'_>> {
        let mut gpu = null_mut();
        // SAFETY: the lock is held, `uuid` has the 16 bytes that are read, and `gpu` is ours for the call.
        let memory =
            unsafe { bindings::uvm_seam_space_gpu(self.space.as_ptr(), uuid.as_ptr(), &mut gpu) };
        // SAFETY: a VA space retains the GPUs that are registered in it.
        Some(unsafe { GpuHandle::new(gpu, space::gpu_of(memory)?) })
    }

    /// The GPU with this number, if it has page tables here; if the VA space is `ending`, if it is registered.
    #[cfg(not(uvm_native))]
    pub(crate) fn gpu_by_number(&self, number: u32, ending: bool) -> Option<GpuHandle<'_>> {
        if number >= bindings::UVM_RUST_MAX_GPUS {
            return None;
        }
        // SAFETY: the lock is held, and C has a place for each such number.
        let gpu = unsafe { bindings::uvm_seam_prefetch_gpu(self.space.as_ptr(), number, ending) };
        // SAFETY: a VA space retains the GPUs that are registered in it.
        (!gpu.is_null()).then(|| unsafe { GpuHandle::new(gpu, number) })
    }

    /// Whether a GPU is registered here that cannot fault.
    pub(crate) fn has_non_faultable(&self) -> bool {
        // SAFETY: the lock is held.
        unsafe { bindings::uvm_seam_has_non_faultable(self.space.as_ptr()) }
    }

    /// What kind of memory these addresses are, by upstream's check of a range.
    pub(crate) fn kind(&self, span: Span) -> Kind {
        let length = span.last - span.first + 1;
        // SAFETY: the lock is held, and that of `mm`, if there is one.
        match unsafe {
            bindings::uvm_seam_range_kind(self.space.as_ptr(), self.mm(), span.first, length)
        } {
            bindings::UVM_RUST_KIND_MANAGED => Kind::Managed,
            bindings::UVM_RUST_KIND_HMM | bindings::UVM_RUST_KIND_ATS => Kind::Ordinary,
            _ => Kind::Unknown,
        }
    }
}

impl Drop for LockedVaSpace<'_> {
    fn drop(&mut self) {
        // SAFETY: the lock was taken when this was made.
        unsafe { bindings::uvm_seam_space_unlock(self.space.as_ptr()) };
    }
}

/// Upstream's working memory for operations on va_blocks.
pub(crate) struct Context<'l>(NonNull<bindings::uvm_seam_context>, PhantomData<&'l ()>);

impl Context<'_> {
    /// Makes a context for operations on behalf of `mm`; `None` without memory.
    ///
    /// # Safety
    ///
    /// `mm` is null, or kept as long as the result.
    pub(super) unsafe fn new(mm: *mut bindings::mm_struct) -> Option<Self> {
        // SAFETY: by this function's contract; `Drop` gives it back.
        let context = NonNull::new(unsafe { bindings::uvm_seam_context_new(mm) })?;
        Some(Self(context, PhantomData))
    }

    /// Makes a context for operations on no process' behalf; `None` without memory.
    pub(crate) fn of_nobody() -> Option<Self> {
        // SAFETY: no process is named.
        unsafe { Self::new(null_mut()) }
    }

    /// Borrows a context of C's, which C frees.
    ///
    /// # Safety
    ///
    /// It is valid, and used by nobody else, as long as the result.
    #[cfg(not(uvm_native))]
    pub(super) unsafe fn lent(
        context: *mut bindings::uvm_seam_context,
    ) -> Option<ManuallyDrop<Self>> {
        let context = NonNull::new(context)?;
        Some(ManuallyDrop::new(Self(context, PhantomData)))
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::uvm_seam_context {
        self.0.as_ptr()
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: `new` got it.
        unsafe { bindings::uvm_seam_context_free(self.as_ptr()) };
    }
}
