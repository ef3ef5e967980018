// SPDX-License-Identifier: GPL-2.0 OR MIT

//! AutoVM's policy (thesis, chapter 3): offload what forward makes and backward
//! reads much later; never weights.

use uvmsim_machine::BLOCK;
use uvmsim_trace::Kind;

use crate::plan::Gap;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::policy::Tier;

/// AutoVM's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Smallest tensor to offload, bytes (section 3.3.1.1: tuned by hand).
    pub size: u64,
    /// Fewest kernels between last use in forward and first in backward.
    pub distance: u32,
    /// Whether durations are known: prefetch as late as the copy allows
    /// (listing 3.3), else as early as memory allows (listing 3.4, as built).
    pub known_times: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: 2 * BLOCK,
            distance: 8,
            known_times: false,
        }
    }
}

/// The plan for a step.
pub fn plan(profile: &Profile<'_>, options: Options) -> Plan {
    let n = profile.slots();
    let starts = profile.starts();
    let mut plan = profile.plan();
    // Working sets, to which prefetched tensors are added (listing 3.4).
    let mut working: Vec<u64> = profile
        .first_kernel
        .windows(2)
        .map(|w| {
            (w[0]..w[1])
                .map(|k| profile.workload.working_set(k as usize))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut gaps: Vec<&Gap> = offloads(profile, options).collect();
    gaps.sort_by_key(|g| g.next);
    for g in gaps {
        let end = g.from + g.slots;
        let fits = |j: usize, working: &[u64]| working[j % n] + g.bytes <= profile.capacity;
        let mut at = end;
        if options.known_times {
            let fetch = profile.copy_ns(g.bytes, Tier::Host, true);
            while at > g.from && starts[end % n] - starts[at % n] < fetch && fits(at - 1, &working)
            {
                at -= 1;
            }
        } else {
            while at > g.from && fits(at - 1, &working) {
                at -= 1;
            }
            // Earliest in backward: not while forward still fills memory.
            let turn = working.len() / 3;
            at = at.max(turn.min(end));
        }
        for j in at..end {
            working[j % n] += g.bytes;
        }
        profile.schedule(&mut plan, g, Tier::Host, at);
    }
    plan
}

/// The longest gap of each activation that is large and idle enough.
fn offloads<'a>(profile: &'a Profile<'a>, options: Options) -> impl Iterator<Item = &'a Gap> {
    let tensors = 0..profile.workload.tensors.len() as u32;
    tensors.filter_map(move |t| {
        let tensor = &profile.workload.tensors[t as usize];
        if tensor.lasting || tensor.kind != Kind::Activation || tensor.bytes < options.size {
            return None;
        }
        let longest = profile
            .gaps_of(t)
            .map(|g| &profile.gaps[g])
            .max_by_key(|g| g.slots)?;
        (longest.next - longest.after >= options.distance).then_some(longest)
    })
}
