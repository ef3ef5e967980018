// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A ring between two threads, which what happens goes through on its way to the correlator (`feed.rs`).

use crate::mem::{OutOfMemory, ProcessVec};
use crate::policy::sync::{AtomicU32, AtomicU64, Ordering};

/// A ring of numbers between one producer and one consumer.
///
/// Locking: none. The producer publishes a number by the count that it writes behind it, and the consumer gives its
/// place back in the same way.
pub struct Lane {
    slots: ProcessVec<AtomicU64>,
    /// Numbers taken; written by the consumer.
    taken: AtomicU32,
    /// Numbers put; written by the producer.
    put: AtomicU32,
}

impl Lane {
    /// A ring with room for `capacity` numbers, which becomes a power of two.
    pub fn new(capacity: u32) -> Result<Self, OutOfMemory> {
        let capacity = capacity.clamp(1, 1 << 20).next_power_of_two();
        let mut slots = ProcessVec::with_capacity(capacity as usize)?;
        for _ in 0..capacity {
            slots.push(AtomicU64::new(0))?;
        }
        Ok(Self {
            slots,
            taken: AtomicU32::new(0),
            put: AtomicU32::new(0),
        })
    }

    fn slot(&self, at: u32) -> Option<&AtomicU64> {
        // Their number is a power of two, so places go on where the count wraps.
        self.slots.get(at as usize & (self.slots.len() - 1))
    }

    /// Appends a number; false if there is no room.
    pub fn push(&self, number: u64) -> bool {
        let put = self.put.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Acquire);
        if put.wrapping_sub(taken) as usize >= self.slots.len() {
            return false;
        }
        if let Some(slot) = self.slot(put) {
            slot.store(number, Ordering::Relaxed);
        }
        self.put.store(put.wrapping_add(1), Ordering::Release);
        true
    }

    /// The oldest number, which stays.
    pub fn front(&self) -> Option<u64> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.put.load(Ordering::Acquire) {
            return None;
        }
        Some(self.slot(taken)?.load(Ordering::Relaxed))
    }

    /// Takes the oldest number off.
    pub fn pop(&self) -> Option<u64> {
        let number = self.front()?;
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::thread;

    #[test]
    fn a_lane_keeps_order_and_refuses_what_does_not_fit() {
        let lane = Lane::new(4).unwrap();
        let mut model = VecDeque::new();
        // So that the counts wrap.
        lane.put.store(u32::MAX - 2, Ordering::Relaxed);
        lane.taken.store(u32::MAX - 2, Ordering::Relaxed);
        for n in 0..100u64 {
            assert_eq!(lane.push(n), model.len() < 4);
            if model.len() < 4 {
                model.push_back(n);
            }
            if n % 3 == 0 {
                assert_eq!(lane.front(), model.front().copied());
                assert_eq!(lane.pop(), model.pop_front());
            }
        }
    }

    #[test]
    fn a_lane_between_two_threads_loses_nothing() {
        const N: u64 = if cfg!(miri) { 200 } else { 2_000 };
        let lane = Lane::new(8).unwrap();
        thread::scope(|s| {
            s.spawn(|| {
                for n in 0..N {
                    while !lane.push(n) {
                        thread::yield_now();
                    }
                }
            });
            for n in 0..N {
                let got = loop {
                    match lane.pop() {
                        Some(got) => break got,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(got, n);
            }
        });
    }
}
