// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program that has a function of NVIDIA's by one of the library's old names, and calls both, on the stub.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::process::Command;

use harness::{cc, have_cc, libraries, source, stub, tmp};

#[test]
fn a_program_may_have_nvidias_function_of_an_old_name() {
    if !have_cc() {
        return;
    }
    let Some(lib) = libraries() else { return };
    let stub = stub("clash", "-DSTUB");
    let (source, cuda) = (source("clash_program.c"), stub.to_str().unwrap());
    let search = format!("-L{}", lib.display());
    let program = tmp("clash-program");
    cc(&program, &[&source, &search, "-l:libuvmrust.so.0", cuda]);
    for driver in ["ours", "native"] {
        let mut command = Command::new(&program);
        let command = command
            .env("LD_PRELOAD", &stub)
            .env("LD_LIBRARY_PATH", lib)
            .env("STUB_UVM", driver)
            .env("UVMRUST_FD", "900");
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{driver}: {said}{done:?}");
    }
}
