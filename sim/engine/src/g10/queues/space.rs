// SPDX-License-Identifier: GPL-2.0 OR MIT

//! GPU memory as contiguous ranges of pages, first fit from either end.

use std::collections::BTreeMap;

/// Pages `start..start + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    start: u64,
    len: u64,
}

/// The holes, by start; no two touch.
#[derive(Debug)]
pub(super) struct Space {
    holes: BTreeMap<u64, u64>,
}

impl Space {
    pub(super) fn new(pages: u64) -> Self {
        Self {
            holes: BTreeMap::from([(0, pages)]),
        }
    }

    /// The first hole from the left, its left end.
    pub(super) fn take_left(&mut self, len: u64) -> Option<Range> {
        let (&start, &hole) = self.holes.iter().find(|&(_, &h)| h >= len)?;
        self.holes.remove(&start);
        if hole > len {
            self.holes.insert(start + len, hole - len);
        }
        Some(Range { start, len })
    }

    /// The first hole from the right, its right end.
    pub(super) fn take_right(&mut self, len: u64) -> Option<Range> {
        let (&start, &hole) = self.holes.iter().rev().find(|&(_, &h)| h >= len)?;
        if hole > len {
            self.holes.insert(start, hole - len);
        } else {
            self.holes.remove(&start);
        }
        Some(Range {
            start: start + hole - len,
            len,
        })
    }

    /// Pages of the largest hole.
    pub(super) fn largest(&self) -> u64 {
        self.holes.values().copied().max().unwrap_or(0)
    }

    pub(super) fn free(&mut self, r: Range) {
        let (mut start, mut len) = (r.start, r.len);
        if let Some((&s, &l)) = self.holes.range(..start).next_back() {
            if s + l == start {
                self.holes.remove(&s);
                start = s;
                len += l;
            }
        }
        if let Some(l) = self.holes.remove(&(start + len)) {
            len += l;
        }
        self.holes.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_fit_from_either_end_and_holes_join() {
        let mut s = Space::new(10);
        let a = s.take_left(3).unwrap();
        let b = s.take_right(3).unwrap();
        let c = s.take_left(2).unwrap();
        assert_eq!((a.start, b.start, c.start, s.largest()), (0, 7, 3, 2));
        s.free(a);
        assert_eq!(s.take_right(3).unwrap().start, 0);
        s.free(c);
        assert_eq!(s.largest(), 4);
        s.free(b);
        assert_eq!(s.largest(), 7);
        assert_eq!(s.take_left(8), None);
    }
}
