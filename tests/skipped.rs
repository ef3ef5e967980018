// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a test of cargo's says if it can do nothing here, for what it needs is absent.

use std::io::Write;
use std::panic::Location;

/// Says that the test which calls this is skipped, and why: a line that
/// `tests/xtask` counts and looks for in `tests/skips`.
///
/// To cargo such a test has passed, and what a test prints is shown only if it fails; but
/// only what the macros print is held back, not what is written straight to the output.
#[track_caller]
pub fn skipped(why: &str) {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let place = Location::caller();
    let thread = std::thread::current();
    // With one test at a time there are no threads named after tests.
    let name = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", place.file(), place.line()),
    };
    // The harness may be in the middle of a line, as it is with one test at a time.
    let line = format!("\nskipped: {name} # {why}\n");
    let mut out = std::io::stdout();
    let said = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    assert!(said.is_ok(), "{line}");
}
