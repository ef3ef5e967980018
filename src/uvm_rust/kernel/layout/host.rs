// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The host's stand-in for what layout.awk writes.

pub const PAGE_SIZE: usize = 4096;
pub const KMALLOC_MINALIGN: usize = 8;
pub const GFP_KERNEL: u32 = 0xcc0;
pub const GFP_KERNEL_ACCOUNT: u32 = 0x40_0cc0;
pub const GFP_NOWAIT: u32 = 0x2800;
opaque!(CMutex, 32, 8);
opaque!(CSpinLock, 4, 4);
opaque!(CWaitQueue, 24, 8);
opaque!(CLockClassKey, 8, 8);
