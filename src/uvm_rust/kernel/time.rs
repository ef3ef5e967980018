// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Time by the ticks of the kernel's timer.

/// Ticks of the kernel's timer, `CONFIG_HZ` of them in a second.
pub type Jiffies = core::ffi::c_ulong;
