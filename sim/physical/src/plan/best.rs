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
const ROUNDS: usize = 14;

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
    let ideal: Vec<u64> = workload.kernels.iter().map(|k| k.ns).collect();
    let profile = Profile::new(machine, workload, layout, FILL, 1);
    search.consider(most::plan(&profile, machine.host_mem > 0));
    let paper = g10::Options {
        host: machine.host_mem > 0,
        ..g10::Options::paper()
    };
    search.consider(g10::plan(&profile, paper));
    search.climb(ideal, FILL, 1);
    if let Some(times) = updating_slowly(machine, workload) {
        search.climb(times, FILL, 1);
    }
    if let Some((out, plan)) = search.best.clone() {
        // Where memory is very short, outputs have room only when their kernel starts.
        search.consider(Plan {
            allocate_ahead: Some(0),
            ..plan
        });
        search.climb(out.kernel_ns, FILL, 0);
    }
    // How full memory can be planned depends on how tensors share va_blocks.
    for fill in OTHER_FILLS {
        if let Some((out, plan)) = search.best.clone() {
            search.climb(out.kernel_ns, fill, plan.allocate_ahead.unwrap_or(1));
        }
    }
    search.best.map(|(_, plan)| plan).ok_or(search.error)
}

/// Times in which the kernels that write lasting tensors (the optimizer's) take as
/// long as it takes to move a share of these: enough of them to make the rest fit.
///
/// States are used once a step, so they are the best to keep elsewhere; but where
/// they all come and go, no time of the ideal step is long enough for it.
fn updating_slowly(machine: &Machine, workload: &Workload) -> Option<Vec<u64>> {
    let bytes = |k: &crate::workload::Kernel| -> u64 {
        let tensors = k
            .uses
            .iter()
            .filter(|u| u.write)
            .map(|u| &workload.tensors[u.tensor as usize]);
        tensors.filter(|t| t.lasting).map(|t| t.bytes).sum()
    };
    let all: u64 = workload.kernels.iter().map(bytes).sum();
    let peak = workload.live_bytes().into_iter().max().unwrap_or(0);
    let excess = peak.saturating_sub(machine.gpu_mem);
    if excess == 0 || all == 0 {
        return None;
    }
    let share = (excess as f64 / all as f64).min(1.0);
    let mut rate = machine.pcie_h2d.min(machine.pcie_d2h);
    if machine.host_mem < excess {
        rate = rate.min(machine.ssd_read).min(machine.ssd_write);
    }
    let extra = |k| (bytes(k) as f64 * share / rate.max(1.0) * 1e9) as u64;
    Some(workload.kernels.iter().map(|k| k.ns + extra(k)).collect())
}

/// Share of GPU memory to fill.
const FILL: f64 = 0.97;
/// Others to try.
const OTHER_FILLS: [f64; 3] = [0.99, 0.94, 0.9];

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
    /// Plans for `times`, then for those of the best run, while that helps.
    fn climb(&mut self, mut times: Vec<u64>, fill: f64, ahead: u32) {
        for _ in 0..ROUNDS {
            let profile = Profile::new(self.machine, self.workload, self.layout, fill, ahead)
                .with_times(&times);
            let before = self.best_ns();
            for (eager, excess_only) in [(true, true), (true, false), (false, true)] {
                self.consider(g10::plan(
                    &profile,
                    options(self.machine, eager, excess_only),
                ));
            }
            match &self.best {
                Some((out, _)) if self.best_ns() < before - before / 500 => {
                    times.clone_from(&out.kernel_ns)
                }
                _ => break,
            }
        }
    }

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
            Ok(ref out)
                if {
                    if std::env::var("DBG").is_ok() {
                        eprintln!(
                            "{} {:?} ev {}",
                            out.step_ns as f64 / 1e9,
                            out.stalls,
                            plan.evictions()
                        );
                    }
                    false
                } => {}
            Ok(out) if out.step_ns < self.best_ns() => self.best = Some((out, plan)),
            Ok(_) => {}
            Err(e) => self.error = e,
        }
    }
}
