// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The whole program in a checkout that is made up: its VM is a script, which does as the file `vm` says.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A checkout in a folder that goes with it.
struct House(PathBuf);

impl House {
    fn new(name: &str) -> House {
        let folder = format!("uvm-rust-house-{name}-{}", std::process::id());
        let house = House(std::env::temp_dir().join(folder));
        house.write("tests/skips", "");
        house.write("Makefile", "export ONLY GPU\n");
        house.write("scripts/test.sh", "");
        house.write("src/driver.rs", "1");
        house.script("scripts/vm.sh", "echo \"$*\" >>ran; . ./vm");
        house.script("scripts/stock.sh", "echo stock");
        house.script("scripts/demo.sh", "echo demo >>ran; . ./vm");
        house.script("tests/parts/programs.sh", "echo >>built");
        house.write("vm", "echo 'ok 1 - a'; echo 1..1");
        house
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn script(&self, name: &str, text: &str) {
        self.write(name, &format!("#!/bin/sh\n{text}\n"));
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.0.join(name), mode).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(arguments).current_dir(&self.0).env_clear();
        command
            .env("PATH", "/usr/bin:/bin")
            .env("UVM_RUST_CACHE", self.0.join("cache"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs to the end; gives the exit status and what was printed.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        said(self.command(arguments).output().unwrap())
    }

    /// How often something ran in the VM.
    fn ran(&self) -> usize {
        self.read("ran").lines().count()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn said(output: Output) -> (i32, String) {
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

const LIBRARY: [&str; 3] = ["kselftest", "--only", "^rust/library$"];

#[test]
fn a_lane_runs_again_when_something_of_it_changes() {
    let house = House::new("again");
    let (code, text) = house.run(&LIBRARY);
    assert_eq!((code, house.ran()), (0, 1), "{text}");
    assert!(text.ends_with("2 passed, 0 failed, 0 skipped\n"), "{text}");
    assert_eq!(house.read("ran"), "target/release/library\n");
    let (code, text) = house.run(&LIBRARY);
    assert_eq!((code, house.ran()), (0, 1), "{text}");
    assert!(text.contains("(rust/library: passed on 20"), "{text}");
    house.write("src/driver.rs", "2");
    house.run(&LIBRARY);
    assert_eq!(house.ran(), 2);
    house.run(&[&LIBRARY[..], &["--fresh"]].concat());
    assert_eq!(house.ran(), 3);
    assert!(house
        .read("out/test/junit.xml")
        .contains("<testcase classname=\"rust/library\" name=\"a\"/>"));
    assert!(house
        .read("out/test/tests.tap")
        .contains("ok 1 - build/programs: (the part)\n"));
}

#[test]
fn what_failed_is_run_again_alone() {
    let house = House::new("failed");
    house.write(
        "vm",
        "case $* in *library) echo 'not ok 1 - b' ;; *) echo 'ok 1 - a' ;; esac; echo 1..1",
    );
    let both = ["kselftest", "--only", "^rust/(library|fatal)$"];
    let (code, text) = house.run(&both);
    assert_eq!((code, house.ran()), (1, 2), "{text}");
    assert!(
        text.contains("again: make test ONLY='^rust/library$' FRESH=1\n"),
        "{text}"
    );
    assert!(text.ends_with("2 passed, 1 failed, 0 skipped\n"), "{text}");
    house.write("vm", "echo 'ok 1 - a'; echo 1..1");
    let (code, text) = house.run(&["kselftest", "--rerun-failed"]);
    assert_eq!((code, house.ran()), (0, 3), "{text}");
    let (code, text) = said(
        house
            .command(&["kselftest"])
            .env("FAILED", "1")
            .output()
            .unwrap(),
    );
    assert_eq!((code, house.ran()), (0, 3), "{text}");
}

#[test]
fn a_skip_that_nobody_knows_and_a_known_one_that_is_missing_fail() {
    let house = House::new("skips");
    house.write("vm", "echo 'ok 1 - a # SKIP why'; echo 1..1");
    let (code, text) = house.run(&LIBRARY);
    assert!(
        code == 1 && text.contains("not on the list tests/skips: a\n"),
        "{text}"
    );
    house.write("tests/skips", "rust/library\ta\n");
    assert_eq!(house.run(&LIBRARY).0, 0);
    house.write("tests/skips", "rust/library\ta\nrust/library\tb\n");
    let (code, text) = house.run(&LIBRARY);
    assert!(
        code == 1 && text.contains("but not skipped any more (0 of 1): b\n"),
        "{text}"
    );
}

#[test]
fn lists_run_nothing_and_what_is_not_known_is_an_error() {
    let house = House::new("list");
    let (code, text) = house.run(&["list", "kselftest"]);
    assert!(
        code == 0 && text.starts_with("build/programs\nrust/kselftest\n"),
        "{text}"
    );
    let (_, same) = house.run(&["kselftest", "--list"]);
    assert_eq!(text, same);
    let only = said(
        house
            .command(&["list"])
            .env("ONLY", "^rust/(loops|panic)$")
            .output()
            .unwrap(),
    );
    assert_eq!(only, (0, "rust/loops\nrust/panic\n".to_owned()));
    let (_, text) = house.run(&["list", "kselftest", "--commands", "--only", "rust/fatal"]);
    assert_eq!(
        text,
        "rust/fatal DRIVER=rust VIDMEM=64M scripts/vm.sh out/kselftest/uvm_fatal\n"
    );
    for (arguments, why) in [
        (&["list", "nothing"][..], "use host, vm"),
        (&["nothing"], "use host, vm"),
        (
            &["kselftest", "--only", "no such part"],
            "no part of kselftest is called no such part",
        ),
        (&["kselftest", "--only", "("], "ONLY=("),
        (&["kselftest", "--sideways"], "sideways"),
        (&["names", "a", "b", "c"], "too many words"),
        (&["names"], "too few words"),
        (&["demo-ran"], "too few words"),
    ] {
        let (code, text) = house.run(arguments);
        assert!(
            code == 2 && text.contains(why),
            "{arguments:?} {code} {text}"
        );
    }
    assert_eq!(house.ran(), 0);
}

#[test]
fn what_a_part_needs_is_asked_when_it_runs_and_not_for_a_list() {
    let house = House::new("asked");
    house.script(
        "tests/parts/without.sh",
        "echo 'held|held|sometimes|reads while it is'",
    );
    house.script("tests/parts/wheel-lacks.sh", "echo >>asked; echo no pip");
    let (code, text) = house.run(&["list", "extra", "--commands"]);
    assert!(
        code == 0 && text.contains("\nhost/wheel scripts/wheel.sh uvmrust\n"),
        "{text}"
    );
    let held = "fixes/held KERNEL=debug tests/parts/without.sh held held reads\\ while\\ it\\ is\n";
    assert!(text.contains(held), "{text}");
    assert_eq!(house.read("asked"), "");
    house.write("tests/skips", "?host/wheel\t(the part)\n");
    let (code, text) = house.run(&["extra", "--only", "^host/wheel$"]);
    assert!(code == 0 && text.contains("skipped: no pip"), "{text}");
    assert_eq!(house.read("asked"), "\n");
    // Nobody knows which lanes there are if the bugs are not known.
    house.script("tests/parts/without.sh", "exit 1");
    let (code, text) = house.run(&["list", "extra"]);
    assert!(code == 2 && text.contains("without.sh"), "{text}");
}

#[test]
fn names_are_compared() {
    let house = House::new("names");
    house.run(&LIBRARY);
    let (code, text) = house.run(&["names", "out/test"]);
    assert_eq!(
        (code, text.as_str()),
        (0, "build/programs (the part)\nrust/library a\n")
    );
    house.write("before", &format!("{text}rust/library b\n"));
    let (code, text) = house.run(&["names", "before", "out/test"]);
    assert_eq!(
        (code, text.as_str()),
        (1, "gone: rust/library b\n3 names before, 2 now, 1 gone\n")
    );
    let (code, text) = house.run(&["names", "none", "out/test"]);
    assert!(code == 2 && text.contains("none"), "{text}");
}

#[test]
fn the_demo_that_ran_by_itself_need_not_run_again() {
    let house = House::new("demo");
    house.write("out/demo.tap", "ok 1 - unload\n1..1\n");
    assert_eq!(house.run(&["demo-ran", "out/demo.tap"]).0, 0);
    let (code, text) = house.run(&["vm", "--only", "^demo$"]);
    assert_eq!((code, house.ran()), (0, 0), "{text}");
    assert!(text.contains("(demo: passed on 20"), "{text}");
    house.write("out/demo.tap", "not ok 1 - unload\n1..1\n");
    house.write("src/driver.rs", "2");
    house.run(&["demo-ran", "out/demo.tap"]);
    house.run(&["vm", "--only", "^demo$"]);
    assert_eq!(house.ran(), 1);
}

/// Runs a script of this repository in the made-up checkout, whose `lib.sh` does no more than it must.
fn run_script(house: &House, script: &str, text: &str, env: &[(&str, &str)]) -> String {
    house.write(script, text);
    house.write(
        "scripts/lib.sh",
        "set -e; TOP=$PWD; say() { :; }; just_built() { false; }; list_built() { :; }",
    );
    house.script("bin/cargo", "");
    house.script("target/release/demo", "");
    let bin = house.0.join("bin").display().to_string();
    let mut command = Command::new("bash");
    command.arg(script).current_dir(&house.0).env_clear();
    command.env("PATH", format!("{bin}:/usr/bin:/bin"));
    command.envs(env.iter().copied());
    said(command.output().unwrap()).1
}

#[test]
fn the_demo_tells_of_itself_unless_it_is_one_of_the_tests() {
    let house = House::new("demo-tells");
    house.script("scripts/test.sh", "echo \"$*\" >>told");
    let demo = include_str!("../../../scripts/demo.sh");
    run_script(&house, "scripts/demo.sh", demo, &[("UVM_RUST_XTASK", "x")]);
    assert_eq!((house.ran(), house.read("told").as_str()), (2, ""));
    run_script(&house, "scripts/demo.sh", demo, &[]);
    assert_eq!(house.read("told"), "demo-ran out/demo.tap\n");
}

#[test]
fn an_oops_of_an_earlier_run_is_not_this_runs() {
    let house = House::new("sanity");
    let oops = "BUG: KASAN: slab-use-after-free in uvm_tracker_wait+0x1\n";
    house.write("out/test/channel-sanity.console", oops);
    house.write("vm", "exit 124");
    let sanity = include_str!("../../parts/channel-sanity.sh");
    let text = run_script(&house, "tests/parts/channel-sanity.sh", sanity, &[]);
    assert!(
        text.contains("not ok 1 - the guest died elsewhere"),
        "{text}"
    );
}

fn alive(pid: &str) -> bool {
    // Who has ended and is not waited for yet is no child that goes on.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Waits until something is so; fails after a minute.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "not in a minute: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn who_interrupts_a_run_leaves_no_process_and_nothing_is_remembered() {
    for signal in ["INT", "TERM"] {
        let house = House::new(&format!("interrupt-{signal}"));
        // In a session of its own, with a parent that has gone, and one that does not want to hear.
        let vm = "setsid sh -c 'echo $$ >>pids; sleep 1000' & \
             (setsid sh -c 'echo $$ >>pids; sleep 1000' &) ; \
             timeout 1000 sh -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 1; done' & \
             echo $$ >>pids; echo 'ok 1 - a'; echo 1..1; wait";
        house.write("vm", vm);
        house.write("out/test/junit.xml", "of an earlier run");
        let child = house
            .command(&LIBRARY)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        until("all have begun", || house.read("pids").lines().count() == 4);
        let pid = child.id().to_string();
        let killed = Command::new("kill")
            .args(["-s", signal, &pid])
            .status()
            .unwrap();
        assert!(killed.success());
        let (code, text) = said(child.wait_with_output().unwrap());
        assert_eq!(code, 130, "{text}");
        for pid in house.read("pids").lines() {
            assert!(!alive(pid), "{signal}: {pid} goes on");
        }
        assert!(
            !text.contains("failed,") && text.contains("rust/library: interrupted"),
            "{text}"
        );
        assert_eq!(
            std::fs::read_dir(house.0.join("cache/passed"))
                .unwrap()
                .count(),
            0
        );
        assert_eq!(house.read("out/test/unpassed"), "rust/library\n");
        assert!(!Path::new(&house.0).join("out/test/junit.xml").exists());
    }
}
