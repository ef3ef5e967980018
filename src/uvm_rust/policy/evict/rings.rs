// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Rings of chunks, linked by index: each chunk is on one of `LISTS` lists, or on none.
//!
//! A list is a ring from a node of its own, which has the list's number, over the list's chunks. With that node no operation
//! asks whether it is at an end. A chunk on no list is a ring by itself, so that no operation asks whether a chunk is on a
//! list: to take such a chunk off its list changes nothing.
//!
//! Locking as for [`super::Queues`]: only [`Rings::new`] allocates, and each call but a walk takes constant time.

use super::{link_last, unlink, Chunk, Link};
use crate::mem::{OutOfMemory, TryVec};

/// The lists of one GPU's chunks. `LISTS` is less than 2^32.
pub(super) struct Rings<const LISTS: usize> {
    /// The lists' nodes, and behind these the chunks'.
    links: TryVec<Link>,
}

impl<const LISTS: usize> Rings<LISTS> {
    /// Empty lists, for chunks 0 to `chunks` - 1. Takes 8 bytes for each chunk.
    pub(super) fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        let nodes = chunks.checked_add(LISTS as u32).ok_or(OutOfMemory)?;
        let mut links = TryVec::filled(nodes as usize, alone(0))?;
        for (node, link) in (0..nodes).zip(links.iter_mut()) {
            *link = alone(node);
        }
        Ok(Self { links })
    }

    /// Moves `chunk` to the tail of `list`, which is less than `LISTS`, from wherever the chunk was. Nothing happens if there
    /// is no such chunk.
    #[inline(always)]
    pub(super) fn append(&mut self, list: usize, chunk: Chunk) {
        let links = &mut *self.links;
        let node = node_of::<LISTS>(chunk);
        // Said once for all that follows.
        if list >= links.len() || node >= links.len() {
            return;
        }
        unlink(links, links[node]);
        link_last(links, node, list);
    }

    /// Moves `chunk`, from wherever it was, behind the chunk `before`; to the head of `list`, which is less than `LISTS`, if
    /// `before` is `None`. Nothing happens if there is no such chunk.
    pub(super) fn insert(&mut self, list: usize, before: Option<Chunk>, chunk: Chunk) {
        let links = &mut *self.links;
        let node = node_of::<LISTS>(chunk);
        let before = before.map_or(list, node_of::<LISTS>);
        if before >= links.len() || node >= links.len() {
            return;
        }
        unlink(links, links[node]);
        let next = core::mem::replace(&mut links[before].next, node as u32);
        links[node] = Link {
            prev: before as u32,
            next,
        };
        if let Some(after) = links.get_mut(next as usize) {
            after.prev = node as u32;
        }
    }

    /// Takes `chunk` off its list, if it is on one.
    #[inline(always)]
    pub(super) fn unlink(&mut self, chunk: Chunk) {
        let links = &mut *self.links;
        let node = node_of::<LISTS>(chunk);
        if node >= links.len() {
            return;
        }
        unlink(links, links[node]);
        links[node] = alone(node as u32);
    }

    /// The chunk at the head of `list`, or at its tail.
    pub(super) fn end(&self, list: usize, tail: bool) -> Option<Chunk> {
        if list < LISTS {
            self.neighbour(list, tail)
        } else {
            None
        }
    }

    /// The chunk that follows `chunk`, which is on a list, or is `before` it.
    pub(super) fn beside(&self, chunk: Chunk, before: bool) -> Option<Chunk> {
        self.neighbour(node_of::<LISTS>(chunk), before)
    }

    /// The chunks of `list`, the one that was appended first at the beginning.
    pub(super) fn iter(&self, list: usize) -> impl Iterator<Item = Chunk> + '_ {
        core::iter::successors(self.end(list, false), |&chunk| self.beside(chunk, false))
    }

    fn neighbour(&self, node: usize, before: bool) -> Option<Chunk> {
        let link = self.links.get(node)?;
        let node = if before { link.prev } else { link.next };
        node.checked_sub(LISTS as u32)
    }
}

/// The number of a chunk's node.
#[inline(always)]
fn node_of<const LISTS: usize>(chunk: Chunk) -> usize {
    chunk as usize + LISTS
}

/// The link of a node that is a ring by itself.
#[inline(always)]
fn alone(node: u32) -> Link {
    Link {
        prev: node,
        next: node,
    }
}
