// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A place for something that comes later than the place.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::types::ForeignOwnable;

/// A place that is empty or has an owner `P` of something, such as a box. It is looked at without a lock.
///
/// Invariant: null, or from `into_foreign`; what is there leaves with the place only, or by [`Slot::take`].
pub(crate) struct Slot<P: ForeignOwnable>(AtomicPtr<c_void>, PhantomData<P>);

// SAFETY: what is there goes along.
unsafe impl<P: ForeignOwnable + Send> Send for Slot<P> {}
// SAFETY: several threads may look at the value at the same time, and a thread with a shared reference may put it there.
unsafe impl<P: ForeignOwnable + Send + Sync> Sync for Slot<P> {}

impl<P: ForeignOwnable> Slot<P> {
    /// Makes an empty place.
    pub(crate) const fn empty() -> Self {
        Self(AtomicPtr::new(null_mut()), PhantomData)
    }

    /// What is there, if something is.
    #[inline]
    pub(crate) fn get(&self) -> Option<P::Borrowed<'_>> {
        let there = self.0.load(Acquire);
        // SAFETY: by the type's invariant, and the contract of `take`.
        (!there.is_null()).then(|| unsafe { P::borrow(there) })
    }

    /// Puts it there, unless something is.
    ///
    /// # Errors
    ///
    /// What was to be put there comes back.
    pub(crate) fn fill(&self, owner: P) -> Result<(), P> {
        let owner = owner.into_foreign().cast_mut();
        match self.0.compare_exchange(null_mut(), owner, AcqRel, Relaxed) {
            Ok(_) => Ok(()),
            // SAFETY: it is from `into_foreign`, and nobody has seen it.
            Err(_) => Err(unsafe { P::from_foreign(owner) }),
        }
    }

    /// Takes out what is there.
    ///
    /// # Safety
    ///
    /// Nobody has what [`Slot::get`] gave any more.
    pub(super) unsafe fn take(&self) -> Option<P> {
        let there = self.0.swap(null_mut(), AcqRel);
        // SAFETY: by the type's invariant, and this function's contract.
        (!there.is_null()).then(|| unsafe { P::from_foreign(there) })
    }
}

impl<P: ForeignOwnable> Drop for Slot<P> {
    fn drop(&mut self) {
        // SAFETY: nobody has the place any more, and what `get` gives does not outlive it.
        drop(unsafe { self.take() });
    }
}

/// A place like [`Slot`], of which one at a time takes what is there, and brings it back.
pub(crate) struct Lent<P: ForeignOwnable>(Slot<P>);

impl<P: ForeignOwnable> Lent<P> {
    /// Makes an empty place.
    pub(crate) const fn empty() -> Self {
        Self(Slot::empty())
    }

    /// Takes out what is there.
    pub(crate) fn take(&self) -> Option<P> {
        // SAFETY: nobody looks at what is there: `get` is not offered.
        unsafe { self.0.take() }
    }

    /// Puts it there, unless something is; then it is dropped. Returns whether it is there.
    pub(crate) fn put(&self, owner: P) -> bool {
        self.offer(owner).is_none()
    }

    /// Puts it there, unless something is; then it comes back.
    pub(crate) fn offer(&self, owner: P) -> Option<P> {
        self.0.fill(owner).err()
    }
}
