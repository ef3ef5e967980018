// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Carrying out what a plan has for a program that is followed: what tells a [`Follower`] of
//! the program, and gives a queue what it is to move.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::{Allocation, Before, Follower, Whereto};
use crate::plan::Plan;
use crate::{Error, Failed, Move, Moves, Ticket, Uvm};

/// Moves that may wait when one more is queued off the plan: what is behind so many comes too
/// late to be of use.
const MOST_WAITING: u64 = 8;

/// What is to be moved before a launch.
#[derive(Debug)]
pub struct Pending {
    /// Whether the program is off the plan: then what the launch is given is brought.
    off: bool,
    moves: Vec<(Allocation, Whereto)>,
}

impl Pending {
    /// Whether there is nothing to move.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Whether these are more bytes than a GPU has, of which no plan knows: what does not fit
    /// would only push itself out.
    pub fn is_too_much(&self, gpu_bytes: impl FnOnce() -> u64) -> bool {
        let bytes = self.moves.iter().map(|(memory, _)| memory.range.length);
        self.off && bytes.sum::<u64>() > gpu_bytes()
    }

    /// The moves, with the launch's GPU by its UUID.
    pub fn on(self, gpu: [u8; 16]) -> Queued {
        let moves = self.moves.into_iter().map(|(memory, to)| Move {
            range: memory.range,
            to: to.tier(gpu),
        });
        Queued {
            off: self.off,
            moves: moves.collect(),
        }
    }
}

/// What is moved before a launch on a certain GPU.
#[derive(Debug)]
pub struct Queued {
    off: bool,
    moves: Vec<Move>,
}

/// A plan, and where in it the program is. Any thread may tell it of the program.
pub struct Executor<'p> {
    follower: Mutex<Follower<'p>>,
    uvm: &'static Uvm,
    /// Made by the first launch that moves something; `None`: there is no thread for it.
    moves: OnceLock<Option<Moves>>,
    /// The ticket of the last moves.
    last: AtomicU64,
}

impl<'p> Executor<'p> {
    /// At the start of a program; `None`: the plan was not made of a record.
    pub fn new(plan: &'p Plan, uvm: &'static Uvm) -> Option<Self> {
        Some(Self {
            follower: Mutex::new(Follower::new(plan)?),
            uvm,
            moves: OnceLock::new(),
            last: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Follower<'p>> {
        let lock = self.follower.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that there is a new managed allocation.
    pub fn allocated(&self, base: u64, length: u64) {
        self.lock().allocated(base, length);
    }

    /// The allocation that begins at an address which is about to be freed.
    pub fn begins(&self, base: u64) -> Option<Allocation> {
        self.lock().allocations().begins(base)
    }

    /// Says that an allocation is freed. Another may be in its place already.
    pub fn freed(&self, gone: Allocation) {
        self.lock().freed(gone);
    }

    /// The allocations that are not freed.
    pub fn all(&self) -> Vec<Allocation> {
        self.lock().allocations().all().collect()
    }

    /// Says that a kernel of this name is about to be launched, and what among its arguments may
    /// be an address. Gives what is to be moved before it and, if the program leaves its plan
    /// with this launch, which kernel the plan has here.
    pub fn launch(
        &self,
        name: &str,
        words: &mut dyn Iterator<Item = u64>,
    ) -> (Pending, Option<u32>) {
        let mut follower = self.lock();
        let wanted = match follower.launch(name) {
            Before::Plan(moves) => return (Pending { off: false, moves }, None),
            Before::Off(wanted) => wanted,
        };
        let mut moves: Vec<(Allocation, Whereto)> = Vec::new();
        for found in words.filter_map(|word| follower.allocations().at(word)) {
            if !moves.iter().any(|&(known, _)| known == found) {
                moves.push((found, Whereto::Gpu));
            }
        }
        (Pending { off: true, moves }, wanted)
    }

    /// Queues what is to be moved, and waits for none of it; off the plan, only if not much
    /// waits already. To be called in the order of the stream, just before the launch. Calls
    /// nothing of CUDA. Gives why the first move failed, if one did so far.
    ///
    /// Memory may be freed, and be others', before a move of it is made, to whom it is advice
    /// like any: nothing is ever discarded.
    pub fn queue(&self, queued: &Queued) -> Option<Failed> {
        let moves = self.moves.get_or_init(|| Moves::new(self.uvm).ok());
        let moves = moves.as_ref()?;
        if queued.off && self.last.load(Relaxed) > moves.done().0 + MOST_WAITING {
            return None;
        }
        let Ticket(last) = moves.submit(&queued.moves);
        self.last.store(last, Relaxed);
        moves.failed().1
    }

    /// Waits until all that was queued is done; `false`: it was not in this time.
    pub fn wait(&self, timeout: Duration) -> bool {
        let last = Ticket(self.last.load(Relaxed));
        let moves = self.moves.get().and_then(Option::as_ref);
        moves.is_none_or(|moves| moves.wait(last, timeout))
    }

    /// Moves that failed so far, and why the first did.
    pub fn errors(&self) -> (u64, Option<Error>) {
        let moves = self.moves.get().and_then(Option::as_ref);
        moves.map_or((0, None), Moves::errors)
    }
}
