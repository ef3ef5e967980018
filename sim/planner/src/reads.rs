// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the ways into GPU memory can still carry during each kernel.

use alloc::vec::Vec;

use super::{duration, Machine, Tier};

/// A read that must begin so many kernels before its use is not worth it.
const FARTHEST: usize = 4096;

/// Bookings of the way in, by kernel, over all laps of the walk.
pub(super) struct Reads {
    /// Nanoseconds that the link, and the SSD, are not booked.
    link: Vec<u64>,
    ssd: Vec<u64>,
    link_ps: u64,
    /// As planned with, which may be slower than the SSD is.
    ssd_ps: u64,
}

impl Reads {
    /// Ways free during kernels of these durations, lap after lap.
    ///
    /// `share`: the share of the SSD's rate to plan with, in thousandths.
    pub fn new(machine: &Machine, share: u64, laps: usize, ns: &[u64]) -> Self {
        Self {
            link: ns.repeat(laps),
            ssd: ns.repeat(laps),
            link_ps: machine.link_in,
            ssd_ps: machine.ssd_in * 1000 / share.max(1),
        }
    }

    /// During kernel `at`, the way in has `ns` more than was thought.
    pub fn lengthen(&mut self, at: usize, ns: u64) {
        for way in [&mut self.link, &mut self.ssd] {
            if let Some(left) = way.get_mut(at) {
                *left += ns;
            }
        }
    }

    /// What a read occupies, of its way.
    fn need(&self, pages: u64, tier: Tier) -> u64 {
        match tier {
            Tier::Host => duration(pages, self.link_ps),
            Tier::Ssd => duration(pages, self.ssd_ps),
        }
    }

    /// The time that is left for reads from `tier` during kernel `at`.
    fn left(&self, at: usize, tier: Tier) -> u64 {
        match tier {
            Tier::Host => self.link[at],
            // The SSD's bytes cross the link as well.
            Tier::Ssd => {
                let pages = self.link[at].saturating_mul(1000) / self.link_ps.max(1);
                self.ssd[at].min(duration(pages, self.ssd_ps))
            }
        }
    }

    /// The latest kernel, from `from` on, at whose start the read of `pages` must
    /// begin to be done before `next`; `None` if there is none.
    pub fn latest(&self, from: usize, next: usize, pages: u64, tier: Tier) -> Option<usize> {
        let mut rest = self.need(pages, tier);
        let mut at = next.min(self.link.len());
        let from = from.max(at.saturating_sub(FARTHEST));
        while rest > 0 {
            if at <= from {
                return None;
            }
            at -= 1;
            rest = rest.saturating_sub(self.left(at, tier));
        }
        Some(at)
    }

    /// Books the read of `pages` that must be done before `next`, as late as it can
    /// be, but not before `from`.
    pub fn book(&mut self, from: usize, next: usize, pages: u64, tier: Tier) {
        let mut rest = self.need(pages, tier);
        let mut at = next.min(self.link.len());
        while rest > 0 && at > from {
            at -= 1;
            let part = rest.min(self.left(at, tier));
            rest -= part;
            match tier {
                Tier::Host => self.link[at] -= part,
                Tier::Ssd => {
                    self.ssd[at] -= part;
                    let link = part.saturating_mul(self.link_ps) / self.ssd_ps.max(1);
                    self.link[at] = self.link[at].saturating_sub(link);
                }
            }
        }
    }
}
