// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What planners know of a step on a machine.

use uvmsim_machine::Machine;
use uvmsim_machine::BLOCK;
use uvmsim_trace::Kind;

use crate::plan::Plan;
use crate::plan::What;
use crate::policy::Tier;
use crate::workload::running_sums;
use crate::workload::Layout;
use crate::workload::Workload;

/// The most slots that a step is divided into; steps of fewer kernels have a
/// slot for each.
pub const SLOTS: usize = 2048;

/// A time between two uses of a tensor, in which it could be elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// The tensor that is idle.
    pub tensor: u32,
    /// The kernel that uses it last before.
    pub after: u32,
    /// The kernel that uses it next; in the next step if not after `after`.
    pub next: u32,
    /// First slot without use, and number of slots without.
    pub from: usize,
    /// Slots without use; the gap may wrap around the end of the step.
    pub slots: usize,
    /// Whether it reaches into the next step.
    pub looped: bool,
    /// GPU memory that its absence frees: whole va_blocks.
    pub bytes: u64,
}

/// A step on a machine, for planning.
pub struct Profile<'a> {
    /// The machine that is planned for.
    pub machine: &'a Machine,
    /// The step that is planned.
    pub workload: &'a Workload,
    /// First kernel of each slot, and the number of kernels.
    pub first_kernel: Vec<u32>,
    /// Duration of each slot, nanoseconds.
    pub duration: Vec<u64>,
    /// GPU memory that live tensors need in each slot, bytes of va_blocks.
    pub live: Vec<u64>,
    /// Kernels before its birth that a tensor's memory is asked for.
    pub ahead: u32,
    /// GPU memory that a plan may fill.
    pub capacity: u64,
    /// All gaps of tensors that fill at least a va_block, by tensor.
    pub gaps: Vec<Gap>,
}

impl<'a> Profile<'a> {
    /// The profile of `workload` on `machine`, planned to fill `fill` of its
    /// memory, with a tensor's memory asked for `ahead` kernels before its birth.
    pub fn new(
        machine: &'a Machine,
        workload: &'a Workload,
        layout: &Layout,
        fill: f64,
        ahead: u32,
    ) -> Self {
        let kernels = workload.kernels.len();
        let slots = kernels.clamp(1, SLOTS);
        let first_kernel: Vec<u32> = (0..=slots).map(|s| (s * kernels / slots) as u32).collect();
        let mut p = Self {
            machine,
            workload,
            duration: vec![1; slots],
            first_kernel,
            live: Vec::new(),
            ahead,
            capacity: (machine.gpu_mem as f64 * fill) as u64,
            gaps: Vec::new(),
        };
        p.live = live_blocks(workload, layout, ahead, slots, |k| p.slot(k));
        p.gaps = p.find_gaps(layout);
        let times: Vec<u64> = workload.kernels.iter().map(|k| k.ns).collect();
        p.with_times(&times)
    }

    /// The same step with other durations of its kernels: those that a run has
    /// shown, stalls included, so that links have the time that they will have.
    pub fn with_times(mut self, kernel_ns: &[u64]) -> Self {
        for (bounds, d) in self.first_kernel.windows(2).zip(&mut self.duration) {
            let kernels = kernel_ns.get(bounds[0] as usize..bounds[1] as usize);
            *d = kernels.map_or(0, |k| k.iter().sum::<u64>()).max(1);
        }
        self
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.duration.len()
    }

    /// The slot of kernel `k`.
    pub fn slot(&self, k: u32) -> usize {
        self.first_kernel.partition_point(|&f| f <= k) - 1
    }

    fn find_gaps(&self, layout: &Layout) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (i, t) in self.workload.tensors.iter().enumerate() {
            let whole = layout.whole_blocks(self.workload, i as u32);
            if t.uses.is_empty() || whole == 0 {
                continue;
            }
            let mut add = |after: u32, next: u32, looped: bool| {
                let from = self.slot(after) + 1;
                let to = self.slot(next) + if looped { self.slots() } else { 0 };
                if to > from {
                    gaps.push(Gap {
                        tensor: i as u32,
                        after,
                        next,
                        from,
                        slots: to - from,
                        looped,
                        bytes: whole * BLOCK,
                    });
                }
            };
            for u in t.uses.windows(2) {
                add(u[0].0, u[1].0, false);
            }
            if t.lasting && t.kind != Kind::Input {
                add(t.last(), t.first(), true);
            }
        }
        gaps
    }

    /// Whether tensor contents before `gap` differ from every copy outside, given
    /// the `accepted` gaps, in which it left GPU memory.
    pub fn dirty(&self, gap: &Gap, accepted: &[bool]) -> bool {
        let t = &self.workload.tensors[gap.tensor as usize];
        if self.machine.keep_clean == 0 {
            return true;
        }
        let at = t.uses.partition_point(|u| u.0 <= gap.after);
        let gaps = self.gaps_of(gap.tensor);
        for i in 0..t.uses.len() {
            // Uses before the gap, backwards, around the step if it lasts.
            let (use_at, wrapped) = match at.checked_sub(1 + i) {
                Some(j) => (j, false),
                None if t.lasting => (at + t.uses.len() - 1 - i, true),
                None => return true,
            };
            if t.uses[use_at].1 {
                return true;
            }
            let mut gaps = gaps.clone();
            let before = gaps.find(|&g| self.gaps[g].next == t.uses[use_at].0);
            if before.is_some_and(|g| accepted[g]) || wrapped && use_at == at {
                return false;
            }
        }
        !t.lasting
    }

    /// The numbers of a tensor's gaps.
    pub fn gaps_of(&self, tensor: u32) -> std::ops::Range<usize> {
        let from = self.gaps.partition_point(|g| g.tensor < tensor);
        let to = self.gaps.partition_point(|g| g.tensor <= tensor);
        from..to
    }

    /// Nanoseconds that a copy of `bytes` between GPU and `tier` takes alone.
    pub fn copy_ns(&self, bytes: u64, tier: Tier, into_gpu: bool) -> u64 {
        let m = self.machine;
        let link = if into_gpu { m.pcie_h2d } else { m.pcie_d2h };
        let ssd = if into_gpu { m.ssd_read } else { m.ssd_write };
        let rate = match tier {
            Tier::Host => link,
            Tier::Ssd => link.min(ssd.max(1.0)),
        };
        (bytes as f64 / rate * 1e9) as u64
    }

    /// Start of each slot in ideal time, and the end of the step.
    pub fn starts(&self) -> Vec<u64> {
        let ends = self.duration.iter().scan(0, |at, d| {
            *at += d;
            Some(*at)
        });
        [0].into_iter().chain(ends).collect()
    }

    /// A plan with the prefetch of every input before its first use, one after the
    /// other on the link; if need be before the end of the last step.
    pub fn plan(&self) -> Plan {
        /// For what else the link carries.
        const SLACK: u64 = 100_000;
        let mut plan = Plan::new(self.workload.kernels.len(), self.ahead);
        let starts = self.starts();
        let step = starts[self.slots()];
        let tensors = self.workload.tensors.iter().enumerate();
        let used = tensors.filter(|(_, t)| !t.uses.is_empty());
        let mut inputs: Vec<_> = used.filter(|(_, t)| t.kind == Kind::Input).collect();
        inputs.sort_by_key(|(i, t)| (std::cmp::Reverse(t.first()), *i));
        let mut next = u64::MAX;
        for (i, t) in inputs {
            // Times are counted from the step before.
            let need = starts[self.slot(t.first())] + step;
            let copy = self.copy_ns(t.bytes, Tier::Host, true);
            next = need.min(next).saturating_sub(copy + copy / 4);
            let at = next.saturating_sub(SLACK);
            let slot_at = |at: u64| starts.partition_point(|&s| s <= at) - 1;
            let slot = match at.checked_sub(step) {
                Some(at) => slot_at(at),
                None => slot_at(at).max(self.slot(t.last()) + 1),
            };
            let slot = if slot < self.slots() { slot } else { 0 };
            plan.before[self.first_kernel[slot] as usize].push((What::Prefetch, i as u32));
        }
        for ops in &mut plan.before {
            ops.reverse();
        }
        plan
    }

    /// The earliest slot from `earliest` on in which `bytes` may come in that slot `end` needs: in `memory`, what is
    /// planned so far, there is room from then on, and they take it.
    pub fn as_early(&self, memory: &mut [u64], bytes: u64, earliest: usize, end: usize) -> usize {
        let n = memory.len();
        let mut at = end;
        while at > earliest && memory[(at - 1) % n] + bytes <= self.capacity {
            at -= 1;
            memory[at % n] += bytes;
        }
        at
    }

    /// Adds to `plan`: `gap`'s tensor leaves for `tier` at once and is fetched from
    /// slot `prefetch` on (counted from the gap's own step).
    pub fn schedule(&self, plan: &mut Plan, gap: &Gap, tier: Tier, prefetch: usize) {
        let kernels = self.workload.kernels.len() as u32;
        let out = (gap.after + 1) % kernels;
        plan.before[out as usize].push((What::Evict(tier), gap.tensor));
        // Within a slot of several kernels, not before the tensor has left, nor
        // after it is needed.
        let mut k = self.first_kernel[prefetch % self.slots()];
        if prefetch < self.slots() {
            k = k.max(gap.after + 1);
        }
        if !gap.looped || prefetch >= self.slots() {
            k = k.min(gap.next);
        }
        plan.before[(k % kernels) as usize].push((What::Prefetch, gap.tensor));
    }
}

/// Bytes of all va_blocks that hold something alive, in each of `slots` slots, where
/// memory is asked for `ahead` kernels before a tensor's birth.
pub(super) fn live_blocks(
    workload: &Workload,
    layout: &Layout,
    ahead: u32,
    slots: usize,
    slot: impl Fn(u32) -> usize,
) -> Vec<u64> {
    // Intervals of life, by block: the union is what counts.
    let mut by_block: Vec<Vec<(u32, u32)>> = vec![Vec::new(); layout.blocks()];
    for (i, t) in workload.tensors.iter().enumerate() {
        if t.uses.is_empty() {
            continue;
        }
        let life = if t.lasting {
            (0, slots as u32 - 1)
        } else {
            let first = t.first().saturating_sub(ahead);
            (slot(first) as u32, slot(t.last()) as u32)
        };
        for (b, ..) in layout.parts(workload, i as u32) {
            by_block[b as usize].push(life);
        }
    }
    let mut change = vec![0i64; slots + 1];
    for lives in &mut by_block {
        lives.sort_unstable();
        let mut end = 0u32;
        for &(a, b) in lives.iter() {
            let from = a.max(end);
            if b + 1 > from {
                change[from as usize] += 1;
                change[b as usize + 1] -= 1;
                end = b + 1;
            }
        }
    }
    let blocks = running_sums(&change[..slots]);
    blocks.map(|b| b as u64 * BLOCK).collect()
}

/// What a link can still carry in each slot.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Bytes left, by slot.
    pub left: Vec<f64>,
}

impl Budget {
    /// A link of `rate` bytes per second over slots of these durations.
    pub fn new(rate: f64, duration: &[u64]) -> Self {
        Self {
            left: duration.iter().map(|&d| rate * d as f64 / 1e9).collect(),
        }
    }

    /// Slots from `from` on until `bytes` have passed, at most `limit`; `None` if
    /// they do not within. The count includes the last, partly used slot.
    pub fn forward(&self, from: usize, limit: usize, bytes: u64) -> Option<usize> {
        let n = self.left.len();
        self.pass((0..limit).map(|i| (from + i) % n), bytes)
    }

    /// Slots before `to` (exclusive) needed for `bytes`, at most `limit`.
    pub fn backward(&self, to: usize, limit: usize, bytes: u64) -> Option<usize> {
        let n = self.left.len();
        self.pass((0..limit).map(|i| (to + n - 1 - i % n) % n), bytes)
    }

    /// How many of `slots` it takes until `bytes` have passed.
    fn pass(&self, slots: impl Iterator<Item = usize>, bytes: u64) -> Option<usize> {
        let (mut rest, mut taken) = (bytes as f64, 0);
        for slot in slots {
            if rest <= 0.0 {
                break;
            }
            rest -= self.left[slot];
            taken += 1;
        }
        (rest <= 0.0).then_some(taken)
    }

    /// Uses up `bytes` from slot `from` on.
    pub fn book_forward(&mut self, from: usize, bytes: u64) {
        let n = self.left.len();
        self.book((0..n).map(|i| (from + i) % n), bytes);
    }

    /// Uses up `bytes` before slot `to`, the latest first.
    pub fn book_backward(&mut self, to: usize, bytes: u64) {
        let n = self.left.len();
        self.book((0..n).map(|i| (to + n - 1 - i) % n), bytes);
    }

    fn book(&mut self, slots: impl Iterator<Item = usize>, bytes: u64) {
        let mut rest = bytes as f64;
        for slot in slots {
            let left = &mut self.left[slot];
            let taken = rest.min(left.max(0.0));
            *left -= taken;
            rest -= taken;
            if rest <= 0.0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_fill_and_wrap() {
        let mut b = Budget::new(1e9, &[10, 10, 10, 10]);
        assert_eq!(b.forward(1, 4, 15), Some(2));
        b.book_forward(1, 15);
        assert_eq!(b.left, [10.0, 0.0, 5.0, 10.0]);
        assert_eq!(b.forward(1, 2, 6), None);
        assert_eq!(b.backward(1, 4, 15), Some(2));
        b.book_backward(1, 15);
        assert_eq!(b.left, [0.0, 0.0, 5.0, 5.0]);
    }
}
