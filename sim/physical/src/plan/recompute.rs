// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Choosing what is dropped and computed again, beside what is moved.
//!
//! The planner decides what moves; that a kernel runs twice only a framework can do,
//! so that it is decided here. Each choice makes a step of its own ([`crate::rerun`]), for which
//! the moves are planned as for any other, so that moves and reruns are weighed by one measure:
//! how long the step takes. What is dead is discarded in all of them.
//!
//! Choices are prefixes of one order: tensors whose bytes cost least to compute first (norms
//! and activations long before products), of those that cost the same the last of the forward
//! pass first, as they are idle for too short a time to be moved. The tensors between the parts
//! of the forward pass are kept: without them, the first kernel of the backward pass would have
//! the whole forward pass run again. One more choice is what `torch.utils.checkpoint` does: all
//! within a part is dropped, and comes back with the first of it.

use uvmsim_machine::Machine;
use uvmsim_machine::PAGE;
use uvmsim_trace::Kind;

use crate::bound::bound_ns;
use crate::plan::best;
use crate::plan::best::Until;
use crate::plan::Plan;
use crate::rerun::Rerun;
use crate::rerun::SAME;
use crate::workload::running_sums;
use crate::Layout;
use crate::Outcome;
use crate::RunError;
use crate::Workload;

/// Bytes to drop, in hundredths of what is too much for GPU memory.
const SHARES: [u64; 10] = [40, 60, 80, 100, 110, 125, 150, 200, 300, 500];
/// Choices to run, the best by the planner's reckoning.
const RUNS: usize = 3;
/// A plan that takes this share of the ideal time, in thousandths, leaves nothing to gain.
const NEAR: u64 = 1010;
/// Kernels that one tensor may need to run again, at most.
const CHAIN: usize = 32;
/// The fewest and the most parts to cut a forward pass into that says nothing of parts.
const PARTS: [u64; 2] = [2, 64];

/// A step as it is run, with its plan; what runs again is in [`Plan::again`].
pub struct Made {
    /// The step, reruns included.
    pub workload: Workload,
    /// Where its tensors lie.
    pub layout: Layout,
    /// The plan for it.
    pub plan: Plan,
}

/// A way to plan the moves of a step.
type How = fn(&Machine, &Workload, &Layout, Until<'_>) -> Result<(Outcome, Plan), RunError>;

/// What is dropped, and what of that comes back together.
struct Choice {
    dropped: Vec<bool>,
    group: Vec<Option<u32>>,
}

/// The plan that ran fastest of those that move, discard and recompute; as
/// [`best::find`]'s where recomputation is no help.
///
/// # Errors
/// No plan could be run; the error is that of the last.
pub fn plan(machine: &Machine, workload: &Workload, until: Until<'_>) -> Result<Made, RunError> {
    plan_at(machine, workload, SAME, until)
}

/// The same where a kernel that runs again takes `cost` thousandths of its time.
pub(crate) fn plan_at(
    machine: &Machine,
    workload: &Workload,
    cost: u64,
    until: Until<'_>,
) -> Result<Made, RunError> {
    let layout = Layout::new(workload);
    let first = best::first(machine, workload, &layout, until);
    let mut search = Search {
        machine,
        workload,
        cost,
        until,
        limit: first.map_or(u64::MAX, |(out, _)| out.step_ns),
        made: None,
    };
    if search.limit > workload.ideal_ns() / 1000 * NEAR {
        search.reruns();
    }
    // A plan of moves alone, unless the bound says that it would be no faster.
    if search.made.is_none() || bound_ns(machine, workload) < search.limit {
        match best::measured(machine, workload, &layout, until) {
            Ok((out, plan)) if search.made.is_none() || out.step_ns <= search.limit => {
                return Ok(Made::new(workload.clone(), layout, plan, Vec::new()));
            }
            Err(e) if search.made.is_none() => return Err(e),
            _ => {}
        }
    }
    search.made.ok_or(RunError::TooLong)
}

/// The checkpointing schedule, as `torch.utils.checkpoint` of each part of the forward pass has
/// it, with the plan of moves for what still does not fit.
///
/// # Errors
/// See [`plan`]; or the step has no backward pass.
pub fn checkpoint(
    machine: &Machine,
    workload: &Workload,
    until: Until<'_>,
) -> Result<Made, RunError> {
    let reruns = schedule(workload);
    if reruns.is_empty() {
        let what =
            "nothing of this step is kept for the backward pass within a part of the forward pass";
        return Err(RunError::Infeasible(what.into()));
    }
    let (workload, layout) = with(workload, &reruns, SAME)?;
    let (_, plan) = best::measured(machine, &workload, &layout, until)?;
    Ok(Made::new(workload, layout, plan, reruns))
}

impl Made {
    fn new(workload: Workload, layout: Layout, plan: Plan, again: Vec<Rerun>) -> Self {
        let plan = Plan { again, ..plan };
        Self {
            workload,
            layout,
            plan,
        }
    }
}

/// The step with `reruns`, laid out.
fn with(workload: &Workload, reruns: &[Rerun], cost: u64) -> Result<(Workload, Layout), RunError> {
    let refused = |e| RunError::Infeasible(format!("recomputation: {e}"));
    let workload = workload.with_reruns(reruns, cost).map_err(refused)?;
    let layout = Layout::new(&workload);
    Ok((workload, layout))
}

struct Search<'a> {
    machine: &'a Machine,
    workload: &'a Workload,
    cost: u64,
    until: Until<'a>,
    /// The time of the best so far.
    limit: u64,
    made: Option<Made>,
}

impl Search<'_> {
    /// Tries plans in which kernels run again: the checkpointing schedule, and what is cheap to compute.
    fn reruns(&mut self) {
        let checkpoint = schedule(self.workload);
        let mut all = vec![checkpoint.clone()];
        all.extend(choices(self.machine, self.workload));
        all.dedup();
        let mut reckoned: Vec<(u64, Vec<Rerun>)> = all
            .into_iter()
            .filter(|reruns| !reruns.is_empty())
            .filter_map(|reruns| Some((self.reckon(&reruns)?, reruns)))
            .collect();
        reckoned.sort();
        reckoned.truncate(RUNS);
        let mut finalist = None;
        for (_, reruns) in reckoned {
            if self.consider(&reruns, best::first) {
                finalist = Some(reruns);
            }
        }
        if let Some(reruns) = finalist.as_ref().filter(|r| **r != checkpoint) {
            self.consider(reruns, best::measured);
        }
        // So that ours is not behind it, whatever was reckoned.
        if !checkpoint.is_empty() {
            self.consider(&checkpoint, best::measured);
        }
    }

    /// The step with `reruns`, unless even with all in GPU memory it is too slow.
    fn step(&self, reruns: &[Rerun]) -> Option<(Workload, Layout)> {
        let (workload, layout) = with(self.workload, reruns, self.cost).ok()?;
        let kernels = workload.kernels.iter().map(|k| k.ns);
        let least = kernels.fold(0u64, u64::saturating_add);
        (least < self.limit).then_some((workload, layout))
    }

    /// What the planner makes of `reruns`, by its own reckoning.
    fn reckon(&self, reruns: &[Rerun]) -> Option<u64> {
        let (workload, layout) = self.step(reruns)?;
        best::reckon(self.machine, &workload, &layout)
    }

    /// Keeps the plan that `how` finds for the step with `reruns` if it is the fastest.
    fn consider(&mut self, reruns: &[Rerun], how: How) -> bool {
        let Some((workload, layout)) = self.step(reruns) else {
            return false;
        };
        if bound_ns(self.machine, &workload) >= self.limit {
            return false;
        }
        let found = how(self.machine, &workload, &layout, self.until).ok();
        let Some((out, plan)) = found.filter(|(out, _)| out.step_ns < self.limit) else {
            return false;
        };
        self.limit = out.step_ns;
        self.made = Some(Made::new(workload, layout, plan, reruns.to_vec()));
        true
    }
}

/// Tensors that the backward pass reads again, and only the forward pass writes.
fn droppable(w: &Workload) -> Vec<bool> {
    let Some(turn) = w.backward else {
        return vec![false; w.tensors.len()];
    };
    let can = |t: &crate::workload::Tensor| {
        let written = t.uses.iter().rev().find(|u| u.1);
        !t.lasting
            && t.kind == Kind::Activation
            && t.last() >= turn
            && written.is_some_and(|u| u.0 < turn)
    };
    w.tensors.iter().map(can).collect()
}

/// The last use of a tensor before kernel `turn`.
fn last_before(t: &crate::workload::Tensor, turn: u32) -> Option<u32> {
    let at = t.uses.partition_point(|u| u.0 < turn);
    Some(t.uses[at.checked_sub(1)?].0)
}

/// The part of the forward pass that each kernel is in; of those that are to be kept, none.
fn parts(w: &Workload) -> Vec<Option<u32>> {
    if w.parts.iter().any(Option::is_some) {
        return w.parts.clone();
    }
    let turn = w.backward.unwrap_or(0) as usize;
    let mut part = vec![None; w.kernels.len()];
    let cuts = cuts(w, turn);
    for (k, part) in part[..turn].iter_mut().enumerate() {
        let before = cuts.partition_point(|&c| c < k);
        *part = (before < cuts.len()).then_some(before as u32);
    }
    part
}

/// The kernels after which to cut a forward pass of which nothing else is known: into parts
/// that keep about the same, where least is read beyond.
fn cuts(w: &Workload, turn: usize) -> Vec<usize> {
    let mut kept = vec![0i64; turn + 1];
    let mut beyond = vec![0i64; turn + 1];
    for (t, keep) in w.tensors.iter().zip(droppable(w)) {
        let Some(last) = last_before(t, turn as u32).filter(|_| !t.lasting) else {
            continue;
        };
        let first = t.first() as usize;
        if keep {
            kept[first] += t.bytes as i64;
        }
        beyond[first] += t.bytes as i64;
        beyond[last as usize] -= t.bytes as i64;
    }
    let all = kept.iter().sum::<i64>() as u64;
    let sums = running_sums(&kept).zip(running_sums(&beyond));
    let after: Vec<(u64, i64)> = sums.take(turn).map(|(k, b)| (k as u64, b)).collect();
    // The parts' edges and one part together are least where there are this many.
    let inner = after.iter().filter(|a| a.0 > all / 8 && a.0 < all / 8 * 7);
    let edge = inner.map(|a| a.1.max(1)).min().unwrap_or(1) as u64;
    let n = (all / edge).isqrt().clamp(PARTS[0], PARTS[1]);
    (0..n)
        .filter_map(|i| {
            let within = |a: &(u64, i64)| a.0 > all / n * i && a.0 <= all / n * (i + 1);
            let of_part = (0..turn).filter(|&k| within(&after[k]));
            of_part.min_by_key(|&k| (after[k].1, std::cmp::Reverse(k)))
        })
        .collect()
}

/// Of what is droppable, what only its own part of the forward pass uses; and the part.
fn inner(w: &Workload) -> Choice {
    let part = parts(w);
    let turn = w.backward.unwrap_or(0);
    let mut dropped = droppable(w);
    let mut group = vec![None; w.tensors.len()];
    for (i, t) in w.tensors.iter().enumerate() {
        if !dropped[i] {
            continue;
        }
        let mut forward = t.uses.iter().take_while(|u| u.0 < turn);
        let own = part[t.first() as usize];
        dropped[i] = own.is_some() && forward.all(|u| part[u.0 as usize] == own);
        group[i] = own;
    }
    Choice { dropped, group }
}

/// The kernels that a checkpointing schedule runs again: each group's, once, to make what it dropped.
fn schedule(w: &Workload) -> Vec<Rerun> {
    let Choice { dropped, group } = inner(w);
    w.reruns_for(&dropped, &group)
}

/// What a kernel wrote last that can be dropped, and what it costs to have it again.
struct Unit {
    kernel: u32,
    tensors: Vec<u32>,
    bytes: u64,
    ns: u64,
}

/// Reruns for more and more of what is cheap to compute.
fn choices(machine: &Machine, w: &Workload) -> Vec<Vec<Rerun>> {
    let peak = w.peak_bytes();
    let excess = peak.saturating_sub(machine.gpu_mem);
    let mut units = units(w);
    // Nanoseconds over bytes, without a fraction.
    units.sort_by(|a, b| {
        let cost = |a: &Unit, b: &Unit| u128::from(a.ns) * u128::from(b.bytes);
        let order = cost(a, b).cmp(&cost(b, a));
        order.then(b.kernel.cmp(&a.kernel))
    });
    let group = vec![None; w.tensors.len()];
    let mut dropped = vec![false; w.tensors.len()];
    let mut rest = units.iter();
    let (mut bytes, mut all) = (0u64, Vec::new());
    for share in SHARES {
        let enough = (u128::from(excess) * u128::from(share) / 100) as u64;
        while bytes < enough {
            let Some(unit) = rest.next() else { break };
            bytes += unit.bytes;
            for &t in &unit.tensors {
                dropped[t as usize] = true;
            }
        }
        all.push(w.reruns_for(&dropped, &group));
        if rest.len() == 0 {
            break;
        }
    }
    all
}

/// What may be dropped, by the kernel that wrote it last.
fn units(w: &Workload) -> Vec<Unit> {
    let may = inner(w).dropped;
    let read_again = droppable(w);
    let mut by_kernel = std::collections::BTreeMap::<u32, Vec<u32>>::new();
    for (i, t) in w.tensors.iter().enumerate().filter(|(i, _)| may[*i]) {
        if let Some(u) = t.uses.iter().rev().find(|u| u.1) {
            by_kernel.entry(u.0).or_default().push(i as u32);
        }
    }
    let unit = |(kernel, tensors): (u32, Vec<u32>)| {
        let sizes = tensors.iter().map(|&t| w.tensors[t as usize].bytes);
        Some(Unit {
            kernel,
            bytes: sizes.map(|b| b.next_multiple_of(PAGE)).sum(),
            ns: chain_ns(w, &tensors, &read_again)?,
            tensors,
        })
    };
    by_kernel.into_iter().filter_map(unit).collect()
}

/// What it takes to have `tensors` again from what the backward pass reads and what lasts;
/// none if that takes too many kernels.
fn chain_ns(w: &Workload, tensors: &[u32], there: &[bool]) -> Option<u64> {
    let mut kernels = std::collections::BTreeSet::new();
    let mut open = tensors.to_vec();
    while let Some(t) = open.pop() {
        let writers = w.tensors[t as usize].uses.iter().filter(|u| u.1);
        for &(p, _) in writers {
            if !kernels.insert(p) {
                continue;
            }
            if kernels.len() > CHAIN {
                return None;
            }
            let reads = w.kernels[p as usize].uses.iter().filter(|u| u.read);
            let gone = |t: &u32| !there[*t as usize] && !w.tensors[*t as usize].lasting;
            open.extend(reads.map(|u| u.tensor).filter(gone));
        }
    }
    Some(kernels.iter().map(|&p| w.kernels[p as usize].ns).sum())
}
