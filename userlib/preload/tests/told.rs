// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a program is told of its memory under the preload, on the stub libraries (`told_program.c`).

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use harness::{cuda_program, have_cc, said, tmp, under_preload};

/// The folder of the CUDA that the program runs on.
const CUDA: &str = "told-cuda";

fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = tmp("told-program");
        cuda_program(CUDA, &program, "told_program.c");
        program
    })
}

/// What the program says, and what was said on stderr.
fn run(what: &str, name: &str, set: &[(&str, &str)]) -> (String, String) {
    let log = tmp(&format!("told-{name}.log"));
    let mut command = under_preload(CUDA, program(), &log);
    if set.is_empty() {
        command.env_remove("LD_PRELOAD");
    }
    let done = command
        .arg(what)
        .env("UVMRUST_ANNOUNCE", "0")
        .envs(set.iter().copied())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    (String::from_utf8(done.stdout.clone()).unwrap(), said(&done))
}

const ON: (&str, &str) = ("UVMRUST_PRELOAD", "1");

/// PyTorch's `memory_allocated()` with CUDA's pools, and CuPy's `used_bytes()`, are such counts.
#[test]
fn pools_count_what_is_managed_instead() {
    if !have_cc() {
        return;
    }
    let (plain, _) = run("pools", "pools-plain", &[]);
    let both = (4 << 20) + (64 << 10);
    assert!(
        plain.starts_with(&format!("two: {both} {both} {both} {both}\n")),
        "{plain}"
    );
    assert!(plain.contains("a new one: 0 0 0 0\n"), "{plain}");
    assert_eq!(run("pools", "pools", &[ON]).0, plain);
    // Managed memory goes with its context.
    let most = 4 << 20;
    assert_eq!(
        run("reset", "reset", &[ON]).0,
        format!("reset: 0 {most} 0 {most}\n")
    );
}

/// Another thread may have the handle of a destroyed pool before the call has returned.
#[test]
fn a_pool_that_goes_takes_no_others_counts_with_it() {
    if !have_cc() {
        return;
    }
    let (plain, _) = run("destroyed", "destroyed-plain", &[]);
    let (large, most) = (4 << 20, 12 << 20);
    let now = format!("who has the handle now: {large} {large} {large} {large}\n");
    let own = format!("which stays: {large} {most} {large} {most}\n");
    assert!(plain.contains(&now) && plain.contains(&own), "{plain}");
    assert_eq!(run("destroyed", "destroyed", &[ON]).0, plain);
}

/// CuPy says of its arrays what CUDA says of their memory, and PyTorch takes none that is managed.
#[test]
fn what_became_managed_is_a_devices_if_that_is_asked_for() {
    if !have_cc() {
        return;
    }
    let told = |name, set: &[(&str, &str)]| run("pointers", name, set).0;
    let plain = told("pointers-plain", &[]);
    let a_devices = "type 2 managed 0";
    assert_eq!(plain.matches(a_devices).count(), 3, "{plain}");
    let hidden = told("pointers-device", &[("UVMRUST_POINTERS", "device")]);
    assert_eq!(hidden, plain);
    // By default it is told what CUDA says.
    let as_it_is = told("pointers", &[ON]);
    assert_eq!(as_it_is.matches(a_devices).count(), 1, "{as_it_is}");
    let off = [("UVMRUST_POINTERS", "device"), ("UVMRUST_MANAGED", "0")];
    assert_eq!(told("pointers-off", &off), plain);
}

#[test]
fn a_program_that_shares_memory_is_told_why_it_cannot() {
    if !have_cc() {
        return;
    }
    let (plain, silent) = run("handles", "handles-plain", &[]);
    assert_eq!(plain, "its own 1 small 0 large 0 0\n");
    assert_eq!(silent, "#\n");
    let (told, said) = run("handles", "handles", &[ON]);
    assert_eq!(told, "its own 1 small 0 large 1 1\n");
    // Not of the program's own managed memory.
    assert!(said.starts_with("#\n"), "{said}");
    assert_eq!(said.matches("UVMRUST_MANAGED=0").count(), 1, "{said}");
}
