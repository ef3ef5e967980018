// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The allocator in a process with the stub library, on each backend.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::process::Command;

use harness::{cc, cdylib, have_cc, source, stub, tmp};

#[test]
fn a_program_like_pytorch_keeps_its_data() {
    if !have_cc() {
        return;
    }
    let program = tmp("torch-program");
    cc(&program, &[&source("torch_program.c"), "-ldl"]);
    let (new, old) = (
        stub("cuda13", "-DSTUB"),
        stub("cuda12", "-DSTUB_NO_DISCARD"),
    );
    let cases = [
        (&old, "ours", true),
        (&old, "native", true),
        (&new, "old", true),
        (&old, "old", false),
    ];
    for (stub, driver, discards) in cases {
        let log = tmp("torch.log");
        let _ = std::fs::remove_file(&log);
        let done = Command::new(&program)
            .arg(cdylib("uvmrust-torch", false))
            .arg(if discards { "1" } else { "0" })
            .env("LD_PRELOAD", stub)
            .env("STUB_UVM", driver)
            .env("STUB_LOG", &log)
            .env("UVMRUST_FD", "900")
            .output()
            .unwrap();
        assert!(done.status.success(), "{driver}: {done:?}");
        let log = std::fs::read_to_string(log).unwrap();
        assert!(!log.contains("VIOLATION"), "{driver}: {log}");
        assert_eq!(log.contains("discard"), discards, "{driver}");
        assert!(log.matches("kernel write_all").count() > 90, "{driver}");
    }
}
