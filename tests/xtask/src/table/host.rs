// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The parts that need no VM.

use super::{at_least, rustc};
use crate::part::Part;
use crate::setting::Setting;

/// The parts on the host.
pub fn parts(setting: &Setting) -> Vec<Part> {
    let version = rustc(setting);
    let naked = at_least("1.88.0", &version);
    let mut parts = rust(&version, naked);
    for (name, script) in SCRIPTS {
        parts.push(Part::alone(&format!("host/{name}"), &[script]));
    }
    parts.extend([
        Part::alone("host/explore", &["scripts/explore.sh"]),
        Part::alone("host/prose", &["scripts/prose.py"]),
        Part::alone("host/links", &["scripts/links.py"]),
        Part::alone("host/bindings", &["scripts/bindings.sh", "--check"]),
        Part::alone(
            "host/masks",
            &["make", "--silent", "-C", "tests/masks", "run"],
        ),
        Part::alone(
            "host/seam",
            &["make", "--silent", "-C", "tests/seam", "run"],
        ),
        Part::beside("host/python", &["tests/parts/python.sh", "package"]),
        Part::alone("host/crates", &["tests/parts/crates.sh"]).unless(no_packages),
        Part::alone("host/pytorch", &["tests/parts/python.sh", "torch"]).unless(no_torch),
        docs(naked),
        Part::alone("host/shellcheck", &["bash", "-c", SHELLCHECK])
            .unless(|s| absent(s, "shellcheck")),
        Part::alone("host/spelling", &["tests/parts/spelling.sh"])
            .unless(|s| absent(s, "codespell")),
        Part::alone("host/reuse", &["tests/scripts/reuse.sh"]).unless(|s| absent(s, "reuse")),
        Part::alone("host/deny", &["tests/scripts/deny.sh"]).unless(no_deny),
    ]);
    parts.extend(miri());
    parts.push(Part::alone("host/tsan", &["tests/parts/tsan.sh"]).unless(no_tsan));
    parts.into_iter().map(Part::judging).collect()
}

/// Tests of scripts, each of which stands alone.
const SCRIPTS: &[(&str, &str)] = &[
    ("scripts", "tests/scripts/deps.sh"),
    ("probe", "tests/scripts/probe.sh"),
    ("uvm-rust", "tests/scripts/uvm-rust.sh"),
    ("dkms", "tests/scripts/dkms.sh"),
    ("prototypes", "tests/scripts/prototypes.sh"),
    ("hook-table", "tests/scripts/hook-table.sh"),
    ("upstream-bugs", "tests/scripts/upstream-bugs.sh"),
    ("driver-sh", "tests/scripts/driver.sh"),
    ("facts", "tests/scripts/facts.sh"),
    ("gpu-check", "tests/scripts/gpu-check.sh"),
    ("base", "tests/scripts/base.sh"),
    ("lines", "tests/scripts/lines.sh"),
    ("prose-sh", "tests/scripts/prose.sh"),
    ("links-sh", "tests/scripts/links.sh"),
    ("first-policy", "tests/scripts/first-policy.sh"),
    ("ci", "tests/scripts/ci.sh"),
    ("pictures", "tests/scripts/pictures.sh"),
    ("kernels", "tests/scripts/test-kernels.sh"),
    ("test-sh", "tests/scripts/parts.sh"),
    ("versions", "tests/scripts/versions.sh"),
    ("torch-demo", "tests/scripts/torch-demo.sh"),
    ("overlap-sh", "tests/scripts/overlap.sh"),
];

const SHELLCHECK: &str = "shellcheck -x scripts/*.sh tests/scripts/*.sh tests/parts/*.sh \
     tests/vgpu/*.sh packaging/uvm-rust packaging/*/*.sh";

/// What cargo and rustfmt say of the workspace.
fn rust(version: &str, naked: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    if naked {
        let clippy = [
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
        ];
        parts.push(Part::alone(
            "host/clippy",
            &[&clippy[..], &["-D", "warnings"]].concat(),
        ));
    } else {
        let preload =
            format!("rustc {version} has no naked functions yet: 1.88 (the rest is tested)");
        parts.push(Part::skipped("host/preload", preload));
        let clippy = format!("clippy {version} warns of what a later one finds well");
        parts.push(Part::skipped("host/clippy", clippy));
    }
    parts.push(Part::alone("host/rustfmt", &["tests/parts/rustfmt.sh"]));
    // They take some minutes; one that waits for ever would take the whole run with it.
    let mut test = vec!["timeout", "-k", "10", "2400", "cargo", "test"];
    test.extend(workspace(naked));
    test.push("--no-fail-fast");
    parts.push(Part::beside("host/cargo-test", &test));
    parts
}

/// The crates that this version of Rust compiles.
fn workspace(naked: bool) -> Vec<&'static str> {
    if naked {
        vec!["--workspace"]
    } else {
        vec!["--workspace", "--exclude", "uvmrust-preload"]
    }
}

fn docs(naked: bool) -> Part {
    let mut command = vec!["cargo", "doc"];
    command.extend(workspace(naked));
    command.extend(["--no-deps", "--document-private-items", "--quiet"]);
    Part::alone("host/docs", &command).with(&["RUSTDOCFLAGS=-D warnings"])
}

/// Miri, on what is built for the host.
fn miri() -> Vec<Part> {
    let miri = ["cargo", "+nightly", "miri", "test", "-p"];
    let part = |name: &str, of: &[&str]| {
        Part::alone(name, &[&miri[..], of].concat())
            .with(&["MIRIFLAGS=-Zmiri-disable-isolation"])
            .unless(no_miri)
    };
    let policy = "uvm-policy --lib -- mem:: policy::discard policy::evict policy::fault \
         policy::flash policy::mask policy::stats";
    let policy: Vec<&str> = policy.split_whitespace().collect();
    vec![
        part("host/miri", &policy),
        part("host/miri-planner", &["uvmsim-planner"]),
        part("host/miri-library", &["uvmrust", "--lib"]),
        part("host/miri-kernel", &["uvm-kernel"]),
    ]
}

/// Says that a program is not installed, unless it is.
fn absent(setting: &Setting, program: &str) -> Option<String> {
    let found = setting.said(&["bash", "-c", &format!("command -v {program}")]);
    found
        .is_none()
        .then(|| format!("{program} is not installed"))
}

fn no_packages(setting: &Setting) -> Option<String> {
    let help = setting
        .said(&["cargo", "package", "--help"])
        .unwrap_or_default();
    if help.contains("exclude-lockfile") {
        return None;
    }
    let version = setting.said(&["cargo", "--version"]).unwrap_or_default();
    let version = version.split_whitespace().nth(1).unwrap_or("");
    Some(format!(
        "cargo {version} packages no two crates of which one needs the other"
    ))
}

fn no_deny(setting: &Setting) -> Option<String> {
    absent(setting, "cargo-deny").map(|why| format!("{why} (make deny)"))
}

fn no_torch(setting: &Setting) -> Option<String> {
    let found = setting.said(&["tests/parts/python.sh", "has-torch"]);
    found
        .is_none()
        .then(|| "no PyTorch (Debian: python3-torch)".to_owned())
}

fn no_tsan(setting: &Setting) -> Option<String> {
    let lacks = setting.said(&["tests/parts/tsan.sh", "absent"])?;
    Some(lacks.trim_end().to_owned())
}

fn no_miri(setting: &Setting) -> Option<String> {
    let found = setting.said(&["cargo", "+nightly", "miri", "--version"]);
    let how = "no nightly toolchain with Miri (rustup +nightly component add miri rust-src)";
    found.is_none().then(|| how.to_owned())
}
