// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whose turn it is: one test for each sentence, and the arbiter against a slow and obvious one.

use super::super::cause::Cause;
use super::*;
use crate::testing::{setting, steps, Dice};
use std::thread;
use std::vec;
use std::vec::Vec;

/// Whether somebody who has just come may begin. Who may not does not wait.
fn begins(a: &Arbiter) -> bool {
    let mut turn = Turn::default();
    let begins = a.others_begin(&mut turn, 0);
    a.leave(turn);
    begins
}

#[test]
fn others_begin_nothing_while_a_fault_waits() {
    let (a, mut turn) = (Arbiter::new(), Turn::default());
    let (first, second) = (a.wait(7), a.wait(100));
    assert!(!a.others_begin(&mut turn, 8));
    a.begin(first, 1);
    assert!(
        !a.others_begin(&mut turn, 6 + FAULTS_FIRST_US),
        "another waits"
    );
    a.begin(second, 1);
    assert!(a.others_begin(&mut turn, 300));
    assert_eq!(a.most_ahead(), 0);
    a.begin(a.wait(300), 1);
    assert_eq!(a.most_ahead(), 1);
}

#[test]
fn however_long_faults_wait_others_begin_now_and_then() {
    let (a, mut turn) = (Arbiter::new(), Turn::default());
    let waits = a.wait(7);
    assert!(!a.others_begin(&mut turn, 6 + FAULTS_FIRST_US));
    // One of them, who has waited longest; whatever is read for other faults meanwhile.
    let (mut late, then) = (Turn::default(), 7 + FAULTS_FIRST_US);
    assert!(!a.others_begin(&mut late, then) && a.others_begin(&mut turn, then));
    a.begin(a.wait(then), 1);
    assert!(!a.others_begin(&mut late, then + FAULTS_FIRST_US - 1));
    assert!(a.others_begin(&mut late, then + FAULTS_FIRST_US));
    a.give_up(waits);
    a.others_end();
    assert!(a.others_begin(&mut late, then + FAULTS_FIRST_US));
    assert_eq!(a.most_ahead(), 1);
}

#[test]
fn others_have_a_share_in_a_storm_of_faults() {
    let (a, mut turn) = (Arbiter::new(), Turn::default());
    let last = a.wait(0);
    let (pages, mut begun) = (SHARE_PAGES / 4, 0);
    for _ in 0..64 {
        a.begin(a.wait(0), pages);
        if a.others_begin(&mut turn, 0) {
            begun += 1;
            a.others_end();
        }
    }
    assert_eq!(begun, 16);
    a.begin(last, pages);
    assert_eq!(a.most_ahead(), 16, "that one waited all the time");
}

#[test]
fn few_are_under_way_and_some_more_where_none_ends() {
    let (a, mut turn) = (Arbiter::new(), Turn::default());
    (0..DEPTH).for_each(|_| assert!(begins(&a)));
    for _ in 0..DEPTH {
        let mut turn = Turn::default();
        assert!(!a.others_begin(&mut turn, 0) && !a.others_begin(&mut turn, PATIENCE_US - 1));
        assert!(a.others_begin(&mut turn, PATIENCE_US));
    }
    assert!(!a.others_begin(&mut turn, 0) && !a.others_begin(&mut turn, 9 * PATIENCE_US));
    (0..=DEPTH).for_each(|_| a.others_end());
    assert!(begins(&a) && !begins(&a));
}

#[test]
fn what_is_waited_for_faults_takes_no_patience() {
    let (a, mut turn) = (Arbiter::new(), Turn::default());
    assert!(begins(&a));
    let waits = a.wait(0);
    assert!(!a.others_begin(&mut turn, 0) && !a.others_begin(&mut turn, FAULTS_FIRST_US - 1));
    a.give_up(waits);
    assert!(begins(&a));
    let now_us = 9 * PATIENCE_US;
    assert!(!a.others_begin(&mut turn, now_us) && !a.others_begin(&mut turn, now_us + 1));
}

#[test]
fn a_device_that_is_slow_answers_all_the_same() {
    let (a, mut turn) = (Arbiter::new(), Turn::default());
    (0..DEPTH).for_each(|_| assert!(begins(&a)));
    let step = PATIENCE_US - 1;
    let looks = PATIENCE_MOST_US / step;
    for look in 0..=looks {
        assert!(!a.others_begin(&mut turn, look * step));
        // Somebody else comes first.
        a.others_end();
        assert!(begins(&a));
    }
    assert!(
        a.others_begin(&mut turn, (looks + 1) * step),
        "always overtaken"
    );
}

#[test]
fn what_is_ahead_is_what_was_under_way_meanwhile() {
    let seed = setting("UVM_TEST_SEED", 1);
    std::eprintln!("UVM_TEST_SEED={seed}");
    let (a, mut d) = (Arbiter::new(), Dice::new(seed));
    let (mut waiting, mut most, mut running, mut read) = (Vec::new(), 0, 0_u64, 0);
    // More than the count of what has begun has values.
    for _ in 0..100_000 {
        match d.below(4) {
            0 if waiting.len() < 8 => waiting.push((a.wait(0), running)),
            1 if !waiting.is_empty() => {
                let (waits, ahead) = waiting.swap_remove(d.below(waiting.len()));
                if d.one_in(4) {
                    a.give_up(waits);
                } else {
                    let pages = 1 + d.below(512) as u64;
                    a.begin(waits, pages);
                    read += pages;
                    most = most.max(ahead);
                }
            }
            2 if running > 0 => {
                a.others_end();
                running -= 1;
            }
            _ => {
                let now_us = FAULTS_FIRST_US * u64::from(d.one_in(8));
                let seen = Now::from(a.now.load(Relaxed));
                let mut turn = Turn {
                    waited_us: PATIENCE_US * u64::from(d.one_in(8)),
                    waited_in_all_us: PATIENCE_MOST_US * u64::from(d.one_in(8)),
                    deep: Some((now_us, seen)),
                    ..Turn::default()
                };
                // The last one began, or the gate closed, at the time 0.
                a.closed_us.store(0, Relaxed);
                let depth = if turn.is_patient() { DEPTH } else { 2 * DEPTH };
                let may =
                    (waiting.is_empty() || now_us > 0 || read >= SHARE_PAGES) && running < depth;
                assert_eq!(a.others_begin(&mut turn, now_us), may);
                a.leave(turn);
                if may {
                    (running, read) = (running + 1, 0);
                    waiting.iter_mut().for_each(|(_, ahead)| *ahead += 1);
                }
            }
        }
        assert_eq!(a.most_ahead(), most);
    }
    assert!(most > DEPTH, "seed {seed} tries nothing");
}

/// D-depth and D-first, between threads: with a share that nobody reaches, a fault finds [`DEPTH`] at most.
#[test]
fn threads_find_few_ahead() {
    let a = Arbiter::new();
    let rounds = if cfg!(miri) { 50 } else { 20_000 };
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for _ in 0..rounds {
                    while !begins(&a) {
                        thread::yield_now();
                    }
                    a.others_end();
                }
            });
        }
        s.spawn(|| {
            for _ in 0..rounds {
                let waits = a.wait(0);
                thread::yield_now();
                a.begin(waits, 0);
            }
        });
    });
    assert!(a.most_ahead() <= DEPTH, "{}", a.most_ahead());
    let now = Now::from(a.now.load(Acquire));
    assert_eq!((now.running, now.waiting), (0, 0));
    assert_eq!(a.lines.load(Acquire), 0);
}

/// Those of `turns` that begin, each of which is tried in its order.
fn begun(a: &Arbiter, turns: &mut Vec<Turn>, now_us: u64) -> Vec<Class> {
    let mut begun = Vec::new();
    turns.retain_mut(|turn| {
        let begins = a.others_begin(turn, now_us);
        begun.extend(begins.then_some(turn.class));
        !begins
    });
    begun
}

/// Who has a place in line and begins nothing costs nobody anything: neither room, nor what a storm of faults leaves to the
/// rest, nor does a fault find it ahead.
#[test]
fn who_only_passes_takes_nothing() {
    let (a, mut turn) = (Arbiter::new(), Turn::new(Class::Evict));
    for _ in 0..2 * DEPTH {
        assert!(a.may_pass(&mut turn, 0) && !turn.in_line);
    }
    (0..DEPTH).for_each(|_| assert!(begins(&a)));
    assert!(!a.may_pass(&mut turn, 0) && turn.in_line, "no room");
    (0..DEPTH).for_each(|_| a.others_end());
    let mut fetch = Turn::new(Class::Fetch);
    let waits = a.wait(1);
    assert!(!a.may_pass(&mut turn, 1) && !a.others_begin(&mut fetch, 1));
    a.begin(a.wait(1), SHARE_PAGES);
    assert!(!a.may_pass(&mut turn, 2), "a read waits");
    a.leave(fetch);
    assert!(a.may_pass(&mut turn, 2) && !turn.in_line);
    let then = 1 + FAULTS_FIRST_US;
    assert!(a.may_pass(&mut turn, then) && begins(&a) && !begins(&a));
    a.begin(waits, 1);
    assert_eq!(a.most_ahead(), 1, "that one alone has begun");
    assert_eq!(a.lines.load(Relaxed), 0);
}

/// An arbiter as many of whose operations are under way as may be.
fn busy() -> Arbiter {
    let a = Arbiter::new();
    (0..DEPTH).for_each(|_| assert!(begins(&a)));
    a
}

#[test]
fn the_most_urgent_comes_first() {
    let a = busy();
    // The least urgent one has come first, and is the first to look each time.
    let mut turns: Vec<_> = Class::ALL.into_iter().rev().map(Turn::new).collect();
    assert_eq!(begun(&a, &mut turns, 0), []);
    for class in Class::ALL {
        a.others_end();
        assert_eq!(begun(&a, &mut turns, 1), [class]);
    }
    assert!(turns.is_empty());
}

#[test]
fn a_class_that_has_waited_long_comes_before_all_others() {
    let a = busy();
    let mut turns = vec![Turn::new(Class::Spill), Turn::new(Class::Evict)];
    // One after the other, and neither begins.
    assert!(!a.others_begin(&mut turns[0], 0) && !a.others_begin(&mut turns[1], 10));
    a.others_end();
    turns.insert(0, Turn::new(Class::Fetch));
    assert_eq!(begun(&a, &mut turns, AGE_US - 1), [Class::Fetch]);
    // Both have waited long from here on, whoever comes.
    turns.insert(0, Turn::new(Class::Fetch));
    turns.insert(1, Turn::new(Class::Evict));
    let then = AGE_US + 10;
    a.others_end();
    assert_eq!(begun(&a, &mut turns, then), [Class::Spill]);
    // Then the most urgent one, and after that the next one of those.
    a.others_end();
    assert_eq!(begun(&a, &mut turns, then), [Class::Fetch]);
    a.others_end();
    assert_eq!(begun(&a, &mut turns, then), [Class::Evict]);
    // Of that class one has begun, and the other has not waited long since.
    for _ in 0..2 {
        turns.insert(0, Turn::new(Class::Fetch));
        a.others_end();
        assert_eq!(begun(&a, &mut turns, then + AGE_US - 1), [Class::Fetch]);
    }
    a.others_end();
    assert_eq!(begun(&a, &mut turns, then + AGE_US), [Class::Evict]);
    assert!(turns.is_empty());
}

/// D-lock: where few begin, all have waited long. Who waits with a VA space locked has half of what begins, and nobody waits
/// longer than that costs.
#[test]
fn who_has_a_va_space_locked_has_half_of_what_begins() {
    let (a, mut now) = (Arbiter::new(), 0);
    let waits = a.wait(now);
    let mut turns: Vec<_> = Class::ALL.into_iter().rev().map(Turn::new).collect();
    assert_eq!(begun(&a, &mut turns, now), []);
    let mut order = Vec::new();
    for _ in 0..12 {
        now += FAULTS_FIRST_US;
        let [class] = begun(&a, &mut turns, now)[..] else {
            panic!("one at a time: {order:?}");
        };
        a.others_end();
        order.push(class);
        let mut turn = Turn::new(class);
        assert!(!a.others_begin(&mut turn, now));
        turns.insert(0, turn);
    }
    a.give_up(waits);
    for two in order.windows(2) {
        assert!(two.contains(&Class::Fetch), "{order:?}");
    }
    for six in order.windows(2 * (Class::ALL.len() - 1)) {
        assert!(Class::ALL.iter().all(|of| six.contains(of)), "{order:?}");
    }
}

#[test]
fn who_does_not_come_for_its_turn_is_passed_over() {
    let a = busy();
    let (mut absent, mut spill) = (Turn::new(Class::Fetch), Turn::new(Class::Spill));
    assert!(!a.others_begin(&mut absent, 0) && !a.others_begin(&mut spill, 0));
    // That there was no room was nobody's fault.
    assert!(!a.others_begin(&mut spill, YIELD_US));
    a.others_end();
    assert!(!a.others_begin(&mut spill, YIELD_US));
    assert!(!a.others_begin(&mut spill, 2 * YIELD_US - 1));
    assert!(a.others_begin(&mut spill, 2 * YIELD_US));
    // Somebody else begins meanwhile: the next one waits as long anew.
    let (mut spill, mut prefetch) = (Turn::new(Class::Spill), Turn::new(Class::Prefetch));
    let then = 2 * YIELD_US;
    a.others_end();
    assert!(!a.others_begin(&mut prefetch, then) && !a.others_begin(&mut spill, then + 1));
    assert!(a.others_begin(&mut prefetch, then + YIELD_US));
    a.others_end();
    assert!(!a.others_begin(&mut spill, then + 1 + YIELD_US));
    // Whoever leaves holds nobody up.
    a.leave(absent);
    assert!(a.others_begin(&mut spill, then + 2 + YIELD_US));
}

/// Each fault waits for half a millisecond only, after a millisecond and a half without one. Whoever is not next looks as each
/// one comes and goes.
#[test]
fn short_faults_do_not_have_the_time_begin_anew() {
    let a = busy();
    let (mut absent, mut spill) = (Turn::new(Class::Fetch), Turn::new(Class::Spill));
    assert!(!a.others_begin(&mut absent, 0) && !a.others_begin(&mut spill, 0));
    a.others_end();
    let (open, shut) = (1_500, 500);
    let (mut now, mut open_us) = (0, 0);
    assert!(!a.others_begin(&mut spill, now));
    while open_us + open < YIELD_US {
        (now, open_us) = (now + open, open_us + open);
        let waits = a.wait(now);
        // It looks somewhat later, and the device was the fault's meanwhile.
        assert!(!a.others_begin(&mut spill, now + 1));
        assert!(!a.others_begin(&mut spill, now + shut - 1));
        now += shut;
        a.give_up(waits);
        assert!(!a.others_begin(&mut spill, now), "after {open_us} us");
    }
    let left = YIELD_US - open_us;
    assert!(
        !a.others_begin(&mut spill, now + left - 1),
        "that is sooner"
    );
    // The time is up while a fault waits.
    let waits = a.wait(now + left);
    assert!(!a.others_begin(&mut spill, now + left));
    a.give_up(waits);
    assert!(a.others_begin(&mut spill, now + left));
    // Whoever is next has as much time again.
    let mut spill = Turn::new(Class::Spill);
    a.others_end();
    assert!(!a.others_begin(&mut spill, now + left));
    assert!(!a.others_begin(&mut spill, now + left + YIELD_US - 1));
}

/// Faults wait for most of the time.
#[test]
fn what_faults_have_is_no_room_that_nobody_used() {
    let a = busy();
    let (mut absent, mut spill) = (Turn::new(Class::Fetch), Turn::new(Class::Spill));
    assert!(!a.others_begin(&mut absent, 0) && !a.others_begin(&mut spill, 0));
    a.others_end();
    assert!(!a.others_begin(&mut spill, 0));
    // Nobody looks before the fault has waited for long.
    let waits = a.wait(1);
    assert!(!a.others_begin(&mut spill, 2 * YIELD_US));
    a.give_up(waits);
    let then = 3 * YIELD_US;
    assert!(!a.others_begin(&mut spill, then));
    assert!(!a.others_begin(&mut spill, then + YIELD_US - 2));
    assert!(a.others_begin(&mut spill, then + YIELD_US - 1));
}

/// It passes once for each time that it has found room for long.
#[test]
fn who_has_passed_over_another_waits_anew() {
    let a = busy();
    let (mut absent, mut part) = (Turn::new(Class::Fetch), Turn::new(Class::Evict));
    assert!(!a.others_begin(&mut absent, 0) && !a.may_pass(&mut part, 0));
    a.others_end();
    assert!(!a.may_pass(&mut part, 0) && a.may_pass(&mut part, YIELD_US));
    assert!(!a.may_pass(&mut part, YIELD_US));
    assert!(!a.may_pass(&mut part, 2 * YIELD_US - 1) && a.may_pass(&mut part, 2 * YIELD_US));
}

/// Who waits behind another class does not know how long the device takes.
#[test]
fn who_is_not_next_loses_no_patience() {
    let a = busy();
    let (mut fetch, mut spill) = (Turn::new(Class::Fetch), Turn::new(Class::Spill));
    assert!(!a.others_begin(&mut spill, 0) && !a.others_begin(&mut fetch, 1));
    assert!(!a.others_begin(&mut spill, 2));
    // From here on the spill has waited long enough to be next.
    assert!(!a.others_begin(&mut fetch, AGE_US - 1));
    assert!(!a.others_begin(&mut spill, AGE_US));
    assert!(!a.others_begin(&mut spill, AGE_US + PATIENCE_US - 1));
    assert!(a.others_begin(&mut spill, AGE_US + PATIENCE_US));
    // It was next, and then it was not: the device may have been quick meanwhile.
    let (a, mut prefetch) = (busy(), Turn::new(Class::Prefetch));
    assert!(!a.others_begin(&mut prefetch, 0) && !a.others_begin(&mut prefetch, PATIENCE_US - 1));
    let mut fetch = Turn::new(Class::Fetch);
    a.begins(Class::Prefetch, PATIENCE_US - 1);
    assert!(!a.others_begin(&mut fetch, PATIENCE_US - 1));
    assert!(!a.others_begin(&mut prefetch, PATIENCE_US - 1));
    a.leave(fetch);
    assert!(!a.others_begin(&mut prefetch, PATIENCE_US));
    assert!(!a.others_begin(&mut prefetch, PATIENCE_US + 1));
}

/// Faults wait for what a worker writes, which waits behind others.
#[test]
fn a_spill_that_becomes_urgent_waits_behind_nobody() {
    let a = busy();
    let [calm, short] = [false, true].map(|is_short| Cause::Spill { is_short }.class());
    let (mut guess, mut spill) = (Turn::new(Class::Prefetch), Turn::new(calm));
    assert!(!a.others_begin(&mut guess, 0) && !a.others_begin(&mut spill, 0));
    a.others_end();
    assert!(!a.others_begin(&mut spill, 1));
    a.change_class(&mut spill, short);
    assert!(a.others_begin(&mut spill, 2));
    // And back: it is in one line at a time.
    let mut spill = Turn::new(short);
    assert!(!a.others_begin(&mut spill, 3));
    a.change_class(&mut spill, calm);
    a.others_end();
    assert!(!a.others_begin(&mut spill, 4) && a.others_begin(&mut guess, 4));
    a.leave(spill);
    assert_eq!(a.lines.load(Relaxed), 0);
}

/// Who has lost patience as the one that was next has it again where it is not: those who come first wait for the same
/// operations.
#[test]
fn who_is_not_next_has_no_more_room_for_having_waited() {
    for changes in [true, false] {
        let (a, mut fetch) = (busy(), Turn::new(Class::Fetch));
        let mut turn = Turn {
            class: if changes { Class::Fetch } else { Class::Spill },
            waited_us: PATIENCE_US,
            waited_in_all_us: PATIENCE_MOST_US,
            deep: Some((0, Now::default())),
            passed: Passed {
                begun: DEPTH,
                open_us: 0,
                since_us: Some(0),
            },
            ..Turn::default()
        };
        assert!(!a.others_begin(&mut fetch, YIELD_US));
        if changes {
            a.change_class(&mut turn, Class::Spill);
        }
        for look in 1..4 {
            assert!(!a.others_begin(&mut turn, look * YIELD_US), "{changes}");
        }
    }
}

#[test]
fn who_changes_its_class_has_waited_there_for_nothing() {
    let (a, mut turn) = (busy(), Turn::new(Class::Fetch));
    let late = PATIENCE_MOST_US;
    assert!(!a.others_begin(&mut turn, 0));
    // A fault comes as its patience ends.
    let waits = a.wait(late);
    assert!(!a.others_begin(&mut turn, late));
    a.change_class(&mut turn, Class::Spill);
    a.give_up(waits);
    assert!(!a.others_begin(&mut turn, late) && !a.others_begin(&mut turn, late + PATIENCE_US - 1));
    assert!(a.others_begin(&mut turn, late + PATIENCE_US));
}

/// Its thread gets no CPU, and it is the one that has waited longest.
#[test]
fn who_is_absent_is_passed_over_once() {
    let (a, mut absent) = (busy(), Turn::new(Class::Fetch));
    assert!(!a.others_begin(&mut absent, 1));
    (0..DEPTH).for_each(|_| a.others_end());
    let [mut first, mut second] = [(); 2].map(|()| Turn::new(Class::Fetch));
    assert!(!a.others_begin(&mut first, 2) && !a.others_begin(&mut second, 2));
    assert!(a.others_begin(&mut first, 2 + YIELD_US));
    assert!(a.others_begin(&mut second, 2 + YIELD_US));
    // It comes back, and is before those who come later.
    let mut third = Turn::new(Class::Fetch);
    a.others_end();
    assert!(a.others_begin(&mut absent, 3 + YIELD_US));
    assert!(!a.others_begin(&mut third, 3 + YIELD_US));
}

/// A device does not answer for long, and many wait.
#[test]
fn all_of_a_class_lose_patience_together() {
    let a = busy();
    let mut turns = [(); 3].map(|()| Turn::new(Class::Fetch));
    for (turn, now_us) in turns.iter_mut().zip(1..) {
        assert!(!a.others_begin(turn, now_us));
    }
    let begun = turns
        .each_mut()
        .map(|turn| a.others_begin(turn, 3 + PATIENCE_US));
    assert_eq!(
        begun,
        [true, true, false],
        "twice as many, one after the other"
    );
}

/// A spill is more urgent now and then, as there is more or less host memory.
#[test]
fn who_changes_its_class_keeps_its_place() {
    let (a, mut spill, mut read) = (busy(), Turn::new(Class::Fetch), Turn::new(Class::Fetch));
    assert!(!a.others_begin(&mut spill, 1) && !a.others_begin(&mut read, 2));
    for class in [Class::Spill, Class::Fetch] {
        a.change_class(&mut spill, class);
        assert!(!a.others_begin(&mut spill, 3));
    }
    a.others_end();
    assert!(!a.others_begin(&mut read, 4) && a.others_begin(&mut spill, 4));
}

#[test]
fn who_is_told_may_find_room() {
    let (a, mut turn) = (busy(), Turn::default());
    assert!(!a.has_room_for_another(), "nobody waits");
    assert!(!a.others_begin(&mut turn, 0) && !a.has_room_for_another());
    a.others_end();
    assert!(a.has_room_for_another());
    let waits = a.wait(0);
    assert!(!a.has_room_for_another(), "a fault waits");
    a.give_up(waits);
    assert!(a.others_begin(&mut turn, 0) && !a.has_room_for_another());
}

#[test]
fn more_wait_than_are_counted() {
    let all = Lines(u64::MAX);
    for class in Class::ALL {
        assert_eq!((all.of(class), all.with_one(class)), (Lines::MOST, None));
        let one = Lines(Lines(0).with_one(class).unwrap());
        let of = Class::ALL.map(|other| one.of(other));
        assert_eq!(of, Class::ALL.map(|other| u64::from(other == class)));
    }
    let a = busy();
    a.lines.store(all.0, Relaxed);
    let mut turn = Turn::default();
    assert!(!a.others_begin(&mut turn, 0) && !turn.in_line);
    a.leave(turn);
    assert_eq!(a.lines.load(Relaxed), all.0);
}

/// Where each class has always somebody who waits, none begins nothing for long, whatever an operation takes, and whether
/// or not a fault waits all the time. As long as the device is quick, the most urgent ones have most of it.
#[test]
fn no_class_starves() {
    let seed = setting("UVM_TEST_SEED", 1);
    std::eprintln!("UVM_TEST_SEED={seed}");
    for took in [1_000, 20_000, AGE_US, 2 * AGE_US] {
        for fault in [false, true] {
            let (a, mut d) = (Arbiter::new(), Dice::new(seed));
            let waits = fault.then(|| a.wait(0));
            let mut turns: Vec<_> = (0..8).map(|n| Turn::new(Class::ALL[n / 2])).collect();
            let (mut last, mut count) = ([0; 4], [0_u64; 4]);
            let (mut ends, mut now) = (Vec::<u64>::new(), 0);
            for _ in 0..steps(4_000) {
                now += took.min(10_000) / 2;
                let before = ends.len();
                ends.retain(|end| *end > now);
                (ends.len()..before).for_each(|_| a.others_end());
                d.shuffle(&mut turns);
                for turn in &mut turns {
                    if a.others_begin(turn, now) {
                        let class = turn.class as usize;
                        // It has waited for others of its class no longer than for the other classes.
                        let slow = if fault {
                            FAULTS_FIRST_US.max(took)
                        } else {
                            took
                        };
                        let gap = now - core::mem::replace(&mut last[class], now);
                        assert!(
                            gap <= AGE_US + 5 * slow + 10_000,
                            "{class} waited {gap} of {took}"
                        );
                        count[class] += 1;
                        ends.push(now + took);
                        *turn = Turn::new(turn.class);
                    }
                }
            }
            waits.into_iter().for_each(|waits| a.give_up(waits));
            assert!(count.iter().all(|n| *n > 0), "{count:?} of {took}");
            let all: u64 = count.iter().sum();
            assert!(took > 1_000 || fault || 4 * count[0] > 3 * all, "{count:?}");
        }
    }
}

/// Many threads read all the time, and another one comes: those begin before it that were there, and one more for each of
/// them at most.
#[test]
fn who_came_first_in_a_class_begins_first() {
    for (seed, class) in (1..9).flat_map(|seed| Class::ALL.map(|class| (seed, class))) {
        let (a, mut d, mut now) = (Arbiter::new(), Dice::new(seed), 1);
        let mut turns: Vec<_> = (0..32).map(|_| Turn::new(class)).collect();
        let (mut running, mut began, mut behind) = (Vec::new(), [0u64; 32], [0u64; 32]);
        for _ in 0..20_000 {
            now += 100;
            if running.len() as u64 == DEPTH {
                running.swap_remove(d.below(running.len()));
                a.others_end();
            }
            // All are told, and look in any order; the first of them often looks last.
            let mut order: Vec<_> = (1..32).collect();
            (1..31).for_each(|n| order.swap(n, d.below(n + 1)));
            order.insert(if d.one_in(3) { 0 } else { 31 }, 0);
            for n in order {
                if a.others_begin(&mut turns[n], now) {
                    let others = began.iter().sum::<u64>() - behind[n];
                    assert!(
                        others <= 2 * 32,
                        "seed {seed}, {class:?}: {others} before {n}"
                    );
                    began[n] += 1;
                    running.push(n);
                    behind[n] = began.iter().sum();
                }
            }
        }
        assert!(began.iter().all(|n| *n > 400), "{began:?}");
    }
}

/// Somebody who waits, and what is known of it.
struct Waiting {
    turn: Turn,
    in_line: bool,
    came: Option<u64>,
    /// How long it has found room that it was not to have; since when, if it found some when it last looked; and how many had
    /// begun by then.
    passed: (u64, Option<u64>, u64),
}

/// The arbiter in plain numbers, one thread at a time.
#[derive(Default)]
struct Simple {
    faults: u64,
    running: u64,
    begun: u64,
    read: u64,
    closed: u64,
    /// The last one that began was ahead of a more urgent one, as it had waited long.
    aged: bool,
    since: [u64; 4],
    lines: [u64; 4],
    /// When the one came that has waited longest in each class, as far as is known.
    eldest: [Option<u64>; 4],
}

impl Simple {
    /// It waits in its class no more.
    fn leaves(&mut self, of: &mut Waiting) {
        let class = of.turn.class as usize;
        self.lines[class] -= u64::from(core::mem::take(&mut of.in_line));
        of.passed = (0, None, 0);
        let came = of.came.take();
        self.eldest[class] = self.eldest[class].filter(|eldest| came != Some(*eldest));
    }

    /// Whether one that has patience or not begins now.
    fn begins(&mut self, of: &mut Waiting, patient: bool, now: u64) -> bool {
        let class = of.turn.class as usize;
        let theirs = self.read < SHARE_PAGES && now - self.closed < FAULTS_FIRST_US;
        let mut long: Vec<_> = (0..4)
            .filter(|c| self.lines[*c] > 0 && now - self.since[*c] >= AGE_US)
            .collect();
        long.sort_by_key(|c| self.since[*c]);
        let is_first = self.lines[..class].iter().all(|waiting| *waiting == 0);
        let mut is_next = match long.first() {
            Some(first) if !self.aged => *first == class,
            _ => is_first,
        };
        let is_eldest = self.eldest[class].is_none_or(|eldest| of.came.unwrap_or(now) <= eldest);
        is_next &= is_eldest;
        let by_age = is_next && !is_first;
        let is_closed = self.faults > 0 && theirs;
        let until = if is_closed { self.closed } else { now };
        let open = match of.passed {
            (_, _, begun) if begun != self.begun => 0,
            (open, None, _) => open,
            (open, Some(since), _) => open + until.saturating_sub(since),
        };
        let is_passed_over = open >= YIELD_US;
        let lost_patience = !patient && is_next && !is_passed_over;
        let depth = if lost_patience { 2 * DEPTH } else { DEPTH };
        let has_room = self.running < depth && !is_closed;
        is_next |= is_passed_over;
        of.passed = (open, (has_room && !is_next).then_some(now), self.begun);
        let begins = has_room && is_next;
        if begins {
            self.running += 1;
            self.begun += 1;
            self.aged = by_age;
            (self.read, self.closed, self.since[class]) = (0, now, now);
            if is_passed_over {
                self.eldest = [None; 4];
            }
            self.leaves(of);
            return true;
        }
        if !of.in_line {
            of.in_line = true;
            if self.lines[class] == 0 {
                self.since[class] = now;
            }
            self.lines[class] += 1;
        }
        let came = *of.came.get_or_insert(now);
        self.eldest[class] = Some(self.eldest[class].map_or(came, |eldest| eldest.min(came)));
        false
    }
}

#[test]
fn it_is_what_a_slow_and_obvious_one_is() {
    let seed = setting("UVM_TEST_SEED", 1);
    std::eprintln!("UVM_TEST_SEED={seed}");
    let (a, mut m, mut d) = (Arbiter::new(), Simple::default(), Dice::new(seed));
    let (mut waiting, mut faults, mut now) = (Vec::new(), Vec::new(), 1);
    for _ in 0..steps(150_000) {
        now += d.below(12_000) as u64;
        match d.below(8) {
            0 if faults.len() < 3 => {
                if faults.is_empty() {
                    m.closed = now;
                }
                m.faults += 1;
                faults.push(a.wait(now));
            }
            1 if !faults.is_empty() => {
                let pages = 1 + d.below(2048) as u64;
                a.begin(faults.swap_remove(d.below(faults.len())), pages);
                (m.faults, m.read) = (m.faults - 1, m.read + pages);
            }
            2 if m.running > 0 => {
                a.others_end();
                m.running -= 1;
            }
            3 if waiting.len() < 8 => waiting.push(Waiting {
                turn: Turn::new(Class::ALL[d.below(4)]),
                in_line: false,
                came: None,
                passed: (0, None, 0),
            }),
            5 if !waiting.is_empty() && d.one_in(4) => {
                let n = d.below(waiting.len());
                let (of, class): (&mut Waiting, _) = (&mut waiting[n], Class::ALL[d.below(4)]);
                if of.turn.class != class {
                    let came = of.came;
                    m.leaves(of);
                    of.came = came;
                }
                a.change_class(&mut of.turn, class);
            }
            4 if !waiting.is_empty() && d.one_in(4) => {
                let mut of: Waiting = waiting.swap_remove(d.below(waiting.len()));
                m.leaves(&mut of);
                a.leave(of.turn);
            }
            _ if !waiting.is_empty() => {
                let n = d.below(waiting.len());
                let of = &mut waiting[n];
                let mut looks = of.turn.clone();
                looks.look(now, a.now.load(Acquire).into());
                let begins = m.begins(of, looks.is_patient(), now);
                assert_eq!(a.others_begin(&mut of.turn, now), begins);
                assert_eq!(of.turn.in_line, of.in_line);
                if begins {
                    waiting.swap_remove(n);
                }
            }
            _ => {}
        }
        let lines = Lines(a.lines.load(Acquire));
        assert_eq!(Class::ALL.map(|class| lines.of(class)), m.lines);
    }
    assert!(
        m.begun > steps(5_000) as u64,
        "seed {seed} tries too little: {}",
        m.begun
    );
}
