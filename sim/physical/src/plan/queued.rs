// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Plans that leave it to the queues when what moves: for steps that take as long as
//! their copies do, whatever is planned.
//!
//! What is idle where memory is shortest leaves in the order in which it falls idle,
//! as fast as the link carries it. From that kernel on it is asked for in the order of
//! need, each as early as memory has room for it; what has not left by then stays.

use crate::plan::Gap;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::policy::Tier;

/// Fewest kernels between two uses.
const DISTANCE: usize = 2;
/// Gaps of this part of the step are long.
const LONG: usize = 8;

/// The plan for a step. `all`: also what is idle for long elsewhere leaves.
pub fn plan(profile: &Profile<'_>, all: bool) -> Plan {
    let n = profile.slots();
    let mut plan = profile.plan();
    let Some(peak) = (0..n).max_by_key(|&i| profile.live[i]) else {
        return plan;
    };
    let turn = |g: &Gap| {
        let inside = |at: &usize| (g.from..g.from + g.slots).contains(at);
        [peak, peak + n].into_iter().find(inside)
    };
    let is_long = |g: &Gap| all && g.slots > n / LONG;
    let leaves = |g: &&Gap| g.slots >= DISTANCE && (turn(g).is_some() || is_long(g));
    let mut gaps: Vec<&Gap> = profile.gaps.iter().filter(leaves).collect();
    gaps.sort_by_key(|g| (g.from + g.slots, g.tensor));
    let mut memory = profile.live.clone();
    for g in &gaps {
        for j in g.from..g.from + g.slots {
            memory[j % n] = memory[j % n].saturating_sub(g.bytes);
        }
    }
    for g in gaps {
        let earliest = turn(g).unwrap_or(g.from + g.slots / 2).max(g.from) + 1;
        let at = profile.as_early(&mut memory, g.bytes, earliest, g.from + g.slots);
        profile.schedule(&mut plan, g, Tier::Host, at);
    }
    plan
}
