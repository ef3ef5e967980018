// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whose the chunks are: for each process a list of its used ones, in the order of the used
//! queue; and one each of its discarded and of its unused chunks, in the orders of these queues.
//!
//! A process that pushes out memory ahead of need may only move its own, and wants its
//! oldest. Of all used chunks that one may be the last, so the used queue is not walked for
//! it: each process has a list, of those of its chunks that can be moved as far as is known.
//!
//! There are [`LISTS`] lists, and processes are numbered by 64 bits, so that two may share
//! one. A walk then passes over the other's chunks; it looks at [`REACH`] chunks at most.
//!
//! Locking as for [`super::Queues`]: only [`Holders::new`] allocates.

use super::rings::Rings;
use super::{Chunk, Queue};
use crate::mem::OutOfMemory;

/// A process that uses chunks, as the caller numbers them; 0 is none.
pub type Holder = u64;

/// How many lists there are; a holder's hash says which one is its own.
pub(super) const LISTS: usize = 64;
/// The most chunks that one walk looks at, under a spinlock: of the process itself, and of
/// those that share its list.
pub(super) const REACH: usize = 1024;

/// The lists of one GPU: of each process's used chunks, at [`list_of`]; of its discarded ones, at [`LISTS`] after that; and
/// of its unused ones, at twice as many.
pub(super) struct Holders(Rings<{ 3 * LISTS }>);

impl Holders {
    /// For chunks 0 to `chunks` - 1, all of them on no list. Takes 8 bytes for each.
    pub(super) fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Rings::new(chunks).map(Self)
    }

    /// Moves `chunk` to the tail of the list of `holder`'s chunks on `queue`; of free chunks there is none. A chunk
    /// without a holder is put on no list: it would be in the way of the holders that share the list.
    #[inline(always)]
    pub(super) fn append(&mut self, chunk: Chunk, holder: Holder, queue: Queue) {
        match first_of(queue) {
            Some(first) if holder != 0 => self.0.append(first + list_of(holder), chunk),
            _ => self.unlink(chunk),
        }
    }

    /// Takes `chunk` off its list, if it is on one.
    #[inline(always)]
    pub(super) fn unlink(&mut self, chunk: Chunk) {
        self.0.unlink(chunk);
    }

    /// The chunks on `queue` that `holder` has, and those of whoever has the same list; the oldest first, within reach.
    pub(super) fn list(&self, queue: Queue, holder: Holder) -> impl Iterator<Item = Chunk> + '_ {
        let list = first_of(queue).map(|first| self.0.iter(first + list_of(holder)));
        list.into_iter().flatten().take(REACH)
    }
}

/// The number of the first list of chunks on `queue`; free chunks have none.
#[inline(always)]
fn first_of(queue: Queue) -> Option<usize> {
    match queue {
        Queue::Free => None,
        Queue::Used => Some(0),
        Queue::Discarded => Some(LISTS),
        Queue::Unused => Some(2 * LISTS),
    }
}

/// Numbers may be addresses, whose low bits are all alike.
#[inline(always)]
pub(super) fn list_of(holder: Holder) -> usize {
    (holder.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % LISTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn two_of_one_list() -> (Holder, Holder) {
        let other = (2..).find(|&h| list_of(h) == list_of(1)).unwrap();
        (1, other)
    }

    /// The used chunks of `holder`, if the chunks are these holders'.
    fn of(holders: &Holders, whose: &[Holder], holder: Holder) -> Vec<Chunk> {
        let list = holders.list(Queue::Used, holder);
        list.filter(|&chunk| whose[chunk as usize] == holder)
            .collect()
    }

    #[test]
    fn a_list_that_two_share_gives_each_its_own() {
        let (one, other) = two_of_one_list();
        let mut holders = Holders::new(6).unwrap();
        let mut whose = [one, other, one, other, one];
        for (chunk, holder) in (0..).zip(whose) {
            holders.append(chunk, holder, Queue::Used);
        }
        assert_eq!(of(&holders, &whose, one), [0, 2, 4]);
        assert_eq!(of(&holders, &whose, other), [1, 3]);
        holders.unlink(2);
        holders.append(0, one, Queue::Used);
        assert_eq!(of(&holders, &whose, one), [4, 0]);
        holders.unlink(4);
        holders.unlink(4);
        assert_eq!(of(&holders, &whose, one), [0]);
        assert_eq!(of(&holders, &whose, other), [1, 3]);
        whose[4] = other;
        holders.append(4, other, Queue::Used);
        assert_eq!(of(&holders, &whose, other), [1, 3, 4]);
    }

    /// Each queue has a list of its own, but for the free one; nobody has none.
    #[test]
    fn a_chunk_is_on_the_list_of_its_queue() {
        let mut holders = Holders::new(2).unwrap();
        let count = |holders: &Holders| Queue::HELD.map(|queue| holders.list(queue, 1).count());
        for (queue, counts) in Queue::HELD
            .into_iter()
            .zip([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
        {
            holders.append(1, 1, queue);
            assert_eq!(count(&holders), counts);
        }
        for (holder, queue) in [(1, Queue::Free), (0, Queue::Used)] {
            holders.append(1, 1, Queue::Used);
            holders.append(1, holder, queue);
            assert_eq!(count(&holders), [0; 3]);
        }
        assert_eq!(holders.list(Queue::Free, 1).count(), 0);
    }

    #[test]
    fn a_walk_ends() {
        let (one, other) = two_of_one_list();
        let many = REACH as u32;
        let mut holders = Holders::new(many + 2).unwrap();
        let whose = |chunk| if chunk + 3 < many { other } else { one };
        let whose: Vec<_> = (0..many + 2).map(whose).collect();
        for (chunk, &holder) in (0..).zip(&whose) {
            holders.append(chunk, holder, Queue::Used);
        }
        assert_eq!(of(&holders, &whose, one), [many - 3, many - 2, many - 1]);
    }

    /// Pages of the kernel's memory are 4 KiB apart at least, and often neighbours.
    #[test]
    fn addresses_are_spread_over_the_lists() {
        let mut lists: Vec<_> = (0..64u64)
            .map(|i| list_of(0xffff_8881_0000_0000 + i * 0x8000))
            .collect();
        lists.sort_unstable();
        lists.dedup();
        assert!(lists.len() > 24, "{}", lists.len());
    }

    #[test]
    fn a_chunk_out_of_range_is_left_alone() {
        let mut holders = Holders::new(1).unwrap();
        holders.append(1, 3, Queue::Used);
        holders.append(u32::MAX, 3, Queue::Used);
        holders.unlink(1);
        assert_eq!(holders.list(Queue::Used, 3).count(), 0);
    }
}
