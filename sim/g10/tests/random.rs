// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Random traces under every policy. In debug builds the engine recounts all pages
//! at every kernel and checks memories and links against their limits.

use proptest::prelude::*;
use uvmsim_g10 as g10;
use uvmsim_g10::Machine;
use uvmsim_g10::Policy;
use uvmsim_trace::testing;
use uvmsim_trace::Trace;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_keeps_the_rules(
        layers in prop::collection::vec((1u64..40 << 20, 1u64..8 << 20, 1_000u64..40_000_000), 1..14),
        gpu_mib in 100u32..400,
        host_mib in 0u32..300,
    ) {
        let trace = testing::chain(&layers);
        trace.validate().unwrap();
        let machine = Machine::of_mib(gpu_mib, host_mib);
        for policy in Policy::ALL {
            let first = g10::run(&trace, policy, &machine);
            match (&first, g10::run(&trace, policy, &machine)) {
                (Ok(a), Ok(b)) => {
                    prop_assert_eq!(a.step_cycles, b.step_cycles, "{} is not deterministic", policy);
                    prop_assert_eq!(a.traffic, b.traffic);
                    // The designs without UVM print six digits of their time.
                    prop_assert!(a.step_cycles as f64 >= a.ideal_cycles as f64 * 0.99999);
                }
                (Err(a), Err(b)) => {
                    prop_assert_eq!(a, &b);
                    prop_assert!(!matches!(a, g10::RunError::Internal(_)), "{}: {}", policy, a);
                }
                (a, b) => prop_assert!(false, "{}: {:?} then {:?}", policy, a, b),
            }
        }
    }
}

/// Found by fuzzing: all of G10's hints are for one kernel of two, and were carried
/// out again each time that its faults had been served, so that it never began.
#[test]
fn hints_that_are_all_for_one_kernel_end() {
    let text = "uvmtrace 1
tensor 0 input 8388608
tensor 1 weight 8388608
tensor 2 activation 16777216
tensor 3 activation 16777216
tensor 4 gradient 8388608
tensor 5 workspace 4194304
kernel 0 100000 a 0,1 2 -
kernel 1 100000 b 2 3 5
";
    let trace: Trace = text.parse().unwrap();
    let machine = Machine::of_mib(48, 64);
    for policy in Policy::ALL {
        if let Err(e) = g10::run(&trace, policy, &machine) {
            assert!(!matches!(e, g10::RunError::Internal(_)), "{policy}: {e}");
        }
    }
}
