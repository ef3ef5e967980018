// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The program that asks a real GPU what NVIDIA's discard does (`scripts/gpu-check.sh`), on
//! the stub: whose rules so are those that the GPU is compared with.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::Path;
use std::process::Command;

use harness::{cc, have_cc, source, stub, tmp};

/// What a program said on the stub, as NVIDIA's driver, and its exit status.
fn run(
    program: &Path,
    stub: &Path,
    arguments: &[&str],
    set: &[(&str, &str)],
) -> (Option<i32>, String) {
    let done = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", stub)
        .env("STUB_UVM", "native")
        .env("UVMRUST_FD", "900")
        .envs(set.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    (done.status.code(), said)
}

#[test]
fn the_stub_does_what_is_said_of_a_gpu() {
    if !have_cc() {
        return;
    }
    let program = tmp("native-program");
    cc(&program, &[&source("native_program.c"), "-ldl"]);
    let stub = stub("native", "-DSTUB");
    let (status, said) = run(&program, &stub, &[], &[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("ok - UVM_DISCARD, eager"), "{said}");
    // The stub's pools give memory out again as it is.
    let pool = "lazily discarded and freed is given out again: yes; 0 of";
    assert!(said.contains(pool), "{said}");
    // It sees a discard that takes a page too many.
    let (status, said) = run(&program, &stub, &[], &[("STUB_BROKEN", "1")]);
    assert_ne!(status, Some(0), "{said}");
    let neighbours = "not ok - its neighbours are as they were";
    assert!(said.contains(neighbours), "{said}");
}

/// What is written behind a discard is kept in each way that libuvmrust takes, and lost behind
/// CUDA's discard alone, as on a GPU.
#[test]
fn a_write_behind_a_discard_is_kept_but_behind_cudas() {
    if !have_cc() {
        return;
    }
    let program = tmp("order-program");
    cc(&program, &[&source("order_program.c"), "-ldl"]);
    let stub = stub("order", "-DSTUB");
    let (status, said) = run(&program, &stub, &["1"], &[("STUB_SEED", "1")]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("\nok - UVM_DISCARD, eager, by a host"),
        "{said}"
    );
    assert!(
        said.contains("\nlost - cuMemDiscardBatchAsync, on the"),
        "{said}"
    );
    assert!(!said.contains("\nnot ok"), "{said}");
}

/// What libuvmrust and its random programs count on orders two streams; a launch of a graph without
/// nodes does not.
#[test]
fn streams_are_ordered_by_what_is_counted_on_alone() {
    if !have_cc() {
        return;
    }
    let program = tmp("link-program");
    cc(&program, &[&source("link_program.c"), "-ldl"]);
    let stub = stub("link", "-DSTUB");
    // Without a seed only what is waited for runs.
    for set in [&[][..], &[("STUB_SEED", "1")], &[("STUB_FREE", "1")]] {
        let (status, said) = run(&program, &stub, &[], set);
        assert_eq!(status, Some(0), "{said}");
        let links = [
            "an event",
            "a graph of a memset in the legacy stream",
            "a graph of a host function, launched in both",
            "a memset and an event of a blocking stream behind the legacy stream",
            "a wait of the program for a host function and a blocking stream behind the legacy stream",
            "an event of the legacy stream behind another thread's own default stream",
            "an event of the thread's own default stream that only waits, for the legacy stream",
        ];
        let ok = |link| format!("\nok - {link}: of 20 times B came behind A in 20\n");
        assert!(links.iter().all(|link| said.contains(&ok(link))), "{said}");
        let destroyed = "cuGraphExecDestroy gives 900, cuStreamEndCapture 901\n";
        assert!(said.contains(destroyed), "{said}");
        let none = |link| format!("\nfact - {link}: of 20 times B came behind A in 0\n");
        let nothing = [
            none("a graph of no node in the legacy stream"),
            none("a graph of no node, launched in both"),
            none("an event of a blocking stream behind the legacy stream"),
            none(
                "a wait of the program for an event and a blocking stream behind the legacy stream",
            ),
            none("the thread's own default stream that only waits, for the legacy stream"),
        ];
        assert!(
            !set.is_empty() || nothing.iter().all(|line| said.contains(line)),
            "{said}"
        );
    }
}
