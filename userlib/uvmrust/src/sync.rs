// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the modules are built of that `tests/loom.rs` builds on loom's types instead, to run
//! them under every interleaving: [`crate::instance`], [`crate::jobs`], [`crate::lineage`].

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// `core::cell::UnsafeCell` with loom's way to it.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Gives the pointer to who will write; loom reports anybody else who has it meanwhile.
    pub(crate) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}
