// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What came of the parts, for people and for programs: JUnit, TAP, and where the time went.

use crate::count::Tally;
use crate::log::{self, Became, Test};
use std::fmt::Write as _;
use std::time::Duration;

/// What came of a part.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What `ONLY` calls the part.
    pub part: String,
    /// How many of its tests passed, failed and were skipped.
    pub tally: Tally,
    /// The tests that its log names.
    pub tests: Vec<Test>,
    /// How long it ran.
    pub took: Duration,
    /// When it passed, if it did not run now.
    pub recalled: Option<String>,
    /// Why the whole part was skipped.
    pub skipped: Option<String>,
    /// What failed in the tests' own words, and the command that runs the part again.
    pub digest: String,
    /// Where the time of its VMs went.
    pub times: Times,
}

impl Outcome {
    /// Takes the tests from a part's log.
    pub fn new(part: &str, tally: Tally, log: &str, took: Duration) -> Outcome {
        Outcome {
            part: part.to_owned(),
            tally,
            tests: log::tests_in(log),
            took,
            recalled: None,
            skipped: None,
            digest: String::new(),
            times: Times::default(),
        }
    }

    /// Says whether nothing of it failed.
    pub fn passed(&self) -> bool {
        self.tally.failed == 0
    }

    /// The tests of the part, and it itself where it is more, or less, than its tests.
    fn cases(&self) -> Vec<Test> {
        let mut cases = self.tests.clone();
        let part = |became| Test {
            name: "(the part)".to_owned(),
            became,
            seconds: None,
        };
        let failed = cases
            .iter()
            .filter(|c| matches!(c.became, Became::Failed(_)))
            .count();
        if self.tally.failed > failed {
            cases.push(part(Became::Failed(self.digest.clone())));
        } else if let Some(why) = &self.skipped {
            cases.push(part(Became::Skipped(why.clone())));
        } else if cases.is_empty() {
            cases.push(part(Became::Passed));
        }
        cases
    }
}

/// Adds the counts of parts up.
pub fn sum(outcomes: &[Outcome]) -> Tally {
    let mut sum = Tally::default();
    for Outcome { tally, .. } in outcomes {
        sum.passed += tally.passed;
        sum.failed += tally.failed;
        sum.skipped += tally.skipped;
    }
    sum
}

/// Writes all tests as JUnit's XML, a suite for each part.
pub fn junit(outcomes: &[Outcome]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for outcome in outcomes {
        let cases = outcome.cases();
        let failed = cases
            .iter()
            .filter(|c| matches!(c.became, Became::Failed(_)))
            .count();
        let skipped = cases
            .iter()
            .filter(|c| matches!(c.became, Became::Skipped(_)))
            .count();
        let part = escaped(&outcome.part);
        let _ = writeln!(
            xml,
            "<testsuite name=\"{part}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\" time=\"{:.3}\">",
            cases.len(),
            outcome.took.as_secs_f64()
        );
        for case in cases {
            let name = escaped(&case.name);
            let _ = write!(xml, "<testcase classname=\"{part}\" name=\"{name}\"");
            if let Some(seconds) = case.seconds {
                let _ = write!(xml, " time=\"{seconds}\"");
            }
            let _ = match case.became {
                Became::Passed => writeln!(xml, "/>"),
                Became::Failed(said) => {
                    writeln!(xml, "><failure>{}</failure></testcase>", escaped(&said))
                }
                Became::Skipped(why) => {
                    writeln!(xml, "><skipped message=\"{}\"/></testcase>", escaped(&why))
                }
            };
        }
        xml.push_str("</testsuite>\n");
    }
    xml + "</testsuites>\n"
}

/// Writes a text so that XML takes it as it is; what XML cannot hold becomes a question mark.
fn escaped(text: &str) -> String {
    let mut done = String::new();
    for c in text.chars() {
        match c {
            '<' => done.push_str("&lt;"),
            '>' => done.push_str("&gt;"),
            '&' => done.push_str("&amp;"),
            '"' => done.push_str("&quot;"),
            '\n' => done.push_str("&#10;"),
            '\t' => done.push_str("&#9;"),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => done.push('?'),
            other => done.push(other),
        }
    }
    done
}

/// Writes all tests as one program's TAP.
pub fn tap(outcomes: &[Outcome]) -> String {
    let mut lines = String::new();
    let mut n = 0;
    for outcome in outcomes {
        for case in outcome.cases() {
            n += 1;
            let name = format!("{}: {}", outcome.part, case.name).replace('#', "\\#");
            let _ = match case.became {
                Became::Passed => writeln!(lines, "ok {n} - {name}"),
                Became::Skipped(why) => writeln!(lines, "ok {n} - {name} # SKIP {why}"),
                Became::Failed(said) => {
                    let said: String = said.lines().map(|l| format!("# {l}\n")).collect();
                    write!(lines, "not ok {n} - {name}\n{said}")
                }
            };
        }
    }
    format!("TAP version 14\n1..{n}\n{lines}")
}

/// Where the time of a part's VMs went, in seconds, as `scripts/vm.sh` says: added up over its VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// How many VMs there were.
    pub vms: usize,
    /// Finding or building the kernel and the modules.
    pub build: f64,
    /// From QEMU's start to the first command in the guest.
    pub boot: f64,
    /// Loading the modules in the guest.
    pub load: f64,
    /// The command: the tests.
    pub tests: f64,
    /// Unloading the modules, and the end of the guest.
    pub down: f64,
}

/// Reads the lines "build S boot S load S tests S down S" that `scripts/vm.sh` writes, one for each VM.
pub fn times(text: &str) -> Times {
    let mut times = Times::default();
    for line in text.lines() {
        times.vms += 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.chunks_exact(2) {
            let seconds: f64 = pair[1].parse().unwrap_or(0.0);
            match pair[0] {
                "build" => times.build += seconds,
                "boot" => times.boot += seconds,
                "load" => times.load += seconds,
                "tests" => times.tests += seconds,
                "down" => times.down += seconds,
                _ => {}
            }
        }
    }
    times
}

/// Where the time went, lane by lane; nothing if no VM was booted.
pub fn time_table(outcomes: &[Outcome]) -> String {
    let booted = |o: &&Outcome| o.times.vms > 0 && o.recalled.is_none();
    let lanes: Vec<&Outcome> = outcomes.iter().filter(booted).collect();
    if lanes.is_empty() {
        return String::new();
    }
    let head = ["VMs", "all", "build", "boot", "load", "tests", "down"];
    let mut table = format!("{:<34}", "seconds of a lane");
    for name in head {
        let _ = write!(table, " {name:>6}");
    }
    table.push('\n');
    let mut all = (Duration::ZERO, Times::default());
    for lane in lanes {
        table += &row(&lane.part, lane.took, &lane.times);
        let (t, sum) = (&lane.times, &mut all.1);
        all.0 += lane.took;
        sum.vms += t.vms;
        sum.build += t.build;
        sum.boot += t.boot;
        sum.load += t.load;
        sum.tests += t.tests;
        sum.down += t.down;
    }
    table + &row("all lanes", all.0, &all.1)
}

fn row(name: &str, took: Duration, t: &Times) -> String {
    format!(
        "{name:<34} {:>6} {:>6.0} {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>6.1}\n",
        t.vms,
        took.as_secs_f64(),
        t.build,
        t.boot,
        t.load,
        t.tests,
        t.down
    )
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
