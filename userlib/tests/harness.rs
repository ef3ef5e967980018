// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Building C programs and the stub library, for the tests of each crate here.

#![allow(dead_code, clippy::unwrap_used)]

#[path = "../../tests/skipped.rs"]
mod skip;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub use skip::skipped;

/// The folder that `scripts/gpu-check.sh --build` has made, if the test runs from one: on a machine
/// without cargo, where the folders of the build are not.
fn kit() -> Option<PathBuf> {
    std::env::var_os("UVMRUST_KIT").map(PathBuf::from)
}

/// The top folder of the checkout, or of the sources in a kit.
pub fn top() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    kit().map_or_else(built, |kit| kit.join("source"))
}

/// A file of this crate's tests.
pub fn tmp(name: &str) -> PathBuf {
    if kit().is_some() {
        return std::env::temp_dir().join(name);
    }
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Whether there is a C compiler; says so if not.
#[track_caller]
pub fn have_cc() -> bool {
    let have = Command::new("cc").arg("--version").output().is_ok();
    if !have {
        skipped("no C compiler");
    }
    have
}

/// Compiles C with warnings as errors, and links it into `out`.
pub fn cc(out: &Path, args: &[&str]) {
    let done = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Werror", "-Wno-unused-parameter"])
        .arg("-I")
        .arg(top().join("include/uapi"))
        .arg("-I")
        .arg(top().join("userlib/c/include"))
        .args(args)
        .arg("-o")
        .arg(out)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// A source file of `userlib/tests`.
pub fn source(name: &str) -> String {
    let path = top().join("userlib/tests").join(name);
    path.to_str().unwrap().to_owned()
}

/// The files of `userlib/tests/stub`, without their ends.
pub const STUB: [&str; 9] = [
    "batches", "device", "events", "graphs", "green", "mappings", "memory", "streams", "tools",
];

/// libcuda.so.1 in a folder of its own (`userlib/tests/stub`).
pub fn stub(folder: &str, flag: &str) -> PathBuf {
    let dir = tmp(folder);
    std::fs::create_dir_all(&dir).unwrap();
    let library = dir.join("libcuda.so.1");
    let sources = STUB.map(|file| source(&format!("stub/{file}.c")));
    let soname = "-Wl,-Bsymbolic,-soname,libcuda.so.1";
    let mut args = vec![flag, "-shared", "-fPIC", "-fvisibility=hidden", soname];
    args.extend(sources.iter().map(String::as_str));
    cc(&library, &args);
    library
}

/// A CUDA program of `userlib/tests`, with the stub's driver and runtime in a folder of
/// their own.
pub fn cuda_program(folder: &str, out: &Path, name: &str) {
    let dir = tmp(folder);
    stub(folder, "-DSTUB");
    let soname = "-Wl,-soname,libcudart.so.12";
    cc(
        &dir.join("libcudart.so.12"),
        &["-shared", "-fPIC", soname, &source("stub_cudart.c"), "-ldl"],
    );
    let search = format!("-L{}", dir.display());
    let libraries = ["-l:libcudart.so.12", "-l:libcuda.so.1", "-ldl"];
    cc(out, &[&[&*search, &*source(name)], &libraries[..]].concat());
}

/// `uvmrun` with these options, of a program that [`cuda_program`] built in this folder, and that these words start;
/// the stub writes to `log`, which is empty.
pub fn under_uvmrun<S: AsRef<OsStr>>(
    folder: &str,
    started: &[S],
    log: &Path,
    options: &[&str],
) -> Command {
    let _ = std::fs::remove_file(log);
    let folder = tmp(folder);
    let mut command = Command::new(program("uvmrun"));
    command
        .args(options)
        .arg("--library")
        .arg(cdylib("uvmrust-preload", false))
        .args(started)
        .env("LD_PRELOAD", folder.join("libcuda.so.1"));
    on_the_stub(&mut command, &folder, log);
    command
}

/// A program that [`cuda_program`] built in this folder under the preload, without `uvmrun`; the stub writes to `log`,
/// which is empty.
pub fn under_preload(folder: &str, built: &Path, log: &Path) -> Command {
    let _ = std::fs::remove_file(log);
    let folder = tmp(folder);
    let preload = [
        cdylib("uvmrust-preload", false),
        folder.join("libcuda.so.1"),
    ];
    let mut command = Command::new(built);
    command.env("LD_PRELOAD", std::env::join_paths(preload).unwrap());
    on_the_stub(&mut command, &folder, log);
    command
}

/// Sets what a program is told of the stub, whose folder this is.
fn on_the_stub(command: &mut Command, folder: &Path, log: &Path) {
    command
        .env("LD_LIBRARY_PATH", folder)
        .env("STUB_UVM", "ours")
        .env("STUB_LOG", log)
        .env("UVMRUST_FD", "900");
}

/// What a program has said.
pub fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// The shared library of a crate of this workspace, built here, or the kit's.
pub fn cdylib(package: &str, release: bool) -> PathBuf {
    let folder = kit().map_or_else(|| build(package, release), |kit| kit.join("lib"));
    let library = folder.join(format!("lib{}.so", package.replace('-', "_")));
    assert!(library.exists(), "{library:?}");
    library
}

/// The program of a crate of this workspace, built here.
pub fn program(package: &str) -> PathBuf {
    let program = build(package, false).join(package);
    assert!(program.exists(), "{program:?}");
    program
}

/// Why a test of a real PyTorch skips.
pub const NO_TORCH: &str =
    "no PyTorch (Debian: python3-torch; UVMRUST_TORCH_PYTHON names a Python that has it)";

/// A PyTorch, by the Python that has it.
pub struct PyTorch {
    pub python: PathBuf,
    /// Its version and its folder, for people.
    pub name: String,
    /// Whether it is built for CUDA, without which it runs as well.
    pub for_cuda: bool,
}

/// Each PyTorch that there is, once: that of `UVMRUST_TORCH_PYTHON` alone where this is set, else those of the path's
/// Python, of the system's, and of the cache, where `scripts/deps.sh --all` installs one for CUDA 12.
pub fn pytorches() -> Vec<PyTorch> {
    let set = |name| std::env::var_os(name).map(PathBuf::from);
    let pythons = match set("UVMRUST_TORCH_PYTHON") {
        Some(named) => vec![named],
        None => {
            let cached = cache().map(|cache| cache.join("torch/venv/bin/python"));
            let others = ["python3", "/usr/bin/python3"].map(PathBuf::from);
            others.into_iter().chain(cached).collect()
        }
    };
    let mut found: Vec<PyTorch> = Vec::new();
    for torch in pythons.into_iter().filter_map(pytorch_of) {
        if !found.iter().any(|other| other.name == torch.name) {
            found.push(torch);
        }
    }
    found
}

/// The cache of this user, as `scripts/lib.sh` has it.
fn cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from);
    let of_home = || Some(set("HOME")?.join(".cache"));
    let of_user = || Some(set("XDG_CACHE_HOME").or_else(of_home)?.join("uvm-rust"));
    set("UVM_RUST_CACHE").or_else(of_user)
}

/// The PyTorch of a Python, if it has one.
fn pytorch_of(python: PathBuf) -> Option<PyTorch> {
    let ask = "import torch; print(torch.version.cuda, torch.__version__, torch.__path__[0])";
    let asked = Command::new(&python).args(["-c", ask]).output().ok()?;
    let said = String::from_utf8(asked.stdout).ok()?;
    let (cuda, name) = said.trim().split_once(' ')?;
    asked.status.success().then(|| PyTorch {
        python,
        name: name.to_owned(),
        for_cuda: cuda != "None",
    })
}

/// A folder that has the Python package uvmrust as a wheel would install it.
pub fn python_package() -> PathBuf {
    let folder = tmp("package");
    let _ = std::fs::remove_dir_all(&folder);
    let of = folder.join("uvmrust");
    std::fs::create_dir_all(&of).unwrap();
    let sources = std::fs::read_dir(top().join("userlib/python/uvmrust")).unwrap();
    for entry in sources.map(Result::unwrap) {
        if entry.path().extension().is_some_and(|e| e == "py") {
            std::fs::copy(entry.path(), of.join(entry.file_name())).unwrap();
        }
    }
    let header = "include/uvmrust_rmm.hpp";
    std::fs::create_dir_all(of.join("include")).unwrap();
    std::fs::copy(
        top().join("userlib/python/uvmrust").join(header),
        of.join(header),
    )
    .unwrap();
    let library = cdylib("uvmrust-python", false);
    std::fs::copy(library, of.join("_native.abi3.so")).unwrap();
    folder
}

/// The folder in which a crate of this workspace was built.
fn build(package: &str, release: bool) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .current_dir(top())
        .args(["build", "--quiet", "-p", package])
        .args(release.then_some("--release"))
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    // target/tmp is beside the folder of the profile.
    tmp(if release { "../release" } else { "../debug" })
}

/// The folder of libuvmrust, built once; `None` without make, which it says.
#[track_caller]
pub fn libraries() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let lib = tmp("lib");
        let built = Command::new("make")
            .arg("-C")
            .arg(top().join("userlib"))
            .arg(format!("OUT={}", lib.display()))
            .arg(lib.join("libuvmrust.so.0"))
            .arg(lib.join("libuvmrust.a"))
            .env_remove("MAKEFLAGS")
            .output();
        let built = built.ok()?;
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        Some(lib)
    };
    let built = BUILT.get_or_init(build).as_deref();
    if built.is_none() {
        skipped("no make");
    }
    built
}
