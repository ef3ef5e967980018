// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Against processes of several threads, whose steps come in any order.

use super::*;
use core::cell::RefCell;
use proptest::prelude::*;
use std::vec::Vec;

const MIB: u64 = 1 << 20;

fn chunks(n: u32) -> Max {
    Max(n)
}

/// With this maximum, and nothing protected.
fn quota(max: Max) -> Quota {
    let low = Low::NONE;
    Quota::new(Limits { max, low })
}

#[test]
fn root_chunks_count_unless_their_thread_frees() {
    assert!(counts(true, false));
    assert!(!counts(true, true));
    assert!(!counts(false, false) && !counts(false, true));
}

/// How an eviction of a chunk of the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evicted {
    /// The chunk is gone.
    Gone,
    /// The chunk stays, as somebody holds it.
    Held,
    /// There is none to try.
    Nothing,
}

/// A process alone, whose evictions end like this, the first one first; the rest succeed.
struct Alone {
    held: Option<u32>,
    ends: Vec<Evicted>,
    evictions: u32,
    dies_after: u32,
}

impl Alone {
    fn new(held: u32, ends: &[Evicted]) -> Self {
        Self {
            held: Some(held),
            ends: ends.iter().rev().copied().collect(),
            evictions: 0,
            dies_after: u32::MAX,
        }
    }
}

impl Machine for Alone {
    fn held(&mut self) -> Option<u32> {
        self.held
    }

    fn evict(&mut self) -> bool {
        self.evictions += 1;
        let end = self.ends.pop().unwrap_or(Evicted::Gone);
        if end == Evicted::Gone {
            self.held = self.held.map(|held| held - 1);
        }
        end != Evicted::Nothing
    }

    fn dying(&mut self) -> bool {
        self.evictions >= self.dies_after
    }
}

/// What is held and was evicted after an allocation asked, and how many went beyond.
fn asks(max: Max, held: u32, ends: &[Evicted]) -> (u32, u32, u64) {
    let (quota, mut process) = (quota(max), Alone::new(held, ends));
    make_room(&quota, &mut process);
    (process.held.unwrap(), process.evictions, quota.beyond())
}

#[test]
fn a_process_at_its_maximum_evicts_first() {
    assert_eq!(asks(chunks(4), 3, &[]), (3, 0, 0));
    assert_eq!(asks(chunks(4), 4, &[]), (3, 1, 0));
    assert_eq!(asks(Max::NONE, u32::MAX, &[]), (u32::MAX, 0, 0));
}

/// What is beyond becomes less with each allocation, and no allocation evicts more than two.
#[test]
fn what_is_beyond_goes_with_the_next_allocations() {
    assert_eq!(asks(chunks(4), 5, &[]), (3, 2, 0));
    assert_eq!(asks(chunks(4), 9, &[]), (7, 2, 1));
    let (quota, mut process) = (quota(chunks(4)), Alone::new(9, &[]));
    let mut held = Vec::new();
    for _ in 0..7 {
        make_room(&quota, &mut process);
        process.held = process.held.map(|held| held + 1);
        held.extend(process.held);
    }
    assert_eq!(held, [8, 7, 6, 5, 4, 4, 4]);
    assert_eq!(quota.beyond(), 4);
}

#[test]
fn what_cannot_be_evicted_stays_and_is_counted() {
    use Evicted::{Gone, Held, Nothing};
    assert_eq!(asks(chunks(4), 4, &[Nothing]), (4, 1, 1));
    // Another chunk may be free of what holds the first.
    assert_eq!(asks(chunks(4), 4, &[Held, Gone]), (3, 2, 0));
    assert_eq!(asks(chunks(4), 4, &[Held, Held]), (4, 2, 1));
}

#[test]
fn what_nobody_counts_is_not_limited() {
    let (quota, mut process) = (quota(chunks(1)), Alone::new(9, &[]));
    process.held = None;
    make_room(&quota, &mut process);
    assert_eq!(give_up(&quota, &mut process, u32::MAX), 0);
    assert_eq!((process.evictions, quota.beyond()), (0, 0));
}

#[test]
fn a_lowered_maximum_is_kept_at_once_as_far_as_evictions_go() {
    use Evicted::{Held, Nothing};
    let gives_up = |held, ends: &[Evicted], dies_after| {
        let (quota, mut process) = (quota(chunks(4)), Alone::new(held, ends));
        process.dies_after = dies_after;
        let mut left = u32::MAX;
        while left > 0 {
            let (before, at_most) = (process.evictions, left);
            left = give_up(&quota, &mut process, left);
            assert!(left < at_most && process.evictions <= before + AT_A_TIME);
        }
        assert_eq!(quota.beyond(), 0, "nothing was allocated");
        (process.held.unwrap(), process.evictions)
    };
    assert_eq!(gives_up(9, &[], 99), (4, 5));
    assert_eq!(gives_up(4, &[], 99), (4, 0));
    assert_eq!(gives_up(3, &[], 99), (3, 0));
    assert_eq!(gives_up(9, &[Held, Held], 99), (6, 5));
    assert_eq!(gives_up(9, &[Nothing], 99), (9, 1));
    let (many, ends) = (4 + 3 * AT_A_TIME, [Held; 99]);
    assert_eq!(gives_up(many, &[], 99), (4, 3 * AT_A_TIME));
    assert_eq!(gives_up(many, &ends, 99), (many, 3 * AT_A_TIME));
    assert_eq!(gives_up(9, &[], 2), (7, 2));
}

#[test]
fn who_may_not_raise_may_lower() {
    let quota = quota(Max::of_bytes(20 * MIB));
    let set = |mib: u64, may| {
        let max = Max::of_bytes(mib.saturating_mul(MIB));
        quota.set(|limits| Limits { max, ..limits }, may)
    };
    assert_eq!(set(22, false), Err(MayNotRaise));
    assert_eq!(quota.max().limit(), Some(20 * MIB));
    set(19, false).unwrap();
    assert_eq!(quota.max().limit(), Some(18 * MIB), "whole chunks count");
    assert_eq!(set(u64::MAX, false), Err(MayNotRaise));
    set(u64::MAX, true).unwrap();
    assert_eq!((quota.max().limit(), quota.max().bytes()), (None, u64::MAX));
}

#[test]
fn a_low_is_raised_and_lowered_as_a_maximum_is() {
    let quota = quota(chunks(10));
    let set = |max: u32, low: u32, may| {
        let (max, low) = (chunks(max), Low(low));
        quota.set(|_| Limits { max, low }, may)
    };
    let now = || (quota.max().0, quota.low().chunks());
    assert_eq!(set(10, 1, false), Err(MayNotRaise));
    // What may be lowered is not, if the other would be raised.
    assert_eq!(set(8, 1, false), Err(MayNotRaise));
    assert_eq!(now(), (10, 0));
    set(10, 6, true).unwrap();
    assert_eq!(set(11, 5, false), Err(MayNotRaise));
    assert_eq!(now(), (10, 6));
    set(9, 5, false).unwrap();
    assert_eq!(now(), (9, 5));
    // Nobody is stopped from more than there is, and from more than the maximum.
    set(9, u32::MAX, true).unwrap();
    assert_eq!(now(), (9, u32::MAX));
    assert_eq!(Low::of_bytes(u64::MAX).chunks(), u32::MAX);
    assert_eq!(Low::of_bytes(5 * MIB).bytes(), 4 * MIB);
    assert_eq!((Low::of_mib(0), Low::of_mib(7)), (Low::NONE, Low(3)));
}

#[test]
fn what_there_is_in_other_units() {
    assert_eq!(Max::of_mib(0), Max::NONE);
    assert_eq!(Max::of_mib(1024).limit(), Some(1024 * MIB));
    assert_eq!(Max::of_bytes(u64::MAX), Max::NONE);
    assert!(Max::of_bytes(u64::MAX / 4096) < Max::NONE);
    // 80 GiB; 64 MiB, and nothing at all.
    assert_eq!(Max::least(40960).limit(), Some(640 * MIB));
    assert_eq!(Max::least(32).limit(), Some(8 * MIB));
    assert_eq!(Max::least(0), chunks(1));
}

/// Threads of one process that all have the quota before them. A thread takes a step at a time.
struct Crowd {
    held: u32,
    /// Evictions that have begun, and are not over: their chunks count.
    leaving: u32,
}

/// A thread of it, which stops at each step until it has its turn.
struct Member<'a> {
    crowd: &'a RefCell<Crowd>,
    /// Other threads' steps between those of this one.
    between: &'a mut dyn FnMut(&RefCell<Crowd>, u32),
    depth: u32,
}

impl Machine for Member<'_> {
    fn held(&mut self) -> Option<u32> {
        (self.between)(self.crowd, self.depth);
        Some(self.crowd.borrow().held)
    }

    fn evict(&mut self) -> bool {
        {
            let mut crowd = self.crowd.borrow_mut();
            if crowd.leaving == crowd.held {
                return false;
            }
            crowd.leaving += 1;
        }
        (self.between)(self.crowd, self.depth);
        let mut crowd = self.crowd.borrow_mut();
        crowd.leaving -= 1;
        crowd.held -= 1;
        true
    }

    fn dying(&mut self) -> bool {
        false
    }
}

/// A thread allocates, and within each of its steps others do as `turns` says, so many threads at a time.
fn allocates(
    quota: &Quota,
    crowd: &RefCell<Crowd>,
    depth: u32,
    threads: u32,
    turns: &RefCell<Vec<bool>>,
    most: &RefCell<u32>,
) {
    let mut between = |crowd: &RefCell<Crowd>, depth: u32| {
        while depth + 1 < threads && turns.borrow_mut().pop() == Some(true) {
            allocates(quota, crowd, depth + 1, threads, turns, most);
        }
    };
    let mut member = Member {
        crowd,
        between: &mut between,
        depth,
    };
    make_room(quota, &mut member);
    (member.between)(crowd, depth);
    let mut crowd = crowd.borrow_mut();
    crowd.held += 1;
    let mut most = most.borrow_mut();
    *most = crowd.held.max(*most);
}

proptest! {
    #![proptest_config(crate::testing::model(256))]

    /// The bound that docs/shares.md tells, and that what is beyond is gone after as many allocations of one thread.
    #[test]
    fn threads_exceed_the_maximum_by_their_number_at_most(
        max in 1..12_u32,
        threads in 1..6_u32,
        turns in proptest::collection::vec(any::<bool>(), 0..crate::testing::steps(400)),
    ) {
        let (quota, most) = (quota(chunks(max)), RefCell::new(0));
        let crowd = RefCell::new(Crowd { held: 0, leaving: 0 });
        let turns = RefCell::new(turns);
        while !turns.borrow().is_empty() {
            allocates(&quota, &crowd, 0, threads, &turns, &most);
            turns.borrow_mut().pop();
        }
        let most = *most.borrow();
        prop_assert!(most < max + threads, "{most} of {max} by {threads}");
        for _ in 0..threads + max {
            allocates(&quota, &crowd, 0, 1, &turns, &RefCell::new(0));
        }
        prop_assert_eq!(crowd.borrow().held, max);
    }
}
