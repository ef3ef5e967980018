// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What comes of a part that has ended, and of the whole run: counts, failures in their own words, and reports.

use super::{read, Run};
use crate::count::{self, Tally};
use crate::memory::keep_failure;
use crate::part::Part;
use crate::report::{self, Outcome};
use crate::skips::Known;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

impl Run<'_> {
    /// Adds up what the log of a part says, and prints it; says whether it passed.
    pub(super) fn count(
        &mut self,
        part: &Part,
        known: &[Known],
        succeeded: bool,
        took: Duration,
        recalled: Option<String>,
    ) -> bool {
        let name = &part.name;
        let path = self.log_of(part);
        let tally = count::tally(name, succeeded, &read(&path), known);
        for line in &tally.broken {
            self.screen.print(&format!("{name}: {line}"));
        }
        for line in &tally.against {
            self.screen.print(line);
        }
        // What the list of skips says against it belongs to its log.
        let against: String = tally
            .against
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        let _ = File::options()
            .append(true)
            .open(&path)
            .and_then(|mut f| f.write_all(against.as_bytes()));
        let log = read(&path);
        let mut outcome = Outcome::new(name, tally.clone(), &log, took);
        outcome.recalled = recalled;
        outcome.times = report::times(&read(&path.with_extension("times")));
        if tally.failed > 0 {
            self.failure(&mut outcome, &path, &log);
        }
        self.unpassed.note(name, tally.failed == 0);
        let Tally {
            passed,
            failed,
            skipped,
            ..
        } = tally;
        self.screen.print(&format!(
            "{name:<34} {passed:5} passed {failed:3} failed {skipped:3} skipped"
        ));
        self.outcomes.push(outcome);
        failed == 0
    }

    /// Shows the end of a log, and keeps it together with its cause and its command.
    fn failure(&mut self, outcome: &mut Outcome, path: &Path, log: &str) {
        let name = &outcome.part;
        let again = self.again(name, log);
        outcome.digest = format!("{}again: {again}\n", count::why(name, log));
        self.screen
            .print(&format!("--- the end of out/test/{name}.log:"));
        for line in count::last_lines(log, 30) {
            self.screen.print(line);
        }
        self.screen.print(&format!("--- again: {again}"));
        if let Err(error) = keep_failure(self.setting, name, path) {
            self.screen.print(&format!(
                "{name}: its log is not kept in the cache: {error}"
            ));
        }
    }

    /// The command that runs a part once more, with the options of this run and with the seed that the
    /// log names. hazards prints the seed of its fuzzing, and takes none.
    fn again(&self, part: &str, log: &str) -> String {
        let target = match self.wish.target.as_str() {
            target @ ("host" | "extra" | "debug" | "versions") => format!("test-{target}"),
            _ => "test".to_owned(),
        };
        let mut command = format!(
            "make {target} ONLY='^{part}$' FRESH=1{}",
            self.setting.given()
        );
        let seed = count::seed(log).filter(|_| self.setting.get("SEED").is_none());
        if let Some(seed) = seed.filter(|_| !part.contains("hazards")) {
            command += &format!(" SEED={seed}");
        }
        command
    }

    /// Notes that a part cannot run here, which the list has to allow.
    pub(super) fn skip(&mut self, part: &Part, why: &str) {
        let name = &part.name;
        let allowed = |known: &Known| known.times.is_none() && known.pattern == "(the part)";
        let mut tally = Tally {
            skipped: 1,
            ..Tally::default()
        };
        if !self.known(part).iter().any(allowed) {
            tally.failed = 1;
            let what = "skipped, but not on the list tests/skips";
            tally.against.push(format!("not ok {name}: {what}: {why}"));
        }
        self.screen.print(&format!("{name:<34} skipped: {why}"));
        let mut outcome = Outcome::new(name, tally.clone(), "", Duration::ZERO);
        outcome.digest = tally
            .against
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        outcome.skipped = Some(why.to_owned());
        self.unpassed.note(name, tally.failed == 0);
        self.outcomes.push(outcome);
    }

    /// Prints failures once more, where the time went, and the sum; writes the reports.
    pub(super) fn summary(&mut self) -> ExitCode {
        self.screen.clear();
        let table = report::time_table(&self.outcomes);
        if !table.is_empty() {
            self.screen.print(&table);
        }
        if let Some(said) = self
            .wish
            .last_word
            .and_then(|command| self.setting.said(command))
        {
            self.screen.print(&said);
        }
        let reports = [
            ("junit.xml", report::junit(&self.outcomes)),
            ("tests.tap", report::tap(&self.outcomes)),
        ];
        for (name, text) in reports {
            if let Err(error) = std::fs::write(self.out.join(name), text) {
                self.screen.print(&format!("out/test/{name}: {error}"));
            }
        }
        let failed: Vec<&Outcome> = self.outcomes.iter().filter(|o| !o.passed()).collect();
        if !failed.is_empty() {
            let digest: String = failed.iter().map(|o| o.digest.as_str()).collect();
            let names: Vec<&str> = failed.iter().map(|o| o.part.as_str()).collect();
            self.screen.print(&digest);
            self.screen.print(&format!("failed: {}", names.join(" ")));
            let kept = self.setting.cache.join("failed");
            self.screen.print(&format!(
                "their logs are in out/test, and in {}",
                kept.display()
            ));
        }
        let Tally {
            passed,
            failed,
            skipped,
            ..
        } = report::sum(&self.outcomes);
        self.screen.print(&format!(
            "{passed} passed, {failed} failed, {skipped} skipped"
        ));
        if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
