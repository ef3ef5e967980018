// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the search tries where memory is so short that copies do not hide behind kernels.

use uvmsim_g10::Design;
use uvmsim_machine::Machine;

use super::Search;
use super::FAIR;
use super::FILL;
use super::OTHER_FILLS;
use super::ROUNDS;
use crate::plan::g10;
use crate::plan::greedy;
use crate::plan::queued;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::plan::What;
use crate::workload::Kernel;
use crate::Workload;

/// Factors on the links' rates under which G10's refined way is tried.
const RATES: [f64; 1] = [1.25];
/// Kernels ahead to ask for memory, where a copy takes as long as many of them.
const AHEAD: [u32; 4] = [4, 16, 64, 256];
/// A tensor that was not used for so many times as many kernels may have gone.
const LONG: usize = 8;

impl Search<'_> {
    /// What is tried where memory is short; the best plan that the search made by itself takes `own`.
    pub(super) fn go_on(&mut self, own: u64) {
        if !self.is_within(FAIR) {
            self.queue();
        }
        if self.best_ns() < own || !self.is_within(FAIR) {
            self.refine();
            self.again();
        }
        if !self.is_within(FAIR) {
            self.early();
        }
    }

    /// Plans that leave it to the queues when what moves.
    fn queue(&mut self) {
        for fill in [1.0, FILL] {
            for ahead in [0, 1] {
                let profile = Profile::new(self.machine, self.workload, self.layout, fill, ahead);
                for all in [false, true] {
                    self.consider(queued::plan(&profile, all));
                }
            }
        }
    }

    /// The papers' algorithms, under the times that their plans have shown.
    fn refine(&mut self) {
        let ideal = self.workload.kernels.iter().map(|k| k.ns).collect();
        self.climb(ideal, FILL, 1);
        if let Some(times) = updating_slowly(self.machine, self.workload) {
            self.climb(times, FILL, 1);
        }
        if let Some((out, plan)) = self.best.clone() {
            // Where memory is very short, outputs have room only when their kernel starts.
            self.consider(Plan {
                allocate_ahead: Some(0),
                ..plan
            });
            self.climb(out.kernel_ns, FILL, 0);
        }
        for fill in OTHER_FILLS {
            if let Some((out, plan)) = self.best.clone() {
                self.climb(out.kernel_ns, fill, plan.allocate_ahead.unwrap_or(1));
            }
        }
    }

    /// Plans for `times`, then for those of the best run, while that helps.
    fn climb(&mut self, mut times: Vec<u64>, fill: f64, ahead: u32) {
        for _ in 0..2 * ROUNDS {
            let profile = Profile::new(self.machine, self.workload, self.layout, fill, ahead)
                .with_times(&times);
            let before = self.best_ns();
            for (eager, excess_only) in [(true, true), (true, false), (false, true)] {
                let options = greedy::Options {
                    eager,
                    excess_only,
                    ..greedy::Options::default()
                };
                self.consider(greedy::plan(&profile, options));
            }
            for rate in RATES {
                self.consider_g10(&profile, rate);
            }
            match &self.best {
                Some((out, _)) if self.best_ns() < before - before / 500 => {
                    times.clone_from(&out.kernel_ns);
                }
                _ => break,
            }
        }
    }

    /// Kernels so short that a copy takes as long as many of them (an RNN's): memory is
    /// asked for many kernels ahead, so that UVM's own evictions come before their turn,
    /// and so is what UVM may have evicted, whatever the plan thought.
    fn early(&mut self) {
        let Some((_, plan)) = self.best.clone() else {
            return;
        };
        for ahead in AHEAD {
            let mut plan = Plan {
                allocate_ahead: Some(ahead),
                ..plan.clone()
            };
            self.consider(plan.clone());
            ask(&mut plan, self.workload, ahead as usize);
            self.consider(plan);
        }
    }

    /// G10's refined plan, if there is one.
    fn consider_g10(&mut self, profile: &Profile<'_>, rate: f64) {
        match g10::plan(profile, self.machine.host_mem > 0, Design::Refined(rate)) {
            Ok(plan) => self.consider(plan),
            Err(e) => self.error = e,
        }
    }
}

/// Adds a request for each tensor, `ahead` kernels before it is used again after many.
fn ask(plan: &mut Plan, workload: &Workload, ahead: usize) {
    for (t, tensor) in workload.tensors.iter().enumerate() {
        for pair in tensor.uses.windows(2) {
            let (from, to) = (pair[0].0 as usize, pair[1].0 as usize);
            if to - from > LONG * ahead {
                plan.before[to - ahead].push((What::Prefetch, t as u32));
            }
        }
    }
}

/// Times in which the kernels that write lasting tensors (the optimizer's) take as
/// long as it takes to move a share of these: enough of them to make the rest fit.
///
/// States are used once a step, so they are the best to keep elsewhere; but where
/// they all come and go, no time of the ideal step is long enough for it.
fn updating_slowly(machine: &Machine, workload: &Workload) -> Option<Vec<u64>> {
    let bytes = |k: &Kernel| -> u64 {
        let written = k.uses.iter().filter(|u| u.write);
        let tensors = written.map(|u| &workload.tensors[u.tensor as usize]);
        tensors.filter(|t| t.lasting).map(|t| t.bytes).sum()
    };
    let all: u64 = workload.kernels.iter().map(bytes).sum();
    let peak = workload.peak_bytes();
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
