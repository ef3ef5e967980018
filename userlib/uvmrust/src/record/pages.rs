// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A file that is written by writing memory: what is written is in it whatever becomes of the
//! process, and takes no system call.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Bytes of the file that are mapped at once: a multiple of every page size.
const PIECE: usize = 1 << 20;

/// A file that grows by pieces. Behind what was written it has zeros.
#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    /// The last piece, of [`PIECE`] bytes, mapped for as long as this is here; `None`: the
    /// file is empty.
    piece: Option<Piece>,
    /// Bytes of the file: of all pieces.
    length: usize,
    /// Bytes of the last piece that are written; without one, as if it were full.
    filled: usize,
}

/// Some of a file, mapped.
#[derive(Debug)]
struct Piece(*mut u8);

// SAFETY: the mapping is the process's, and nobody else has this address.
unsafe impl Send for Piece {}

impl Piece {
    /// Maps [`PIECE`] bytes of a file from `offset`, and makes the file as long. Its blocks are
    /// there then: on a full disk the call fails, and no write into memory does.
    fn new(file: &File, offset: usize) -> Result<Self> {
        let fd = file.as_raw_fd();
        // SAFETY: a system call on a file of ours.
        match unsafe { libc::posix_fallocate(fd, offset as libc::off_t, PIECE as libc::off_t) } {
            0 => {}
            error => return Err(Error::from_raw_os_error(error)),
        }
        // SAFETY: a new mapping, at an address that is free.
        let mapped = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                PIECE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                offset as libc::off_t,
            )
        };
        match mapped {
            libc::MAP_FAILED => Err(Error::last_os_error()),
            mapped => Ok(Self(mapped.cast())),
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: ours, from `new`.
        let _ = unsafe { libc::munmap(self.0.cast(), PIECE) };
    }
}

impl Pages {
    /// An empty file at `path`; what was there is gone.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Ok(Self {
            file: options.open(path)?,
            piece: None,
            length: 0,
            filled: PIECE,
        })
    }

    /// Adds bytes to the end. After an error some of them may be there.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.filled == PIECE {
                self.grow()?;
            }
            let Some(piece) = &self.piece else { break };
            let count = bytes.len().min(PIECE - self.filled);
            let (now, later) = bytes.split_at(count);
            // SAFETY: `count` bytes from `filled` on lie in the piece, and are nobody else's.
            unsafe {
                core::ptr::copy_nonoverlapping(now.as_ptr(), piece.0.add(self.filled), count)
            };
            self.filled += count;
            bytes = later;
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<()> {
        self.piece = Some(Piece::new(&self.file, self.length)?);
        self.length += PIECE;
        self.filled = 0;
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn lines_that_lie_in_two_pieces_are_whole() {
        let path = std::env::temp_dir().join(format!("uvmrust-pages-{}", std::process::id()));
        let mut pages = Pages::create(&path).unwrap();
        let mut expected = Vec::new();
        let mut number = 0;
        while expected.len() < 2 * PIECE + 100 {
            let line = format!("{number:07}\n{number}\n");
            pages.write(line.as_bytes()).unwrap();
            expected.extend_from_slice(line.as_bytes());
            number += 1;
        }
        let there = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(there.len(), 3 * PIECE);
        assert!(there.starts_with(&expected));
        assert!(there[expected.len()..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_file_that_cannot_grow_is_an_error() {
        let full = Path::new("/dev/full");
        if full.exists() {
            assert!(Pages::create(full).and_then(|mut p| p.write(b"a")).is_err());
        }
    }
}
