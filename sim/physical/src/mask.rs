// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Sets of a va_block's 512 pages.

use std::ops::BitAnd;
use std::ops::BitAndAssign;
use std::ops::BitOr;
use std::ops::BitOrAssign;
use std::ops::Not;

/// Pages in a va_block.
pub const PAGES: u32 = 512;

/// A set of pages of a va_block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(pub [u64; 8]);

impl Mask {
    /// No page.
    pub const EMPTY: Self = Self([0; 8]);
    /// Every page.
    pub const FULL: Self = Self([!0; 8]);

    /// The `count` pages from `first` on; both within the block.
    pub fn range(first: u32, count: u32) -> Self {
        if count == PAGES {
            return Self::FULL;
        }
        let mut mask = Self::EMPTY;
        let end = (first + count).min(PAGES);
        for (i, word) in mask.0.iter_mut().enumerate() {
            let low = first.max(i as u32 * 64);
            let high = end.min(i as u32 * 64 + 64);
            if low < high {
                let bits = high - low;
                let ones = if bits == 64 { !0 } else { (1u64 << bits) - 1 };
                *word = ones << (low % 64);
            }
        }
        mask
    }

    /// Number of pages.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        // Comparing arrays would call memcmp, which is slower.
        self.0.iter().fold(0, |all, w| all | w) == 0
    }

    /// Pages in this set and not in `other`.
    pub fn minus(&self, other: Self) -> Self {
        *self & !other
    }

    /// Whether `page` is in the set.
    pub fn has(&self, page: u32) -> bool {
        self.0[page as usize / 64] >> (page % 64) & 1 != 0
    }

    /// The `n` lowest pages, or all.
    pub fn lowest(&self, n: u32) -> Self {
        let mut left = n;
        let mut out = Self::EMPTY;
        for (word, &from) in out.0.iter_mut().zip(&self.0) {
            let ones = from.count_ones();
            if ones <= left {
                *word = from;
                left -= ones;
            } else {
                let mut rest = from;
                for _ in 0..left {
                    *word |= rest & rest.wrapping_neg();
                    rest &= rest - 1;
                }
                break;
            }
        }
        out
    }
}

impl BitAnd for Mask {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl BitOr for Mask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

impl Not for Mask {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0.map(|w| !w))
    }
}

impl BitAndAssign for Mask {
    fn bitand_assign(&mut self, other: Self) {
        *self = *self & other;
    }
}

impl BitOrAssign for Mask {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// The tree prefetcher: what to bring in with `faulted`, given what is
/// `resident`.
///
/// As upstream's `uvm_perf_prefetch`: faulted pages grow to 64 KiB regions; then
/// each takes in the largest power-of-two region around it in which more than
/// `threshold` percent of the pages are resident, or faulted, or grown.
pub fn tree_prefetch(resident: Mask, faulted: Mask, threshold: u64) -> Mask {
    const REGION: u32 = 16;
    let mut wanted = faulted;
    for first in (0..PAGES).step_by(REGION as usize) {
        let region = Mask::range(first, REGION);
        if !(region & faulted).is_empty() {
            wanted |= region;
        }
    }
    let occupied = wanted | resident;
    let mut out = wanted;
    let mut size = PAGES;
    while size > REGION {
        for first in (0..PAGES).step_by(size as usize) {
            let region = Mask::range(first, size);
            if (region & faulted).is_empty() || region.minus(out).is_empty() {
                continue;
            }
            if u64::from((occupied & region).count()) * 100 > u64::from(size) * threshold {
                out |= region;
            }
        }
        size /= 2;
    }
    out.minus(resident)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (first, count) in [
            (0, 512),
            (0, 0),
            (3, 1),
            (60, 10),
            (64, 64),
            (500, 12),
            (1, 511),
        ] {
            let m = Mask::range(first, count);
            assert_eq!(m.count(), count);
            for p in 0..PAGES {
                assert_eq!(
                    m.has(p),
                    (first..first + count).contains(&p),
                    "{first} {count} {p}"
                );
            }
        }
        let m = Mask::range(60, 10);
        assert_eq!(m.lowest(6), Mask::range(60, 6));
        assert_eq!(m.lowest(99), m);
    }

    #[test]
    fn a_single_fault_brings_64_kib() {
        let got = tree_prefetch(Mask::EMPTY, Mask::range(20, 1), 51);
        assert_eq!(got, Mask::range(16, 16));
    }

    #[test]
    fn a_half_full_block_fills_up() {
        let got = tree_prefetch(Mask::range(0, 256), Mask::range(300, 16), 51);
        assert_eq!(got, Mask::range(256, 256));
        // At exactly half, with nothing more, only the fault's half grows.
        let got = tree_prefetch(Mask::EMPTY, Mask::range(0, 256), 51);
        assert_eq!(got, Mask::range(0, 256));
    }
}
