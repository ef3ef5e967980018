// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A C program, built against the header and both libraries, on each backend of the
//! stub library.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::{cc, libraries, skipped, source, stub, tmp, top};

fn run(program: &Path, stub: &Path, driver: &str, backend: &str) -> Output {
    command(program, stub, driver, backend).output().unwrap()
}

fn command(program: &Path, stub: &Path, driver: &str, backend: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg(backend)
        .env("LD_PRELOAD", stub)
        .env("LD_LIBRARY_PATH", tmp("lib"))
        .env("STUB_UVM", driver)
        .env("UVMRUST_FD", if driver.is_empty() { "-1" } else { "900" });
    command
}

/// Runs a part of `stream_program.c`.
fn streams(stub: &Path, driver: &str, part: &str) {
    let Some(lib) = libraries() else { return };
    let program = tmp(&format!("stream-program-{part}-{driver}"));
    let search = format!("-L{}", lib.display());
    let source = source("stream_program.c");
    let cuda = stub.to_str().unwrap();
    cc(&program, &[&source, &search, "-l:libuvmrust.so.0", cuda]);
    let mut command = command(Path::new("timeout"), stub, driver, "60");
    command.env("UVMRUST_PATIENCE_MS", "200");
    let done = command.arg(program).arg(part).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{driver} {part}: {said}{done:?}");
}

#[test]
fn a_captured_discard_is_done_at_each_launch() {
    let stub = stub("streams12", "-DSTUB_NO_DISCARD");
    for driver in ["ours", "native"] {
        streams(&stub, driver, "replay");
        streams(&stub, driver, "many");
    }
}

#[test]
fn what_no_graph_can_hold_is_refused_and_breaks_no_capture() {
    let cuda13 = stub("refused13", "-DSTUB");
    streams(&cuda13, "ours", "refused");
    // CUDA has no node for a discard, and an old one cannot own the ranges.
    streams(&cuda13, "old", "discards-refused");
    let flags = "-DSTUB_NO_USER_OBJECTS";
    streams(&stub("refused11", flags), "native", "all-refused");
}

#[test]
fn a_wait_breaks_no_capture_of_another_stream() {
    let cuda13 = stub("waits13", "-DSTUB");
    for driver in ["ours", "native", "old"] {
        streams(&cuda13, driver, "waits");
    }
    streams(
        &stub("waits12", "-DSTUB_NO_DISCARD"),
        "old",
        "waits-to-free",
    );
}

#[test]
fn a_free_that_waits_waits_for_the_legacy_stream_too() {
    let stub = stub("frees12", "-DSTUB_NO_DISCARD");
    streams(&stub, "old", "free-behind-legacy");
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let stub = stub("legacy13", "-DSTUB");
    for driver in ["old", "native", "ours"] {
        streams(&stub, driver, "legacy");
    }
}

#[test]
fn a_driver_that_stays_asleep_is_given_up() {
    let stub = stub("asleep", "-DSTUB_NO_DISCARD");
    for driver in ["ours", "native"] {
        streams(&stub, driver, "asleep");
    }
}

#[test]
fn errors_say_what_is_wrong_and_nothing_is_lost() {
    let stub = stub("errors", "-DSTUB");
    for driver in ["ours", "native", "old"] {
        streams(&stub, driver, "errors");
        streams(&stub, driver, "half-way");
    }
}

#[test]
fn a_free_that_fails_discards_nothing_later() {
    let stub = stub("failed-free", "-DSTUB");
    for driver in ["ours", "native", "old"] {
        streams(&stub, driver, "failed-free");
    }
}

#[test]
fn a_capture_that_begins_meanwhile_takes_nobody_elses_job() {
    let stub = stub("meanwhile", "-DSTUB_NO_DISCARD");
    for driver in ["ours", "native"] {
        streams(&stub, driver, "captured-meanwhile");
    }
}

#[test]
fn a_buffer_that_cuda_does_not_take_back_is_kept() {
    streams(&stub("kept", "-DSTUB_NO_DISCARD"), "ours", "kept");
}

#[test]
fn a_discard_that_fails_in_the_legacy_stream_keeps_its_order() {
    streams(&stub("failed-legacy", "-DSTUB"), "old", "failed-legacy");
}

#[test]
fn a_batch_that_is_refused_half_way_is_not_said_to_have_done_nothing() {
    let stub = stub("half-refused", "-DSTUB_NO_DISCARD");
    streams(&stub, "native", "half-refused");
}

#[test]
fn what_is_written_behind_a_discard_that_fails_is_kept() {
    let stub = stub("not-unmapped", "-DSTUB_NO_DISCARD");
    streams(&stub, "native", "not-unmapped");
}

#[test]
fn what_is_written_behind_a_discard_of_duplicated_pages_is_kept() {
    let stub = stub("duplicated", "-DSTUB_NO_DISCARD");
    streams(&stub, "native", "duplicated");
}

#[test]
fn what_is_lazily_discarded_goes_back_to_a_managed_pool_prefetched() {
    let stub = stub("pools", "-DSTUB");
    streams(&stub, "native", "pools");
}

#[test]
fn a_body_without_host_nodes_is_refused_and_breaks_no_capture() {
    let stub = stub("body", "-DSTUB");
    for driver in ["ours", "native"] {
        streams(&stub, driver, "body");
    }
}

#[test]
fn a_green_context_is_current_to_its_own_thread_alone() {
    let stub = stub("green", "-DSTUB");
    for driver in ["ours", "native", "old"] {
        streams(&stub, driver, "green");
    }
}

#[test]
fn nothing_to_discard_is_a_success_without_a_backend() {
    streams(&stub("nothing", "-DSTUB_NO_DISCARD"), "old", "nothing");
}

#[test]
fn a_buffer_whose_discard_may_still_come_is_lost() {
    streams(&stub("lost-legacy", "-DSTUB"), "old", "lost-legacy");
}

#[test]
fn a_graph_outlives_what_has_loaded_the_library() {
    if libraries().is_none() {
        return;
    }
    let stub = stub("unload", "-DSTUB");
    let program = tmp("unload-program");
    let cuda = stub.to_str().unwrap();
    cc(&program, &[&source("unload_program.c"), cuda, "-ldl"]);
    for driver in ["ours", "native"] {
        let done = run(&program, &stub, driver, "");
        assert!(done.status.success(), "{driver}: {done:?}");
    }
}

#[test]
fn a_host_function_does_not_ask_cuda_whose_descriptor_it_is() {
    let stub = stub("given", "-DSTUB_NO_DISCARD");
    for driver in ["ours", "native"] {
        streams(&stub, driver, "given");
        streams(&stub, driver, "given-early");
    }
}

/// An allocator may have taken its locks for the fork already.
#[test]
fn nothing_is_allocated_while_a_process_forks() {
    let Some(lib) = libraries() else { return };
    let program = tmp("fork-program");
    let search = format!("-L{}", lib.display());
    cc(
        &program,
        &[&source("fork_program.c"), &search, "-l:libuvmrust.so.0"],
    );
    let mut command = Command::new(&program);
    let done = command.env("LD_LIBRARY_PATH", tmp("lib")).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_child_does_not_discard_through_its_parents_descriptor() {
    let stub = stub("forked", "-DSTUB_NO_DISCARD");
    for driver in ["ours", "native"] {
        streams(&stub, driver, "forked");
        streams(&stub, driver, "forked-first");
    }
}

#[test]
fn a_child_that_loads_the_library_does_not_use_its_parents_descriptor() {
    if libraries().is_none() {
        return;
    }
    for (name, flag) in [("late12", "-DSTUB_NO_DISCARD"), ("late13", "-DSTUB")] {
        let stub = stub(name, flag);
        let program = tmp(&format!("{name}-program"));
        let cuda = stub.to_str().unwrap();
        cc(&program, &[&source("late_program.c"), cuda, "-ldl"]);
        for driver in ["ours", "native", "old"] {
            let done = run(&program, &stub, driver, "");
            assert!(done.status.success(), "{name} {driver}: {done:?}");
        }
    }
}

#[test]
fn c_programs_work_on_every_backend() {
    let Some(lib) = libraries() else { return };
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
        // A structure longer than ours must not be written over our stack.
        (&old, "future", "0"),
        (&new, "future", "3"),
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
        let asleep = command(program, &old, "ours", "1")
            .env("STUB_ASLEEP", "3")
            .output()
            .unwrap();
        assert!(asleep.status.success(), "{program:?}: {asleep:?}");
    }
}

/// `examples/scratch.cu` agrees with the header, as far as a C++ compiler sees it, with the launches made calls.
#[test]
fn the_cuda_example_compiles() {
    let (example, include) = example();
    let text = std::fs::read_to_string(&example).unwrap();
    assert!(text.contains("<<<256, 256>>>"));
    let source = tmp("scratch.cpp");
    std::fs::write(&source, text.replace("<<<256, 256>>>", "")).unwrap();
    let done = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Werror", "-fsyntax-only", "-I"])
        .arg(top().join("userlib/tests/runtime"))
        .arg("-I")
        .arg(include)
        .arg(&source)
        .output();
    match done {
        Ok(done) => compiled("c++", &done),
        Err(_) => skipped("no C++ compiler"),
    }
}

/// The same by the compiler that it is for.
#[test]
fn the_cuda_example_compiles_by_nvcc() {
    let (example, include) = example();
    let mut nvcc = Command::new("nvcc");
    nvcc.arg("-c").arg(&example).arg("-I").arg(&include);
    match nvcc.arg("-o").arg(tmp("scratch.o")).output() {
        Ok(done) => compiled("nvcc", &done),
        Err(_) => skipped("no nvcc (Debian: nvidia-cuda-toolkit)"),
    }
}

/// The example in CUDA, and the folder of the header.
fn example() -> (PathBuf, PathBuf) {
    let userlib = top().join("userlib");
    (
        userlib.join("examples/scratch.cu"),
        userlib.join("c/include"),
    )
}

/// Says by which compiler the example was compiled, which must have succeeded.
fn compiled(compiler: &str, done: &Output) {
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{compiler}: {said}");
    println!("scratch.cu is compiled by {compiler}");
}
