// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmrun --selftest` on the stub, which is right, and where it is not.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::io::Read;
use std::process::{Command, Stdio};

use harness::{have_cc, stub, tmp};

/// Runs it with the stub and these variables; gives the status and the page.
fn run(flag: &str, driver: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    // Tests run side by side: none may find another's library half written.
    let named = variables
        .iter()
        .map(|(name, value)| format!("-{name}-{value}"));
    let named = named.collect::<String>();
    let library = stub(&format!("selftest{flag}-{driver}{named}"), flag);
    // It is killed if it does not end, without the stub in timeout itself.
    let done = Command::new("timeout")
        .args(["--signal=KILL", "1300", "env"])
        .arg(format!("LD_PRELOAD={}", library.display()))
        .arg(env!("CARGO_BIN_EXE_uvmrun"))
        .arg("--selftest")
        .env("LD_LIBRARY_PATH", library.parent().unwrap())
        .env("STUB_UVM", driver)
        .env("UVMRUST_FD", "900")
        // Tests may run on a machine that has much else to do.
        .env("UVMRUST_SELFTEST_MS", "1200000")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(done.stderr.is_empty(), "{done:?}");
    (done.status.code(), String::from_utf8(done.stdout).unwrap())
}

#[test]
fn all_is_right_with_each_backend() {
    if !have_cc() {
        return;
    }
    for (driver, flag, backend) in [
        ("ours", "-DSTUB", "uvm-rust's driver"),
        ("native", "-DSTUB", "NVIDIA's driver"),
        ("old", "-DSTUB", "CUDA 13"),
    ] {
        let (status, page) = run(flag, driver, &[]);
        assert_eq!(status, Some(0), "{driver}: {page}");
        assert!(
            page.starts_with(&format!("  backend:                  {backend}\n")),
            "{page}"
        );
        // CUDA's discard becomes no part of a graph.
        let in_graphs = if backend == "CUDA 13" { 2 } else { 0 };
        assert_eq!(page.matches(" right (").count(), 13 - in_graphs, "{page}");
        let refused = "in a graph:       not tested: who discards here";
        assert_eq!(page.matches(refused).count(), in_graphs.min(1), "{page}");
        assert!(page.contains("All that was tested is right."), "{page}");
        // The stub's own driver drops a page or not, as it comes.
        let gone = if driver == "ours" { "" } else { "16.0" };
        for how in ["eagerly", "lazily"] {
            let says = format!("  dropped:                  {how} {gone}");
            assert!(page.contains(&says), "{page}");
        }
        assert!(!page.contains("drops nothing,"), "{page}");
    }
}

#[test]
fn what_nobody_does_is_not_tested() {
    if !have_cc() {
        return;
    }
    let (status, page) = run("-DSTUB_NO_DISCARD", "old", &[]);
    assert_eq!(status, Some(2), "{page}");
    assert_eq!(
        page.matches("not tested: nobody does it here").count(),
        9,
        "{page}"
    );
    assert_eq!(page.matches(" right (").count(), 4, "{page}");
    assert!(
        page.ends_with("but no discard could be tested: `uvmrun --check` says why.\n"),
        "{page}"
    );
}

#[test]
fn a_driver_that_drops_too_much_is_found() {
    if !have_cc() {
        return;
    }
    for driver in ["ours", "native"] {
        let (status, page) = run("-DSTUB", driver, &[("STUB_BROKEN", "1")]);
        assert_eq!(status, Some(1), "{driver}: {page}");
        // Ours drops a page or not, as it comes: what it writes is a zero.
        let some = "! discard:                  WRONG: memory beside what was discarded: 0x";
        assert!(page.contains(some), "{page}");
        if driver == "native" {
            assert_eq!(page.matches("WRONG: memory beside").count(), 9, "{page}");
        }
        assert!(
            page.contains("Do not use discard on this machine"),
            "{page}"
        );
    }
}

/// The mistake that a GPU has shown of a call of CUDA's: what is written behind a discard is lost.
#[test]
fn a_driver_that_loses_what_is_written_behind_a_discard_is_found() {
    if !have_cc() {
        return;
    }
    for driver in ["ours", "native"] {
        // The GPU's writes are lost at once: behind each discard but the one that the CPU writes behind.
        let (status, page) = run("-DSTUB", driver, &[("STUB_LOSES", "write")]);
        assert_eq!(status, Some(1), "{driver}: {page}");
        let lost = "WRONG: what was written behind what was tested: 0xdbdbdbdb";
        assert_eq!(page.matches(lost).count(), 8, "{page}");
        assert!(page.contains("Do not use discard"), "{page}");
        // A mark of the discard outlasts the write: a move drops what was written. A discard with a prefetch, or
        // before one, has no mark by then.
        let (status, page) = run("-DSTUB", driver, &[("STUB_LOSES", "move")]);
        assert_eq!(status, Some(1), "{driver}: {page}");
        for test in [
            "discard:",
            "batch:",
            "host writes behind it:",
            "discard in a stream:",
            "discard in a graph:",
        ] {
            let says = format!("! {test:<26}{lost}");
            assert!(page.contains(&says), "{says}: {page}");
        }
    }
}

/// The semantics allow it, so that it passes; but it is to be seen.
#[test]
fn a_discard_that_drops_nothing_passes_and_is_named() {
    if !have_cc() {
        return;
    }
    let (status, page) = run("-DSTUB", "native", &[("STUB_NO_OP", "1")]);
    assert_eq!(status, Some(0), "{page}");
    for how in ["eagerly", "lazily"] {
        let says = format!(
            "  dropped:                  {how} 0.0 MiB of 16.0 MiB: this discard drops nothing"
        );
        assert!(page.contains(&says), "{page}");
    }
}

#[test]
fn what_never_ends_is_named_and_nobody_waits_for_it() {
    if !have_cc() {
        return;
    }
    let stuck = [("STUB_STUCK", "free"), ("UVMRUST_SELFTEST_MS", "60000")];
    let (status, page) = run("-DSTUB", "ours", &stuck);
    assert_eq!(status, Some(1), "{page}");
    let says = "! free:                     WRONG: not done 60 s after the start\n";
    assert!(page.contains(says), "{page}");
    // All was right by then.
    let (status, page) = run("-DSTUB", "ours", &[("STUB_STUCK", "exit")]);
    assert_eq!(status, Some(0), "{page}");
}

/// A child that nothing can end has neither of the descriptors that somebody reads to their end.
#[test]
fn a_stuck_child_holds_up_nobody_who_reads_what_is_said() {
    if !have_cc() {
        return;
    }
    let library = stub("selftest-readers", "-DSTUB");
    let log = tmp("selftest-readers.log");
    let _ = std::fs::remove_file(&log);
    let mut uvmrun = Command::new(env!("CARGO_BIN_EXE_uvmrun"))
        .arg("--selftest")
        .env("LD_PRELOAD", &library)
        .env("LD_LIBRARY_PATH", library.parent().unwrap())
        .env("STUB_UVM", "ours")
        .env("UVMRUST_FD", "900")
        .env("STUB_STUCK", "descriptors")
        .env("STUB_LOG", &log)
        .env("UVMRUST_SELFTEST_MS", "1200000")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(uvmrun.wait().unwrap().code(), Some(0));
    // (Returns when nobody can write there any more.)
    let mut said = String::new();
    let mut errors = uvmrun.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    let noted = std::fs::read_to_string(&log).unwrap();
    let child = noted.lines().find_map(|line| line.strip_prefix("keeps "));
    let ended = Command::new("kill")
        .arg("-KILL")
        .arg(child.unwrap())
        .status();
    assert!(ended.unwrap().success(), "it is there all the time");
    assert_eq!(said, "the stub begins\n", "it ends twenty minutes later");
}

/// A discard that is done while the graph is captured is no part of it.
#[test]
fn a_graph_without_the_discard_is_found() {
    if !have_cc() {
        return;
    }
    let (status, page) = run("-DSTUB", "ours", &[("STUB_ONE_NODE", "1")]);
    assert_eq!(status, Some(1), "{page}");
    let says = "WRONG: it is not a part of the graph, which has 1 of 2 nodes\n";
    assert_eq!(page.matches(says).count(), 2, "{page}");
}

#[test]
fn a_driver_that_does_not_answer_ends_it() {
    if !have_cc() {
        return;
    }
    let never = [
        ("STUB_ASLEEP", "0"),
        ("UVMRUST_PATIENCE_MS", "600000"),
        ("UVMRUST_SELFTEST_MS", "10000"),
    ];
    let (status, page) = run("-DSTUB", "ours", &never);
    assert_eq!(status, Some(1), "{page}");
    let says = "! backend:                  WRONG: not done 10 s after the start";
    assert!(page.contains(says), "{page}");
}
