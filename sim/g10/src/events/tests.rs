// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Batches done at once against batches done one by one.

use proptest::prelude::*;
use uvmsim_trace::testing::chain;
use uvmsim_trace::Trace;

use super::super::plan;
use super::super::plan::Hint;
use super::super::plan::Target;
use super::super::view::View;
use super::super::Machine;
use super::super::Outcome;
use super::super::RunError;
use super::Mode;
use super::Sim;

fn outcome(sim: Sim<'_>) -> Result<(Outcome, usize), RunError> {
    let mut sim = sim;
    sim.run()?;
    sim.pages.check().map_err(RunError::Internal)?;
    let braids = sim.pages.braids();
    Ok((sim.outcome(), braids))
}

/// Both ways, compared; returns the braids that were made.
fn both(trace: &Trace, machine: &Machine, mode: Mode, hints: &[Hint]) -> usize {
    let view = View::new(trace, machine).unwrap();
    let sim = || Sim::new(&view, machine, mode, hints.to_vec());
    let one_by_one = Sim {
        at_once: false,
        ..sim()
    };
    match (outcome(sim()), outcome(one_by_one)) {
        (Ok((a, braids)), Ok((b, _))) => {
            assert_eq!(a.records, b.records);
            assert_eq!(a.step_cycles, b.step_cycles);
            assert_eq!(a.kernel_cycles, b.kernel_cycles);
            assert_eq!((a.traffic, a.faults), (b.traffic, b.faults));
            braids
        }
        (Err(a), Err(b)) => {
            assert_eq!(a, b);
            0
        }
        (a, b) => panic!("{:?}, one by one {:?}", a.is_ok(), b.is_ok()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn batches_at_once_are_batches_one_by_one(
        layers in prop::collection::vec((1u64..24 << 20, 1u64..8 << 20, 1_000u64..9_000_000), 2..10),
        moves in prop::collection::vec((0usize..20, 0usize..20, 0u32..3), 0..60),
        gpu_mib in 70u32..220,
        host_mib in 0u32..300,
    ) {
        let trace = chain(&layers);
        let machine = Machine::of_mib(gpu_mib, host_mib);
        let Ok(view) = View::new(&trace, &machine) else {
            return Ok(());
        };
        let mut hints: Vec<Hint> = moves
            .iter()
            .map(|&(k, t, to)| {
                let to = [Target::Ssd, Target::Host, Target::Gpu][to as usize];
                Hint::new(k % view.kernels.len(), (t % view.tensors.len()) as u32, to)
            })
            .collect();
        hints.sort_by_key(|h| h.kernel);
        let hints = plan::with_lifetimes(&view, hints);
        both(&trace, &machine, Mode::Lru, &hints);
        both(&trace, &machine, Mode::Lru, &[]);
        both(&trace, &machine, Mode::DeepUm, &plan::look_ahead(&view, 4));
    }
}

/// Two tensors come back together, one from each place, with room for both at first;
/// in the smaller memories they become victims later.
#[test]
fn tensors_that_come_back_by_turns_are_a_braid() {
    let mib = 1 << 20;
    let trace = chain(&[(20 * mib, 7 * mib, 9_000_000); 6]);
    // Activations are 2, 4, 6 and so on; kernels 2 to 4 use neither 2 nor 4.
    let moves = vec![
        Hint::new(2, 2, Target::Ssd),
        Hint::new(2, 4, Target::Host),
        Hint::new(4, 2, Target::Gpu),
        Hint::new(4, 4, Target::Gpu),
    ];
    for gpu_mib in [90, 100, 110, 120] {
        let machine = Machine::of_mib(gpu_mib, 128 << 10);
        let view = View::new(&trace, &machine).unwrap();
        let hints = plan::with_lifetimes(&view, moves.clone());
        let braids = both(&trace, &machine, Mode::Lru, &hints);
        assert!(braids > 0, "{gpu_mib} MiB: no braid was made");
    }
}
