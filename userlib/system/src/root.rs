// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The file system, or a folder that stands for it.

use std::io;
use std::path::{Path, PathBuf};

/// Where /proc, /sys and /dev are looked for.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// More of a file in /proc or /sys is not read: all that are looked at are far shorter, and
/// a file that never ends is not to fill the memory.
const MOST: u64 = 8 << 20;

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
    /// As opening and reading it.
    pub fn text(&self, path: &str) -> io::Result<String> {
        use std::io::Read;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(self.path(path))?;
        file.take(MOST).read_to_end(&mut bytes)?;
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
