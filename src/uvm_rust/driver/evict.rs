// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The eviction queues of one GPU, as its PMM sees them.
//!
//! The PMM pins a chunk while a va_block works on it, and evicts none that is
//! pinned. What a pinned chunk holds may change all the same, so each chunk has,
//! besides the queue it is on, the queue it belongs to. For the same reason a
//! chunk whose eviction failed returns to where it came from.
//!
//! Free chunks stay on the PMM's own free lists, where parts of chunks are
//! merged; they are on none of these queues.

use crate::mem::{OutOfMemory, TryVec};
use crate::policy::evict::{Chunk, NoSuchChunk, Queue, Queues};

/// Protected by the PMM's `list_lock`, a spinlock: only [`RootChunks::new`] allocates.
pub(crate) struct RootChunks {
    queues: Queues,
    belongs: TryVec<Queue>,
}

impl RootChunks {
    /// For chunks 0 to `chunks` - 1, all of them pinned or free.
    pub(crate) fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            queues: Queues::new(chunks)?,
            belongs: TryVec::filled(chunks as usize, Queue::Used)?,
        })
    }

    /// What `chunk` holds changed: it belongs to `queue` now, at its tail.
    pub(crate) fn set(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        *self.belongs.get_mut(chunk as usize).ok_or(NoSuchChunk)? = queue;
        if self.queues.queue_of(chunk).is_some() {
            self.queues.enqueue(chunk, queue)?;
        }
        Ok(())
    }

    /// `chunk` may be evicted from now on.
    pub(crate) fn insert(&mut self, chunk: Chunk) -> Result<(), NoSuchChunk> {
        let queue = *self.belongs.get(chunk as usize).ok_or(NoSuchChunk)?;
        self.queues.enqueue(chunk, queue)?;
        Ok(())
    }

    /// `chunk` may not be evicted from now on. Returns the queue it was on.
    pub(crate) fn remove(&mut self, chunk: Chunk) -> Option<Queue> {
        self.queues.remove(chunk).ok().flatten()
    }

    /// The chunk to reclaim next; it stays where it is.
    pub(crate) fn pick(&self) -> Option<Chunk> {
        Some(self.queues.pick(0, |_| None)?.chunk)
    }

    /// The queue that `chunk` is on.
    pub(crate) fn queue_of(&self, chunk: Chunk) -> Option<Queue> {
        self.queues.queue_of(chunk)
    }

    /// How many chunks are on `queue`.
    pub(crate) fn length(&self, queue: Queue) -> u32 {
        self.queues
            .counts()
            .lengths
            .get(queue as usize)
            .copied()
            .unwrap_or(0)
    }
}
