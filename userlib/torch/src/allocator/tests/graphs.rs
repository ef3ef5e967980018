// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory that belongs to a pool of graphs, and leaves it with the pool.

use super::*;

const POOL: GraphPool = GraphPool(0, 7);
const OTHER: GraphPool = GraphPool(0, 8);

/// Captures with a pool.
fn capture<T>(
    a: &Allocator<&Log>,
    log: &Log,
    pool: GraphPool,
    work: impl Fn(&Allocator<&Log>) -> T,
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
    let a = Allocator::new(&log);
    let first = capture(&a, &log, POOL, |a| {
        let first = a.malloc(LARGE, S).unwrap();
        a.free(first);
        assert_eq!(a.malloc(LARGE, S), Some(first), "in the same capture");
        a.free(first);
        first
    });
    assert_ne!(a.malloc(LARGE, S), Some(first), "not without a capture");
    let other = capture(&a, &log, OTHER, |a| a.malloc(LARGE, S).unwrap());
    assert_ne!(other, first);
    log.capturing.set(true);
    assert_ne!(a.malloc(LARGE, S), Some(first), "not in one without a pool");
    log.capturing.set(false);
    let again = capture(&a, &log, POOL, |a| a.malloc(LARGE, S).unwrap());
    assert_eq!(again, first, "in a later one");
    let touched = |did: &Did| matches!(did, Discard(base, _) | Prefetch(base, _) if *base == first);
    assert!(!log.take().iter().any(touched));
}

#[test]
fn it_is_given_back_when_the_last_graph_is_gone() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let alloc = |a: &Allocator<&Log>| a.malloc(LARGE, S).unwrap();
    let first = capture(&a, &log, POOL, alloc);
    let second = capture(&a, &log, POOL, alloc);
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
    assert_eq!(log.take(), [DrainAll, Free(first), Free(second)]);
    // Once more than there were uses.
    a.release_pool(0, POOL);
    assert_eq!(a.stats().held_bytes, 0);
}

#[test]
fn a_pool_that_is_used_again_is_not_gone() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = capture(&a, &log, POOL, |a| a.malloc(LARGE, S).unwrap());
    a.release_pool(0, POOL);
    let again = capture(&a, &log, POOL, |a| a.malloc(LARGE, S).unwrap());
    a.free(base);
    a.free(again);
    log.take();
    a.empty_cache();
    assert_eq!(log.take(), []);
}

/// It may be launched in any stream, so that a wait in that of its capture is not enough. The other
/// may go on only after what this thread does next, so nobody waits here.
#[test]
fn a_graphs_memory_is_free_when_others_are_seen_to_be_done() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = capture(&a, &log, POOL, |a| a.malloc(LARGE, S).unwrap());
    a.record_stream(base, T.stream);
    log.take();
    log.stuck.set(true);
    a.free(base);
    assert_eq!(log.take(), [Marked(T)]);
    let again = |a: &Allocator<&Log>| a.malloc(LARGE, S).unwrap();
    assert_ne!(capture(&a, &log, POOL, again), base);
    assert!(!log.take().iter().any(|did| matches!(did, Drain(_))));
    log.stuck.set(false);
    assert_eq!(capture(&a, &log, POOL, again), base);
}

/// What is asked for in vain is all behind one that is not done.
#[test]
fn the_marks_of_a_queue_are_asked_in_order() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let bases = capture(&a, &log, POOL, |a| {
        [LARGE; 9].map(|size| a.malloc(size, S).unwrap())
    });
    log.stuck.set(true);
    for base in bases {
        a.record_stream(base, T.stream);
        a.free(base);
    }
    log.asked.set(0);
    a.malloc(LARGE, S).unwrap();
    assert_eq!(
        log.asked.take(),
        1 + 1,
        "for a mark, and for the memory of the GPU"
    );
    // An empty cache has waited for them all.
    log.take();
    a.trim(u64::MAX);
    assert_eq!(log.take(), vec![Reached(T); 9]);
    a.begin_pool(0, OTHER);
    a.trim(u64::MAX);
    assert_eq!(log.take(), [], "to wait would break the capture");
}
