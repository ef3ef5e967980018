// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Belady's rule: the block goes whose next access is farthest away. No policy has fewer misses (L. A. Belady, A study of
//! replacement algorithms for a virtual-storage computer, 1966). Nothing of the driver's is used here.

use std::collections::BTreeSet;
use std::collections::HashMap;

/// How many of `accesses` miss on a GPU of `chunks` chunks, which is empty at first.
pub fn misses(accesses: &[u64], chunks: u32) -> u64 {
    let mut next = vec![usize::MAX; accesses.len()];
    let mut later = HashMap::new();
    for (at, &block) in accesses.iter().enumerate().rev() {
        next[at] = later.insert(block, at).unwrap_or(usize::MAX);
    }
    // What is there, by its next access.
    let mut there: BTreeSet<(usize, u64)> = BTreeSet::new();
    let mut misses = 0;
    for (at, &block) in accesses.iter().enumerate() {
        if !there.remove(&(at, block)) {
            misses += 1;
            if there.len() >= chunks as usize {
                there.pop_last();
            }
        }
        there.insert((next[at], block));
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The fewest misses, by trying all evictions.
    fn by_trying(accesses: &[u64], chunks: usize, there: &[u64]) -> u64 {
        let Some((block, rest)) = accesses.split_first() else {
            return 0;
        };
        if there.contains(block) {
            return by_trying(rest, chunks, there);
        }
        let with = |there: &[u64]| {
            let there = [there, &[*block]].concat();
            1 + by_trying(rest, chunks, &there)
        };
        if there.len() < chunks {
            return with(there);
        }
        let without = (0..there.len()).map(|i| {
            let mut left = there.to_vec();
            left.remove(i);
            with(&left)
        });
        without.min().unwrap_or(u64::MAX)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn nobody_misses_less(accesses in proptest::collection::vec(0..5u64, 0..10), chunks in 1..4u32) {
            prop_assert_eq!(misses(&accesses, chunks), by_trying(&accesses, chunks as usize, &[]));
        }
    }
}
