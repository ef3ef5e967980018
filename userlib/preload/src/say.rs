// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the preload says on a program's standard error.
//!
//! The program may have closed that, filled it, or given its other end to nobody. Then nothing is
//! said, and the program goes on: no panic ends it, as `eprintln` would where C has called, and no
//! signal. Nothing is locked meanwhile, as who reads the other end may be a thread of the same program.
//!
//! A daemon closes its standard error, and the next file that it opens, its data perhaps, has the number. So
//! nothing is said in a file that was not there when the program began.

use core::fmt::Display;
use core::mem::MaybeUninit;
use std::sync::OnceLock;

use uvmrust::{identity, Identity};

/// The file that was standard error when the program began, if it had one.
static AT_FIRST: OnceLock<Option<Identity>> = OnceLock::new();

/// What the loader runs before the program.
#[used]
#[link_section = ".init_array"]
static REMEMBER: extern "C" fn() = remember;

extern "C" fn remember() {
    let _ = AT_FIRST.set(identity(libc::STDERR_FILENO));
}

/// Says a line. Not to be called where something is locked that other threads may wait for.
pub(crate) fn say(what: impl Display) {
    say_in(AT_FIRST.get().copied().flatten(), what);
}

/// Says a line if standard error is this file still.
fn say_in(file: Option<Identity>, what: impl Display) {
    if file.is_none() || identity(libc::STDERR_FILENO) != file {
        return;
    }
    let line = format!("uvmrust: {what}\n");
    let mut left = line.as_bytes();
    let _quiet = NoPipeSignal::new();
    while !left.is_empty() {
        // SAFETY: the bytes are there.
        let wrote = unsafe { libc::write(libc::STDERR_FILENO, left.as_ptr().cast(), left.len()) };
        match usize::try_from(wrote) {
            Ok(0) => break,
            Ok(wrote) => left = left.get(wrote..).unwrap_or_default(),
            Err(_) if is_interrupted() => {}
            Err(_) => break,
        }
    }
}

fn is_interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

/// While this is here, a pipe that nobody reads sends this thread no signal.
struct NoPipeSignal {
    /// The thread's mask before.
    before: libc::sigset_t,
    /// Whether such a signal was the program's own, and waited already.
    was_pending: bool,
}

impl NoPipeSignal {
    fn new() -> Self {
        let mut before = MaybeUninit::zeroed();
        // SAFETY: the sets are ours; a set of zeros is an empty one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &of_pipes(), before.as_mut_ptr());
            Self {
                before: before.assume_init(),
                was_pending: is_pending(),
            }
        }
    }
}

impl Drop for NoPipeSignal {
    fn drop(&mut self) {
        // SAFETY: the sets are ours. Who writes gets the signal in the same thread, so that it
        // is there already.
        unsafe {
            if !self.was_pending && is_pending() {
                let at_once = core::mem::zeroed();
                libc::sigtimedwait(&of_pipes(), core::ptr::null_mut(), &at_once);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, core::ptr::null_mut());
        }
    }
}

/// The set of SIGPIPE alone.
fn of_pipes() -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the set is ours, and empty before a signal is added.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

fn is_pending() -> bool {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the set is ours, and all zeros where nothing is written.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::in_child;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// A C program's SIGPIPE ends it. What is run takes what standard error is.
    fn where_nobody_reads(then: impl FnOnce(Option<Identity>)) {
        in_child(|| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            drop(theirs);
            // SAFETY: the child has no handler of it, and says nothing else.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::dup2(ours.as_raw_fd(), libc::STDERR_FILENO);
            }
            then(identity(libc::STDERR_FILENO));
        });
    }

    #[test]
    fn a_line_that_nobody_reads_ends_nothing() {
        where_nobody_reads(|file| {
            (0..3).for_each(|number| say_in(file, number));
            // Nor does it wait for the program to take it.
            assert!(!is_pending());
            let mut mask = of_pipes();
            // SAFETY: the set is ours.
            let blocked = unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &mut mask);
                libc::sigismember(&mask, libc::SIGPIPE)
            };
            assert_eq!(blocked, 0);
        });
    }

    #[test]
    fn the_programs_own_signal_stays_its_own() {
        where_nobody_reads(|file| {
            // SAFETY: the sets are ours.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &of_pipes(), core::ptr::null_mut());
                libc::raise(libc::SIGPIPE);
            }
            say_in(file, "a line");
            assert!(is_pending());
        });
    }

    /// As of a daemon that has closed its first three descriptors.
    #[test]
    fn nothing_is_said_in_a_file_of_the_programs_that_has_the_number_later() {
        let name = format!("uvmrust-say-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let data = std::fs::File::create(&path).unwrap();
        in_child(|| {
            // SAFETY: the child says nothing else.
            unsafe { libc::dup2(data.as_raw_fd(), libc::STDERR_FILENO) };
            say("a line");
            assert_eq!(data.metadata().unwrap().len(), 0);
            say_in(identity(libc::STDERR_FILENO), "a line");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "uvmrust: a line\n");
        });
        std::fs::remove_file(&path).unwrap();
    }
}
