// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Blocks that are on the SSD (W-ssd): they are asked for, and come again once they have been read.

use super::super::{Machine, Outcome, Pages, Stored};
use super::{Attempt, Brought, Part, Run};
use crate::policy::prefetch::Prefetch;

/// What a block waits for before all of it can be brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ssd {
    Nothing,
    /// Pages of the block are on their way from the SSD.
    Read,
    /// Pages of the block are on the SSD, and so many other blocks are on their way that they were not asked for.
    Turn,
}

impl<M: Machine> Run<'_, M> {
    /// W-room, W-ssd: a block of which not all could be brought comes again, when there may be room or when it has been
    /// read. Returns whether it waits for the SSD, and will be counted then.
    pub(super) fn put_aside(&mut self, prefetch: Prefetch, all: &Brought) -> bool {
        match (all.outcome, all.waits_for) {
            (Outcome::NoRoom, _) if self.worker.lacks(Part::HoldsBack) => false,
            (Outcome::NoRoom, _) => {
                self.machine.tables(|c, _, _| c.hold(prefetch));
                false
            }
            (_, Ssd::Nothing) => false,
            (_, Ssd::Read) => {
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

    /// W-ssd: what an SSD has of those pages of the locked va_block that a prefetch may bring. The first attempt looks; what
    /// happens to the block after that is seen when it comes again.
    pub(super) fn stored(&mut self, pages: &Pages, attempt: &mut Attempt) -> Stored {
        if core::mem::replace(&mut attempt.looked, true) || self.worker.lacks(Part::AsksSsd) {
            return Stored::default();
        }
        let stored = self.machine.stored();
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
        } else if asks && self.machine.fetch(&stored.idle) || comes {
            attempt.so_far.waits_for = Ssd::Read;
        }
    }
}
