// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program that only links the library is told of its forks, before any call.

use uvmrust::{Linux, Sys};

#[test]
fn a_child_knows_that_it_is_one() {
    assert_eq!(Linux::new().forks(), 0);
    // SAFETY: the child calls nothing but an atomic load and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forks = Linux::new().forks();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(forks as i32) };
    }
    let mut status = 0;
    // SAFETY: the output is writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 1);
    assert_eq!(Linux::new().forks(), 0);
}

/// A child that no handler of `pthread_atfork` was called in.
#[test]
fn a_child_of_clone_knows_it_too() {
    // SAFETY: without CLONE_VM this is a fork; the child calls nothing but getpid, atomic
    // operations and _exit.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let linux = Linux::new();
        let known = linux.forks() == 1 && linux.inherited() && linux.forks() == 1;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(known)) };
    }
    let mut status = 0;
    // SAFETY: the output is writable.
    let ended = unsafe { libc::waitpid(child as libc::pid_t, &mut status, 0) };
    assert_eq!(i64::from(ended), child);
    assert_eq!(libc::WEXITSTATUS(status), 1);
    assert_eq!(Linux::new().forks(), 0);
}
