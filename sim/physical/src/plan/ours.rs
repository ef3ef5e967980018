// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The planner (`sim/planner`) on the physical machine: a workload in its terms, and its
//! requests in ours.

use uvmsim_machine::Machine;
use uvmsim_machine::BLOCK;
use uvmsim_machine::PAGE;
use uvmsim_planner as planner;
use uvmsim_trace::Kind;

use crate::plan::profile::live_blocks;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::workload::Layout;
use crate::workload::Workload;

/// Pages of a va_block.
pub const PAGES: u64 = BLOCK / PAGE;

/// A workload as the planner sees it.
pub struct Step(planner::Step);

impl Step {
    /// `workload`, with memory asked for `ahead` kernels before a tensor's birth.
    pub fn new(workload: &Workload, layout: &Layout, ahead: u32) -> Self {
        let kernels = workload.kernels.len();
        let live = live_blocks(workload, layout, ahead, kernels, |k| k as usize);
        let tensors = workload.tensors.iter().enumerate().map(|(i, t)| {
            // What it shares va_blocks with may stay.
            planner::Tensor {
                pages: layout.whole_blocks(workload, i as u32) * PAGES,
                // The next step's inputs are others.
                lasting: t.lasting && t.kind != Kind::Input,
            }
        });
        let uses = workload.kernels.iter().enumerate().flat_map(|(k, kernel)| {
            kernel.uses.iter().map(move |u| planner::Use {
                kernel: k as u32,
                tensor: u.tensor,
                write: u.write,
            })
        });
        Self(planner::Step {
            kernel_ns: workload.kernels.iter().map(|k| k.ns).collect(),
            live: live.into_iter().map(|b| b / PAGE).collect(),
            tensors: tensors.collect(),
            uses: uses.collect(),
        })
    }

    /// The same step where kernels take these times.
    #[must_use]
    pub fn with_times(mut self, kernel_ns: Vec<u64>) -> Self {
        self.0.kernel_ns = kernel_ns;
        self
    }

    /// The same step where kernels need so many pages less.
    #[must_use]
    pub fn with_less(mut self, less: &[(usize, u64)]) -> Self {
        for &(k, pages) in less {
            self.0.live[k] = self.0.live[k].saturating_sub(pages);
        }
        self
    }

    /// Pages that each kernel needs where nothing is away.
    pub fn live(&self) -> &[u64] {
        &self.0.live
    }

    /// The plan for the step on `machine` with `fill` of its memory filled.
    ///
    /// # Errors
    /// Numbers out of the planner's range.
    pub fn plan(
        &self,
        machine: &Machine,
        fill: f64,
        tuning: planner::Tuning,
    ) -> Result<planner::Plan, planner::Error> {
        planner::plan(&self.0, &memories(machine, fill), tuning)
    }
}

/// The machine in the planner's terms.
fn memories(m: &Machine, fill: f64) -> planner::Machine {
    // Picoseconds a page, in copies of a va_block.
    let ps = |rate: f64, ns: u64| {
        let copy = BLOCK as f64 / rate.max(1.0) * 1e9 + ns as f64;
        (copy * 1000.0 / PAGES as f64) as u64
    };
    let ssd = |rate: f64, latency: u64| {
        if rate <= 0.0 {
            return 0;
        }
        let requests = BLOCK.div_ceil(m.ssd_request.max(1));
        let by_latency = requests * latency / m.ssd_parallelism.max(1);
        ps(rate, 0).max(by_latency * 1000 / PAGES).max(1)
    };
    planner::Machine {
        gpu: (m.chunks() as f64 * fill) as u64 * PAGES,
        host: m.host_mem / PAGE,
        link_out: ps(m.pcie_d2h, m.copy_setup),
        link_in: ps(m.pcie_h2d, m.copy_setup),
        ssd_out: ssd(m.ssd_write, m.ssd_write_latency),
        ssd_in: ssd(m.ssd_read, m.ssd_read_latency),
        keep_clean: m.keep_clean != 0,
    }
}

/// The planner's requests as a plan, with the prefetches of inputs of `profile`.
pub fn requests(profile: &Profile<'_>, made: &planner::Plan) -> Plan {
    let mut plan = profile.plan();
    for r in &made.requests {
        plan.before[r.kernel as usize].push((r.what, r.tensor));
    }
    plan
}
