// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A file of this library's in a process that is somebody else's. A program that closes all
//! descriptors closes this one too, and its number may be another file's soon, which is neither to be
//! written to nor closed here.
//!
//! Between the look and what is done then, another thread may still close it, as with any
//! descriptor that is borrowed.

use std::fs::File;
use std::io::{Error, Result};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

/// A file, and what it is known again by.
#[derive(Debug)]
pub(crate) struct Kept {
    file: ManuallyDrop<File>,
    is: Identity,
}

/// What tells a file from others: the device that it is on, its number there, and which device it
/// stands for.
pub type Identity = [u64; 3];

/// The identity of the file behind a descriptor; `None`: there is none.
pub fn identity(fd: i32) -> Option<Identity> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is writable and of the right type.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: fstat has succeeded, so it has filled `stat`.
    let stat = unsafe { stat.assume_init() };
    Some([stat.st_dev, stat.st_ino, stat.st_rdev])
}

impl Kept {
    pub(crate) fn new(file: File) -> Result<Self> {
        let is = identity(file.as_raw_fd()).ok_or_else(Error::last_os_error)?;
        let file = ManuallyDrop::new(file);
        Ok(Self { file, is })
    }

    /// The file, if the program has left it open.
    pub(crate) fn get(&self) -> Option<&File> {
        (identity(self.file.as_raw_fd()) == Some(self.is)).then_some(&*self.file)
    }

    /// What the file is known again by.
    pub(crate) fn is(&self) -> Identity {
        self.is
    }

    /// Whether another value has the same file.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is == other.is
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: this is the only place that drops it, and nobody uses it behind that.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::fd::FromRawFd;

    #[test]
    fn a_number_that_is_another_files_by_now_is_left_alone() {
        let kept = Kept::new(File::open("/dev/null").unwrap()).unwrap();
        let fd = kept.get().unwrap().as_raw_fd();
        // As a program does that closes all descriptors, and opens one of its own.
        let other = File::open("/").unwrap();
        // SAFETY: both are ours, and the first is closed by this.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd);
        assert!(kept.get().is_none());
        drop(kept);
        assert_eq!(identity(fd), identity(other.as_raw_fd()));
        // SAFETY: ours, from above.
        assert_eq!(unsafe { libc::close(fd) }, 0);
    }

    #[test]
    fn what_is_open_still_is_closed() {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"kept".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is new, and nobody else's.
        let kept = Kept::new(unsafe { File::from_raw_fd(fd) }).unwrap();
        let is = kept.is;
        assert!(kept.is_same(&kept) && kept.get().is_some());
        drop(kept);
        assert_ne!(identity(fd), Some(is));
    }
}
