// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How much of a GPU's memory each process holds, and how much of that has its pages, in root chunks of 2 MiB.
//!
//! A chunk belongs to the process that the eviction queues name as its holder (`policy/evict/holders.rs`), from its
//! allocation until it is free or evicted (`RootChunks::holder_of`). A chunk is resident if one of its pages is: no other
//! process can have the rest. A resident chunk is discarded if all of its resident pages are discarded. A chunk that is
//! split may hold pages of several processes, and belongs to none here. A chunk that is being evicted is not resident
//! (`RootChunks::resident_of`), and is held until the eviction has succeeded, as the chunk may stay.
//!
//! Locking: who calls [`Held::give`] serialises these calls; in the driver that is the PMM's `list_lock`, a
//! spinlock. [`Held::bytes`], [`Held::discarded_bytes`] and [`Held::chunks`] are called without a lock. All take constant
//! time, and only [`Held::new`] allocates.

use crate::mem::{OutOfMemory, TryVec};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// Bytes of a root chunk.
const CHUNK: u64 = 2 << 20;
/// "No place", for a chunk that is nobody's.
const NOWHERE: u32 = u32::MAX;
/// How many places there are in which the count of one process may be. At most half of all places are taken, so only one
/// row of so many in 2^64 has all of its places taken.
const REACH: usize = 64;

/// The counts of a process. A process that holds no chunk makes room for another.
struct Place {
    holder: AtomicU64,
    chunks: AtomicU32,
    /// How many of these chunks are resident.
    resident: AtomicU32,
    /// How many of those are discarded.
    discarded: AtomicU32,
    /// Whether a process whose row begins here found no place. From then on no count of such a process is told.
    lost: AtomicBool,
}

impl Place {
    /// This count of the place, if the place is `holder`'s. `meanwhile` is what happens while it is read.
    fn count_for(
        &self,
        holder: u64,
        count: impl Fn(&Self) -> &AtomicU32,
        meanwhile: impl FnOnce(),
    ) -> Option<u32> {
        let is = || self.holder.load(Acquire) == holder;
        if !is() {
            return None;
        }
        meanwhile();
        let chunks = count(self).load(Acquire);
        // Another process may have taken the place meanwhile, and the count be that process's.
        is().then_some(chunks)
    }

    /// Counts a chunk with these contents.
    fn add(&self, contents: Contents) {
        // A reader that sees these counts sees whose they are.
        let chunks = self.chunks.load(Relaxed);
        self.chunks.store(chunks + 1, Release);
        self.change(Contents::Empty, contents);
    }

    /// Notes that a counted chunk has other contents now. A reader sees the chunk counted all the time.
    fn change(&self, before: Contents, now: Contents) {
        let counts = [
            (
                &self.resident,
                Contents::is_resident as fn(Contents) -> bool,
            ),
            (&self.discarded, |contents| contents == Contents::Discarded),
        ];
        for (count, counts) in counts {
            let chunks = count.load(Relaxed);
            let chunks = chunks.saturating_sub(counts(before).into());
            count.store(chunks + u32::from(counts(now)), Release);
        }
    }

    /// Takes a chunk with these contents out of the counts.
    fn remove(&self, contents: Contents) {
        self.change(contents, Contents::Empty);
        let chunks = self.chunks.load(Relaxed);
        self.chunks.store(chunks.saturating_sub(1), Release);
    }
}

/// What there is in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Contents {
    /// No page is resident.
    Empty = 0,
    /// A page is resident that is not discarded.
    Data = 1,
    /// All resident pages are discarded.
    Discarded = 2,
}

impl Contents {
    fn is_resident(self) -> bool {
        self != Self::Empty
    }

    /// The contents in the lowest bits of a word.
    fn in_word(word: u32) -> Self {
        match word & 3 {
            1 => Self::Data,
            2 => Self::Discarded,
            _ => Self::Empty,
        }
    }
}

/// What each process holds of one GPU.
pub struct Held {
    /// Four times the place that counts each chunk, and its contents.
    of: TryVec<AtomicU32>,
    /// Twice as many as chunks, and a power of two. A process is in one of the [`REACH`] places from its hash on.
    places: TryVec<Place>,
}

impl Held {
    /// Makes the counts for chunks 0 to `chunks` - 1, all of them nobody's. Takes 52 bytes for each, or up to twice
    /// that.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        let count = (chunks as usize * 2).max(REACH).next_power_of_two();
        let mut of = TryVec::with_capacity(chunks as usize)?;
        for _ in 0..chunks {
            of.push(AtomicU32::new(NOWHERE))?;
        }
        let mut places = TryVec::with_capacity(count)?;
        for _ in 0..count {
            places.push(Place {
                holder: AtomicU64::new(0),
                chunks: AtomicU32::new(0),
                resident: AtomicU32::new(0),
                discarded: AtomicU32::new(0),
                lost: AtomicBool::new(false),
            })?;
        }
        Ok(Self { of, places })
    }

    /// Notes that `chunk` is `holder`'s from now on, or nobody's if that is 0, with these contents.
    pub fn give(&self, chunk: u32, holder: u64, contents: Contents) {
        let Some(of) = self.of.get(chunk as usize) else {
            return;
        };
        let was = of.load(Relaxed);
        let (had, before) = (self.places.get((was >> 2) as usize), Contents::in_word(was));
        if had.map_or(0, |place| place.holder.load(Relaxed)) == holder {
            if let Some(had) = had.filter(|_| before != contents) {
                had.change(before, contents);
                of.store((was & !3) | contents as u32, Relaxed);
            }
            return;
        }
        if let Some(had) = had {
            had.remove(before);
        }
        of.store(NOWHERE, Relaxed);
        if holder == 0 {
            return;
        }
        let Some(at) = self.place_for(holder) else {
            if let Some(first) = self.first_of(holder) {
                first.lost.store(true, Relaxed);
            }
            return;
        };
        if let Some(place) = self.places.get(at) {
            of.store((at as u32) << 2 | contents as u32, Relaxed);
            place.add(contents);
        }
    }

    /// How many bytes `holder` has resident; `None` if that is not known any more.
    pub fn bytes(&self, holder: u64) -> Option<u64> {
        let chunks = self.count(holder, |place| &place.resident)?;
        Some(u64::from(chunks) * CHUNK)
    }

    /// How many of these bytes are in chunks that are discarded; `None` if that is not known any more.
    pub fn discarded_bytes(&self, holder: u64) -> Option<u64> {
        let chunks = self.count(holder, |place| &place.discarded)?;
        Some(u64::from(chunks) * CHUNK)
    }

    /// How many chunks `holder` holds; `None` if that is not known any more.
    pub fn chunks(&self, holder: u64) -> Option<u32> {
        self.count(holder, |place| &place.chunks)
    }

    fn count(&self, holder: u64, count: impl Fn(&Place) -> &AtomicU32) -> Option<u32> {
        let mut near = self.row(holder).filter_map(|at| self.places.get(at));
        let chunks = near.find_map(|place| place.count_for(holder, &count, || ()));
        let lost = self.first_of(holder)?.lost.load(Relaxed);
        (!lost).then_some(chunks.unwrap_or(0))
    }

    /// The place at which the row of `holder` begins.
    fn first_of(&self, holder: u64) -> Option<&Place> {
        self.row(holder).next().and_then(|at| self.places.get(at))
    }

    /// The place of `holder`, which is made its own if it has none.
    fn place_for(&self, holder: u64) -> Option<usize> {
        let mut free = None;
        for at in self.row(holder) {
            let place = self.places.get(at)?;
            if place.holder.load(Relaxed) == holder {
                return Some(at);
            }
            if free.is_none() && place.chunks.load(Relaxed) == 0 {
                free = Some((at, place));
            }
        }
        let (at, place) = free?;
        place.holder.store(holder, Release);
        Some(at)
    }

    /// The places that may be `holder`'s.
    fn row(&self, holder: u64) -> impl Iterator<Item = usize> {
        // Numbers may be addresses, whose low bits are all alike.
        let hash = (holder.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        let last = self.places.len().wrapping_sub(1);
        (0..REACH).map(move |step| hash.wrapping_add(step) & last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn a_chunk_counts_for_who_has_it_now() {
        let held = Held::new(4).unwrap();
        assert_eq!(held.bytes(7), Some(0));
        for (chunk, holder) in [(0, 7), (1, 7), (2, 8), (1, 7)] {
            held.give(chunk, holder, Contents::Data);
        }
        assert_eq!(
            (held.bytes(7), held.bytes(8)),
            (Some(2 * CHUNK), Some(CHUNK))
        );
        held.give(1, 8, Contents::Data);
        held.give(0, 0, Contents::Empty);
        held.give(0, 0, Contents::Empty);
        assert_eq!((held.bytes(7), held.bytes(8)), (Some(0), Some(2 * CHUNK)));
        held.give(4, 7, Contents::Data);
        held.give(u32::MAX, 7, Contents::Data);
        assert_eq!((held.bytes(7), held.bytes(0)), (Some(0), Some(0)));
    }

    /// A count that lacks some chunks is not told, rather than a wrong one.
    #[test]
    fn what_finds_no_place_is_not_told() {
        let held = Held::new(1).unwrap();
        let more = REACH as u32 + 1;
        let row = |holder: u64| held.row(holder).next();
        assert_eq!(held.places.len(), REACH);
        assert!(row(1).is_some());
        // With one chunk there is no way to it but by hand.
        for at in 0..REACH {
            held.places[at].holder.store(100 + at as u64, Relaxed);
            held.places[at].add(Contents::Data);
        }
        held.give(0, more.into(), Contents::Data);
        assert_eq!(held.bytes(more.into()), None);
        // A process that has its place is still told its own.
        let known = |holder: &u64| row(*holder) != row(more.into());
        let others: Vec<_> = (100..100 + REACH as u64).filter(known).collect();
        assert!(!others.is_empty());
        for holder in others {
            assert_eq!(held.bytes(holder), Some(CHUNK));
        }
    }

    proptest! {
        /// Against a list of whose each chunk is.
        #[test]
        fn counts_are_those_of_a_list(
            given in proptest::collection::vec((0..40_u32, 0..30_u64, 0..3_u32), 0..600),
        ) {
            let held = Held::new(32).unwrap();
            let mut list = vec![(0, Contents::Empty); 32];
            // As addresses of VA spaces are.
            let number = |n: u64| if n == 0 { 0 } else { 0xffff_8881_0000_0000 + n * 0x8000 };
            for (chunk, holder, contents) in given {
                let contents = Contents::in_word(contents);
                held.give(chunk, number(holder), contents);
                if let Some(of) = list.get_mut(chunk as usize) {
                    *of = (holder, contents);
                }
            }
            let mut counts = BTreeMap::new();
            for &(holder, contents) in list.iter().filter(|of| of.0 != 0) {
                let (chunks, bytes, discarded) = counts.entry(holder).or_insert((0, 0, 0));
                *chunks += 1;
                *bytes += if contents != Contents::Empty { CHUNK } else { 0 };
                *discarded += if contents == Contents::Discarded { CHUNK } else { 0 };
            }
            for holder in 1..30 {
                let (chunks, bytes, discarded) = counts.get(&holder).copied().unwrap_or((0, 0, 0));
                prop_assert_eq!(held.bytes(number(holder)), Some(bytes));
                prop_assert_eq!(held.discarded_bytes(number(holder)), Some(discarded));
                prop_assert_eq!(held.chunks(number(holder)), Some(chunks));
            }
        }
    }

    /// A process at its maximum asks without a lock, and must not see less than it holds.
    #[test]
    fn a_chunk_whose_pages_come_and_go_counts_all_the_time() {
        let held = Held::new(2).unwrap();
        held.give(0, 7, Contents::Data);
        held.give(1, 7, Contents::Empty);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    held.give(0, 7, Contents::Empty);
                    held.give(0, 7, Contents::Data);
                }
            });
            let less = (0..3_000_000).find(|_| held.chunks(7) != Some(2));
            stop.store(true, Relaxed);
            assert_eq!(less, None, "the count was short for a moment");
        });
        assert_eq!(held.bytes(7), Some(CHUNK));
    }

    /// A reader sees the count of the process that it asks about, or none, whoever comes and goes.
    #[test]
    fn a_reader_sees_no_other_process() {
        let held = Held::new(4).unwrap();
        let first = held.row(1).next();
        let other = (2..)
            .find(|&holder| held.row(holder).next() == first)
            .unwrap();
        held.give(0, 1, Contents::Data);
        held.give(0, 0, Contents::Empty);
        let place = &held.places[first.unwrap()];
        assert_eq!(place.count_for(1, |place| &place.resident, || ()), Some(0));
        let seen = place.count_for(
            1,
            |place| &place.resident,
            || {
                held.give(0, other, Contents::Data);
                held.give(1, other, Contents::Data);
            },
        );
        assert_eq!(seen, None);
        assert_eq!(
            (held.bytes(1), held.bytes(other)),
            (Some(0), Some(2 * CHUNK))
        );
    }
}
