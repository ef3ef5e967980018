// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Captures that several threads have under way, and what others do meanwhile.

use super::*;

const POOL: GraphPool = GraphPool(0, 7);
const OTHER: GraphPool = GraphPool(0, 8);

/// `begin_pool`, and the capture behind it.
fn begin(a: &Allocator<&Log>, log: &Log, pool: GraphPool, queue: Queue, number: u64) {
    a.begin_pool(queue.device, pool);
    log.captured.borrow_mut().insert(queue, number);
}

/// The end of a capture, and `end_pool` behind it.
fn end(a: &Allocator<&Log>, log: &Log, pool: GraphPool, queue: Queue) {
    log.captured.borrow_mut().remove(&queue);
    a.end_pool(queue.device, pool);
}

/// Whose memory it is goes by the capture, not by who began last.
#[test]
fn two_captures_at_a_time_have_memory_of_their_own_pools() {
    let log = Log::default();
    let a = Allocator::new(&log);
    begin(&a, &log, POOL, S, 1);
    let mut first = vec![a.malloc(LARGE, S).unwrap()];
    begin(&a, &log, OTHER, T, 2);
    let second = a.malloc(LARGE, T).unwrap();
    // In the first capture, when the second has begun.
    first.push(a.malloc(LARGE, S).unwrap());
    end(&a, &log, OTHER, T);
    end(&a, &log, POOL, S);
    a.release_pool(0, OTHER);
    first.iter().chain([&second]).for_each(|&base| a.free(base));
    log.take();
    a.empty_cache();
    assert_eq!(
        log.take(),
        [DrainAll, Free(second)],
        "the first's graph is there"
    );
    a.release_pool(0, POOL);
    a.empty_cache();
    let freed = |did: &Did| matches!(did, Free(base) if first.contains(base));
    assert_eq!(log.take().iter().filter(|did| freed(did)).count(), 2);
}

/// The first has no memory when the second begins, so whose pool it is, is not known.
#[test]
fn the_first_of_two_captures_of_a_thread_has_no_memory_of_the_seconds_pool() {
    let log = Log::default();
    let a = Allocator::new(&log);
    begin(&a, &log, POOL, S, 1);
    begin(&a, &log, OTHER, T, 2);
    let first = a.malloc(LARGE, S).unwrap();
    let second = a.malloc(LARGE, T).unwrap();
    end(&a, &log, OTHER, T);
    end(&a, &log, POOL, S);
    a.release_pool(0, OTHER);
    [first, second].iter().for_each(|&base| a.free(base));
    log.take();
    a.empty_cache();
    assert_eq!(log.take(), [], "the first's graph is there");
    assert_ne!(a.malloc(LARGE, S), Some(first));
}

/// Another thread may begin the capture between a look at the stream and a call that puts
/// something into it: the graph would discard the memory at each launch, or wait for nothing.
#[test]
fn a_free_puts_nothing_into_streams_from_the_beginning_of_a_pool_on() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let [freed, used, other] = [S, S, T].map(|queue| a.malloc(LARGE, queue).unwrap());
    a.record_stream(used, T.stream);
    log.take();
    // The capture is not there yet.
    a.begin_pool(0, POOL);
    a.free(freed);
    a.free(used);
    a.trim(0);
    assert_eq!(log.take(), []);
    a.end_pool(0, POOL);
    // All that was left undone is done at the next free, and at the next allocations.
    a.free(other);
    assert_eq!(log.take(), [Wait(S, T)]);
    allocate_more(&log, &a, T);
    assert_eq!(log.take(), [Discard(other, T)]);
    allocate_more(&log, &a, S);
    let mut did = log.take();
    did.sort_by_key(|did| matches!(did, Discard(base, _) if *base == used));
    assert_eq!(did, [Discard(freed, S), Discard(used, S)]);
}

/// Of a capture that PyTorch has not begun with a pool: whether it is the memory's own stream
/// that is captured, or one that uses it too.
#[test]
fn a_free_waits_for_the_end_of_a_capture_without_a_pool() {
    for captured in [S, T] {
        let log = Log::default();
        let a = Allocator::new(&log);
        let base = a.malloc(LARGE, S).unwrap();
        a.record_stream(base, T.stream);
        log.captured.borrow_mut().insert(captured, 1);
        log.take();
        a.free(base);
        assert_eq!(log.take(), [], "{captured:?}");
        log.captured.borrow_mut().clear();
        a.trim(u64::MAX);
        assert_eq!(log.take(), [Wait(S, T)]);
        allocate_more(&log, &a, S);
        assert_eq!(log.take(), [Discard(base, S)]);
    }
}

/// To wait for a stream that has become part of the capture meanwhile breaks it.
#[test]
fn the_cache_is_not_emptied_for_memory_while_a_pool_is_begun() {
    let log = Log::default();
    log.limit.set(Some(20 << 20));
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    a.begin_pool(0, POOL);
    log.take();
    assert_eq!(a.malloc(LARGE, T), None);
    assert_eq!(log.take(), []);
    a.end_pool(0, POOL);
    assert!(a.malloc(LARGE, T).is_some());
}

/// PyTorch never says that it is over.
#[test]
fn a_capture_that_failed_is_forgotten() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    begin(&a, &log, POOL, T, 1);
    let graphs = a.malloc(LARGE, T).unwrap();
    log.captured.borrow_mut().clear();
    log.take();
    a.free(base);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(base, S)]);
    // A later one of the stream is no part of it.
    begin(&a, &log, OTHER, T, 2);
    a.free(graphs);
    assert_ne!(a.malloc(LARGE, T), Some(graphs));
}

/// Nor is anything kept of a pool that has neither a graph nor memory.
#[test]
fn a_pool_that_is_gone_is_forgotten_with_its_memory() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let kept = |a: &Allocator<&Log>| {
        format!("{:?}", a.graphs().lock())
            .matches("GraphPool")
            .count()
    };
    begin(&a, &log, POOL, S, 1);
    let base = a.malloc(LARGE, S).unwrap();
    end(&a, &log, POOL, S);
    a.release_pool(0, POOL);
    a.empty_cache();
    assert_eq!(kept(&a), 1, "a tensor has its memory");
    a.free(base);
    a.empty_cache();
    assert_eq!(kept(&a), 0);
    begin(&a, &log, POOL, S, 2);
    end(&a, &log, POOL, S);
    a.release_pool(0, POOL);
    assert_eq!(kept(&a), 0);
}

/// Whether a pool has memory is known by its own device.
#[test]
fn a_pool_that_is_gone_of_one_device_is_not_forgotten_with_anothers() {
    let (log, its) = (Log::default(), queue(1, 16));
    let a = Allocator::new(&log);
    begin(&a, &log, POOL, its, 1);
    let base = a.malloc(LARGE, its).unwrap();
    end(&a, &log, POOL, its);
    a.release_pool(1, POOL);
    begin(&a, &log, OTHER, S, 2);
    end(&a, &log, OTHER, S);
    a.release_pool(0, OTHER);
    a.free(base);
    log.take();
    a.empty_cache();
    assert_eq!(log.take(), [DrainAll, Free(base)]);
}

/// What came of a piece of memory, in a random program.
#[derive(Default)]
struct Model {
    /// Ends by bases: what was ever given out to a graph, and its pool, if it had one.
    graphs: BTreeMap<u64, (u64, Option<GraphPool>)>,
    /// What was ever given out to others.
    others: BTreeMap<u64, u64>,
}

impl Model {
    /// Notes what was given out, and checks who has had it before. Addresses that were given
    /// back to CUDA do not come again here.
    fn given(&mut self, base: u64, end: u64, capture: bool, pool: Option<GraphPool>) {
        let overlaps = |&(&other, _): &(&u64, _)| other < end;
        let mut graphs = self.graphs.iter().filter(|(_, &(to, _))| base < to);
        let mut others = self.others.iter().filter(|(_, &to)| base < to);
        if capture {
            let others = others.find(overlaps);
            assert!(others.is_none(), "what others may use is a graph's");
            let strange =
                |(_, &(_, of)): &(&u64, &(u64, Option<GraphPool>))| of.is_none() || of != pool;
            let strange = graphs.filter(strange).find(|(&other, _)| other < end);
            assert!(
                strange.is_none(),
                "graphs of two pools share: {strange:?} {pool:?}"
            );
            self.graphs.insert(base, (end, pool));
        } else {
            let graph = graphs.find(|(&other, _)| other < end);
            assert!(graph.is_none(), "a graph's is given to others");
            self.others.insert(base, end);
        }
    }
}

/// Random programs with two captures at a time: no graph shares with what is not of its pool,
/// while one may be under way no free does anything in a stream, and what a graph has that is
/// not gone is never given back.
#[test]
fn random_captures_share_nothing_and_are_left_alone() {
    let mut next = random();
    let log = Log::default();
    let a = Allocator::new(&log);
    let mut model = Model::default();
    let mut live: Vec<u64> = Vec::new();
    let pools = [GraphPool(0, 1), GraphPool(3, 0), GraphPool(0, 3)];
    // By stream of capture: the pool, and whether the capture has begun.
    let mut begun: [Option<(GraphPool, bool)>; 2] = [None; 2];
    let mut uses = [0_u32; 3];
    // A thread has one capture at a time.
    let threads = [Thread::new(), Thread::new()];
    let (mut number, mut reused) = (0, 0);
    for _ in 0..20_000 {
        let at = next(2) as usize;
        let queue = [S, T][at];
        let busy = begun.iter().any(Option::is_some);
        let pool = next(3) as usize;
        log.take();
        match next(16) {
            0 if begun[at].is_none() => {
                // One pool is not begun twice at a time.
                let mut now = begun.iter().flatten();
                if !now.any(|(begun, _)| *begun == pools[pool]) {
                    lock(a.graphs()).begin(0, pools[pool], threads[at]);
                    begun[at] = Some((pools[pool], false));
                    uses[pool] += 1;
                }
            }
            1 | 2 => {
                if let Some((pool, false)) = begun[at] {
                    number += 1;
                    log.captured.borrow_mut().insert(queue, number);
                    begun[at] = Some((pool, true));
                }
            }
            3 => {
                if let Some((pool, true)) = begun[at] {
                    log.captured.borrow_mut().remove(&queue);
                    a.end_pool(0, pool);
                    begun[at] = None;
                }
            }
            4 => {
                let now = begun.iter().flatten();
                let now = now.filter(|(begun, _)| *begun == pools[pool]).count() as u32;
                if uses[pool] > now {
                    uses[pool] -= 1;
                    a.release_pool(0, pools[pool]);
                    assert!(log.take().is_empty());
                }
            }
            5 if next(4) == 0 => {
                a.empty_cache();
                let did = log.take();
                assert!(!busy || did.is_empty(), "{did:?}");
                for did in did {
                    let Free(base) = did else { continue };
                    let of = model.graphs.range(base..base + (1 << 40));
                    let alive = |of: &Option<GraphPool>| {
                        of.is_none_or(|of| uses[pools.iter().position(|p| *p == of).unwrap()] > 0)
                    };
                    assert!(
                        !of.map(|(_, (_, of))| of).any(alive),
                        "a graph's is given back"
                    );
                }
            }
            6..=10 if live.len() < 48 => {
                let captured = matches!(begun[at], Some((_, true)));
                let magnitude = 10 + next(14);
                let size = 1 + next(1 << magnitude);
                let before = a.stats().reused;
                let base = a.malloc(size as usize, queue).unwrap();
                reused += u64::from(captured) * (a.stats().reused - before);
                // Where two captures are new, a single thread cannot tell them apart.
                let owner = a.lock(0).heap.taken(base).unwrap().0.owner;
                let pool = match owner {
                    Owner::Graph(pool) => Some(pool),
                    Owner::SomeGraph | Owner::Stream => None,
                };
                assert_eq!(captured, owner != Owner::Stream);
                if let (Some(pool), Some((begun, _))) = (pool, begun[at]) {
                    assert_eq!(pool, begun, "another capture's pool");
                }
                model.given(base, base + size, captured, pool);
                live.push(base);
            }
            11..=15 if !live.is_empty() => {
                let base = live.swap_remove(next(live.len() as u64) as usize);
                if next(3) == 0 {
                    a.record_stream(base, [T, S][at].stream);
                }
                a.free(base);
                let did = log.take();
                assert!(!busy || did.is_empty(), "{did:?}");
            }
            _ => {}
        }
    }
    assert!(reused > 100, "{reused}");
}
