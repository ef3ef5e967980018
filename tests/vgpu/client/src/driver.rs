// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What our driver counts itself: `include/uapi/uvm_rust_ioctl.h`.

use std::ops::Deref;

use uvm_uapi::{uvm_rust_stats, uvm_rust_version, UVM_RUST_GET_STATS, UVM_RUST_GET_VERSION};

use crate::uvm::Uuid;
use crate::{ffi, Error, Process, Result};

/// How much was copied, in one direction and for one cause.
pub use uvm_uapi::uvm_rust_traffic as Traffic;

/// What one GPU did; the header says how each is counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverStats(uvm_rust_stats);

impl Deref for DriverStats {
    type Target = uvm_rust_stats;

    fn deref(&self) -> &uvm_rust_stats {
        &self.0
    }
}

/// The version of our driver's calls and its features, or `None` on a driver
/// without them, such as the unmodified one.
pub fn driver_version(process: &Process) -> Result<Option<(u32, u64)>> {
    let mut version = uvm_rust_version {
        size: size_of::<uvm_rust_version>() as u32,
        ..Default::default()
    };
    let call = "UVM_RUST_GET_VERSION";
    match ffi::uvm_ioctl(process.uvm_fd(), UVM_RUST_GET_VERSION, &mut version) {
        Ok(()) => Ok(Some((version.version, version.features))),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(e) => Err(Error::os(call, e)),
    }
}

impl DriverStats {
    /// What `gpu` did for this process, or for all of them.
    pub fn get(process: &Process, gpu: Uuid, whole_gpu: bool) -> Result<Self> {
        let flags = u32::from(whole_gpu);
        let mut stats = uvm_rust_stats {
            size: size_of::<uvm_rust_stats>() as u32,
            flags,
            gpu_uuid: gpu.0,
            ..Default::default()
        };
        ffi::uvm_ioctl(process.uvm_fd(), UVM_RUST_GET_STATS, &mut stats)
            .map_err(|e| Error::os("UVM_RUST_GET_STATS", e))?;
        Ok(Self(stats))
    }

    /// 2 MiB chunks of va_blocks that were taken back, off any queue.
    pub fn evicted_chunks(&self) -> u64 {
        self.evictions[1..].iter().sum()
    }
}
