// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory that belongs to a pool of graphs, and leaves it with the pool.

use super::*;

const POOL: GraphPool = GraphPool(0, 7);
const OTHER: GraphPool = GraphPool(0, 8);

/// Captures with a pool.
fn capture<T>(
    a: &mut Allocator<&Log>,
    log: &Log,
    pool: GraphPool,
    work: impl Fn(&mut Allocator<&Log>) -> T,
) -> T {
    a.begin_pool(0, pool);
    log.number.set(log.number.get() + 1);
    log.capturing.set(true);
    let done = work(a);
    log.capturing.set(false);
    a.end_pool(0, pool);
    done
}

#[test]
fn a_graphs_memory_is_used_again_by_captures_with_its_pool_only() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let first = capture(&mut a, &log, POOL, |a| {
        let first = a.malloc(LARGE, S).unwrap();
        a.free(first);
        assert_eq!(a.malloc(LARGE, S), Some(first), "in the same capture");
        a.free(first);
        first
    });
    assert_ne!(a.malloc(LARGE, S), Some(first), "not without a capture");
    let other = capture(&mut a, &log, OTHER, |a| a.malloc(LARGE, S).unwrap());
    assert_ne!(other, first);
    log.capturing.set(true);
    assert_ne!(a.malloc(LARGE, S), Some(first), "not in one without a pool");
    log.capturing.set(false);
    let again = capture(&mut a, &log, POOL, |a| a.malloc(LARGE, S).unwrap());
    assert_eq!(again, first, "in a later one");
    let touched = |did: &Did| matches!(did, Discard(base, _) | Prefetch(base, _) if *base == first);
    assert!(!log.take().iter().any(touched));
}

#[test]
fn it_is_given_back_when_the_last_graph_is_gone() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let alloc = |a: &mut Allocator<&Log>| a.malloc(LARGE, S).unwrap();
    let first = capture(&mut a, &log, POOL, alloc);
    let second = capture(&mut a, &log, POOL, alloc);
    a.free(first);
    a.free(second);
    log.take();
    a.empty_cache();
    a.release_pool(0, POOL);
    a.empty_cache();
    assert_eq!(log.take(), [], "one graph is left");
    a.release_pool(0, POOL);
    a.begin_pool(0, OTHER);
    a.empty_cache();
    assert_eq!(log.take(), [], "to wait would break the capture");
    a.end_pool(0, OTHER);
    a.empty_cache();
    assert_eq!(log.take(), [DrainAll, Free(first), DrainAll, Free(second)]);
    // Once more than there were uses.
    a.release_pool(0, POOL);
    assert_eq!(a.stats().held_bytes, 0);
}

#[test]
fn a_pool_that_is_used_again_is_not_gone() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let base = capture(&mut a, &log, POOL, |a| a.malloc(LARGE, S).unwrap());
    a.release_pool(0, POOL);
    let again = capture(&mut a, &log, POOL, |a| a.malloc(LARGE, S).unwrap());
    a.free(base);
    a.free(again);
    log.take();
    a.empty_cache();
    assert_eq!(log.take(), []);
}

/// It may be launched in any stream, so that a wait in that of its capture is not enough.
#[test]
fn others_that_use_a_graphs_memory_are_waited_for_here() {
    let log = Log::default();
    let mut a = Allocator::new(&log);
    let base = capture(&mut a, &log, POOL, |a| a.malloc(LARGE, S).unwrap());
    a.record_stream(base, T.stream);
    log.take();
    a.free(base);
    assert_eq!(log.take(), [Drain(T)]);
}
