// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Memory cgroups that a test makes, and limits.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;

/// A memory cgroup, and nothing in it when this is dropped. A test has one at a time.
pub struct Group(PathBuf);

impl Group {
    const ROOT: &'static str = "/tmp/uvm-rust-groups";

    /// Where there are none of the second kind, nothing.
    pub fn new() -> Result<Option<Self>, Failure> {
        fs::create_dir_all(Self::ROOT)?;
        let mounted = Command::new("mount")
            .args(["-t", "cgroup2", "none", Self::ROOT])
            .status()?;
        if !mounted.success() {
            return Ok(None);
        }
        let group = Self(PathBuf::from(Self::ROOT).join("full"));
        fs::write(format!("{}/cgroup.subtree_control", Self::ROOT), "+memory")?;
        fs::create_dir_all(&group.0)?;
        Ok(Some(group))
    }

    /// How many cgroups were removed and are kept by somebody; nothing where there are none.
    pub fn dying() -> Result<Option<usize>, Failure> {
        let Some(_mounted) = Self::new()? else {
            return Ok(None);
        };
        let text = fs::read_to_string(format!("{}/cgroup.stat", Self::ROOT))?;
        Ok(counted(&text, "nr_dying_descendants").map(|n| n as usize))
    }

    /// Sets how many bytes it may have, as `memory.max` reads it.
    pub fn limit(&self, bytes: &str) -> Result<(), Failure> {
        Ok(fs::write(self.0.join("memory.max"), bytes)?)
    }

    /// Sets from how many bytes on its processes are made to wait, as `memory.high` reads it.
    pub fn slow_from(&self, bytes: &str) -> Result<(), Failure> {
        Ok(fs::write(self.0.join("memory.high"), bytes)?)
    }

    /// Bytes that are charged to it.
    pub fn charged(&self) -> Result<u64, Failure> {
        self.bytes("memory.current")
    }

    /// The most bytes that ever were charged to it.
    pub fn most_charged(&self) -> Result<u64, Failure> {
        self.bytes("memory.peak")
    }

    fn bytes(&self, file: &str) -> Result<u64, Failure> {
        let text = fs::read_to_string(self.0.join(file))?;
        let bytes = text.trim().parse();
        bytes.map_err(|_| format!("{file} is {text:?}").into())
    }

    /// How often something of this name has happened to it, such as `max` or `oom_kill`.
    pub fn events(&self, name: &str) -> Result<u64, Failure> {
        self.count("memory.events", name)
    }

    /// Bytes of the kernel's own objects that are charged to it, as told until now: the kernel may
    /// be two seconds late.
    fn objects(&self) -> Result<u64, Failure> {
        self.count("memory.stat", "slab_unreclaimable")
    }

    fn count(&self, file: &str, name: &str) -> Result<u64, Failure> {
        let text = fs::read_to_string(self.0.join(file))?;
        counted(&text, name).ok_or_else(|| format!("no {name} in {file}").into())
    }

    /// The same as `objects`, once nothing is late any more; the caller makes no objects meanwhile.
    pub fn settled_objects(&self) -> Result<u64, Failure> {
        let mut last = self.objects()?;
        for _ in 0..10 {
            std::thread::sleep(Duration::from_secs(3));
            let now = self.objects()?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
        Err("what is charged to the group never stays the same for three seconds".into())
    }

    /// A process that writes 0 to this file is in the group from then on.
    pub fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Takes a process out of the group it is in.
    pub fn leave(process: u32) -> Result<(), Failure> {
        let procs = format!("{}/cgroup.procs", Self::ROOT);
        Ok(fs::write(procs, process.to_string())?)
    }

    /// What `work` gives, which this process does in the group. It is not in it any more
    /// afterwards; a child that it has started is.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> Result<T, Failure> {
        fs::write(self.procs(), "0")?;
        let done = work();
        fs::write(format!("{}/cgroup.procs", Self::ROOT), "0")?;
        Ok(done)
    }
}

/// The number behind `name` in a file with one on each line.
fn counted(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(n, _)| *n == name)?.1.trim().parse().ok()
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.limit("max");
        let _ = self.slow_from("max");
        let _ = fs::write(format!("{}/cgroup.procs", Self::ROOT), "0");
        let start = Instant::now();
        while fs::remove_dir(&self.0).is_err() && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = Command::new("umount").args(["-l", Self::ROOT]).status();
    }
}
