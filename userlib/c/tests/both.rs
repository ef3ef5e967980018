// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discard-and-prefetch of which something fails: each part of `both_program.c`, on the stub library.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::process::Command;

use harness::{cc, libraries, source, stub, tmp};

/// Runs a part on the CUDA that the stub is with this flag.
fn run(part: &str, cuda: &str, driver: &str, set: &[(&str, &str)]) {
    let Some(lib) = libraries() else { return };
    let name = format!("both-{part}{cuda}-{driver}");
    let (stub, program) = (stub(&name, cuda), tmp(&format!("{name}-program")));
    let search = format!("-L{}", lib.display());
    let libraries = ["-l:libuvmrust.so.0", stub.to_str().unwrap()];
    let program_and_search = [&*source("both_program.c"), &*search];
    cc(&program, &[program_and_search, libraries].concat());
    let mut command = Command::new("timeout");
    command.arg("60").arg(&program).arg(part);
    command
        .env("LD_PRELOAD", &stub)
        .env("LD_LIBRARY_PATH", lib)
        .env("STUB_UVM", driver)
        .env("UVMRUST_FD", "900")
        .envs(set.iter().copied());
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success(),
        "{cuda} {driver} {part}: {said}{done:?}"
    );
}

/// Runs a part on each driver that discards lazily.
fn lazily(part: &str, set: &[(&str, &str)]) {
    for driver in ["ours", "native"] {
        run(part, "-DSTUB", driver, set);
    }
}

#[test]
fn what_is_written_behind_a_prefetch_that_fails_is_kept() {
    lazily("at-once", &[]);
    lazily("graph", &[]);
}

#[test]
fn what_is_written_behind_a_prefetch_that_cuda_refuses_is_kept() {
    // Of parts of GPUs, whose prefetch is always CUDA's.
    lazily("refused", &[("STUB_MIG", "1")]);
}

#[test]
fn what_is_written_behind_a_prefetch_that_fails_later_is_kept() {
    lazily("later", &[]);
    lazily("later", &[("STUB_MIG", "1")]);
}

/// CUDA's prefetch tells nobody, so that a prefetch behind a lazy discard is none of CUDA's.
#[test]
fn what_is_written_behind_a_lazy_discard_and_a_prefetch_that_fails_is_kept() {
    for how in ["alone-0", "alone-1", "alone-2", "alone-in-a-graph"] {
        lazily(how, &[]);
    }
    // To a part of a GPU it is CUDA's, behind a move to the host; and no discard in a stream is lazy.
    for how in ["alone-0", "alone-1", "part-at-once"] {
        lazily(how, &[("STUB_MIG", "1")]);
    }
}

/// Neither is a range lost with one that is no managed memory, nor is one brought home that has arrived.
#[test]
fn of_several_ranges_those_that_fail_are_brought_to_the_host() {
    if libraries().is_none() {
        return;
    }
    for driver in ["ours", "native"] {
        let log = tmp(&format!("both-several-{driver}.log"));
        let _ = std::fs::remove_file(&log);
        let path = log.to_str().unwrap();
        let set = [("STUB_LOG", path), ("STUB_WHERE", "1")];
        run("several", "-DSTUB", driver, &set);
        let log = std::fs::read_to_string(&log).unwrap();
        let to = |place: &str| {
            // One of nothing asks whether UVM is there.
            let moves = log.lines().filter(|line| !line.starts_with("migrate 0 "));
            let moves = moves.filter(|line| line.starts_with("migrate"));
            moves.filter(|line| line.ends_with(place)).count()
        };
        assert_eq!((to("gpu"), to("host")), (3, 1), "{driver}: {log}");
    }
}

/// A block may have several owners, and CUDA tells UVM of none.
#[test]
fn a_part_of_a_block_is_not_discarded_lazily() {
    lazily("in-part", &[]);
}

/// What a program is told to do there stands in `docs/discard-guide.md`, in What CUDA's own calls see.
#[test]
fn of_a_lazy_discard_that_others_make_only_the_prefetch_that_waits_tells() {
    lazily("others", &[]);
}

#[test]
fn a_prefetch_is_cudas_until_something_is_discarded_lazily() {
    lazily("never-lazy", &[]);
}

#[test]
fn a_lazy_discard_ends_with_a_prefetch_in_whichever_stream() {
    lazily("elsewhere", &[]);
}

#[test]
fn a_lazy_discard_that_can_not_be_ended_counts_as_failed() {
    run("counted", "-DSTUB", "native", &[]);
}

#[test]
fn a_capture_behind_a_discard_is_not_said_to_have_changed_nothing() {
    run("captured-behind", "-DSTUB", "old", &[]);
    lazily("captured-between", &[("STUB_MIG", "1")]);
}

#[test]
fn of_nothing_nothing_is_wrong() {
    for cuda in ["-DSTUB", "-DSTUB_NO_DISCARD"] {
        for driver in ["ours", "native", "old"] {
            run("nothing", cuda, driver, &[]);
        }
    }
}
