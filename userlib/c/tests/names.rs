// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Names that the library had in earlier versions, and that a program has for itself.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::Path;
use std::process::Command;

use harness::{cc, libraries, source, tmp};

/// The names of version 1 of `libuvmrust.map`.
fn old_names() -> Vec<String> {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("libuvmrust.map");
    let map = std::fs::read_to_string(map).unwrap();
    let first = map.split("local:").next().unwrap();
    first
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_program_may_have_the_old_names_for_itself() {
    let Some(lib) = libraries() else { return };
    let (program, search) = (source("names_program.c"), format!("-L{}", lib.display()));
    let text = std::fs::read_to_string(&program).unwrap();
    let names = old_names();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("F({name})")), "{name}");
    }
    for library in ["-l:libuvmrust.a", "-l:libuvmrust.so.0"] {
        let out = tmp(&format!("names-program{library}"));
        let rest = ["-ldl", "-lpthread", "-lm"];
        cc(&out, &[&[&*program, &*search, library], &rest[..]].concat());
        let mut command = Command::new(&out);
        let done = command.env("LD_LIBRARY_PATH", lib).output().unwrap();
        assert!(done.status.success(), "{library}: {done:?}");
    }
}
