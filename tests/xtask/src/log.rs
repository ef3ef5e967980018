// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The tests that a log names, in TAP and as cargo prints them.

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Became {
    /// The test ran and passed.
    Passed,
    /// The test failed, and said this.
    Failed(String),
    /// The test did not run, for this reason.
    Skipped(String),
}

/// A test that a log names.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Its name, as it is in this run: with seeds, and lines of files.
    pub name: String,
    /// What became of it.
    pub became: Became,
    /// How long it took, where the log says so.
    pub seconds: Option<f64>,
}

/// Collects the tests of a log, in its order.
pub fn tests_in(log: &str) -> Vec<Test> {
    let mut reader = Reader::default();
    for line in log.lines() {
        reader.line(line);
    }
    reader.tests
}

#[derive(Default)]
struct Reader {
    tests: Vec<Test>,
    /// The program whose tests cargo runs, with `::` behind it.
    program: String,
    /// The last test is still without its result, which is on a later line.
    open: bool,
    /// The lines before belong to the last test that failed in TAP.
    says: bool,
    /// Tests that have said they were skipped before cargo names them, and why.
    early: Vec<(String, String)>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let says = std::mem::take(&mut self.says);
        if let Some(program) = program_of(line) {
            self.program = program;
        } else if let Some((ok, rest)) = tap_line(line) {
            self.tap(ok, rest);
        } else if let Some((name, result)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ..."))
        {
            let name = format!("{}{name}", self.program);
            let mut became = cargos(result.trim());
            self.open = became.is_none();
            let early = self.early.iter().find(|(early, _)| *early == name);
            if let (Some(Became::Passed), Some((_, why))) = (&became, early) {
                became = Some(Became::Skipped(why.clone()));
            }
            self.push(name, became.unwrap_or(Became::Passed), None);
        } else if let Some((name, why)) = line
            .strip_prefix("skipped: ")
            .and_then(|rest| rest.rsplit_once(" # "))
        {
            self.skipped(name, why);
        } else if self.open {
            if let Some(became) = cargos(line.trim()) {
                self.open = false;
                self.close(became);
            }
        } else if says && line.trim_start_matches(' ').starts_with('#') {
            if let Some(Test {
                became: Became::Failed(said),
                ..
            }) = self.tests.last_mut()
            {
                said.push_str(line);
                said.push('\n');
            }
            self.says = true;
        }
    }

    fn push(&mut self, name: String, became: Became, seconds: Option<f64>) {
        self.tests.push(Test {
            name,
            became,
            seconds,
        });
    }

    /// Takes what is behind "ok N" or "not ok N".
    fn tap(&mut self, ok: bool, rest: &str) {
        let rest = rest.trim_start_matches(' ');
        let rest = rest.strip_prefix("- ").unwrap_or(rest);
        let (name, directive) = rest.split_once("# ").unwrap_or((rest, ""));
        let directive = directive.trim();
        let became = if !ok {
            self.says = true;
            Became::Failed(String::new())
        } else if let Some((_, why)) = rest.rsplit_once("# SKIP") {
            Became::Skipped(why.trim().to_owned())
        } else {
            Became::Passed
        };
        let seconds = directive.strip_suffix(" s").and_then(|n| n.parse().ok());
        self.push(name.trim_end().to_owned(), became, seconds);
    }

    /// A test of cargo's says that it was skipped: the open one, or one of that name.
    fn skipped(&mut self, name: &str, why: &str) {
        let became = Became::Skipped(why.to_owned());
        let named = format!("{}{name}", self.program);
        if self.open {
            self.close(became);
        } else if let Some(test) = self.tests.iter_mut().rev().find(|test| test.name == named) {
            test.became = became;
        } else {
            self.early.push((named, why.to_owned()));
        }
    }

    /// Sets the result of the last test, unless it has said already that it was skipped.
    fn close(&mut self, became: Became) {
        if let Some(test) = self.tests.last_mut() {
            if !matches!(
                (&test.became, &became),
                (Became::Skipped(_), Became::Passed)
            ) {
                test.became = became;
            }
        }
    }
}

/// What cargo's word for a result means; nothing if the line has none yet.
fn cargos(result: &str) -> Option<Became> {
    if result == "ok" {
        Some(Became::Passed)
    } else if result.starts_with("FAILED") {
        Some(Became::Failed(String::new()))
    } else {
        let why = result.strip_prefix("ignored")?;
        Some(Became::Skipped(
            why.trim_start_matches(',').trim().to_owned(),
        ))
    }
}

/// Splits "ok N…" and "not ok N…" at the end of the number.
fn tap_line(line: &str) -> Option<(bool, &str)> {
    let (ok, rest) = match line.strip_prefix("not ") {
        Some(rest) => (false, rest),
        None => (true, line),
    };
    let rest = rest.strip_prefix("ok ")?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    (end > 0).then(|| (ok, &rest[end..]))
}

/// The program that cargo says it runs, with `::` behind it and without the build's hash.
fn program_of(line: &str) -> Option<String> {
    let rest = line.strip_prefix(' ')?.trim_start_matches(' ');
    if let Some(name) = rest.strip_prefix("Doc-tests ") {
        return Some(format!(
            "{} (documentation)::",
            name.split_whitespace().next()?
        ));
    }
    let path = rest
        .strip_prefix("Running ")?
        .strip_suffix(')')?
        .rsplit('(')
        .next()?;
    let file = path.rsplit('/').next()?;
    let name = match file.rsplit_once('-') {
        Some((name, hash)) if hash.chars().all(|c| c.is_ascii_hexdigit()) => name,
        _ => file,
    };
    Some(format!("{name}::"))
}

/// A line that shows a test going by: "ok N…" or "not ok N…", perhaps as part of another.
pub fn goes_by(line: &str) -> bool {
    tap_line(line.trim_start_matches(' ')).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(log: &str) -> Vec<(String, Became)> {
        tests_in(log)
            .into_iter()
            .map(|test| (test.name, test.became))
            .collect()
    }

    fn skipped(why: &str) -> Became {
        Became::Skipped(why.to_owned())
    }

    #[test]
    fn tap_has_names_results_times_and_what_a_failure_said() {
        let log = "TAP version 14\nok 1 - a: b # 1.2 s\nnot ok 2 - c # 0.1 s\n# why\n  # more\nx\n# not\nok 3 d #4 # SKIP no HMM\n1..3";
        let tests = tests_in(log);
        assert_eq!(tests[0].seconds, Some(1.2));
        assert_eq!(tests[2].seconds, None);
        let failed = Became::Failed("# why\n  # more\n".to_owned());
        let want = [
            ("a: b", Became::Passed),
            ("c", failed),
            ("d #4", skipped("no HMM")),
        ];
        let want: Vec<_> = want.into_iter().map(|(n, b)| (n.to_owned(), b)).collect();
        assert_eq!(named(log), want);
    }

    #[test]
    fn cargos_tests_have_their_program() {
        let log =
            "     Running unittests src/main.rs (target/debug/deps/uvm_bench-38f33bf755df3178)
test a ... ok
test b ... FAILED
test c ... ignored, too slow
   Doc-tests uvmrust
test x.rs - Uvm::new (line 40) ... ok
test result: ok. 1 passed";
        let want = [
            ("uvm_bench::a", Became::Passed),
            ("uvm_bench::b", Became::Failed(String::new())),
            ("uvm_bench::c", skipped("too slow")),
            (
                "uvmrust (documentation)::x.rs - Uvm::new (line 40)",
                Became::Passed,
            ),
        ];
        let want: Vec<_> = want.into_iter().map(|(n, b)| (n.to_owned(), b)).collect();
        assert_eq!(named(log), want);
    }

    #[test]
    fn a_result_may_be_on_a_later_line() {
        let log = "test a ... \nskipped: a # no compiler\nok\ntest b ... \nnoise\nFAILED\ntest c ... \nok";
        let want = [
            ("a", skipped("no compiler")),
            ("b", Became::Failed(String::new())),
            ("c", Became::Passed),
        ];
        let want: Vec<_> = want.into_iter().map(|(n, b)| (n.to_owned(), b)).collect();
        assert_eq!(named(log), want);
    }

    #[test]
    fn a_test_may_say_that_it_is_skipped_before_or_after_its_line() {
        let log = "skipped: a # no device\ntest a ... ok\ntest b ... ok\nskipped: b # no make\ntest c ... ok";
        let want = [
            ("a", skipped("no device")),
            ("b", skipped("no make")),
            ("c", Became::Passed),
        ];
        let want: Vec<_> = want.into_iter().map(|(n, b)| (n.to_owned(), b)).collect();
        assert_eq!(named(log), want);
    }

    #[test]
    fn what_goes_by_is_a_test_with_a_number() {
        for line in ["ok 1 - a", "not ok 2", "    ok 3 b"] {
            assert!(goes_by(line), "{line}");
        }
        for line in ["ok then", "okay 1", "# ok 1", "1..3", "not so ok 1"] {
            assert!(!goes_by(line), "{line}");
        }
    }
}
