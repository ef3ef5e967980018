// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The pages of one va_block: which are on flash, and which are on the way.

use super::super::mask::{PageMask, Region, PAGES};
use super::owed::Owed;
use super::table::{Chain, Error, For, Part, Piece, Table, Tenant, Write};
use crate::mem::{OutOfMemory, TryVec};

/// Whether who may write to a page gets it for reading, until he writes and asks by a fault: so a copy that flash has
/// (`is_copied`) stays good as long as nobody writes. Not if `some_cannot_fault` of the process' GPUs: such a one cannot ask.
#[allow(dead_code)] // Models have no GPUs that cannot fault.
pub fn may_only_read(is_copied: bool, some_cannot_fault: bool) -> bool {
    is_copied && !some_cannot_fault
}

/// A spill under way: [`BlockPages::begin_spill`] to [`BlockPages::end_spill`], or
/// [`Spill::abandon`] if the block has died.
#[derive(Debug)]
#[must_use]
pub struct Spill {
    /// Pages that are being written.
    pub pages: PageMask,
    write: Write,
}

impl Spill {
    /// Where they go, and stay until the spill ends.
    pub fn pieces(&self) -> &[Piece] {
        self.write.pieces()
    }

    /// Gives the room back.
    pub fn abandon(self, table: &mut Table) {
        table.abort(self.write);
    }
}

/// A read under way: [`BlockPages::begin_read`] to [`BlockPages::end_read`].
#[derive(Debug)]
#[must_use]
pub struct Read {
    /// Pages that are being read.
    pub pages: PageMask,
    /// Where they are. They stay there until the read ends.
    pub pieces: TryVec<Piece>,
    owed: Owed,
}

/// Microseconds for which a page that could not be read is not read again. Whoever wants it meanwhile is told so
/// at once: a device that fails all is asked no more often.
pub const AGAIN_US: u64 = 1_000_000;

/// Why no read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// All that is wanted from flash is being read already, or a read that is no longer wanted
    /// is still filling the host memory of such a page: ask again when a read has ended.
    Wait,
    /// A page that is wanted is lost, for now or for good.
    Lost,
    /// No memory for the state.
    OutOfMemory,
}

/// Which pages of a va_block are on flash. Protected by the va_block's lock.
///
/// Invariants: `on_flash`, `copies`, `spilling` and `lost` have no page in common.
/// `reading` is a part of both `on_flash` and `in_flight`, `kept` one of `lost`, `due` one of `kept`, and
/// `doubted` one of `on_flash`.
/// `chain` has a place for each page of `on_flash`, `copies` and `kept` and, but for holes that could not be cut
/// ([`Table::retain`]), for no other. No mask has a page at or behind `pages`.
pub struct BlockPages {
    pages: u16,
    on_flash: PageMask,
    /// Pages in memory that flash has an unchanged copy of.
    copies: PageMask,
    /// Pages that are being read from flash and are still wanted.
    reading: PageMask,
    /// What is being read, wanted or not.
    in_flight: PageMask,
    spilling: PageMask,
    is_spilling: bool,
    lost: PageMask,
    /// Lost pages that the device may give another time, and whose places on it are kept.
    kept: PageMask,
    /// Pages of `kept` that had been there long enough to be read again when another page was added.
    due: PageMask,
    /// When a page was last added to `kept`.
    failed_us: u64,
    /// Pages whose bytes were not those that were written when they were read last.
    doubted: PageMask,
    chain: Chain,
}

impl BlockPages {
    /// Of a va_block of `pages` pages (at most 512), none on flash.
    pub fn new(pages: u16) -> Self {
        Self {
            pages: pages.min(PAGES),
            on_flash: PageMask::EMPTY,
            copies: PageMask::EMPTY,
            reading: PageMask::EMPTY,
            in_flight: PageMask::EMPTY,
            spilling: PageMask::EMPTY,
            is_spilling: false,
            lost: PageMask::EMPTY,
            kept: PageMask::EMPTY,
            due: PageMask::EMPTY,
            failed_us: 0,
            doubted: PageMask::EMPTY,
            chain: Chain::EMPTY,
        }
    }

    /// Pages that are on flash and nowhere else.
    pub fn on_flash(&self) -> PageMask {
        self.on_flash
    }

    /// Pages that are in memory, and that flash has too, as nothing could write to them
    /// since they were fetched.
    pub fn copies(&self) -> PageMask {
        self.copies
    }

    /// Pages of which the host has memory that a read is filling.
    pub fn in_flight(&self) -> PageMask {
        self.in_flight
    }

    /// Pages that are in host memory and being written.
    pub fn spilling(&self) -> PageMask {
        self.spilling
    }

    /// Pages that could not be read. Some may be read again later ([`BlockPages::read_again_at`]).
    pub fn lost(&self) -> PageMask {
        self.lost
    }

    /// Those of them that have their places still.
    pub fn kept(&self) -> PageMask {
        self.kept
    }

    /// Whether nothing is known of it.
    pub fn is_idle(&self) -> bool {
        let pages = self.on_flash | self.copies | self.in_flight | self.lost;
        pages.is_empty() && !self.is_spilling
    }

    // Host to flash.

    /// Begins to write `pages`, which are in host memory, mapped nowhere and used by
    /// nobody. From now until the end of the write every use is told to
    /// [`BlockPages::touched`].
    ///
    /// # Errors
    ///
    /// Those of [`Table::reserve`], and `Busy`. Nothing has changed then, but that copies
    /// of `pages` may be given up: what has one is better left to [`BlockPages::drop_clean`].
    pub fn begin_spill(
        &mut self,
        table: &mut Table,
        tenant: Tenant,
        pages: &PageMask,
    ) -> Result<Spill, Error> {
        if self.is_spilling && !table.lacks(Part::OneSpill) {
            return Err(Error::Busy);
        }
        let pages = (*pages & self.whole()) - self.on_flash - self.in_flight - self.lost;
        self.may_write(table, &pages);
        let pages = self.without_holes(table, pages)?;
        let write = table.reserve(tenant, &pages)?;
        self.is_spilling = true;
        self.spilling = pages;
        Ok(Spill { pages, write })
    }

    /// `pages` are being used where they are, or mapped, so that what is written of them is stale.
    pub fn touched(&mut self, pages: &PageMask) {
        self.spilling -= *pages;
    }

    /// Ends a write. `written` are the pages that the device has and that nobody has
    /// mapped since. Returns those that are on flash now: the caller takes their
    /// residency from them before the block's lock is dropped.
    pub fn end_spill(&mut self, table: &mut Table, spill: Spill, written: &PageMask) -> PageMask {
        let mut moved = spill.pages & *written;
        if !table.lacks(Part::SpillLooks) {
            moved &= self.spilling;
        }
        let chain = table.commit(spill.write, &moved);
        table.merge(&mut self.chain, chain);
        self.on_flash |= moved;
        self.spilling = PageMask::EMPTY;
        self.is_spilling = false;
        moved
    }

    /// Of `pages`, which are mapped nowhere and used by nobody, those of which flash has a
    /// copy that is valid. They are on flash only from now on: the caller takes their
    /// residency from them before the block's lock is dropped.
    pub fn drop_clean(&mut self, pages: &PageMask) -> PageMask {
        let moved = self.copies & *pages;
        self.copies -= moved;
        self.on_flash |= moved;
        moved
    }

    /// `pages` can be written to where they are from now on: their copies are given up.
    pub fn may_write(&mut self, table: &mut Table, pages: &PageMask) {
        if self.copies.intersects(pages) && !table.lacks(Part::CopiesGivenUp) {
            self.copies -= *pages;
            self.retain(table);
        }
    }

    // Flash to host.

    /// Begins to read those of `wanted` that are on flash and not being read. `None` if
    /// there is none on flash, so that all of `wanted` can be used. The caller has host memory
    /// for them, which it does not make resident before [`BlockPages::end_read`]; nobody uses
    /// pages that are [`BlockPages::in_flight`] before that, also where they were discarded.
    pub fn begin_read(
        &mut self,
        table: &mut Table,
        wanted: &PageMask,
    ) -> Result<Option<Read>, ReadError> {
        if self.lost.intersects(wanted) {
            return Err(ReadError::Lost);
        }
        let dropped = (self.in_flight - self.on_flash).intersects(wanted);
        let wanted = self.on_flash & *wanted;
        if wanted.is_empty() {
            return if dropped && !table.lacks(Part::ReadWaits) {
                Err(ReadError::Wait)
            } else {
                Ok(None)
            };
        }
        let pages = wanted - self.in_flight;
        if pages.is_empty() {
            return Err(ReadError::Wait);
        }
        let pinned = table.pin(&self.chain, &pages, For::Read);
        let pieces = pinned.map_err(|OutOfMemory| ReadError::OutOfMemory)?;
        if table.lacks(Part::ReadPins) {
            table.let_places_go(&pieces);
        }
        self.reading |= pages;
        self.in_flight |= pages;
        Ok(Some(Read {
            pages,
            pieces,
            owed: Owed::new(),
        }))
    }

    /// Notes, at the end of a read, that the device did not give the pages `failed`, and gave other bytes than those written
    /// for the pages `wrong`. The device may still have both. Failed pages are lost until they are read again, and keep
    /// their places. A page that is wrong for the first time stays on flash, and the next access reads it once more.
    /// Returns the pages that are lost.
    pub fn put_off(
        &mut self,
        read: &Read,
        (failed, wrong): (&PageMask, &PageMask),
        now_us: u64,
    ) -> PageMask {
        let valid = read.pages & self.reading;
        let lost = valid & (*failed | (*wrong & self.doubted));
        self.doubted |= valid & *wrong;
        self.doubted -= lost;
        self.reading -= lost;
        self.on_flash -= lost;
        if !lost.is_empty() {
            self.due = self.due_at(now_us);
            self.failed_us = now_us;
        }
        self.lost |= lost;
        self.kept |= lost;
        lost
    }

    /// Those of `pages` that could not be read some time ago are on flash again. Nobody is to wait for others with
    /// them.
    pub fn read_again_at(&mut self, now_us: u64, pages: &PageMask) {
        if self.kept.intersects(pages) {
            let again = self.due_at(now_us) & *pages;
            self.put_back(again);
        }
    }

    /// What was kept for long enough.
    fn due_at(&self, now_us: u64) -> PageMask {
        if now_us.saturating_sub(self.failed_us) >= AGAIN_US {
            self.kept
        } else {
            self.due
        }
    }

    /// What could not be read, and has its place, is on flash again.
    pub fn read_again(&mut self) {
        self.put_back(self.kept);
    }

    fn put_back(&mut self, kept: PageMask) {
        self.lost -= kept;
        self.on_flash |= kept;
        self.kept -= kept;
        self.due -= kept;
    }

    /// Ends a read, of which `good` has arrived and `failed` never will. What is in
    /// neither is on flash as before. Returns the pages that are in host memory now: the
    /// caller makes them resident there before the block's lock is dropped. With `keep`,
    /// their copies on flash stay, until somebody may write ([`BlockPages::may_write`]).
    pub fn end_read(
        &mut self,
        table: &mut Table,
        read: Read,
        good: &PageMask,
        failed: &PageMask,
        keep: bool,
    ) -> PageMask {
        if table.lacks(Part::ReadPins) {
            table.keep_list(For::Read, read.pieces);
        } else {
            table.unpin(read.pieces, For::Read);
        }
        read.owed.end();
        let valid = if table.lacks(Part::ReadLooks) {
            read.pages
        } else {
            read.pages & self.reading
        };
        let failed = valid & *failed;
        let arrived = (valid & *good) - failed;
        self.in_flight -= read.pages;
        self.reading -= read.pages;
        self.lost |= failed;
        self.on_flash -= arrived | failed;
        self.doubted -= arrived | failed;
        if keep {
            self.copies |= arrived;
        }
        self.retain(table);
        arrived
    }

    // Endings.

    /// `pages` are not needed any more: discarded, or freed.
    pub fn forget(&mut self, table: &mut Table, pages: &PageMask) {
        self.spilling -= *pages;
        self.lost -= *pages;
        if (self.on_flash | self.copies | self.kept).intersects(pages) {
            self.on_flash -= *pages;
            self.copies -= *pages;
            self.reading -= *pages;
            self.kept -= *pages;
            self.due -= *pages;
            self.doubted -= *pages;
            self.retain(table);
        }
    }

    /// Prepares [`BlockPages::split`], so that it cannot fail. A write under way comes
    /// to nothing; no other may begin and no read be under way until the split.
    ///
    /// # Errors
    ///
    /// Those of [`Table::cut`]; only the write has ended then.
    pub fn cut(&mut self, table: &mut Table, at: u16) -> Result<(), Error> {
        if !table.lacks(Part::SplitEndsSpill) {
            self.spilling = PageMask::EMPTY;
        }
        table.cut(&mut self.chain, at)
    }

    /// Splits the block in two; returns what is known of the pages from `at` on.
    pub fn split(&mut self, table: &mut Table, at: u16) -> Self {
        let at = at.min(self.pages);
        let low = PageMask::from(Region::new(0, at));
        let upper = Self {
            on_flash: self.on_flash.shifted_down(at),
            copies: self.copies.shifted_down(at),
            lost: self.lost.shifted_down(at),
            kept: self.kept.shifted_down(at),
            due: self.due.shifted_down(at),
            failed_us: self.failed_us,
            doubted: self.doubted.shifted_down(at),
            chain: table.split_chain(&mut self.chain, at),
            ..Self::new(self.pages - at)
        };
        self.pages = at;
        self.on_flash &= low;
        self.copies &= low;
        self.lost &= low;
        self.kept &= low;
        self.due &= low;
        self.doubted &= low;
        upper
    }

    /// Gives back all that it holds. Writes under way end by [`Spill::abandon`].
    pub fn release(&mut self, table: &mut Table) {
        table.release(self.chain.take());
        *self = Self::new(self.pages);
    }

    /// Those of `pages` that the chain has no place for. A hole that was not cut still has
    /// one, which must not be taken for the new one.
    fn without_holes(&mut self, table: &mut Table, pages: PageMask) -> Result<PageMask, Error> {
        if !table.covered(&self.chain).intersects(&pages) {
            return Ok(pages);
        }
        self.retain(table);
        let free = pages - table.covered(&self.chain);
        if free.is_empty() {
            return Err(Error::Fragmented);
        }
        Ok(free)
    }

    /// Gives back what is not needed any more.
    fn retain(&mut self, table: &mut Table) {
        let mut held = self.on_flash | self.copies;
        if !table.lacks(Part::LostKeepPlaces) {
            held |= self.kept;
        }
        table.retain(&mut self.chain, &held);
    }

    fn whole(&self) -> PageMask {
        Region::new(0, self.pages).into()
    }

    /// Where its pages are.
    #[cfg(test)]
    pub(super) fn places(&self, table: &Table) -> TryVec<Piece> {
        table.pieces(&self.chain).unwrap()
    }
}
