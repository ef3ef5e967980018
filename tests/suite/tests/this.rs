// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program of the suite starts itself where nobody else can reach it by its path.

#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use uvm_suite::this_program;

/// Which part this very program plays, when a test of this file has started it.
const PART: &str = "UVM_SUITE_TEST_PART";

/// The number of the user nobody, who may do nothing.
const NOBODY: u32 = 65534;

/// Only a program that may become nobody can have children that do.
fn is_root() -> bool {
    // SAFETY: has no conditions.
    unsafe { libc::geteuid() == 0 }
}

/// Has `program` run the test `name` of this file, as `part`.
fn play(mut program: Command, name: &str, part: &str) -> Output {
    let arguments = [name, "--exact", "--nocapture"];
    program
        .args(arguments)
        .env(PART, part)
        .current_dir("/")
        .output()
        .unwrap()
}

/// Whether that ended well, and said so.
#[track_caller]
fn says(output: &Output, what: &str) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(what), "{output:?}");
}

/// Without root there is no other user to become: then the folder is closed to its owner too.
#[test]
fn a_child_runs_where_its_path_is_closed() {
    let name = "a_child_runs_where_its_path_is_closed";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("closed");
    let close = |mode| fs::set_permissions(&folder, Permissions::from_mode(mode));
    match std::env::var(PART).ok().as_deref() {
        Some("the program") => {
            close(0).unwrap();
            let again = || {
                let mut child = this_program().unwrap();
                if is_root() {
                    child.uid(NOBODY);
                }
                child
            };
            says(&play(again(), name, "a child"), "a child of a child");
            // The copy is made once.
            let first = again().get_program().to_owned();
            assert_eq!(again().get_program(), first);
            says(&play(again(), name, "a child of a child"), "as user");
        }
        // Whoever it has become may start itself as well.
        Some("a child") => {
            let program = this_program().unwrap();
            says(&play(program, name, "a child of a child"), "as user");
            println!("a child of a child ran");
        }
        Some(_) => {
            // SAFETY: has no conditions.
            let user = unsafe { libc::geteuid() };
            assert!(user != 0, "it is root still");
            // Its parent's copy is closed.
            for entry in fs::read_dir("/proc/self/fd").unwrap() {
                let at = fs::read_link(entry.unwrap().path()).unwrap_or_default();
                assert!(!at.to_string_lossy().contains("memfd:"), "{at:?} is open");
            }
            println!("as user {user}");
        }
        None => {
            // What an earlier run may have left is closed.
            let _ = close(0o700);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder).unwrap();
            let program = folder.join("program");
            fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
            let done = play(Command::new(&program), name, "the program");
            close(0o700).unwrap();
            fs::remove_dir_all(&folder).unwrap();
            says(&done, "test result: ok. 1 passed");
        }
    }
}
