// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the program itself has discarded lazily, and then frees.

use super::*;

const M: usize = 1 << 20;

fn discarded(a: &Allocator<&Log>, base: u64, length: usize) {
    let length = length as u64;
    a.discarded_lazily(Range { base, length });
}

/// An allocator on a GPU where all fits, so that it discards nothing itself.
fn where_all_fits(log: &Log) -> Allocator<&Log> {
    log.memory.set(Some((1 << 30, 1 << 30)));
    Allocator::new(log)
}

#[test]
fn it_is_prefetched_before_it_is_given_out() {
    let log = Log::default();
    let a = where_all_fits(&log);
    let base = a.malloc(LARGE, S).unwrap();
    discarded(&a, base, LARGE);
    a.free(base);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_eq!(log.take()[1..], [Prefetch(base, S)]);
    a.free(base);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_eq!(log.take(), [], "it is no longer discarded");
}

/// A prefetch of a shared block as a whole might come at the same time as a discard of the rest.
#[test]
fn of_a_shared_block_its_own_bytes_are_prefetched_when_it_is_freed() {
    let log = Log::default();
    let a = where_all_fits(&log);
    let [first, base, last] = [3 * M, 4 * M, 3 * M].map(|size| a.malloc(size, S).unwrap());
    assert_eq!((base, last), (first + 3 * M as u64, first + 7 * M as u64));
    // A byte of each block is enough, and the others are not touched by that.
    for at in [base, first + 5 * M as u64, last - 1] {
        discarded(&a, at, 1);
    }
    a.record_stream(base, T.stream);
    log.take();
    [first, last].into_iter().for_each(|other| a.free(other));
    assert_eq!(log.take(), []);
    a.free(base);
    let (block, end) = (first + 4 * M as u64, first + 6 * M as u64);
    let edges = [Wait(S, T), Prefetch(base, S), Prefetch(end, S)];
    assert_eq!(log.take(), edges);
    assert_eq!(a.malloc(10 * M, S), Some(first));
    assert_eq!(log.take(), [Prefetch(block, S)]);
    // Of a part without a whole block that is all.
    let small = a.malloc(4096, S).unwrap();
    discarded(&a, small, 4096);
    discarded(&a, small, 0);
    log.take();
    a.free(small);
    assert_eq!(log.take(), [Prefetch(small, S)]);
}

/// The rest keeps its data, which is no reason to prefetch it, and still takes the GPU's memory.
#[test]
fn only_the_blocks_of_which_some_was_discarded_are_prefetched() {
    let log = Log::default();
    let a = where_all_fits(&log);
    // Four blocks, and half of one that the other has too.
    let [base, other] = [9 * M, 3 * M].map(|size| a.malloc(size, S).unwrap());
    assert_eq!(other, base + 9 * M as u64);
    let block = |n: u64| base + n * BLOCK;
    for (at, length) in [(block(1) - 1, 2), (block(3) + 7, 9), (block(0), M)] {
        discarded(&a, at, length);
    }
    for page in 0..10 {
        discarded(&a, base + page * 8192, 4096);
    }
    assert_eq!(
        a.lock(0).used[&base].lazy.len(),
        2,
        "blocks are kept, and not each range"
    );
    let live = a.lock(0).heap.live(0);
    log.take();
    a.free(base);
    assert_eq!(log.take(), [], "nor the end, which shares a block");
    assert_eq!(a.lock(0).heap.live(0), live - 3 * BLOCK);
    assert_eq!(a.malloc(9 * M, S), Some(base));
    assert_eq!(log.take(), [Prefetch(block(0), S), Prefetch(block(3), S)]);
    assert_eq!(a.device_stats(0).prefetched_bytes, 3 * BLOCK);
}

#[test]
fn ranges_are_put_together() {
    let range = |base, length| Range { base, length };
    let mut all = Vec::new();
    for (base, length) in [(10, 2), (20, 2), (30, 2), (12, 8), (40, 1), (31, 5)] {
        add(&mut all, range(base, length));
    }
    all.sort_by_key(|range| range.base);
    assert_eq!(all, [range(10, 12), range(30, 6), range(40, 1)]);
    let of = |from, to| common(from, to, &all).collect::<Vec<_>>();
    assert_eq!(of(0, 11), [range(10, 1)]);
    assert_eq!(of(21, 32), [range(21, 1), range(30, 2)]);
    assert_eq!(of(22, 30), []);
    assert_eq!(of(41, 40), []);
}

#[test]
fn a_range_over_several_is_that_of_each() {
    let log = Log::default();
    let a = where_all_fits(&log);
    let bases = [4 * M; 3].map(|size| a.malloc(size, S).unwrap());
    discarded(&a, bases[0], 8 * M);
    discarded(&a, bases[2] + 4 * M as u64, 4 * M);
    log.take();
    bases.into_iter().for_each(|base| a.free(base));
    assert_eq!(a.malloc(12 * M, S), Some(bases[0]));
    let blocks = vec![Prefetch(bases[0], S)];
    assert_eq!(log.take(), blocks);
    assert_eq!(a.device_stats(0).prefetched_bytes, 8 << 20);
}

#[test]
fn what_can_not_be_prefetched_is_nobodys_until_it_is() {
    let log = Log::default();
    let a = where_all_fits(&log);
    let base = a.malloc(4096, S).unwrap();
    discarded(&a, base, 4096);
    a.record_stream(base, T.stream);
    log.no_prefetch.set(true);
    log.take();
    a.free(base);
    assert_eq!(log.take(), [Wait(S, T)]);
    assert_ne!(a.malloc(4096, S), Some(base));
    log.no_prefetch.set(false);
    assert_eq!(a.malloc(4096, S), Some(base));
    assert_eq!(log.take(), [Prefetch(base, S)], "it has waited already");
}

#[test]
fn it_waits_for_the_end_of_a_capture() {
    let log = Log::default();
    let a = where_all_fits(&log);
    let base = a.malloc(3 * M, S).unwrap();
    discarded(&a, base, 3 * M);
    log.take();
    log.captured.borrow_mut().insert(S, 1);
    a.free(base);
    assert_eq!(log.take(), []);
    log.captured.borrow_mut().clear();
    a.empty_cache();
    let edge = base + 2 * M as u64;
    assert_eq!(log.take(), [Prefetch(edge, S), Drain(S), Free(base)]);
}

/// Each launch may discard it again.
#[test]
fn a_graphs_is_nobodys_until_the_graph_is_gone() {
    let (log, pool) = (Log::default(), GraphPool(0, 7));
    let a = where_all_fits(&log);
    let capture = |a: &Allocator<&Log>, number| {
        a.begin_pool(0, pool);
        log.captured.borrow_mut().insert(S, number);
        let base = a.malloc(LARGE, S).unwrap();
        discarded(a, base, LARGE);
        a.free(base);
        log.captured.borrow_mut().clear();
        a.end_pool(0, pool);
        base
    };
    let first = capture(&a, 1);
    let second = capture(&a, 2);
    assert_ne!(first, second);
    a.release_pool(0, pool);
    a.release_pool(0, pool);
    // Whoever takes the pool's number again is captured, and nothing is prefetched in a capture.
    let third = capture(&a, 3);
    assert!(third != first && third != second);
    let prefetched = |did: &Did| matches!(did, Prefetch(..));
    assert!(!log.did.borrow().iter().any(prefetched));
    a.release_pool(0, pool);
    a.empty_cache();
    assert_eq!(a.stats().held_bytes, 0);
}

/// What was captured may run again also where the memory is freed behind the capture.
#[test]
fn a_graphs_that_is_freed_later_is_nobodys_either() {
    let (log, pool) = (Log::default(), GraphPool(0, 7));
    let a = where_all_fits(&log);
    let begin = |a: &Allocator<&Log>, number| {
        a.begin_pool(0, pool);
        log.captured.borrow_mut().insert(S, number);
    };
    let end = |a: &Allocator<&Log>| {
        log.captured.borrow_mut().clear();
        a.end_pool(0, pool);
    };
    let is_prefetched = || log.take().iter().any(|did| matches!(did, Prefetch(..)));

    begin(&a, 1);
    let [base, _other] = [3 * M; 2].map(|size| a.malloc(size, S).unwrap());
    discarded(&a, base, 3 * M);
    end(&a);
    a.free(base);
    assert!(!is_prefetched(), "the next launch discards it again");
    // Into the pool of the same graph.
    begin(&a, 2);
    assert_ne!(a.malloc(3 * M, S), Some(base));
    end(&a);

    // Once both are gone it is free, but its segment has another part that is used. Who takes the pool's number again
    // gets it in a capture, in which it cannot be prefetched.
    a.release_pool(0, pool);
    a.release_pool(0, pool);
    a.empty_cache();
    assert!(is_prefetched(), "it has part of a block, which is free now");
    begin(&a, 3);
    assert_ne!(a.malloc(3 * M, S), Some(base));
    assert!(!is_prefetched(), "in a capture");
}
