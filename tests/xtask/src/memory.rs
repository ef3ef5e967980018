// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is kept of earlier runs: the logs of lanes that passed, those of parts that failed, and the
//! names of the parts that did not pass when they last ran.

use crate::setting::Setting;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Logs that nobody has needed for so long are removed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// So many logs of failures are kept.
const FAILURES: usize = 20;

/// The logs of lanes that passed, each under the key for what went into it.
pub struct Passed(PathBuf);

impl Passed {
    /// Opens the cache's folder, and removes what is too old in it.
    ///
    /// # Errors
    ///
    /// Fails if the folder can neither be found nor made.
    pub fn open(setting: &Setting) -> io::Result<Passed> {
        let folder = setting.cache.join("passed");
        std::fs::create_dir_all(&folder)?;
        for entry in std::fs::read_dir(&folder)?.flatten() {
            let time = entry.metadata().and_then(|data| data.modified());
            let age = time
                .ok()
                .and_then(|time| SystemTime::now().duration_since(time).ok());
            if age.is_some_and(|age| age > KEPT) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(Passed(folder))
    }

    /// The log of the run that passed with this key.
    pub fn of(&self, key: &str) -> Option<PathBuf> {
        let log = self.0.join(key);
        log.is_file().then_some(log)
    }

    /// Remembers that a lane passed. A copy that is cut off has another name until it is whole.
    pub fn remember(&self, key: &str, log: &Path) -> io::Result<()> {
        let part = self.0.join(format!(".{key}.{}", std::process::id()));
        std::fs::copy(log, &part)?;
        std::fs::rename(part, self.0.join(key))
    }
}

/// Keeps the log of a failure in the cache, as a checkout that only tests may be gone by the time
/// somebody asks. The last twenty stay.
pub fn keep_failure(setting: &Setting, part: &str, log: &Path) -> io::Result<()> {
    let folder = setting.cache.join("failed");
    std::fs::create_dir_all(&folder)?;
    let now = setting
        .said(&["date", "+%Y%m%d-%H%M%S"])
        .unwrap_or_default();
    std::fs::copy(
        log,
        folder.join(format!("{}-{}.log", now.trim(), part.replace('/', "-"))),
    )?;
    let mut logs: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    logs.sort();
    let old = logs.len().saturating_sub(FAILURES);
    logs.into_iter()
        .take(old)
        .try_for_each(std::fs::remove_file)
}

/// The parts that did not pass when they last ran, in a file of the checkout.
pub struct Unpassed {
    file: PathBuf,
    names: BTreeSet<String>,
}

impl Unpassed {
    /// Reads the file, which may not be there yet.
    pub fn open(file: PathBuf) -> Unpassed {
        let names = read_names(&file);
        Unpassed { file, names }
    }

    /// The names as they are now.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Notes what became of a part, at once, as the run may be cut off.
    pub fn note(&mut self, part: &str, passed: bool) {
        // Another run in this checkout may have noted something meanwhile.
        self.names = read_names(&self.file);
        let changed = if passed {
            self.names.remove(part)
        } else {
            self.names.insert(part.to_owned())
        };
        if changed {
            let text: String = self.names.iter().map(|name| format!("{name}\n")).collect();
            // Who cannot write here has no logs either, and hears of that.
            let _ = std::fs::write(&self.file, text);
        }
    }
}

/// Reads the lines of a file, which may not be there yet.
fn read_names(file: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::setting::tests::setting;

    #[test]
    fn what_passed_is_found_by_its_key_for_a_month() {
        let scratch = Scratch::new("passed");
        let cache = scratch.path().display().to_string();
        let setting = setting(&[("UVM_RUST_CACHE", &cache)]);
        scratch.write("log", "ok 1\n");
        let passed = Passed::open(&setting).unwrap();
        assert_eq!(passed.of("k"), None);
        passed.remember("k", &scratch.path().join("log")).unwrap();
        assert_eq!(
            std::fs::read_to_string(passed.of("k").unwrap()).unwrap(),
            "ok 1\n"
        );
        assert!(Passed::open(&setting).unwrap().of("k").is_some());
        let old = SystemTime::now() - KEPT - Duration::from_secs(60);
        std::fs::File::open(passed.of("k").unwrap())
            .unwrap()
            .set_modified(old)
            .unwrap();
        assert_eq!(Passed::open(&setting).unwrap().of("k"), None);
    }

    #[test]
    fn the_last_twenty_failures_are_kept() {
        let scratch = Scratch::new("failed");
        let cache = scratch.path().display().to_string();
        let setting = setting(&[("UVM_RUST_CACHE", &cache), ("PATH", "/usr/bin:/bin")]);
        scratch.write("log", "not ok 1\n");
        for n in 0..22 {
            scratch.write(&format!("failed/2001{n:02}-a.log"), "old");
        }
        keep_failure(&setting, "rust/a", &scratch.path().join("log")).unwrap();
        let names: BTreeSet<String> = std::fs::read_dir(scratch.path().join("failed"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names.len(), 20);
        assert!(names.last().unwrap().ends_with("-rust-a.log"));
        assert!(!names.contains("200102-a.log") && names.contains("200103-a.log"));
    }

    #[test]
    fn a_part_is_unpassed_until_it_passes() {
        let scratch = Scratch::new("unpassed");
        let file = scratch.path().join("unpassed");
        let mut unpassed = Unpassed::open(file.clone());
        unpassed.note("a", false);
        unpassed.note("b", false);
        unpassed.note("a", true);
        unpassed.note("c", true);
        assert_eq!(scratch.read("unpassed"), "b\n");
        Unpassed::open(file.clone()).note("d", false);
        unpassed.note("e", false);
        assert_eq!(scratch.read("unpassed"), "b\nd\ne\n");
        unpassed.note("d", true);
        unpassed.note("e", true);
        assert_eq!(
            Unpassed::open(file).names().iter().collect::<Vec<_>>(),
            ["b"]
        );
    }
}
