// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A VA space whose locks others have: the loop leaves its faults, and goes on with those of the others (F-busy).

use super::*;

/// Three VA spaces with two faults each.
fn three() -> Script {
    let faults: Vec<_> = (1..4).flat_map(|space| writes(space, 0..2)).collect();
    Script::new(0, &faults)
}

#[test]
fn faults_of_a_busy_space_are_left_for_the_replay() {
    let mut script = three();
    script.busy = vec![2];
    script.run(params()).unwrap();
    let whole = [
        enter(1),
        service(0),
        service(1),
        Invalidate,
        Leave,
        // Nothing was taken, and nothing is given back.
        enter(2),
        enter(3),
        service(4),
        service(5),
        Invalidate,
        Leave,
        CACHED,
    ];
    assert_eq!(script.since(enter(1))[..whole.len()], whole);
    // The thread is not idle, and the others' faults do not wait for a busy one.
    assert_eq!(script.count(|did| *did == Nap), 0);
}

#[test]
fn a_batch_of_busy_spaces_naps_once() {
    let mut script = three();
    script.busy = vec![1, 2, 3];
    script.run(params()).unwrap();
    let whole = [enter(1), enter(2), enter(3), Nap, CACHED];
    assert_eq!(script.since(enter(1))[..whole.len()], whole);
}

/// What else the thread has to do stands behind the call. The batch has its replay first, and the rest of the ring is left.
#[test]
fn a_call_that_has_waited_ends_after_its_batch() {
    let batch_of_one = Params {
        max_batch: 1,
        ..with(ReplayPolicy::Batch)
    };
    for (after, ends) in [(0, 6), (1, 1), (4, 4)] {
        let mut script = three();
        (script.busy, script.waited_after) = (vec![1, 2, 3], after);
        script.run(batch_of_one).unwrap();
        assert_eq!(batches(&script), ends, "{after}");
        assert_eq!(script.did[script.did.len() - 2..], [Nap, Replay], "{after}");
    }
}

/// The replay comes by each policy, also where no va_block is serviced that would bring it.
#[test]
fn a_batch_of_a_busy_space_alone_is_replayed() {
    for (policy, replay) in [
        (ReplayPolicy::Block, Replay),
        (ReplayPolicy::Batch, Replay),
        (ReplayPolicy::BatchFlush, CACHED),
        (ReplayPolicy::Once, Replay),
    ] {
        let mut script = Script::new(0, &writes(1, 0..3));
        script.busy = vec![1];
        script.run(with(policy)).unwrap();
        assert_eq!(
            script.since(enter(1))[..3],
            [enter(1), Nap, replay],
            "{policy:?}"
        );
    }
}

/// What was to be serviced in place was the busy one's.
#[test]
fn what_is_behind_a_busy_space_may_be_migrated() {
    let mut script = Script::new(0, &[writes(1, 0..1), writes(2, 0..1)].concat());
    script.served = [Served::AgainInPlace].into();
    // From then on.
    script.busy_after = Some((1, 1));
    script.run(with(ReplayPolicy::Once)).unwrap();
    let whole = [
        enter(1),
        service(0),
        Leave,
        enter_again(1),
        enter(2),
        service(1),
        Invalidate,
        Leave,
        Replay,
    ];
    assert_eq!(script.since(enter(1)), whole);
}

#[test]
fn a_cancel_of_a_busy_space_only_flushes() {
    let mut script = targeted(&[]);
    // The batch got in once, and the cancel does not.
    script.busy_after = Some((2, 1));
    script.run(params()).unwrap();
    assert_eq!(
        script.since(WaitService),
        [WaitService, enter_again(2), UPDATE]
    );
}

#[test]
fn a_global_cancel_leaves_out_a_busy_space() {
    let mut script = global();
    script.busy_after = Some((2, 1));
    assert_eq!(script.run(params()), Err(BROKEN));
    let whole = [
        enter_to_cancel(1),
        cancel_all(0, 2),
        Leave,
        enter_to_cancel(2),
        enter_to_cancel(3),
        cancel_all(3, 3),
        Leave,
        UPDATE,
    ];
    assert_eq!(script.since(enter_to_cancel(1)), whole);
}
