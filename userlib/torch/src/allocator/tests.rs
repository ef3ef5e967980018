// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Against a device that only writes down what it is told.

use core::ffi::c_int;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use uvmrust::{Error, Result};

use super::release::{add, common};
use super::*;
use crate::device::{Capture, Mark};
use crate::sizes::BLOCK;

mod captures;
mod graphs;
mod late;
mod lazy;
mod random;
mod short;
mod streams;
mod waits;

#[derive(Clone, Debug, PartialEq)]
enum Did {
    Alloc(u64, u64),
    Free(u64),
    Discard(u64, Queue),
    Prefetch(u64, Queue),
    Wait(Queue, Queue),
    Drain(Queue),
    DrainAll,
    Marked(Queue),
    Reached(Queue),
}
use Did::*;

#[derive(Default)]
struct Log {
    did: RefCell<Vec<Did>>,
    next: Cell<u64>,
    limit: Cell<Option<u64>>,
    /// The error that an allocation gives.
    no_alloc: Cell<Option<Error>>,
    held: Cell<u64>,
    sizes: RefCell<HashMap<u64, u64>>,
    no_discard: Cell<bool>,
    /// The error that a discard gives, which is under way nevertheless.
    half_discard: Cell<Option<Error>>,
    no_prefetch: Cell<bool>,
    /// A byte whose prefetch fails, also where others' do not.
    bad: Cell<u64>,
    /// What is prefetched now will fail when its stream comes there.
    fails_late: Cell<bool>,
    /// So many prefetches will fail so.
    to_fail: Cell<u64>,
    failed_prefetches: Cell<u64>,
    /// How many prefetches were tried.
    prefetches: Cell<u32>,
    no_wait: Cell<bool>,
    no_drain: Cell<bool>,
    no_mark: Cell<bool>,
    /// What is marked has not passed.
    stuck: Cell<bool>,
    /// The blocks of UVM's that are lazily discarded.
    lazy: RefCell<BTreeSet<u64>>,
    /// What the program has discarded lazily, by its first byte, and where that ends.
    of_program: RefCell<BTreeMap<u64, u64>>,
    /// All streams are part of one capture.
    capturing: Cell<bool>,
    /// The number of that one.
    number: Cell<u64>,
    /// Streams that are destroyed: nobody may name them any more.
    destroyed: RefCell<BTreeSet<Queue>>,
    /// Streams that are part of captures, with their numbers.
    captured: RefCell<BTreeMap<Queue, u64>>,
    /// The devices that have a context.
    active: RefCell<BTreeSet<c_int>>,
    /// Free and total; `None`: not told, so that memory counts as short.
    memory: Cell<Option<(u64, u64)>>,
    /// How often that was asked, and whether a mark had passed.
    asked: Cell<u32>,
    /// Who has named a thread's own stream, to mark or to wait for what is in it.
    named: RefCell<Vec<Thread>>,
}

impl Log {
    fn write(&self, did: Did, fails: &Cell<bool>) -> Result<()> {
        match fails.get() {
            true => Err(Error::NotSupported),
            false => {
                self.did.borrow_mut().push(did);
                Ok(())
            }
        }
    }

    fn there(&self, queue: Queue) {
        let destroyed = self.destroyed.borrow().contains(&queue);
        assert!(!destroyed, "{queue:?} is destroyed");
    }

    /// The streams come to all that was put into them.
    fn streams_run(&self) {
        let failed = self.failed_prefetches.get() + self.to_fail.take();
        self.failed_prefetches.set(failed);
    }

    fn names(&self, queue: Queue) {
        if queue.stream == StreamId::PER_THREAD {
            self.named.borrow_mut().push(Thread::current());
        }
    }

    fn take(&self) -> Vec<Did> {
        self.did.take()
    }

    /// The program discards bytes lazily by itself.
    fn program_discards(&self, base: u64, length: u64) {
        self.end_lazy(base, length);
        self.of_program.borrow_mut().insert(base, base + length);
    }

    /// What the program has discarded of these bytes can be used again.
    fn end_lazy(&self, base: u64, length: u64) {
        let mut ranges = self.of_program.borrow_mut();
        let end = base + length;
        let touched: Vec<_> = ranges.range(..end).map(|(&from, &to)| (from, to)).collect();
        for (from, to) in touched.into_iter().filter(|&(_, to)| to > base) {
            ranges.remove(&from);
            for (from, to) in [(from, base.min(to)), (end.max(from), to)] {
                if from < to {
                    ranges.insert(from, to);
                }
            }
        }
    }

    /// Whether the program has discarded some of these bytes.
    fn is_lazy(&self, base: u64, length: u64) -> bool {
        let ranges = self.of_program.borrow();
        let mut before = ranges.range(..base + length);
        before.any(|(_, &to)| to > base)
    }
}

/// The blocks of UVM's that a range touches.
fn blocks(range: Range) -> impl Iterator<Item = u64> {
    let end = range.base + range.length;
    (range.base / BLOCK * BLOCK..end).step_by(BLOCK as usize)
}

impl Device for &Log {
    fn alloc(&self, length: u64, device: c_int) -> Result<u64> {
        self.active.borrow_mut().insert(device);
        if let Some(error) = self.no_alloc.get() {
            return Err(error);
        }
        if self
            .limit
            .get()
            .is_some_and(|limit| self.held.get() + length > limit)
        {
            return Err(Error::NoMemory);
        }
        self.held.set(self.held.get() + length);
        self.next.set(self.next.get() + (1 << 40));
        let base = self.next.get();
        self.sizes.borrow_mut().insert(base, length);
        self.did.borrow_mut().push(Alloc(base, length));
        Ok(base)
    }

    fn memory(&self, _device: c_int) -> Result<(u64, u64)> {
        self.asked.set(self.asked.get() + 1);
        self.memory.get().ok_or(Error::NotSupported)
    }

    fn drain_all(&self, _device: c_int) -> Result<()> {
        self.write(DrainAll, &self.no_drain)
    }

    fn drain(&self, queue: Queue) -> Result<()> {
        self.there(queue);
        match self.capturing.get() {
            true => Err(Error::Capture),
            false => self.write(Drain(queue), &self.no_drain),
        }
    }

    fn free(&self, base: u64, _device: c_int) {
        let length = self
            .sizes
            .borrow_mut()
            .remove(&base)
            .expect("given back twice");
        self.held.set(self.held.get() - length);
        for block in blocks(Range { base, length }) {
            self.lazy.borrow_mut().remove(&block);
        }
        self.end_lazy(base, length);
        self.did.borrow_mut().push(Free(base));
    }

    fn discard(&self, range: Range, queue: Queue) -> Result<()> {
        self.there(queue);
        self.write(Discard(range.base, queue), &self.no_discard)?;
        for block in blocks(range) {
            assert!(self.lazy.borrow_mut().insert(block), "discarded twice");
        }
        self.half_discard.get().map_or(Ok(()), Err)
    }

    fn prefetch(&self, range: Range, queue: Queue) -> Result<()> {
        self.there(queue);
        self.prefetches.set(self.prefetches.get() + 1);
        if (range.base..range.base + range.length).contains(&self.bad.get()) {
            return Err(Error::Driver);
        }
        self.write(Prefetch(range.base, queue), &self.no_prefetch)?;
        self.to_fail
            .set(self.to_fail.get() + u64::from(self.fails_late.get()));
        for block in blocks(range) {
            self.lazy.borrow_mut().remove(&block);
        }
        self.end_lazy(range.base, range.length);
        Ok(())
    }

    fn failed_prefetches(&self) -> u64 {
        self.failed_prefetches.get()
    }

    fn wait(&self, queue: Queue, other: Queue) -> Result<()> {
        self.there(queue);
        self.there(other);
        self.names(other);
        self.write(Wait(queue, other), &self.no_wait)
    }

    fn mark(&self, queue: Queue) -> Result<Mark> {
        self.there(queue);
        self.names(queue);
        self.write(Marked(queue), &self.no_mark)?;
        let (event, context) = (queue.stream.0, queue.device as usize);
        Ok(Mark { event, context })
    }

    fn passed(&self, _mark: Mark) -> bool {
        self.asked.set(self.asked.get() + 1);
        !self.stuck.get()
    }

    fn reach(&self, mark: Mark) -> Result<()> {
        let marked = queue(mark.context as c_int, mark.event);
        self.write(Reached(marked), &self.no_drain)
    }

    fn capture(&self, queue: Queue) -> Capture {
        self.there(queue);
        match (self.captured.borrow().get(&queue), self.capturing.get()) {
            (Some(&number), _) => Capture::Into(number),
            (None, true) => Capture::Into(self.number.get()),
            (None, false) => Capture::None,
        }
    }

    fn active(&self) -> Vec<c_int> {
        self.active.borrow().iter().copied().collect()
    }
}

const fn queue(device: c_int, stream: usize) -> Queue {
    Queue {
        device,
        stream: StreamId(stream),
    }
}

const S: Queue = queue(0, 16);
const T: Queue = queue(0, 32);
const LARGE: usize = 12 << 20;

/// An allocation for which nothing that is free is large enough: what was freed in the queue is discarded. The
/// log has all but the call for the new memory.
fn allocate_more(log: &Log, a: &Allocator<&Log>, queue: Queue) {
    let base = a.malloc(1 << 30, queue).unwrap();
    let mut did = log.did.borrow_mut();
    did.retain(|did| !matches!(did, Alloc(at, _) if *at == base));
}

#[test]
fn a_large_block_is_discarded_at_the_next_allocation_and_prefetched_when_reused() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    allocate_more(&log, &a, S);
    assert_eq!(a.malloc(LARGE - 1, S), Some(base));
    assert_eq!(
        log.take(),
        [Alloc(base, 12 << 20), Discard(base, S), Prefetch(base, S)]
    );
    let stats = a.stats();
    assert_eq!(
        (stats.mallocs, stats.reused, stats.held_bytes),
        (3, 1, (1 << 30) + (12 << 20))
    );
    assert_eq!(
        (stats.discarded_bytes, stats.prefetched_bytes),
        (12 << 20, 12 << 20)
    );
}

#[test]
fn blocks_stay_with_their_stream_device_and_class() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    assert_ne!(a.malloc(LARGE, T), Some(base));
    assert_ne!(a.malloc(LARGE, queue(1, 16)), Some(base));
    assert_ne!(a.malloc(2 * LARGE, S), Some(base));
    assert_eq!(a.malloc(LARGE, S), Some(base));
}

#[test]
fn without_discard_nothing_is_prefetched() {
    let log = Log::default();
    log.no_discard.set(true);
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    allocate_more(&log, &a, S);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_eq!(log.take().len(), 1);
}

#[test]
fn a_discarded_block_that_can_not_be_prefetched_is_not_given_out() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    allocate_more(&log, &a, S);
    log.no_prefetch.set(true);
    let other = a.malloc(LARGE, S).unwrap();
    assert_ne!(other, base);
    assert_eq!(log.take()[2..], [Alloc(other, 12 << 20)]);
    a.empty_cache();
    assert_eq!(log.take(), [Drain(S), Free(base)]);
    assert_eq!(a.stats().held_bytes, (1 << 30) + (12 << 20));
}

#[test]
fn nothing_is_discarded_or_prefetched_while_a_graph_is_captured() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    let kept = a.malloc(LARGE, S).unwrap();
    a.free(base);
    log.capturing.set(true);
    log.take();
    a.free(kept);
    assert_eq!(log.take(), []);
    log.capturing.set(false);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_eq!(a.malloc(LARGE, S), Some(kept));
}

/// The graph uses them whenever it is launched, in whatever stream.
#[test]
fn what_is_allocated_in_a_capture_is_the_graphs_for_good() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let cached = [LARGE, 1000].map(|size| a.malloc(size, S).unwrap());
    cached.iter().for_each(|&base| a.free(base));
    log.no_discard.set(true);
    let undiscarded = a.malloc(2 * LARGE, S).unwrap();
    a.free(undiscarded);
    log.capturing.set(true);
    let sizes = [LARGE, 2 * LARGE, 1000, 1000];
    let graphs = sizes.map(|size| a.malloc(size, S).unwrap());
    // What other work may still use is not for it, and what it has is its own.
    let fresh = |base| base != undiscarded && !cached.contains(&base);
    assert!(graphs.into_iter().all(fresh), "{graphs:?} {cached:?}");
    a.free(graphs[0]);
    assert!(!graphs.contains(&a.malloc(LARGE, S).unwrap()));
    log.capturing.set(false);
    log.take();
    a.record_stream(graphs[1], T.stream);
    graphs.iter().for_each(|&base| a.free(base));
    a.empty_cache();
    let freed = |did: &Did| matches!(did, Free(base) if graphs.contains(base));
    assert!(!log.take().iter().any(freed));
    assert!(sizes.iter().all(|&size| {
        let base = a.malloc(size, S).unwrap();
        !graphs.contains(&base)
    }));
}

#[test]
fn other_streams_are_waited_for_before_the_discard() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream(base, T.stream);
    a.record_stream(base, T.stream);
    a.record_stream(base, S.stream);
    a.free(base);
    assert_eq!(log.take()[1..], [Wait(S, T)]);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(base, S)]);
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream(base, T.stream);
    log.no_wait.set(true);
    // It cannot be waited for in the stream: it is asked later.
    log.take();
    a.free(base);
    assert_eq!(log.take(), [Marked(T)]);
    a.trim(u64::MAX);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(base, S)]);
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream(base, T.stream);
    log.no_mark.set(true);
    a.free(base);
    assert_ne!(
        a.malloc(LARGE, S),
        Some(base),
        "nobody knows when it is free"
    );
    log.no_mark.set(false);
    a.trim(u64::MAX);
    assert_eq!(a.malloc(LARGE, S), Some(base));
}

/// A wait would break the capture, or become part of it.
#[test]
fn what_others_use_is_freed_when_no_stream_is_captured_any_more() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream(base, T.stream);
    log.take();
    log.capturing.set(true);
    a.free(base);
    assert_eq!(log.take(), []);
    assert_ne!(a.malloc(LARGE, S), Some(base));
    log.take();
    log.capturing.set(false);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_eq!(log.take(), [Wait(S, T)]);
}

#[test]
fn the_cache_is_kept_where_nobody_can_wait() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    log.take();
    log.capturing.set(true);
    a.empty_cache();
    assert_eq!((log.take(), a.stats().held_bytes), (vec![], 12 << 20));
    log.capturing.set(false);
    a.empty_cache();
    let freed = vec![Drain(S), Free(base)];
    assert_eq!((log.take(), a.stats().held_bytes), (freed, 0));
}

#[test]
fn small_ones_share_a_block_and_are_discarded_with_the_last_of_it() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let bases: Vec<_> = (0..2048).map(|_| a.malloc(1000, S).unwrap()).collect();
    let mut sorted = bases.clone();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|w| w[1] == w[0] + 1024));
    assert_eq!(log.take(), [Alloc(sorted[0], 2 << 20)]);
    let another = a.malloc(1000, S).unwrap();
    assert_eq!(log.take(), [Alloc(another, 2 << 20)]);
    let (last, others) = bases.split_last().unwrap();
    others.iter().for_each(|&base| a.free(base));
    a.empty_cache();
    assert_eq!(log.take(), []);
    assert!(a.malloc(1000, S).is_some_and(|base| sorted.contains(&base)));
    a.free(sorted[0]);
    assert_eq!(log.take(), []);
    a.free(*last);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [], "a large one could not have it");
    assert_eq!(a.malloc(1000, S), Some(another + 1024));
    assert_eq!(log.take(), [Discard(sorted[0], S)]);
    a.empty_cache();
    assert_eq!(log.take(), [Drain(S), Free(sorted[0])]);
}

/// Where one large block fits: a second is refused, and given, on another stream, once the first
/// is free.
fn refused_then_given(log: &Log) -> Allocator<&Log> {
    log.limit.set(Some(20 << 20));
    let a = Allocator::new(log);
    let base = a.malloc(LARGE, S).unwrap();
    assert_eq!(a.malloc(LARGE, S), None);
    a.free(base);
    assert!(a.malloc(LARGE, T).is_some());
    a
}

#[test]
fn the_cache_is_emptied_when_memory_is_short() {
    let log = Log::default();
    let a = refused_then_given(&log);
    assert_eq!(a.malloc(usize::MAX, T), None);
    assert_eq!(a.stats().held_bytes, 12 << 20);
}

#[test]
fn what_is_kept_is_kept_of_all_devices_together() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let ours = [1, 3, 4].map(|n| a.malloc(n * LARGE, S).unwrap());
    let theirs = a.malloc(2 * LARGE, queue(1, 16)).unwrap();
    ours.iter().chain([&theirs]).for_each(|&base| a.free(base));
    let kept = |a: &Allocator<&Log>| {
        [0, 1].map(|device| a.device_stats(device).reserved_bytes.current as usize / LARGE)
    };
    a.trim(10 * LARGE as u64);
    assert_eq!(kept(&a), [8, 2]);
    a.trim(6 * LARGE as u64);
    assert_eq!(kept(&a), [4, 2]);
    a.trim(2 * LARGE as u64);
    assert_eq!(kept(&a), [1, 0]);
}

/// A program that is told of no memory would go on with less, and a wait may never end.
#[test]
fn an_error_of_cudas_is_told_and_not_taken_for_no_memory() {
    let log = Log::default();
    let a = Allocator::new(&log);
    a.free(a.malloc(LARGE, S).unwrap());
    log.take();
    for error in [Error::Driver, Error::NoContext] {
        log.no_alloc.set(Some(error));
        assert_eq!(a.try_malloc(2 * LARGE, S), Err(error));
    }
    assert_eq!(log.take(), []);
    let stats = a.device_stats(0);
    assert_eq!((stats.retries, stats.failures), (0, 0));
    log.no_alloc.set(Some(Error::NoMemory));
    assert_eq!(a.try_malloc(2 * LARGE, S), Err(Error::NoMemory));
    let stats = a.device_stats(0);
    assert_eq!((stats.retries, stats.failures), (1, 1));
}

#[test]
fn strange_frees_are_left_alone() {
    let log = Log::default();
    let a = Allocator::new(&log);
    a.free(4096);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    a.free(base);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_ne!(a.malloc(LARGE, S), Some(base));
}

/// Numbers below the one that is given, from the environment's SEED.
fn random() -> impl FnMut(u64) -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1u64);
    println!("SEED={seed}");
    let mut random = seed;
    move |n| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    }
}
