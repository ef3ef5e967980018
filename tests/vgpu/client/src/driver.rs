// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What our driver counts itself: `include/uapi/uvm_rust_ioctl.h`.
#![allow(missing_docs)]

use crate::layout::{c_struct, Layout};
use crate::uvm::Uuid;
use crate::{ffi, Error, Process, Result};

c_struct!(
    /// What a driver offers.
    Version, "struct uvm_rust_version", "UVM_RUST_GET_VERSION" = 0x1000, 16, {
        size "size": u32,
        version "version": u32,
        features "features": u64,
    }
);

/// How much was copied, in one direction and for one cause.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Traffic {
    /// How many bytes were copied.
    pub bytes: u64,
    /// The same in pages of 4 KiB.
    pub pages: u64,
}

c_struct!(
    /// What one GPU did; the header says how each is counted.
    DriverStats, "struct uvm_rust_stats", "UVM_RUST_GET_STATS" = 0x1001, 568, {
        size "size": u32,
        flags "flags": u32,
        gpu "gpu_uuid": Uuid,
        host_to_gpu "host_to_gpu": [Traffic; 8],
        gpu_to_host "gpu_to_host": [Traffic; 8],
        gpu_to_gpu "gpu_to_gpu": [Traffic; 8],
        faults "faults": u64,
        duplicates "duplicates": u64,
        batches "batches": u64,
        replays "replays": u64,
        evictions "evictions": [u64; 8],
        queued "queued": [u64; 8],
    }
);

/// Every layout of this module.
pub const LAYOUTS: &[Layout] = &[Version::LAYOUT, DriverStats::LAYOUT];

/// The version of our driver's calls and its features, or `None` on a driver
/// without them, such as the unmodified one.
pub fn driver_version(process: &Process) -> Result<Option<(u32, u64)>> {
    let mut version = Version {
        size: 16,
        ..Default::default()
    };
    let call = "UVM_RUST_GET_VERSION";
    match ffi::uvm_ioctl(process.uvm_fd(), Version::LAYOUT.number.1, &mut version) {
        Ok(()) => Ok(Some((version.version, version.features))),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(e) => Err(Error::os(call, e)),
    }
}

impl DriverStats {
    /// What `gpu` did for this process, or for all of them.
    pub fn get(process: &Process, gpu: Uuid, whole_gpu: bool) -> Result<Self> {
        let flags = u32::from(whole_gpu);
        let mut stats = Self {
            size: size_of::<Self>() as u32,
            flags,
            gpu,
            ..Default::default()
        };
        ffi::uvm_ioctl(process.uvm_fd(), Self::LAYOUT.number.1, &mut stats)
            .map_err(|e| Error::os("UVM_RUST_GET_STATS", e))?;
        Ok(stats)
    }

    /// 2 MiB chunks of va_blocks that were taken back, off any queue.
    pub fn evicted_chunks(&self) -> u64 {
        self.evictions[1..].iter().sum()
    }
}
