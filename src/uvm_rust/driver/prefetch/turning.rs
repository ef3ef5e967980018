// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A turn of the worker: `policy/prefetch/worker.rs` on upstream's VA space and GPU.

use super::{with_queues, Prefetcher, Process};
use crate::driver::discard::{drops, status};
use crate::driver::{evict, fault, quota};
use crate::ffi::block::{Locked, LockedBlock, Walk};
use crate::ffi::gpu::{BlockName, GpuHandle};
use crate::ffi::prefetch::Migration;
use crate::ffi::seam::{self, PmLock};
use crate::policy::evict::{Queue, RootChunks};
use crate::policy::mask::PageMask;
use crate::policy::prefetch::worker::{
    self, Found, Hindrances, Machine, Migrated, Outcome, Pages, Settled, Stored, To,
};
use crate::policy::prefetch::{Correlator, Feed, Share};
use kernel::prelude::*;

/// A VA space and a GPU, for the length of one turn of the worker, or at the end of the VA space.
pub(super) struct Turning<'a> {
    process: &'a Process,
    prefetcher: &'a Prefetcher,
    /// The memory for moves, from the first `enter` on, while the VA space is not entered.
    migration: Option<KBox<Migration>>,
    /// The VA space between `enter` and `leave`, or at its end. The GPU is registered there during that time.
    walk: Option<Walk<'a>>,
    /// Held from `enter` to `leave`; not held at the end of the VA space.
    pm: Option<PmLock>,
    /// The va_block that the chosen chunk belongs to, and its address. The block may be gone, so it is looked up again
    /// before use.
    noted: Option<(BlockName, u64)>,
    /// Where the va_block that is locked is moved to.
    to: Option<To>,
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.leave();
        if let Some(migration) = self.migration.take() {
            Migration::give(migration);
        }
    }
}

impl<'a> Turning<'a> {
    /// Begins a turn of `process` on the GPU of `prefetcher`. One thread at a time does so.
    pub(super) fn new(process: &'a Process, prefetcher: &'a Prefetcher) -> Self {
        Self {
            process,
            prefetcher,
            migration: None,
            walk: None,
            pm: None,
            noted: None,
            to: None,
        }
    }

    fn entered(&self) -> bool {
        self.pm.is_some()
    }

    /// Takes the VA space's lock if the GPU is registered there. Returns whether it is.
    fn visit(&mut self, ending: bool) -> bool {
        let space = self.process.home().space().lock();
        let gpu = space.gpu_by_number(self.prefetcher.gpu(), ending);
        if gpu.is_some() {
            self.walk = Some(match self.migration.take() {
                Some(migration) => Walk::to_move(space, migration),
                None => Walk::new(space),
            });
        }
        self.walk.is_some()
    }

    /// Calls `then` at the end of the VA space, with the GPU if it is still registered there.
    pub(super) fn ending(mut self, then: impl FnOnce(&mut Self)) {
        self.visit(true);
        then(&mut self);
    }

    /// The GPU, while the VA space is entered, or ends.
    fn gpu(&self) -> Option<GpuHandle<'_>> {
        let space = self.walk.as_ref()?.space();
        space.gpu_by_number(self.prefetcher.gpu(), !self.entered())
    }

    /// Chooses the va_block at the first memory from `from` to `last`. If there is memory: which block that is and what
    /// stands against moving it, if there is one, and where the memory ends.
    fn find(&mut self, from: u64, last: u64) -> Option<(Option<(BlockName, Hindrances)>, u64)> {
        self.unlock();
        if !self.entered() {
            return None;
        }
        let number = self.prefetcher.gpu();
        let walk = self.walk.as_mut()?;
        let first = walk.choose_range(from, last)?.span().first;
        walk.choose_block(from.max(first));
        let (walk, space) = (&*walk, walk.space());
        let (range, gpu) = (walk.range()?, space.gpu_by_number(number, false)?);
        let chosen = walk.chosen().map(|block| {
            let hindrances = Hindrances {
                no_block: false,
                preferred_elsewhere: range.is_preferred_elsewhere(gpu),
                read_duplicated: range.facts().read_duplicated,
                lite: range.is_lite(gpu),
                group_stays: !space.may_migrate(block.span()),
            };
            (block.name(), hindrances)
        });
        Some((chosen, range.span().last.wrapping_add(1)))
    }

    /// Calls `then` with the va_block that is locked, and the GPU.
    fn with_gpu<R>(
        &mut self,
        then: impl FnOnce(&mut LockedBlock<'_>, GpuHandle<'_>) -> R,
    ) -> Option<R> {
        let (number, ending) = (self.prefetcher.gpu(), !self.entered());
        let with_gpu = |Locked { block, space, .. }: Locked<'_>| {
            let gpu = space.gpu_by_number(number, ending)?;
            Some(then(block, gpu))
        };
        self.walk.as_mut()?.with_locked(with_gpu)?
    }
}

impl Machine for Turning<'_> {
    const CHECKS: bool = cfg!(uvm_checks);

    fn broken(&mut self, invariant: &'static str) {
        pr_err!("prefetching: {invariant}\n");
    }

    fn tables<R>(&mut self, look: impl FnOnce(&mut Correlator, &Feed, &Share) -> R) -> R {
        self.prefetcher.tables(look)
    }

    fn is_stopping(&mut self) -> bool {
        self.process.is_ending()
    }

    fn faults(&mut self) -> bool {
        fault::is_busy(self.prefetcher.parent())
    }

    fn wait_faults(&mut self) -> bool {
        // Locks that were held would cost time, not safety.
        fault::wait_idle(self.prefetcher.parent(), worker::FAULTS_WITHIN)
    }

    fn enter(&mut self) -> bool {
        if self.walk.is_none() && !self.is_stopping() {
            // It is had before the locks are. Without memory for moves nothing can be moved now.
            self.migration = self.migration.take().or_else(Migration::take);
            let pm = PmLock::try_read();
            if self.migration.is_some() && pm.is_some() && seam::healthy() && self.visit(false) {
                self.pm = pm;
            }
        }
        self.entered()
    }

    fn leave(&mut self) {
        (self.noted, self.to) = (None, None);
        if let Some(walk) = self.walk.take() {
            self.migration = walk.leave();
        }
        self.pm = None;
    }

    fn holder(&self) -> u64 {
        self.process.home().space().holder()
    }

    fn chunks<R>(&mut self, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R> {
        with_queues(self.gpu()?, look)
    }

    fn is_full(&mut self) -> bool {
        let home = self.process.home();
        let is_full = || {
            let gpu = self.gpu()?;
            let share = self.walk.as_ref()?.space().stats()?.share(gpu.index())?;
            Some(quota::is_full(gpu, share.quota(), home.space()))
        };
        is_full().unwrap_or(false)
    }

    fn free_chunks(&mut self, enough: u32) -> u32 {
        let Some(gpu) = self.gpu().filter(|_| self.entered()) else {
            return 0;
        };
        let more = enough.saturating_sub(gpu.pma_free());
        if more == 0 {
            return enough;
        }
        enough - more + gpu.chunks().length(Queue::Free, more)
    }

    fn pick(&mut self, choose: impl FnOnce(&RootChunks) -> Option<u32>) -> Option<u32> {
        let (chunk, noted) = self.gpu()?.chunks().pick(choose)?;
        self.noted = noted;
        Some(chunk)
    }

    fn victim(&mut self) -> Option<Hindrances> {
        self.unlock();
        let (noted, start) = self.noted?;
        // The block belongs to this VA space, and is alive, if the VA space's own tree has it.
        let (chosen, _) = self.find(start, start)?;
        let victim = chosen.filter(|(name, _)| *name == noted);
        if let (None, Some(walk)) = (victim, &mut self.walk) {
            walk.choose_none();
        }
        victim.map(|(_, hindrances)| hindrances)
    }

    fn next_block(&mut self, from: u64, last: u64) -> Option<Found> {
        let (chosen, next) = self.find(from, last)?;
        let none = Hindrances {
            no_block: true,
            ..Hindrances::default()
        };
        let hindrances = chosen.map_or(none, |(_, hindrances)| hindrances);
        Some(Found { hindrances, next })
    }

    fn lock(&mut self, to: To) {
        if let Some(walk) = self.walk.as_mut().filter(|walk| !walk.is_locked()) {
            walk.lock_to_move(to == To::Host);
            self.to = Some(to);
        }
    }

    fn unlock(&mut self) {
        self.to = None;
        if let Some(walk) = &mut self.walk {
            walk.unlock();
        }
    }

    fn pages(&mut self) -> Pages {
        let Some(of) = self.with_gpu(|block, gpu| block.pages(gpu)) else {
            return Pages::default();
        };
        // The discard state is read again: it may have been made while a migration had released the lock.
        let state = self.walk.as_mut().and_then(Walk::state);
        Pages {
            populated: of.host.set() | of.there.set() | of.staged.set() | of.reached.set(),
            thrashing: of.thrashing.set(),
            discarded: state.map_or(PageMask::EMPTY, |state| state.discarded()),
            there: of.there.set(),
        }
    }

    fn stored(&mut self) -> Stored {
        let stored = self.with_gpu(|block, _| block.on_device());
        stored.unwrap_or_default()
    }

    fn fetch(&mut self, pages: &PageMask) -> bool {
        self.to == Some(To::Gpu)
            && self.with_gpu(|block, _| block.ask_for_prefetch(pages)) == Some(true)
    }

    fn tell_of_reads(&mut self) {
        self.with_gpu(|block, _| block.tell_of_reads());
    }

    fn chunk(&mut self) -> Option<u32> {
        self.with_gpu(|block, gpu| block.chunk(gpu, block.span().first))?
    }

    fn drop_discarded(&mut self, leaving: &PageMask) -> Migrated {
        if self.to != Some(To::Host) {
            return Migrated::Failed;
        }
        match self.with_gpu(|block, _| drops::needless(block, leaving)) {
            Some(status::OK) => Migrated::Begun,
            Some(status::AGAIN) => Migrated::Again,
            _ => Migrated::Failed,
        }
    }

    fn migrate(&mut self, copy: u32, pages: &PageMask, to: To) -> Migrated {
        if self.to != Some(to) {
            return Migrated::Failed;
        }
        // A writer of the VA space waits for this thread, and the fault service waits behind that writer: so this thread
        // waits for no memory.
        let tenant = self.prefetcher.tenant();
        let guess = (to == To::Gpu).then(|| evict::guess(tenant));
        if matches!(guess, Some(None)) {
            return Migrated::NoRoom;
        }
        for run in pages.runs() {
            let moved = self.with_gpu(|block, gpu| {
                let gpu = (to == To::Gpu).then_some(gpu);
                block.migrate(gpu, to.is_mapped(), copy, run)
            });
            match moved {
                Some(status::OK) => {}
                Some(status::AGAIN) => return Migrated::Again,
                Some(status::NO_MEMORY) if to == To::Gpu => return Migrated::NoRoom,
                _ => return Migrated::Failed,
            }
        }
        Migrated::Begun
    }

    fn settle(&mut self, copy: u32) -> Settled {
        let entered = self.entered();
        let walk = self.walk.as_mut().filter(|_| entered);
        walk.map_or(Settled::default(), |walk| walk.settle(copy))
    }

    fn waited(&mut self, beside: u32) {
        self.prefetcher.waited(beside);
    }

    fn brought(&mut self, outcome: Outcome, pages: u32) {
        self.prefetcher.brought(outcome, pages);
    }

    fn pushed_out(&mut self, pages: u32) {
        self.prefetcher.pushed_out(pages);
    }
}
