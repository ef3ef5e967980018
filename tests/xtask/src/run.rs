// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Runs parts, some of them beside each other, and adds them up.
//!
//! One thread looks after everything: a few times a second it prints what the logs have got since,
//! counts what has ended, and starts what comes next.

mod ending;

use crate::count::Tally;
use crate::follow::Follower;
use crate::log;
use crate::memory::{Passed, Unpassed};
use crate::part::{How, Part};
use crate::process;
use crate::report::{self, Outcome};
use crate::screen::Screen;
use crate::setting::Setting;
use crate::skips::{self, Known};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the logs are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long who is told to end may take, before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Finds the key for all that goes into a lane; nothing if nobody knows that.
pub type Keys<'a> = Box<dyn Fn(&Part, &[Known]) -> Option<String> + 'a>;

/// What a run is asked to do.
pub struct Wish {
    /// The name of the target: "host", "vm", "all" and so on.
    pub target: String,
    /// What passed before runs again, too.
    pub fresh: bool,
    /// What `tests/skips` calls `LENGTH`.
    pub length: &'static str,
    /// A command whose output comes before the sum.
    pub last_word: Option<&'static [&'static str]>,
    /// The part that builds the programs which run in the VM, once before the first lane.
    pub programs: Part,
}

/// Whether the programs that lanes run are built. A lane is remembered by its sources, so the programs
/// must be what these make.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Programs {
    Unknown,
    Built,
    Broken,
}

/// A part whose command runs now.
struct Running {
    part: Part,
    known: Vec<Known>,
    key: Option<String>,
    child: Child,
    log: Follower,
    begun: Instant,
}

/// A run of some parts: what goes on now and what has come of the others.
pub struct Run<'a> {
    setting: &'a Setting,
    wish: Wish,
    out: PathBuf,
    list: String,
    keys: Keys<'a>,
    screen: Screen,
    passed: Passed,
    unpassed: Unpassed,
    stop: Arc<AtomicBool>,
    running: Vec<Running>,
    programs: Programs,
    lanes: Vec<Part>,
    /// The lanes' keys before the programs were built: these are what the programs are built from.
    built_from: HashMap<String, String>,
    outcomes: Vec<Outcome>,
    begun: Instant,
}

/// The run ends because somebody wants it to.
pub struct Stopped;

impl<'a> Run<'a> {
    /// Prepares a run, whose logs go below `out`.
    ///
    /// # Errors
    ///
    /// Fails if the folders for logs and for what passed cannot be made.
    pub fn new(
        setting: &'a Setting,
        wish: Wish,
        keys: Keys<'a>,
        screen: Screen,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Run<'a>> {
        let out = setting.top.join("out/test");
        std::fs::create_dir_all(&out)?;
        Ok(Run {
            setting,
            wish,
            list: std::fs::read_to_string(setting.top.join("tests/skips"))?,
            keys,
            screen,
            passed: Passed::open(setting)?,
            unpassed: Unpassed::open(out.join("unpassed")),
            out,
            stop,
            running: Vec::new(),
            programs: Programs::Unknown,
            lanes: Vec::new(),
            built_from: HashMap::new(),
            outcomes: Vec::new(),
            begun: Instant::now(),
        })
    }

    /// Runs the parts one after the other, lanes beside each other, and says what came of them.
    pub fn all(&mut self, parts: &[Part]) -> ExitCode {
        // Who stops this run is not to find an earlier run's reports.
        for name in ["junit.xml", "tests.tap"] {
            let _ = std::fs::remove_file(self.out.join(name));
        }
        let lanes = parts.iter().filter(|part| part.how == How::Lane);
        self.lanes = lanes.cloned().collect();
        let done = parts
            .iter()
            .try_for_each(|part| self.begin(part))
            .and_then(|()| self.fewer(1));
        if done.is_err() {
            return self.interrupted();
        }
        self.summary()
    }

    /// Takes a log of a lane's command that ran elsewhere, with success, for one of its own.
    pub fn ran_elsewhere(&mut self, part: &Part, log: &str) {
        let known = self.known(part);
        let path = self.log_of(part);
        if write_log(&path, log).is_err() {
            return;
        }
        let key = (self.keys)(part, &known);
        let passed = self.count(part, &known, true, Duration::ZERO, None);
        if let Some(key) = key.filter(|_| passed && log.lines().any(|l| l.starts_with("ok "))) {
            let _ = self.passed.remember(&key, &path);
        }
    }

    /// Begins a part, and where it runs alone waits for its end.
    fn begin(&mut self, part: &Part) -> Result<(), Stopped> {
        self.stopped()?;
        if let Some(why) = part
            .skipped
            .clone()
            .or_else(|| part.lacks.and_then(|f| f(self.setting)))
        {
            self.skip(part, &why);
            return Ok(());
        }
        if self.recalled(part) {
            return Ok(());
        }
        match part.how {
            How::Alone => {
                self.alone(part)?;
            }
            How::Beside => {
                self.fewer(self.setting.lanes())?;
                let key = self.key(part);
                self.start(part, key);
            }
            How::Lane => self.lane(part)?,
        }
        Ok(())
    }

    /// The key for all that goes into a part, if its passing is remembered.
    fn key(&self, part: &Part) -> Option<String> {
        (self.keys)(part, &self.known(part))
    }

    /// Shows the log of a part that has passed with all that goes into it; says whether it has.
    fn recalled(&mut self, part: &Part) -> bool {
        if self.wish.fresh {
            return false;
        }
        let Some(log) = self.key(part).and_then(|key| self.passed.of(&key)) else {
            return false;
        };
        self.recall(part, &self.known(part), &log);
        true
    }

    /// Runs a part to its end, while others may go on beside it; says whether it passed.
    fn alone(&mut self, part: &Part) -> Result<bool, Stopped> {
        if part.name == self.wish.programs.name {
            let keys = self.lanes.iter().filter_map(|lane| {
                let key = (self.keys)(lane, &self.known(lane))?;
                Some((lane.name.clone(), key))
            });
            self.built_from = keys.collect();
        }
        let key = self.key(part);
        self.start(part, key);
        while self
            .running
            .iter()
            .any(|running| running.part.name == part.name)
        {
            self.tick()?;
        }
        let passed = self
            .outcomes
            .iter()
            .rev()
            .find(|o| o.part == part.name)
            .is_some_and(|o| o.passed());
        if part.name == self.wish.programs.name {
            self.programs = if passed {
                Programs::Built
            } else {
                Programs::Broken
            };
        }
        Ok(passed)
    }

    /// Begins a lane, unless its programs are not there.
    fn lane(&mut self, part: &Part) -> Result<(), Stopped> {
        let key = self.key(part);
        self.fewer(self.setting.lanes())?;
        if self.programs == Programs::Unknown {
            let programs = self.wish.programs.clone();
            self.alone(&programs)?;
        }
        if self.programs == Programs::Built {
            let key = self.of_what_is_built(part, key);
            self.start(part, key);
        } else {
            let name = &part.name;
            self.screen.print(&format!(
                "{name}: not run, as its programs could not be built"
            ));
            self.unpassed.note(name, false);
        }
        Ok(())
    }

    /// The lane's key, unless it is not the one that the programs are built from.
    fn of_what_is_built(&mut self, part: &Part, key: Option<String>) -> Option<String> {
        let key = key?;
        if self.built_from.get(&part.name) == Some(&key) {
            return Some(key);
        }
        let why =
            "its sources changed after its programs were built, so its passing is not remembered";
        self.screen.print(&format!("  ({}: {why})", part.name));
        None
    }

    /// Shows what a part said when it passed.
    fn recall(&mut self, part: &Part, known: &[Known], log: &Path) {
        let name = &part.name;
        self.screen.begins(name);
        let text = read(log);
        for line in text
            .lines()
            .filter(|line| log::goes_by(line) && !is_broken(line))
        {
            self.screen.print(&format!("  {name}: {line}"));
        }
        let date = self
            .setting
            .said(&["date", "-r", &log.display().to_string(), "+%F %R"]);
        let date = date.unwrap_or_default().trim().to_owned();
        if write_log(&self.log_of(part), &text).is_err() {
            self.screen
                .print(&format!("{name}: its log cannot be written"));
        }
        self.count(part, known, true, Duration::ZERO, Some(date.clone()));
        let since = "nothing changed since; FRESH=1 runs it";
        self.screen
            .print(&format!("  ({name}: passed on {date}, {since})"));
    }

    /// Starts a part's command, with all that it prints in its log.
    fn start(&mut self, part: &Part, key: Option<String>) {
        self.screen.begins(&part.name);
        let known = self.known(part);
        let path = self.log_of(part);
        let times = path.with_extension("times");
        let _ = std::fs::remove_file(&times);
        let begun = Instant::now();
        let mut setting = self.setting.with(&part.env);
        setting.set("UVM_TIMES", &times.display().to_string());
        let started = write_log(&path, "").and_then(|()| {
            let log = File::options().append(true).open(&path)?;
            let mut command = setting.command(&part.command);
            command.stdout(log.try_clone()?).stderr(log);
            command.spawn()
        });
        match started.and_then(|child| Ok((child, Follower::of(&path)?))) {
            Ok((child, log)) => {
                let part = part.clone();
                self.running.push(Running {
                    part,
                    known,
                    key,
                    child,
                    log,
                    begun,
                });
            }
            Err(error) => {
                let _ = write_log(&path, &format!("{:?}: {error}\n", part.command));
                self.count(part, &known, false, Duration::ZERO, None);
            }
        }
    }

    /// Waits until fewer than `n` run.
    fn fewer(&mut self, n: usize) -> Result<(), Stopped> {
        while self.running.len() >= n {
            self.tick()?;
        }
        Ok(())
    }

    /// Looks once after everything that runs, and rests.
    fn tick(&mut self) -> Result<(), Stopped> {
        self.stopped()?;
        self.look()?;
        self.status();
        std::thread::sleep(TICK);
        Ok(())
    }

    /// Prints what the logs have got, and counts what has ended.
    fn look(&mut self) -> Result<(), Stopped> {
        let mut i = 0;
        while i < self.running.len() {
            let running = &mut self.running[i];
            // The log is read after the question, so that nothing of it is missed.
            let ended = running.child.try_wait();
            let prefix = match running.part.how {
                How::Alone => String::new(),
                _ => format!("{}: ", running.part.name),
            };
            for line in running.log.lines() {
                if log::goes_by(&line) {
                    self.screen.print(&format!("  {prefix}{line}"));
                }
            }
            if matches!(ended, Ok(None)) {
                i += 1;
                continue;
            }
            // A part that was told to end has told nothing.
            self.stopped()?;
            self.ended(i, ended.is_ok_and(|s| s.is_some_and(|s| s.success())));
        }
        Ok(())
    }

    /// Counts a part that has ended, and remembers it if it passed.
    fn ended(&mut self, i: usize, succeeded: bool) {
        let Running {
            part,
            known,
            key,
            begun,
            ..
        } = self.running.swap_remove(i);
        let took = begun.elapsed();
        let passed = self.count(&part, &known, succeeded, took, None);
        let seconds = took.as_secs();
        match part.how {
            How::Alone => self.screen.print(&format!("  ({seconds} s)")),
            _ => self
                .screen
                .print(&format!("  ({}: {seconds} s)", part.name)),
        }
        // What was changed meanwhile may be in what ran, or may not.
        if let Some(key) = key.filter(|_| passed) {
            if (self.keys)(&part, &known).as_ref() == Some(&key) {
                if let Err(error) = self.passed.remember(&key, &self.log_of(&part)) {
                    self.screen.print(&format!(
                        "{}: passing is not remembered: {error}",
                        part.name
                    ));
                }
            } else {
                let why = "its sources changed while it ran, so its passing is not remembered";
                self.screen.print(&format!("  ({}: {why})", part.name));
            }
        }
    }

    /// The lines of the list of skips that are about a part.
    fn known(&self, part: &Part) -> Vec<Known> {
        let setting = self.setting.with(&part.env);
        skips::known(&self.list, &part.name, &setting, self.wish.length)
    }

    fn log_of(&self, part: &Part) -> PathBuf {
        self.out.join(format!("{}.log", part.name))
    }

    /// Shows what runs, how long, and how many tests have gone by.
    fn status(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let lanes: Vec<String> = self
            .running
            .iter()
            .map(|r| {
                format!(
                    "{} {} s, {} tests",
                    r.part.name,
                    r.begun.elapsed().as_secs(),
                    r.log.tests
                )
            })
            .collect();
        let sum: Tally = report::sum(&self.outcomes);
        let minutes = self.begun.elapsed().as_secs() / 60;
        let so_far = format!(
            "{} passed, {} failed, {minutes} min",
            sum.passed, sum.failed
        );
        self.screen
            .status(&format!("[{so_far}] {}", lanes.join(" | ")));
    }

    fn stopped(&self) -> Result<(), Stopped> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Stopped);
        }
        Ok(())
    }

    /// Ends all that runs. Nothing of it is counted or remembered.
    fn interrupted(&mut self) -> ExitCode {
        self.screen.clear();
        for running in std::mem::take(&mut self.running) {
            self.unpassed.note(&running.part.name, false);
            self.screen
                .print(&format!("{}: interrupted", running.part.name));
        }
        process::end_all(PATIENCE);
        ExitCode::from(130)
    }
}

fn is_broken(line: &str) -> bool {
    line.trim_start().starts_with("not ok")
}

/// Reads a log, which may have any bytes in it; what is not there is empty.
fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Writes a log, and makes the folder for it.
fn write_log(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

#[cfg(test)]
#[path = "run/tests.rs"]
mod tests;
