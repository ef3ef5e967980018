// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Gaps chosen by what their absence is worth per byte moved, in the time that links have
//! left, after the idea of G10's algorithm 1: TERAIO's planner (`teraio.rs`), and a
//! refinement of `best` (`best.rs`). It is not G10: that is `g10.rs`. It counts va_blocks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::plan::Budget;
use crate::plan::Gap;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::policy::Tier;

/// What the planner may use, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether prefetches move to the earliest slot that memory allows
    /// (section 4.4, eager prefetching).
    pub eager: bool,
    /// Whether a gap's benefit counts only what is over capacity, per byte moved;
    /// else whole tensors.
    pub excess_only: bool,
    /// Whether contents that have a valid copy outside leave without another.
    pub drops: bool,
    /// Whether tensors leave for the SSD unless its bandwidth is booked out or it is no help; else for
    /// the host, unless that is none.
    pub ssd_first: bool,
    /// Whether the best of all is chosen each time, and of two as good the larger; else one that
    /// is nearly as good may be.
    pub exact: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            eager: true,
            excess_only: true,
            drops: true,
            ssd_first: false,
            exact: false,
        }
    }
}

/// A gap in which a tensor leaves.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Number of the gap.
    pub gap: usize,
    /// The memory that the tensor goes to for the gap.
    pub tier: Tier,
    /// Slots of the gap until it has left.
    pub out: usize,
    /// Slot, counted from the gap's step, from which it comes back.
    pub prefetch: usize,
}

/// How much better the next candidate must look before a choice is put back.
const SLACK: f64 = 1.02;

/// Planning in progress: memory and links as they are with what was chosen.
pub struct Planner<'a> {
    /// The training step that is planned.
    pub profile: &'a Profile<'a>,
    options: Options,
    /// GPU memory needed in each slot.
    pub memory: Vec<u64>,
    host: Vec<u64>,
    /// Link and SSD, in and out.
    link: [Budget; 2],
    ssd: [Budget; 2],
    /// Which gaps were chosen.
    pub accepted: Vec<bool>,
    /// The choices, in order.
    pub chosen: Vec<Chosen>,
}

impl<'a> Planner<'a> {
    /// A planner of this step that has chosen no move yet.
    pub fn new(profile: &'a Profile<'a>, options: Options) -> Self {
        let m = profile.machine;
        let budget = |rate: f64| Budget::new(rate, &profile.duration);
        Self {
            profile,
            options,
            memory: profile.live.clone(),
            host: vec![0; profile.slots()],
            link: [budget(m.pcie_h2d), budget(m.pcie_d2h)],
            ssd: [budget(m.ssd_read), budget(m.ssd_write)],
            accepted: vec![false; profile.gaps.len()],
            chosen: Vec::new(),
        }
    }

    /// Chooses gaps by benefit until memory suffices or none helps.
    ///
    /// A benefit only falls while others are chosen, so the best is found by
    /// looking again at the head of a heap.
    pub fn choose(&mut self) {
        let (gaps, exact) = (&self.profile.gaps, self.options.exact);
        let slack = if exact { 1.0 } else { SLACK };
        // Benefits are above zero: their bits are in the same order.
        let entry = |benefit: f64, gap: usize| {
            let bytes = if exact { gaps[gap].bytes } else { 0 };
            (benefit.to_bits(), bytes, Reverse(gap))
        };
        let all = (0..self.profile.gaps.len()).filter_map(|gap| Some((gap, self.evaluate(gap)?.1)));
        let mut heap: BinaryHeap<_> = all.map(|(gap, benefit)| entry(benefit, gap)).collect();
        while let Some((.., Reverse(gap))) = heap.pop() {
            if self.memory.iter().all(|&m| m <= self.profile.capacity) {
                break;
            }
            let Some((chosen, benefit)) = self.evaluate(gap) else {
                continue;
            };
            let next = heap.peek();
            if next.is_some_and(|next| f64::from_bits(next.0) > benefit * slack) {
                heap.push(entry(benefit, gap));
                continue;
            }
            self.accept(chosen);
        }
    }

    /// When the tensor of `gap` could leave and would have to come back, and what
    /// its absence is worth.
    fn evaluate(&self, gap: usize) -> Option<(Chosen, f64)> {
        if self.accepted[gap] {
            return None;
        }
        let g = &self.profile.gaps[gap];
        let dirty = self.is_copied(g);
        let ssd_first = self.options.ssd_first && !self.ssd_is_busy(g);
        let tiers = match ssd_first {
            true => [Tier::Ssd, Tier::Host],
            false => [Tier::Host, Tier::Ssd],
        };
        for tier in tiers {
            let Some((out, back)) = self.fit(g, tier, dirty) else {
                continue;
            };
            let prefetch = g.from + g.slots - back;
            let benefit = self.benefit(g, out, back);
            let chosen = Chosen {
                gap,
                tier,
                out,
                prefetch,
            };
            if benefit > 0.0 {
                return Some((chosen, benefit));
            }
        }
        None
    }

    /// Whether the SSD's writes are booked out in all slots in which the gap's tensor would leave if it
    /// were alone (G10's rule, `evict_activation` in `uvmsim_g10`).
    fn ssd_is_busy(&self, g: &Gap) -> bool {
        let mut rest = self.profile.copy_ns(g.bytes, Tier::Ssd, false);
        let slots = (g.from..g.from + g.slots).map(|j| j % self.memory.len());
        let mut alone = slots.take_while(|&slot| {
            let more = rest > 0;
            rest = rest.saturating_sub(self.profile.duration[slot]);
            more
        });
        alone.all(|slot| self.ssd[1].left[slot] <= 0.0)
    }

    /// Whether the tensor must be copied to leave in the gap.
    fn is_copied(&self, g: &Gap) -> bool {
        !self.options.drops || self.profile.dirty(g, &self.accepted)
    }

    /// Slots to leave in and slots to come back in, if the gap has both.
    fn fit(&self, g: &Gap, tier: Tier, dirty: bool) -> Option<(usize, usize)> {
        let m = self.profile.machine;
        let used = |i: usize| self.host[(g.from + i) % self.host.len()];
        let room = match tier {
            Tier::Host => m.host_mem > 0 && (0..g.slots).all(|i| used(i) + g.bytes <= m.host_mem),
            Tier::Ssd => m.ssd_write > 0.0,
        };
        if !room {
            return None;
        }
        let to = g.from + g.slots;
        let mut out = if dirty {
            self.link[1].forward(g.from, g.slots, g.bytes)?
        } else {
            0
        };
        let mut back = self.link[0].backward(to, g.slots, g.bytes)?;
        if tier == Tier::Ssd {
            if dirty {
                out = out.max(self.ssd[1].forward(g.from, g.slots, g.bytes)?);
            }
            back = back.max(self.ssd[0].backward(to, g.slots, g.bytes)?);
        }
        (out + back < g.slots).then_some((out, back))
    }

    /// Memory over capacity that the gap relieves, times how long.
    fn benefit(&self, g: &Gap, out: usize, back: usize) -> f64 {
        let n = self.memory.len();
        let capacity = self.profile.capacity;
        let mut area = 0.0;
        let mut add = |slots: std::ops::Range<usize>| {
            let memory = &self.memory[slots.clone()];
            for (&m, &d) in memory.iter().zip(&self.profile.duration[slots]) {
                if m > capacity {
                    let relief = if self.options.excess_only {
                        g.bytes.min(m - capacity)
                    } else {
                        g.bytes
                    };
                    area += relief as f64 * d as f64;
                }
            }
        };
        let (from, to) = (g.from + out, g.from + g.slots - back);
        add(from.min(n)..to.min(n));
        add(from.max(n) - n..to.max(n) - n);
        area / g.bytes as f64
    }

    fn accept(&mut self, c: Chosen) {
        let g = self.profile.gaps[c.gap];
        let n = self.memory.len();
        let dirty = self.is_copied(&g);
        let end = g.from + g.slots;
        self.accepted[c.gap] = true;
        if dirty {
            self.link[1].book_forward(g.from, g.bytes);
        }
        self.link[0].book_backward(end, g.bytes);
        if c.tier == Tier::Ssd {
            if dirty {
                self.ssd[1].book_forward(g.from, g.bytes);
            }
            self.ssd[0].book_backward(end, g.bytes);
        } else {
            for i in 0..g.slots {
                self.host[(g.from + i) % n] += g.bytes;
            }
        }
        for j in g.from + c.out..c.prefetch {
            self.memory[j % n] -= g.bytes;
        }
        self.chosen.push(c);
    }

    /// Moves each prefetch, in order of need, as early as memory allows.
    pub fn prefetch_eagerly(&mut self) {
        let mut order: Vec<usize> = (0..self.chosen.len()).collect();
        order.sort_by_key(|&i| (self.chosen[i].prefetch, i));
        for i in order {
            let (profile, c) = (self.profile, &mut self.chosen[i]);
            let g = &profile.gaps[c.gap];
            let gone = g.from + c.out + 1;
            c.prefetch = profile.as_early(&mut self.memory, g.bytes, gone, c.prefetch);
        }
    }

    /// The choices as a plan.
    pub fn plan(&self) -> Plan {
        let mut plan = self.profile.plan();
        let gap = |c: &Chosen| &self.profile.gaps[c.gap];
        let mut chosen = self.chosen.clone();
        chosen.sort_by_key(|c| (gap(c).from + gap(c).slots, c.gap));
        for c in &chosen {
            let profile = self.profile;
            profile.schedule(&mut plan, gap(c), c.tier, c.prefetch);
        }
        plan
    }
}

/// The plan for a step.
pub fn plan(profile: &Profile<'_>, options: Options) -> Plan {
    let mut planner = Planner::new(profile, options);
    planner.choose();
    if options.eager {
        planner.prefetch_eagerly();
    }
    planner.plan()
}
