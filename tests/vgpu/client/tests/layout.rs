// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Our structures against the C headers, by the C compiler.

#[path = "../../../skipped.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use skip::skipped;
use vgpu_client::{c_check_program, driver, uvm, vgpu, Layout};

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

fn uapi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../include/uapi")
}

/// NVIDIA's headers of 550, for which the client is written, as `make driver` keeps
/// them, or `UVM_HEADERS`.
fn upstream() -> Option<PathBuf> {
    if let Some(path) = env::var_os("UVM_HEADERS") {
        return Some(path.into());
    }
    let cache = env::var_os("UVM_RUST_CACHE")
        .map(PathBuf::from)
        .or_else(|| {
            let base = env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
            Some(base.join("uvm-rust"))
        })?;
    let trees = fs::read_dir(cache).ok()?.flatten();
    trees
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("upstream-550.")
        })
        .flat_map(|entry| {
            [
                "modules/nvidia-open-kernel/nvidia-uvm",
                "kernel-open/nvidia-uvm",
                "nvidia-uvm",
            ]
            .map(|tail| entry.path().join(tail))
        })
        .find(|path| path.join("uvm_ioctl.h").exists())
}

#[test]
fn vgpu_h() -> Checked {
    check("vgpu", &["vgpu.h"], &[uapi()], vgpu::LAYOUTS, "")
}

#[test]
fn uvm_rust_ioctl_h() -> Checked {
    check(
        "uvm_rust_ioctl",
        &["uvm_rust_ioctl.h"],
        &[uapi()],
        &[
            driver::LAYOUTS,
            vgpu_client::announce::LAYOUTS,
            vgpu_client::discard::LAYOUTS,
            vgpu_client::flash::LAYOUTS,
        ]
        .concat(),
        "",
    )
}

#[test]
fn nvidia_headers() -> Checked {
    let Some(path) = upstream() else {
        skipped("NVIDIA's headers are not here; run `make driver` or set UVM_HEADERS");
        return Ok(());
    };
    let include = [path.clone(), path.join("../common/inc")];
    let headers = ["uvm_linux_ioctl.h", "nv_uvm_types.h", "uvm_test_ioctl.h"];
    let numbers: String = (uvm::BareTest::ALL.iter())
        .map(|t| format!("_Static_assert({0} == {1}, \"{0}\");\n", t.name, t.number))
        .collect();
    let bare: String = (uvm::BareTest::ALL.iter())
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
        &uvm::layouts(),
        &(numbers + &bare + &entry),
    )
}
