// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Lists of chunks, linked by index: each chunk is on one of them, or on none.
//!
//! Locking as for [`super::Queues`]: only [`Chains::new`] allocates, and each call but a walk takes constant time.

use super::{Chunk, NONE};
use crate::mem::{OutOfMemory, TryVec};

/// Where a chunk is.
#[derive(Clone, Copy)]
struct Place {
    /// The number of its list; [`NONE`] for a chunk on no list, whose neighbours then say nothing.
    list: u32,
    prev: u32,
    next: u32,
}

/// The chunks at both ends of a list.
#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
}

/// The lists of one GPU's chunks.
pub(super) struct Chains {
    places: TryVec<Place>,
    /// On the heap, as a GPU's queues are made on a kernel thread's small stack.
    ends: TryVec<Ends>,
}

impl Chains {
    /// So many empty lists, for chunks 0 to `chunks` - 1. Takes 12 bytes for each chunk.
    pub(super) fn new(lists: usize, chunks: u32) -> Result<Self, OutOfMemory> {
        let nowhere = Place {
            list: NONE,
            prev: NONE,
            next: NONE,
        };
        let empty = Ends {
            head: NONE,
            tail: NONE,
        };
        Ok(Self {
            places: TryVec::filled(chunks as usize, nowhere)?,
            ends: TryVec::filled(lists, empty)?,
        })
    }

    /// Moves `chunk` to the tail of `list`, from wherever it was. Nothing happens if there is no such chunk or list.
    pub(super) fn append(&mut self, list: usize, chunk: Chunk) {
        self.unlink(chunk);
        let (Some(ends), true) = (
            self.ends.get_mut(list),
            (chunk as usize) < self.places.len(),
        ) else {
            return;
        };
        let tail = core::mem::replace(&mut ends.tail, chunk);
        match self.places.get_mut(tail as usize) {
            Some(before) => before.next = chunk,
            None => ends.head = chunk,
        }
        if let Some(place) = self.places.get_mut(chunk as usize) {
            *place = Place {
                list: list as u32,
                prev: tail,
                next: NONE,
            };
        }
    }

    /// Puts `chunk`, which is on no list, at the head of `list`. Nothing happens if there is no such chunk or list.
    pub(super) fn prepend(&mut self, list: usize, chunk: Chunk) {
        let (Some(ends), true) = (
            self.ends.get_mut(list),
            (chunk as usize) < self.places.len(),
        ) else {
            return;
        };
        let head = core::mem::replace(&mut ends.head, chunk);
        match self.places.get_mut(head as usize) {
            Some(after) => after.prev = chunk,
            None => ends.tail = chunk,
        }
        if let Some(place) = self.places.get_mut(chunk as usize) {
            *place = Place {
                list: list as u32,
                prev: NONE,
                next: head,
            };
        }
    }

    /// Puts `chunk`, which is on no list, behind `before`, which is on `list`; at the head of `list`, if `before` is `None`.
    pub(super) fn insert(&mut self, list: usize, before: Option<Chunk>, chunk: Chunk) {
        let Some(next) = before.map(|before| self.beside(before, false)) else {
            return self.prepend(list, chunk);
        };
        let (Some(before), Some(next)) = (before, next) else {
            return self.append(list, chunk);
        };
        let Some(place) = self.places.get_mut(chunk as usize) else {
            return;
        };
        *place = Place {
            list: list as u32,
            prev: before,
            next,
        };
        if let Some(place) = self.places.get_mut(before as usize) {
            place.next = chunk;
        }
        if let Some(place) = self.places.get_mut(next as usize) {
            place.prev = chunk;
        }
    }

    /// Takes `chunk` off its list, and returns the number of that; `None` if it was on none.
    #[inline(always)]
    pub(super) fn unlink(&mut self, chunk: Chunk) -> Option<usize> {
        let place = self.places.get_mut(chunk as usize)?;
        let Place { list, prev, next } = *place;
        let ends = self.ends.get_mut(list as usize)?;
        place.list = NONE;
        match self.places.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => ends.head = next,
        }
        match self.places.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => ends.tail = prev,
        }
        Some(list as usize)
    }

    /// The number of the list that `chunk` is on.
    pub(super) fn list_of(&self, chunk: Chunk) -> Option<usize> {
        let place = self.places.get(chunk as usize)?;
        (place.list != NONE).then_some(place.list as usize)
    }

    /// The chunk at the head of `list`, or at its tail.
    pub(super) fn end(&self, list: usize, tail: bool) -> Option<Chunk> {
        let ends = self.ends.get(list)?;
        let chunk = if tail { ends.tail } else { ends.head };
        (chunk != NONE).then_some(chunk)
    }

    /// The chunk that follows `chunk`, which is on a list, or is `before` it.
    pub(super) fn beside(&self, chunk: Chunk, before: bool) -> Option<Chunk> {
        let place = self.places.get(chunk as usize)?;
        let chunk = if before { place.prev } else { place.next };
        (chunk != NONE).then_some(chunk)
    }

    /// The chunks of `list`, the one that was appended first at the beginning.
    pub(super) fn iter(&self, list: usize) -> impl Iterator<Item = Chunk> + '_ {
        let chunk = |chunk: u32| self.places.get(chunk as usize).map(|place| (chunk, place));
        let head = self.ends.get(list).and_then(|ends| chunk(ends.head));
        core::iter::successors(head, move |(_, place)| chunk(place.next)).map(|(chunk, _)| chunk)
    }
}
