// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How the worker of a VA space is woken, and how it ends with its VA space.
//!
//! A worker is a work item: [`Worker::queue`] queues it, and later a thread takes it off its queue and makes a [`turn`].
//! That thread holds no lock of the VA space, and nothing but [`end`] keeps what the turn uses.
//!
//! # Invariants
//!
//! - **L-wake**: a thread that wakes the worker looks for the end and queues the worker under one lock. So nobody queues
//!   the worker once [`end`] has told of the end under that lock.
//! - **L-end**: when [`end`] returns, the worker neither runs nor is queued, and never will be. What it uses may go.
//! - **L-idle**: the worker counts as idle only if a turn that began after all that was asked for has ended.
//!
//! Locking: [`Worker::with`] takes the lock, which is a leaf but for what [`Worker::queue`] takes.

/// What was asked of a worker, and what it has done of that.
#[derive(Clone, Debug, Default)]
pub struct Wakes {
    /// The VA space ends.
    is_ending: bool,
    /// How often a turn was asked for, and how many of these requests were met.
    asked: u64,
    met: u64,
}

impl Wakes {
    /// Nothing was asked for yet.
    pub const fn new() -> Self {
        Self {
            is_ending: false,
            asked: 0,
            met: 0,
        }
    }

    /// Whether the VA space ends. Then the worker begins nothing more.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Whether the worker has done all that was asked for.
    pub fn is_idle(&self) -> bool {
        self.met == self.asked
    }
}

/// The worker of a VA space.
pub trait Worker {
    /// Shows what was asked of the worker to `look`, under its lock.
    fn with<R>(&self, look: impl FnOnce(&mut Wakes) -> R) -> R;

    /// Queues the worker; if it runs now, it runs once more. Does not sleep.
    fn queue(&self);

    /// Waits until the worker does not run, and takes it off its queue. Sleeps.
    fn stop(&self);
}

/// Asks for a turn, unless the VA space ends.
pub fn wake(worker: &impl Worker) {
    worker.with(|wakes| {
        if !wakes.is_ending {
            wakes.asked = wakes.asked.wrapping_add(1);
            worker.queue();
        }
    });
}

/// Makes a turn; `run` does what there is to do, and returns whether another turn must follow.
pub fn turn(worker: &impl Worker, run: impl FnOnce() -> bool) {
    // What is asked for during the turn may come too late for it.
    let asked = worker.with(|wakes| wakes.asked);
    if run() {
        wake(worker);
    }
    worker.with(|wakes| wakes.met = asked);
}

/// Ends the worker with its VA space. Sleeps.
pub fn end(worker: &impl Worker) {
    worker.with(|wakes| wakes.is_ending = true);
    worker.stop();
}
