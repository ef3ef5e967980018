// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::prefetch::Shape;
use std::vec::Vec;

fn block(n: u32) -> UmBlock {
    UmBlock(n)
}

fn correlator() -> Correlator {
    Correlator::new(Config {
        shape: Shape::DEEPUM,
        max_kernels: crate::testing::size(16384),
        ..Config::default()
    })
    .unwrap()
}

/// Kernels 1, 2, 3 over and over, each of which faults on blocks of its own.
fn train(c: &mut Correlator, feed: &Feed, iterations: usize) {
    for _ in 0..iterations {
        for id in 1..4u32 {
            feed.announce(ExecId(id.into()));
            for b in 0..5 {
                feed.fault(block(id * 10 + b));
            }
        }
        assert!(c.absorb(feed, 1000));
    }
}

fn prefetched(c: &mut Correlator) -> Vec<u32> {
    let mut found = Vec::new();
    loop {
        match c.next(100) {
            Next::Prefetch(p) => found.push(p.block.0),
            Next::More => {}
            Next::Idle => return found,
        }
    }
}

#[test]
fn what_came_in_order_is_learnt_in_order() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    train(&mut c, &feed, 3);
    assert_eq!(c.stats().kernels, 9);
    feed.announce(ExecId(1));
    assert!(c.absorb(&feed, 1000));
    let found = prefetched(&mut c);
    // Each kernel's blocks, and the next ones' after them.
    for id in 1..4 {
        for b in 0..5 {
            assert!(found.contains(&(id * 10 + b)), "{id} {b}: {found:?}");
        }
    }
}

#[test]
fn a_fault_before_any_kernel_is_nobodys() {
    let feed = Feed::new(4, 4).unwrap();
    assert!(!feed.fault(block(1)));
    feed.announce(ExecId(1));
    assert!(feed.fault(block(1)));
    assert!(!feed.fault(block(1)), "the same again tells nothing");
}

#[test]
fn a_full_ring_drops_and_says_so() {
    let (mut c, feed) = (correlator(), Feed::new(2, 2).unwrap());
    for id in 1..4 {
        feed.announce(ExecId(id));
        feed.fault(block(id as u32));
    }
    assert_eq!(feed.dropped(), (1, 1));
    assert!(c.absorb(&feed, 100));
    assert_eq!((c.stats().kernels, c.stats().faults), (2, 2));
    // What came after the lost announcement belongs to no kernel.
    feed.fault(block(9));
    c.absorb(&feed, 100);
    assert_eq!(c.stats().faults, 2);
}

#[test]
fn little_is_taken_at_a_time() {
    let (mut c, feed) = (correlator(), Feed::new(64, 64).unwrap());
    feed.announce(ExecId(1));
    for b in 0..9 {
        feed.fault(block(b));
    }
    assert!(!c.absorb(&feed, 4));
    assert!(!c.absorb(&feed, 6));
    assert!(c.absorb(&feed, 4));
    assert_eq!(c.stats().faults, 9);
}

/// With kernel 1 running, a prefetch for the kernel after the next.
fn far_prefetch(c: &mut Correlator, feed: &Feed) -> Prefetch {
    train(c, feed, 3);
    feed.announce(ExecId(1));
    c.absorb(feed, 1000);
    loop {
        match c.next(100) {
            Next::Prefetch(p) if p.ahead > 1 => break p,
            Next::Prefetch(_) | Next::More => {}
            Next::Idle => panic!("the chain ended early"),
        }
    }
}

#[test]
fn what_has_no_room_waits_for_the_next_kernel() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    let far = far_prefetch(&mut c, &feed);
    c.hold(far);
    assert_eq!(c.next(100), Next::Idle);
    feed.announce(ExecId(2));
    c.absorb(&feed, 1000);
    let Next::Prefetch(p) = c.next(100) else {
        panic!("it was not tried again");
    };
    assert_eq!((p.block, p.ahead), (far.block, far.ahead - 1));
}

/// It was for a kernel that was to come, and does not.
#[test]
fn what_waits_for_a_kernel_that_does_not_come_is_dropped() {
    for id in [3, 9, 0] {
        let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
        let far = far_prefetch(&mut c, &feed);
        c.hold(far);
        feed.announce(ExecId(id));
        c.absorb(&feed, 1000);
        let next = c.next(100);
        let again = |p: Prefetch| (p.block, p.ahead) == (far.block, far.ahead - 1);
        assert!(
            !matches!(next, Next::Prefetch(p) if again(p)),
            "{id}: {next:?}"
        );
    }
}

#[test]
fn what_is_put_back_comes_next() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    let far = far_prefetch(&mut c, &feed);
    assert!(c.is_current(&feed));
    feed.announce(ExecId(2));
    assert!(!c.is_current(&feed));
    c.put_back(far);
    assert!(c.absorb(&feed, 1000) && c.is_current(&feed));
    let Next::Prefetch(p) = c.next(100) else {
        panic!("nothing comes");
    };
    assert_eq!((p.block, p.ahead), (far.block, far.ahead - 1));
}

#[test]
fn idle_predicts_nothing() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    train(&mut c, &feed, 3);
    let before = c.now();
    feed.announce(ExecId(0));
    c.absorb(&feed, 10);
    assert_eq!(prefetched(&mut c), []);
    assert!(c.now().wrapping_sub(before) > 32, "expectations are void");
}

#[test]
fn what_is_freed_is_not_prefetched() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    train(&mut c, &feed, 3);
    c.forget(block(20), block(29));
    feed.announce(ExecId(1));
    c.absorb(&feed, 1000);
    let found = prefetched(&mut c);
    assert!(found.iter().all(|b| !(20..30).contains(b)), "{found:?}");
}

fn coming(n: u32, ahead: u32) -> Prefetch {
    Prefetch {
        block: block(n),
        ahead,
        ..Prefetch::default()
    }
}

/// What comes next of what was to come from the SSD, which stays there. What is over has come. Nothing else is predicted.
fn looked_at(c: &mut Correlator) -> Vec<u32> {
    let mut seen = Vec::new();
    while let Next::Prefetch(p) = c.next(100) {
        if p.ssd == FromSsd::Over {
            continue;
        }
        assert_eq!(p.ssd, FromSsd::Comes);
        seen.push(p.block.0);
        c.comes(p);
    }
    seen
}

#[test]
fn what_comes_from_the_ssd_is_looked_at_when_a_read_has_ended() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    (1..=3).for_each(|n| c.comes(coming(n, 0)));
    // It was predicted for another kernel as well.
    c.comes(coming(2, 7));
    c.absorb(&feed, 100);
    assert_eq!(c.next(100), Next::Idle);
    for _ in 0..2 {
        feed.read_ended();
        c.absorb(&feed, 100);
        assert_eq!(looked_at(&mut c), [1, 2, 3], "once for each time");
    }
    // One that waited for faults is looked at with the others; where there is no room for one, all wait.
    feed.read_ended();
    c.absorb(&feed, 100);
    let Next::Prefetch(first) = c.next(100) else {
        panic!("none comes");
    };
    c.put_back(first);
    assert_eq!(looked_at(&mut c), [2, 3, 1]);
    c.forget(block(3), block(4));
    assert_eq!(looked_at(&mut c), [2, 1]);
    c.hold(Prefetch {
        ssd: FromSsd::Comes,
        ..coming(5, 0)
    });
    feed.read_ended();
    c.absorb(&feed, 100);
    assert_eq!(c.next(100), Next::Idle);
}

#[test]
fn what_was_asked_for_once_stays_so() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    c.comes(coming(1, 0));
    c.comes(coming(1, 0).asked());
    c.comes(coming(1, 0));
    feed.read_ended();
    c.absorb(&feed, 100);
    assert_eq!(c.next(100), Next::Prefetch(coming(1, 0).asked()));
}

/// It is to stay up to the last of the kernels that it was predicted for, in whatever order that came.
#[test]
fn of_two_predictions_the_later_kernel_counts() {
    for (first, second) in [(1, 7), (7, 1)] {
        let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
        c.comes(coming(1, first));
        c.comes(coming(1, second));
        assert_eq!(c.on_their_way(), 1);
        feed.read_ended();
        c.absorb(&feed, 100);
        let later = coming(1, 7).coming();
        assert_eq!(c.next(100), Next::Prefetch(later), "{first} {second}");
    }
}

#[test]
fn one_too_many_waits_for_a_place() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    for n in 0..FETCHES as u32 {
        assert!(c.may_fetch());
        c.comes(coming(n, 0));
    }
    assert!(!c.may_fetch());
    c.fall_behind(coming(99, 0));
    assert_eq!(c.next(100), Next::Idle);
    feed.read_ended();
    c.absorb(&feed, 100);
    assert_eq!(looked_at(&mut c).len(), FETCHES, "none has a place yet");
    c.forget(block(50), block(60));
    assert!(!c.may_fetch(), "what is freed was none of these");
    c.fall_behind(coming(99, 0));
    feed.read_ended();
    c.absorb(&feed, 100);
    assert_eq!(c.next(100), Next::Prefetch(coming(0, 0).coming()));
    // The first has come.
    for _ in 1..FETCHES {
        let Next::Prefetch(p) = c.next(100) else {
            panic!("not all are looked at");
        };
        c.comes(p);
    }
    assert_eq!(c.next(100), Next::Prefetch(coming(99, 0)));
}

/// Two va_blocks of different ranges may be in the same 2 MiB. One of them is freed, and the other one is read.
#[test]
fn what_is_partly_freed_keeps_its_place_until_it_has_come() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    (0..FETCHES as u32).for_each(|n| c.comes(coming(n, 0)));
    c.forget(block(2), block(3));
    assert!(!c.may_fetch(), "as many are on their way as were");
    feed.read_ended();
    c.absorb(&feed, 100);
    for n in 0..FETCHES as u32 {
        let is_gone = (2..=3).contains(&n);
        let expected = if is_gone {
            coming(n, 0).over()
        } else {
            coming(n, 0).coming()
        };
        assert_eq!(c.next(100), Next::Prefetch(expected));
    }
    assert!(c.may_fetch());
}

/// The device reads it all the same, so that no other takes its place.
#[test]
fn what_comes_late_keeps_its_place_until_it_has_come() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    let far = far_prefetch(&mut c, &feed);
    (1..FETCHES as u32).for_each(|n| c.comes(coming(n + 70, 0)));
    c.comes(far);
    assert!(!c.may_fetch());
    feed.announce(ExecId(2));
    c.absorb(&feed, 1000);
    assert!(!c.may_fetch(), "as many are on their way as were");
    for n in 1..FETCHES as u32 {
        let over = coming(n + 70, 0).over();
        assert_eq!(c.next(100), Next::Prefetch(over));
        c.comes(over);
    }
    let nearer = Prefetch {
        ahead: far.ahead - 1,
        ..far.coming()
    };
    assert_eq!(c.next(100), Next::Prefetch(nearer));
    // An unknown kernel: what was foreseen does not come, and what is over stays so.
    c.comes(nearer);
    feed.announce(ExecId(9));
    c.absorb(&feed, 1000);
    for _ in 0..FETCHES {
        let Next::Prefetch(p) = c.next(100) else {
            panic!("not all are looked at");
        };
        assert_eq!(p.ssd, FromSsd::Over);
    }
    assert!(c.may_fetch());
    assert_eq!(prefetched(&mut c), [0u32; 0]);
}

#[test]
fn what_is_over_and_predicted_again_is_brought() {
    let (mut c, feed) = (correlator(), Feed::new(64, 1024).unwrap());
    (0..FETCHES as u32).for_each(|n| c.comes(coming(n, 0)));
    feed.announce(ExecId(9));
    c.absorb(&feed, 1000);
    // With a place of its own, and with none left: it has one.
    c.comes(coming(2, 5));
    c.fall_behind(coming(3, 6));
    let seen: Vec<_> = (0..FETCHES).map(|_| c.next(100)).collect();
    for (n, next) in (0..).zip(seen) {
        let expected = match n {
            2 => coming(2, 5).coming(),
            3 => coming(3, 6).coming(),
            _ => coming(n, 0).over(),
        };
        assert_eq!(next, Next::Prefetch(expected));
    }
    assert_eq!(c.next(100), Next::Idle, "none waits for a place");
}
