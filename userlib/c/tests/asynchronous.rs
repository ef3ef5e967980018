// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discards, prefetches, and both, in the order of streams: each part of `async_program.c` on each
//! backend of the stub library.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use harness::{cc, libraries, source, stub, tmp};

/// A version of CUDA, by what the stub is built with: since 13 it discards, since 11.3 a graph
/// can own things.
const CUDA13: &str = "-DSTUB";
const CUDA12: &str = "-DSTUB_NO_DISCARD";
const CUDA11: &str = "-DSTUB_NO_USER_OBJECTS";

/// A stub of each version, and the program, built once; `None` without make.
fn built() -> Option<&'static Built> {
    static BUILT: OnceLock<Option<Built>> = OnceLock::new();
    let build = || {
        let search = format!("-L{}", libraries()?.display());
        let stubs =
            [CUDA13, CUDA12, CUDA11].map(|cuda| (cuda, stub(&format!("async{cuda}"), cuda)));
        let program = tmp("async-program");
        let (source, stub) = (source("async_program.c"), stubs[0].1.to_str()?);
        let libraries = ["-l:libuvmrust.so.0", stub, "-lpthread"];
        cc(&program, &[&[&*source, &*search], &libraries[..]].concat());
        Some(Built { stubs, program })
    };
    BUILT.get_or_init(build).as_ref()
}

struct Built {
    stubs: [(&'static str, PathBuf); 3],
    program: PathBuf,
}

/// Runs a part, on some version of CUDA and a driver: "ours", "native" (NVIDIA's from 580 on),
/// "old" (NVIDIA's before), or none.
fn run(part: &str, cuda: &str, driver: &str, set: &[(&str, &str)]) {
    let (Some(lib), Some(built)) = (libraries(), built()) else {
        return;
    };
    let stub = built.stubs.iter().find(|(version, _)| *version == cuda);
    let mut command = Command::new("timeout");
    command.arg("60").arg(&built.program).arg(part);
    command
        .env("LD_PRELOAD", &stub.unwrap().1)
        .env("LD_LIBRARY_PATH", lib)
        .env("STUB_UVM", driver)
        .env("UVMRUST_FD", if driver.is_empty() { "-1" } else { "900" })
        .envs((cuda == CUDA13).then_some(("CUDA13", "1")))
        .envs(set.iter().copied());
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success(),
        "{cuda} {driver} {part}: {said}{done:?}"
    );
}

/// Runs `part` on every backend there is.
fn everywhere(part: &str, set: &[(&str, &str)]) {
    let backends = [
        (CUDA13, "ours"),
        (CUDA13, "native"),
        (CUDA13, "old"),
        (CUDA12, "ours"),
        (CUDA12, "native"),
    ];
    for (cuda, driver) in backends {
        run(part, cuda, driver, set);
    }
}

/// Runs `part` on the backends that discard in graphs.
fn with_nodes(part: &str, set: &[(&str, &str)]) {
    for driver in ["ours", "native"] {
        run(part, CUDA13, driver, set);
    }
}

#[test]
fn each_takes_its_turn_in_each_kind_of_stream() {
    everywhere("order", &[]);
    // With CUDA alone.
    run("order", CUDA13, "", &[]);
}

#[test]
fn a_call_has_one_host_function_however_many_ranges() {
    everywhere("one-function", &[]);
}

#[test]
fn what_is_wrong_with_a_call_is_told_and_changes_nothing() {
    everywhere("bad", &[]);
    everywhere("bad-at-once", &[]);
    everywhere("not-managed", &[]);
}

#[test]
fn each_is_done_at_each_launch_of_a_graph() {
    with_nodes("replay", &[]);
}

#[test]
fn what_can_not_be_a_node_is_refused_and_breaks_no_capture() {
    // CUDA has no node for a discard; and an old one cannot own the ranges of either.
    run("no-nodes-d", CUDA13, "old", &[]);
    run("no-nodes-dp", CUDA13, "", &[]);
    run("no-nodes-dp", CUDA11, "ours", &[]);
    run("no-nodes-dp", CUDA11, "native", &[]);
}

#[test]
fn two_threads_do_not_disturb_each_other() {
    everywhere("threads", &[("STUB_FREE", "1")]);
}

#[test]
fn a_child_of_fork_has_none_of_it() {
    with_nodes("forked", &[]);
}

#[test]
fn a_stream_may_be_of_a_device_that_is_not_current() {
    everywhere("not-current", &[]);
}

#[test]
fn parts_of_gpus_are_reached_by_cuda() {
    with_nodes("mig", &[("STUB_MIG", "1")]);
}

#[test]
fn where_cudas_batches_do_not_serve_the_ioctl_does() {
    everywhere("old-gpu", &[("STUB_OLD_GPU", "1")]);
}

#[test]
fn ranges_may_overlap_and_cover_pages_in_part() {
    everywhere("ragged", &[]);
}

/// The header's version, the library's, and that of its newest symbols.
#[test]
fn the_version_is_one() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(top.join("include/uvmrust.h")).unwrap();
    let map = std::fs::read_to_string(top.join("libuvmrust.map")).unwrap();
    let version = header
        .lines()
        .find_map(|line| line.strip_prefix("#define UVMRUST_VERSION"))
        .and_then(|version| version.trim().parse::<u32>().ok());
    let newest = map
        .lines()
        .filter_map(|line| line.strip_prefix("UVMRUST_0.")?.strip_suffix(" {"))
        .filter_map(|version| version.parse::<u32>().ok())
        .max();
    assert!(version.is_some());
    assert_eq!(version, newest);
    // SAFETY: it only gives a number.
    assert_eq!(version, Some(unsafe { uvmrust_version() }));
}

extern "C" {
    fn uvmrust_version() -> u32;
}
use uvmrust_c as _;
