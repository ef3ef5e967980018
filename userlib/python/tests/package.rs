// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The package's tests, which are in Python, on the library as cargo builds it. On the wheel
//! they are run by `make wheel-uvmrust`.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use harness::{have_cc, program, python_package, pytorches, skipped, top, NO_TORCH};

/// Whether Python runs this; says what it lacks if not.
#[track_caller]
fn have(script: &str, lacks: &str) -> bool {
    let asked = Command::new("python3").args(["-c", script]).output();
    let have = asked.is_ok_and(|done| done.status.success());
    if !have {
        skipped(lacks);
    }
    have
}

/// Whether there is a Python that the package is for; says so if not.
#[track_caller]
fn have_python() -> bool {
    let script = "import sys; sys.exit(sys.version_info < (3, 9))";
    have(script, "no Python 3.9 or later")
}

/// The package, put together once.
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(python_package)
}

/// What one of the skips in Python says.
const NO_CUDA_CORE: &str = "no cuda.core (pip install cuda-core cuda-bindings)";

const NO_RMM: &str = "no RMM (pip install rmm-cu12)";

/// Runs a file of tests in Python, which must hold, by this command; what it says.
fn run_by(mut python: Command, name: &str, arguments: &[&str]) -> String {
    let done = python
        .arg(top().join("userlib/python/tests").join(name))
        .args(arguments)
        .env("UVMRUST_PACKAGE", package())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success(), "{name}: {said}");
    assert!(!said.contains("Ran 0 tests"), "{name}: {said}");
    said
}

/// Runs a file of tests in Python, which must hold; gives the skipped ones, each with its reason.
fn run(name: &str, arguments: &[&str]) -> Vec<String> {
    let said = run_by(Command::new("python3"), name, arguments);
    let skips = said
        .lines()
        .filter_map(|line| line.strip_prefix("skipped: "));
    skips.map(str::to_owned).collect()
}

#[test]
fn the_package_on_each_driver() {
    if !have_cc() || !have_python() {
        return;
    }
    let mut tests = 0;
    for entry in std::fs::read_dir(top().join("userlib/python/tests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.starts_with("test_") || !name.ends_with(".py") {
            continue;
        }
        // These have a test of their own below, which says it.
        let skips = run(&name, &[]).into_iter();
        let others: Vec<_> = skips.filter(|skip| !skip.ends_with(NO_CUDA_CORE)).collect();
        assert!(others.is_empty(), "{name}: {others:?}");
        tests += 1;
    }
    assert!(tests > 0);
}

#[test]
fn the_package_with_a_real_cuda_core() {
    if !have_cc() || !have_python() || !have("import cuda.core", NO_CUDA_CORE) {
        return;
    }
    let skips = run("test_uvmrust.py", &["-k", "cuda_core"]);
    assert!(skips.is_empty(), "{skips:?}");
}

#[test]
fn the_package_with_a_real_rmm() {
    if !have_cc() || !have_python() || !have("import rmm.mr", NO_RMM) {
        return;
    }
    run("test_allocator.py", &["-k", "real_rmm", "-k", "of_rmms"]);
}

#[test]
fn a_plan_is_followed_inside_a_real_pytorch() {
    let pytorches = pytorches();
    if pytorches.is_empty() {
        return skipped(NO_TORCH);
    }
    for torch in pytorches {
        let mut python = Command::new(torch.python);
        python
            .env("UVMSIM", program("uvmsim"))
            // Empty where none is given, as make has it.
            .env("SEED", std::env::var("SEED").unwrap_or_default())
            .env("OMP_NUM_THREADS", "1");
        let said = run_by(python, "torch_offload.py", &[]);
        println!("PyTorch {}: {said}", torch.name);
    }
}

/// What a PyTorch that has no GPU is told: of its tensors, and where it is built without CUDA of the allocator.
#[test]
fn a_pytorch_without_a_gpu_is_told_so() {
    let pytorches = pytorches();
    if pytorches.is_empty() {
        return skipped(NO_TORCH);
    }
    for torch in pytorches {
        // Where it is built for CUDA there may be a GPU, for which the allocator is.
        let only: &[&str] = if torch.for_cuda { &["Tensors"] } else { &[] };
        run_by(Command::new(torch.python), "torch_cpu.py", only);
    }
}
