// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Trainings by each real PyTorch that there is, recorded, planned and run with their plan. The script
//! (`train.py`) knows nothing of it. PyTorch runs on the CPU, such as Debian's, and `fake_gpu.py`
//! makes a GPU of the CPU: the stub of CUDA sees a launch for each operator, and has the tensors'
//! memory. Without a Python that has PyTorch this skips, and says so.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use harness::{
    cc, cdylib, have_cc, program, pytorches, skipped, source, stub, tmp, PyTorch, NO_TORCH,
};

const STEPS: u64 = 4;

/// Runs a command, which must succeed.
fn done(command: &mut Command) -> Output {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
    done
}

/// What the script prints: the losses.
fn losses(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().filter(|l| l.starts_with("loss ")).collect();
    assert_eq!(lines.len() as u64, STEPS, "{output:?}");
    lines.join("\n")
}

/// `meta KEY` of a trace, a number.
fn meta(trace: &Path, key: &str) -> u64 {
    let text = std::fs::read_to_string(trace).unwrap();
    let start = format!("meta {key} ");
    let found = text.lines().find_map(|line| line.strip_prefix(&start));
    found
        .unwrap_or_else(|| panic!("no {key} in {text}"))
        .parse()
        .unwrap()
}

/// Bytes that the lines of a file name, by a word of the line; `fields` are the places of both.
fn bytes(file: &Path, first: &str, fields: (usize, usize)) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let words: Vec<_> = line.split(' ').collect();
        if words[0] == first {
            let bytes: u64 = words[fields.1].parse().unwrap();
            *sums.entry(words[fields.0].to_owned()).or_insert(0) += bytes;
        }
    }
    sums
}

/// The script on the fake GPU, under `uvmrun` with these options.
fn on_gpu(python: &Path, fake: &Path, name: &str, options: [&str; 2], log: &Path) -> Output {
    let _ = std::fs::remove_file(log);
    let preloads = [fake.join("fake_gpu.so"), fake.join("libcuda.so.1")];
    let mut command = Command::new(program("uvmrun"));
    command.args(options).arg("--library");
    command.arg(cdylib("uvmrust-preload", false)).arg(python);
    command.args([
        source("fake_gpu.py"),
        source("train.py"),
        name.into(),
        STEPS.to_string(),
    ]);
    command.env("LD_PRELOAD", std::env::join_paths(preloads).unwrap());
    let variables = [
        ("OMP_NUM_THREADS", "1"),
        ("STUB_UVM", "ours"),
        ("STUB_FREE", "1"),
        ("STUB_WHERE", "1"),
        ("STUB_MEMORY", "4096"),
        ("UVMRUST_FD", "900"),
    ];
    done(command.envs(variables).env("STUB_LOG", log))
}

#[test]
fn an_unmodified_training_is_recorded_planned_and_follows_its_plan() {
    if !have_cc() {
        return;
    }
    let pytorches = pytorches();
    if pytorches.is_empty() {
        return skipped(NO_TORCH);
    }
    let fake = stub("cuda-torch", "-DSTUB").parent().unwrap().to_owned();
    cc(
        &fake.join("fake_gpu.so"),
        &["-shared", "-fPIC", &source("fake_gpu.c")],
    );
    for torch in &pytorches {
        for name in ["transformer", "resnet"] {
            training(torch, &fake, name);
        }
    }
}

/// A network's training as it is, recorded, and with the plan of that: the losses are equal, and each step moves
/// what the plan says.
fn training(torch: &PyTorch, fake: &Path, name: &str) {
    let (python, of) = (&torch.python, &torch.name);
    let mut plain = Command::new(python);
    plain.args([source("train.py"), name.into(), STEPS.to_string()]);
    let wanted = losses(&done(plain.env("OMP_NUM_THREADS", "1")));

    let file = |end: &str| tmp(&format!("torch-{name}.{end}"));
    let (trace, plan, log) = (file("uvmtrace"), file("uvmplan"), file("log"));
    let (from, to) = (trace.to_str().unwrap(), plan.to_str().unwrap());
    let recorded = on_gpu(python, fake, name, ["--record", from], &log);
    assert_eq!(losses(&recorded), wanted, "{of}: {name}, recorded");
    // The first step has the optimizer make its state, and is another.
    assert_eq!(meta(&trace, "steps"), STEPS - 1, "{of}: {name}");

    // Half of what a step has at its peak.
    let args = [
        "plan",
        "--gpu-mem",
        "32MiB",
        "--keep-clean",
        "0",
        "--trace",
        from,
        "-o",
        to,
    ];
    done(Command::new(program("uvmsim")).args(args));
    let planned = on_gpu(python, fake, name, ["--plan", to], &log);
    assert_eq!(losses(&planned), wanted, "{of}: {name}, planned");
    let said = String::from_utf8_lossy(&planned.stderr);
    assert!(!said.contains("leaves its plan"), "{of}: {name}: {said}");
    println!("PyTorch {of}");
    moves_are_the_plans(name, &plan, &log);
}

/// Each step moved what the plan says, and nothing was dropped.
fn moves_are_the_plans(name: &str, plan: &Path, log: &Path) {
    let asked = bytes(plan, "at", (2, 5));
    let moved = bytes(log, "migrate", (3, 2));
    let steps = STEPS - 1;
    assert!(asked["evict"] > 0, "{name}: {asked:?}");
    let to_gpu = asked["prefetch"] + asked["allocate"];
    assert_eq!(moved["host"], steps * asked["evict"], "{name}: {moved:?}");
    assert_eq!(moved["gpu"], steps * to_gpu, "{name}: {moved:?}");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        !log.contains("discard") && !log.contains("VIOLATION"),
        "{name}"
    );
    println!(
        "{name}: the losses of {STEPS} steps are equal, bit for bit; in each of {steps} steps on \
         the plan {} KiB to the host and {} KiB to the GPU, as the plan says",
        asked["evict"] >> 10,
        to_gpu >> 10,
    );
}
