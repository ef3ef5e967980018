// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The tree prefetcher: which pages of a va_block come along with those that faulted.
//!
//! The rule is upstream's (`compute_prefetch_mask`, `grow_fault_granularity`): over the
//! pages of a va_block stands a binary tree, and with a faulted page comes the largest
//! node above it of which more than a given share is resident or about to be. Upstream
//! counts the pages of every node above every faulted page. Here counts come from ranks,
//! the largest node is tried first, and pages of a node that was taken are passed over:
//! their largest node is the same one.
//!
//! Locking: none. The caller holds the lock of the va_block whose masks it passes.

use super::mask::{PageMask, Region, PAGES};

const WORDS: usize = PAGES as usize / 64;

/// Where the tree stands over the pages of a va_block.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The pages that may be prefetched.
    pub max: Region,
    /// The leaf of the first of these pages. It is not 0 where the nodes would not be aligned to big pages otherwise.
    pub offset: u16,
    /// The number of leaves, 1 to 512, with the `offset` leaves that have no page.
    pub leaves: u16,
}

/// How many of a set's pages are below a given one, in a few instructions.
struct Ranks<'a> {
    words: &'a [u64; WORDS],
    /// Pages in the words before each; the last counts all.
    before: [u16; WORDS + 1],
}

/// Adds to `leaves` the pieces of `shape.max` that have a faulted page and none that thrashes. The pieces are the big
/// pages of `granule` pages within `big`, and the rest on either side of `big`. Without big pages `big` ends at page 0, as
/// upstream has it, and all of `shape.max` is one piece.
pub fn grow(
    leaves: &mut PageMask,
    shape: Shape,
    big: Region,
    granule: u16,
    faulted: &PageMask,
    thrashing: Option<&PageMask>,
) {
    let max = shape.max;
    let mut piece = |first: u16, outer: u16| {
        if first >= outer {
            return;
        }
        let inside = |mask: &PageMask| mask.next(first, true).is_some_and(|p| p < outer);
        if inside(faulted) && !thrashing.is_some_and(inside) {
            let leaf = |page: u16| {
                page.saturating_sub(max.first())
                    .saturating_add(shape.offset)
            };
            leaves.fill(Region::new(leaf(first), leaf(outer)));
        }
    };
    if big.outer() == 0 {
        return piece(max.first(), max.outer());
    }
    piece(max.first(), big.first());
    let granule = granule.max(1);
    let mut from = big.first();
    while let Some(page) = faulted.next(from, true).filter(|&p| p < big.outer()) {
        let first = page - (page - big.first()) % granule;
        from = first.saturating_add(granule);
        piece(first, from);
    }
    piece(big.outer(), max.outer());
}

/// What comes along with the pages of `faulted` in `within`, they themselves included. `leaves` has the pages that are
/// resident or about to be, the first page of `shape.max` at leaf `shape.offset`. A node is taken if more than `threshold`
/// percent of its leaves are there.
pub fn prefetch(
    leaves: &PageMask,
    shape: Shape,
    faulted: &PageMask,
    within: Region,
    threshold: u32,
) -> PageMask {
    let ranks = Ranks::new(leaves);
    let mut out = PageMask::EMPTY;
    let mut from = within.first();
    while let Some(page) = faulted.next(from, true).filter(|&p| p < within.outer()) {
        let leaf = page.saturating_sub(shape.max.first()) + shape.offset;
        from = page + 1;
        if let Some((first, outer)) = ranks.largest_node(leaf, shape.leaves, threshold) {
            let taken = shape.pages(first, outer);
            out.fill(taken);
            if taken.outer() == shape.max.outer() {
                break;
            }
            let behind = (outer + shape.max.first()).saturating_sub(shape.offset);
            from = from.max(behind);
        }
    }
    out
}

impl Shape {
    /// The tree of a whole va_block that begins where a big page does.
    pub const WHOLE: Self = Self {
        max: Region::WHOLE,
        offset: 0,
        leaves: PAGES,
    };

    /// The pages under leaves `first` to `outer` - 1, as upstream clamps them.
    fn pages(self, first: u16, outer: u16) -> Region {
        let (first, outer) = (first + self.max.first(), outer + self.max.first());
        let first = match first.checked_sub(self.offset) {
            None => self.offset,
            Some(page) => page.max(self.max.first()),
        };
        let outer = match outer.checked_sub(self.offset) {
            None => self.offset,
            Some(page) => page.min(self.max.outer()),
        };
        Region::new(first, outer)
    }
}

impl<'a> Ranks<'a> {
    fn new(mask: &'a PageMask) -> Self {
        let words = mask.words();
        let mut before = [0; WORDS + 1];
        let mut sum = 0;
        for (word, slot) in words.iter().zip(before.iter_mut().skip(1)) {
            sum += word.count_ones() as u16;
            *slot = sum;
        }
        Self { words, before }
    }

    /// How many pages of the set are below `leaf`, which is at most 512.
    fn rank(&self, leaf: u16) -> u16 {
        let (word, bit) = (usize::from(leaf / 64), leaf % 64);
        let before = self.before.get(word).copied().unwrap_or(0);
        match self.words.get(word) {
            Some(w) if bit != 0 => before + (w & ((1 << bit) - 1)).count_ones() as u16,
            _ => before,
        }
    }

    /// How many pages of the set are from `first` to `outer` - 1.
    fn count(&self, first: u16, outer: u16) -> u16 {
        let within = outer.saturating_sub(first);
        match self.words.get(usize::from(first / 64)) {
            // A small node is aligned, and so lies within a word.
            Some(w) if within < 64 && first % 64 + within <= 64 => {
                ((w >> (first % 64)) & ((1 << within) - 1)).count_ones() as u16
            }
            _ => self.rank(outer).saturating_sub(self.rank(first)),
        }
    }

    /// The first leaf of the largest node above `leaf` that is fuller than `threshold` percent, and the leaf after its
    /// last one.
    fn largest_node(&self, leaf: u16, leaves: u16, threshold: u32) -> Option<(u16, u16)> {
        let leaves = leaves.min(PAGES);
        let mut size = leaves.next_power_of_two();
        while size != 0 {
            let first = leaf & !(size - 1);
            let outer = (first + size).min(leaves);
            let count = self.count(first, outer);
            if u32::from(count) * 100 > u32::from(outer.saturating_sub(first)) * threshold {
                return Some((first, outer));
            }
            size /= 2;
        }
        None
    }
}

#[cfg(test)]
mod tests;
