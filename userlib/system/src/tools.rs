// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! /dev/nvidia-uvm-tools: what the VA spaces of other processes move and fault. Each driver of NVIDIA's counts that
//! while somebody asks. UVM asks for a descriptor of the VA space. The kernel gives one to who may trace the process
//! (`pidfd_getfd`), as root may.
//!
//! As long as a tracker is there, its VA space is, with all of its memory and its GPUs, also when the process has ended.
//! So a tracker is there for one interval, and is closed at once when its process ends, or when nobody asks again.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
/// VA spaces that are looked at together, at most: each takes a page that stays in memory.
const SPACES: usize = 256;

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

/// What a process did in an interval, on all GPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ToolCounts {
    /// How long the interval was.
    pub seconds: f64,
    /// Bytes that came from the host to GPUs.
    pub bytes_in: u64,
    /// Bytes that went from GPUs to the host.
    pub bytes_out: u64,
    /// Faults of GPUs that UVM has served.
    pub faults: u64,
    /// Faults of the host's processors on managed memory.
    pub cpu_faults: u64,
}

/// What processes do from one look to the next.
#[derive(Debug)]
pub struct Tools {
    root: Root,
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    open: Mutex<Open>,
    /// An eventfd, by which the watching thread hears that `open` has changed.
    changed: OwnedFd,
}

/// The trackers that are there now.
#[derive(Debug, Default)]
struct Open {
    trackers: Vec<Tracker>,
    /// Until when somebody has to look.
    until: Option<Instant>,
    ended: bool,
}

/// Counts what one process does, until it is dropped.
#[derive(Debug)]
struct Tracker {
    pid: u32,
    /// The process, of which one can hear that it has ended.
    process: Arc<OwnedFd>,
    since: Instant,
    spaces: Vec<Space>,
}

/// A VA space that UVM counts for, as long as the file is open.
#[derive(Debug)]
struct Space {
    page: Page,
    _tools: OwnedFd,
}

impl Tools {
    /// Has nothing counted yet.
    ///
    /// # Errors
    /// As those of eventfd(2), or of starting a thread.
    pub fn new(root: &Root) -> io::Result<Self> {
        // SAFETY: the call takes two numbers.
        let changed =
            descriptor(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }.into())?;
        let shared = Arc::new(Shared {
            open: Mutex::default(),
            changed,
        });
        let watched = Arc::clone(&shared);
        let watch = std::thread::Builder::new().name("tools".into());
        let watch = watch.spawn(move || while watched.watch() {})?;
        Ok(Self {
            root: root.clone(),
            shared,
            watch: Some(watch),
        })
    }

    /// What each process did since the last look, by process ID. Has the VA spaces that these users have now counted until
    /// the next look, for so long at most; the error says why some of them will not be. A VA space that several
    /// processes have is the first one's, so that none counts twice.
    pub fn look(
        &self,
        users: &[User],
        most: Duration,
    ) -> (BTreeMap<u32, ToolCounts>, Option<io::Error>) {
        let before = std::mem::take(&mut self.shared.lock().trackers);
        let counts = before.iter().map(|tracker| (tracker.pid, tracker.counts()));
        let counts = counts.collect();
        // They are gone before others come.
        drop(before);
        let (trackers, why) = trackers(&self.root, users);
        self.shared.set(|open| {
            open.until = Some(Instant::now() + most);
            open.trackers = trackers;
        });
        (counts, why)
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        self.shared.set(|open| open.ended = true);
        if let Some(watch) = self.watch.take() {
            let _ = watch.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is open, and tells the watching thread.
    fn set(&self, change: impl FnOnce(&mut Open)) {
        change(&mut self.lock());
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes that are readable.
        unsafe { libc::write(self.changed.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Closes trackers whose process has ended, or all if nobody looks any more. Returns once something has changed, and false if
    /// it is the last time.
    fn watch(&self) -> bool {
        let (processes, until) = {
            let open = self.lock();
            if open.ended {
                return false;
            }
            let processes = open
                .trackers
                .iter()
                .map(|tracker| Arc::clone(&tracker.process));
            let until = open.until.filter(|_| !open.trackers.is_empty());
            (processes.collect::<Vec<_>>(), until)
        };
        let files = processes.iter().map(|process| process.as_raw_fd());
        let mut ready: Vec<_> = std::iter::once(self.changed.as_raw_fd())
            .chain(files)
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up, or the last millisecond would be spent asking.
        let left = left.map_or(-1, |left| {
            i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX)
        });
        // SAFETY: so many structures, which are readable and writable.
        unsafe { libc::poll(ready.as_mut_ptr(), ready.len() as libc::nfds_t, left) };
        let mut told = [0_u8; 8];
        // SAFETY: eight bytes that are writable. Where there is nothing to read the call does not wait.
        unsafe {
            libc::read(
                self.changed.as_raw_fd(),
                told.as_mut_ptr().cast(),
                told.len(),
            )
        };
        let ended: Vec<_> = processes
            .iter()
            .zip(&ready[1..])
            .filter(|(_, ready)| ready.revents != 0)
            .map(|(process, _)| process)
            .collect();
        let mut open = self.lock();
        let is_late = open.until.is_some_and(|until| Instant::now() >= until);
        let goes = |tracker: &Tracker| {
            let has_ended = |process: &&Arc<OwnedFd>| Arc::ptr_eq(process, &tracker.process);
            is_late || ended.iter().any(has_ended)
        };
        open.trackers.retain(|tracker| !goes(tracker));
        true
    }
}

impl Tracker {
    fn counts(&self) -> ToolCounts {
        let sum = |which| {
            let counts = self.spaces.iter().map(|space| space.page.counter(which));
            counts.fold(0, u64::saturating_add)
        };
        ToolCounts {
            seconds: self.since.elapsed().as_secs_f64(),
            bytes_in: sum(BYTES_IN),
            bytes_out: sum(BYTES_OUT),
            faults: sum(GPU_FAULTS),
            cpu_faults: sum(CPU_FAULTS),
        }
    }
}

/// Trackers for all VA spaces that these users have now; of those that cannot be had, why.
fn trackers(root: &Root, users: &[User]) -> (Vec<Tracker>, Option<io::Error>) {
    // In another folder the numbers are of processes that are made up.
    if root.folder() != Path::new("/") {
        return (Vec::new(), Some(io::ErrorKind::Unsupported.into()));
    }
    let (mut trackers, mut why) = (Vec::new(), None);
    // The files whose VA spaces have a tracker.
    let mut taken = Vec::new();
    for user in users {
        match tracker(root, user, &mut taken) {
            Ok(tracker) if tracker.spaces.is_empty() => {}
            Ok(tracker) => trackers.push(tracker),
            // Whose is whose cannot be told.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                return (Vec::new(), Some(error));
            }
            Err(error) => why = Some(error),
        }
    }
    (trackers, why)
}

/// A tracker of the VA spaces that a process has, and no process before it. Their files are added to those that are taken.
///
/// # Errors
/// EPERM: this user may not trace the process. ENOSYS: the kernel lacks a call that is needed.
fn tracker(root: &Root, user: &User, taken: &mut Vec<OwnedFd>) -> io::Result<Tracker> {
    let pid = libc::c_long::from(user.pid);
    // SAFETY: the call takes two numbers.
    let process = descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let mut spaces = Vec::new();
    for &number in &user.descriptors {
        let from = libc::c_long::from(process.as_raw_fd());
        let number = libc::c_long::from(number);
        // SAFETY: the call takes three numbers.
        let uvm = unsafe { libc::syscall(libc::SYS_pidfd_getfd, from, number, 0) };
        let uvm = match descriptor(uvm) {
            Ok(uvm) => uvm,
            // It was closed meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => continue,
            Err(error) => return Err(error),
        };
        let same = taken.iter().map(|one| is_same(one, &uvm));
        let is_taken = same
            .collect::<io::Result<Vec<_>>>()
            .map(|same| same.contains(&true));
        if matches!(is_taken, Ok(true)) || taken.len() == SPACES {
            continue;
        }
        // A file that is no VA space's, or not yet, has none.
        if let Ok(space) = track(root, &uvm) {
            is_taken?;
            spaces.push(space);
            taken.push(uvm);
        }
    }
    Ok(Tracker {
        pid: user.pid,
        process: Arc::new(process),
        since: Instant::now(),
        spaces,
    })
}

/// Whether two descriptors of this process are of one file, as after a fork.
///
/// # Errors
/// ENOSYS: the kernel has no `CONFIG_KCMP`.
fn is_same(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    // `KCMP_FILE`
    const FILE: libc::c_long = 0;
    let own = libc::c_long::from(std::process::id());
    let [one, other] = [one, other].map(|fd| libc::c_long::from(fd.as_raw_fd()));
    // SAFETY: the call takes five numbers.
    match unsafe { libc::syscall(libc::SYS_kcmp, own, own, FILE, one, other) } {
        order @ 0.. => Ok(order == 0),
        _ => Err(io::Error::last_os_error()),
    }
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
fn track(root: &Root, uvm: &OwnedFd) -> io::Result<Space> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).custom_flags(libc::O_CLOEXEC);
    let tools = OwnedFd::from(open.open(root.path("/dev/nvidia-uvm-tools"))?);
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
        0 => Ok(Space {
            page,
            _tools: tools,
        }),
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

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
