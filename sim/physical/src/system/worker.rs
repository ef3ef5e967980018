// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The machine as the driver's prefetch worker sees it.
//!
//! What the worker moves is over before its next step, so that a turn takes no virtual time.

use uvm_policy::evict::Chunk;
use uvm_policy::evict::Holder;
use uvm_policy::evict::RootChunks;
use uvm_policy::mask::PageMask;
use uvm_policy::prefetch::worker::Found;
use uvm_policy::prefetch::worker::Hindrances;
use uvm_policy::prefetch::worker::Machine;
use uvm_policy::prefetch::worker::Migrated;
use uvm_policy::prefetch::worker::Outcome;
use uvm_policy::prefetch::worker::Pages;
use uvm_policy::prefetch::worker::Settled;
use uvm_policy::prefetch::worker::To;
use uvm_policy::prefetch::worker::Worker;
use uvm_policy::prefetch::Correlator;
use uvm_policy::prefetch::Feed;
use uvm_policy::prefetch::Share;
use uvmsim_machine::BLOCK;

use super::System;
use super::HOLDER;
use crate::policies::BaseUvm;
use crate::policy::Tier;
use crate::RunError;

/// The generation of the GPU's queues, which last as long as the machine.
const GENERATION: u32 = 1;

/// What a process's kernels do, and what feeds it.
pub(crate) struct Tables {
    pub correlator: Correlator,
    pub feed: Feed,
    pub share: Share,
}

/// The machine and a process's tables, for one turn.
struct Turning<'s, 'a> {
    system: &'s mut System<'a>,
    tables: &'s mut Tables,
    /// The va_block that calls mean.
    chosen: Option<u32>,
}

impl System<'_> {
    /// The process begins another kernel, which its worker may learn of later.
    pub(crate) fn begins(&mut self, worker: &Worker) {
        worker.begins(&mut self.roots, GENERATION, HOLDER);
    }

    /// Runs the worker until it has nothing to do.
    pub(crate) fn work(&mut self, worker: &Worker, tables: &mut Tables) {
        let mut turning = Turning {
            system: self,
            tables,
            chosen: None,
        };
        while worker.turn(&mut turning).is_more() {}
    }

    /// The program moves tensor `t` to the GPU, and waits for that. The driver does not know that nobody has written
    /// there yet: what was discarded counts from now on.
    pub(crate) fn migrate(&mut self, t: u32) {
        for (b, pages) in self.parts(t) {
            if !self.bring(b, pages) {
                self.failure.get_or_insert(RunError::GpuFull);
                return;
            }
            self.written(b, pages);
        }
    }

    /// Brings pages of `b`. Whether there is memory for them.
    fn bring(&mut self, b: u32, pages: PageMask) -> bool {
        if !self.blocks[b as usize].chunk {
            if self.take_chunk(self.now, true, &BaseUvm).is_none() {
                return false;
            }
            self.blocks[b as usize].chunk = true;
            self.note_gpu_peak();
        }
        self.copy_in(b, pages, self.now);
        true
    }
}

impl Turning<'_, '_> {
    fn is_somewhere(&self, b: u32) -> bool {
        let block = self.system.blocks.get(b as usize);
        block.is_some_and(|block| !(block.gpu | block.live).is_empty())
    }
}

impl Machine for Turning<'_, '_> {
    const CHECKS: bool = true;

    fn broken(&mut self, invariant: &'static str) {
        panic!("prefetching: {invariant}");
    }

    fn tables<R>(&mut self, look: impl FnOnce(&mut Correlator, &Feed, &Share) -> R) -> R {
        let Tables {
            correlator,
            feed,
            share,
        } = &mut *self.tables;
        look(correlator, feed, share)
    }

    fn is_stopping(&mut self) -> bool {
        false
    }

    /// The worker runs between batches of faults (`run::service`), and time stands still while it does. So W-faults
    /// never has it wait here; the tests of `policy/prefetch/worker` and the driver do.
    fn faults(&mut self) -> bool {
        false
    }

    fn wait_faults(&mut self) -> bool {
        true
    }

    fn enter(&mut self) -> bool {
        true
    }

    fn leave(&mut self) {}

    fn holder(&self) -> Holder {
        HOLDER
    }

    fn chunks<R>(&mut self, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R> {
        Some(look(&mut self.system.roots, GENERATION))
    }

    fn free_chunks(&mut self, enough: u32) -> u32 {
        self.system.free_chunks().min(enough.into()) as u32
    }

    fn pick(&mut self, choose: impl FnOnce(&RootChunks) -> Option<Chunk>) -> Option<Chunk> {
        self.chosen = choose(&self.system.roots);
        self.chosen
    }

    fn victim(&mut self) -> Option<Hindrances> {
        self.chosen.map(|_| Hindrances::default())
    }

    fn next_block(&mut self, from: u64, _: u64) -> Option<Found> {
        let b = (from / BLOCK) as u32;
        self.chosen = self.is_somewhere(b).then_some(b);
        self.chosen.map(|b| Found {
            hindrances: Hindrances::default(),
            next: (u64::from(b) + 1) * BLOCK,
        })
    }

    fn lock(&mut self, _: To) {}

    fn unlock(&mut self) {}

    fn pages(&mut self) -> Pages {
        let Some(b) = self.chosen else {
            return Pages::default();
        };
        let block = &self.system.blocks[b as usize];
        Pages {
            populated: block.gpu | block.live,
            thrashing: PageMask::EMPTY,
            discarded: block.discarded,
            there: block.gpu,
        }
    }

    fn chunk(&mut self) -> Option<Chunk> {
        self.chosen
            .filter(|&b| self.system.blocks[b as usize].chunk)
    }

    fn drop_discarded(&mut self, leaving: &PageMask) -> Migrated {
        let Some(b) = self.chosen else {
            return Migrated::Failed;
        };
        // Nothing is copied of what is discarded.
        let discarded = *leaving & self.system.blocks[b as usize].discarded;
        self.migrate(0, &discarded, To::Host)
    }

    fn migrate(&mut self, _: u32, pages: &PageMask, to: To) -> Migrated {
        let (Some(b), now) = (self.chosen, self.system.now) else {
            return Migrated::Failed;
        };
        match to {
            To::Gpu if !self.system.bring(b, *pages) => return Migrated::NoRoom,
            To::Gpu => {}
            To::Host => {
                self.system.copy_out(b, *pages, now, Tier::Host, false);
            }
        }
        Migrated::Begun
    }

    fn settle(&mut self, _: u32) -> Settled {
        Settled {
            good: true,
            waited: false,
        }
    }

    fn waited(&mut self, _: u32) {}

    fn brought(&mut self, _: Outcome, _: u32) {}

    fn pushed_out(&mut self, _: u32) {}
}
