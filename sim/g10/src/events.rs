// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The artifact's page simulator: base UVM, DeepUM+ and G10.
//!
//! Two kinds of event: a kernel begins (or begins again, once its faults are
//! served), and a transfer batch every [`Limits::batch_cycles`]. Of two events at
//! one time the one scheduled first goes first. A batch works on runs of pages,
//! not on pages, and batches that would only repeat the last one are done at once.

mod batch;
mod fault;
#[cfg(test)]
mod tests;

use super::pages::Loc;
use super::pages::Pages;
use super::pages::Queue;
use super::pages::NIL;
use super::plan::Hint;
use super::plan::Target;
use super::view::View;
use super::view::PAGE;
use super::Machine;
use super::Outcome;
use super::RunError;
use super::Traffic;

/// Steps that are simulated; the faster one counts.
const STEPS: usize = 2;

/// How victims are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The page that arrived first.
    Lru,
    /// The page that arrived first of those that no near kernel uses; pages of
    /// dead tensors are dropped.
    DeepUm,
}

/// One kernel of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelRecord {
    /// The simulated step, from 0.
    pub step: usize,
    /// The kernel, from 0.
    pub kernel: usize,
    /// When it was due, in cycles.
    pub start: u64,
    /// When it ended, in cycles.
    pub end: u64,
    /// Pages of its tensors already in transfer when it was due.
    pub in_transfer: u64,
    /// Pages it faulted on that were in host memory.
    pub host_faults: u64,
    /// Pages it faulted on that were on the SSD.
    pub ssd_faults: u64,
    /// Pages it faulted on that were not allocated.
    pub alloc_faults: u64,
    /// Pages in host memory when it could start.
    pub host_pages: u64,
    /// Pages in GPU memory when it could start.
    pub gpu_pages: u64,
}

/// What a batch may move, in pages.
#[derive(Clone, Copy, Debug)]
struct Limits {
    batch_cycles: u64,
    /// What the link moves, each way.
    link: u64,
    /// Of those, to and from the SSD, and the host.
    ssd: u64,
    host: u64,
    /// Allocations on the GPU.
    alloc: u64,
    gpu_pages: u64,
    host_pages: u64,
}

impl Limits {
    fn new(m: &Machine) -> Self {
        let hz = 1.2e9;
        let link_bytes_per_cycle = m.pcie_gbps * 1e9 / hz;
        let pages = f64::from(m.batch_pages);
        let batch_cycles = (pages * PAGE as f64 / link_bytes_per_cycle) as u64;
        let malloc_cycles = (m.malloc_us_per_byte * PAGE as f64 / 1e6 * hz).round() as u64;
        let gib = 1024f64.powi(3);
        Self {
            batch_cycles: batch_cycles.max(1),
            link: u64::from(m.batch_pages),
            ssd: (pages / m.pcie_gbps * m.ssd_gbps) as u64,
            host: (pages / m.pcie_gbps * m.pcie_gbps) as u64,
            alloc: batch_cycles / malloc_cycles.max(1),
            gpu_pages: (m.gpu_gib / PAGE as f64 * gib).round() as u64,
            host_pages: (m.host_gib * gib / PAGE as f64) as u64,
        }
    }
}

/// A kernel that waits for its pages.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: u64,
    /// What the fault model says the kernel takes, from `since`.
    duration: u64,
    /// Whether all pages have come and the kernel is to begin again.
    served: bool,
}

/// A scheduled event: its time, and its place among those of the same time.
type Due = (u64, u64);

struct Sim<'a> {
    view: &'a View,
    machine: &'a Machine,
    limits: Limits,
    mode: Mode,
    pages: Pages,
    hints: Vec<Hint>,
    next_hint: usize,
    /// The next victim in order of arrival; `NIL` is the end of the order.
    cursor: u32,
    kernel: usize,
    step: usize,
    wait: Option<Wait>,
    record: KernelRecord,
    /// Tensors of the current kernel, and (DeepUM+) of the near ones, have this stamp.
    stamp: u32,
    required: Vec<u32>,
    near: Vec<u32>,
    /// Durations after the error of profiling.
    cycles: Vec<u64>,
    /// That error, per kernel; empty if there is none.
    time_ratio: Vec<f64>,
    traffic: [Traffic; STEPS],
    records: Vec<KernelRecord>,
    batches: u64,
    /// Whether batches that repeat the last one are done at once; the outcome is the
    /// same.
    at_once: bool,
}

/// Runs two steps; the outcome is the faster one.
pub(super) fn run(
    view: &View,
    machine: &Machine,
    mode: Mode,
    hints: Vec<Hint>,
) -> Result<Outcome, RunError> {
    let mut sim = Sim::new(view, machine, mode, hints);
    sim.run()?;
    sim.pages.check().map_err(RunError::Internal)?;
    Ok(sim.outcome())
}

impl<'a> Sim<'a> {
    fn new(view: &'a View, machine: &'a Machine, mode: Mode, hints: Vec<Hint>) -> Self {
        let sizes: Vec<u64> = view.tensors.iter().map(|t| t.pages).collect();
        let place = |w: bool| if w { Loc::Ssd } else { Loc::None };
        let locs: Vec<Loc> = view.tensors.iter().map(|t| place(t.is_weight)).collect();
        Self {
            view,
            machine,
            limits: Limits::new(machine),
            mode,
            pages: Pages::new(&sizes, &locs),
            hints,
            next_hint: 0,
            cursor: NIL,
            kernel: 0,
            step: 0,
            wait: None,
            record: KernelRecord::default(),
            stamp: 0,
            required: vec![0; sizes.len()],
            near: vec![0; sizes.len()],
            cycles: view.kernels.iter().map(|k| k.cycles).collect(),
            time_ratio: Vec::new(),
            traffic: [Traffic::default(); STEPS],
            records: Vec::with_capacity(STEPS * view.kernels.len()),
            batches: 0,
            at_once: true,
        }
    }

    fn run(&mut self) -> Result<(), RunError> {
        fault::perturb(self);
        let mut order = 2u64;
        let mut next = || {
            order += 1;
            order
        };
        let mut batch: Due = (0, 1);
        let mut kernel: Option<Due> = Some((0, 0));
        loop {
            if let Some(due) = kernel.filter(|&due| due < batch) {
                kernel = match self.begin_kernel(due.0) {
                    Some(end) if self.is_done() => {
                        debug_assert!(end >= due.0);
                        return Ok(());
                    }
                    Some(end) => Some((end, next())),
                    None => None,
                };
                continue;
            }
            let (served, last) = self.batches_from(batch.0, kernel.map(|k| k.0))?;
            if served {
                kernel = Some((last, next()));
            }
            batch = (self.next_batch(last, kernel.map(|k| k.0), served), next());
        }
    }

    /// Whether the last kernel of the last step has run.
    fn is_done(&self) -> bool {
        self.records.len() == STEPS * self.view.kernels.len()
    }

    /// When the next batch is due that can do anything, after one at `time`.
    fn next_batch(&self, time: u64, kernel: Option<u64>, served: bool) -> u64 {
        let step = self.limits.batch_cycles;
        match kernel {
            Some(t) if !served && self.batches == 0 => {
                time + t.saturating_sub(time).div_ceil(step).max(1) * step
            }
            _ => time + step,
        }
    }

    /// The current kernel is due, or due again. Returns when it ends, if its pages
    /// are all there.
    fn begin_kernel(&mut self, time: u64) -> Option<u64> {
        let enters = self.wait.is_none();
        if enters {
            self.enter_kernel();
        }
        self.place_cursor();
        // Once a kernel, not again when its faults are served: hints that are all
        // for one kernel would evict what it has just waited for, forever.
        if enters {
            self.issue_hints();
        }
        let k = &self.view.kernels[self.kernel];
        let faults =
            [Queue::FaultSsd, Queue::FaultHost, Queue::FaultAlloc].map(|q| self.pages.queued(q));
        let ready = |t: &u32| {
            let t = self.pages.tensors[*t as usize];
            t.ready == t.pages
        };
        if faults.iter().sum::<u64>() > 0 || !k.required.iter().all(ready) {
            let duration = self.fault_in();
            match &mut self.wait {
                Some(w) => w.served = false,
                None => {
                    self.wait = Some(Wait {
                        since: time,
                        duration,
                        served: false,
                    })
                }
            }
            return None;
        }
        let (start, end) = match self.wait.take() {
            Some(w) => (w.since, time.max(w.since + w.duration)),
            None => (time, time + self.cycles[self.kernel]),
        };
        let (gpu, host) = (self.pages.gpu_pages(), self.pages.host_used);
        debug_assert!(gpu <= self.limits.gpu_pages, "GPU over capacity");
        debug_assert!(host <= self.limits.host_pages, "host over its cap");
        // Whole networks are recounted at the end only: it takes its time.
        debug_assert!(self.view.tensors.len() > 500 || self.pages.check() == Ok(()));
        self.record.start = start;
        self.record.end = end;
        (self.record.gpu_pages, self.record.host_pages) = (gpu, host);
        self.records.push(self.record);
        Some(end)
    }

    /// Makes the next kernel the current one.
    fn enter_kernel(&mut self) {
        let done = self.records.len();
        self.kernel = done % self.view.kernels.len();
        self.step = done / self.view.kernels.len();
        self.record = KernelRecord {
            step: self.step,
            kernel: self.kernel,
            ..KernelRecord::default()
        };
        self.stamp += 1;
        for &t in &self.view.kernels[self.kernel].required {
            self.required[t as usize] = self.stamp;
        }
        if self.mode == Mode::DeepUm {
            for ahead in 0..self.machine.prefetch_degree {
                let k = (self.kernel + ahead) % self.view.kernels.len();
                for &t in &self.view.kernels[k].required {
                    self.near[t as usize] = self.stamp;
                }
            }
        }
    }

    /// Sets the first victim: the oldest page that is not in transfer, or (DeepUM+)
    /// that no near kernel uses.
    fn place_cursor(&mut self) {
        self.cursor = self.skip(self.pages.oldest());
    }

    /// The first run from `r` on that may be a victim.
    fn skip(&self, r: u32) -> u32 {
        self.pages.first_from(r, |run| match self.mode {
            Mode::Lru => run.queue == Queue::Idle,
            Mode::DeepUm => self.near[run.tensor as usize] != self.stamp,
        })
    }

    /// Carries out the hints of the current kernel. They are a circle: those for
    /// the end of a step come due at the start of the next.
    fn issue_hints(&mut self) {
        let kernels = self.view.kernels.len();
        for _ in 0..self.hints.len() {
            let hint = self.hints[self.next_hint];
            if hint.kernel % kernels != self.kernel {
                break;
            }
            self.next_hint = (self.next_hint + 1) % self.hints.len();
            self.follow(hint);
        }
    }

    fn follow(&mut self, hint: Hint) {
        let mut r = self.pages.tensors[hint.tensor as usize].runs.first;
        while r != NIL {
            let run = self.pages.run(r);
            let (next, loc, len) = (run.next(), run.loc, run.len);
            if run.queue != Queue::Idle {
                r = next;
                continue;
            }
            match (hint.to, loc) {
                (Target::Gpu, Loc::None) => self.pages.enqueue(r, Queue::Alloc),
                (Target::Gpu, Loc::Ssd) => self.pages.enqueue(r, Queue::FetchSsd),
                (Target::Gpu, Loc::Host) => self.pages.enqueue(r, Queue::FetchHost),
                (Target::Ssd, Loc::Gpu) => self.pages.enqueue(r, Queue::EvictSsd),
                (Target::Host, Loc::Gpu) => self.pages.enqueue(r, Queue::EvictHost),
                (Target::Free, Loc::Gpu | Loc::Host | Loc::Ssd) => {
                    let was_cursor = self.cursor == r;
                    self.pages.move_front(r, len, Loc::None, Queue::Idle);
                    if was_cursor {
                        self.cursor = self.pages.oldest();
                    }
                    // Runs may have been joined; the tensor's chain is short.
                    r = self.pages.tensors[hint.tensor as usize].runs.first;
                    while r != NIL && self.is_freed(r) {
                        r = self.pages.run(r).next();
                    }
                    continue;
                }
                _ => {}
            }
            r = next;
        }
    }

    fn is_freed(&self, r: u32) -> bool {
        let run = self.pages.run(r);
        run.queue != Queue::Idle || run.loc == Loc::None
    }

    fn outcome(self) -> Outcome {
        let kernels = self.view.kernels.len();
        let mut last_end = 0;
        let mut durations = Vec::with_capacity(self.records.len());
        for r in &self.records {
            durations.push(r.end - last_end);
            last_end = r.end;
        }
        let time = |step: usize| durations[step * kernels..][..kernels].iter().sum::<u64>();
        let best = (0..STEPS).min_by_key(|&s| time(s)).unwrap_or(0);
        let of_step = self.records.iter().filter(|r| r.step == best);
        Outcome {
            ideal_cycles: self.cycles.iter().sum(),
            step_cycles: time(best),
            traffic: self.traffic[best],
            faults: of_step
                .map(|r| r.host_faults + r.ssd_faults + r.alloc_faults)
                .sum(),
            kernel_cycles: durations[best * kernels..][..kernels].to_vec(),
            records: self.records,
        }
    }
}
