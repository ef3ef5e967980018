// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The kernel's log, and what in it fails a test.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A line that a test may cause, so many times. A report of the kernel's checkers (KASAN,
/// lockdep, an oops) is allowed only by a text with that report's own word in it.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// A text that the line of the kernel's log has in it.
    pub text: &'static str,
    /// How often such a line may come in one test.
    pub times: usize,
}

/// Upstream wrongly takes it that a block of ordinary memory that is evicted from a
/// GPU has no page on the CPU (docs/fixes.md).
pub const EVICTING_ORDINARY: &[Allowed] = &[Allowed {
    text: "uvm_page_mask_region_empty(cpu_resident_mask, region)",
    times: usize::MAX,
}];

/// Reader of /dev/kmsg, which reads all the time: the kernel's buffer is short,
/// and an assert of UVM's prints a stack.
#[derive(Debug)]
pub struct KernelLog(Arc<Mutex<Reader>>);

#[derive(Debug)]
struct Reader {
    file: File,
    lines: Vec<(u32, String)>,
}

/// An assert of UVM's. A line of any level with it means a bug, unless it is allowed.
const ASSERT: &str = "Assert failed";

/// Reports of the kernel's own checkers: lines of any level that mean a bug. A test that
/// allows other words of such a line, the name of a module or a function, does not allow it.
const REPORTS: [&str; 13] = [
    "BUG:",
    "BUG ",
    "Oops",
    "WARNING:",
    "general protection fault",
    "KASAN",
    "UBSAN",
    "INFO: task",
    "INFO: possible",
    "possible recursive locking",
    "unreferenced object",
    "detected stall",
    "soft lockup",
];

impl KernelLog {
    /// Starts at the log's end.
    pub fn open() -> io::Result<Self> {
        Self::open_at("/dev/kmsg")
    }

    fn open_at(path: &str) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        file.seek(SeekFrom::End(0))?;
        let reader = Arc::new(Mutex::new(Reader {
            file,
            lines: Vec::new(),
        }));
        let weak = Arc::downgrade(&reader);
        thread::spawn(move || {
            while let Some(reader) = weak.upgrade() {
                lock(&reader).drain();
                drop(reader);
                thread::sleep(Duration::from_millis(50));
            }
        });
        Ok(Self(reader))
    }

    /// Lines since the last call: level and text.
    pub fn lines(&mut self) -> Vec<(u32, String)> {
        let mut reader = lock(&self.0);
        reader.drain();
        std::mem::take(&mut reader.lines)
    }

    /// Lines since the last call that look bad and are not allowed.
    pub fn bad_lines(&mut self, allowed: &[Allowed]) -> Vec<String> {
        bad_lines(self.lines(), allowed)
    }
}

fn lock(reader: &Mutex<Reader>) -> MutexGuard<'_, Reader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reader {
    fn drain(&mut self) {
        let mut record = [0; 8192];
        loop {
            match self.file.read(&mut record) {
                Ok(n) if n > 0 => {
                    self.lines
                        .extend(parse(&String::from_utf8_lossy(&record[..n])));
                }
                // The reader fell behind, and goes on with the oldest line left.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {
                    self.lines
                        .push((0, "BUG: lines of the kernel log were lost".into()));
                }
                _ => return,
            }
        }
    }
}

/// A record is "priority,sequence,time,flags;text", with more lines of properties.
fn parse(record: &str) -> Option<(u32, String)> {
    let (head, rest) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    Some((priority & 7, rest.lines().next()?.to_owned()))
}

fn bad_lines(lines: Vec<(u32, String)>, allowed: &[Allowed]) -> Vec<String> {
    let mut left: Vec<usize> = allowed.iter().map(|a| a.times).collect();
    let mut bad = Vec::new();
    for (level, text) in lines {
        let report = REPORTS.iter().any(|word| text.contains(word));
        // Lines of level "error" and worse mean a bug as well.
        if level > 3 && !report && !text.contains(ASSERT) {
            continue;
        }
        let named = |a: &Allowed| REPORTS.iter().any(|word| a.text.contains(word));
        match allowed
            .iter()
            .position(|a| text.contains(a.text) && (!report || named(a)))
        {
            Some(i) if left[i] > 0 => left[i] -= 1,
            _ => bad.push(text),
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed() {
        let record = "3,1234,567,-;nvidia-uvm: Assert failed\n SUBSYSTEM=x\n";
        assert_eq!(parse(record), Some((3, "nvidia-uvm: Assert failed".into())));
        assert_eq!(parse("14,1,2,-;hello"), Some((6, "hello".into())));
        assert_eq!(parse("rubbish"), None);
    }

    #[test]
    fn only_bad_lines_that_are_not_allowed_count() {
        let lines = |texts: &[(u32, &str)]| {
            texts
                .iter()
                .map(|(level, text)| (*level, (*text).to_owned()))
                .collect::<Vec<_>>()
        };
        let log = [
            (6, "all is well"),
            (3, "x: MAX_JUMP"),
            (3, "x: MAX_JUMP"),
            (6, "Oops: 0"),
        ];
        let allowed = [Allowed {
            text: "MAX_JUMP",
            times: 1,
        }];
        assert_eq!(bad_lines(lines(&log), &allowed), ["x: MAX_JUMP", "Oops: 0"]);
        assert!(bad_lines(lines(&log[..2]), &allowed).is_empty());
    }

    /// What a line is allowed for never is a report of the kernel's own checkers, unless a
    /// test names that report.
    #[test]
    fn a_report_is_not_allowed_by_a_name_in_it() {
        let reports = [
            "BUG: KASAN: slab-use-after-free in vgpu_rs_run+0x1/0x2 [vgpu]",
            "Oops: general protection fault in vgpu_thread [vgpu]",
            "UBSAN: array-index-out-of-bounds in vgpu.c:1",
            "WARNING: CPU: 0 PID: 1 at kernel/locking/vgpu.c:1",
            "INFO: task vgpu0:99 blocked for more than 120 seconds.",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [vgpu0:99]",
            "WARNING: possible recursive locking detected in vgpu",
            "unreferenced object of vgpu",
            "rcu: INFO: rcu_preempt detected stalls on vgpu0",
        ];
        let vgpu = [Allowed {
            text: "vgpu",
            times: 1000,
        }];
        for report in reports {
            for level in [3, 6] {
                let line = vec![(level, report.to_owned())];
                assert_eq!(bad_lines(line, &vgpu), [report], "level {level}");
            }
        }
        let error = (3, "vgpu0: kernel 3: Read at 0x0: kernel ended".to_owned());
        assert!(bad_lines(vec![error], &vgpu).is_empty());
        let named = [Allowed {
            text: "WARNING: possible",
            times: 1,
        }];
        let line = vec![(4, reports[6].to_owned())];
        assert!(bad_lines(line, &named).is_empty(), "named by the test");
        let assert = (3, "vgpu: Assert failed, condition x".to_owned());
        assert!(bad_lines(vec![assert], &vgpu).is_empty());
    }

    #[test]
    fn a_log_that_cannot_be_read_fails() {
        let log = KernelLog::open_at("/nonexistent/kmsg");
        assert!(log.is_err());
        let mut suite = crate::Suite::with_log("x", None, log);
        suite.test("a", &[], || Ok(crate::Pass::Ok));
        assert_eq!(suite.totals(), (1, 1, 0), "one passed, and the log failed");
    }
}
