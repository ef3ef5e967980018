// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How long the loop services the faults of one VA space before it turns to the others' (F-turn).
//!
//! One thread services the faults of all processes. The faults of a process that goes through more memory than the GPU
//! has can fill a batch, each with an eviction and a migration of 2 MiB. So VA spaces take turns by *surplus round
//! robin* (H. Adiseshu, G. Parulkar, G. Varghese, "A Reliable and Scalable Striping Protocol", SIGCOMM 1996). It is
//! deficit round robin (M. Shreedhar, G. Varghese, "Efficient Fair Queueing Using Deficit Round Robin",
//! SIGCOMM 1995) for work whose cost is known only when it is done:
//!
//! - A batch is a round. Each VA space with faults in it has a *turn* of so many microseconds, the quantum.
//! - A turn ends when its time is used up, but not before one va_block was serviced. The rest of the VA space's faults
//!   is left for the replay. Faults that others raised meanwhile are in the next batch.
//! - The next turn goes on where the last one ended, and comes to the lower addresses after the higher ones. Otherwise
//!   a fault would never be serviced while its process has others at lower addresses.
//! - What a turn takes beyond its time, the next turns of that VA space lack. A turn of which nothing is left is
//!   passed. If all VA spaces of a batch would be passed, the rounds until one of them has a turn take no time.
//! - Those who used up their last turn come last in a round. So a VA space that asks for little does not wait behind
//!   them.
//!
//! Copies and mappings go on while the thread looks at the next va_block. They are waited for after each quarter of a
//! turn, and where a turn ends, so that they count for the VA space that they are for. What waiting for locks takes
//! does not count here: [`Patience`](super::Patience) limits it.
//!
//! A VA space that is alone ([`Alone`]) takes no turns: its batches are serviced whole, and the clock is not read.
//!
//! # Invariants
//!
//! - **T-turn**: a turn ends with the first va_block at whose end the time is used up.
//! - **T-progress**: a VA space with faults in each batch has a turn after at most [`MOST_ROUNDS`] batches without one.
//! - **T-place**: the place at which the turns of a VA space begin goes up through its addresses, and then to the lowest
//!   one again. So a fault that is in each batch is serviced after one turn at most for each va_block that comes before
//!   it in this order. The place is forgotten with the account: after a turn that did not use up its time, after a batch
//!   without faults of the VA space, and where [`ACCOUNTS`] others are known already.
//! - **T-fair**: in any sequence of batches that each have faults of two VA spaces left over, both are serviced for the
//!   same time, up to twice the longest excess of a turn. What an excess has beyond [`MOST_ROUNDS`] quanta is forgiven,
//!   and so is all of it where [`ACCOUNTS`] others are known already.
//!
//! So a fault waits for the rest of the batch in which it comes, and for those turns of its own batch that are before
//! its VA space's. A turn lasts a quantum and its last va_block at most, with the copies of a quarter.

use super::alone::Alone;
use super::service::{Call, Entering, Machine, Visit};
use super::Record;
use crate::mem::{OutOfMemory, TryVec};
use core::ops::Range;

/// How many VA spaces that used up their turn are known.
pub const ACCOUNTS: usize = 64;

/// How many rounds in a row a VA space is passed at most. A machine that stood still during a turn must not make a
/// process wait for hours.
pub const MOST_ROUNDS: u32 = 32;

/// Copies are waited for after this part of a turn.
const PARTS: i64 = 4;

/// A VA space that used up its turn.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    space: u64,
    /// How many microseconds it has in this round; 0 or less when they are used up.
    left_us: i64,
    /// The address of the first fault that its last turn left out, at which the next one begins; 0 for none.
    next: u64,
}

/// The turn that runs, of a VA space.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    left_us: i64,
    /// From when on the time runs.
    since_us: u64,
    /// What of it has run since copies were last waited for.
    unwaited_us: i64,
    /// Whether anything was serviced since then.
    has_copies: bool,
    /// Whether nothing more of the VA space is serviced in the batch.
    is_over: bool,
    /// The place behind the last va_block, where the time was used up.
    stopped: Option<usize>,
}

/// The turns of one loop.
pub(super) struct Turns {
    quantum_us: i64,
    alone: Alone,
    /// Whether the VA space that was met last was alone when that was last asked. If not, VA spaces take turns in the
    /// running batch.
    is_alone: bool,
    /// Has memory for [`ACCOUNTS`]; the first `known` have been there since the round began.
    accounts: TryVec<Account>,
    known: usize,
    turn: Turn,
}

impl Turns {
    /// Makes a book without accounts. A turn has `quantum_us` microseconds; 0: nobody takes turns.
    pub(super) fn new(quantum_us: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            quantum_us: quantum_us.into(),
            alone: Alone::default(),
            is_alone: true,
            accounts: TryVec::with_capacity(ACCOUNTS)?,
            known: 0,
            turn: Turn::default(),
        })
    }

    /// Notes that a batch begins, with `first` and `last` as the first and last VA space of its faults. Returns whether
    /// [`Turns::begin`] is to say if they take turns.
    #[inline(always)]
    pub(super) fn meets_all(&mut self, first: u64, last: u64) -> bool {
        self.alone.meets_all(first, last);
        self.quantum_us > 0 && (!self.is_alone || self.alone.has_met_another())
    }

    /// Begins a round for the VA spaces of an ordered batch. Returns whether they take turns.
    #[cold]
    pub(super) fn begin(&mut self, records: &[Record], now_us: u64) -> bool {
        self.is_alone = self.alone.is_alone(now_us);
        self.forget_done();
        self.known = self.accounts.len();
        let rounds = self.rounds_until_a_turn(records);
        for account in self.accounts.iter_mut() {
            let more = self.quantum_us.saturating_mul(rounds);
            account.left_us = account.left_us.saturating_add(more);
        }
        self.is_shared()
    }

    /// Forgets those that did not use up their last turn, or have had none, and all of them when somebody is alone.
    fn forget_done(&mut self) {
        let mut at = 0;
        while let Some(account) = self.accounts.get(at) {
            if account.left_us > 0 || self.is_alone {
                self.accounts.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// After how many rounds one VA space of the batch has a turn: one, unless all have used up more.
    fn rounds_until_a_turn(&self, records: &[Record]) -> i64 {
        let (mut best, mut last) = (i64::MIN, None);
        for record in records {
            if last.replace(record.who) != Some(record.who) {
                best = best.max(self.left_of(record.who).unwrap_or(0));
            }
        }
        best.saturating_neg().max(0) / self.quantum_us.max(1) + 1
    }

    /// What a VA space that used up its last turn has in this round; `None` for any other.
    fn left_of(&self, space: u64) -> Option<i64> {
        self.account_of(space).map(|account| account.left_us)
    }

    /// The account of a VA space that used up its last turn.
    fn account_of(&self, space: u64) -> Option<&Account> {
        let mut accounts = self.accounts.iter().take(self.known);
        accounts.find(|account| account.space == space)
    }

    /// Whether VA spaces take turns in the running batch.
    #[inline(always)]
    pub(super) fn is_shared(&self) -> bool {
        !self.is_alone
    }

    /// Begins the turn of a VA space, which has so much time. It runs from [`Turns::resume`] on.
    fn start(&mut self, left_us: i64) {
        self.turn = Turn {
            left_us,
            ..Turn::default()
        };
    }

    /// The time of the turn runs from now on.
    pub(super) fn resume(&mut self, now_us: u64) {
        self.turn.since_us = now_us;
    }

    /// Takes what has run until now from the turn.
    pub(super) fn pause(&mut self, now_us: u64) {
        let ran = now_us.saturating_sub(self.turn.since_us);
        let ran = i64::try_from(ran).unwrap_or(i64::MAX);
        self.turn.left_us = self.turn.left_us.saturating_sub(ran);
        self.turn.unwaited_us = self.turn.unwaited_us.saturating_add(ran);
        self.turn.since_us = now_us;
    }

    /// Notes that a va_block was serviced until now. Returns whether its copies are to be waited for.
    fn serviced(&mut self, now_us: u64) -> bool {
        self.pause(now_us);
        self.turn.has_copies = true;
        self.turn.left_us > 0 && self.turn.unwaited_us >= self.quantum_us / PARTS
    }

    /// Notes that copies were waited for until now.
    fn waited(&mut self, now_us: u64) {
        self.pause(now_us);
        (self.turn.unwaited_us, self.turn.has_copies) = (0, false);
    }

    /// Notes that nothing more of the VA space is serviced in the batch: others have its locks, or its faults were
    /// cancelled.
    pub(super) fn stop(&mut self) {
        self.turn.is_over = true;
    }

    /// Notes that the time was used up by the va_block before place `at` of the order.
    pub(super) fn stop_at(&mut self, at: usize) {
        (self.turn.is_over, self.turn.stopped) = (true, Some(at));
    }

    /// Ends the turn of a VA space. The first fault that it left out is at address `next`; 0 for none.
    fn end(&mut self, space: u64, next: u64) {
        let most = self.quantum_us.saturating_mul(MOST_ROUNDS.into());
        let left_us = self.turn.left_us.max(-most);
        let new = Account {
            space,
            left_us,
            next,
        };
        let known = self.accounts.iter_mut().take(self.known);
        let mut its = known.filter(|account| account.space == space);
        if let Some(account) = its.next() {
            *account = new;
        } else if left_us <= 0 && self.accounts.len() < ACCOUNTS {
            // There is memory for it.
            let _ = self.accounts.push(new);
        }
    }
}

impl<M: Machine> Call<'_, M> {
    /// Notes the VA spaces of the batch. Returns whether they take turns.
    #[inline(always)]
    pub(super) fn takes_turns(&mut self) -> bool {
        let records = self.batch.records();
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return false;
        };
        self.turns.meets_all(first.who, last.who)
            && self.turns.begin(records, self.machine.now_us())
    }

    /// Services the batch by turns.
    #[cold]
    pub(super) fn service_in_turns(&mut self, visit: &mut Visit) -> Result<(), M::Error> {
        // Who used up the last turn comes last.
        for is_last in [false, true] {
            let mut at = 0;
            while let Some(space) = self.whose(at) {
                let end = at + self.faults_from(at, space);
                let left = self.turns.left_of(space);
                if left.is_some() == is_last {
                    let left = left.unwrap_or(self.turns.quantum_us);
                    self.take_turn(space, left, at..end, visit)?;
                }
                at = end;
            }
        }
        Ok(())
    }

    /// Services the faults of a VA space for so many microseconds. `faults` are their places in the order.
    fn take_turn(
        &mut self,
        space: u64,
        left_us: i64,
        faults: Range<usize>,
        visit: &mut Visit,
    ) -> Result<(), M::Error> {
        if left_us <= 0 {
            self.left = true;
            return Ok(());
        }
        let (first, end) = (faults.start, faults.end);
        let from = self.goes_on_from(space, faults);
        self.turns.start(left_us);
        self.service_those(from..end, Entering::Service, visit)?;
        let mut rest = self.turns.turn.stopped;
        if rest == Some(end) {
            rest = (first < from).then_some(first);
        } else if first < from && !self.turns.turn.is_over {
            self.service_those(first..from, Entering::Again, visit)?;
            // The last va_block may have some of the faults that were serviced first.
            rest = self.turns.turn.stopped.filter(|at| *at < from);
        }
        if self.turns.turn.has_copies {
            self.turns.resume(self.machine.now_us());
            self.machine.wait_service()?;
            self.turns.waited(self.machine.now_us());
        }
        self.left |= rest.is_some();
        let next = rest.and_then(|at| self.batch.records().get(at));
        self.turns
            .end(space, next.map_or(0, |record| record.address));
        Ok(())
    }

    /// The place of the fault with which a VA space's turn begins: the first one that its last turn left out, or one
    /// behind that.
    fn goes_on_from(&self, space: u64, faults: Range<usize>) -> usize {
        let next = self.turns.account_of(space).map_or(0, |its| its.next);
        let records = self.batch.records().get(faults.clone()).unwrap_or(&[]);
        match records.partition_point(|record| record.address < next) {
            before if before < records.len() => faults.start + before,
            _ => faults.start,
        }
    }

    /// Notes that a va_block was serviced. Returns whether the VA space's turn is over.
    #[cold]
    pub(super) fn ends_turn(&mut self) -> Result<bool, M::Error> {
        if self.turns.serviced(self.machine.now_us()) {
            self.machine.wait_service()?;
            self.turns.waited(self.machine.now_us());
        }
        Ok(self.turns.turn.left_us <= 0)
    }
}
