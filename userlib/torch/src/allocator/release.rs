// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Frees: what a block waits for before it is free, and what is given back to CUDA.

use core::ffi::c_int;

use uvmrust::Range;

use super::lock;
use super::state::{State, Used};
use crate::device::{Device, Mark, Queue, StreamId};
use crate::heap::{Owner, Pool};
use crate::thread::Thread;

/// A block that was freed, and waits to be free.
#[derive(Debug)]
pub(super) struct Deferred {
    base: u64,
    block: Used,
    /// What others had to do with it at the free, each with its stream. Without any, the block
    /// waits for the end of a capture.
    marks: Vec<(Queue, Mark)>,
}

impl Deferred {
    /// The marks of a block of this device's memory, without those of default streams of other devices.
    pub(super) fn marks_but_guesses(&self, device: c_int) -> impl Iterator<Item = Mark> + '_ {
        let known = move |queue: &Queue| !is_guess(device, queue);
        let marks = self.marks.iter().filter(move |(queue, _)| known(queue));
        marks.map(|&(_, mark)| mark)
    }
}

/// A segment that is idle.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) device: c_int,
    /// How long it is, in bytes.
    pub(super) length: u64,
    /// A launch may still use it, so that it is kept.
    pub(super) of_graph: bool,
}

impl<D: Device> State<D> {
    /// Does what [`super::Allocator::free`] describes.
    pub(super) fn free(&mut self, base: u64) {
        let Some(mut block) = self.used.remove(&base) else {
            return;
        };
        self.settle();
        if let Some((pool, length)) = self.heap.taken(base) {
            block.freed_by = Some(Thread::current());
            let stats = &mut self.gpu(pool.queue.device).stats;
            stats.blocks.down(1);
            stats.allocated_bytes.down(length);
            stats.requested_bytes.down(block.requested);
        }
        self.release(base, block);
    }

    /// Forgets the pools of a device that have neither a graph nor memory any more.
    pub(super) fn forget_pools(&mut self, device: c_int) {
        let heap = &self.heap;
        let has_memory = |pool| heap.has(device, Owner::Graph(pool));
        lock(&self.graphs).forget(device, has_memory);
    }

    /// Frees what has waited for the end of a capture, or for others that are done with it.
    pub(super) fn settle(&mut self) {
        // Those of one queue are done in their order.
        let mut busy: Vec<Queue> = Vec::new();
        for mut waiting in std::mem::take(&mut self.deferred) {
            waiting.marks.retain(|&(queue, mark)| {
                let left = busy.contains(&queue) || !self.device.passed(mark);
                // Those of two threads' own streams have one name.
                if left && queue.stream != StreamId::PER_THREAD {
                    busy.push(queue);
                }
                left
            });
            if waiting.marks.is_empty() {
                self.release(waiting.base, waiting.block);
            } else {
                self.deferred.push(waiting);
            }
        }
    }

    fn release(&mut self, base: u64, mut block: Used) {
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
        let of_another = others.iter().any(is_own) && block.freed_by != Some(Thread::current());
        if of_another
            || underway
            || others.iter().any(captured)
            || (enqueues && captured(&pool.queue))
            || (lazy && self.may_be_launched(pool))
        {
            // Who frees it later may be another thread, which cannot wait for this one's stream.
            let marks = if of_another {
                Vec::new()
            } else {
                self.marks(&mut block, |queue| is_own(queue) && !captured(queue))
            };
            self.defer(base, block, marks);
            return;
        }
        // A graph may be launched in any stream, so a wait in one is not enough. Nor do we wait:
        // the others may go on only after what this thread, or another, does next. That holds for
        // another device's default stream too, which is here for a guess: it may wait for this one.
        let waits = pool.owner == Owner::Stream
            && !others
                .iter()
                .any(|other| is_guess(pool.queue.device, other))
            && others
                .iter()
                .all(|&other| self.device.wait(pool.queue, other).is_ok());
        if !others.is_empty() && !waits {
            return self.ask_later(base, block);
        }
        if lazy && !self.end_lazy(Range { base, length }, &block.lazy, pool.queue) {
            // By then, its stream has waited for the others.
            block.others.clear();
            return self.defer(base, block, Vec::new());
        }
        if let Some(part) = self.heap.give(base) {
            if pool.owner == Owner::Stream {
                self.freed(part, pool);
            }
        }
    }

    fn defer(&mut self, base: u64, block: Used, marks: Vec<(Queue, Mark)>) {
        self.deferred.push(Deferred { base, block, marks });
    }

    /// The block is free when the others that use it have come to where they are now.
    fn ask_later(&mut self, base: u64, mut block: Used) {
        let marks = self.marks(&mut block, |_| true);
        self.defer(base, block, marks);
    }

    /// Marks where some of the others that use a block are now. Those that cannot be asked are tried
    /// again later, a thread's own stream by that thread, or with its device ([`Self::take_unnamed`]).
    fn marks(&self, block: &mut Used, of: impl Fn(&Queue) -> bool) -> Vec<(Queue, Mark)> {
        let mut marks = Vec::new();
        block.others.retain(|&queue| {
            let mark = of(&queue).then(|| self.device.mark(queue));
            match mark {
                Some(Ok(mark)) => {
                    marks.push((queue, mark));
                    false
                }
                None | Some(Err(_)) => true,
            }
        });
        marks
    }

    /// Whether a launch of a graph may still use the memory of a pool, or do again what was captured
    /// with it.
    fn may_be_launched(&self, pool: Pool) -> bool {
        match pool.owner {
            Owner::Stream => false,
            Owner::Graph(graph) => !lock(&self.graphs).is_gone(pool.queue.device, graph),
            Owner::SomeGraph => true,
        }
    }

    /// A part is about to be free, with blocks of which the program has discarded some lazily. Those
    /// that it has as a whole count as discarded, and so are prefetched before they are given out.
    /// What it has of blocks that it shares is prefetched now. `false`: that failed, and nobody may
    /// use the part until it has been done.
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

    /// Does what [`super::Allocator::discarded_lazily`] describes.
    pub(super) fn discarded_lazily(&mut self, range: Range) {
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

    /// Does what [`crate::uvmrust_torch_record_stream`] describes.
    pub(super) fn record_stream(&mut self, base: u64, device: Option<c_int>, stream: StreamId) {
        let Some((pool, _)) = self.heap.taken(base) else {
            return;
        };
        let own = pool.queue;
        let shared = stream.shared();
        let devices = match device {
            // Its handle says which stream it is.
            _ if !stream.is_special() => vec![own.device],
            Some(device) => vec![device],
            // Which device's default stream it is, is not said.
            None => {
                let mut devices = self.device.active();
                devices.insert(0, own.device);
                devices
            }
        };
        let Some(block) = self.used.get_mut(&base) else {
            return;
        };
        for device in devices {
            for stream in [shared, stream] {
                let queue = Queue { device, stream };
                if queue != own && !block.others.contains(&queue) {
                    block.others.push(queue);
                }
            }
        }
    }

    /// The blocks of a device's memory that wait for marks, by their addresses; none while a capture may
    /// be under way, whose end such a wait could hold up.
    pub(super) fn marked(&mut self, device: c_int) -> Vec<u64> {
        self.settle();
        if self.underway() {
            return Vec::new();
        }
        let of_device = |base| {
            let taken = self.heap.taken(base);
            taken.is_some_and(|(pool, _)| pool.queue.device == device)
        };
        let waiting = self.deferred.iter().map(|waiting| waiting.base);
        waiting.filter(|&base| of_device(base)).collect()
    }

    /// Takes out one of [`Self::marked`], if it still waits: its marks are not asked, and so are there, until it
    /// is put back.
    pub(super) fn take_marked(&mut self, base: u64) -> Option<Deferred> {
        let at = self
            .deferred
            .iter()
            .position(|waiting| waiting.base == base)?;
        Some(self.deferred.remove(at))
    }

    /// Gives back what [`Self::take_marked`] took.
    pub(super) fn put_back_marked(&mut self, waiting: Deferred) {
        self.deferred.push(waiting);
    }

    /// Takes out the blocks that wait for a device's own stream of another thread, which has made no
    /// mark there: what is freed from now on is not waited for with them. None while a capture may
    /// be under way, which a wait for the device would break. The legacy stream tells of one of
    /// a thread's own stream.
    pub(super) fn take_unnamed(&mut self, device: c_int) -> Vec<Deferred> {
        let stream = StreamId::LEGACY;
        if self.underway() || self.device.capturing(Queue { device, stream }) {
            return Vec::new();
        }
        let here = |queue: &Queue| is_own(queue) && queue.device == device;
        let (unnamed, others) =
            std::mem::take(&mut self.deferred)
                .into_iter()
                .partition(|waiting| {
                    waiting.block.freed_by != Some(Thread::current())
                        && waiting.block.others.iter().any(here)
                });
        self.deferred = others;
        unnamed
    }

    /// Gives back what [`Self::take_unnamed`] took; `done`: the device was waited for.
    pub(super) fn put_back(&mut self, unnamed: Vec<Deferred>, device: c_int, done: bool) {
        for mut waiting in unnamed {
            let others = &mut waiting.block.others;
            others.retain(|queue| !(done && is_own(queue) && queue.device == device));
            self.deferred.push(waiting);
        }
    }

    /// The segments that are idle.
    pub(super) fn idle(&mut self) -> Vec<Idle> {
        self.settle();
        let idle = self.heap.idle().into_iter();
        let of = |(range, pool): (Range, Pool)| Idle {
            device: pool.queue.device,
            length: range.length,
            of_graph: self.may_be_launched(pool),
        };
        idle.map(of).collect()
    }

    /// Takes a device's idle segments out of the cache, the largest first, until no more than `keep`
    /// bytes are left in such. None while a capture may be under way.
    pub(super) fn take_idle(&mut self, device: c_int, keep: u64) -> Vec<(Range, Pool)> {
        self.settle();
        let mut idle = self.heap.idle();
        idle.retain(|(_, pool)| pool.queue.device == device);
        let mut cached: u64 = idle.iter().map(|(range, _)| range.length).sum();
        if self.underway() {
            return Vec::new();
        }
        // The largest first, so that few calls do.
        idle.sort_by_key(|(range, _)| core::cmp::Reverse(range.length));
        idle.retain(|&(range, pool)| {
            let take = cached > keep && !self.may_be_launched(pool);
            if take {
                cached -= range.length;
                self.heap.reserve(range.base);
            }
            take
        });
        idle
    }

    /// Forgets a segment of [`State::take_idle`], which nobody uses any more.
    pub(super) fn forget(&mut self, segment: Range, pool: Pool) {
        self.heap.remove(segment.base);
        self.forget_pools(pool.queue.device);
        self.stats.held_bytes -= segment.length;
        let gpu = self.gpu(pool.queue.device);
        gpu.forget_noted(segment, pool);
        let stats = &mut gpu.stats;
        stats.segments.down(1);
        stats.reserved_bytes.down(segment.length);
    }
}

/// Whether it is the own default stream of whichever thread calls.
fn is_own(queue: &Queue) -> bool {
    queue.stream == StreamId::PER_THREAD
}

/// Whether a queue that uses memory of a device is the default stream of another device, which
/// nobody has named: it is asked, and nothing waits for it.
fn is_guess(device: c_int, other: &Queue) -> bool {
    other.device != device && other.stream.is_special()
}

/// What ranges have of the bytes from one address to another.
pub(super) fn common(from: u64, to: u64, ranges: &[Range]) -> impl Iterator<Item = Range> + '_ {
    let both = move |range: &Range| {
        let base = from.max(range.base);
        let end = to.min(range.base + range.length);
        let length = end.checked_sub(base).filter(|&length| length != 0)?;
        Some(Range { base, length })
    };
    ranges.iter().filter_map(both)
}

/// Adds a range to ranges that are apart from each other, and stay so.
pub(super) fn add(ranges: &mut Vec<Range>, range: Range) {
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
