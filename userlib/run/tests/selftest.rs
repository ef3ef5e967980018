// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmrun --selftest` on the stub, which is right, and where it is not.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::process::Command;

use harness::{have_cc, stub};

/// Runs it with the stub and these variables; gives the status and the page.
fn run(flag: &str, driver: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    // Tests run side by side: none may find another's library half written.
    let library = stub(
        &format!("selftest{flag}-{driver}-{}", variables.len()),
        flag,
    );
    let done = Command::new(env!("CARGO_BIN_EXE_uvmrun"))
        .arg("--selftest")
        .env("LD_LIBRARY_PATH", library.parent().unwrap())
        .env("LD_PRELOAD", &library)
        .env("STUB_UVM", driver)
        .env("UVMRUST_FD", "900")
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
            page.starts_with(&format!("  backend:      {backend}\n")),
            "{page}"
        );
        for test in ["write", "prefetch", "discard", "lazy discard", "again"] {
            assert!(page.contains(&format!("  {test}: ")), "{page}");
        }
        assert_eq!(page.matches(" right (").count(), 5, "{page}");
        assert!(page.ends_with("All that was tested is right.\n"), "{page}");
    }
}

#[test]
fn what_nobody_does_is_not_tested() {
    if !have_cc() {
        return;
    }
    let (status, page) = run("-DSTUB_NO_DISCARD", "old", &[]);
    assert_eq!(status, Some(0), "{page}");
    assert!(
        page.contains("nobody discards here (`uvmrun --check` says why)"),
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
        let wrong = "! discard:      WRONG: memory beside what was discarded: 0x";
        assert!(page.contains(wrong), "{page}");
        assert!(
            page.contains("Do not use discard on this machine"),
            "{page}"
        );
    }
}
