// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A service that asks to be tried again and again, as it does for a page that is never migrated: it is tried in place, and
//! at last the loop goes on with the faults of others (F-again).

use super::*;

fn in_place(first: u32) -> Did {
    Serve {
        first,
        per_block: false,
        in_place: true,
    }
}

/// How often the first fault is tried, and how often of these in place.
fn tries(script: &Script) -> (usize, usize) {
    let in_place = script.count(|did| *did == in_place(0));
    (script.count(|did| *did == service(0)) + in_place, in_place)
}

#[test]
fn what_cannot_be_migrated_is_tried_in_place() {
    let mut script = Script::new(0, &writes(1, 0..2));
    script.served = [Served::Again; 8].into();
    script.run(with(ReplayPolicy::Once)).unwrap();
    assert_eq!(tries(&script), (9, 1));
    // The next fault may be migrated.
    let whole = [
        enter_again(1),
        in_place(0),
        service(1),
        Invalidate,
        Leave,
        Replay,
    ];
    assert_eq!(script.did[script.did.len() - whole.len()..], whole);
}

/// Each fault has its tries.
#[test]
fn tries_of_one_fault_do_not_count_for_the_next() {
    let mut script = Script::new(0, &writes(1, 0..2));
    script.served = [[Served::Again; 7].as_slice(), &[ONE], &[Served::Again; 7]]
        .concat()
        .into();
    script.run(with(ReplayPolicy::Once)).unwrap();
    assert_eq!(script.count(|did| *did == in_place(0)), 0);
    assert_eq!(script.count(|did| *did == in_place(1)), 0);
    assert_eq!(script.count(|did| *did == service(1)), 8);
}

/// The faults of the one are left, however many, and those of the other are serviced. The locks are given back each time.
#[test]
fn what_asks_for_ever_holds_up_nobody_else() {
    let faults = [writes(1, 0..2), writes(2, 0..1)].concat();
    let mut script = Script::new(0, &faults);
    script.served = [Served::Again; 16].into();
    script.run(params()).unwrap();
    assert_eq!(tries(&script), (16, 8));
    let whole = [
        in_place(0),
        Leave,
        enter(2),
        service(2),
        Invalidate,
        Leave,
        CACHED,
    ];
    let last = script.did.iter().rposition(|did| *did == in_place(0));
    assert_eq!(script.did[last.unwrap()..][..whole.len()], whole);
    assert_eq!(script.count(|did| *did == service(1)), 0);
    // Somebody was served, so the CPU is not idle.
    assert_eq!(script.count(|did| *did == Nap), 0);
    // Each batch with such a fault counts as throttled, or one call would go on with it for ever.
    let one = Params {
        max_batch: 1,
        max_throttled: 1,
        ..with(ReplayPolicy::Batch)
    };
    let mut script = Script::new(0, &faults);
    script.served = [Served::Again; 16].into();
    script.run(one).unwrap();
    assert_eq!(batches(&script), 1);
    assert_eq!(script.did[script.did.len() - 3..], [Leave, Nap, Replay]);
}

/// Who is served between two that are left is served all the same, and no later batch is taken for one with such a fault.
#[test]
fn a_batch_is_judged_by_itself() {
    let one = Params {
        max_batch: 1,
        max_throttled: 2,
        ..with(ReplayPolicy::Batch)
    };
    let mut script = Script::new(
        0,
        &(1..5).flat_map(|of| writes(of, 0..1)).collect::<Vec<_>>(),
    );
    script.served = [Served::Again; 16].into();
    script.run(one).unwrap();
    assert_eq!(batches(&script), 4);
    assert_eq!(script.count(|did| *did == Nap), 1);
}

/// So many calls of the loop, each of which finds these faults.
fn calls(service: &mut Service, faults: &[Record], times: usize) -> Vec<Script> {
    let script = |_| {
        let mut script = Script::new(0, faults);
        service.run(&mut script).unwrap();
        script
    };
    (0..times).map(script).collect()
}

/// The first of a VA space is tried in place once it has come eight times after the first, and then every second time.
#[test]
fn what_comes_back_is_tried_in_place() {
    let mut service = Service::new(with(ReplayPolicy::Batch)).unwrap();
    let faults = [writes(1, 0..2), writes(2, 0..1)].concat();
    let all = calls(&mut service, &faults, 10);
    let tried: Vec<_> = all.iter().map(|script| tries(script).1).collect();
    assert_eq!(tried, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    // The second fault of a VA space may be migrated, and another VA space is counted by itself.
    let last = &all[8];
    assert_eq!(
        (
            last.count(|did| *did == in_place(1)),
            last.count(|did| *did == in_place(2))
        ),
        (0, 1)
    );
    // It comes with one before it, which is the first then; and alone, anew.
    let others = calls(&mut service, &writes(1, 5..6), 1);
    assert_eq!(tries(&others[0]).1, 0);
    assert_eq!(tries(&calls(&mut service, &faults, 1)[0]).1, 0);
}

/// An atomic in place would keep the page from being migrated later.
#[test]
fn an_atomic_is_not_tried_in_place() {
    let atomics = [record(0, 1, 0, Access::AtomicStrong as u8, 0)];
    let mut script = Script::new(0, &atomics);
    script.served = [Served::Again; 16].into();
    script.run(params()).unwrap();
    assert_eq!(tries(&script), (16, 0));
    let mut service = Service::new(with(ReplayPolicy::Batch)).unwrap();
    let all = calls(&mut service, &atomics, 12);
    assert!(all.iter().all(|script| tries(script) == (1, 0)));
    let mut service = Service::new(with(ReplayPolicy::Batch)).unwrap();
    let weak = [record(0, 1, 0, Access::AtomicWeak as u8, 0)];
    assert_eq!(tries(&calls(&mut service, &weak, 9)[8]), (1, 1));
}

/// What thrashes comes back because it is left alone.
#[test]
fn what_is_throttled_does_not_come_back_in_place() {
    let mut service = Service::new(with(ReplayPolicy::Batch)).unwrap();
    calls(&mut service, &writes(1, 0..1), 8);
    let mut script = Script::new(0, &writes(2, 0..1));
    script.outcomes = [Outcome {
        throttled: true,
        ..Outcome::default()
    }]
    .into();
    service.run(&mut script).unwrap();
    assert_eq!(tries(&calls(&mut service, &writes(1, 0..1), 1)[0]).1, 0);
}
