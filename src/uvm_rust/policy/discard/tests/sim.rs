// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One va_block under a driver that follows upstream's rules for populating,
//! copying and evicting, with every page's content.

use super::super::*;
use std::ops::Range;
use std::vec;
use std::vec::Vec;

/// Pages of a block, where a test says nothing else.
pub const LEN: u16 = 16;
/// Pages of a host chunk; a GPU's chunk is the whole block.
const HOST_CHUNK: u16 = 4;
/// The processors, each with its memory.
pub const CPU: usize = 0;
pub const GPU_A: usize = 1;
pub const GPU_B: usize = 2;
const PROCESSORS: usize = 3;

/// What a page of a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// The data of another owner. Nobody may ever see it.
    Foreign,
    Zero,
    Written(u32),
}

struct Place {
    /// Content of each page; `None` where there is no chunk.
    cells: Vec<Option<Cell>>,
    resident: PageMask,
    readable: PageMask,
    writable: PageMask,
}

/// What the program knows of a page.
#[derive(Clone, Default)]
struct Truth {
    /// All that it ever wrote.
    written: Vec<u32>,
    /// What it must read; anything it wrote, or zeros, if `None`.
    must: Option<Cell>,
}

pub struct Sim {
    /// Pages of the block.
    pub len: u16,
    pub state: Option<BlockState>,
    tracking: bool,
    places: [Place; PROCESSORS],
    truth: Vec<Truth>,
    writes: u32,
    /// How many pages were copied so far.
    pub copies: u32,
    /// Foreign data was read.
    pub leaked: bool,
    /// Something was read that was not the last write, nor was discarded.
    pub wrong: bool,
    /// Reclaim of a chunk from the queues that promise no copy made one.
    pub needless_copy: bool,
}

fn memory(p: usize) -> Memory {
    Memory(p as u16)
}

fn pages(r: Range<u16>) -> PageMask {
    Region::new(r.start, r.end).into()
}

impl Sim {
    pub fn new(tracking: bool) -> Self {
        Self::with_pages(LEN, tracking)
    }

    pub fn with_pages(len: u16, tracking: bool) -> Self {
        let place = || Place {
            cells: vec![None; len as usize],
            resident: PageMask::EMPTY,
            readable: PageMask::EMPTY,
            writable: PageMask::EMPTY,
        };
        let untouched = Truth {
            written: Vec::new(),
            must: Some(Cell::Zero),
        };
        Self {
            len,
            state: None,
            tracking,
            places: [place(), place(), place()],
            truth: vec![untouched; len as usize],
            writes: 0,
            copies: 0,
            leaked: false,
            wrong: false,
            needless_copy: false,
        }
    }

    /// The pages that are resident somewhere.
    pub fn resident(&self) -> PageMask {
        self.places
            .iter()
            .fold(PageMask::EMPTY, |m, p| m | p.resident)
    }

    fn chunk_of(&self, p: usize, page: u16) -> Region {
        match p {
            CPU => {
                let first = page / HOST_CHUNK * HOST_CHUNK;
                Region::new(first, first + HOST_CHUNK)
            }
            _ => Region::new(0, self.len),
        }
    }

    /// Processor `p` reads or writes `page`. If that faults, the pages `extra` are
    /// brought along, as by the tree prefetcher; a read then duplicates.
    pub fn access(&mut self, p: usize, page: u16, write: bool, extra: u16) {
        let place = &self.places[p];
        let mapped = if write {
            place.writable
        } else {
            place.readable
        };
        let fault = !mapped.test(page);
        let lazy = |s: &Self| {
            s.state
                .as_ref()
                .is_some_and(|s| s.status(page) == Status::Lazy)
        };
        if fault {
            let extra = PageMask::from_words([extra.into(), 0, 0, 0, 0, 0, 0, 0]);
            self.make_resident(p, pages(page..page + 1) | extra, !write);
        }
        if write {
            self.writes += 1;
            let cell = Cell::Written(self.writes);
            self.truth[page as usize].written.push(self.writes);
            // A write that nobody noticed may be lost.
            self.truth[page as usize].must = (!lazy(self)).then_some(cell);
            self.places[p].cells[page as usize] = Some(cell);
        } else {
            self.check_read(p, page);
        }
    }

    fn check_read(&mut self, p: usize, page: u16) {
        let cell = self.places[p].cells[page as usize].expect("mapped page without a chunk");
        let truth = &self.truth[page as usize];
        self.leaked |= cell == Cell::Foreign;
        self.wrong |= match (truth.must, cell) {
            (Some(must), cell) => cell != must,
            (None, Cell::Written(w)) => !truth.written.contains(&w),
            (None, _) => false,
        };
    }

    /// What `UVM_MIGRATE` does: the pages become resident at `p`.
    pub fn migrate(&mut self, p: usize, range: Range<u16>) {
        self.make_resident(p, pages(range), false);
    }

    /// Somebody who holds the host's memory of `page` writes there, without a fault. That lasts where the page is in host
    /// memory and nowhere else, and is not discarded.
    pub fn write_held(&mut self, page: u16) {
        let at = usize::from(page);
        let Some(cell) = &mut self.places[CPU].cells[at] else {
            return;
        };
        self.writes += 1;
        *cell = Cell::Written(self.writes);
        let is_live = (self.state.as_ref()).is_none_or(|s| s.status(page) == Status::Live);
        let others = self.places[GPU_A].resident | self.places[GPU_B].resident;
        let truth = &mut self.truth[at];
        truth.written.push(self.writes);
        if self.places[CPU].resident.test(page) {
            let lasts = is_live && !others.test(page);
            truth.must = lasts.then_some(Cell::Written(self.writes));
        }
    }

    fn make_resident(&mut self, p: usize, want: PageMask, duplicate: bool) {
        let there = self.places[p].resident;
        if let Some(stale) = self.state.as_ref().map(|s| s.stale(&want, &there)) {
            self.drop_everywhere(stale);
            if let Some(s) = &mut self.state {
                s.dropped(&stale);
            }
        }
        self.populate(p, want);
        self.copy(p, want - there);
        for page in want.pages() {
            // What is resident nowhere is what populate left in the chunk.
            self.places[p].resident.set(page);
            self.places[p].readable.set(page);
            if !duplicate {
                self.places[p].writable.set(page);
            }
        }
        for (_, other) in self.places.iter_mut().enumerate().filter(|(i, _)| *i != p) {
            other.writable -= want;
            if !duplicate {
                other.readable -= want;
                other.resident -= want;
            }
        }
        let (there, on_host) = (self.places[p].resident, self.places[CPU].resident);
        if let Some(s) = &mut self.state {
            s.made_resident(memory(p), &want, &there, &on_host, false);
        }
    }

    /// Adds the chunks that `want` needs, zeroing by upstream's rules, and prepares
    /// those that were there.
    fn populate(&mut self, p: usize, want: PageMask) {
        let resident = self.resident();
        let mut allocated = PageMask::EMPTY;
        for page in (0..self.len).filter(|&i| self.places[CPU].cells[i as usize].is_some()) {
            allocated.set(page);
        }
        let mut page = 0;
        while page < self.len {
            let region = self.chunk_of(p, page);
            page = region.outer();
            let chunk = PageMask::from(region);
            if !want.intersects(&chunk) {
                continue;
            }
            let new = self.places[p].cells[region.first() as usize].is_none();
            let zero = match (new, p) {
                (true, CPU) if chunk.is_subset(&resident) => PageMask::EMPTY,
                (true, CPU) => chunk,
                (true, _) => chunk - resident,
                (false, _) if !self.tracking => PageMask::EMPTY,
                (false, CPU) => self.state.as_mut().map_or(PageMask::EMPTY, |s| {
                    s.zeroing_host(&(want & chunk), &allocated, &resident)
                }),
                (false, _) => self.state.as_ref().map_or(PageMask::EMPTY, |s| {
                    let there = self.places[p].resident;
                    s.zeroing(memory(p), region, &want, &resident, &there)
                        .pages()
                }),
            };
            for i in region.first()..region.outer() {
                let cell = &mut self.places[p].cells[i as usize];
                if zero.test(i) {
                    *cell = Some(Cell::Zero);
                } else if new {
                    *cell = Some(Cell::Foreign);
                }
            }
            match (&mut self.state, new) {
                (Some(s), true) => {
                    s.track(memory(p), &PageMask::EMPTY).unwrap();
                    s.added(memory(p), region, &zero);
                }
                (Some(s), false) => s.prepare(memory(p), &zero),
                (None, _) => {}
            }
        }
    }

    fn copy(&mut self, p: usize, want: PageMask) {
        let mut copied = PageMask::EMPTY;
        for page in want.pages() {
            let from = (0..PROCESSORS).find(|&o| self.places[o].resident.test(page));
            if let Some(from) = from {
                self.places[p].cells[page as usize] = self.places[from].cells[page as usize];
                self.copies += 1;
                copied.set(page);
            }
        }
        if let Some(s) = &mut self.state {
            s.prepare(memory(p), &copied);
        }
    }

    /// The pages that are resident in `p`'s memory.
    pub fn resident_on(&self, p: usize) -> PageMask {
        self.places[p].resident
    }

    /// Whether `p` has a chunk for the first page.
    pub fn has_chunk(&self, p: usize) -> bool {
        self.places[p].cells[0].is_some()
    }

    /// Unmaps `mask` from all processors, and nothing else.
    pub fn unmap(&mut self, mask: PageMask) {
        for place in &mut self.places {
            place.readable -= mask;
            place.writable -= mask;
        }
    }

    /// Whether some processor maps a page of `mask`.
    pub fn maps(&self, mask: PageMask) -> bool {
        self.places.iter().any(|p| p.readable.intersects(&mask))
    }

    /// From now on the program may read anything that it ever wrote to `mask`, or zeros.
    pub fn forget(&mut self, mask: PageMask) {
        for page in mask.pages() {
            self.truth[page as usize].must = None;
        }
    }

    /// Takes residency of `mask` from all processors, and its mappings.
    pub fn drop_everywhere(&mut self, mask: PageMask) {
        for place in &mut self.places {
            place.resident -= mask;
            place.readable -= mask;
            place.writable -= mask;
        }
    }

    pub fn discard(&mut self, range: Range<u16>, mode: Mode, shift: u32, mapped_2m: bool) {
        let resident = self.resident();
        let mut state = self.state.take().unwrap_or_else(|| {
            let mut s = BlockState::new(self.len);
            for (i, place) in self.places.iter().enumerate() {
                s.track(memory(i), &place.resident).unwrap();
            }
            s
        });
        let facts = Facts {
            resident,
            mapped_2m,
        };
        let plan = state.plan(Region::new(range.start, range.end), mode, shift, &facts);
        self.drop_everywhere(plan.drop);
        state.commit(&plan);
        self.state = Some(state);
        self.forget(plan.discarded);
    }

    /// Takes the chunk of a GPU away.
    pub fn evict(&mut self, p: usize) {
        if self.places[p].cells[0].is_none() {
            return;
        }
        let region = Region::new(0, self.len);
        let there = self.places[p].resident;
        let copies = self.copies;
        let free = self
            .state
            .as_ref()
            .is_some_and(|s| s.queue(memory(p), &there) != Queue::Used);
        if let Some(mut s) = self.state.take() {
            let needless = s.needless(&(there & region.into()));
            self.take_residency(p, needless);
            s.dropped(&(needless - self.resident()));
            self.state = Some(s);
        }
        let left = self.places[p].resident;
        let elsewhere = (0..PROCESSORS)
            .filter(|&o| o != p)
            .fold(PageMask::EMPTY, |m, o| m | self.places[o].resident);
        let to_host = left - elsewhere;
        self.populate(CPU, to_host);
        self.copy(CPU, to_host);
        self.places[CPU].resident |= to_host;
        self.take_residency(p, left);
        self.places[p].cells.fill(None);
        if let Some(s) = &mut self.state {
            s.released(memory(p), region);
        }
        self.needless_copy |= free && self.copies != copies;
    }

    fn take_residency(&mut self, p: usize, mask: PageMask) {
        let place = &mut self.places[p];
        place.resident -= mask;
        place.readable -= mask;
        place.writable -= mask;
    }

    /// Gives the host chunk of `page` back, if nothing is resident in it.
    pub fn free_host(&mut self, page: u16) {
        let region = self.chunk_of(CPU, page);
        if self.places[CPU].resident.intersects(&region.into()) {
            return;
        }
        for i in region.first()..region.outer() {
            self.places[CPU].cells[i as usize] = None;
        }
        if let Some(s) = &mut self.state {
            s.released(memory(CPU), region);
        }
    }

    /// Drops the state, where that is allowed.
    pub fn drop_state(&mut self) {
        if self.state.as_ref().is_some_and(BlockState::is_idle) {
            self.state = None;
        }
    }

    /// The invariants of [`BlockState`].
    pub fn check_invariants(&self) {
        let Some(s) = &self.state else { return };
        let resident = self.resident();
        assert!(!s.lazy.intersects(&s.eager));
        assert!(s.lazy.is_subset(&resident));
        assert!(!s.eager.intersects(&resident));
        for (i, place) in self.places.iter().enumerate() {
            assert!(
                place.resident.is_subset(&s.prepared_in(memory(i))),
                "processor {i}"
            );
            for page in s.prepared_in(memory(i)).pages() {
                let cell = place.cells[page as usize];
                assert!(
                    !matches!(cell, None | Some(Cell::Foreign)),
                    "{i}: page {page} {cell:?}"
                );
            }
        }
    }
}
