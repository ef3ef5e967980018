// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The reading of what was asked for as it is (policy/flash/asked.rs), on the machine of the explorer: a thread of
//! the queue of fetchers like the others.

use super::super::super::asked::{serve, Machine};
use super::super::super::fetch::{fetch, Fetched};
use super::super::super::pool::Who;
use super::super::super::tier::reads_for;
use super::super::super::wants::Asks;
use super::fetch::Whom;
use super::spill::{Real, FOR_EVER};
use super::Lack;

/// Turns of others until who waits for something to do looks whether there will be any.
const A_WHILE: u32 = 64;

/// A block that is being read.
#[derive(Default)]
pub(super) struct Asked {
    /// The block lives, and something is known of it.
    known: bool,
    told: bool,
    /// There was no room, and nobody who makes some has been told.
    wants_room: bool,
    /// Which of the fetchers reads it, and for whom it has tried to.
    fetcher: u32,
    whom: Whom,
}

impl Real<'_, '_> {
    /// Serves as a fetcher of one queue, as long as there are GPU faults and calls. Returns how many blocks it read.
    pub(super) fn serve_all(&mut self, queue: Asks) -> u64 {
        let mut served = 0;
        for _ in 0..FOR_EVER {
            let next = {
                let s = &mut *self.w.now();
                match s.next_of(queue) {
                    None if s.askers == 0 => return served,
                    next => next,
                }
            };
            let Some((owner, fetcher)) = next else {
                if self.w.now().wrong.is_some() {
                    return served;
                }
                (0..A_WHILE).for_each(|_| self.pause());
                continue;
            };
            self.w.now().fetching.push((owner, fetcher));
            let asking = self
                .w
                .now()
                .with_tier(|tier, live| tier.next_asking(live, owner, fetcher));
            if asking.is_some() {
                self.chosen = asking;
                self.asked = Asked {
                    fetcher,
                    ..Asked::default()
                };
                serve(self);
                if self.asked.known && !self.asked.told {
                    self.broken("A-again: who asks now is not heard");
                }
                if self.asked.wants_room {
                    self.broken("who makes room is not told that there is none");
                }
                self.give_set();
                self.end_turn();
                self.let_go();
                served += 1;
            }
            self.pause();
            let s = &mut *self.w.now();
            s.fetching.retain(|at_work| *at_work != (owner, fetcher));
            if s.with_tier(|tier, live| tier.fetched(live, owner, fetcher)) {
                s.queued.push((owner, fetcher));
            }
        }
        self.broken("GPU faults have no end");
        served
    }
}

impl Machine for Real<'_, '_> {
    fn enter(&mut self) -> bool {
        !self.w.chance(32)
    }

    fn leave(&mut self) {
        if self.locked || self.in_space.is_some() {
            self.broken("A-lock: a suspend goes on with a lock held");
        }
    }

    fn lock(&mut self) {
        self.take_lock();
    }

    fn unlock(&mut self) {
        self.let_lock_go();
    }

    fn is_known(&mut self) -> bool {
        let b = self.b();
        self.asked.known = self.w.of(b, |block| !block.dead);
        self.asked.known
    }

    fn try_space(&mut self) -> bool {
        let lacks = self.w.lacks(Lack::FetchOnlyTries);
        self.lock_space(lacks)
    }

    fn leave_space(&mut self) {
        if !self.locked {
            self.broken("S-end: the block's lock is let go first");
        }
        self.unlock_space();
    }

    fn lacks_room(&mut self) -> bool {
        self.b();
        self.needs_space();
        self.asked.wants_room = self.w.chance(16);
        self.asked.wants_room
    }

    fn kick(&mut self) {
        self.asked.wants_room = false;
    }

    fn open(&mut self) -> bool {
        self.take_context();
        self.open
    }

    fn close(&mut self) {
        self.open = false;
    }

    fn fetch(&mut self) -> Option<Fetched> {
        let b = self.b();
        self.needs_space();
        if !self.open {
            self.broken("A-lock: not open");
        }
        let wants = self.w.of(b, |block| block.wants);
        let whom = match wants.read_by(reads_for(self.asked.fetcher)) {
            Some(Asks::Fault) => Whom::Fetcher,
            Some(Asks::Call | Asks::Prefetch) => Whom::Reader,
            None => return Some(Fetched::All),
        };
        // What was waited for for somebody else is of no use.
        if self.has_set_for().is_some_and(|who| who != whom.who()) {
            self.give_set();
            self.end_turn();
        }
        (self.fetching.whom, self.asked.whom) = (whom, whom);
        let fetched = fetch(self, &wants.asked()).ok();
        self.give_set();
        fetched
    }

    fn tried(&mut self, failed: bool) {
        let b = self.b();
        self.asked.told = true;
        if !self.w.lacks(Lack::FetchGivesUp) || self.in_space.is_some() {
            let reader = reads_for(self.asked.fetcher);
            self.w.now().blocks[b].tried(reader, failed);
            self.w.fault_gives_up(b);
        }
    }

    fn take_turn(&mut self) {
        if self.in_space.is_some() || self.open {
            self.broken("A-turn: a turn is waited for with a lock");
        }
        let who = self.asked.whom.who();
        if who == Who::Others {
            self.take_turn(reads_for(self.asked.fetcher).cause());
        }
        if !self.w.lacks(Lack::ReaderTakesSet) {
            self.take_set(who);
        }
    }
}
