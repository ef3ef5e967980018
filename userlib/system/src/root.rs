// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The file system, or a folder that stands for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

/// Where /proc, /sys and /dev are looked for.
#[derive(Clone, Debug)]
pub struct Root {
    folder: PathBuf,
    /// Something could not be looked at for want of a descriptor. Clones share it.
    ran_short: Arc<AtomicBool>,
}

/// More of a file in /proc or /sys is not read: all that are looked at are far shorter, and
/// a file that never ends is not to fill the memory.
const MOST: u64 = 64 << 20;

impl Root {
    /// Below this folder; `/` is the real one.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            ran_short: Arc::default(),
        }
    }

    /// Whether something could not be looked at since the last call, as this process or the system had no
    /// descriptor left: then what was not seen may be there all the same.
    pub fn ran_short(&self) -> bool {
        self.ran_short.swap(false, Relaxed)
    }

    /// Gives on what came of an attempt to open something, and takes notice of a want of descriptors.
    fn noticed<T>(&self, opened: io::Result<T>) -> io::Result<T> {
        let error = opened.as_ref().err().and_then(io::Error::raw_os_error);
        if matches!(error, Some(libc::EMFILE | libc::ENFILE)) {
            self.ran_short.store(true, Relaxed);
        }
        opened
    }

    /// Where an absolute path is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }

    /// The text of a file, whatever bytes are in it.
    ///
    /// # Errors
    /// As opening and reading it; [`io::ErrorKind::FileTooLarge`] if it is longer than 64 MiB, as part of it
    /// says something else than all of it.
    pub fn text(&self, path: &str) -> io::Result<String> {
        use std::io::Read;
        let mut bytes = Vec::new();
        let file = self.noticed(std::fs::File::open(self.path(path)))?;
        file.take(MOST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first line of a file, if there is one that may be read.
    pub fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path).ok()?;
        text.lines().next().map(|line| line.trim().to_owned())
    }

    /// The names in a folder, in order; none if it cannot be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = self.noticed(std::fs::read_dir(self.path(path)));
        let entries = entries.into_iter().flatten();
        let mut names: Vec<_> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// What a symbolic link says.
    pub fn link(&self, path: &str) -> Option<PathBuf> {
        std::fs::read_link(self.path(path)).ok()
    }

    /// Whether there is something of that name.
    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Whether a folder is there that this process may not look into.
    pub(crate) fn denies(&self, path: &str) -> bool {
        self.noticed(std::fs::read_dir(self.path(path)))
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// The folder that stands for `/`: `/` itself but in tests.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Its folder is as one that is empty, and its files as none.
    #[test]
    fn what_is_not_seen_for_want_of_a_descriptor_is_noticed() {
        let looks = |root: &Root| {
            (
                root.names("/proc/self").is_empty(),
                root.text("/proc/stat").is_err(),
            )
        };
        // SAFETY: the child ends soon, and waits for no lock: of its parent's threads it calls nothing.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let root = Root::new("/");
            let before = (looks(&root), root.ran_short());
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the limit is the child's own.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) };
            let names = (
                root.names("/proc/self").is_empty(),
                root.clone().ran_short(),
            );
            let text = (
                root.text("/proc/stat").is_err(),
                root.ran_short(),
                root.ran_short(),
            );
            let right = before == ((false, false), false)
                && set == 0
                && names == (true, true)
                && text == (true, true, false);
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 0;
        // SAFETY: the output is writable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// The last number of a text that is cut off is another, and what comes behind is missed.
    #[test]
    fn a_text_that_is_too_long_is_not_cut_off() {
        let folder = std::env::temp_dir().join(format!("uvmrust-root-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = std::fs::File::create(folder.join("long")).unwrap();
        let root = Root::new(&folder);
        file.set_len(MOST).unwrap();
        assert_eq!(root.text("/long").unwrap().len() as u64, MOST);
        file.set_len(MOST + 1).unwrap();
        let error = root.text("/long").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
