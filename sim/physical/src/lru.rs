// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Orders of block numbers, from the oldest to the newest.

use std::cmp::Reverse;
use std::collections::BTreeSet;

const NONE: u32 = u32::MAX;

/// A doubly linked list; each block is in it at most once.
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

/// Blocks in the order in which they came, some of them parked until a time, so that a
/// search for one that may go does not meet those again and again.
pub struct Lru {
    /// When each block came, by count.
    came: Vec<u64>,
    count: u64,
    /// Until when each block is parked.
    until: Vec<Option<u64>>,
    /// Blocks not parked, by when they came.
    awake: BTreeSet<(u64, u32)>,
    /// Blocks parked, by until when; of those until the same time, the oldest is the last.
    asleep: BTreeSet<(u64, Reverse<u64>, u32)>,
}

impl Lru {
    /// Nothing yet, of blocks below `blocks`.
    pub fn new(blocks: usize) -> Self {
        Self {
            came: vec![0; blocks],
            count: 0,
            until: vec![None; blocks],
            awake: BTreeSet::new(),
            asleep: BTreeSet::new(),
        }
    }

    /// Makes `b` the newest, and not parked.
    pub fn push(&mut self, b: u32) {
        self.remove(b);
        self.count += 1;
        self.came[b as usize] = self.count;
        self.awake.insert((self.count, b));
    }

    /// Takes `b` out, if it is in.
    pub fn remove(&mut self, b: u32) {
        let came = self.came[b as usize];
        match self.until[b as usize].take() {
            Some(until) => self.asleep.remove(&(until, Reverse(came), b)),
            None => self.awake.remove(&(came, b)),
        };
    }

    /// Parks `b`, which is awake, up to the time `until`.
    pub fn park(&mut self, b: u32, until: u64) {
        let came = self.came[b as usize];
        if self.awake.remove(&(came, b)) {
            self.until[b as usize] = Some(until);
            self.asleep.insert((until, Reverse(came), b));
        }
    }

    /// Wakes all that are parked up to a time before `now`.
    pub fn wake(&mut self, now: u64) {
        while let Some(&(until, Reverse(came), b)) = self.asleep.first() {
            if until >= now {
                break;
            }
            self.asleep.pop_first();
            self.until[b as usize] = None;
            self.awake.insert((came, b));
        }
    }

    /// The oldest that is awake and came after `past`.
    pub fn awake_after(&self, past: Option<u32>) -> Option<u32> {
        let from = past.map_or(0, |b| self.came[b as usize] + 1);
        self.awake.range((from, 0)..).next().map(|&(_, b)| b)
    }

    /// Those that are parked, the one that is for longest first.
    pub fn parked(&self) -> impl Iterator<Item = u32> + '_ {
        self.asleep.iter().rev().map(|&(_, _, b)| b)
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

    fn awake(l: &Lru) -> Vec<u32> {
        let mut past = None;
        std::iter::from_fn(|| {
            past = l.awake_after(past);
            past
        })
        .collect()
    }

    #[test]
    fn the_parked_are_passed_over_until_their_time() {
        let mut l = Lru::new(6);
        for b in 0..5 {
            l.push(b);
        }
        l.park(0, 7);
        l.park(1, 5);
        l.park(3, 6);
        assert_eq!(awake(&l), [2, 4]);
        l.wake(5);
        assert_eq!(awake(&l), [2, 4]);
        l.wake(6);
        assert_eq!(awake(&l), [1, 2, 4]);
        // One that comes again is awake and the last, and stays so.
        l.push(3);
        assert_eq!(awake(&l), [1, 2, 4, 3]);
        l.park(3, 20);
        l.park(1, 7);
        assert_eq!(l.parked().collect::<Vec<_>>(), [3, 0, 1]);
        l.wake(10);
        assert_eq!(awake(&l), [0, 1, 2, 4]);
        l.remove(3);
        l.wake(u64::MAX);
        assert_eq!(awake(&l), [0, 1, 2, 4]);
        assert_eq!(l.parked().count(), 0);
    }
}
