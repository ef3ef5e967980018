// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Parts that are split and merged, and what is discarded of them when memory is short.

use super::*;

const M: usize = 1 << 20;
const GPU: (u64, u64) = (160 * M as u64, 160 * M as u64);

#[test]
fn all_is_left_alone_while_it_fits() {
    let log = Log::default();
    log.memory.set(Some(GPU));
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_eq!(log.take(), [Alloc(base, 12 << 20)]);
    let stats = a.device_stats(0);
    assert_eq!((stats.short, stats.budget_bytes), (0, 150 * M as u64));
    assert_eq!(stats.live_bytes, 12 << 20);
}

#[test]
fn what_is_free_is_discarded_when_the_rest_no_longer_fits() {
    let log = Log::default();
    log.memory.set(Some(GPU));
    let a = Allocator::new(&log);
    let [free, kept] = [100 * M, 40 * M].map(|size| a.malloc(size, S).unwrap());
    a.free(free);
    log.take();
    // 152 MiB may hold data then, of which 100 are free: they are discarded as soon as their stream comes.
    let more = a.malloc(12 * M, T).unwrap();
    assert_eq!(log.take(), [Alloc(more, 12 << 20)]);
    let last = a.malloc(4 * M, S).unwrap();
    assert_eq!(last, free);
    assert_eq!(log.take(), [Discard(free + 4 * M as u64, S)]);
    // Now all fits again.
    a.free(kept);
    a.free(last);
    assert_eq!(log.take(), []);
    assert_eq!(a.device_stats(0).live_bytes, 56 << 20);
    // And what was discarded is prefetched before its use, as far as it is used.
    assert_eq!(a.malloc(90 * M, S), Some(free));
    assert_eq!(log.take(), [Prefetch(free + 4 * M as u64, S)]);
    assert_eq!(a.device_stats(0).prefetched_bytes, 86 << 20);
}

/// Autograd frees what a kernel in a side stream still reads, and has the stream of the allocation wait for
/// it only then.
#[test]
fn nothing_is_discarded_before_the_next_allocation_in_its_stream() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let [base, kept] = [LARGE, LARGE].map(|size| a.malloc(size, S).unwrap());
    let its = a.malloc(LARGE, T).unwrap();
    log.take();
    a.free(base);
    // Neither by frees, nor by what others allocate, nor by small allocations, which could not be given it.
    a.free(a.malloc(LARGE, T).unwrap());
    a.free(a.malloc(LARGE, queue(1, 16)).unwrap());
    a.free(a.malloc(1000, S).unwrap());
    a.free(its);
    a.trim(u64::MAX);
    let discards = |did: Vec<Did>| -> Vec<Did> {
        let discard = |did: &Did| matches!(did, Discard(..));
        did.into_iter().filter(discard).collect()
    };
    assert_eq!(discards(log.take()), []);
    let more = a.malloc(2 * LARGE, S).unwrap();
    assert_eq!(log.take(), [Alloc(more, 24 << 20), Discard(base, S)]);
    a.free(kept);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_eq!(log.take(), [Prefetch(base, S), Discard(kept, S)]);
    // What the call itself gives out is not discarded for that.
    a.free(base);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    assert_eq!(log.take(), []);
}

/// Whether a discard is any good, and breaks no capture, is asked when it comes.
#[test]
fn what_was_noted_is_not_discarded_once_all_fits_or_in_a_capture() {
    for captured in [false, true] {
        let log = Log::default();
        log.memory.set(Some(GPU));
        let a = Allocator::new(&log);
        let base = a.malloc(LARGE, S).unwrap();
        log.memory.set(Some((M as u64, GPU.1)));
        a.malloc(LARGE, T).unwrap();
        assert_eq!(a.device_stats(0).short, 1);
        a.free(base);
        if captured {
            a.begin_pool(0, GraphPool(0, 7));
        } else {
            log.memory.set(Some(GPU));
        }
        log.take();
        let more = a.malloc(2 * LARGE, S).unwrap();
        assert_eq!(log.take(), [Alloc(more, 24 << 20)], "{captured}");
        // What was noted is not lost by that.
        a.end_pool(0, GraphPool(0, 7));
        log.memory.set(Some((M as u64, GPU.1)));
        a.malloc(3 * LARGE, T).unwrap();
        log.take();
        let last = a.malloc(3 * LARGE, S).unwrap();
        assert_eq!(log.take(), [Alloc(last, 36 << 20), Discard(base, S)]);
    }
}

#[test]
fn what_is_noted_is_kept_once_and_forgotten_with_its_segment() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let parts = [4 * M; 3].map(|size| a.malloc(size, S).unwrap());
    for index in [0, 2, 1] {
        a.free(parts[index]);
    }
    let noted = || a.lock(0).gpu(0).noted.clone();
    let of_all: Vec<usize> = noted().values().map(BTreeMap::len).collect();
    assert_eq!(of_all, [1]);
    a.empty_cache();
    assert!(noted().is_empty());
}

/// What one of them waits for is known to the stream in whose order their memory is, once it is asked.
#[test]
fn a_threads_own_stream_is_waited_for_again_before_the_discard() {
    let (log, own, legacy) = (Log::default(), queue(0, 2), queue(0, 1));
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, own).unwrap();
    a.free(base);
    assert_eq!(log.take()[1..], [Wait(legacy, own)]);
    let more = a.malloc(2 * LARGE, own).unwrap();
    let did = [
        Alloc(more, 24 << 20),
        Wait(legacy, own),
        Discard(base, legacy),
    ];
    assert_eq!(log.take(), did);
    // Nothing is left to be discarded, so nobody waits.
    let other = a.malloc(2 * LARGE, own).unwrap();
    assert_eq!(log.take(), [Alloc(other, 24 << 20)]);
    a.free(more);
    log.take();
    log.no_wait.set(true);
    let third = a.malloc(3 * LARGE, own).unwrap();
    assert_eq!(log.take(), [Alloc(third, 36 << 20)]);
    log.no_wait.set(false);
    // A wait in the legacy stream would break the capture of another.
    a.free(other);
    log.take();
    log.captured.borrow_mut().insert(legacy, 1);
    let fourth = a.malloc(3 * LARGE, own).unwrap();
    assert_eq!(log.take(), [Alloc(fourth, 36 << 20)]);
}

/// A segment that was given back may be another stream's when its address is there again.
#[test]
fn what_was_given_back_is_forgotten() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    a.empty_cache();
    log.next.set(0);
    assert_eq!(a.malloc(LARGE, T), Some(base));
    a.free(base);
    log.take();
    let more = a.malloc(2 * LARGE, S).unwrap();
    assert_eq!(log.take(), [Alloc(more, 24 << 20)]);
}

#[test]
fn a_full_gpu_is_short_whoever_uses_it() {
    let log = Log::default();
    log.memory.set(Some(GPU));
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    log.memory.set(Some((M as u64, GPU.1)));
    let asked = log.asked.get();
    for _ in 0..64 {
        a.free(base);
        assert_eq!(a.malloc(LARGE, S), Some(base));
    }
    assert_eq!(log.asked.get(), asked + 1, "it is asked now and then");
    a.free(base);
    log.take();
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(base, S)]);
}

#[test]
fn a_part_of_the_gpu_is_the_budget() {
    let log = Log::default();
    log.memory.set(Some(GPU));
    let a = Allocator::new(&log);
    a.set_fraction(0, 0.1);
    let [free, _] = [LARGE, LARGE].map(|size| a.malloc(size, S).unwrap());
    a.free(free);
    allocate_more(&log, &a, S);
    assert!(log.take().contains(&Discard(free, S)));
    assert_eq!(a.device_stats(0).budget_bytes, 16 << 20);
}

#[test]
fn what_is_short_is_one_gpu() {
    let log = Log::default();
    log.memory.set(Some(GPU));
    let a = Allocator::new(&log);
    let other = a.malloc(LARGE, queue(1, 16)).unwrap();
    a.free(other);
    a.set_fraction(0, 0.1);
    log.take();
    let bases = [LARGE, LARGE].map(|size| a.malloc(size, S).unwrap());
    a.free(bases[0]);
    allocate_more(&log, &a, S);
    assert_eq!(log.take()[2..], [Discard(bases[0], S)]);
    assert_eq!(a.malloc(3 * M, queue(1, 16)), Some(other));
    assert_eq!(log.take(), []);
    assert_eq!([0, 1].map(|device| a.device_stats(device).short), [1, 0]);
}

#[test]
fn parts_are_split_and_merged() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let parts = [3 * M, 5 * M, 4 * M, 7 * M + 512].map(|size| a.malloc(size, S).unwrap());
    let [first, second, third, fourth] = parts;
    assert_eq!(log.take(), [Alloc(first, 20 << 20)]);
    assert_eq!(second, first + 3 * M as u64);
    assert_eq!(fourth, first + 12 * M as u64);
    // The blocks at 4 and 6 MiB are free as a whole; the one at 2 is in part the first's.
    a.free(second);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(first + 4 * M as u64, S)]);
    assert_eq!(a.device_stats(0).discarded_bytes, 4 << 20);
    a.free(first);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(first, S)]);
    assert_eq!(a.malloc(8 * M, S), Some(first), "both together");
    assert_eq!(log.take(), [Prefetch(first, S)]);
    for base in [fourth, first, third] {
        a.free(base);
    }
    log.take();
    a.empty_cache();
    assert_eq!(log.take(), [Drain(S), Free(first)]);
    assert_eq!(a.device_stats(0).segments.current, 2);
}

#[test]
fn what_was_never_used_is_not_discarded() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let base = a.malloc(2 * M, S).unwrap();
    a.free(base);
    allocate_more(&log, &a, S);
    assert_eq!(a.device_stats(0).discarded_bytes, 2 << 20);
}

#[test]
fn the_cache_is_trimmed_to_a_size() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let sizes = [12 * M, 30 * M, 14 * M];
    let bases = sizes.map(|size| a.malloc(size, S).unwrap());
    let used = a.malloc(16 * M, S).unwrap();
    bases.iter().for_each(|&base| a.free(base));
    log.take();
    a.trim(26 << 20);
    assert_eq!(log.take(), [Drain(S), Free(bases[1])]);
    a.trim(26 << 20);
    assert_eq!(log.take(), []);
    a.trim(25 << 20);
    assert_eq!(log.take(), [Drain(S), Free(bases[2])]);
    let stats = a.device_stats(0);
    assert_eq!(stats.reserved_bytes.current, 28 << 20);
    assert_eq!(stats.reserved_bytes.peak, 72 << 20);
    a.reset_peaks(0);
    assert_eq!(a.device_stats(0).reserved_bytes.peak, 28 << 20);
    a.free(used);
}

/// It may have failed for want of memory, which comes back.
#[test]
fn after_a_failed_prefetch_one_is_tried_now_and_then() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let [base, other, free] = [12 * M, 16 * M, 20 * M].map(|size| a.malloc(size, S).unwrap());
    a.free(base);
    allocate_more(&log, &a, S);
    log.no_prefetch.set(true);
    assert_ne!(a.malloc(12 * M, S), Some(base));
    a.free(free);
    log.take();
    let free_once = |base| {
        a.free(base);
        assert_eq!(a.malloc(16 * M, S), Some(base));
    };
    (0..62).for_each(|_| free_once(other));
    assert_eq!((log.take(), log.prefetches.take()), (vec![], 1));
    free_once(other);
    assert_eq!((log.take(), log.prefetches.take()), (vec![], 1));
    log.no_prefetch.set(false);
    (0..63).for_each(|_| free_once(other));
    assert_eq!((log.take(), log.prefetches.take()), (vec![], 0));
    a.free(other);
    // A block of the next; then, as they allocate again, all that is free and may hold data.
    assert_eq!(log.take(), [Prefetch(other, S), Marked(S)]);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(other, S), Discard(free, S)]);
    assert_eq!(a.malloc(12 * M, S), Some(base));
    assert_eq!(log.take(), [Prefetch(base, S)]);
}

/// What fails may be of one part alone, or of its stream.
#[test]
fn after_a_failed_prefetch_a_part_that_fails_again_is_not_the_only_one_that_is_tried() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let [base, other] = [12 * M, 16 * M].map(|size| a.malloc(size, S).unwrap());
    a.free(base);
    allocate_more(&log, &a, S);
    log.bad.set(base);
    assert_ne!(a.malloc(12 * M, S), Some(base));
    log.take();
    for _ in 0..2 * 64 {
        a.free(other);
        assert_eq!(a.malloc(16 * M, S), Some(other));
    }
    a.free(other);
    allocate_more(&log, &a, S);
    let did = log.take();
    assert!(did.contains(&Discard(other, S)), "{did:?}");
}

#[test]
fn none_is_tried_while_a_pool_is_begun_or_in_a_captured_stream() {
    for in_pool in [true, false] {
        let log = Log::default();
        let a = Allocator::new(&log);
        let base = a.malloc(LARGE, S).unwrap();
        // The block that these share is never free as a whole.
        let [other, _] = [1000; 2].map(|size| a.malloc(size, T).unwrap());
        a.free(base);
        allocate_more(&log, &a, S);
        log.no_prefetch.set(true);
        assert_ne!(a.malloc(LARGE, S), Some(base));
        log.no_prefetch.set(false);
        let free_often = || {
            log.take();
            for _ in 0..200 {
                a.free(other);
                assert_eq!(a.malloc(1000, T), Some(other));
            }
            log.take()
        };
        if in_pool {
            a.begin_pool(0, GraphPool(0, 7));
        } else {
            log.captured.borrow_mut().insert(S, 1);
        }
        assert_eq!(free_often(), [], "{in_pool}");
        a.end_pool(0, GraphPool(0, 7));
        log.captured.borrow_mut().clear();
        assert_eq!(free_often(), [Prefetch(base, S), Marked(S)]);
    }
}

#[test]
fn nothing_is_discarded_once_a_prefetch_has_failed() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let [base, next] = [12 * M, 6 * M].map(|size| a.malloc(size, S).unwrap());
    let behind = a.malloc(6 * M, S).unwrap();
    a.free(next);
    allocate_more(&log, &a, S);
    log.no_prefetch.set(true);
    assert_ne!(a.malloc(6 * M, S), Some(next));
    a.free(base);
    a.free(behind);
    allocate_more(&log, &a, S);
    let discards = log
        .take()
        .into_iter()
        .filter(|did| matches!(did, Discard(..)));
    assert_eq!(discards.count(), 1);
}

/// What cannot be used any more does not stand before what can.
#[test]
fn after_a_failed_prefetch_memory_is_used_again_as_without() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let parts = [6 * M, 6 * M, 6 * M].map(|size| a.malloc(size, S).unwrap());
    a.free(parts[1]);
    allocate_more(&log, &a, S);
    log.no_prefetch.set(true);
    // The part in the middle is discarded, and is in no segment that could be given back.
    let kept = a.malloc(6 * M, S).unwrap();
    a.free(kept);
    for _ in 0..100 {
        let base = a.malloc(6 * M, S).unwrap();
        assert_eq!(base, kept);
        a.free(base);
    }
    assert_eq!(a.stats().held_bytes, (1 << 30) + (40 << 20));
}

#[test]
fn where_a_prefetch_fails_another_part_is_taken() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let quarters = [6, 9, 9, 8, 8];
    let parts = quarters.map(|size| a.malloc(size * M / 4, S).unwrap());
    // The second has no block of UVM's as a whole, the fourth is one.
    a.free(parts[1]);
    a.free(parts[3]);
    allocate_more(&log, &a, S);
    assert_eq!(log.take()[1..], [Discard(parts[3], S)]);
    log.no_prefetch.set(true);
    assert_eq!(a.malloc(7 * M / 4, S), Some(parts[1]));
    assert_eq!(log.take(), []);
}

#[test]
fn failures_and_retries_are_counted() {
    let log = Log::default();
    let a = refused_then_given(&log);
    let stats = a.device_stats(0);
    assert_eq!((stats.retries, stats.failures), (2, 1));
    assert_eq!(stats.allocated_bytes.current, 12 << 20);
    assert_eq!(stats.allocated_bytes.allocated, 24 << 20);
    assert_eq!(stats.allocated_bytes.freed, 12 << 20);
}

/// The driver may have done some of it, or be about to.
#[test]
fn a_discard_with_an_error_is_followed_by_a_prefetch() {
    for error in [
        Error::Driver,
        Error::Busy,
        Error::Interrupted,
        Error::NoMemory,
    ] {
        let log = Log::default();
        let a = Allocator::new(&log);
        let base = a.malloc(LARGE, S).unwrap();
        log.half_discard.set(Some(error));
        a.free(base);
        allocate_more(&log, &a, S);
        assert_eq!(a.device_stats(0).discarded_bytes, 0, "{error:?}");
        assert_eq!(a.malloc(LARGE, S), Some(base));
        assert_eq!(log.take().last(), Some(&Prefetch(base, S)), "{error:?}");
    }
}
