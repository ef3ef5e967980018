// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Waiting for somebody else's change of a value.

use super::{LockClassKey, MutexGuard};
use crate::helpers;
use crate::init::{from_closure, PinInit};
use crate::layout::CWaitQueue;
use crate::time::Jiffies;
use core::ffi::{c_long, CStr};
use core::marker::PhantomPinned;
use core::ptr::addr_of_mut;

/// Those who wait until a value behind a mutex has changed.
#[repr(C)]
pub struct CondVar {
    /// The wait queue in C; only C looks into it.
    queue: CWaitQueue,
    /// The queue's list points to itself.
    _pin: PhantomPinned,
}

// SAFETY: C's wait queues belong to no thread.
unsafe impl Send for CondVar {}
// SAFETY: C's wait queues have a lock of their own.
unsafe impl Sync for CondVar {}

/// How a wait ended. `jiffies` is what was left of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CondVarTimeoutResult {
    /// Somebody has said that the value changed, or so it seems: look again.
    Woken {
        /// The part of the timeout that was left.
        jiffies: Jiffies,
    },
    /// The time is over.
    Timeout,
    /// A signal for the task came before anybody notified it.
    Signal {
        /// The part of the timeout that was left.
        jiffies: Jiffies,
    },
}

impl CondVar {
    /// One that nobody waits for. Use `new_condvar!`.
    #[doc(hidden)]
    pub fn new(name: &'static CStr, key: &'static LockClassKey) -> impl PinInit<Self> {
        let init = move |slot: *mut Self| {
            // SAFETY: The slot is a `CondVar`'s, so its field is its queue's, and stays
            // there; name and key are static.
            unsafe {
                helpers::uvm_rust_k_queue_init(
                    addr_of_mut!((*slot).queue),
                    name.as_ptr(),
                    key.get(),
                );
            }
            Ok(())
        };
        // SAFETY: It initialises all that has a size, and cannot fail.
        unsafe { from_closure(init) }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        // SAFETY: A `CondVar` is only made by `new`.
        unsafe { helpers::uvm_rust_k_queue_wake_all(self.queue.get()) }
    }

    /// Gives the mutex back, waits to be woken, for a signal, or until `jiffies` are over,
    /// and takes the mutex again. Who is woken while it gives the mutex back is woken.
    pub fn wait_interruptible_timeout<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        jiffies: Jiffies,
    ) -> CondVarTimeoutResult {
        let most = jiffies.min(c_long::MAX as Jiffies) as c_long;
        // SAFETY: Queue and mutex were made by their `new`s, and this thread holds the
        // mutex, as it does again when this returns.
        let left =
            unsafe { helpers::uvm_rust_k_queue_wait(self.queue.get(), guard.lock().state(), most) };
        let jiffies = left as Jiffies;
        // SAFETY: It has no preconditions.
        match (unsafe { helpers::uvm_rust_k_signal_pending() } != 0, left) {
            (true, _) => CondVarTimeoutResult::Signal { jiffies },
            (false, 0) => CondVarTimeoutResult::Timeout,
            (false, _) => CondVarTimeoutResult::Woken { jiffies },
        }
    }
}

/// A `CondVar`, with a lockdep class of its own; a name may follow.
#[macro_export]
macro_rules! new_condvar {
    ($($name:literal)? $(,)?) => {
        $crate::sync::CondVar::new($crate::lock_name!($($name)?), $crate::static_lock_class!())
    };
}
