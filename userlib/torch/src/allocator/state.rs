// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a device's lock guards: its cache, and how memory is had and discarded. No call here is one to
//! wait for a GPU, since all threads' allocations on it wait for the lock. CUDA's own calls may
//! wait inside nevertheless: for memory, for locks of its own, or for room in a stream's queue.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use uvmrust::{Error, Range, Result};

use super::lock;
use super::release::Deferred;
use crate::device::{Capture, Device, Mark, Queue, StreamId};
use crate::graphs::Graphs;
use crate::heap::{pool_for, Heap, Owner, Pool};
use crate::pressure::Pressure;
use crate::sizes::{segment_for, BLOCK};
use crate::stats::{DeviceStats, Stats};
use crate::thread::Thread;

/// A block that PyTorch has.
#[derive(Debug)]
pub(super) struct Used {
    /// How many bytes the program asked for, before they were rounded up to a size of ours.
    pub(super) requested: u64,
    /// Other streams that use it, each once. A thread's own default stream is the one of the thread
    /// that frees. It is here beside the legacy stream, which comes behind the work of all
    /// threads: an own stream may have no work behind a wait for another stream, and that the
    /// legacy stream waits for a wait is not promised (`uvmrust::cuda::Cuda::drain`).
    pub(super) others: Vec<Queue>,
    /// Who has freed it: to anybody else the handle of an own stream means another stream.
    pub(super) freed_by: Option<Thread>,
    /// The blocks of which the program has discarded some lazily, apart from each other. No matter
    /// whether it has prefetched that since: by which calls it may, is not known here.
    pub(super) lazy: Vec<Range>,
}

/// What the allocator keeps of one device.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) stats: DeviceStats,
    pub(super) pressure: Pressure,
    /// What is free is being discarded: memory is short, and no capture under way.
    short: bool,
    /// A prefetch has failed: nothing is discarded, since it could not be used again.
    no_discard: Option<Failed>,
    /// How many prefetches had failed in streams when that was last asked ([`Device::failed_prefetches`]).
    failed_in_streams: u64,
    /// Where the part begins that was tried last after a failure; 0: none was. The next is another one, as what
    /// fails may be of the part or its stream.
    tried: u64,
    /// What is to be discarded at the next allocation from its pool: where it begins and ends.
    pub(super) noted: BTreeMap<Pool, BTreeMap<u64, u64>>,
}

/// What has become of a prefetch that failed.
#[derive(Debug, Default)]
struct Failed {
    /// Frees since then, or since the last try.
    frees: u32,
    /// One is being tried.
    trial: Option<Trial>,
}

/// A prefetch of which is not known yet whether its stream has done it.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Behind it in its stream.
    mark: Mark,
    /// How many had failed in streams before.
    failed_before: u64,
}

/// So many frees after a prefetch has failed, one is tried again.
const TRY_AGAIN: u32 = 64;

impl Gpu {
    fn new(failed_in_streams: u64) -> Self {
        Self {
            stats: DeviceStats::default(),
            pressure: Pressure::new(),
            short: false,
            no_discard: None,
            failed_in_streams,
            tried: 0,
            noted: BTreeMap::new(),
        }
    }

    /// Notes a free part. What was noted of it before is part of it.
    fn note(&mut self, part: Range, pool: Pool) {
        self.forget_noted(part, pool);
        let noted = self.noted.entry(pool).or_default();
        noted.insert(part.base, part.base + part.length);
    }

    /// Forgets what was noted in a range.
    pub(super) fn forget_noted(&mut self, range: Range, pool: Pool) {
        let end = range.base + range.length;
        if let Some(noted) = self.noted.get_mut(&pool) {
            while let Some((&base, _)) = noted.range(range.base..end).next() {
                noted.remove(&base);
            }
            if noted.is_empty() {
                self.noted.remove(&pool);
            }
        }
    }
}

/// All that an allocator keeps of a device, which a lock guards.
#[derive(Debug)]
pub(super) struct State<D> {
    pub(super) device: D,
    pub(super) heap: Heap,
    pub(super) used: BTreeMap<u64, Used>,
    /// Freed, and not free yet, in the order of the frees.
    pub(super) deferred: Vec<Deferred>,
    /// The same for all devices: a capture of one may come to have streams of another.
    pub(super) graphs: Arc<Mutex<Graphs>>,
    gpus: BTreeMap<c_int, Gpu>,
    pub(super) stats: Stats,
}

impl<D: Device> State<D> {
    pub(super) fn new(device: D, graphs: Arc<Mutex<Graphs>>) -> Self {
        Self {
            device,
            heap: Heap::new(),
            used: BTreeMap::new(),
            deferred: Vec::new(),
            graphs,
            gpus: BTreeMap::new(),
            stats: Stats::default(),
        }
    }

    /// The devices of which there is, or was, memory: one, where the numbers are possible ones.
    pub(super) fn devices(&self) -> Vec<c_int> {
        self.gpus.keys().copied().collect()
    }

    pub(super) fn gpu(&mut self, device: c_int) -> &mut Gpu {
        let new = || Gpu::new(self.device.failed_prefetches());
        self.gpus.entry(device).or_insert_with(new)
    }

    /// Memory of `length` bytes or a little more, of which the program asked for `size`, or CUDA's
    /// error.
    pub(super) fn malloc(&mut self, size: usize, length: u64, queue: Queue) -> Result<Range> {
        self.settle();
        let stream = queue.stream.shared();
        let owner = match self.device.capture(queue) {
            Capture::None => Owner::Stream,
            Capture::Into(number) => {
                let thread = Thread::current();
                let pool = lock(&self.graphs).pool_of(queue, number, thread);
                pool.map_or(Owner::SomeGraph, Owner::Graph)
            }
            Capture::Unknown => Owner::SomeGraph,
        };
        let pool = pool_for(Queue { stream, ..queue }, length, owner);
        let base = match self.reuse_for(pool, length, queue) {
            Some(base) => {
                self.stats.reused += 1;
                base
            }
            None => self.fresh(pool, length)?,
        };
        self.discard_noted(pool, queue);
        self.stats.mallocs += 1;
        let requested = size as u64;
        let own = pool.owner == Owner::Stream && queue.stream == StreamId::PER_THREAD;
        let block = Used {
            requested,
            others: own.then_some(queue).into_iter().collect(),
            freed_by: None,
            lazy: Vec::new(),
        };
        self.used.insert(base, block);
        let given = self.heap.taken(base).map_or(length, |(_, length)| length);
        let stats = &mut self.gpu(queue.device).stats;
        stats.blocks.up(1);
        stats.allocated_bytes.up(given);
        stats.requested_bytes.up(requested);
        let length = given;
        Ok(Range { base, length })
    }

    /// Whether a capture with a pool is under way, or may be at any moment.
    pub(super) fn underway(&mut self) -> bool {
        let device = &self.device;
        lock(&self.graphs).underway(|queue| device.capture(queue))
    }

    /// A part has become free, and what it was merged with: notes it, if a discard is any good. Nobody has said
    /// yet that the pool's stream waits for all who use it ([`Self::discard_noted`]).
    pub(super) fn freed(&mut self, part: Range, pool: Pool) {
        let device = pool.queue.device;
        if self.gpu(device).pressure.freed() {
            self.sample(device);
        }
        self.try_again(device);
        if self.look(device) {
            self.gpu(device).note(part, pool);
        }
    }

    /// At an allocation from a pool: discards what was noted of the pool and is still free. PyTorch's own
    /// allocator may give all of that out here, so whoever calls has had the stream wait for those who use it.
    /// At the free that need not be so: autograd frees what a kernel in a side stream reads, and has the stream
    /// of the allocation wait for that one only afterwards.
    fn discard_noted(&mut self, pool: Pool, queue: Queue) {
        let device = pool.queue.device;
        if !self.gpu(device).noted.contains_key(&pool) || !self.look(device) {
            return;
        }
        let noted = self.gpu(device).noted.remove(&pool).unwrap_or_default();
        let parts = noted.into_iter();
        let parts = parts.flat_map(|(from, to)| self.heap.free_between(pool, from, to));
        let parts: Vec<Range> = parts
            .filter(|&part| !self.heap.to_discard(part).is_empty())
            .collect();
        // What a thread's own stream waits for by now, the pool's stream does not know.
        let own = queue != pool.queue && !parts.is_empty();
        if own
            && (self.device.capturing(pool.queue) || self.device.wait(pool.queue, queue).is_err())
        {
            return;
        }
        for part in parts {
            self.discard(part, pool.queue);
        }
    }

    /// Whether prefetches fail: one did when it was asked for, or in a stream since, and none was done after that.
    /// What failed in a stream is usable, since the library has brought it to the host; but the next discard would
    /// be of no more use.
    fn prefetches_fail(&mut self, device: c_int) -> bool {
        let failed = self.device.failed_prefetches();
        let gpu = self.gpu(device);
        if std::mem::replace(&mut gpu.failed_in_streams, failed) != failed {
            gpu.no_discard.get_or_insert_default();
        }
        gpu.no_discard.is_some()
    }

    /// After a prefetch that failed, as for want of memory, tries one now and then, of a block that
    /// nobody uses. Once its stream has done that, all that is free is looked at anew.
    fn try_again(&mut self, device: c_int) {
        let Some(failed) = &mut self.gpu(device).no_discard else {
            return;
        };
        failed.frees += 1;
        let due = failed.frees >= TRY_AGAIN && failed.trial.is_none();
        if due && !self.underway() {
            let trial = self.try_one(device);
            self.gpu(device).no_discard = Some(Failed { frees: 0, trial });
        }
        self.end_trial(device);
    }

    /// Has a block prefetched that nobody uses. `None`: there is none, or it has failed already.
    fn try_one(&mut self, device: c_int) -> Option<Trial> {
        let (block, queue) = self.block_to_try(device, self.gpus.get(&device)?.tried)?;
        let failed_before = self.device.failed_prefetches();
        let gpu = self.gpu(device);
        (gpu.tried, gpu.failed_in_streams) = (block.base, failed_before);
        if !self.prefetch(block, queue) {
            return None;
        }
        let mark = self.device.mark(queue).ok()?;
        Some(Trial {
            mark,
            failed_before,
        })
    }

    /// If what is tried has been done, discards are again of use.
    fn end_trial(&mut self, device: c_int) {
        let failed = self.gpu(device).no_discard.as_mut();
        let Some(trial) = failed.and_then(|failed| failed.trial) else {
            return;
        };
        if !self.device.passed(trial.mark) {
            return;
        }
        let done = self.device.failed_prefetches() == trial.failed_before;
        let gpu = self.gpu(device);
        gpu.no_discard = (!done).then(Failed::default);
        if done {
            gpu.short = false;
        }
    }

    /// A block that nobody uses: the first of the free part behind the one that was tried last, or of the first
    /// part of all.
    fn block_to_try(&self, device: c_int, tried: u64) -> Option<(Range, Queue)> {
        let free = self.heap.free_parts(device).into_iter();
        let blocks = free.map(|(part, pool)| (self.heap.whole_blocks(part), pool.queue));
        let mut blocks: Vec<_> = blocks.filter(|(blocks, _)| blocks.length != 0).collect();
        blocks.sort_unstable_by_key(|(blocks, _)| (blocks.base <= tried, blocks.base));
        let mut blocks = blocks.into_iter();
        let (Range { base, .. }, queue) =
            blocks.find(|(_, queue)| !self.device.capturing(*queue))?;
        let length = BLOCK;
        Some((Range { base, length }, queue))
    }

    /// Asks how much is free on a GPU.
    fn sample(&mut self, device: c_int) {
        if let Ok((free, total)) = self.device.memory(device) {
            self.gpu(device).pressure.sample(free, total);
        }
    }

    /// Whether what is free is to be discarded: memory is short, and no capture under way. When
    /// that begins, all that is free already is noted, what was freed in the capture too.
    fn look(&mut self, device: c_int) -> bool {
        let live = self.heap.live(device);
        let now = self.gpu(device).pressure.is_short(live) && !self.underway();
        let before = std::mem::replace(&mut self.gpu(device).short, now);
        if now && !before {
            for (part, pool) in self.heap.free_parts(device) {
                self.gpu(device).note(part, pool);
            }
        }
        now
    }

    /// Discards the blocks that lie in a free part as a whole and may hold data.
    fn discard(&mut self, part: Range, queue: Queue) {
        let device = queue.device;
        if self.gpu(device).no_discard.is_some() || self.device.capturing(queue) {
            return;
        }
        for range in self.heap.to_discard(part) {
            match self.device.discard(range, queue) {
                Ok(()) => {}
                Err(Error::NotSupported | Error::Invalid | Error::Capture) => return,
                // It may be discarded, or be about to be (`Uvm::discard_async`).
                Err(_) => {
                    self.heap.discarded(range);
                    return;
                }
            }
            self.heap.discarded(range);
            self.stats.discarded_bytes += range.length;
            let stats = &mut self.gpu(device).stats;
            stats.discards += 1;
            stats.discarded_bytes += range.length;
        }
    }

    /// What was done so far for one device.
    pub(super) fn device_stats(&self, device: c_int) -> DeviceStats {
        let Some(gpu) = self.gpus.get(&device) else {
            return DeviceStats::default();
        };
        DeviceStats {
            live_bytes: self.heap.live(device),
            budget_bytes: gpu.pressure.budget().unwrap_or(0),
            short: gpu.short.into(),
            ..gpu.stats
        }
    }

    /// Begins the peaks of a device anew.
    pub(super) fn reset_peaks(&mut self, device: c_int) {
        let stats = &mut self.gpu(device).stats;
        for metric in [
            &mut stats.blocks,
            &mut stats.allocated_bytes,
            &mut stats.requested_bytes,
            &mut stats.segments,
            &mut stats.reserved_bytes,
        ] {
            metric.peak = metric.current;
        }
    }

    /// For use in `queue`, which is that of the pool, or a thread's own default stream: then it
    /// is made to wait for what other threads did.
    fn reuse_for(&mut self, pool: Pool, length: u64, queue: Queue) -> Option<u64> {
        let own = queue != pool.queue;
        if own && (self.device.capturing(queue) || self.device.capturing(pool.queue)) {
            return None;
        }
        let base = self.reuse(pool, length)?;
        if own && self.device.wait(queue, pool.queue).is_err() {
            self.heap.give(base);
            return None;
        }
        Some(base)
    }

    fn reuse(&mut self, pool: Pool, length: u64) -> Option<u64> {
        let device = pool.queue.device;
        // Where prefetches fail, what is discarded is lost until its segment is given back. It
        // must not stand before what can be used. A graph's memory is taken in a capture, where a
        // prefetch would break that.
        let no_prefetch = self.prefetches_fail(device) || pool.owner != Owner::Stream;
        let base = self.heap.find(pool, length, no_prefetch)?;
        for range in self.heap.to_prefetch(Range { base, length }) {
            if !self.prefetch(range, pool.queue) {
                // Without a prefetch it must not be used. It waits to be given back.
                self.gpu(device).no_discard.get_or_insert_default();
                return self.reuse(pool, length);
            }
        }
        self.heap.take(base, length);
        Some(base)
    }

    /// Makes what is lazily discarded in a range usable, and says whether that will be done. Where it fails in the
    /// stream, the range is usable as well, and the next call of [`Self::prefetches_fail`] finds it.
    pub(super) fn prefetch(&mut self, range: Range, queue: Queue) -> bool {
        if self.device.prefetch(range, queue).is_err() {
            return false;
        }
        self.stats.prefetched_bytes += range.length;
        let stats = &mut self.gpu(queue.device).stats;
        stats.prefetches += 1;
        stats.prefetched_bytes += range.length;
        true
    }

    /// Memory that was not in the cache.
    fn fresh(&mut self, pool: Pool, length: u64) -> Result<u64> {
        let device = pool.queue.device;
        if !self.device.capturing(pool.queue) {
            self.sample(device);
        }
        let segment = segment_for(length);
        let base = self.device.alloc(segment, device)?;
        self.heap.add(pool, base, segment);
        self.heap.take(base, length);
        self.stats.held_bytes += segment;
        let stats = &mut self.gpu(device).stats;
        stats.segments.up(1);
        stats.reserved_bytes.up(segment);
        self.look(device);
        Ok(base)
    }
}
