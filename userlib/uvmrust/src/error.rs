// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What can go wrong, as one code for Rust and C.

use core::ffi::CStr;

use crate::uapi;

/// Why a call failed. The numbers are those of `uvmrust.h` and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// No driver in this process can discard. Nothing has changed: going on without is safe.
    NotSupported = -1,
    /// A range goes over the end of the address space, a pointer is null, or a
    /// flag is unknown.
    Invalid = -2,
    /// A range is not, as a whole, managed memory of this process.
    NotManaged = -3,
    /// Memory could not be had, by the driver or here.
    NoMemory = -4,
    /// CUDA is needed for this call, and this thread has no context.
    NoContext = -5,
    /// The GPU is not one that this process uses.
    NoDevice = -6,
    /// A fatal signal came.
    Interrupted = -7,
    /// The driver is in a state in which it does nothing any more, gave an
    /// error that this library does not know, or refused a batch of which it had done some.
    Driver = -8,
    /// The stream is being captured, or its use would break a capture that is under
    /// way, and what was asked for cannot become part of a graph. Nothing has
    /// changed, and the capture goes on.
    Capture = -9,
    /// The driver took no call for as long as [`crate::Linux`] waits: it stayed busy,
    /// or the system was about to sleep. Or another thread began a capture, behind a discard in the
    /// legacy stream, that forbids what CUDA was to do next, and the contents are gone. A later call may succeed.
    Busy = -10,
}

impl Error {
    /// All errors, in the order of their codes from -1 down.
    pub const ALL: [Self; 10] = [
        Self::NotSupported,
        Self::Invalid,
        Self::NotManaged,
        Self::NoMemory,
        Self::NoContext,
        Self::NoDevice,
        Self::Interrupted,
        Self::Driver,
        Self::Capture,
        Self::Busy,
    ];

    /// The code in C.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The error of a code in C.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.code() == code)
    }

    /// A sentence for people, which says what to do.
    pub fn message(self) -> &'static CStr {
        match self {
            Self::NotSupported => {
                c"no driver here can discard: load uvm-rust's nvidia-uvm, or NVIDIA's from 580 on"
            }
            Self::Invalid => c"bad argument: check the addresses, lengths and flags",
            Self::NotManaged => {
                c"not managed memory: use cudaMallocManaged, and do not free it before"
            }
            Self::NoMemory => c"out of memory",
            Self::NoContext => c"no CUDA context in this thread: call cudaSetDevice first",
            Self::NoDevice => c"no such GPU in use by this process: initialise CUDA on it first",
            Self::Interrupted => c"interrupted by a fatal signal",
            Self::Driver => c"the driver failed: see the kernel log",
            Self::Capture => {
                c"the stream is being captured, and this is not done in a graph: do it outside"
            }
            Self::Busy => {
                c"the driver stayed busy, the system is going to sleep, or another thread began a capture: \
                  try again; what was to be discarded may be gone"
            }
        }
    }

    /// The error for an errno of the calls of `uvm_rust_ioctl.h`.
    pub(crate) fn from_errno(errno: i32) -> Self {
        match errno {
            libc::EOPNOTSUPP | libc::ENOTTY | libc::EPERM | libc::EBADF => Self::NotSupported,
            libc::EINVAL | libc::E2BIG => Self::Invalid,
            // The array is ours or the caller's; either way a bad pointer.
            libc::EFAULT => Self::Invalid,
            libc::ENXIO => Self::NotManaged,
            libc::ENOMEM => Self::NoMemory,
            libc::ENODEV => Self::NoDevice,
            libc::EINTR => Self::Interrupted,
            // `Sys::ioctl` has tried for a while.
            libc::EAGAIN => Self::Busy,
            _ => Self::Driver,
        }
    }

    /// The result of an rmStatus of NVIDIA's discard, which refuses a process that uses a
    /// GPU that cannot fault by the status INVALID_DEVICE (580.105.08, `UvmDiscard`:
    /// "Calling this API while a non-fault-capable GPU is registered, will result in the
    /// API returning an error").
    pub(crate) fn check_discard(status: u32) -> crate::Result<()> {
        match status {
            uapi::NV_ERR_INVALID_DEVICE => Err(Self::NotSupported),
            other => Self::check_status(other),
        }
    }

    /// Whether an rmStatus of NVIDIA's discard says that it has not begun (`uvm_api_discard`, 580.142 to
    /// 595.45.04), or is our driver's refusal.
    pub(crate) fn is_before_discard(status: u32) -> bool {
        matches!(
            status,
            uapi::NV_ERR_INVALID_ADDRESS
                | uapi::NV_ERR_INVALID_ARGUMENT
                | uapi::NV_ERR_INVALID_DEVICE
                | uapi::NV_WARN_NOTHING_TO_DO
                | uapi::NV_ERR_ILLEGAL_ACTION
                | uapi::NV_ERR_NOT_SUPPORTED
        )
    }

    /// The result of an rmStatus of NVIDIA's own calls.
    pub(crate) fn check_status(status: u32) -> crate::Result<()> {
        match status {
            uapi::NV_OK => Ok(()),
            uapi::NV_WARN_NOTHING_TO_DO => Err(Self::NotManaged),
            uapi::NV_ERR_INVALID_ADDRESS | uapi::NV_WARN_MORE_PROCESSING_REQUIRED => {
                Err(Self::NotManaged)
            }
            uapi::NV_ERR_INVALID_ARGUMENT | uapi::NV_ERR_OUT_OF_RANGE => Err(Self::Invalid),
            uapi::NV_ERR_NO_MEMORY => Err(Self::NoMemory),
            uapi::NV_ERR_INVALID_DEVICE => Err(Self::NoDevice),
            uapi::NV_ERR_NOT_SUPPORTED | uapi::NV_ERR_ILLEGAL_ACTION => Err(Self::NotSupported),
            uapi::NV_ERR_SIGNAL_PENDING => Err(Self::Interrupted),
            uapi::NV_ERR_BUSY_RETRY => Err(Self::Busy),
            _ => Err(Self::Driver),
        }
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.message().to_str().unwrap_or("unknown error"))
    }
}

impl std::error::Error for Error {}
