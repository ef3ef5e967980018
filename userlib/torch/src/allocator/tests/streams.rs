// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Streams whose handle does not say which they are: default streams, and threads' own.

use super::*;

/// The handle of a default stream does not say whose it is, and PyTorch makes the tensor's own
/// device current before it names one. The other device's may wait for this one's, as by NCCL, so
/// neither a stream nor a thread waits for it.
#[test]
fn a_recorded_default_stream_is_that_of_each_device_in_use() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let other = a.malloc(LARGE, queue(1, 16)).unwrap();
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream(base, StreamId(0));
    log.take();
    log.stuck.set(true);
    a.free(base);
    assert_eq!(log.take(), [Marked(queue(0, 0)), Marked(queue(1, 0))]);
    a.empty_cache();
    assert_eq!(log.take(), [Reached(queue(0, 0))]);
    assert_ne!(a.malloc(LARGE, S), Some(base));
    log.stuck.set(false);
    assert_eq!(a.malloc(LARGE, S), Some(base));
    // Its own default stream needs no wait for itself.
    let base = a.malloc(LARGE, queue(0, 0)).unwrap();
    a.record_stream(base, StreamId(0));
    log.take();
    a.free(base);
    assert_eq!(log.take(), [Marked(queue(1, 0))]);
    // Any other stream has a handle of its own.
    a.record_stream(other, StreamId(32));
    a.free(other);
    let waits = |did: &Did| *did == Wait(queue(1, 16), queue(1, 32));
    assert!(log.take().iter().any(waits));
}

#[test]
fn a_default_stream_of_a_named_device_is_no_others() {
    let log = Log::default();
    let a = Allocator::new(&log);
    a.malloc(LARGE, queue(1, 16)).unwrap();
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream_on(base, queue(0, 0));
    log.take();
    a.free(base);
    assert_eq!(log.take()[0], Wait(S, queue(0, 0)));
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream_on(base, queue(1, 0));
    log.take();
    a.free(base);
    assert_eq!(log.take(), [Marked(queue(1, 0))]);
}

#[test]
fn what_another_devices_frees_wait_for_is_not_waited_for_with_no_memory() {
    let (log, its) = (Log::default(), [queue(1, 16), queue(1, 32)]);
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, its[0]).unwrap();
    a.record_stream(base, its[1].stream);
    log.no_wait.set(true);
    log.stuck.set(true);
    a.free(base);
    assert_eq!(log.take()[1..], [Marked(its[1])]);
    log.limit.set(Some(1));
    assert_eq!(a.malloc(LARGE, S), None);
    assert_eq!(log.take(), []);
    assert_eq!(a.malloc(LARGE, its[0]), None);
    assert_eq!(log.take(), [Reached(its[1])]);
}

/// Its handle means another stream in each thread, and the legacy one waits for them all.
#[test]
fn the_threads_default_streams_are_ordered_by_the_legacy_one() {
    let (log, own, legacy) = (Log::default(), queue(0, 2), queue(0, 1));
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream(base, own.stream);
    a.free(base);
    // It does not count on the legacy one for what the own one only waits for.
    let waits = [Wait(S, legacy), Wait(S, own)];
    assert_eq!(log.take()[1..], waits);
    allocate_more(&log, &a, S);
    assert_eq!(log.take(), [Discard(base, S)]);
    let base = a.malloc(LARGE, own).unwrap();
    a.free(base);
    allocate_more(&log, &a, own);
    log.take();
    assert_eq!(a.malloc(LARGE, own), Some(base));
    assert_eq!(log.take(), [Prefetch(base, legacy), Wait(own, legacy)]);
    a.free(base);
    // It cannot be made to wait: another block.
    log.no_wait.set(true);
    assert_ne!(a.malloc(LARGE, own), Some(base));
    log.no_wait.set(false);
    assert_eq!(a.malloc(LARGE, own), Some(base));
}

/// On whichever device the recorded one is, it is the one of the thread that frees.
#[test]
fn a_recorded_own_stream_is_asked_by_the_thread_that_frees() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let [records, frees] = [Thread::new(), Thread::new()];
    for device in [0, 1] {
        let base = a.malloc(LARGE, S).unwrap();
        records.act(|| a.record_stream_on(base, queue(device, 2)));
        a.begin_pool(0, GraphPool(0, 7));
        log.take();
        frees.act(|| a.free(base));
        assert_eq!(log.take(), [Marked(queue(device, 2))]);
        a.end_pool(0, GraphPool(0, 7));
    }
    assert_eq!(*log.named.borrow(), [frees, frees]);
}

/// Memory of an own stream that is recorded for it too is no other's.
#[test]
fn an_own_stream_is_waited_for_once() {
    let (log, own, legacy) = (Log::default(), queue(0, 2), queue(0, 1));
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, own).unwrap();
    a.record_stream(base, own.stream);
    a.free(base);
    assert_eq!(log.take()[1..], [Wait(legacy, own)]);
}

/// A capture is broken by a wait for what is no part of it.
#[test]
fn a_threads_own_stream_does_not_wait_while_it_is_captured() {
    let (log, own) = (Log::default(), queue(0, 2));
    let a = Allocator::new(&log);
    let first = a.malloc(4096, own).unwrap();
    log.capturing.set(true);
    // Of the second, there is a free part.
    for _ in 0..2 {
        let captured = a.malloc(4096, own).unwrap();
        assert_ne!(first, captured);
    }
    assert!(!log.take().iter().any(|did| matches!(did, Wait(..))));
    // Afterwards it does, for the parts that are left.
    log.capturing.set(false);
    a.malloc(4096, own).unwrap();
    assert!(matches!(log.take()[..], [Wait(..)]));
}

/// Others name another stream by its handle, so that what the thread of the free has to do is marked
/// by itself, although a pool is begun.
#[test]
fn who_frees_in_a_capture_is_who_marks_its_own_stream() {
    let (log, own, legacy) = (Log::default(), queue(0, 2), queue(0, 1));
    let a = Allocator::new(&log);
    let [frees, other] = [Thread::new(), Thread::new()];
    let base = frees.act(|| a.malloc(LARGE, own)).unwrap();
    a.record_stream(base, T.stream);
    a.begin_pool(0, GraphPool(0, 7));
    log.take();
    log.stuck.set(true);
    frees.act(|| a.free(base));
    assert_eq!(log.take(), [Marked(own)]);
    a.end_pool(0, GraphPool(0, 7));
    other.act(|| a.trim(0));
    // By what was marked: the handle means another stream here.
    assert_eq!(log.take(), [Reached(own)]);
    log.stuck.set(false);
    other.act(|| a.trim(u64::MAX));
    assert_eq!(log.take(), [Wait(legacy, T)]);
    allocate_more(&log, &a, legacy);
    assert_eq!(log.take(), [Discard(base, legacy)]);
    assert_eq!(*log.named.borrow(), [frees]);
}

/// What is captured has no mark to wait for, and an event may not be had.
#[test]
fn what_its_own_stream_can_not_be_asked_of_is_asked_by_the_thread_that_freed() {
    for captured in [true, false] {
        let (log, own) = (Log::default(), queue(0, 2));
        let a = Allocator::new(&log);
        let [frees, other] = [Thread::new(), Thread::new()];
        let base = frees.act(|| a.malloc(LARGE, own)).unwrap();
        log.capturing.set(captured);
        let fail = |fail| {
            [&log.no_mark, &log.no_wait]
                .into_iter()
                .for_each(|no| no.set(fail))
        };
        fail(!captured);
        frees.act(|| a.free(base));
        log.capturing.set(false);
        fail(false);
        log.take();
        other.act(|| a.malloc(LARGE, S)).unwrap();
        let did = log.take();
        assert!(matches!(did[..], [Alloc(..)]), "{captured}: {did:?}");
        frees.act(|| a.trim(u64::MAX));
        assert_eq!(log.take(), [Wait(queue(0, 1), own)]);
        allocate_more(&log, &a, queue(0, 1));
        assert_eq!(log.take(), [Discard(base, queue(0, 1))]);
        assert!(log.named.borrow().iter().all(|&by| by == frees));
    }
}

/// An event that has passed is destroyed, which whoever waits for it must not meet. Others are asked.
#[test]
fn a_mark_that_is_waited_for_is_asked_by_nobody_else() {
    let log = Log::default();
    let a = Allocator::new(&log);
    let bases = [LARGE; 2].map(|size| a.malloc(size, S).unwrap());
    log.no_wait.set(true);
    log.stuck.set(true);
    for (base, other) in bases.into_iter().zip([T, queue(0, 48)]) {
        a.record_stream(base, other.stream);
        a.free(base);
    }
    assert_eq!(a.lock(0).marked(0), bases);
    let waiting = a.lock(0).take_marked(bases[0]).unwrap();
    log.stuck.set(false);
    log.asked.set(0);
    a.lock(0).settle();
    assert_eq!(log.asked.get(), 1);
    a.lock(0).put_back_marked(waiting);
    a.lock(0).settle();
    let mut again = [LARGE; 2].map(|size| a.malloc(size, S).unwrap());
    again.sort_unstable();
    assert_eq!(again, bases);
}

/// A block freed by a thread whose own stream is captured, and that is over.
fn freed_and_over(log: &Log, own: Queue) -> (Allocator<&Log>, u64) {
    let a = Allocator::new(log);
    let base = Thread::new().act(|| {
        let base = a.malloc(LARGE, own).unwrap();
        a.record_stream(base, T.stream);
        log.captured.borrow_mut().insert(own, 1);
        a.free(base);
        log.captured.borrow_mut().remove(&own);
        base
    });
    log.take();
    (a, base)
}

/// Nobody can name it any more, so its device is waited for.
#[test]
fn what_the_stream_of_a_thread_that_is_over_had_is_waited_for() {
    let (log, own, legacy) = (Log::default(), queue(0, 2), queue(0, 1));
    let (a, base) = freed_and_over(&log, own);
    a.trim(u64::MAX);
    assert_eq!(log.take(), [DrainAll, Wait(legacy, T)]);
    allocate_more(&log, &a, legacy);
    assert_eq!(log.take(), [Discard(base, legacy)]);
    assert!(log.named.borrow().is_empty());
    a.trim(u64::MAX);
    assert_eq!(log.take(), [], "once");
}

/// Another device may wait for what comes behind the free.
#[test]
fn no_device_is_waited_for_with_an_own_stream_of_another() {
    for here in [false, true] {
        let log = Log::default();
        let a = Allocator::new(&log);
        let base = a.malloc(LARGE, S).unwrap();
        let of = |device| a.record_stream_on(base, queue(device, 2));
        (0..2).filter(|&device| here || device == 1).for_each(of);
        log.no_mark.set(true);
        Thread::new().act(|| a.free(base));
        log.no_mark.set(false);
        log.take();
        // What is left is asked by the first, and seen to be done by the next.
        (0..3).for_each(|_| a.trim(0));
        let did = log.take();
        assert_eq!(did.contains(&DrainAll), here, "{did:?}");
        assert!(!did.contains(&Free(base)), "{did:?}");
    }
}

#[test]
fn a_device_that_can_not_be_waited_for_leaves_it() {
    let (log, own) = (Log::default(), queue(0, 2));
    let (a, base) = freed_and_over(&log, own);
    log.no_drain.set(true);
    a.trim(u64::MAX);
    assert_eq!(log.take(), []);
    log.no_drain.set(false);
    a.trim(0);
    assert!(log.take().contains(&Free(base)));
}

/// It breaks a capture with a pool, and one in another thread's own stream, of which the legacy one
/// tells.
#[test]
fn a_device_is_not_waited_for_while_a_capture_may_be_under_way() {
    let (log, own, legacy) = (Log::default(), queue(0, 2), queue(0, 1));
    let (a, _) = freed_and_over(&log, own);
    a.begin_pool(0, GraphPool(0, 7));
    a.trim(u64::MAX);
    a.end_pool(0, GraphPool(0, 7));
    assert_eq!(log.take(), []);
    log.captured.borrow_mut().insert(legacy, 2);
    a.trim(u64::MAX);
    assert_eq!(log.take(), []);
    log.captured.borrow_mut().clear();
    a.trim(u64::MAX);
    assert_eq!(log.take()[0], DrainAll);
}

/// Who frees can name its own stream, and waits for no device.
#[test]
fn a_thread_that_asks_its_own_stream_waits_for_no_device() {
    let (log, own, legacy) = (Log::default(), queue(0, 2), queue(0, 1));
    let a = Allocator::new(&log);
    let base = a.malloc(LARGE, own).unwrap();
    log.no_mark.set(true);
    log.no_wait.set(true);
    a.free(base);
    log.take();
    a.trim(u64::MAX);
    assert_eq!(log.take(), []);
    log.no_mark.set(false);
    log.no_wait.set(false);
    a.trim(u64::MAX);
    assert_eq!(log.take(), [Wait(legacy, own)]);
    allocate_more(&log, &a, legacy);
    assert_eq!(log.take(), [Discard(base, legacy)]);
}

#[test]
fn of_two_threads_own_streams_one_may_be_done_before_the_other() {
    let (log, own) = (Log::default(), queue(0, 2));
    let a = Allocator::new(&log);
    let bases = [LARGE; 2].map(|size| a.malloc(size, own).unwrap());
    log.stuck.set(true);
    a.begin_pool(0, GraphPool(0, 7));
    for base in bases {
        Thread::new().act(|| a.free(base));
    }
    a.end_pool(0, GraphPool(0, 7));
    let before = log.asked.get();
    a.lock(0).settle();
    assert_eq!(log.asked.get(), before + 2, "each is asked");
}

/// A stream that the program destroys, where memory is short, so that all that is free is looked
/// at. `freed` says whether all of its memory is free before the cache is emptied.
fn destroys_a_stream(freed: bool) {
    let (log, its) = (Log::default(), queue(0, 48));
    log.memory.set(Some((48 << 20, 48 << 20)));
    let a = Allocator::new(&log);
    // Two of one segment, and one that the stream uses too.
    let [first, second] = [3 << 20; 2].map(|size| a.malloc(size, its).unwrap());
    let recorded = a.malloc(LARGE, S).unwrap();
    a.record_stream(recorded, its.stream);
    a.free(first);
    if freed {
        a.free(second);
        a.free(recorded);
    }
    a.empty_cache();
    log.destroyed.borrow_mut().insert(its);
    let bases = [LARGE; 6].map(|size| a.malloc(size, S).unwrap());
    bases.iter().for_each(|&base| a.free(base));
    let small = a.malloc(3 << 20, S).unwrap();
    assert!(a.device_stats(0).discards > 0);
    a.free(small);
    a.empty_cache();
    assert!(!freed || a.stats().held_bytes == 0);
}

#[test]
fn a_stream_whose_memory_is_given_back_may_be_destroyed() {
    destroys_a_stream(true);
}

/// The free part of its segment stays, and nothing is discarded in its order any more.
#[test]
fn one_with_memory_in_use_is_left_alone() {
    destroys_a_stream(false);
}
