// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The few items of the kernel's own interface that are used by their C names.

/// The transport endpoint is not connected.
pub const ENOTCONN: u32 = 107;
/// The time is over.
pub const ETIMEDOUT: u32 = 110;

#[cfg(MODULE)]
extern "C" {
    /// Nanoseconds on the monotonic clock.
    pub fn ktime_get() -> i64;
}

/// Nanoseconds on a monotonic clock.
///
/// # Safety
///
/// None is needed: it is `unsafe` because the kernel's is.
#[cfg(not(MODULE))]
pub unsafe fn ktime_get() -> i64 {
    crate::helpers::now()
}
