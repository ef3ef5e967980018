// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What somebody else is to read: pages of one va_block that GPU faults wait for which were put off, so that
//! the faults of all processes do not wait for the device; and pages that a call will need soon.

use super::super::mask::PageMask;
use super::block::BlockPages;

/// Who wants pages; a fault before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// A call, for later.
    Call,
    /// A GPU's faults, now.
    Fault,
}

/// Whether a GPU's faults have to be put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Park {
    /// They can be serviced; what cannot be read, they find out themselves.
    No,
    /// Until a read ends that is under way.
    Wait,
    /// Until these pages are here, which are to be asked for.
    Ask(PageMask),
}

/// What is wanted of one va_block. Protected by its lock, as the state of its pages is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    asked: PageMask,
    /// For whom somebody fetches them, or is going to.
    fetched_for: Option<Asks>,
    /// Some of what was asked for could not be fetched.
    failed: bool,
}

impl Wants {
    /// Asks for `pages`. Returns whether somebody has to be told, as nobody has been, or not that it is urgent.
    #[must_use]
    pub fn ask(&mut self, pages: &PageMask, asks: Asks) -> bool {
        self.asked |= *pages;
        let told = self.fetched_for >= Some(asks);
        self.fetched_for = self.fetched_for.max(Some(asks));
        !told
    }

    /// Whether faults wait for some of what was asked for.
    pub fn is_urgent(&self) -> bool {
        self.fetched_for == Some(Asks::Fault)
    }

    /// For whom somebody whose reads are for `reader` reads what was asked for; `None` leaves it alone.
    ///
    /// A reader for calls reads all, for faults where faults wait for some. A reader for faults leaves alone what
    /// only calls ask for: another may have read what it was woken for, and a call has asked for more since.
    pub fn read_by(&self, reader: Asks) -> Option<Asks> {
        let asks = self.fetched_for.unwrap_or(Asks::Call);
        (asks >= reader).then_some(asks)
    }

    /// What was asked for and has not come.
    pub fn asked(&self) -> PageMask {
        self.asked
    }

    /// Whether somebody has still to begin to read some of what was asked for of a block with this `state`.
    pub fn has_to_begin(&self, state: &BlockPages) -> bool {
        !((self.asked & state.on_flash()) - state.in_flight()).is_empty()
    }

    /// A call has got `pages`. If only calls have asked for them, nobody is to read them any more: they may have
    /// left for the device again before somebody does.
    pub fn came(&mut self, pages: &PageMask) {
        if !self.is_urgent() {
            self.asked -= *pages;
        }
    }

    /// It was tried to fetch what was asked for. If that has `failed` for faults, the next one finds out why. A
    /// call finds out by itself.
    pub fn tried(&mut self, failed: bool) {
        self.failed |= failed && self.is_urgent();
        self.asked = PageMask::EMPTY;
        self.fetched_for = None;
    }

    /// What a fault is to bring along of `pages` of a block with this `state`, and what is to be asked for.
    ///
    /// Pages that are lost are not brought along with others. Nor are those on flash brought along to a GPU whose
    /// faults are put off (`parks`): the faults of all processes would wait for the read. It is begun, and the
    /// next fault nearby brings them.
    pub fn along(state: &BlockPages, pages: &PageMask, parks: bool) -> (PageMask, PageMask) {
        let pages = *pages - state.lost();
        if !parks {
            return (pages, PageMask::EMPTY);
        }
        let pages = pages - state.in_flight();
        (pages - state.on_flash(), pages & state.on_flash())
    }

    /// Whether faults on `pages` of a block with this `state` have to be put off.
    #[must_use]
    pub fn park(&mut self, state: &BlockPages, pages: &PageMask) -> Park {
        if core::mem::take(&mut self.failed) {
            return Park::No;
        }
        let wanted = state.on_flash() & *pages;
        if !wanted.is_empty() {
            Park::Ask(wanted)
        } else if state.in_flight().intersects(pages) {
            // It was discarded while it is read.
            Park::Wait
        } else {
            Park::No
        }
    }
}
