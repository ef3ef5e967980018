// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Runs the random programs on the stub.
//!
//! - By default as many as some seconds allow. `PROGRAMS=100000 SEED=7` sets how many and
//!   which; a program that is wrong tells its number, and `FIRST=n PROGRAMS=1` runs it alone.
//! - `cargo test -p uvmrust-random --release -- --ignored --nocapture` also takes each fix
//!   out, and says after how many programs that is noticed.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::Path;
use std::process::{Command, Output};

use harness::{have_cc, stub, tmp, top};

fn run(program: &Path, stub: &Path, set: &[(&str, &str)]) -> Output {
    Command::new(program)
        .env("LD_PRELOAD", stub)
        .env("STUB_SPARSE", "1")
        .env("STUB_SEED", "1")
        .env("UVMRUST_FD", "900")
        .envs(set.iter().copied())
        .output()
        .unwrap()
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
}

/// Programs that the time must be enough for, and from which on it counts what they do. Two busy
/// cores run several times as many, unoptimised.
const LEAST: u64 = 50;

#[test]
fn random_programs_see_what_the_model_says() {
    if !have_cc() {
        return;
    }
    let stub = stub("random", "-DSTUB");
    let program = Path::new(env!("CARGO_BIN_EXE_uvmrust-random"));
    let set: &[_] = match std::env::var_os("PROGRAMS") {
        Some(_) => &[],
        None => &[("PROGRAMS", "1000000"), ("LIMIT_S", "12")],
    };
    let done = run(program, &stub, set);
    assert!(done.status.success(), "{}", said(&done));
    println!("{}", said(&done));
    // Programs that do little prove little. (PROGRAMS may ask for few.)
    let said = said(&done);
    let numbers: Vec<u64> = said
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let [_seed, programs, actions, reads, discards, graphs, launches, refused, blocks, reused, rest @ ..] =
        &numbers[..]
    else {
        panic!("{said}");
    };
    let [prepared, prefetches, batches, mistakes, elsewhere, at_once, ..] = rest else {
        panic!("{said}");
    };
    let least = match std::env::var_os("PROGRAMS") {
        Some(_) => 1,
        None => LEAST,
    };
    assert!(
        *programs >= least,
        "{programs} programs are none to speak of: {said}"
    );
    assert!(*actions > 10 * programs, "{said}");
    let often = [
        reads, discards, graphs, launches, refused, blocks, reused, prepared, prefetches, batches,
        mistakes, elsewhere, at_once,
    ];
    assert!(
        *programs < LEAST || often.iter().all(|&&n| n >= programs / 2),
        "{said}"
    );
}

/// The streams' threads as fast as they can, which is another order each time.
#[test]
fn random_programs_on_streams_that_run_freely() {
    if !have_cc() {
        return;
    }
    let stub = stub("random-free", "-DSTUB");
    let program = Path::new(env!("CARGO_BIN_EXE_uvmrust-random"));
    let set = [("PROGRAMS", "500"), ("STUB_FREE", "1")];
    let done = run(program, &stub, &set);
    assert!(done.status.success(), "{}", said(&done));
}

/// Two threads, each with streams of its own, but for the legacy ones.
#[test]
fn random_programs_of_two_threads() {
    if !have_cc() {
        return;
    }
    let stub = stub("random-threads", "-DSTUB");
    let program = Path::new(env!("CARGO_BIN_EXE_uvmrust-random"));
    for driver in ["ours", "native", "old"] {
        let set = [
            ("PROGRAMS", "300"),
            ("STUB_FREE", "1"),
            ("THREADS", "2"),
            ("BACKEND", driver),
            ("STUB_UVM", driver),
        ];
        let done = run(program, &stub, &set);
        assert!(done.status.success(), "{driver}: {}", said(&done));
        println!("{driver}: {}", said(&done));
    }
}

/// As on a real GPU (`scripts/gpu-check.sh`): on one, with the driver that is there.
#[test]
fn random_programs_of_one_gpu() {
    if !have_cc() {
        return;
    }
    let stub = stub("random-one", "-DSTUB");
    let program = Path::new(env!("CARGO_BIN_EXE_uvmrust-random"));
    for driver in ["native", "ours"] {
        let set = [
            ("PROGRAMS", "100"),
            ("GPUS", "1"),
            ("BACKEND", driver),
            ("STUB_UVM", driver),
        ];
        let done = run(program, &stub, &set);
        assert!(done.status.success(), "{driver}: {}", said(&done));
        println!("{driver}: {}", said(&done));
    }
    // Standard input is no UVM, so none is found.
    let set = [
        ("PROGRAMS", "100"),
        ("GPUS", "1"),
        ("BACKEND", "cuda"),
        ("UVMRUST_FD", "0"),
    ];
    let done = run(program, &stub, &set);
    assert!(done.status.success(), "CUDA alone: {}", said(&done));
    println!("CUDA alone: {}", said(&done));
}

/// One program alone, whose actions are printed.
#[test]
fn a_program_says_what_it_does() {
    if !have_cc() {
        return;
    }
    let stub = stub("random-said", "-DSTUB");
    let program = Path::new(env!("CARGO_BIN_EXE_uvmrust-random"));
    // What a GPU has lost once: discarded, written, brought to the host, read.
    let set = [
        ("FIRST", "410"),
        ("PROGRAMS", "1"),
        ("GPUS", "1"),
        ("BACKEND", "native"),
        ("STUB_UVM", "native"),
        ("TRACE", "1"),
        ("WAIT", "1"),
    ];
    let done = run(program, &stub, &set);
    let said = said(&done);
    assert!(done.status.success(), "{said}");
    let steps = [
        "Eager of [4]",
        "writes 8 to buffer 4",
        "Prefetch of [4, 2] to the host",
        "reads buffer 4",
    ];
    let at: Vec<_> = steps.iter().map(|step| said.find(step)).collect();
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{said}");
}

/// The stub reads what a GPU has read wrongly where the model counts on an order that the GPU did
/// not keep, which `counting` has it do, and all is right where it does not.
fn is_wrong_only_if(counting: &str, seed: &str, number: &str, native: bool, read: &str) {
    let stub = stub(&format!("random-{number}-{native}"), "-DSTUB");
    let program = Path::new(env!("CARGO_BIN_EXE_uvmrust-random"));
    let mut one = vec![
        ("SEED", seed),
        ("FIRST", number),
        ("PROGRAMS", "1"),
        ("AGAIN", "100"),
        ("GPUS", "1"),
    ];
    one.extend(match native {
        true => [("BACKEND", "native"), ("STUB_UVM", "native")],
        // Standard input is no UVM, so none is found.
        false => [("BACKEND", "cuda"), ("UVMRUST_FD", "0")],
    });
    let done = run(program, &stub, &one);
    assert!(done.status.success(), "{}", said(&done));
    one.push((counting, "1"));
    let done = run(program, &stub, &one);
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    let wrong = format!("wrong: {read}: [");
    assert!(said(&done).contains(&wrong), "{}", said(&done));
}

/// A GPU (H200, 580.159.04, CUDA 13.0) has run what two programs had put behind launches of an empty
/// graph before what was in front of them.
#[test]
fn a_launch_of_an_empty_graph_orders_nothing() {
    if have_cc() {
        is_wrong_only_if("EMPTY_ORDERS", "1", "1002", true, "stream 2 reads buffer 4");
        is_wrong_only_if(
            "EMPTY_ORDERS",
            "1",
            "1543",
            false,
            "stream 5 reads buffer 0",
        );
    }
}

/// The same GPU has read in a stream that does not block what the legacy stream was yet to write:
/// the program had waited for a blocking stream, with an event behind that write and no work.
#[test]
fn an_event_of_a_blocking_stream_does_not_wait_for_the_legacy_one() {
    if have_cc() {
        for native in [true, false] {
            is_wrong_only_if(
                "EVENTS_WAIT",
                "2",
                "5253",
                native,
                "stream 5 reads buffer 5",
            );
        }
    }
}

/// The same GPU has refused to destroy a graph that had been launched, while another stream was
/// being captured, and these two programs ended there.
#[test]
fn a_graph_is_destroyed_while_a_stream_is_captured() {
    if !have_cc() {
        return;
    }
    let stub = stub("random-destroyed", "-DSTUB");
    let program = Path::new(env!("CARGO_BIN_EXE_uvmrust-random"));
    let native = [("BACKEND", "native"), ("STUB_UVM", "native"), ("SEED", "3")];
    // Standard input is no UVM, so none is found.
    let cuda = [("BACKEND", "cuda"), ("UVMRUST_FD", "0"), ("SEED", "4")];
    for (set, first) in [(native, "7706"), (cuda, "465")] {
        let mut one = vec![
            ("FIRST", first),
            ("PROGRAMS", "1"),
            ("GPUS", "1"),
            ("TRACE", "1"),
        ];
        one.extend(set);
        let done = run(program, &stub, &one);
        let said = said(&done);
        assert!(done.status.success(), "{said}");
        let destroyed = said.find(" is destroyed").unwrap();
        let before = &said[..destroyed];
        let ends = before.rfind(" is captured").unwrap_or(0);
        assert!(
            before
                .rfind(": a capture begins")
                .is_some_and(|at| at > ends),
            "{said}"
        );
    }
}

/// 1: captures are not looked at. 2: the device of a free is not. 3: the recipe wires no
/// record_stream. 4: a discard in the legacy stream is done in the thread's own. 5: a batch of
/// prefetches ends with its first range. 6: a stream's context is not made current. 7: a discard is
/// CUDA's own, for which no stream waits.
#[test]
#[ignore = "builds seven times; scripts and people ask for it"]
fn each_fix_taken_out_is_found() {
    if !have_cc() {
        return;
    }
    let stub = stub("random-broken", "-DSTUB");
    for fix in 1..=7 {
        let target = tmp("broken");
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        let flags = format!("{flags} --cfg broken=\"{fix}\"");
        let built = Command::new(env!("CARGO"))
            .current_dir(top())
            .args(["build", "--quiet", "--release", "-p", "uvmrust-random"])
            .env("RUSTFLAGS", flags)
            .arg("--target-dir")
            .arg(&target)
            .status()
            .unwrap();
        assert!(built.success());
        let program = target.join("release/uvmrust-random");
        let set = [("PROGRAMS", "100000"), ("PROGRESS", "1")];
        let done = run(&program, &stub, &set);
        let said = said(&done);
        // Data that are wrong, or a crash (a double free, say), of programs that ran.
        let crashed = done.status.code().is_none();
        let wrong = done.status.code() == Some(1) && said.contains("wrong: ");
        assert!(
            crashed || wrong,
            "without fix {fix} nothing is wrong: {said}"
        );
        let programs = said.matches("program ").count() - usize::from(said.contains("in program"));
        assert!(programs > 0, "{said}");
        let why = said.lines().filter(|line| !line.starts_with("program "));
        let why: Vec<_> = why.take(3).collect();
        println!("without fix {fix}: found in {programs} programs: {why:?}");
    }
}
