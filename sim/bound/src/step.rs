// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What every steady step on the physical machine fulfils, as a linear program.
//!
//! The step is cut at some ends of kernels, before what dies with the kernel is released. What is unknown
//! is how long each part between two cuts takes, and of each tensor, at each cut at which it is alive,
//! how much is absent from GPU memory and how much has been copied out since it was last written.
//! Then these hold, for every policy:
//!
//! - a part is no shorter than its kernels together;
//! - at a cut, what is alive and not absent fits in GPU memory;
//! - what is absent has a copy outside, unless it is next overwritten without being read;
//! - what is absent before a part that first reads it has come in by the part's end, and so has
//!   what is no longer absent after it;
//! - a copy that was not there before a part, or is of what the part writes, was made in it; where a copy is
//!   lost once it is fetched, so was one of what came in;
//! - an input is replaced by the next step's as its last use ends: all of it is outside then, and none in
//!   GPU memory, so that what the next step reads of it has come in since;
//! - in each direction, a part is no shorter than what is copied in it takes;
//! - with one copy engine, nor is it shorter than what the link takes for both directions together. An SSD
//!   reads and writes at once whatever the engines, and the link is free while the SSD is still busy.
//!
//! Everything is relaxed: tensors may be split at will, no kernel's tensors need be there together, host
//! memory has room, nothing faults. A copy half done counts half, so that time and bytes of each part are
//! its own. A copy moves a va_block at the most, so that its setup is counted once for as many bytes.
//! Rates are rounded up and sizes down.

use std::collections::BTreeMap;

use uvmsim_machine::Machine;
use uvmsim_machine::BLOCK;
use uvmsim_machine::PAGE;
use uvmsim_physical::boundaries;
use uvmsim_physical::workload::Tensor;
use uvmsim_physical::Workload;
use uvmsim_trace::Kind;

use crate::lp::Column;
use crate::lp::Lp;

/// Unknown pages are of this order, 1 GiB as a power of two.
const PAGES: u32 = 18;
/// Unknown nanoseconds are of this order, about a second.
const TIME: u32 = 30;

/// How a part uses a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    /// The number of the part, which is that of the cut at its end.
    part: usize,
    /// Whether the part's first use reads what was there before.
    reads: bool,
    /// Whether copies from before are worth nothing after the part.
    writes: bool,
}

/// What tensors have in common that the program cannot tell apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    parts: Vec<Part>,
    /// The last cut at which it is alive, of those from the first part on; `None`: it lasts.
    until: Option<usize>,
    /// An input's, when the next step's contents take the place of the last's.
    renewed: Option<Renewal>,
}

impl Pattern {
    /// Whether what it contains at `cut` is read later, or may be before what dies with a kernel is released.
    fn is_needed(&self, cut: usize) -> bool {
        let later = self.parts.iter().find(|p| p.part > cut);
        let around = self.parts.first().filter(|_| self.until.is_none());
        later.or(around).is_none_or(|p| p.reads)
    }
}

/// When new contents of an input are outside, and the old ones are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Renewal {
    /// As this part begins: the last use ends with the part before.
    Before(usize),
    /// Within this part, after all uses in the part.
    Within(usize),
}

/// Where a tensor's contents are before a part, or what is left of it.
#[derive(Clone, Copy)]
enum Before {
    /// There are none yet.
    Unborn,
    /// What is absent, and what has a copy, as at the cut.
    Cut([usize; 2]),
    /// All is outside, and nothing else.
    Outside,
}

/// Picoseconds per page of copies of whole va_blocks at `rate`, each with `setup` ns; 0: nothing is known.
fn per_page(rate: f64, setup: u64) -> i64 {
    let block = setup as f64 + BLOCK as f64 / rate * 1e9;
    let ps = block * 1000.0 / (BLOCK / PAGE) as f64;
    if ps.is_finite() {
        ps as i64
    } else {
        0
    }
}

/// Picoseconds for which a page takes the link at least, on the way in and out; 0: nothing is known.
fn link_rates(m: &Machine) -> [i64; 2] {
    [m.pcie_h2d, m.pcie_d2h].map(|rate| per_page(rate, m.copy_setup))
}

/// Picoseconds that a page takes at least, on the way in and out; 0: nothing is known.
fn rates(m: &Machine) -> [i64; 2] {
    let [link_in, link_out] = link_rates(m);
    let ways = [
        (link_in, m.ssd_read, m.ssd_read_latency),
        (link_out, m.ssd_write, m.ssd_write_latency),
    ];
    ways.map(|(link, ssd, latency)| {
        // All that is outside is on the SSD, if it is anywhere.
        if m.host_mem > 0 || ssd <= 0.0 {
            return link;
        }
        let requests = PAGE as f64 / m.ssd_request.max(1) as f64;
        let by_latency = requests * latency as f64 / m.ssd_parallelism.max(1) as f64;
        // The machine rounds a copy's latencies down to whole nanoseconds.
        let by_latency = (by_latency - 1.0).max(0.0) * 1000.0;
        link.max(per_page(ssd, 0)).max(by_latency as i64)
    })
}

/// How `at`'s parts use the tensor with number `t`.
fn pattern(w: &Workload, at: &[usize], t: usize, tensor: &Tensor) -> Pattern {
    let mut parts: Vec<Part> = Vec::new();
    for &(k, write) in &tensor.uses {
        let part = at.partition_point(|&a| a < k as usize);
        match parts.last_mut() {
            Some(last) if last.part == part => last.writes |= write,
            _ => {
                let mut uses = w.kernels[k as usize].uses.iter();
                let reads = uses.any(|u| u.tensor as usize == t && u.read);
                parts.push(Part {
                    part,
                    reads,
                    writes: write,
                });
            }
        }
    }
    // Alive until before the first cut that comes after its last use.
    let dead = at.partition_point(|&a| a <= tensor.last() as usize);
    let until = (!tensor.lasting).then_some(dead);
    // The machine renews an input right after its last use, which a cut may lie before, or none.
    let with_cut = at.binary_search(&(tensor.last() as usize)).is_ok();
    let renewed = (tensor.lasting && tensor.kind == Kind::Input).then(|| match with_cut {
        true => Renewal::Before(dead % at.len()),
        false => Renewal::Within(dead),
    });
    Pattern {
        parts,
        until,
        renewed,
    }
}

/// The program that bounds a steady step of `workload` on `machine`, cut at `points` ends of kernels.
pub fn program(machine: &Machine, workload: &Workload, points: usize) -> Lp {
    let at = boundaries(workload, points.min(workload.kernels.len()));
    let mut patterns: BTreeMap<Pattern, u64> = BTreeMap::new();
    for (t, tensor) in workload.tensors.iter().enumerate() {
        if tensor.uses.is_empty() {
            continue;
        }
        let pattern = pattern(workload, &at, t, tensor);
        *patterns.entry(pattern).or_default() += tensor.bytes / PAGE;
    }
    let mut program = Program::new(machine, workload, &at, patterns.values().sum());
    for (pattern, pages) in patterns {
        program.tensor(&pattern, pages as i64);
    }
    program.finish(machine)
}

/// The program as it grows: what each part copies, and what is at each cut.
struct Program {
    lp: Lp,
    /// Whether a copy outside is lost once it is fetched.
    exclusive: bool,
    /// How long each part takes.
    times: Vec<usize>,
    /// What each part copies, in and out.
    copied: Vec<[Vec<(usize, i64)>; 2]>,
    /// Pages that each part copies in whatever is done, beside those.
    fixed: Vec<i64>,
    /// Pages that are alive at each cut.
    alive: Vec<i64>,
    /// Those that are absent.
    absent: Vec<Vec<(usize, i64)>>,
}

impl Program {
    fn new(machine: &Machine, workload: &Workload, at: &[usize], all: u64) -> Self {
        let n = at.len();
        let mut busy = vec![0u64; n];
        for (k, kernel) in workload.kernels.iter().enumerate() {
            busy[at.partition_point(|&a| a < k)] += kernel.ns / machine.gpus.max(1);
        }
        let [link_in, link_out] = rates(machine);
        // No part need take longer than to copy everything both ways, and inputs in twice.
        let longest = (all as i64).saturating_mul(2 * link_in + link_out) / 1000 + 1;
        let mut lp = Lp::default();
        let time = |&busy: &u64| {
            lp.column(Column {
                cost: 1,
                low: busy as i64,
                high: (busy as i64).saturating_add(longest),
                order: TIME,
            })
        };
        Self {
            times: busy.iter().map(time).collect(),
            lp,
            exclusive: machine.keep_clean == 0,
            copied: vec![Default::default(); n],
            fixed: vec![0; n],
            alive: vec![0; n],
            absent: vec![Vec::new(); n],
        }
    }

    fn pages(&mut self, most: i64) -> usize {
        self.lp.column(Column {
            cost: 0,
            low: 0,
            high: most,
            order: PAGES,
        })
    }

    /// Tensors of `pages` pages together that have this pattern.
    fn tensor(&mut self, pattern: &Pattern, pages: i64) {
        let n = self.times.len();
        let Some(first) = pattern.parts.first().map(|p| p.part) else {
            return;
        };
        let cuts = match pattern.until {
            None => 0..n,
            Some(until) => first..until.min(n),
        };
        if pages == 0 {
            return;
        }
        // At each cut: what is absent, what has a copy.
        let unknown: Vec<[usize; 2]> = cuts
            .clone()
            .map(|_| [self.pages(pages), self.pages(pages)])
            .collect();
        for (cut, &[absent, copy]) in cuts.clone().zip(&unknown) {
            self.alive[cut] += pages;
            self.absent[cut].push((absent, 1));
            if pattern.is_needed(cut) {
                self.lp.row([(copy, 1), (absent, -1)], 0);
            }
        }
        let before = |cut: usize| {
            let at = match pattern.until {
                None => Some(unknown[(cut + n - 1) % n]),
                Some(_) => cut
                    .checked_sub(first + 1)
                    .and_then(|i| unknown.get(i).copied()),
            };
            at.map_or(Before::Unborn, Before::Cut)
        };
        // The last part may end after the last cut at which it is alive.
        let parts = pattern.until.map_or(0..n, |_| first..(cuts.end + 1).min(n));
        for part in parts {
            let used = pattern.parts.iter().find(|p| p.part == part);
            let after = cuts.contains(&part).then(|| unknown[part - cuts.start]);
            match pattern.renewed {
                Some(Renewal::Before(new)) if new == part => {
                    self.part(part, used, Before::Outside, after, pages);
                }
                Some(Renewal::Within(new)) if new == part => {
                    self.part(part, used, before(part), None, pages);
                    self.part(part, None, Before::Outside, after, pages);
                }
                _ => self.part(part, used, before(part), after, pages),
            }
        }
    }

    /// What becomes of a tensor in a part: what is absent and has a copy before and after it.
    fn part(
        &mut self,
        part: usize,
        used: Option<&Part>,
        before: Before,
        after: Option<[usize; 2]>,
        pages: i64,
    ) {
        // What came in, of what was absent before.
        let came = match (used, before, after) {
            (Some(u), Before::Cut([absent, _]), _) if u.reads => Some(absent),
            (None, Before::Cut([absent, _]), Some([still, _])) => {
                let fetched = self.pages(pages);
                self.lp.row([(fetched, 1), (absent, -1), (still, 1)], 0);
                Some(fetched)
            }
            (Some(u), Before::Outside, _) if u.reads => {
                self.fixed[part] += pages;
                None
            }
            (None, Before::Outside, Some([still, _])) => {
                self.fixed[part] += pages;
                self.copied[part][0].push((still, -1));
                None
            }
            _ => None,
        };
        self.copied[part][0].extend(came.map(|c| (c, 1)));
        let Some([still, copy]) = after else { return };
        let lost = came.filter(|_| self.exclusive).map(|c| (c, 1));
        match before {
            _ if used.is_some_and(|u| u.writes) => self.copied[part][1].push((copy, 1)),
            Before::Unborn => self.copied[part][1].push((copy, 1)),
            // A lone part around the step: what had a copy has it, unless it came in.
            Before::Cut([_, before]) if before == copy => self.copied[part][1].extend(lost),
            Before::Cut([_, before]) => {
                let made = [(copy, 1), (before, -1)].into_iter().chain(lost);
                self.copied[part][1].extend(made.clone());
                self.lp.row(made, 0);
            }
            Before::Outside if !self.exclusive => {}
            Before::Outside if used.is_some() => self.copied[part][1].push((copy, 1)),
            // What has a copy and is not outside still came in, and lost it.
            Before::Outside => self.copied[part][1].extend([(copy, 1), (still, -1)]),
        }
    }

    /// The rows of memory and links.
    fn finish(mut self, machine: &Machine) -> Lp {
        let capacity = (machine.chunks() * (BLOCK / PAGE)) as i64;
        for (alive, absent) in self.alive.into_iter().zip(self.absent) {
            if alive > capacity {
                self.lp.row(absent, alive - capacity);
            }
        }
        let (link, rates) = (link_rates(machine), rates(machine));
        let one_engine = machine.copy_engines < 2;
        let parts = self.times.iter().zip(self.copied).zip(self.fixed);
        for ((&time, ways), fixed) in parts {
            let timed = |way: usize, ps: i64| ways[way].iter().map(move |&(j, x)| (j, -x * ps));
            if one_engine {
                let both = timed(0, link[0]).chain(timed(1, link[1]));
                let least = fixed.saturating_mul(link[0]);
                self.lp.row(merged(both.chain([(time, 1000)])), least);
            }
            if one_engine && rates == link {
                // The directions together take no less than each alone.
                continue;
            }
            // In picoseconds; the way in is the first.
            for (way, fixed) in [fixed.saturating_mul(rates[0]), 0].into_iter().enumerate() {
                let terms = timed(way, rates[way]).chain([(time, 1000)]);
                self.lp.row(merged(terms), fixed);
            }
        }
        self.lp
    }
}

/// Terms with each column once.
fn merged(terms: impl Iterator<Item = (usize, i64)>) -> BTreeMap<usize, i64> {
    let mut all = BTreeMap::new();
    for (column, factor) in terms {
        *all.entry(column).or_insert(0) += factor;
    }
    all
}
