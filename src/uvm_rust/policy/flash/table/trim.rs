// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Trimming: slots that nobody needs any more, and that the device is told to forget.
//!
//! Unless an SSD is told otherwise, it takes whatever was ever written for needed, and copies it when it gathers free
//! space of its own. Runs of neighbouring free slots are taken out of the free list, so that nobody writes to them until
//! the device has forgotten them. Then they go to the end of the free list.

use super::{Part, State, Table, NONE, SLOT_BYTES, SPARE};
use core::ops::Range;

/// Slots that one call looks at, at most.
const LOOKS: u32 = 1024;

/// Neighbouring slots that the device is told to forget, and that nobody else has meanwhile. Whoever has this gives
/// it back to [`Table::trim_end`] when the device has done so.
#[derive(Debug)]
#[must_use]
pub struct Trim {
    slots: Range<u32>,
}

impl Trim {
    /// The first of its slots.
    pub fn first(&self) -> u32 {
        self.slots.start
    }

    /// How many there are.
    pub fn slots(&self) -> u32 {
        self.slots.end - self.slots.start
    }

    /// How many bytes that is.
    pub fn bytes(&self) -> u64 {
        u64::from(self.slots()) * SLOT_BYTES
    }
}

/// What there is to be trimmed.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// The device is to forget these.
    Run(Trim),
    /// There is something, which a later call finds.
    More,
    /// Nothing may be trimmed now.
    Nothing,
}

impl Table {
    /// Whether something may be on the device that nobody needs, now or later, and that is not being trimmed.
    pub fn has_written(&self) -> bool {
        self.written > 0
    }

    /// Takes up to `most` neighbouring slots that were written to since they were trimmed last, and are free. Of the
    /// free ones it leaves `reserve`, and half of what is more.
    pub fn trim_begin(&mut self, most: u32, reserve: u32) -> Next {
        let spared = self.free_slots.saturating_sub(reserve.max(SPARE));
        let most = most.min(spared.div_ceil(2));
        if most == 0 {
            return Next::Nothing;
        }
        self.close_idle();
        if self.to_trim == 0 {
            return Next::Nothing;
        }
        for _ in 0..LOOKS {
            let first = self.trim_at;
            let outer = first.saturating_add(most).min(self.config.slots);
            let run = (first..outer).take_while(|slot| self.may_trim(*slot));
            let run = first..first + run.count() as u32;
            let next = run.end.max(first + 1);
            self.trim_at = if next < self.config.slots { next } else { 0 };
            if !run.is_empty() {
                run.clone().for_each(|slot| self.begin_trimming(slot));
                return Next::Run(Trim { slots: run });
            }
        }
        Next::More
    }

    /// The device has forgotten what was in the slots, if they are `trimmed`. They may be handed out again.
    pub fn trim_end(&mut self, trim: Trim, trimmed: bool) {
        for slot in trim.slots {
            let of = self.slots.get_mut(slot as usize);
            let Some(s) = of.filter(|s| s.state == State::Trimming) else {
                continue;
            };
            if !trimmed {
                s.written = true;
                self.written += 1;
            }
            self.trimming -= 1;
            self.enter_free(slot);
        }
    }

    fn may_trim(&self, slot: u32) -> bool {
        let of = self.slots.get(slot as usize);
        of.is_some_and(|s| s.state == State::Free && s.written)
    }

    fn begin_trimming(&mut self, slot: u32) {
        self.leave_free(slot);
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.written = false;
            s.state = State::Trimming;
        }
        self.written -= 1;
        if self.lacks(Part::TrimTakesOut) {
            return self.enter_free(slot);
        }
        self.trimming += 1;
    }

    /// The open slot is free if nothing is in it.
    fn close_idle(&mut self) {
        let open = self.slots.get(self.open as usize);
        if open.is_some_and(|s| s.live == 0 && s.pins == 0) {
            self.close_open();
            debug_assert!(self.open == NONE);
        }
    }
}
