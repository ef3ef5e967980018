// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! FlashNeuron's policy (FAST 2021, as G10 section 7 describes and its artifact
//! models it): offload from the front of the step to the SSD, by direct storage,
//! without UVM, until the rest fits.

use crate::plan::Gap;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::policy::Tier;
use crate::RunError;

/// The plan for a step.
///
/// # Errors
/// The largest working set and the lasting tensors do not fit, and there is no
/// demand paging to fall back on; or there is no SSD.
pub fn plan(profile: &Profile<'_>) -> Result<Plan, RunError> {
    let w = profile.workload;
    if profile.machine.ssd_write <= 0.0 || profile.machine.ssd_read <= 0.0 {
        return Err(RunError::Infeasible("flashneuron needs an SSD".into()));
    }
    let lasting = w.tensors.iter().filter(|t| t.lasting && !t.uses.is_empty());
    let lasting: u64 = lasting.map(|t| t.bytes).sum();
    let largest = (0..w.kernels.len()).map(|k| w.working_set(k)).max();
    let largest = largest.unwrap_or(0);
    let room = profile.capacity.saturating_sub(lasting + largest);
    if room == 0 {
        return Err(RunError::Infeasible(format!(
            "flashneuron cannot run this: lasting tensors ({lasting} B) and the largest kernel ({largest} B) need more than {} B of GPU memory",
            profile.capacity
        )));
    }
    // What is alive across the turn from forward to backward, in order of first use.
    let n = profile.slots();
    let turn = (0..n).max_by_key(|&j| profile.live[j]).unwrap_or(0);
    let lasts = |g: &Gap| w.tensors[g.tensor as usize].lasting;
    let is_across = |g: &&Gap| !lasts(g) && (g.from..g.from + g.slots).contains(&turn);
    let mut across: Vec<&Gap> = profile.gaps.iter().filter(is_across).collect();
    across.sort_by_key(|g| (w.tensors[g.tensor as usize].first(), g.tensor));
    let mut rest: u64 = across.iter().map(|g| g.bytes).sum();
    let mut plan = profile.plan();
    let starts = profile.starts();
    let mut offloaded = Vec::new();
    for g in across {
        if rest <= room {
            break;
        }
        rest -= g.bytes;
        offloaded.push(g);
    }
    // Reads in the order of need, each as early as the rest of memory allows.
    let mut memory = profile.live.clone();
    for g in &offloaded {
        for m in &mut memory[g.from..g.from + g.slots] {
            *m = m.saturating_sub(g.bytes);
        }
    }
    offloaded.sort_by_key(|g| g.next);
    for g in offloaded {
        let written = starts[g.from] + profile.copy_ns(g.bytes, Tier::Ssd, false);
        let earliest = starts.partition_point(|&s| s <= written).max(turn + 1);
        let at = profile.as_early(&mut memory, g.bytes, earliest, g.from + g.slots);
        profile.schedule(&mut plan, g, Tier::Ssd, at);
    }
    Ok(plan)
}
