// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The file system, or a folder that stands for it.

use std::io;
use std::path::{Path, PathBuf};

/// Where /proc, /sys and /dev are looked for.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// More of a file in /proc or /sys is not read: all that are looked at are far shorter, and
/// a file that never ends is not to fill the memory.
const MOST: u64 = 64 << 20;

impl Root {
    /// Below this folder; `/` is the real one.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Where an absolute path is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// The text of a file, whatever bytes are in it.
    ///
    /// # Errors
    /// As opening and reading it; [`io::ErrorKind::FileTooLarge`] if it is longer than 64 MiB, as part of it
    /// says something else than all of it.
    pub fn text(&self, path: &str) -> io::Result<String> {
        use std::io::Read;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(self.path(path))?;
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

    /// The names in a folder, in order; none if it can not be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten();
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
        std::fs::read_dir(self.path(path))
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// The folder that stands for `/`: `/` itself but in tests.
    pub fn folder(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

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
