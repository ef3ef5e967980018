// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What our driver says of the files of a process, in `/proc/PID/fdinfo/FD`: a process's user may
//! read it without being root (docs/uapi.md, "fdinfo").

use std::collections::{BTreeMap, BTreeSet};

use crate::{Counts, Root, User};

/// What the open files of a process say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FdInfo {
    /// What its VA spaces did, by the number of the GPU in UVM. `None`: none of them counts anything.
    pub gpus: Option<BTreeMap<u32, Counts>>,
    /// Bytes of each GPU's memory that its pages take, in whole chunks of 2 MiB, by the number of the GPU in
    /// UVM. `None`: this driver does not know.
    pub resident: Option<BTreeMap<u32, u64>>,
    /// Of these, bytes of chunks that hold nothing but what is discarded. `None`: this driver does not know.
    pub discarded: Option<BTreeMap<u32, u64>>,
    /// Bytes of a GPU's memory that its pages may take, by the number of the GPU in UVM. A GPU is not there if one of the
    /// process's VA spaces may take as much as there is.
    pub max: BTreeMap<u32, u64>,
    /// Bytes of a GPU's memory that others leave to its VA spaces, by the number of the GPU in UVM. A GPU is not there if
    /// none of them has a low there.
    pub low: BTreeMap<u32, u64>,
    /// Bytes of its managed memory that are in host memory. `None`: this driver does not know it of one of its VA spaces.
    pub host: Option<u64>,
    /// Bytes of its managed memory that are on the SSD tier's device and nowhere else. `None`: as above, or no device is
    /// attached.
    pub ssd: Option<u64>,
    /// The VA spaces whose counts these are. A count of one set does not go on in that of another.
    pub clients: BTreeSet<u64>,
    /// Bytes on the SSD tier's device of its tenant, whose processes all have the same number here.
    /// Of several tenants, the most. `None`: no device is attached.
    pub tenant_ssd: Option<u64>,
}

/// What each of these processes did, by process ID.
///
/// A file that several processes have, as after a fork, is one VA space: its counts are those of the
/// first process that has it, so that no count is there twice.
pub fn fdinfo(root: &Root, users: &[User]) -> BTreeMap<u32, FdInfo> {
    let mut clients = BTreeSet::new();
    let mut of = BTreeMap::new();
    for user in users {
        let said: &mut FdInfo = of.entry(user.pid).or_default();
        for fd in &user.descriptors {
            let text = root.text(&format!("/proc/{}/fdinfo/{fd}", user.pid));
            said.add(&text.unwrap_or_default(), &mut clients);
        }
    }
    of
}

impl FdInfo {
    /// Takes the text of a file, whose client may be among those that were seen before.
    fn add(&mut self, text: &str, clients: &mut BTreeSet<u64>) {
        let lines = || {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.map(|(key, value)| (key, value.trim()))
        };
        let value = |key| lines().find(|line| line.0 == key).map(|line| line.1);
        // The descriptor may have become another driver's since it was looked at.
        if value("drm-driver") != Some("nvidia-uvm") {
            return;
        }
        // Without a client the file is not initialized.
        let Some(client) = value("drm-client-id").and_then(|id| id.parse().ok()) else {
            return;
        };
        let ssd = value("nvidia-uvm-tenant-ssd").and_then(|bytes| bytes.parse().ok());
        self.tenant_ssd = self.tenant_ssd.max(ssd);
        if !clients.insert(client) {
            return;
        }
        let is_first = self.clients.is_empty();
        self.clients.insert(client);
        for (sum, key) in [
            (&mut self.host, "drm-resident-memory"),
            (&mut self.ssd, "nvidia-uvm-ssd"),
        ] {
            let before = if is_first { Some(0) } else { *sum };
            let told = value(key).and_then(|bytes| bytes.parse().ok());
            // A sum that lacks one is not told.
            *sum = before
                .zip(told)
                .map(|(before, told)| before.saturating_add(told));
        }
        for (key, value) in lines() {
            let Some((gpu, name)) = key
                .strip_prefix("nvidia-uvm-gpu")
                .and_then(|of| of.split_once('-'))
            else {
                continue;
            };
            if let (Ok(gpu), Ok(n)) = (gpu.parse(), value.parse()) {
                if name == "resident" {
                    let known = self.resident.as_ref().is_some_and(|r| r.contains_key(&gpu));
                    let resident = self.resident.get_or_insert_with(BTreeMap::new);
                    *resident.entry(gpu).or_default() += n;
                    let max = format!("nvidia-uvm-gpu{gpu}-max");
                    let max = lines().find(|line| line.0 == max);
                    let before = if known {
                        self.max.remove(&gpu)
                    } else {
                        Some(0)
                    };
                    let max = max.and_then(|line| line.1.parse::<u64>().ok());
                    if let (Some(before), Some(max)) = (before, max) {
                        self.max.insert(gpu, before.saturating_add(max));
                    }
                    continue;
                }
                if name == "discarded" {
                    let discarded = self.discarded.get_or_insert_with(BTreeMap::new);
                    *discarded.entry(gpu).or_default() += n;
                    continue;
                }
                if name == "max" {
                    continue;
                }
                if name == "low" {
                    let low = self.low.entry(gpu).or_default();
                    *low = low.saturating_add(n);
                    continue;
                }
                let gpus = self.gpus.get_or_insert_with(BTreeMap::new);
                gpus.entry(gpu).or_default().set(name, n);
            }
        }
    }
}
