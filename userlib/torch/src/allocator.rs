// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The cache: free memory by device, stream and size, and by graph.
//!
//! What is free is given out again in the stream in which it was used, so that no wait is
//! needed. While the GPU's memory is short ([`crate::pressure`]), the blocks of UVM's that are
//! free as a whole are discarded lazily, in the stream's order, and prefetched, in the same
//! order, before they are given out. While all fits, neither is done; but what the program has
//! discarded lazily before it freed it is prefetched as well.
//!
//! The threads' own default streams have one handle, so their memory is kept, discarded and
//! prefetched in the order of the legacy default stream, which waits for the work of all of these,
//! and they for it. What a thread's stream only waits for is not counted on (`Used::own`).
//!
//! What is allocated while its stream is being captured is the graph's, which may be launched
//! at any time. PyTorch gives graphs pools by number: memory of one is used again by captures
//! with the same pool, whose graphs are launched one after the other in the order of their
//! captures, and is given back when the last of them is gone. Of other captures nobody says when
//! their graph goes: they get memory that nobody has had, and keep it.
//!
//! A block that other streams have used waits for them when it is freed: its own stream does, which
//! PyTorch's allocator does not ask of it. If that can not
//! be put into a stream, since one is being captured, the block waits to be freed.
//!
//! While a pool of a graph is begun, any stream may become part of the capture between a look at
//! it and the call that follows: another thread's. So no free puts anything into a stream then,
//! nobody waits for one, and nothing is given back, as in PyTorch's own allocator
//! (c10/cuda/CUDACachingAllocator.cpp: `captures_underway`). Of a capture that PyTorch does not
//! begin with a pool nothing is known before it is there: in such a program no other thread may
//! free while it begins.

use core::ffi::c_int;
use std::collections::BTreeMap;

use uvmrust::{Error, Range};

use crate::device::{Capture, Device, Queue, StreamId};
use crate::graphs::{GraphPool, Graphs};
use crate::heap::{pool_for, Heap, Owner, Pool};
use crate::pressure::Pressure;
use crate::sizes::{rounded, segment_for};
use crate::stats::{DeviceStats, Stats};

/// A block that PyTorch has.
#[derive(Debug)]
struct Used {
    /// How many bytes the program asked for, before they were rounded up to a size of ours.
    requested: u64,
    /// Other streams that use it, each once.
    others: Vec<Queue>,
    /// It is for use in a thread's own default stream. Such a stream may have no work behind a
    /// wait for another stream, and that the legacy stream waits for a wait no GPU has shown; the
    /// opposite was seen not to hold (`uvmrust::cuda::Cuda::drain`). So the legacy stream is
    /// made to wait for an event of the stream of the thread that frees.
    own: bool,
    /// The blocks of which the program has discarded some lazily, apart from each other. No matter
    /// whether it has prefetched that since: by which calls it may, is not known here.
    lazy: Vec<Range>,
}

/// What the allocator keeps of one device.
#[derive(Debug)]
struct Gpu {
    stats: DeviceStats,
    pressure: Pressure,
    /// What is free is being discarded: memory is short, and no capture under way.
    short: bool,
    /// A prefetch has failed: nothing is discarded any more, since it could not be used again.
    no_discard: bool,
}

impl Gpu {
    fn new() -> Self {
        Self {
            stats: DeviceStats::default(),
            pressure: Pressure::new(),
            short: false,
            no_discard: false,
        }
    }
}

/// An allocator on a device.
#[derive(Debug)]
pub struct Allocator<D> {
    device: D,
    heap: Heap,
    used: BTreeMap<u64, Used>,
    /// Freed while a stream that used them was being captured.
    deferred: Vec<(u64, Used)>,
    graphs: Graphs,
    gpus: BTreeMap<c_int, Gpu>,
    stats: Stats,
}

impl<D: Device> Allocator<D> {
    /// An allocator that has had no memory from `device` yet.
    pub const fn new(device: D) -> Self {
        Self {
            device,
            heap: Heap::new(),
            used: BTreeMap::new(),
            deferred: Vec::new(),
            graphs: Graphs::new(),
            gpus: BTreeMap::new(),
            stats: Stats {
                mallocs: 0,
                reused: 0,
                held_bytes: 0,
                discarded_bytes: 0,
                prefetched_bytes: 0,
            },
        }
    }

    fn gpu(&mut self, device: c_int) -> &mut Gpu {
        self.gpus.entry(device).or_insert_with(Gpu::new)
    }

    /// Does what [`crate::uvmrust_torch_malloc`] describes; `None` if there is no memory.
    pub fn malloc(&mut self, size: usize, queue: Queue) -> Option<u64> {
        let base = self.malloc_in(size, queue);
        if base.is_none() {
            self.gpu(queue.device).stats.failures += 1;
        }
        base
    }

    fn malloc_in(&mut self, size: usize, queue: Queue) -> Option<u64> {
        let length = rounded(size)?;
        self.settle();
        let stream = queue.stream.shared();
        let owner = match self.device.capture(queue) {
            Capture::None => Owner::Stream,
            Capture::Into(number) => {
                let thread = std::thread::current().id();
                let pool = self.graphs.pool_of(queue, number, thread);
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
        self.stats.mallocs += 1;
        let requested = size as u64;
        let block = Used {
            requested,
            others: Vec::new(),
            own: pool.owner == Owner::Stream && queue.stream == StreamId::PER_THREAD,
            lazy: Vec::new(),
        };
        self.used.insert(base, block);
        let given = self.heap.taken(base).map_or(length, |(_, length)| length);
        let stats = &mut self.gpu(queue.device).stats;
        stats.blocks.up(1);
        stats.allocated_bytes.up(given);
        stats.requested_bytes.up(requested);
        Some(base)
    }

    /// See [`crate::uvmrust_torch_free`]. What is not ours is left alone.
    pub fn free(&mut self, base: u64) {
        let Some(mut block) = self.used.remove(&base) else {
            return;
        };
        self.settle();
        if let Some((pool, length)) = self.heap.taken(base) {
            if block.own {
                let stream = StreamId::PER_THREAD;
                block.others.push(Queue {
                    stream,
                    ..pool.queue
                });
            }
            let stats = &mut self.gpu(pool.queue.device).stats;
            stats.blocks.down(1);
            stats.allocated_bytes.down(length);
            stats.requested_bytes.down(block.requested);
        }
        self.release(base, block);
    }

    /// Whether a capture with a pool is under way, or may be at any moment.
    fn underway(&mut self) -> bool {
        let device = &self.device;
        self.graphs.underway(|queue| device.capture(queue))
    }

    /// Forgets the pools that have neither a graph nor memory any more.
    fn forget_pools(&mut self) {
        let heap = &self.heap;
        let has_memory = |device, pool| heap.has(device, Owner::Graph(pool));
        self.graphs.forget(has_memory);
    }

    /// Frees what waits for the end of a capture.
    fn settle(&mut self) {
        for (base, block) in std::mem::take(&mut self.deferred) {
            self.release(base, block);
        }
    }

    fn release(&mut self, base: u64, block: Used) {
        let Some((pool, length)) = self.heap.taken(base) else {
            return;
        };
        // A graph that has one uses it at each launch, so nobody else ever may.
        if pool.owner == Owner::SomeGraph {
            return;
        }
        let lazy = !block.lazy.is_empty();
        let enqueues = lazy || !block.others.is_empty();
        let underway = enqueues && self.underway();
        let captured = |queue: &Queue| self.device.capturing(*queue);
        let others = &block.others;
        if underway
            || others.iter().any(captured)
            || (enqueues && captured(&pool.queue))
            || (lazy && self.may_be_launched(pool))
        {
            self.deferred.push((base, block));
            return;
        }
        let all = |done: &dyn Fn(Queue) -> bool| others.iter().all(|&other| done(other));
        // A graph may be launched in any stream, so we wait for the others; and if they can not
        // be waited for in the stream. What can not be waited for at all is lost.
        let waits = pool.owner == Owner::Stream
            && all(&|other| self.device.wait(pool.queue, other).is_ok());
        if !waits && !all(&|other| self.device.drain(other).is_ok()) {
            return;
        }
        if lazy && !self.end_lazy(Range { base, length }, &block.lazy, pool.queue) {
            return;
        }
        if let Some(part) = self.heap.give(base) {
            if pool.owner == Owner::Stream {
                self.freed(part, pool.queue);
            }
        }
    }

    /// Whether a launch of a graph may still do what was captured with the memory of a pool.
    fn may_be_launched(&self, pool: Pool) -> bool {
        let gone = |graph| self.graphs.is_gone(pool.queue.device, graph);
        matches!(pool.owner, Owner::Graph(graph) if !gone(graph))
    }

    /// A part is about to be free, with blocks of which the program has discarded some lazily. Those
    /// that it has as a whole count as discarded, and so are prefetched before they are given out.
    /// What it has of blocks that it shares is prefetched now. `false`: that failed, and nobody may
    /// use the part.
    fn end_lazy(&mut self, part: Range, lazy: &[Range], queue: Queue) -> bool {
        let inner = self.heap.whole_blocks(part);
        let (end, inner_end) = (part.base + part.length, inner.base + inner.length);
        for (from, to) in [(part.base, inner.base), (inner_end, end)] {
            let edge = common(from, to, lazy).next().is_some();
            let (base, length) = (from, to - from);
            if edge && !self.prefetch(Range { base, length }, queue) {
                return false;
            }
        }
        for range in common(inner.base, inner_end, lazy) {
            self.heap.discarded(range);
        }
        true
    }

    /// The program has discarded a range lazily, or may have. Nobody else gets the memory without a
    /// prefetch.
    pub fn discarded_lazily(&mut self, range: Range) {
        let end = range.base.saturating_add(range.length);
        if range.length == 0 {
            return;
        }
        for (&base, block) in self.used.range_mut(..end).rev() {
            let length = self.heap.taken(base).map_or(0, |(_, length)| length);
            if base + length <= range.base {
                return;
            }
            let (from, to) = (base.max(range.base), end.min(base + length));
            add(&mut block.lazy, self.heap.blocks_of(from, to));
        }
    }

    /// A part has become free, and what it was merged with: discards it, if that is any good.
    fn freed(&mut self, part: Range, queue: Queue) {
        let device = queue.device;
        if self.gpu(device).pressure.freed() {
            self.sample(device);
        }
        if self.look(device) {
            self.discard(part, queue);
        }
    }

    /// Asks how much is free on a GPU.
    fn sample(&mut self, device: c_int) {
        if let Ok((free, total)) = self.device.memory(device) {
            self.gpu(device).pressure.sample(free, total);
        }
    }

    /// Whether what is free is to be discarded: memory is short, and no capture under way. When
    /// that begins, all that is free already is discarded, what was freed in the capture too.
    fn look(&mut self, device: c_int) -> bool {
        let live = self.heap.live(device);
        let now = self.gpu(device).pressure.is_short(live) && !self.underway();
        let before = std::mem::replace(&mut self.gpu(device).short, now);
        if now && !before {
            for (part, queue) in self.heap.free_parts(device) {
                self.discard(part, queue);
            }
        }
        now
    }

    /// Discards the blocks that lie in a free part as a whole and may hold data.
    fn discard(&mut self, part: Range, queue: Queue) {
        let device = queue.device;
        if self.gpu(device).no_discard || self.device.capturing(queue) {
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

    /// Does what [`crate::uvmrust_torch_record_stream`] describes.
    pub fn record_stream(&mut self, base: u64, stream: StreamId) {
        let current = self.device.current();
        let (Some(block), Some((pool, _))) = (self.used.get_mut(&base), self.heap.taken(base))
        else {
            return;
        };
        let own = pool.queue;
        let stream = stream.shared();
        let mut add = |device| {
            let queue = Queue { device, stream };
            if queue != own && !block.others.contains(&queue) {
                block.others.push(queue);
            }
        };
        add(own.device);
        // Which device's default stream it is, is not said.
        if let (Some(device), true) = (current, stream.is_special()) {
            add(device);
        }
    }

    /// See [`crate::uvmrust_torch_empty_cache`]. Segments that are in use in part stay.
    pub fn empty_cache(&mut self) {
        self.trim(0);
    }

    /// Gives idle segments back, the largest first, until at most `keep` bytes are in them, as
    /// [`crate::uvmrust_torch_trim`] says.
    pub fn trim(&mut self, keep: u64) {
        self.settle();
        let mut idle = self.heap.idle();
        let mut cached: u64 = idle.iter().map(|(range, _)| range.length).sum();
        // The largest first, so that few calls do.
        idle.sort_by_key(|(range, _)| core::cmp::Reverse(range.length));
        for (range, pool) in idle {
            if cached <= keep {
                return;
            }
            if self.give_back(range, pool) {
                cached -= range.length;
            }
        }
    }

    /// PyTorch begins to allocate from a pool on a device, for a graph.
    pub fn begin_pool(&mut self, device: c_int, pool: GraphPool) {
        let thread = std::thread::current().id();
        self.graphs.begin(device, pool, thread);
    }

    /// Ends what [`Self::begin_pool`] began: allocations no longer go to the pool.
    pub fn end_pool(&mut self, device: c_int, pool: GraphPool) {
        self.graphs.end(device, pool);
    }

    /// A graph with memory of the pool is gone. When none is left, the next
    /// [`Allocator::trim`] gives the memory back.
    pub fn release_pool(&mut self, device: c_int, pool: GraphPool) {
        self.graphs.release(device, pool);
        self.forget_pools();
    }

    /// Counts on no more than this part of a device's memory, from 0 to 1.
    pub fn set_fraction(&mut self, device: c_int, fraction: f64) {
        self.gpu(device).pressure.set_fraction(fraction);
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What was done so far for one device.
    pub fn device_stats(&self, device: c_int) -> DeviceStats {
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
    pub fn reset_peaks(&mut self, device: c_int) {
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
        let no_prefetch = self.gpu(device).no_discard || pool.owner != Owner::Stream;
        let base = self.heap.find(pool, length, no_prefetch)?;
        for range in self.heap.to_prefetch(Range { base, length }) {
            if !self.prefetch(range, pool.queue) {
                // Without a prefetch it must not be used.
                self.gpu(device).no_discard = true;
                if self.heap.is_idle(base) {
                    self.trim_one(base);
                }
                return self.reuse(pool, length);
            }
        }
        self.heap.take(base, length);
        Some(base)
    }

    /// Makes what is lazily discarded in a range usable, and says whether that will be done.
    fn prefetch(&mut self, range: Range, queue: Queue) -> bool {
        if self.device.prefetch(range, queue).is_err() {
            return false;
        }
        self.stats.prefetched_bytes += range.length;
        let stats = &mut self.gpu(queue.device).stats;
        stats.prefetches += 1;
        stats.prefetched_bytes += range.length;
        true
    }

    fn trim_one(&mut self, base: u64) {
        let idle = self.heap.idle();
        if let Some(&(range, pool)) = idle.iter().find(|(range, _)| range.base == base) {
            self.give_back(range, pool);
        }
    }

    /// Memory that was not in the cache.
    fn fresh(&mut self, pool: Pool, length: u64) -> Option<u64> {
        let device = pool.queue.device;
        if !self.device.capturing(pool.queue) {
            self.sample(device);
        }
        let segment = segment_for(length);
        let base = match self.device.alloc(segment, device) {
            Ok(base) => base,
            Err(_) => {
                self.gpu(device).stats.retries += 1;
                self.empty_cache();
                self.device.alloc(segment, device).ok()?
            }
        };
        self.heap.add(pool, base, segment);
        self.heap.take(base, length);
        self.stats.held_bytes += segment;
        let stats = &mut self.gpu(device).stats;
        stats.segments.up(1);
        stats.reserved_bytes.up(segment);
        self.look(device);
        Some(base)
    }

    /// Gives a segment to CUDA when nothing that its stream has to do uses it any more, its
    /// discard for one. `false`: that can not be waited for now, or is not over, and it is
    /// still ours.
    fn give_back(&mut self, segment: Range, pool: Pool) -> bool {
        let device = pool.queue.device;
        if self.underway() {
            return false;
        }
        let done = match pool.owner {
            Owner::Stream => self.device.drain(pool.queue).is_ok(),
            // Its graphs were launched in whatever streams.
            Owner::Graph(graph) => {
                self.graphs.is_gone(device, graph) && self.device.drain_all(device).is_ok()
            }
            // A part of it is taken for ever, so that it is not idle.
            Owner::SomeGraph => false,
        };
        if !done {
            return false;
        }
        self.device.free(segment.base, device);
        self.heap.remove(segment.base);
        self.forget_pools();
        self.stats.held_bytes -= segment.length;
        let stats = &mut self.gpu(device).stats;
        stats.segments.down(1);
        stats.reserved_bytes.down(segment.length);
        true
    }
}

/// What ranges have of the bytes from one address to another.
fn common(from: u64, to: u64, ranges: &[Range]) -> impl Iterator<Item = Range> + '_ {
    let both = move |range: &Range| {
        let base = from.max(range.base);
        let end = to.min(range.base + range.length);
        let length = end.checked_sub(base).filter(|&length| length != 0)?;
        Some(Range { base, length })
    };
    ranges.iter().filter_map(both)
}

/// Adds a range to ranges that are apart from each other, and stay so.
fn add(ranges: &mut Vec<Range>, range: Range) {
    let (mut base, mut end) = (range.base, range.base + range.length);
    ranges.retain(|other| {
        let other_end = other.base + other.length;
        let apart = other.base > end || other_end < base;
        if !apart {
            (base, end) = (base.min(other.base), end.max(other_end));
        }
        apart
    });
    let length = end - base;
    ranges.push(Range { base, length });
}

#[cfg(test)]
mod tests;
