// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The program that asks a real GPU what NVIDIA's discard does (`scripts/gpu-check.sh`), on
//! the stub: whose rules so are those that the GPU is compared with.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::process::Command;

use harness::{cc, have_cc, source, stub, tmp};

#[test]
fn the_stub_does_what_is_said_of_a_gpu() {
    if !have_cc() {
        return;
    }
    let program = tmp("native-program");
    cc(&program, &[&source("native_program.c"), "-ldl"]);
    let stub = stub("native", "-DSTUB");
    let run = |set: &[(&str, &str)]| {
        let done = Command::new(&program)
            .env("LD_PRELOAD", &stub)
            .env("STUB_UVM", "native")
            .env("UVMRUST_FD", "900")
            .envs(set.iter().copied())
            .output()
            .unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        (done.status.code(), said)
    };
    let (status, said) = run(&[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("ok - UVM_DISCARD, eager"), "{said}");
    // It sees a discard that takes a page too many.
    let (status, said) = run(&[("STUB_BROKEN", "1")]);
    assert_ne!(status, Some(0), "{said}");
    let neighbours = "not ok - its neighbours are as they were";
    assert!(said.contains(neighbours), "{said}");
}
