// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Thrashing of a GPU's memory: blocks of 2 MiB that come back soon after they were evicted.
//!
//! A block *thrashes* if data of it are copied to the GPU again before as many further blocks were evicted from there as the
//! GPU has chunks. That is the distance by which Linux' page cache tells a refault from a fault: by the least recently
//! used order, a GPU with twice the memory would have kept the block.
//!
//! The table has two places for each chunk, so that it forgets nothing within that distance but where many blocks
//! meet in a row of four places: then the oldest is forgotten. Each eviction counts once, however often data of its block
//! are copied. Blocks are known by their addresses, and forgotten when memory there is freed: what takes its place is new.
//! Where several allocations share the 2 MiB of a block, the first that is freed has all of it forgotten.
//!
//! Locking: none. The places are atomics. If two threads take one place at the same time, one of their evictions is lost.

use crate::mem::{OutOfMemory, TryVec};
use crate::policy::mask::BLOCK_SHIFT;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How many places there are in which a block may be.
const WAYS: usize = 4;

/// The blocks that a GPU has evicted last.
pub struct Returns {
    /// A block's tag in the upper half, and in the lower how many evictions there had been with its own; 0: none.
    places: TryVec<AtomicU64>,
    /// Evictions so far, which wrap.
    evictions: AtomicU32,
    /// How many evictions a block may stay away, and thrashes if it comes back.
    reach: u32,
}

impl Returns {
    /// Makes the table for a GPU with `chunks` chunks of 2 MiB. Takes 16 bytes for each, or up to twice that.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        let count = (chunks as usize * 2).max(WAYS).next_power_of_two();
        let mut places = TryVec::with_capacity(count)?;
        for _ in 0..count {
            places.push(AtomicU64::new(0))?;
        }
        Ok(Self {
            places,
            evictions: AtomicU32::new(0),
            reach: chunks,
        })
    }

    /// Notes that data of `owner`'s block at `address` were evicted.
    pub fn evicted(&self, owner: u32, address: u64) {
        let now = self.evictions.fetch_add(1, Relaxed).wrapping_add(1);
        let (row, tag) = self.row(owner, address);
        // An empty place counts as the oldest; the block's own place is taken before all.
        let age = |place: &&AtomicU64| match split(place.load(Relaxed)) {
            (of, _) if of == tag => u64::MAX,
            (0, _) => u64::MAX - 1,
            (_, at) => now.wrapping_sub(at).into(),
        };
        if let Some(place) = row.iter().max_by_key(age) {
            place.store(u64::from(tag) << 32 | u64::from(now), Relaxed);
        }
    }

    /// Notes that data of `owner`'s block at `address` are copied to the GPU. Returns whether the block thrashes.
    pub fn copied_in(&self, owner: u32, address: u64) -> bool {
        let (row, tag) = self.row(owner, address);
        let found = row.iter().find_map(|place| {
            let was = place.load(Relaxed);
            (split(was).0 == tag).then_some((place, was))
        });
        let Some((place, was)) = found else {
            return false;
        };
        let since = self.evictions.load(Relaxed).wrapping_sub(split(was).1);
        // Of copies at the same time only one counts.
        let taken = place.compare_exchange(was, 0, Relaxed, Relaxed);
        taken.is_ok() && since <= self.reach
    }

    /// Forgets `owner`'s block at `address`, of which memory is freed.
    pub fn freed(&self, owner: u32, address: u64) {
        let (row, tag) = self.row(owner, address);
        for place in row {
            let was = place.load(Relaxed);
            if split(was).0 == tag {
                // An eviction at the same time is of other memory, and stays.
                let _ = place.compare_exchange(was, 0, Relaxed, Relaxed);
            }
        }
    }

    /// The places that may be the block's, and its tag, which is not 0.
    fn row(&self, owner: u32, address: u64) -> (&[AtomicU64], u32) {
        let block = address >> BLOCK_SHIFT;
        let hash = mix(block ^ mix(owner.into()));
        let first = hash as usize & self.places.len().wrapping_sub(1) & !(WAYS - 1);
        let row = self.places.get(first..first + WAYS);
        (row.unwrap_or(&[]), (hash >> 32) as u32 | 1)
    }
}

/// The tag of a place, and its number of evictions.
fn split(place: u64) -> (u32, u32) {
    ((place >> 32) as u32, place as u32)
}

/// A number each of whose bits depends on all bits of `of` (SplitMix64).
pub(crate) fn mix(of: u64) -> u64 {
    let of = (of ^ (of >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let of = (of ^ (of >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    of ^ (of >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const BLOCK: u64 = 1 << BLOCK_SHIFT;

    #[test]
    fn an_eviction_counts_once_and_for_its_block() {
        let returns = Returns::new(8).unwrap();
        assert!(!returns.copied_in(1, BLOCK), "it was never here");
        returns.evicted(1, BLOCK);
        assert!(!returns.copied_in(1, 2 * BLOCK), "another block");
        assert!(!returns.copied_in(2, BLOCK), "another's block");
        assert!(returns.copied_in(1, BLOCK + 0x3000), "a page in the block");
        assert!(!returns.copied_in(1, BLOCK), "it has been counted");
        returns.evicted(1, BLOCK);
        returns.evicted(1, BLOCK);
        assert!(returns.copied_in(1, BLOCK));
        assert!(!returns.copied_in(1, BLOCK), "the last eviction is one");
    }

    #[test]
    fn what_takes_the_place_of_freed_memory_has_not_been_here() {
        let returns = Returns::new(8).unwrap();
        (1..4).for_each(|block| returns.evicted(1, block * BLOCK));
        returns.freed(1, 2 * BLOCK + 0x5000);
        returns.freed(2, 3 * BLOCK);
        returns.freed(1, 7 * BLOCK);
        let back = (1..4).map(|block| returns.copied_in(1, block * BLOCK));
        assert_eq!(back.collect::<Vec<_>>(), [true, false, true]);
        // It is evicted itself.
        returns.evicted(1, 2 * BLOCK);
        assert!(returns.copied_in(1, 2 * BLOCK));
    }

    #[test]
    fn a_block_thrashes_that_comes_back_within_so_many_evictions_as_there_are_chunks() {
        for (others, thrashes) in [(0, true), (7, true), (8, true), (9, false), (40, false)] {
            let returns = Returns::new(8).unwrap();
            // The count of evictions wraps meanwhile.
            returns.evictions.store(u32::MAX - 3, Relaxed);
            returns.evicted(1, 100 * BLOCK);
            // One block over and over, which takes one place.
            (0..others).for_each(|_| returns.evicted(1, 7 * BLOCK));
            assert_eq!(returns.copied_in(1, 100 * BLOCK), thrashes, "{others}");
        }
    }

    #[test]
    fn a_program_that_goes_round_in_too_little_memory_thrashes_and_one_that_goes_through_does_not()
    {
        const CHUNKS: u64 = 64;
        // Of `blocks`, one after the other, so many rounds, with the first in first out.
        let thrashed = |blocks: u64, rounds: u64| {
            let returns = Returns::new(CHUNKS as u32).unwrap();
            let steps = 0..blocks * rounds;
            steps.fold(0, |sum, step| {
                if step >= CHUNKS {
                    returns.evicted(1, (step - CHUNKS) % blocks * BLOCK);
                }
                sum + u64::from(returns.copied_in(1, step % blocks * BLOCK))
            })
        };
        assert_eq!(thrashed(10 * CHUNKS, 1), 0);
        assert_eq!(thrashed(3 * CHUNKS, 4), 0, "twice the memory does not help");
        // Each of the second round and later, but for what a full row has forgotten.
        let (all, counted) = (CHUNKS * 5 / 4 * 3, thrashed(CHUNKS * 5 / 4, 4));
        assert!(
            counted <= all && counted * 10 >= all * 9,
            "{counted} of {all}"
        );
    }

    proptest! {
        /// Never more than the rule says, in whatever order; and all of it where no row is full.
        #[test]
        fn no_more_is_counted_than_thrashes(
            steps in proptest::collection::vec((0..24_u64, any::<bool>()), 0..400),
        ) {
            let returns = Returns::new(8).unwrap();
            let mut log: Vec<u64> = Vec::new();
            for (block, is_eviction) in steps {
                if is_eviction {
                    returns.evicted(3, block * BLOCK);
                    log.push(block);
                    continue;
                }
                let at = log.iter().rposition(|&evicted| evicted == block);
                let thrashes = at.is_some_and(|at| log.len() - 1 - at <= 8);
                let counted = returns.copied_in(3, block * BLOCK);
                prop_assert!(thrashes || !counted, "{block}");
                // It is over with this eviction.
                for evicted in log.iter_mut().filter(|evicted| **evicted == block) {
                    *evicted = u64::MAX;
                }
            }
        }
    }
}
