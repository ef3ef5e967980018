// SPDX-License-Identifier: GPL-2.0 OR MIT

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
//! In the driver the C lists stay the truth about membership and these queues
//! keep the order (`chunk_update_lists_locked`, `root_chunk_update_eviction_list`,
//! `chunk_start_eviction` and `pick_root_chunk_to_evict` of `uvm_pmm_gpu.c`).

mod holders;
mod lists;
pub mod reclaim;
mod roots;
pub mod wait;

use super::stats;
use crate::mem::{OutOfMemory, TryVec};

// The driver uses a part of it; models the rest.
#[allow(unused_imports)]
pub use holders::Holder;
#[allow(unused_imports)]
pub use lists::{Change, Lists};
#[allow(unused_imports)]
pub use roots::{Owner, RootChunks, OWNERS};

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
    /// A va_block's, with nothing resident.
    Unused = 1,
    /// A va_block's, with nothing resident that is not discarded.
    Discarded = 2,
    /// A va_block's, with resident pages.
    Used = 3,
}

impl Queue {
    /// All queues, in the order in which they are reclaimed from.
    pub const ORDER: [Self; 4] = [Self::Free, Self::Unused, Self::Discarded, Self::Used];
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
    /// The chunk.
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

#[derive(Clone)]
struct Node {
    prev: u32,
    next: u32,
    queue: Option<Queue>,
}

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
}

/// The queues of one GPU.
pub struct Queues {
    nodes: TryVec<Node>,
    ends: [Ends; 4],
    counts: Counts,
}

impl Queues {
    /// Queues for chunks 0 to `chunks` - 1, all of them on none.
    ///
    /// Takes 12 bytes per chunk; the only call that allocates.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        let unlinked = Node {
            prev: NONE,
            next: NONE,
            queue: None,
        };
        Ok(Self {
            nodes: TryVec::filled(chunks as usize, unlinked)?,
            ends: [Ends {
                head: NONE,
                tail: NONE,
            }; 4],
            counts: Counts::default(),
        })
    }

    /// Moves `chunk` to the tail of `queue`, from wherever it was. Returns the
    /// queue it was on.
    pub fn enqueue(&mut self, chunk: Chunk, queue: Queue) -> Result<Option<Queue>, NoSuchChunk> {
        let was = self.remove(chunk)?;
        let tail = self.ends[queue as usize].tail;
        if let Some(n) = self.nodes.get_mut(chunk as usize) {
            *n = Node {
                prev: tail,
                next: NONE,
                queue: Some(queue),
            };
        }
        match self.nodes.get_mut(tail as usize) {
            Some(t) => t.next = chunk,
            None => self.ends[queue as usize].head = chunk,
        }
        self.ends[queue as usize].tail = chunk;
        self.counts.lengths[queue as usize] += 1;
        Ok(was)
    }

    /// Takes `chunk` off its queue, if it is on one. Returns that queue.
    pub fn remove(&mut self, chunk: Chunk) -> Result<Option<Queue>, NoSuchChunk> {
        let node = self.nodes.get_mut(chunk as usize).ok_or(NoSuchChunk)?;
        let Some(queue) = node.queue.take() else {
            return Ok(None);
        };
        let (prev, next) = (node.prev, node.next);
        match self.nodes.get_mut(prev as usize) {
            Some(p) => p.next = next,
            None => self.ends[queue as usize].head = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(n) => n.prev = prev,
            None => self.ends[queue as usize].tail = prev,
        }
        self.counts.lengths[queue as usize] -= 1;
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
        mut expected: impl FnMut(Chunk) -> Option<u32>,
    ) -> Option<Victim> {
        for queue in [Queue::Free, Queue::Unused, Queue::Discarded] {
            if let Some(chunk) = self.oldest(queue) {
                return Some(Victim {
                    chunk,
                    queue,
                    expected: false,
                });
            }
        }
        let mut victim = Victim {
            chunk: self.oldest(Queue::Used)?,
            queue: Queue::Used,
            expected: false,
        };
        let mut last = None;
        for chunk in self.iter(Queue::Used).take(patience as usize) {
            let needed_in = expected(chunk);
            if needed_in.is_none() {
                victim.chunk = chunk;
                victim.expected = false;
                break;
            }
            if needed_in > last {
                last = needed_in;
                victim.chunk = chunk;
                victim.expected = true;
            }
        }
        Some(victim)
    }

    /// Picks a chunk, takes it off its queue and counts it as reclaimed.
    pub fn take(
        &mut self,
        patience: u32,
        expected: impl FnMut(Chunk) -> Option<u32>,
    ) -> Option<Victim> {
        let victim = self.pick(patience, expected)?;
        self.remove(victim.chunk).ok()?;
        self.counts.reclaimed[victim.queue as usize] += 1;
        Some(victim)
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
    pub fn queue_of(&self, chunk: Chunk) -> Option<Queue> {
        self.nodes.get(chunk as usize)?.queue
    }

    /// The head of `queue`: the chunk that has been on it for longest.
    pub fn oldest(&self, queue: Queue) -> Option<Chunk> {
        let head = self.ends[queue as usize].head;
        (head != NONE).then_some(head)
    }

    /// The chunks of `queue`, oldest first.
    pub fn iter(&self, queue: Queue) -> impl Iterator<Item = Chunk> + '_ {
        core::iter::successors(self.oldest(queue), |&c| {
            let next = self.nodes.get(c as usize)?.next;
            (next != NONE).then_some(next)
        })
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

#[cfg(test)]
mod tests;
