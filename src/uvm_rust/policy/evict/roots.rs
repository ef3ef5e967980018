// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Queues for a manager that pins chunks while they are worked on.
//!
//! Upstream's physical memory manager (PMM) pins a chunk while a va_block works on it, and evicts none that is
//! pinned. What a pinned chunk holds may change all the same, so each chunk has,
//! besides the queue it is on, the queue it belongs to. For the same reason a
//! chunk whose eviction failed returns to where it came from.
//!
//! Free chunks stay on the PMM's own free lists, where parts of chunks are
//! merged; they are on none of these queues.

use super::{Chunk, NoSuchChunk, Queue, Queues};
use crate::mem::{OutOfMemory, TryVec};

/// The root chunks of one GPU. Locking as for [`Queues`]: only [`RootChunks::new`]
/// allocates.
pub struct RootChunks {
    queues: Queues,
    belongs: TryVec<Queue>,
}

impl RootChunks {
    /// For chunks 0 to `chunks` - 1, all of them pinned or free.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            queues: Queues::new(chunks)?,
            belongs: TryVec::filled(chunks as usize, Queue::Used)?,
        })
    }

    /// What `chunk` holds changed: it belongs to `queue` now, at its tail.
    pub fn set(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        *self.belongs.get_mut(chunk as usize).ok_or(NoSuchChunk)? = queue;
        if self.queues.queue_of(chunk).is_some() {
            self.queues.enqueue(chunk, queue)?;
        }
        Ok(())
    }

    /// `chunk` may be evicted from now on.
    pub fn insert(&mut self, chunk: Chunk) -> Result<(), NoSuchChunk> {
        let queue = *self.belongs.get(chunk as usize).ok_or(NoSuchChunk)?;
        self.queues.enqueue(chunk, queue)?;
        Ok(())
    }

    /// `chunk` may not be evicted from now on. Returns the queue it was on.
    pub fn remove(&mut self, chunk: Chunk) -> Option<Queue> {
        self.queues.remove(chunk).ok().flatten()
    }

    /// The chunk to reclaim next; it stays where it is.
    pub fn pick(&self) -> Option<Chunk> {
        Some(self.queues.pick(0, |_| None)?.chunk)
    }

    /// The queue that `chunk` is on.
    pub fn queue_of(&self, chunk: Chunk) -> Option<Queue> {
        self.queues.queue_of(chunk)
    }

    /// How many chunks are on `queue`.
    pub fn length(&self, queue: Queue) -> u32 {
        self.queues
            .counts()
            .lengths
            .get(queue as usize)
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn evictable(chunks: u32) -> RootChunks {
        let mut roots = RootChunks::new(chunks).unwrap();
        (0..chunks).for_each(|c| roots.insert(c).unwrap());
        roots
    }

    #[test]
    fn discarded_goes_before_used_and_in_order() {
        let mut roots = evictable(4);
        roots.set(2, Queue::Discarded).unwrap();
        roots.set(1, Queue::Discarded).unwrap();
        roots.set(3, Queue::Unused).unwrap();
        let order: Vec<_> = core::iter::from_fn(|| {
            let chunk = roots.pick()?;
            roots.remove(chunk);
            Some(chunk)
        })
        .collect();
        assert_eq!(order, [3, 2, 1, 0]);
    }

    #[test]
    fn what_changes_while_pinned_counts_when_unpinned() {
        let mut roots = evictable(2);
        assert_eq!(roots.remove(0), Some(Queue::Used));
        roots.set(0, Queue::Discarded).unwrap();
        assert_eq!((roots.queue_of(0), roots.pick()), (None, Some(1)));
        roots.insert(0).unwrap();
        assert_eq!(
            (roots.queue_of(0), roots.pick()),
            (Some(Queue::Discarded), Some(0))
        );
        assert_eq!(roots.length(Queue::Discarded), 1);
        // An eviction that failed: back where it was.
        roots.remove(0);
        roots.insert(0).unwrap();
        assert_eq!(roots.queue_of(0), Some(Queue::Discarded));
    }

    #[test]
    fn a_chunk_out_of_range_is_refused() {
        let mut roots = evictable(1);
        assert_eq!(roots.set(1, Queue::Used), Err(NoSuchChunk));
        assert_eq!(roots.insert(1), Err(NoSuchChunk));
        assert_eq!((roots.remove(1), roots.queue_of(1)), (None, None));
    }

    proptest! {
        #![proptest_config(crate::testing::model(256))]

        /// Against a list of (chunk, queue) in order of arrival.
        #[test]
        fn picks_as_a_plain_list_would(steps in proptest::collection::vec((0..4u32, 0..5u8), 1..60)) {
            let kinds = [Queue::Unused, Queue::Discarded, Queue::Used];
            let mut roots = RootChunks::new(4).unwrap();
            let mut belongs = [Queue::Used; 4];
            let mut on: Vec<u32> = Vec::new();
            for (chunk, step) in steps {
                let was = on.iter().position(|&c| c == chunk);
                match step {
                    0..=2 => {
                        let queue = kinds[step as usize];
                        roots.set(chunk, queue).unwrap();
                        belongs[chunk as usize] = queue;
                        if let Some(at) = was {
                            on.remove(at);
                            on.push(chunk);
                        }
                    }
                    3 => {
                        roots.insert(chunk).unwrap();
                        on.retain(|&c| c != chunk);
                        on.push(chunk);
                    }
                    _ => {
                        let removed = roots.remove(chunk);
                        prop_assert_eq!(removed, was.map(|_| belongs[chunk as usize]));
                        on.retain(|&c| c != chunk);
                    }
                }
                let first = on.iter().copied().min_by_key(|&c| belongs[c as usize]);
                prop_assert_eq!(roots.pick(), first);
            }
        }
    }
}
