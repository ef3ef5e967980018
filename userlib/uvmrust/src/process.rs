// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A static that a child of `fork` does not inherit.

use crate::instance::Current;
use crate::sync::AtomicPtr;
use crate::sys::{Linux, Sys};

/// A value of each process's own. A child of `fork` makes a new one when it first asks: what
/// its parent had may be locked by a thread that is not there, for ever, and is about memory
/// and threads that are not there either. The parent's is left as it is.
#[derive(Debug)]
pub struct PerProcess<T> {
    make: fn() -> T,
    current: Current<T>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// `make` makes the value, and may be called by several threads at once: one is kept.
    pub const fn new(make: fn() -> T) -> Self {
        Self {
            make,
            current: Current {
                instance: AtomicPtr::new(core::ptr::null_mut()),
            },
        }
    }

    /// The value of this process, which the first call makes.
    pub fn get(&self) -> &T {
        self.current.get(Linux::new().forks(), self.make)
    }
}
