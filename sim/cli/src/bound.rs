// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A lower bound of the step time in the g10 model: the physical model's argument for a
//! single step, with the rates of the artifact's machine.

use uvmsim_g10 as g10;
use uvmsim_physical::step_bound_ns;
use uvmsim_physical::Workload;
use uvmsim_trace::Trace;

use crate::g10::physical;

/// Seconds below which no step of `trace` can be on `m`, whatever the policy, as long as
/// it keeps to the GPU's size.
///
/// The g10 model allows one copy at a time, which only lengthens steps. Rates are rounded
/// up: a batch's pages in its truncated cycles, and an SSD in GiB/s, as FlashNeuron's.
pub fn seconds(trace: &Trace, m: &g10::Machine) -> f64 {
    let Ok(base) = physical(m) else {
        return 0.0;
    };
    let mut workload = Workload::from_trace(trace);
    for k in &mut workload.kernels {
        // Cycles are truncated.
        k.ns = k.ns.saturating_sub(1);
    }
    let (link, ssd) = (m.pcie_gbps * 1.001e9, m.ssd_gbps * (1u64 << 30) as f64);
    let machine = uvmsim_machine::Machine {
        pcie_h2d: link,
        pcie_d2h: link,
        ssd_read: ssd,
        ssd_write: ssd,
        ..base
    };
    step_bound_ns(&machine, &workload) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uvmsim_g10::Machine;
    use uvmsim_g10::Policy;
    use uvmsim_trace::testing::chain;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        /// No policy of the artifact is below it, nor is ours.
        #[test]
        fn nobody_is_faster(
            layers in prop::collection::vec((1u64 << 20..60 << 20, 1u64..8 << 20, 1_000u64..20_000_000), 2..14),
            gpu_mib in 150u32..400,
            host_mib in 0u32..600,
        ) {
            let trace = chain(&layers);
            let machine = Machine::of_mib(gpu_mib, host_mib);
            let bound = seconds(&trace, &machine);
            for policy in [Policy::BaseUvm, Policy::DeepUm, Policy::FlashNeuron, Policy::G10, Policy::Best] {
                if let Ok(o) = g10::run(&trace, policy, &machine) {
                    let step = o.step_cycles as f64 / g10::CYCLES_PER_SECOND as f64;
                    // FlashNeuron prints six digits.
                    prop_assert!(step >= bound * 0.99999, "{policy}: {step} < {bound}");
                }
            }
        }
    }

    #[test]
    fn it_says_something() {
        let trace = chain(&[(60 << 20, 4096, 1_000_000); 10]);
        let machine = Machine {
            gpu_gib: 0.25,
            ..Machine::default()
        };
        let ideal = trace.ideal_ns() as f64 / 1e9;
        let bound = seconds(&trace, &machine);
        assert!(bound > 1.5 * ideal, "{bound} {ideal}");
    }
}
