// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! MOST's planner (section III.A, figure 3).
//!
//! Tensors are taken in order of the benefit B = S × I. P_safe is the latest kernel from
//! which the prefetch is in time. If memory is not oversubscribed at P_safe, the tensor
//! leaves after its use and comes back at P_safe. If it is, every kernel from P_safe to
//! the use is tried as the one of the prefetch, for two sums of stalls:
//!
//! * what oversubscription costs from that kernel on, where the tensor takes up memory
//!   again, and P_delay, the time by which the prefetch is late: the kernel for which the
//!   two are least is taken;
//! * Oversub_stall, "the sum of eviction latency incurred by memory oversubscription for
//!   executing subsequent kernels until a prefetching performs": what the kernels of the
//!   tensor's absence are spared. The move is made if Oversub_stall exceeds P_delay.
//!
//! The paper uses one name for both sums. Its introduction tells them apart: the
//! "reduction in memory oversubscription stalls achieved by pre-evicting a tensor"
//! against "the potential stalls caused by late prefetching". The eviction latency that a
//! kernel incurs for a tensor is the time to copy out what memory is over capacity while
//! that kernel runs, at most the tensor.
//!
//! The paper has no term for the time that a tensor takes to leave, and moves tensors
//! "even if their transfer time exceeds the reuse interval": to the plan it is gone at
//! once. So whatever is not over capacity at P_safe is scheduled there, and a least sum of
//! nothing does not arise where P_safe is over capacity.
//!
//! One departure is ours: where memory suffices for the whole time between two uses, the
//! tensor stays. To the letter the paper moves it, for no gain. What that and other
//! readings come to is in `docs/simulator-figures.md`.

use crate::plan::Plan;
use crate::plan::Profile;
use crate::policy::Tier;

/// The plan for a step; `host`: the host is a destination, else only the SSD.
pub fn plan(profile: &Profile<'_>, host: bool) -> Plan {
    let mut scheduler = Scheduler {
        profile,
        starts: profile.starts(),
        tier: if host { Tier::Host } else { Tier::Ssd },
        memory: profile.live.clone(),
    };
    let mut order: Vec<usize> = (0..profile.gaps.len()).collect();
    order.sort_by(|&a, &b| {
        let (x, y) = (scheduler.benefit(a), scheduler.benefit(b));
        y.total_cmp(&x).then(a.cmp(&b))
    });
    let mut moves = Vec::new();
    for gap in order {
        if let Some(at) = scheduler.schedule(gap) {
            let g = &profile.gaps[gap];
            moves.push((g.from + g.slots, gap, at));
        }
    }
    // Requests of one kernel in the order of need.
    moves.sort_unstable();
    let mut plan = profile.plan();
    for (_, gap, at) in moves {
        profile.schedule(&mut plan, &profile.gaps[gap], scheduler.tier, at);
    }
    plan
}

/// The schedule while it is made: what the tensors scheduled so far leave of GPU memory.
struct Scheduler<'a> {
    profile: &'a Profile<'a>,
    /// Start of each slot and end of the step, nanoseconds.
    starts: Vec<u64>,
    /// The memory that evicted tensors go to.
    tier: Tier,
    /// GPU memory needed in each slot with what was scheduled, bytes.
    memory: Vec<u64>,
}

impl Scheduler<'_> {
    /// Start of `slot`, which may be one of the next step, nanoseconds.
    fn time(&self, slot: usize) -> u64 {
        let n = self.memory.len();
        (slot / n) as u64 * self.starts[n] + self.starts[slot % n]
    }

    /// B = S × I of a gap.
    fn benefit(&self, gap: usize) -> f64 {
        let g = &self.profile.gaps[gap];
        g.bytes as f64 * (self.time(g.from + g.slots) - self.time(g.from)) as f64
    }

    /// Bytes over capacity while `slot` runs.
    fn over(&self, slot: usize) -> u64 {
        self.memory[slot % self.memory.len()].saturating_sub(self.profile.capacity)
    }

    /// Decides about a gap: the slot of the prefetch if the tensor leaves in it.
    fn schedule(&mut self, gap: usize) -> Option<usize> {
        let g = &self.profile.gaps[gap];
        let (from, end, bytes) = (g.from, g.from + g.slots, g.bytes);
        if (from..end).all(|j| self.over(j) == 0) {
            return None;
        }
        let fetch = self.profile.copy_ns(bytes, self.tier, true);
        let use_at = self.time(end);
        let late = |p: usize| (self.time(p) + fetch).saturating_sub(use_at);
        // Where the fetch takes longer than the tensor is idle, P_safe is its last use.
        let safe = (from..end).rev().find(|&j| late(j) == 0).unwrap_or(from);
        let mut at = safe;
        if self.over(safe) > 0 {
            let stall = |j: usize| self.evict_ns(self.over(j).min(bytes));
            let mut rest = 0;
            let mut least = (late(end), end);
            for p in (safe..end).rev() {
                rest += stall(p);
                least = least.min((rest + late(p), p));
            }
            at = least.1;
            let spared: u64 = (from..at).map(stall).sum();
            if spared <= late(at) {
                return None;
            }
        }
        let n = self.memory.len();
        for j in from..at {
            self.memory[j % n] = self.memory[j % n].saturating_sub(bytes);
        }
        Some(at)
    }

    /// Nanoseconds that evicting `bytes` takes.
    fn evict_ns(&self, bytes: u64) -> u64 {
        self.profile.copy_ns(bytes, self.tier, false)
    }
}

#[cfg(test)]
mod tests {
    use uvmsim_machine::presets;
    use uvmsim_machine::Machine;
    use uvmsim_machine::MIB;
    use uvmsim_trace::Kind;

    use super::*;
    use crate::plan::Op;
    use crate::plan::What;
    use crate::tests::byte_a_ns;
    use crate::workload::Kernel;
    use crate::workload::Layout;
    use crate::workload::Use;
    use crate::workload::Workload;

    /// Memory of the GPU that the steps below run on.
    const GPU: u64 = 128 * MIB;
    /// Nanoseconds that `TENSOR` bytes take, either way: a byte a nanosecond.
    const COPY: u64 = 64 * MIB;
    const TENSOR: u64 = 64 * MIB;

    /// A tensor is written, not used for some kernels of these durations, which need
    /// the whole GPU for themselves, and read again. The requests for the tensor, with
    /// the kernels before which they are made.
    fn requests(idle: &[u64]) -> Vec<(usize, Op)> {
        let kernel = |ns: u64, of: Use| Kernel::new("k", ns, [of]);
        let mut kernels = vec![kernel(COPY, Use::write(0))];
        for (i, &ns) in idle.iter().enumerate() {
            let of = if i == 0 { Use::write(1) } else { Use::read(1) };
            kernels.push(kernel(ns, of));
        }
        kernels.push(kernel(COPY, Use::read(0)));
        let tensors = [("idle", TENSOR), ("large", GPU)];
        let tensors = tensors.map(|(name, bytes)| (name.into(), bytes, Kind::Activation));
        let w = Workload::new("step", tensors.into(), kernels);
        let l = Layout::new(&w);
        let machine = byte_a_ns(GPU);
        let plan = plan(&Profile::new(&machine, &w, &l, 1.0, 0), true);
        plan.requests().collect()
    }

    /// Each of the six kernels would have to evict the tensor's bytes, and the longest
    /// delay of its prefetch is the time of one of these evictions: their sum counts,
    /// not the largest.
    #[test]
    fn stalls_are_summed_over_the_kernels() {
        let made = requests(&[COPY / 2; 6]);
        let evicts = [(1, (What::Evict(Tier::Host), 0)), (7, (What::Prefetch, 0))];
        assert_eq!(made, evicts);
    }

    /// "MOST enables pre-eviction of large tensors even if their transfer time exceeds the
    /// reuse interval" (section I): its stay would cost an eviction in each of the three
    /// kernels, and its prefetch is late by one copy.
    #[test]
    fn what_takes_longer_than_it_is_idle_may_leave() {
        let made = requests(&[COPY / 4; 3]);
        let evicts = [(1, (What::Evict(Tier::Host), 0)), (4, (What::Prefetch, 0))];
        assert_eq!(made, evicts);
    }

    /// It leaves too late for a prefetch in time, but early enough for the longest of
    /// the kernels: the delay is less than the eviction that the kernel is spared.
    #[test]
    fn a_prefetch_may_be_late() {
        let made = requests(&[COPY, COPY / 2, COPY / 4]);
        let evicts = [(1, (What::Evict(Tier::Host), 0)), (4, (What::Prefetch, 0))];
        assert_eq!(made, evicts);
    }

    /// The steps of the paper's table I whose traces the G10 artifact has, on the
    /// paper's machine: 24 GB, no host memory.
    #[test]
    fn plans_evict_in_the_papers_setting() {
        let Some(traces) = uvmsim_trace::testing::g10_traces() else {
            return;
        };
        let mut planned = 0;
        for batch in [512, 1024] {
            let Ok(trace) = uvmsim_g10::import(&traces, "BERT", batch) else {
                println!("no trace of BERT {batch} in {}", traces.display());
                continue;
            };
            planned += 1;
            let w = Workload::from_trace(&trace);
            let l = Layout::new(&w);
            let machine = presets::find("rtx4090").unwrap();
            assert_eq!(machine.host_mem, 0);
            for (read, write) in [(3.2e9, 3.2e9), (3.2e9, 3.0e9), (25.6e9, 25.6e9)] {
                let machine = Machine {
                    ssd_read: read,
                    ssd_write: write,
                    ..machine.clone()
                };
                let plan = plan(&Profile::new(&machine, &w, &l, 0.97, 1), false);
                println!("BERT {batch}, {read} B/s: {}", plan.evictions());
                assert!(plan.evictions() > 100, "BERT {batch}, {read} B/s");
            }
        }
        assert!(planned > 0);
    }
}
