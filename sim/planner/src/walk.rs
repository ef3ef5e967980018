// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The walk through some steps in virtual time.
//!
//! Kernels are counted on over the laps, each a step. The first laps settle what is
//! where as a step begins; the decisions of the last are the plan.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::gaps::Gaps;
use super::levels::Levels;
use super::reads::Reads;
use super::{duration, Machine, Plan, Reading, Request, Step, Tensor, Tier, Tuning, What};

mod reading;

/// Steps to walk through.
const LAPS: usize = 3;

/// A gap that has begun, or will. The greatest is that with the farthest next use; of those, the one
/// that is numbered first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Idle {
    /// The kernel that ends it.
    pub next: usize,
    pub gap: Reverse<u32>,
    /// The kernel that begins it.
    pub start: usize,
}

/// A write under way.
#[derive(Clone, Copy)]
struct Write {
    pages: i64,
    /// Time of the walk at which the write ends.
    finish: u64,
    /// The first kernel without it, by what is known.
    gone: usize,
    /// The kernel from which it comes back.
    back: usize,
}

/// A tensor that is not in GPU memory, from one kernel to another.
#[derive(Clone, Copy)]
struct Absence {
    tensor: u32,
    /// Where the tensor is meanwhile.
    tier: Tier,
    pages: i64,
    /// The first kernel without it.
    gone: usize,
    /// The kernel at whose start it must be asked for.
    back: usize,
}

/// Something to be read; the least is needed soonest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted {
    /// The kernel that needs it.
    pub next: usize,
    pub tensor: u32,
    pub pages: i64,
    /// When it has left.
    pub gone: u64,
}

/// What became of an offer.
enum Answer {
    Taken,
    /// The ways are busy.
    Later,
    /// Its gap is too short, or its absence no help.
    Never,
}

struct Walk<'a> {
    step: &'a Step,
    machine: &'a Machine,
    tuning: Tuning,
    /// Kernels of a step.
    n: usize,
    /// Pages of GPU memory that the kernel needs which needs most.
    peak: u64,
    gaps: Gaps,
    /// Start of each kernel without stalls, and the end of the step.
    starts: Vec<u64>,
    /// Time lost so far.
    stall: u64,
    /// When each way out is free.
    link_free: u64,
    ssd_free: u64,
    /// Pages in GPU memory, and away in host memory, during each kernel of all laps.
    gpu: Levels,
    host: Levels,
    reads: Reads,
    /// Gaps that have begun, of tensors that must be copied to leave.
    idle: BinaryHeap<Idle>,
    /// And of those that have a copy.
    clean: BinaryHeap<Idle>,
    /// Of those, the ones that are not worth it unless nothing else is left.
    poor: Vec<Idle>,
    put_back: Vec<Idle>,
    /// Gaps for which what was just written may be copied early.
    early: BinaryHeap<Idle>,
    /// Where each tensor has a copy outside, and since when.
    copies: Vec<Option<(Tier, u64)>>,
    under_way: Vec<Write>,
    /// When what is fetched late is there, by the kernel that waits for it.
    late: Vec<(usize, u64)>,
    away: Vec<Absence>,
    /// What is to be read from host and SSD, where reads are walked.
    wanted: [BinaryHeap<Reverse<Wanted>>; 2],
    /// When the ways in are free.
    read_free: [u64; 2],
    requests: Vec<Request>,
    /// Of what leaves, the share for the SSD, in thousandths; and what left.
    turn: u64,
    all_pages: u64,
    ssd_pages: u64,
    /// What each kernel last waited.
    waits: Vec<u64>,
}

/// The plan for a step that [`super::plan`] has checked.
pub(super) fn walk(step: &Step, machine: &Machine, tuning: Tuning) -> Plan {
    let mut walk = Walk::new(step, machine, tuning);
    let n = walk.n;
    let mut from = 0;
    for at in 0..LAPS * n {
        if at == (LAPS - 1) * n {
            from = walk.now(at);
            walk.requests.clear();
            walk.away.clear();
            walk.ssd_pages = 0;
            walk.all_pages = 0;
        }
        walk.kernel(at);
    }
    let step_ns = walk.now(LAPS * n) - from;
    if tuning.reads == Reading::Booked {
        walk.fetch_early();
    }
    // Those of one kernel stay in their order.
    walk.requests.sort_by_key(|r| r.kernel);
    Plan {
        requests: walk.requests,
        step_ns,
        waits: walk.waits,
        ssd_pages: walk.ssd_pages,
    }
}

impl<'a> Walk<'a> {
    fn new(step: &'a Step, machine: &'a Machine, tuning: Tuning) -> Self {
        let n = step.kernel_ns.len();
        let mut starts = vec![0];
        let mut time = 0;
        starts.extend(step.kernel_ns.iter().map(|d| {
            time += d;
            time
        }));
        let live = step.live.iter().map(|&l| l as i64);
        let copy = |t: &Tensor| (t.lasting && machine.keep_clean).then_some((Tier::Host, 0));
        let copies = step.tensors.iter().map(copy).collect();
        let peak = step.live.iter().copied().max().unwrap_or(0);
        let mut walk = Self {
            step,
            machine,
            tuning,
            n,
            peak,
            gaps: Gaps::of(step),
            starts,
            stall: 0,
            link_free: 0,
            ssd_free: 0,
            gpu: Levels::repeated(LAPS + 2, live),
            host: Levels::repeated(LAPS + 2, core::iter::repeat_n(0, n)),
            reads: Reads::new(machine, tuning.ssd_share, LAPS + 2, &step.kernel_ns),
            idle: BinaryHeap::new(),
            clean: BinaryHeap::new(),
            poor: Vec::new(),
            put_back: Vec::new(),
            early: BinaryHeap::new(),
            copies,
            under_way: Vec::new(),
            late: Vec::new(),
            away: Vec::new(),
            wanted: [BinaryHeap::new(), BinaryHeap::new()],
            read_free: [0; 2],
            requests: Vec::new(),
            turn: {
                let away = peak.saturating_sub(machine.gpu).max(1);
                away.saturating_sub(machine.host) * 1000 / away * tuning.ratio / 1000
            },
            all_pages: 0,
            ssd_pages: 0,
            waits: vec![0; n],
        };
        // Gaps that the walk begins in the midst of.
        for i in 0..walk.gaps.all.len() {
            let gap = walk.gaps.all[i];
            if gap.next as usize > n {
                walk.begin(Idle {
                    next: gap.next as usize - n,
                    start: 0,
                    gap: Reverse(i as u32),
                });
            }
        }
        walk
    }

    /// When kernel `at` starts, by what is known.
    fn now(&self, at: usize) -> u64 {
        (at / self.n) as u64 * self.starts[self.n] + self.starts[at % self.n] + self.stall
    }

    /// The first kernel that starts at `time` or later, if no more stalls come.
    fn kernel_from(&self, time: u64) -> usize {
        let step = self.starts[self.n].max(1);
        let time = time.saturating_sub(self.stall);
        let lap = (time / step) as usize;
        let in_lap = self.starts[..self.n].partition_point(|&s| s < time % step);
        lap.saturating_mul(self.n)
            .saturating_add(in_lap)
            .min((LAPS + 2) * self.n)
    }

    fn tensor(&self, idle: Idle) -> u32 {
        self.gaps.all[idle.gap.0 as usize].tensor
    }

    fn pages(&self, idle: Idle) -> u64 {
        self.step.tensors[self.tensor(idle) as usize].pages
    }

    fn capacity(&self) -> i64 {
        self.machine.gpu as i64
    }

    /// Kernel `at` is about to start.
    fn kernel(&mut self, at: usize) {
        let k = at % self.n;
        self.waits[k] = 0;
        if at > 0 {
            self.written(at);
        }
        for i in 0..self.gaps.starting.of(k).len() {
            let gap = self.gaps.starting.of(k)[i];
            let next = at - k + self.gaps.all[gap as usize].next as usize;
            self.begin(Idle {
                next,
                gap: Reverse(gap),
                start: at,
            });
        }
        let now = self.now(at);
        self.under_way.retain(|w| w.finish > now);
        self.drop_ahead(at);
        self.write_ahead(at);
        self.copy_ahead(at);
        self.wait_for_room(at);
        self.read_now(at);
        self.wait_for_reads(at);
        self.read_ahead(at)
    }

    /// Notes a gap that begins now, by whether a valid copy is outside GPU memory.
    fn begin(&mut self, idle: Idle) {
        let tensor = self.tensor(idle);
        if self.copies[tensor as usize].is_some() {
            self.clean.push(idle)
        } else {
            self.idle.push(idle)
        }
    }

    /// The kernel before `at` has made copies stale.
    fn written(&mut self, at: usize) {
        let k = (at - 1) % self.n;
        for i in 0..self.gaps.written.of(k).len() {
            let t = self.gaps.written.of(k)[i];
            self.copies[t as usize] = None;
            if self.machine.keep_clean {
                self.offer_early(t, at);
            }
        }
    }

    /// Notes the gaps of `t`, just written, that come after the one that begins at
    /// `at`: until it is written again, one copy serves all.
    fn offer_early(&mut self, t: u32, at: usize) {
        let (n, k) = (self.n, at % self.n);
        let first = self.gaps.all.partition_point(|g| g.tensor < t);
        let own = self.gaps.of_tensor(t);
        let lasting = self.step.tensors[t as usize].lasting;
        let from = own.partition_point(|g| (g.start as usize) < k);
        for i in from..from + own.len() {
            // In the next step, those of what lasts.
            let (lap, i) = (at - k + i / own.len() * n, i % own.len());
            let gap = own[i];
            let start = lap + gap.start as usize;
            if gap.written && start > at || lap > at - k && !lasting {
                break;
            }
            if start > at {
                self.early.push(Idle {
                    next: lap + gap.next as usize,
                    start,
                    gap: Reverse((first + i) as u32),
                });
            }
        }
    }

    /// Whether a kernel from `from` to before `to` does not fit.
    fn is_needed(&self, from: usize, to: usize) -> bool {
        let capacity = self.capacity() * (1000 - self.tuning.reserve.min(1000) as i64) / 1000;
        self.gpu
            .any_above(from, to.min(from + self.n), capacity, |_, _| true)
    }

    /// Drops what costs no write, as long as a later kernel does not fit.
    fn drop_ahead(&mut self, at: usize) {
        while let Some(idle) = self.clean.pop() {
            if idle.next <= at + 1 {
                self.clean.clear();
                break;
            }
            if !self.is_needed(at, idle.next) {
                self.put_back.push(idle);
                break;
            }
            match self.valid_copy(idle, at) {
                None => self.put_back.push(idle),
                Some(tier) => {
                    if !self.drop_clean(at, idle, tier) {
                        self.poor.push(idle);
                    }
                }
            }
        }
        self.clean.extend(self.put_back.drain(..));
    }

    /// Keeps the ways out busy during kernel `at`.
    fn write_ahead(&mut self, at: usize) {
        let end = self.now(at + 1);
        while let Some(idle) = self.idle.pop() {
            if idle.next <= at + 1 {
                // The others end sooner still.
                self.idle.clear();
                break;
            }
            if !self.is_needed(at, idle.next) {
                // Nor is anybody whose next use is nearer.
                self.put_back.push(idle);
                break;
            }
            match self.offer(at, end, idle) {
                Answer::Taken => {}
                Answer::Later => {
                    self.put_back.push(idle);
                    break;
                }
                Answer::Never => self.poor.push(idle),
            }
        }
        self.idle.extend(self.put_back.drain(..));
    }

    /// Evicts `idle` if it is worth it and a way is free before `end`.
    fn offer(&mut self, at: usize, end: u64, idle: Idle) -> Answer {
        let has_ssd = self.machine.ssd_out > 0;
        let host = self.host_has_room(at, idle);
        let pages = self.pages(idle);
        let turn = self.ssd_pages * 1000 < self.turn * (self.all_pages + pages);
        let ssd = has_ssd && (turn || !host) && self.is_back_in_time(at, idle);
        let to = if ssd && self.ssd_free < end {
            Tier::Ssd
        } else if host && self.link_free < end && (!ssd || self.is_urgent(at)) {
            Tier::Host
        } else if !host && has_ssd && !ssd && self.ssd_free < end {
            Tier::Ssd
        } else if host || has_ssd {
            return Answer::Later;
        } else {
            return Answer::Never;
        };
        let other = match to {
            Tier::Host if has_ssd => Some(Tier::Ssd),
            Tier::Ssd if host => Some(Tier::Host),
            _ => None,
        };
        for to in [Some(to), other].into_iter().flatten() {
            if self.write(at, idle, to) {
                return Answer::Taken;
            }
        }
        Answer::Never
    }

    /// Where the tensor of `idle` has a valid copy as kernel `at` starts.
    fn valid_copy(&self, idle: Idle, at: usize) -> Option<Tier> {
        let tensor = self.tensor(idle);
        let (tier, since) = self.copies[tensor as usize]?;
        (since <= self.now(at)).then_some(tier)
    }

    fn host_has_room(&self, at: usize, idle: Idle) -> bool {
        let (pages, room) = (self.pages(idle) as i64, self.machine.host as i64);
        !self
            .host
            .any_above(at, idle.next, room - pages, |_, _| true)
    }

    /// Whether the SSD can hold `idle` until shortly before its use. Where reads queue
    /// up, tensors would come back long before, and take room.
    fn is_back_in_time(&self, at: usize, idle: Idle) -> bool {
        let pages = self.pages(idle);
        let Some(back) = self.reads.latest(at, idle.next, pages, Tier::Ssd) else {
            return false;
        };
        let early = self.now(idle.next) - self.now(back);
        early <= duration(pages, self.machine.ssd_in).saturating_mul(self.tuning.lead) / 1000
    }

    /// Whether the host must take some for a later kernel to fit in time.
    fn is_urgent(&self, at: usize) -> bool {
        let now = self.now(at).max(self.link_free);
        let capacity = self.capacity();
        let before = |over: u64| {
            let takes = duration(over, self.machine.link_out);
            takes.saturating_mul(self.tuning.urgency) / 1000
        };
        // No kernel has more than the peak, so that none that starts later matters.
        let horizon = now.saturating_add(before(self.peak.saturating_sub(self.machine.gpu)));
        let to = self.kernel_from(horizon).min(at + self.n);
        self.gpu.any_above(at, to, capacity, |j, level| {
            self.now(j).saturating_sub(now) < before((level - capacity) as u64)
        })
    }

    /// Drops what has a copy outside; `false` if it is not worth it.
    fn drop_clean(&mut self, at: usize, idle: Idle, tier: Tier) -> bool {
        let pages = self.pages(idle);
        let back = self.latest(at, idle.next, pages, tier);
        let Some(back) = back.filter(|&b| b > at && self.is_needed(at, b)) else {
            return false;
        };
        self.leave(at, idle, at, back, tier, self.now(at));
        true
    }

    /// Plans the write of `idle` from kernel `at` on; `false` if it is not worth it.
    fn write(&mut self, at: usize, idle: Idle, to: Tier) -> bool {
        let pages = self.pages(idle);
        let start = self.now(at).max(match to {
            Tier::Ssd => self.ssd_free,
            Tier::Host => self.link_free,
        });
        let gone = self
            .kernel_from(start + self.write_ns(pages, to))
            .max(at + 1);
        let back = self.latest(at, idle.next, pages, to);
        let Some(back) = back.filter(|&b| b > gone && self.is_needed(gone, b)) else {
            return false;
        };
        let finish = self.occupy(start, pages, to);
        self.under_way.push(Write {
            pages: pages as i64,
            finish,
            gone,
            back,
        });
        self.leave(at, idle, gone, back, to, finish);
        self.note_copy(idle, to, finish);
        true
    }

    /// The kernel from `from` on at which the read of what `next` needs must begin.
    fn latest(&self, from: usize, next: usize, pages: u64, tier: Tier) -> Option<usize> {
        match self.tuning.reads {
            Reading::Booked => self.reads.latest(from, next, pages, tier),
            Reading::Walked => Some(next),
        }
    }

    fn write_ns(&self, pages: u64, to: Tier) -> u64 {
        let ps = match to {
            Tier::Host => self.machine.link_out,
            Tier::Ssd => self.machine.ssd_out,
        };
        duration(pages, ps)
    }

    /// Occupies a way out from `start` on; returns until when.
    fn occupy(&mut self, start: u64, pages: u64, to: Tier) -> u64 {
        let finish = start + self.write_ns(pages, to);
        self.all_pages += pages;
        match to {
            Tier::Host => self.link_free = finish,
            Tier::Ssd => {
                self.ssd_free = finish;
                self.ssd_pages += pages;
                // The SSD's bytes cross the link as well.
                self.link_free += duration(pages, self.machine.link_out);
            }
        }
        finish
    }

    fn note_copy(&mut self, idle: Idle, to: Tier, at: u64) {
        if self.machine.keep_clean {
            let tensor = self.tensor(idle);
            self.copies[tensor as usize] = Some((to, at));
        }
    }

    /// Records that `idle` leaves at kernel `at`, is gone from `gone` on, at time `left`,
    /// and is read back from `back` on.
    #[allow(clippy::too_many_arguments)]
    fn leave(&mut self, at: usize, idle: Idle, gone: usize, back: usize, tier: Tier, left: u64) {
        let pages = self.pages(idle);
        let tensor = self.tensor(idle);
        match self.tuning.reads {
            Reading::Booked => self.reads.book(back, idle.next, pages, tier),
            Reading::Walked => self.wanted[usize::from(tier == Tier::Ssd)].push(Reverse(Wanted {
                next: idle.next,
                tensor,
                pages: pages as i64,
                gone: left,
            })),
        }
        if tier == Tier::Host {
            self.host.add(at, idle.next, pages as i64);
        }
        self.relieve(gone, back, pages as i64);
        self.ask(at, tensor, What::Evict(tier));
        self.away.push(Absence {
            tensor,
            tier,
            pages: pages as i64,
            gone,
            back,
        })
    }

    /// Makes a request as kernel `at` starts.
    fn ask(&mut self, at: usize, tensor: u32, what: What) {
        let kernel = (at % self.n) as u32;
        let request = Request {
            kernel,
            tensor,
            what,
        };
        self.requests.push(request);
    }

    fn relieve(&mut self, from: usize, to: usize, pages: i64) {
        self.gpu.add(from, to, -pages);
    }

    /// Copies out early what a later gap will want to drop, with what is left of the
    /// way out during kernel `at`.
    fn copy_ahead(&mut self, at: usize) {
        let end = self.now(at + 1);
        while self.link_free < end {
            let Some(idle) = self.early.pop() else { break };
            let tensor = self.tensor(idle);
            let done = self.copies[tensor as usize].is_some();
            if done || idle.start <= at || !self.is_needed(idle.start, idle.next) {
                continue;
            }
            let start = self.now(at).max(self.link_free);
            let finish = self.occupy(start, self.pages(idle), Tier::Host);
            self.copies[tensor as usize] = Some((Tier::Host, finish));
            self.ask(at, tensor, What::Copy(Tier::Host));
        }
    }

    /// If kernel `at` does not fit, lets it wait for writes; if those under way are not
    /// enough, for more.
    fn wait_for_room(&mut self, at: usize) {
        if self.gpu.get(at) <= self.capacity() {
            return;
        }
        self.under_way.sort_unstable_by_key(|w| w.finish);
        let mut over = self.gpu.get(at) - self.capacity();
        let mut until = self.now(at);
        for w in self.under_way.iter() {
            if over <= 0 {
                break;
            }
            if w.gone > at && w.back > at {
                over -= w.pages;
                until = w.finish;
            }
        }
        while over > 0 {
            let Some(idle) = self.least_bad(at) else {
                break;
            };
            until = until.max(self.force(at, idle));
            over -= self.pages(idle) as i64;
        }
        self.wait(at, until);
        // Writes now end in earlier kernels than was thought.
        for i in 0..self.under_way.len() {
            let w = self.under_way[i];
            let gone = if w.finish <= until {
                at
            } else {
                self.kernel_from(w.finish).max(at + 1)
            };
            if gone < w.gone {
                self.relieve(gone, w.gone.min(w.back), w.pages);
                self.under_way[i].gone = gone;
            }
        }
    }

    /// The idle tensor whose absence costs least where one must leave: one without a
    /// write, or that with the farthest use.
    fn least_bad(&mut self, at: usize) -> Option<Idle> {
        let next = self.clean.peek().map_or(0, |i| i.next);
        if next > at + 1 {
            return self.clean.pop();
        }
        self.poor.retain(|i| i.next > at + 1);
        let poor = (0..self.poor.len()).max_by_key(|&i| self.poor[i]);
        let from_poor = poor.is_some_and(|i| self.idle.peek().is_none_or(|h| self.poor[i] > *h));
        if from_poor {
            poor.map(|i| self.poor.swap_remove(i))
        } else {
            self.idle.pop().filter(|i| i.next > at + 1)
        }
    }

    /// Evicts `idle` before kernel `at` whatever it costs; returns when it is gone.
    fn force(&mut self, at: usize, idle: Idle) -> u64 {
        let pages = self.pages(idle);
        let now = self.now(at);
        let (tier, gone) = match self.valid_copy(idle, at) {
            Some(tier) => (tier, now),
            None => {
                let host = self.host_has_room(at, idle) || self.machine.ssd_out == 0;
                let tier = if host { Tier::Host } else { Tier::Ssd };
                let free = if host { self.link_free } else { self.ssd_free };
                let gone = self.occupy(free.max(now), pages, tier);
                self.note_copy(idle, tier, gone);
                (tier, gone)
            }
        };
        let back = self.latest(at + 1, idle.next, pages, tier);
        if back.is_none() {
            let there = gone + duration(pages, self.read_ps(tier));
            self.late.push((idle.next, there));
        }
        self.leave(at, idle, at, back.unwrap_or(at + 1), tier, gone);
        gone
    }
}
