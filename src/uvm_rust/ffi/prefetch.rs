// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Prefetching: the worker of a VA space, and what it moves blocks with.

use super::bindings;
use super::slot::{Lent, Slot};
use super::tenant::Charged;
use super::work::{Charging, Kind, Work, WorkOf, WorkQueue};
use crate::driver::prefetch::Process;
use crate::policy::prefetch::worker::IN_FLIGHT;
use core::ptr::NonNull;
use kernel::prelude::*;

/// The queue for the workers of all VA spaces. Each worker runs on one CPU at a time.
pub(crate) static WORKERS: WorkQueue = WorkQueue::none();

/// The worker of a VA space, from the first announcement on.
pub(crate) struct Worker(Slot<KBox<Made>>);

/// Upstream's working memory for moves of va_blocks, some 30 KB. Invariant: it came from `uvm_seam_prefetch_create`, for
/// [`IN_FLIGHT`] copies, and dropping this value frees it.
pub(crate) struct Migration(NonNull<bindings::uvm_seam_prefetch>);

/// How much of it is kept for the next turn, whoever's. All VA spaces together have so much while no worker runs.
const SPARES: usize = 4;

/// What no turn has.
static SPARE: [Lent<KBox<Migration>>; SPARES] = [const { Lent::empty() }; SPARES];

impl Migration {
    /// Allocates the working memory; `None` if there is none.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: no preconditions.
        NonNull::new(unsafe { bindings::uvm_seam_prefetch_create(IN_FLIGHT) }).map(Self)
    }

    /// Gets the working memory for a turn, which [`Migration::give`]s it back; `None` if there is none. Upstream allocates it
    /// for nobody. So a VA space has it for as long as it moves blocks: a process may open the driver as often as it likes.
    pub(crate) fn take() -> Option<KBox<Self>> {
        let spare = SPARE.iter().find_map(Lent::take);
        // Neither is the box charged: it serves others afterwards.
        spare.or_else(|| KBox::new(Self::new()?, GFP_KERNEL).ok())
    }

    /// Ends the use of what [`Migration::take`] gave.
    pub(crate) fn give(this: KBox<Self>) {
        let mut rest = Some(this);
        for place in &SPARE {
            rest = rest.and_then(|migration| place.offer(migration));
        }
        // Where all places were taken, it is freed here.
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::uvm_seam_prefetch {
        self.0.as_ptr()
    }
}

/// The module ends: nobody prefetches any more.
pub(super) fn exit() {
    for place in &SPARE {
        drop(place.take());
    }
}

// SAFETY: it belongs to no thread.
unsafe impl Send for Migration {}
// SAFETY: nothing is done with it by way of `&self`.
unsafe impl Sync for Migration {}

impl Drop for Migration {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant, and nobody uses it any more.
        unsafe { bindings::uvm_seam_prefetch_free(self.as_ptr(), IN_FLIGHT) };
    }
}

/// The parts of a worker.
struct Made {
    /// The work item. It is dropped first, so that the worker has stopped before the parts that it uses are freed.
    work: Option<Work>,
    /// The memory cgroup that is charged for the allocations of the worker, a kernel thread. The group outlives it.
    group: *mut bindings::mem_cgroup,
}

// SAFETY: the group is an address, which is given to the kernel alone; the group has a lock of its own there, and
// outlives this. The other parts may go to other threads.
unsafe impl Send for Made {}
// SAFETY: as above.
unsafe impl Sync for Made {}

/// A turn of the worker: learns, and prefetches.
///
/// # Safety
///
/// `of` is the pointer that [`Worker::make`] gave to this work item.
unsafe extern "C" fn work(of: *mut WorkOf) {
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
    /// Makes a handle without a worker; [`Worker::make`] starts one.
    pub(crate) const fn new() -> Self {
        Self(Slot::empty())
    }

    /// Whether the worker was made.
    pub(crate) fn is_made(&self) -> bool {
        self.0.get().is_some()
    }

    /// Makes the worker of `process`, of which this handle is a part, unless it was made before. Its memory is charged to
    /// `charged`, which outlives it. One thread at a time calls this.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make(&self, process: &Process, charged: &Charged) -> Result {
        if self.is_made() {
            return Ok(());
        }
        let mut made = Made {
            work: None,
            group: charged.group(),
        };
        let process = core::ptr::from_ref(process).cast_mut().cast();
        // SAFETY: a process stays where it is, and ends its worker before it goes (I-own).
        made.work = Some(unsafe { Work::new(Kind::Prefetch, work, process) }?);
        let made = KBox::new(made, GFP_KERNEL_ACCOUNT)?;
        self.0.fill(made).map_err(|_| EBUSY)
    }

    fn work(&self) -> Option<&Work> {
        self.0.get()?.work.as_ref()
    }

    /// Has `Process::work` called; once more if it runs now.
    pub(crate) fn wake(&self) {
        if let Some(work) = self.work() {
            work.queue(&WORKERS);
        }
    }

    /// Waits until the worker does not run, and cancels a call that is queued. Sleeps. The caller makes sure that nobody
    /// wakes the worker any more.
    pub(crate) fn stop(&self) {
        if let Some(work) = self.work() {
            work.stop();
        }
    }
}
