// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Counts the bytes that each eviction copies, while several threads evict from one VA space.
//!
//! Upstream reports each copy, but not the eviction that it belongs to. The thread that evicts makes the copy, for
//! addresses of the evicted va_block, so both together identify the eviction. A thread may begin another eviction
//! within one, of another va_block, because page tables take memory.
//!
//! There are `PLACES` places for evictions under way, and a new eviction takes the place of the one that began first.
//! So an eviction whose end is never reported, because its va_block died meanwhile, holds no place for long. An
//! eviction that has lost its place is credited with all bytes that were copied since it began, by whatever eviction.
//!
//! Locking: none. The places are atomics. A place is written by the thread of its eviction, and by the thread that takes
//! the place for another one.

use super::returns::mix;
use crate::policy::mask::BLOCK_SHIFT;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How many evictions from a VA space on one GPU are told apart at a time; a power of two.
const PLACES: usize = 16;
/// Bits of a place's number.
const SHIFT: u32 = PLACES.trailing_zeros();

/// An eviction under way.
#[derive(Default)]
struct Place {
    /// The key of the eviction; 0: none.
    key: AtomicU64,
    bytes: AtomicU64,
}

/// The evictions that are under way from one VA space on one GPU.
#[derive(Default)]
pub struct Evicting {
    places: [Place; PLACES],
    begun: AtomicU32,
}

/// A number that names an eviction, and that its thread keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction(pub u64);

/// The outcome of an eviction of a va_block.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How many bytes it has copied.
    pub bytes: u64,
    /// Whether it has failed, and is tried again.
    pub failed: bool,
    /// Whether a prediction had brought the chunk for a kernel that has not begun.
    pub early: bool,
}

impl Outcome {
    /// Whether data of the block have left the GPU, and may come back.
    pub fn took_data(&self) -> bool {
        self.bytes > 0
    }

    /// Whether the block has nothing left in the chunks that it was to lose. Not every block had data to copy.
    pub fn has_left(&self) -> bool {
        !self.failed
    }

    /// Whether the eviction made a prefetch useless. An eviction that failed is tried again, and its prediction still
    /// holds.
    pub fn wasted(&self) -> bool {
        self.bytes > 0 && self.early && !self.failed
    }
}

impl Evicting {
    /// Notes that `thread` begins to evict the block at `address`. Evictions have copied `so_far` bytes of the VA
    /// space before, fewer than 2^60.
    pub fn begin(&self, thread: u64, address: u64, so_far: u64) -> Eviction {
        let at = self.begun.fetch_add(1, Relaxed) as usize % PLACES;
        if let Some(place) = self.places.get(at) {
            place.key.store(0, Relaxed);
            place.bytes.store(0, Relaxed);
            place.key.store(key(thread, address), Relaxed);
        }
        Eviction(so_far << SHIFT | at as u64)
    }

    /// Counts bytes that `thread`, which evicts, copies at `address`.
    pub fn copied(&self, thread: u64, address: u64, bytes: u64) {
        let key = key(thread, address);
        let mut places = self.places.iter();
        if let Some(place) = places.find(|place| place.key.load(Relaxed) == key) {
            place.bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Ends the eviction of the block at `address` that `thread` has begun. Evictions have now copied `so_far` bytes
    /// of the VA space. Returns how many of these are this eviction's.
    pub fn end(&self, eviction: Eviction, thread: u64, address: u64, so_far: u64) -> u64 {
        let own = self.places.get(eviction.0 as usize % PLACES);
        let own = own.filter(|place| place.key.load(Relaxed) == key(thread, address));
        let Some(place) = own else {
            return so_far.saturating_sub(eviction.0 >> SHIFT);
        };
        place.key.store(0, Relaxed);
        place.bytes.load(Relaxed)
    }
}

/// The key of an eviction, never 0.
fn key(thread: u64, address: u64) -> u64 {
    mix((address >> BLOCK_SHIFT) ^ mix(thread)) | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const BLOCK: u64 = 1 << BLOCK_SHIFT;

    #[test]
    fn an_eviction_has_its_own_bytes_while_others_copy() {
        let evicting = Evicting::default();
        let first = evicting.begin(1, 5 * BLOCK, 1000);
        let second = evicting.begin(2, 6 * BLOCK, 1000);
        evicting.copied(1, 5 * BLOCK + 0x1000, 10);
        evicting.copied(2, 6 * BLOCK, 200);
        evicting.copied(1, 6 * BLOCK - 1, 1);
        assert_eq!(evicting.end(second, 2, 6 * BLOCK, 1211), 200);
        assert_eq!(evicting.end(first, 1, 5 * BLOCK, 1211), 11);
        // Nobody evicts.
        evicting.copied(1, 5 * BLOCK, 7);
        let third = evicting.begin(1, 5 * BLOCK, 1218);
        assert_eq!(evicting.end(third, 1, 5 * BLOCK, 5000), 0);
    }

    /// Page tables take memory: a thread evicts within an eviction.
    #[test]
    fn an_eviction_within_an_eviction_has_its_own_bytes() {
        let evicting = Evicting::default();
        let outer = evicting.begin(1, BLOCK, 0);
        evicting.copied(1, BLOCK, 1);
        let inner = evicting.begin(1, 2 * BLOCK, 1);
        evicting.copied(1, 2 * BLOCK, 30);
        assert_eq!(evicting.end(inner, 1, 2 * BLOCK, 31), 30);
        evicting.copied(1, BLOCK, 2);
        assert_eq!(evicting.end(outer, 1, BLOCK, 33), 3);
    }

    #[test]
    fn one_that_is_never_told_to_end_holds_no_place_for_long() {
        let evicting = Evicting::default();
        let begin = |n| evicting.begin(n, n * BLOCK, 100 * n);
        let lost: Vec<_> = (1..100).map(begin).collect();
        evicting.copied(200, BLOCK, 9);
        let last = evicting.begin(200, BLOCK, 0);
        evicting.copied(200, BLOCK, 3);
        assert_eq!(evicting.end(last, 200, BLOCK, 50), 3);
        // What has lost its place gets what all have copied since.
        assert_eq!(evicting.end(lost[0], 1, BLOCK, 777), 677);
        assert_eq!(evicting.end(lost[0], 1, BLOCK, 0), 0);
    }

    #[test]
    fn a_prefetch_is_in_vain_once_its_data_have_left_before_its_kernel() {
        for (bytes, failed, early, wasted) in [
            (4096, false, true, true),
            (4096, false, false, false),
            (4096, true, true, false),
            (0, false, true, false),
        ] {
            let outcome = Outcome {
                bytes,
                failed,
                early,
            };
            assert_eq!(outcome.wasted(), wasted, "{outcome:?}");
            assert_eq!(outcome.took_data(), bytes > 0, "{outcome:?}");
            assert_eq!(outcome.has_left(), !failed, "{outcome:?}");
        }
    }

    proptest! {
        /// As many at a time as there are places, against a list.
        #[test]
        fn bytes_are_those_of_a_list(
            steps in proptest::collection::vec((0..8_u64, 0..3_u64, 1..1000_u64), 0..300),
        ) {
            let evicting = Evicting::default();
            let mut under_way: Vec<Option<(Eviction, u64, usize)>> = [None; 8].into();
            let (mut so_far, mut begun) = (0, 0);
            for (thread, what, bytes) in steps {
                let address = (thread % 3) * BLOCK;
                let mine = &mut under_way[thread as usize];
                match (what, *mine) {
                    (0, None) => {
                        begun += 1;
                        *mine = Some((evicting.begin(thread, address, so_far), 0, begun));
                    }
                    (1, Some((eviction, all, since))) => {
                        let told = evicting.end(eviction, thread, address, so_far);
                        // It has lost its place to one of sixteen that began later.
                        let is_lost = begun - since >= PLACES;
                        let all = if is_lost { so_far - (eviction.0 >> SHIFT) } else { all };
                        prop_assert_eq!(told, all);
                        *mine = None;
                    }
                    (_, Some((eviction, all, since))) => {
                        evicting.copied(thread, address + bytes, bytes);
                        so_far += bytes;
                        *mine = Some((eviction, all + bytes, since));
                    }
                    _ => {}
                }
            }
        }
    }
}
