// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Relocation: emptying slots of which much is dead.

use super::{Move, Part, Place, State, Table, NONE, SLOT_PAGES, SPARE, TOO_FULL};

impl Table {
    /// Whether relocation is due: `reserve` slots or fewer are free.
    pub fn is_low(&self, reserve: u32) -> bool {
        self.free_slots <= reserve.max(SPARE)
    }

    /// What to copy next to empty a slot; `None` if none is worth it, there is no room, or
    /// what is being read or written has to end before.
    ///
    /// Relocation may take the last free slot, which nobody else fills (`append()` sees to it), and which has
    /// room for all of one slot that is worth emptying. With no slot free, relocation goes on with the slot
    /// that it took the last one for: two half-empty slots would fill the room, and no slot would ever be
    /// free again.
    pub fn relocate_begin(&mut self) -> Option<Move> {
        let (slot, i) = self.victim()?;
        let e = *self.extents.get(i as usize)?;
        let (to, pages) = self.append_whole(e.pages)?;
        self.emptying = slot;
        self.slots.get_mut(slot as usize)?.pins += 1;
        self.pins += 1;
        Some(Move {
            extent: i,
            stamp: e.stamp,
            from: e.place(),
            to,
            pages,
        })
    }

    /// The slot with most to gain that nobody reads or writes, and its first extent. Slots that relocation
    /// failed to move come last, the oldest failure first, as its cause may have passed.
    fn victim(&self) -> Option<(u32, u32)> {
        let movable = |slot: u32| {
            let s = self.slots.get(slot as usize)?;
            (s.pins == 0 && s.extents != NONE).then_some((slot, s.extents))
        };
        if self.free_slots == 0 && !self.lacks(Part::OneVictim) {
            let s = self.slots.get(self.emptying as usize)?;
            let begun = (s.state == State::Closed)
                .then(|| movable(self.emptying))
                .flatten();
            if !s.shunned || self.lacks(Part::Shuns) {
                return begun;
            }
            // One that fits whole into the room that is left becomes free.
            return self.fitting(&movable).or(begun);
        }
        let shunned = self.buckets.last();
        for head in self.buckets.iter().take(TOO_FULL).chain(shunned) {
            let mut slot = *head;
            // Those that are being read or written are few; look no further than that.
            for _ in 0..16 {
                let Some(s) = self.slots.get(slot as usize) else {
                    break;
                };
                if let Some(found) = movable(slot) {
                    return Some(found);
                }
                slot = s.next;
            }
        }
        None
    }

    /// A slot that can be moved into the room of the open one. Where there is none, the room of
    /// the last slot is not begun on.
    fn fitting(&self, movable: &impl Fn(u32) -> Option<(u32, u32)>) -> Option<(u32, u32)> {
        let open = self.slots.get(self.open as usize)?;
        let room = SLOT_PAGES - open.used;
        for head in self.buckets.iter().take(TOO_FULL) {
            let mut slot = *head;
            for _ in 0..16 {
                let Some(s) = self.slots.get(slot as usize) else {
                    break;
                };
                if let Some(found) = movable(slot).filter(|_| s.live <= room) {
                    return Some(found);
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
        self.ends(&m, moved);
        if !copied && !self.lacks(Part::Shuns) {
            self.shun(m.from.slot);
        }
        self.unpin_slot(m.from.slot);
        moved
    }

    /// Ends a move of which nothing was tried: its slot is not at fault, and comes first again.
    pub fn relocate_give_up(&mut self, m: Move) {
        self.ends(&m, 0);
        self.unpin_slot(m.from.slot);
    }

    /// Gives the room back that a move does not need, of which so many pages were `moved`.
    fn ends(&mut self, m: &Move, moved: u16) {
        if moved == 0 && !self.lacks(Part::RoomBack) {
            self.unappend(m.to, m.pages);
        }
        self.give_back(m.to.slot, m.pages - moved);
    }

    /// Has what is left of the extent point to the copy. It may be in pieces now: a piece that
    /// stayed behind would need room again, of which there may be none.
    fn switch(&mut self, m: &Move) -> u16 {
        let mut moved = 0;
        if self.is_part(m.extent, m) || self.lacks(Part::MoveLooks) {
            moved = self.switch_extent(m.extent, m);
        }
        if moved == m.pages {
            return moved;
        }
        let mut next = self
            .slots
            .get(m.from.slot as usize)
            .map_or(NONE, |s| s.extents);
        while let Some(e) = self.extents.get(next as usize) {
            let this = next;
            next = e.slot_next;
            if self.is_part(this, m) {
                moved += self.switch_extent(this, m);
            }
        }
        moved
    }

    /// Whether extent `i` is of those pages that were copied: they have their stamps, which
    /// tell them from later ones, and are in their place.
    fn is_part(&self, i: u32, m: &Move) -> bool {
        self.extents.get(i as usize).is_some_and(|e| {
            let skipped = e.stamp.wrapping_sub(m.stamp);
            e.pages > 0 && skipped < u64::from(m.pages) && e.slot == m.from.slot
        })
    }

    /// Has one extent point to the copy; returns its pages.
    fn switch_extent(&mut self, i: u32, m: &Move) -> u16 {
        let Some(e) = self
            .extents
            .get(i as usize)
            .filter(|e| e.pages > 0)
            .copied()
        else {
            return 0;
        };
        // Its ends may have been given back.
        let skipped = e.stamp.wrapping_sub(m.stamp) as u16;
        for k in 0..e.pages {
            let at = |p: Place| Place {
                slot: p.slot,
                offset: p.offset + skipped + k,
            };
            let sum = self.sum(at(m.from));
            if let Some(sum) = sum.filter(|_| !self.lacks(Part::MoveSums)) {
                self.set_sum(at(m.to), sum);
            }
        }
        self.unlink_from_slot(i);
        if let Some(x) = self.extents.get_mut(i as usize) {
            x.slot = m.to.slot;
            x.offset = m.to.offset + skipped;
        }
        self.link_to_slot(i);
        self.give_back(m.from.slot, e.pages);
        e.pages
    }
}
