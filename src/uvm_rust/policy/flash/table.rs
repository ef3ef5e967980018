// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The device: slots of 2 MiB, extents in them, and who holds how much.
//!
//! Allocation is that of a log: a whole va_block gets a slot of its own, what is less
//! is appended to the one open slot. A slot whose last page is given back is free
//! again, and is the last of the free ones to be taken: writes go round the device, and a
//! slot that fails them is met once in a round. Space given back inside a slot that is otherwise in use is dead until the
//! slot is emptied, which [`Table::relocate_begin`] does, fullest of dead first (G10
//! §4.5: garbage collection of the SSD, with the entries updated). A slot is only
//! worth relocating while an eighth of it is dead, so at most seven pages are moved
//! for each page gained, and every operation is O(1) amortised per page run.
//!
//! Memory: [`Table::BYTES_PER_SLOT`] for each slot of the device from the beginning,
//! [`Table::BYTES_PER_EXTENT`] for each extent in use, and with checksums 2 KiB for each slot in
//! use. Writes make at most [`EXTENTS_PER_SLOT`] times as many extents as there are slots
//! ([`EXTENTS_AT_LEAST`] on a small device), shared by all tenants ([`Table::reserve`]). What is
//! written already is cut whatever the limit says, as the memory of a program whose split fails
//! is destroyed: its pages bound the extents then, of which each has one.

use super::super::mask::{PageMask, Region, PAGES};
use crate::mem::{OutOfMemory, TryVec};

#[cfg(test)]
mod check;
mod extents;
mod lists;
mod part;
mod relocate;
mod slots;
mod trim;
mod write;

pub(super) use lists::For;
pub(super) use part::Part;
pub use trim::{Next, Trim};
pub use write::Write;

/// Pages in a slot: those of a va_block.
pub const SLOT_PAGES: u16 = PAGES;

/// Bytes of a page, and of a slot.
const PAGE_BYTES: u64 = 4096;
const SLOT_BYTES: u64 = SLOT_PAGES as u64 * PAGE_BYTES;

/// Limit of the extents of writes, as a multiple of the number of slots.
pub const EXTENTS_PER_SLOT: u32 = 8;

/// The limit of extents is never less: a few va_blocks in pieces must not be all that a
/// small device can have.
pub const EXTENTS_AT_LEAST: u32 = 4096;

/// A tenant may have so many times as many extents as nobody has yet. Whoever comes first gets
/// three quarters, and there is always something left for the next one (dynamic thresholds of
/// shared buffers: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
/// switches", IEEE/ACM Transactions on Networking 6(2), 1998).
const TIMES_FREE: u32 = 3;

/// Extents that each tenant may have, besides one for each [`PAGES_PER_EXTENT`] of its pages.
const EXTENTS_TO_BEGIN: u64 = 2;

/// With extents of so many pages a tenant can write whatever the others do. All tenants
/// together cannot have more of them than the limit.
const PAGES_PER_EXTENT: u64 = (SLOT_PAGES as u64) / (EXTENTS_PER_SLOT as u64);

/// Slots that only relocation may take, so that it can always begin.
const SPARE: u32 = 1;

/// No slot, no extent.
const NONE: u32 = u32::MAX;

/// Lists of slots by how many of their pages are in use, in steps of an eighth; the
/// one before the last holds the full ones, the last one those that a move has failed of.
const BUCKETS: usize = 10;

/// The list of slots that a move has failed of, the latest at its end.
const SHUNNED: usize = BUCKETS - 1;

/// The first list whose slots are not worth relocating.
const TOO_FULL: usize = 7;

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No slot is free. Relocation may find room.
    Full,
    /// The tenant holds what it may.
    Quota,
    /// The tenant has as many extents as it may have.
    Fragmented,
    /// No memory for the state.
    OutOfMemory,
    /// The block's last spill is still under way.
    Busy,
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// A page of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Number of the slot.
    pub slot: u32,
    /// Page in it, below [`SLOT_PAGES`].
    pub offset: u16,
}

/// Neighbouring pages of a va_block that are neighbours on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Pages of the va_block.
    pub pages: Region,
    /// Where the first of them is.
    pub place: Place,
    /// A number that the first page got when it was written and that no other write
    /// ever gets; the next page has the next number. The tweak of its encryption.
    pub stamp: u64,
}

impl Piece {
    /// So many of its pages from the `first` on, or what there is of those.
    pub fn part(&self, first: u16, pages: u16) -> Self {
        let first = first.min(self.pages.pages());
        let begin = self.pages.first() + first;
        let outer = begin.saturating_add(pages).min(self.pages.outer());
        Self {
            pages: Region::new(begin, outer),
            place: Place {
                offset: self.place.offset.saturating_add(first),
                ..self.place
            },
            stamp: self.stamp.wrapping_add(first.into()),
        }
    }
}

/// Extents that belong together, as their first one. Not dropped but given back:
/// [`Table::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Chain(u32);

impl Chain {
    /// The name of no extent.
    pub const EMPTY: Self = Self(NONE);

    /// Takes all extents, leaving none.
    pub fn take(&mut self) -> Self {
        core::mem::replace(self, Self::EMPTY)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == NONE
    }
}

/// Whose pages they are, to the quota. A number that [`Table::tenant`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant(u32);

/// What a table is made with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Slots of the device.
    pub slots: u32,
    /// Keep a checksum of each page.
    pub checksums: bool,
    /// Pages that a tenant may hold.
    pub quota: u64,
}

/// Slots in front of the first one, which are not for pages: what says that the device is ours.
pub const RESERVED_SLOTS: u32 = 1;

/// Fewer slots are of no use: one is filled, one is kept for relocation.
const SLOTS_LEAST: u64 = 3;

impl Config {
    /// How many slots a device of so many bytes has; `None` if it is too small.
    pub fn slots_of(bytes: u64) -> Option<u32> {
        let slots = (bytes / SLOT_BYTES).checked_sub(RESERVED_SLOTS.into())?;
        // The last number stands for no slot.
        let most = u64::from(u32::MAX) - 1;
        (slots >= SLOTS_LEAST).then(|| slots.min(most) as u32)
    }

    /// How many pages a tenant may hold by a quota of so many bytes, 0 for any.
    pub fn quota_of(bytes: u64) -> u64 {
        match bytes {
            0 => u64::MAX,
            bytes => bytes / PAGE_BYTES,
        }
    }
}

/// How full the device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Slots that the device has in all.
    pub slots: u32,
    /// Slots with no page in use.
    pub free_slots: u32,
    /// Pages of the device that are in use.
    pub pages: u64,
    /// Extents that are in use.
    pub extents: u32,
}

/// A copy to be made inside the device, to empty a slot. The bytes are not to be
/// changed: encryption and checksum go by stamp, which stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Move {
    extent: u32,
    stamp: u64,
    /// Where the pages are.
    pub from: Place,
    /// Where they are to be.
    pub to: Place,
    /// How many pages are moved.
    pub pages: u16,
}

impl Move {
    /// What is copied, as pages that are numbered from 0.
    pub fn piece(&self) -> Piece {
        Piece {
            pages: Region::new(0, self.pages),
            place: self.from,
            stamp: self.stamp,
        }
    }
}

#[derive(Clone, Copy)]
struct Extent {
    stamp: u64,
    /// The next of the chain, or of the unused ones.
    next: u32,
    /// Neighbours in the slot's list.
    slot_prev: u32,
    slot_next: u32,
    slot: u32,
    tenant: u32,
    offset: u16,
    first: u16,
    /// 0 for one that is not in use.
    pages: u16,
}

/// What a slot is doing. Only a closed slot is in a bucket, only a free one in the
/// list of free ones. One that is being trimmed is in neither.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Trimming,
    Open,
    Closed,
}

struct Slot {
    /// One for each page, empty without checksums or while the slot is free.
    sums: TryVec<u32>,
    extents: u32,
    prev: u32,
    next: u32,
    /// Pages that an extent or a move holds.
    live: u16,
    /// Pages handed out since it was last free: the log's end.
    used: u16,
    /// What is under way that relies on its contents, or brings them: each piece of a read or
    /// of a write, and each move out of it. While there is one, no other move out of it
    /// begins, and the slot is not handed out again. A page has at most one of each, so there
    /// are fewer than 1,025.
    pins: u16,
    /// A move out of it has failed, and none of its pages has come or gone since. Others are
    /// emptied before it.
    shunned: bool,
    /// It was handed out since it was trimmed last, so that something may be written there.
    written: bool,
    state: State,
}

#[derive(Clone, Copy)]
struct Holder {
    key: u64,
    pages: u64,
    extents: u64,
}

/// The device's slots and extents.
///
/// Invariants: a slot's `live` is the sum of the pages of its extents and of the
/// targets of moves into it, which do not overlap and lie below `used`. A slot with no
/// live page, no pin, and that is not open, is free, or being trimmed. `pages` is the sum of `live`, and `pins`
/// that of the slots' pins. Bytes that are on their way to a slot have a pin there
/// ([`Write`]), or are the target of a move, whose pages are live.
pub struct Table {
    config: Config,
    slots: TryVec<Slot>,
    extents: TryVec<Extent>,
    unused_extent: u32,
    extents_in_use: u32,
    /// How many writes may make.
    most_extents: u32,
    holders: TryVec<Holder>,
    /// The free slot that is taken next, and the last one of that list.
    free: u32,
    last_free: u32,
    free_slots: u32,
    /// Slots that are being trimmed; that are free, and written to since they were trimmed last; and that are written to
    /// so, free or not.
    trimming: u32,
    to_trim: u32,
    written: u32,
    /// Where the next one to be trimmed is looked for.
    trim_at: u32,
    open: u32,
    buckets: [u32; BUCKETS],
    last_shunned: u32,
    /// The slot that relocation is emptying, or has been; see [`Table::relocate_begin`].
    emptying: u32,
    pages: u64,
    pins: u64,
    next_stamp: u64,
    lists: lists::Lists,
    #[cfg(test)]
    without: Option<Part>,
    /// Extents that there is memory for.
    #[cfg(test)]
    memory: u32,
}

impl Table {
    /// Bytes of memory for each slot, used or not, without checksums.
    pub const BYTES_PER_SLOT: usize = size_of::<Slot>();
    /// Bytes of memory for each extent.
    pub const BYTES_PER_EXTENT: usize = size_of::<Extent>();

    /// A table in which all is free.
    pub fn new(config: Config) -> Result<Self, OutOfMemory> {
        let mut slots = TryVec::with_capacity(config.slots as usize)?;
        for i in 0..config.slots {
            slots.push(Slot {
                sums: TryVec::new(),
                extents: NONE,
                prev: i.checked_sub(1).unwrap_or(NONE),
                next: if i + 1 < config.slots { i + 1 } else { NONE },
                live: 0,
                used: 0,
                pins: 0,
                shunned: false,
                written: false,
                state: State::Free,
            })?;
        }
        Ok(Self {
            config,
            slots,
            extents: TryVec::new(),
            unused_extent: NONE,
            extents_in_use: 0,
            most_extents: EXTENTS_AT_LEAST.max(config.slots.saturating_mul(EXTENTS_PER_SLOT)),
            holders: TryVec::new(),
            free: if config.slots == 0 { NONE } else { 0 },
            // NONE, if there is no slot.
            last_free: config.slots.wrapping_sub(1),
            free_slots: config.slots,
            trimming: 0,
            to_trim: 0,
            written: 0,
            trim_at: 0,
            open: NONE,
            buckets: [NONE; BUCKETS],
            last_shunned: NONE,
            emptying: NONE,
            pages: 0,
            pins: 0,
            next_stamp: 1,
            lists: lists::Lists::NONE,
            #[cfg(test)]
            without: None,
            #[cfg(test)]
            memory: u32::MAX,
        })
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        // An open slot with nothing in it is as good as free, and so is one that is being trimmed.
        let idle = self
            .slots
            .get(self.open as usize)
            .is_some_and(|s| s.live == 0);
        Usage {
            slots: self.config.slots,
            free_slots: self.free_slots + self.trimming + u32::from(idle),
            pages: self.pages,
            extents: self.extents_in_use,
        }
    }

    /// Whether a read, a write or a move is under way. It may be of pages that nobody needs any
    /// more, so that none is in use.
    pub fn is_busy(&self) -> bool {
        self.pins > 0
    }

    /// The tenant called `key`.
    pub fn tenant(&mut self, key: u64) -> Result<Tenant, OutOfMemory> {
        // Few processes use a GPU at a time, so they are looked through. One that
        // holds nothing may be forgotten.
        let mut idle = None;
        for (i, h) in self.holders.iter().enumerate() {
            if h.key == key {
                return Ok(Tenant(i as u32));
            }
            if h.pages == 0 {
                idle = Some(i);
            }
        }
        let new = Holder {
            key,
            pages: 0,
            extents: 0,
        };
        if let Some((i, h)) = idle.and_then(|i| Some((i, self.holders.get_mut(i)?))) {
            *h = new;
            return Ok(Tenant(i as u32));
        }
        self.holders.push(new)?;
        Ok(Tenant(self.holders.len() as u32 - 1))
    }

    /// Pages that the tenant called `key` holds.
    pub fn held(&self, key: u64) -> u64 {
        self.holders
            .iter()
            .filter(|h| h.key == key)
            .map(|h| h.pages)
            .sum()
    }

    // Extents.

    /// Joins the extents of `from` to those of `to`. They have no page in common.
    pub fn merge(&mut self, to: &mut Chain, from: Chain) {
        let mut last = from.0;
        while let Some(e) = self.extents.get_mut(last as usize) {
            if e.next == NONE {
                e.next = to.0;
                *to = from;
                return;
            }
            last = e.next;
        }
    }

    /// Gives back what `chain` has of all pages but `keep`.
    ///
    /// Where a hole in the middle of an extent needs another extent and there is no memory
    /// for it, its pages stay in use until a later call finds one, or until the
    /// pages around them are given back.
    pub fn retain(&mut self, chain: &mut Chain, keep: &PageMask) {
        let mut rest = chain.take().0;
        while let Some(&e) = self.extents.get(rest as usize) {
            let this = rest;
            rest = e.next;
            let kept = PageMask::from(e.region()) & *keep;
            let first = kept.runs().next();
            let Some((first, last)) = first.zip(kept.runs().last()) else {
                self.remove(this);
                continue;
            };
            self.trim(this, Region::new(first.first(), last.outer()));
            self.link(chain, this);
            self.cut_holes(this, &kept, chain);
        }
    }

    /// Splits extent `i` at the pages that are not in `kept`, of which its first and
    /// last are.
    fn cut_holes(&mut self, mut i: u32, kept: &PageMask, chain: &mut Chain) {
        let mut runs = kept.runs().peekable();
        while let Some((run, next)) = runs.next().zip(runs.peek()) {
            let Ok(upper) = self.split(i, next.first()) else {
                return;
            };
            self.link(chain, upper);
            if let Some(&e) = self.extents.get(i as usize) {
                self.trim(i, Region::new(e.first, run.outer()));
            }
            i = upper;
        }
    }

    /// Gives all of it back.
    pub fn release(&mut self, mut chain: Chain) {
        self.retain(&mut chain, &PageMask::EMPTY);
    }

    /// Sees to it that no extent of `chain` has pages on both sides of `at`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; nothing has changed. There is no limit of extents to it: see above.
    pub fn cut(&mut self, chain: &mut Chain, at: u16) -> Result<(), Error> {
        let mut i = chain.0;
        while let Some(&e) = self.extents.get(i as usize) {
            if e.first < at && at < e.first + e.pages {
                let upper = self.split(i, at)?;
                self.link(chain, upper);
                return Ok(());
            }
            i = e.next;
        }
        Ok(())
    }

    /// Takes the pages from `at` on out of `chain`, which was cut there, and numbers
    /// them from 0, as those of the upper half of a va_block that is split.
    pub fn split_chain(&mut self, chain: &mut Chain, at: u16) -> Chain {
        let mut upper = Chain::EMPTY;
        let mut rest = chain.take().0;
        while let Some(e) = self.extents.get_mut(rest as usize) {
            let this = rest;
            rest = e.next;
            if e.first < at {
                self.link(chain, this);
            } else {
                e.first -= at;
                self.link(&mut upper, this);
            }
        }
        upper
    }

    /// The pages that `chain` has a place for, needed or not.
    pub fn covered(&self, chain: &Chain) -> PageMask {
        let mut pages = PageMask::EMPTY;
        let mut i = chain.0;
        while let Some(e) = self.extents.get(i as usize) {
            pages |= e.region().into();
            i = e.next;
        }
        pages
    }

    // Reading, and writing.

    /// Notes the checksum of a page. Does nothing if they are not kept.
    pub fn set_sum(&mut self, place: Place, sum: u32) {
        let slot = self.slots.get_mut(place.slot as usize);
        if let Some(s) = slot.and_then(|s| s.sums.get_mut(place.offset as usize)) {
            *s = sum;
        }
    }

    /// Notes the checksums of a piece, as [`Table::set_sum`] does.
    pub fn note_sums(&mut self, piece: &Piece, sums: &[u32]) {
        let slot = self.slots.get_mut(piece.place.slot as usize);
        let kept = slot.and_then(|s| s.sums.get_mut(piece.place.offset.into()..));
        let pages = kept.into_iter().flatten().take(piece.pages.pages().into());
        pages.zip(sums).for_each(|(kept, sum)| *kept = *sum);
    }

    /// Those pages of a piece that have the checksums that were noted; all if none are kept.
    pub fn as_written(&self, piece: &Piece, sums: &[u32]) -> PageMask {
        let slot = self.slots.get(piece.place.slot as usize);
        let noted = slot.and_then(|s| s.sums.get(piece.place.offset.into()..));
        let Some(noted) = noted.filter(|noted| !noted.is_empty()) else {
            return piece.pages.into();
        };
        let mut pages = PageMask::EMPTY;
        let of_piece = piece.pages.first()..piece.pages.outer();
        for (page, (sum, noted)) in of_piece.zip(sums.iter().zip(noted)) {
            if sum == noted {
                pages.set(page);
            }
        }
        pages
    }

    /// The checksum of a page; `None` if they are not kept.
    pub fn sum(&self, place: Place) -> Option<u32> {
        let slot = self.slots.get(place.slot as usize)?;
        slot.sums.get(place.offset as usize).copied()
    }
}
