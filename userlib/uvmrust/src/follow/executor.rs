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
    /// Tickets of a step.
    of_a_step: u64,
}

impl<'p> Executor<'p> {
    /// At the start of a program; `None`: the plan was not made of a record.
    pub fn new(plan: &'p Plan, uvm: &'static Uvm) -> Option<Self> {
        Some(Self {
            follower: Mutex::new(Follower::new(plan)?),
            uvm,
            moves: OnceLock::new(),
            last: AtomicU64::new(0),
            of_a_step: plan.moving(),
        })
    }

    /// The same, with this queue in the place of one of its own.
    pub fn with(plan: &'p Plan, uvm: &'static Uvm, moves: Moves) -> Option<Self> {
        Some(Self {
            moves: OnceLock::from(Some(moves)),
            ..Self::new(plan, uvm)?
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
        let before = self.lock().launch(name);
        let wanted = match before {
            Before::Plan(moves) => return (Pending { off: false, moves }, None),
            Before::Off(wanted) => wanted,
        };
        // Not under the lock: where the program cannot read its own argument, its signal handler may free
        // memory.
        let words: Vec<u64> = words.collect();
        let mut moves: Vec<(Allocation, Whereto)> = Vec::new();
        let follower = self.lock();
        for found in (words.into_iter()).filter_map(|word| follower.allocations().at(word)) {
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
    /// Where moves take longer than kernels, those that have waited for a whole step are
    /// forgotten, the oldest first: their kernels are over, and the plan asks for them anew. So
    /// what waits is a step behind at most, which is the same place in the next one.
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
        if !queued.off {
            moves.keep_last(self.of_a_step);
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc::{channel, Receiver};
    use std::sync::Arc;

    use super::*;
    use crate::{Carrier, Range, Result, Tier};

    const MIB: u64 = 1 << 20;
    const LONG: Duration = Duration::from_secs(60);

    /// Carries nothing as long as the other end of the channel is there, and then tells.
    struct Stuck(Mutex<Receiver<()>>, Arc<Mutex<Vec<(u64, bool)>>>);

    impl Carrier for Stuck {
        fn carry(&self, range: Range, to: Tier) -> Result<()> {
            let _ = self.0.lock().unwrap().recv();
            let comes = matches!(to, Tier::Gpu(_));
            self.1.lock().unwrap().push((range.base / MIB, comes));
            Ok(())
        }
    }

    /// A launch of a kernel, and what is moved before it.
    fn launch(executor: &Executor<'_>, name: &str) {
        let (pending, left) = executor.launch(name, &mut core::iter::empty());
        assert_eq!(left, None);
        if !pending.is_empty() {
            assert_eq!(executor.queue(&pending.on([7; 16])), None);
        }
    }

    /// To read it may take a signal handler of the program's, which frees memory.
    #[test]
    fn an_argument_is_read_where_nothing_is_locked() {
        let plan = "uvmplan 1\nkernels 1\nspan 4096\nstart 0\nlaunch 0 a\n";
        let plan = Box::leak(Box::new(Plan::parse(plan).unwrap()));
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let executor = Executor::new(plan, Uvm::process()).unwrap();
            executor.allocated(MIB, MIB);
            executor.allocated(2 * MIB, MIB);
            let read = || {
                executor.freed(executor.begins(MIB).unwrap());
                2 * MIB
            };
            let words = &mut [MIB].into_iter().chain(core::iter::once_with(read));
            let (pending, left) = executor.launch("b", words);
            let _ = tell.send((pending.moves.len(), left));
        });
        assert_eq!(told.recv_timeout(LONG), Ok((1, Some(0))));
    }

    #[test]
    fn no_more_than_a_step_of_moves_waits() {
        let plan = "uvmplan 1\nkernels 4\nspan 4194304\nstart 0\n\
            launch 0 a\nlaunch 1 b\nlaunch 2 c\nlaunch 3 d\ntensor 0 alloc0\ntensor 1 alloc1\n\
            at 0 prefetch 0 0 1048576\nat 1 evict 1 1048576 1048576 host\n\
            at 2 evict 0 0 1048576 host\nat 2 prefetch 1 1048576 1048576\n";
        let plan = Plan::parse(plan).unwrap();
        let (stuck, waits) = channel();
        let carried = Arc::new(Mutex::new(Vec::new()));
        let carrier = Stuck(Mutex::new(waits), Arc::clone(&carried));
        let moves = Moves::new(carrier).unwrap();
        let executor = Executor::with(&plan, Uvm::process(), moves).unwrap();
        executor.allocated(10 * MIB, MIB);
        executor.allocated(20 * MIB, MIB);
        let step = || ["a", "b", "c", "d"].map(|name| launch(&executor, name));
        for _ in 0..2500 {
            step();
        }
        assert!(!executor.wait(Duration::ZERO));
        drop(stuck);
        assert!(executor.wait(LONG));
        let of_a_step = [(10, true), (20, false), (10, false), (20, true)];
        // Whatever was under way has been made, too.
        let mut there = std::mem::take(&mut *carried.lock().unwrap());
        let last = there.split_off(there.len() - 4);
        assert_eq!(last, of_a_step);
        assert!(there.len() <= 1, "{there:?}");
        // From now on the plan is carried out in full.
        for _ in 0..2 {
            step();
            assert!(executor.wait(LONG));
            assert_eq!(std::mem::take(&mut *carried.lock().unwrap()), of_a_step);
        }
    }
}
