// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discard: which pages of a va_block hold data that nobody will read, and which
//! pages of its chunks may be handed out without being zeroed.
//!
//! # States of a page
//!
//! ```text
//!           discard lazy, resident                reclaim, or access elsewhere
//!   Live ──────────────────────────▶ Lazy ──────────────────────────▶ Eager
//!    ▲ ▲                              │ discard eager ───────────────▶ │ ▲
//!    │ └── UVM_MIGRATE, fault, at ────┘                                │ │
//!    │     the place it is resident                                    │ │
//!    │ └──────────────── any access or UVM_MIGRATE ────────────────────┘ │
//!    └─────────────────── discard eager; or lazy, resident nowhere ──────┘
//! ```
//!
//! - *Live*: as if there were no discard.
//! - *Lazy*: the software dirty bit is clear (UvmDiscard §5.2). The page is still
//!   resident and mapped. The next prefetch (UVM_MIGRATE) sets the bit; until
//!   then a write through the old mapping is not noticed and may be lost.
//! - *Eager*: unmapped and resident nowhere (§5.1). Its chunks stay; the next
//!   access finds zeros or an older value in one of them, without a copy.
//!
//! # Prepared pages
//!
//! Upstream zeroes a chunk once, when it is populated, and only the pages that
//! are then resident nowhere. A page that was resident elsewhere holds foreign data
//! in the chunk; it is never seen, as long as such a page is handed out only after
//! data was copied to it. Discard breaks this: it leaves a page resident nowhere
//! with its chunk in place. So a mask per memory tells which pages of the block's
//! chunks were zeroed or copied to since the chunk was obtained (§5.7), on GPUs and
//! on the host. What it does not name is zeroed before it is handed out.
//!
//! The mask may always name too few pages: a page that is resident nowhere may be
//! zeroed again, since zeros are a legal value after discard. Therefore a
//! [`BlockState`] is created by the block's first discard, costs nothing before,
//! and takes as prepared only what is resident at that time
//! ([`BlockState::track`]). It may be dropped again while [`BlockState::is_idle`].
//!
//! # Ranges that cover a block partly
//!
//! A discard applies to whole blocks, however long, and to those whole granules of
//! a partly covered block where it splits no 2 MiB mapping: always if lazy, as nothing
//! is unmapped; if eager, when no processor maps the block with one 2 MiB entry.
//! The rest is left alone and reported ([`Plan::ignored`]), as the paper does
//! (§5.4) and as the semantics allow: a value not discarded is a legal value. What an eager discard
//! leaves alone is live afterwards, also if it was discarded lazily before ([`Plan::ignored`]). The same becomes of pages
//! in host memory that somebody holds without a mapping ([`Plan::keep`]): what direct I/O writes there causes no fault.
//!
//! Locking: the state belongs to a va_block and is protected by its lock. Only
//! [`BlockState::track`], [`BlockState::split`] and [`BlockState::upper`] allocate, with that lock held ([`BlockVec`]).
//!
//! [`discard`] walks the va_blocks of an address range and does to each what its [`Plan`]
//! says (walk.rs); the rest of this module is about one block.

use super::evict::Queue;
use super::mask::{PageMask, Region, PAGES};
use crate::mem::{BlockVec, OutOfMemory};

// The driver alone uses it.
#[allow(dead_code)]
pub mod leaving;
pub mod ranges;
pub mod split;
mod walk;

// The driver uses a part of it; models the rest.
#[allow(unused_imports)]
pub use walk::{
    discard, granule_shift, Counts, Dropped, Failure, Held, Kind, Machine, Request, Span,
    BLOCK_BYTES, PAGE_BYTES,
};

/// A memory that holds chunks, a GPU's or the host's, in a numbering of the caller's, where the
/// host comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory(pub u16);

impl Memory {
    /// The memory of the host, all NUMA nodes together.
    pub const HOST: Self = Self(0);

    /// The memory with the next number, if there can be one.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

/// The two kinds of discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// UvmDiscard: mappings are destroyed at once; any later access is noticed.
    Eager,
    /// UvmDiscardLazy: mappings stay; a prefetch must precede the next access.
    Lazy,
}

/// The state of a page, as [`BlockState::status`] tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not discarded, or written since.
    Live,
    /// Discarded, resident and mapped.
    Lazy,
    /// The page is discarded, and resident nowhere.
    Eager,
}

/// What the planner of a discard must know of the block.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Pages resident on any processor.
    pub resident: PageMask,
    /// Whether some processor maps the block with one entry of 2 MiB.
    pub mapped_2m: bool,
}

/// The pieces of a block that a discard can tell apart where it does not cover the whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granules {
    /// Pages of a granule, as a power of two. With 9, a block that is partly covered is left alone, as in the paper.
    pub shift: u32,
    /// How many pages before the block's first page a granule begins; fewer than 512. Granules are aligned to
    /// addresses, as a GPU's large pages are, and a block that was split may begin anywhere.
    pub before: u16,
}

impl Granules {
    /// Granules of `1 << shift` pages, in a block that begins where 2 MiB do.
    pub fn of_aligned(shift: u32) -> Self {
        Self { shift, before: 0 }
    }
}

/// What a discard of one block will do. Made by [`Plan::new`]; what it asks for is
/// done by the caller, then [`BlockState::commit`] records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Pages to unmap from all processors and to take residency of from all of
    /// them: read duplicates and records of eviction too. Nothing is copied.
    pub drop: PageMask,
    /// Pages whose dirty bit is to be cleared.
    clean: PageMask,
    /// All pages that are discarded afterwards because of this call.
    pub discarded: PageMask,
    /// Pages of the range that are left alone by the rule for partial ranges.
    pub ignored: PageMask,
    /// Pages that are live afterwards, also if they were discarded lazily: what an eager discard leaves alone.
    /// A program may write behind it without a prefetch, and a write through a mapping that is left goes unnoticed.
    live: PageMask,
}

impl Plan {
    /// What a discard of `range` would do to a block of `pages` pages.
    pub fn new(pages: u16, range: Region, mode: Mode, granules: Granules, facts: &Facts) -> Self {
        let range = Region::new(range.first(), range.outer().min(pages));
        let target = if range.pages() == pages {
            range
        } else if mode == Mode::Eager && facts.mapped_2m {
            Region::new(0, 0)
        } else {
            range.shrink(granules.shift, granules.before)
        };
        let ignored = if target == range {
            PageMask::EMPTY
        } else {
            PageMask::from(range) - target.into()
        };
        let target = PageMask::from(target);
        let resident = target & facts.resident;
        let (drop, clean, live) = match mode {
            Mode::Eager => (resident, PageMask::EMPTY, ignored),
            Mode::Lazy => (PageMask::EMPTY, resident, PageMask::EMPTY),
        };
        Self {
            drop,
            clean,
            discarded: target,
            ignored,
            live,
        }
    }

    /// Leaves `pages` alone that an eager discard would drop, with all others if `mapped_2m`, as where a range covers the
    /// block partly.
    pub fn keep(&mut self, pages: &PageMask, mapped_2m: bool) {
        let kept = match self.drop & *pages {
            kept if mapped_2m && !kept.is_empty() => self.discarded,
            kept => kept,
        };
        self.drop -= kept;
        self.discarded -= kept;
        self.ignored |= kept;
        self.live |= kept;
    }

    /// A discard of `range` that leaves all of it alone, in a block of `pages` pages.
    pub fn leaving(pages: u16, range: Region, mode: Mode) -> Self {
        let range = PageMask::from(Region::new(range.first(), range.outer().min(pages)));
        Self {
            drop: PageMask::EMPTY,
            clean: PageMask::EMPTY,
            discarded: PageMask::EMPTY,
            ignored: range,
            live: match mode {
                Mode::Eager => range,
                Mode::Lazy => PageMask::EMPTY,
            },
        }
    }

    /// Whether the discard discards nothing.
    pub fn is_empty(&self) -> bool {
        self.discarded.is_empty()
    }
}

/// How to make pages fit to be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// The pages are fit as they are.
    Nothing,
    /// Zero these pages; others of the chunk are resident there.
    Pages(PageMask),
    /// Zero the whole chunk in one go; nothing of it is resident there.
    Chunk(Region),
}

impl Zeroing {
    /// The pages to zero.
    pub fn pages(&self) -> PageMask {
        match *self {
            Self::Nothing => PageMask::EMPTY,
            Self::Pages(mask) => mask,
            Self::Chunk(region) => region.into(),
        }
    }
}

#[derive(Clone)]
struct Prepared {
    memory: Memory,
    pages: PageMask,
}

/// The discard state of one va_block.
///
/// Invariants, while the caller keeps to the protocol of each method:
///
/// - a page is in at most one of `lazy` and `eager`;
/// - pages in `lazy` are resident somewhere, pages in `eager` nowhere;
/// - no mask has a page at or behind `pages`;
/// - a page that is resident in a tracked memory is prepared there.
pub struct BlockState {
    /// Length of the block: 512, or less at a range's end and after a split.
    pages: u16,
    lazy: PageMask,
    eager: PageMask,
    /// What is prepared, at most one entry for each memory.
    prepared: BlockVec<Prepared>,
}

impl BlockState {
    /// The state of a block of `pages` pages (at most 512), all of them live.
    pub fn new(pages: u16) -> Self {
        Self {
            pages: pages.min(PAGES),
            lazy: PageMask::EMPTY,
            eager: PageMask::EMPTY,
            prepared: BlockVec::new(),
        }
    }

    /// Begins to track what is prepared in `memory`, where `resident` of the
    /// block's pages are resident now. Does nothing if it is tracked.
    ///
    /// Call it for every memory where the block has a chunk before the first
    /// discard, and before a chunk is added elsewhere. Where memory is short this
    /// may be skipped: all that is handed out there is then zeroed first.
    pub fn track(&mut self, memory: Memory, resident: &PageMask) -> Result<(), OutOfMemory> {
        if self.prepared.iter().any(|p| p.memory == memory) {
            return Ok(());
        }
        let pages = *resident & self.whole();
        self.prepared.push(Prepared { memory, pages })
    }

    // Discarding.

    /// [`Plan::new`] for this block, if it begins where 2 MiB do.
    pub fn plan(&self, range: Region, mode: Mode, granule_shift: u32, facts: &Facts) -> Plan {
        let granules = Granules::of_aligned(granule_shift);
        Plan::new(self.pages, range, mode, granules, facts)
    }

    /// Records that what `plan` asks for was done. Between the two calls nothing
    /// may change the block (its lock was not dropped). Returns the pages that were discarded
    /// lazily and are live now, so that a chunk that has them is used again ([`BlockState::queue`]).
    pub fn commit(&mut self, plan: &Plan) -> PageMask {
        let revived = self.lazy & plan.live;
        self.lazy = (self.lazy - plan.discarded - plan.live) | plan.clean;
        self.eager |= plan.discarded - plan.clean;
        revived
    }

    /// The eviction queue for the root chunk of `memory` that backs this block
    /// alone, given what is resident there. Only a block of 512 pages has one.
    pub fn queue(&self, memory: Memory, resident_there: &PageMask) -> Queue {
        if !resident_there.is_subset(&self.lazy) {
            Queue::Used
        } else if !resident_there.is_empty() || self.eager.intersects(&self.prepared_in(memory)) {
            Queue::Discarded
        } else {
            Queue::Unused
        }
    }

    // Making resident: faults, UVM_MIGRATE, access counters. In this order:
    // `stale`, drop, `dropped`; populate with `added` and `zeroing`; copy; `prepare`;
    // `accessed`. Any step may fail and the sequence begin anew.

    /// Which of `pages` are lazily discarded and not resident at the destination.
    /// The caller drops them everywhere instead of copying them.
    pub fn stale(&self, pages: &PageMask, resident_at_destination: &PageMask) -> PageMask {
        (self.lazy & *pages) - *resident_at_destination
    }

    /// Records that lazily discarded `pages` lost their last residency.
    pub fn dropped(&mut self, pages: &PageMask) {
        let pages = self.lazy & *pages;
        self.lazy -= pages;
        self.eager |= pages;
    }

    /// Records that a chunk of `memory` was added for the pages `region`, of which
    /// `zeroed` were zeroed.
    pub fn added(&mut self, memory: Memory, region: Region, zeroed: &PageMask) {
        self.released(memory, region);
        self.prepare(memory, &(*zeroed & region.into()));
    }

    /// What must be zeroed in the chunk at `chunk` of `memory`, which was there
    /// before, so that `wanted` pages of it can be handed out. Pages that are
    /// `resident` on any processor will be copied and need not be zeroed.
    pub fn zeroing(
        &self,
        memory: Memory,
        chunk: Region,
        wanted: &PageMask,
        resident: &PageMask,
        resident_there: &PageMask,
    ) -> Zeroing {
        let chunk_pages = PageMask::from(chunk);
        let missing = (*wanted & chunk_pages) - *resident - self.prepared_in(memory);
        if missing.is_empty() {
            Zeroing::Nothing
        } else if resident_there.intersects(&chunk_pages) {
            Zeroing::Pages(missing)
        } else {
            Zeroing::Chunk(chunk)
        }
    }

    /// Records that `pages` of `memory` were zeroed or copied to.
    pub fn prepare(&mut self, memory: Memory, pages: &PageMask) {
        let pages = *pages & self.whole();
        if let Some(p) = self.prepared.iter_mut().find(|p| p.memory == memory) {
            p.pages |= pages;
        }
    }

    /// The same of `wanted` pages on the host, where only some are `allocated`: the others come
    /// unprepared, and who allocates them zeroes them. Nothing is gained there by zeroing more than is
    /// wanted.
    pub fn zeroing_host(
        &mut self,
        wanted: &PageMask,
        allocated: &PageMask,
        resident: &PageMask,
    ) -> PageMask {
        self.overwritten(Memory::HOST, &(PageMask::FULL - *allocated));
        (*wanted & *allocated) - *resident - self.prepared_in(Memory::HOST)
    }

    /// Records that `pages` were made resident in `memory`, where all of `there` is by now, and on the
    /// host `on_host`: copies that were staged there may have become duplicates. An eviction
    /// accesses nothing. Returns the pages that were discarded lazily and are live now, in every memory that has
    /// a copy of them, so that a chunk that has them is used again ([`BlockState::queue`]).
    pub fn made_resident(
        &mut self,
        memory: Memory,
        pages: &PageMask,
        there: &PageMask,
        on_host: &PageMask,
        evicted: bool,
    ) -> PageMask {
        self.prepare(memory, there);
        self.prepare(Memory::HOST, on_host);
        if evicted {
            return PageMask::EMPTY;
        }
        let revived = self.lazy & *pages;
        self.accessed(pages);
        revived
    }

    /// Records that `pages` were made resident for an access or by UVM_MIGRATE:
    /// they are live. Not for an eviction, which accesses nothing.
    pub fn accessed(&mut self, pages: &PageMask) {
        self.lazy -= *pages;
        self.eager -= *pages;
    }

    // Reclaim of a chunk.

    /// Which of the pages that are `leaving`, resident in the memory that loses their chunks,
    /// are lazily discarded. The caller unmaps them and takes away their residency
    /// there, copies only the others, and calls [`BlockState::dropped`] with those
    /// that are then resident nowhere.
    pub fn needless(&self, leaving: &PageMask) -> PageMask {
        self.lazy & *leaving
    }

    /// Records that `memory` gave up the chunk that backed `region`.
    pub fn released(&mut self, memory: Memory, region: Region) {
        self.overwritten(memory, &region.into());
    }

    /// Records that `pages` of `memory` hold something that nobody is to see.
    pub fn overwritten(&mut self, memory: Memory, pages: &PageMask) {
        if let Some(p) = self.prepared.iter_mut().find(|p| p.memory == memory) {
            p.pages -= *pages;
        }
    }

    // Life of the block.

    /// Splits the block: this state keeps the pages before `at`, the returned one
    /// has the others, renumbered from 0. Changes nothing if it fails.
    pub fn split(&mut self, at: u16) -> Result<Self, OutOfMemory> {
        let upper = self.upper(at)?;
        self.truncate(at);
        Ok(upper)
    }

    /// The first half of [`BlockState::split`], for a caller that must know that
    /// there is memory before it splits anything: a copy of the pages from `at` on.
    ///
    /// GPU chunks that are reclaimed before [`BlockState::truncate`] need not be told
    /// to the copy: what it then says of their pages matters only to a chunk that
    /// is there, and [`BlockState::added`] comes before the next one is. A chunk of
    /// the host comes without that call. So no page counts as prepared there in the
    /// copy: at worst a page is zeroed once more.
    pub fn upper(&self, at: u16) -> Result<Self, OutOfMemory> {
        let at = at.min(self.pages);
        let mut upper = Self::new(self.pages - at);
        upper.lazy = self.lazy.shifted_down(at);
        upper.eager = self.eager.shifted_down(at);
        upper.prepared = BlockVec::with_capacity(self.prepared.len())?;
        for p in self.prepared.iter() {
            let pages = match p.memory {
                Memory::HOST => PageMask::EMPTY,
                _ => p.pages.shifted_down(at),
            };
            upper.prepared.push(Prepared {
                memory: p.memory,
                pages,
            })?;
        }
        Ok(upper)
    }

    /// The second half of [`BlockState::split`]: keeps the pages before `at`.
    pub fn truncate(&mut self, at: u16) {
        self.pages = at.min(self.pages);
        let keep = self.whole();
        self.lazy &= keep;
        self.eager &= keep;
        for p in self.prepared.iter_mut() {
            p.pages &= keep;
        }
    }

    /// Whether no page is discarded. The state may then be dropped: a page that is
    /// resident nowhere was either never touched, and upstream zeroed it wherever
    /// the block has a chunk, or its chunks came later and were zeroed likewise.
    pub fn is_idle(&self) -> bool {
        self.lazy.is_empty() && self.eager.is_empty()
    }

    /// Whether `page` is discarded, and how.
    pub fn status(&self, page: u16) -> Status {
        if self.lazy.test(page) {
            Status::Lazy
        } else if self.eager.test(page) {
            Status::Eager
        } else {
            Status::Live
        }
    }

    /// All pages that are discarded.
    pub fn discarded(&self) -> PageMask {
        self.lazy | self.eager
    }

    /// The pages that may be handed out from `memory` as they are; none if it is
    /// not tracked.
    pub fn prepared_in(&self, memory: Memory) -> PageMask {
        let found = self.prepared.iter().find(|p| p.memory == memory);
        found.map_or(PageMask::EMPTY, |p| p.pages)
    }

    fn whole(&self) -> PageMask {
        Region::new(0, self.pages).into()
    }
}

#[cfg(test)]
mod tests;
