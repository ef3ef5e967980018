// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A doubly linked list over block numbers.

const NONE: u32 = u32::MAX;

/// Blocks in order; each is in the list at most once. A bookmark remembers how far
/// its reader has come, whatever is put in and taken out meanwhile.
pub struct List {
    /// `[previous, next]` of each block; of a block not in the list, itself.
    links: Vec<[u32; 2]>,
    head: u32,
    tail: u32,
    /// The first block that the reader has not passed, `NONE` at the end.
    mark: u32,
    /// Blocks that it has passed, which have this number in `passed`.
    before: usize,
    reading: u32,
    passed: Vec<u32>,
}

impl List {
    /// An empty list of blocks below `blocks`.
    pub fn new(blocks: usize) -> Self {
        Self {
            links: (0..blocks as u32).map(|b| [b, b]).collect(),
            head: NONE,
            tail: NONE,
            mark: NONE,
            before: 0,
            reading: 1,
            passed: vec![0; blocks],
        }
    }

    /// Whether `b` is in the list.
    pub fn has(&self, b: u32) -> bool {
        self.links[b as usize] != [b, b]
    }

    /// Makes `b` the last.
    pub fn push(&mut self, b: u32) {
        self.remove(b);
        self.links[b as usize] = [self.tail, NONE];
        match self.tail {
            NONE => self.head = b,
            tail => self.links[tail as usize][1] = b,
        }
        self.tail = b;
        if self.mark == NONE {
            self.mark = b;
        }
    }

    /// Takes `b` out, if it is in.
    pub fn remove(&mut self, b: u32) {
        if !self.has(b) {
            return;
        }
        let [previous, next] = self.links[b as usize];
        if self.mark == b {
            self.mark = next;
        } else if self.passed[b as usize] == self.reading {
            self.passed[b as usize] = 0;
            self.before -= 1;
        }
        match previous {
            NONE => self.head = next,
            p => self.links[p as usize][1] = next,
        }
        match next {
            NONE => self.tail = previous,
            n => self.links[n as usize][0] = previous,
        }
        self.links[b as usize] = [b, b];
    }

    /// Puts the bookmark at the first.
    pub fn rewind(&mut self) {
        self.mark = self.head;
        self.before = 0;
        self.reading += 1;
    }

    /// The first block that is not passed, if it is among the first `most`.
    pub fn marked(&self, most: usize) -> Option<u32> {
        (self.mark != NONE && self.before < most).then_some(self.mark)
    }

    /// Passes it.
    pub fn pass(&mut self) {
        if self.mark != NONE {
            self.passed[self.mark as usize] = self.reading;
            self.before += 1;
            self.mark = self.links[self.mark as usize][1];
        }
    }

    /// From the bookmark on, those among the first `most`.
    pub fn rest(&self, most: usize) -> impl Iterator<Item = u32> + '_ {
        self.from(self.mark).take(most.saturating_sub(self.before))
    }

    /// From the first to the last.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.from(self.head)
    }

    fn from(&self, mut at: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::from_fn(move || {
            let b = at;
            (b != NONE).then(|| {
                at = self.links[b as usize][1];
                b
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let mut l = List::new(4);
        for b in [2, 0, 3, 2] {
            l.push(b);
        }
        assert_eq!(l.iter().collect::<Vec<_>>(), [0, 3, 2]);
        l.remove(3);
        l.remove(3);
        assert_eq!(l.iter().collect::<Vec<_>>(), [0, 2]);
        l.remove(0);
        assert!(l.has(2) && !l.has(0));
        l.remove(2);
        assert_eq!(l.iter().count(), 0);
    }

    #[test]
    fn the_bookmark_stays_where_it_is() {
        let mut l = List::new(6);
        for b in 0..4 {
            l.push(b);
        }
        l.rewind();
        l.pass();
        l.pass();
        assert_eq!(l.rest(3).collect::<Vec<_>>(), [2]);
        // One that was passed goes to the end; two are passed no longer.
        l.push(0);
        assert_eq!(l.rest(9).collect::<Vec<_>>(), [2, 3, 0]);
        assert_eq!((l.marked(1), l.marked(2)), (None, Some(2)));
        l.remove(2);
        assert_eq!(l.rest(9).collect::<Vec<_>>(), [3, 0]);
        l.pass();
        l.pass();
        assert_eq!(l.marked(9), None);
        l.push(5);
        assert_eq!(l.marked(9), Some(5));
        l.rewind();
        assert_eq!(l.rest(9).collect::<Vec<_>>(), [1, 3, 0, 5]);
    }
}
