// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The one factor between the paper's sizes and those here.

/// Bytes in the paper for each byte here.
pub const FACTOR: f64 = 32.0;

/// Bytes of a block.
const BLOCK: f64 = vgpu_client::BLOCK as f64;

/// Blocks for a buffer of so many bytes in the paper: the nearest number, at
/// least one.
pub fn blocks(bytes: f64) -> usize {
    ((bytes / FACTOR / BLOCK).round() as usize).max(1)
}

/// The same for GB (10⁹ bytes), in which the paper's tables are.
pub fn blocks_of_gb(gb: f64) -> usize {
    blocks(gb * 1e9)
}

/// What so many bytes here are in the paper's size, in GB.
pub fn paper_gb(bytes: u64) -> f64 {
    bytes as f64 * FACTOR / 1e9
}
