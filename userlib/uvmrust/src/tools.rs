// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! UVM's tools interface, `/dev/nvidia-uvm-tools`, on the process's own VA space: which
//! addresses GPUs fault on, and when. Each driver of NVIDIA's from 550 to 595 has it, and asks for no
//! more than a descriptor of the VA space.
//!
//! Events of faults alone are asked for. UVM writes the event of a fault before it serves the fault,
//! and so before the kernel goes on; events of migrations come later. One fault may come later, too:
//! a kernel goes on when its page is there, whichever fault the page was brought for. Other faults on that
//! page are in the GPU's buffer still, and UVM tells of each when it takes it out.
//!
//! A tracker keeps the VA space for as long as its file is open. The file is closed at an exec, and
//! at the exit of the process. A child of `fork` has the file as it has UVM's own.

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::kept::Kept;
use crate::{Chardev, Sys, Uvm};

// `UVM_TOOLS_INIT_EVENT_TRACKER` and `UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS`.
const INIT: libc::c_ulong = 56;
const ENABLE: libc::c_ulong = 58;
/// `UvmToolsEventQueueVersion_V1`: entries are the same from 550 to 595.
const V1: u32 = 1;
// `UvmEventTypeGpuFault`, by which an entry and a counter are a fault's.
const GPU_FAULT: u8 = 3;
/// `UvmEventMemoryAccessTypePrefetch`: an access that may fail, and reads nothing.
const ACCESS_PREFETCH: u8 = 4;
/// `UvmEventFaultClientTypeHub`: the copy engines and others that are no kernel.
const CLIENT_HUB: u8 = 2;

/// Words of 8 bytes of an entry, `UvmEventEntry_V1`.
const ENTRY_WORDS: usize = 8;
/// Words of 4 bytes of `UvmToolsEventControlData_V1`: four ends, and 64 counters of 8 bytes.
const CONTROL_HALVES: usize = 132;
/// The ends that are used, by such words.
const GET_AHEAD: usize = 0;
const GET_BEHIND: usize = 1;
const PUT_BEHIND: usize = 3;
/// The lower half of the counter of faults that were dropped, as there was no room.
const DROPPED: usize = 4 + 2 * GPU_FAULT as usize;

/// Faults that there is room for, a power of two: 4 MiB.
const ROOM: usize = 1 << 16;

/// A fault of a kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The page that the kernel accessed: UVM tells where it begins, and no more.
    pub page: u64,
    /// When UVM took it, by [`now`].
    pub time: u64,
}

/// The clock of UVM's events, in ns.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the output is writable.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A ring of events, which the driver writes at the same time. Nothing in it is trusted: its
/// ends are taken modulo its size.
#[derive(Debug)]
struct Ring<'a> {
    entries: &'a [AtomicU64],
    control: &'a [AtomicU32],
}

impl<'a> Ring<'a> {
    /// `None`: these are not the sizes of a ring.
    fn over(entries: &'a [AtomicU64], control: &'a [AtomicU32]) -> Option<Self> {
        let room = entries.len() / ENTRY_WORDS;
        let whole = entries.len() % ENTRY_WORDS == 0 && room.is_power_of_two() && room >= 2;
        (whole && control.len() >= CONTROL_HALVES).then_some(Self { entries, control })
    }

    /// Takes out all events that are there, and shows the faults of kernels among them.
    fn take(&self, mut visit: impl FnMut(Fault)) {
        let mask = self.entries.len() / ENTRY_WORDS - 1;
        let end = |which: usize| &self.control[which];
        let put = end(PUT_BEHIND).load(Acquire) as usize & mask;
        let mut get = end(GET_BEHIND).load(Relaxed) as usize & mask;
        while get != put {
            let entry = &self.entries[get * ENTRY_WORDS..][..ENTRY_WORDS];
            if let Some(fault) = fault(entry) {
                visit(fault);
            }
            get = (get + 1) & mask;
        }
        end(GET_AHEAD).store(get as u32, Relaxed);
        end(GET_BEHIND).store(get as u32, Release);
    }

    /// Faults that found no room, modulo 2^32.
    fn dropped(&self) -> u32 {
        self.control[DROPPED].load(Relaxed)
    }
}

/// The fault that an entry tells of, if it is one of a kernel's.
fn fault(entry: &[AtomicU64]) -> Option<Fault> {
    let word = |at: usize| entry.get(at).map(|word| word.load(Relaxed));
    let [kind, _, access, ..] = word(0)?.to_ne_bytes();
    let [.., client, _, _, _] = word(4)?.to_ne_bytes();
    let counts = kind == GPU_FAULT && access != ACCESS_PREFETCH && client != CLIENT_HUB;
    counts.then_some(Fault {
        page: word(1)?,
        time: word(2)?,
    })
}

/// Memory that UVM pins, and writes to.
#[derive(Debug)]
struct Pinned {
    at: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the mapping is this value's alone, and is read and written by atomic accesses only.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Zeros, which a child of `fork` does not get: a page of it that was copied at a write would
    /// not be the one that UVM writes to.
    fn new(bytes: usize) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that is free.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let pinned = Self { at, bytes };
        // SAFETY: ours, and the advice changes nothing here.
        match unsafe { libc::madvise(at, bytes, libc::MADV_DONTFORK) } {
            0 => Ok(pinned),
            _ => Err(Error::last_os_error()),
        }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has as many, for as long as `self` is there; all accesses are atomic.
        unsafe { core::slice::from_raw_parts(self.at.cast(), self.bytes / 8) }
    }

    fn halves(&self) -> &[AtomicU32] {
        // SAFETY: as for `words`.
        unsafe { core::slice::from_raw_parts(self.at.cast(), self.bytes / 4) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: ours, from `new`.
        let _ = unsafe { libc::munmap(self.at, self.bytes) };
    }
}

/// `UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS`. What stands behind the descriptor is the status, but in
/// 560, where a version is before it; 550 has a version behind it.
#[repr(C)]
#[derive(Default)]
struct Init {
    queue: u64,
    queue_length: u64,
    control: u64,
    processor: [u8; 16],
    all_processors: u32,
    uvm_fd: u32,
    status: u32,
    version: u32,
    granted: u32,
    /// A driver of another version may have a longer structure.
    room: [u64; 32],
}

#[repr(C)]
#[derive(Default)]
struct Enable {
    events: u64,
    status: u32,
    room: [u64; 32],
}

/// The faults of this process's kernels, from the moment on at which it was made.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Before what UVM writes to, so that the file is closed first.
    tools: Kept,
    entries: Pinned,
    control: Pinned,
}

impl Tracker {
    /// Of the VA space of this process's descriptor.
    ///
    /// # Errors
    /// Why there is none: no descriptor of this process's, no device, no permission, or another
    /// driver.
    pub(crate) fn new(uvm: &Uvm) -> Result<Self> {
        let mut why = None;
        let found = uvm.own_descriptor(|fd| match Self::of(fd, uvm) {
            Ok(tracker) => Some(tracker),
            Err(error) => {
                why = Some(error);
                None
            }
        });
        found.ok_or_else(|| {
            why.unwrap_or_else(|| Error::new(ErrorKind::NotFound, "the process has no UVM open"))
        })
    }

    /// One that nobody writes to.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> Self {
        let file = std::fs::File::open("/").expect("there is a root");
        Self {
            tools: Kept::new(file).expect("it is open"),
            entries: Pinned::new(2 * ENTRY_WORDS * 8).expect("there is memory"),
            control: Pinned::new(CONTROL_HALVES * 4).expect("there is memory"),
        }
    }

    fn of(uvm_fd: i32, uvm: &Uvm) -> Result<Self> {
        let mut open = OpenOptions::new();
        open.read(true).write(true).custom_flags(libc::O_CLOEXEC);
        let tools = open.open("/dev/nvidia-uvm-tools")?;
        let fd = tools.as_raw_fd();
        // Where no driver is loaded, there is a descriptor of UVM only in tests, which give one.
        if let Some(major) = uvm.sys.uvm_major() {
            if uvm.sys.chardev(fd) != Some(Chardev { major, minor: 1 }) {
                let why = "/dev/nvidia-uvm-tools is not UVM's";
                return Err(Error::new(ErrorKind::NotFound, why));
            }
        }
        let entries = Pinned::new(ROOM * ENTRY_WORDS * 8)?;
        let control = Pinned::new(CONTROL_HALVES * 4)?;
        let mut init = Init {
            queue: entries.at as u64,
            queue_length: ROOM as u64,
            control: control.at as u64,
            uvm_fd: uvm_fd.unsigned_abs(),
            status: V1,
            version: V1,
            ..Init::default()
        };
        // SAFETY: the structure is the call's, or longer. UVM pins what it points to, and gives
        // that back when the file is closed.
        asked(unsafe { libc::ioctl(fd, INIT, &mut init) })?;
        match (init.status, init.version) {
            (0, _) | (V1, 0) => {}
            (V1, status) | (status, _) => return Err(refused(status)),
        }
        let tracker = Self {
            tools: Kept::new(tools)?,
            entries,
            control,
        };
        let mut enable = Enable {
            events: 1 << GPU_FAULT,
            ..Enable::default()
        };
        // SAFETY: the structure is the call's, or longer, and points to nothing.
        asked(unsafe { libc::ioctl(fd, ENABLE, &mut enable) })?;
        match enable.status {
            0 => Ok(tracker),
            status => Err(refused(status)),
        }
    }

    /// Whether UVM still tells: the program has not closed the descriptor.
    pub(crate) fn is_open(&self) -> bool {
        self.tools.get().is_some()
    }

    /// Takes out the faults that UVM has told of by now, in the order in which it did so.
    pub(crate) fn take(&self, visit: impl FnMut(Fault)) {
        if let Some(ring) = Ring::over(self.entries.words(), self.control.halves()) {
            ring.take(visit);
        }
    }

    /// Faults that found no room, modulo 2^32.
    pub(crate) fn dropped(&self) -> u32 {
        let ring = Ring::over(self.entries.words(), self.control.halves());
        ring.map_or(0, |ring| ring.dropped())
    }
}

fn asked(code: libc::c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

fn refused(status: u32) -> Error {
    Error::other(format!("UVM's tools interface gives status {status:#x}"))
}

#[cfg(test)]
mod tests;
