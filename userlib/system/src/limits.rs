// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What this process may have of the host's memory.

use serde::Serialize;

use crate::Root;

/// Limits that managed memory meets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Bytes of the host's memory.
    pub host: Option<u64>,
    /// Those that are free, or could be made so.
    pub available: Option<u64>,
    /// The least `memory.max` of this process's memory cgroup and those above it. Managed
    /// pages in host memory are charged to it.
    pub cgroup: Option<u64>,
    /// Bytes of address space (`ulimit -v`). CUDA reserves much more than it uses.
    pub address_space: Option<u64>,
}

impl Limits {
    /// The limits of this process as they are now.
    pub fn now(root: &Root) -> Self {
        let memory = root.text("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| -> Option<u64> {
            let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
            let number: u64 = line.split_whitespace().next()?.parse().ok()?;
            number.checked_mul(1024)
        };
        Self {
            host: kib("MemTotal:"),
            available: kib("MemAvailable:"),
            cgroup: cgroup(root),
            address_space: address_space(root),
        }
    }
}

/// The least limit of a memory cgroup of the second version; `None`: there is none.
fn cgroup(root: &Root) -> Option<u64> {
    let text = root.text("/proc/self/cgroup").ok()?;
    let mut path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut least = None;
    loop {
        let file = format!("/sys/fs/cgroup{}/memory.max", path.trim_end_matches('/'));
        if let Some(max) = root.line(&file).and_then(|max| max.parse::<u64>().ok()) {
            least = Some(least.map_or(max, |least: u64| least.min(max)));
        }
        match path.trim_end_matches('/').rsplit_once('/') {
            Some((above, _)) => path = above,
            None => return least,
        }
    }
}

/// The soft limit; `None`: there is none.
fn address_space(root: &Root) -> Option<u64> {
    let text = root.text("/proc/self/limits").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}
