// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Paths in user space.

use crate::mem::ProcessVec;
use core::ffi::c_char;
use kernel::prelude::*;
use kernel::uaccess::UserSlice;

/// The longest path, with its NUL, in bytes, as of the kernel.
const PATH_MAX: usize = 4096;

/// A path that a process has named. Invariant: its last byte is the only one that is 0.
pub(crate) struct Path(ProcessVec<u8>);

impl Path {
    /// A C string, as long as this lives.
    pub(super) fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

/// Reads a path, a string that begins at `arg` and ends with a NUL.
///
/// # Errors
///
/// `EFAULT` where the memory cannot be read, `EINVAL` if the string is longer than a path may be, `ENOMEM`.
pub(crate) fn read(arg: usize) -> Result<Path> {
    let mut path = ProcessVec::with_capacity(PATH_MAX).map_err(|_| ENOMEM)?;
    let mut reader = UserSlice::new(arg, PATH_MAX).reader();
    // What is behind the end may be unreadable.
    while path.len() < PATH_MAX {
        let mut byte = [0u8];
        reader.read_slice(&mut byte)?;
        let [byte] = byte;
        path.push(byte).map_err(|_| ENOMEM)?;
        if byte == 0 {
            return Ok(Path(path));
        }
    }
    Err(EINVAL)
}
