// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! G10's planner (MICRO 2023, sections 4.3, 4.4) for the physical machine: the one that
//! reproduces the artifact's published numbers ([`uvmsim_g10`]), given this
//! machine's memory, links and latencies.

use uvmsim_g10 as g10;
use uvmsim_g10::Design;
use uvmsim_trace::Kernel;
use uvmsim_trace::Kind;
use uvmsim_trace::Tensor;
use uvmsim_trace::TensorId;
use uvmsim_trace::Trace;

use crate::plan::Plan;
use crate::plan::Profile;
use crate::plan::What;
use crate::policy::Tier;
use crate::RunError;

/// Pages of a batch. Links here carry bytes, not batches of pages: so many that the SSD's
/// whole pages a batch are its rate.
const BATCH_PAGES: u32 = 1 << 30;

/// Share of the GPU that the artifact's planner fills.
const TARGET: f64 = 0.99;

/// The plan for a step; `host`: host memory is a destination too.
///
/// `design`: which of the artifact's planners, or the refined one, which `best` tries.
///
/// # Errors
/// Numbers out of the planner's range.
pub fn plan(profile: &Profile<'_>, host: bool, design: Design) -> Result<Plan, RunError> {
    let m = profile.machine;
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let link = m.pcie_h2d.min(m.pcie_d2h);
    // Without an SSD, what the planner takes for one is the host.
    let has_ssd = m.ssd_write > 0.0;
    let rate = m.ssd_read.min(m.ssd_write).min(link);
    let ssd = if has_ssd { rate } else { link };
    let latency = m.ssd_read_latency as f64 / 1e3;
    let machine = g10::Machine {
        gpu_gib: gib(profile.capacity) / TARGET,
        host_gib: if host { gib(m.host_mem) } else { 0.0 },
        pcie_gbps: link / 1e9,
        ssd_gbps: ssd / 1e9,
        fault_us: m.fault_latency as f64 / 1e3,
        ssd_us: if has_ssd { latency } else { 0.0 },
        batch_pages: BATCH_PAGES,
        hand_tuned: false,
        ..g10::Machine::default()
    };
    let moves = g10::moves(&step(profile), &machine, design)
        .map_err(|e| RunError::Infeasible(e.to_string()))?;
    let mut plan = profile.plan();
    for m in moves {
        let op = match m.to {
            g10::Target::Gpu => (What::Prefetch, m.tensor),
            g10::Target::Ssd if has_ssd => (What::Evict(Tier::Ssd), m.tensor),
            g10::Target::Ssd | g10::Target::Host => (What::Evict(Tier::Host), m.tensor),
            g10::Target::Free => continue,
        };
        plan.before[profile.first_kernel[m.kernel] as usize].push(op);
    }
    Ok(plan)
}

/// The step as a trace with a kernel for each slot. To the planner a tensor dies with
/// its last read; here it lives until its last use, so that all uses are reads.
fn step(profile: &Profile<'_>) -> Trace {
    let w = profile.workload;
    let mut trace = Trace::default();
    for t in &w.tensors {
        let kind = match t.kind {
            Kind::Input => Kind::Input,
            _ if t.lasting => Kind::Weight,
            _ => Kind::Activation,
        };
        trace.add_tensor(Tensor::new(kind, t.bytes, ""));
    }
    for (bounds, &ns) in profile.first_kernel.windows(2).zip(&profile.duration) {
        let kernels = &w.kernels[bounds[0] as usize..bounds[1] as usize];
        let uses = kernels.iter().flat_map(|k| &k.uses);
        let mut reads: Vec<TensorId> = uses.map(|u| TensorId(u.tensor)).collect();
        reads.sort_unstable();
        reads.dedup();
        trace.kernels.push(Kernel {
            reads,
            ..Kernel::new("slot", ns)
        });
    }
    trace
}
