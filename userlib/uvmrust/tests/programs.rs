// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A C program, built against the header and both libraries, on each backend of the
//! stub library.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::Path;
use std::process::{Command, Output};

use harness::{cc, source, stub, tmp, top};

fn run(program: &Path, stub: &Path, driver: &str, backend: &str) -> Output {
    Command::new(program)
        .arg(backend)
        .env("LD_PRELOAD", stub)
        .env("LD_LIBRARY_PATH", tmp("lib"))
        .env("STUB_UVM", driver)
        .env("UVMRUST_FD", if driver.is_empty() { "-1" } else { "900" })
        .output()
        .unwrap()
}

#[test]
fn c_programs_work_on_every_backend() {
    let lib = tmp("lib");
    let built = Command::new("make")
        .arg("-C")
        .arg(top().join("userlib"))
        .arg(format!("OUT={}", lib.display()))
        .arg(lib.join("libuvmrust.so.0"))
        .arg(lib.join("libuvmrust.a"))
        .env_remove("MAKEFLAGS")
        .output();
    let Ok(built) = built else {
        eprintln!("skipped: no make");
        return;
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let source = &source("program.c");
    let (shared, fixed) = (tmp("program-shared"), tmp("program-static"));
    let search = format!("-L{}", lib.display());
    cc(&shared, &[source, &search, "-l:libuvmrust.so.0", "-ldl"]);
    cc(
        &fixed,
        &[
            source,
            &search,
            "-l:libuvmrust.a",
            "-ldl",
            "-lpthread",
            "-lm",
        ],
    );
    let (new, old) = (
        stub("cuda13", "-DSTUB"),
        stub("cuda12", "-DSTUB_NO_DISCARD"),
    );
    let cases = [
        (&old, "ours", "1"),
        (&old, "native", "2"),
        (&new, "native", "2"),
        (&new, "old", "3"),
        (&new, "", "3"),
        (&old, "old", "0"),
        (&old, "", "0"),
    ];
    for program in [&shared, &fixed] {
        for (stub, driver, backend) in cases {
            let done = run(program, stub, driver, backend);
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(
                done.status.success(),
                "{program:?} {driver:?} {backend}: {said}{done:?}"
            );
        }
    }
}
