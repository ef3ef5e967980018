// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A value that each process makes for itself; [`crate::PerProcess`] knows which process it is.

use crate::sync::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};

/// A value, and which process it is of.
#[derive(Debug)]
pub(crate) struct Instance<T> {
    forks: u32,
    value: T,
}

/// The instance of the process that last asked.
#[derive(Debug)]
pub(crate) struct Current<T> {
    /// Null or from `Box::into_raw`, and never freed once it is here.
    pub(crate) instance: AtomicPtr<Instance<T>>,
}

impl<T> Current<T> {
    /// That of the process with so many forks behind it. `make` may be called by several
    /// threads at once: one value is kept.
    pub(crate) fn get(&self, forks: u32, make: impl Fn() -> T) -> &T {
        let mut current = self.instance.load(Acquire);
        loop {
            // SAFETY: by the invariant of `instance`; nobody has it mutably.
            match unsafe { current.as_ref() } {
                Some(instance) if instance.forks == forks => return &instance.value,
                _ => {}
            }
            let value = make();
            let new = Box::into_raw(Box::new(Instance { forks, value }));
            match self
                .instance
                .compare_exchange(current, new, AcqRel, Acquire)
            {
                Ok(_) => current = new,
                Err(other) => {
                    // SAFETY: ours, and nobody has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    current = other;
                }
            }
        }
    }
}
