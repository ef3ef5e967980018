// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The kernel's log, and what in it fails a test.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A line that a test may cause, so many times.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// What the line holds.
    pub text: &'static str,
    /// How often it may come.
    pub times: usize,
}

/// Upstream wrongly takes it that a block of ordinary memory that is evicted from a
/// GPU has no page on the CPU (docs/vgpu.md).
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

/// Lines of any level that mean a bug. Lines of level "error" and worse do too.
const BAD: [&str; 14] = [
    "Assert failed",
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
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")?;
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
        if level > 3 && !BAD.iter().any(|word| text.contains(word)) {
            continue;
        }
        match allowed.iter().position(|a| text.contains(a.text)) {
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
}
