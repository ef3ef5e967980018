// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What can go wrong, said so that a person can act on it.

use std::fmt;
use std::io;

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// UVM's own status, the `rmStatus` of its calls. 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvStatus(pub u32);

impl NvStatus {
    /// The call did what it was asked for.
    pub const OK: Self = Self(0);
    /// No address space of this kind there, or a range that is not managed.
    pub const INVALID_ADDRESS: Self = Self(0x1e);
    /// A value out of its range.
    pub const INVALID_ARGUMENT: Self = Self(0x1f);
    /// The channel is not registered.
    pub const INVALID_CHANNEL: Self = Self(0x21);
    /// The processor is not registered, or cannot do this.
    pub const INVALID_DEVICE: Self = Self(0x26);
    /// No memory left, also where GPU memory cannot be evicted.
    pub const NO_MEMORY: Self = Self(0x51);
    /// The object is in no state for it.
    pub const INVALID_STATE: Self = Self(0x40);
    /// Not offered by this driver or GPU.
    pub const NOT_SUPPORTED: Self = Self(0x56);
    /// Linux has changed pages of ordinary memory meanwhile, so that not all were moved.
    pub const MORE_PROCESSING: Self = Self(0x1_0005);
    /// Done already; for UVM_MIGRATE: user space is to move the pages.
    pub const NOTHING_TO_DO: Self = Self(0x1_0006);

    fn name(self) -> &'static str {
        match self.0 {
            0 => "NV_OK",
            0x16 => "NV_ERR_ILLEGAL_ACTION",
            0x17 => "NV_ERR_IN_USE",
            0x1b => "NV_ERR_INSUFFICIENT_PERMISSIONS",
            0x1e => "NV_ERR_INVALID_ADDRESS",
            0x1f => "NV_ERR_INVALID_ARGUMENT",
            0x21 => "NV_ERR_INVALID_CHANNEL",
            0x26 => "NV_ERR_INVALID_DEVICE",
            0x38 => "NV_ERR_INVALID_OPERATION",
            0x3b => "NV_ERR_INVALID_PARAMETER",
            0x40 => "NV_ERR_INVALID_STATE",
            0x51 => "NV_ERR_NO_MEMORY",
            0x56 => "NV_ERR_NOT_SUPPORTED",
            0x57 => "NV_ERR_OBJECT_NOT_FOUND",
            0x65 => "NV_ERR_TIMEOUT",
            0x1_0006 => "NV_WARN_NOTHING_TO_DO",
            _ => "see nvstatuscodes.h",
        }
    }
}

impl fmt::Display for NvStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} ({})", self.0, self.name())
    }
}

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// The kernel refused the call.
    Os {
        /// Which call, on what.
        call: String,
        /// The errno that the kernel gave.
        source: io::Error,
    },
    /// UVM took the call and refused what it asked for.
    Uvm {
        /// The name of the ioctl in NVIDIA's headers.
        call: &'static str,
        /// The `rmStatus` that UVM wrote into the structure.
        status: NvStatus,
    },
    /// A GPU kernel did not end well, or saw wrong values.
    Kernel(crate::Report),
    /// Something this needs is not there. The text names the way to get it.
    Missing(String),
}

impl Error {
    pub(crate) fn os(call: impl Into<String>, source: io::Error) -> Self {
        Self::Os {
            call: call.into(),
            source,
        }
    }

    /// The errno, where the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// The rmStatus, where UVM gave one.
    pub fn status(&self) -> Option<NvStatus> {
        match self {
            Self::Uvm { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os { call, source } => write!(f, "{call}: {source}"),
            Self::Uvm { call, status } => write!(f, "{call}: rmStatus {status}"),
            Self::Kernel(report) => write!(f, "GPU kernel: {report}"),
            Self::Missing(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}
