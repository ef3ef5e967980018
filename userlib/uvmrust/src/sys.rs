// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What this library asks of the operating system, so that tests can stand in.

use core::ffi::{c_void, CStr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::cuda::Cuda;
use crate::lineage::{Generation, Lineage};
use crate::sync::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Which character device a file descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chardev {
    /// Its major number, which the kernel chooses for UVM at load time.
    pub major: u32,
    /// Its minor number: UVM has several devices.
    pub minor: u32,
}

/// The operating system and CUDA, as far as they are used.
///
/// # Safety
/// Safe calls of this library rest on it: each function does what its description says.
/// [`Sys::ioctl`] accesses no memory but what the number's structure, and what that points
/// to, say, and discards only for a discard; [`Sys::cuda`] has CUDA's functions of these
/// names; [`Sys::chardev`], [`Sys::forks`], [`Sys::inherited`] and [`Sys::foreign`] keep a
/// descriptor from being taken for this process's that is not.
///
/// ```compile_fail,E0200
/// struct Mine;
/// impl uvmrust::Sys for Mine {}
/// ```
pub unsafe trait Sys: Send + Sync {
    /// Does ioctl `nr`, or gives its errno. EAGAIN: the system slept, or was about to,
    /// for longer than [`Sys::patience`].
    ///
    /// # Safety
    /// `arg` points to the structure that `nr` takes, and what that points to may
    /// be read and written as `nr` does.
    unsafe fn ioctl(&self, fd: i32, nr: u32, arg: *mut c_void) -> Result<(), i32>;

    /// What `fd` is, if it is open and a character device.
    fn chardev(&self, fd: i32) -> Option<Chardev>;

    /// Calls `visit` with every open file descriptor, until it returns `false`.
    fn each_fd(&self, visit: &mut dyn FnMut(i32) -> bool);

    /// The major number of UVM's devices, if the driver is loaded.
    fn uvm_major(&self) -> Option<u32>;

    /// CUDA's driver library, if this process has loaded it.
    fn cuda(&self) -> Option<&Cuda>;

    /// How long a driver is asked again that has no time.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// How many calls of `fork` lie between this process and the one in which the library
    /// was loaded.
    fn forks(&self) -> u32 {
        0
    }

    /// Whether, at one of these, the parent had a descriptor of UVM.
    fn inherited(&self) -> bool {
        false
    }

    /// Whether UVM knows `fd` for a descriptor of another process. `false` where it
    /// does not tell.
    fn foreign(&self, _fd: i32) -> bool {
        false
    }
}

/// What [`Sys::patience`] is by default. A system that goes to sleep first saves the
/// GPU's memory, which takes seconds, while processes still run.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait before UVM is asked again that has the system sleep.
const ASLEEP: Duration = Duration::from_millis(5);

/// The real one. The environment variable `UVMRUST_PATIENCE_MS` sets its patience.
#[derive(Debug, Default)]
pub struct Linux {
    cuda: OnceLock<Cuda>,
}

/// See [`Sys::forks`] and [`Sys::inherited`].
static LINEAGE: Lineage = Lineage {
    word: AtomicU64::new(0),
};

/// Which process this is.
fn generation() -> Generation {
    LINEAGE.generation(std::process::id())
}

/// Runs when the library is loaded, since a process may fork before it calls us.
#[cfg(not(miri))]
#[used]
#[link_section = ".init_array"]
static WATCH: extern "C" fn() = {
    /// What the child will inherit. In the parent, where an allocator may have taken its locks
    /// for the fork already: nothing is allocated.
    unsafe extern "C" fn before() {
        let linux = Linux::new();
        let mut any = generation().inherited;
        if let Some(major) = linux.uvm_major() {
            linux.each_fd(&mut |fd| {
                any |= crate::fd::is_uvm(&linux, fd, major);
                !any
            });
        }
        WILL_INHERIT.store(any, Relaxed);
    }

    /// In the child, where hardly anything may be called.
    unsafe extern "C" fn child() {
        LINEAGE.forked(std::process::id(), WILL_INHERIT.load(Relaxed));
    }

    static WILL_INHERIT: AtomicBool = AtomicBool::new(false);

    extern "C" fn watch() {
        LINEAGE.began(std::process::id());
        // SAFETY: both functions are good for as long as the library is loaded; libc drops
        // them with it. An error, for want of memory, leaves the process as it would be
        // without this.
        let _ = unsafe { libc::pthread_atfork(Some(before), None, Some(child)) };
        // Lest another thread be in the midst of it at a fork, which the child would wait for.
        let _ = crate::Uvm::process();
    }
    watch
};

impl Linux {
    /// Nothing is looked at before it is needed.
    pub const fn new() -> Self {
        Self {
            cuda: OnceLock::new(),
        }
    }
}

// SAFETY: it asks the kernel, and CUDA's own library.
unsafe impl Sys for Linux {
    unsafe fn ioctl(&self, fd: i32, nr: u32, arg: *mut c_void) -> Result<(), i32> {
        let mut since = None;
        loop {
            // SAFETY: by this function's contract.
            if unsafe { libc::ioctl(fd, nr as _, arg) } != -1 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error().raw_os_error();
            // UVM takes no call while the system sleeps, or is about to. A batch that this ends
            // says of no range that it is done: all of it is asked for again.
            let since = since.get_or_insert_with(Instant::now);
            if error != Some(libc::EAGAIN) || since.elapsed() >= self.patience() {
                return Err(error.unwrap_or(libc::EIO));
            }
            std::thread::sleep(ASLEEP);
        }
    }

    fn patience(&self) -> Duration {
        static PATIENCE_SET: OnceLock<Duration> = OnceLock::new();
        *PATIENCE_SET.get_or_init(|| {
            let set = std::env::var("UVMRUST_PATIENCE_MS").ok();
            let set = set.and_then(|text| text.parse().ok());
            set.map_or(PATIENCE, Duration::from_millis)
        })
    }

    fn forks(&self) -> u32 {
        generation().forks
    }

    fn inherited(&self) -> bool {
        generation().inherited
    }

    /// `uvm_mmap` (uvm.c) refuses with EOPNOTSUPP, before it looks at anything else, who has
    /// another address space than the one that the descriptor was initialised in, unless
    /// that was for several processes or UVM does without mmu notifiers. (Its ioctls look
    /// at no such thing.) To its owner it refuses a private mapping, and so changes nothing.
    fn foreign(&self, fd: i32) -> bool {
        let (private, none) = (libc::MAP_PRIVATE, core::ptr::null_mut());
        // SAFETY: a new mapping, which nobody can access, at an address that is free.
        let mapped = unsafe { libc::mmap(none, 4096, libc::PROT_NONE, private, fd, 0) };
        if mapped == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error().raw_os_error();
            return error == Some(libc::EOPNOTSUPP);
        }
        // SAFETY: ours, from just now. Some file that is not UVM's.
        let _ = unsafe { libc::munmap(mapped, 4096) };
        false
    }

    fn chardev(&self, fd: i32) -> Option<Chardev> {
        let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `stat` is writable and of the right type.
        if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: fstat has succeeded, so it has filled `stat`.
        let stat = unsafe { stat.assume_init() };
        (stat.st_mode & libc::S_IFMT == libc::S_IFCHR).then(|| Chardev {
            major: libc::major(stat.st_rdev),
            minor: libc::minor(stat.st_rdev),
        })
    }

    /// Allocates nothing, and neither does [`Sys::uvm_major`]: they are called during a fork.
    fn each_fd(&self, visit: &mut dyn FnMut(i32) -> bool) {
        let Some(folder) = File::open(c"/proc/self/fd") else {
            return;
        };
        let mut entries = Entries([0; 128]);
        loop {
            let filled = match folder.entries(&mut entries) {
                0 => return,
                filled => filled,
            };
            if !entries
                .names(filled)
                .all(|name| number(name).is_none_or(&mut *visit))
            {
                return;
            }
        }
    }

    fn uvm_major(&self) -> Option<u32> {
        let file = File::open(c"/proc/devices")?;
        major_of(|buffer| file.read(buffer))
    }

    fn cuda(&self) -> Option<&Cuda> {
        if self.cuda.get().is_none() {
            // It may be loaded later, so only its presence is kept.
            let found = Cuda::loaded()?;
            let _ = self.cuda.set(found);
        }
        self.cuda.get()
    }
}

/// A file that is open for reading. (The standard library allocates to read a folder.)
struct File(i32);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (fd >= 0).then_some(Self(fd))
    }

    /// How many bytes it has read; 0 at the end, or if it cannot.
    fn read(&self, buffer: &mut [u8]) -> usize {
        // SAFETY: the buffer is writable for its length.
        let read = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        usize::try_from(read).unwrap_or(0)
    }

    /// The same for the entries of a folder.
    fn entries(&self, entries: &mut Entries) -> usize {
        let (at, length) = (entries.0.as_mut_ptr(), size_of_val(&entries.0));
        // SAFETY: the buffer is writable for its length.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, self.0, at, length) };
        usize::try_from(read).unwrap_or(0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: ours, and used no more.
        let _ = unsafe { libc::close(self.0) };
    }
}

/// What getdents64(2) fills in.
struct Entries([u64; 128]);

impl Entries {
    /// The names in the first `filled` bytes.
    fn names(&self, filled: usize) -> impl Iterator<Item = &[u8]> {
        /// Where an entry has its length, of 2 bytes, and its name, which a zero ends.
        const LENGTH: usize = core::mem::offset_of!(libc::dirent64, d_reclen);
        const NAME: usize = core::mem::offset_of!(libc::dirent64, d_name);
        // SAFETY: numbers may be looked at as bytes, of which there are eight in each.
        let bytes = unsafe {
            core::slice::from_raw_parts(self.0.as_ptr().cast::<u8>(), size_of_val(&self.0))
        };
        let mut rest = &bytes[..filled.min(bytes.len())];
        core::iter::from_fn(move || {
            let length = u16::from_ne_bytes([*rest.get(LENGTH)?, *rest.get(LENGTH + 1)?]);
            let (entry, later) = rest.split_at_checked(length.into())?;
            rest = later;
            entry.get(NAME..)?.split(|&byte| byte == 0).next()
        })
    }
}

/// A number in decimal digits.
fn number<T: core::str::FromStr>(text: &[u8]) -> Option<T> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// The major number of UVM's devices in the text of /proc/devices, which `read` gives piece
/// by piece, and then 0.
fn major_of(mut read: impl FnMut(&mut [u8]) -> usize) -> Option<u32> {
    let mut piece = [0; 256];
    // The line so far. A line that is longer is not UVM's.
    let (mut line, mut length) = ([0; 64], 0);
    loop {
        let filled = match read(&mut piece) {
            0 => return None,
            filled => filled.min(piece.len()),
        };
        for &byte in &piece[..filled] {
            if byte != b'\n' {
                if let Some(place) = line.get_mut(length) {
                    *place = byte;
                }
                length += 1;
                continue;
            }
            if let Some(major) = line.get(..length).and_then(major_in) {
                return Some(major);
            }
            length = 0;
        }
    }
}

/// The major number in a line, if it is that of UVM's devices.
fn major_in(line: &[u8]) -> Option<u32> {
    let line = core::str::from_utf8(line).ok()?;
    let (major, name) = line.trim().split_once(' ')?;
    (name == "nvidia-uvm").then(|| major.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_is_found_by_the_whole_name() {
        let text =
            "Character devices:\n  1 mem\n235 nvidia-uvm-x\n511 nvidia-uvm\n\nBlock devices:\n";
        let long = format!("12 {}\n511 nvidia-uvm\n", "x".repeat(1000));
        for (text, major) in [
            (text, Some(511)),
            (&long, Some(511)),
            ("  1 mem\n", None),
            ("x nvidia-uvm\n", None),
            ("", None),
        ] {
            for most in [1, 7, 64, 10_000] {
                let mut rest = text.as_bytes();
                let found = major_of(|buffer| {
                    let (piece, later) = rest.split_at(rest.len().min(buffer.len()).min(most));
                    buffer[..piece.len()].copy_from_slice(piece);
                    rest = later;
                    piece.len()
                });
                assert_eq!(found, major, "{text:?} by {most}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no devices")]
    fn linux_tells_devices_from_files() {
        use std::os::fd::AsRawFd;
        let null = std::fs::File::open("/dev/null").unwrap();
        let dir = std::fs::File::open("/").unwrap();
        let linux = Linux::new();
        assert_eq!(
            linux.chardev(null.as_raw_fd()),
            Some(Chardev { major: 1, minor: 3 })
        );
        assert_eq!(linux.chardev(dir.as_raw_fd()), None);
        assert_eq!(linux.chardev(-1), None);
        // More than there is room for at once.
        let many: Vec<_> = (0..200).map(|_| null.try_clone().unwrap()).collect();
        let mut seen = Vec::new();
        linux.each_fd(&mut |fd| {
            seen.push(fd);
            true
        });
        assert!(many.iter().all(|file| seen.contains(&file.as_raw_fd())));
        let mut calls = 0;
        linux.each_fd(&mut |_| {
            calls += 1;
            calls < 3
        });
        assert_eq!(calls, 3);
    }
}
