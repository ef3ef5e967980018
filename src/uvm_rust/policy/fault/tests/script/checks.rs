// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A machine that breaks its contract is told of, and the loop lives on.

use super::*;

/// The second fetch may copy two more, and copies three. What was copied is behind GET.
#[test]
fn more_entries_than_were_asked_for() {
    let mut script = Script::new(0, &writes(1, 0..6));
    script.too_many = [2, 3].into();
    script.broken = Some(Vec::new());
    let params = Params {
        max_batch: 4,
        ..with(ReplayPolicy::Once)
    };
    script.run(params).unwrap();
    assert_eq!(script.broken, Some(vec!["F-get"]));
    assert_eq!(reads(&script)[2], SetGet(5));
    assert_eq!(script.count(|did| matches!(did, Serve { .. })), 6);
}

/// As many as were asked for are none too many, also at the end of a batch.
#[test]
fn as_many_entries_as_were_asked_for() {
    let mut script = Script::new(0, &writes(1, 0..4));
    script.too_many = [2, 2].into();
    script.broken = Some(Vec::new());
    script.run(with(ReplayPolicy::Once)).unwrap();
    assert_eq!(script.broken, Some(vec![]));
}

/// A service that looked at no fault would be asked for the same one for ever.
#[test]
fn a_service_that_looked_at_no_fault() {
    let mut script = Script::new(0, &writes(1, 0..2));
    let nothing = Served::Faults {
        faults: 0,
        fatal: false,
    };
    script.served = [nothing].into();
    script.broken = Some(Vec::new());
    script.run(with(ReplayPolicy::Once)).unwrap();
    let what = "F-order: a fault that was not looked at";
    assert_eq!(script.broken, Some(vec![what]));
    let served = |did: &&Did| matches!(did, Serve { .. });
    let served: Vec<_> = script.did.iter().filter(served).copied().collect();
    assert_eq!(served, [service(0), service(1)]);
}
