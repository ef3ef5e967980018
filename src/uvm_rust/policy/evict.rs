// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Eviction queues: which 2 MiB root chunk of a GPU is reclaimed next.
//!
//! Four queues link the root chunks of one GPU by index (UvmDiscard §5.5):
//!
//! ```text
//!              enters at the tail                          reclaimed from the head
//!   free       held by UVM, used by nothing                1st, costs nothing
//!   unused     a va_block's, nothing resident any more     2nd, moves no bytes
//!   discarded  a va_block's, all that is resident there    3rd, moves no bytes; FIFO, so that each
//!              is discarded                                chunk can be recovered for the longest time
//!   used       a va_block's, with resident pages           4th, copied out; pseudo-LRU, because a chunk
//!                                                          moves to the tail when pages of it are
//!                                                          populated or migrated, not when accessed
//! ```
//!
//! A chunk is on one queue or on none. It is on none while it is pinned, being
//! evicted, or not UVM's. A chunk that may not be evicted must not be on a queue.
//!
//! Locking: the caller serialises all calls for one GPU; in the driver that is
//! `pmm->list_lock`, a spinlock. No call but [`Queues::new`] allocates, and each
//! takes constant time ([`Queues::pick`]: `patience` steps at most).
//!
//! In the driver these queues are what chunks are chosen from, and no list of upstream's is asked
//! (`pick_root_chunk_to_evict` of `uvm_pmm_gpu.c`). They follow what upstream makes of a chunk
//! (`chunk_update_lists_locked`, `chunk_start_eviction`, the marks used, unused and evicted).

mod chains;
mod holders;
mod lists;
mod lows;
mod one;
mod policies;
pub mod reclaim;
mod rings;
mod roots;
pub mod wait;

use super::stats;
use crate::mem::{OutOfMemory, TryVec};

// The driver uses a part of it; models the rest.
#[allow(unused_imports)]
pub use holders::Holder;
#[allow(unused_imports)]
pub use lists::{reclaimed_from, Change, Lists};
#[allow(unused_imports)]
pub use lows::PLACES;
#[allow(unused_imports)]
pub use policies::{spared, Choice, Policy, Standing, Used};
#[allow(unused_imports)]
pub use roots::{Owner, RootChunks, Tenant, OWNERS};

/// A root chunk of one GPU: its physical address divided by 2 MiB.
pub type Chunk = u32;

/// "No chunk" in links; never an index, as [`Queues::new`] sees to.
const NONE: u32 = u32::MAX;

/// The queues, in the order in which they are reclaimed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Queue {
    /// Held by UVM, used by nothing.
    Free = 0,
    /// A va_block has the chunk, with nothing resident in it.
    Unused = 1,
    /// A va_block has the chunk, with nothing resident in it but what is discarded.
    Discarded = 2,
    /// A va_block has the chunk, with resident pages in it.
    Used = 3,
}

impl Queue {
    /// All queues, in the order in which they are reclaimed from.
    pub const ORDER: [Self; 4] = [Self::Free, Self::Unused, Self::Discarded, Self::Used];
    /// The queues of chunks that a va_block has: of all but free ones, in the same order.
    pub const HELD: [Self; 3] = [Self::Unused, Self::Discarded, Self::Used];

    /// The queue with this number, if there is one.
    pub fn from_number(n: u32) -> Option<Self> {
        Self::ORDER.get(n as usize).copied()
    }
}

impl From<Queue> for stats::Queue {
    fn from(q: Queue) -> Self {
        match q {
            Queue::Free => Self::Free,
            Queue::Unused => Self::Unused,
            Queue::Discarded => Self::Discarded,
            Queue::Used => Self::Used,
        }
    }
}

/// The chunk number is not one of this GPU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchChunk;

/// A chunk chosen for reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The chunk that is to be reclaimed.
    pub chunk: Chunk,
    /// The queue it was found on.
    pub queue: Queue,
    /// It is expected to be accessed soon, but no better one was within reach.
    pub expected: bool,
}

/// Lengths of the queues and what was reclaimed from each, in [`Queue::ORDER`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Chunks on each queue now.
    pub lengths: [u32; 4],
    /// Chunks taken from each queue and not put back.
    pub reclaimed: [u64; 4],
}

/// A node's neighbours in a ring of links.
#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

/// How many nodes there are before the first chunk's: each queue's own.
const FIRST: u32 = Queue::ORDER.len() as u32;

/// The queues of one GPU.
pub struct Queues {
    /// A ring for each queue, from the queue's node at the queue's own number, over its chunks, oldest
    /// first. With a node of its own for each queue no operation asks whether it is at an end. Of a
    /// chunk on no queue the link says nothing.
    links: TryVec<Link>,
    /// The queue that each chunk is on.
    on: TryVec<Option<Queue>>,
    counts: Counts,
}

impl Queues {
    /// Queues for chunks 0 to `chunks` - 1, all of them on none.
    ///
    /// Takes 9 bytes per chunk; the only call that allocates.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        let nodes = chunks.checked_add(FIRST).ok_or(OutOfMemory)?;
        let nowhere = Link {
            prev: NONE,
            next: NONE,
        };
        let mut links = TryVec::filled(nodes as usize, nowhere)?;
        for (queue, link) in (0..FIRST).zip(links.iter_mut()) {
            (link.prev, link.next) = (queue, queue);
        }
        Ok(Self {
            links,
            on: TryVec::filled(chunks as usize, None)?,
            counts: Counts::default(),
        })
    }

    /// Moves `chunk` to the tail of `queue`, from wherever it was. Returns the
    /// queue it was on.
    #[inline(always)]
    pub fn enqueue(&mut self, chunk: Chunk, queue: Queue) -> Result<Option<Queue>, NoSuchChunk> {
        let links = &mut *self.links;
        let (i, head) = (node_of(chunk), queue as usize);
        let on = self.on.get_mut(chunk as usize).ok_or(NoSuchChunk)?;
        // Said once for all that follows.
        if i >= links.len() || head >= links.len() {
            return Err(NoSuchChunk);
        }
        let was = *on;
        // Most often it is used again.
        if was != Some(queue) {
            *on = Some(queue);
            self.counts.lengths[queue as usize] += 1;
            if let Some(was) = was {
                self.counts.lengths[was as usize] -= 1;
            }
        }
        if was.is_some() {
            unlink(links, links[i]);
        }
        link_last(links, i, head);
        Ok(was)
    }

    /// Moves `chunk`, which is on `queue`, to the tail of that.
    #[inline(always)]
    fn renew(&mut self, chunk: Chunk, queue: Queue) {
        let links = &mut *self.links;
        let (node, head) = (node_of(chunk), queue as usize);
        if node >= links.len() || head >= links.len() {
            return;
        }
        unlink(links, links[node]);
        link_last(links, node, head);
    }

    /// Moves `chunk` to the head of the queue that it is on.
    pub fn make_oldest(&mut self, chunk: Chunk) {
        let Some(queue) = self.queue_of(chunk) else {
            return;
        };
        let (i, before) = (node_of(chunk), queue as usize);
        let links = &mut *self.links;
        if i >= links.len() || before >= links.len() {
            return;
        }
        unlink(links, links[i]);
        let after = core::mem::replace(&mut links[before].next, i as u32);
        links[i] = Link {
            prev: before as u32,
            next: after,
        };
        if let Some(second) = links.get_mut(after as usize) {
            second.prev = i as u32;
        }
    }

    /// Takes `chunk` off its queue, if it is on one. Returns that queue.
    #[inline]
    pub fn remove(&mut self, chunk: Chunk) -> Result<Option<Queue>, NoSuchChunk> {
        let on = self.on.get_mut(chunk as usize).ok_or(NoSuchChunk)?;
        let Some(queue) = on.take() else {
            return Ok(None);
        };
        self.counts.lengths[queue as usize] -= 1;
        if let Some(&link) = self.links.get(node_of(chunk)) {
            unlink(&mut self.links, link);
        }
        Ok(Some(queue))
    }

    /// The chunk to reclaim next; it stays on its queue.
    ///
    /// The first of free, unused and discarded if there is one. Of the used
    /// chunks, the least recently migrated one that is not expected to be accessed
    /// (DeepUM §5.1), looking at `patience` of them at most. `expected` gives the
    /// kernels until a chunk is needed, `None` if it is not expected. If all are, the
    /// one that is needed last is chosen, because a fault must be served now; the
    /// oldest would be the one that was prefetched first and is needed next.
    pub fn pick(
        &self,
        patience: u32,
        expected: impl FnMut(Chunk) -> Option<u32>,
    ) -> Option<Victim> {
        self.for_nothing()
            .or_else(|| self.pick_used(patience, expected))
    }

    /// The chunk to reclaim next, if that moves no bytes.
    #[inline]
    fn for_nothing(&self) -> Option<Victim> {
        let (chunk, queue) = self.oldest_for_nothing()?;
        Some(Victim {
            chunk,
            queue,
            expected: false,
        })
    }

    /// The same chunk, with its queue. A pair stays in registers, which a [`Victim`] that two branches
    /// return does not.
    #[inline]
    fn oldest_for_nothing(&self) -> Option<(Chunk, Queue)> {
        let ends = self.links.first_chunk::<{ FIRST as usize }>()?;
        [Queue::Free, Queue::Unused, Queue::Discarded]
            .into_iter()
            .find_map(|queue| Some((ends[queue as usize].next.checked_sub(FIRST)?, queue)))
    }

    /// The used chunk to reclaim next.
    fn pick_used(
        &self,
        patience: u32,
        mut expected: impl FnMut(Chunk) -> Option<u32>,
    ) -> Option<Victim> {
        let near = self.iter(Queue::Used).take(patience as usize).map(|c| {
            let standing = expected(c).map_or(Standing::Unknown, Standing::Expected);
            (c, standing)
        });
        let (chunk, expected) = match policies::first_unspared(near) {
            Some(found) => found,
            None => (self.oldest(Queue::Used)?, false),
        };
        Some(Victim {
            chunk,
            queue: Queue::Used,
            expected,
        })
    }

    /// Picks a chunk, takes it off its queue and counts it as reclaimed.
    #[inline]
    pub fn take(
        &mut self,
        patience: u32,
        expected: impl FnMut(Chunk) -> Option<u32>,
    ) -> Option<Victim> {
        let (chunk, queue, expected) = match self.oldest_for_nothing() {
            Some((chunk, queue)) => {
                self.take_oldest(chunk, queue)?;
                (chunk, queue, false)
            }
            None => {
                let (chunk, expected) = self.take_used(patience, expected)?;
                (chunk, Queue::Used, expected)
            }
        };
        self.counts.reclaimed[queue as usize] += 1;
        Some(Victim {
            chunk,
            queue,
            expected,
        })
    }

    /// Takes `chunk`, which is the head of `queue`.
    #[inline]
    fn take_oldest(&mut self, chunk: Chunk, queue: Queue) -> Option<()> {
        let next = self.links.get(node_of(chunk))?.next;
        *self.on.get_mut(chunk as usize)? = None;
        let prev = queue as u32;
        unlink(&mut self.links, Link { prev, next });
        self.counts.lengths[queue as usize] -= 1;
        Some(())
    }

    /// Takes a used chunk, and says whether it is expected. This is a function of its own, so that a caller
    /// that finds a chunk which moves no bytes saves no registers for the walk over the used ones.
    #[cold]
    #[inline(never)]
    fn take_used(
        &mut self,
        patience: u32,
        expected: impl FnMut(Chunk) -> Option<u32>,
    ) -> Option<(Chunk, bool)> {
        let used = self.pick_used(patience, expected)?;
        self.remove(used.chunk).ok()?;
        Some((used.chunk, used.expected))
    }

    /// Undoes [`Queues::take`] after an eviction that failed.
    ///
    /// The chunk goes to the tail of the queue it came from: it keeps its kind (a
    /// discarded chunk is still free to reclaim), and the next attempt meets
    /// another chunk.
    pub fn put_back(&mut self, victim: Victim) -> Result<(), NoSuchChunk> {
        self.enqueue(victim.chunk, victim.queue)?;
        let n = &mut self.counts.reclaimed[victim.queue as usize];
        *n = n.saturating_sub(1);
        Ok(())
    }

    /// The queue that `chunk` is on.
    #[inline]
    pub fn queue_of(&self, chunk: Chunk) -> Option<Queue> {
        *self.on.get(chunk as usize)?
    }

    /// The head of `queue`: the chunk that has been on it for longest.
    #[inline]
    pub fn oldest(&self, queue: Queue) -> Option<Chunk> {
        self.after(queue as usize)
    }

    /// The tail of `queue`: the chunk that came to it last.
    pub(crate) fn newest(&self, queue: Queue) -> Option<Chunk> {
        self.before(queue as usize)
    }

    /// The chunk that came after `chunk` to the queue of both.
    pub(crate) fn next(&self, chunk: Chunk) -> Option<Chunk> {
        self.after(node_of(chunk))
    }

    /// The chunk that came before `chunk` to the queue of both.
    pub(crate) fn previous(&self, chunk: Chunk) -> Option<Chunk> {
        self.before(node_of(chunk))
    }

    /// The chunks of `queue`, oldest first.
    pub fn iter(&self, queue: Queue) -> impl Iterator<Item = Chunk> + '_ {
        core::iter::successors(self.oldest(queue), |&c| self.after(node_of(c)))
    }

    /// The chunks of `queue`, newest first.
    pub fn iter_back(&self, queue: Queue) -> impl Iterator<Item = Chunk> + '_ {
        core::iter::successors(self.newest(queue), |&c| self.previous(c))
    }

    /// The chunk that follows a node, unless that is the last one.
    #[inline]
    fn after(&self, node: usize) -> Option<Chunk> {
        self.links.get(node)?.next.checked_sub(FIRST)
    }

    /// The chunk that is before a node, unless that is the first one.
    fn before(&self, node: usize) -> Option<Chunk> {
        self.links.get(node)?.prev.checked_sub(FIRST)
    }

    /// Chunks that can be had without moving bytes.
    pub fn available(&self) -> u32 {
        self.counts.lengths[..Queue::Used as usize].iter().sum()
    }

    /// Lengths and what was reclaimed.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// The number of a chunk's node.
#[inline]
fn node_of(chunk: Chunk) -> usize {
    chunk as usize + FIRST as usize
}

/// The neighbours of a node that has this link, on a ring, become each other's.
#[inline]
fn unlink(links: &mut [Link], Link { prev, next }: Link) {
    if let Some(before) = links.get_mut(prev as usize) {
        before.next = next;
    }
    if let Some(after) = links.get_mut(next as usize) {
        after.prev = prev;
    }
}

/// Puts a node on the ring of `head`, in front of that. There are both nodes.
#[inline(always)]
fn link_last(links: &mut [Link], node: usize, head: usize) {
    let tail = core::mem::replace(&mut links[head].prev, node as u32);
    links[node] = Link {
        prev: tail,
        next: head as u32,
    };
    if let Some(last) = links.get_mut(tail as usize) {
        last.next = node as u32;
    }
}

#[cfg(test)]
mod tests;
