// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Transfer batches.
//!
//! In a batch: planned evictions, faults from the SSD, from the host, first
//! allocations, prefetches from the SSD, from the host, allocations ahead of use.
//! On a full GPU each page that comes in evicts one first. All of it page by page
//! in the artifact; here a chunk at a time, cut where the artifact's next page
//! would be treated differently.

use super::super::pages::Loc;
use super::super::pages::Queue;
use super::super::pages::LANES;
use super::super::pages::NIL;
use super::super::view::PAGE;
use super::super::RunError;
use super::Limits;
use super::Mode;
use super::Sim;

/// What a batch has moved one way, in pages.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    all: u64,
    ssd: u64,
    host: u64,
}

impl Moved {
    /// Counts `n` pages that came from `at`, or went there; whether no more can.
    fn add(&mut self, at: Loc, n: u64, limits: &Limits) -> bool {
        let (part, limit) = match at {
            Loc::Ssd => (&mut self.ssd, limits.ssd),
            Loc::Host => (&mut self.host, limits.host),
            _ => return false,
        };
        self.all += n;
        *part += n;
        *part == limit
    }

    /// Pages that may still come from `at`, or go there.
    fn left(&self, at: Loc, limits: &Limits) -> u64 {
        let part = match at {
            Loc::Ssd => limits.ssd.saturating_sub(self.ssd),
            Loc::Host => limits.host.saturating_sub(self.host),
            _ => return u64::MAX,
        };
        part.min(limits.link - self.all)
    }

    fn is_within(&self, limits: &Limits) -> bool {
        self.all <= limits.link && self.ssd <= limits.ssd && self.host <= limits.host
    }
}

/// What the current batch has moved, in pages.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    into: Moved,
    out: Moved,
    alloc: u64,
    /// Where evictions must go, whatever they want.
    forced_out: Option<Loc>,
    /// The only place from which faults are still fetched.
    forced_in: Option<Loc>,
    /// Chunks that put pages on the GPU, and all chunks.
    arrivals: u32,
    chunks: u32,
    /// Whether the next batch may differ though it begins alike.
    unlike: bool,
}

/// A chunk of a batch, kept to repeat it.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// The run that came in or was evicted as planned; `NIL` if it is used up.
    run: u32,
    pages: u64,
    to: Loc,
    /// A victim and where it went.
    victim: u32,
    victim_to: Loc,
}

impl Chunk {
    /// So many pages that go to `to`, with what is left of their run; without a victim.
    fn of(run: u32, pages: u64, to: Loc) -> Self {
        Self {
            run,
            pages,
            to,
            victim: NIL,
            victim_to: Loc::None,
        }
    }
}

/// Chunks that are kept; batches of more are not repeated at once.
const KEPT: usize = LANES;

impl Sim<'_> {
    /// Runs the batch due at `time` and those after it that only repeat it, up to
    /// the event of a kernel. Returns whether the waiting kernel is served, and the
    /// time of the last batch.
    pub(super) fn batches_from(
        &mut self,
        time: u64,
        kernel: Option<u64>,
    ) -> Result<(bool, u64), RunError> {
        self.batches = 0;
        if self.is_idle() {
            if kernel.is_none() {
                return Err(self.stuck(time));
            }
            return Ok((false, time));
        }
        let mut b = Batch::default();
        let mut chunks = [Chunk::of(NIL, 0, Loc::None); KEPT];
        let host_before = self.pages.host_used;
        self.one_batch(&mut b, &mut chunks)?;
        let mut last = time;
        self.count(&b, 1);
        if b.chunks > 0 {
            self.batches = 1;
            let room = kernel.map_or(u64::MAX, |k| {
                k.saturating_sub(time + 1) / self.limits.batch_cycles
            });
            let more = self.repeats(&b, &chunks, host_before).min(room);
            if more > 0 {
                self.repeat(&b, &chunks, more);
                self.count(&b, more);
                last += more * self.limits.batch_cycles;
            }
        }
        let served = self.wait.is_some_and(|w| !w.served)
            && self.fault_queues_empty()
            && !self.waits_for_pages();
        if let Some(w) = self.wait.as_mut().filter(|_| served) {
            w.served = true;
        }
        if b.chunks == 0 && kernel.is_none() && !served {
            return Err(self.stuck(time));
        }
        Ok((served, last))
    }

    fn stuck(&self, time: u64) -> RunError {
        RunError::Unsupported(format!(
            "the machine is stuck at cycle {time}, kernel {}: nothing can move and the kernel waits; \
             more GPU or host memory would free it",
            self.kernel
        ))
    }

    fn is_idle(&self) -> bool {
        use Queue::{Alloc, EvictHost, EvictSsd, FetchHost, FetchSsd};
        self.fault_queues_empty()
            && self.are_empty(&[EvictSsd, EvictHost, FetchSsd, FetchHost, Alloc])
    }

    fn fault_queues_empty(&self) -> bool {
        self.are_empty(&[Queue::FaultSsd, Queue::FaultHost, Queue::FaultAlloc])
    }

    fn are_empty(&self, queues: &[Queue]) -> bool {
        queues.iter().all(|&q| self.pages.front(q) == NIL)
    }

    /// Whether a page of the current kernel is in transfer.
    fn waits_for_pages(&self) -> bool {
        let mut required = self.view.kernels[self.kernel].required.iter();
        required.any(|&t| self.pages.tensors[t as usize].in_transfer > 0)
    }

    fn count(&mut self, b: &Batch, times: u64) {
        let l = &self.limits;
        debug_assert!(b.into.is_within(l) && b.out.is_within(l));
        let t = &mut self.traffic[self.step];
        t.ssd_to_gpu += b.into.ssd * PAGE * times;
        t.host_to_gpu += b.into.host * PAGE * times;
        t.gpu_to_ssd += b.out.ssd * PAGE * times;
        t.gpu_to_host += b.out.host * PAGE * times;
    }

    fn one_batch(&mut self, b: &mut Batch, chunks: &mut [Chunk; KEPT]) -> Result<(), RunError> {
        if self.at_line() {
            b.forced_out = Some(Loc::Ssd);
        }
        self.planned_evictions(b, chunks);
        self.serve(b, chunks, Queue::FaultSsd, true)?;
        self.serve(b, chunks, Queue::FaultHost, true)?;
        self.serve(b, chunks, Queue::FaultAlloc, true)?;
        if self.serve(b, chunks, Queue::FetchSsd, false)? {
            self.serve(b, chunks, Queue::FetchHost, false)?;
        }
        self.serve(b, chunks, Queue::Alloc, false)?;
        let locked = self.mode == Mode::DeepUm
            && self.wait.is_some_and(|w| !w.served)
            && b.into.all + b.out.all == 0
            && self.waits_for_pages();
        if locked {
            // The kernel waits for prefetches that have stalled: serve them as faults.
            self.serve(b, chunks, Queue::FetchSsd, true)?;
            self.serve(b, chunks, Queue::FetchHost, true)?;
            self.serve(b, chunks, Queue::Alloc, true)?;
            b.unlike = true;
        }
        Ok(())
    }

    /// Host memory is at its cap.
    fn at_line(&self) -> bool {
        self.pages.host_used == self.limits.host_pages
    }

    fn is_full(&self) -> bool {
        self.pages.gpu_pages() == self.limits.gpu_pages
    }

    /// Whether a page may still leave the GPU to make room.
    fn can_leave(&self, b: &Batch) -> bool {
        b.out.all < self.limits.link && (!self.at_line() || b.out.ssd < self.limits.ssd)
    }

    fn planned_evictions(&mut self, b: &mut Batch, chunks: &mut [Chunk; KEPT]) {
        loop {
            let r = self.pages.front(Queue::EvictSsd);
            if r == NIL || b.out.left(Loc::Ssd, &self.limits) == 0 {
                break;
            }
            self.evict_planned(b, chunks, r, b.forced_out.unwrap_or(Loc::Ssd));
        }
        loop {
            let r = self.pages.front(Queue::EvictHost);
            let to = if self.at_line() { Loc::Ssd } else { Loc::Host };
            if r == NIL || b.out.left(to, &self.limits) == 0 {
                break;
            }
            self.evict_planned(b, chunks, r, b.forced_out.unwrap_or(Loc::Host));
        }
    }

    fn evict_planned(&mut self, b: &mut Batch, chunks: &mut [Chunk; KEPT], r: u32, to: Loc) {
        let n = self.pages.run(r).len.min(self.room_out(b, to, false));
        let was_cursor = self.cursor == r;
        let rest = self.evict(b, r, n, to);
        if was_cursor {
            self.cursor = self.pages.oldest();
        }
        note(b, chunks, Chunk::of(rest, n, to));
    }

    /// Pages that may go to `to` before something changes. `swaps` says that each
    /// is followed by a page coming in from the host.
    fn room_out(&self, b: &Batch, to: Loc, swaps: bool) -> u64 {
        let mut room = b.out.left(to, &self.limits);
        if to == Loc::Host && !swaps {
            room = room.min(self.limits.host_pages.saturating_sub(self.pages.host_used));
        }
        room.max(1)
    }

    /// Moves the first `n` pages of `r` off the GPU. Those that the current kernel
    /// needs are queued as faults at once. Returns the rest of the run.
    fn evict(&mut self, b: &mut Batch, r: u32, n: u64, to: Loc) -> u32 {
        let tensor = self.pages.run(r).tensor;
        let queue = match (self.required[tensor as usize] == self.stamp, to) {
            (false, _) => Queue::Idle,
            (true, Loc::Ssd) => Queue::FaultSsd,
            (true, Loc::Host) => Queue::FaultHost,
            (true, _) => Queue::FaultAlloc,
        };
        b.unlike |= queue != Queue::Idle;
        let rest = self.pages.move_front(r, n, to, queue);
        let full = b.out.add(to, n, &self.limits);
        match to {
            Loc::Ssd if full => b.forced_out = Some(Loc::Host),
            Loc::Host if full || self.at_line() => b.forced_out = Some(Loc::Ssd),
            _ => {}
        }
        rest
    }

    /// Brings pages of queue `q` to the GPU. Returns whether it may go on: a
    /// prefetch that finds no victim stops all prefetches of the batch.
    fn serve(
        &mut self,
        b: &mut Batch,
        chunks: &mut [Chunk; KEPT],
        q: Queue,
        as_fault: bool,
    ) -> Result<bool, RunError> {
        let from = match q {
            Queue::FaultSsd | Queue::FetchSsd => Loc::Ssd,
            Queue::FaultHost | Queue::FetchHost => Loc::Host,
            _ => Loc::None,
        };
        loop {
            let r = self.pages.front(q);
            let mut n = self.room_in(b, from, as_fault);
            if r == NIL || n == 0 || (self.is_full() && !self.can_leave(b)) {
                return Ok(true);
            }
            let (len, tensor) = (self.pages.run(r).len, self.pages.run(r).tensor);
            n = n.min(len);
            let mut chunk = Chunk::of(NIL, 0, Loc::Gpu);
            if self.is_full() {
                let fault = as_fault || self.required[tensor as usize] == self.stamp;
                let Some((victim, wish)) = self.victim(fault)? else {
                    return Ok(false);
                };
                let to = match (wish, b.forced_out) {
                    (Loc::None, _) | (_, None) => wish,
                    (_, Some(forced)) => forced,
                };
                let room = self.room_out(b, to, from == Loc::Host);
                n = n.min(self.pages.run(victim).len).min(room);
                if victim == self.pages.newest() || (from == Loc::Host && to == Loc::Ssd) {
                    n = 1;
                }
                let (follows, newer) = (self.cursor == victim, self.pages.after(victim));
                let rest = self.evict(b, victim, n, to);
                if follows {
                    self.cursor = if rest == NIL { newer } else { rest };
                }
                chunk.victim = rest;
                chunk.victim_to = to;
                b.unlike |= rest == NIL;
            } else {
                n = n.min(self.limits.gpu_pages - self.pages.gpu_pages());
            }
            chunk.pages = n;
            // The eviction may have grown or joined runs, but not this queue's front.
            let front = self.pages.front(q);
            chunk.run = self.pages.move_front(front, n, Loc::Gpu, Queue::Idle);
            if from == Loc::Host && b.forced_out == Some(Loc::Ssd) {
                b.forced_out = None;
            }
            b.alloc += n;
            b.arrivals += 1;
            if b.into.add(from, n, &self.limits) {
                b.forced_in = Some(if from == Loc::Ssd {
                    Loc::Host
                } else {
                    Loc::Ssd
                });
            }
            note(b, chunks, chunk);
            if as_fault && b.forced_in.is_some_and(|f| from != Loc::None && f != from) {
                return Ok(true);
            }
        }
    }

    /// Pages that may still come from `from` in this batch.
    fn room_in(&self, b: &Batch, from: Loc, as_fault: bool) -> u64 {
        let left = b.into.left(from, &self.limits);
        if as_fault || from == Loc::None {
            left.min(self.limits.alloc.saturating_sub(b.alloc))
        } else {
            left
        }
    }

    /// The run whose first page is evicted next, and where it wants to go. `None`:
    /// near kernels use all that is there (DeepUM+, not for a fault).
    fn victim(&mut self, fault: bool) -> Result<Option<(u32, Loc)>, RunError> {
        match self.mode {
            Mode::Lru => {
                let mut v = self.skip(self.cursor);
                if v == NIL {
                    v = self.skip(self.pages.oldest());
                }
                if v == NIL {
                    return Err(RunError::Unsupported(format!(
                        "kernel {}: every page of the GPU is in transfer, none can be evicted",
                        self.kernel
                    )));
                }
                self.cursor = v;
                self.pages.untangle(v);
                Ok(Some((v, Loc::Host)))
            }
            Mode::DeepUm => {
                let v = if fault {
                    self.pages.oldest()
                } else {
                    self.cursor = self.skip(self.cursor);
                    self.cursor
                };
                if v == NIL {
                    return Ok(None);
                }
                self.pages.untangle(v);
                let tensor = &self.view.tensors[self.pages.run(v).tensor as usize];
                let alive = tensor.is_alive(self.kernel);
                Ok(Some((v, if alive { Loc::Host } else { Loc::None })))
            }
        }
    }

    /// How many times the batch just run would repeat itself exactly.
    fn repeats(&self, b: &Batch, chunks: &[Chunk; KEPT], host_before: u64) -> u64 {
        if b.unlike || b.chunks as usize > KEPT || !self.at_once {
            return 0;
        }
        let chunks = &chunks[..b.chunks as usize];
        if chunks.iter().any(|c| c.run == NIL) {
            return 0;
        }
        // Host memory must stay below its cap all along: at the cap, evictions go
        // elsewhere. A batch that leaves the host alone may run at the cap.
        let (line, used) = (self.limits.host_pages, self.pages.host_used);
        let mut most = u64::MAX;
        if b.out.host + b.into.host > 0 {
            let peak = used.max(host_before) + b.out.host;
            if peak >= line {
                return 0;
            }
            if used > host_before {
                most = (line - 1 - peak) / (used - host_before);
            }
        }
        // What came in has one victim, or none and there is room for all of it.
        let (mut in_free, mut swapped) = (0, 0);
        let mut victim = None;
        let (mut runs, mut arrivals) = ([NIL; KEPT], 0);
        for c in chunks {
            most = most.min((self.pages.run(c.run).len - 1) / c.pages);
            if c.to != Loc::Gpu {
                continue;
            }
            if runs[..arrivals].contains(&c.run) {
                return 0;
            }
            runs[arrivals] = c.run;
            arrivals += 1;
            if c.victim == NIL {
                in_free += c.pages;
                continue;
            }
            if *victim.get_or_insert((c.victim, c.victim_to)) != (c.victim, c.victim_to) {
                return 0;
            }
            swapped += c.pages;
            most = most.min((self.pages.run(c.victim).len - 1) / swapped);
            if c.victim == self.pages.newest() {
                return 0;
            }
        }
        let free = self.limits.gpu_pages - self.pages.gpu_pages();
        most = most.min(free.checked_div(in_free).unwrap_or(u64::MAX));
        if b.arrivals > 1 && in_free > 0 && swapped > 0 {
            return 0;
        }
        most
    }

    /// Repeats the chunks of a batch `times` times.
    fn repeat(&mut self, b: &Batch, chunks: &[Chunk; KEPT], times: u64) {
        let mut turns = [(NIL, 0); KEPT];
        let mut arrivals = 0;
        for c in &chunks[..b.chunks as usize] {
            let n = c.pages * times;
            if c.victim != NIL {
                let follows = self.cursor == c.victim;
                let rest = self.pages.move_front(c.victim, n, c.victim_to, Queue::Idle);
                if follows {
                    self.cursor = rest;
                }
            }
            if b.arrivals > 1 && c.to == Loc::Gpu {
                turns[arrivals] = (c.run, c.pages);
                arrivals += 1;
                continue;
            }
            let follows = self.cursor == c.run;
            self.pages.move_front(c.run, n, c.to, Queue::Idle);
            if follows {
                self.cursor = self.pages.oldest();
            }
        }
        if arrivals > 0 {
            self.pages.arrive_by_turns(&turns[..arrivals], times);
        }
    }
}

fn note(b: &mut Batch, chunks: &mut [Chunk; KEPT], chunk: Chunk) {
    if let Some(slot) = chunks.get_mut(b.chunks as usize) {
        *slot = chunk;
    }
    b.chunks += 1;
}
