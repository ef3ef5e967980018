// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A value behind one of the kernel's locks.
//!
//! A lock makes of a value that can be sent one that can be shared:
//!
//! ```
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex};
//! # use std::{cell::Cell, thread};
//! let m = KBox::pin_init(new_mutex!(Cell::new(1)), GFP_KERNEL).unwrap();
//! thread::scope(|s| { s.spawn(|| m.lock().set(2)); });
//! assert_eq!(m.lock().get(), 2);
//! ```
//!
//! Not of one that belongs to its thread:
//!
//! ```compile_fail,E0277
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex};
//! # use std::{rc::Rc, thread};
//! let m = KBox::pin_init(new_mutex!(Rc::new(1)), GFP_KERNEL).unwrap();
//! let m = &*m;
//! thread::scope(|s| { s.spawn(move || drop(m.lock().clone())); });
//! ```
//!
//! Who took a lock gives it back:
//!
//! ```compile_fail,E0277
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex};
//! # use std::thread;
//! let m = KBox::pin_init(new_mutex!(1), GFP_KERNEL).unwrap();
//! let guard = m.lock();
//! thread::scope(|s| { s.spawn(move || drop(guard)); });
//! ```
//!
//! And a guard shows other threads no more than its value may:
//!
//! ```compile_fail,E0277
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex};
//! # use std::{cell::Cell, thread};
//! let m = KBox::pin_init(new_mutex!(Cell::new(1)), GFP_KERNEL).unwrap();
//! let guard = m.lock();
//! thread::scope(|s| { s.spawn(|| guard.set(2)); });
//! ```

use super::LockClassKey;
use crate::helpers;
use crate::init::{from_closure, PinInit};
use crate::layout::{CLockClassKey, CMutex, CSpinLock};
use core::cell::UnsafeCell;
use core::ffi::{c_char, CStr};
use core::marker::{PhantomData, PhantomPinned};
use core::ops::{Deref, DerefMut};
use core::ptr::addr_of_mut;

/// A kind of lock.
///
/// # Safety
///
/// Between `lock` and `unlock` no other `lock` of the same state returns.
pub unsafe trait Backend {
    /// The lock in C, such as a `struct mutex`.
    type State;

    /// Makes the lock, of this name and lockdep class.
    ///
    /// # Safety
    ///
    /// `state` is memory for one, which stays there; `name` and `key` live as long.
    unsafe fn init(state: *mut Self::State, name: *const c_char, key: *mut CLockClassKey);

    /// Takes it.
    ///
    /// # Safety
    ///
    /// `state` was made by `init`.
    unsafe fn lock(state: *mut Self::State);

    /// Gives it back.
    ///
    /// # Safety
    ///
    /// `state` was made by `init`, and this thread holds it.
    unsafe fn unlock(state: *mut Self::State);
}

/// `struct mutex`: who waits sleeps.
pub struct MutexBackend;

/// `spinlock_t`: who holds it does not sleep. It does not turn interrupts off.
pub struct SpinLockBackend;

/// A value that only the holder of the lock sees.
#[repr(C)]
pub struct Lock<T, B: Backend> {
    /// The lock in C; only C looks into it.
    state: UnsafeCell<B::State>,
    /// The kernel's lists of waiters point into it.
    _pin: PhantomPinned,
    data: UnsafeCell<T>,
}

/// A value behind a mutex.
pub type Mutex<T> = Lock<T, MutexBackend>;
/// A value behind a spinlock.
pub type SpinLock<T> = Lock<T, SpinLockBackend>;
/// A mutex that is held.
pub type MutexGuard<'a, T> = Guard<'a, T, MutexBackend>;
/// A spinlock that is held.
pub type SpinLockGuard<'a, T> = Guard<'a, T, SpinLockBackend>;

// SAFETY: The lock goes with its value, and C's locks do not know who made them.
unsafe impl<T: Send, B: Backend> Send for Lock<T, B> {}
// SAFETY: One thread at a time has the value, so that it need only be sent.
unsafe impl<T: Send, B: Backend> Sync for Lock<T, B> {}

/// A lock that is held until this is dropped; gives its value.
#[must_use = "the lock is given back at once where the guard is not kept"]
pub struct Guard<'a, T, B: Backend> {
    /// Invariant: this thread holds it.
    lock: &'a Lock<T, B>,
    /// Who took a lock gives it back.
    _not_send: PhantomData<*mut ()>,
}

// SAFETY: Through a shared guard there is only the value to look at.
unsafe impl<T: Sync, B: Backend> Sync for Guard<'_, T, B> {}

impl<T, B: Backend> Lock<T, B> {
    /// A lock with `value` behind it. Use `new_mutex!` or `new_spinlock!`.
    #[doc(hidden)]
    pub fn new(value: T, name: &'static CStr, key: &'static LockClassKey) -> impl PinInit<Self> {
        let init = move |slot: *mut Self| {
            // SAFETY: The slot is a lock's, so its field is its state's, and stays there;
            // name and key are static.
            unsafe { B::init(addr_of_mut!((*slot).state).cast(), name.as_ptr(), key.get()) };
            // SAFETY: The slot is a lock's, and nothing is there yet.
            unsafe { addr_of_mut!((*slot).data).write(UnsafeCell::new(value)) };
            Ok(())
        };
        // SAFETY: It initialises all that has a size, and cannot fail.
        unsafe { from_closure(init) }
    }

    /// Takes the lock. A mutex sleeps for it, a spinlock spins.
    pub fn lock(&self) -> Guard<'_, T, B> {
        // SAFETY: A lock is only made by `new`.
        unsafe { B::lock(self.state()) };
        Guard {
            lock: self,
            _not_send: PhantomData,
        }
    }

    /// The lock in C, which stays in its place.
    pub(super) fn state(&self) -> *mut B::State {
        self.state.get()
    }
}

impl<T, B: Backend> Guard<'_, T, B> {
    /// The lock that is held.
    pub(super) fn lock(&self) -> &Lock<T, B> {
        self.lock
    }
}

impl<T, B: Backend> Deref for Guard<'_, T, B> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: This thread holds the lock, so nobody else has the value.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T, B: Backend> DerefMut for Guard<'_, T, B> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: This thread holds the lock, and its guard is borrowed for writing.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T, B: Backend> Drop for Guard<'_, T, B> {
    fn drop(&mut self) {
        // SAFETY: This thread holds the lock, and its guard is gone.
        unsafe { B::unlock(self.lock.state()) };
    }
}

// SAFETY: A mutex is one thread's at a time.
unsafe impl Backend for MutexBackend {
    type State = CMutex;

    unsafe fn init(state: *mut CMutex, name: *const c_char, key: *mut CLockClassKey) {
        // SAFETY: This function's contract is C's.
        unsafe { helpers::uvm_rust_k_mutex_init(state, name, key) }
    }

    unsafe fn lock(state: *mut CMutex) {
        // SAFETY: This function's contract is C's.
        unsafe { helpers::uvm_rust_k_mutex_lock(state) }
    }

    unsafe fn unlock(state: *mut CMutex) {
        // SAFETY: This function's contract is C's.
        unsafe { helpers::uvm_rust_k_mutex_unlock(state) }
    }
}

// SAFETY: A spinlock is one CPU's at a time, and its thread stays on it.
unsafe impl Backend for SpinLockBackend {
    type State = CSpinLock;

    unsafe fn init(state: *mut CSpinLock, name: *const c_char, key: *mut CLockClassKey) {
        // SAFETY: This function's contract is C's.
        unsafe { helpers::uvm_rust_k_spin_init(state, name, key) }
    }

    unsafe fn lock(state: *mut CSpinLock) {
        // SAFETY: This function's contract is C's.
        unsafe { helpers::uvm_rust_k_spin_lock(state) }
    }

    unsafe fn unlock(state: *mut CSpinLock) {
        // SAFETY: This function's contract is C's.
        unsafe { helpers::uvm_rust_k_spin_unlock(state) }
    }
}

/// A mutex around a value, with a lockdep class of its own; a name may follow.
#[macro_export]
macro_rules! new_mutex {
    ($value:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::Mutex::new($value, $crate::lock_name!($($name)?), $crate::static_lock_class!())
    };
}

/// A spinlock around a value, with a lockdep class of its own; a name may follow.
#[macro_export]
macro_rules! new_spinlock {
    ($value:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::SpinLock::new($value, $crate::lock_name!($($name)?), $crate::static_lock_class!())
    };
}
