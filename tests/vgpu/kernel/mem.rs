// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fallible memory for the emulator, on the kernel's allocator: the twin of
//! `src/uvm_rust/policy/mem.rs`, which says what each function means.
//!
//! Making an array may sleep, and reclaim memory: UVM may then be told to unmap
//! something and wait for this GPU. So it is not done with the GPU's mutex held.
//! `push` does not sleep: what grows under the mutex is small, and fails instead.

use core::mem::swap;
use core::ops::Deref;
use core::ops::DerefMut;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::flags::GFP_NOWAIT;
use kernel::alloc::KVVec;

/// Memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

/// A growable array whose growth can fail.
pub(crate) struct TryVec<T>(KVVec<T>);

impl<T> Default for TryVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: core::fmt::Debug> core::fmt::Debug for TryVec<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.as_slice().fmt(f)
    }
}

impl<T> TryVec<T> {
    pub(crate) const fn new() -> Self {
        Self(KVVec::new())
    }

    pub(crate) fn with_capacity(n: usize) -> Result<Self, OutOfMemory> {
        KVVec::with_capacity(n, GFP_KERNEL_ACCOUNT)
            .map(Self)
            .map_err(|_| OutOfMemory)
    }

    pub(crate) fn filled(n: usize, value: T) -> Result<Self, OutOfMemory>
    where
        T: Clone,
    {
        let mut v = Self::with_capacity(n)?;
        v.0.extend_with(n, value, GFP_KERNEL_ACCOUNT)
            .map_err(|_| OutOfMemory)?;
        Ok(v)
    }

    pub(crate) fn push(&mut self, value: T) -> Result<(), OutOfMemory> {
        // The kernel's grows to exactly what is needed; that would be quadratic.
        if self.0.len() == self.0.capacity() {
            let more = self.0.len().max(4);
            self.0.reserve(more, GFP_NOWAIT).map_err(|_| OutOfMemory)?;
        }
        self.0.push(value, GFP_NOWAIT).map_err(|_| OutOfMemory)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.0.len().checked_sub(1)?;
        // SAFETY: element `last` is initialized; after set_len it is ours.
        unsafe {
            self.0.set_len(last);
            Some(self.0.as_ptr().add(last).read())
        }
    }

    pub(crate) fn swap_remove(&mut self, i: usize) -> Option<T> {
        let last = self.0.len().checked_sub(1)?;
        if i > last {
            return None;
        }
        if i < last {
            let (head, tail) = self.0.as_mut_slice().split_at_mut(last);
            swap(&mut head[i], &mut tail[0]);
        }
        self.pop()
    }

    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T> Deref for TryVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for TryVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
