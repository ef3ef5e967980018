// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whether a GPU's memory is short, so that a discard saves a copy. Where all fits, nothing is
//! evicted, and a discard would cost its call in the stream, and a prefetch, for nothing.
//!
//! Memory is short if the blocks that may hold data are more than the GPU has for this
//! process, the budget; or if next to nothing is free on it, as when others use it too.
//!
//! The budget is what was free when the first memory was had, but for a sixteenth, which is
//! left for what CUDA's libraries and others take later; or the fraction of the GPU that the
//! program names (`torch.cuda.set_per_process_memory_fraction`). If CUDA does not tell how much
//! is free, memory counts as short.

/// Of what was free at first, the part that is not counted on: one in so many.
const RESERVE: u64 = 16;

/// The GPU is full when less is free than one part in so many of all its memory.
const FULL: u64 = 64;

/// What becomes free so often is a reason to ask how much is free on the GPU: the call takes
/// no turn in a stream, but goes to the driver.
const EVERY: u32 = 64;

/// What is known of a GPU's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    /// Free at first, and all, in bytes.
    first: Option<(u64, u64)>,
    fraction: Option<f64>,
    /// Next to nothing was free when CUDA was asked last.
    full: bool,
    frees: u32,
}

impl Pressure {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            fraction: None,
            full: false,
            frees: 0,
        }
    }

    /// CUDA says that so much is free, of so much.
    pub(crate) fn sample(&mut self, free: u64, total: u64) {
        self.first.get_or_insert((free, total));
        self.full = free < total / FULL;
        self.frees = 0;
    }

    /// Counts a free; `true` if CUDA is to be asked.
    pub(crate) fn freed(&mut self) -> bool {
        self.frees += 1;
        self.frees >= EVERY
    }

    /// The program wants no more than this part of the GPU, from 0 to 1.
    pub(crate) fn set_fraction(&mut self, fraction: f64) {
        self.fraction = (fraction.is_finite() && fraction >= 0.0).then_some(fraction);
    }

    /// Bytes for this process on the GPU, if that is known.
    pub(crate) fn budget(&self) -> Option<u64> {
        let (free, total) = self.first?;
        let usual = free - free / RESERVE;
        let named = self.fraction.map(|part| (total as f64 * part) as u64);
        Some(named.map_or(usual, |named| named.min(usual)))
    }

    /// Whether memory is short when so many bytes may hold data.
    pub(crate) fn is_short(&self, live: u64) -> bool {
        self.full || self.budget().is_none_or(|budget| live > budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1 << 30;

    #[test]
    fn all_fits_until_the_budget_is_used_or_the_gpu_full() {
        let mut p = Pressure::new();
        assert!(p.is_short(0), "nothing is known");
        p.sample(16 * G, 24 * G);
        assert_eq!(p.budget(), Some(15 * G));
        assert!(!p.is_short(15 * G) && p.is_short(15 * G + 1));
        // Later samples do not change it: much of what is used then is ours.
        p.sample(2 * G, 24 * G);
        assert!(!p.is_short(15 * G));
        p.sample(G / 4, 24 * G);
        assert!(p.is_short(0));
        p.sample(G, 24 * G);
        assert!(!p.is_short(0));
    }

    #[test]
    fn a_fraction_makes_the_budget_smaller() {
        let mut p = Pressure::new();
        p.sample(16 * G, 24 * G);
        p.set_fraction(0.5);
        assert_eq!(p.budget(), Some(12 * G));
        p.set_fraction(1.0);
        assert_eq!(p.budget(), Some(15 * G));
        p.set_fraction(f64::NAN);
        assert_eq!(p.budget(), Some(15 * G));
    }

    #[test]
    fn cuda_is_asked_now_and_then() {
        let mut p = Pressure::new();
        let asked = |p: &mut Pressure| (0..EVERY).filter(|_| p.freed()).count();
        assert_eq!(asked(&mut p), 1);
        p.sample(G, G);
        assert_eq!(asked(&mut p), 1);
    }
}
