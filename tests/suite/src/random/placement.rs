// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Where pages are, and where they should be.

use vgpu_client::uvm::Uuid;
use vgpu_client::vgpu::INJECT_EVICT_PAGES;
use vgpu_client::{Error, Gpu, NvStatus};

use super::area::PAGE_WORDS;
use super::program::{Done, Program};
use crate::rm::{inject, IN_USE};

impl Program {
    /// The CPU, or any GPU.
    pub fn processor(&mut self) -> Uuid {
        let which = self.below(self.gpus.len() + 1);
        self.gpus.get(which).map_or(Uuid::CPU, Gpu::uuid)
    }

    pub(super) fn migrate(&mut self, index: u64, area: usize) -> Done {
        let to = self.processor();
        let (span, base, length) = self.pages(area);
        self.note(index, area, span, format!("migrate to {to:?}"));
        let managed = self.areas[area].buffer.is_managed();
        let node = if managed || to != Uuid::CPU { -1 } else { 0 };
        match self.process.migrate_with(base, length, to, node) {
            // Ordinary memory: the rest is left to move_pages(2), which we leave.
            Err(e) if !managed && e.status().is_some() => Ok(()),
            other => Ok(other?),
        }
    }

    /// A managed area from `area` on. Advice on part of a block of ordinary memory
    /// trips asserts of upstream's, which wants one policy for larger pages.
    pub(super) fn managed_from(&self, area: usize) -> Option<usize> {
        self.first_from(area, true)
    }

    /// The first area of managed or of ordinary memory from `area` on, around the end.
    pub fn first_from(&self, area: usize, managed: bool) -> Option<usize> {
        let all = self.areas.len();
        (area..area + all)
            .map(|i| i % all)
            .find(|&i| self.areas[i].buffer.is_managed() == managed)
    }

    pub(super) fn preferred_location(&mut self, index: u64, area: usize) -> Done {
        let to = self.processor();
        let (span, base, length) = self.pages(area);
        if self.chance(40) {
            self.note(index, area, span, "no preferred location");
            return self.split(self.process.unset_preferred_location(base, length));
        }
        self.note(index, area, span, format!("preferred location {to:?}"));
        self.split(self.process.set_preferred_location(base, length, to))
    }

    pub(super) fn accessed_by(&mut self, index: u64, area: usize) -> Done {
        let by = self.processor();
        let (span, base, length) = self.pages(area);
        let set = self.chance(60);
        self.note(index, area, span, format!("accessed by {by:?}: {set}"));
        let done = match set {
            true => self.process.set_accessed_by(base, length, by),
            false => self.process.unset_accessed_by(base, length, by),
        };
        self.split(done)
    }

    pub(super) fn read_duplication(&mut self, index: u64, area: usize) -> Done {
        let (span, base, length) = self.pages(area);
        let on = self.chance(60) && self.setup.read_duplication;
        self.note(index, area, span, format!("read duplication: {on}"));
        self.split(self.process.read_duplication(base, length, on))
    }

    /// How a call ended that may have to split a piece of memory.
    fn split(&self, done: Result<(), Error>) -> Done {
        match done {
            Err(e) if self.setup.splits_may_fail && e.status() == Some(NvStatus::NO_MEMORY) => {
                Ok(())
            }
            other => Ok(other?),
        }
    }

    pub(super) fn evict(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        let gpu = self.below(self.gpus.len());
        let va = self.areas[area]
            .buffer
            .address_of(span.first / PAGE_WORDS * PAGE_WORDS);
        if self.chance(70) {
            self.note(index, area, span, "evict by address");
            return match self.evict_at(gpu, va) {
                // Ordinary memory that UVM does not know yet.
                Err(e) if !self.areas[area].buffer.is_managed() && e.status().is_some() => Ok(()),
                other => Ok(other?),
            };
        }
        let count = 1 + self.below(8) as u64;
        self.note(
            index,
            area,
            span,
            format!("RM takes {count} pages of 2 MiB"),
        );
        inject(&self.gpus[gpu], INJECT_EVICT_PAGES, count)?;
        Ok(())
    }

    /// Has UVM give up the chunk behind an address, unless others may have a hand in that: parts of it may be theirs, and be
    /// held or fail.
    pub(super) fn evict_at(&self, gpu: usize, va: u64) -> Result<(), Error> {
        const PAGES_IN_USE: NvStatus = NvStatus(IN_USE);
        let done = self.gpus[gpu].evict(va).map(drop);
        match done.as_ref().map_err(Error::status) {
            Err(Some(NvStatus::NO_MEMORY | PAGES_IN_USE)) if self.setup.evictions_may_fail => {
                Ok(())
            }
            _ => done,
        }
    }
}
