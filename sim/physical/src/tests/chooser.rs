// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The chooser against each policy that can be set for all of a run.

use super::*;
use crate::patterns;
use crate::patterns::Brings;
use crate::patterns::Fixed;
use crate::patterns::Pattern;
use crate::patterns::FIXED;
use crate::patterns::PATTERNS;

/// How often the time of the chooser is that of the fastest of some settings.
fn times_the_best(chooser: u64, fixed: &[u64], among: impl Fn(&Fixed) -> bool) -> f64 {
    let settings = FIXED.iter().zip(fixed);
    let best = settings.filter(|(f, _)| among(f)).map(|(_, ns)| ns).min();
    chooser as f64 / *best.unwrap() as f64
}

/// The bar: within a tenth of the best setting that evicts as the chooser's driver does, the oldest first, for each
/// pattern; and ahead of each setting over all of them. A program that announces no kernels has no prefetcher, so that
/// its bar is the best setting without. Where the newest goes first, `to-and-fro` is faster than the chooser.
///
/// On the smaller GPU, a kernel of `sparse` reads more blocks than there is room for, and the prefetcher has less room.
#[test]
fn the_chooser_is_near_the_best_for_each_pattern_and_ahead_of_all_over_the_set() {
    for (gpu_mib, seed) in [(128, 1), (96, 2)] {
        let (mut sums, mut of_chooser) = ([0.0; FIXED.len()], 0.0);
        for &(name, _) in PATTERNS {
            let machine = machine(gpu_mib);
            let pattern = Pattern::new(name, machine.chunks(), seed).unwrap();
            let fixed = FIXED.map(|f| patterns::under(f, &machine, &pattern).unwrap().step_ns);
            let [announces, silent] = [true, false].map(|announces| {
                let outcome = patterns::under_chooser(&machine, &pattern, announces);
                outcome.unwrap().step_ns
            });
            let of_lru = times_the_best(announces, &fixed, |f| f.evict == "lru");
            let of_all = times_the_best(announces, &fixed, |_| true);
            let of_silent = times_the_best(silent, &fixed, |f| {
                f.evict == "lru" && f.brings != Brings::DeepUm
            });
            println!(
                "{gpu_mib} MiB, seed {seed}, {name}: {of_lru:.3} of lru, {of_all:.3} of all; silent {of_silent:.3}"
            );
            assert!(of_lru <= 1.1 && of_silent <= 1.1, "{name}");
            assert!(of_all <= 1.15, "{name}: {of_all}");
            let best = *fixed.iter().min().unwrap() as f64;
            for (sum, ns) in sums.iter_mut().zip(fixed) {
                *sum += ns as f64 / best;
            }
            of_chooser += announces as f64 / best;
        }
        println!("{sums:?}, chooser {of_chooser}");
        assert!(sums.iter().all(|&fixed| fixed > of_chooser), "{sums:?}");
    }
}
