// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What belongs to the program whose turn is farthest away goes first (MSched, arXiv 2512.24637).
//!
//! Programs that take turns on a GPU use their memory in long cycles. `lru` evicts just what the next one needs, since its
//! last turn was longest ago. This policy knows whose turn it is, as programs announce their kernels, and expects the
//! others to come as they came before ([`timeline`]). So it is Belady's rule for turns: the program that is needed last
//! gives up memory first, and what stays of the others is there when they come. What is missing of a program's working
//! set, the prefetcher brings when its turn begins, at the expense of those that wait, whatever they expect.
//!
//! Of the program that is farthest away goes
//!
//! 1. what it neither asked for nor expected in its last turn, the oldest first: its working set was without that;
//! 2. what it will need last, which is what it came to last in its last turn.
//!
//! Chunks of processes that announce nothing, and chunks that are split, have no turn. The one that was used longest ago
//! is taken to be needed in as many turns as have passed since. It goes first if that is later than the farthest program's turn.
//!
//! # Why a kernel gets on
//!
//! The chunks of the program whose turn it is, and of those that bring memory though it is not theirs, go in the order
//! of `lru` once nobody else has any. So a kernel that runs out of turn keeps what it asks for from the first chunk on,
//! until the next turn begins; then its next chunk shows it again. What `lru` says of kernels that are announced
//! meanwhile holds of turns that begin meanwhile.

mod timeline;

use self::timeline::{Timeline, PROGRAMS};
use super::super::chains::Chains;
use super::{lru, Chunk, Holder, OutOfMemory, Policy, Used, REACH};
use crate::mem::TryVec;

/// The number of the list of chunks that are no program's.
const OTHERS: usize = PROGRAMS;

/// The policy `turns`, with the used chunks of each program.
pub(super) struct Turns {
    timeline: Timeline,
    /// The used chunks of each program, by its number, and of all others. What a program has come to in its last turn is at
    /// the tail, in the order in which it came to that first.
    chains: Chains<{ PROGRAMS + 1 }>,
    /// The turn in which each used chunk was last asked for or expected.
    when: TryVec<u64>,
}

impl Policy for Turns {
    const NAME: &'static str = "turns";

    fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            timeline: Timeline::new()?,
            chains: Chains::new(chunks)?,
            when: TryVec::filled(chunks as usize, 0)?,
        })
    }

    fn used(&mut self, chunk: Chunk, holder: Holder) {
        self.left(chunk);
        let number = self.timeline.find(holder);
        let turn = number.map(|number| self.timeline.turn_of(number));
        let now = self.timeline.now();
        if let Some(when) = self.when.get_mut(chunk as usize) {
            *when = turn.unwrap_or(now);
        }
        let list = number.unwrap_or(OTHERS);
        self.timeline.counts(list, true);
        if turn.is_none_or(|turn| turn == now) {
            self.chains.append(list, chunk);
        } else {
            // It is no part of what the program came to last. One that cannot be evicted makes way for the next.
            self.chains.prepend(list, chunk);
        }
    }

    fn left(&mut self, chunk: Chunk) {
        if let Some(list) = self.chains.unlink(chunk) {
            self.timeline.counts(list, false);
        }
    }

    fn begins(&mut self, holder: Holder, kernel: bool) -> bool {
        if kernel {
            return self.timeline.begins(holder);
        }
        self.timeline.rests(holder);
        false
    }

    fn brings(&mut self, holder: Holder, predicted: bool) {
        self.timeline.brings(holder, predicted);
    }

    fn expected(&mut self, chunk: Chunk) {
        let now = self.timeline.now();
        let list = self.chains.list_of(chunk);
        let Some(when) = self.when.get_mut(chunk as usize) else {
            return;
        };
        // What it expects again in the same turn it has come to before.
        if let Some(list) = list.filter(|&list| self.timeline.turn_of(list) == now && *when != now)
        {
            *when = now;
            self.chains.append(list, chunk);
        }
    }

    fn may_bring(&self, holder: Holder, ahead: u32, chunk: Chunk) -> Option<bool> {
        let is_in_turn = self.timeline.is_in_turn(holder, ahead)?;
        let list = self.chains.list_of(chunk);
        let waits = list.is_some_and(|list| self.timeline.waits(list));
        (waits || !is_in_turn).then_some(is_in_turn)
    }

    fn choose(&self, used: Used<'_>) -> Option<Chunk> {
        let farthest = self.timeline.farthest(|holder| used.spares(holder));
        let chosen = farthest.and_then(|(number, turns)| {
            let other = self.end(used, OTHERS, false);
            other
                .filter(|&other| self.timeline.now() - self.when_of(other) > turns)
                .or_else(|| self.first_of(used, number))
        });
        chosen.or_else(|| lru::Lru.choose(used))
    }
}

impl Turns {
    /// The chunk of program `number`, which waits, that goes first.
    fn first_of(&self, used: Used<'_>, number: usize) -> Option<Chunk> {
        let turn = self.timeline.turn_of(number);
        let oldest = self.end(used, number, false);
        oldest
            .filter(|&oldest| self.when_of(oldest) != turn)
            .or_else(|| self.end(used, number, true))
    }

    /// The first chunk of a list that may go, from its head or its tail on.
    fn end(&self, used: Used<'_>, list: usize, tail: bool) -> Option<Chunk> {
        let beside = |&chunk: &Chunk| self.chains.beside(chunk, tail);
        let chunks = core::iter::successors(self.chains.end(list, tail), beside);
        chunks.take(REACH).find(|&chunk| used.may_go(chunk))
    }

    /// The turn in which `chunk` was last asked for or expected.
    fn when_of(&self, chunk: Chunk) -> u64 {
        self.when.get(chunk as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
