// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a user sees while one long computation runs.

use std::time::Duration;

use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;

/// How often the line is drawn again.
const TICK: Duration = Duration::from_millis(200);

/// Runs `work`, and meanwhile shows its name (or the text it sets) and the elapsed time on
/// standard error, if that is a terminal.
pub fn during<T>(what: &str, work: impl FnOnce(&ProgressBar) -> T) -> T {
    during_on(ProgressDrawTarget::stderr(), what, work)
}

/// The same on any terminal.
fn during_on<T>(
    terminal: ProgressDrawTarget,
    what: &str,
    work: impl FnOnce(&ProgressBar) -> T,
) -> T {
    let line = ProgressBar::with_draw_target(None, terminal);
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
    line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    line.set_message(what.to_string());
    line.enable_steady_tick(TICK);
    let done = work(&line);
    line.finish_and_clear();
    done
}

/// A line on standard error, if that is a terminal, for `count` of `what`, of which several run at a
/// time: how many are done, for how long they have run, and the message, which of them it is that
/// began or ended last. The caller counts and clears it.
pub fn of(count: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(count as u64);
    let template = format!("{{bar:24}} {{pos}}/{{len}} {what}, {{elapsed}} {{wide_msg}}");
    let style = ProgressStyle::with_template(&template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(TICK);
    bar
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use indicatif::InMemoryTerm;

    use super::*;

    /// The work itself says nothing: its name and its time are shown, and the time goes on.
    #[test]
    fn a_long_work_is_named_and_its_time_goes_on() {
        let screen = InMemoryTerm::new(4, 80);
        let terminal = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let start = Instant::now();
        let seen = during_on(terminal, "most: planning", |_| {
            while start.elapsed() < Duration::from_secs(30) {
                // A busy machine may leave a second out.
                let times = ["1s", "2s", "3s"].map(|time| format!("most: planning, {time}"));
                if times.iter().any(|line| screen.contents().contains(line)) {
                    return true;
                }
                std::thread::sleep(TICK);
            }
            false
        });
        assert!(seen, "after 30 s: {screen:?}");
    }

    /// What the work says of itself takes the place of its name.
    #[test]
    fn a_long_work_says_how_far_it_is() {
        let screen = InMemoryTerm::new(4, 80);
        let terminal = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let seen = during_on(terminal, "best: planning", |line| {
            line.set_message("best: 3 runs");
            line.tick();
            screen.contents().contains("best: 3 runs")
        });
        assert!(seen, "{screen:?}");
    }
}
