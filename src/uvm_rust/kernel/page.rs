// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Pages.

/// Bytes in a page.
pub const PAGE_SIZE: usize = crate::layout::PAGE_SIZE;
