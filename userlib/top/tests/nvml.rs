// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is shown on a driver without our module: what NVML tells, here a stub of its library, and
//! what is missing.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::Path;
use std::process::Command;

use harness::{cc, have_cc, source, tmp};

const T4: &str = "GPU-00112233-4455-6677-8899-aabbccddeeff";

/// A machine with NVIDIA's driver, and its nvidia-uvm or ours.
fn machine(name: &str, ours: bool) -> std::path::PathBuf {
    let root = tmp(name);
    let _ = std::fs::remove_dir_all(&root);
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue\n";
    file("proc/driver/nvidia/version", version);
    let information = format!("Model: Tesla T4\nGPU UUID: {T4}\n");
    file(
        "proc/driver/nvidia/gpus/0000:3b:00.0/information",
        &information,
    );
    let parameter = ["uvm_debug_prints", "uvm_rust_stats"][usize::from(ours)];
    file(
        &format!("sys/module/nvidia_uvm/parameters/{parameter}"),
        "Y\n",
    );
    root
}

/// `uvmtop --once` there, with these variables; what it prints.
fn uvmtop(root: &Path, option: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvmtop"));
    command.args(["--once", option, "--root"]).arg(root);
    let done = command.envs(variables.iter().copied()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn without_our_module_nvml_tells_of_memory() {
    if !have_cc() {
        return;
    }
    let folder = tmp("nvml");
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join("libnvidia-ml.so.1");
    cc(&library, &["-shared", "-fPIC", &source("stub_nvml.c")]);
    let with = [
        ("LD_LIBRARY_PATH", folder.to_str().unwrap()),
        ("STUB_NVML_GPU", T4),
    ];
    let theirs = machine("nvml-theirs", false);

    let page = uvmtop(&theirs, "--interval=0.1", &with);
    let line =
        "  NVML    used 4.0 GiB of 16.0 GiB, all kinds of memory  processes 20  118: 19.0 MiB";
    assert!(page.contains(line), "{page}");
    let whole = page.replace('\n', " ");
    let missing = "nothing of faults, moves and evictions";
    assert!(whole.contains(missing), "{page}");

    let sample: serde_json::Value =
        serde_json::from_str(&uvmtop(&theirs, "--json", &with)).unwrap();
    let told = &sample["gpus"][0]["nvml"];
    assert_eq!(told["bytes_used"], 4_u64 << 30);
    assert_eq!(told["bytes_total"], 16_u64 << 30);
    let processes = told["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 20);
    assert_eq!(
        processes[2],
        serde_json::json!({"pid": 102, "bytes": 3 << 20})
    );
    assert_eq!(processes[3], serde_json::json!({"pid": 103, "bytes": null}));

    // Where it fails, and where it does not know the GPU, this is said.
    for (variable, says) in [
        (("STUB_NVML_INIT", "9"), "nvmlInit gives error 9"),
        (
            ("STUB_NVML_GPU", "GPU-0"),
            "nvmlDeviceGetHandleByUUID gives error 6",
        ),
    ] {
        let page = uvmtop(&theirs, "--interval=0.1", &[with[0], with[1], variable]);
        let whole = page.replace('\n', " ");
        assert!(whole.contains(says) && !page.contains("  NVML"), "{page}");
    }

    // Our own module tells more, and NVML is not asked.
    let ours = machine("nvml-ours", true);
    let sample: serde_json::Value = serde_json::from_str(&uvmtop(&ours, "--json", &with)).unwrap();
    assert!(sample["gpus"][0]["nvml"].is_null(), "{sample}");
}
