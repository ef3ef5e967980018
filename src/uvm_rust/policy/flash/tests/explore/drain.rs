// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Detaching as it is (policy/flash/drain.rs), on the machine of the explorer: between any two of its
//! calls the other threads go on, which want back what is there, discard it, split blocks, and die.

use super::super::super::drain::{drain, Fetched, Left, Machine, Stays, TRIES};
use super::super::super::fetch::{self, fetch};
use super::spill::Real;
use super::{late, threads, Lack};

/// Steps of others until who waits for the end of an I/O looks again without one.
const A_WHILE: u32 = 200;

/// A detaching under way.
#[derive(Default)]
pub(super) struct Draining {
    number: u32,
    naps: u32,
    is_dying: bool,
    /// Something may stay there, as it could not be brought back or was not tried to.
    is_excused: bool,
    /// All of the chosen block has been brought back.
    has_all: bool,
}

impl Real<'_, '_> {
    /// detach_locked(): nobody spills any more, all is brought back, and the file is closed.
    pub(super) fn detach(&mut self) {
        self.w.now().attached = false;
        self.until(|w| (w.now().workers == 0).then_some(()));
        // By now most of the others have ended.
        let more = 4 + self.w.below(8);
        (0..more).for_each(|_| self.others.push(late(self.w)));
        self.draining = Draining {
            number: self.w.now().with_tier(|tier, _| tier.detaching()),
            ..Draining::default()
        };
        let drained = drain(self);
        let is_left = {
            let s = self.w.now();
            s.table.usage().pages > 0 || s.table.is_busy()
        };
        match drained {
            Ok(()) if is_left => self.broken("N-file: a device is let go that is used"),
            Ok(()) => {
                self.trim_last();
                self.w.now().closed = true;
            }
            Err(Stays::Interrupted) if !self.draining.is_dying => {
                self.broken("N-end: a detaching ends though its thread lives");
            }
            Err(_) if self.draining.is_dying || self.draining.is_excused => {}
            Err(_) => self.broken("a device is kept without need"),
        }
    }
}

impl Machine for Real<'_, '_> {
    fn choose(&mut self) -> bool {
        if self.draining.is_dying {
            self.broken("N-end: it goes on though the thread is to die");
        }
        let number = self.draining.number;
        let unseen = self
            .w
            .now()
            .with_tier(|tier, live| tier.unseen(live, number));
        (self.chosen, self.draining.naps) = (unseen, 0);
        unseen.is_some()
    }

    fn release(&mut self) {
        self.let_go();
    }

    fn lock(&mut self) {
        self.take_lock();
    }

    fn unlock(&mut self) {
        let b = self.b();
        let has_all = core::mem::take(&mut self.draining.has_all);
        let keeps = self.w.of(b, |block| block.used && block.state.is_idle());
        if has_all && keeps && !self.w.of(b, |block| block.dead) {
            self.broken("a state that says nothing keeps the device");
        }
        self.let_lock_go();
    }

    fn try_space(&mut self) -> bool {
        self.try_lock_space()
    }

    fn leave_space(&mut self) {
        self.unlock_space();
    }

    fn is_on_device(&mut self) -> bool {
        let b = self.b();
        self.w.of(b, |block| block.used && !block.dead)
    }

    fn open(&mut self) -> bool {
        self.take_context();
        self.draining.is_excused |= !self.open;
        self.open
    }

    fn close(&mut self) {
        self.open = false;
    }

    fn read_again(&mut self) {
        let b = self.b();
        self.w.now().blocks[b].state.read_again();
    }

    fn fetch(&mut self) -> Fetched {
        let b = self.b();
        self.needs_space();
        if !self.open {
            self.broken("S-lock: not open");
        }
        let pages = self.w.of(b, |block| block.state.on_flash());
        match fetch(self, &pages) {
            Ok(fetch::Fetched::All) => {
                self.draining.has_all = true;
                let keeps = self.w.of(b, |block| !block.state.kept().is_empty());
                self.draining.is_excused |= keeps;
                Fetched::All
            }
            Ok(fetch::Fetched::Again) => Fetched::Again,
            _ => {
                self.draining.is_excused = true;
                Fetched::Failed
            }
        }
    }

    fn give_up(&mut self) {
        let b = self.b();
        self.needs_space();
        threads::give_up_block(self.w, b);
    }

    fn drop_idle(&mut self) {
        let b = self.b();
        let block = &mut self.w.now().blocks[b];
        block.used &= !block.state.is_idle();
    }

    fn dying(&mut self) -> bool {
        self.draining.is_dying |= self.w.chance(300);
        self.draining.is_dying
    }

    fn nap(&mut self) {
        if self.locked {
            self.broken("N-lock: a nap with a lock");
        }
        self.draining.naps += 1;
        self.draining.is_excused |= self.draining.naps >= TRIES;
        self.pause();
    }

    fn rest(&mut self) {
        self.pause();
    }

    fn left(&mut self) -> Left {
        let s = self.w.now();
        Left {
            pages: s.table.usage().pages,
            is_busy: s.table.is_busy() && !self.w.lacks(Lack::DetachWaits),
            progress: s.progress,
        }
    }

    fn wait(&mut self, progress: u32) {
        for _ in 0..A_WHILE {
            if self.w.now().progress != progress {
                return;
            }
            self.pause();
        }
    }
}
