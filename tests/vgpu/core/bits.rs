// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Bit fields, written as NVIDIA's headers do: high bit first, both inclusive.

/// Bits `high` to `low` of `value`; `high` is at most 63 and at least `low`.
pub(super) const fn field(value: u64, high: u32, low: u32) -> u64 {
    (value >> low) & (u64::MAX >> (63 - (high - low)))
}

/// Bits `high` to `low` of a 32 bit word, as a number.
pub(super) const fn field32(value: u32, high: u32, low: u32) -> u32 {
    (value >> low) & (u32::MAX >> (31 - (high - low)))
}

/// The bits `high` to `low` of a 32 bit word, set; `high` is at most 31 and at least `low`.
pub(super) const fn mask32(high: u32, low: u32) -> u32 {
    (u32::MAX >> (31 - (high - low))) << low
}

/// Whether bit `n` is set.
pub(super) const fn bit32(value: u32, n: u32) -> bool {
    (value >> n) & 1 != 0
}

/// A 64 bit value from its halves.
pub(super) const fn join(high: u32, low: u32) -> u64 {
    ((high as u64) << 32) | low as u64
}
