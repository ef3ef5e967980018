// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Locks, waiting, and values with several owners.

use crate::layout::CLockClassKey;

mod arc;
mod condvar;
mod lock;
mod refcount;

pub use crate::{new_condvar, new_mutex, new_spinlock};
pub use arc::{Arc, ArcBorrow};
pub use condvar::{CondVar, CondVarTimeoutResult};
pub use lock::{
    Backend, Guard, Lock, Mutex, MutexBackend, MutexGuard, SpinLock, SpinLockBackend, SpinLockGuard,
};

/// What tells lockdep one kind of lock from another: an address in the module's data.
/// Each `new_mutex!` and its like has one of its own, so that locks made in different
/// places are of different classes.
pub struct LockClassKey(CLockClassKey);

// SAFETY: Only lockdep looks into it, under locks of its own.
unsafe impl Sync for LockClassKey {}

impl LockClassKey {
    /// A key for a `static`: lockdep wants an address that stays.
    #[doc(hidden)]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(CLockClassKey::zeroed())
    }

    /// The address that C gets.
    fn get(&'static self) -> *mut CLockClassKey {
        self.0.get()
    }
}

/// A lock class that belongs to the place where this stands.
#[doc(hidden)]
#[macro_export]
macro_rules! static_lock_class {
    () => {{
        static CLASS: $crate::sync::LockClassKey = $crate::sync::LockClassKey::new();
        &CLASS
    }};
}

/// The name that a lock has in lockdep's reports: what is given, or file and line.
#[doc(hidden)]
#[macro_export]
macro_rules! lock_name {
    () => {
        $crate::sync::name(concat!(file!(), ":", line!(), "\0"))
    };
    ($name:literal) => {
        $crate::sync::name(concat!($name, "\0"))
    };
}

/// A string that ends with a zero byte, as C wants it.
#[doc(hidden)]
pub const fn name(s: &'static str) -> &'static core::ffi::CStr {
    match core::ffi::CStr::from_bytes_with_nul(s.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"a lock",
    }
}
