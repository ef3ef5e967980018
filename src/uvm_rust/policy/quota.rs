// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How much of a GPU's memory one process may hold (`max`), in root chunks of 2 MiB, before its own chunks make room; and
//! how much of it is protected from others (`low`).
//!
//! # A maximum
//!
//! A maximum never refuses memory, and nobody waits for it (as `memory.high` of cgroups, not as `memory.max`). A process at
//! its maximum evicts chunks of its own before it allocates another one, whether or not the GPU has free memory, so that
//! no other process loses any. What cannot be evicted stays: the allocation goes on beyond the maximum, as it would
//! without one, and is counted. Refusing would end kernels, perhaps those of other processes in the same batch of
//! faults.
//!
//! # How far beyond
//!
//! An allocation goes on when the process was seen below its maximum, or when an eviction of the allocating thread has
//! succeeded. Each thread adds one chunk at a time. So `n` threads that bring memory at the same time hold `max + n - 1`
//! chunks at most, as long as evictions succeed ([`PER_CHUNK`] of them bring back what is beyond). While evictions fail,
//! as there is no host memory or pages are held, there is no bound but the GPU's memory.
//!
//! # A protected share
//!
//! A process that holds no more than its low gives up no used chunk to others while somebody else has more than its own low
//! ([`super::evict::RootChunks::protect`]). What is protected from a process is room for the others: so a low may be lowered by
//! anybody, as a maximum may, and is raised by an administrator alone.
//!
//! # What counts
//!
//! What counts is what the process holds, whatever is in it, from its allocation until it is free or evicted
//! ([`super::stats::held`]). Chunks that are split may be several processes', and nobody's quota counts them.
//!
//! Locking: none. A quota is two atomics, and the count of what a process holds is read without a lock.

use super::evict;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a root chunk.
const CHUNK: u64 = 2 << 20;

/// How many chunks an allocation tries to evict, at most. It adds one, so that what is beyond the maximum becomes less, and
/// the fault service, for which all processes wait, takes no longer than that.
pub const PER_CHUNK: u32 = 2;

/// How many chunks are listed for the first low on a GPU before the lock of its chunks is let go.
pub const LISTED_AT_A_TIME: u32 = 128;

/// How many chunks are evicted for a lowered maximum before the VA space's lock is let go, for which the fault service may
/// wait.
pub const AT_A_TIME: u32 = 8;

/// Whether a chunk that a process allocates counts for its quota. Smaller ones than root chunks may share one with others'. A
/// thread that `frees` memory of Linux's evicts nothing, so that its process cannot keep to a maximum meanwhile; what it gets
/// is counted by its first use.
pub fn counts(is_root: bool, frees: bool) -> bool {
    is_root && !frees
}

/// The most that a process may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Max(u32);

impl Max {
    /// The process may hold as much as there is.
    pub const NONE: Self = Self(u32::MAX);

    /// The least maximum on a GPU with so many chunks: what the policy `fair` spares. With less, a kernel could fault for
    /// ever on blocks that one instruction needs at once, and nobody could tell that kernel from one that goes on.
    pub fn least(chunks: u32) -> Self {
        Self(evict::spared(chunks).max(1))
    }

    /// Of so many bytes the whole chunks count, and `u64::MAX` is no maximum.
    pub fn of_bytes(bytes: u64) -> Self {
        let most = u64::from(Self::NONE.0);
        Self((bytes / CHUNK).min(most) as u32)
    }

    /// A module parameter of so many MiB, where 0 is no maximum.
    pub fn of_mib(mib: u32) -> Self {
        match mib {
            0 => Self::NONE,
            mib => Self(mib / 2),
        }
    }

    /// How many bytes so many chunks are.
    pub fn bytes_of(chunks: u32) -> u64 {
        u64::from(chunks) * CHUNK
    }

    /// The maximum in bytes; `None` without one.
    pub fn limit(self) -> Option<u64> {
        (self != Self::NONE).then(|| self.bytes())
    }

    /// The maximum in bytes, as [`Max::of_bytes`] takes it.
    pub fn bytes(self) -> u64 {
        match self {
            Self::NONE => u64::MAX,
            Self(chunks) => Self::bytes_of(chunks),
        }
    }
}

/// How much of what a process holds is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Low(u32);

impl Low {
    /// No chunk is protected from others.
    pub const NONE: Self = Self(0);

    /// Of so many bytes the whole chunks count.
    pub fn of_bytes(bytes: u64) -> Self {
        Self(Max::of_bytes(bytes).0)
    }

    /// A module parameter of so many MiB.
    pub fn of_mib(mib: u32) -> Self {
        Self(mib / 2)
    }

    /// How many chunks are protected.
    pub fn chunks(self) -> u32 {
        self.0
    }

    /// How many bytes are protected.
    pub fn bytes(self) -> u64 {
        Max::bytes_of(self.0)
    }

    /// The same; `None` if nothing is.
    pub fn told(self) -> Option<u64> {
        (self != Self::NONE).then(|| self.bytes())
    }
}

/// What one process may hold, and what is protected of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most that the process may hold.
    pub max: Max,
    /// How much is protected.
    pub low: Low,
}

impl Limits {
    /// Neither a maximum nor a low.
    pub const NONE: Self = Self {
        max: Max::NONE,
        low: Low::NONE,
    };

    /// Whether both are as low as `other`'s, or lower.
    fn are_within(self, other: Self) -> bool {
        self.max <= other.max && self.low <= other.low
    }

    /// Both in a word.
    const fn word(self) -> u64 {
        (self.max.0 as u64) << 32 | self.low.0 as u64
    }

    /// Both in a word, as [`Limits::word`] gives it.
    const fn of_word(word: u64) -> Self {
        Self {
            max: Max((word >> 32) as u32),
            low: Low(word as u32),
        }
    }
}

/// The caller may raise neither a maximum nor a low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayNotRaise;

/// The quota of one process on one GPU.
#[derive(Debug)]
pub struct Quota {
    /// [`Limits::word`]: of two calls that set both, one sets both.
    limits: AtomicU64,
    /// Allocations that have gone on at the maximum.
    beyond: AtomicU64,
}

impl Quota {
    /// Makes a quota with these limits.
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits: AtomicU64::new(limits.word()),
            beyond: AtomicU64::new(0),
        }
    }

    /// The limits that are in force.
    pub fn limits(&self) -> Limits {
        Limits::of_word(self.limits.load(Relaxed))
    }

    /// The maximum that is in force.
    pub fn max(&self) -> Max {
        self.limits().max
    }

    /// How much is protected.
    pub fn low(&self) -> Low {
        self.limits().low
    }

    /// Sets what `changed` makes of the limits, which counts from the next allocation on. The caller evicts the chunks
    /// beyond a maximum, and tells the queues of a low.
    ///
    /// # Errors
    ///
    /// [`MayNotRaise`] if one would be raised and the caller may not; then both stay what they were.
    pub fn set(
        &self,
        changed: impl Fn(Limits) -> Limits,
        may_raise: bool,
    ) -> Result<(), MayNotRaise> {
        let set = self.limits.fetch_update(Relaxed, Relaxed, |word| {
            let (now, wanted) = (Limits::of_word(word), changed(Limits::of_word(word)));
            (may_raise || wanted.are_within(now)).then_some(wanted.word())
        });
        set.map(|_| ()).map_err(|_| MayNotRaise)
    }

    /// The maximum in bytes and [`Quota::beyond`]; `None` without a maximum.
    pub fn told(&self) -> Option<(u64, u64)> {
        Some((self.max().limit()?, self.beyond()))
    }

    /// Whether a process that holds `held` chunks evicts before it gets another one.
    pub fn is_full(&self, held: u32) -> bool {
        let max = self.max();
        max != Max::NONE && held >= max.0
    }

    /// How many chunks a process that holds `held` of them has beyond the maximum.
    fn excess(&self, held: u32) -> u32 {
        held.saturating_sub(self.max().0)
    }

    /// How many allocations have gone on at the maximum, as they could evict nothing.
    pub fn beyond(&self) -> u64 {
        self.beyond.load(Relaxed)
    }
}

/// A process that wants a chunk, or has too many.
pub trait Machine {
    /// How many chunks the process holds; `None` if nobody knows, and nothing is limited then.
    fn held(&mut self) -> Option<u32>;

    /// Tries to evict a chunk of the process, which takes as long as one eviction does. The chunk may stay, as somebody
    /// holds pages of it, or there is no host memory for them; of another chunk neither may be so. False if no chunk of
    /// the process can be evicted now, as others work on all of them.
    fn evict(&mut self) -> bool;

    /// Whether the thread is to die.
    fn dying(&mut self) -> bool;
}

/// Evicts chunks of a process that is at its maximum, and wants another one. Whatever comes of it, the process allocates
/// then.
pub fn make_room<M: Machine>(quota: &Quota, machine: &mut M) {
    for _ in 0..PER_CHUNK {
        if !is_full(quota, machine) || !machine.evict() {
            break;
        }
    }
    if is_full(quota, machine) {
        quota.beyond.fetch_add(1, Relaxed);
    }
}

fn is_full<M: Machine>(quota: &Quota, machine: &mut M) -> bool {
    machine.held().is_some_and(|held| quota.is_full(held))
}

/// Evicts chunks of a process that has more than it may, as its maximum was lowered: [`AT_A_TIME`] at most, and no more
/// than `left`, which the last call gave. Returns how many more are to be tried; at first that is any number. As many are
/// tried in all as there are too many at first. What stays goes when the process next wants memory.
pub fn give_up<M: Machine>(quota: &Quota, machine: &mut M, mut left: u32) -> u32 {
    for _ in 0..AT_A_TIME {
        left = left.min(machine.held().map_or(0, |held| quota.excess(held)));
        if left == 0 || machine.dying() || !machine.evict() {
            return 0;
        }
        left -= 1;
    }
    left
}

#[cfg(test)]
mod tests;
