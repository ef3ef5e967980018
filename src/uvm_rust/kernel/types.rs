// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Objects that C keeps for Rust.

use crate::alloc::KBox;
use crate::sync::{Arc, ArcBorrow};
use core::ffi::c_void;
use core::pin::Pin;

/// An owner that C can keep as a pointer.
///
/// # Safety
///
/// `from_foreign` and `borrow` are sound for what `into_foreign` gave, as their own
/// contracts say.
pub unsafe trait ForeignOwnable: Sized {
    /// What somebody has who looks at it while C keeps it.
    type Borrowed<'a>;

    /// Gives it to C. The pointer is not null, and to be given back to
    /// [`ForeignOwnable::from_foreign`].
    fn into_foreign(self) -> *const c_void;

    /// Looks at what C keeps.
    ///
    /// # Safety
    ///
    /// `ptr` is from `into_foreign` of this type, and is not given back during `'a`.
    unsafe fn borrow<'a>(ptr: *const c_void) -> Self::Borrowed<'a>;

    /// Takes it back.
    ///
    /// # Safety
    ///
    /// `ptr` is from `into_foreign` of this type, is given back for the first time, and
    /// nothing borrowed of it is left.
    unsafe fn from_foreign(ptr: *const c_void) -> Self;
}

// SAFETY: The pointer is the box's own, which `into_raw` gives up and `from_raw` takes.
unsafe impl<T: 'static> ForeignOwnable for KBox<T> {
    type Borrowed<'a> = &'a T;

    fn into_foreign(self) -> *const c_void {
        KBox::into_raw(self).cast()
    }

    unsafe fn borrow<'a>(ptr: *const c_void) -> &'a T {
        // SAFETY: By this function's contract the box lives during `'a`, and nobody has
        // it to write to it.
        unsafe { &*ptr.cast::<T>() }
    }

    unsafe fn from_foreign(ptr: *const c_void) -> Self {
        // SAFETY: By this function's contract `into_raw` gave it, and it is ours again.
        unsafe { KBox::from_raw(ptr.cast_mut().cast()) }
    }
}

// SAFETY: As for the box itself; its memory does not move.
unsafe impl<T: 'static> ForeignOwnable for Pin<KBox<T>> {
    type Borrowed<'a> = Pin<&'a T>;

    fn into_foreign(self) -> *const c_void {
        // SAFETY: C does not look inside, so the value stays where it is.
        KBox::into_raw(unsafe { Pin::into_inner_unchecked(self) }).cast()
    }

    unsafe fn borrow<'a>(ptr: *const c_void) -> Pin<&'a T> {
        // SAFETY: As for the box; and the value was pinned by `into_foreign`'s caller.
        unsafe { Pin::new_unchecked(&*ptr.cast::<T>()) }
    }

    unsafe fn from_foreign(ptr: *const c_void) -> Self {
        // SAFETY: As for the box; and the value was pinned by `into_foreign`'s caller.
        unsafe { Pin::new_unchecked(KBox::from_raw(ptr.cast_mut().cast())) }
    }
}

// SAFETY: The pointer stands for the reference that the `Arc` was, which `into_foreign`
// does not drop.
unsafe impl<T: 'static> ForeignOwnable for Arc<T> {
    type Borrowed<'a> = ArcBorrow<'a, T>;

    fn into_foreign(self) -> *const c_void {
        Arc::into_raw(self).cast()
    }

    unsafe fn borrow<'a>(ptr: *const c_void) -> ArcBorrow<'a, T> {
        // SAFETY: By this function's contract that reference is not dropped during `'a`.
        unsafe { ArcBorrow::from_raw(ptr.cast()) }
    }

    unsafe fn from_foreign(ptr: *const c_void) -> Self {
        // SAFETY: By this function's contract `into_raw` gave it, and it is ours again.
        unsafe { Arc::from_raw(ptr.cast()) }
    }
}
