// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What leaves behind a kernel that uses it, block by block, and makes room for what that kernel writes.
//!
//! What is written for the first time and what is read for the last time need not be there together, though the
//! kernel uses both. The former is copied out, if it has no copy, but never comes back.

use uvmsim_machine::Machine;

use crate::plan::ours;
use crate::plan::ours::PAGES;
use crate::plan::Op;
use crate::plan::Plan;
use crate::plan::What;
use crate::policy::Tier;
use crate::workload::Layout;
use crate::workload::Workload;

/// What dies with kernels and leaves behind them.
#[derive(Clone, Debug, Default)]
pub struct Trailing {
    /// Kernels, and how many pages each needs less.
    less: Vec<(usize, u64)>,
    /// Kernels, and the tensors that leave behind them.
    leaving: Vec<(usize, u32)>,
}

impl Trailing {
    /// What must leave so that the kernels that need most memory, of those of `step`, need as little as they can;
    /// nothing if memory has room for them, or if that is no less.
    pub fn new(machine: &Machine, (w, layout): (&Workload, &Layout), step: &ours::Step) -> Self {
        let live = step.live();
        let dying = |k: usize| {
            let (tensors, pages) = dying(w, layout, k);
            (tensors, pages.min(live[k]))
        };
        let all: Vec<_> = (0..live.len()).map(dying).collect();
        let least = live.iter().zip(&all).map(|(live, dying)| live - dying.1);
        let least = least.fold(machine.chunks() * PAGES, u64::max);
        let mut trailing = Self::default();
        for (k, (tensors, pages)) in all.into_iter().enumerate() {
            if live[k] > least && pages > 0 {
                trailing.less.push((k, pages));
                trailing.leaving.extend(tensors.into_iter().map(|t| (k, t)));
            }
        }
        trailing
    }

    /// Kernels, in order, and how many pages each needs less.
    pub fn less(&self) -> &[(usize, u64)] {
        &self.less
    }

    /// Adds the requests to a plan.
    pub fn add_to(&self, plan: &mut Plan) {
        for &(k, t) in &self.leaving {
            plan.behind[k].push((What::Evict(Tier::Host), t));
        }
    }
}

/// Tensors that kernel `k` reads last and does not write, those first that were written first, for as many pages as
/// it writes for the first time; and these pages.
fn dying(w: &Workload, layout: &Layout, k: usize) -> (Vec<u32>, u64) {
    let pages = |t: u32| layout.whole_blocks(w, t) * PAGES;
    let born: u64 = layout.births[k].iter().map(|&t| pages(t)).sum();
    let written = |t: u32| {
        let uses = &w.tensors[t as usize].uses;
        let last = uses.iter().rfind(|u| u.1);
        last.map(|u| u.0)
    };
    let read = |t: &u32| written(*t).is_some_and(|last| last < k as u32);
    let mut dying: Vec<u32> = layout.deaths[k].iter().copied().filter(read).collect();
    dying.sort_by_key(|&t| written(t));
    let mut all = 0;
    dying.retain(|&t| {
        let fits = all + pages(t) <= born;
        all += pages(t) * u64::from(fits);
        fits
    });
    (dying, all)
}

/// `plan`, but what it has leave or copied right after a kernel of `w` that uses it is so behind that kernel.
pub fn sooner(plan: &Plan, w: &Workload) -> Plan {
    let mut plan = plan.clone();
    let kernels = w.kernels.len();
    for k in 0..kernels {
        let last = (k + kernels - 1) % kernels;
        let moves = |op: &Op| {
            let out = matches!(op.0, What::Evict(_) | What::Copy(_));
            out && w.uses(last, op.1)
        };
        let (behind, before) = plan.before[k].iter().partition(|op| moves(op));
        plan.before[k] = before;
        plan.behind[last].extend::<Vec<Op>>(behind);
    }
    plan
}
