// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How long the loop waits for the locks of a VA space that somebody else has.
//!
//! A process may have its own locks held for as long as it likes. One thread services the faults of all processes, so it
//! waits for such a lock for a while only, and leaves what is behind the lock for the replay. A lock that many want is
//! had by who waits in its line, and hardly by who only tries. So the thread does wait, but not often: waiting draws on
//! an account, which fills while the thread does something else.
//!
//! # Invariants
//!
//! - **L-share**: of any time, all waits together take [`MOST_US`] and a fifth, and the alarm's delay of each.
//! - **L-line**: a wait that begins may last [`LEAST_US`] at least, so that it is one in line, and no mere try.

/// The longest wait. Linux hands a lock to who has stood first in line for 4 ms; before that others may snatch it.
pub const MOST_US: u64 = 20_000;

/// The shortest wait that is worth its trouble.
pub const LEAST_US: u64 = 8_000;

/// So many microseconds of anything else allow for one of waiting.
const PER_US: u64 = 5;

/// The account of one loop.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    left_us: u64,
    at_us: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

impl Patience {
    /// An account that is full at time 0.
    pub fn new() -> Self {
        Self {
            left_us: MOST_US,
            at_us: 0,
        }
    }

    /// For how many microseconds a wait that begins now may last; 0 if the lock is only to be tried.
    pub fn allows(&mut self, now_us: u64) -> u64 {
        let since = now_us.saturating_sub(self.at_us);
        // What is less than one stays for the next time.
        self.at_us = now_us.max(self.at_us) - since % PER_US;
        self.left_us = self.left_us.saturating_add(since / PER_US).min(MOST_US);
        if self.left_us < LEAST_US {
            return 0;
        }
        self.left_us
    }

    /// A wait lasted from `began_us`, when it was allowed, until now.
    pub fn waited(&mut self, began_us: u64, now_us: u64) {
        let lasted = now_us.saturating_sub(began_us);
        self.left_us = self.left_us.saturating_sub(lasted);
        self.at_us = now_us.max(self.at_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::model;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn who_has_waited_long_only_tries_for_a_while() {
        let mut patience = Patience::new();
        assert_eq!(patience.allows(0), MOST_US);
        patience.waited(0, MOST_US);
        assert_eq!(patience.allows(MOST_US), 0);
        let again = MOST_US + LEAST_US * PER_US;
        assert_eq!(patience.allows(again - 1), 0);
        assert_eq!(patience.allows(again), LEAST_US);
        assert_eq!(patience.allows(u64::MAX), MOST_US);
    }

    /// However often it looks: what the division leaves is not lost.
    #[test]
    fn looking_often_costs_nothing() {
        let mut patience = Patience::new();
        patience.waited(0, MOST_US);
        for now in 0..LEAST_US * PER_US {
            assert_eq!(patience.allows(MOST_US + now), 0, "{now}");
        }
        assert_eq!(patience.allows(MOST_US + LEAST_US * PER_US), LEAST_US);
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let mut patience = Patience::new();
        patience.waited(1000, 1000 + MOST_US);
        for now in [1000 + MOST_US, 1000, 0] {
            assert_eq!(patience.allows(now), 0);
        }
    }

    proptest! {
        #![proptest_config(model(500))]

        /// L-share and L-line, with pauses between waits that last at most as long as they may.
        #[test]
        fn waits_take_their_share_at_most(turns in prop::collection::vec((0..50_000u64, 0..=100u64), 1..200)) {
            let (mut patience, mut now) = (Patience::new(), 0);
            let mut waits: Vec<(u64, u64)> = Vec::new();
            for (pause, percent) in turns {
                now += pause;
                let may = patience.allows(now);
                prop_assert!(may == 0 || (LEAST_US..=MOST_US).contains(&may));
                let lasts = may * percent / 100;
                patience.waited(now, now + lasts);
                waits.push((now, lasts));
                now += lasts;
            }
            for first in 0..waits.len() {
                let mut sum = 0;
                for (began, lasts) in &waits[first..] {
                    sum += lasts;
                    let window = began + lasts - waits[first].0;
                    prop_assert!(sum <= MOST_US + window / PER_US, "{sum} of {window}");
                }
            }
        }
    }
}
