// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What this library asks of the operating system, so that tests can stand in.

use core::ffi::c_void;
use std::sync::OnceLock;

use crate::cuda::Cuda;

/// Which character device a file descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chardev {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The operating system and CUDA, as far as they are used.
pub trait Sys: Send + Sync {
    /// Does ioctl `nr`, or gives its errno.
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
}

/// How long to wait before UVM is asked again that has the system sleep.
const ASLEEP: std::time::Duration = std::time::Duration::from_millis(5);

/// The real one.
#[derive(Debug, Default)]
pub struct Linux {
    cuda: OnceLock<Cuda>,
}

impl Linux {
    /// Nothing is looked at before it is needed.
    pub const fn new() -> Self {
        Self {
            cuda: OnceLock::new(),
        }
    }
}

impl Sys for Linux {
    unsafe fn ioctl(&self, fd: i32, nr: u32, arg: *mut c_void) -> Result<(), i32> {
        loop {
            // SAFETY: by this function's contract.
            if unsafe { libc::ioctl(fd, nr as _, arg) } != -1 {
                return Ok(());
            }
            match std::io::Error::last_os_error().raw_os_error() {
                // UVM takes no call while the system sleeps, or is about to.
                Some(libc::EAGAIN) => std::thread::sleep(ASLEEP),
                error => return Err(error.unwrap_or(libc::EIO)),
            }
        }
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

    fn each_fd(&self, visit: &mut dyn FnMut(i32) -> bool) {
        let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
            return;
        };
        for entry in entries.flatten() {
            let fd = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if fd.is_some_and(|fd| !visit(fd)) {
                return;
            }
        }
    }

    fn uvm_major(&self) -> Option<u32> {
        major_of(&std::fs::read_to_string("/proc/devices").ok()?)
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

/// The major number of UVM's devices in the text of /proc/devices.
fn major_of(devices: &str) -> Option<u32> {
    devices.lines().find_map(|line| {
        let (major, name) = line.trim().split_once(' ')?;
        (name == "nvidia-uvm").then(|| major.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_is_found_by_the_whole_name() {
        let text =
            "Character devices:\n  1 mem\n235 nvidia-uvm-x\n511 nvidia-uvm\n\nBlock devices:\n";
        assert_eq!(major_of(text), Some(511));
        assert_eq!(major_of("  1 mem\n"), None);
        assert_eq!(major_of("x nvidia-uvm"), None);
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
        let mut seen = false;
        linux.each_fd(&mut |fd| {
            seen |= fd == null.as_raw_fd();
            true
        });
        assert!(seen);
    }
}
