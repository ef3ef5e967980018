// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whether several VA spaces copy on a GPU.
//!
//! Locking: none. Each copy of a GPU says whose it is. That is one load as long as it is the same VA space's as the last. Where
//! nobody else's copies came ever, whoever asks loads two words, and reads no clock. A thread that asks while another VA space's
//! copy is noted may still be told that it is alone.

use crate::policy::sync::{AtomicBool, AtomicU64, Ordering::*};

/// A GPU is shared for so many microseconds after copies of one VA space followed another one's. It is long, as what a VA
/// space has queued while it was alone is before the first copy of the next one.
pub const RECENT_US: u64 = 60_000_000;

/// The VA spaces that have copied on a GPU of late.
#[derive(Debug, Default)]
pub struct Sharers {
    /// The number of the VA space whose copy was the last, and 1; 0 for none.
    last: AtomicU64,
    /// Whether `last` has changed from one VA space to another since somebody last asked.
    is_other: AtomicBool,
    /// When somebody asked last with `is_other` set; 0 for never.
    other_at_us: AtomicU64,
}

impl Sharers {
    /// Makes one that knows of no VA space.
    pub const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            is_other: AtomicBool::new(false),
            other_at_us: AtomicU64::new(0),
        }
    }

    /// Notes that there is a copy for the VA space with this number.
    #[inline]
    pub fn meets(&self, space: u32) {
        let space = u64::from(space) + 1;
        if self.last.load(Relaxed) != space {
            let before = self.last.swap(space, Relaxed);
            if before != 0 && before != space {
                self.is_other.store(true, Relaxed);
            }
        }
    }

    /// Whether several VA spaces have had copies in the last `RECENT_US` microseconds.
    #[inline]
    pub fn are_several(&self, now_us: impl FnOnce() -> u64) -> bool {
        if self.is_other.load(Acquire) {
            // In this order: who finds the one unset finds the other set.
            self.other_at_us.store(now_us().max(1), Relaxed);
            self.is_other.store(false, Release);
            return true;
        }
        let at = self.other_at_us.load(Relaxed);
        at != 0 && now_us().saturating_sub(at) < RECENT_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(sharers: &Sharers, now_us: u64) -> bool {
        sharers.are_several(|| now_us)
    }

    #[test]
    fn who_is_alone_reads_no_clock() {
        let sharers = Sharers::new();
        let asks = || sharers.are_several(|| unreachable!("the clock is read"));
        assert!(!asks());
        for _ in 0..2 {
            sharers.meets(7);
            assert!(!asks());
        }
    }

    #[test]
    fn another_one_is_known_for_a_while() {
        let sharers = Sharers::new();
        sharers.meets(0);
        sharers.meets(1);
        assert!(several(&sharers, 5));
        sharers.meets(1);
        assert!(several(&sharers, 4 + RECENT_US));
        assert!(!several(&sharers, 5 + RECENT_US));
        sharers.meets(0);
        assert!(several(&sharers, 6 + RECENT_US));
    }

    #[test]
    fn a_change_is_known_from_when_somebody_asks() {
        let sharers = Sharers::new();
        sharers.meets(1);
        sharers.meets(2);
        assert!(several(&sharers, 9 * RECENT_US));
        assert!(several(&sharers, 10 * RECENT_US - 1));
        assert!(!several(&sharers, 10 * RECENT_US));
    }

    #[test]
    fn the_first_moment_of_a_clock_is_a_time() {
        let sharers = Sharers::new();
        sharers.meets(1);
        sharers.meets(2);
        assert!(several(&sharers, 0));
        assert!(several(&sharers, 1));
    }
}
