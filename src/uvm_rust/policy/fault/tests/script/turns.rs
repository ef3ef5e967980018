// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! VA spaces that take turns, call by call (F-turn).

use super::*;
use crate::policy::fault::alone::ALONE_US;
use crate::policy::fault::turns::{ACCOUNTS, MOST_ROUNDS};

const TURN_US: u64 = 4000;

fn by_turns() -> Params {
    Params {
        turn_us: TURN_US as u32,
        ..params()
    }
}

/// Faults of these VA spaces, so many pages of each.
fn faults(of: &[(u64, u64)]) -> Vec<Record> {
    of.iter()
        .flat_map(|(space, n)| writes(*space, 0..*n))
        .collect()
}

/// A loop, and a GPU whose clock has run for a while. Each service takes `takes_us`.
fn loop_of(takes_us: u64, of: &[(u64, u64)]) -> (Service, Script) {
    let script = Script {
        now_us: 10 * ALONE_US,
        takes_us,
        ..Script::new(0, &faults(of))
    };
    (Service::new(by_turns()).unwrap(), script)
}

/// What a batch with these faults asked for.
fn batch(service: &mut Service, script: &mut Script, of: &[(u64, u64)]) -> Vec<Did> {
    script.did.clear();
    script.write(&faults(of));
    service.run(script).unwrap();
    core::mem::take(&mut script.did)
}

/// The VA spaces that had a turn, with the number of services in each.
fn turns(did: &[Did]) -> Vec<(u64, usize)> {
    let mut turns = Vec::new();
    for did in did {
        match (did, turns.last_mut()) {
            (Enter { space, .. }, _) => turns.push((*space, 0)),
            (Serve { .. }, Some((_, services))) => *services += 1,
            _ => {}
        }
    }
    turns
}

#[test]
fn who_is_alone_takes_no_turns_and_the_clock_is_not_read() {
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    for _ in 0..3 {
        let did = batch(&mut service, &mut script, &[(1, 9)]);
        assert_eq!(turns(&did), [(1, 9)]);
        assert!(!did.contains(&WaitService));
    }
    assert_eq!(script.reads, 0);
}

#[test]
fn turns_can_be_turned_off() {
    let of = [(1, 3), (2, 3)];
    let (_, mut script) = loop_of(TURN_US, &of);
    script.run(params()).unwrap();
    assert_eq!(
        (turns(&script.did), script.reads),
        (vec![(1, 3), (2, 3)], 0)
    );
}

/// One va_block is serviced in each turn, and the rest is left for the replay.
#[test]
fn a_turn_ends_with_the_va_block_that_uses_it_up() {
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    let did = batch(&mut service, &mut script, &[(1, 3), (2, 1)]);
    let whole = [
        enter(1),
        service_of(0),
        Invalidate,
        Leave,
        WaitService,
        enter(2),
        service_of(3),
        Invalidate,
        Leave,
        WaitService,
        CACHED,
        WaitReplays(false),
    ];
    assert_eq!(did[3..], whole);
    script.takes_us = TURN_US - 1;
    let did = batch(&mut service, &mut script, &[(3, 3), (4, 1)]);
    assert_eq!(turns(&did), [(3, 2), (4, 1)]);
}

fn service_of(first: u32) -> Did {
    super::service(first)
}

/// As a call has only so many of these. A turn that is used up by the last fault leaves none.
#[test]
fn a_batch_of_which_faults_are_left_counts_as_throttled() {
    for (of, batches) in [([(1, 2), (2, 1)], 1), ([(1, 1), (2, 1)], 4)] {
        let (_, mut script) = loop_of(TURN_US, &[of, of, of, of].concat());
        let params = Params {
            max_throttled: 1,
            max_batch: of[0].1 as u32 + 1,
            policy: ReplayPolicy::Once,
            ..by_turns()
        };
        script.run(params).unwrap();
        assert_eq!(script.count(|did| *did == Begin), batches, "{of:?}");
        assert_eq!(script.count(|did| *did == Nap), 0);
    }
}

/// Whoever's number is smaller.
#[test]
fn who_used_up_the_last_turn_comes_last() {
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    batch(&mut service, &mut script, &[(1, 2), (2, 0), (3, 1)]);
    script.takes_us = 100;
    let did = batch(&mut service, &mut script, &[(1, 1), (2, 1), (3, 1)]);
    assert_eq!(turns(&did), [(2, 1), (1, 1), (3, 1)]);
    // None of them has used up that turn.
    let did = batch(&mut service, &mut script, &[(1, 1), (2, 1), (3, 1)]);
    assert_eq!(turns(&did), [(1, 1), (2, 1), (3, 1)]);
}

/// The places of the faults that were serviced.
fn services(did: &[Did]) -> Vec<(u32, bool)> {
    let service = |did: &Did| match did {
        Serve {
            first, in_place, ..
        } => Some((*first, *in_place)),
        _ => None,
    };
    did.iter().filter_map(service).collect()
}

/// T-place: and comes to the faults before that place at last.
#[test]
fn a_turn_goes_on_where_the_last_one_ended() {
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    let of = [(1, 3), (2, 1)];
    for first in [0, 1, 2, 0] {
        let did = batch(&mut service, &mut script, &of);
        assert!(services(&did).contains(&(first, false)), "{first}");
        assert_eq!(services(&did).len(), 2);
    }
    script.takes_us = TURN_US / 2;
    let did = batch(&mut service, &mut script, &of);
    assert_eq!(services(&did)[..2], [(1, false), (2, false)]);
    // The turn was over behind the last fault, and the first one was left.
    let did = batch(&mut service, &mut script, &of);
    assert_eq!(services(&did)[1..], [(0, false), (1, false)]);
    script.takes_us = TURN_US / 4;
    let did = batch(&mut service, &mut script, &of);
    let whole = [
        enter(1),
        service_of(2),
        Invalidate,
        Leave,
        enter_again(1),
        service_of(0),
        service_of(1),
        Invalidate,
        Leave,
    ];
    let at = did.iter().position(|did| *did == enter(1)).unwrap();
    let calls = did[at..].iter().filter(|did| **did != WaitService);
    assert_eq!(calls.take(whole.len()).copied().collect::<Vec<_>>(), whole);
    // Nothing was left, so the next one begins with the first.
    let did = batch(&mut service, &mut script, &of);
    assert_eq!(services(&did)[0], (0, false));
}

/// The turn began amid that va_block. The machine services a va_block to its end.
#[test]
fn a_last_va_block_that_was_begun_with_leaves_nothing() {
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    let of = [(1, 3), (2, 1)];
    batch(&mut service, &mut script, &of);
    script.takes_us = TURN_US / 3 + 1;
    let two = Served::Faults {
        faults: 2,
        fatal: false,
    };
    script.served = [ONE, ONE, two].into();
    let did = batch(&mut service, &mut script, &of);
    assert_eq!(services(&did)[..3], [1, 2, 0].map(|first| (first, false)));
    let did = batch(&mut service, &mut script, &[(1, 3)]);
    assert_eq!(services(&did)[0], (0, false));
}

/// Those that were left out have been serviced or are gone since.
#[test]
fn a_turn_whose_place_is_behind_all_faults_begins_with_the_first() {
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    batch(&mut service, &mut script, &[(1, 3), (2, 1)]);
    let did = batch(&mut service, &mut script, &[(1, 1), (2, 1)]);
    assert_eq!(turns(&did), [(1, 1), (2, 1)]);
}

#[test]
fn after_what_ends_a_turn_its_first_faults_are_not_tried() {
    let of = [(1, 3), (2, 1)];
    // Others have the locks.
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    batch(&mut service, &mut script, &of);
    (script.takes_us, script.busy) = (1, vec![1]);
    let did = batch(&mut service, &mut script, &of);
    assert_eq!(turns(&did), [(1, 0), (2, 1)]);
    // All of its faults were cancelled.
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    batch(&mut service, &mut script, &of);
    (script.takes_us, script.is_own) = (1, true);
    script.fails = vec![service_of(1)];
    let did = batch(&mut service, &mut script, &of);
    assert_eq!(turns(&did), [(1, 1), (2, 1)]);
    // The time was used up behind the last fault. The batch counts as throttled.
    let params = Params {
        max_throttled: 1,
        max_batch: 3,
        policy: ReplayPolicy::Once,
        ..by_turns()
    };
    let (_, mut script) = loop_of(TURN_US, &[]);
    let mut service = Service::new(params).unwrap();
    let of = [(1, 2), (2, 1)];
    batch(&mut service, &mut script, &of);
    let did = batch(&mut service, &mut script, &[of, of].concat());
    assert_eq!(services(&did), [(1, false), (2, false)]);
}

/// A page that is held comes back first in each batch, and is not counted where the turn begins elsewhere (F-again).
#[test]
fn what_comes_back_is_counted_as_the_first_of_its_batches() {
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let did = batch(&mut service, &mut script, &[(1, 2), (2, 1)]);
        let services = services(&did);
        first.extend(services.iter().filter(|of| of.0 == 0).map(|of| of.1));
        others.extend(services.iter().filter(|of| of.0 == 1).map(|of| of.1));
    }
    assert_eq!((first.len(), others.len()), (10, 10));
    let ninth: Vec<_> = (0..10).map(|time| time == 8).collect();
    assert_eq!((first, others), (ninth, vec![false; 10]));
}

/// An excess is taken from the next turns, and what is left of a turn is not kept for the next one.
#[test]
fn what_a_turn_takes_too_long_the_next_ones_lack() {
    let (mut service, mut script) = loop_of(TURN_US + TURN_US / 2, &[]);
    batch(&mut service, &mut script, &[(1, 2), (2, 1)]);
    script.takes_us = TURN_US / 4;
    // The second one had an excess as well.
    let did = batch(&mut service, &mut script, &[(1, 9), (3, 9)]);
    assert_eq!(turns(&did), [(3, 4), (1, 2)]);
    let did = batch(&mut service, &mut script, &[(2, 1), (1, 9), (3, 9)]);
    assert_eq!(turns(&did), [(2, 1), (1, 4), (3, 4)]);
    let did = batch(&mut service, &mut script, &[(2, 9), (4, 1)]);
    assert_eq!(turns(&did), [(2, 4), (4, 1)]);
}

/// However long it stood still.
#[test]
fn a_turn_is_passed_so_many_times_at_most_and_others_have_theirs() {
    let (mut service, mut script) = loop_of(1_000_000 * TURN_US, &[]);
    batch(&mut service, &mut script, &[(1, 2)]);
    batch(&mut service, &mut script, &[(2, 1), (1, 2)]);
    script.takes_us = 1;
    // The second one's excess is forgiven before it is met.
    for round in 0..MOST_ROUNDS {
        let did = batch(&mut service, &mut script, &[(1, 2), (3, 1)]);
        assert_eq!(turns(&did), [(3, 1)], "round {round}");
    }
    let did = batch(&mut service, &mut script, &[(1, 2), (2, 1), (3, 1)]);
    // It begins with the fault that was left out, long ago, and takes the locks once more for the one before.
    assert_eq!(turns(&did), [(3, 1), (1, 1), (1, 1), (2, 1)]);
}

#[test]
fn a_batch_in_which_a_turn_is_passed_counts_as_throttled() {
    let params = Params {
        max_throttled: 1,
        max_batch: 3,
        policy: ReplayPolicy::Once,
        ..by_turns()
    };
    let (_, mut script) = loop_of(9 * TURN_US, &[]);
    let mut service = Service::new(params).unwrap();
    batch(&mut service, &mut script, &[(2, 1), (1, 2)]);
    script.takes_us = 1;
    let did = batch(&mut service, &mut script, &[(1, 2), (3, 1), (1, 2), (3, 1)]);
    assert_eq!(turns(&did), [(3, 1)]);
}

/// Rounds in which nobody would have a turn take no time.
#[test]
fn if_all_have_an_excess_the_least_one_has_its_turn() {
    let (mut service, mut script) = loop_of(3 * TURN_US, &[]);
    batch(&mut service, &mut script, &[(1, 1), (2, 1)]);
    // Both have used up two quanta, and the second one will have used up more.
    let did = batch(&mut service, &mut script, &[(2, 2)]);
    assert_eq!(turns(&did), [(2, 1)]);
    script.takes_us = 1;
    let did = batch(&mut service, &mut script, &[(1, 1), (2, 1)]);
    assert_eq!(turns(&did), [(1, 1)]);
}

#[test]
fn copies_are_waited_for_after_each_quarter_and_where_a_turn_ends() {
    let (mut service, mut script) = loop_of(TURN_US / 8, &[]);
    script.copies_us = 1;
    let did = batch(&mut service, &mut script, &[(1, 9), (2, 3)]);
    let whole = [
        enter(1),
        service_of(0),
        service_of(1),
        WaitService,
        service_of(2),
        service_of(3),
        WaitService,
        service_of(4),
        service_of(5),
        WaitService,
        service_of(6),
        service_of(7),
        Invalidate,
        Leave,
        WaitService,
        enter(2),
        service_of(9),
        service_of(10),
        WaitService,
        service_of(11),
        Invalidate,
        Leave,
        WaitService,
    ];
    assert_eq!(did[3..did.len() - 2], whole);
    // What they take counts.
    script.copies_us = TURN_US / 4;
    let did = batch(&mut service, &mut script, &[(3, 9), (4, 2)]);
    assert_eq!(turns(&did), [(3, 4), (4, 2)]);
    // Also what those take that are waited for where a turn ends.
    script.copies_us = 2 * TURN_US;
    let did = batch(&mut service, &mut script, &[(5, 1), (6, 1)]);
    assert_eq!(turns(&did), [(5, 1), (6, 1)]);
    let did = batch(&mut service, &mut script, &[(5, 1), (7, 1)]);
    assert_eq!(turns(&did), [(7, 1)]);
    // They are not waited for twice.
    script.takes_us = TURN_US / 4;
    let did = batch(&mut service, &mut script, &[(10, 1), (11, 1)]);
    let waits = did.iter().filter(|did| **did == WaitService);
    assert_eq!(waits.count(), 2);
    // There is nothing to wait for where nothing was serviced.
    script.busy = vec![8, 9];
    let did = batch(&mut service, &mut script, &[(8, 1), (9, 1)]);
    assert!(!did.contains(&WaitService));
}

/// Copies that fail are no VA space's own fault.
#[test]
fn a_wait_for_copies_that_fails_cancels_the_batch() {
    for takes_us in [TURN_US / 4, TURN_US] {
        let (mut service, mut script) = loop_of(takes_us, &[(1, 2), (2, 1)]);
        (script.fails, script.is_own) = (vec![WaitService], true);
        assert_eq!(service.run(&mut script), Err(BROKEN));
        let cancels = script.count(|did| {
            matches!(
                did,
                Cancel {
                    reason: Some(_),
                    ..
                }
            )
        });
        assert_eq!(cancels, 2, "{takes_us} us");
    }
}

#[test]
fn waiting_for_locks_does_not_count() {
    let (mut service, mut script) = loop_of(TURN_US / 4, &[]);
    script.locks_us = 10 * TURN_US;
    // The second service is tried again, for which the locks are taken once more.
    script.served = [ONE, Served::Again].into();
    let did = batch(&mut service, &mut script, &[(1, 9), (2, 1)]);
    assert_eq!(turns(&did), [(1, 2), (1, 2), (2, 1)]);
    // Nor if they are not had the second time, which leaves copies to be waited for.
    (script.takes_us, script.busy_after) = (1, Some((3, 1)));
    script.served = [ONE, Served::Again].into();
    let did = batch(&mut service, &mut script, &[(3, 9), (4, 1)]);
    assert_eq!(turns(&did), [(3, 2), (3, 0), (4, 1)]);
    (script.locks_us, script.busy_after) = (0, None);
    let did = batch(&mut service, &mut script, &[(3, 1), (4, 1)]);
    assert_eq!(turns(&did), [(3, 1), (4, 1)]);
}

/// A turn is no longer for tries, though they end it no earlier than any va_block.
#[test]
fn tries_count_and_do_not_end_a_turn() {
    let (mut service, mut script) = loop_of(TURN_US, &[]);
    script.served = [Served::Again; 3].into();
    let did = batch(&mut service, &mut script, &[(1, 2), (2, 1)]);
    assert_eq!(turns(&did), [(1, 1), (1, 1), (1, 1), (1, 1), (2, 1)]);
    script.takes_us = 1;
    for _ in 0..3 {
        let did = batch(&mut service, &mut script, &[(1, 2), (3, 1)]);
        assert_eq!(turns(&did), [(3, 1)]);
    }
}

#[test]
fn others_faults_of_the_last_second_make_turns() {
    let (mut service, mut script) = loop_of(9 * TURN_US, &[]);
    batch(&mut service, &mut script, &[(1, 1)]);
    let did = batch(&mut service, &mut script, &[(2, 2)]);
    assert_eq!(turns(&did), [(2, 1)], "another one has just had faults");
    script.now_us += ALONE_US;
    let did = batch(&mut service, &mut script, &[(2, 2)]);
    assert_eq!(turns(&did), [(2, 2)]);
    let reads = script.reads;
    batch(&mut service, &mut script, &[(2, 2)]);
    assert_eq!(script.reads, reads);
}

#[test]
fn after_a_second_of_one_alone_nobodys_excess_is_known() {
    let (mut service, mut script) = loop_of(9 * TURN_US, &[]);
    for space in 1..=2 {
        batch(&mut service, &mut script, &[(space, 1)]);
    }
    script.takes_us = 1;
    batch(&mut service, &mut script, &[(3, 1)]);
    script.now_us += ALONE_US;
    batch(&mut service, &mut script, &[(3, 1)]);
    let did = batch(&mut service, &mut script, &[(2, 1), (3, 1)]);
    assert_eq!(turns(&did), [(2, 1), (3, 1)]);
}

#[test]
fn so_many_excesses_are_known() {
    let spaces = ACCOUNTS as u64 + 2;
    let params = Params {
        ring: 256,
        max_batch: 256,
        ..by_turns()
    };
    let mut service = Service::new(params).unwrap();
    let all: Vec<_> = (1..=spaces).map(|space| (space, 1)).collect();
    let mut script = Script {
        now_us: 10 * ALONE_US,
        takes_us: TURN_US,
        ring: vec![Record::default(); 256],
        cached: vec![Record::default(); 256],
        ..Script::new(0, &[])
    };
    batch(&mut service, &mut script, &all);
    let did = batch(&mut service, &mut script, &all);
    let order: Vec<_> = turns(&did).iter().map(|turn| turn.0).collect();
    let last = 1..=ACCOUNTS as u64;
    assert_eq!(
        order,
        (spaces - 1..=spaces)
            .chain(last.clone())
            .collect::<Vec<_>>()
    );
    // Who did not use up a turn takes no place.
    let mut service = Service::new(params).unwrap();
    script.busy = last.clone().collect();
    batch(&mut service, &mut script, &all);
    script.busy.clear();
    let some = [spaces - 1, spaces, spaces + 1].map(|space| (space, 1));
    let did = batch(&mut service, &mut script, &some);
    let order = [spaces + 1, spaces - 1, spaces].map(|space| (space, 1));
    assert_eq!(turns(&did), order);
}
