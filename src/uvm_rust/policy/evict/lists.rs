// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What becomes of a root chunk in the physical memory manager (PMM), and what that means for
//! the queues.
//!
//! The PMM's own lists stay the truth about which chunks may be evicted. It tells of each change
//! as it makes it, all under its `list_lock`; should the queues have come apart from the lists
//! all the same, the lists win ([`RootChunks::choose`]), at the cost of the order of one chunk.

use super::{stats, Chunk, Holder, NoSuchChunk, Queue, RootChunks};

/// What has become of a root chunk whose place in the PMM's lists changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is free, and nobody's.
    Free,
    /// It may not be evicted: somebody works on it.
    Pinned,
    /// It may be evicted, and backs one va_block of this holder's.
    Whole(Holder),
    /// It may be evicted, and is split. Its parts are not told apart, and may be several
    /// processes'.
    Split,
}

/// What the PMM's lists say.
pub trait Lists {
    /// Whether `chunk`, which the queues would have evicted, may be. False should not come.
    fn evictable(&mut self, chunk: Chunk) -> bool;
}

/// `chunk` is about to be reclaimed, and is on no queue from now on. Returns where it was: on the
/// queue it was chosen from. Without queues that is what the PMM's lists say, `list`, which in any
/// case says whether it is free.
pub fn reclaimed_from(
    queues: Option<&mut RootChunks>,
    chunk: Chunk,
    list: stats::Queue,
) -> stats::Queue {
    match queues {
        None => list,
        Some(queues) => queues
            .begin_eviction(chunk, list == stats::Queue::Free)
            .map_or(stats::Queue::Address, Into::into),
    }
}

impl RootChunks {
    /// Follows a change of `chunk` in the PMM's lists.
    pub fn change(&mut self, chunk: Chunk, change: Change) -> Result<(), NoSuchChunk> {
        match change {
            Change::Free => self.free(chunk),
            Change::Pinned => _ = self.remove(chunk),
            Change::Whole(holder) => self.insert(chunk, holder)?,
            Change::Split => {
                self.used_by(chunk, 0)?;
                self.insert(chunk, 0)?;
            }
        }
        Ok(())
    }

    /// The chunk to evict next, which stays where it is. One that `lists` contradict is on
    /// no queue from then on, until it changes.
    pub fn choose(&mut self, lists: &mut impl Lists) -> Option<Chunk> {
        while let Some(chunk) = self.pick() {
            if lists.evictable(chunk) {
                return Some(chunk);
            }
            self.remove(chunk);
        }
        None
    }

    /// The eviction of `chunk` begins. Returns the queue that it was chosen from; `None` for a
    /// chunk that was not chosen here but asked for by its address. One that is `free` has nothing
    /// to evict.
    pub fn begin_eviction(&mut self, chunk: Chunk, free: bool) -> Option<Queue> {
        let chosen = self.pick() == Some(chunk);
        let queue = self.remove(chunk);
        if free {
            Some(Queue::Free)
        } else {
            queue.filter(|_| chosen)
        }
    }

    /// All that `chunk` held is gone: its next owner starts afresh, and nobody expects what it
    /// held.
    pub fn evicted(&mut self, chunk: Chunk) -> Result<(), NoSuchChunk> {
        self.unexpect(chunk);
        self.used_by(chunk, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::Owner;
    use std::vec;
    use std::vec::Vec;

    const HOLDER: Holder = 5;

    /// Chunks that may be evicted, of `HOLDER`'s, the first of them expected by the owner.
    fn chunks(n: u32) -> (RootChunks, Owner) {
        let mut roots = RootChunks::new(n).unwrap();
        for chunk in 0..n {
            roots.used_by(chunk, HOLDER).unwrap();
            roots.change(chunk, Change::Whole(HOLDER)).unwrap();
        }
        let owner = roots.add_owner();
        roots.expect(0, owner, 9);
        (roots, owner)
    }

    /// Lists that contradict so many times, and what they were asked about.
    struct Asked(usize, Vec<Chunk>);

    impl Lists for Asked {
        fn evictable(&mut self, chunk: Chunk) -> bool {
            self.1.push(chunk);
            self.1.len() > self.0
        }
    }

    #[test]
    fn what_is_free_is_nobodys() {
        let (mut roots, _) = chunks(1);
        roots.change(0, Change::Free).unwrap();
        assert_eq!((roots.queue_of(0), roots.needed_in(0)), (None, None));
        roots.change(0, Change::Whole(0)).unwrap();
        assert_eq!(roots.pick_early(HOLDER), None);
    }

    #[test]
    fn what_is_pinned_is_not_chosen_and_is_still_its_holders() {
        let (mut roots, _) = chunks(2);
        roots.change(1, Change::Pinned).unwrap();
        assert_eq!(roots.queue_of(1), None);
        assert_eq!(roots.choose(&mut Asked(0, vec![])), Some(0));
        roots.change(1, Change::Whole(HOLDER)).unwrap();
        assert_eq!(roots.pick_early(HOLDER), Some(1));
    }

    /// Whatever queue it belonged to: what its parts hold was not discarded by all of them.
    #[test]
    fn what_is_split_is_used_and_nobodys() {
        for queue in [Queue::Unused, Queue::Discarded, Queue::Used] {
            let (mut roots, _) = chunks(2);
            roots.set(1, queue).unwrap();
            roots.change(1, Change::Pinned).unwrap();
            roots.change(1, Change::Split).unwrap();
            assert_eq!(roots.queue_of(1), Some(Queue::Used), "{queue:?}");
            assert_eq!(roots.pick_early(HOLDER), None, "{queue:?}");
        }
    }

    #[test]
    fn the_lists_are_the_truth() {
        for contradicted in 0..4 {
            let (mut roots, _) = chunks(3);
            let mut lists = Asked(contradicted, vec![]);
            let chosen = roots.choose(&mut lists);
            // The first is expected, and goes last.
            let order = [1, 2, 0];
            assert_eq!(chosen, order.get(contradicted).copied());
            assert_eq!(lists.1, order[..(contradicted + 1).min(3)]);
            assert_eq!(roots.length(Queue::Used) as usize, 3 - contradicted.min(3));
            // Until it changes, which makes it the last of its queue.
            roots.change(1, Change::Whole(HOLDER)).unwrap();
            let next = if contradicted < 2 { 2 } else { 1 };
            assert_eq!(roots.pick(), Some(next));
        }
    }

    #[test]
    fn an_eviction_tells_where_its_chunk_was_chosen_from() {
        for queue in [Queue::Unused, Queue::Discarded, Queue::Used] {
            let (mut roots, _) = chunks(3);
            roots.set(1, queue).unwrap();
            let chosen = roots.choose(&mut Asked(0, vec![])).unwrap();
            assert_eq!(roots.begin_eviction(chosen, false), Some(queue));
            assert_eq!(roots.queue_of(chosen), None);
        }
        // PMA asks by address for any of them.
        let (mut roots, _) = chunks(3);
        assert_eq!(roots.begin_eviction(2, false), None);
        assert_eq!(roots.queue_of(2), None);
        roots.change(1, Change::Free).unwrap();
        assert_eq!(roots.begin_eviction(1, true), Some(Queue::Free));
    }

    #[test]
    fn without_queues_the_lists_say_where_a_chunk_was() {
        use stats::Queue::{Address, Discarded, Free, Used};
        for list in [Free, Used, Address] {
            assert_eq!(reclaimed_from(None, 0, list), list);
        }
        // Those of the PMM know nothing of discarded chunks.
        let (mut roots, _) = chunks(3);
        roots.set(0, Queue::Discarded).unwrap();
        let chosen = roots.choose(&mut Asked(0, vec![])).unwrap();
        assert_eq!(reclaimed_from(Some(&mut roots), chosen, Used), Discarded);
        assert_eq!(roots.queue_of(chosen), None);
        assert_eq!(reclaimed_from(Some(&mut roots), 2, Used), Address);
        roots.change(1, Change::Free).unwrap();
        assert_eq!(reclaimed_from(Some(&mut roots), 1, Free), Free);
    }

    #[test]
    fn what_was_evicted_starts_afresh() {
        let (mut roots, _) = chunks(1);
        roots.set(0, Queue::Discarded).unwrap();
        roots.begin_eviction(0, false);
        roots.evicted(0).unwrap();
        assert_eq!(roots.needed_in(0), None);
        roots.change(0, Change::Whole(0)).unwrap();
        assert_eq!(roots.queue_of(0), Some(Queue::Used));
        assert_eq!(roots.pick_early(HOLDER), None);
    }

    #[test]
    fn a_chunk_out_of_range_is_refused() {
        let (mut roots, _) = chunks(1);
        for change in [Change::Whole(HOLDER), Change::Split] {
            assert_eq!(roots.change(1, change), Err(NoSuchChunk));
        }
        assert_eq!(roots.change(1, Change::Pinned), Ok(()));
        assert_eq!(roots.evicted(1), Err(NoSuchChunk));
        assert_eq!(roots.begin_eviction(1, false), None);
    }
}
