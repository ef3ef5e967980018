// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Slots, and space in them.

use super::{Error, Part, Place, State, Table, NONE, SHUNNED, SLOT_PAGES};
use crate::mem::TryVec;

impl Table {
    /// Appends up to `pages` pages to the open slot, or to a free one of which
    /// `spare` are left.
    ///
    /// Where fewer than `spare` are free, relocation has taken the last one, and needs all of
    /// its room: what it has begun to empty would otherwise fit nowhere.
    pub(super) fn append(&mut self, pages: u16, spare: u32) -> Result<(Place, u16), Error> {
        if pages < SLOT_PAGES && (self.free_slots >= spare || self.lacks(Part::Spare)) {
            if let Some(s) = self.slots.get_mut(self.open as usize) {
                let got = pages.min(SLOT_PAGES - s.used);
                if got > 0 {
                    return Ok((self.take_pages(self.open, got), got));
                }
            }
        }
        if self.free_slots <= spare {
            return Err(Error::Full);
        }
        let slot = self.take_free()?;
        // A whole slot is closed at once, and the open one stays.
        if pages < SLOT_PAGES {
            self.close_open();
            self.open = slot;
        }
        let place = self.take_pages(slot, pages);
        if pages == SLOT_PAGES {
            self.close(slot);
        }
        Ok((place, pages))
    }

    /// The same in one piece and with no slot spared.
    pub(super) fn append_whole(&mut self, pages: u16) -> Option<(Place, u16)> {
        let room = |t: &Self| {
            t.slots
                .get(t.open as usize)
                .map_or(0, |s| SLOT_PAGES - s.used)
        };
        if room(self) < pages {
            if self.free_slots == 0 {
                return None;
            }
            self.close_open();
        }
        self.append(pages, 0).ok()
    }

    fn take_pages(&mut self, slot: u32, pages: u16) -> Place {
        let mut offset = 0;
        if let Some(s) = self.slots.get_mut(slot as usize) {
            offset = s.used;
            s.used += pages;
            s.live += pages;
        }
        self.pages += u64::from(pages);
        Place { slot, offset }
    }

    fn take_free(&mut self) -> Result<u32, Error> {
        let slot = self.free;
        let sums = self.config.checksums;
        let s = self.slots.get_mut(slot as usize).ok_or(Error::Full)?;
        if sums {
            s.sums = TryVec::filled(SLOT_PAGES as usize, 0)?;
        }
        self.leave_free(slot);
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.state = State::Open;
            if !core::mem::replace(&mut s.written, true) {
                self.written += 1;
            }
        }
        Ok(slot)
    }

    /// A slot is free, and the last one to be handed out.
    pub(super) fn enter_free(&mut self, slot: u32) {
        let last = core::mem::replace(&mut self.last_free, slot);
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.state = State::Free;
            s.prev = last;
            s.next = NONE;
            self.to_trim += u32::from(s.written);
            self.free_slots += 1;
        }
        match self.slots.get_mut(last as usize) {
            Some(s) => s.next = slot,
            None => self.free = slot,
        }
    }

    /// A free slot is something else from now on.
    pub(super) fn leave_free(&mut self, slot: u32) {
        let Some((prev, next)) = self.slots.get_mut(slot as usize).map(|s| {
            self.to_trim -= u32::from(s.written);
            self.free_slots -= 1;
            let next = core::mem::replace(&mut s.next, NONE);
            (core::mem::replace(&mut s.prev, NONE), next)
        }) else {
            return;
        };
        match self.slots.get_mut(prev as usize) {
            Some(s) => s.next = next,
            None => self.free = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(s) => s.prev = prev,
            None => self.last_free = prev,
        }
    }

    pub(super) fn close_open(&mut self) {
        let slot = core::mem::replace(&mut self.open, NONE);
        self.close(slot);
    }

    fn close(&mut self, slot: u32) {
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.state = State::Closed;
            self.enter_bucket(slot);
            self.free_if_empty(slot);
        }
    }

    /// Pages of `slot` are no longer in use.
    pub(super) fn give_back(&mut self, slot: u32, pages: u16) {
        let Some(s) = self.slots.get(slot as usize) else {
            return;
        };
        let closed = s.state == State::Closed;
        if closed {
            self.leave_bucket(slot);
        }
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.live -= pages;
            // It may have been these that could not be moved.
            s.shunned = false;
        }
        self.pages -= u64::from(pages);
        if closed {
            self.enter_bucket(slot);
        }
        self.free_if_empty(slot);
    }

    /// Takes back the last pages that were appended, at `place`, where nothing came after
    /// them: their room is there for others. They are live no more.
    pub(super) fn unappend(&mut self, place: Place, pages: u16) {
        if let Some(s) = self.slots.get_mut(place.slot as usize) {
            if s.state == State::Open && s.used == place.offset + pages {
                s.used = place.offset;
            }
        }
    }

    pub(super) fn unpin_slot(&mut self, slot: u32) {
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.pins -= 1;
            self.pins -= 1;
        }
        self.free_if_empty(slot);
    }

    fn free_if_empty(&mut self, slot: u32) {
        let Some(s) = self.slots.get(slot as usize) else {
            return;
        };
        if s.live > 0 || s.pins > 0 {
            return;
        }
        match s.state {
            State::Free | State::Trimming => {}
            State::Open => {
                if let Some(s) = self.slots.get_mut(slot as usize) {
                    s.used = 0;
                }
            }
            State::Closed => {
                self.leave_bucket(slot);
                if let Some(s) = self.slots.get_mut(slot as usize) {
                    s.shunned = false;
                    s.used = 0;
                    s.sums = TryVec::new();
                }
                self.enter_free(slot);
            }
        }
    }

    pub(super) fn bucket_of(live: u16) -> usize {
        (live / (SLOT_PAGES / 8)) as usize
    }

    /// A move out of a slot has failed: all others come before it now.
    pub(super) fn shun(&mut self, slot: u32) {
        if self.slots.get(slot as usize).map(|s| s.state) != Some(State::Closed) {
            return;
        }
        self.leave_bucket(slot);
        let last = core::mem::replace(&mut self.last_shunned, slot);
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.shunned = true;
            s.prev = last;
            s.next = NONE;
        }
        match self.slots.get_mut(last as usize) {
            Some(s) => s.next = slot,
            None => {
                if let Some(head) = self.buckets.get_mut(SHUNNED) {
                    *head = slot;
                }
            }
        }
    }

    fn enter_bucket(&mut self, slot: u32) {
        let Some(live) = self.slots.get(slot as usize).map(|s| s.live) else {
            return;
        };
        let Some(head) = self.buckets.get_mut(Self::bucket_of(live)) else {
            return;
        };
        let next = core::mem::replace(head, slot);
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.prev = NONE;
            s.next = next;
        }
        if let Some(s) = self.slots.get_mut(next as usize) {
            s.prev = slot;
        }
    }

    fn leave_bucket(&mut self, slot: u32) {
        let Some((prev, next, bucket)) = self.slots.get(slot as usize).map(|s| {
            let bucket = if s.shunned {
                SHUNNED
            } else {
                Self::bucket_of(s.live)
            };
            (s.prev, s.next, bucket)
        }) else {
            return;
        };
        if self.last_shunned == slot {
            self.last_shunned = prev;
        }
        match self.slots.get_mut(prev as usize) {
            Some(p) => p.next = next,
            None => {
                if let Some(head) = self.buckets.get_mut(bucket) {
                    *head = next;
                }
            }
        }
        if let Some(n) = self.slots.get_mut(next as usize) {
            n.prev = prev;
        }
    }
}
