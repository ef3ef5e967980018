// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How long the model tests of several crates are, and from which seed, which can be had again.

use proptest::test_runner::{Config, RngSeed};
use std::hash::{BuildHasher, Hasher};

/// A configuration for a model test: `cases` runs (two under Miri), from a seed
/// that is printed when the test fails and that `UVM_TEST_SEED` sets. No more runs than
/// `UVM_TEST_CASES`, if that is set: for who runs the tests many times over, on changed code.
pub fn model(cases: u32) -> Config {
    let most = std::env::var("UVM_TEST_CASES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(cases);
    let seed = std::env::var("UVM_TEST_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
    std::eprintln!("UVM_TEST_SEED={seed}");
    Config {
        cases: cases.min(if cfg!(miri) { 2 } else { most }),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    }
}

/// The most steps of a random history: `n`, or a sixteenth of that under Miri, which
/// is a thousand times slower and looks for what one step does wrong.
pub const fn steps(n: usize) -> usize {
    if cfg!(miri) {
        n.div_ceil(16) + 1
    } else {
        n
    }
}
