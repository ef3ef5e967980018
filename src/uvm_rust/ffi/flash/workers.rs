// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The workers that spill to the attached device, the work that wakes them again, and the work that trims the device.

use super::dev::Dev;
use super::io::Io;
use super::spill::Spilling;
use super::tier::{current, kick_workers, trim_in as look_in};
use super::trim;
use crate::ffi::work::{Kind, Work, WorkOf, WorkQueue};
use crate::policy::flash::spill;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::ForeignOwnable;

/// The workers of the attached device, or null. Read under the tier's lock while a device is attached; written with the
/// attach lock held for writing, while none is.
static WORKERS: AtomicPtr<Workers> = AtomicPtr::new(null_mut());

struct Workers {
    /// Dropped, and so stopped, before `queue` ends.
    all: KVec<Worker>,
    /// Wakes the workers to look for something to spill.
    again: Option<Work>,
    /// The work that trims `dev`.
    trims: Option<Work>,
    dev: Arc<Dev>,
    queue: WorkQueue,
}

struct Worker {
    /// Dropped first, so that the work has stopped before what it uses is freed.
    work: Option<Work>,
    dev: Arc<Dev>,
    /// Used by the work only, which one thread at a time runs.
    io: UnsafeCell<Io>,
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.again = None;
        self.trims = None;
        self.all = KVec::new();
        // SAFETY: all work of this queue is dropped, and so has stopped.
        unsafe { self.queue.end() };
    }
}

/// A turn of a worker.
///
/// # Safety
///
/// `of` is the [`Worker`] that [`start`] made this work for.
unsafe extern "C" fn work(of: *mut WorkOf) {
    // SAFETY: `start` gave it, and it is there as long as the work, which nothing changes.
    let worker = unsafe { &*of.cast::<Worker>() };
    // SAFETY: there is a tier as long as there are workers; the buffer is this worker's.
    spill::work(&mut unsafe { Spilling::new(&worker.dev, &mut *worker.io.get()) });
}

/// Wakes the workers to look for something to spill.
///
/// # Safety
///
/// There is a tier.
unsafe extern "C" fn look(_: *mut WorkOf) {
    // SAFETY: there is a tier as long as a device is attached.
    unsafe { kick_workers(current()) };
}

/// A turn of the work that trims the device.
///
/// # Safety
///
/// `of` is the device of the [`Workers`] that [`start`] made the work for.
unsafe extern "C" fn trim_turn(of: *mut WorkOf) {
    // SAFETY: `start` gave it, and it is there as long as the work, which nothing changes.
    let dev = unsafe { &*of.cast::<Arc<Dev>>() };
    // A write from now on is not overlooked: its slots are looked at below, or the write queues this work once more.
    dev.is_looked_after(false);
    // SAFETY: there is a tier as long as a device is attached, and who lets that go stops this work first.
    unsafe {
        if let Some(ms) = trim::turn(dev) {
            look_in(current(), dev, ms);
        }
    }
}

/// Makes `count` workers that spill to `dev`. They do nothing before the tier has the device.
///
/// # Safety
///
/// There are no workers. The attach lock is held in write mode, and there is a tier until [`stop`].
///
/// # Errors
///
/// `ENOMEM`.
pub(super) unsafe fn start(dev: &Arc<Dev>, count: u32) -> Result {
    let mut workers = KBox::new(
        Workers {
            all: KVec::with_capacity(count as usize, GFP_KERNEL)?,
            again: None,
            trims: None,
            dev: dev.clone(),
            queue: WorkQueue::none(),
        },
        GFP_KERNEL,
    )?;
    // One thread more, which trims: a device may take long for that.
    workers.queue.make(c"uvm-rust-flash", count + 1)?;
    for _ in 0..count {
        let worker = Worker {
            dev: dev.clone(),
            io: UnsafeCell::new(Io::for_writes(dev.seam()).ok_or(ENOMEM)?),
            work: None,
        };
        workers.all.push(worker, GFP_KERNEL)?;
    }
    // The workers do not move in memory from now on.
    for worker in workers.all.iter_mut() {
        let of = (worker as *mut Worker).cast();
        // SAFETY: the worker stops the work before it goes, and nobody writes to it until then.
        worker.work = Some(unsafe { Work::new(Kind::Spill, work, of) }?);
    }
    // SAFETY: it needs nothing.
    workers.again = Some(unsafe { Work::new(Kind::Spill, look, null_mut()) }?);
    let of = (&raw const workers.dev).cast_mut().cast();
    // SAFETY: the work ends before the device that it is given goes, and nobody writes to that until then.
    workers.trims = Some(unsafe { Work::new(Kind::Spill, trim_turn, of) }?);
    WORKERS.store(workers.into_foreign().cast_mut().cast(), Release);
    Ok(())
}

/// Stops the workers, if there are any. Sleeps.
///
/// # Safety
///
/// The tier has no device. The lock of attaching is held in write mode.
pub(super) unsafe fn stop() {
    let workers = WORKERS.swap(null_mut(), AcqRel);
    if !workers.is_null() {
        // Workers that still run have shared references, so nothing is dropped before they have stopped.
        // SAFETY: it came from `into_foreign`, and is there until it is dropped below.
        let at_work = unsafe { &*workers };
        at_work.again.iter().for_each(Work::stop);
        at_work.trims.iter().for_each(Work::stop);
        at_work
            .all
            .iter()
            .filter_map(|w| w.work.as_ref())
            .for_each(Work::stop);
        // SAFETY: it came from `into_foreign`, and by this function's contract nobody wakes them.
        drop(unsafe { <KBox<Workers> as ForeignOwnable>::from_foreign(workers.cast()) });
    }
}

/// # Safety
///
/// The tier's lock is held for `'a`, and it has a device.
unsafe fn there<'a>() -> Option<&'a Workers> {
    // SAFETY: by this function's contract they are not stopped meanwhile.
    unsafe { WORKERS.load(Acquire).as_ref() }
}

/// Wakes the first `count` workers.
///
/// # Safety
///
/// The tier's lock is held, and it has a device.
pub(super) unsafe fn wake(count: u32) {
    // SAFETY: by this function's contract.
    if let Some(workers) = unsafe { there() } {
        let first = workers.all.iter().take(count as usize);
        first
            .filter_map(|w| w.work.as_ref())
            .for_each(|w| w.queue(&workers.queue));
    }
}

/// Has the workers woken again in `ms` milliseconds.
///
/// # Safety
///
/// As [`wake`].
pub(super) unsafe fn look_again(ms: u64) {
    // SAFETY: by this function's contract.
    if let Some(workers) = unsafe { there() } {
        if let Some(again) = &workers.again {
            again.queue_in(&workers.queue, ms);
        }
    }
}

/// Has the trimming work run in `ms` milliseconds.
///
/// # Safety
///
/// The contract is that of [`wake`].
pub(super) unsafe fn trim_in(ms: u64) {
    // SAFETY: by this function's contract.
    if let Some(workers) = unsafe { there() } {
        if let Some(trims) = &workers.trims {
            trims.queue_in(&workers.queue, ms);
        }
    }
}
