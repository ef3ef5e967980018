// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a user sees while one long computation runs.

use std::time::Duration;

use indicatif::ProgressBar;
use indicatif::ProgressStyle;

/// How often the line is drawn again.
const TICK: Duration = Duration::from_millis(200);

/// Does `work`, which nothing can be told of but its name and for how long it has run:
/// both stand on standard error until it is done, if that is a terminal.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let line = ProgressBar::new_spinner();
    line.set_style(
        ProgressStyle::with_template("{spinner} {msg}, {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    line.set_message(what.to_string());
    line.enable_steady_tick(TICK);
    let done = work();
    line.finish_and_clear();
    done
}
