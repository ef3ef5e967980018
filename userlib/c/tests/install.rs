// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What `make install` puts where, and `make uninstall` takes away.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{cc, skipped, stub, tmp, top};

/// Runs `make install` with more `variables`, and gives the folder that stands for `/usr`, with
/// what it says; `None` without make, which it says. It builds into the folder `out` of the tests.
#[track_caller]
fn install(out: &str, variables: &[&str]) -> Option<(PathBuf, String)> {
    let stage = tmp(out).join("stage");
    let _ = std::fs::remove_dir_all(&stage);
    let built = Command::new("make")
        .arg("-C")
        .arg(top().join("userlib"))
        .arg(format!("OUT={}", tmp(out).display()))
        .arg(format!("DESTDIR={}", stage.display()))
        .args(["PREFIX=/usr", "all", "install"])
        .args(variables)
        .env_remove("MAKEFLAGS")
        .output();
    let Ok(built) = built else {
        skipped("no make");
        return None;
    };
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(built.status.success(), "{said}");
    Some((stage.join("usr"), said))
}

/// The minor version of the Rust that `make` finds.
fn rust_minor() -> u32 {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let said = Command::new(rustc).arg("--version").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    said.split('.').nth(1).unwrap().parse().unwrap()
}

/// The preload is left out where the Rust is too old for it, as Debian 13's is, and only there;
/// the rest is installed, and what is missing is said.
#[test]
fn an_older_rust_installs_all_but_the_preload() {
    let Some((usr, said)) = install("install", &[]) else {
        return;
    };
    let preload = |usr: &Path| usr.join("lib/libuvmrust_preload.so").exists();
    let recent = rust_minor() >= 88;
    assert_eq!(preload(&usr), recent, "{said}");
    assert_eq!(said.contains("is left out"), !recent, "{said}");

    // Installed alone, what is built stays, though who installs has an older Rust.
    let kept = tmp("install/kept");
    let _ = std::fs::remove_dir_all(&kept);
    let out = format!("OUT={}", tmp("install").display());
    let stage = format!("DESTDIR={}", kept.display());
    let (is_done, said) = installs(&[&out, &stage, "PREFIX=/usr", "RUST_VERSION=1.85.1"]).unwrap();
    assert!(is_done && preload(&kept.join("usr")) == recent, "{said}");

    // Built into the same folder, where there is a preload now.
    let (usr, said) = install("install", &["RUST_VERSION=1.85.1"]).unwrap();
    assert!(!preload(&usr), "{said}");
    assert!(!tmp("install/libuvmrust_preload.so").exists());
    let line = "libuvmrust_preload.so is left out, under which uvmrun runs programs: it needs \
                Rust 1.88 or later, and this is 1.85.1";
    assert_eq!(said.lines().filter(|l| *l == line).count(), 1, "{said}");
    for file in [
        "lib/libuvmrust.so.0",
        "lib/libuvmrust_torch.so",
        "bin/uvmrun",
        "bin/uvmtop",
    ] {
        assert!(usr.join(file).exists(), "{file}");
    }
}

/// Runs `make install` into a folder of its own; gives its status and all that it says.
fn installs(variables: &[&str]) -> Option<(bool, String)> {
    let done = Command::new("make")
        .arg("-C")
        .arg(top().join("userlib"))
        .arg("install")
        .args(variables)
        .env_remove("MAKEFLAGS")
        .env_remove("RUSTC")
        .output();
    let Ok(done) = done else {
        skipped("no make");
        return None;
    };
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Some((done.status.success(), said))
}

/// Headers and pages are the sources', and what is built may be of earlier ones, as after `git pull`.
#[test]
fn what_is_built_of_other_sources_is_not_installed_with_these() {
    if install("install-mixed", &[]).is_none() {
        return;
    }
    let out = format!("OUT={}", tmp("install-mixed").display());
    let usr = tmp("install-mixed/usr");
    // An earlier run has installed.
    let _ = std::fs::remove_dir_all(&usr);
    let stage = format!("DESTDIR={}", usr.display());
    let built_of = tmp("install-mixed/sources");
    let sum = std::fs::read_to_string(&built_of).unwrap();
    for other in [Some("1 2\n"), None] {
        match other {
            Some(sum) => std::fs::write(&built_of, sum).unwrap(),
            None => std::fs::remove_file(&built_of).unwrap(),
        }
        let (is_done, said) = installs(&[&out, &stage]).unwrap();
        assert!(
            !is_done && said.contains("is of other sources than these"),
            "{said}"
        );
        assert!(!usr.exists(), "{said}");
    }
    std::fs::write(&built_of, sum).unwrap();
    let (is_done, said) = installs(&[&out, &stage]).unwrap();
    assert!(is_done, "{said}");
}

/// Programs find the library by the loader's cache, which an install that is not staged refreshes, or says who may.
/// And root, who installs, need not have Rust.
#[test]
fn an_install_refreshes_the_loaders_cache_and_needs_no_rust() {
    let out = format!("OUT={}", tmp("install-cache").display());
    let usr = tmp("install-cache-usr");
    let prefix = format!("PREFIX={}", usr.display());
    let stage = format!("DESTDIR={}/stage", usr.display());
    let cache = "LDCONFIG=echo the cache is refreshed";
    // What an earlier run has built is none of this one's.
    let _ = std::fs::remove_dir_all(tmp("install-cache"));
    let Some((is_done, said)) = installs(&[&out, &prefix, cache]) else {
        return;
    };
    assert!(
        is_done && said.contains("the cache is refreshed\n"),
        "{said}"
    );
    let hint = format!("The loader does not know {}/lib yet", usr.display());
    let (is_done, said) = installs(&[&out, &prefix, "LDCONFIG=false"]).unwrap();
    assert!(is_done && said.contains(&hint), "{said}");
    let (is_done, said) = installs(&[&out, &prefix, &stage, "LDCONFIG=false"]).unwrap();
    assert!(is_done && !said.contains(&hint), "{said}");

    let without = ["CARGO=/nowhere/cargo", "RUST_VERSION=", cache];
    std::fs::remove_dir_all(&usr).unwrap();
    let (is_done, said) = installs(&[&[&*out, &*prefix], &without[..]].concat()).unwrap();
    assert!(is_done, "{said}");
    assert!(usr.join("bin/uvmrun").exists(), "{said}");
    let preload = usr.join("lib/libuvmrust_preload.so").exists();
    assert_eq!(preload, rust_minor() >= 88, "{said}");
    let other = tmp("install-cache-usr/other");
    let elsewhere = format!("PREFIX={}", other.display());
    let (is_done, said) = installs(&[&[&*out, &*elsewhere], &without[..]].concat()).unwrap();
    assert!(is_done, "{said}");
    let written = std::fs::read_to_string(other.join("lib/pkgconfig/uvmrust.pc")).unwrap();
    assert!(written.contains(&*other.to_string_lossy()), "{written}");
    nothing_is_left_by_uninstall(&other, &out);
    // A prefix with a space is one folder, and that of its first word is not touched.
    let spaced = tmp("install-cache-usr/p q");
    let before = tmp("install-cache-usr/p");
    std::fs::write(&before, "").unwrap();
    let with_space = format!("PREFIX={}", spaced.display());
    let (is_done, said) = installs(&[&[&*out, &*with_space], &without[..]].concat()).unwrap();
    assert!(is_done, "{said}");
    nothing_is_left_by_uninstall(&spaced, &out);
    assert!(before.exists());
    // Where a folder is missing, the others are cleared all the same.
    std::fs::remove_dir_all(spaced.join("lib")).unwrap();
    std::fs::write(spaced.join("bin/uvmrun"), "").unwrap();
    uninstall(&spaced, &out);
    assert!(!spaced.join("bin/uvmrun").exists());
    let nothing = format!("OUT={}", tmp("install-nothing").display());
    let (is_done, said) = installs(&[&[&*nothing, &*prefix], &without[..]].concat()).unwrap();
    assert!(
        !is_done && said.contains("run make as who has it"),
        "{said}"
    );
}

#[track_caller]
fn uninstall(prefix: &Path, out: &str) {
    let done = Command::new("make")
        .arg("-C")
        .arg(top().join("userlib"))
        .args(["uninstall", out, "LDCONFIG=true"])
        .arg(format!("PREFIX={}", prefix.display()))
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// What `make install` has put below `prefix`, `make uninstall` takes away, and no other file.
#[track_caller]
fn nothing_is_left_by_uninstall(prefix: &Path, out: &str) {
    let others = ["lib/libother.so", "share/doc/libuvmrust/copyright"].map(|f| prefix.join(f));
    for file in &others {
        std::fs::write(file, "").unwrap();
    }
    uninstall(prefix, out);
    let left = Command::new("find")
        .arg(prefix)
        .args(["!", "-type", "d"])
        .output()
        .unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    let left: BTreeSet<_> = left.lines().map(Path::new).collect();
    assert_eq!(left, others.iter().map(PathBuf::as_path).collect());
    assert!(!prefix.join("share/doc/libuvmrust/examples").exists());
}

/// What `make install` puts where, by using it as a program would.
#[test]
fn an_installed_library_is_found_by_pkg_config() {
    let Some((usr, _)) = install("install-pkg-config", &[]) else {
        return;
    };
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "uvmrust"])
        .env("PKG_CONFIG_LIBDIR", usr.join("lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", usr.parent().unwrap())
        .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
        .output();
    let Ok(flags) = flags else {
        return skipped("no pkg-config");
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
    args.push("-ldl");
    let program = tmp("which");
    cc(&program, &args);
    // With the driver's library where the loader finds it, as on a machine that has one.
    let (new, old) = (
        stub("which13", "-DSTUB"),
        stub("which12", "-DSTUB_NO_DISCARD"),
    );
    let which = |stub: Option<&Path>, driver: &str| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", usr.join("lib"));
        if let Some(stub) = stub {
            command.env("LD_PRELOAD", stub);
        }
        let command = command.env("STUB_UVM", driver).env("UVMRUST_FD", "900");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(which(Some(&old), "ours").starts_with("discard: uvm-rust\n"));
    assert!(which(Some(&old), "native").starts_with("discard: nvidia-uvm\n"));
    assert!(which(Some(&new), "old").starts_with("discard: cuda\n"));
    let none = which(Some(&old), "old");
    assert!(
        none.starts_with("discard: none\n") && none.contains("cannot discard"),
        "{none}"
    );
    let none = which(None, "");
    assert!(
        none.starts_with("discard: none\n") && none.contains("libcuda.so.1"),
        "{none}"
    );
    // What the guide uses is there.
    for file in [
        "include/uvm_rust_ioctl.h",
        "share/doc/libuvmrust/examples/which.c",
        "share/doc/libuvmrust/examples/scratch.cu",
    ] {
        assert!(usr.join(file).exists(), "{file}");
    }
    // Every call of the header has a page.
    let header = std::fs::read_to_string(usr.join("include/uvmrust.h")).unwrap();
    let map = std::fs::read_to_string(top().join("userlib/c/libuvmrust.map")).unwrap();
    let calls: Vec<_> = map
        .lines()
        .filter_map(|l| l.trim().strip_suffix(';'))
        .collect();
    let calls: Vec<_> = calls
        .into_iter()
        .filter(|name| {
            name.starts_with("Uvm") || name.starts_with("g10") || name.starts_with("uvmrust")
        })
        .collect();
    assert_eq!(calls.len(), 47);
    for call in calls {
        assert!(
            header.contains(&format!("{call}(")),
            "{call} is not in the header"
        );
        let page = usr.join(format!("share/man/man3/{call}.3"));
        assert!(page.exists(), "{call} has no man page");
    }
}
