// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whatever trace is taken runs under every policy of both models, or fails with an
//! error that is not the simulator's own.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uvmsim_g10 as g10;
use uvmsim_machine::Machine;
use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::RunError;
use uvmsim_physical::Workload;
use uvmsim_trace::Trace;

/// Larger steps only take longer.
const MOST_BYTES: u64 = 1 << 30;
const MOST_KERNELS: usize = 48;
const MOST_NS: u64 = 10_000_000_000;

fn physical(trace: &Trace, machine: &Machine) {
    let w = Workload::from_trace(trace);
    let l = Layout::new(&w);
    let limits = Limits {
        give_up: 1_000_000_000_000,
        ..Limits::default()
    };
    for name in policies::NAMES.iter().filter(|n| **n != "best") {
        let Ok(mut policy) = policies::make(name, machine, &w, &l) else {
            continue;
        };
        match uvmsim_physical::run(machine, &w, &l, policy.as_mut(), limits) {
            Err(e @ (RunError::Lost { .. } | RunError::Accounts { .. })) => panic!("{name}: {e}"),
            Err(e @ RunError::ReadDead { .. }) => panic!("{name}: {e}"),
            Ok(o) if *name != "ideal" => assert!(
                o.step_ns >= uvmsim_physical::bound_ns(machine, &w),
                "{name}: faster than the bound"
            ),
            _ => {}
        }
    }
}

fuzz_target!(|text: &str| {
    let Ok(trace) = text.parse::<Trace>() else {
        return;
    };
    let bytes: u64 = trace.tensors.iter().map(|t| t.bytes).sum();
    if bytes > MOST_BYTES || trace.kernels.len() > MOST_KERNELS || trace.ideal_ns() > MOST_NS {
        return;
    }
    let mut machine = uvmsim_machine::presets::find("a100").expect("a preset");
    machine.gpu_mem = 48 << 20;
    machine.host_mem = 64 << 20;
    physical(&trace, &machine);
    let machine = g10::Machine::of_mib(48, 64);
    // `best` runs several plans of the kinds that the others make: too slow here.
    for policy in g10::Policy::ALL
        .into_iter()
        .filter(|p| *p != g10::Policy::Best)
    {
        if let Err(e @ g10::RunError::Internal(_)) = g10::run(&trace, policy, &machine) {
            panic!("{policy}: {e}");
        }
    }
});
