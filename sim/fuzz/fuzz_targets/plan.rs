// SPDX-License-Identifier: GPL-2.0 OR MIT

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
use uvmsim_trace::Trace;

/// Four kernels over six tensors, of which memory holds about half.
const STEP: &str = "uvmtrace 1
meta name fuzz
tensor 0 input 8388608
tensor 1 weight 8388608
tensor 2 activation 16777216
tensor 3 activation 16777216
tensor 4 gradient 8388608
tensor 5 workspace 4194304
kernel 0 100000 a 0,1 2 -
kernel 1 100000 b 2 3 5
kernel 2 100000 c 2,3 4 -
kernel 3 100000 d 1,4 1 -
";

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
