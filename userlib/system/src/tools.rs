// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! /dev/nvidia-uvm-tools: what the VA space of another process moves and faults. Each driver of
//! NVIDIA's counts that from the moment on at which somebody asks. UVM asks for a descriptor
//! of the VA space. The kernel gives one to who may trace the process (`pidfd_getfd`), as root may.
//!
//! For as long as a tracker is there, the VA space is, and its GPUs are registered, also when
//! the process is gone. So it is to be dropped soon after.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::{Root, User};

// `UVM_TOOLS_INIT_EVENT_TRACKER` and `UVM_TOOLS_ENABLE_COUNTERS`
const INIT: libc::c_ulong = 56;
const ENABLE: libc::c_ulong = 60;
// `UvmCounterName`, by which counters are in the page, and the bits of those that are enabled.
const BYTES_IN: usize = 0;
const BYTES_OUT: usize = 1;
const CPU_FAULTS: usize = 2;
const GPU_FAULTS: usize = 9;
const ALL: u64 = 1 << BYTES_IN | 1 << BYTES_OUT | 1 << CPU_FAULTS | 1 << GPU_FAULTS;
// `UvmToolsEventQueueVersion_V1`; counters are the same in each.
const V1: u32 = 1;
const PAGE: usize = 4096;

/// `UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS`. What stands behind the descriptor is the status, but in 560,
/// where a version is before it; 550 has a version behind it.
#[repr(C)]
#[derive(Default)]
struct Init {
    queue: u64,
    queue_length: u64,
    counters: u64,
    processor: [u8; 16],
    all_processors: u32,
    uvm_fd: u32,
    status: u32,
    version: u32,
    granted: u32,
    room: [u64; 32],
}

#[repr(C)]
#[derive(Default)]
struct Enable {
    flags: u64,
    status: u32,
    room: [u64; 32],
}

/// What a process did on all GPUs together, since a [`Tracker`] looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolCounts {
    /// Bytes that came from the host to GPUs.
    pub bytes_in: u64,
    /// Bytes that went from GPUs to the host.
    pub bytes_out: u64,
    /// Faults of GPUs that UVM has served.
    pub faults: u64,
    /// Faults of the host's processors on managed memory.
    pub cpu_faults: u64,
}

/// A page that UVM counts in.
#[derive(Debug)]
struct Page(*mut libc::c_void);

// SAFETY: the mapping is this value's alone, and it is read by atomic loads only.
unsafe impl Send for Page {}

impl Page {
    fn new() -> io::Result<Self> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping is asked for, wherever there is room.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, kind, -1, 0) };
        match page {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            page => Ok(Self(page)),
        }
    }

    fn counter(&self, which: usize) -> u64 {
        // SAFETY: the page has 512 counters, and is mapped for as long as `self` is.
        let counter = unsafe { AtomicU64::from_ptr(self.0.cast::<u64>().add(which)) };
        counter.load(Relaxed)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours. UVM has the page itself, until the tracker's file is closed.
        unsafe { libc::munmap(self.0, PAGE) };
    }
}

/// Counts what another process does, until it is dropped.
#[derive(Debug)]
pub struct Tracker {
    pid: u32,
    descriptors: Vec<u32>,
    /// Of each VA space the file that has UVM count, and where.
    spaces: Vec<(File, Page)>,
}

impl Tracker {
    /// Counts for all VA spaces that a process has now.
    ///
    /// # Errors
    /// EPERM: this user may not trace the process. Others say what UVM or the kernel has not.
    pub fn new(root: &Root, user: &User) -> io::Result<Self> {
        // In another folder the numbers are of processes that are made up.
        if root.folder() != Path::new("/") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let pid = libc::c_long::from(user.pid);
        // SAFETY: the call takes two numbers.
        let process = descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        let mut why = io::Error::from(io::ErrorKind::NotFound);
        let (mut spaces, mut taken) = (Vec::new(), Vec::new());
        for &number in &user.descriptors {
            let number = libc::c_long::from(number);
            let from = libc::c_long::from(process.as_raw_fd());
            // SAFETY: the call takes three numbers.
            let uvm = descriptor(unsafe { libc::syscall(libc::SYS_pidfd_getfd, from, number, 0) });
            let tracked = uvm.and_then(|uvm| match taken.iter().any(|one| is_same(one, &uvm)) {
                true => Ok(()),
                false => {
                    spaces.push(track(root, &uvm)?);
                    taken.push(uvm);
                    Ok(())
                }
            });
            why = tracked.err().unwrap_or(why);
        }
        match spaces.is_empty() {
            true => Err(why),
            false => Ok(Self {
                pid: user.pid,
                descriptors: user.descriptors.clone(),
                spaces,
            }),
        }
    }

    /// Whether it is of this process, with the descriptors that the process has now.
    pub fn is_of(&self, user: &User) -> bool {
        self.pid == user.pid && self.descriptors == user.descriptors
    }

    /// What UVM has counted so far, which only grows.
    pub fn counts(&self) -> ToolCounts {
        let sum = |which| {
            self.spaces
                .iter()
                .map(|(_, page)| page.counter(which))
                .sum()
        };
        ToolCounts {
            bytes_in: sum(BYTES_IN),
            bytes_out: sum(BYTES_OUT),
            faults: sum(GPU_FAULTS),
            cpu_faults: sum(CPU_FAULTS),
        }
    }
}

/// Whether two descriptors are of one file, or the kernel does not say (it has no `CONFIG_KCMP`).
fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    // `KCMP_FILE`
    const FILE: libc::c_long = 0;
    let own = libc::c_long::from(std::process::id());
    let [one, other] = [one, other].map(|fd| libc::c_long::from(fd.as_raw_fd()));
    // SAFETY: the call takes five numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, own, own, FILE, one, other) <= 0 }
}

/// A new descriptor, or the error of the call that did not give one.
fn descriptor(number: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(number) {
        // SAFETY: the kernel has just made it for us.
        Ok(number) if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has UVM count for the VA space of a descriptor.
fn track(root: &Root, uvm: &OwnedFd) -> io::Result<(File, Page)> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).custom_flags(libc::O_CLOEXEC);
    let tools = open.open(root.path("/dev/nvidia-uvm-tools"))?;
    let page = Page::new()?;
    let mut init = Init {
        counters: page.0 as u64,
        all_processors: 1,
        uvm_fd: uvm.as_raw_fd().unsigned_abs(),
        status: V1,
        version: V1,
        ..Init::default()
    };
    // SAFETY: the structure is the call's, or longer; the page it points to is pinned by UVM, which
    // gives it back when the file is closed.
    ask(unsafe { libc::ioctl(tools.as_raw_fd(), INIT, &mut init) })?;
    match (init.status, init.version) {
        (0, _) | (V1, 0) => {}
        (V1, status) | (status, _) => return Err(refused(status)),
    }
    let mut enable = Enable {
        flags: ALL,
        ..Enable::default()
    };
    // SAFETY: the structure is the call's, or longer, and points to nothing.
    ask(unsafe { libc::ioctl(tools.as_raw_fd(), ENABLE, &mut enable) })?;
    match enable.status {
        0 => Ok((tools, page)),
        status => Err(refused(status)),
    }
}

fn ask(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn refused(status: u32) -> io::Error {
    io::Error::other(format!("NVIDIA's status {status:#x}"))
}
