// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A lower bound of the step time, whatever the policy.
//!
//! Consider the end of kernel j. Of the tensors whose contents are read later, those
//! written after kernel s have no copy outside from before. GPU memory holds at most
//! its capacity of them, so the rest has been copied out between the start of
//! kernel s + 1 and the end of kernel j. What dies with kernel j counts where memory is
//! not released before a kernel's end. Likewise, of those that are read again by
//! kernel e, all but the capacity is copied in between the start of kernel j + 1 and
//! the end of kernel e. Each such statement is a least distance
//! between two times; so is the duration of the kernels between. The step, which
//! repeats, is no shorter than the longest chain of such distances around it.
//!
//! Where a copy is lost once it is fetched, more is said of the tensors that are used
//! after kernel s. Of what of them is absent at the end of kernel j, all that came in
//! since has been copied out since. The rest was in GPU memory as kernel s ended, with
//! a copy that may be older. So all but twice the capacity has been copied out. Around
//! the whole step it is all but the capacity: what is used in each step comes in after
//! each time that it is absent at the end of kernel j, and is copied out before the
//! next. Where a page is in one place alone, what is in GPU memory has no copy, and all
//! but the capacity has been copied out since kernel s, however short that is ago.
//!
//! Nothing is assumed of policies: no working set need be resident at once, a
//! copy may begin while a kernel writes, tensors may be split at will, setup,
//! faults and latencies cost nothing. The bound is therefore below what can be
//! reached.

use uvmsim_machine::Machine;
use uvmsim_trace::Kind;

use crate::workload::Workload;

/// Boundaries looked at, at most.
const POINTS: usize = 256;

/// Nanoseconds below which no steady step of `workload` on `machine` can be.
pub fn bound_ns(machine: &Machine, workload: &Workload) -> u64 {
    let rules = Rules {
        repeats: true,
        copies: match machine.keep_clean {
            0 => Copies::UntilFetched,
            _ => Copies::UntilWritten,
        },
        dying: true,
    };
    longest_chain(machine, workload, rules)
}

/// Nanoseconds below which no single step is, whatever the memories hold as it begins
/// and are left with, where a page is in one place alone: only what is used or read
/// within the step counts.
pub fn step_bound_ns(machine: &Machine, workload: &Workload) -> u64 {
    let rules = Rules {
        repeats: false,
        copies: Copies::OfTheAbsent,
        dying: false,
    };
    longest_chain(machine, workload, rules)
}

/// Which pages have a copy outside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// Those copied out since they were last written.
    UntilWritten,
    /// Those copied out since they were last fetched or written.
    UntilFetched,
    /// Those that are not in GPU memory.
    OfTheAbsent,
}

/// What may be said.
#[derive(Clone, Copy)]
struct Rules {
    /// The step repeats, and begins as it ends.
    repeats: bool,
    copies: Copies,
    /// A kernel's tensors are all there, or outside, as it ends.
    dying: bool,
}

/// The longest chain: around the step, which repeats, or from its start to its end.
fn longest_chain(machine: &Machine, workload: &Workload, rules: Rules) -> u64 {
    let kernels = workload.kernels.len();
    let points = kernels.min(POINTS);
    if points == 0 {
        return 0;
    }
    let at = boundaries(workload, points);
    let gpus = machine.gpus.max(1);
    let mut busy = vec![0u64; points];
    for (k, kernel) in workload.kernels.iter().enumerate() {
        busy[at.partition_point(|&a| a < k)] += kernel.ns / gpus;
    }
    let mut least = Distances::new(points);
    let part_of = |k: usize| at.partition_point(|&a| a < k);
    let parts: Vec<usize> = (0..kernels).map(part_of).collect();
    for j in 0..points {
        crossings(machine, workload, (&at, &parts), j, rules, &mut least);
    }
    // The last point is the end of the step, and the start of the next.
    let from = if rules.repeats { 0 } else { points - 1 };
    (from..points)
        .map(|p| around(p, &busy, &least))
        .max()
        .unwrap_or(0)
}

/// The boundaries to look at, as the kernels that they are after: of each of `points`
/// parts of the step that where most is alive, and the end of the step.
pub fn boundaries(w: &Workload, points: usize) -> Vec<usize> {
    let kernels = w.kernels.len();
    let alive: Vec<u64> = w.alive(|t| t.bytes).collect();
    let mut at: Vec<usize> = (0..points)
        .filter_map(|i| {
            let part = i * kernels / points..(i + 1) * kernels / points;
            part.max_by_key(|&k| (alive[k], k))
        })
        .collect();
    if let Some(last) = at.last_mut() {
        *last = kernels - 1;
    }
    at
}

/// Least times from one point to a later one, at most a step on.
struct Distances {
    points: usize,
    /// By first point and number of points on.
    ns: Vec<u64>,
}

impl Distances {
    fn new(points: usize) -> Self {
        Self {
            points,
            ns: vec![0; points * (points + 1)],
        }
    }

    /// At least `ns` pass from point `from` to the `on`th after it.
    fn at_least(&mut self, from: usize, on: usize, ns: u64) {
        let slot = &mut self.ns[from * (self.points + 1) + on];
        *slot = ns.max(*slot);
    }

    fn get(&self, from: usize, on: usize) -> u64 {
        self.ns[from * (self.points + 1) + on]
    }
}

/// The longest chain from point `p` to itself a step later.
fn around(p: usize, busy: &[u64], least: &Distances) -> u64 {
    let n = busy.len();
    let mut far = vec![0u64; n + 1];
    for j in 1..=n {
        let mut best = far[j - 1] + busy[(p + j) % n];
        for (s, reached) in far[..j].iter().enumerate() {
            best = best.max(reached + least.get((p + s) % n, j - s));
        }
        far[j] = best;
    }
    far[n]
}

/// Bytes by how many points before a boundary they were last written, and last used,
/// and by how many points after it they are read.
struct Crossing {
    written: Vec<u64>,
    used: Vec<u64>,
    read: Vec<u64>,
}

/// What is alive at the boundary `at[j]`; each kernel is in one of the parts between them.
fn crossing(w: &Workload, (at, parts): (&[usize], &[usize]), j: usize, rules: Rules) -> Crossing {
    let n = at.len();
    let boundary = at[j] as u32;
    let [written, used, read] = [(); 3].map(|()| vec![0u64; n + 1]);
    let mut crossing = Crossing {
        written,
        used,
        read,
    };
    let before = |k: u32| {
        // Points from the one before kernel k to the boundary, around the step.
        (j + n - parts[k as usize]) % n + 1
    };
    let after = |k: u32| {
        let i = parts[k as usize];
        // A whole step on, if not within it.
        (i + 2 * n - j - 1) % n + 1
    };
    let reads = |k: u32, i: usize| {
        let uses = &w.kernels[k as usize].uses;
        uses.iter().any(|u| u.tensor as usize == i && u.read)
    };
    for (i, t) in w.tensors.iter().enumerate() {
        if t.uses.is_empty() || t.kind == Kind::Input {
            continue;
        }
        let next = t.uses.partition_point(|u| u.0 <= boundary);
        let (past, rest) = t.uses.split_at(next);
        // The uses of the next step, and of the last, of what lasts.
        let (on, back) = match t.lasting && rules.repeats {
            true => (past, rest),
            false => (&[][..], &[][..]),
        };
        let to = rest.iter().chain(on).next();
        let mut from = back.iter().chain(past).rev();
        // What is next overwritten without being read need neither leave nor return.
        let needed = to.map_or(t.lasting, |u| reads(u.0, i));
        let dies = rules.dying && past.last().is_some_and(|u| u.0 == boundary);
        if !needed && !dies {
            continue;
        }
        if let Some(&(k, _)) = from.clone().next() {
            crossing.used[before(k)] += t.bytes;
        }
        if let Some(&(k, _)) = from.find(|u| u.1) {
            crossing.written[before(k)] += t.bytes;
        }
        if let Some(&(k, _)) = to.filter(|_| needed) {
            crossing.read[after(k)] += t.bytes;
        }
    }
    crossing
}

/// What must be copied around the boundary `at[j]`.
fn crossings(
    machine: &Machine,
    w: &Workload,
    (at, parts): (&[usize], &[usize]),
    j: usize,
    rules: Rules,
    least: &mut Distances,
) {
    let n = at.len();
    let crossing = crossing(w, (at, parts), j, rules);
    let beyond = |bytes: u64, times: u64| bytes.saturating_sub(times * machine.gpu_mem);
    let (mut written, mut used, mut read) = (0, 0, 0);
    for on in 1..=n {
        written += crossing.written[on];
        used += crossing.used[on];
        read += crossing.read[on];
        let left = match rules.copies {
            Copies::UntilWritten => beyond(written, 1),
            Copies::UntilFetched if on < n => beyond(written, 1).max(beyond(used, 2)),
            Copies::UntilFetched | Copies::OfTheAbsent => beyond(used, 1),
        };
        let came = beyond(read, 1);
        // A chain within the step does not pass its end.
        let (from_start, to_end) = (rules.repeats || on <= j + 1, rules.repeats || j + on < n);
        if from_start {
            let out = copy_ns(machine, left, machine.pcie_d2h, machine.ssd_write);
            least.at_least((j + n - on % n) % n, on, out);
        }
        if to_end {
            let back = copy_ns(machine, came, machine.pcie_h2d, machine.ssd_read);
            least.at_least(j, on, back);
        }
    }
}

/// Least time to move `bytes`; what the host cannot hold of them goes at the SSD's rate.
fn copy_ns(machine: &Machine, bytes: u64, link: f64, ssd: f64) -> u64 {
    let beyond = bytes.saturating_sub(machine.host_mem);
    let by_link = bytes as f64 / link;
    let by_ssd = if ssd > 0.0 { beyond as f64 / ssd } else { 0.0 };
    (by_link.max(by_ssd) * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use uvmsim_machine::presets;
    use uvmsim_machine::GIB;

    use super::*;
    use crate::workload::Kernel;
    use crate::workload::Use;

    /// Eight tensors of 1 GiB written one after the other, then read in reverse.
    fn there_and_back() -> Workload {
        let tensors = (0..8)
            .map(|i| (format!("t{i}"), GIB, Kind::Activation))
            .collect();
        let there = (0..8).map(Use::write);
        let uses = there.chain((0..8).rev().map(Use::read));
        let kernels = uses.map(|u| Kernel::new(format!("k{}", u.tensor), 1_000_000, [u]));
        Workload::new("w", tensors, kernels.collect())
    }

    #[test]
    fn what_does_not_fit_must_go_and_come_back() {
        let mut m = presets::find("a100").unwrap();
        let w = there_and_back();
        assert_eq!(bound_ns(&m, &w), w.ideal_ns());
        m.gpu_mem = 5 * GIB;
        // Three GiB out before the turn, three GiB in after it; t0 to t2 while
        // the kernels run, all of it longer than they do.
        let one_way = 3.0 * GIB as f64 / 15.754e9 * 1e9;
        let bound = bound_ns(&m, &w) as f64;
        assert!((bound - 2.0 * one_way).abs() < 2e6, "{bound} {one_way}");
        m.host_mem = 2 * GIB;
        let ssd = GIB as f64 / 3.2e9 * 1e9;
        assert!((bound_ns(&m, &w) as f64 - 2.0 * ssd).abs() < 2e6);
    }
}
