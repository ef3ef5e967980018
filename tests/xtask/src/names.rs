// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The names of the tests that ran, and which of another list are gone.

use crate::log;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Lists the tests of a folder of logs, a line "PART NAME" for each; of a file, the lines that it has.
///
/// A test that two programs of a part have in common is there twice, and one of the two may not go either.
///
/// # Errors
///
/// Fails with a sentence if there is no such folder or file.
pub fn names(of: &Path) -> Result<Vec<String>, String> {
    let unread = |error| format!("test.sh names: {}: {error}", of.display());
    if of.is_file() {
        let text = std::fs::read_to_string(of).map_err(unread)?;
        return Ok(text
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect());
    }
    let mut logs = Vec::new();
    find_logs(of, &mut logs).map_err(unread)?;
    logs.sort();
    let mut all = Vec::new();
    for path in logs {
        let part = path.strip_prefix(of).unwrap_or(&path).with_extension("");
        let text = std::fs::read(&path).map_err(unread)?;
        all.extend(names_in(
            &part.to_string_lossy(),
            &String::from_utf8_lossy(&text),
        ));
    }
    Ok(all)
}

fn find_logs(folder: &Path, logs: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_logs(&path, logs)?;
        } else if path.extension().is_some_and(|end| end == "log") {
            logs.push(path);
        }
    }
    Ok(())
}

/// Lists the tests of one log. A part that names no test is a test itself.
pub fn names_in(part: &str, text: &str) -> Vec<String> {
    let named = |test: log::Test| format!("{part} {}", same_in_each_run(&test.name));
    let names: Vec<String> = log::tests_in(text).into_iter().map(named).collect();
    if names.is_empty() {
        return vec![format!("{part} (the part)")];
    }
    names
}

/// Leaves out of a name what differs from run to run: a seed, and a line in a file.
fn same_in_each_run(name: &str) -> String {
    let name = without_number(name, "seed ", "", "N");
    without_number(&name, "(line ", ")", "N")
}

/// Puts `by` in the place of each number that stands between two texts.
fn without_number(name: &str, before: &str, after: &str, by: &str) -> String {
    let mut done = String::new();
    let mut rest = name;
    while let Some(at) = rest.find(before) {
        let (head, tail) = rest.split_at(at + before.len());
        done.push_str(head);
        let digits = tail
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(tail.len());
        if digits > 0 && tail[digits..].starts_with(after) {
            done.push_str(by);
            rest = &tail[digits..];
        } else {
            rest = tail;
        }
    }
    done + rest
}

/// Says which names of the old list the new one has no more, and whether there are none.
pub fn compare(old: &[String], new: &[String]) -> (String, bool) {
    let mut left: BTreeMap<&str, isize> = BTreeMap::new();
    for name in old {
        *left.entry(name).or_default() += 1;
    }
    for name in new {
        *left.entry(name).or_default() -= 1;
    }
    let mut said = String::new();
    let mut gone = 0;
    for (name, n) in left {
        for _ in 0..n.max(0) {
            gone += 1;
            let _ = writeln!(said, "gone: {name}");
        }
    }
    let _ = writeln!(
        said,
        "{} names before, {} now, {gone} gone",
        old.len(),
        new.len()
    );
    (said, gone == 0)
}

#[cfg(test)]
#[path = "names/tests.rs"]
mod tests;
