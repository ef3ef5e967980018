// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fallible memory for policies, on the kernel's allocator.
//!
//! The same names and meanings as `policy/mem.rs` has on the host. Growing may sleep, so it
//! is never done under a spinlock. A [`ProcessVec`] is charged to the memory cgroup of the
//! thread that grows it, or to the one that C has made active for a kernel thread. A
//! [`TryVec`] is charged to nobody: a GPU's or a device's tables outlive whoever happens to
//! make them grow, and serve others, whose work must not fail at that one's limit. A
//! [`BlockVec`] is a process's as well, but its cgroup is not waited for ([`charged`]).

use core::fmt;
use core::ops::{Deref, DerefMut};
use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT, GFP_NOWAIT};
use kernel::alloc::{AllocError, Flags, KBox, KVVec};

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

/// What `allocate` gives that belongs to a va_block. It is charged as a [`ProcessVec`] is if the cgroup has room at once, and
/// to nobody if it has none.
///
/// It is made with the va_block's lock held, for which the thread that services all processes' faults may wait. There Linux would
/// wait for `memory.high`, and at `memory.max` reclaim and end processes. A call waits for `memory.high` on its way
/// back. What is charged to nobody is bounded by the va_blocks, each of which has one such thing and is larger.
pub(crate) fn charged<R>(
    mut allocate: impl FnMut(Flags) -> Result<R, AllocError>,
) -> Result<R, OutOfMemory> {
    let only_account = GFP_KERNEL_ACCOUNT & !GFP_KERNEL;
    let got = allocate(GFP_NOWAIT | only_account).or_else(|_| allocate(GFP_KERNEL));
    got.map_err(OutOfMemory::from)
}

/// A box that belongs to a va_block; see [`charged`]. Without memory `value` is dropped.
pub(crate) fn charged_box<T>(value: T) -> Result<KBox<T>, OutOfMemory> {
    let memory = charged(KBox::<T>::new_uninit)?;
    Ok(KBox::write(memory, value))
}

/// A growable array whose growth can fail, of the whole machine, a GPU or a device.
pub type TryVec<T> = Growable<T, { Charge::Nobody as u8 }>;

/// A [`TryVec`] of one process, which is charged for it.
pub type ProcessVec<T> = Growable<T, { Charge::Process as u8 }>;

/// A [`TryVec`] of a va_block, which grows with the lock of that held.
pub type BlockVec<T> = Growable<T, { Charge::IfRoom as u8 }>;

/// Who pays for an array.
enum Charge {
    Nobody,
    Process,
    /// The process, or nobody; see [`charged`].
    IfRoom,
}

/// What [`TryVec`], [`ProcessVec`] and [`BlockVec`] are, by a number of [`Charge`].
pub struct Growable<T, const CHARGE: u8>(KVVec<T>);

impl<T, const CHARGE: u8> Growable<T, CHARGE> {
    /// What `allocate` gives with the flags of this kind.
    fn allocated<R>(
        mut allocate: impl FnMut(Flags) -> Result<R, AllocError>,
    ) -> Result<R, OutOfMemory> {
        const PROCESS: u8 = Charge::Process as u8;
        const IF_ROOM: u8 = Charge::IfRoom as u8;
        may_allocate()?;
        match CHARGE {
            IF_ROOM => charged(allocate),
            PROCESS => Ok(allocate(GFP_KERNEL_ACCOUNT)?),
            _ => Ok(allocate(GFP_KERNEL)?),
        }
    }

    /// An empty array. Allocates nothing.
    pub const fn new() -> Self {
        Self(KVVec::new())
    }

    /// An empty array with room for `n` elements.
    pub fn with_capacity(n: usize) -> Result<Self, OutOfMemory> {
        Self::allocated(|flags| KVVec::with_capacity(n, flags)).map(Self)
    }

    /// An array of `n` copies of `value`.
    pub fn filled(n: usize, value: T) -> Result<Self, OutOfMemory>
    where
        T: Clone,
    {
        Self::allocated(|flags| KVVec::from_elem(value.clone(), n, flags)).map(Self)
    }

    /// Appends `value`, growing if need be.
    pub fn push(&mut self, value: T) -> Result<(), OutOfMemory> {
        if self.0.len() == self.0.capacity() {
            Self::allocated(|flags| self.0.reserve(1, flags))?;
        }
        // There is room, so that nothing is allocated.
        Ok(self.0.push(value, GFP_NOWAIT)?)
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

impl<T, const CHARGE: u8> Default for Growable<T, CHARGE> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug, const CHARGE: u8> fmt::Debug for Growable<T, CHARGE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T, const CHARGE: u8> Deref for Growable<T, CHARGE> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const CHARGE: u8> DerefMut for Growable<T, CHARGE> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
