// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A lock that no thread waits for which has it already.
//!
//! A signal may come while a thread has the lock. The program's handler may call CUDA, or exit(), and
//! with it all that the program has registered for its end. With an ordinary lock the process would
//! wait for itself, and never end.

use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{compiler_fence, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

/// Which lock of a kind the thread has, or waits for, by its address; 0: none. A child of `fork` has
/// another lock at another address, which it does not have because its parent had one.
pub(super) type Held = LocalKey<Cell<usize>>;

/// How often a lock is tried that somebody is waited for to a deadline.
const AGAIN: Duration = Duration::from_millis(1);

/// A lock that a thread which has it does not wait for.
pub(super) struct Lock<T> {
    held: &'static Held,
    value: Mutex<T>,
}

/// What a lock guards, for as long as this is here.
pub(super) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    value: ManuallyDrop<MutexGuard<'a, T>>,
}

impl<T> Lock<T> {
    /// `held` is of this kind of locks, of which a thread has one at a time.
    pub(super) fn new(held: &'static Held, value: T) -> Self {
        let value = Mutex::new(value);
        Self { held, value }
    }

    /// Waits for the lock, but not beyond `deadline`, if there is one. `None`: this thread has it
    /// already, or it is not to be had until then.
    pub(super) fn lock(&self, deadline: Option<Instant>) -> Option<Guard<'_, T>> {
        let here = core::ptr::from_ref(self).addr();
        if self.held.get() == here {
            return None;
        }
        // What a signal finds is right at any time: the thread has the lock at most while this is set.
        self.held.set(here);
        compiler_fence(SeqCst);
        let value = match deadline {
            None => Some(self.value.lock().unwrap_or_else(PoisonError::into_inner)),
            Some(deadline) => self.try_until(deadline),
        };
        let Some(value) = value else {
            self.held.set(0);
            return None;
        };
        Some(Guard {
            lock: self,
            value: ManuallyDrop::new(value),
        })
    }

    fn try_until(&self, deadline: Instant) -> Option<MutexGuard<'_, T>> {
        loop {
            match self.value.try_lock() {
                Ok(value) => return Some(value),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(AGAIN),
            }
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this is the only place that drops it, and nobody uses it behind that.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        compiler_fence(SeqCst);
        self.lock.held.set(0);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static HELD: Cell<usize> = const { Cell::new(0) };
        static OTHER: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let (lock, other) = (Lock::new(&HELD, 1), Lock::new(&OTHER, 2));
        let mut held = lock.lock(None).unwrap();
        assert!(lock.lock(None).is_none());
        assert_eq!(other.lock(None).map(|other| *other), Some(2));
        assert!(lock.lock(None).is_none());
        *held += 1;
        drop(held);
        assert_eq!(lock.lock(None).map(|value| *value), Some(2));
        // It was given back.
        assert!(lock.lock(Some(Instant::now())).is_some());
    }

    #[test]
    fn another_thread_is_waited_for_until_the_deadline() {
        let lock = &Lock::new(&HELD, 1);
        let held = lock.lock(None).unwrap();
        std::thread::scope(|threads| {
            let waits = || {
                let soon = || Instant::now() + Duration::from_millis(20);
                let first = lock.lock(Some(soon())).is_some();
                // Who has not got it does not have it.
                (first, lock.lock(Some(soon())).is_some(), HELD.get())
            };
            let waited = threads.spawn(waits).join().unwrap();
            assert_eq!(waited, (false, false, 0));
            let waiting = threads.spawn(|| lock.lock(None).map(|value| *value));
            drop(held);
            assert_eq!(waiting.join().unwrap(), Some(1));
        });
    }

    #[test]
    fn a_child_has_not_what_its_parent_had() {
        let lock = Lock::new(&HELD, 1);
        let _held = lock.lock(None).unwrap();
        crate::memory::tests::in_child(|| {
            let own = Box::new(Lock::new(&HELD, 3));
            assert!(own.lock(None).is_some());
        });
    }
}
