// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Our planner on the artifact's machine.
//!
//! Plans are made in two ways and under several assumptions, each is run on the
//! machine with the profile's times, and the fastest is taken.
//!
//! One way is G10's, refined ([`Variant::Refined`]). The other walks through the step in time. The way out is kept busy as long as some
//! later kernel would not fit: what is evicted next is, of all that is idle, the
//! tensor whose next use is farthest, so that each byte written helps for as long
//! as any could. Where the host is too small for what must leave, the SSD writes
//! from the start and the host is saved for what the SSD is too slow for. A kernel
//! that would not fit waits in the plan for writes under way, and all later times
//! move with it. The way back is booked from each next use backwards; then
//! prefetches move ahead as far as memory has room for them. Memory is allocated at
//! the first kernel that uses it and freed after the last.

use std::collections::BinaryHeap;

use super::events;
use super::events::Mode;
use super::plan::intervals;
use super::plan::intervals::Interval;
use super::plan::link_rates;
use super::plan::links::Links;
use super::plan::Hint;
use super::plan::Target;
use super::plan::Variant;
use super::view::View;
use super::Machine;
use super::Outcome;
use super::RunError;

/// Factors on the links' rates under which G10's way is tried.
const RATES: [f64; 2] = [1.25, 1.5];

/// The fastest plan that was found, and what it came to on the profile's times.
///
/// # Errors
/// No plan can be run; the first's error.
pub(super) fn search(view: &View, machine: &Machine) -> Result<(Vec<Hint>, Outcome), RunError> {
    // The planner knows the profile, not what the run will take.
    let profiled = Machine {
        time_error: 0.0,
        ..machine.clone()
    };
    let walk = || Ok(plan(view, &profiled, Tuning::default()));
    let refined =
        |rate| super::plan::g10(view, &profiled, Variant::Refined { rate }).map(|p| p.hints);
    let attempt = |n: usize| -> Result<(Vec<Hint>, Outcome), RunError> {
        let hints = if n == 0 {
            walk()?
        } else {
            refined(RATES[n - 1])?
        };
        let outcome = events::run(view, &profiled, Mode::Lru, hints.clone())?;
        Ok((hints, outcome))
    };
    let all: Vec<_> = std::thread::scope(|s| {
        let attempt = &attempt;
        let threads: Vec<_> = (0..=RATES.len())
            .map(|n| s.spawn(move || attempt(n)))
            .collect();
        threads.into_iter().filter_map(|t| t.join().ok()).collect()
    });
    let mut first_error = None;
    let mut best: Option<(Vec<Hint>, Outcome)> = None;
    for result in all {
        match result {
            Ok(new)
                if best
                    .as_ref()
                    .is_none_or(|b| new.1.step_cycles < b.1.step_cycles) =>
            {
                best = Some(new);
            }
            Ok(_) => {}
            Err(e) => first_error = first_error.or(Some(e)),
        }
    }
    best.ok_or_else(|| {
        first_error.unwrap_or_else(|| RunError::Internal("no plan was tried".into()))
    })
}

/// What may be tuned; the defaults are what the tests hold to.
#[derive(Clone, Copy, Debug)]
struct Tuning {
    /// Share of the GPU that the plan fills.
    pub fill: f64,
    /// Share of the links' rate that the plan counts on.
    pub rate: f64,
    /// How much earlier than necessary the host is written to when the SSD is the
    /// narrow way: a factor on the time that the writes take.
    pub urgency: f64,
    /// How early a read from the SSD may begin: a factor on the time it takes.
    pub lead: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            fill: 0.995,
            rate: 0.97,
            urgency: 1.3,
            lead: 5.0,
        }
    }
}

/// A write under way.
#[derive(Clone, Copy, Debug)]
struct Write {
    bytes: i64,
    /// When it ends, in µs.
    finish: f64,
    /// The last kernel that it is still counted in.
    last: usize,
    /// The kernel from which the tensor comes back.
    back: usize,
}

/// An eviction whose prefetch may move ahead.
#[derive(Clone, Copy, Debug)]
struct Moved {
    tensor: u32,
    bytes: i64,
    gone: usize,
    back: usize,
}

struct Planner {
    kernels: usize,
    /// Ideal start of each kernel over two steps, in µs, and what stalls add.
    starts: Vec<f64>,
    stall: f64,
    room: i64,
    host_room: i64,
    /// Bytes per µs of the host's way and the SSD's.
    host_rate: f64,
    ssd_rate: f64,
    /// When each way out is free, in µs.
    host_free: f64,
    ssd_free: f64,
    /// Bytes resident, and in host memory, in each kernel.
    resident: Vec<i64>,
    host: Vec<i64>,
    back: Links,
    all: Vec<Interval>,
    /// Idle tensors: the kernel of the next use, bytes, interval.
    idle: BinaryHeap<(usize, i64, usize)>,
    under_way: Vec<Write>,
    moved: Vec<Moved>,
    hints: Vec<Hint>,
    /// The share of all writes that goes to the SSD, bytes written to it, and all.
    ssd_ratio: f64,
    ssd_bytes: i64,
    bytes: i64,
    urgency: f64,
    lead: f64,
}

/// The plan of the walk.
fn plan(view: &View, machine: &Machine, tuning: Tuning) -> Vec<Hint> {
    let mut p = Planner::new(view, machine, tuning);
    for k in 0..p.kernels {
        p.step(k);
    }
    p.prefetch_early();
    super::plan::with_lifetimes(view, p.hints)
}

impl Planner {
    fn new(view: &View, machine: &Machine, tuning: Tuning) -> Self {
        let kernels = view.kernels.len();
        let starts = intervals::two_steps(view);
        let gib = f64::from(1u32 << 30);
        let mut resident = vec![0i64; kernels];
        for t in &view.tensors {
            let (from, to) = if t.is_weight {
                (0, kernels)
            } else {
                (t.birth.min(kernels), t.end())
            };
            for r in resident.get_mut(from..to.min(kernels)).unwrap_or_default() {
                *r += t.bytes() as i64;
            }
        }
        let room = (machine.gpu_gib * gib * tuning.fill) as i64;
        let host_room = (machine.host_gib * gib * 0.99) as i64;
        let peak = resident.iter().copied().max().unwrap_or(0);
        let (link, ssd) = link_rates(machine);
        let (host_rate, ssd_rate) = (link * tuning.rate, ssd * tuning.rate);
        let all = intervals::of(view, &starts);
        let back = Links::with_rates(&starts[..=kernels], host_rate, ssd_rate);
        Self {
            kernels,
            stall: 0.0,
            room,
            host_room,
            host_rate,
            ssd_rate,
            host_free: 0.0,
            ssd_free: 0.0,
            host: vec![0; kernels],
            resident,
            back,
            all,
            idle: BinaryHeap::new(),
            under_way: Vec::new(),
            moved: Vec::new(),
            hints: Vec::new(),
            ssd_ratio: (1.0 - host_room as f64 / (peak - room).max(1) as f64).clamp(0.0, 1.0),
            ssd_bytes: 0,
            bytes: 0,
            urgency: tuning.urgency,
            lead: tuning.lead,
            starts,
        }
    }

    fn now(&self, k: usize) -> f64 {
        self.starts[k] + self.stall
    }

    /// The kernel that runs at `time`, over two steps.
    fn kernel_at(&self, time: f64) -> usize {
        let k = self.starts.partition_point(|&s| s + self.stall <= time);
        k.saturating_sub(1).min(2 * self.kernels - 1)
    }

    fn step(&mut self, k: usize) {
        for i in 0..self.all.len() {
            let interval = &self.all[i];
            if interval.start == k {
                let end = if interval.looped {
                    interval.end + self.kernels
                } else {
                    interval.end
                };
                self.idle.push((end, interval.bytes, i));
            }
        }
        self.settle(k);
        self.write_ahead(k);
        self.wait_for_room(k);
    }

    /// Forgets writes that have ended.
    fn settle(&mut self, k: usize) {
        let now = self.now(k);
        self.under_way.retain(|w| w.finish > now);
    }

    /// Keeps the ways out busy during kernel `k`.
    fn write_ahead(&mut self, k: usize) {
        let end = self.now(k + 1);
        let mut put_back = Vec::new();
        while let Some((next, bytes, i)) = self.idle.pop() {
            if next <= k + 1 {
                continue;
            }
            if !self.is_needed(k, next) {
                // Nobody with a nearer use is needed either.
                put_back.push((next, bytes, i));
                break;
            }
            let turn = (self.ssd_bytes as f64) < self.ssd_ratio * (self.bytes + bytes) as f64
                && self.is_back_in_time(i);
            let target = if turn && self.ssd_free < end {
                Target::Ssd
            } else if self.host_free < end && (!turn || self.is_urgent(k)) {
                Target::Host
            } else {
                put_back.push((next, bytes, i));
                break;
            };
            if !self.write(k, next, i, target) && !self.write(k, next, i, other(target)) {
                // Too short for either; it may be worth a wait later.
                continue;
            }
        }
        self.idle.extend(put_back);
    }

    /// Whether a kernel from `k` to before `next` does not fit.
    fn is_needed(&self, k: usize, next: usize) -> bool {
        (k..next.min(k + self.kernels)).any(|j| self.resident[j % self.kernels] > self.room)
    }

    /// Whether the SSD can hold interval `i`'s tensor until shortly before its use.
    /// Where reads queue up, tensors would come back long before, and take room.
    fn is_back_in_time(&self, i: usize) -> bool {
        let interval = &self.all[i];
        let back = self.back.start_back(interval, true);
        let early = self.starts[interval.end] - self.starts[back];
        early <= self.lead * interval.bytes as f64 / self.ssd_rate
    }

    /// Whether the host must take some for a later kernel to fit in time.
    fn is_urgent(&self, k: usize) -> bool {
        let now = self.now(k).max(self.host_free);
        (k..k + self.kernels).any(|j| {
            let over = self.resident[j % self.kernels] - self.room;
            over > 0 && self.now(j) - now < over as f64 / self.host_rate * self.urgency
        })
    }

    /// Plans the write of interval `i` from kernel `k` on; `false` if it would not
    /// be worth it.
    fn write(&mut self, k: usize, next: usize, i: usize, to: Target) -> bool {
        let interval = self.all[i].clone();
        let (rate, free) = match to {
            Target::Ssd => (self.ssd_rate, self.ssd_free),
            _ => (self.host_rate, self.host_free),
        };
        let finish = free.max(self.now(k)) + interval.bytes as f64 / rate;
        let last = self.kernel_at(finish);
        let back = self.back.start_back(&interval, to == Target::Ssd);
        let back = if interval.looped {
            back + self.kernels
        } else {
            back
        };
        if back <= last + 1 || !self.is_needed(last + 1, back) {
            return false;
        }
        if to == Target::Host {
            let fits =
                (k..next).all(|j| self.host[j % self.kernels] + interval.bytes <= self.host_room);
            if !fits {
                return false;
            }
            for j in k..next {
                self.host[j % self.kernels] += interval.bytes;
            }
            self.host_free = finish;
        } else {
            self.ssd_free = finish;
            self.ssd_bytes += interval.bytes;
            // The SSD's pages take from the link's.
            self.host_free += interval.bytes as f64 / self.host_rate;
        }
        self.bytes += interval.bytes;
        self.back
            .book_back(&interval, back % self.kernels, to == Target::Ssd);
        self.relieve(last + 1, back, interval.bytes);
        self.hints.push(Hint {
            kernel: k,
            tensor: interval.tensor,
            to,
        });
        self.under_way.push(Write {
            bytes: interval.bytes,
            finish,
            last,
            back,
        });
        let (tensor, bytes) = (interval.tensor, interval.bytes);
        self.moved.push(Moved {
            tensor,
            bytes,
            gone: last,
            back,
        });
        true
    }

    fn relieve(&mut self, from: usize, to: usize, bytes: i64) {
        for j in from..to {
            self.resident[j % self.kernels] -= bytes;
        }
    }

    /// If kernel `k` does not fit, lets it wait for writes under way.
    fn wait_for_room(&mut self, k: usize) {
        if self.resident[k] <= self.room {
            return;
        }
        self.under_way.sort_by(|a, b| a.finish.total_cmp(&b.finish));
        let mut over = self.resident[k] - self.room;
        let mut until = self.now(k);
        for w in &self.under_way {
            if over <= 0 {
                break;
            }
            if w.last >= k && w.back > k {
                over -= w.bytes;
                until = w.finish;
            }
        }
        self.stall += until - self.now(k);
        // Writes now end in earlier kernels than was thought.
        let writes = std::mem::take(&mut self.under_way);
        for mut w in writes {
            let last = if w.finish <= until {
                k.max(1) - 1
            } else {
                self.kernel_at(w.finish)
            };
            if last < w.last {
                self.relieve(last + 1, (w.last + 1).min(w.back), w.bytes);
                w.last = last;
            }
            self.under_way.push(w);
        }
    }

    /// Fetches earlier what memory has room for, in the order of need.
    fn prefetch_early(&mut self) {
        let mut moved = std::mem::take(&mut self.moved);
        moved.sort_by_key(|m| m.back);
        for m in moved {
            let mut at = m.back;
            while at > m.gone + 2 && self.resident[(at - 1) % self.kernels] + m.bytes <= self.room {
                at -= 1;
                self.resident[at % self.kernels] += m.bytes;
            }
            self.hints.push(Hint {
                kernel: at % self.kernels,
                tensor: m.tensor,
                to: Target::Gpu,
            });
        }
    }
}

fn other(t: Target) -> Target {
    if t == Target::Ssd {
        Target::Host
    } else {
        Target::Ssd
    }
}
