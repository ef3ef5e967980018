// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Trimming, as it is (policy/flash/trim.rs) and step by step. The device takes its time to forget what is in slots, and
//! reads as nothing there from then on.

use super::super::super::cause::Cause;
use super::super::super::table::{Next, Trim};
use super::super::super::trim::{last, turn, Machine};
use super::super::super::{Place, Table};
use super::spill::Real;
use super::world::{Bytes, World};
use super::Lack;
use std::vec;
use std::vec::Vec;

/// Slots at a time.
const MOST: u32 = 2;

/// How often somebody looks for them.
const TRIES: u32 = 400;

impl World {
    /// The device is told to forget slots; what that is called.
    fn discard(&self, trim: &Trim) -> Vec<u64> {
        let slots = trim.first()..trim.first() + trim.slots();
        slots.map(|slot| self.forget(slot)).collect()
    }

    fn forget(&self, slot: u32) -> u64 {
        let slow = !self.chance(4);
        let at = Place { slot, offset: 0 };
        self.now()
            .submit(at, vec![Bytes::default(); 512], None, slow)
    }
}

/// Whoever trims in the background, while others spill as well.
pub(super) async fn trims(w: &World) {
    for _ in 0..TRIES {
        w.until(|_| Some(())).await;
        let next = w.now().table.trim_begin(MOST, 1);
        let Next::Run(trim) = next else { continue };
        let mut trim = Some(trim);
        w.take_turn(Cause::Trim).await;
        let ids = w.discard(trim.as_ref().unwrap());
        if w.lacks(Lack::TrimWaits) {
            w.now().table.trim_end(trim.take().unwrap(), true);
        }
        for id in ids {
            w.until(|s| s.take_if_done(id)).await;
        }
        w.end_turn();
        let trimmed = !w.chance(w.fails.get());
        if let Some(trim) = trim {
            w.now().table.trim_end(trim, trimmed);
        }
    }
    w.now().workers -= 1;
}

impl Machine for Real<'_, '_> {
    fn is_wanted(&mut self) -> bool {
        !self.w.chance(16)
    }

    fn is_idle(&mut self) -> bool {
        !self.w.chance(4)
    }

    fn is_hurried(&mut self) -> bool {
        false
    }

    fn tell(&mut self) {
        self.w.now().progress += 1;
    }

    fn workers(&mut self) -> u32 {
        0
    }

    fn now_us(&mut self) -> u64 {
        0
    }

    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T {
        self.pause();
        f(&mut self.w.now().table)
    }

    fn discard(&mut self, trim: &Trim) -> bool {
        let is_last = self.is_last;
        if !self.take_turn_unless(Cause::Trim, |w| !is_last && !w.now().attached) {
            self.given_up += 1;
            return false;
        }
        for id in self.w.discard(trim) {
            self.transfer(id);
        }
        self.end_turn();
        !self.w.chance(self.w.fails.get())
    }

    fn count(&mut self, bytes: u64) {
        self.trimmed += bytes;
    }
}

impl Real<'_, '_> {
    /// Some turns in the background.
    pub(super) fn trim(&mut self, times: u32) {
        for _ in 0..times {
            (0..self.w.below(64)).for_each(|_| self.pause());
            turn(self);
        }
    }

    /// The device, which is let go, forgets all, unless it refuses.
    pub(super) fn trim_last(&mut self) {
        self.is_last = true;
        last(self);
    }
}
