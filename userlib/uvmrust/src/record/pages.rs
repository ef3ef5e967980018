// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A file that is written by writing memory: what is written is in it whatever becomes of the
//! process, and takes no system call. Not every file can be mapped for that (9p without a cache,
//! some of FUSE). Nor has every file system room for a write since it had room for the file: btrfs
//! writes each block anew. Such a file takes a system call for each write.
//!
//! A program that closes all descriptors closes the file's, which is opened anew then.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::kept::{Identity, Kept};

/// Bytes of the file that are mapped at once: a multiple of every page size.
const PIECE: usize = 1 << 20;
/// Files of one number in a folder, at most.
const MOST_ALIKE: u32 = 10_000;

/// A file that grows by pieces. Behind what was written it has zeros.
#[derive(Debug)]
pub(super) struct Pages {
    path: PathBuf,
    file: Kept,
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
    ///
    /// # Errors
    /// Those of the file; [`ErrorKind::Unsupported`] on a file system where a write into memory could fail
    /// all the same, by a SIGBUS.
    fn new(file: &File, offset: usize) -> Result<Self> {
        may_end_at(offset + PIECE)?;
        let fd = file.as_raw_fd();
        if !file_system(fd).is_some_and(keeps_room) {
            return Err(ErrorKind::Unsupported.into());
        }
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

/// The type of the file system that a file is on, as fstatfs(2) numbers them.
fn file_system(fd: i32) -> Option<u64> {
    let mut stat = core::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `stat` is writable and of the right type.
    if unsafe { libc::fstatfs(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: fstatfs has succeeded, so it has filled `stat`. Its numbers have 32 bits, whatever the type.
    Some(u64::from(unsafe { stat.assume_init() }.f_type as u32))
}

/// Whether a file system of this type writes into the blocks that posix_fallocate has taken, so that such a
/// write needs no room. "After a successful call to posix_fallocate(), subsequent writes to bytes in the specified
/// range are guaranteed not to fail because of lack of disk space" (posix_fallocate(3)), which those that copy on
/// write do not keep. A mount of overlayfs has its own type, and what is below it may be any.
fn keeps_room(of: u64) -> bool {
    /// `EXT4_SUPER_MAGIC`, that of ext2 and ext3 too.
    const EXT: u64 = 0xef53;
    /// `XFS_SUPER_MAGIC`, which is the text XFSB.
    const XFS: u64 = 0x5846_5342;
    /// `TMPFS_MAGIC`, that of memfd_create(2) too.
    const TMPFS: u64 = 0x0102_1994;
    matches!(of, EXT | XFS | TMPFS)
}

/// Whether a file of the process may be so long (`ulimit -f`). To write more ends a program that
/// does not expect SIGXFSZ.
fn may_end_at(end: usize) -> Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the output is writable. After an error there is no limit in it.
    let _ = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    match end as u64 > limit.rlim_cur {
        true => Err(Error::from_raw_os_error(libc::EFBIG)),
        false => Ok(()),
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: ours, from `new`.
        let _ = unsafe { libc::munmap(self.0.cast(), PIECE) };
    }
}

impl Pages {
    /// A new file in a folder, whose name begins with this number. One of that number may be there already, and
    /// stays: a program that calls exec keeps its process's number, and processes in containers of their own
    /// may have the same one.
    pub(super) fn create(folder: &Path, number: u32) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let mut path = folder.join(number.to_string());
        for next in 1..MOST_ALIKE {
            match options.open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    path = folder.join(format!("{number}.{next}"));
                }
                opened => return Self::of(&path, opened?),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Where the file is, and what it is known again by.
    pub(super) fn place(&self) -> (&Path, Identity) {
        (&self.path, self.file.is())
    }

    /// Bytes that are written.
    pub(super) fn end(&self) -> u64 {
        self.end as u64
    }

    /// A file that is empty.
    fn of(path: &Path, file: File) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: Kept::new(file)?,
            piece: None,
            end: 0,
        })
    }

    /// The file, which is opened anew if the program has closed it.
    fn file(&mut self) -> Result<&File> {
        if self.file.get().is_none() {
            let again = Kept::new(OpenOptions::new().read(true).write(true).open(&self.path)?)?;
            if !again.is_same(&self.file) {
                let why = "the program has closed its file, and another is in its place";
                return Err(Error::new(ErrorKind::NotFound, why));
            }
            self.file = again;
        }
        self.file.get().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Adds bytes to the end. After an error some of them may be there.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let filled = self.end % PIECE;
            if filled == 0 {
                // If that fails for want of room, so does the write.
                let end = self.end;
                self.piece = Piece::new(self.file()?, end).ok();
            }
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - filled));
            match &self.piece {
                // SAFETY: `now` ends within the piece, whose bytes are nobody else's.
                Some(piece) => unsafe {
                    core::ptr::copy_nonoverlapping(now.as_ptr(), piece.0.add(filled), now.len())
                },
                None => {
                    let end = self.end;
                    may_end_at(end + now.len())?;
                    self.file()?.write_all_at(now, end as u64)?;
                }
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
    use std::os::fd::FromRawFd;

    /// More than two pieces of lines, as they are in the file at the end.
    fn written(name: &str, reads: bool) -> (Pages, Vec<u8>, Vec<u8>) {
        let name = format!("uvmrust-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.read(reads).write(true).create_new(true);
        let mut pages = Pages::of(&path, options.open(&path).unwrap()).unwrap();
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
        let (pages, expected, there) = written("pages", true);
        match pages.piece {
            Some(_) => assert_eq!(there.len(), 3 * PIECE),
            None => {
                assert!(!file_system(pages.file.get().unwrap().as_raw_fd()).is_some_and(keeps_room))
            }
        }
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

    /// Where a write may need room that the file does not have, it is an error, and no SIGBUS.
    #[test]
    fn only_a_file_that_keeps_its_room_is_mapped() {
        let names = [
            (0xef53, true),
            (0x5846_5342, true),
            (0x0102_1994, true),
            // btrfs, ZFS, bcachefs, F2FS, overlayfs, NFS, FUSE, 9p
            (0x9123_683e, false),
            (0x2fc1_2fc1, false),
            (0xca45_1a4e, false),
            (0xf2f5_2010, false),
            (0x794c_7630, false),
            (0x6969, false),
            (0x6573_5546, false),
            (0x0102_1997, false),
        ];
        for (of, keeps) in names {
            assert_eq!(keeps_room(of), keeps, "{of:#x}");
        }
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is new, and nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        assert!(Piece::new(&file, 0).is_ok());
        let file = File::open("/proc/self/mounts").unwrap();
        let error = Piece::new(&file, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_file_that_the_program_closes_is_had_anew() {
        let name = |what| format!("uvmrust-{what}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name("closed"));
        std::fs::create_dir(&folder).unwrap();
        let mut pages = Pages::create(&folder, 7).unwrap();
        let path = folder.join("7");
        let line = [b'a'; PIECE / 2];
        pages.write(&line).unwrap();
        let fd = pages.file().unwrap().as_raw_fd();
        // The program's own file has the number now.
        let other = std::env::temp_dir().join(name("other"));
        std::fs::write(&other, "mine").unwrap();
        let mine = File::open(&other).unwrap();
        // SAFETY: both are ours, and the first is closed by this.
        assert_eq!(unsafe { libc::dup2(mine.as_raw_fd(), fd) }, fd);
        (0..4).for_each(|_| pages.write(&line).unwrap());
        assert_eq!(
            std::fs::read(&path).unwrap()[..5 * PIECE / 2],
            [b'a'; 5 * PIECE / 2]
        );
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
        // Nor is a file written to that is in the place of the record's.
        std::fs::rename(&other, &path).unwrap();
        let fd = pages.file.get().unwrap().as_raw_fd();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::dup2(mine.as_raw_fd(), fd) }, fd);
        let failed = (0..3).find_map(|_| pages.write(&line).err()).unwrap();
        assert!(
            failed.to_string().contains("another is in its place"),
            "{failed}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_of_the_same_number_stays_as_it_is() {
        let folder = std::env::temp_dir().join(format!("uvmrust-alike-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        for text in ["first", "second", "third"] {
            let mut pages = Pages::create(&folder, 9).unwrap();
            pages.write(text.as_bytes()).unwrap();
        }
        let text = |name| std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(text("9").starts_with("first\0") && text("9.1").starts_with("second\0"));
        assert!(text("9.2").starts_with("third\0"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Pages::create(&folder, 9).is_err());
    }

    #[test]
    fn a_file_that_cannot_grow_is_an_error() {
        let full = Path::new("/dev/full");
        if full.exists() {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(full)
                .unwrap();
            let mut pages = Pages::of(full, file).unwrap();
            let error = pages.write(b"a").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
        }
    }
}
