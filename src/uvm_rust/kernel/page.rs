// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pages of memory, as the kernel counts them.

/// Bytes in a page.
pub const PAGE_SIZE: usize = crate::layout::PAGE_SIZE;
