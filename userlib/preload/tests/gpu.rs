// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A CUDA program that knows nothing of the preload, on a real GPU, with whatever
//! driver is there. Allocates 8 MiB. Skips where there is no GPU.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::Path;
use std::process::Command;

use harness::{cc, cdylib, have_cc, skipped, source, tmp};

/// What the program said, or why it did not run.
fn run(program: &Path, set: &[(&str, &Path)]) -> Result<String, String> {
    let done = Command::new(program)
        .envs(set.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.code() == Some(77) {
        return Err(said);
    }
    assert!(done.status.success(), "{done:?}");
    print!("{said}{}", String::from_utf8_lossy(&done.stderr));
    Ok(said)
}

#[test]
fn an_unchanged_program_computes_the_same_in_managed_memory() {
    if !have_cc() {
        return;
    }
    let program = tmp("gpu-program");
    cc(&program, &[&source("gpu_program.c"), "-ldl"]);
    match run(&program, &[]) {
        Ok(said) => assert!(said.contains("managed 0")),
        Err(why) => return skipped(&why),
    }
    let library = cdylib("uvmrust-preload", false);
    let preload = ("LD_PRELOAD", &*library);
    let under = |set: &[(&str, &Path)]| run(&program, set).unwrap();
    assert!(under(&[preload]).contains("managed 1"));
    let plain = ("UVMRUST_MANAGED", Path::new("0"));
    assert!(under(&[preload, plain]).contains("managed 0"));
}
