// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! GPU memory as contiguous ranges of pages, first fit from either end.

use std::collections::BTreeMap;

/// The pages `start..start + len` of the GPU.
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

    /// The first hole from the left, its left end; or from the right, its right end.
    pub(super) fn take(&mut self, len: u64, right: bool) -> Option<Range> {
        let mut fits = self.holes.iter().filter(|&(_, &h)| h >= len);
        let (&hole, &room) = if right { fits.next_back() } else { fits.next() }?;
        let rest = room - len;
        self.holes.remove(&hole);
        if rest > 0 {
            self.holes
                .insert(if right { hole } else { hole + len }, rest);
        }
        let start = if right { hole + rest } else { hole };
        Some(Range { start, len })
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
        let a = s.take(3, false).unwrap();
        let b = s.take(3, true).unwrap();
        let c = s.take(2, false).unwrap();
        assert_eq!((a.start, b.start, c.start, s.largest()), (0, 7, 3, 2));
        s.free(a);
        assert_eq!(s.take(3, true).unwrap().start, 0);
        s.free(c);
        assert_eq!(s.largest(), 4);
        s.free(b);
        assert_eq!(s.largest(), 7);
        assert_eq!(s.take(8, false), None);
    }
}
