// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Where the lines of a record end, for who ends the process and cannot have the record: a thread that
//! writes a line may never come to its end.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::OnceLock;

use crate::kept::{identity, Identity};

/// The line that says so. Behind it is what the file ends with, whatever was there.
const CUT: &[u8] = b"x\n\0";

/// The end of a record's file, which any thread may be told of.
#[derive(Debug, Default)]
pub struct End {
    /// Nothing is written any more.
    cut: AtomicBool,
    /// Bytes of whole lines.
    bytes: AtomicU64,
    file: OnceLock<(CString, Identity)>,
}

impl End {
    /// Says in the file that the record is cut, behind its last whole line. Nothing is written behind that. Waits
    /// for no lock, and allocates nothing: a signal may have come in the midst of either.
    pub fn cut(&self) {
        if !self.cut.swap(true, SeqCst) {
            self.mark();
        }
    }

    /// Whether the record is cut.
    pub fn is_cut(&self) -> bool {
        self.cut.load(SeqCst)
    }

    /// Says which file it is.
    pub(super) fn begins(&self, path: &Path, is: Identity) {
        if let Ok(path) = CString::new(path.as_os_str().as_bytes()) {
            let _ = self.file.set((path, is));
        }
    }

    /// Says where the last line ends now. Who has cut the record meanwhile has marked an earlier end.
    pub(super) fn is_at(&self, bytes: u64) {
        self.bytes.store(bytes, SeqCst);
        if self.is_cut() {
            self.mark();
        }
    }

    fn mark(&self) {
        let Some((path, is)) = self.file.get() else {
            return;
        };
        let at = self.bytes.load(SeqCst) as libc::off_t;
        // SAFETY: the path is a C string, and the bytes are as many as is said.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if fd < 0 {
                return;
            }
            // Another file may be in its place.
            if identity(fd) == Some(*is) {
                let _ = libc::pwrite(fd, CUT.as_ptr().cast(), CUT.len(), at);
            }
            let _ = libc::close(fd);
        }
    }
}
