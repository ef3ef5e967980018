// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A doubly linked list over block numbers.

const NONE: u32 = u32::MAX;

/// Blocks in order; each is in the list at most once.
pub struct List {
    /// `[previous, next]` of each block; of a block not in the list, itself.
    links: Vec<[u32; 2]>,
    head: u32,
    tail: u32,
}

impl List {
    /// An empty list of blocks below `blocks`.
    pub fn new(blocks: usize) -> Self {
        Self {
            links: (0..blocks as u32).map(|b| [b, b]).collect(),
            head: NONE,
            tail: NONE,
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
    }

    /// Takes `b` out, if it is in.
    pub fn remove(&mut self, b: u32) {
        if !self.has(b) {
            return;
        }
        let [previous, next] = self.links[b as usize];
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

    /// From the first to the last.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.head;
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
}
