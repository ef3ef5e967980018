// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Signals while a program is recorded: they are for the program, and uvmrun stays to write the
//! trace.
//!
//! Ctrl-C goes to all processes of the terminal's foreground, the program among them. What
//! somebody sends to uvmrun alone is passed on.

use std::ffi::c_int;
use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// Those that end a program which does not ask for them.
const SIGNALS: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// The process that signals are passed on to; 0: it is not there yet, or no more.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// The last signal that came while it was not there; 0: none did.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Signals do not end this process from now on. A program that is started gets them as if this
/// had not been called.
pub(super) fn leave_to_the_program() {
    for signal in SIGNALS {
        // SAFETY: all zeros is a `sigaction`: no flags, an empty mask, and the default action.
        let (mut new, mut old): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        new.sa_sigaction = pass_on as extern "C" fn(c_int, *mut libc::siginfo_t, *mut _) as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: `pass_on` does only what a handler may.
        unsafe {
            libc::sigaction(signal, &new, &mut old);
            // As under nohup(1). A handler would be the default action in the program.
            if old.sa_sigaction == libc::SIG_IGN {
                libc::sigaction(signal, &old, std::ptr::null_mut());
            }
        }
    }
}

/// Passes signals on to a program until it has ended, which is then left to be waited for.
pub(super) fn pass_on_to(program: &Child) -> io::Result<()> {
    let id = program.id();
    PROGRAM.store(id as i32, SeqCst);
    let early = EARLY.swap(0, SeqCst);
    if early != 0 {
        // SAFETY: the process is our child, whom nobody has waited for.
        unsafe { libc::kill(id as i32, early) };
    }
    loop {
        // SAFETY: all zeros is a `siginfo_t`, and the output is writable.
        let done = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, id, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        if done == 0 {
            PROGRAM.store(0, SeqCst);
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

extern "C" fn pass_on(signal: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler of this kind a `siginfo_t`.
    let by_somebody = unsafe { (*info).si_code <= 0 };
    match PROGRAM.load(SeqCst) {
        0 => EARLY.store(signal, SeqCst),
        // SAFETY: the process is our child, whom nobody has waited for while it is in PROGRAM.
        program if by_somebody => drop(unsafe { libc::kill(program, signal) }),
        _ => {}
    }
}
