// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The workers that carry out a VA space's requests (`policy/flash/queue.rs`), one for each lane. A worker is a work
//! item without a thread of its own; it runs on one of its tenant's threads.
//!
//! Locks: a VA space's queue has a mutex, inside all other locks. Nothing sleeps under it: a thread that waits for
//! completions releases it meanwhile. A worker holds the lock of power management, for which it does not wait, from
//! before it takes a request until after its completion. The thread that ends the work queues waits for the workers,
//! and so holds no lock that a worker takes: it is the end of a VA space, before that is locked.

use super::current;
use super::moves::step;
use super::tier::OwnerHandle;
use crate::driver::tenant::{Held, Tenant};
use crate::ffi::event::Event;
use crate::ffi::seam::{self, PmLock};
use crate::ffi::space::{self, Home};
use crate::ffi::tenant::flash_owner;
use crate::ffi::time::now_us;
use crate::ffi::vaspace::VaSpace;
use crate::ffi::work::{Kind, Work, WorkOf};
use crate::mem::ProcessVec;
use crate::policy::flash::moves::Failed;
use crate::policy::flash::queue::{self, turn, Job, Lane, Machine, When, LATER_MS};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering::*};
use kernel::prelude::*;
use kernel::sync::{new_condvar, new_mutex, Arc, CondVar, CondVarTimeoutResult, Mutex};
use kernel::time::Jiffies;

/// The requests of a VA space, with the event that each completion signals.
pub(crate) type Queue = queue::Queue<Arc<Event>>;

/// After how long a thread that waits for completions looks whether the system is to sleep: some hundredths of a
/// second.
const LOOK_JIFFIES: Jiffies = 25;

/// The queue and the workers of a VA space.
///
/// Invariant: the VA space and the tier outlive this; so does the tenant, which keeps the owner.
#[pin_data]
pub(crate) struct Moves {
    /// Fixed once this exists. Dropped before what the workers use.
    workers: UnsafeCell<[Worker; Lane::COUNT]>,
    space: Home,
    owner: OwnerHandle,
    #[pin]
    queue: Mutex<Queue>,
    /// Notified of each completion.
    #[pin]
    changed: CondVar,
    /// Whether the VA space ends, as the queue knows it too; read by a worker in the middle of a part.
    ending: AtomicBool,
    /// Whether this uses its owner's work queues; the owner writes it.
    has_lanes: AtomicBool,
    /// The tenant, which keeps the owner. Dropped after the workers.
    _tenant: Arc<Tenant>,
}

/// The worker of a lane.
struct Worker {
    of: *const Moves,
    lane: Lane,
    work: Option<Work>,
}

// SAFETY: what it names is used with the locks that this module names, by any thread.
unsafe impl Send for Moves {}
// SAFETY: as above.
unsafe impl Sync for Moves {}

/// A turn of a worker.
///
/// # Safety
///
/// `of` is the [`Worker`] for which [`Moves::new`] made this work.
unsafe extern "C" fn run(of: *mut WorkOf) {
    // SAFETY: `new` gave it, and whoever has it stops the work first.
    let (moves, lane) = unsafe {
        let worker = &*of.cast::<Worker>();
        (&*worker.of, worker.lane)
    };
    turn(&mut Turning { moves, pm: None }, lane);
}

impl Moves {
    /// Makes the queue and the workers of a VA space, without requests; `None` without a tier. Dropping it stops the
    /// workers.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is no memory for it and its workers.
    pub(crate) fn of(space: Home, tenant: &Held) -> Result<Option<Pin<KBox<Self>>>> {
        if current().is_null() {
            return Ok(None);
        }
        let owner = flash_owner(tenant);
        let tenant = Arc::clone(tenant);
        let worker = |lane| Worker {
            of: core::ptr::null(),
            lane,
            work: None,
        };
        let moves = KBox::pin_init(
            pin_init!(Self {
                space,
                owner,
                _tenant: tenant,
                queue <- new_mutex!(Queue::new()),
                changed <- new_condvar!(),
                ending: AtomicBool::new(false),
                has_lanes: AtomicBool::new(false),
                workers: UnsafeCell::new(Lane::ALL.map(worker)),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: nobody else knows of it yet, and it stays where it is.
        for worker in unsafe { &mut *moves.workers.get() } {
            worker.of = &raw const *moves;
            let of = (worker as *mut Worker).cast::<WorkOf>();
            // A worker is stopped where the VA space's prefetcher is, under the same locks, and so is of its kind.
            // SAFETY: a worker stops its work before it goes, and nobody writes to it until then.
            worker.work = Some(unsafe { Work::new(Kind::Prefetch, run, of) }?);
        }
        Ok(Some(moves))
    }

    fn worker(&self, lane: Lane) -> Option<&Work> {
        // SAFETY: nobody writes to it once this is there.
        let workers = unsafe { &*self.workers.get() };
        workers.get(lane as usize)?.work.as_ref()
    }

    /// Works on the queue, under its lock.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        f(&mut self.queue.lock())
    }

    /// Allocates room for `more` further requests, up to the most that there may be, and charges the caller.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is no memory for the table, or the caller may have no more.
    pub(crate) fn make_room(&self, more: u32) -> Result {
        // SAFETY: by the type's invariant.
        unsafe { self.owner.get() }.make_lanes(&self.has_lanes)?;
        let Some(most) = self.with(|queue| queue.wants(more)) else {
            return Ok(());
        };
        let mut table = ProcessVec::with_capacity(most as usize).map_err(|_| ENOMEM)?;
        self.with(|queue| queue.grow(&mut table, most));
        // The old table is freed here, outside the lock.
        Ok(())
    }

    /// Queues a lane's worker, unless the VA space ends or nothing was ever submitted.
    pub(crate) fn wake(&self, lane: Lane, when: When) {
        // Under the lock, so that the queue has not ended, and the owner's work queues exist.
        let queue = self.queue.lock();
        let there = self.has_lanes.load(Acquire) && !queue.has_ended();
        if let (Some(work), true) = (self.worker(lane), there) {
            // SAFETY: by the type's invariant.
            let of = unsafe { self.owner.get() }.queue_of(lane.way());
            match when {
                When::Now => work.queue(of),
                When::Later => work.queue_in(of, LATER_MS),
            }
        }
    }

    /// Waits until `is_ready` says so of the queue, or `ms` milliseconds. The caller holds no lock but that of power
    /// management.
    ///
    /// # Errors
    ///
    /// `EINTR` if a signal has come, `EAGAIN` if somebody waits to suspend.
    pub(crate) fn wait(&self, ms: u64, is_ready: impl Fn(&Queue) -> bool) -> Result {
        let end = now_us().saturating_add(ms.saturating_mul(1000));
        let mut queue = self.queue.lock();
        while !is_ready(&queue) && now_us() < end {
            if seam::suspends() {
                return Err(EAGAIN);
            }
            let woken = self
                .changed
                .wait_interruptible_timeout(&mut queue, LOOK_JIFFIES);
            if matches!(woken, CondVarTimeoutResult::Signal { .. }) && !is_ready(&queue) {
                return Err(EINTR);
            }
        }
        Ok(())
    }

    /// Ends the queue with its VA space. Requests that have not begun are dropped, and the workers have stopped when
    /// this returns. Sleeps.
    pub(crate) fn end(&self) {
        self.with(Queue::end);
        self.ending.store(true, Relaxed);
        // SAFETY: by the type's invariant.
        unsafe { self.owner.get() }.look_again();
        // From here on nobody wakes them (Q-end).
        Lane::ALL
            .into_iter()
            .filter_map(|lane| self.worker(lane))
            .for_each(Work::stop);
        // SAFETY: by the type's invariant.
        unsafe { self.owner.get() }.end_lanes(&self.has_lanes);
    }
}

impl VaSpace<'_> {
    /// The VA space's queue and workers; `None` without a tier.
    pub(crate) fn moves(&self) -> Option<&Moves> {
        // SAFETY: valid by the type's invariant, and its file is kept.
        unsafe { space::of(self.as_ptr()) }?.moves()
    }
}

/// A turn of a worker of a VA space.
struct Turning<'a> {
    moves: &'a Moves,
    /// The lock of power management, between `enter` and `leave`.
    pm: Option<PmLock>,
}

impl Machine for Turning<'_> {
    type Event = Arc<Event>;

    fn enter(&mut self) -> bool {
        self.pm = PmLock::try_read();
        self.pm.is_some()
    }

    fn leave(&mut self) {
        self.pm = None;
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Queue) -> R) -> R {
        self.moves.with(f)
    }

    fn step(&mut self, job: &mut Job) -> Result<(), Failed> {
        let moves = self.moves;
        // SAFETY: by the type's invariant.
        unsafe {
            step(
                moves.space.space().as_ptr(),
                moves.owner,
                job,
                &moves.ending,
            )
        }
    }

    fn tell(&mut self, event: Option<Arc<Event>>) {
        self.moves.changed.notify_all();
        if let Some(event) = event {
            event.signal();
        }
    }

    fn wake(&mut self, lane: Lane, when: When) {
        self.moves.wake(lane, when);
    }
}
