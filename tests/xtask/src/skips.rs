// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The list `tests/skips`: what a part may skip and what it must.
//!
//! A skip that is not on the list fails its part, and so does a line whose test no longer skips. So the
//! list can only become shorter unseen. With `NO_SKIPS=1` nothing may be skipped for want of what can be
//! installed, which is what the lines with a plus are about.

use crate::glob;
use crate::setting::Setting;

/// A line of the list that is about a part and whose condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// How often this has to be skipped; nothing if it only may be.
    pub times: Option<usize>,
    /// The pattern of a test's name; of its reason, with `# ` in front.
    pub pattern: String,
}

impl Known {
    /// Says whether the line is about this skip.
    fn is_of(&self, skip: &Skip) -> bool {
        match self.pattern.strip_prefix("# ") {
            Some(pattern) => glob::matches(pattern, &skip.reason),
            None => glob::matches(&self.pattern, &skip.name),
        }
    }
}

/// A test that a log says was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The test, or "(a whole program)".
    pub name: String,
    /// Why it was skipped, in the test's words.
    pub reason: String,
}

/// Picks the lines of the list that are about a part and hold with these options.
///
/// `length` is what the list calls `LENGTH`: "short" in `make test`, "long" in the others.
pub fn known(list: &str, part: &str, setting: &Setting, length: &str) -> Vec<Known> {
    let mut known = Vec::new();
    for line in list.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (pattern, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (must, pattern) = match pattern.strip_prefix(['?', '+']) {
            Some(_) if pattern.starts_with('+') && setting.get("NO_SKIPS") == Some("1") => continue,
            Some(rest) => (false, rest),
            None => (true, pattern),
        };
        let pattern = match pattern.split_once(':') {
            Some((condition, _)) if !holds(condition, setting, length) => continue,
            Some((_, rest)) => rest,
            None => pattern,
        };
        if glob::matches(pattern, part) {
            let (times, name) = counted(name.trim());
            known.push(Known {
                times: must.then_some(times),
                pattern: name.to_owned(),
            });
        }
    }
    known
}

/// Takes the "Nx " off a name: how many tests the line stands for.
fn counted(name: &str) -> (usize, &str) {
    if let Some((times, rest)) = name.split_once("x ") {
        if let Ok(times) = times.parse() {
            return (times, rest);
        }
    }
    (1, name)
}

/// Says whether all of "VAR=VALUE,VAR!=VALUE" hold. An option that is not set is as `make help` says.
fn holds(conditions: &str, setting: &Setting, length: &str) -> bool {
    conditions.split(',').all(|condition| {
        let (name, wanted) = condition.split_once('=').unwrap_or((condition, ""));
        let (name, equal) = match name.strip_suffix('!') {
            Some(name) => (name, false),
            None => (name, true),
        };
        let value = match name {
            "GPU" => setting.or("GPU", "turing"),
            "GPUS" => setting.or("GPUS", "1"),
            "KERNEL" => setting.or("KERNEL", "release"),
            // A release may be named whole: 580.142 is 580.
            "BASE" => {
                let base = setting.or("UVM_VERSION", "550");
                base.split_once('.').map_or(base, |(branch, _)| branch)
            }
            "LENGTH" => length,
            other => setting.or(other, ""),
        };
        (value == wanted) == equal
    })
}

/// Collects what a log says was skipped: in TAP, as a plan of no tests, by cargo, or by a test itself.
pub fn skips_in(log: &str) -> Vec<Skip> {
    log.lines().filter_map(skip_of).collect()
}

fn skip_of(line: &str) -> Option<Skip> {
    let skip = |name: &str, reason: &str| Skip {
        name: name.to_owned(),
        reason: reason.to_owned(),
    };
    if let Some(rest) = line.strip_prefix("ok ") {
        let after = rest
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .strip_prefix(' ')?;
        let (name, reason) = after.rsplit_once("# SKIP")?;
        let name = name.strip_prefix("- ").unwrap_or(name);
        return (after.len() < rest.len() - 1).then(|| skip(name.trim_end(), reason.trim_start()));
    }
    if let Some(rest) = line.strip_prefix("1..0") {
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let reason = rest.strip_prefix(" # SKIP").unwrap_or(rest);
        return Some(skip("(a whole program)", reason.trim_start()));
    }
    if let Some(rest) = line.strip_prefix("test ") {
        let (name, reason) = rest.rsplit_once(" ... ignored")?;
        return Some(skip(name, reason.trim_start_matches(',').trim_start()));
    }
    let (name, reason) = line.strip_prefix("skipped: ")?.rsplit_once(" # ")?;
    Some(skip(name, reason))
}

/// What the list says against a log, in words; nothing if all is as it is known.
///
/// `failed` says that the part has failed already and may not have come so far as to skip.
pub fn judge(known: &[Known], log: &str, failed: bool) -> Vec<String> {
    let mut seen = vec![0; known.len()];
    let mut against = Vec::new();
    for skip in skips_in(log) {
        let mut found = false;
        for (line, seen) in known.iter().zip(&mut seen) {
            if line.is_of(&skip) {
                found = true;
                *seen += 1;
            }
        }
        if !found {
            against.push(format!(
                "skipped, but not on the list tests/skips: {}",
                skip.name
            ));
        }
    }
    if failed || !against.is_empty() {
        return against;
    }
    for (line, seen) in known.iter().zip(seen) {
        let Some(times) = line.times.filter(|&times| times != seen) else {
            continue;
        };
        let name = &line.pattern;
        let what = "on the list tests/skips, but not skipped any more";
        against.push(format!("{what} ({seen} of {times}): {name}"));
    }
    against
}
