// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Processes that stand still, as all do while the system sleeps.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Groups of processes that are stopped, and go on when this is dropped.
#[derive(Debug)]
pub struct Frozen(Vec<u32>);

impl Frozen {
    /// Stops all processes of these groups, and waits until none of them is in a call any more, as Linux does before the system
    /// sleeps.
    ///
    /// # Errors
    ///
    /// A process is in a call for so long.
    pub fn new(groups: &[u32], patience: Duration) -> io::Result<Self> {
        let frozen = Self(groups.to_vec());
        frozen.tell(libc::SIGSTOP);
        let start = Instant::now();
        while running(groups) {
            if start.elapsed() > patience {
                return Err(io::Error::other("a process does not stop"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(frozen)
    }

    fn tell(&self, signal: i32) {
        for group in &self.0 {
            // SAFETY: kill() changes nothing of this process, which is in none of the groups.
            unsafe { libc::kill(-(*group as libc::pid_t), signal) };
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.tell(libc::SIGCONT);
    }
}

/// Is some process of these groups neither stopped nor at its end?
fn running(groups: &[u32]) -> bool {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let mut running = stats.filter_map(|text| {
        let (state, group) = parse(&text)?;
        (groups.contains(&group) && !matches!(state, 'T' | 'Z' | 'X')).then_some(())
    });
    running.next().is_some()
}

/// State and group in a line of /proc/PID/stat: "PID (NAME) STATE PARENT GROUP ...".
fn parse(stat: &str) -> Option<(char, u32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Killed;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_line_is_parsed_whatever_the_name() {
        assert_eq!(parse("12 (a) b) S 3 45 6"), Some(('S', 45)));
        assert_eq!(parse("rubbish"), None);
    }

    #[test]
    fn a_group_stands_still_as_long_as_it_is_frozen() {
        let child = Command::new("sleep").arg("100").process_group(0).spawn();
        let child = Killed(child.unwrap());
        let group = [child.0.id()];
        assert!(running(&group));
        let frozen = Frozen::new(&group, Duration::from_secs(10)).unwrap();
        assert!(!running(&group));
        drop(frozen);
        let start = Instant::now();
        while !running(&group) {
            assert!(start.elapsed() < Duration::from_secs(10));
        }
    }
}
