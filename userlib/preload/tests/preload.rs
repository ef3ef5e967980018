// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program that knows nothing of the preload, under it, on the stub libraries.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use uvmrust_system::{Limits, Root};

use harness::{cc, cdylib, cuda_program, have_cc, said, skipped, source, tmp, under_preload};

/// What happened, by section, and what was said on stderr.
struct Run {
    sections: HashMap<String, Vec<String>>,
    said: String,
}

impl Run {
    fn of(&self, section: &str) -> Vec<&str> {
        self.sections[section].iter().map(String::as_str).collect()
    }
}

/// Runs the program; each with a log of its own.
fn run(driver: &str, set: &[(&str, &str)]) -> Run {
    static BUILT: std::sync::Once = std::sync::Once::new();
    let program = tmp("preload-program");
    BUILT.call_once(|| cuda_program("cuda", &program, "preload_program.c"));
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let log = tmp(&format!("preload-{number}.log"));
    let done = under_preload("cuda", &program, &log)
        .env("STUB_UVM", driver)
        .envs(set.iter().copied())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let mut sections: HashMap<String, Vec<String>> = HashMap::new();
    let mut now = String::new();
    for line in std::fs::read_to_string(&log).unwrap().lines() {
        if let Some(name) = line.strip_prefix("# ") {
            name.clone_into(&mut now);
        }
        let list = sections.entry(now.clone()).or_default();
        if !line.starts_with('#') {
            let broken = line.starts_with("capture") && now != "refused";
            assert!(!broken, "a capture is broken");
            list.push(line.to_owned());
        }
    }
    assert!(sections.contains_key("end"));
    Run {
        sections,
        said: said(&done),
    }
}

/// The ID announced just before each kernel of a section; fails if one is not.
fn ids(run: &Run, section: &str) -> Vec<String> {
    let lines = run.of(section);
    assert!(
        !lines.is_empty() && lines.len().is_multiple_of(2),
        "{section}: {lines:?}"
    );
    lines
        .chunks(2)
        .map(|pair| {
            assert!(pair[1].starts_with("kernel "), "{section}: {lines:?}");
            let id = pair[0].strip_prefix("announce ").unwrap();
            id.strip_suffix(" gpu 0").unwrap().to_owned()
        })
        .collect()
}

#[test]
fn launches_are_announced_in_the_order_of_the_stream() {
    if !have_cc() {
        return;
    }
    let run = run("ours", &[]);
    let same = ids(&run, "same");
    assert_eq!(same.len(), 2);
    assert_eq!(same[0], same[1]);
    let mut different = ids(&run, "different");
    assert_eq!(different.len(), 4);
    different.push(same[0].clone());
    let count = different.len();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), count);
    // By the driver's functions, linked and by dlsym, the same kernel has the same ID.
    assert_eq!(ids(&run, "driver"), [same[0].clone(), same[0].clone()]);
    let graphs = ids(&run, "graph");
    assert_eq!(graphs[0], graphs[1]);
    assert_ne!(graphs[1], graphs[2]);
    // What is captured does not run, and is announced when its graph is launched.
    assert!(run.of("capture").is_empty());
    // The same handle names another kernel after an unload.
    let lines = run.of("unload");
    assert_eq!(
        (lines[0], lines[2], lines.len()),
        ("unload", "kernel sub", 3)
    );
    assert!(lines[1].starts_with("announce ") && !lines[1].contains(&same[0]));
    assert_eq!(run.said, "");
}

/// A kernel is short once eight of its times are known, and 64 follow an announcement at most. How many
/// do in 400 µs, is the machine's.
#[test]
fn short_kernels_go_with_what_was_announced_before() {
    if !have_cc() {
        return;
    }
    let announced = |set| {
        let run = run("ours", set);
        let lines = run.of("short");
        let told = |line: &&str| line.starts_with("announce ");
        let (told, kernels): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(told);
        assert_eq!(kernels, ["kernel sum"; 100]);
        assert!(told.iter().all(|line| *line == told[0]), "{told:?}");
        told.len()
    };
    assert_eq!(announced(&[("UVMRUST_ANNOUNCE_EVERY", "0")]), 100);
    // All that is between two of them is known to be shorter than a second.
    let few = announced(&[("UVMRUST_ANNOUNCE_EVERY", "1000000")]);
    assert_eq!(few, 11);
    assert!(announced(&[]) >= few);
}

/// A child announces nothing through the descriptor that it was born with, and waits
/// for no thread of its parent's: it is forked in the midst of a launch.
#[test]
fn a_child_announces_nothing_and_does_not_disturb_its_parent() {
    if !have_cc() {
        return;
    }
    let run = run("ours", &[]);
    let lines = run.of("child");
    let of_the_child = [
        "managed 4194304",
        "kernel add",
        "kernel sum",
        "free managed",
    ];
    assert_eq!(lines[..4], of_the_child, "{lines:?}");
    // Its parent's launch went on, and is announced like the same one before.
    let announced = format!("announce {} gpu 0", ids(&run, "same")[0]);
    assert_eq!(lines[4..], [&*announced, "kernel add"], "{lines:?}");
    // What the child could not free is its parent's to free, as managed memory.
    assert_eq!(run.of("free").len(), 4);
    assert_eq!(run.said, "");
}

#[test]
fn arguments_can_be_left_out() {
    if !have_cc() {
        return;
    }
    let run = run("ours", &[("UVMRUST_ARGS", "0")]);
    let (same, different) = (ids(&run, "same"), ids(&run, "different"));
    assert_ne!(different[0], same[0]);
    assert_eq!(different[1..3], [same[0].clone(), same[0].clone()]);
    assert_ne!(different[3], same[0]);
}

#[test]
fn large_memory_is_managed_and_freed_as_such() {
    if !have_cc() {
        return;
    }
    let managed = run("ours", &[]);
    let expected = [
        "managed 4194304",
        "device 65536",
        "managed 4194304",
        "managed 4194304",
    ];
    assert_eq!(managed.of("memory"), expected);
    let expected = [
        "free managed",
        "free managed",
        "free device",
        "free managed",
    ];
    assert_eq!(managed.of("free"), expected);
    let all = run("ours", &[("UVMRUST_MANAGED_MIN", "64K")]);
    assert!(!all
        .of("memory")
        .iter()
        .any(|line| line.starts_with("device")));
}

/// A managed address that was forgotten would be given to CUDA's own free in a stream's order.
#[test]
fn what_cuda_does_not_free_is_still_managed() {
    if !have_cc() {
        return;
    }
    let lines = run("ours", &[]);
    let lines: Vec<_> = lines.of("refused");
    let (first, rest) = lines.split_first().unwrap();
    assert_eq!(*first, "managed 4194304");
    assert!(rest[0].ends_with("invalidated"), "{rest:?}");
    assert_eq!(rest[1], "free managed");
    // Nor does an allocation that CUDA refuses succeed as managed memory: a graph would use what its program frees.
    let last = &rest[2..];
    let broken = last.iter().all(|line| line.ends_with("invalidated"));
    assert!(broken && !last.is_empty(), "{rest:?}");
}

/// A context that is not its device's primary one is the program's to destroy, and its memory would go
/// with it.
#[test]
fn memory_in_a_streams_order_outlives_contexts() {
    if !have_cc() {
        return;
    }
    let run = run("ours", &[]);
    let expected = [
        "device 4194304",
        "managed 4194304",
        "destroy",
        "managed 4194304",
        "free device",
        "free managed",
        "free managed",
    ];
    assert_eq!(run.of("contexts"), expected);
    let expected = [
        "managed 4194304",
        "free managed",
        "reset",
        "managed 4194304",
        // By CUDA, which refuses it.
        "VIOLATION: cuMemFreeAsync of managed memory",
        "free managed",
    ];
    assert_eq!(run.of("reset"), expected);
}

#[test]
fn a_pools_memory_is_managed_as_others_is() {
    if !have_cc() {
        return;
    }
    let expected = [
        "managed 4194304",
        "pool 65536",
        "free managed",
        "free device",
        // Part of a graph.
        "pool 4194304",
    ];
    assert_eq!(run("ours", &[]).of("pool"), expected);
    let left = run("ours", &[("UVMRUST_MANAGED", "0")]);
    assert_eq!(left.of("pool")[0], "pool 4194304");
}

/// What they are for would be lost: another process could not have it, for one.
#[test]
fn a_pool_that_is_more_than_device_memory_is_left_to_cuda() {
    if !have_cc() {
        return;
    }
    let left = ["pool 4194304", "free device"];
    let managed = ["managed 4194304", "free managed"];
    let of_the_device = ["device 4194304", "free device"];
    let all = [left, left, left, left, managed, managed, of_the_device];
    assert_eq!(run("ours", &[]).of("kinds"), all.concat());
}

/// That is the pool of the stream's device, which need not be current; a default stream is of the current
/// one.
#[test]
fn what_is_asked_of_no_pool_is_as_the_pool_of_its_streams_device() {
    if !have_cc() {
        return;
    }
    let left = ["device 4194304", "free device"];
    let managed = ["managed 4194304", "free managed"];
    let run = run("ours", &[]);
    let stream_and_defaults = |stream, default| [stream, default, default, default].concat();
    let first = stream_and_defaults(managed, left);
    assert_eq!(run.of("first device's"), first);
    let second = stream_and_defaults(left, managed);
    assert_eq!(run.of("second device's"), second);
    assert_eq!(run.of("second device"), stream_and_defaults(left, left));
}

/// CUDA 13 has pools of its own in each place, which no program makes.
#[test]
fn cudas_own_pools_of_other_memory_are_left_to_cuda() {
    if !have_cc() {
        return;
    }
    let left = ["pool 4194304", "free device"];
    let managed = ["managed 4194304", "free managed"];
    // The last one's memory is managed by CUDA, and goes back to its pool.
    let managed_by_cuda = ["pool 4194304", "free managed"];
    let each = [managed, left, managed_by_cuda].concat();
    assert_eq!(run("ours", &[]).of("pools"), [each.clone(), each].concat());
}

#[test]
fn a_program_is_told_of_the_hosts_memory_if_that_is_asked_for() {
    if !have_cc() {
        return;
    }
    let told = |set: &[(&str, &str)]| {
        let run = run("ours", set);
        let line = run.of("info")[0].strip_prefix("info ").unwrap().to_owned();
        let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        (numbers[0], numbers[1])
    };
    // A GPU of the stub's.
    let memory = ("STUB_MEMORY", "1024");
    let gpu = told(&[memory]);
    assert_eq!(gpu.1, 1 << 30);
    let host = Limits::now(&Root::new("/")).managed();
    let both = told(&[memory, ("UVMRUST_MEMINFO", "managed")]);
    assert_eq!(both.1, gpu.1 + host.total);
    assert!(both.0 > gpu.0 && both.0 <= gpu.0 + host.total, "{both:?}");
    let off = [
        memory,
        ("UVMRUST_MEMINFO", "managed"),
        ("UVMRUST_MANAGED", "0"),
    ];
    assert_eq!(told(&off).1, 1 << 30);
}

#[test]
fn parts_are_turned_off() {
    if !have_cc() {
        return;
    }
    for set in [&[("UVMRUST_MANAGED", "0")], &[("UVMRUST_PRELOAD", "0")]] {
        let run = run("ours", set);
        assert!(run
            .of("memory")
            .iter()
            .all(|line| line.starts_with("device")));
        assert!(run.of("free").iter().all(|line| *line == "free device"));
    }
    for name in ["UVMRUST_ANNOUNCE", "UVMRUST_PRELOAD"] {
        let run = run("ours", &[(name, "0")]);
        assert_eq!(run.of("same"), ["kernel add", "kernel add"]);
        assert_eq!(run.said, "");
    }
}

#[test]
fn a_driver_without_execution_ids_is_told_of_once_and_left_alone() {
    if !have_cc() {
        return;
    }
    for driver in ["native", "old"] {
        let run = run(driver, &[]);
        assert_eq!(run.of("same"), ["kernel add", "kernel add"]);
        assert_eq!(run.of("graph").len(), 3);
        assert_eq!(run.said.matches("takes no execution IDs").count(), 1);
        assert_eq!(run.of("memory")[0], "managed 4194304");
    }
}

/// Libraries have versions, too: of what a name is asked with its version, CUDA's part is answered
/// as without. A library that looks for the next dlsym in this way finds ours, before libc's.
#[test]
fn dlsym_is_as_it_was_for_all_but_cuda() {
    if !have_cc() {
        return;
    }
    let names = ["libwrapper.so", "next", "libversioned.so"];
    let [wrapper, program, versioned] = names.map(tmp);
    let source = source("next.c");
    let fno = "-fno-builtin";
    let shared = ["-shared", "-fPIC", &source, "-ldl"];
    cc(&wrapper, &[&["-DWRAPPER", fno], &shared[..]].concat());
    let named = "-Wl,--default-symver,-soname,libversioned.so";
    cc(&versioned, &[&["-DVERSIONED", named], &shared[..]].concat());
    cc(&program, &[fno, &source, wrapper.to_str().unwrap(), "-ldl"]);
    let ends = |preload: Option<PathBuf>, active: &str, hooked: &str| {
        let mut command = Command::new(&program);
        command.arg(&versioned).arg(hooked);
        command.env("UVMRUST_PRELOAD", active);
        if let Some(preload) = preload {
            command.env("LD_PRELOAD", preload);
        }
        command.status().unwrap().code()
    };
    let ours = || Some(cdylib("uvmrust-preload", false));
    assert_eq!(ends(None, "1", "0"), Some(0));
    assert_eq!(ends(ours(), "0", "0"), Some(0));
    assert_eq!(ends(ours(), "1", "1"), Some(0));
}

/// Else it would stand before libuvmrust in a program that uses both.
#[test]
fn only_cudas_names_are_exported() {
    let library = cdylib("uvmrust-preload", false);
    let Ok(done) = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .output()
    else {
        return skipped("no nm");
    };
    let symbols = String::from_utf8(done.stdout).unwrap();
    let names: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    let not_cudas: Vec<_> = names
        .iter()
        .copied()
        .filter(|name| !name.starts_with("cu"))
        .collect();
    assert!(names.contains(&"cuLaunchKernel"), "{names:?}");
    assert_eq!(not_cudas, ["dlsym", "dlvsym"]);
}
