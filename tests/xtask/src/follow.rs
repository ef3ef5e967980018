// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The log of a part that runs, line by line.

use crate::log;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Follows a log while it is written.
pub struct Follower {
    file: File,
    /// The beginning of a line whose end is not written yet.
    rest: Vec<u8>,
    /// How many tests have gone by.
    pub tests: usize,
}

impl Follower {
    /// Begins at the start of a log.
    ///
    /// # Errors
    ///
    /// Fails if there is no such file.
    pub fn of(path: &Path) -> io::Result<Follower> {
        Ok(Follower {
            file: File::open(path)?,
            rest: Vec::new(),
            tests: 0,
        })
    }

    /// The lines that have become whole since the last time.
    pub fn lines(&mut self) -> Vec<String> {
        if self.file.read_to_end(&mut self.rest).is_err() {
            return Vec::new();
        }
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let lines: Vec<String> = String::from_utf8_lossy(&whole)
            .lines()
            .map(str::to_owned)
            .collect();
        self.tests += lines.iter().filter(|line| log::goes_by(line)).count();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::io::Write as _;

    #[test]
    fn a_line_is_told_once_it_is_whole_whatever_bytes_it_has() {
        let scratch = Scratch::new("follow");
        scratch.write("log", "ok 1 - a\nok");
        let mut follower = Follower::of(&scratch.path().join("log")).unwrap();
        assert_eq!(follower.lines(), ["ok 1 - a"]);
        assert!(follower.lines().is_empty());
        let mut log = File::options()
            .append(true)
            .open(scratch.path().join("log"))
            .unwrap();
        log.write_all(b" 2 - \xff\nno\n").unwrap();
        assert_eq!(follower.lines(), ["ok 2 - \u{fffd}", "no"]);
        assert_eq!(follower.tests, 2);
    }
}
