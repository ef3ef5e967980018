// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the log of a part says: how many tests passed, failed and were skipped.

use std::collections::VecDeque;

use crate::skips::{self, Known};

/// What a part's log and its exit status come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed; a part that names no test is one itself.
    pub passed: usize,
    /// Tests that failed, and what is wrong with the log besides.
    pub failed: usize,
    /// Tests that were skipped, and programs that planned none.
    pub skipped: usize,
    /// The tests that failed, as their lines say.
    pub broken: Vec<String>,
    /// What is wrong with the log beyond its tests: "not ok PART: …". It belongs to the log.
    pub against: Vec<String>,
}

/// Adds up a part's log. `succeeded` is whether its command did.
pub fn tally(part: &str, succeeded: bool, log: &str, known: &[Known]) -> Tally {
    let mut tally = if log.lines().any(|line| line.starts_with("test result: ")) {
        of_cargo(log)
    } else if log.lines().any(is_tap) {
        of_tap(part, log)
    } else {
        Tally {
            passed: usize::from(succeeded),
            ..Tally::default()
        }
    };
    if !succeeded && tally.failed == 0 {
        tally.failed = 1;
    }
    let judged = skips::judge(known, log, tally.failed > 0);
    tally.failed += judged.len();
    tally
        .against
        .extend(judged.iter().map(|what| format!("not ok {part}: {what}")));
    tally
}

fn is_tap(line: &str) -> bool {
    line.starts_with("ok ")
        || line.starts_with("not ok ")
        || line
            .strip_prefix("1..")
            .is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
}

/// Adds cargo's own summaries up. A test that says it was skipped has passed for cargo.
fn of_cargo(log: &str) -> Tally {
    let mut tally = Tally::default();
    for line in log.lines().filter(|line| line.starts_with("test result: ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let n = pair[0].parse().unwrap_or(0);
            match pair[1].trim_end_matches(';') {
                "passed" => tally.passed += n,
                "failed" => tally.failed += n,
                "ignored" => tally.skipped += n,
                _ => {}
            }
        }
    }
    let said = log
        .lines()
        .filter(|l| l.starts_with("skipped: ") && l.contains(" # "))
        .count();
    tally.passed = tally.passed.saturating_sub(said);
    tally.skipped += said;
    tally
}

/// Counts the lines of TAP, which have to be as many as are planned.
fn of_tap(part: &str, log: &str) -> Tally {
    let mut tally = Tally::default();
    let (mut plan, mut said) = (0, 0);
    for line in log.lines() {
        if line.starts_with("ok ") {
            said += 1;
            if line.contains("# SKIP") {
                tally.skipped += 1;
            } else {
                tally.passed += 1;
            }
        } else if line.starts_with("not ok ") {
            said += 1;
            tally.failed += 1;
            tally.broken.push(line.to_owned());
        } else if let Some(rest) = line.strip_prefix("1..").filter(|_| is_tap(line)) {
            let digits = rest
                .split(|c: char| !c.is_ascii_digit())
                .next()
                .unwrap_or("");
            plan += digits.parse::<usize>().unwrap_or(0);
            // A program that planned nothing ran nothing.
            if rest == "0" || rest.starts_with("0 ") {
                tally.skipped += 1;
            }
        }
    }
    if plan != said {
        tally.failed += 1;
        tally.against.push(format!(
            "not ok {part}: {said} tests reported, but {plan} planned"
        ));
    }
    tally
}

/// Says why a part failed: its tests that did, each with what it said last as it ran, and the first lines it said of
/// its end, or else the part's last lines.
pub fn why(part: &str, log: &str) -> String {
    const TESTS: usize = 40;
    const OF_EACH: usize = 12;
    const AS_IT_RAN: usize = 6;
    let mut lines = Vec::new();
    let mut left = 0;
    // What the test has said that has not ended yet.
    let mut said = VecDeque::new();
    for line in log.lines() {
        if line.starts_with("not ok ") {
            lines.push(format!("{part}: {line}"));
            lines.extend(said.drain(..).map(str::to_owned));
            left = OF_EACH;
        } else if line.trim_start_matches(' ').starts_with('#') {
            if left > 0 {
                lines.push(line.to_owned());
                left -= 1;
            } else {
                said.push_back(line);
                if said.len() > AS_IT_RAN {
                    said.pop_front();
                }
            }
        } else {
            left = 0;
            if line.starts_with("ok ") {
                said.clear();
            }
        }
    }
    lines.truncate(TESTS);
    if lines.is_empty() {
        lines.push(format!("{part}: the end of its log:"));
        lines.extend(last_lines(log, OF_EACH).map(str::to_owned));
    }
    lines
        .iter()
        .map(|line| line.chars().take(300).collect::<String>() + "\n")
        .collect()
}

/// The last lines of a text, at most `n`.
pub fn last_lines(text: &str, n: usize) -> impl Iterator<Item = &str> {
    text.lines().skip(text.lines().count().saturating_sub(n))
}

/// The seed that a log names, if it names one alone.
pub fn seed(log: &str) -> Option<&str> {
    let mut seeds = log.lines().filter_map(|line| {
        let rest = line.strip_prefix("# seed ")?;
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        (end > 0).then(|| &rest[..end])
    });
    let first = seeds.next()?;
    seeds.all(|other| other == first).then_some(first)
}

#[cfg(test)]
#[path = "count/tests.rs"]
mod tests;
