// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A value with several owners, in as many threads:
//!
//! ```
//! # use kernel::{alloc::flags::GFP_KERNEL, sync::Arc};
//! # use std::{sync::atomic::{AtomicU32, Ordering}, thread};
//! let a = Arc::new(AtomicU32::new(1), GFP_KERNEL).unwrap();
//! let b = a.clone();
//! thread::spawn(move || b.store(2, Ordering::Relaxed)).join().unwrap();
//! assert_eq!(a.load(Ordering::Relaxed), 2);
//! ```
//!
//! So it must be one that can be shared, since others keep a reference to what is sent:
//!
//! ```compile_fail,E0277
//! # use kernel::{alloc::flags::GFP_KERNEL, sync::Arc};
//! # use std::{cell::Cell, thread};
//! let a = Arc::new(Cell::new(1), GFP_KERNEL).unwrap();
//! thread::spawn(move || a.set(2));
//! ```
//!
//! And one that can be sent, since whoever is last drops it; that holds for what is borrowed, too:
//!
//! ```compile_fail,E0277
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex, sync::{Arc, MutexGuard}};
//! # use std::thread;
//! let m = KBox::pin_init(new_mutex!(1), GFP_KERNEL).unwrap();
//! let a: Arc<MutexGuard<'_, u32>> = Arc::new(m.lock(), GFP_KERNEL).unwrap();
//! thread::scope(|s| { s.spawn(move || drop(a)); });
//! ```
//!
//! ```compile_fail,E0277
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex, sync::{Arc, MutexGuard}};
//! # use std::thread;
//! let m = KBox::pin_init(new_mutex!(1), GFP_KERNEL).unwrap();
//! let a: Arc<MutexGuard<'_, u32>> = Arc::new(m.lock(), GFP_KERNEL).unwrap();
//! let b = a.as_arc_borrow();
//! thread::scope(|s| { s.spawn(move || drop(Arc::from(b))); });
//! ```

use super::refcount::Refcount;
use crate::alloc::{AllocError, Flags, KBox};
use crate::error::{Error, Result};
use crate::init::{from_closure, PinInit};
use core::fmt;
use core::marker::PhantomData;
use core::mem::{offset_of, ManuallyDrop};
use core::ops::Deref;
use core::pin::Pin;
use core::ptr::{addr_of, addr_of_mut, NonNull};

/// A reference to a value that lives until the last one is dropped. The count
/// saturates: a value that was referenced too often is never freed. There are no weak
/// references. The value does not move.
pub struct Arc<T> {
    /// Invariant: from a box, and one of the references that are counted in it.
    ptr: NonNull<Inner<T>>,
    _owns: PhantomData<Inner<T>>,
}

#[repr(C)]
struct Inner<T> {
    references: Refcount,
    value: T,
}

/// A reference to a value of an [`Arc`] that is not counted: somebody else's is, for `'a`.
pub struct ArcBorrow<'a, T> {
    /// Invariant: as `Arc`'s, but it is another's reference, which lives for `'a`.
    ptr: NonNull<Inner<T>>,
    _borrows: PhantomData<&'a T>,
}

// SAFETY: All who have a reference share the value, and whoever drops the last drops it.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: From a shared reference another can be made, so it is as if it were sent.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}
// SAFETY: As for `Arc`, which can be made of it.
unsafe impl<T: Send + Sync> Send for ArcBorrow<'_, T> {}
// SAFETY: As for `Arc`, which can be made of it.
unsafe impl<T: Send + Sync> Sync for ArcBorrow<'_, T> {}

impl<T> Arc<T> {
    /// Moves `value` into memory of its own.
    pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
        let inner = Inner {
            references: Refcount::one(),
            value,
        };
        Ok(Self::of(KBox::new(inner, flags)?))
    }

    /// Makes a value where it will stay.
    pub fn pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Self>
    where
        Error: From<E>,
    {
        let inner = move |slot: *mut Inner<T>| {
            // SAFETY: The slot is an `Inner`'s, so its field is a `T`'s, and stays there.
            unsafe { init.__pinned_init(addr_of_mut!((*slot).value))? };
            // SAFETY: The slot is an `Inner`'s.
            unsafe { addr_of_mut!((*slot).references).write(Refcount::one()) };
            Ok::<(), E>(())
        };
        // SAFETY: It initialises both fields, or neither.
        let pinned = KBox::pin_init(unsafe { from_closure(inner) }, flags)?;
        // SAFETY: An `Arc` does not let its value be moved either.
        Ok(Self::of(unsafe { Pin::into_inner_unchecked(pinned) }))
    }

    /// The first reference to what is in a box.
    fn of(inner: KBox<Inner<T>>) -> Self {
        // SAFETY: A box has an address.
        let ptr = unsafe { NonNull::new_unchecked(KBox::into_raw(inner)) };
        // INVARIANT: It is from a box, and the count is one.
        Self {
            ptr,
            _owns: PhantomData,
        }
    }

    /// Gives up the reference, without dropping it; for [`Arc::from_raw`]. Where it
    /// points to is the value.
    pub fn into_raw(this: Self) -> *const T {
        let ptr = ManuallyDrop::new(this).ptr.as_ptr();
        // SAFETY: By the invariant it points to an `Inner`.
        unsafe { addr_of!((*ptr).value) }
    }

    /// Takes the reference up again.
    ///
    /// # Safety
    ///
    /// `raw` is from `into_raw` of this type, and is taken for the first time.
    pub unsafe fn from_raw(raw: *const T) -> Self {
        // SAFETY: By this function's contract.
        let ptr = unsafe { Inner::around(raw) };
        // INVARIANT: It is the reference that `into_raw` did not drop.
        Self {
            ptr,
            _owns: PhantomData,
        }
    }

    /// The same reference, borrowed: the count stays as it is.
    pub fn as_arc_borrow(&self) -> ArcBorrow<'_, T> {
        // INVARIANT: `self` lives for as long.
        ArcBorrow {
            ptr: self.ptr,
            _borrows: PhantomData,
        }
    }

    /// Whether both are references to the same value.
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.ptr == other.ptr
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: By the invariant it is alive while this reference is.
        unsafe { self.ptr.as_ref() }
    }
}

impl<T> Inner<T> {
    /// The `Inner` that the value at `raw` is in.
    ///
    /// # Safety
    ///
    /// `raw` is from [`Arc::into_raw`].
    unsafe fn around(raw: *const T) -> NonNull<Self> {
        // SAFETY: `into_raw` added as much, within the same memory, so it is not null.
        unsafe { NonNull::new_unchecked(raw.byte_sub(offset_of!(Self, value)).cast_mut().cast()) }
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        self.inner().references.inc();
        // INVARIANT: It is counted now.
        Self {
            ptr: self.ptr,
            _owns: PhantomData,
        }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.inner().references.dec() {
            // SAFETY: By the invariant it is from a box, and that was the last reference.
            drop(unsafe { KBox::from_raw(self.ptr.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> ArcBorrow<'_, T> {
    /// Borrows the reference that [`Arc::into_raw`] gave up.
    ///
    /// # Safety
    ///
    /// `raw` is from `into_raw`, and is not given to `from_raw` while this lives.
    pub unsafe fn from_raw(raw: *const T) -> Self {
        // SAFETY: By this function's contract.
        let ptr = unsafe { Inner::around(raw) };
        // INVARIANT: By this function's contract.
        Self {
            ptr,
            _borrows: PhantomData,
        }
    }
}

impl<T> Clone for ArcBorrow<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ArcBorrow<'_, T> {}

impl<T> Deref for ArcBorrow<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the invariant it is alive.
        unsafe { &(*self.ptr.as_ptr()).value }
    }
}

impl<T> From<ArcBorrow<'_, T>> for Arc<T> {
    fn from(borrowed: ArcBorrow<'_, T>) -> Self {
        // It stands for the borrowed reference, which is not ours to drop.
        let other = ManuallyDrop::new(Arc {
            ptr: borrowed.ptr,
            _owns: PhantomData,
        });
        (*other).clone()
    }
}
