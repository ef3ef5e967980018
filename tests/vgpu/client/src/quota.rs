// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! How much of a GPU's memory a process may hold, and how much of that is protected from others.

use uvm_uapi::{uvm_rust_quota, UVM_RUST_QUOTA_LOW, UVM_RUST_QUOTA_MAX, UVM_RUST_SET_QUOTA};

use crate::uvm::Uuid;
use crate::{Process, Result};

impl Process {
    /// Sets how many bytes of `gpu` this process may hold, `u64::MAX` for all; returns how many it may now.
    pub fn set_quota(&self, gpu: Uuid, max: u64) -> Result<u64> {
        Ok(self.quota(gpu, max, UVM_RUST_QUOTA_MAX)?.max)
    }

    /// Sets how many bytes of `gpu` others leave to this process; returns how many they do now.
    pub fn set_low(&self, gpu: Uuid, low: u64) -> Result<u64> {
        Ok(self.limits(gpu, UVM_RUST_QUOTA_LOW, 0, low)?.low)
    }

    /// Asks what there is, or sets what the flags say, of which the low is 0.
    pub fn quota(&self, gpu: Uuid, max: u64, flags: u32) -> Result<uvm_rust_quota> {
        self.limits(gpu, flags, max, 0)
    }

    /// Asks what there is, or sets what the flags say.
    pub fn limits(&self, gpu: Uuid, flags: u32, max: u64, low: u64) -> Result<uvm_rust_quota> {
        let mut quota = uvm_rust_quota {
            size: size_of::<uvm_rust_quota>() as u32,
            flags,
            gpu_uuid: gpu.0,
            max,
            low,
            ..Default::default()
        };
        self.ask("UVM_RUST_SET_QUOTA", UVM_RUST_SET_QUOTA, &mut quota)?;
        Ok(quota)
    }
}
