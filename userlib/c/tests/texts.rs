// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the header, the man pages and the guide say that a read gives after a discard: no more
//! than the weakest of the backends promises, of which the guide's table quotes the words. A
//! program that counts on zeros is right with one driver, and wrong with two.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap()
}

/// One line of a text as its words: without what marks a comment in C, and of a request of
/// mdoc(7) what it shows.
fn words(line: &str) -> &str {
    let line = line
        .trim()
        .trim_start_matches("/**")
        .trim_start_matches('*');
    match line.strip_prefix('.') {
        Some(request) => request.split_once(' ').map_or("", |(_, shown)| shown),
        None => line.trim(),
    }
}

/// The sentences of a text, each on one line; a paragraph ends one, too.
fn sentences(text: &str) -> Vec<String> {
    let joined: Vec<_> = text
        .lines()
        .map(|line| match words(line) {
            "" => ".",
            shown => shown,
        })
        .collect();
    let joined = joined.join(" ");
    joined.split(". ").map(str::to_owned).collect()
}

/// The header, and every page.
fn promises() -> Vec<(String, String)> {
    let mut all = vec!["userlib/c/include/uvmrust.h".to_owned()];
    for page in std::fs::read_dir(top().join("userlib/man")).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        all.push(format!("userlib/man/{name}"));
    }
    assert!(all.len() > 20, "{all:?}");
    all.into_iter()
        .map(|path| (text(&path), path))
        .map(|(text, path)| (path, text))
        .collect()
}

/// The comment of a function in the header.
fn comment<'a>(header: &'a str, function: &str) -> &'a str {
    let start = header.find(&format!("* {function}() - ")).unwrap();
    let end = header[start..].find("*/").unwrap();
    &header[start..start + end]
}

#[test]
fn nobody_is_promised_zeros_but_by_the_driver_that_gives_them() {
    for (path, text) in promises() {
        for sentence in sentences(&text) {
            assert!(
                !sentence.contains("zeros") || sentence.contains("uvm-rust's driver"),
                "{path} promises: {sentence}"
            );
        }
    }
}

/// As CUDA and NVIDIA word it, where the discard is explained.
#[test]
fn what_a_read_gives_is_said_as_cuda_says_it() {
    let header = text("userlib/c/include/uvmrust.h");
    let page = text("userlib/man/uvmrust_discard.3");
    for said in [comment(&header, "uvmrust_discard"), &page] {
        let said = sentences(said).join(" ");
        assert!(said.contains("a read gives indeterminate data"), "{said}");
        assert!(said.contains("which may differ from one read to"), "{said}");
        assert!(said.contains("leaves"), "{said}");
    }
}

#[test]
fn the_guides_table_has_a_row_for_each_who_may_discard() {
    let guide = text("docs/discard-guide.md");
    let (_, table) = guide.split_once("### What a read gives\n").unwrap();
    let rows: Vec<_> = table
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let row = |who: &str| -> Vec<&str> {
        let start = format!("| {who}");
        let row = rows.iter().find(|row| row.starts_with(&start));
        row.unwrap_or_else(|| panic!("no row of {who}: {rows:?}"))
            .trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect()
    };
    for who in ["NVIDIA's driver", "CUDA 13"] {
        let row = row(who);
        assert!(row[1].contains("indeterminate"), "{row:?}");
        // Their own words, by which it can be judged.
        let source = row.last().unwrap();
        assert!(source.contains('`') && source.contains('"'), "{row:?}");
    }
    assert!(row("uvm-rust's driver")[1].contains("zeros"));
    assert!(row("nobody")
        .last()
        .unwrap()
        .contains("UVMRUST_ENOTSUPPORTED"));
    assert_eq!(rows.len(), 4);
}
