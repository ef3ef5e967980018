// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Our structures of NVIDIA's calls against NVIDIA's headers, by the C compiler.

#[path = "../../../skipped.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use skip::skipped;
use vgpu_client::{c_check_program, uvm, Facts, Layout};

type Checked = std::io::Result<()>;

/// Compiles the check program. Skips, with a reason, where there is no compiler.
#[track_caller]
fn check(
    name: &str,
    headers: &[&str],
    include: &[PathBuf],
    layouts: &[Layout],
    more: &str,
) -> Checked {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        skipped("no C compiler; install gcc or set CC");
        return Ok(());
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = dir.join(format!("{name}.c"));
    fs::write(&source, c_check_program(headers, layouts) + more)?;
    let mut command = Command::new(&compiler);
    command
        .args(["-std=gnu11", "-w", "-fsyntax-only"])
        .arg(&source);
    for path in include {
        command.arg("-I").arg(path);
    }
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} does not agree with C:\n{errors}",
        source.display()
    );
    Ok(())
}

/// The folders of NVIDIA's headers in `tree`: an unpacked release, its kernel-open, or a package's.
fn headers_of(tree: &Path) -> Option<PathBuf> {
    let below = ["modules/nvidia-open-kernel", "kernel-open", ""];
    (below.iter())
        .map(|tail| tree.join(tail).join("nvidia-uvm"))
        .find(|path| path.join("uvm_ioctl.h").exists())
}

/// NVIDIA's headers of 550 as `make driver` keeps them, and of each tree in `UVM_SRC`, which
/// has spaces or colons between them; or those in `UVM_HEADERS` alone.
fn upstream() -> Vec<PathBuf> {
    let list = |name| {
        let value = env::var(name).unwrap_or_default();
        let paths = value.split([' ', ':']).filter(|path| !path.is_empty());
        paths.map(PathBuf::from).collect::<Vec<_>>()
    };
    let named = list("UVM_HEADERS");
    if !named.is_empty() {
        return named;
    }
    let cache = env::var_os("UVM_RUST_CACHE")
        .map(PathBuf::from)
        .or_else(|| {
            let base = env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
            Some(base.join("uvm-rust"))
        });
    let kept = cache.and_then(|cache| fs::read_dir(cache).ok());
    let of_550 = (kept.into_iter().flatten().flatten())
        .filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with("upstream-550.")
        })
        .find_map(|entry| headers_of(&entry.path()));
    let given = list("UVM_SRC").into_iter().map(|tree| {
        headers_of(&tree).unwrap_or_else(|| panic!("no NVIDIA driver in {}", tree.display()))
    });
    of_550.into_iter().chain(given).collect()
}

/// What `facts.sh` says of the driver with these headers.
fn facts_of(headers: &Path) -> std::io::Result<Facts> {
    let output = Command::new("sh")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../facts.sh"))
        .arg(headers.join(".."))
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Ok(Facts::from_words(&String::from_utf8_lossy(&output.stdout)))
}

#[test]
fn nvidia_headers() -> Checked {
    let trees = upstream();
    if trees.is_empty() {
        skipped("NVIDIA's headers are not here; run `make driver`, or set UVM_HEADERS or UVM_SRC");
    }
    trees.iter().try_for_each(|headers| check_calls(headers))
}

/// The calls that the client makes of a driver with these facts are what its headers say.
fn check_calls(path: &Path) -> Checked {
    let facts = facts_of(path)?;
    let include = [path.to_owned(), path.join("../common/inc")];
    let headers = ["uvm_linux_ioctl.h", "nv_uvm_types.h", "uvm_test_ioctl.h"];
    let there = |t: &&uvm::BareTest| uvm::is_there(t.name, facts);
    let numbers: String = (uvm::BareTest::ALL.iter().filter(there))
        .map(|t| format!("_Static_assert({0} == {1}, \"{0}\");\n", t.name, t.number))
        .collect();
    let bare: String = (uvm::BareTest::ALL.iter().filter(there))
        .map(|t| {
            format!(
                "_Static_assert(sizeof({0}_PARAMS) == 4, \"{0}\");\n",
                t.name
            )
        })
        .collect();
    let entry = format!(
        "_Static_assert(sizeof(UvmEventEntry_V2) == {}, \"\");\n",
        uvm::EVENT_SIZE
    );
    check(
        "uvm",
        &headers,
        &include,
        &uvm::layouts(facts),
        &(numbers + &bare + &entry),
    )
}
