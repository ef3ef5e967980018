// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A real PyTorch, by its own calls, with the recipe of the guide, on the stub driver and
//! a stub runtime. It wants a PyTorch built for CUDA 12 and its `nvidia-cuda-runtime-cu12`
//! (what `scripts/deps.sh --all` installs in the cache; no GPU): `UVMRUST_TORCH_PYTHON` names the
//! Python that has it, else it is looked for in the cache and on the path. Without one
//! this skips, and says so.
//!
//! PyTorch's own allocator plays the recordings of `caching.rs` there as well.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

#[path = "caching/model.rs"]
mod model;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{cc, cdylib, have_cc, python_package, skipped, source, tmp, top};
use model::{Model, Outcome};

/// What NVIDIA's header for hosts includes of a compiler that is not there.
const HOST_DEFINES: &str = "
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
";

fn output(command: &mut Command) -> Option<String> {
    let done = command.output().ok().filter(|done| done.status.success())?;
    String::from_utf8(done.stdout).ok()
}

/// A Python with PyTorch for CUDA 12, and the folder of its packages.
fn python() -> Option<(PathBuf, PathBuf)> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    // As scripts/lib.sh has it.
    let cache = path("UVM_RUST_CACHE").or_else(|| {
        let cache = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
        Some(cache?.join("uvm-rust"))
    });
    let cached = cache.map(|cache| cache.join("torch/venv/bin/python"));
    let named = path("UVMRUST_TORCH_PYTHON");
    let candidates = [named, cached, Some("python3".into())];
    let ask = "import os, torch; assert torch.version.cuda.startswith('12.'); \
               print(os.path.dirname(os.path.dirname(torch.__file__)))";
    candidates.into_iter().flatten().find_map(|python| {
        let packages = output(Command::new(&python).args(["-c", ask]))?;
        let packages = PathBuf::from(packages.trim());
        let header = packages.join("nvidia/cuda_runtime/include/cuda_runtime_api.h");
        header.exists().then_some((python, packages))
    })
}

/// The symbols of a library: those that it wants, or those that it has.
fn symbols(library: &Path, which: &str) -> Vec<String> {
    let text = output(Command::new("nm").args(["-D", which]).arg(library)).unwrap_or_default();
    let last = text.lines().filter_map(|line| line.split(' ').next_back());
    last.map(str::to_owned).collect()
}

fn libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains(".so"))
        .collect()
}

/// Functions that only say that they are not there, for the names that `library` lacks.
fn refusals(library: &Path, wanted: BTreeSet<String>, file: &Path) {
    let mut text = String::from("#include <stdio.h>\n");
    let has: BTreeSet<_> = symbols(library, "--defined-only").into_iter().collect();
    let strip = |name: &String| name.split('@').next().unwrap_or_default().to_owned();
    let has: BTreeSet<_> = has.iter().map(strip).collect();
    for name in wanted.difference(&has) {
        text += &format!(
            "__attribute__((visibility(\"default\"))) int {name}(void)\n\
             {{ fputs(\"stub: no {name}\\n\", stderr); return 801; }}\n"
        );
    }
    std::fs::write(file, text).unwrap();
}

/// The stub driver and runtime, with all that this PyTorch looks for by name.
fn stubs(name: &str, packages: &Path) -> (PathBuf, PathBuf) {
    let folder = tmp(name);
    std::fs::create_dir_all(folder.join("crt")).unwrap();
    std::fs::write(folder.join("crt/host_defines.h"), HOST_DEFINES).unwrap();
    let torch = packages.join("torch/lib");
    let sources = harness::STUB.map(|file| source(&format!("stub/{file}.c")));
    let driver = folder.join("libcuda.so.1");
    let build_driver = |more: &[&str]| {
        let flags = "-Wl,-Bsymbolic,-soname,libcuda.so.1";
        let mut args = vec!["-shared", "-fPIC", "-fvisibility=hidden", flags];
        args.extend(sources.iter().map(String::as_str));
        args.extend(more);
        cc(&driver, &args);
    };
    build_driver(&[]);
    // PyTorch finds the driver's functions with dlsym: the names stand in its libraries.
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let bytes = std::fs::read(torch.join("libc10_cuda.so")).unwrap();
    wanted.extend(
        bytes
            .split(|&b| b == 0)
            .filter_map(|text| std::str::from_utf8(text).ok())
            .map(str::to_owned),
    );
    wanted.extend(symbols(
        &torch.join("libcaffe2_nvrtc.so"),
        "--undefined-only",
    ));
    let is_driver = |name: &str| {
        let mut letters = name.strip_prefix("cu").unwrap_or_default().chars();
        letters.next().is_some_and(|c| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    wanted.retain(|name| is_driver(name));
    let refused = folder.join("driver.c");
    refusals(&driver, wanted, &refused);
    build_driver(&[refused.to_str().unwrap()]);

    let runtime = folder.join("libcudart.so.12");
    let map = folder.join("map");
    std::fs::write(&map, "libcudart.so.12 { *; };\n").unwrap();
    let headers = packages.join("nvidia/cuda_runtime/include");
    let include = [
        format!("-I{}", folder.display()),
        format!("-I{}", headers.display()),
    ];
    let script = format!(
        "-Wl,-soname,libcudart.so.12,--version-script={}",
        map.display()
    );
    let cudart = source("torch_cudart.c");
    let flags = [
        "-shared",
        "-fPIC",
        &*include[0],
        &*include[1],
        &*script,
        &*cudart,
    ];
    cc(&runtime, &flags);
    let mut all = libraries(&torch);
    for package in libraries_of_nvidia(packages) {
        all.extend(libraries(&package));
    }
    let names = all
        .iter()
        .flat_map(|library| symbols(library, "--undefined-only"));
    let wanted = names.filter_map(|name| Some(name.strip_suffix("@libcudart.so.12")?.to_owned()));
    let refused = folder.join("runtime.c");
    refusals(&runtime, wanted.collect(), &refused);
    cc(
        &runtime,
        &[&flags[..], &[refused.to_str().unwrap()]].concat(),
    );
    (driver, runtime)
}

fn libraries_of_nvidia(packages: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(packages.join("nvidia"))
        .into_iter()
        .flatten()
        .flatten();
    entries.map(|entry| entry.path().join("lib")).collect()
}

/// A Python with PyTorch for CUDA 12, and the folder of its packages; says so if there is none.
#[track_caller]
fn have_pytorch() -> Option<(PathBuf, PathBuf)> {
    if !have_cc() {
        return None;
    }
    let found = python();
    if found.is_none() {
        skipped(
            "no PyTorch for CUDA 12 (scripts/deps.sh --all, 3 GB; UVMRUST_TORCH_PYTHON names a \
             Python that has it)",
        );
    }
    found
}

/// What `python` says on the stubs, and whether it succeeded.
fn run_on(stubs: &(PathBuf, PathBuf), python: &mut Command) -> (bool, String) {
    let both = std::env::join_paths([&stubs.0, &stubs.1]).unwrap();
    let done = python.env("LD_PRELOAD", both).output().unwrap();
    let said = [done.stdout, done.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
    (done.status.success(), said.concat())
}

/// The model by which ours is judged (`caching.rs`) does as a real PyTorch's allocator.
#[test]
fn the_model_of_pytorchs_allocator_is_right() {
    let Some((python, packages)) = have_pytorch() else {
        return;
    };
    let recordings = model::recordings();
    let mut command = Command::new(&python);
    command.arg(source("torch_caching.py"));
    command.args(recordings.iter().map(|recording| &recording.path));
    let (success, said) = run_on(&stubs("pytorch-own", &packages), &mut command);
    assert!(success, "{said}");
    for recording in recordings {
        let Outcome { allocs, reserved } = Model::play(&recording.events);
        let line = format!("{} {allocs} {reserved}", recording.name);
        assert!(
            said.lines().any(|own| own == line),
            "{line}, and not {said}"
        );
        println!("{line}");
    }
}

#[test]
fn a_real_pytorch_keeps_its_data_with_the_guides_recipe() {
    let Some((python, packages)) = have_pytorch() else {
        return;
    };
    let stubs = stubs("pytorch", &packages);
    let package = python_package();
    let allocator = cdylib("uvmrust-torch", false);
    // The recipe with the library, and the same by the Python package.
    for wired in [allocator, package] {
        for uvm in ["ours", "native"] {
            let mut command = Command::new(&python);
            command
                .arg(source("torch_recipe.py"))
                .arg(top().join("docs/discard-guide.md"))
                .arg(&wired)
                .env("STUB_UVM", uvm)
                .env("UVMRUST_FD", "900");
            let (success, said) = run_on(&stubs, &mut command);
            let case = format!("{} {uvm}", wired.display());
            assert!(success, "{case}: {said}");
            println!("{case}: {said}");
        }
    }
}
