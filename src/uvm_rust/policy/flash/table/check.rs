// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The invariants, for tests.

use super::{State, Table, SLOT_PAGES};

impl Table {
    /// Sets the limit of extents.
    pub(in super::super) fn limit_extents(&mut self, most: u32) {
        self.most_extents = most;
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
            assert_eq!(s.state == State::Free, empty, "slot {i}");
            assert_eq!(s.state == State::Open, i as u32 == self.open);
            sum += u64::from(s.live);
        }
        assert_eq!(sum, self.pages);
        let free = self.slots.iter().filter(|s| s.state == State::Free).count();
        assert_eq!(free, self.free_slots as usize);
        let in_use = self.extents.iter().filter(|e| e.pages > 0).count();
        assert_eq!(in_use, self.extents_in_use as usize);
        for (b, head) in self.buckets.iter().enumerate() {
            let mut i = *head;
            while let Some(s) = self.slots.get(i as usize) {
                assert!(s.state == State::Closed && Self::bucket_of(s.live) == b);
                i = s.next;
            }
        }
    }
}
