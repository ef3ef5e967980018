// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A copy of this process, by fork(2).

use std::io::{self, Write};
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

    /// Waits for the child's end.
    ///
    /// # Errors
    ///
    /// waitpid(2) fails, which no signal makes it do.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.end()
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        self.waited_for = true;
        let mut status = 0;
        loop {
            // SAFETY: `status` is a place for one; the child is this object's, and has not been waited for.
            if unsafe { libc::waitpid(self.pid, &mut status, 0) } == self.pid {
                return Ok(ExitStatus::from_raw(status));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if !self.waited_for {
            // SAFETY: the child has not been waited for, so that its number is nobody else's.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            let _ = self.end();
        }
    }
}

/// What the child does. It runs no destructor of what it has from its parent.
fn child(parent: u32, work: impl FnOnce() -> bool) -> ! {
    // SAFETY: this call takes a number and changes nothing but what becomes of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // A parent that has died before sends no signal.
    let orphan = std::os::unix::process::parent_id() != parent;
    let well = !orphan && catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
    let _ = io::stdout().flush();
    // SAFETY: it ends the process, whatever its state.
    unsafe { libc::_exit(i32::from(!well)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_beside_other_threads() {
        // The test's own harness is one.
        let refused = std::thread::spawn(|| Forked::new(|| true).is_err());
        assert!(refused.join().unwrap());
    }
}
