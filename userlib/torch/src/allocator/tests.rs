// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Against a device that only writes down what it is told.

use std::cell::{Cell, RefCell};

use uvmrust::{Error, Result};

use super::*;

#[derive(Clone, Debug, PartialEq)]
enum Did {
    Alloc(u64, usize),
    Free(u64),
    Discard(u64, StreamId),
    Prefetch(u64, StreamId),
    Wait(StreamId, StreamId),
}
use Did::*;

#[derive(Default)]
struct Log {
    did: RefCell<Vec<Did>>,
    next: Cell<u64>,
    limit: Cell<Option<u64>>,
    held: Cell<u64>,
    sizes: RefCell<HashMap<u64, usize>>,
    no_discard: Cell<bool>,
    no_prefetch: Cell<bool>,
    no_wait: Cell<bool>,
    capturing: Cell<bool>,
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

    fn take(&self) -> Vec<Did> {
        self.did.take()
    }
}

impl Device for &Log {
    fn alloc(&self, length: usize) -> Result<u64> {
        if self
            .limit
            .get()
            .is_some_and(|limit| self.held.get() + length as u64 > limit)
        {
            return Err(Error::NoMemory);
        }
        self.held.set(self.held.get() + length as u64);
        self.next.set(self.next.get() + (1 << 40));
        let base = self.next.get();
        self.sizes.borrow_mut().insert(base, length);
        self.did.borrow_mut().push(Alloc(base, length));
        Ok(base)
    }

    fn free(&self, base: u64) {
        let length = self
            .sizes
            .borrow_mut()
            .remove(&base)
            .expect("given back twice");
        self.held.set(self.held.get() - length as u64);
        self.did.borrow_mut().push(Free(base));
    }

    fn discard(&self, range: Range, stream: StreamId) -> Result<()> {
        self.write(Discard(range.base, stream), &self.no_discard)
    }

    fn prefetch(&self, range: Range, _device: c_int, stream: StreamId) -> Result<()> {
        self.write(Prefetch(range.base, stream), &self.no_prefetch)
    }

    fn wait(&self, stream: StreamId, other: StreamId) -> Result<()> {
        self.write(Wait(stream, other), &self.no_wait)
    }

    fn capturing(&self, _stream: StreamId) -> bool {
        self.capturing.get()
    }
}

const S: StreamId = StreamId(16);
const T: StreamId = StreamId(32);
const LARGE: usize = 5 << 20;

#[test]
fn a_large_block_is_discarded_when_freed_and_prefetched_when_reused() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let base = a.malloc(LARGE, 0, S).unwrap();
    a.free(base);
    assert_eq!(a.malloc(LARGE - 1, 0, S), Some(base));
    assert_eq!(
        log.take(),
        [Alloc(base, 6 << 20), Discard(base, S), Prefetch(base, S)]
    );
    let stats = a.stats();
    assert_eq!(
        (stats.mallocs, stats.reused, stats.held_bytes),
        (2, 1, 6 << 20)
    );
    assert_eq!(
        (stats.discarded_bytes, stats.prefetched_bytes),
        (6 << 20, 6 << 20)
    );
}

#[test]
fn blocks_stay_with_their_stream_device_and_class() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let base = a.malloc(LARGE, 0, S).unwrap();
    a.free(base);
    assert_ne!(a.malloc(LARGE, 0, T), Some(base));
    assert_ne!(a.malloc(LARGE, 1, S), Some(base));
    assert_ne!(a.malloc(2 * LARGE, 0, S), Some(base));
    assert_eq!(a.malloc(LARGE, 0, S), Some(base));
}

#[test]
fn without_discard_nothing_is_prefetched() {
    let log = Log::default();
    log.no_discard.set(true);
    let mut a = Allocator::new(&log);
    let base = a.malloc(LARGE, 0, S).unwrap();
    a.free(base);
    assert_eq!(a.malloc(LARGE, 0, S), Some(base));
    assert_eq!(log.take().len(), 1);
}

#[test]
fn a_discarded_block_that_can_not_be_prefetched_is_not_given_out() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let base = a.malloc(LARGE, 0, S).unwrap();
    a.free(base);
    log.no_prefetch.set(true);
    let other = a.malloc(LARGE, 0, S).unwrap();
    assert_ne!(other, base);
    assert_eq!(log.take()[2..], [Free(base), Alloc(other, 6 << 20)]);
    assert_eq!(a.stats().held_bytes, 6 << 20);
}

#[test]
fn nothing_is_discarded_or_prefetched_while_a_graph_is_captured() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let base = a.malloc(LARGE, 0, S).unwrap();
    let kept = a.malloc(LARGE, 0, S).unwrap();
    a.free(base);
    log.capturing.set(true);
    a.free(kept);
    assert_eq!(a.malloc(LARGE, 0, S), Some(kept));
    assert_ne!(a.malloc(LARGE, 0, S), Some(base));
    log.capturing.set(false);
    assert_eq!(a.malloc(LARGE, 0, S), Some(base));
}

#[test]
fn other_streams_are_waited_for_before_the_discard() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let base = a.malloc(LARGE, 0, S).unwrap();
    a.record_stream(base, T);
    a.record_stream(base, T);
    a.record_stream(base, S);
    a.free(base);
    assert_eq!(log.take()[1..], [Wait(S, T), Discard(base, S)]);
    let base = a.malloc(LARGE, 0, S).unwrap();
    a.record_stream(base, T);
    log.no_wait.set(true);
    a.free(base);
    assert_eq!(log.take().last(), Some(&Free(base)));
    assert_ne!(a.malloc(LARGE, 0, S), Some(base));
}

#[test]
fn small_blocks_share_and_are_not_discarded() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let bases: Vec<_> = (0..2048).map(|_| a.malloc(1000, 0, S).unwrap()).collect();
    let mut sorted = bases.clone();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|w| w[1] == w[0] + 1024));
    assert_eq!(log.take(), [Alloc(sorted[0], 2 << 20)]);
    bases.iter().for_each(|&base| a.free(base));
    a.empty_cache();
    assert_eq!(log.take(), []);
    assert!(a
        .malloc(1000, 0, S)
        .is_some_and(|base| sorted.contains(&base)));
    assert_eq!(log.take(), []);
}

#[test]
fn the_cache_is_emptied_when_memory_is_short() {
    let log = Log::default();
    log.limit.set(Some(8 << 20));
    let mut a = Allocator::new(&log);
    let base = a.malloc(LARGE, 0, S).unwrap();
    assert_eq!(a.malloc(LARGE, 0, S), None);
    a.free(base);
    assert!(a.malloc(LARGE, 0, T).is_some());
    assert_eq!(a.malloc(usize::MAX, 0, T), None);
    assert_eq!(a.stats().held_bytes, 6 << 20);
}

#[test]
fn strange_frees_are_left_alone() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    a.free(4096);
    let base = a.malloc(LARGE, 0, S).unwrap();
    a.free(base);
    a.free(base);
    assert_eq!(a.malloc(LARGE, 0, S), Some(base));
    assert_ne!(a.malloc(LARGE, 0, S), Some(base));
}

/// Random programs: no address is with two owners, and what is given out is never
/// discarded without a later prefetch.
#[test]
fn random_programs_never_share_or_forget_a_prefetch() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1u64);
    println!("SEED={seed}");
    let mut random = seed;
    let mut next = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let mut live: Vec<(u64, usize)> = Vec::new();
    let mut discarded = std::collections::HashSet::new();
    for _ in 0..20_000 {
        log.no_discard.set(next(8) == 0);
        log.no_prefetch.set(next(8) == 0);
        log.capturing.set(next(16) == 0);
        match next(5) {
            0..=2 if live.len() < 64 => {
                let size = 1 + next(12 << 20) as usize;
                let base = a
                    .malloc(size, next(2) as c_int, StreamId(next(3) as usize))
                    .unwrap();
                assert!(live
                    .iter()
                    .all(|&(b, s)| base + size as u64 <= b || b + s as u64 <= base));
                live.push((base, size));
            }
            3 if !live.is_empty() => {
                let (base, _) = live.swap_remove(next(live.len() as u64) as usize);
                a.free(base);
            }
            4 if next(50) == 0 => a.empty_cache(),
            _ => {}
        }
        for did in log.take() {
            match did {
                Discard(base, _) => assert!(discarded.insert(base)),
                Prefetch(base, _) | Free(base) => _ = discarded.remove(&base),
                _ => {}
            }
        }
        assert!(live.iter().all(|(base, _)| !discarded.contains(base)));
    }
    assert!(a.stats().reused > 100 && a.stats().discarded_bytes > 0);
}
