// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fallible memory for policies and for the emulator of `tests/vgpu/core`, on the host's allocator.
//!
//! The driver and `vgpu.ko` have modules of the same name and interface on the kernel's allocator
//! (`src/uvm_rust/ffi/mem.rs`, `tests/vgpu/kernel/mem.rs`). Policies use only what the driver's offers, and the emulator what `vgpu.ko`'s does.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// Memory could not be had. Nothing was changed by the call that returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// A [`TryVec`] of one process. In the driver the process's memory cgroup is charged for it;
/// a plain one is the whole machine's, a GPU's or a device's, and charged to nobody.
pub type ProcessVec<T> = TryVec<T>;

/// A [`TryVec`] of a va_block, which grows with the lock of that held. In the driver the process's cgroup is charged
/// if it has room, and nobody otherwise: others wait for that lock, and nothing is to wait for a cgroup with it.
pub type BlockVec<T> = TryVec<T>;

/// A growable array whose growth can fail.
#[derive(Debug, PartialEq, Eq)]
pub struct TryVec<T>(Vec<T>);

impl<T> Default for TryVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> TryVec<T> {
    /// An empty array. Allocates nothing.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// An empty array with room for `n` elements.
    pub fn with_capacity(n: usize) -> Result<Self, OutOfMemory> {
        let mut v = Vec::new();
        v.try_reserve_exact(n).map_err(|_| OutOfMemory)?;
        Ok(Self(v))
    }

    /// An array of `n` copies of `value`.
    pub fn filled(n: usize, value: T) -> Result<Self, OutOfMemory>
    where
        T: Clone,
    {
        let mut v = Self::with_capacity(n)?;
        v.0.resize(n, value);
        Ok(v)
    }

    /// Appends `value`, growing if need be.
    pub fn push(&mut self, value: T) -> Result<(), OutOfMemory> {
        self.0.try_reserve(1).map_err(|_| OutOfMemory)?;
        self.0.push(value);
        Ok(())
    }

    /// How many elements there is memory for.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Removes and returns the last element.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Removes element `i` by moving the last one into its place; `None` if
    /// there is no element `i`.
    pub fn swap_remove(&mut self, i: usize) -> Option<T> {
        (i < self.0.len()).then(|| self.0.swap_remove(i))
    }

    /// Drops all elements and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks() {
        let mut v = TryVec::with_capacity(1).unwrap();
        for i in 0..5 {
            v.push(i).unwrap();
        }
        assert_eq!(v.swap_remove(1), Some(1));
        assert_eq!(&v[..], &[0, 4, 2, 3]);
        assert_eq!(v.swap_remove(4), None);
        assert_eq!(v.pop(), Some(3));
        v.clear();
        assert!(v.is_empty());
    }

    #[test]
    fn refuses_what_cannot_be_had() {
        assert_eq!(
            TryVec::<u64>::with_capacity(usize::MAX / 2).err(),
            Some(OutOfMemory)
        );
    }
}
