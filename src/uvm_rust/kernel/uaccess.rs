// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory of a process, which can be unmapped, or changed by it, at any time.

use crate::error::{code::EFAULT, Result};
use crate::helpers;
use core::ffi::c_ulong;

/// A range of user space. It is not checked before it is used.
pub struct UserSlice {
    ptr: usize,
    length: usize,
}

/// What is left to read of a [`UserSlice`].
pub struct UserSliceReader(UserSlice);

/// What is left to write of a [`UserSlice`].
pub struct UserSliceWriter(UserSlice);

impl UserSlice {
    /// `length` bytes from the address `ptr` on.
    pub fn new(ptr: usize, length: usize) -> Self {
        Self { ptr, length }
    }

    /// Reads this memory from its start on, each byte once.
    pub fn reader(self) -> UserSliceReader {
        UserSliceReader(self)
    }

    /// Writes to this memory from its start on.
    pub fn writer(self) -> UserSliceWriter {
        UserSliceWriter(self)
    }

    /// Moves on by `n` bytes, which are no more than are left.
    fn advance(&mut self, n: usize) {
        self.ptr = self.ptr.wrapping_add(n);
        self.length -= n;
    }
}

impl UserSliceReader {
    /// Fills `out` with what comes next.
    ///
    /// # Errors
    ///
    /// `EFAULT` if less is left, or if it cannot be read.
    pub fn read_slice(&mut self, out: &mut [u8]) -> Result {
        let n = out.len();
        if n > self.0.length {
            return Err(EFAULT);
        }
        // SAFETY: `out` has `n` bytes to write to; the user's address is checked by C.
        let left = unsafe {
            helpers::uvm_rust_k_copy_from_user(out.as_mut_ptr(), self.0.ptr as c_ulong, n)
        };
        if left != 0 {
            return Err(EFAULT);
        }
        self.0.advance(n);
        Ok(())
    }

    /// How many bytes are left to read.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }
}

impl UserSliceWriter {
    /// Writes `data` next.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there is less room, or if it cannot be written.
    pub fn write_slice(&mut self, data: &[u8]) -> Result {
        let n = data.len();
        if n > self.0.length {
            return Err(EFAULT);
        }
        // SAFETY: `data` has `n` bytes to read; the user's address is checked by C.
        let left =
            unsafe { helpers::uvm_rust_k_copy_to_user(self.0.ptr as c_ulong, data.as_ptr(), n) };
        if left != 0 {
            return Err(EFAULT);
        }
        self.0.advance(n);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helpers::testing;

    #[test]
    fn reads_no_more_than_was_promised() {
        let user = [1u8, 2, 3, 4, 5];
        let at = testing::user_memory(&user);
        let mut reader = UserSlice::new(at.address(), 3).reader();
        let mut two = [0; 2];
        reader.read_slice(&mut two).unwrap();
        assert_eq!((two, reader.len()), ([1, 2], 1));
        assert_eq!(reader.read_slice(&mut two), Err(EFAULT));
        assert_eq!(two, [1, 2]);
        reader.read_slice(&mut two[..1]).unwrap();
        assert!(reader.is_empty() && two[0] == 3);
        reader.read_slice(&mut []).unwrap();
    }

    #[test]
    fn writes_no_more_than_was_promised() {
        let at = testing::user_memory(&[9; 5]);
        let mut writer = UserSlice::new(at.address(), 4).writer();
        writer.write_slice(&[1, 2, 3]).unwrap();
        assert_eq!(writer.write_slice(&[4, 5]), Err(EFAULT));
        writer.write_slice(&[4]).unwrap();
        assert_eq!(at.bytes(), [1, 2, 3, 4, 9]);
    }

    #[test]
    fn what_is_not_mapped_faults() {
        let at = testing::user_memory(&[7; 4]);
        let mut four = [0; 4];
        // The last byte of these is behind the mapped ones.
        let mut reader = UserSlice::new(at.address() + 1, 4).reader();
        assert_eq!(reader.read_slice(&mut four), Err(EFAULT));
        let mut writer = UserSlice::new(at.address() + 1, 4).writer();
        assert_eq!(writer.write_slice(&four), Err(EFAULT));
    }
}
