// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pages of one va_block that another thread is to read: pages that GPU faults need which were put off, pages that a
//! call will need soon, and pages that a prefetch is to bring to a GPU. Faults are put off so that other processes'
//! faults do not wait for the device.

use super::super::mask::PageMask;
use super::block::{BlockPages, AGAIN_US};
use super::cause::Cause;

/// Who wants pages: a fault comes before a call, and a call before a prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// A prefetch, which is a guess.
    Prefetch,
    /// A call, for later.
    Call,
    /// A GPU's faults, now.
    Fault,
}

/// Whether a GPU's faults have to be put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Park {
    /// No: they can be serviced, and find out themselves which pages cannot be read.
    No,
    /// Yes, until a read ends that is under way.
    Wait,
    /// Yes, until these pages are here, which are to be asked for.
    Ask(PageMask),
}

impl Asks {
    /// The cause for which a read takes a turn with the device. A read for faults takes none.
    pub fn cause(self) -> Cause {
        match self {
            Self::Prefetch => Cause::Guess,
            Self::Call | Self::Fault => Cause::Read,
        }
    }
}

/// What a device has of one va_block, as the prefetcher needs to know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Pages that are on the device, that nobody reads or is to read, and that may be asked for.
    pub idle: PageMask,
    /// Pages that somebody reads, or is to read.
    pub coming: PageMask,
    /// Whether some pages could not be read. Then none of the block may be asked for.
    pub failed: bool,
}

/// What is wanted of one va_block. The va_block's lock protects it, as it protects the state of the pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    asked: PageMask,
    /// The most urgent asker that a reader fetches them for, or will.
    fetched_for: Option<Asks>,
    /// Whether a prefetch waits for pages that are being read or will be, and is told when a read has ended or was
    /// tried.
    is_prefetched: bool,
    /// Pages that were asked for and could not be fetched, which no fault has found out yet.
    failed: PageMask,
    /// Lost pages of the last faults that were not put off; these faults find out that the pages are lost.
    finds_out: PageMask,
    /// Until when `finds_out` holds. From then on a copy engine's fault, which is looked at page by page, has these pages read again.
    finds_out_until_us: u64,
}

impl Wants {
    /// Asks for `pages`. Returns whether a reader has to be woken, because none knows of them, or not that they are
    /// as urgent.
    #[must_use]
    pub fn ask(&mut self, pages: &PageMask, asks: Asks) -> bool {
        self.asked |= *pages;
        let told = self.fetched_for >= Some(asks);
        self.fetched_for = self.fetched_for.max(Some(asks));
        self.is_prefetched |= asks == Asks::Prefetch;
        !told
    }

    /// What a device has of a block with this `state`, as the prefetcher needs to know it. A prefetch is a guess, so
    /// it asks for nothing of a block of which a read has failed: accesses to the block find out which pages can be
    /// read.
    pub fn stored(&self, state: &BlockPages) -> Stored {
        let (asked, on_flash) = (self.asked | state.in_flight(), state.on_flash());
        let failed = !(state.lost() | self.failed).is_empty();
        Stored {
            idle: if failed {
                PageMask::EMPTY
            } else {
                on_flash - asked
            },
            coming: on_flash & asked,
            failed,
        }
    }

    /// Has a prefetch told of pages that others read, or are to read.
    pub fn tell_prefetch(&mut self) {
        self.is_prefetched = true;
    }

    /// Whether a prefetch is to be told that a read of a block with this `state` has ended, or was tried, whoever
    /// made it. The prefetch is told again as long as more of the block is being read or will be.
    #[must_use]
    pub fn tells_prefetch(&mut self, state: Option<&BlockPages>) -> bool {
        let is_left = |state: &BlockPages| !self.stored(state).coming.is_empty();
        let is_left = state.is_some_and(is_left);
        let tells = self.is_prefetched;
        self.is_prefetched &= is_left;
        tells
    }

    /// Whether faults wait for some of the pages that were asked for.
    pub fn is_urgent(&self) -> bool {
        self.fetched_for == Some(Asks::Fault)
    }

    /// For whom a reader of the kind `reader` reads the pages that were asked for; `None` if it must leave them
    /// alone.
    ///
    /// A reader reads all pages for the most urgent asker. It leaves the pages alone if no asker is as urgent as
    /// those that it reads for: another reader may have read the pages that this one was woken for, and a call or a
    /// prefetch may have asked for more since.
    pub fn read_by(&self, reader: Asks) -> Option<Asks> {
        let asks = self.fetched_for.unwrap_or(Asks::Prefetch);
        (asks >= reader).then_some(asks)
    }

    /// The pages that were asked for and have not come.
    pub fn asked(&self) -> PageMask {
        self.asked
    }

    /// Whether a read has still to begin for some of the pages that were asked for of a block with this `state`.
    pub fn has_to_begin(&self, state: &BlockPages) -> bool {
        !((self.asked & state.on_flash()) - state.in_flight()).is_empty()
    }

    /// Notes that a call has got `pages`. If no fault has asked for them, no reader needs to read them any more: by
    /// then they may have left for the device again.
    pub fn came(&mut self, pages: &PageMask) {
        if !self.is_urgent() {
            self.asked -= *pages;
        }
    }

    /// Notes that a reader of the kind `reader` has tried to fetch what was asked for of a block with this `state`,
    /// if it has one. If that has `failed` for faults, the next fault on the pages that have not come finds out why.
    /// A call finds out by itself. Pages that the reader leaves alone ([`Wants::read_by`]) stay asked for, as another
    /// reader was woken for them.
    pub fn tried(&mut self, reader: Asks, failed: bool, state: Option<&BlockPages>) {
        if self.read_by(reader).is_none() {
            return;
        }
        if let Some(state) = state.filter(|_| failed && self.is_urgent()) {
            self.failed |= self.asked & (state.on_flash() | state.lost());
        }
        self.asked = PageMask::EMPTY;
        self.fetched_for = None;
    }

    /// Notes that `pages` are in memory, whoever read them. When they are on the device again, faults on them are put
    /// off again.
    pub fn arrived(&mut self, pages: &PageMask) {
        self.failed -= *pages;
    }

    /// Which of `pages`, of a block with this `state`, a fault brings along, and which are to be asked for.
    ///
    /// Lost pages are not brought along with others. Nor are pages on flash brought along to a GPU whose faults are
    /// put off (`parks`): the faults of all processes would wait for the read. They are asked for instead, and the
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
    ///
    /// Pages that could not be read before, but may be readable by now, are asked for like others. But a page that
    /// failed for faults is not asked for again before one of them has found out: a device that fails slowly would
    /// keep them for ever.
    #[must_use]
    pub fn park(&mut self, state: &mut BlockPages, now_us: u64, pages: &PageMask) -> Park {
        let mut tried = self.failed;
        if self.is_urgent() {
            tried |= self.asked;
        }
        state.read_again_at(now_us, &(*pages - tried));
        // Faults on other pages of the block do not wait in vain for pages that failed.
        let park = Self::look(state, pages, &self.failed);
        self.finds_out -= *pages;
        if park == Park::No {
            self.failed -= *pages;
            let lost = state.lost() & *pages;
            if !lost.is_empty() {
                self.finds_out = lost;
                self.finds_out_until_us = now_us.saturating_add(AGAIN_US);
            }
        }
        park
    }

    /// Whether a copy engine's fault on `pages` of a block with this `state` has to be put off.
    ///
    /// Unlike [`Wants::park`] it waits for all pages on flash, also for those that could not be fetched: nobody reads them
    /// while the fault is serviced. Without memory to fetch them, such a fault asks again until there is some, or its
    /// channel ends. A page that the device did not give is lost for a second, and ends a fault that is looked at
    /// meanwhile, before this is asked.
    #[must_use]
    pub fn park_copy(state: &BlockPages, pages: &PageMask) -> Park {
        Self::look(state, pages, &PageMask::EMPTY)
    }

    /// Notes that a GPU's fault on `page` ends, as the page is lost: somebody has found out, and the next fault has it read again
    /// once [`BlockPages::read_again_at`] does.
    pub fn found_out(&mut self, page: u16) {
        let mut found = PageMask::EMPTY;
        found.set(page);
        self.failed -= found;
    }

    /// Whether `page`, which a GPU's fault wants and which could not be read, stays lost, however long ago that was:
    /// the fault is being serviced, and would otherwise read the page itself. Nothing says when its service ends, so
    /// this holds for [`AGAIN_US`].
    pub fn finds_out(&self, page: u16, now_us: u64) -> bool {
        self.finds_out.test(page) && now_us < self.finds_out_until_us
    }

    /// Whether faults on `pages` wait for what is on flash, apart from `failed`.
    fn look(state: &BlockPages, pages: &PageMask, failed: &PageMask) -> Park {
        let wanted = (state.on_flash() & *pages) - *failed;
        if !wanted.is_empty() {
            Park::Ask(wanted)
        } else if state.in_flight().intersects(pages) {
            // The page was discarded while it is read.
            Park::Wait
        } else {
            Park::No
        }
    }
}
