// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Relocation: emptying slots of which much is dead.

use super::{Move, Place, Table, NONE, SPARE, TOO_FULL};

impl Table {
    /// Whether relocation is due: `reserve` slots or fewer are free.
    pub fn is_low(&self, reserve: u32) -> bool {
        self.free_slots <= reserve.max(SPARE)
    }

    /// What to copy next to empty a slot; `None` if none is worth it, or there is no room.
    pub fn relocate_begin(&mut self) -> Option<Move> {
        let (slot, i) = self.victim()?;
        let e = *self.extents.get(i as usize)?;
        let (to, pages) = self.append_whole(e.pages)?;
        self.slots.get_mut(slot as usize)?.pins += 1;
        Some(Move {
            extent: i,
            stamp: e.stamp,
            from: e.place(),
            to,
            pages,
        })
    }

    /// The slot with most to gain that nobody is reading, and its first extent.
    fn victim(&self) -> Option<(u32, u32)> {
        for head in self.buckets.iter().take(TOO_FULL) {
            let mut slot = *head;
            // Those that are being read are few; look no further than that.
            for _ in 0..16 {
                let Some(s) = self.slots.get(slot as usize) else {
                    break;
                };
                if s.pins == 0 && s.extents != NONE {
                    return Some((slot, s.extents));
                }
                slot = s.next;
            }
        }
        None
    }

    /// Ends a move; `copied` if the bytes are at the new place. What was given back in
    /// the meantime is given back there. Returns how many pages are at the new place.
    pub fn relocate_end(&mut self, m: Move, copied: bool) -> u16 {
        let moved = if copied { self.switch(&m) } else { 0 };
        self.give_back(m.to.slot, m.pages - moved);
        self.unpin_slot(m.from.slot);
        moved
    }

    /// Has the extent point to the copy, if it is still the one that was copied.
    fn switch(&mut self, m: &Move) -> u16 {
        let Some(e) = self.extents.get(m.extent as usize).copied() else {
            return 0;
        };
        // Its ends may have been given back; stamps tell it from a later extent.
        let skipped = e.stamp.wrapping_sub(m.stamp);
        if e.pages == 0 || skipped >= u64::from(m.pages) || e.slot != m.from.slot {
            return 0;
        }
        let skipped = skipped as u16;
        for k in 0..e.pages {
            let at = |p: Place| Place {
                slot: p.slot,
                offset: p.offset + skipped + k,
            };
            if let Some(sum) = self.sum(at(m.from)) {
                self.set_sum(at(m.to), sum);
            }
        }
        self.unlink_from_slot(m.extent);
        if let Some(x) = self.extents.get_mut(m.extent as usize) {
            x.slot = m.to.slot;
            x.offset = m.to.offset + skipped;
        }
        self.link_to_slot(m.extent);
        self.give_back(m.from.slot, e.pages);
        e.pages
    }
}
