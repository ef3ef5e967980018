// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Shares that are protected from others ([`super::super::lows`]): as the caller sets them, and what they are told of
//! the chunks.

use super::super::lows::{Lows, Unprotected};
use super::{
    holder_in, policies, Chunk, Holder, Leaving, NoSuchChunk, Queue, Root, RootChunks, Used,
};

impl RootChunks {
    /// Has the lows of processes heeded from now on, which takes several calls: one goes on with `most` chunks, and says
    /// whether that was all. The caller may let its lock go in between. Until then no low is in force.
    pub fn heed_lows(&mut self, most: u32) -> bool {
        let roots = &self.roots;
        let holder_of = |chunk| holder_in(roots, chunk);
        self.lows.fill(&self.queues, holder_of, most)
    }

    /// Protects `low` chunks of `holder`, which holds `held` now ([`RootChunks::holder_of`]). 0 is no low. A process that
    /// comes to hold none has none from then on, until this is called again. False if all places for processes are taken,
    /// or [`RootChunks::heed_lows`] was not called yet: then nothing of the process is protected.
    pub fn protect(&mut self, holder: Holder, low: u32, held: u32) -> bool {
        self.lows.protect(holder, low, held)
    }

    /// The low of `holder` was set ([`RootChunks::protect`]): what it had before is protected as well, or, without a low, its place
    /// is another's, once [`RootChunks::settle_low`] has said so.
    pub fn unsettle_low(&mut self, holder: Holder) {
        self.lows.unsettle(holder);
    }

    /// Goes on with that for `most` chunks, and says whether that was all. The caller may let its lock go in between.
    pub fn settle_low(&mut self, holder: Holder, most: u32) -> bool {
        let roots = &self.roots;
        let holder_of = |chunk| holder_in(roots, chunk);
        self.lows.settle(holder, holder_of, most)
    }

    /// Has so few places for processes that tests fill them.
    #[cfg(test)]
    pub(in super::super) fn with_places(mut self, places: usize) -> Self {
        let chunks = self.count();
        self.lows = Lows::with_places(chunks, places).unwrap();
        self
    }

    /// `chunk` is `holder`'s now. It is on no queue, or is enqueued next.
    #[inline(always)]
    pub(in super::super) fn give(
        &mut self,
        chunk: Chunk,
        holder: Holder,
    ) -> Result<&mut Root, NoSuchChunk> {
        let root = self.roots.get_mut(chunk as usize).ok_or(NoSuchChunk)?;
        if root.holder != holder {
            let before = core::mem::replace(&mut root.holder, holder);
            if self.lows.are_kept() {
                let leaving = root.leaving != Leaving::No;
                self.lows.gives(before, holder, leaving);
            }
        }
        Ok(root)
    }

    /// `chunk` is taken for an eviction, `leaving`, which `counts` among those that leave a running kernel room.
    #[inline(always)]
    pub(in super::super) fn leaves(&mut self, chunk: Chunk, leaving: Leaving, counts: bool) {
        if counts {
            self.evictions = self.evictions.wrapping_add(1);
        }
        let Some(root) = self.roots.get_mut(chunk as usize) else {
            return;
        };
        let before = core::mem::replace(&mut root.leaving, leaving);
        root.counted |= counts;
        if self.lows.are_kept() && before == Leaving::No {
            self.lows.leaves(root.holder, true);
        }
    }

    /// `chunk` is not taken for an eviction any more. One that has not `got` the chunk counts no more. Returns what
    /// eviction it was.
    #[inline(always)]
    pub(in super::super) fn comes_back(&mut self, chunk: Chunk, got: bool) -> Leaving {
        let Some(root) = self.roots.get_mut(chunk as usize) else {
            return Leaving::No;
        };
        if core::mem::take(&mut root.counted) && !got {
            self.evictions = self.evictions.saturating_sub(1);
        }
        returns(root, &mut self.lows)
    }

    /// The same, of an eviction whose end is still to be told.
    pub(in super::super) fn returns(&mut self, chunk: Chunk) {
        if let Some(root) = self.roots.get_mut(chunk as usize) {
            returns(root, &mut self.lows);
        }
    }

    /// `chunk` is about to come to the tail of `queue`, or to leave its queue.
    #[inline(always)]
    pub(super) fn moves(&mut self, chunk: Chunk, queue: Option<Queue>) {
        if self.lows.are_kept() {
            let user = (queue == Some(Queue::Used)).then(|| self.holder_of(chunk));
            self.lows.moves(chunk, user, &self.queues);
        }
    }

    /// The used chunks that may go; `None` if all may, as they may if evictions fail because pages are held.
    #[inline(always)]
    pub(in super::super) fn some_may_go(&self) -> Option<Unprotected<'_>> {
        if self.by_default {
            return None;
        }
        self.lows.unprotected(self.length(Queue::Used))
    }

    /// The used chunk that goes first.
    #[inline(always)]
    pub(super) fn choose_used(&self) -> Option<Chunk> {
        if let Some(oldest) = self.oldest_unneeded() {
            return Some(oldest);
        }
        self.choose_by_policy()
    }

    /// The oldest used chunk, if that goes first as nobody needs it. This is so most often, and costs little to find out.
    #[inline(always)]
    fn oldest_unneeded(&self) -> Option<Chunk> {
        if self.lows.are_kept() || !self.policy.oldest_unless_needed() {
            return None;
        }
        let oldest = self.queues.oldest(Queue::Used)?;
        (!self.is_needed(oldest)).then_some(oldest)
    }

    /// The same as [`RootChunks::choose_used`], by the policy in force.
    #[inline(never)]
    fn choose_by_policy(&self) -> Option<Chunk> {
        let used = match self.some_may_go() {
            None => Used::all(self),
            Some(some) => Used::of(self, some),
        };
        let chosen = if self.by_default {
            policies::by_default(used)
        } else {
            self.policy.choose(used)
        };
        // Only a chunk that may be evicted is chosen, whatever the policy says.
        chosen
            .filter(|&c| self.queue_of(c) == Some(Queue::Used) && used.may_go(c))
            .or_else(|| used.oldest())
    }
}

/// A chunk is not taken for an eviction any more. Returns what eviction it was.
#[inline(always)]
fn returns(root: &mut Root, lows: &mut Lows) -> Leaving {
    let leaving = core::mem::take(&mut root.leaving);
    if leaving != Leaving::No && lows.are_kept() {
        lows.leaves(root.holder, false);
    }
    leaving
}
