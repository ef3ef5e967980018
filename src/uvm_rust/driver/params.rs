// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a call of user space gives and gets: structures that state their size, and upstream's, which do not.

use super::ioctl::{awake, unsuspended};
use crate::ffi::uaccess::{read_element, Sized32};
use core::mem::size_of;
use kernel::prelude::*;
use kernel::uaccess::UserSlice;

/// Longest structure a caller may pass.
const SIZE_MAX: usize = 4096;

/// Reads a structure from `arg`. What the caller's is too short for is zero.
/// Returns it with the caller's size. The driver works, and the system is awake, before and after that.
/// The function has a stack frame of its own, because the structures that it copies are large for a kernel's stack.
///
/// # Errors
///
/// Those of [`awake`]; `EFAULT` where the memory cannot be read, `EINVAL` if the size is below
/// `first_version`, `E2BIG` if it is over a page or if bytes that this driver does
/// not know are not zero; then the size it knows is written back.
#[inline(never)]
pub(crate) fn read_sized<T: Sized32>(arg: usize, first_version: u32) -> Result<(T, usize)> {
    // While the system sleeps, managed memory of the process cannot be had, and a copy from there would try for ever.
    awake(|| Ok(()))?;
    let read = copy_sized(arg, first_version)?;
    // The copy may have taken as long as the process likes.
    awake(|| Ok(()))?;
    Ok(read)
}

/// Copies the structure, whether the system is awake or not.
fn copy_sized<T: Sized32>(arg: usize, first_version: u32) -> Result<(T, usize)> {
    let mut bytes = [0u8; 4];
    UserSlice::new(arg, 4).reader().read_slice(&mut bytes)?;
    let size = u32::from_ne_bytes(bytes) as usize;
    if size < first_version as usize {
        return Err(EINVAL);
    }
    if size > SIZE_MAX {
        return Err(E2BIG);
    }
    match read_element(arg, size) {
        Err(e) if e == E2BIG => {
            // The structure begins with its size: the caller's becomes what is known.
            UserSlice::new(arg, 4)
                .writer()
                .write_slice(&(size_of::<T>() as u32).to_ne_bytes())?;
            Err(e)
        }
        read => Ok((read?, size)),
    }
}

/// A structure of upstream's, as bytes. Offsets behind its end read as 0 and are not
/// written.
pub(crate) struct Params<'a>(&'a mut [u8]);

impl Params<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        if let Some(from) = self.0.get(at..at.saturating_add(N)) {
            out.copy_from_slice(from);
        }
        out
    }

    fn set<const N: usize>(&mut self, at: usize, value: [u8; N]) {
        if let Some(to) = self.0.get_mut(at..at.saturating_add(N)) {
            to.copy_from_slice(&value);
        }
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }

    pub(crate) fn uuid(&self, at: usize) -> [u8; 16] {
        self.bytes(at)
    }

    pub(crate) fn set_u8(&mut self, at: usize, value: u8) {
        self.set(at, [value]);
    }

    pub(crate) fn set_u32(&mut self, at: usize, value: u32) {
        self.set(at, value.to_ne_bytes());
    }
}

/// Reads a structure of upstream's of `N` bytes from `arg`, lets `f` change it, which keeps the system awake meanwhile,
/// and writes it back. Without a lock.
///
/// # Errors
///
/// `EAGAIN` while the system sleeps; `EFAULT` where the memory cannot be read, before `f`, or written, after it; and
/// those of `f`, after which nothing is written.
pub(crate) fn update<const N: usize>(
    arg: usize,
    f: impl FnOnce(&mut Params<'_>) -> Result,
) -> Result {
    unsuspended(|| Ok(()))?;
    let mut bytes = [0; N];
    UserSlice::new(arg, N).reader().read_slice(&mut bytes)?;
    f(&mut Params(&mut bytes))?;
    UserSlice::new(arg, N).writer().write_slice(&bytes)
}
