// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The service of one VA space fails by what is refused to it alone: the loop cancels that one's faults, and goes on with
//! those of the others (F-own).

use super::*;

/// As [`global`], and it is the second VA space's own affair.
fn own() -> Script {
    let mut script = global();
    script.is_own = true;
    script
}

#[test]
fn what_one_space_is_refused_cancels_its_faults_alone() {
    let mut script = own();
    script.run(params()).unwrap();
    let whole = [
        enter(1),
        service(0),
        service(1),
        Invalidate,
        Leave,
        enter(2),
        service(2),
        Invalidate,
        cancel_all(2, 1),
        Leave,
        enter(3),
        service(3),
        service(4),
        service(5),
        Invalidate,
        Leave,
        // The cancel was a replay.
        UPDATE,
        WaitReplays(false),
    ];
    assert_eq!(script.since(enter(1)), whole);
}

/// Also those that were serviced before, as by an error that is nobody's. They may be stalled still.
#[test]
fn all_that_the_batch_has_of_a_refused_space_is_cancelled() {
    let mut script = own();
    script.fails = vec![service(4)];
    script.run(params()).unwrap();
    let whole = [
        service(4),
        Invalidate,
        cancel_all(3, 3),
        Leave,
        UPDATE,
        WaitReplays(false),
    ];
    assert_eq!(script.since(service(4)), whole);
}

#[test]
fn each_space_is_refused_for_itself() {
    let mut script = own();
    script.fails = vec![service(0), service(2)];
    script.run(params()).unwrap();
    let cancels = |did: &Did| matches!(did, Cancel { .. });
    assert_eq!(script.count(cancels), 2);
    assert_eq!(script.count(|did| *did == cancel_all(0, 2)), 1);
    assert_eq!(script.count(|did| *did == cancel_all(2, 1)), 1);
    assert_eq!(script.count(|did| *did == service(5)), 1);
}

/// The next batch is followed by what the policy says again.
#[test]
fn only_the_batch_with_a_refused_space_is_flushed_for_it() {
    let mut script = own();
    let params = Params {
        max_batch: 3,
        ..with(ReplayPolicy::Once)
    };
    script.run(params).unwrap();
    assert_eq!(batches(&script), 1, "the rest of the ring was flushed");
    assert_eq!(
        script.did[script.did.len() - 2..],
        [UPDATE, WaitReplays(false)]
    );

    script.write(&writes(1, 0..1));
    (script.did, script.fails) = (Vec::new(), Vec::new());
    script.run(params).unwrap();
    assert_eq!(script.since(Leave), [Leave, Replay]);
}

/// Who waits for the locks would have them next, for ever: they are not given back in between.
#[test]
fn a_refused_space_is_not_let_go_before_its_faults_are_cancelled() {
    let mut script = own();
    script.busy_after = Some((2, 1));
    script.run(params()).unwrap();
    assert_eq!(script.count(|did| *did == enter_to_cancel(2)), 0);
    assert_eq!(script.count(|did| *did == cancel_all(2, 1)), 1);
}

/// Where the rest of a VA space with a fatal fault is serviced, to find what else is fatal, and is refused memory.
#[test]
fn what_is_refused_beside_a_fatal_fault_is_cancelled_with_it() {
    let come_back = [writes(1, 0..2), writes(2, 0..3)].concat();
    let mut script = targeted(&come_back);
    script.is_own = true;
    script.fails = vec![service(3)];
    script.run(params()).unwrap();
    let whole = [
        Begin,
        service(2),
        Invalidate,
        cancel(2, 1),
        service(3),
        Invalidate,
        cancel_all(3, 2),
        Leave,
        UPDATE,
    ];
    assert_eq!(script.since_last(Begin), whole);
}

/// A GPU on which a cancel fails is nobody's to cancel for alone.
#[test]
fn a_cancel_of_a_refused_space_that_fails_is_a_global_error() {
    let mut script = own();
    script.fails.push(cancel_all(2, 1));
    assert_eq!(script.run(params()), Err(BROKEN));
    assert_eq!(script.count(|did| *did == enter(3)), 0);
    let whole = [enter_to_cancel(1), cancel_all(0, 2), Leave];
    assert_eq!(script.since(enter_to_cancel(1))[..3], whole);
}

/// What was to be serviced in place was the refused one's.
#[test]
fn what_is_behind_a_refused_space_may_be_migrated() {
    let mut script = own();
    script.served = [ONE, ONE, Served::AgainInPlace].into();
    script.fails = vec![Serve {
        first: 2,
        per_block: false,
        in_place: true,
    }];
    script.run(params()).unwrap();
    let whole = [cancel_all(2, 1), Leave, enter(3), service(3)];
    assert_eq!(script.since(cancel_all(2, 1))[..4], whole);
}

/// It finds the µTLBs of all of the batch.
#[test]
fn on_pascal_what_one_space_is_refused_cancels_all() {
    let mut script = own();
    let params = Params {
        cancels_by_address: false,
        ..params()
    };
    assert_eq!(script.run(params), Err(BROKEN));
    let whole = [Leave, CancelUtlbs(REASON), Replay];
    let last = script.did.len() - whole.len();
    assert_eq!(script.did[last..], whole);
}

/// A replay is not one VA space's.
#[test]
fn a_replay_that_fails_is_a_global_error() {
    let mut script = own();
    script.fails = vec![Replay];
    assert_eq!(script.run(with(ReplayPolicy::Block)), Err(BROKEN));
    assert_eq!(script.count(|did| *did == enter(2)), 0);
    assert_eq!(script.count(|did| *did == enter_to_cancel(3)), 1);
}

/// Faults were cancelled, so that the thread has done something, though the other VA space is busy.
#[test]
fn a_batch_with_refused_faults_does_not_nap() {
    let faults = [writes(1, 0..1), writes(2, 0..1)].concat();
    let mut script = Script::new(0, &faults);
    (script.busy, script.fails, script.is_own) = (vec![1], vec![service(1)], true);
    script.run(params()).unwrap();
    assert_eq!(script.count(|did| *did == Nap), 0);
    assert_eq!(script.count(|did| matches!(did, Cancel { .. })), 1);
}
