// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The package's tests, which are in Python, on the library as cargo builds it. On the wheel
//! they are run by `make wheel-uvmrust`.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::process::Command;

use harness::{have_cc, python_package, skipped, top};

/// Whether there is a Python that the package is for; says so if not.
#[track_caller]
fn have_python() -> bool {
    let asked = Command::new("python3")
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"])
        .status();
    let have = asked.is_ok_and(|status| status.success());
    if !have {
        skipped("no Python 3.9 or later");
    }
    have
}

#[test]
fn the_package_on_each_driver() {
    if !have_cc() || !have_python() {
        return;
    }
    let package = python_package();
    let mut tests = 0;
    for entry in std::fs::read_dir(top().join("userlib/python/tests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.starts_with("test_") || !name.ends_with(".py") {
            continue;
        }
        let done = Command::new("python3")
            .arg(top().join("userlib/python/tests").join(&name))
            .env("UVMRUST_PACKAGE", &package)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{name}: {said}");
        tests += 1;
    }
    assert!(tests > 0);
}
