// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The artifact's planner: G10's algorithm 1 and eager prefetch (G10 §4.3, §4.4),
//! as the artifact implements them, and the look-ahead of DeepUM+.
//!
//! Where intervals tie, the artifact's choice hangs on its sort, which is why
//! [`super::order`] exists.

pub(super) mod intervals;
pub(super) mod links;

use super::order;
use super::view::View;
use super::Machine;
use intervals::Interval;
use links::Links;

/// Where a hint sends a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It is fetched, or allocated if it has no contents.
    Gpu,
    /// It is evicted to the SSD.
    Ssd,
    /// It is evicted to host memory.
    Host,
    /// The tensor is not needed any more, and its memory is given back without a copy.
    Free,
}

/// An instruction at the start of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The kernel, from 0; one past the last means the start of the next step.
    pub kernel: usize,
    /// The tensor's number in the trace.
    pub tensor: u32,
    /// The place that the tensor is moved to, or that it is given up.
    pub to: Target,
}

impl Hint {
    /// The instruction to send `tensor` to a place at the start of `kernel`.
    pub fn new(kernel: usize, tensor: u32, to: Target) -> Self {
        Self { kernel, tensor, to }
    }
}

/// Which of its planners G10 plans with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Design {
    /// G10's own plan uses the SSD and host memory, with UVM's faults for the rest.
    G10,
    /// G10-GDS's plan uses the SSD alone: no host memory, no UVM.
    Gds,
    /// G10-Host's plan uses the SSD and host memory, without UVM.
    Host,
    /// Not the artifact's: G10 with what its machine lets a plan do better. Memory is
    /// allocated at the first use and always freed, and a prefetch moves ahead only where the
    /// tensor has room. Links carry their rate times this factor: below 1 for caution, above
    /// for a step that stalls anyway and gives them more time.
    Refined(f64),
}

/// What the planner decided.
pub(super) struct Plan {
    /// In order of their kernels.
    pub hints: Vec<Hint>,
    /// Of these, the evictions and prefetches, in order of their kernels and of the
    /// planner's choices within one.
    pub moves: Vec<Hint>,
    /// Tensors that are evicted at some point.
    pub evicted: Vec<bool>,
}

/// DeepUM+: at each kernel, fetch what the kernel `degree` later uses.
pub(super) fn look_ahead(view: &View, degree: usize) -> Vec<Hint> {
    let n = view.kernels.len();
    let ahead = |k: usize| &view.kernels[(k + degree) % n].required;
    let fetch = |k| ahead(k).iter().map(move |&t| Hint::new(k, t, Target::Gpu));
    (0..n).flat_map(fetch).collect()
}

/// Adds to a plan the allocation of each tensor that does not survive the step, at
/// its first use, and its freeing after the last. What frees comes first.
pub(super) fn with_lifetimes(view: &View, mut hints: Vec<Hint>) -> Vec<Hint> {
    for (i, t) in view.tensors.iter().enumerate() {
        if !t.is_weight && t.birth != usize::MAX {
            hints.push(Hint::new(t.birth, i as u32, Target::Gpu));
            hints.push(Hint::new(t.end(), i as u32, Target::Free));
        }
    }
    hints.sort_by_key(|h| (h.kernel, h.to != Target::Free));
    hints
}

/// The plan that G10 makes by `design`.
pub(super) fn g10(view: &View, machine: &Machine, design: Design) -> Plan {
    let mut p = Planner::new(view, machine, design);
    p.allocate_and_free();
    let lifetimes = p.hints.len();
    let hill = p.hill();
    p.evict();
    p.prefetch_eagerly();
    if matches!(design, Design::Gds | Design::Host) {
        p.flatten(hill);
    }
    let mut hints = p.hints;
    let mut moves = hints.split_off(lifetimes);
    hints.extend(&moves);
    moves.sort_by_key(|m| m.kernel);
    order::sort(&mut hints, &mut |a, b| a.kernel < b.kernel);
    Plan {
        hints,
        moves,
        evicted: p.evicted,
    }
}

/// What the artifact sets by hand for some of its points.
fn loosening(view: &View, machine: &Machine, design: Design) -> f64 {
    let (tuned, ssd) = (machine.hand_tuned, machine.ssd_gbps);
    match (design, view.name.as_str(), view.batch.as_str()) {
        (Design::Host, "VIT", _) if tuned => 1.269366,
        (Design::Host | Design::Gds, ..) => 1.060606,
        (Design::G10, "BERT", "512") if tuned && ssd < 6.3 => 1.394,
        (Design::G10, "VIT", "1280") if tuned && ssd > 6.3 && ssd < 6.5 => 1.1,
        _ => 1.0,
    }
}

/// Bytes per µs of a link of `gbps`, which the planner takes as GiB/s.
fn per_us(gbps: f64) -> f64 {
    gbps * 1024.0 * 1024.0 * 1024.0 / 1_000_000.0
}

/// What the machine's link and SSD carry, in bytes per µs: pages per batch are
/// whole numbers.
pub(super) fn link_rates(machine: &Machine) -> (f64, f64) {
    let pages = f64::from(machine.batch_pages);
    let pcie = machine.pcie_gbps * 1e3;
    let ssd_pages = (pages / machine.pcie_gbps * machine.ssd_gbps).trunc();
    (pcie, ssd_pages / pages * pcie)
}

struct Planner<'a> {
    view: &'a View,
    machine: &'a Machine,
    design: Design,
    /// Start of each kernel in µs; over two steps.
    starts: Vec<f64>,
    /// Bytes that may be resident.
    target: i64,
    /// Bytes of the GPU; benefit is counted above this.
    line: i64,
    host_line: i64,
    /// Estimated bytes resident, and in host memory, in each kernel.
    resident: Vec<i64>,
    host: Vec<i64>,
    links: Links,
    intervals: Vec<Interval>,
    hints: Vec<Hint>,
    evicted: Vec<bool>,
    /// Intervals evicted with a prefetch to be placed: interval, kernel of the
    /// planned prefetch, kernel in which the eviction ends.
    moved: Vec<(u32, usize, usize)>,
}

/// What a transfer of a tensor takes, in µs.
struct Times {
    /// To move it one way.
    one_way: f64,
    /// The shortest interval in which the artifact moves it.
    safe: f64,
    /// How long before its use the fetch begins.
    fetch: f64,
}

impl<'a> Planner<'a> {
    fn new(view: &'a View, machine: &'a Machine, design: Design) -> Self {
        let starts = view.two_steps();
        let kernels = view.kernels.len();
        let bytes = |gib: f64| (gib * 1024.0 * 1024.0 * 1024.0) as i64;
        let line = bytes(machine.gpu_gib);
        let target = (line as f64 * 0.99) as i64;
        let (weights, rest) = view.totals();
        let first = view.tensors.first().map_or(0, super::view::Tensor::bytes);
        let has_host = design != Design::Gds;
        let host_gib = if has_host { machine.host_gib } else { 0.0 };
        Self {
            view,
            machine,
            design,
            target: (loosening(view, machine, design) * target as f64) as i64,
            line,
            host_line: bytes(host_gib),
            // Everything is resident all the time, and the first tensor twice.
            resident: vec![(weights + rest + first) as i64; kernels],
            host: vec![0; kernels],
            links: match design {
                Design::Refined(rate) => {
                    let (pcie, ssd) = link_rates(machine);
                    Links::with_rates(&starts[..=kernels], pcie * rate, ssd * rate)
                }
                _ => Links::new(&starts[..=kernels], machine),
            },
            intervals: intervals::of(view, &starts),
            hints: Vec::new(),
            evicted: vec![false; view.tensors.len()],
            moved: Vec::new(),
            starts,
        }
    }

    fn refined(&self) -> bool {
        matches!(self.design, Design::Refined(_))
    }

    fn fits(&self) -> bool {
        self.resident.iter().all(|&r| r <= self.target)
    }

    /// Allocates tensors just before their birth and frees them at their death, in
    /// order of creation, until the rest fits without.
    fn allocate_and_free(&mut self) {
        let kernels = self.view.kernels.len();
        for (i, t) in self.view.tensors.iter().enumerate().skip(1) {
            if !self.refined() && self.fits() {
                break;
            }
            if t.is_weight || t.birth == usize::MAX {
                continue;
            }
            let bytes = t.bytes() as i64;
            let start = self.starts[t.birth] - bytes as f64 * self.machine.malloc_us_per_byte;
            let issue = if self.refined() {
                for r in &mut self.resident[..t.birth] {
                    *r -= bytes;
                }
                t.birth
            } else if start < 0.0 {
                0
            } else {
                let issue = self.starts[..=t.birth].partition_point(|&s| s <= start) - 1;
                for r in &mut self.resident[..issue] {
                    *r -= bytes;
                }
                issue
            };
            if !matches!(self.design, Design::Gds | Design::Host) {
                self.hint(issue, i as u32, Target::Gpu);
                self.hint(t.end(), i as u32, Target::Free);
            }
            for r in &mut self.resident[t.end().min(kernels)..] {
                *r -= bytes;
            }
        }
    }

    fn hint(&mut self, kernel: usize, tensor: u32, to: Target) {
        self.hints.push(Hint::new(kernel, tensor, to));
    }

    /// The kernel with the highest estimate.
    fn hill(&self) -> usize {
        let top = self.resident.iter().copied().max().unwrap_or(0);
        self.resident.iter().position(|&r| r == top).unwrap_or(0)
    }

    /// Algorithm 1: evicts in the interval of the greatest benefit until the
    /// estimate fits.
    fn evict(&mut self) {
        let mut sorted: Vec<u32> = (0..self.intervals.len() as u32).collect();
        for _ in 0..self.intervals.len() {
            if self.fits() {
                break;
            }
            self.weigh();
            let all = &self.intervals;
            if self.refined() {
                // No artifact order to reproduce here, so ties need no special sort.
                let weight = |i: &u32| (all[*i as usize].benefit, all[*i as usize].area);
                let by = |a: &u32, b: &u32| {
                    let (x, y) = (weight(a), weight(b));
                    x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1)).then(b.cmp(a))
                };
                let open = (0..all.len() as u32).filter(|&i| !all[i as usize].handled);
                let Some(best) = open.max_by(by) else { break };
                self.handle(best);
                self.intervals[best as usize].handled = true;
                continue;
            }
            order::sort(&mut sorted, &mut |&a, &b| {
                let (a, b) = (&all[a as usize], &all[b as usize]);
                let (x, y) = (a.benefit, b.benefit);
                if (x - y).abs() < 0.000001 && x != 0.0 && y != 0.0 {
                    a.area > b.area
                } else {
                    x > y
                }
            });
            let best = sorted[0];
            if self.intervals[best as usize].handled {
                break;
            }
            self.handle(best);
        }
        // The last sort is by time and size; see `flatten`.
        let all = &self.intervals;
        order::sort(&mut sorted, &mut |&a, &b| {
            all[a as usize].area > all[b as usize].area
        });
        self.intervals = sorted.iter().map(|&i| all[i as usize].clone()).collect();
        for m in &mut self.moved {
            m.0 = sorted.iter().position(|&i| i == m.0).unwrap_or(0) as u32;
        }
    }

    /// Computes each interval's benefit: bytes times µs above the GPU's size.
    fn weigh(&mut self) {
        let n = self.view.kernels.len();
        let dt = |k: usize| self.starts[k + 1] - self.starts[k];
        // Time over the line up to a kernel; and the same with times one kernel
        // late, which is how the artifact counts past the end of a step.
        let mut over = Vec::with_capacity(n + 1);
        let mut late = Vec::with_capacity(n + 1);
        let (mut a, mut b) = (0.0, 0.0);
        for k in 0..n {
            over.push(a);
            late.push(b);
            if self.resident[k] > self.line {
                a += dt(k);
                if k > 0 {
                    b += dt(k - 1);
                }
            }
        }
        over.push(a);
        late.push(b);
        let wrap = if self.resident[0] > self.line {
            -self.starts[n]
        } else {
            0.0
        };
        for i in &mut self.intervals {
            i.benefit = if i.handled {
                0.0
            } else if i.looped {
                let head = over[n] - over[i.start];
                let (wrap, tail) = match i.end {
                    0 => (0.0, 0.0),
                    end => (wrap, late[end] - late[1]),
                };
                i.bytes as f64 * (head + wrap + tail)
            } else {
                let from = i.written.unwrap_or_else(|| self.links.half_written(i));
                let to = i.read.unwrap_or_else(|| self.links.half_read(i));
                (i.written, i.read) = (Some(from), Some(to));
                if from < to {
                    i.bytes as f64 * (over[to] - over[from])
                } else {
                    0.0
                }
            };
        }
    }

    /// Decides about one interval.
    fn handle(&mut self, index: u32) {
        let n = self.view.kernels.len();
        let i = self.intervals[index as usize].clone();
        let mut kernels = i.kernels(n);
        if kernels.len() == 1 || kernels.all(|k| self.resident[k % n] <= self.target) {
            self.intervals[index as usize].handled = true;
            return;
        }
        let ssd = self.times(&i, self.machine.ssd_us, self.machine.ssd_gbps);
        let host = self.times(&i, 0.0, self.machine.pcie_gbps);
        if i.time > ssd.safe {
            if i.looped {
                self.evict_weight(index, &ssd, Target::Ssd);
            } else {
                self.evict_activation(index, &ssd);
            }
        } else if i.time > host.safe {
            if !self.host_has_room(i.bytes) {
                self.intervals[index as usize].handled = true;
                return;
            }
            if i.looped {
                self.evict_weight(index, &host, Target::Host);
            } else {
                let (written, read) = self.links.when(&i, Target::Host);
                if read > written {
                    self.commit(index, Target::Host, written, read);
                }
                self.relieve(written + 1..read, i.bytes);
                self.intervals[index as usize].handled = true;
            }
            self.fill_host(&i);
        }
        // An interval that fits neither the SSD nor the host stays first, and the
        // artifact's loop stops at it.
    }

    fn times(&self, i: &Interval, latency: f64, gbps: f64) -> Times {
        let refined = self.refined();
        let rate = if refined { gbps * 1e3 } else { per_us(gbps) };
        let transfer = i.bytes as f64 / rate;
        let both = 2.0 * (latency + self.machine.fault_us + transfer);
        let one_way = both / 2.0;
        let slack = self.machine.slack * one_way;
        Times {
            one_way,
            safe: both + slack,
            fetch: one_way + slack,
        }
    }

    fn host_has_room(&self, bytes: i64) -> bool {
        self.host.iter().all(|&h| h <= self.host_line - bytes)
    }

    fn fill_host(&mut self, i: &Interval) {
        let n = self.host.len();
        i.kernels(n).for_each(|k| self.host[k % n] += i.bytes);
    }

    /// Takes `bytes` off the estimate of some kernels, which may pass the end.
    fn relieve(&mut self, kernels: std::ops::Range<usize>, bytes: i64) {
        let n = self.resident.len();
        for k in kernels {
            self.resident[k % n] -= bytes;
        }
    }

    /// An interval within the step: to the SSD, or to the host if the SSD is busy.
    fn evict_activation(&mut self, index: u32, ssd: &Times) {
        let i = self.intervals[index as usize].clone();
        self.intervals[index as usize].handled = true;
        let done = self.starts[i.start] + ssd.one_way;
        let clear = self.kernel_at(done, i.start, i.end).unwrap_or(i.end);
        let busy = self.links.ssd_is_busy(i.start, clear);
        let to = match busy && self.host_has_room(i.bytes) {
            true => Target::Host,
            false => Target::Ssd,
        };
        let (written, read) = self.links.when(&i, to);
        if read <= written {
            return;
        }
        self.commit(index, to, written, read);
        if to == Target::Host {
            self.fill_host(&i);
        }
        self.relieve(written + 1..read, i.bytes);
    }

    /// Records an eviction whose prefetch comes later, and books the links.
    fn commit(&mut self, index: u32, to: Target, written: usize, read: usize) {
        let i = self.intervals[index as usize].clone();
        self.hint(i.start, i.tensor, to);
        self.evicted[i.tensor as usize] = true;
        self.intervals[index as usize].moved = true;
        self.moved.push((index, read, written));
        let (out, into) = self.links.book(&i, read, to);
        for i in &mut self.intervals {
            i.forget(&out, &into);
        }
    }

    /// An interval over the end of the step: nothing is booked, and the prefetch
    /// keeps its place.
    fn evict_weight(&mut self, index: u32, times: &Times, to: Target) {
        let n = self.view.kernels.len();
        let i = self.intervals[index as usize].clone();
        self.intervals[index as usize].handled = true;
        let end = i.end + n;
        let done = self.starts[i.start] + times.one_way;
        let clear = self.kernel_at(done, i.start, end).unwrap_or(end);
        let fetch = self.starts[end] - times.fetch;
        let fetch = self.kernel_at(fetch, i.start, end).unwrap_or(i.start);
        if fetch != i.start {
            self.hint(i.start, i.tensor, to);
            self.hint(fetch % n, i.tensor, Target::Gpu);
            self.evicted[i.tensor as usize] = true;
            self.intervals[index as usize].moved = true;
        }
        self.relieve(clear + 1..fetch, i.bytes);
    }

    /// The kernel of `from..to` that runs at `time` when nothing stalls.
    fn kernel_at(&self, time: f64, from: usize, to: usize) -> Option<usize> {
        let k = self.starts.partition_point(|&s| s <= time).checked_sub(1)?;
        (from..to).contains(&k).then_some(k)
    }

    /// Moves prefetches ahead while the estimate is below the target. The tensor
    /// itself is not counted, so that it may overshoot.
    fn prefetch_eagerly(&mut self) {
        let mut moved = std::mem::take(&mut self.moved);
        order::sort(&mut moved, &mut |a, b| a.1 < b.1);
        for (index, planned, written) in moved {
            let i = self.intervals[index as usize].clone();
            let mut at = planned;
            let bytes = if self.refined() { i.bytes } else { 0 };
            while at > written + 1 && self.target > self.resident[at - 1] + bytes {
                at -= 1;
            }
            self.hint(at, i.tensor, Target::Gpu);
            for r in &mut self.resident[at..planned] {
                *r += i.bytes;
            }
        }
    }

    /// Without UVM: evicts the largest and longest intervals over the kernel `hill`
    /// until its estimate is well below the target. Their reads are on demand.
    fn flatten(&mut self, hill: usize) {
        let mut height = self.resident[hill];
        for index in 0..self.intervals.len() {
            if (height as f64) < self.target as f64 * 0.9 {
                break;
            }
            let i = self.intervals[index].clone();
            if !i.moved && !i.looped && i.start <= hill && i.end > hill {
                self.hint(i.start, i.tensor, Target::Ssd);
                self.evicted[i.tensor as usize] = true;
                self.intervals[index].moved = true;
                height -= i.bytes;
            }
        }
    }
}
