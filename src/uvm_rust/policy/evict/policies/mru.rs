// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The most recently migrated chunk goes first, but for the last few.
//!
//! A program that goes through more memory than the GPU has, again and again, finds nothing of it
//! there under `lru`: each chunk is evicted just before its turn comes. With this policy most of
//! what was there stays, and the rest passes through the last few chunks.

use super::{first_unspared, Chunk, OutOfMemory, Policy, Used};

/// The newest chunks, which are spared: those that the running kernels fault on at the same time.
/// Were they chosen, two chunks that one kernel needs could evict each other without end.
const SPARED: usize = 8;

/// The policy `mru`, which keeps nothing of its own: the used queue has the order.
pub(super) struct Mru;

impl Policy for Mru {
    const NAME: &'static str = "mru";

    fn new(_: u32) -> Result<Self, OutOfMemory> {
        Ok(Self)
    }

    fn choose(&self, used: Used<'_>) -> Option<Chunk> {
        let others = used.newest_first().skip(SPARED);
        first_unspared(others.map(|c| (c, used.standing(c)))).map(|(chunk, _)| chunk)
    }
}
