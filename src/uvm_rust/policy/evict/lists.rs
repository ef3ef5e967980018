// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What becomes of a root chunk in the physical memory manager (PMM), and what that means for
//! the queues.
//!
//! The PMM reports each change of a chunk under its `list_lock`, so that the queues hold the free chunks and those
//! that may be evicted. The queues never read the PMM's own lists. They ask a chunk for its state only once they have
//! chosen it ([`RootChunks::choose`]). If the queues have missed a change, the chunk's own state counts, and only the
//! place of that chunk in its queue is lost.

use super::roots::Leaving;
use super::wait::Ended;
use super::{stats, Chunk, Holder, NoSuchChunk, Queue, RootChunks};

/// What has become of a root chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The chunk is free, and nobody owns it. A zeroed chunk saves its next owner the zeroing, so the queues give out
    /// chunks that are not zeroed first.
    Free {
        /// All of its memory is zeros.
        zeroed: bool,
    },
    /// The chunk is pinned: somebody works on it, and it may not be evicted.
    Pinned,
    /// The chunk may be evicted, and backs one va_block of this holder.
    Whole(Holder),
    /// An eviction of the chunk failed: the chunk backs one va_block, as before, of the holder that the queues know.
    Stays,
    /// The chunk may be evicted, and is split. The queues do not tell its parts apart, which several processes may own.
    Split,
}

/// What the PMM's chunks say of themselves.
pub trait Lists {
    /// Whether `chunk`, which the queues have chosen, may be evicted: the PMM owns it, nobody has pinned it, and no
    /// eviction of it is under way. A false answer means that the queues missed a change.
    fn evictable(&mut self, chunk: Chunk) -> bool;
}

/// Takes `chunk`, which is about to be reclaimed, off its queue. Returns the queue from which it was chosen.
/// Without queues, the answer is `list`, the one of the PMM's lists that has the chunk.
pub fn reclaimed_from(
    queues: Option<&mut RootChunks>,
    chunk: Chunk,
    list: impl FnOnce() -> stats::Queue,
) -> stats::Queue {
    match queues {
        None => list(),
        Some(queues) => queues
            .begin_eviction(chunk)
            .map_or(stats::Queue::Address, Into::into),
    }
}

impl RootChunks {
    /// Follows a change of `chunk`.
    #[inline(always)]
    pub fn change(&mut self, chunk: Chunk, change: Change) -> Result<(), NoSuchChunk> {
        if change != Change::Pinned && self.is_leaving(chunk) {
            self.eviction_fails(chunk);
        }
        let holder = match change {
            Change::Whole(holder) => holder,
            Change::Stays => self.holder_of(chunk),
            Change::Split => self.split(chunk)?,
            Change::Free { zeroed } => return self.queue_freed(chunk, zeroed),
            Change::Pinned => {
                self.pin(chunk);
                return Ok(());
            }
        };
        self.insert(chunk, holder)
    }

    // The next three are functions of their own, so that the most frequent changes save no registers for them.

    /// The parts of `chunk` may be different processes'. Returns whose the chunk is then.
    #[inline(never)]
    fn split(&mut self, chunk: Chunk) -> Result<Holder, NoSuchChunk> {
        self.used_by(chunk, 0)?;
        Ok(0)
    }

    #[inline(never)]
    fn queue_freed(&mut self, chunk: Chunk, zeroed: bool) -> Result<(), NoSuchChunk> {
        self.free(chunk);
        self.queue_free(chunk, zeroed)
    }

    #[inline(never)]
    fn pin(&mut self, chunk: Chunk) {
        self.remove(chunk);
    }

    /// The chunk to evict next, a free one if there is one. It stays on its queue until
    /// [`RootChunks::begin_eviction`], which the caller calls under the same lock. A chunk whose own state forbids the
    /// eviction leaves its queue until the PMM reports its next change.
    #[inline]
    pub fn choose(&mut self, lists: &mut impl Lists) -> Option<Chunk> {
        self.chosen_for_owner = false;
        self.chosen = loop {
            let Some(chunk) = self.pick() else { break None };
            if lists.evictable(chunk) {
                break Some(chunk);
            }
            self.remove(chunk);
        };
        self.chosen
    }

    /// Whether `those` queues together have the chunks of `listed`, a list of the PMM's that names no chunk twice, and no
    /// others. Reads at most one more chunk of the list than the queues have.
    pub fn has_just(&self, those: &[Queue], listed: impl Iterator<Item = Chunk>) -> bool {
        let count: usize = those.iter().map(|&queue| self.length(queue) as usize).sum();
        let is_there = |chunk| (self.queue_of(chunk)).is_some_and(|queue| those.contains(&queue));
        let mut left = count;
        let mut listed = listed.take(count + 1);
        listed.all(|chunk| {
            left = left.wrapping_sub(1);
            is_there(chunk)
        }) && left == 0
    }

    /// The eviction of `chunk` begins. Returns the queue that it was chosen from; `None` for a
    /// chunk that was not chosen here but asked for by its address, unless it is free: then there is
    /// nothing to evict, whoever asks.
    #[inline(always)]
    pub fn begin_eviction(&mut self, chunk: Chunk) -> Option<Queue> {
        let chosen = self.chosen.take() == Some(chunk);
        let queue = self.remove(chunk);
        let for_owner = core::mem::take(&mut self.chosen_for_owner) && chosen;
        let leaving = if for_owner {
            Leaving::ForOwner
        } else {
            Leaving::Yes
        };
        // What a process evicts for itself leaves a running kernel no more room than there was.
        self.leaves(chunk, leaving, queue == Some(Queue::Used) && !for_owner);
        if chosen {
            queue
        } else {
            queue.filter(|&queue| queue == Queue::Free)
        }
    }

    /// The eviction of `chunk` is over; `got` if it succeeded. The chunk is nobody's then, also if its owner has freed it
    /// meanwhile, of which no change tells. A chunk that stays has told so by a change: the next eviction of that
    /// chunk may have begun since, which this end does not concern.
    /// Returns whether the eviction made room for the chunk's own process.
    #[inline(always)]
    pub fn eviction_over(&mut self, chunk: Chunk, got: bool) -> Result<bool, NoSuchChunk> {
        let Ok(root) = self.root_mut(chunk) else {
            return Ok(false);
        };
        let failed = core::mem::take(&mut root.failed);
        if failed != Leaving::No && !got {
            return Ok(failed == Leaving::ForOwner);
        }
        let leaving = self.comes_back(chunk, got);
        if leaving != Leaving::No {
            self.evicted(chunk)?;
        }
        Ok(leaving == Leaving::ForOwner)
    }

    /// The eviction of `chunk` ended as `how`, and is over ([`RootChunks::eviction_over`]). Returns what that says to threads
    /// that look for memory: only the queues know whether the chunk made room for its own process, and how many chunks
    /// there are to choose from.
    pub fn eviction_ended(&mut self, chunk: Chunk, how: Ended) -> Ended {
        let for_owner = self.eviction_over(chunk, how == Ended::Got);
        match how {
            _ if for_owner == Ok(true) => Ended::ForOwner,
            Ended::Held { .. } => Ended::Held {
                of: self.evictable(),
            },
            how => how,
        }
    }

    /// Forgets the owner and the expectations of `chunk`, all contents of which are gone.
    #[inline(always)]
    pub fn evicted(&mut self, chunk: Chunk) -> Result<(), NoSuchChunk> {
        if self.queue_of(chunk).is_some() {
            return self.evicted_on_queue(chunk);
        }
        let root = self.give(chunk, 0)?;
        root.forget();
        root.belongs = Queue::Used;
        Ok(())
    }

    /// The same, of a chunk that may be evicted or is free: the report is late.
    #[cold]
    fn evicted_on_queue(&mut self, chunk: Chunk) -> Result<(), NoSuchChunk> {
        self.unexpect(chunk);
        self.used_by(chunk, 0)
    }
}

#[cfg(test)]
mod tests;
