// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Our own planner: several plans, each run in virtual time, the fastest kept.
//!
//! The plans differ in how they weigh and when they prefetch. All prefer the host
//! to the SSD, and count a clean copy as free to drop. A plan made for the ideal
//! times of the kernels counts on too little time for its copies where stalls
//! cannot be avoided; so the planner plans again with the times that the best
//! plan so far has shown, while that helps.

use uvmsim_machine::Machine;

use crate::plan::g10;
use crate::plan::most;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::policies::Planned;
use crate::run::run;
use crate::Layout;
use crate::Limits;
use crate::Outcome;
use crate::RunError;
use crate::Workload;

/// Rounds of planning with the times of the last.
const ROUNDS: usize = 6;

/// The plan that ran fastest.
///
/// # Errors
/// No plan could be run; the error is that of the last.
pub fn plan(machine: &Machine, workload: &Workload, layout: &Layout) -> Result<Plan, RunError> {
    let mut search = Search {
        machine,
        workload,
        layout,
        best: None,
        error: RunError::TooLong,
    };
    let mut times: Vec<u64> = workload.kernels.iter().map(|k| k.ns).collect();
    for round in 0..ROUNDS {
        let profile = Profile::new(machine, workload, layout, FILL).with_times(&times);
        let before = search.best_ns();
        if round == 0 {
            search.consider(most::plan(&profile, machine.host_mem > 0));
            let paper = g10::Options {
                host: machine.host_mem > 0,
                ..g10::Options::paper()
            };
            search.consider(g10::plan(&profile, paper));
        }
        for (eager, excess_only) in [(true, true), (true, false), (false, true)] {
            search.consider(g10::plan(&profile, options(machine, eager, excess_only)));
        }
        match &search.best {
            Some((out, _)) if search.best_ns() < before - before / 500 => {
                times.clone_from(&out.kernel_ns)
            }
            _ => break,
        }
    }
    search.best.map(|(_, plan)| plan).ok_or(search.error)
}

/// Share of GPU memory to fill.
const FILL: f64 = 0.97;

fn options(machine: &Machine, eager: bool, excess_only: bool) -> g10::Options {
    g10::Options {
        host: machine.host_mem > 0,
        ssd: machine.ssd_write > 0.0,
        host_first: true,
        eager,
        excess_only,
        link_share: 1.0,
    }
}

struct Search<'a> {
    machine: &'a Machine,
    workload: &'a Workload,
    layout: &'a Layout,
    best: Option<(Outcome, Plan)>,
    error: RunError,
}

impl Search<'_> {
    fn best_ns(&self) -> u64 {
        self.best.as_ref().map_or(u64::MAX, |(out, _)| out.step_ns)
    }

    /// Runs `plan` and keeps it if it is the fastest.
    fn consider(&mut self, plan: Plan) {
        let give_up = self
            .best_ns()
            .saturating_mul(6)
            .min(Limits::default().give_up);
        let limits = Limits {
            give_up,
            ..Limits::default()
        };
        let mut policy = Planned::ours(plan.clone());
        match run(
            self.machine,
            self.workload,
            self.layout,
            &mut policy,
            limits,
        ) {
            Ok(out) if out.step_ns < self.best_ns() => self.best = Some((out, plan)),
            Ok(_) => {}
            Err(e) => self.error = e,
        }
    }
}
