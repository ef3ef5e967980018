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

impl Plan {
    /// The same plan for `w`, but what leaves or is copied right after a kernel that uses it is so behind that kernel.
    #[must_use]
    pub fn sooner(&self, w: &Workload) -> Self {
        let mut plan = self.clone();
        for k in 0..w.kernels.len() {
            let last = w.before(k);
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
}

#[cfg(test)]
mod tests {
    use uvmsim_machine::MIB;
    use uvmsim_trace::Kind;

    use super::*;
    use crate::tests::byte_a_ns;
    use crate::tests::planned;
    use crate::workload::Kernel;
    use crate::workload::Use;
    use crate::Outcome;

    const OUT: What = What::Evict(Tier::Host);

    /// Two tensors of 64 MiB: a kernel makes the second of the first, and one later reads the second.
    fn one_of_the_other(ns: u64) -> Workload {
        let names = ["first", "second"];
        let tensors = names.map(|name| (name.into(), 64 * MIB, Kind::Activation));
        let uses = [
            vec![Use::write(0)],
            vec![Use::read(0), Use::write(1)],
            vec![Use::read(1)],
        ];
        let kernels = uses.map(|uses| Kernel::new("k", ns, uses));
        Workload::new("step", tensors.into(), kernels.into())
    }

    fn outcome(plan: Plan, m: &Machine, w: &Workload) -> Outcome {
        planned(plan, m, w, &Layout::new(w))
    }

    #[test]
    fn what_leaves_behind_a_kernel_makes_room_for_what_it_writes() {
        let w = one_of_the_other(1000);
        let m = byte_a_ns(96 * MIB);
        let mut plan = Plan::new(3, 0);
        plan.behind[1].push((OUT, 0));
        let o = outcome(plan, &m, &w);
        // Of the first, half leaves, for which the kernel waits, and comes back no more.
        assert_eq!((o.faults, o.reclaimed, o.bytes.host_to_gpu), (0, 0, 0));
        let out = o.bytes.gpu_to_host;
        assert!((32 * MIB..=36 * MIB).contains(&out), "{out}");
        assert!(o.stalls.eviction.abs_diff(32 * MIB) < 4 * MIB, "{o:?}");
    }

    #[test]
    fn what_is_copied_behind_a_kernel_is_so_while_it_runs() {
        let w = one_of_the_other(128 * MIB);
        let m = byte_a_ns(256 * MIB);
        let mut plan = Plan::new(3, 0);
        plan.behind[0].push((What::Copy(Tier::Host), 0));
        plan.behind[1].push((OUT, 0));
        let o = outcome(plan.clone(), &m, &w);
        assert_eq!((o.faults, o.bytes.gpu_to_host), (0, 64 * MIB));
        assert!(o.step_ns < w.ideal_ns() + MIB, "{o:?}");
        // What the kernel does not use stays.
        plan.behind = vec![vec![(OUT, 1)], Vec::new(), vec![(OUT, 0)]];
        let o = outcome(plan, &m, &w);
        assert_eq!((o.faults, o.bytes.gpu_to_host), (0, 0));
    }

    #[test]
    fn only_where_memory_is_shortest_does_anything_trail() {
        let w = one_of_the_other(1000);
        let layout = Layout::new(&w);
        let step = ours::Step::new(&w, &layout, 0);
        let trailing = |mib| Trailing::new(&byte_a_ns(mib * MIB), (&w, &layout), &step);
        let short = trailing(96);
        assert_eq!(short.less(), [(1, 32 * PAGES)]);
        assert_eq!(short.leaving, [(1, 0)]);
        assert!(trailing(128).less().is_empty());
    }

    #[test]
    fn what_was_written_first_trails_as_far_as_there_is_room_to_make() {
        let sizes = [64, 32, 64, 8, 64].map(|mib| ("t".into(), mib * MIB, Kind::Activation));
        let uses = [
            vec![Use::write(1)],
            vec![Use::write(0), Use::write(3)],
            // What it writes itself does not trail, nor what it alone uses.
            vec![Use::read(0), Use::read(1), Use::write(2), Use::both(3)],
            vec![Use::write(4), Use::read(2)],
        ];
        let kernels = uses.map(|uses| Kernel::new("k", 1000, uses));
        let w = Workload::new("step", sizes.into(), kernels.into());
        let layout = Layout::new(&w);
        assert_eq!(dying(&w, &layout, 2), (vec![1], 16 * PAGES));
        assert_eq!(dying(&w, &layout, 3), (vec![2], 32 * PAGES));
    }

    #[test]
    fn sooner_is_behind_the_kernel_that_used_it() {
        let w = one_of_the_other(1000);
        let mut plan = Plan::new(3, 0);
        plan.before[0] = vec![(OUT, 1), (What::Prefetch, 1)];
        plan.before[2] = vec![(OUT, 0), (What::Copy(Tier::Host), 1)];
        plan.before[1] = vec![(OUT, 1)];
        let sooner = plan.sooner(&w);
        assert_eq!(
            sooner.before,
            [vec![(What::Prefetch, 1)], vec![(OUT, 1)], vec![]]
        );
        let behind = [
            vec![],
            vec![(OUT, 0), (What::Copy(Tier::Host), 1)],
            vec![(OUT, 1)],
        ];
        assert_eq!(sooner.behind, behind);
    }
}
