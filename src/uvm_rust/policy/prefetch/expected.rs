// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Which blocks the current kernel and the next ones are expected to access
//! (DeepUM §5.1): what the eviction queues must not choose as victims.
//!
//! A set-associative table of blocks, each with the sequence number of the last
//! kernel for which it was predicted. A block that does not fit pushes out the one
//! that is needed first; it may then be chosen as a victim, which costs a copy and no
//! more.
//!
//! Locking: one writer (the predictor, under its lock) and any number of readers
//! without a lock, so that a pick may ask under the PMM's spinlock.

use super::UmBlock;
use crate::mem::{OutOfMemory, TryVec};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

const WAYS: usize = 4;

/// The expected blocks.
pub struct ExpectedSet {
    /// Block number + 1 above, sequence number below; 0 is empty.
    entries: TryVec<AtomicU64>,
    /// Sequence number of the current kernel.
    now: AtomicU32,
    /// How often a block may have stopped to be needed.
    dropped: AtomicU64,
}

fn pack(block: UmBlock, until: u32) -> u64 {
    ((u64::from(block.0) + 1) << 32) | u64::from(until)
}

/// Kernels from `now` to `until`; negative if `until` is over.
fn left(until: u32, now: u32) -> i32 {
    until.wrapping_sub(now) as i32
}

impl ExpectedSet {
    /// An empty set for about `blocks` blocks (rounded up to a power of two).
    pub fn new(blocks: u32) -> Result<Self, OutOfMemory> {
        let n = (blocks.clamp(WAYS as u32, 1 << 24) as usize).next_power_of_two();
        let mut entries = TryVec::with_capacity(n)?;
        for _ in 0..n {
            entries.push(AtomicU64::new(0))?;
        }
        Ok(Self {
            entries,
            now: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    /// Kernels until the last one that is expected to access `block`, 0 for the
    /// current one; `None` if none is. Callable without a lock and at any time.
    pub fn needed_in(&self, block: UmBlock) -> Option<u32> {
        let now = self.now.load(Relaxed);
        let tag = u64::from(block.0) + 1;
        let entry = self
            .set(block)
            .iter()
            .map(|e| e.load(Relaxed))
            .find(|e| e >> 32 == tag)?;
        u32::try_from(left(entry as u32, now)).ok()
    }

    /// A number that changes whenever a block that [`Self::needed_in`] knew may no
    /// longer be needed: until then, a search for victims need not ask again.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.entries.len() * size_of::<AtomicU64>()
    }

    /// Sets the current kernel; what was expected up to an earlier one no longer is.
    pub(super) fn set_now(&self, seq: u32) {
        self.now.store(seq, Relaxed);
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Expects `block` up to the kernel `until`.
    pub(super) fn expect(&self, block: UmBlock, until: u32) {
        let now = self.now.load(Relaxed);
        let set = self.set(block);
        let same = set
            .iter()
            .find(|e| e.load(Relaxed) >> 32 == u64::from(block.0) + 1);
        if let Some(e) = same {
            if left(until, now) > left(e.load(Relaxed) as u32, now) {
                e.store(pack(block, until), Relaxed);
            }
            return;
        }
        let rank = |e: &&AtomicU64| match e.load(Relaxed) {
            0 => i64::MIN,
            e => i64::from(left(e as u32, now)),
        };
        if let Some(e) = set.iter().min_by_key(rank) {
            if rank(&e) >= 0 {
                self.dropped.fetch_add(1, Relaxed);
            }
            e.store(pack(block, until), Relaxed);
        }
    }

    fn set(&self, block: UmBlock) -> &[AtomicU64] {
        let sets = self.entries.len() / WAYS;
        let set = block.0 as usize & sets.wrapping_sub(1);
        self.entries
            .get(set * WAYS..(set + 1) * WAYS)
            .unwrap_or(&[])
    }
}
