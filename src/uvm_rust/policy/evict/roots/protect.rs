// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Shares that are protected from others ([`super::super::lows`]): as the caller sets them, and what they are told of
//! the chunks.

use super::super::lows::Unprotected;
use super::{policies, Chunk, Holder, Leaving, Queue, RootChunks, Used};

impl RootChunks {
    /// Has the lows of processes heeded from now on, which takes several calls: one goes on with `most` chunks, and says
    /// whether that was all. The caller may let its lock go in between. Until then no low is in force.
    pub fn heed_lows(&mut self, most: u32) -> bool {
        let holders = &self.holders;
        let holder_of = |chunk| holders.holder_of(chunk);
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
        let holders = &self.holders;
        let holder_of = |chunk| holders.holder_of(chunk);
        self.lows.settle(holder, holder_of, most)
    }

    /// Has so few places for processes that tests fill them.
    #[cfg(test)]
    pub(in super::super) fn with_places(mut self, places: usize) -> Self {
        let chunks = self.belongs.len() as u32;
        self.lows = super::Lows::with_places(chunks, places).unwrap();
        self
    }

    /// `chunk` is `holder`'s now. It is on no queue, or is enqueued next.
    pub(super) fn give(&mut self, chunk: Chunk, holder: Holder) {
        let before = self.holders.give(chunk, holder);
        if self.lows.are_kept() && before != holder {
            self.lows.gives(before, holder, self.is_leaving(chunk));
        }
    }

    /// Says whether `chunk` is taken for an eviction.
    pub(in super::super) fn leaves(&mut self, chunk: Chunk, whether: Leaving) {
        let Some(leaving) = self.leaving.get_mut(chunk as usize) else {
            return;
        };
        let before = core::mem::replace(leaving, whether);
        let (before, now) = (before != Leaving::No, whether != Leaving::No);
        if self.lows.are_kept() && before != now {
            self.lows.leaves(self.holders.holder_of(chunk), now);
        }
    }

    /// `chunk` is about to come to the tail of `queue`, or to leave its queue.
    #[inline]
    pub(super) fn moves(&mut self, chunk: Chunk, queue: Option<Queue>) {
        if self.lows.are_kept() {
            let user = (queue == Some(Queue::Used)).then(|| self.holders.holder_of(chunk));
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

    /// The used chunk that goes first. Where all may go, lows cost nothing: the compiler sees that there are none.
    pub(super) fn choose_used(&self) -> Option<Chunk> {
        match self.some_may_go() {
            None => self.choose_among(Used::all(self)),
            Some(some) => self.choose_of_some(some),
        }
    }

    #[cold]
    #[inline(never)]
    fn choose_of_some(&self, some: Unprotected<'_>) -> Option<Chunk> {
        self.choose_among(Used::of(self, some))
    }

    #[inline(always)]
    fn choose_among(&self, used: Used<'_>) -> Option<Chunk> {
        let chosen = if self.by_default {
            policies::by_default(used)
        } else {
            self.policy.choose(used)
        };
        // Only a chunk that may be evicted is chosen, whatever the policy says.
        chosen
            .filter(|&c| self.queue_of(c) == Some(Queue::Used) && used.may_go(c))
            .or_else(|| used.oldest_first().next())
    }
}
