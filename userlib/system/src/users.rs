// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The processes that have UVM open.

use std::ffi::OsStr;

use serde::Serialize;

use crate::Root;

/// A process that has /dev/nvidia-uvm open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// Its process ID, as `/proc` has it.
    pub pid: u32,
    /// The name of its command, as `/proc` has it: 15 bytes at most.
    pub command: String,
    /// Its descriptors of the device.
    #[serde(skip)]
    pub descriptors: Vec<u32>,
}

/// Who uses UVM, as far as this process may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Users {
    /// The processes that were seen, by process ID.
    pub seen: Vec<User>,
    /// There are processes whose descriptors this one may not see.
    pub hidden: bool,
}

impl Users {
    /// All but the process `own`, the one that asks.
    pub fn now(root: &Root, own: u32) -> Self {
        let mut users = Self::default();
        for name in root.names("/proc") {
            let Some(pid) = name.parse().ok().filter(|&pid| pid != own) else {
                continue;
            };
            let folder = format!("/proc/{name}/fd");
            if root.denies(&folder) {
                users.hidden = true;
                continue;
            }
            let uvm = |fd: &&String| {
                let to = root.link(&format!("{folder}/{fd}"));
                to.is_some_and(|to| is_uvm(to.as_os_str()))
            };
            let fds = root.names(&folder);
            let fds = fds.iter().filter(uvm);
            let descriptors: Vec<_> = fds.filter_map(|fd| fd.parse().ok()).collect();
            if !descriptors.is_empty() {
                let command = root.line(&format!("/proc/{name}/comm"));
                users.seen.push(User {
                    pid,
                    command: command.unwrap_or_default(),
                    descriptors,
                });
            }
        }
        users.seen.sort_by_key(|user| user.pid);
        users
    }
}

/// What a link in /proc/*/fd says of the device; of one whose node is gone, too.
fn is_uvm(to: &OsStr) -> bool {
    to == "/dev/nvidia-uvm" || to == "/dev/nvidia-uvm (deleted)"
}
