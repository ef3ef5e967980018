// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The invariants, for tests.

use super::{Chain, OutOfMemory, Piece, State, Table, TryVec, NONE, SHUNNED, SLOT_PAGES};

impl Table {
    /// Sets the limit of extents.
    pub(in super::super) fn limit_extents(&mut self, most: u32) {
        self.most_extents = most;
    }

    /// Sets how many extents there is memory for.
    pub(in super::super) fn memory_for_extents(&mut self, most: u32) {
        self.memory = most;
    }

    /// Checks the invariants of the slots; panics where one does not hold.
    pub(in super::super) fn check(&self) {
        let mut live = std::vec![0u16; self.slots.len()];
        for e in self.extents.iter().filter(|e| e.pages > 0) {
            live[e.slot as usize] += e.pages;
            assert!(e.offset + e.pages <= self.slots[e.slot as usize].used);
        }
        let mut sum = 0;
        for (i, s) in self.slots.iter().enumerate() {
            assert!(live[i] <= s.live && s.live <= s.used && s.used <= SLOT_PAGES);
            let empty = s.live == 0 && s.pins == 0 && s.state != State::Open;
            let is_free = matches!(s.state, State::Free | State::Trimming);
            assert_eq!(is_free, empty, "slot {i}");
            // Nobody forgets that something may be there.
            assert!(is_free || s.written, "slot {i}");
            assert_eq!(s.state == State::Open, i as u32 == self.open);
            sum += u64::from(s.live);
        }
        assert_eq!(sum, self.pages);
        let pins: u64 = self.slots.iter().map(|s| u64::from(s.pins)).sum();
        assert_eq!(pins, self.pins);
        let free = self.slots.iter().filter(|s| s.state == State::Free).count();
        assert_eq!(free, self.free_slots as usize);
        let count = |of: fn(&&super::Slot) -> bool| self.slots.iter().filter(of).count() as u32;
        assert_eq!(count(|s| s.state == State::Trimming), self.trimming);
        assert_eq!(count(|s| s.written), self.written);
        let to_trim = count(|s| s.written && s.state == State::Free);
        assert_eq!(to_trim, self.to_trim);
        let (mut i, mut last, mut listed) = (self.free, NONE, 0);
        while let Some(s) = self.slots.get(i as usize) {
            assert!(s.state == State::Free && s.prev == last);
            (last, i) = (i, s.next);
            listed += 1;
        }
        assert_eq!((last, listed), (self.last_free, self.free_slots));
        let in_use = self.extents.iter().filter(|e| e.pages > 0).count();
        assert_eq!(in_use, self.extents_in_use as usize);
        for (n, h) in self.holders.iter().enumerate() {
            let its = |e: &&super::Extent| e.pages > 0 && e.tenant as usize == n;
            let count = self.extents.iter().filter(its).count();
            assert_eq!(h.extents, count as u64, "extents of tenant {n}");
        }
        for (b, head) in self.buckets.iter().enumerate() {
            let (mut i, mut last) = (*head, NONE);
            while let Some(s) = self.slots.get(i as usize) {
                assert!(s.state == State::Closed && s.prev == last);
                let its = if s.shunned {
                    SHUNNED
                } else {
                    Self::bucket_of(s.live)
                };
                assert_eq!(its, b);
                last = i;
                i = s.next;
            }
            assert!(b != SHUNNED || self.last_shunned == last);
        }
    }

    /// Whether a slot could be moved into the room of the open one whose moves have not failed.
    pub(in super::super) fn could_free(&self) -> bool {
        let Some(open) = self.slots.get(self.open as usize) else {
            return false;
        };
        let room = SLOT_PAGES - open.used;
        let fits = |s: &super::Slot| {
            let worth = Self::bucket_of(s.live) < super::TOO_FULL;
            s.state == State::Closed && !s.shunned && worth && s.pins == 0 && s.live <= room
        };
        self.slots.iter().any(fits)
    }

    /// Where the extents of `chain` are.
    pub(in super::super) fn pieces(&self, chain: &Chain) -> Result<TryVec<Piece>, OutOfMemory> {
        let mut pieces = TryVec::new();
        let mut i = chain.0;
        while let Some(e) = self.extents.get(i as usize) {
            pieces.push(Piece {
                pages: e.region(),
                place: e.place(),
                stamp: e.stamp,
            })?;
            i = e.next;
        }
        Ok(pieces)
    }

    /// The slots in a line, for who has to see why a test failed.
    pub(in super::super) fn describe(&self) -> std::string::String {
        use std::fmt::Write;
        let mut out = std::format!("free {}, emptying {}:", self.free_slots, self.emptying);
        for (i, s) in self.slots.iter().enumerate() {
            let state = match s.state {
                State::Free => "free",
                State::Trimming => "trimmed",
                State::Open => "open",
                State::Closed => "closed",
            };
            let _ = write!(
                out,
                " {i} {state} live {} used {} pins {};",
                s.live, s.used, s.pins
            );
        }
        out
    }
}
