// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The processes that have UVM open.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Users {
    /// The processes that were seen, by process ID.
    pub seen: Vec<User>,
    /// How many others there are whose descriptors this process may not see, each of which may have it open. `None`: nobody
    /// knows, as `/proc` does not show them at all (`hidepid=invisible`).
    pub hidden: Option<u32>,
}

impl Users {
    /// All but the process `own`, the one that asks.
    pub fn now(root: &Root, own: u32) -> Self {
        let mut users = Self {
            seen: Vec::new(),
            hidden: (!hides(root)).then_some(0),
        };
        for name in root.names("/proc") {
            let Some(pid) = name.parse().ok().filter(|&pid| pid != own) else {
                continue;
            };
            let folder = format!("/proc/{name}/fd");
            let Ok(descriptors) = descriptors(root, &folder) else {
                users.hidden = users.hidden.map(|hidden| hidden + 1);
                continue;
            };
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

/// The descriptors of the device in a process's folder of them.
///
/// # Errors
/// This process may not see one, or none of them.
fn descriptors(root: &Root, folder: &str) -> io::Result<Vec<u32>> {
    if root.denies(folder) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let names = root.names(folder);
    of_device(&names, |fd| {
        std::fs::read_link(root.path(&format!("{folder}/{fd}")))
    })
}

/// Those of these descriptors that are the device's, by what their links say. One that was closed meanwhile is no error.
fn of_device(
    names: &[String],
    read_link: impl Fn(&str) -> io::Result<PathBuf>,
) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for fd in names {
        match read_link(fd) {
            Ok(to) if is_uvm(to.as_os_str()) => found.extend(fd.parse::<u32>()),
            // Who may list the folder may yet not trace the process, which the links want.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
    }
    Ok(found)
}

/// Whether `/proc` leaves out the processes that this one may not trace, so that nobody can count them. Of several that are
/// mounted there the last is seen. Root sees all, whatever it says.
fn hides(root: &Root) -> bool {
    let mounts = root.text("/proc/self/mounts").unwrap_or_default();
    let mut options = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        (words.next() == Some("/proc") && words.next() == Some("proc")).then(|| words.next())?
    });
    let hidden = [
        "hidepid=2",
        "hidepid=invisible",
        "hidepid=4",
        "hidepid=ptraceable",
    ];
    let hides = options
        .next_back()
        .is_some_and(|options| options.split(',').any(|option| hidden.contains(&option)));
    hides && root.line("/proc/1/comm").is_none()
}

/// What a link in /proc/*/fd says of the device; of one whose node is gone, too.
fn is_uvm(to: &OsStr) -> bool {
    to == "/dev/nvidia-uvm" || to == "/dev/nvidia-uvm (deleted)"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_link_that_may_not_be_read_hides_its_process() {
        let names = ["3", "4", "x"].map(str::to_owned);
        let with = |four: io::Result<PathBuf>| {
            let four = std::cell::Cell::new(Some(four));
            of_device(&names, |fd| match fd {
                "4" => four.take().unwrap(),
                _ => Ok("/dev/nvidia-uvm".into()),
            })
        };
        assert_eq!(with(Ok("/dev/nvidia-uvm".into())).unwrap(), [3, 4]);
        assert_eq!(with(Ok("/dev/null".into())).unwrap(), [3]);
        let closed = io::ErrorKind::NotFound;
        assert_eq!(with(Err(closed.into())).unwrap(), [3]);
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(with(Err(denied.into())).unwrap_err().kind(), denied);
    }
}
