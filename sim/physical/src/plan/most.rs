// SPDX-License-Identifier: GPL-2.0 OR MIT

//! MOST's planner (section III.A, figure 3).
//!
//! Tensors in order of the benefit B = S × I. If there is no oversubscription at
//! P_safe, the latest kernel from which the prefetch is in time, the tensor leaves
//! and comes back then. If there is, every kernel from P_safe to the use is
//! tried: what evictions oversubscription would force until then (Oversub_stall),
//! and how late the prefetch would be (P_delay); the kernel with the least sum is
//! taken if leaving saves more than the delay costs.
//!
//! The paper does not say what the forced evictions are; here they are the time
//! to copy out what is over capacity, in the worst kernel of the interval.

use crate::plan::Plan;
use crate::plan::Profile;
use crate::policy::Tier;

/// The plan for a step; `host`: the host is a destination, else only the SSD.
pub fn plan(profile: &Profile<'_>, host: bool) -> Plan {
    let n = profile.slots();
    let starts = profile.starts();
    let step = starts[n];
    let time = |slot: usize| (slot / n) as u64 * step + starts[slot % n];
    let tier = if host { Tier::Host } else { Tier::Ssd };
    let mut memory = profile.live.clone();
    let mut order: Vec<usize> = (0..profile.gaps.len()).collect();
    let benefit = |g: usize| {
        let g = &profile.gaps[g];
        g.bytes as f64 * (time(g.from + g.slots) - time(g.from)) as f64
    };
    order.sort_by(|&a, &b| benefit(b).total_cmp(&benefit(a)).then(a.cmp(&b)));
    let mut moves = Vec::new();
    for i in order {
        let g = &profile.gaps[i];
        let end = g.from + g.slots;
        let span: Vec<usize> = (g.from..end).collect();
        if span.iter().all(|&j| memory[j % n] <= profile.capacity) {
            continue;
        }
        let fetch = profile.copy_ns(g.bytes, tier, true);
        let use_at = time(end);
        // The last slot from which the fetch is in time.
        let safe = span
            .iter()
            .rev()
            .find(|&&j| time(j) + fetch <= use_at)
            .copied()
            .unwrap_or(g.from);
        let stall = |bytes: u64| profile.copy_ns(bytes, tier, false);
        let over = |j: usize| memory[j % n].saturating_sub(profile.capacity);
        let at = if over(safe) == 0 {
            Some(safe)
        } else {
            // Being there from slot p on, the tensor adds to what is over.
            let mut forced = 0;
            let mut best = (u64::MAX, end);
            for p in (safe..=end).rev() {
                if p < end {
                    forced = forced.max(over(p).min(g.bytes));
                }
                let delay = (time(p) + fetch).saturating_sub(use_at);
                let total = stall(forced) + delay;
                if total < best.0 {
                    best = (total, p);
                }
            }
            let kept = span
                .iter()
                .map(|&j| over(j).min(g.bytes))
                .max()
                .unwrap_or(0);
            let delay = (time(best.1) + fetch).saturating_sub(use_at);
            (stall(kept) > delay).then_some(best.1)
        };
        if let Some(at) = at {
            moves.push((end, i, at));
            let left = time(g.from) + stall(g.bytes);
            for j in g.from..at {
                if time(j + 1) > left {
                    memory[j % n] = memory[j % n].saturating_sub(g.bytes);
                }
            }
        }
    }
    // Requests of one kernel in the order of need.
    moves.sort_unstable();
    let mut plan = profile.plan();
    for (_, i, at) in moves {
        profile.schedule(&mut plan, &profile.gaps[i], tier, at);
    }
    plan
}
