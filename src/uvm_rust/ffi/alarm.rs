// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What ends the wait of a thread of the kernel's after a while.
//!
//! Linux has no lock of processes' memory that is waited for by the clock. It has one that is waited for until the thread is
//! killed. A thread of the kernel's is not killed: it heeds a signal if it says so, and then goes on.

use super::bindings;
use super::work::{Kind, Work, WorkOf, WorkQueue};
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::prelude::*;

/// The number of the signal, on all architectures.
const SIGKILL: i32 = 9;

/// Who rings. There is a queue as long as there are GPUs.
pub(crate) static RINGERS: WorkQueue = WorkQueue::none();

/// An alarm of one thread of the kernel's at a time.
pub(crate) struct Alarm {
    /// It goes first: its work looks at `whom`.
    work: Work,
    /// The thread that waits; null for none.
    whom: KBox<AtomicPtr<bindings::task_struct>>,
}

impl Alarm {
    /// Makes one that does not ring.
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

    /// Calls `wait`, of which all waits that a signal ends have ended in so many milliseconds, or soon after. Sleeps.
    ///
    /// # Safety
    ///
    /// The caller is a thread of the kernel's, which expects no signal, and the only one that has this alarm.
    pub(super) unsafe fn within<T>(&self, ms: u64, wait: impl FnOnce() -> T) -> T {
        // SAFETY: by this function's contract.
        let this = unsafe { bindings::uvm_seam_heeds_alarm(true) };
        self.whom.store(this, Release);
        self.work.queue_in(&RINGERS, ms);
        let result = wait();
        self.work.stop();
        self.whom.store(null_mut(), Release);
        // SAFETY: as above. The signal is forgotten, if it has come.
        unsafe { bindings::uvm_seam_heeds_alarm(false) };
        result
    }
}

/// # Safety
///
/// As [`Alarm::new`] has it: `of` is the place of the thread, which waits, or is about to see to it that this has ended.
unsafe extern "C" fn ring(of: *mut WorkOf) {
    // SAFETY: by this function's contract.
    let whom = unsafe { &*of.cast::<AtomicPtr<bindings::task_struct>>() }.load(Acquire);
    if !whom.is_null() {
        // SAFETY: the thread is there: before it goes on it stops this.
        unsafe { bindings::send_sig(SIGKILL, whom, 1) };
    }
}
