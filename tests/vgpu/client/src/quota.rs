// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! How much of a GPU's memory a process may hold.

use uvm_uapi::{uvm_rust_quota, UVM_RUST_QUOTA_MAX, UVM_RUST_SET_QUOTA};

use crate::uvm::Uuid;
use crate::{Process, Result};

impl Process {
    /// Sets how many bytes of `gpu` this process may hold, `u64::MAX` for all; returns how many it may now.
    pub fn set_quota(&self, gpu: Uuid, max: u64) -> Result<u64> {
        Ok(self.quota(gpu, max, UVM_RUST_QUOTA_MAX)?.max)
    }

    /// Asks what there is, or sets what the flags say.
    pub fn quota(&self, gpu: Uuid, max: u64, flags: u32) -> Result<uvm_rust_quota> {
        let mut quota = uvm_rust_quota {
            size: size_of::<uvm_rust_quota>() as u32,
            flags,
            gpu_uuid: gpu.0,
            max,
            ..Default::default()
        };
        self.ask("UVM_RUST_SET_QUOTA", UVM_RUST_SET_QUOTA, &mut quota)?;
        Ok(quota)
    }
}
