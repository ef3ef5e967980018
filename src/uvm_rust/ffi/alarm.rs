// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Ends a kernel thread's wait for `mmap_lock` after some time.
//!
//! Linux has no timed wait for that lock, only one that a fatal signal ends. A kernel thread gets the signal if it has allowed
//! that, and does not die of it.

use super::bindings;
use super::work::{Kind, Work, WorkOf, WorkQueue};
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::prelude::*;

/// The number of the signal, on all architectures.
const SIGKILL: i32 = 9;

/// The work queue of all alarms; it exists while there are GPUs.
pub(crate) static RINGERS: WorkQueue = WorkQueue::none();

/// An alarm, which one kernel thread at a time uses.
pub(crate) struct Alarm {
    /// Dropped first, because the work reads `whom`.
    work: Work,
    /// The thread that waits; null for none.
    whom: KBox<AtomicPtr<bindings::task_struct>>,
}

impl Alarm {
    /// Makes an alarm that is not set.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let whom = KBox::new(AtomicPtr::new(null_mut()), GFP_KERNEL)?;
        let of = from_ref::<AtomicPtr<_>>(&whom).cast_mut().cast();
        // SAFETY: `ring` needs no lock, and what it looks at is in a box, which goes after the item.
        let work = unsafe { Work::new(Kind::Alarm, ring, of)? };
        Ok(Self { work, whom })
    }

    /// Calls `wait`. If `wait` still sleeps after `ms` milliseconds, a signal ends its killable waits. Sleeps.
    ///
    /// # Safety
    ///
    /// The caller is a kernel thread that expects no signal, and is the only user of this alarm.
    pub(super) unsafe fn within<T>(&self, ms: u64, wait: impl FnOnce() -> T) -> T {
        // SAFETY: by this function's contract.
        let this = unsafe { bindings::uvm_seam_heeds_alarm(true) };
        self.whom.store(this, Release);
        self.work.queue_in(&RINGERS, ms);
        let result = wait();
        self.work.stop();
        self.whom.store(null_mut(), Release);
        // SAFETY: as above. This drops the signal if it has come.
        unsafe { bindings::uvm_seam_heeds_alarm(false) };
        result
    }
}

/// # Safety
///
/// `of` is [`Alarm::new`]'s `whom`. The thread there is in [`Alarm::within`], which stops this work before it returns.
unsafe extern "C" fn ring(of: *mut WorkOf) {
    // SAFETY: by this function's contract.
    let whom = unsafe { &*of.cast::<AtomicPtr<bindings::task_struct>>() }.load(Acquire);
    if !whom.is_null() {
        // SAFETY: the thread exists: it stops this work before it returns from `within`.
        unsafe { bindings::send_sig(SIGKILL, whom, 1) };
    }
}
