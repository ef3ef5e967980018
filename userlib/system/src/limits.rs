// SPDX-License-Identifier: GPL-2.0-only OR MIT

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
    /// The least that one of these cgroups may still take.
    pub cgroup_free: Option<u64>,
    /// Bytes of address space (`ulimit -v`). CUDA reserves much more than it uses.
    pub address_space: Option<u64>,
}

/// What managed memory may have of the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// Bytes that it may still have.
    pub free: u64,
    /// Bytes that all managed memory together may have.
    pub total: u64,
}

impl Limits {
    /// What managed memory may have of the host's: what is there, within the cgroup's limit. 0 if
    /// nothing is known.
    pub fn managed(&self) -> HostMemory {
        let least = |known: Option<u64>, limit: Option<u64>| {
            let known = known.unwrap_or(0);
            limit.map_or(known, |limit| known.min(limit))
        };
        HostMemory {
            free: least(self.available, self.cgroup_free),
            total: least(self.host, self.cgroup),
        }
    }

    /// The limits of this process as they are now.
    pub fn now(root: &Root) -> Self {
        let memory = root.text("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| -> Option<u64> {
            let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
            let number: u64 = line.split_whitespace().next()?.parse().ok()?;
            number.checked_mul(1024)
        };
        let (cgroup, cgroup_free) = cgroup(root);
        Self {
            host: kib("MemTotal:"),
            available: kib("MemAvailable:"),
            cgroup,
            cgroup_free,
            address_space: address_space(root),
        }
    }
}

/// The least limit of the memory cgroups of the second version, and the least that one may still
/// take; `None`: there is none.
fn cgroup(root: &Root) -> (Option<u64>, Option<u64>) {
    let text = root.text("/proc/self/cgroup").unwrap_or_default();
    let mut limits = (None, None);
    let Some(mut path) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
        return limits;
    };
    let least = |known: Option<u64>, new: u64| Some(known.map_or(new, |known| known.min(new)));
    loop {
        let number = |name: &str| -> Option<u64> {
            let file = format!("/sys/fs/cgroup{}/{name}", path.trim_end_matches('/'));
            root.line(&file)?.parse().ok()
        };
        if let Some(max) = number("memory.max") {
            limits.0 = least(limits.0, max);
            let free = max.saturating_sub(number("memory.current").unwrap_or(0));
            limits.1 = least(limits.1, free);
        }
        match path.trim_end_matches('/').rsplit_once('/') {
            Some((above, _)) => path = above,
            None => return limits,
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
