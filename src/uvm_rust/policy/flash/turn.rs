// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Turns for threads of which one at a time may go on, in the order in which they came. A thread
//! that waits may leave, for example because of a signal.
//!
//! Locking: the caller's, one call at a time. The caller wakes the waiting threads when told to.

/// The numbers that were given out, and the one whose turn it is.
///
/// Invariant: each number from `now` up to `next` belongs to a thread that waits, or that has its
/// turn if it is the first; or to a thread that has left, and then it is in `left`.
#[derive(Debug, Default)]
pub struct Turns {
    next: u64,
    now: u64,
    /// Bit n: the thread with the number `now` + n has left.
    left: u64,
}

/// The number of a thread that waits or has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// How many threads may wait at a time.
const MOST: u64 = 64;

impl Turns {
    /// Gives out a number; `None` if too many threads wait already, and this one has to come again.
    pub fn come(&mut self) -> Option<Ticket> {
        if self.next.wrapping_sub(self.now) >= MOST {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        Some(Ticket(self.next.wrapping_sub(1)))
    }

    /// Whether it is this ticket's turn.
    pub fn is(&self, ticket: Ticket) -> bool {
        ticket.0 == self.now
    }

    /// Ends a ticket's turn, or its wait. Returns whether it is another's turn now.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let before = self.now;
        self.left |= 1u64
            .checked_shl(ticket.0.wrapping_sub(self.now) as u32)
            .unwrap_or(0);
        while self.left & 1 != 0 {
            self.left >>= 1;
            self.now = self.now.wrapping_add(1);
        }
        self.now != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{setting, Dice};
    use std::vec::Vec;

    #[test]
    fn turns_go_in_the_order_in_which_threads_came() {
        let mut turns = Turns::default();
        let [a, b, c] = [(); 3].map(|()| turns.come().unwrap());
        assert!(turns.is(a) && !turns.is(b) && !turns.is(c));
        assert!(!turns.leave(b));
        assert!(turns.leave(a));
        assert!(turns.is(c) && !turns.is(b));
        assert!(turns.leave(c));
        let d = turns.come().unwrap();
        assert!(turns.is(d));
    }

    #[test]
    fn no_more_wait_than_there_are_bits() {
        let mut turns = Turns::default();
        let all: Vec<_> = (0..MOST).map(|_| turns.come().unwrap()).collect();
        assert_eq!(turns.come(), None);
        assert!(!turns.leave(all[63]));
        assert_eq!(turns.come(), None);
        assert!(turns.leave(all[0]));
        assert!(turns.come().is_some());
    }

    /// One has its turn at a time, the first of those who wait, and nobody is forgotten.
    #[test]
    fn it_is_always_the_first_ones_turn() {
        let seed = setting("UVM_TEST_SEED", 1);
        std::eprintln!("UVM_TEST_SEED={seed}");
        let mut dice = Dice::new(seed);
        let (mut turns, mut waiting) = (Turns::default(), Vec::new());
        for _ in 0..100_000 {
            if dice.below(2) == 0 {
                match turns.come() {
                    Some(ticket) => waiting.push(ticket),
                    None => assert!(!waiting.is_empty()),
                }
            } else if !waiting.is_empty() {
                let i = dice.below(waiting.len());
                let changed = turns.leave(waiting.remove(i));
                assert_eq!(changed, i == 0);
            }
            for (i, ticket) in waiting.iter().enumerate() {
                assert_eq!(turns.is(*ticket), i == 0);
            }
        }
    }
}
