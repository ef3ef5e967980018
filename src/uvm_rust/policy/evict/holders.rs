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

use super::chains::Chains;
use super::Chunk;
use crate::mem::{OutOfMemory, TryVec};

/// A process that uses chunks, as the caller numbers them; 0 is none.
pub type Holder = u64;

/// How many lists there are; a holder's hash says which one is its own.
pub(super) const LISTS: usize = 64;
/// The most chunks that one walk looks at, under a spinlock: of the process itself, and of
/// those that share its list.
pub(super) const REACH: usize = 1024;

/// The lists of one GPU.
pub(super) struct Holders {
    holders: TryVec<Holder>,
    /// The used chunks of each process, at [`list_of`]; its discarded ones are at [`LISTS`] after that, and its unused
    /// ones at twice as many.
    chains: Chains,
}

impl Holders {
    /// For chunks 0 to `chunks` - 1, all of them nobody's and on no list. Takes 20 bytes
    /// for each.
    pub(super) fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            holders: TryVec::filled(chunks as usize, 0)?,
            chains: Chains::new(3 * LISTS, chunks)?,
        })
    }

    /// `chunk` is `holder`'s now. It is on no list, or is appended to another one next. Returns whose it was.
    pub(super) fn give(&mut self, chunk: Chunk, holder: Holder) -> Holder {
        match self.holders.get_mut(chunk as usize) {
            Some(of) => core::mem::replace(of, holder),
            None => holder,
        }
    }

    /// Whose `chunk` is; 0 if nobody's.
    pub(super) fn holder_of(&self, chunk: Chunk) -> Holder {
        self.holders.get(chunk as usize).copied().unwrap_or(0)
    }

    /// Moves `chunk` to the tail of its holder's list of used chunks. A chunk without a holder is put
    /// on no list: it would be in the way of the holders that share the list.
    pub(super) fn append(&mut self, chunk: Chunk) {
        self.append_to(0, chunk);
    }

    /// Moves `chunk` to the tail of its holder's list of discarded chunks.
    pub(super) fn append_discarded(&mut self, chunk: Chunk) {
        self.append_to(LISTS, chunk);
    }

    /// Moves `chunk` to the tail of its holder's list of unused chunks.
    pub(super) fn append_unused(&mut self, chunk: Chunk) {
        self.append_to(2 * LISTS, chunk);
    }

    fn append_to(&mut self, first: usize, chunk: Chunk) {
        match self.holder_of(chunk) {
            0 => self.unlink(chunk),
            holder => self.chains.append(first + list_of(holder), chunk),
        }
    }

    /// Takes `chunk` off its list, if it is on one.
    pub(super) fn unlink(&mut self, chunk: Chunk) {
        self.chains.unlink(chunk);
    }

    /// The used chunks of `holder`, oldest first, within reach.
    pub(super) fn of(&self, holder: Holder) -> impl Iterator<Item = Chunk> + '_ {
        self.on_list(list_of(holder), holder)
    }

    /// The discarded chunks of `holder`, oldest first, within reach.
    pub(super) fn discarded_of(&self, holder: Holder) -> impl Iterator<Item = Chunk> + '_ {
        self.on_list(LISTS + list_of(holder), holder)
    }

    /// The unused chunks of `holder`, oldest first, within reach.
    pub(super) fn unused_of(&self, holder: Holder) -> impl Iterator<Item = Chunk> + '_ {
        self.on_list(2 * LISTS + list_of(holder), holder)
    }

    fn on_list(&self, list: usize, holder: Holder) -> impl Iterator<Item = Chunk> + '_ {
        let near = self.chains.iter(list).take(REACH);
        near.filter(move |&chunk| self.holder_of(chunk) == holder)
    }
}

/// Numbers may be addresses, whose low bits are all alike.
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

    #[test]
    fn a_list_that_two_share_gives_each_its_own() {
        let (one, other) = two_of_one_list();
        let mut holders = Holders::new(6).unwrap();
        for (chunk, holder) in [(0, one), (1, other), (2, one), (3, other), (4, one)] {
            holders.give(chunk, holder);
            holders.append(chunk);
        }
        assert_eq!(holders.of(one).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(holders.of(other).collect::<Vec<_>>(), [1, 3]);
        holders.unlink(2);
        holders.append(0);
        assert_eq!(holders.of(one).collect::<Vec<_>>(), [4, 0]);
        holders.unlink(4);
        assert_eq!(holders.give(4, other), one);
        assert_eq!(holders.of(one).collect::<Vec<_>>(), [0]);
        assert_eq!(holders.of(other).collect::<Vec<_>>(), [1, 3]);
        holders.append(4);
        assert_eq!(holders.of(other).collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn a_walk_ends() {
        let (one, other) = two_of_one_list();
        let many = REACH as u32;
        let mut holders = Holders::new(many + 2).unwrap();
        for chunk in 0..many + 2 {
            holders.give(chunk, if chunk + 3 < many { other } else { one });
            holders.append(chunk);
        }
        assert_eq!(
            holders.of(one).collect::<Vec<_>>(),
            [many - 3, many - 2, many - 1]
        );
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
        holders.give(1, 3);
        holders.append(1);
        holders.append(u32::MAX);
        holders.unlink(1);
        assert_eq!((holders.holder_of(1), holders.of(3).count()), (0, 0));
        assert_eq!(holders.of(0).count(), 0);
    }
}
