// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the tests share.

use proptest::test_runner::{Config, RngSeed};
use std::hash::{BuildHasher, Hasher};

/// A configuration for a model test: `cases` runs (few under Miri), from a seed
/// that is printed when the test fails and that `UVM_TEST_SEED` sets.
pub fn model(cases: u32) -> Config {
    let seed = std::env::var("UVM_TEST_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
    std::eprintln!("UVM_TEST_SEED={seed}");
    Config {
        cases: if cfg!(miri) {
            cases.div_ceil(256)
        } else {
            cases
        },
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    }
}
