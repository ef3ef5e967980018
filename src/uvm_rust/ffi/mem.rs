// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fallible memory for policies, on the kernel's allocator.
//!
//! The same names and meanings as `policy/mem.rs` has on the host. Growing may sleep, so it
//! is never done under a spinlock. A [`ProcessVec`] is charged to the memory cgroup of the
//! thread that grows it, or to the one that C has made active for a kernel thread. A
//! [`TryVec`] is charged to nobody: a GPU's or a device's tables outlive whoever happens to
//! make them grow, and serve others, whose work must not fail at that one's limit.

use core::fmt;
use core::ops::{Deref, DerefMut};
use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{AllocError, Flags, KVVec};

/// Memory could not be had. Nothing was changed by the call that returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl From<AllocError> for OutOfMemory {
    fn from(_: AllocError) -> Self {
        Self
    }
}

/// Fails if a test wants it so (`uvm_rust_test_starve`, with the built-in tests).
pub(crate) fn may_allocate() -> Result<(), OutOfMemory> {
    // SAFETY: a byte of a parameter, which root may change, is read at once.
    let starves = unsafe { (&raw const super::bindings::uvm_rust_test_starve).read_volatile() };
    let starves = starves && super::seam::tests_parameter() != 0;
    (!starves).then_some(()).ok_or(OutOfMemory)
}

/// A growable array whose growth can fail, of the whole machine, a GPU or a device.
pub type TryVec<T> = Growable<T, false>;

/// A [`TryVec`] of one process, which is charged for it.
pub type ProcessVec<T> = Growable<T, true>;

/// What [`TryVec`] and [`ProcessVec`] are; `CHARGED`: to a memory cgroup.
pub struct Growable<T, const CHARGED: bool>(KVVec<T>);

impl<T, const CHARGED: bool> Growable<T, CHARGED> {
    const FLAGS: Flags = if CHARGED {
        GFP_KERNEL_ACCOUNT
    } else {
        GFP_KERNEL
    };

    /// An empty array. Allocates nothing.
    pub const fn new() -> Self {
        Self(KVVec::new())
    }

    /// An empty array with room for `n` elements.
    pub fn with_capacity(n: usize) -> Result<Self, OutOfMemory> {
        may_allocate()?;
        Ok(Self(KVVec::with_capacity(n, Self::FLAGS)?))
    }

    /// An array of `n` copies of `value`.
    pub fn filled(n: usize, value: T) -> Result<Self, OutOfMemory>
    where
        T: Clone,
    {
        may_allocate()?;
        Ok(Self(KVVec::from_elem(value, n, Self::FLAGS)?))
    }

    /// Appends `value`, growing if need be.
    pub fn push(&mut self, value: T) -> Result<(), OutOfMemory> {
        if self.0.len() == self.0.capacity() {
            may_allocate()?;
        }
        Ok(self.0.push(value, Self::FLAGS)?)
    }

    /// How many elements there is memory for.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Removes and returns the last element.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.0.len().checked_sub(1)?;
        // SAFETY: `last` is less than the old length, so within the capacity, and
        // the elements below it stay initialised.
        unsafe { self.0.set_len(last) };
        // SAFETY: element `last` is initialised and, now that the length
        // excludes it, owned by nobody else.
        Some(unsafe { self.0.as_ptr().add(last).read() })
    }

    /// Removes element `i` by moving the last one into its place; `None` if
    /// there is no element `i`.
    pub fn swap_remove(&mut self, i: usize) -> Option<T> {
        let last = self.0.len().checked_sub(1)?;
        if i > last {
            return None;
        }
        self.0.swap(i, last);
        self.pop()
    }

    /// Drops all elements and keeps the memory.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T, const CHARGED: bool> Default for Growable<T, CHARGED> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug, const CHARGED: bool> fmt::Debug for Growable<T, CHARGED> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T, const CHARGED: bool> Deref for Growable<T, CHARGED> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const CHARGED: bool> DerefMut for Growable<T, CHARGED> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
