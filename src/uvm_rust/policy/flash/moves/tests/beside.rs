// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is copied home while what came before it is written.

use super::*;

/// A part from 0 on is written, beside a range from `at` on that goes home; how far both have come.
fn beside(mut m: Script, at: u64) -> (Script, Result<(), Failed>, [u64; 2]) {
    let mut run = Run::new(0, 40 * MIB, To::Device);
    let mut home = Run::new(at, 40 * MIB, To::Home);
    let moved = run.step_beside(&mut m, &mut home);
    assert!(m.held.is_empty() && !m.copying, "V-copies");
    let come = [run.at(), home.at() - at];
    (m, moved, come)
}

#[test]
fn the_next_part_is_copied_while_one_is_written() {
    let (m, moved, come) = beside(Script::default(), 16 * MIB);
    assert_eq!((moved, come), (Ok(()), [16 * MIB; 2]));
    let first = |what| m.said.iter().position(|said| *said == what);
    assert!(first("copy") < first("write") && first("write") < first("settle"));
    let counts = ["copy", "write", "settle", "pay"].map(|what| m.count(what));
    assert_eq!(counts, [8, 7, 1, 1]);
    // No farther ahead, and none where there is none.
    let (m, moved, come) = beside(Script::default(), 18 * MIB);
    assert_eq!((moved, come), (Ok(()), [16 * MIB, 0]));
    assert_eq!((m.count("home"), m.count("settle")), (0, 0));
}

/// Nobody waits for room who is about to make some, and has the turn of all that write.
#[test]
fn nothing_is_copied_ahead_to_a_host_that_is_full() {
    for room in [0, 3] {
        let full = Script {
            room: Some(room),
            ..Script::default()
        };
        let (m, moved, come) = beside(full, 16 * MIB);
        assert_eq!((moved, come), (Ok(()), [16 * MIB, 0]), "{room}");
        let counts = ["copy", "write", "settle", "pay"].map(|what| m.count(what));
        assert_eq!(counts, [room, 7, 1, 1]);
    }
    // Who copies it by itself has no turn, and may wait.
    let mut full = Script {
        room: Some(0),
        ..Script::default()
    };
    assert_eq!(run(&mut full, 0, MIB, To::Home), Ok(()));
    assert_eq!(full.count("copy"), 1);
}

/// Whoever copies that by itself is told why.
#[test]
fn what_cannot_be_copied_ahead_stays_and_the_rest_is_written() {
    let fetched = |fetched| Script {
        fetches: [fetched].into(),
        ..Script::default()
    };
    let cases = [
        Script {
            too_many: true,
            ..Script::default()
        },
        Script {
            loses: true,
            ..Script::default()
        },
        Script {
            managed: Some(20 * MIB),
            ..Script::default()
        },
        fetched(Fetched::Again),
        fetched(Fetched::NoMemory),
        fetched(Fetched::Failed),
    ];
    for (n, m) in cases.into_iter().enumerate() {
        let (m, moved, come) = beside(m, 16 * MIB);
        assert_eq!((moved, come), (Ok(()), [16 * MIB, 0]), "case {n}");
        assert_eq!((m.count("write"), m.count("pay")), (7, 1), "case {n}");
        let copies = m.count("copy");
        assert_eq!(copies, [1, 8, 0, 1, 1, 1][n], "V-wait: case {n}");
    }
    // Where the part itself fails, nothing of either is done.
    let dies = Script {
        dies_after: Some(4),
        ..Script::default()
    };
    let (_, moved, come) = beside(dies, 16 * MIB);
    assert_eq!((moved, come), (Err(Failed::Interrupted), [0, 0]));
}
