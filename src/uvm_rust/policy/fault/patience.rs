// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How long the loop waits for the locks of a VA space that other threads have, and for which VA spaces.
//!
//! A process can keep its own locks held for as long as it likes. One thread services the faults of all processes, so it
//! waits for such a lock for a limited time, and leaves the faults behind the lock for the replay. A thread that waits in
//! line gets a contended lock; a thread that only tries hardly ever does. So the thread does wait, but not often: waiting
//! draws on an account, which fills while the thread does something else.
//!
//! All VA spaces share the account, and the faults of a VA space whose lock is never free come back first of all. So the
//! waits go round: after one VA space has had a wait, those with a greater number have theirs. A batch asks in that order.
//!
//! Two kinds of waits are none of the round's. Where a VA space is alone ([`Alone`]), nobody lacks what a
//! wait takes, and a program whose threads map and unmap memory all the time is to have its faults served. It waits as
//! often as it likes, and longer each time that it did not get its locks. The thread has other work than faults of this loop,
//! which it does after each such time. And a batch that got in once has to come back at
//! times, to cancel what is fatal or to service the rest. It would begin anew for ever if it were refused then.
//!
//! # Invariants
//!
//! - **L-share**: where others have faults too, all waits together take at most a fifth of any time, plus [`MOST_US`]. Two
//!   things come on top: the waits of batches that come back (up to [`AGAIN_US`]), and the time by which the last wait
//!   exceeds its limit. This excess, up to [`DEBT_US`], is taken from the next waits.
//! - **L-line**: a wait that begins may last [`LEAST_US`] at least, so that it is one in line, and no mere try.
//! - **L-round**: a VA space that asks in each batch has a wait before any with a smaller number has a second one. Who used up
//!   the last turn (`turns.rs`) asks last, and may miss a round.

use super::alone::Alone;
#[cfg(test)]
use super::alone::ALONE_US;

/// How many microseconds the longest wait may last.
pub const MOST_US: u64 = 20_000;

/// The shortest wait that is worth its trouble. Linux hands a lock to who has stood first in its line for more than 4 ms,
/// counted in ticks: with a tick of 4 ms that may be two ticks. Before that others may snatch the lock.
pub const LEAST_US: u64 = 12_000;

/// How many microseconds of other work allow for one microsecond of waiting.
const PER_US: u64 = 5;

/// The greatest debt, in microseconds. After a machine stood still during a wait, the loop must not refuse waits for
/// hours.
const DEBT_US: u64 = 1_000_000;

/// The longest wait for a VA space that is alone, in microseconds. The thread has work other than this loop's faults,
/// which may wait for it.
pub const ALONE_MOST_US: u64 = 100_000;

/// A call of the fault service ends after a longer wait than this of a VA space that is alone, with the batch that waited. The 20
/// batches that upstream allows a call last about as long as one wait in vain then, where each waits once.
pub const LONG_US: u64 = ALONE_MOST_US / 20;

/// How much batches that come back may wait beyond what is left before they are refused as well, in microseconds.
pub const AGAIN_US: u64 = 100_000;

/// The account of one loop.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How many microseconds of waiting are left; negative after a wait that exceeded its limit.
    left_us: i64,
    at_us: u64,
    /// The VA space that had the last wait; 0 for none.
    last: u64,
    /// The VA space that was last refused a wait while the account was full, as others had their turn first; 0 for none.
    refused: u64,
    alone: Alone,
    /// How long the next wait for a VA space that is alone may last.
    alone_us: u64,
    /// Whether the last wait that was allowed was for a VA space that is alone.
    was_alone: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

impl Patience {
    /// Makes an account that is full at time 0.
    pub fn new() -> Self {
        Self {
            left_us: MOST_US as i64,
            at_us: 0,
            last: 0,
            refused: 0,
            alone: Alone::default(),
            alone_us: MOST_US,
            was_alone: false,
        }
    }

    /// Notes that there are faults of this VA space.
    #[inline(always)]
    pub fn meets(&mut self, space: u64) {
        self.alone.meets(space);
    }

    /// Notes that a batch begins, with `first` and `last` as the first and last VA space of its faults.
    #[inline(always)]
    pub fn meets_all(&mut self, first: u64, last: u64) {
        self.alone.meets_all(first, last);
    }

    /// For how many microseconds a wait for a VA space's locks that begins now may last; 0 if they are only to be tried.
    /// `is_again`: the batch has had these locks before.
    pub fn allows(&mut self, space: u64, is_again: bool, now_us: u64) -> u64 {
        self.meets(space);
        self.was_alone = self.alone.is_alone(now_us);
        if self.was_alone {
            return self.alone_us;
        }
        let since = now_us.saturating_sub(self.at_us);
        // The rest of the division stays for the next time.
        self.at_us = now_us.max(self.at_us) - since % PER_US;
        let more = (since / PER_US).min(MOST_US + DEBT_US) as i64;
        self.left_us = self.left_us.saturating_add(more).min(MOST_US as i64);
        if is_again && self.left_us > -(AGAIN_US as i64) {
            return LEAST_US;
        }
        let left = self.left_us.max(0).unsigned_abs();
        if left < LEAST_US || !self.has_its_turn(space, left == MOST_US) {
            return 0;
        }
        left
    }

    /// Whether the round has come to this VA space. A new round begins when the account is full, and no VA space that
    /// is left of the old round has asked in the rest of a batch.
    fn has_its_turn(&mut self, space: u64, is_full: bool) -> bool {
        let is_new = is_full && space <= self.refused;
        if is_full {
            self.refused = space;
        }
        space > self.last || is_new
    }

    /// Notes that a wait for the locks of the VA space lasted from `began_us`, when it was allowed, until now, and
    /// whether it `got` them. Returns whether the thread should do its other work now, because it waited in vain, or
    /// for long, for a VA space that is alone.
    pub fn waited(&mut self, space: u64, got: bool, began_us: u64, now_us: u64) -> bool {
        if self.was_alone {
            self.alone_us = match got {
                true => MOST_US,
                false => (2 * self.alone_us).min(ALONE_MOST_US),
            };
            return !got || now_us.saturating_sub(began_us) > LONG_US;
        }
        let lasted = now_us.saturating_sub(began_us).min(MOST_US + DEBT_US) as i64;
        self.left_us = (self.left_us - lasted).max(-(DEBT_US as i64));
        self.at_us = now_us.max(self.at_us);
        (self.last, self.refused) = (space, 0);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::model;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// A VA space where it does not matter which one it is.
    const SPACE: u64 = 7;

    #[test]
    fn who_has_waited_long_only_tries_for_a_while() {
        let mut patience = Patience::new();
        assert_eq!(patience.allows(SPACE, false, 0), MOST_US);
        patience.waited(SPACE, true, 0, MOST_US);
        let other = SPACE + 1;
        assert_eq!(patience.allows(other, false, MOST_US), 0);
        let again = MOST_US + LEAST_US * PER_US;
        assert_eq!(patience.allows(other, false, again - 1), 0);
        assert_eq!(patience.allows(other, false, again), LEAST_US);
        assert_eq!(patience.allows(other, false, u64::MAX), MOST_US);
    }

    /// However often it looks: what the division leaves is not lost.
    #[test]
    fn looking_often_costs_nothing() {
        let (mut patience, other) = (Patience::new(), SPACE + 1);
        patience.waited(SPACE, true, 0, MOST_US);
        for now in 0..LEAST_US * PER_US {
            assert_eq!(patience.allows(other, false, MOST_US + now), 0, "{now}");
        }
        assert_eq!(
            patience.allows(other, false, MOST_US + LEAST_US * PER_US),
            LEAST_US
        );
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let mut patience = Patience::new();
        patience.waited(SPACE, true, 1000, 1000 + MOST_US);
        for now in [1000 + MOST_US, 1000, 0] {
            assert_eq!(patience.allows(SPACE + 1, false, now), 0);
        }
    }

    /// As the alarm may be late.
    #[test]
    fn what_a_wait_lasts_too_long_the_next_ones_lack() {
        let (mut patience, late) = (Patience::new(), 5_000);
        patience.waited(SPACE, true, 0, MOST_US + late);
        let again = MOST_US + late + (late + LEAST_US) * PER_US;
        assert_eq!(patience.allows(SPACE + 1, false, again - 1), 0);
        assert_eq!(patience.allows(SPACE + 1, false, again), LEAST_US);
    }

    #[test]
    fn a_machine_that_stood_still_has_patience_again_soon() {
        let (mut patience, hour) = (Patience::new(), 3_600_000_000);
        patience.meets(SPACE);
        patience.waited(SPACE, true, 0, hour);
        let again = hour + (DEBT_US + LEAST_US) * PER_US;
        assert_eq!(patience.allows(SPACE + 1, false, again), LEAST_US);
    }

    /// Batches with faults of these VA spaces, a millisecond apart: how long the waits for each are, up to the time when
    /// a wait has got the locks of the last one, which are had in `free_after`. Those of the others are never free.
    fn until_the_last_waits(spaces: &[u64], free_after: u64) -> u64 {
        let (mut patience, mut now) = (Patience::new(), 0);
        let last = spaces.last().copied().unwrap_or_default();
        while now < 1_000_000 * spaces.len() as u64 {
            for space in spaces {
                let may = patience.allows(*space, false, now);
                if may == 0 {
                    continue;
                }
                let began = now;
                now += if *space == last {
                    may.min(free_after)
                } else {
                    may
                };
                patience.waited(*space, true, began, now);
                if *space == last && free_after <= may {
                    return now;
                }
            }
            now += 1000;
        }
        panic!("{spaces:?}: no wait for the last one");
    }

    #[test]
    fn who_never_lets_go_leaves_waits_to_others() {
        let one_round = MOST_US + LEAST_US * PER_US + LEAST_US + 2000;
        assert!(until_the_last_waits(&[1, 2], LEAST_US) <= one_round);
        assert!(until_the_last_waits(&[1, 2, 3, 4], LEAST_US) <= 3 * one_round);
    }

    /// Who gives its lock just in time has no more than its turn, either.
    #[test]
    fn short_waits_end_a_turn() {
        let mut patience = Patience::new();
        assert_eq!(patience.allows(1, false, 0), MOST_US);
        patience.waited(1, true, 0, 1000);
        assert_eq!(patience.allows(1, false, 2000), 0);
        assert!(patience.allows(2, false, 2000) >= LEAST_US);
        patience.waited(2, true, 2000, 2500);
        // When nobody else asks in the rest of the batch, either, a new round begins.
        assert_eq!(patience.allows(1, false, 20_000), 0);
        assert_eq!(patience.allows(1, false, 20_100), MOST_US);
    }

    /// A program whose threads have its own locks most of the time, and nobody else.
    #[test]
    fn who_is_alone_waits_as_often_as_it_likes() {
        let (mut patience, mut now) = (Patience::new(), 0);
        assert_eq!(patience.allows(SPACE, false, now), MOST_US);
        patience.waited(SPACE, true, now, now);
        now += ALONE_US;
        for _ in 0..1000 {
            assert_eq!(patience.allows(SPACE, false, now), MOST_US);
            assert!(!patience.waited(SPACE, true, now, now + LONG_US));
            now += 5100;
        }
        // What else there is to do is not behind many waits either.
        assert!(patience.waited(SPACE, true, now, now + LONG_US + 1));
        // A line that is longer than a wait is waited for longer each time.
        for longer in [1, 2, 4] {
            assert_eq!(patience.allows(SPACE, false, now), longer * MOST_US);
            assert!(patience.waited(SPACE, false, now, now + longer * MOST_US));
            now += longer * MOST_US;
        }
        assert_eq!(patience.allows(SPACE, false, now), ALONE_MOST_US);
        patience.waited(SPACE, true, now, now + ALONE_MOST_US / 2);
        assert_eq!(patience.allows(SPACE, false, now), MOST_US);
        // Others end that at once, though they do not wait.
        patience.meets(SPACE + 1);
        now += ALONE_MOST_US;
        assert_eq!(patience.allows(SPACE + 2, false, now), MOST_US);
        patience.waited(SPACE + 2, true, now, now + MOST_US);
        now += MOST_US;
        assert_eq!(patience.allows(SPACE + 2, false, now), 0);
    }

    /// Whichever of them the loop comes to first.
    #[test]
    fn who_shares_its_batch_is_not_alone() {
        let (one, other) = (SPACE, SPACE + 1);
        for (first, last, waits) in [(one, one, MOST_US), (one, other, 0), (other, one, 0)] {
            let mut patience = Patience::new();
            patience.meets_all(one, one);
            assert_eq!(patience.allows(one, false, 0), MOST_US);
            // What others lack for seconds, and it does not.
            patience.waited(one, false, 0, 2 * ALONE_US);
            patience.meets_all(first, last);
            assert_eq!(patience.allows(one, false, 2 * ALONE_US), waits);
        }
    }

    /// A wait that others had to share in ends no call.
    #[test]
    fn only_who_is_alone_waits_in_vain_for_the_thread() {
        let mut patience = Patience::new();
        assert_eq!(patience.allows(SPACE, false, 0), MOST_US);
        assert!(!patience.waited(SPACE, false, 0, MOST_US));
    }

    /// A batch that has got in finds fatal faults, and the locks taken once more.
    #[test]
    fn who_comes_back_to_cancel_is_let_in() {
        let (mut patience, mut now) = (Patience::new(), 0);
        let mut cancels = 0;
        while now < 20 * ALONE_US {
            patience.meets(SPACE + 1);
            let may = patience.allows(SPACE, false, now);
            if may > 0 {
                patience.waited(SPACE, true, now, now + 5000);
                now += 5000;
                assert_eq!(patience.allows(SPACE, true, now), LEAST_US);
                patience.waited(SPACE, true, now, now + 5000);
                now += 5000;
                cancels += 1;
            }
            now += 100;
        }
        assert!(cancels > 100, "{cancels}");
        // What they take is bounded, too.
        for _ in 0..AGAIN_US / LEAST_US + 3 {
            if patience.allows(SPACE, true, now) > 0 {
                patience.waited(SPACE, true, now, now + LEAST_US);
                now += LEAST_US;
            }
        }
        assert_eq!(patience.allows(SPACE, true, now), 0);
    }

    proptest! {
        #![proptest_config(model(500))]

        /// L-share and L-line, with pauses between waits that may last longer than they are allowed to.
        #[test]
        fn waits_take_their_share_at_most(
            turns in prop::collection::vec((1..5u64, 0..50_000u64, 0..=150u64), 1..200),
        ) {
            let (mut patience, mut now) = (Patience::new(), 0);
            let mut waits: Vec<(u64, u64, u64)> = Vec::new();
            for (space, pause, percent) in turns {
                now += pause;
                patience.meets(0);
                let may = patience.allows(space, false, now);
                prop_assert!(may == 0 || (LEAST_US..=MOST_US).contains(&may));
                if may == 0 {
                    continue;
                }
                let lasts = may * percent / 100;
                patience.waited(space, true, now, now + lasts);
                waits.push((now, lasts, lasts.saturating_sub(may)));
                now += lasts;
            }
            for first in 0..waits.len() {
                let mut sum = 0;
                for (began, lasts, late) in &waits[first..] {
                    sum += lasts;
                    let window = began + lasts - waits[first].0;
                    prop_assert!(sum <= MOST_US + window / PER_US + late, "{sum} of {window}");
                }
            }
        }

        /// L-round: whoever asks in each batch, and however long the waits are.
        #[test]
        fn everybody_has_a_turn(
            spaces in 2..6u64,
            percents in prop::collection::vec(0..=100u64, 6),
            pause in 100..100_000u64,
        ) {
            let (mut patience, mut now) = (Patience::new(), 0);
            let mut turns: Vec<u64> = Vec::new();
            for _ in 0..2000 {
                for space in 1..=spaces {
                    let may = patience.allows(space, false, now);
                    if may > 0 {
                        let began = now;
                        now += may * percents[space as usize] / 100;
                        patience.waited(space, true, began, now);
                        turns.push(space);
                    }
                }
                now += pause;
            }
            prop_assert!(turns.len() as u64 >= spaces);
            for (turn, space) in turns.iter().enumerate() {
                prop_assert_eq!(*space, turn as u64 % spaces + 1);
            }
        }
    }
}
