// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A folder that a test makes and that goes with it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of its own for one test, removed when the test ends.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes an empty folder whose name tells what it is for.
    pub fn new(what: &str) -> Scratch {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("uvm-rust-xtask-{what}-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path.canonicalize().unwrap())
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and makes the folders that lead to it.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Reads a file, which counts as empty where it is not there.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// Takes a file away.
    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.0.join(name)).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
