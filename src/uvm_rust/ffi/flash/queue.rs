// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who carries out requests (`policy/flash/queue.rs`) for a VA space: a worker for each lane. A worker is a work item
//! without a thread of its own: it has one of its tenant's while it is at work.
//!
//! Locks: a VA space's queue has a mutex, inside all other locks, under which nothing sleeps: who waits for
//! completions gives it back for that. A worker holds the lock of power management, for which it does not wait,
//! from before it takes a request up to after its completion is there. Who ends the queues of work waits for the
//! workers, and so holds none of the locks that a worker takes: it is the end of a VA space, before that is locked.

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

/// The requests of a VA space; who is told of a completion besides those that wait.
pub(crate) type Queue = queue::Queue<Arc<Event>>;

/// Until who waits for completions looks whether the system is to sleep: some hundredths of a second.
const LOOK_JIFFIES: Jiffies = 25;

/// What carries out the requests of a VA space.
///
/// Invariant: the VA space is there as long as this, and the tier; so is its tenant, who has the owner.
#[pin_data]
pub(crate) struct Moves {
    /// Fixed once this is there. They go before what they use.
    workers: UnsafeCell<[Worker; Lane::COUNT]>,
    space: Home,
    owner: OwnerHandle,
    #[pin]
    queue: Mutex<Queue>,
    /// Told of each completion.
    #[pin]
    changed: CondVar,
    /// As the queue's, for a worker in the middle of a part.
    ending: AtomicBool,
    /// Whether this has its owner's queues of work, which the owner changes.
    has_lanes: AtomicBool,
    /// The tenant, which keeps the owner: it goes after the workers have.
    _tenant: Arc<Tenant>,
}

/// Who carries out the requests of a lane.
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
/// `of` is what [`Moves::new`] made the work of, which this is.
unsafe extern "C" fn run(of: *mut WorkOf) {
    // SAFETY: `new` gave it, and whoever has it stops the work first.
    let (moves, lane) = unsafe {
        let worker = &*of.cast::<Worker>();
        (&*worker.of, worker.lane)
    };
    turn(&mut Turning { moves, pm: None }, lane);
}

impl Moves {
    /// Makes what carries out the requests of a VA space, of which there are none yet; `None` without a tier. It is
    /// stopped when it is dropped.
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
            // It stops where the prefetcher of the VA space does, with the same locks held, and so is of its kind.
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

    /// Works on the queue, with its lock.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        f(&mut self.queue.lock())
    }

    /// Gets room for so many more requests, as far as there may be so many, at the caller's expense.
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
        // What was before is freed here, outside the lock.
        Ok(())
    }

    /// Has a lane's worker run, unless the VA space ends, or nothing was ever asked for.
    pub(crate) fn wake(&self, lane: Lane, when: When) {
        // With the lock, so that the queue has not ended: what it has of its owner is there.
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

    /// Waits until `is_ready` says so of the queue, or so many milliseconds. No lock is held but that of power
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

    /// The VA space ends: what has not begun never does, and the workers have stopped when this returns. Sleeps.
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
    /// What carries out its requests; `None` without a tier.
    pub(crate) fn moves(&self) -> Option<&Moves> {
        // SAFETY: valid by the type's invariant, and its file is kept.
        unsafe { space::of(self.as_ptr()) }?.moves()
    }
}

/// A turn of a worker of a VA space.
struct Turning<'a> {
    moves: &'a Moves,
    /// Between `enter` and `leave`.
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
