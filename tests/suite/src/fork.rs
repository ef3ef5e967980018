// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A copy of this process, by fork(2).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitStatus;

/// A child that is a copy of this process, and does not outlive it.
#[derive(Debug)]
pub struct Forked {
    pid: libc::pid_t,
    waited_for: bool,
}

impl Forked {
    /// Forks. The child does `work` and exits, with status 0 if that gives true.
    ///
    /// # Errors
    ///
    /// Those of fork(2); and if this process has other threads, whose locks would stay as they are in the child.
    pub fn new(work: impl FnOnce() -> bool) -> io::Result<Self> {
        Self::with_status(|| u8::from(!work()))
    }

    /// The same for a child that stands apart: it leads a process group of its own, and has no open file of its parent's but
    /// `kept` and the standard ones, so that it keeps nothing alive. `work` owns no other file, either. The child exits with
    /// the status that `work` gives.
    ///
    /// # Errors
    ///
    /// It has the errors of [`Forked::new`].
    pub fn apart(kept: File, work: impl FnOnce(File) -> u8 + 'static) -> io::Result<Self> {
        Self::with_status(|| match leave_parent(&kept) {
            Ok(()) => work(kept),
            Err(error) => {
                eprintln!("a child does not come to stand apart: {error}");
                1
            }
        })
    }

    fn with_status(work: impl FnOnce() -> u8) -> io::Result<Self> {
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("fork() in a process of several threads"));
        }
        // What is in the buffer now would be printed twice.
        io::stdout().flush()?;
        let parent = std::process::id();
        // SAFETY: this is the only thread, as was looked up above, so that the child has all that it had.
        let pid = unsafe { libc::fork() };
        match pid {
            0 => child(parent, work),
            pid if pid < 0 => Err(io::Error::last_os_error()),
            pid => Ok(Self {
                pid,
                waited_for: false,
            }),
        }
    }

    /// Which process it is to Linux.
    pub fn id(&self) -> u32 {
        self.pid as u32
    }

    /// Sends it SIGKILL. Nothing happens if it has been waited for.
    pub fn kill(&self) {
        if !self.waited_for {
            // SAFETY: the child has not been waited for, so that its number is nobody else's.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }

    /// How it has ended, if it has. Ask no more once it did.
    ///
    /// # Errors
    ///
    /// As [`Forked::wait`]; and if it has been waited for.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.look(libc::WNOHANG)
    }

    /// Waits for the child's end.
    ///
    /// # Errors
    ///
    /// waitpid(2) fails, which no signal makes it do.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.end()
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.look(0)? {
                return Ok(status);
            }
        }
    }

    /// Its status, if it has ended or if the flags have this process wait until it does.
    fn look(&mut self, flags: i32) -> io::Result<Option<ExitStatus>> {
        if self.waited_for {
            return Err(io::Error::other("this child has been waited for"));
        }
        let mut status = 0;
        // SAFETY: `status` is a place for one; the child is this object's, and has not been waited for.
        let ended = unsafe { libc::waitpid(self.pid, &mut status, flags) };
        if ended == self.pid {
            self.waited_for = true;
            return Ok(Some(ExitStatus::from_raw(status)));
        }
        let error = io::Error::last_os_error();
        if ended == 0 || error.kind() == io::ErrorKind::Interrupted {
            return Ok(None);
        }
        Err(error)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if !self.waited_for {
            self.kill();
            let _ = self.end();
        }
    }
}

/// What the child does. It runs no destructor of what it has from its parent.
fn child(parent: u32, work: impl FnOnce() -> u8) -> ! {
    // SAFETY: this call takes a number and changes nothing but what becomes of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // A parent that has died before sends no signal.
    let orphan = std::os::unix::process::parent_id() != parent;
    let status = match orphan {
        true => 1,
        false => catch_unwind(AssertUnwindSafe(work)).unwrap_or(1),
    };
    let _ = io::stdout().flush();
    // SAFETY: it ends the process, whatever its state.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Leads a group, and closes all files but `kept` and the standard ones.
fn leave_parent(kept: &File) -> io::Result<()> {
    let kept = kept.as_raw_fd() as u32;
    // SAFETY: setpgid() changes nothing but which group this process is in.
    let mut done = unsafe { libc::setpgid(0, 0) };
    for (first, last) in [(3, kept - 1), (kept + 1, u32::MAX)] {
        if first <= last && done == 0 {
            // SAFETY: nobody uses these files any more: what runs in this process from now on owns none but `kept`, and
            // no destructor of what it has from its parent ever runs.
            done = unsafe { libc::close_range(first, last, 0) };
        }
    }
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn not_beside_other_threads() {
        // The test's own harness is one.
        let refused = std::thread::spawn(|| Forked::new(|| true).is_err());
        assert!(refused.join().unwrap());
    }

    /// A child as if this process had forked it, which the harness's threads forbid.
    fn as_forked(command: &mut Command) -> Forked {
        let pid = command.spawn().unwrap().id() as libc::pid_t;
        Forked {
            pid,
            waited_for: false,
        }
    }

    #[test]
    fn a_child_is_waited_for_once() {
        let mut child = as_forked(Command::new("sleep").arg("100"));
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        assert!(child.try_wait().is_err());
        let well = as_forked(Command::new("sh").args(["-c", "exit 3"])).wait();
        assert_eq!(well.unwrap().code(), Some(3));
    }

    /// A file that a program inherits.
    fn inherited() -> File {
        let file = File::open("/dev/null").unwrap();
        // SAFETY: dup() makes a descriptor that is new, and nobody else's.
        File::from(unsafe { OwnedFd::from_raw_fd(libc::dup(file.as_raw_fd())) })
    }

    #[test]
    fn what_stands_apart_has_a_group_and_no_file_of_its_parents() {
        let files = [inherited(), inherited(), inherited()];
        let numbers = files.each_ref().map(|file| file.as_raw_fd());
        let [_, kept, _] = files;
        let mut command = Command::new("sh");
        let script = "cat /proc/self/stat; for n in $0; do [ -e /proc/self/fd/$n ] && echo has $n; done; true";
        let list = numbers.map(|n| n.to_string()).join(" ");
        // The group of `cat` is that of its shell, whose number is its parent's.
        command.args(["-c", script, &list]);
        // SAFETY: it makes system calls alone, which a child may between fork() and exec().
        unsafe { command.pre_exec(move || leave_parent(&kept)) };
        let output = command.output().unwrap().stdout;
        let text = String::from_utf8(output).unwrap();
        let after = text.rsplit_once(')').unwrap().1;
        let fields: Vec<&str> = after.split_whitespace().take(3).collect();
        assert_eq!(fields[1], fields[2], "{text}");
        let has: Vec<&str> = text.lines().filter(|l| l.starts_with("has")).collect();
        assert_eq!(has, [format!("has {}", numbers[1])]);
    }
}
