// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Ending what a run has started. A VM, or what `timeout` runs, is in no process group of ours.

use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Has orphans of what is started become children of this process, so that [`end_all`] finds them.
pub fn adopt_orphans() {
    // Without it only orphans escape, as they do from a shell.
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// Ends all descendants of this process: with SIGTERM, and with SIGKILL what is there after `patience`.
pub fn end_all(patience: Duration) {
    let me = nix::unistd::getpid().as_raw();
    let begun = Instant::now();
    let mut told = Vec::new();
    loop {
        while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
            waitpid(None, Some(WaitPidFlag::WNOHANG))
        {}
        let left = descendants(me);
        if left.is_empty() {
            return;
        }
        let late = begun.elapsed() > patience;
        for pid in left {
            // Who is told twice might take it for another wish than to end.
            if late {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            } else if !told.contains(&pid) {
                told.push(pid);
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The processes that this one has started, and these in turn; the farthest first.
fn descendants(of: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![of];
    while let Some(pid) = next.pop() {
        let of_it = children.remove(&pid).unwrap_or_default();
        found.extend(&of_it);
        next.extend(of_it);
    }
    found.reverse();
    found
}

/// The parent in a line of `/proc/PID/stat`, whose second field may have spaces and brackets.
fn parent(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_be_called_anything() {
        assert_eq!(parent("12 (a) b) (c) S 7 12 12 0 -1"), Some(7));
        assert_eq!(parent(""), None);
        let me = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(parent(&me), Some(nix::unistd::getppid().as_raw()));
    }
}
