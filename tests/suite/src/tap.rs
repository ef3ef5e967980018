// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The Test Anything Protocol, and a look at the kernel's log after each test.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use crate::leaks;
use crate::log::{Allowed, KernelLog};

/// How a test passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The test ran to its end.
    Ok,
    /// It could not run, and this is why.
    Skip(String),
}

/// Why a test failed.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Why the test failed, for people to read.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<vgpu_client::Error> for Failure {
    fn from(error: vgpu_client::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// What a test gives.
pub type Outcome = Result<Pass, Failure>;

/// A run of tests.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    log: Option<KernelLog>,
    filter: Option<String>,
    passed: u32,
    failed: u32,
    skipped: u32,
    started: Instant,
}

impl Suite {
    /// Starts a run, which runs only tests whose name holds `filter`.
    pub fn new(name: &'static str, filter: Option<String>) -> Self {
        let suite = Self::with_log(name, filter, KernelLog::open());
        leaks::remember();
        suite
    }

    pub(crate) fn with_log(
        name: &'static str,
        filter: Option<String>,
        log: std::io::Result<KernelLog>,
    ) -> Self {
        println!("TAP version 14");
        let started = Instant::now();
        let (log, unreadable) = match log {
            Ok(log) => (Some(log), None),
            Err(why) => (None, Some(why)),
        };
        let mut suite = Self {
            name,
            log,
            filter,
            passed: 0,
            failed: 0,
            skipped: 0,
            started,
        };
        // Without it a test could not fail by what the kernel says, and every run can have
        // it: the VM's user is root.
        if let Some(why) = unreadable {
            let failure = Failure(format!("/dev/kmsg: {why}; run as root"));
            suite.report("the kernel's log can be read", started, Err(failure));
        }
        suite
    }

    /// Runs a test. Lines in the kernel log that look bad fail it, save those
    /// `allowed`. Gives true if it did not fail.
    pub fn test(
        &mut self,
        name: &str,
        allowed: &[Allowed],
        test: impl FnOnce() -> Outcome,
    ) -> bool {
        if self
            .filter
            .as_ref()
            .is_some_and(|filter| !name.contains(filter.as_str()))
        {
            return true;
        }
        let start = Instant::now();
        let mut outcome = test();
        if let Some(log) = &mut self.log {
            let bad = log.bad_lines(allowed);
            if !bad.is_empty() {
                let before = outcome.err().map(|f| f.0 + "\n").unwrap_or_default();
                outcome = Err(Failure(format!(
                    "{before}the kernel log says:\n{}",
                    bad.join("\n")
                )));
            }
        }
        self.report(name, start, outcome)
    }

    fn report(&mut self, name: &str, start: Instant, outcome: Outcome) -> bool {
        let number = self.passed + self.failed + self.skipped + 1;
        let suite = self.name;
        let seconds = start.elapsed().as_secs_f32();
        let ok = outcome.is_ok();
        match outcome {
            Ok(Pass::Ok) => {
                self.passed += 1;
                println!("ok {number} - {suite}: {name} # {seconds:.1} s");
            }
            Ok(Pass::Skip(why)) => {
                self.skipped += 1;
                println!("ok {number} - {suite}: {name} # SKIP {why}");
            }
            Err(Failure(why)) => {
                self.failed += 1;
                println!("not ok {number} - {suite}: {name} # {seconds:.1} s");
                say(&why);
            }
        }
        let _ = std::io::stdout().flush();
        ok
    }

    #[cfg(test)]
    pub(crate) fn totals(&self) -> (u32, u32, u32) {
        (self.passed, self.failed, self.skipped)
    }

    /// Ends the run: the plan and the totals.
    pub fn finish(self) -> ExitCode {
        let Self {
            passed,
            failed,
            skipped,
            ..
        } = self;
        println!("1..{}", passed + failed + skipped);
        println!(
            "# {}: {:.0} s",
            self.name,
            self.started.elapsed().as_secs_f32()
        );
        println!("# {passed} passed, {failed} failed, {skipped} skipped");
        if failed > 0 || passed == 0 {
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

/// Prints what explains a result, as comments of TAP below it.
pub fn say(text: &str) {
    text.lines().for_each(|line| println!("#   {line}"));
}
