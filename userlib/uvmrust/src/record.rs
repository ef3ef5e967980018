// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A record of a program: its managed allocations, its launches with the allocations that their
//! arguments point into, what they faulted on, and how long each took. `uvmrun --record` makes a trace of it, and
//! takes it from nobody else: who writes it and who reads it are of one version.
//!
//! A line each, in the order in which the program did it, but for times, which come later:
//!
//! | line | meaning |
//! |---|---|
//! | `a BYTES` | an allocation; they are numbered from 0 |
//! | `f NUMBER` | it is freed |
//! | `k STREAM NAME USES` | a launch; they are numbered from 0. USES are numbers of allocations with commas between them; `-`: none; `?`: not known |
//! | `t NUMBER NS` | how long a launch took |
//! | `u NUMBER USES` | a launch faulted on these allocations |
//! | `w` | faults are looked for from the next launch on |
//! | `n NUMBER` | from this launch on they are not, or nobody knows |
//! | `l FAULTS` | so many more faults are not known, for want of room |
//! | `x` | the record is cut here ([`End::cut`]) |
//!
//! Each line is in the file at once, so that a program that is killed, or ends without a word,
//! leaves what it did until then: the file is mapped (`pages.rs`), and a system call is made for
//! each MiB. Behind the last line it has zeros.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::follow::{Allocation, Allocations};
use crate::Uvm;
use faults::Faults;
use pages::Pages;

mod end;
mod faults;
mod pages;

pub use crate::tools::now;
pub use end::End;
pub use faults::{Answer, Closed, Question};

/// A record that is being written, and what must be known of the program for it.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    out: Option<Pages>,
    end: Arc<End>,
    /// The file could not be made or written: it was said, and that was it.
    failed: bool,
    allocations: Allocations,
    launches: u64,
    /// The streams that launches came in, by number, from 0.
    streams: Vec<usize>,
    line: Line,
    /// The allocations of the launch that is being written.
    seen: Vec<u64>,
    /// `None`: nobody looks for faults.
    faults: Option<Faults>,
    /// What is to be said.
    message: Option<String>,
}

/// A line that is being made. (What `write!` would take for each number is longer than the rest
/// of a launch.)
#[derive(Debug, Default)]
struct Line(Vec<u8>);

impl Line {
    /// Begins a line of this kind.
    fn begin(&mut self, kind: u8) -> &mut Self {
        self.0.clear();
        self.0.push(kind);
        self
    }

    /// Adds a blank and a number.
    fn number(&mut self, number: u64) -> &mut Self {
        self.0.push(b' ');
        self.digits(number);
        self
    }

    /// Adds a blank and a text.
    fn text(&mut self, text: &str) -> &mut Self {
        self.0.push(b' ');
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn digits(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.0.extend_from_slice(&digits[at..]);
    }
}

impl Record {
    /// A record of this process, in a file of its own in a folder, which is made when there is
    /// something to write.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            out: None,
            end: Arc::default(),
            failed: false,
            allocations: Allocations::default(),
            launches: 0,
            streams: Vec::new(),
            line: Line::default(),
            seen: Vec::new(),
            faults: None,
            message: None,
        }
    }

    /// What is to be said to whom the program is of, if there is something. Who holds a lock while it
    /// records says it behind that: the reader of what is said may need the lock first.
    #[must_use]
    pub fn message(&mut self) -> Option<String> {
        let faults = self.faults.as_mut();
        let other = || faults.and_then(|faults| faults.message.take());
        self.message.take().or_else(other)
    }

    /// The end of its file, by which the record can be cut without having it.
    pub fn end_of_file(&self) -> Arc<End> {
        Arc::clone(&self.end)
    }

    /// Records what launches fault on, too, where `uvm` has a descriptor and the driver tells. It is asked by
    /// who records ([`Record::asks`]). Where it does not tell, that is a [`Record::message`], once; it is asked
    /// again later, and all else is recorded.
    pub fn look_for_faults(&mut self, uvm: &'static Uvm) {
        self.faults = Some(Faults::new(uvm));
    }

    /// What UVM is to be asked before the next launch is recorded, if something is. The answer may be long in
    /// coming: so nobody holds a lock meanwhile that others record under. What they launch until then has its
    /// faults unknown.
    pub fn asks(&mut self) -> Option<Question> {
        self.take_faults();
        self.faults.as_mut()?.asks(self.launches)
    }

    /// Takes what UVM has answered.
    pub fn answered(&mut self, answer: Answer) {
        if let Some(faults) = &mut self.faults {
            faults.answered(answer, self.launches);
        }
    }

    /// What is to be dropped where no lock is held: that closes UVM's tools interface, which may take its time.
    pub fn closed(&mut self) -> Closed {
        let faults = self.faults.as_mut();
        faults.map_or_else(Closed::default, |faults| faults.closed())
    }

    /// Lets UVM go until the next launch: what is [`Record::closed`] then. To be called when the memory of a
    /// context goes.
    pub fn let_go(&mut self) {
        self.take_faults();
        if let Some(faults) = &mut self.faults {
            faults.let_go();
        }
    }

    /// Says that there is a new managed allocation.
    ///
    /// What was there before is freed, whether that was told or not: another thread may have the
    /// address before the one that freed it tells.
    pub fn allocated(&mut self, base: u64, length: u64) {
        // What faulted so far did so on what was there until now.
        self.take_faults();
        while let Some(gone) = self.allocations.displace(base, length) {
            self.write_freed(gone);
        }
        self.allocations.add(base, length);
        self.line.begin(b'a').number(length);
        self.write();
    }

    /// The allocation that begins at an address which is about to be freed.
    pub fn begins(&self, base: u64) -> Option<Allocation> {
        self.allocations.begins(base)
    }

    /// Says that an allocation is freed. Another may be in its place already.
    pub fn freed(&mut self, gone: Allocation) {
        self.take_faults();
        if self.allocations.remove(gone) {
            self.write_freed(gone);
        }
    }

    fn write_freed(&mut self, gone: Allocation) {
        self.line.begin(b'f').number(gone.number);
        self.write();
    }

    /// The allocations that are not freed.
    pub fn all(&self) -> Vec<Allocation> {
        self.allocations.all().collect()
    }

    /// Says that a kernel is about to be launched in a stream, whose name has no blanks, and what
    /// among its arguments may be an address, if that is known. Gives the launch's number.
    pub fn launched(
        &mut self,
        stream: usize,
        name: &str,
        words: Option<&mut dyn Iterator<Item = u64>>,
    ) -> u64 {
        self.begin_faults();
        let known = self.streams.iter().position(|&s| s == stream);
        let stream_number = known.unwrap_or_else(|| {
            self.streams.push(stream);
            self.streams.len() - 1
        });
        self.line
            .begin(b'k')
            .number(stream_number as u64)
            .text(name);
        match words {
            None => _ = self.line.text("?"),
            Some(words) => self.list(words),
        }
        self.write();
        self.launches += 1;
        self.launches - 1
    }

    /// Says how long a launch took.
    pub fn took(&mut self, launch: u64, ns: u64) {
        self.line.begin(b't').number(launch).number(ns);
        self.write();
    }

    /// Says from when to when a launch ran, by [`now`]: what faulted then, it used. Each launch is told
    /// of once, in any order, here or by [`Record::not_timed`]. `from` is not before the call
    /// of [`Record::launched`].
    pub fn ran(&mut self, launch: u64, from: u64, until: u64) {
        self.take_faults();
        let Some(faults) = &mut self.faults else {
            return;
        };
        self.seen.clear();
        faults.ran(launch, from, until, &mut self.seen);
        if !self.seen.is_empty() {
            self.line.begin(b'u').number(launch);
            self.list_seen();
            self.write();
        }
    }

    /// Says that nobody is going to know when a launch ran, or it was not made. Nothing is kept for it.
    pub fn not_timed(&mut self, launch: u64) {
        if let Some(faults) = &mut self.faults {
            faults.not_timed(launch);
        }
    }

    /// Looks for faults from here on, if UVM tells of them, before a launch.
    fn begin_faults(&mut self) {
        self.take_faults();
        let Some(faults) = &mut self.faults else {
            return;
        };
        let change = faults.begin(self.launches);
        self.write_unwatched(change.ends);
        if change.begins {
            self.line.begin(b'w');
            self.write();
        }
    }

    /// Says that the program ends, as far as it is told.
    pub fn end(&mut self) {
        self.take_faults();
        let ends = (self.faults.as_mut()).and_then(|faults| faults.end(self.launches));
        self.write_unwatched(ends);
    }

    fn write_unwatched(&mut self, from: Option<u64>) {
        if let Some(launch) = from {
            self.line.begin(b'n').number(launch);
            self.write();
        }
    }

    /// Takes the faults that UVM has told of by now.
    fn take_faults(&mut self) {
        let Some(faults) = &mut self.faults else {
            return;
        };
        let lost = faults.take(&self.allocations);
        if lost > 0 {
            self.line.begin(b'l').number(lost);
            self.write();
        }
    }

    /// Adds the allocations that these words point into, each once, to the line.
    fn list(&mut self, words: &mut dyn Iterator<Item = u64>) {
        self.seen.clear();
        for found in words.filter_map(|word| self.allocations.at(word)) {
            if !self.seen.contains(&found.number) {
                self.seen.push(found.number);
            }
        }
        self.list_seen();
    }

    fn list_seen(&mut self) {
        if self.seen.is_empty() {
            self.line.text("-");
        }
        for (i, &number) in self.seen.iter().enumerate() {
            self.line.0.push(if i == 0 { b' ' } else { b',' });
            self.line.digits(number);
        }
    }

    /// Ends the line and writes it.
    fn write(&mut self) {
        if self.failed || self.end.is_cut() {
            return;
        }
        self.line.0.push(b'\n');
        if let Err(why) = self.write_line() {
            self.message = Some(format!("the program is not recorded any further: {why}"));
            self.out = None;
            self.failed = true;
        }
    }

    fn write_line(&mut self) -> std::io::Result<()> {
        let out = match &mut self.out {
            Some(out) => out,
            None => {
                let pages = Pages::create(&self.folder, std::process::id())?;
                let (path, is) = pages.place();
                self.end.begins(path, is);
                self.out.insert(pages)
            }
        };
        out.write(&self.line.0)?;
        self.end.is_at(out.end());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uvmrust-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn text(folder: &Path) -> String {
        let text = std::fs::read_to_string(folder.join(std::process::id().to_string())).unwrap();
        text.trim_end_matches('\0').to_owned()
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn a_line_is_in_the_file_when_the_call_is_over() {
        let folder = folder("record");
        let mut record = Record::new(&folder);
        assert!(std::fs::read_dir(&folder).unwrap().next().is_none());
        record.allocated(0x1000, 0x1000);
        assert_eq!(text(&folder), "a 4096\n");
        record.allocated(0x4000, 0x2000);
        let mut words = [0x5fff, 7, 0x1000, 0x4000].into_iter();
        assert_eq!(record.launched(70, "add", Some(&mut words)), 0);
        assert!(text(&folder).ends_with("k 0 add 1,0\n"));
        let gone = record.begins(0x1000).unwrap();
        record.freed(gone);
        record.freed(gone);
        let mut words = [0x1000].into_iter();
        assert_eq!(record.launched(3, "add", Some(&mut words)), 1);
        assert_eq!(record.launched(70, "graph", None), 2);
        record.took(1, 12);
        record.took(0, u64::MAX);
        record.took(2, 0);
        assert_eq!(record.all().len(), 1);
        record.all().into_iter().for_each(|gone| record.freed(gone));
        let said = text(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        let rest = "f 0\nk 1 add -\nk 0 graph ?\nt 1 12\nt 0 18446744073709551615\nt 2 0\nf 1\n";
        assert_eq!(said, format!("a 4096\na 8192\nk 0 add 1,0\n{rest}"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn each_allocation_is_freed_once_whoever_tells_it() {
        let folder = folder("displaced");
        let mut record = Record::new(&folder);
        record.allocated(0x1000, 0x1000);
        record.allocated(0x2000, 0x1000);
        let gone = record.begins(0x1000).unwrap();
        // Another thread has all of it anew.
        record.allocated(0x1000, 0x2000);
        record.freed(gone);
        let mut words = [0x2fff].into_iter();
        record.launched(0, "add", Some(&mut words));
        let said = text(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(said, "a 4096\na 4096\nf 1\nf 0\na 8192\nk 0 add 2\n");
    }

    /// By who cannot have the record, as another thread is in the midst of a line.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn a_record_that_is_cut_says_so_behind_its_last_whole_line() {
        let folder = folder("cut");
        let mut record = Record::new(&folder);
        let end = record.end_of_file();
        record.allocated(0x1000, 0x1000);
        // Half of a line is there.
        record.out.as_mut().unwrap().write(b"k 0 add").unwrap();
        assert!(!end.is_cut());
        end.cut();
        assert_eq!(text(&folder), "a 4096\nx\n\0 add");
        // Who was at it goes on, and is at its end.
        end.is_at(record.out.as_ref().unwrap().end());
        assert_eq!(text(&folder), "a 4096\nx\n\0 addx\n");
        record.launched(0, "add", None);
        assert!(end.is_cut() && !text(&folder).contains('k'));
        // Nor is anything written into another file.
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        let other = folder.join(std::process::id().to_string());
        std::fs::write(&other, "mine").unwrap();
        end.is_at(0);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
        std::fs::remove_dir_all(&folder).unwrap();
        // There is no file at all.
        Record::new(&folder).end_of_file().cut();
    }

    /// By SIGXFSZ, which ends a program that does not expect it.
    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_record_may_be_no_longer_than_the_programs_files() {
        let folder = folder("limit");
        // SAFETY: the child calls what a child of a process with threads may call here, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let limit = libc::rlimit {
                rlim_cur: 64 << 10,
                rlim_max: 64 << 10,
            };
            // SAFETY: the limit is readable.
            let mut done = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } == 0;
            let mut record = Record::new(&folder);
            for n in 1..20_000 {
                record.allocated(n << 12, 0x1000);
            }
            let said = record.message().unwrap_or_default();
            done &= record.failed && said.contains("not recorded any further: File too large");
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!done)) };
        }
        let mut status = 0;
        // SAFETY: the output is writable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
        let there = std::fs::read(file.path()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(status, 0);
        // What may be in it is, and each line is of 7 bytes.
        assert_eq!(there.len(), (64 << 10) / 7 * 7);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes a file")]
    fn a_record_that_cannot_be_written_is_given_up() {
        let mut record = Record::new(Path::new("/nowhere"));
        record.allocated(0x1000, 0x1000);
        assert!(record.failed && record.out.is_none());
        assert_eq!(record.launched(0, "add", None), 0);
        let said = record.message().unwrap();
        let why = "the program is not recorded any further: No such file";
        assert!(
            said.starts_with(why) && record.message().is_none(),
            "{said}"
        );
    }
}
