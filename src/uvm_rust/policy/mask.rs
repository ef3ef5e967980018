// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pages of a va_block: masks and regions.
//!
//! The same bits in the same order as upstream's `uvm_page_mask_t` on a
//! little-endian machine, and the same half-open regions as
//! `uvm_va_block_region_t`, so that the driver can pass its own.

use core::fmt;
use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not, Sub, SubAssign};

/// Pages of 4 KiB in a va_block of 2 MiB.
pub const PAGES: u16 = 512;
/// How many bits of an address are within a va_block.
pub const BLOCK_SHIFT: u32 = 21;

const WORDS: usize = PAGES as usize / 64;

/// Pages `first` to `outer` - 1 of a va_block. Made only by [`Region::new`], so
/// `first <= outer <= 512` always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    first: u16,
    outer: u16,
}

impl Region {
    /// A whole va_block of 2 MiB.
    pub const WHOLE: Self = Self {
        first: 0,
        outer: PAGES,
    };

    /// Pages `first` to `outer` - 1; what lies outside a va_block is cut off, and
    /// a region that ends before it begins is empty.
    pub const fn new(first: u16, outer: u16) -> Self {
        let outer = if outer > PAGES { PAGES } else { outer };
        let first = if first > outer { outer } else { first };
        Self { first, outer }
    }

    /// The first page of the region.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The page after the last.
    pub const fn outer(self) -> u16 {
        self.outer
    }

    /// How many pages the region has, which may be none.
    pub const fn pages(self) -> u16 {
        self.outer - self.first
    }

    /// Whether it has no page.
    pub const fn is_empty(self) -> bool {
        self.first == self.outer
    }

    /// The part of the region that consists of whole granules of `1 << shift` pages; more than 512 pages count as 512. One
    /// granule begins `before` pages (at most 512) before the first page of the va_block.
    pub const fn shrink(self, shift: u32, before: u16) -> Self {
        let granule = 1u16 << if shift > 9 { 9 } else { shift };
        let first = (self.first + before).next_multiple_of(granule) - before;
        let outer = (self.outer + before) / granule * granule;
        Self::new(first, outer.saturating_sub(before))
    }
}

/// A set of the pages of a va_block.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct PageMask([u64; WORDS]);

impl PageMask {
    /// The mask without any page.
    pub const EMPTY: Self = Self([0; WORDS]);
    /// The mask with all 512 pages.
    pub const FULL: Self = Self([u64::MAX; WORDS]);

    /// From words of 64 pages, the lowest page in the lowest bit.
    #[inline]
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// The mask as words of 64 pages, the lowest page in the lowest bit.
    #[inline]
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Whether `page` is in the set; no page from 512 on is.
    #[inline]
    pub fn test(&self, page: u16) -> bool {
        self.0
            .get(page as usize / 64)
            .is_some_and(|w| (w >> (page % 64)) & 1 != 0)
    }

    /// Adds `page`; does nothing from 512 on.
    #[inline]
    pub fn set(&mut self, page: u16) {
        if let Some(w) = self.0.get_mut(page as usize / 64) {
            *w |= 1 << (page % 64);
        }
    }

    /// Adds the pages of `r`.
    #[inline]
    pub fn fill(&mut self, r: Region) {
        let mut first = r.first;
        while first < r.outer {
            let end = r.outer.min((first / 64 + 1) * 64);
            if let Some(w) = self.0.get_mut(first as usize / 64) {
                // The run has 1 to 64 bits in this word.
                *w |= (u64::MAX >> (64 - (end - first))) << (first % 64);
            }
            first = end;
        }
    }

    /// How many pages are in the mask.
    #[inline]
    pub fn count(&self) -> u16 {
        self.0.iter().map(|w| w.count_ones() as u16).sum()
    }

    /// Whether it has no page.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }

    /// Whether every page of it is in `other`.
    #[inline]
    pub fn is_subset(&self, other: &Self) -> bool {
        (*self - *other).is_empty()
    }

    /// Whether it shares a page with `other`.
    #[inline]
    pub fn intersects(&self, other: &Self) -> bool {
        !(*self & *other).is_empty()
    }

    /// The pages from `shift` on, moved down by `shift`.
    pub fn shifted_down(&self, shift: u16) -> Self {
        let (words, bits) = (shift as usize / 64, shift % 64);
        let word = |i: usize| self.0.get(i).copied().unwrap_or(0);
        Self(core::array::from_fn(|i| {
            let low = word(i + words) >> bits;
            // A shift by 64 bits overflows, and no bits of the next word are needed then.
            let high = if bits == 0 {
                0
            } else {
                word(i + words + 1) << (64 - bits)
            };
            low | high
        }))
    }

    /// Its runs of neighbouring pages, lowest first.
    #[inline]
    pub fn runs(&self) -> impl Iterator<Item = Region> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let first = self.next(from, true)?;
            let outer = self.next(first, false).unwrap_or(PAGES);
            from = outer;
            Some(Region { first, outer })
        })
    }

    /// The pages of the mask, lowest first.
    pub fn pages(&self) -> impl Iterator<Item = u16> + '_ {
        self.runs().flat_map(|r| r.first..r.outer)
    }

    /// The first page from `from` on that is in the set; without `present`, the first that is not.
    #[inline]
    pub fn next(&self, from: u16, present: bool) -> Option<u16> {
        let flip = if present { 0 } else { u64::MAX };
        let mut keep = u64::MAX << (from % 64);
        for (i, w) in self.0.iter().enumerate().skip(from as usize / 64) {
            let found = (w ^ flip) & keep;
            if found != 0 {
                return Some(i as u16 * 64 + found.trailing_zeros() as u16);
            }
            keep = u64::MAX;
        }
        None
    }
}

impl From<Region> for PageMask {
    #[inline]
    fn from(r: Region) -> Self {
        // Most often it is the whole, which needs no look at each word.
        if r == Region::WHOLE {
            return Self::FULL;
        }
        // Bits below `n`, within the word that begins at page `at`.
        let below = |at: u16, n: u16| match n.saturating_sub(at) {
            0 => 0,
            n @ 1..64 => (1 << n) - 1,
            _ => u64::MAX,
        };
        Self(core::array::from_fn(|i| {
            let at = i as u16 * 64;
            below(at, r.outer) & !below(at, r.first)
        }))
    }
}

impl BitAnd for PageMask {
    type Output = Self;

    #[inline]
    fn bitand(self, o: Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & o.0[i]))
    }
}

impl BitOr for PageMask {
    type Output = Self;

    #[inline]
    fn bitor(self, o: Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] | o.0[i]))
    }
}

/// Difference: the pages of the left that are not in the right.
impl Sub for PageMask {
    type Output = Self;

    #[inline]
    fn sub(self, o: Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & !o.0[i]))
    }
}

impl Not for PageMask {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        Self(core::array::from_fn(|i| !self.0[i]))
    }
}

impl BitAndAssign for PageMask {
    #[inline]
    fn bitand_assign(&mut self, o: Self) {
        *self = *self & o;
    }
}

impl BitOrAssign for PageMask {
    #[inline]
    fn bitor_assign(&mut self, o: Self) {
        *self = *self | o;
    }
}

impl SubAssign for PageMask {
    #[inline]
    fn sub_assign(&mut self, o: Self) {
        *self = *self - o;
    }
}

/// The runs, as `{0..16, 20..21}`.
impl fmt::Debug for PageMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.runs().map(|r| r.first..r.outer))
            .finish()
    }
}

#[cfg(test)]
mod tests;
