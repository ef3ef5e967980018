// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! In which order channels and kernels run.
//!
//! Hardware promises no order among them but what semaphores make. The kind order is one
//! that a driver's mistakes seldom show in: each in turn, as far as it comes. In the
//! adversarial order a seed says who goes on, and after how few methods another one does.
//!
//! Decisions are a function of the seed and of what was submitted before each step alone:
//! a turn in which nobody can go on decides nothing, and takes nothing from the seed. So
//! it does not matter how often the emulator looks, and when.

use super::channel::ChannelId;

/// How the parties of a GPU take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// All channels in turn, each as far as it comes, and then kernels.
    #[default]
    Kind,
    /// As the seed says.
    Adversarial {
        /// What all decisions are made from.
        seed: u64,
    },
}

/// One of those who take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    /// A channel of UVM's.
    Channel(ChannelId),
    /// A user's channel, by its handle: its kernels.
    User(u32),
}

impl Party {
    /// The party as a number that no other one has.
    fn number(self) -> u64 {
        match self {
            Self::Channel(id) => u64::from(id.0),
            Self::User(handle) => (1 << 32) | u64::from(handle),
        }
    }
}

/// Most steps of an epoch that is not a fair one. A turn of the emulator ends with an epoch at
/// the latest.
const EPOCH: u64 = 64;
/// Each so manieth epoch all parties take one step, one after the other: nobody starves.
const FAIR: u64 = 8;
/// Methods of a long step.
const LONG: u64 = 256;
/// Most instructions of a kernel in a step; a turn ends after as many as in the kind order.
const MOST_INSTRUCTIONS: u64 = 32;

/// What a decision is about, so that no two are made from the same number.
#[derive(Clone, Copy)]
enum About {
    Length = 1,
    Rank = 2,
    Methods = 3,
    Instructions = 4,
}

/// Who goes on next, and how far.
///
/// Time is cut into steps and epochs. In an epoch parties have ranks, and each step is the
/// first one's by rank that can go on: so a party may run to its end before another one
/// begins, which few decisions find as surely. With each step the number of methods changes
/// after which it ends.
#[derive(Debug)]
pub(super) struct Schedule {
    seed: u64,
    epoch: u64,
    /// Steps of this epoch, done and in all.
    done: u64,
    length: u64,
    /// Steps of all epochs.
    steps: u64,
}

/// Spreads `x` over all 64 bits, one to one.
pub(super) const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Schedule {
    /// The schedule of GPU `index`, before the first step; `None` in the kind order.
    pub(super) fn new(order: Order, index: u32) -> Option<Self> {
        let Order::Adversarial { seed } = order else {
            return None;
        };
        let mut schedule = Self {
            // GPUs of one machine do not go in step.
            seed: mix(seed).wrapping_add(u64::from(index)),
            epoch: 0,
            done: 0,
            length: 0,
            steps: 0,
        };
        schedule.length = schedule.epoch_length(1);
        Some(schedule)
    }

    fn decide(&self, about: About, number: u64) -> u64 {
        mix(mix(self.seed ^ ((about as u64) << 56)) ^ number)
    }

    fn is_fair(&self) -> bool {
        self.epoch % FAIR == FAIR - 1
    }

    fn epoch_length(&self, parties: usize) -> u64 {
        if self.is_fair() {
            return (parties as u64).max(1);
        }
        let n = self.decide(About::Length, self.epoch);
        // As often as not ranks change soon, so that one is in the middle of another.
        let most = match n % 4 {
            0 => EPOCH,
            1 => EPOCH / 4,
            _ => EPOCH / 16,
        };
        (n >> 8) % most + 1
    }

    /// The rank of `party`, number `index` of `parties`, in the next step: higher goes first.
    /// None is as high as `u64::MAX`.
    pub(super) fn rank(&self, party: Party, index: usize, parties: usize) -> u64 {
        if self.is_fair() {
            // From another one on in each step, round and round.
            let (index, first) = (index as u64, self.done);
            let behind = index.checked_sub(first);
            return u64::MAX - 1 - behind.unwrap_or(index + parties as u64);
        }
        mix(self.decide(About::Rank, self.epoch) ^ party.number()) >> 1
    }

    /// Methods of UVM's that the next step has at most.
    pub(super) fn methods(&self) -> u64 {
        self.some(About::Methods, LONG)
    }

    /// Instructions of a kernel that the next step has at most.
    pub(super) fn instructions(&self) -> u32 {
        self.some(About::Instructions, MOST_INSTRUCTIONS) as u32
    }

    /// One as often as not, else a few, or `most`.
    fn some(&self, about: About, most: u64) -> u64 {
        let n = self.decide(about, self.steps);
        match n % 8 {
            0..=3 => 1,
            4..=6 => (n >> 8) % 8 + 2,
            _ => most,
        }
    }

    /// Counts a step in which somebody went on; true if the epoch ended with it.
    pub(super) fn stepped(&mut self, parties: usize) -> bool {
        self.steps += 1;
        self.done += 1;
        if self.done < self.length {
            return false;
        }
        self.epoch += 1;
        self.done = 0;
        self.length = self.epoch_length(parties);
        true
    }
}

#[cfg(test)]
mod tests;
