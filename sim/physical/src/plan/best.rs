// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Our own planner: several plans, each run in virtual time, the fastest kept.
//!
//! The plans differ in how full they fill memory, how much of the links they
//! count on and when they prefetch. All count only what is over capacity, prefer
//! the host to the SSD, and count a clean copy as free to drop. What the
//! estimate cannot see (va_blocks shared by tensors, queues, zeroing) the machine
//! does, so the choice is made by it, with one warm-up step.

use uvmsim_machine::Machine;

use crate::plan::g10;
use crate::plan::most;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::policies::Planned;
use crate::run::run;
use crate::Layout;
use crate::Limits;
use crate::RunError;
use crate::Workload;

/// The plan that ran fastest.
///
/// # Errors
/// No plan could be run; the error is that of the last.
pub fn plan(machine: &Machine, workload: &Workload, layout: &Layout) -> Result<Plan, RunError> {
    let mut best: Option<(u64, Plan)> = None;
    let mut error = RunError::TooLong;
    let mut give_up = Limits::default().give_up;
    let mut seen: Vec<Plan> = Vec::new();
    for plan in candidates(machine, workload, layout) {
        if seen.contains(&plan) {
            continue;
        }
        seen.push(plan.clone());
        let mut policy = Planned::ours(plan.clone());
        let limits = Limits {
            warm_up: 1,
            bins: 0,
            give_up,
        };
        match run(machine, workload, layout, &mut policy, limits) {
            Ok(out) if best.as_ref().is_none_or(|(ns, _)| out.step_ns < *ns) => {
                // Nothing over twice the best so far is of interest.
                give_up = out.step_ns * 6;
                best = Some((out.step_ns, plan));
            }
            Ok(_) => {}
            Err(e) => error = e,
        }
    }
    best.map(|(_, plan)| plan).ok_or(error)
}

fn candidates(machine: &Machine, workload: &Workload, layout: &Layout) -> Vec<Plan> {
    let mut plans = Vec::new();
    for fill in [0.97, 0.92] {
        let profile = Profile::new(machine, workload, layout, fill);
        for link_share in [1.0, 0.85] {
            for eager in [true, false] {
                for excess_only in [true, false] {
                    let options = g10::Options {
                        host: machine.host_mem > 0,
                        ssd: true,
                        host_first: true,
                        eager,
                        excess_only,
                        link_share,
                    };
                    plans.push(g10::plan(&profile, options));
                }
            }
        }
        plans.push(most::plan(&profile, machine.host_mem > 0));
    }
    plans
}
