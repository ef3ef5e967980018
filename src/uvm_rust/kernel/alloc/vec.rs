// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! An array that grows.

use super::{array, free_array, AllocError, Allocator, Flags};
use core::fmt;
use core::marker::PhantomData;
use core::mem::size_of;
use core::ops::{Deref, DerefMut};
use core::ptr::{copy_nonoverlapping, drop_in_place, NonNull};
use core::slice;

/// A growable array in memory of the allocator `A`.
///
/// Growing takes new memory and moves the elements. Where that fails, nothing changes.
pub struct Vec<T, A: Allocator> {
    /// Invariant: from `array::<T, A>(capacity, ..)`, this array's alone.
    ptr: NonNull<T>,
    /// How many elements the memory has room for; for those without a size, 0.
    capacity: usize,
    /// Invariant: at most [`Vec::capacity`]; so many elements are initialised.
    len: usize,
    _owns: PhantomData<(T, A)>,
}

// SAFETY: An array is its elements, elsewhere.
unsafe impl<T: Send, A: Allocator> Send for Vec<T, A> {}
// SAFETY: As above.
unsafe impl<T: Sync, A: Allocator> Sync for Vec<T, A> {}

impl<T, A: Allocator> Vec<T, A> {
    /// An empty array. Allocates nothing.
    pub const fn new() -> Self {
        Self {
            ptr: NonNull::dangling(),
            capacity: 0,
            len: 0,
            _owns: PhantomData,
        }
    }

    /// An empty array with room for `n` elements.
    pub fn with_capacity(n: usize, flags: Flags) -> Result<Self, AllocError> {
        let mut this = Self::new();
        this.reserve(n, flags)?;
        Ok(this)
    }

    /// An array of `n` copies of `value`.
    pub fn from_elem(value: T, n: usize, flags: Flags) -> Result<Self, AllocError>
    where
        T: Clone,
    {
        let mut this = Self::with_capacity(n, flags)?;
        this.extend_with(n, value, flags)?;
        Ok(this)
    }

    /// How many elements fit without growing.
    pub fn capacity(&self) -> usize {
        if size_of::<T>() == 0 {
            usize::MAX
        } else {
            self.capacity
        }
    }

    /// Makes room for `more` elements after the last; for twice as many as there was
    /// room for, if that is more, so that pushing one by one moves each a few times only.
    pub fn reserve(&mut self, more: usize, flags: Flags) -> Result<(), AllocError> {
        let needed = self.len.checked_add(more).ok_or(AllocError)?;
        if needed <= self.capacity() {
            return Ok(());
        }
        let capacity = needed.max(self.capacity.saturating_mul(2));
        let ptr = array::<T, A>(capacity, flags)?;
        // SAFETY: Both hold `len` elements, and the new memory is another.
        unsafe { copy_nonoverlapping(self.ptr.as_ptr(), ptr.as_ptr(), self.len) };
        // SAFETY: By the invariant; its elements have moved out.
        unsafe { free_array::<T, A>(self.ptr, self.capacity) };
        self.ptr = ptr;
        self.capacity = capacity;
        Ok(())
    }

    /// Appends `value`, which is dropped where there is no memory for it.
    pub fn push(&mut self, value: T, flags: Flags) -> Result<(), AllocError> {
        self.reserve(1, flags)?;
        // SAFETY: There is room for one more behind the last.
        unsafe { self.ptr.as_ptr().add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    /// Appends `n` copies of `value`.
    pub fn extend_with(&mut self, n: usize, value: T, flags: Flags) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.reserve(n, flags)?;
        let Some(copies) = n.checked_sub(1) else {
            return Ok(());
        };
        for _ in 0..copies {
            self.push(value.clone(), flags)?;
        }
        self.push(value, flags)
    }

    /// Says that `n` elements are there.
    ///
    /// # Safety
    ///
    /// `n` is at most the capacity, and the first `n` elements are initialised. What is
    /// behind them is not dropped.
    pub unsafe fn set_len(&mut self, n: usize) {
        debug_assert!(n <= self.capacity());
        self.len = n;
    }

    /// The elements of the vector, as a slice.
    pub fn as_slice(&self) -> &[T] {
        self
    }

    /// All elements, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self
    }
}

impl<T, A: Allocator> Default for Vec<T, A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, A: Allocator> Deref for Vec<T, A> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: By the invariants; where there is no memory, there are no bytes either.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T, A: Allocator> DerefMut for Vec<T, A> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: As for `deref`; and the array is borrowed for writing.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<'a, T, A: Allocator> IntoIterator for &'a Vec<T, A> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T, A: Allocator> IntoIterator for &'a mut Vec<T, A> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;

    fn into_iter(self) -> slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

impl<T: fmt::Debug, A: Allocator> fmt::Debug for Vec<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, A: Allocator> Drop for Vec<T, A> {
    fn drop(&mut self) {
        let elements: *mut [T] = &mut **self;
        // SAFETY: By the invariant they are initialised; nobody looks at them after this.
        unsafe { drop_in_place(elements) };
        // SAFETY: By the invariant; the elements are gone.
        unsafe { free_array::<T, A>(self.ptr, self.capacity) };
    }
}
