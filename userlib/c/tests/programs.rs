// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A C program, built against the header and both libraries, on each backend of the
//! stub library.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::Path;
use std::process::{Command, Output};

use harness::{cc, source, stub, tmp, top};

fn run(program: &Path, stub: &Path, driver: &str, backend: &str) -> Output {
    command(program, stub, driver, backend).output().unwrap()
}

fn command(program: &Path, stub: &Path, driver: &str, backend: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg(backend)
        .env("LD_PRELOAD", stub)
        .env("LD_LIBRARY_PATH", tmp("lib"))
        .env("STUB_UVM", driver)
        .env("UVMRUST_FD", if driver.is_empty() { "-1" } else { "900" });
    command
}

#[test]
fn c_programs_work_on_every_backend() {
    let lib = tmp("lib");
    let built = Command::new("make")
        .arg("-C")
        .arg(top().join("userlib"))
        .arg(format!("OUT={}", lib.display()))
        .arg(lib.join("libuvmrust.so.0"))
        .arg(lib.join("libuvmrust.a"))
        .env_remove("MAKEFLAGS")
        .output();
    let Ok(built) = built else {
        eprintln!("skipped: no make");
        return;
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let source = &source("program.c");
    let (shared, fixed) = (tmp("program-shared"), tmp("program-static"));
    let search = format!("-L{}", lib.display());
    cc(&shared, &[source, &search, "-l:libuvmrust.so.0", "-ldl"]);
    cc(
        &fixed,
        &[
            source,
            &search,
            "-l:libuvmrust.a",
            "-ldl",
            "-lpthread",
            "-lm",
        ],
    );
    let (new, old) = (
        stub("cuda13", "-DSTUB"),
        stub("cuda12", "-DSTUB_NO_DISCARD"),
    );
    let cases = [
        (&old, "ours", "1"),
        (&old, "native", "2"),
        (&new, "native", "2"),
        (&new, "old", "3"),
        (&new, "", "3"),
        (&old, "old", "0"),
        (&old, "", "0"),
    ];
    for program in [&shared, &fixed] {
        for (stub, driver, backend) in cases {
            let done = run(program, stub, driver, backend);
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(
                done.status.success(),
                "{program:?} {driver:?} {backend}: {said}{done:?}"
            );
        }
        let asleep = command(program, &old, "ours", "1")
            .env("STUB_ASLEEP", "1")
            .output()
            .unwrap();
        assert!(asleep.status.success(), "{program:?}: {asleep:?}");
    }
}

/// What `make install` puts where, by using it as a program would.
#[test]
fn an_installed_library_is_found_by_pkg_config() {
    let stage = tmp("stage");
    let _ = std::fs::remove_dir_all(&stage);
    let built = Command::new("make")
        .arg("-C")
        .arg(top().join("userlib"))
        .arg(format!("OUT={}", tmp("install").display()))
        .arg(format!("DESTDIR={}", stage.display()))
        .args(["PREFIX=/usr", "install"])
        .env_remove("MAKEFLAGS")
        .output();
    let Ok(built) = built else {
        eprintln!("skipped: no make");
        return;
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "uvmrust"])
        .env("PKG_CONFIG_LIBDIR", stage.join("usr/lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", &stage)
        .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
        .output();
    let Ok(flags) = flags else {
        eprintln!("skipped: no pkg-config");
        return;
    };
    assert!(
        flags.status.success(),
        "{}",
        String::from_utf8_lossy(&flags.stderr)
    );
    let flags = String::from_utf8(flags.stdout).unwrap();
    let example = top().join("userlib/examples/which.c");
    let mut args = vec![example.to_str().unwrap()];
    args.extend(flags.split_whitespace());
    let program = tmp("which");
    cc(&program, &args);
    let done = Command::new(program)
        .env("LD_LIBRARY_PATH", stage.join("usr/lib"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("discard: none\n"));
    // Every call of the header has a page.
    let header = std::fs::read_to_string(stage.join("usr/include/uvmrust.h")).unwrap();
    let map = std::fs::read_to_string(top().join("userlib/c/libuvmrust.map")).unwrap();
    let calls: Vec<_> = map
        .lines()
        .filter_map(|l| l.trim().strip_suffix(';'))
        .collect();
    let calls: Vec<_> = calls
        .into_iter()
        .filter(|name| name.starts_with("Uvm") || name.starts_with("g10"))
        .collect();
    assert_eq!(calls.len(), 21);
    for call in calls {
        assert!(
            header.contains(&format!("{call}(")),
            "{call} is not in the header"
        );
        let page = stage.join(format!("usr/share/man/man3/{call}.3"));
        assert!(page.exists(), "{call} has no man page");
    }
}
