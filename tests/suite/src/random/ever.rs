// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What each word of an area ever held, for reads after a discard: they may give
//! any older value.

/// Bits for each word; with a few values per word, one in thousands of unknown
/// values is taken for a known one, and never the same one in every run.
const BITS_PER_WORD: usize = 32;

/// A Bloom filter of the pairs (word, value) that the program has written.
#[derive(Debug)]
pub struct Ever {
    bits: Vec<u64>,
}

impl Ever {
    pub(super) fn new(words: usize) -> Self {
        Self {
            bits: vec![0; (words * BITS_PER_WORD).div_ceil(64)],
        }
    }

    fn places(&self, word: usize, value: u64) -> [(usize, u64); 3] {
        // The finalizer of SplitMix64.
        let mut hash = value ^ (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        std::array::from_fn(|_| {
            hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
            hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            hash ^= hash >> 31;
            let bit = (hash % (self.bits.len() as u64 * 64)) as usize;
            (bit / 64, 1 << (bit % 64))
        })
    }

    pub(super) fn add(&mut self, word: usize, value: u64) {
        for (at, bit) in self.places(word, value) {
            self.bits[at] |= bit;
        }
    }

    /// False if the word never held that.
    pub(super) fn held(&self, word: usize, value: u64) -> bool {
        self.places(word, value)
            .iter()
            .all(|&(at, bit)| self.bits[at] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_is_known_and_little_else() {
        let mut ever = Ever::new(1000);
        (0..1000).for_each(|word| (0..3).for_each(|k| ever.add(word, k * 77 + word as u64)));
        assert!((0..1000).all(|word| (0..3).all(|k| ever.held(word, k * 77 + word as u64))));
        let wrong = (0..1000)
            .filter(|&word| ever.held(word, 0xdead_0000))
            .count();
        assert!(
            wrong < 50,
            "{wrong} of 1000 unknown values were taken for known"
        );
    }
}
