// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Prefetching: the worker of a VA space, and what it moves blocks with.

use super::bindings;
use super::slot::{Lent, Slot};
use super::tenant::Charged;
use super::work::{Charging, Kind, Work, WorkQueue};
use crate::driver::prefetch::Process;
use crate::policy::prefetch::worker;
use core::ffi::c_void;
use core::ptr::NonNull;
use kernel::prelude::*;

/// Those of all VA spaces; an item of it runs on one CPU at a time.
pub(crate) static WORKERS: WorkQueue = WorkQueue::none();

/// The worker of a VA space, from the first announcement on.
pub(crate) struct Worker(Slot<KBox<Made>>);

/// What upstream works with to move va_blocks. Invariant: it came from `uvm_seam_prefetch_create`, and is freed when
/// this is dropped.
pub(crate) struct Migration(NonNull<bindings::uvm_seam_prefetch>);

impl Migration {
    /// Makes one; `None` without memory.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: no preconditions.
        NonNull::new(unsafe { bindings::uvm_seam_prefetch_create() }).map(Self)
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::uvm_seam_prefetch {
        self.0.as_ptr()
    }
}

// SAFETY: it belongs to no thread.
unsafe impl Send for Migration {}
// SAFETY: nothing is done with it by way of `&self`.
unsafe impl Sync for Migration {}

impl Drop for Migration {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant, and nobody uses it any more.
        unsafe { bindings::uvm_seam_prefetch_free(self.as_ptr()) };
    }
}

/// What the worker works with.
struct Made {
    /// The first to be dropped, so that the worker has stopped before what it uses goes.
    work: Option<Work>,
    /// What it moves blocks with, while it does not.
    migration: Lent<KBox<Migration>>,
    /// What the worker, a kernel thread, allocates is charged to this, which outlives it.
    group: *mut bindings::mem_cgroup,
}

/// A turn of the worker: learns, and prefetches.
///
/// # Safety
///
/// `of` is what [`Worker::make`] made the work of, which this is.
unsafe extern "C" fn work(of: *mut c_void) {
    // SAFETY: `make` gave it, and a process stops its worker before it goes.
    let process = unsafe { &*of.cast::<Process>() };
    let Some(made) = process.worker().0.get() else {
        return;
    };
    // SAFETY: the group outlives the worker.
    let _charging = unsafe { Charging::to(made.group) };
    process.work();
}

impl Worker {
    /// Makes a worker that does not work before it is made.
    pub(crate) const fn new() -> Self {
        Self(Slot::empty())
    }

    /// What it moves blocks with, if nobody has that.
    pub(crate) fn take(&self) -> Option<KBox<Migration>> {
        self.0.get()?.migration.take()
    }

    /// Gives back what [`Worker::take`] gave.
    pub(crate) fn give(&self, migration: KBox<Migration>) {
        if let Some(made) = self.0.get() {
            made.migration.put(migration);
        }
    }

    /// Whether there is one.
    pub(crate) fn is_made(&self) -> bool {
        self.0.get().is_some()
    }

    /// Makes that of `process`, which this is a part of, if there is none, charged to `charged`, which outlives
    /// it. One thread at a time.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make(&self, process: &Process, charged: &Charged) -> Result {
        if self.is_made() {
            return Ok(());
        }
        let migration = Migration::new().ok_or(ENOMEM)?;
        let mut made = Made {
            work: None,
            migration: Lent::empty(),
            group: charged.group(),
        };
        made.migration
            .put(KBox::new(migration, GFP_KERNEL_ACCOUNT)?);
        let process = core::ptr::from_ref(process).cast_mut().cast();
        // SAFETY: a process stays where it is, and ends its worker before it goes (I-own).
        made.work = Some(unsafe { Work::new(Kind::Prefetch, work, process) }?);
        let made = KBox::new(made, GFP_KERNEL_ACCOUNT)?;
        self.0.fill(made).map_err(|_| EBUSY)
    }

    fn work(&self) -> Option<&Work> {
        self.0.get()?.work.as_ref()
    }

    /// Has `Process::work` called, once more if it runs.
    pub(crate) fn wake(&self) {
        if let Some(work) = self.work() {
            work.queue(&WORKERS);
        }
    }

    /// Waits until it does not run, and takes back that it was woken. Sleeps. Whoever calls this sees to
    /// it that nobody wakes it any more.
    pub(crate) fn stop(&self) {
        if let Some(work) = self.work() {
            work.stop();
        }
    }
}

/// A number that nobody can foresee.
pub(crate) fn random() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bindings::get_random_u64() }
}

// Numbers that both sides count with.
const _: () = assert!(worker::IN_FLIGHT == bindings::UVM_RUST_PREFETCH_COPIES);
