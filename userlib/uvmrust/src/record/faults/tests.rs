// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;

fn faults() -> Faults {
    static NOBODY: Uvm = Uvm::new(crate::Linux::new());
    Faults::new(&NOBODY)
}

fn told(faults: &mut Faults, allocations: &Allocations, times: &[(u64, u64)]) -> u64 {
    let one = |&(page, time): &(u64, u64)| faults.accesses.add(allocations, Fault { page, time });
    times.iter().map(one).sum()
}

fn ran(faults: &mut Faults, launch: u64, from: u64, until: u64) -> Vec<u64> {
    let mut uses = Vec::new();
    faults.ran(launch, from, until, &mut uses);
    uses
}

/// Allocations of a page each.
fn three() -> Allocations {
    let mut allocations = Allocations::default();
    for base in [0x10000, 0x40000, 0x60000] {
        allocations.add(base, page_size());
    }
    allocations
}

/// A time, in APART, from the beginning of the process on.
const T: u64 = 2 * APART;

#[test]
fn a_fault_is_of_the_launches_that_ran_then() {
    let (mut faults, allocations) = (faults(), three());
    (0..4).for_each(|launch| faults.launched.push(launch, Some(launch * T)));
    let times = [
        (0x10000, 5 * T),
        (0x10000, 6 * T),
        (0x40000, 7 * T),
        // Of no allocation.
        (0x50000, 7 * T),
        (0x60000, 9 * T),
    ];
    assert_eq!(told(&mut faults, &allocations, &times), 0);
    assert_eq!(ran(&mut faults, 0, 5 * T, 7 * T - 1), [0]);
    // Beside it, in another stream.
    assert_eq!(ran(&mut faults, 1, 6 * T, 7 * T), [0, 1]);
    assert_eq!(ran(&mut faults, 2, 7 * T + 1, 9 * T - 1), []);
    assert_eq!(ran(&mut faults, 3, 9 * T, 9 * T), [2]);
}

/// Two threads that launch in two streams may tell of theirs in another order than they began.
#[test]
fn a_launch_that_is_told_of_first_takes_no_fault_of_one_before_it() {
    let (mut faults, allocations) = (faults(), three());
    (5..8).for_each(|launch| faults.launched.push(launch, Some(launch * T)));
    told(
        &mut faults,
        &allocations,
        &[(0x10000, 5 * T), (0x40000, 6 * T)],
    );
    assert_eq!(ran(&mut faults, 6, 6 * T, 7 * T), [1]);
    assert_eq!(ran(&mut faults, 5, 5 * T, 5 * T + 1), [0]);
    // Of what is waited for nobody any more there is nothing left but the last.
    assert_eq!((faults.launched.base, faults.accesses.0.len()), (7, 0));
    faults.not_timed(7);
    assert!(faults.launched.made.is_empty());
    // One that is not known, or told of twice.
    faults.not_timed(7);
    faults.not_timed(u64::MAX);
}

#[test]
fn what_no_launch_can_have_done_is_forgotten() {
    let (mut faults, allocations) = (faults(), three());
    faults.launched.push(0, Some(1));
    faults.launched.push(1, None);
    faults.launched.push(2, Some(4 * T));
    told(
        &mut faults,
        &allocations,
        &[(0x10000, 3 * T), (0x40000, 4 * T)],
    );
    assert_eq!(ran(&mut faults, 0, 2, 3), []);
    assert_eq!(faults.accesses.0.len(), 1);
    assert_eq!(ran(&mut faults, 2, 4 * T, 5 * T), [1]);
    assert!(faults.accesses.0.is_empty() && faults.launched.made.is_empty());
}

/// UVM tells where the page begins, and no more.
#[test]
fn a_fault_is_on_all_that_has_a_part_of_the_page() {
    let (mut faults, mut allocations) = (faults(), Allocations::default());
    let page = page_size();
    // Large memory that ends within the page, two of less than a page, and one behind.
    allocations.add(0x100000, 0x20000 + 64);
    allocations.add(0x120000 + 256, 256);
    allocations.add(0x120000 + page - 64, 64);
    allocations.add(0x120000 + page, page);
    faults.launched.push(0, Some(0));
    told(&mut faults, &allocations, &[(0x120000, T)]);
    assert_eq!(ran(&mut faults, 0, T, T), [0, 1, 2]);
    // None begins with the page.
    let mut allocations = Allocations::default();
    allocations.add(0x300000 + 512, 512);
    faults.launched.push(1, Some(T));
    told(
        &mut faults,
        &allocations,
        &[(0x300000, 2 * T), (0x300000 - page, 2 * T)],
    );
    assert_eq!(ran(&mut faults, 1, 2 * T, 2 * T), [0]);
}

#[test]
fn faults_in_a_row_are_one_access() {
    let (mut faults, allocations) = (faults(), three());
    let near = [(0x10000, T), (0x10000, T + APART), (0x10000, T + 2 * APART)];
    told(&mut faults, &allocations, &near);
    assert_eq!(faults.accesses.0.len(), 1);
    assert_eq!(faults.accesses.0[0].until, T + 2 * APART);
    let far = [(0x10000, T + 3 * APART + 1), (0x40000, T + 3 * APART + 2)];
    told(&mut faults, &allocations, &far);
    assert_eq!(faults.accesses.0.len(), 3);
    // Beside those on another allocation.
    let beside = [(0x10000, T + 3 * APART + 3), (0x40000, T + 3 * APART + 4)];
    told(&mut faults, &allocations, &beside);
    assert_eq!(faults.accesses.0.len(), 3);
    // Of another GPU, whose faults are told of later.
    told(&mut faults, &allocations, &[(0x40000, T + 1)]);
    assert_eq!(faults.accesses.0.len(), 4);
    assert!(faults.accesses.0.iter().is_sorted_by_key(|a| a.from));
    // One that goes on for longer is found all the same, in whichever part of it.
    let long: Vec<_> = (0..100).map(|n| (0x60000, (n + 50) * APART)).collect();
    told(&mut faults, &allocations, &long);
    for n in 50..149 {
        let of = faults.accesses.between(n * APART + 1, n * APART + 2);
        assert!(of.map(|a| a.number).eq([2]), "{n}");
    }
}

#[test]
fn what_has_no_room_is_counted() {
    let (mut faults, allocations) = (faults(), three());
    let many: Vec<_> = (0..MOST as u64 + 5).map(|n| (0x10000, n * T)).collect();
    assert_eq!(told(&mut faults, &allocations, &many), 5);
    assert_eq!(faults.accesses.0.len(), MOST);
    (0..2 * MOST as u64).for_each(|launch| faults.launched.push(launch, Some(launch)));
    assert_eq!(faults.launched.made.len(), MOST);
}

/// While a launch runs that is waited for, what the others have done is kept: the first of them may have
/// done it.
#[test]
fn no_launch_looks_at_the_accesses_of_all() {
    let (mut faults, allocations) = (faults(), three());
    faults.launched.push(0, Some(0));
    let many: Vec<_> = (0..MOST as u64).map(|n| (0x10000, n * T)).collect();
    told(&mut faults, &allocations, &many);
    for launch in 1..MOST as u64 {
        let (from, until) = (launch * T, launch * T + APART);
        let looked = faults.accesses.may_be_between(from, until);
        assert!(looked.len() as u64 <= 2 + LONGEST / T, "{looked:?}");
        faults.launched.push(launch, Some(from));
        assert_eq!(ran(&mut faults, launch, from, until), [0]);
    }
    assert_eq!(faults.accesses.0.len(), MOST);
    assert_eq!(ran(&mut faults, 0, 0, u64::MAX), [0]);
    assert!(faults.accesses.0.is_empty());
}

fn no(code: i32) -> std::io::Result<Tracker> {
    Err(std::io::Error::from_raw_os_error(code))
}

/// A launch before which the descriptor is looked at, and UVM answers what it is asked. Gives whether it was
/// asked, and what changes.
fn launch(
    faults: &mut Faults,
    launch: u64,
    open: bool,
    tracker: impl FnOnce() -> std::io::Result<Tracker>,
) -> (bool, Change) {
    let question = faults.asks_by(launch, |_| open);
    let asked = question.is_some();
    if let Some(Question { let_go, .. }) = question {
        let tracker = tracker();
        faults.answered(Answer { tracker, let_go }, launch);
    }
    (asked, faults.begin(launch))
}

#[test]
fn where_uvm_does_not_tell_it_is_asked_again_and_that_is_said_once() {
    let mut faults = faults();
    let mut asked = Vec::new();
    let mut messages = Vec::new();
    for number in 0..1000 {
        let (asks, change) = launch(&mut faults, number, true, || no(libc::EMFILE));
        asked.extend(asks.then_some(number));
        assert_eq!(change, Change::default());
        messages.extend(faults.message.take());
    }
    assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511]);
    assert_eq!(messages.len(), 1);
    let said =
        "what kernels fault on is not recorded for now, since UVM's tools interface does not \
                tell: Too many open files";
    assert!(messages[0].starts_with(said), "{messages:?}");
    faults.tries.wait = LAST_TRY;
    assert!(faults.tries.may(1023) && !faults.tries.may(1023 + LAST_TRY - 1));
    assert!(faults.tries.may(1023 + LAST_TRY));
    // It is let go, and then does not tell.
    faults.watched = true;
    faults.tries = Tries::default();
    let (_, change) = launch(&mut faults, 2000, true, || no(libc::EPERM));
    let ends = Change {
        ends: Some(2000),
        begins: false,
    };
    assert_eq!(change, ends);
}

#[test]
#[cfg_attr(miri, ignore = "asks the system")]
fn where_uvm_does_not_tell_nothing_is_kept() {
    let mut faults = faults();
    let answer = faults.asks(0).unwrap().ask();
    if answer.tracker.is_err() {
        faults.answered(answer, 0);
        assert_eq!(faults.begin(0), Change::default());
        assert!(faults.message.is_some() && faults.launched.made.is_empty());
        faults.let_go();
        assert!(matches!(faults.source, Source::Later(_)) && faults.closed.0.is_empty());
    }
}

/// What a program sees that closes all its descriptors.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_descriptor_that_is_closed_is_noticed_and_had_anew() {
    let mut faults = faults();
    let at = |faults: &mut Faults, number, open| {
        let (_, change) = launch(faults, number, open, || Ok(Tracker::of_nothing()));
        faults.not_timed(number);
        (change.ends, change.begins, faults.message.take().is_some())
    };
    assert_eq!(at(&mut faults, 10, false), (None, true, false));
    // Not looked at yet.
    assert_eq!(at(&mut faults, 9 + LOOK, false), (None, false, false));
    assert_eq!(at(&mut faults, 10 + LOOK, true), (None, false, false));
    let (seen, next) = (10 + LOOK, 10 + 2 * LOOK);
    assert_eq!(at(&mut faults, next, false), (Some(seen), true, true));
    assert_eq!(
        at(&mut faults, next + LOOK, false),
        (Some(next), true, false)
    );
    assert!(faults.watched);
    assert_eq!(faults.closed().0.len(), 2);
    // Another context's memory goes: nothing has changed when the next launch has it anew.
    faults.let_go();
    assert_eq!(faults.closed().0.len(), 1);
    assert_eq!(at(&mut faults, next + LOOK + 1, true), (None, false, false));
    assert_eq!(faults.end(next + LOOK + 9), None);
    faults.look(next + LOOK + 10, |_| false);
    assert_eq!(faults.ends, Some(next + LOOK + 9));
    assert!(!faults.watched && faults.closed().0.len() == 1);
}

/// Nobody knows when a descriptor was closed that was open at the last look.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn what_may_have_run_behind_the_last_look_is_not_known() {
    // Launches from 10 on, of which some are told of before the look at 26, the last one that finds the
    // descriptor open, and some behind it.
    let ends = |before: &[u64], behind: &[u64], late: bool| {
        let mut faults = faults();
        for number in 10..=10 + 2 * LOOK {
            let open = number < 10 + 2 * LOOK;
            let (_, change) = launch(&mut faults, number, open, || Ok(Tracker::of_nothing()));
            if change.ends.is_some() {
                return change.ends;
            }
            let told = match number {
                25 => before,
                26 => behind,
                _ => &[],
            };
            let until = if late { now() } else { faults.seen.1 };
            for &launch in told {
                assert_eq!(ran(&mut faults, launch, 0, until), []);
            }
        }
        None
    };
    let all: Vec<u64> = (10..26).collect();
    assert_eq!(ends(&all, &[], true), Some(26));
    // Still waited for.
    assert_eq!(ends(&all[..9], &[], true), Some(19));
    // Told of behind the look, at which they had ended, or still ran.
    assert_eq!(ends(&all[..9], &all[9..], false), Some(26));
    assert_eq!(ends(&all[..9], &all[9..], true), Some(19));
    // In the order of another stream.
    let (even, odd): (Vec<u64>, Vec<u64>) = all.iter().partition(|n| *n % 2 == 0);
    assert_eq!(ends(&even, &odd, true), Some(11));
}

/// Others launch while UVM is asked, whose faults nobody knows then.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn who_launches_while_uvm_is_asked_asks_nothing() {
    let mut faults = faults();
    let tracker = || Ok(Tracker::of_nothing());
    let change = |ends, begins| Change { ends, begins };
    let answer = |let_go| Answer {
        tracker: tracker(),
        let_go,
    };
    assert!(faults.asks_by(0, |_| true).is_some());
    assert!(!launch(&mut faults, 0, true, tracker).0);
    assert!(!faults.watched);
    faults.answered(answer(0), 1);
    assert_eq!(faults.begin(1), change(None, true));
    faults.let_go();
    // The next one asks, and is not the first to be launched.
    assert!(faults.asks_by(2, |_| true).is_some());
    assert_eq!(
        launch(&mut faults, 2, true, tracker),
        (false, change(Some(2), false))
    );
    // Meanwhile the context goes that it has asked for.
    faults.let_go();
    drop(faults.closed());
    faults.answered(answer(1), 3);
    assert_eq!(faults.closed().0.len(), 1);
    assert_eq!(faults.begin(3), change(None, false));
    assert_eq!(
        launch(&mut faults, 4, true, tracker),
        (true, change(None, true))
    );
}
