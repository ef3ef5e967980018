// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmrun --check` as a program: what it prints where, and its exit status.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;

/// Runs it with nothing on the machine; gives the status and what it printed.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nothing");
    std::fs::create_dir_all(&root).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvmrun"));
    let done = command.arg("--root").arg(root).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn without_anything_it_says_where_to_begin() {
    let (status, page, errors) = run(&["--check"]);
    assert_eq!((status, &*errors), (Some(2), ""));
    assert!(
        page.starts_with("! driver:      none of NVIDIA's is loaded\n"),
        "{page}"
    );
    assert!(page.ends_with("from the top.\n"), "{page}");
    let (status, text, _) = run(&["--check", "--json"]);
    assert_eq!(status, Some(2));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["status"], 2);
    assert_eq!(report["checks"][0]["state"], "broken");
}

#[test]
fn a_given_preload_is_taken() {
    let library = std::env::current_exe().unwrap();
    let (_, page, _) = run(&["--check", "--library", library.to_str().unwrap()]);
    assert!(
        page.contains(library.file_name().unwrap().to_str().unwrap()),
        "{page}"
    );
}

#[test]
fn a_wrong_command_line_is_no_finding() {
    let (status, page, errors) = run(&["--check", "--plan", "x"]);
    assert_eq!((status, &*page), (Some(125), ""));
    assert!(errors.contains("--check takes no option"), "{errors}");
}
