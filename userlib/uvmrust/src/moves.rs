// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Moving managed memory between GPU, host and SSD without waiting for it: G10's
//! g10_prefetch and g10_pre_evict (G10 §4.4), and MOST's and AutoVM's calls, which are the
//! same.
//!
//! uvm-rust's driver has a queue of its own for that, with an SSD tier ([`later`]). Otherwise,
//! and for what that does not take, a thread makes the driver's calls, one after the other, in
//! the order in which the moves were submitted. Where the GPU is full, what leaves makes the room
//! for what comes: a prefetch that overtook it would push out what the driver chooses. Long moves
//! are made in pieces, so that dropping the queue waits for one at most. Faults need no turn: they
//! are the driver's, and none of these calls keeps a lock that a fault needs while bytes are
//! moving.
//!
//! The driver's queue carries out what leaves and what comes at the same time. So that no prefetch
//! overtakes what leaves there either, one behind such a move begins when all before it have ended
//! ([`Given::after`]). What leaves may overtake what comes, which makes room all the sooner. Prefetches to different
//! GPUs have no order: a move from one GPU to another makes no room in time. What is left
//! to the thread waits for nothing that the driver's queue has, nor does that wait for the thread.
//!
//! Moves are advice. What does not succeed is counted, and the memory is where it was.

mod later;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Error, Place, Range, Result, Sys, Uvm};
use later::Queue;

pub use later::{Given, Later, Moved};

/// Most bytes that one call of the driver moves; a multiple of 2 MiB.
const PIECE: u64 = 16 << 20;

/// Where a range is to be moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The memory of the GPU of this UUID: g10_prefetch.
    Gpu([u8; 16]),
    /// Host memory: g10_pre_evict, or a prefetch from the SSD as far as there.
    Host,
    /// The SSD, by way of the host: g10_pre_evict.
    Ssd,
}

/// A range and where it is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Whole pages; those that it covers in part are moved too.
    pub range: Range,
    /// Where the range is when the move is done.
    pub to: Tier,
}

/// A move that was not made, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What the driver or the library said.
    pub error: Error,
    /// Where the range was to go.
    pub to: Tier,
}

impl core::fmt::Display for Failed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match (self.error, self.to) {
            // An error's own words are those of a discard.
            (Error::NotSupported, Tier::Ssd) => f.write_str(
                "no driver here moves memory to an SSD, so that what is to go there stays in host memory",
            ),
            (Error::NoDevice, Tier::Ssd) => f.write_str(
                "no SSD is attached, so that what is to go there stays in host memory",
            ),
            (Error::NotSupported, _) => f.write_str("neither UVM nor CUDA moves memory here"),
            (error, _) => error.fmt(f),
        }
    }
}

/// What carries out moves.
pub trait Carrier: Send + Sync + 'static {
    /// Moves a range, and returns when that is done.
    fn carry(&self, range: Range, to: Tier) -> Result<()>;

    /// The driver's own queue of moves, if it has one.
    fn later(&self) -> Option<&dyn Later> {
        None
    }
}

impl<S: Sys + 'static> Carrier for Uvm<S> {
    fn carry(&self, range: Range, to: Tier) -> Result<()> {
        match to {
            Tier::Gpu(uuid) => self.prefetch(range, Place::Gpu(uuid)),
            // From a GPU, and from the SSD.
            Tier::Host => self.prefetch(range, Place::Host),
            Tier::Ssd => {
                self.prefetch(range, Place::Host)?;
                self.spill(range)
            }
        }
    }

    fn later(&self) -> Option<&dyn Later> {
        self.has_queue().then_some(self as &dyn Later)
    }
}

impl Carrier for &'static Uvm {
    fn carry(&self, range: Range, to: Tier) -> Result<()> {
        (**self).carry(range, to)
    }

    fn later(&self) -> Option<&dyn Later> {
        (**self).later()
    }
}

/// A submission: [`Moves::submit`] gives one, [`Moves::wait`] takes it. They grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

struct Queued {
    ticket: u64,
    range: Range,
    to: Tier,
}

#[derive(Default)]
struct State {
    /// In the order in which they were submitted.
    queue: VecDeque<Queued>,
    /// The ticket of the move under way.
    under_way: Option<u64>,
    /// What the driver's queue has, by the number that it knows it by, which grows with the
    /// tickets.
    given: BTreeMap<u64, Queued>,
    /// The last of these numbers.
    number: u64,
    /// Somebody waits for the driver on behalf of all.
    is_reaping: bool,
    thread: Option<JoinHandle<()>>,
    last: u64,
    errors: u64,
    first_failed: Option<Failed>,
    stopping: bool,
}

impl State {
    /// All up to this ticket are done.
    fn done(&self) -> u64 {
        let waiting = self.queue.iter().map(|q| q.ticket).chain(self.under_way);
        let given = self.given.values().next().map(|q| q.ticket);
        waiting
            .chain(given)
            .min()
            .map_or(self.last, |first| first - 1)
    }

    fn fail(&mut self, error: Error, to: Tier) {
        self.errors += 1;
        self.first_failed.get_or_insert(Failed { error, to });
    }

    /// The next piece, of the first of all: requests before a kernel are made in their order, as
    /// what leaves makes the room for what comes.
    fn next(&mut self) -> Option<Queued> {
        let whole = self.queue.front_mut()?;
        // Pieces end where blocks do.
        let end = whole.range.base.saturating_add(PIECE) / PIECE * PIECE;
        let length = whole.range.length.min(end.saturating_sub(whole.range.base));
        if length == 0 || length == whole.range.length {
            return self.queue.pop_front();
        }
        let base = whole.range.base;
        whole.range.base += length;
        whole.range.length -= length;
        Some(Queued {
            ticket: whole.ticket,
            range: Range { base, length },
            to: whole.to,
        })
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Held by who gives the driver moves, from before they get their numbers until it has them all.
    /// It is outside the state's.
    sending: Mutex<()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_sending(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue of moves, the driver's or one that a thread works off. Dropped, it finishes the piece
/// that is under way and forgets the rest; the driver moves what it was given.
pub struct Moves {
    shared: Arc<Shared>,
    carrier: Arc<dyn Carrier>,
    /// In the driver, if that has one.
    queue: Option<Queue>,
}

impl Moves {
    /// A queue for what `carrier` can move.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: no thread could be had.
    pub fn new(carrier: impl Carrier) -> Result<Self> {
        let carrier: Arc<dyn Carrier> = Arc::new(carrier);
        let moves = Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: Condvar::new(),
                sending: Mutex::default(),
            }),
            queue: carrier.later().map(|_| Queue::new()),
            carrier,
        };
        if moves.queue.is_none() {
            moves.begin_thread(&mut moves.shared.lock())?;
        }
        Ok(moves)
    }

    /// There is a thread from now on.
    fn begin_thread(&self, state: &mut State) -> Result<()> {
        if state.thread.is_none() {
            let (shared, carrier) = (Arc::clone(&self.shared), Arc::clone(&self.carrier));
            let thread = std::thread::Builder::new()
                .name("uvmrust-moves".into())
                .spawn(move || work(&shared, &*carrier))
                .map_err(|_| Error::NoMemory)?;
            state.thread = Some(thread);
        }
        Ok(())
    }

    /// Queues some moves, which are done when the ticket is. Waits while the driver's queue is
    /// full, and while another thread does: the driver gets them in the order of their tickets.
    pub fn submit(&self, moves: &[Move]) -> Ticket {
        let _sending = self.queue.map(|_| self.shared.lock_sending());
        let mut state = self.shared.lock();
        state.last += 1;
        let ticket = state.last;
        let queued = moves.iter().map(|m| Queued {
            ticket,
            range: m.range,
            to: m.to,
        });
        if let Some(queue) = self.queue {
            let given = state.give(queued);
            drop(state);
            self.send(queue, &given);
        } else {
            state.queue.extend(queued);
        }
        self.shared.changed.notify_all();
        Ticket(ticket)
    }

    /// Forgets what has not begun, but for so many tickets, the last: the others are done then. What
    /// the driver's queue has is moved nevertheless.
    pub fn keep_last(&self, tickets: u64) {
        let mut state = self.shared.lock();
        let over = state.last.saturating_sub(tickets);
        state.queue.retain(|queued| queued.ticket > over);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The last ticket up to which all are done.
    pub fn done(&self) -> Ticket {
        self.reap(Duration::ZERO);
        Ticket(self.shared.lock().done())
    }

    /// Waits until a ticket and all before it are done; `false` if that took longer than
    /// `limit`.
    pub fn wait(&self, ticket: Ticket, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        self.reap(Duration::ZERO);
        let mut state = self.shared.lock();
        while state.done() < ticket.0.min(state.last) {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return false;
            };
            if !state.given.is_empty() && !state.is_reaping {
                state.is_reaping = true;
                drop(state);
                self.reap(left.min(later::LOOK));
                state = self.shared.lock();
                state.is_reaping = false;
                self.shared.changed.notify_all();
                continue;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Moves that failed so far, and why the first did.
    pub fn errors(&self) -> (u64, Option<Error>) {
        let (errors, first) = self.failed();
        (errors, first.map(|first| first.error))
    }

    /// Moves that failed so far, and the first of them.
    pub fn failed(&self) -> (u64, Option<Failed>) {
        self.reap(Duration::ZERO);
        let state = self.shared.lock();
        (state.errors, state.first_failed)
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        self.forget();
        let mut state = self.shared.lock();
        state.stopping = true;
        let thread = state.thread.take();
        drop(state);
        self.shared.changed.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared, carrier: &dyn Carrier) {
    let mut state = shared.lock();
    while !state.stopping {
        let Some(piece) = state.next() else {
            let waited = shared.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.under_way = Some(piece.ticket);
        drop(state);
        let carried = carrier.carry(piece.range, piece.to);
        state = shared.lock();
        state.under_way = None;
        if let Err(error) = carried {
            state.fail(error, piece.to);
        }
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::sync::mpsc::{channel, Receiver, Sender};

    const GPU: Tier = Tier::Gpu([7; 16]);
    const LONG: Duration = Duration::from_secs(60);

    /// Carries when told to.
    struct Slow {
        go: Mutex<Receiver<()>>,
        carried: Mutex<Sender<(u64, u64, Tier)>>,
    }

    impl Carrier for Slow {
        fn carry(&self, range: Range, to: Tier) -> Result<()> {
            let _ = self.go.lock().unwrap().recv();
            let _ = self
                .carried
                .lock()
                .unwrap()
                .send((range.base, range.length, to));
            if range.base == 13 << 20 {
                return Err(Error::NotManaged);
            }
            Ok(())
        }
    }

    fn moves() -> (Moves, Sender<()>, Receiver<(u64, u64, Tier)>) {
        let (go, going) = channel();
        let (tell, told) = channel();
        let slow = Slow {
            go: Mutex::new(going),
            carried: Mutex::new(tell),
        };
        (Moves::new(slow).unwrap(), go, told)
    }

    fn mv(at: u64, mib: u64, to: Tier) -> Move {
        let range = Range {
            base: at << 20,
            length: mib << 20,
        };
        Move { range, to }
    }

    /// What leaves makes the room for what comes behind it.
    #[test]
    fn no_move_overtakes_another() {
        let (moves, go, told) = moves();
        // Under way before the others are there.
        let first = moves.submit(&[mv(0, 2, Tier::Host)]);
        while moves.shared.lock().under_way.is_none() {
            std::thread::yield_now();
        }
        let both = moves.submit(&[mv(64, 40, Tier::Ssd), mv(32, 2, GPU)]);
        let prefetch = moves.submit(&[mv(36, 2, GPU), mv(4, 2, Tier::Host)]);
        assert!(!moves.wait(first, Duration::ZERO));
        (0..7).for_each(|_| go.send(()).unwrap());
        assert!(moves.wait(prefetch, LONG));
        assert_eq!(moves.done(), prefetch);
        assert!(first < both);
        let order: Vec<_> = told
            .try_iter()
            .map(|(at, n, to)| (at >> 20, n >> 20, to))
            .collect();
        assert_eq!(
            order,
            [
                (0, 2, Tier::Host),
                (64, 16, Tier::Ssd),
                (80, 16, Tier::Ssd),
                (96, 8, Tier::Ssd),
                (32, 2, GPU),
                (36, 2, GPU),
                (4, 2, Tier::Host),
            ]
        );
        assert_eq!(moves.errors(), (0, None));
    }

    #[test]
    fn an_error_is_told_and_the_rest_goes_on() {
        let (moves, go, _told) = moves();
        (0..2).for_each(|_| go.send(()).unwrap());
        let ticket = moves.submit(&[mv(13, 2, GPU), mv(4, 2, GPU)]);
        assert!(moves.wait(ticket, LONG));
        assert_eq!(moves.errors(), (1, Some(Error::NotManaged)));
        let first = moves.failed().1.unwrap();
        assert_eq!((first.error, first.to), (Error::NotManaged, GPU));
    }

    #[test]
    fn what_is_said_of_a_move_is_of_no_discard() {
        let said = |error, to| Failed { error, to }.to_string();
        assert!(said(Error::NotSupported, Tier::Ssd).contains("to an SSD"));
        assert!(said(Error::NoDevice, Tier::Ssd).contains("no SSD is attached"));
        assert_eq!(said(Error::NoDevice, GPU), Error::NoDevice.to_string());
        for to in [GPU, Tier::Host, Tier::Ssd] {
            let said = said(Error::NotSupported, to);
            assert!(!said.contains("discard"), "{said}");
        }
    }

    #[test]
    fn nothing_to_move_is_done_at_once() {
        let (moves, _go, _told) = moves();
        let ticket = moves.submit(&[]);
        assert!(moves.wait(ticket, Duration::ZERO));
        assert_eq!(moves.done(), ticket);
    }

    #[test]
    fn dropping_forgets_what_has_not_begun() {
        let (moves, go, told) = moves();
        moves.submit(&[mv(0, 2, GPU), mv(2, 2, GPU)]);
        while moves.shared.lock().under_way.is_none() {
            std::thread::yield_now();
        }
        moves.shared.lock().stopping = true;
        go.send(()).unwrap();
        drop(moves);
        assert_eq!(told.try_iter().count(), 1);
    }
}
