// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Extents, one by one.

use super::{Chain, Error, Extent, Part, Place, Region, Table, NONE};

impl Table {
    /// Puts an extent into the arena and its slot's list.
    pub(super) fn insert(&mut self, extent: Extent) -> Result<u32, Error> {
        #[cfg(test)]
        if self.extents_in_use >= self.memory {
            return Err(Error::OutOfMemory);
        }
        let i = self.unused_extent;
        let i = match self.extents.get_mut(i as usize) {
            Some(e) => {
                self.unused_extent = e.next;
                *e = extent;
                i
            }
            None => {
                self.extents.push(extent)?;
                self.extents.len() as u32 - 1
            }
        };
        self.extents_in_use += 1;
        if let Some(h) = self.holders.get_mut(extent.tenant as usize) {
            h.extents += 1;
        }
        self.link_to_slot(i);
        Ok(i)
    }

    /// Gives an extent and its pages back. It is in no chain.
    pub(super) fn remove(&mut self, i: u32) {
        let Some(&e) = self.extents.get(i as usize) else {
            return;
        };
        self.unlink_from_slot(i);
        let next = core::mem::replace(&mut self.unused_extent, i);
        if let Some(x) = self.extents.get_mut(i as usize) {
            x.pages = 0;
            x.next = next;
        }
        self.extents_in_use -= 1;
        if let Some(h) = self.holders.get_mut(e.tenant as usize) {
            h.extents -= 1;
        }
        self.forget_pages(&e, e.pages);
    }

    /// Gives back what an extent has outside `region`.
    pub(super) fn trim(&mut self, i: u32, region: Region) {
        if let Some(x) = self.extents.get_mut(i as usize) {
            let e = *x;
            *x = e.part(region);
            self.forget_pages(&e, e.pages - region.pages());
        }
    }

    /// Makes a new extent of what `i` has from page `at` on.
    pub(super) fn split(&mut self, i: u32, at: u16) -> Result<u32, Error> {
        let e = *self.extents.get(i as usize).ok_or(Error::Full)?;
        if self.lacks(Part::CutsAnyway) && self.extents_in_use >= self.most_extents {
            return Err(Error::Fragmented);
        }
        let upper = self.insert(e.part(Region::new(at, e.first + e.pages)))?;
        if let Some(x) = self.extents.get_mut(i as usize) {
            *x = x.part(Region::new(e.first, at));
        }
        Ok(upper)
    }

    pub(super) fn link(&mut self, chain: &mut Chain, i: u32) {
        if let Some(e) = self.extents.get_mut(i as usize) {
            e.next = core::mem::replace(&mut chain.0, i);
        }
    }

    pub(super) fn link_to_slot(&mut self, i: u32) {
        let Some(slot) = self.extents.get(i as usize).map(|e| e.slot) else {
            return;
        };
        let Some(s) = self.slots.get_mut(slot as usize) else {
            return;
        };
        let next = core::mem::replace(&mut s.extents, i);
        if let Some(e) = self.extents.get_mut(i as usize) {
            e.slot_prev = NONE;
            e.slot_next = next;
        }
        if let Some(e) = self.extents.get_mut(next as usize) {
            e.slot_prev = i;
        }
    }

    pub(super) fn unlink_from_slot(&mut self, i: u32) {
        let Some(&e) = self.extents.get(i as usize) else {
            return;
        };
        match self.extents.get_mut(e.slot_prev as usize) {
            Some(p) => p.slot_next = e.slot_next,
            None => {
                if let Some(s) = self.slots.get_mut(e.slot as usize) {
                    s.extents = e.slot_next;
                }
            }
        }
        if let Some(n) = self.extents.get_mut(e.slot_next as usize) {
            n.slot_prev = e.slot_prev;
        }
    }

    fn forget_pages(&mut self, e: &Extent, pages: u16) {
        if let Some(h) = self.holders.get_mut(e.tenant as usize) {
            h.pages -= u64::from(pages);
        }
        self.give_back(e.slot, pages);
    }
}

impl Extent {
    pub(super) fn region(&self) -> Region {
        Region::new(self.first, self.first + self.pages)
    }

    pub(super) fn place(&self) -> Place {
        Place {
            slot: self.slot,
            offset: self.offset,
        }
    }

    /// The same with only the pages of `region`, all of which it has.
    pub(super) fn part(&self, region: Region) -> Self {
        let skipped = region.first() - self.first;
        Self {
            stamp: self.stamp + u64::from(skipped),
            offset: self.offset + skipped,
            first: region.first(),
            pages: region.pages(),
            ..*self
        }
    }
}
