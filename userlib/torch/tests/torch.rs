// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The allocator in a process with the stub library, on each backend.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::Path;
use std::process::Command;

use harness::{cc, cdylib, have_cc, skipped, source, stub, tmp};

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
    let with_and_without = |(stub, driver, discards)| {
        // Of CUDA's own nobody is told.
        let fails = if driver == "old" { "untold" } else { "told" };
        [None, Some(fails)].map(|prefetches| (stub, driver, discards, prefetches))
    };
    for (stub, driver, discards, prefetches) in cases.into_iter().flat_map(with_and_without) {
        let log = tmp("torch.log");
        let _ = std::fs::remove_file(&log);
        let done = Command::new(&program)
            .arg(cdylib("uvmrust-torch", false))
            .arg(if discards { "1" } else { "0" })
            .args(prefetches)
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

/// Runs `program`, which checks its own data, with the allocator on this stub and driver.
fn keeps_its_data(program: &Path, stub: &Path, driver: &str) {
    keeps_its_data_with(program, stub, driver, &[]);
}

fn keeps_its_data_with(program: &Path, stub: &Path, driver: &str, more: &[(&str, &str)]) {
    let done = Command::new(program)
        .arg(cdylib("uvmrust-torch", false))
        .env("LD_PRELOAD", stub)
        .env("STUB_UVM", driver)
        .env("UVMRUST_FD", "900")
        .envs(more.iter().copied())
        .output()
        .unwrap();
    let (program, said) = (program.display(), String::from_utf8_lossy(&done.stdout));
    assert!(done.status.success(), "{program} {driver}: {said}{done:?}");
}

#[test]
fn a_free_is_for_the_gpu_of_the_memory() {
    if !have_cc() {
        return;
    }
    let stub = stub("devices", "-DSTUB");
    let program = tmp("torch-device");
    let source = source("torch_device.c");
    cc(&program, &[&source, stub.to_str().unwrap(), "-ldl"]);
    for driver in ["ours", "native", "old"] {
        keeps_its_data(&program, &stub, driver);
    }
}

#[test]
fn the_threads_default_streams_are_told_apart() {
    if !have_cc() {
        return;
    }
    for (name, flag, drivers) in [
        ("threads13", "-DSTUB", &["ours", "native", "old"][..]),
        ("threads12", "-DSTUB_NO_DISCARD", &["old"]),
    ] {
        let stub = stub(name, flag);
        let program = tmp(name).join("program");
        let cuda = stub.to_str().unwrap();
        cc(
            &program,
            &[&source("torch_threads.c"), cuda, "-ldl", "-lpthread"],
        );
        for driver in drivers {
            keeps_its_data(&program, &stub, driver);
        }
    }
}

#[test]
fn nobody_waits_for_what_goes_on_after_a_later_allocation() {
    if !have_cc() {
        return;
    }
    let stub = stub("hang", "-DSTUB");
    let program = tmp("torch-hang");
    let cuda = stub.to_str().unwrap();
    let sources = [&*source("torch_hang.c"), cuda, "-ldl", "-lpthread"];
    cc(&program, &sources);
    for driver in ["ours", "native", "old"] {
        // Each stream as fast as it can, by itself.
        keeps_its_data_with(&program, &stub, driver, &[("STUB_FREE", "1")]);
    }
}

#[test]
fn a_child_may_be_the_first_to_use_the_gpu() {
    if !have_cc() {
        return;
    }
    let stub = stub("fork", "-DSTUB");
    let program = tmp("torch-fork");
    let cuda = stub.to_str().unwrap();
    cc(&program, &[&source("torch_fork.c"), cuda, "-ldl"]);
    // The stub's descriptor is there before CUDA, and would be inherited.
    keeps_its_data_with(&program, &stub, "none", &[("UVMRUST_FD", "")]);
}

/// Compiles C++ into `out`; `None` without a compiler, which it says.
#[track_caller]
fn cxx(out: &Path, args: &[&str]) -> Option<()> {
    if Command::new("c++").arg("--version").output().is_err() {
        skipped("no C++ compiler");
        return None;
    }
    let done = Command::new("c++")
        .args(["-std=c++17", "-O1", "-g", "-Wall", "-Werror"])
        .args(args)
        .arg("-o")
        .arg(out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    Some(())
}

#[test]
fn no_memory_is_pytorchs_own_error() {
    if !have_cc() {
        return;
    }
    let stub = stub("no-memory", "-DSTUB");
    // What there is of c10, and what comes of it.
    for (flag, outcome) in [("-DNEW", "error"), ("-DOLD", "plain"), ("-DNO_C10", "null")] {
        let folder = tmp("no-memory").join(outcome);
        std::fs::create_dir_all(&folder).unwrap();
        let (program, c10) = (folder.join("program"), folder.join("libc10.so"));
        let mut args = vec![source("torch_no_memory.cpp"), stub.display().to_string()];
        args.extend([flag, "-ldl"].map(str::to_owned));
        if outcome != "null" {
            let [shared, name] = ["-shared", "-Wl,-soname,libc10.so"];
            let library = source("torch_c10.cpp");
            let Some(()) = cxx(&c10, &[shared, "-fPIC", name, flag, &library]) else {
                return;
            };
            args.push(c10.display().to_string());
            args.push(format!("-Wl,-rpath,{}", folder.display()));
        }
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let Some(()) = cxx(&program, &args) else {
            return;
        };
        let done = Command::new(&program)
            .arg(cdylib("uvmrust-torch", false))
            .arg(outcome)
            .env("LD_PRELOAD", &stub)
            .env("STUB_UVM", "ours")
            .env("UVMRUST_FD", "900")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{outcome}: {said}{done:?}");
    }
}

#[test]
fn pools_are_told_as_pytorch_tells_them() {
    if !have_cc() {
        return;
    }
    let stub = stub("pools", "-DSTUB");
    let program = tmp("torch-pools");
    let cuda = stub.to_str().unwrap();
    let Some(()) = cxx(&program, &[&source("torch_pools.cpp"), cuda, "-ldl"]) else {
        return;
    };
    for driver in ["ours", "native", "old"] {
        keeps_its_data(&program, &stub, driver);
    }
}

/// What a real PyTorch shows (pytorch.rs), as far as it can be seen without one: the guide
/// wires what the library has.
#[test]
fn the_guides_recipe_wires_what_is_there() {
    let guide = std::fs::read_to_string(harness::top().join("docs/discard-guide.md")).unwrap();
    let section = guide.split("\n## PyTorch\n").nth(1).unwrap();
    let recipe = section.split("```").nth(1).unwrap();
    for line in [
        "\"uvmrust_torch_malloc\", \"uvmrust_torch_free\"",
        "set_record_stream_fn(address(\"uvmrust_torch_record_stream\"))",
        "set_reset_fn(address(\"uvmrust_torch_empty_cache\"))",
    ] {
        assert!(recipe.contains(line), "the recipe has no {line}");
    }
    let library = std::fs::read(cdylib("uvmrust-torch", false)).unwrap();
    for name in recipe
        .split('"')
        .filter(|name| name.starts_with("uvmrust_torch_"))
    {
        let found = library.windows(name.len()).any(|w| w == name.as_bytes());
        assert!(found, "the library has no {name}");
    }
}
