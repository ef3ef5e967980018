// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Moves in the driver's own queue, without a thread here: who asks whether they are done
//! takes the driver's answers for all.
//!
//! What the driver's queue does not move (ordinary memory, parts of a GPU) the thread does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Moves, Queued, State, Tier};
use crate::{Error, Range, Result};

/// So long one who waits for the driver does so on behalf of all.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// So long a full queue is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// So long who forgets its moves waits for those that the driver has.
const PARTING: Duration = Duration::from_secs(1);

/// A driver that moves some time later, and says when it has.
pub trait Later {
    /// Takes moves; how many, from the first on. 0: its queue is full.
    ///
    /// # Errors
    /// None of them was taken.
    fn submit(&self, queue: u64, moves: &[Given]) -> Result<usize>;

    /// Those that are done, of those who submitted them with this `queue`; waits for the first
    /// as long as `wait`.
    ///
    /// # Errors
    /// Nobody will ever know, but for [`Error::Busy`].
    fn reap(&self, queue: u64, wait: Duration) -> Result<Vec<Moved>>;
}

/// A move, as the driver is given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// What [`Moved`] knows it by.
    pub number: u64,
    /// What is moved, of whole pages.
    pub range: Range,
    /// Where the range is when the move is done.
    pub to: Tier,
    /// It begins when all that the driver was given before it have ended, well or not: what leaves
    /// makes the room for what comes.
    pub after: bool,
}

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The number with which it was submitted.
    pub number: u64,
    /// Whether all was moved.
    pub result: Result<()>,
}

/// A number that no other user of the driver's queue in this process has: other copies of this
/// library have their counter elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue(u64);

impl Queue {
    pub(super) fn new() -> Self {
        static QUEUES: AtomicU64 = AtomicU64::new(0);
        let number = QUEUES.fetch_add(1, Relaxed);
        Self((&raw const QUEUES).addr() as u64 ^ number << 47)
    }
}

impl State {
    /// What the driver is to be given of some moves.
    pub(super) fn give(&mut self, queued: impl Iterator<Item = Queued>) -> Vec<Given> {
        let mut given = Vec::new();
        let comes = |to| matches!(to, Tier::Gpu(_));
        let mut something_leaves = self.given.values().any(|one| !comes(one.to));
        for mut one in queued {
            match one.range.grown() {
                Err(error) => self.fail(error, one.to),
                Ok(range) if range.length == 0 => {}
                Ok(range) => {
                    self.number += 1;
                    one.range = range;
                    given.push(Given {
                        number: self.number,
                        range,
                        to: one.to,
                        after: comes(one.to) && something_leaves,
                    });
                    something_leaves |= !comes(one.to);
                    self.given.insert(self.number, one);
                }
            }
        }
        given
    }

    /// The driver has said what became of one; what is left for the thread to do.
    fn told(&mut self, moved: Moved) -> Option<Queued> {
        let one = self.given.remove(&moved.number)?;
        match moved.result {
            Ok(()) => None,
            Err(Error::NotManaged | Error::NoDevice) if one.to != Tier::Ssd => Some(one),
            Err(error) => {
                self.fail(error, one.to);
                None
            }
        }
    }
}

impl Moves {
    /// Gives the driver moves, in their order. The caller has the lock of those that send.
    pub(super) fn send(&self, queue: Queue, moves: &[Given]) {
        let (mut rest, start) = (moves, Instant::now());
        while !rest.is_empty() {
            let later = self.carrier.later().ok_or(Error::NotSupported);
            let taken = match later.and_then(|later| later.submit(queue.0, rest)) {
                Ok(0) if start.elapsed() >= PATIENCE => Err(Error::Busy),
                taken => taken,
            };
            match taken {
                Ok(0) => self.reap(LOOK),
                Ok(taken) => rest = rest.get(taken..).unwrap_or_default(),
                Err(error) => {
                    let failed = |one: &Given| Moved {
                        number: one.number,
                        result: Err(error),
                    };
                    return self.tell(rest.iter().map(failed));
                }
            }
        }
    }

    /// Takes the driver's answers, for the first of which it waits as long as `wait`.
    pub(super) fn reap(&self, wait: Duration) {
        let Some(queue) = self.queue else { return };
        if self.shared.lock().given.is_empty() {
            return;
        }
        let later = self.carrier.later().ok_or(Error::NotSupported);
        match later.and_then(|later| later.reap(queue.0, wait)) {
            Ok(moved) => self.tell(moved.into_iter()),
            Err(Error::Busy) => {}
            Err(error) => {
                let numbers: Vec<_> = self.shared.lock().given.keys().copied().collect();
                let failed = |number| Moved {
                    number,
                    result: Err(error),
                };
                self.tell(numbers.into_iter().map(failed));
            }
        }
    }

    fn tell(&self, moved: impl Iterator<Item = Moved>) {
        let mut state = self.shared.lock();
        for one in moved {
            if let Some(left) = state.told(one) {
                match self.begin_thread(&mut state) {
                    Ok(()) => state.queue.push_back(left),
                    Err(error) => state.fail(error, left.to),
                }
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Takes the answers that are still to come, lest they take the room of others' moves.
    pub(super) fn forget(&self) {
        let start = Instant::now();
        while !self.shared.lock().given.is_empty() && start.elapsed() < PARTING {
            self.reap(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{Carrier, Move, Ticket};
    use super::*;
    use std::sync::mpsc::{channel, Sender};
    use std::sync::{Arc, Mutex};

    const GPU: Tier = Tier::Gpu([7; 16]);
    const LONG: Duration = Duration::from_secs(60);

    /// A driver whose queue has room for two, and which moves when it is asked what it has moved.
    #[derive(Default)]
    struct Driver {
        waiting: Mutex<Vec<Given>>,
        said: Mutex<Vec<String>>,
        /// The MiB at which each that was taken begins, and whether it is to begin after all others, in
        /// their order.
        taken: Mutex<Vec<(u64, bool)>>,
        is_gone: Mutex<bool>,
        /// Told when somebody finds the queue full for the first time.
        is_full: Mutex<Option<Sender<()>>>,
    }

    impl Driver {
        fn say(&self, what: &str, range: Range) {
            let text = format!("{what} {}", range.base >> 20);
            self.said.lock().unwrap().push(text);
        }
    }

    impl Carrier for Arc<Driver> {
        fn carry(&self, range: Range, _: Tier) -> Result<()> {
            self.say("thread", range);
            Ok(())
        }

        fn later(&self) -> Option<&dyn Later> {
            Some(&**self)
        }
    }

    impl Later for Driver {
        fn submit(&self, _: u64, moves: &[Given]) -> Result<usize> {
            let mut waiting = self.waiting.lock().unwrap();
            if *self.is_gone.lock().unwrap() {
                return Err(Error::NotSupported);
            }
            let taken = moves.len().min(2 - waiting.len());
            waiting.extend(&moves[..taken]);
            let these = moves[..taken].iter();
            let these = these.map(|one| (one.range.base >> 20, one.after));
            self.taken.lock().unwrap().extend(these);
            drop(waiting);
            let told = (taken == 0).then(|| self.is_full.lock().unwrap().take());
            if let Some(told) = told.flatten() {
                told.send(()).unwrap();
                // Another thread may get its moves in meanwhile, if it can.
                std::thread::sleep(Duration::from_millis(300));
            }
            Ok(taken)
        }

        fn reap(&self, _: u64, _: Duration) -> Result<Vec<Moved>> {
            if *self.is_gone.lock().unwrap() {
                return Err(Error::NotSupported);
            }
            let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
            let moved = |Given { number, range, .. }: Given| {
                self.say("driver", range);
                let result = match range.base >> 20 {
                    13 => Err(Error::NotManaged),
                    17 => Err(Error::NoMemory),
                    _ => Ok(()),
                };
                Moved { number, result }
            };
            Ok(waiting.into_iter().map(moved).collect())
        }
    }

    fn mv(at: u64, to: Tier) -> Move {
        let range = Range {
            base: at << 20,
            length: 2 << 20,
        };
        Move { range, to }
    }

    fn moves() -> (Moves, Arc<Driver>) {
        let driver = Arc::new(Driver::default());
        (Moves::new(Arc::clone(&driver)).unwrap(), driver)
    }

    #[test]
    fn the_driver_moves_and_there_is_no_thread() {
        let (moves, driver) = moves();
        let first = moves.submit(&[mv(2, GPU)]);
        assert_eq!(driver.said.lock().unwrap().len(), 0);
        assert_eq!(moves.done(), first);
        let second = moves.submit(&[mv(4, Tier::Ssd), mv(6, GPU), mv(8, Tier::Host)]);
        assert!(moves.wait(second, LONG));
        assert_eq!(moves.done(), second);
        let said = driver.said.lock().unwrap().clone();
        assert_eq!(said, ["driver 2", "driver 4", "driver 6", "driver 8"]);
        assert_eq!(moves.errors(), (0, None));
        assert!(moves.shared.lock().thread.is_none());
    }

    /// In the driver's queue what comes and what leaves go on at the same time, unless it is told.
    #[test]
    fn what_comes_waits_for_what_leaves_before_it_and_for_nothing_else() {
        let (moves, driver) = moves();
        let all = [
            mv(2, GPU),
            mv(4, Tier::Ssd),
            mv(6, GPU),
            mv(8, GPU),
            mv(10, Tier::Host),
        ];
        // More than there is room for: some are given later, with what they were to wait for.
        moves.submit(&all);
        let second = moves.submit(&[mv(12, GPU), mv(14, Tier::Ssd)]);
        assert!(moves.wait(second, LONG));
        // Nothing is on its way any more.
        moves.submit(&[mv(16, GPU)]);
        let taken = driver.taken.lock().unwrap().clone();
        let after: Vec<_> = taken.into_iter().map(|(_, after)| after).collect();
        let want = [false, false, true, true, false, true, false, false];
        assert_eq!(after, want);
    }

    /// What another thread evicts has its number before the prefetch, and is to reach the driver before it.
    #[test]
    fn the_driver_gets_the_moves_of_all_threads_in_their_order() {
        let (moves, driver) = moves();
        let (tell, told) = channel();
        *driver.is_full.lock().unwrap() = Some(tell);
        std::thread::scope(|scope| {
            scope.spawn(|| moves.submit(&[4, 6, 8, 10].map(|at| mv(at, Tier::Ssd))));
            told.recv().unwrap();
            // Somebody makes room, and takes it.
            moves.reap(Duration::ZERO);
            moves.submit(&[mv(12, GPU)]);
        });
        let taken = driver.taken.lock().unwrap().clone();
        let want = [(4, false), (6, false), (8, false), (10, false), (12, true)];
        assert_eq!(taken, want);
        assert!(moves.wait(Ticket(2), LONG));
        assert_eq!(moves.errors(), (0, None));
    }

    #[test]
    fn what_it_does_not_move_the_thread_does() {
        let (moves, driver) = moves();
        let ticket = moves.submit(&[mv(13, GPU), mv(4, GPU)]);
        assert!(moves.wait(ticket, LONG));
        let said = driver.said.lock().unwrap().clone();
        assert_eq!(said, ["driver 13", "driver 4", "thread 13"]);
        assert_eq!(moves.errors(), (0, None));
        // Nobody else moves to the SSD, and another error is one.
        let ticket = moves.submit(&[mv(13, Tier::Ssd), mv(17, GPU)]);
        assert!(moves.wait(ticket, LONG));
        assert_eq!(moves.errors(), (2, Some(Error::NotManaged)));
    }

    #[test]
    fn a_driver_that_is_gone_is_not_waited_for() {
        let (moves, driver) = moves();
        let first = moves.submit(&[mv(2, GPU)]);
        *driver.is_gone.lock().unwrap() = true;
        let second = moves.submit(&[mv(4, GPU)]);
        assert!(moves.wait(first, LONG) && moves.wait(second, LONG));
        assert_eq!(moves.errors(), (2, Some(Error::NotSupported)));
        let nothing = moves.submit(&[Move {
            range: Range { base: 0, length: 0 },
            to: GPU,
        }]);
        assert!(moves.wait(nothing, Duration::ZERO) && nothing > Ticket(2));
    }

    #[test]
    fn each_queue_is_another() {
        assert_ne!(Queue::new().0, Queue::new().0);
    }
}
