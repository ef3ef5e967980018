// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A file that is written by writing memory: what is written is in it whatever becomes of the
//! process, and takes no system call. Not every file can be mapped for that (9p without a cache,
//! some of FUSE): such a file takes a system call for each write.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the file that are mapped at once: a multiple of every page size.
const PIECE: usize = 1 << 20;

/// A file that grows by pieces. Behind what was written it has zeros.
#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    /// The last piece, of [`PIECE`] bytes, mapped for as long as this is here; `None`: the
    /// file is empty, or it cannot be mapped.
    piece: Option<Piece>,
    /// Bytes that are written.
    end: usize,
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
        Ok(Self::of(options.open(path)?))
    }

    /// A file that is empty.
    fn of(file: File) -> Self {
        Self {
            file,
            piece: None,
            end: 0,
        }
    }

    /// Adds bytes to the end. After an error some of them may be there.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let filled = self.end % PIECE;
            if filled == 0 {
                // If that fails for want of room, so does the write.
                self.piece = Piece::new(&self.file, self.end).ok();
            }
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - filled));
            match &self.piece {
                // SAFETY: `now` ends within the piece, whose bytes are nobody else's.
                Some(piece) => unsafe {
                    core::ptr::copy_nonoverlapping(now.as_ptr(), piece.0.add(filled), now.len())
                },
                None => self.file.write_all_at(now, self.end as u64)?,
            }
            self.end += now.len();
            bytes = later;
        }
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// More than two pieces of lines, as they are in the file at the end.
    fn written(name: &str, reads: bool) -> (Pages, Vec<u8>, Vec<u8>) {
        let name = format!("uvmrust-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.read(reads).write(true).create_new(true);
        let mut pages = Pages::of(options.open(&path).unwrap());
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
        (pages, expected, there)
    }

    #[test]
    fn lines_that_lie_in_two_pieces_are_whole() {
        let (_, expected, there) = written("pages", true);
        assert_eq!(there.len(), 3 * PIECE);
        assert!(there.starts_with(&expected));
        assert!(there[expected.len()..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_file_that_cannot_be_mapped_is_written() {
        // What is not open for reading cannot be.
        let (pages, expected, there) = written("plain", false);
        assert!(pages.piece.is_none());
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
