// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One value on the heap.

use super::{array, free_array, AllocError, Allocator, Flags};
use crate::error::{Error, Result};
use crate::init::PinInit;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::ptr::{drop_in_place, NonNull};

/// An owned value in memory of the allocator `A`.
pub struct Box<T, A: Allocator> {
    /// Invariant: from `array::<T, A>(1, ..)`, initialised, and this box's alone.
    ptr: NonNull<T>,
    _owns: PhantomData<(T, A)>,
}

// SAFETY: A box is its value, elsewhere.
unsafe impl<T: Send, A: Allocator> Send for Box<T, A> {}
// SAFETY: As above.
unsafe impl<T: Sync, A: Allocator> Sync for Box<T, A> {}

impl<T, A: Allocator> Box<T, A> {
    /// Moves `value` into memory of its own. It is dropped where there is none.
    pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
        Ok(Box::write(Self::new_uninit(flags)?, value))
    }

    /// Memory for a value that is not there yet.
    pub fn new_uninit(flags: Flags) -> Result<Box<MaybeUninit<T>, A>, AllocError> {
        Ok(Box {
            ptr: array::<MaybeUninit<T>, A>(1, flags)?,
            _owns: PhantomData,
        })
    }

    /// Makes a value where it will stay.
    pub fn pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Pin<Self>>
    where
        Error: From<E>,
    {
        let memory = Self::new_uninit(flags)?;
        // SAFETY: The memory is a `T`'s, is ours and unused; where this fails it is freed
        // without being looked at.
        unsafe { init.__pinned_init(memory.ptr.as_ptr().cast())? };
        let ptr = ManuallyDrop::new(memory).ptr.cast::<T>();
        // INVARIANT: `ptr` is from `array` and was initialised just now.
        let this = Self {
            ptr,
            _owns: PhantomData,
        };
        // SAFETY: Nobody can have the value to move it: the box is made here.
        Ok(unsafe { Pin::new_unchecked(this) })
    }

    /// Moves the value out, and gives the memory back.
    pub fn into_inner(b: Self) -> T {
        let ptr = ManuallyDrop::new(b).ptr;
        // SAFETY: The value is initialised, and as the box is not dropped it is read once.
        let value = unsafe { ptr.read() };
        // SAFETY: By the invariant it is from `array`, and nobody has it any more.
        unsafe { free_array::<T, A>(ptr, 1) };
        value
    }

    /// Gives up the box; for [`Box::from_raw`].
    pub fn into_raw(b: Self) -> *mut T {
        ManuallyDrop::new(b).ptr.as_ptr()
    }

    /// Takes up a box again.
    ///
    /// # Safety
    ///
    /// `raw` is from `into_raw` of this type, and is taken for the first time.
    pub unsafe fn from_raw(raw: *mut T) -> Self {
        // SAFETY: It was a `NonNull` when `into_raw` gave it.
        let ptr = unsafe { NonNull::new_unchecked(raw) };
        // INVARIANT: It was a box's, and is no other's now.
        Self {
            ptr,
            _owns: PhantomData,
        }
    }
}

impl<T, A: Allocator> Box<MaybeUninit<T>, A> {
    /// Puts the value in.
    pub fn write(b: Self, value: T) -> Box<T, A> {
        let ptr = ManuallyDrop::new(b).ptr.cast::<T>();
        // SAFETY: The memory is a `T`'s, ours, and holds nothing that is to be dropped.
        unsafe { ptr.write(value) };
        // INVARIANT: `ptr` was a box's, and is initialised.
        Box {
            ptr,
            _owns: PhantomData,
        }
    }
}

impl<T, A: Allocator> Deref for Box<T, A> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the invariant.
        unsafe { self.ptr.as_ref() }
    }
}

impl<T, A: Allocator> DerefMut for Box<T, A> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the invariant; and the box is borrowed for writing.
        unsafe { self.ptr.as_mut() }
    }
}

impl<T: fmt::Debug, A: Allocator> fmt::Debug for Box<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, A: Allocator> Drop for Box<T, A> {
    fn drop(&mut self) {
        // SAFETY: By the invariant; nobody looks at the value after its box.
        unsafe { drop_in_place(self.ptr.as_ptr()) };
        // SAFETY: By the invariant it is from `array`; the value is gone.
        unsafe { free_array::<T, A>(self.ptr, 1) };
    }
}
