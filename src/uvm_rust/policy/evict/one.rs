// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Chunks of one process: which of them goes when the process may hold no more ([`crate::policy::quota`]), and chunks
//! that are the process's before it has used them.
//!
//! Locking as for [`super::Queues`]. No call allocates, and each takes constant time.

use super::holders::{list_of, REACH};
use super::policies::{self, Used};
use super::{Chunk, Holder, Lists, NoSuchChunk, Queue, RootChunks};

/// What the searches for the chunks of one process go by, or of those that have the same list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// An empty or discarded chunk has stayed, which was to make room for its own process: next time a used one comes first.
    used_first: bool,
    /// Where the next search by number begins.
    looked_at: Chunk,
}

impl RootChunks {
    /// Notes that `chunk`, which is pinned, was allocated for `holder`. From then on it counts as `holder`'s
    /// ([`RootChunks::holder_of`]), also while it is pinned.
    ///
    /// # Errors
    ///
    /// There is no such chunk.
    pub fn claim(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        // What a former owner expected of it is void, if the chunk has not been free in between.
        if self.holder_of(chunk) != holder {
            self.unexpect(chunk);
        }
        self.returns(chunk);
        self.used_by(chunk, holder)
    }

    /// Notes that whoever `chunk` is allocated for uses it, which the caller does not know: as [`RootChunks::used_by`], of
    /// the process that has claimed the chunk, or of nobody. The chunk is pinned. What was in it may have gone meanwhile.
    ///
    /// # Errors
    ///
    /// There is no such chunk.
    pub fn used_by_claimant(&mut self, chunk: Chunk) -> Result<(), NoSuchChunk> {
        let holder = if self.is_leaving(chunk) {
            0
        } else {
            self.holder_of(chunk)
        };
        self.used_by(chunk, holder)
    }

    /// The chunk to evict next of those that `holder` has; `None` if none of them is found that may be evicted. The
    /// caller may ask again, and looks at others then. The chunk goes to make room for `holder` itself, and
    /// [`RootChunks::leaves_for_owner`] says so once the eviction begins. As [`RootChunks::choose`] in all else.
    pub fn choose_of(&mut self, holder: Holder, lists: &mut impl Lists) -> Option<Chunk> {
        self.chosen = loop {
            let Some(chunk) = self.pick_of(holder) else {
                break None;
            };
            if lists.evictable(chunk) {
                break Some(chunk);
            }
            self.remove(chunk);
        };
        self.chosen_for_owner = true;
        self.chosen
    }

    /// The same chunk, which stays on its queue: an unused or a discarded one, whose eviction moves no bytes, before a
    /// used one. If the last such eviction failed, a used one comes first, for once: few chunks that always fail would
    /// otherwise be all that is tried.
    fn pick_of(&mut self, holder: Holder) -> Option<Chunk> {
        let search = self.searches.get_mut(list_of(holder));
        let used_first = search.is_some_and(|search| core::mem::take(&mut search.used_first));
        let used = || policies::first_of_one(Used::all(self), self.of(Queue::Used, holder));
        let first = used_first.then(used).flatten();
        let unused = || self.of(Queue::Unused, holder).next();
        let discarded = || self.of(Queue::Discarded, holder).next();
        let listed = first.or_else(unused).or_else(discarded).or_else(used);
        listed.or_else(|| self.by_number(holder))
    }

    /// Notes that next time a used chunk of `holder` comes first.
    pub(super) fn used_comes_first(&mut self, holder: Holder) {
        if let Some(search) = self.searches.get_mut(list_of(holder)) {
            search.used_first = true;
        }
    }

    /// Whether `holder` has a chunk to give up that neither a running kernel has asked for nor a later one is expected to
    /// access.
    pub fn has_spare(&self, holder: Holder) -> bool {
        let unused = self.of(Queue::Unused, holder);
        let mut for_nothing = unused.chain(self.of(Queue::Discarded, holder));
        for_nothing.next().is_some()
            || policies::first_of_one(Used::all(self), self.of(Queue::Used, holder))
                .is_some_and(|chunk| self.needed_in(chunk).is_none())
    }

    /// A chunk of `holder` that is on no list of its, or out of reach behind those of another process that has the same
    /// list. Each call looks at the next of all chunks, so that in the end some call finds one.
    fn by_number(&mut self, holder: Holder) -> Option<Chunk> {
        let count = self.count();
        let step = (REACH as u32).min(count);
        let list = list_of(holder);
        let from = self.searches.get(list).map_or(0, |s| s.looked_at);
        let mut near = (from..count).chain(0..from).take(step as usize);
        let found =
            near.find(|&chunk| self.holder_of(chunk) == holder && self.queue_of(chunk).is_some());
        let next = match found {
            // Not the same again: its owner may claim the freed chunk at once, and have two blocks evict each other.
            Some(chunk) => (chunk + 1) % count,
            None => (from + step) % count.max(1),
        };
        if let Some(search) = self.searches.get_mut(list) {
            search.looked_at = next;
        }
        found
    }
}

#[cfg(test)]
mod tests;
