// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! This program, as a child of its own.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::Failure;

/// The program again, as a child that a test starts, and that may become another user
/// ([`std::os::unix::process::CommandExt::uid`]).
///
/// The child runs a copy in memory, which every user may execute. By its path the program
/// could be out of another user's reach: a checkout may lie in a folder that only its owner
/// may enter, as /root is and homes mostly are, and be made with a mask that lets nobody else
/// read it.
///
/// # Errors
///
/// Of reading the program or of keeping the copy: there is no /proc, no memory, or no
/// descriptor left.
pub fn this_program() -> io::Result<Command> {
    /// The copy, which stays open as long as this program runs: children find it by the number
    /// of its descriptor, which is closed in them as they execute it.
    static COPY: Mutex<Option<File>> = Mutex::new(None);
    let mut kept = COPY.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = match kept.take() {
        Some(copy) => copy,
        None => copy_in_memory()?,
    };
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    *kept = Some(copy);
    Ok(Command::new(path))
}

/// A child that does not outlive the test.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Killed {
    /// This program, as one that a test runs; nobody hears what it says.
    ///
    /// # Errors
    ///
    /// As [`this_program`], and of starting it.
    pub fn run(argument: &str) -> io::Result<Self> {
        let mut command = this_program()?;
        command.arg(argument).stdout(Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A new file in memory, empty, with the mode 0777. Others may open it by its number in `/proc/PID/fd` of this
/// program.
///
/// # Errors
///
/// There is no memory, or no descriptor left.
pub fn file_in_memory(name: &CStr) -> io::Result<File> {
    // SAFETY: the name is a string that ends with 0; there are no other conditions.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// So many bytes as `/proc/meminfo` says behind a name.
///
/// # Errors
///
/// There is no such file, or no such line in it.
pub fn memory_of_host(name: &str) -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let said = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = said.and_then(|said| said.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| format!("no {name} in /proc/meminfo"))? << 10)
}

/// Where in the kernel the threads of a process are, if it tells.
pub fn stacks(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = tasks.into_iter().flatten().flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stack")).ok())
        .collect::<Vec<_>>()
        .join("\n")
}

/// What the kernel says of all threads that wait for a lock or a device, of whatever process; nothing, if it does not tell.
pub fn who_waits() -> String {
    /// By which the kernel begins it in its log.
    const HEAD: &str = "Show Blocked State";
    if std::fs::write("/proc/sysrq-trigger", "w").is_err() {
        return String::new();
    }
    let log = Command::new("dmesg").output().map(|output| output.stdout);
    let log = String::from_utf8_lossy(&log.unwrap_or_default()).into_owned();
    let from = log.rfind(HEAD).unwrap_or(log.len());
    log[from..].to_owned()
}

/// This program's file in memory.
fn copy_in_memory() -> io::Result<File> {
    // Not by its path, which may lead to a newer build by now, or to none.
    let mut program = File::open("/proc/self/exe")?;
    let mut copy = file_in_memory(c"program")?;
    io::copy(&mut program, &mut copy)?;
    Ok(copy)
}
