// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Small changes to a plan, at random, for a search that keeps those that help.
//!
//! A planner fills memory to a share of itself and takes tensors whole, so that its plan moves more than
//! need be where few tensors fill the GPU. Which of them should stay, go instead or come earlier is found
//! by trying.

use crate::plan::Op;
use crate::plan::Plan;
use crate::plan::What;
use crate::policy::Tier;
use crate::workload::Layout;
use crate::workload::Random;
use crate::workload::Workload;

/// Changes that are worth a run, at most.
const CHANGES: usize = 400;
/// Touches of va_blocks in all these runs, at most; beginning a kernel counts as much as `BEGIN`.
const TOUCHES: usize = 40_000_000;
const BEGIN: usize = 20;
/// Tries to make a change that can be made, at the most.
const TRIES: usize = 32;

/// A time between two uses of a tensor, around the step if it lasts.
#[derive(Clone, Copy, Debug)]
struct Idle {
    tensor: u32,
    /// The kernel that uses it last before.
    after: usize,
    /// How many kernels later it is used next; requests are made 1 to so many kernels after `after`.
    until: usize,
}

/// What is asked for in an idle time, as kernels after the last use; what leaves after none leaves behind
/// the kernel of that use.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    out: Option<usize>,
    back: Option<usize>,
}

/// Makes changes; the same ones in the same order for the same step.
pub struct Changes {
    /// How many runs of changed plans the step is small enough for.
    pub tries: usize,
    kernels: usize,
    idle: Vec<Idle>,
    /// Kernels after the last use at which a tensor leaves at the soonest.
    soonest: usize,
    random: Random,
}

impl Changes {
    /// Changes to plans for `workload`; tensors may leave behind a kernel, or not.
    pub fn new(workload: &Workload, layout: &Layout, behind: bool) -> Self {
        let kernels = workload.kernels.len();
        let mut idle = Vec::new();
        for (i, t) in workload.tensors.iter().enumerate() {
            if t.uses.is_empty() || layout.whole_blocks(workload, i as u32) == 0 {
                continue;
            }
            let mut add = |after: u32, until: usize| {
                idle.push(Idle {
                    tensor: i as u32,
                    after: after as usize,
                    until,
                });
            };
            for pair in t.uses.windows(2) {
                add(pair[0].0, (pair[1].0 - pair[0].0) as usize);
            }
            if t.lasting {
                add(t.last(), kernels - (t.last() - t.first()) as usize);
            }
        }
        // What is used by the very next kernel has no time to be away.
        idle.retain(|i| i.until > 1);
        let touches: usize = layout.touches.iter().map(|t| BEGIN + t.len()).sum();
        Self {
            tries: (TOUCHES / touches.max(1)).min(CHANGES),
            kernels,
            idle,
            soonest: usize::from(!behind),
            random: Random(1),
        }
    }

    /// A plan that differs from `plan` in one thing; `None`: none was found.
    pub fn change(&mut self, plan: &Plan) -> Option<Plan> {
        (0..TRIES).find_map(|_| self.once(plan))
    }

    fn once(&mut self, plan: &Plan) -> Option<Plan> {
        if self.idle.is_empty() {
            return None;
        }
        let at = self.below(self.idle.len());
        let idle = self.idle[at];
        let asked = self.asked(plan, idle);
        let mut plan = plan.clone();
        let kind = self.below(4);
        match (asked.out, asked.back) {
            (Some(out), _) if kind == 0 => self.drop(&mut plan, idle, out, asked.back),
            (Some(out), Some(back)) if kind == 1 => {
                self.drop(&mut plan, idle, out, Some(back));
                let there = (idle.after + back) % self.kernels;
                self.leave_instead(&mut plan, idle, there)?;
            }
            (Some(out), _) if kind == 2 => {
                let last = asked.back.unwrap_or(idle.until);
                let to = self.shifted(out, self.soonest, last)?;
                self.shift(&mut plan, idle, (out, to), true);
            }
            (out, Some(back)) => {
                let to = self.shifted(back, out.unwrap_or(1).max(1), idle.until)?;
                self.shift(&mut plan, idle, (back, to), false);
            }
            (None, None) if kind == 0 => {
                let away = 1 + self.below(idle.until);
                self.add(&mut plan, idle, away);
            }
            _ => return None,
        }
        Some(plan)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next() % n.max(1) as u64) as usize
    }

    /// The kernel before which a request is made so many kernels after the last use.
    fn kernel(&self, idle: Idle, on: usize) -> usize {
        (idle.after + on) % self.kernels
    }

    fn asked(&self, plan: &Plan, idle: Idle) -> Asked {
        let mut asked = Asked::default();
        for on in 0..=idle.until {
            let ops = match on {
                0 => &plan.behind[idle.after],
                _ => &plan.before[self.kernel(idle, on)],
            };
            for &(what, tensor) in ops {
                if tensor != idle.tensor {
                    continue;
                }
                match what {
                    What::Evict(_) => asked.out = asked.out.or(Some(on)),
                    What::Prefetch => asked.back = Some(on),
                    _ => {}
                }
            }
        }
        asked
    }

    /// The requests that are made so many kernels after the last use.
    fn ops<'a>(&self, plan: &'a mut Plan, idle: Idle, on: usize) -> &'a mut Vec<Op> {
        match on {
            0 => &mut plan.behind[idle.after],
            _ => &mut plan.before[self.kernel(idle, on)],
        }
    }

    /// Takes the requests of this kind out that are made so many kernels after the last use; returns one.
    fn take(&self, plan: &mut Plan, idle: Idle, on: usize, out: bool) -> Option<What> {
        let is_it = |&(what, t): &(What, u32)| {
            let kind = match what {
                What::Evict(_) => out,
                What::Prefetch => !out,
                _ => return false,
            };
            t == idle.tensor && kind
        };
        let ops = self.ops(plan, idle, on);
        let at = ops.iter().position(is_it)?;
        let what = ops[at].0;
        ops.retain(|op| !is_it(op));
        Some(what)
    }

    /// The tensor stays; copies that only let it leave sooner are not made either.
    fn drop(&self, plan: &mut Plan, idle: Idle, out: usize, back: Option<usize>) {
        self.take(plan, idle, out, true);
        if let Some(back) = back {
            self.take(plan, idle, back, false);
        }
        let leaves = |op: &(What, u32)| op.1 == idle.tensor && matches!(op.0, What::Evict(_));
        let mut all = plan.before.iter().chain(&plan.behind).flatten();
        if !all.any(leaves) {
            let copied = |op: &(What, u32)| op.1 == idle.tensor && matches!(op.0, What::Copy(_));
            plan.before
                .iter_mut()
                .for_each(|ops| ops.retain(|op| !copied(op)));
        }
    }

    /// The tensor leaves at once, and is asked for so many kernels after its last use.
    fn add(&self, plan: &mut Plan, idle: Idle, back: usize) {
        let out = (What::Evict(Tier::Host), idle.tensor);
        self.ops(plan, idle, self.soonest).push(out);
        plan.before[self.kernel(idle, back)].push((What::Prefetch, idle.tensor));
    }

    /// Another tensor that is idle at kernel `there` leaves, if there is one, and comes back then.
    fn leave_instead(&mut self, plan: &mut Plan, not: Idle, there: usize) -> Option<()> {
        for _ in 0..TRIES {
            let at = self.below(self.idle.len());
            let idle = self.idle[at];
            let on = (there + self.kernels - idle.after) % self.kernels;
            let asked = self.asked(plan, idle);
            if idle.tensor != not.tensor && (2..=idle.until).contains(&on) && asked.out.is_none() {
                if let Some(back) = asked.back {
                    self.take(plan, idle, back, false);
                }
                self.add(plan, idle, on);
                return Some(());
            }
        }
        None
    }

    /// A number from `low` to `high` some way from `at`; `None`: there is no other.
    fn shifted(&mut self, at: usize, low: usize, high: usize) -> Option<usize> {
        let by = 1 << self.below(6);
        let to = match self.below(2) {
            0 => at.saturating_sub(by).max(low),
            _ => (at + by).min(high),
        };
        (to != at).then_some(to)
    }

    fn shift(&self, plan: &mut Plan, idle: Idle, (from, to): (usize, usize), out: bool) {
        if let Some(what) = self.take(plan, idle, from, out) {
            self.ops(plan, idle, to).push((what, idle.tensor));
        }
    }
}

#[cfg(test)]
mod tests {
    use uvmsim_machine::MIB;
    use uvmsim_trace::Kind;

    use super::*;
    use crate::workload::Kernel;
    use crate::workload::Use;

    #[test]
    fn tensors_leave_behind_kernels_only_if_they_may() {
        let tensors = (0..4).map(|i| (format!("t{i}"), 8 * MIB, Kind::Weight));
        let kernels = (0..12).map(|k| Kernel::new("k", 1000, [Use::both(k % 4)]));
        let w = Workload::new("w", tensors.collect(), kernels.collect());
        let layout = Layout::new(&w);
        for may in [false, true] {
            let mut changes = Changes::new(&w, &layout, may);
            let mut plan = Plan::new(12, 0);
            let mut did = [false; 2];
            for _ in 0..200 {
                plan = changes.change(&plan).unwrap_or(plan);
                did[0] |= plan.before.iter().any(|ops| !ops.is_empty());
                did[1] |= plan.behind.iter().any(|ops| !ops.is_empty());
                // What leaves behind a kernel is used by it.
                let used = |(k, ops): (usize, &Vec<Op>)| ops.iter().all(|op| w.uses(k, op.1));
                assert!(plan.behind.iter().enumerate().all(used));
            }
            assert_eq!(did, [true, may]);
        }
    }
}
