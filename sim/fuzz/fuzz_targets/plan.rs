// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! No plan makes the parser panic; what it takes, it writes in a form that it reads
//! as the same, and the plan runs, or fails with an error.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use uvmsim_machine::Machine;
use uvmsim_physical::plan::Plan;
use uvmsim_physical::policies::Planned;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::RunError;
use uvmsim_physical::Tier;
use uvmsim_physical::Workload;
use uvmsim_trace::testing::STEP;
use uvmsim_trace::Trace;

/// A machine whose memory holds about half of the step.
static SETTING: LazyLock<(Machine, Workload, Layout)> = LazyLock::new(|| {
    let mut machine = uvmsim_machine::presets::find("a100").expect("a preset");
    machine.gpu_mem = 36 << 20;
    let trace: Trace = STEP.parse().expect("a trace");
    let w = Workload::from_trace(&trace);
    let l = Layout::new(&w);
    (machine, w, l)
});

fuzz_target!(|text: &str| {
    let (machine, w, l) = &*SETTING;
    let Ok(plan) = Plan::parse(text, w, l) else {
        return;
    };
    let again = Plan::parse(&plan.text(w, l), w, l).expect("what was written is read");
    assert_eq!(again.text(w, l), plan.text(w, l));
    let mut policy = Planned::new("plan", plan, Tier::Host);
    let limits = Limits {
        give_up: 1_000_000_000_000,
        ..Limits::default()
    };
    match uvmsim_physical::run(machine, w, l, &mut policy, limits) {
        Err(e @ (RunError::Lost { .. } | RunError::Accounts { .. })) => panic!("{e}"),
        _ => {}
    }
});
