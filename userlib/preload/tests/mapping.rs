// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program that maps memory by itself, under the preload, on the stub libraries.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use harness::{cdylib, cuda_program, have_cc, program as built, tmp, under_preload};

/// The folder of the CUDA that the program runs on.
const CUDA: &str = "mapping-cuda";

fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = tmp("mapping-program");
        cuda_program(CUDA, &program, "mapping_program.c");
        program
    })
}

/// What the program did with memory, and what was said on stderr.
fn run(name: &str, argument: Option<&str>, set: &[(&str, &str)]) -> (Vec<String>, String) {
    let log = tmp(&format!("mapping-{name}.log"));
    let mut command = under_preload(CUDA, program(), &log);
    if set.contains(&("PLAIN", "1")) {
        command.env_remove("LD_PRELOAD");
    }
    let done = command
        .args(argument)
        .env("UVMRUST_ANNOUNCE", "0")
        .envs(set.iter().copied())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8(done.stderr).unwrap();
    let lines = std::fs::read_to_string(&log).unwrap_or_default();
    let memory = |line: &&str| !line.starts_with("kernel ");
    (
        lines.lines().filter(memory).map(str::to_owned).collect(),
        said,
    )
}

#[test]
fn what_a_program_maps_is_left_to_cuda() {
    if !have_cc() {
        return;
    }
    let (plain, _) = run("plain", None, &[("PLAIN", "1")]);
    assert_eq!(plain.iter().filter(|line| *line == "piece gone").count(), 5);
    let under = run("left", None, &[]);
    assert_eq!(under, (plain, String::new()));
}

/// What such a device reads of managed memory may be stale, and what it writes there may be lost. What the
/// program maps by itself is not managed.
#[test]
fn a_program_is_told_that_no_other_device_may_access_managed_memory() {
    if !have_cc() {
        return;
    }
    let told = |name, set: &[(&str, &str)]| -> String {
        let log = tmp(&format!("mapping-{name}.log"));
        let mut command = under_preload(CUDA, program(), &log);
        let done = command.envs(set.iter().copied()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    assert_eq!(told("rdma", &[]), "0 0 110\n");
    // The device's own answers, which the stub makes up.
    for off in ["UVMRUST_MANAGED", "UVMRUST_PRELOAD"] {
        assert_eq!(told("rdma-off", &[(off, "0")]), "116 124 110\n", "{off}");
    }
}

/// One that knows how to do without gets managed memory so.
#[test]
fn a_program_is_told_that_devices_map_nothing_if_that_is_asked_for() {
    if !have_cc() {
        return;
    }
    let hide = ("UVMRUST_MAPPING", "0");
    let (lines, said) = run("hidden", None, &[hide]);
    assert_eq!((lines[0].as_str(), said.as_str()), ("managed 2097152", ""));
    let (lines, _) = run("hidden-plain", None, &[hide, ("UVMRUST_MANAGED", "0")]);
    assert_eq!(lines[0], "device 2097152");
    let (lines, _) = run("off", None, &[hide, ("UVMRUST_PRELOAD", "0")]);
    assert!(lines[0].starts_with("reserve "), "{lines:?}");
}

#[test]
fn a_program_that_has_filled_the_gpu_by_itself_is_told_how_to_do_without() {
    if !have_cc() {
        return;
    }
    let said = |name, kind, set: &[(&str, &str)]| run(name, Some(kind), set).1;
    let told = said("full", "1", &[]);
    assert_eq!(told.matches("UVMRUST_MAPPING=0").count(), 1, "{told}");
    assert_eq!(said("full-plain", "1", &[("UVMRUST_MANAGED", "0")]), "");
    // The host is full.
    assert_eq!(said("full-host", "2", &[]), "");
}

#[test]
fn uvmrun_has_a_program_map_nothing_if_it_can() {
    let names = [
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "UVMRUST_MAPPING",
    ];
    let told = |options: &[&str]| {
        let done = Command::new(built("uvmrun"))
            .args(options)
            .arg("--library")
            .arg(cdylib("uvmrust-preload", false))
            .args(["printenv"])
            .args(names)
            .env(names[0], "max_split_size_mb:64,expandable_segments:True")
            .env(names[1], "expandable_segments:True")
            .env_remove(names[2])
            .output()
            .unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let on = "max_split_size_mb:64,expandable_segments:True\nexpandable_segments:True\n";
    assert_eq!(told(&[]), on);
    let off = format!("{}0\n", on.replace("True", "False"));
    assert_eq!(told(&["--no-mapping"]), off);
}
