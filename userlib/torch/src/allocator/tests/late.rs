// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Prefetches that a stream takes, and that fail when it comes there.

use super::*;

const M: usize = 1 << 20;

/// Two parts, of which the first was discarded, and given out again behind a prefetch that will fail.
fn prefetched_in_vain(log: &Log) -> (Allocator<&Log>, u64, u64) {
    let a = Allocator::new(log);
    let [base, other] = [12 * M, 16 * M].map(|size| a.malloc(size, S).unwrap());
    a.free(base);
    allocate_more(log, &a, S);
    log.fails_late.set(true);
    assert_eq!(a.malloc(12 * M, S), Some(base));
    (a, base, other)
}

fn free_often(a: &Allocator<&Log>, base: u64, times: u32) {
    for _ in 0..times {
        a.free(base);
        assert_eq!(a.malloc(16 * M, S), Some(base));
    }
}

fn discards(log: &Log) -> Vec<Did> {
    let discard = |did: &Did| matches!(did, Discard(..));
    log.take().into_iter().filter(discard).collect()
}

#[test]
fn nothing_is_discarded_once_a_stream_could_not_prefetch() {
    for failed in [false, true] {
        let log = Log::default();
        let (a, base, _) = prefetched_in_vain(&log);
        log.take();
        if failed {
            log.streams_run();
        }
        a.free(base);
        allocate_more(&log, &a, S);
        assert_eq!(discards(&log).is_empty(), failed);
    }
}

/// It would have to be prefetched as well.
#[test]
fn what_is_discarded_by_then_is_not_given_out() {
    let log = Log::default();
    let (a, base, other) = prefetched_in_vain(&log);
    a.free(other);
    allocate_more(&log, &a, S);
    log.streams_run();
    let third = a.malloc(16 * M, S).unwrap();
    assert!(third != other && third != base);
    // What was prefetched in vain holds what was written since, on the host, and is nobody's loss.
    a.free(base);
    assert_eq!(a.malloc(12 * M, S), Some(base));
}

/// Nobody has asked this allocator before, so it is none of its own.
#[test]
fn what_failed_before_the_first_allocation_does_not_count() {
    let log = Log::default();
    log.failed_prefetches.set(3);
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.free(base);
    allocate_more(&log, &a, S);
    assert_eq!(discards(&log), [Discard(base, S)]);
}

/// A stream that takes a prefetch has not done it yet.
#[test]
fn one_that_is_tried_counts_once_its_stream_has_done_it() {
    let log = Log::default();
    let (a, base, other) = prefetched_in_vain(&log);
    log.streams_run();
    free_often(&a, other, 1);
    a.free(base);
    log.take();
    log.fails_late.set(false);
    log.stuck.set(true);
    log.asked.set(0);
    free_often(&a, other, 2 * 64);
    // No other is tried meanwhile.
    assert_eq!(log.take(), [Prefetch(base, S), Marked(S)]);
    log.stuck.set(false);
    a.free(other);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(base, S), Discard(other, S)]);
    // It is over, so that nobody asks for the mark, which is no more.
    log.asked.set(0);
    free_often(&a, other, 1);
    assert!(log.asked.get() <= 1, "how much is free, at most");
}

/// One part may fail for ever, or its stream.
#[test]
fn where_one_fails_late_again_the_next_is_another() {
    let log = Log::default();
    let (a, base, other) = prefetched_in_vain(&log);
    a.free(base);
    log.streams_run();
    free_often(&a, other, 1);
    log.take();
    log.stuck.set(true);
    for tried in [base, other, base] {
        free_often(&a, other, 63);
        a.free(other);
        let did = log.take();
        assert!(did.contains(&Prefetch(tried, S)), "{tried:#x}: {did:?}");
        log.streams_run();
        log.stuck.set(false);
        assert_eq!(a.malloc(16 * M, S), Some(other));
        free_often(&a, other, 1);
        log.stuck.set(true);
        assert_eq!(log.take(), []);
    }
}

/// So many may have failed while nothing was discarded. They say nothing of what comes behind the one that is tried.
#[test]
fn what_fails_before_one_is_tried_is_not_counted_after_it() {
    let log = Log::default();
    let (a, base, other) = prefetched_in_vain(&log);
    log.streams_run();
    free_often(&a, other, 1);
    a.free(base);
    log.fails_late.set(false);
    free_often(&a, other, 62);
    log.failed_prefetches.set(log.failed_prefetches.get() + 1);
    log.take();
    a.free(other);
    allocate_more(&log, &a, S);
    assert_eq!(discards(&log), [Discard(base, S), Discard(other, S)]);
}
