// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Lists of chunks, linked by index, of which each chunk says on which one it is: each is on one of `LISTS` lists, or on none.
//!
//! Locking as for [`super::Queues`]: only [`Chains::new`] allocates, and each call but a walk takes constant time.

use super::rings::Rings;
use super::{Chunk, NONE};
use crate::mem::{OutOfMemory, TryVec};

/// The lists of one GPU's chunks. `LISTS` is less than 2^32.
pub(super) struct Chains<const LISTS: usize> {
    rings: Rings<LISTS>,
    /// The number of each chunk's list; [`NONE`] for a chunk on no list.
    on: TryVec<u32>,
}

impl<const LISTS: usize> Chains<LISTS> {
    /// Empty lists, for chunks 0 to `chunks` - 1. Takes 12 bytes for each chunk.
    pub(super) fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            rings: Rings::new(chunks)?,
            on: TryVec::filled(chunks as usize, NONE)?,
        })
    }

    /// Moves `chunk` to the tail of `list`, from wherever it was. Nothing happens if there is no such chunk or list.
    pub(super) fn append(&mut self, list: usize, chunk: Chunk) {
        if self.comes_to(list, chunk) {
            self.rings.append(list, chunk);
        }
    }

    /// Moves `chunk` to the head of `list`, from wherever it was. Nothing happens if there is no such chunk or list.
    pub(super) fn prepend(&mut self, list: usize, chunk: Chunk) {
        self.insert(list, None, chunk);
    }

    /// Moves `chunk`, from wherever it was, behind `before`, which is on `list`; to the head of `list`, if `before` is
    /// `None`. Nothing happens if there is no such chunk or list.
    pub(super) fn insert(&mut self, list: usize, before: Option<Chunk>, chunk: Chunk) {
        if self.comes_to(list, chunk) {
            self.rings.insert(list, before, chunk);
        }
    }

    /// Notes that `chunk` is on `list` from now on. False if there is no such chunk or list.
    fn comes_to(&mut self, list: usize, chunk: Chunk) -> bool {
        let on = self.on.get_mut(chunk as usize).filter(|_| list < LISTS);
        on.map(|on| *on = list as u32).is_some()
    }

    /// Takes `chunk` off its list, and returns the number of that; `None` if it was on none.
    pub(super) fn unlink(&mut self, chunk: Chunk) -> Option<usize> {
        let list = core::mem::replace(self.on.get_mut(chunk as usize)?, NONE);
        if list == NONE {
            return None;
        }
        self.rings.unlink(chunk);
        Some(list as usize)
    }

    /// The number of the list that `chunk` is on.
    pub(super) fn list_of(&self, chunk: Chunk) -> Option<usize> {
        let list = *self.on.get(chunk as usize)?;
        (list != NONE).then_some(list as usize)
    }

    /// The chunk at the head of `list`, or at its tail.
    pub(super) fn end(&self, list: usize, tail: bool) -> Option<Chunk> {
        self.rings.end(list, tail)
    }

    /// The chunk that follows `chunk`, which is on a list, or is `before` it.
    pub(super) fn beside(&self, chunk: Chunk, before: bool) -> Option<Chunk> {
        self.rings.beside(chunk, before)
    }

    /// The chunks of `list`, the one that was appended first at the beginning.
    pub(super) fn iter(&self, list: usize) -> impl Iterator<Item = Chunk> + '_ {
        self.rings.iter(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const LISTS: usize = 3;
    const CHUNKS: u32 = 8;

    #[derive(Clone, Debug)]
    enum Op {
        Append(usize, Chunk),
        Prepend(usize, Chunk),
        /// Behind the chunk with this number of those on the list.
        Insert(usize, usize, Chunk),
        Unlink(Chunk),
    }

    /// One list and one chunk are not there.
    fn op() -> impl Strategy<Value = Op> {
        let (list, chunk) = (0..=LISTS, 0..=CHUNKS);
        prop_oneof![
            2 => (list.clone(), chunk.clone()).prop_map(|(l, c)| Op::Append(l, c)),
            1 => (list.clone(), chunk.clone()).prop_map(|(l, c)| Op::Prepend(l, c)),
            1 => (list, 0..CHUNKS as usize, chunk.clone()).prop_map(|(l, n, c)| Op::Insert(l, n, c)),
            1 => chunk.prop_map(Op::Unlink),
        ]
    }

    /// Lists that are looked through from end to end.
    type Model = [Vec<Chunk>; LISTS];

    fn take(model: &mut Model, chunk: Chunk) -> Option<usize> {
        let list = model.iter().position(|list| list.contains(&chunk))?;
        model[list].retain(|&c| c != chunk);
        Some(list)
    }

    proptest! {
        #![proptest_config(crate::testing::model(512))]

        #[test]
        fn behave_like_plain_lists(ops in proptest::collection::vec(op(), 1..crate::testing::steps(100))) {
            let mut chains = Chains::<LISTS>::new(CHUNKS).unwrap();
            let mut model = Model::default();
            for op in ops {
                match op {
                    Op::Append(list, chunk) | Op::Prepend(list, chunk) | Op::Insert(list, _, chunk) => {
                        let is_there = list < LISTS && chunk < CHUNKS;
                        if is_there {
                            take(&mut model, chunk);
                        }
                        let mut nowhere = Vec::new();
                        let there = if is_there { &mut model[list] } else { &mut nowhere };
                        let at = match op {
                            Op::Append(..) => there.len(),
                            Op::Insert(_, n, _) => (n + 1).min(there.len()),
                            _ => 0,
                        };
                        let before = at.checked_sub(1).map(|before| there[before]);
                        there.insert(at, chunk);
                        match op {
                            Op::Append(..) => chains.append(list, chunk),
                            Op::Prepend(..) => chains.prepend(list, chunk),
                            _ => chains.insert(list, before, chunk),
                        }
                    }
                    Op::Unlink(chunk) => prop_assert_eq!(chains.unlink(chunk), take(&mut model, chunk)),
                }
                for (list, there) in model.iter().enumerate() {
                    prop_assert_eq!(&chains.iter(list).collect::<Vec<_>>(), there);
                    let (head, tail) = (there.first().copied(), there.last().copied());
                    prop_assert_eq!((chains.end(list, false), chains.end(list, true)), (head, tail));
                    let back = core::iter::successors(tail, |&c| chains.beside(c, true));
                    prop_assert!(back.eq(there.iter().rev().copied()));
                    prop_assert!(there.iter().all(|&c| chains.list_of(c) == Some(list)));
                }
                let on = (0..=CHUNKS).filter(|&c| chains.list_of(c).is_some()).count();
                prop_assert_eq!(on, model.iter().map(Vec::len).sum::<usize>());
                prop_assert_eq!((chains.end(LISTS, false), chains.iter(LISTS).count()), (None, 0));
            }
        }
    }

    #[test]
    fn more_nodes_than_numbers_are_refused() {
        assert!(Chains::<LISTS>::new(u32::MAX - 2).is_err());
        assert_eq!(
            Chains::<LISTS>::new(0).map(|none| none.end(0, false)).ok(),
            Some(None)
        );
    }
}
