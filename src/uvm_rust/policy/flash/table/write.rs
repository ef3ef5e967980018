// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Room for what is being written.

use super::super::owed::Owed;
use super::{Chain, Error, Extent, For, PageMask, Part, Piece, Region, Table, Tenant, TryVec};
use super::{EXTENTS_TO_BEGIN, NONE, PAGES_PER_EXTENT, SPARE, TIMES_FREE};

/// A write under way: room on the device, and the pins that keep it where it is.
///
/// Between [`Table::reserve`], which begins it, and [`Table::commit`] or [`Table::abort`],
/// which end it, somebody writes to the places of [`Write::pieces`] and notes checksums for
/// them, without any lock. Extents that were moved meanwhile would be copied before their
/// bytes have arrived, and the bytes would arrive in a slot that may be another's by then.
/// So it owns a pin of the slot of each of its pieces, which only the end gives back.
#[derive(Debug)]
#[must_use]
pub struct Write {
    chain: Chain,
    pieces: TryVec<Piece>,
    owed: Owed,
}

impl Write {
    /// Where the pages go, in no particular order. Valid until the write ends.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

impl Table {
    /// Finds room for `pages`, which stays where it is until the write ends. Each run of them
    /// is one extent, or two where the open slot ends. A tenant whose extents have 64 pages each
    /// gets as many as it needs; one with smaller ones up to three times as many as are free, so
    /// that no tenant keeps the others from writing. `tenant` was obtained without anything
    /// being given back since.
    ///
    /// # Errors
    ///
    /// All but `Busy`; nothing is held then.
    pub fn reserve(&mut self, tenant: Tenant, pages: &PageMask) -> Result<Write, Error> {
        let count = u64::from(pages.count());
        let held = self
            .holders
            .get(tenant.0 as usize)
            .map_or(u64::MAX, |h| h.pages);
        if held.saturating_add(count) > self.config.quota && !self.lacks(Part::Quota) {
            return Err(Error::Quota);
        }
        let mut chain = Chain::EMPTY;
        let begun = pages
            .runs()
            .try_for_each(|run| self.reserve_run(tenant, held + count, run, &mut chain))
            .and_then(|()| Ok(self.pin(&chain, pages, For::Write)?));
        match begun {
            Ok(pieces) => {
                if self.lacks(Part::WritePins) {
                    self.let_places_go(&pieces);
                }
                Ok(Write {
                    chain,
                    pieces,
                    owed: Owed::new(),
                })
            }
            Err(error) => {
                self.release(chain);
                Err(error)
            }
        }
    }

    /// Ends a write: gives back what it has of all pages but `keep`, which are on the device
    /// now, and returns their extents.
    pub fn commit(&mut self, write: Write, keep: &PageMask) -> Chain {
        let Write {
            mut chain,
            pieces,
            owed,
        } = write;
        self.retain(&mut chain, keep);
        if !self.lacks(Part::WritePins) {
            self.let_places_go(&pieces);
        }
        self.keep_list(For::Write, pieces);
        owed.end();
        chain
    }

    /// Ends a write that came to nothing: gives all of it back.
    pub fn abort(&mut self, write: Write) {
        // Nothing is kept, so that there is no extent.
        let _ = self.commit(write, &PageMask::EMPTY);
    }

    /// Whether the tenant may have one more extent, with `pages` pages in all.
    fn may_have_extent(&self, tenant: Tenant, pages: u64) -> bool {
        let free = self.most_extents.saturating_sub(self.extents_in_use);
        let share = u64::from(free) * u64::from(TIMES_FREE);
        self.holders
            .get(tenant.0 as usize)
            .is_some_and(|h| h.extents < share.max(EXTENTS_TO_BEGIN + pages / PAGES_PER_EXTENT))
    }

    /// `pages` is what the tenant has when all of the write has room.
    fn reserve_run(
        &mut self,
        tenant: Tenant,
        pages: u64,
        run: Region,
        chain: &mut Chain,
    ) -> Result<(), Error> {
        let mut first = run.first();
        while first < run.outer() {
            if !self.may_have_extent(tenant, pages) {
                return Err(Error::Fragmented);
            }
            let (place, got) = self.append(run.outer() - first, SPARE)?;
            let stamp = self.next_stamp;
            self.next_stamp += u64::from(got);
            let extent = Extent {
                stamp,
                next: chain.0,
                slot_prev: NONE,
                slot_next: NONE,
                slot: place.slot,
                tenant: tenant.0,
                offset: place.offset,
                first,
                pages: got,
            };
            match self.insert(extent) {
                Ok(i) => chain.0 = i,
                Err(error) => {
                    self.give_back(place.slot, got);
                    return Err(error);
                }
            }
            if let Some(h) = self.holders.get_mut(tenant.0 as usize) {
                h.pages += u64::from(got);
            }
            first += got;
        }
        Ok(())
    }
}
