// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Blocks that are on the SSD (W-ssd): they are asked for, and come again once they have been read.

use super::super::{Found, Machine, Outcome, Pages, Stored, To};
use super::{Attempt, Brought, Part, Run, Stop, BLOCK_SIZE};
use crate::policy::prefetch::{FromSsd, Prefetch};

/// What a block waits for before all of it can be brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ssd {
    Nothing,
    /// Others read pages of the block.
    Read,
    /// Pages of the block were asked for.
    Asked,
    /// Pages of the block are on the SSD, and so many other blocks are on their way that they were not asked for.
    Turn,
}

impl Brought {
    /// The prefetch that this became of: pages of its block may be on their way from now on.
    fn of(&self, prefetch: Prefetch) -> Prefetch {
        match self.waits_for {
            Ssd::Read => prefetch.coming(),
            Ssd::Asked => prefetch.asked(),
            _ => prefetch,
        }
    }
}

impl<M: Machine> Run<'_, M> {
    /// A block that the worker had to leave comes again. What was asked for of it stays on its way.
    pub(super) fn put_back(&mut self, prefetch: Prefetch, all: &Brought) {
        if !self.worker.lacks(Part::SsdKept) || prefetch.ssd == FromSsd::Not {
            let prefetch = all.of(prefetch);
            self.machine.tables(|c, _, _| c.put_back(prefetch));
        }
    }

    /// W-ssd: a block that is not to be brought any more keeps its place among those that are on their way, as long as
    /// some of it is.
    pub(super) fn look_whether_over(&mut self, prefetch: Prefetch) -> Result<(), Stop> {
        let comes = self.comes(prefetch);
        match comes {
            Ok(true) if !self.worker.lacks(Part::SsdOver) => {
                self.machine.tables(|c, _, _| c.comes(prefetch));
            }
            Ok(_) => {}
            Err(Stop) => self.put_back(prefetch, &Brought::only(Outcome::Unfit)),
        }
        comes.map(|_| ())
    }

    /// Whether somebody reads pages of a block, or is to.
    fn comes(&mut self, prefetch: Prefetch) -> Result<bool, Stop> {
        self.ready()?;
        let mut at = prefetch.block.address();
        let last = at + (BLOCK_SIZE - 1);
        while at <= last {
            let Some(found) = self.machine.next_block(at, last) else {
                break;
            };
            if self.is_on_its_way(&found) {
                return Ok(true);
            }
            // It is further on, or the machine breaks its contract.
            at = found.next.max(at + 1);
        }
        Ok(false)
    }

    /// Whether somebody reads pages of the va_block that was chosen, or is to.
    pub(super) fn is_on_its_way(&mut self, found: &Found) -> bool {
        if found.hindrances.no_block {
            return false;
        }
        self.machine.lock(To::Gpu);
        let comes = !self.look_at_ssd().coming.is_empty();
        self.machine.unlock();
        comes
    }

    /// W-room, W-ssd: a block of which not all could be brought comes again, when there may be room or when it has been
    /// read. Returns whether it waits for the SSD, and will be counted then.
    pub(super) fn put_aside(&mut self, prefetch: Prefetch, all: &Brought) -> bool {
        let prefetch = all.of(prefetch);
        match (all.outcome, all.waits_for) {
            (Outcome::NoRoom, _) if self.worker.lacks(Part::HoldsBack) => false,
            (Outcome::NoRoom, _) => {
                self.machine.tables(|c, _, _| c.hold(prefetch));
                false
            }
            (_, Ssd::Nothing) => {
                // Pages of it are on their way that are not to be brought any more.
                if all.comes && prefetch.ssd != FromSsd::Not && !self.worker.lacks(Part::SsdOver) {
                    self.machine.tables(|c, _, _| c.comes(prefetch.over()));
                }
                false
            }
            (_, Ssd::Read | Ssd::Asked) => {
                if !self.worker.lacks(Part::SsdComes) {
                    self.machine.tables(|c, _, _| c.comes(prefetch));
                }
                true
            }
            (_, Ssd::Turn) => {
                self.machine.tables(|c, _, _| c.fall_behind(prefetch));
                true
            }
        }
    }

    /// W-ssd: what an SSD has of the locked va_block. The worker hears of the end of each read that it may wait for.
    fn look_at_ssd(&mut self) -> Stored {
        let stored = self.machine.stored();
        if !stored.coming.is_empty() && !self.worker.lacks(Part::SsdTold) {
            self.machine.tell_of_reads();
        }
        stored
    }

    /// W-ssd: what an SSD has of those pages of the locked va_block that a prefetch may bring. The first attempt looks; what
    /// happens to the block after that is seen when it comes again.
    pub(super) fn stored(&mut self, pages: &Pages, attempt: &mut Attempt) -> Stored {
        if core::mem::replace(&mut attempt.looked, true) || self.worker.lacks(Part::AsksSsd) {
            return Stored::default();
        }
        let stored = self.look_at_ssd();
        attempt.so_far.comes = !stored.coming.is_empty();
        let mut idle = stored.idle;
        if !self.worker.lacks(Part::SsdFits) {
            idle = self.fit(idle, pages);
        }
        Stored {
            idle,
            coming: self.fit(stored.coming, pages),
            ..stored
        }
    }

    /// W-ssd: asks for those pages of the locked va_block that may be asked for, if it `asks`, and notes what the block
    /// waits for.
    pub(super) fn ask(&mut self, stored: &Stored, asks: bool, attempt: &mut Attempt) {
        let comes = !stored.coming.is_empty();
        if (asks || comes) && !self.may_fetch {
            attempt.so_far.waits_for = Ssd::Turn;
        } else if asks && self.machine.fetch(&stored.idle) {
            attempt.so_far.waits_for = Ssd::Asked;
        } else if comes {
            attempt.so_far.waits_for = Ssd::Read;
        }
    }
}
