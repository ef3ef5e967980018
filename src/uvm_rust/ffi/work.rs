// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Work that a kernel thread does later, and the memory cgroup that is charged meanwhile.

use super::bindings;
use bindings::{mem_cgroup, uvm_seam_work, workqueue_struct};
use core::ffi::CStr;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::prelude::*;

/// A queue of work, from [`WorkQueue::make`] to [`WorkQueue::end`], while which work may be queued.
pub(crate) struct WorkQueue(AtomicPtr<workqueue_struct>);

impl WorkQueue {
    /// Makes a handle without a queue.
    pub(crate) const fn none() -> Self {
        // Invariant: null, or a queue of `uvm_seam_queue_new`, which `end` destroys.
        Self(AtomicPtr::new(null_mut()))
    }

    /// Makes the queue, for at most so many threads at a time; 0: many. The handle has no queue yet, and one thread at
    /// a time calls this and `end`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make(&self, name: &CStr, most: u32) -> Result {
        self.make_as(name, most, false)
    }

    /// As `make`, for what others wait for: its work goes first, also where there is no memory for a thread, and while
    /// processes are frozen.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make_urgent(&self, name: &CStr) -> Result {
        self.make_as(name, 0, true)
    }

    fn make_as(&self, name: &CStr, most: u32, urgent: bool) -> Result {
        // SAFETY: the name is copied.
        let queue = unsafe { bindings::uvm_seam_queue_new(name.as_ptr(), most, urgent) };
        self.0.store(queue, Release);
        if queue.is_null() {
            return Err(ENOMEM);
        }
        Ok(())
    }

    /// Whether the handle has a queue.
    pub(crate) fn is_made(&self) -> bool {
        !self.0.load(Relaxed).is_null()
    }

    /// Destroys the queue, if there is one.
    ///
    /// # Safety
    ///
    /// No work is on the queue, and nobody queues any during this call: who has just read the pointer would use a queue
    /// that is gone.
    pub(crate) unsafe fn end(&self) {
        let queue = self.0.swap(null_mut(), AcqRel);
        if !queue.is_null() {
            // SAFETY: by the type's invariant and this function's contract nobody has it any more.
            unsafe { bindings::destroy_workqueue(queue) };
        }
    }
}

/// What a work item is done with, as C hands it on: each kind's own, which casts it.
pub(super) use bindings::uvm_rust_work_of as WorkOf;

/// The kinds of work, by the locks that they take: lockdep keeps the locks of one kind apart from those of another.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Prefetch = bindings::UVM_RUST_WORK_PREFETCH as isize,
    Fetch = bindings::UVM_RUST_WORK_FETCH as isize,
    Spill = bindings::UVM_RUST_WORK_SPILL as isize,
    Alarm = bindings::UVM_RUST_WORK_ALARM as isize,
}

/// A work item, which one thread at a time runs later. Dropping the item stops it.
///
/// Invariant: it came from `uvm_seam_work_new`, and is freed by `drop`.
pub(super) struct Work(NonNull<uvm_seam_work>);

// SAFETY: a work item belongs to no thread.
unsafe impl Send for Work {}
// SAFETY: what is done with it by way of `&self` is the kernel's, which locks it.
unsafe impl Sync for Work {}

impl Work {
    /// Calls `run` with `of` whenever it is queued.
    ///
    /// # Safety
    ///
    /// A thread that holds no lock may call `run(of)` as long as this item exists; one thread at a time does.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) unsafe fn new(
        kind: Kind,
        run: unsafe extern "C" fn(of: *mut WorkOf),
        of: *mut WorkOf,
    ) -> Result<Self> {
        // SAFETY: by this function's contract; `kind` is one of C's.
        let work = unsafe { bindings::uvm_seam_work_new(kind as u32, Some(run), of) };
        Ok(Self(NonNull::new(work).ok_or(ENOMEM)?))
    }

    /// Queues the item; if it runs now, it runs once more. Without a queue nothing happens.
    pub(super) fn queue(&self, queue: &WorkQueue) {
        let queue = queue.0.load(Acquire);
        if !queue.is_null() {
            // SAFETY: by the types' invariants.
            unsafe { bindings::uvm_seam_work_queue(queue, self.0.as_ptr(), 0) };
        }
    }

    /// Queues the item so that it runs in `ms` milliseconds, and not before.
    pub(super) fn queue_in(&self, queue: &WorkQueue, ms: u64) {
        let queue = queue.0.load(Acquire);
        if !queue.is_null() {
            // SAFETY: by the types' invariants.
            unsafe { bindings::uvm_seam_work_queue(queue, self.0.as_ptr(), ms.max(1)) };
        }
    }

    /// Waits until the item does not run, and takes it off the queue. Sleeps. The caller makes sure that nobody queues
    /// the item any more.
    pub(super) fn stop(&self) {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_work_stop(self.0.as_ptr(), false) };
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant; nobody queues it any more, as nobody has it.
        unsafe { bindings::uvm_seam_work_stop(self.0.as_ptr(), true) };
    }
}

/// A scope in which a memory cgroup is charged for what this thread allocates for users.
pub(super) struct Charging(*mut mem_cgroup);

impl Charging {
    /// # Safety
    ///
    /// `group` is null, for the thread's own, or there as long as the result, which stays with this thread.
    pub(super) unsafe fn to(group: *mut mem_cgroup) -> Self {
        // SAFETY: by this function's contract; `drop` undoes it.
        Self(unsafe { bindings::uvm_seam_charge(group) })
    }
}

impl Drop for Charging {
    fn drop(&mut self) {
        // SAFETY: it was active before.
        unsafe { bindings::uvm_seam_charge(self.0) };
    }
}
