// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whether a VA space is *alone*: no other one has had faults for a second. Nobody lacks the time that such a VA space
//! takes.
//!
//! Only changes from one VA space to another are noted as batches come, which takes no clock. The time of the last change
//! is the time at which somebody next asks.

/// A VA space is alone if no other one has had faults for so many microseconds.
pub const ALONE_US: u64 = 1_000_000;

/// The VA spaces whose faults a loop has met last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alone {
    /// The VA space whose faults were met last; 0 for none.
    met: u64,
    /// Whether `met` has changed from one VA space to another since somebody last asked.
    is_other: bool,
    /// When somebody asked last with `is_other` set.
    other_at_us: u64,
}

impl Alone {
    /// Notes that there are faults of this VA space.
    #[inline(always)]
    pub(super) fn meets(&mut self, space: u64) {
        if self.met != space {
            // The first one of all follows nobody.
            self.is_other |= self.met != 0;
            self.met = space;
        }
    }

    /// Notes that a batch begins, with `first` and `last` as the first and last VA space of its faults. If they
    /// differ, none of them is alone, not even the one that the loop comes to first.
    #[inline(always)]
    pub(super) fn meets_all(&mut self, first: u64, last: u64) {
        self.meets(last);
        self.meets(first);
    }

    /// Whether another VA space has been met since somebody last asked.
    #[inline(always)]
    pub(super) fn has_met_another(&self) -> bool {
        self.is_other
    }

    /// Whether the VA space that was met last is alone.
    pub(super) fn is_alone(&mut self, now_us: u64) -> bool {
        if core::mem::take(&mut self.is_other) {
            self.other_at_us = now_us;
        }
        now_us.saturating_sub(self.other_at_us) >= ALONE_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_one_ends_it_for_a_second() {
        let mut alone = Alone::default();
        alone.meets(1);
        assert!(alone.is_alone(ALONE_US), "the first one follows nobody");
        alone.meets(2);
        assert!(alone.has_met_another());
        assert!(!alone.is_alone(5 * ALONE_US));
        assert!(!alone.has_met_another());
        assert!(!alone.is_alone(6 * ALONE_US - 1));
        assert!(alone.is_alone(6 * ALONE_US));
    }

    #[test]
    fn a_batch_of_two_is_none_of_one() {
        let mut alone = Alone::default();
        for _ in 0..2 {
            alone.meets_all(1, 2);
            assert!(!alone.is_alone(5 * ALONE_US));
        }
        alone.meets_all(1, 1);
        assert!(!alone.has_met_another(), "the last batch said so already");
    }
}
