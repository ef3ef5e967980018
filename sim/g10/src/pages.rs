// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Where every page is, as runs of pages that share their fate.
//!
//! A tensor's pages are a chain of runs in page order. A run has one location,
//! waits in at most one queue, and, while on the GPU, is one element of the order
//! of arrival, from which victims are taken. Runs are cut at the front when a part
//! moves and grown at the back when the next part follows, so their number hangs
//! on how often transfers interleave, not on how many pages there are. Tensors
//! that come in by turns, batch after batch, are a [`Braid`] in the order of arrival.

mod braid;

use braid::Braid;
pub(super) use braid::LANES;

/// Stands where there is no run.
pub(super) const NIL: u32 = u32::MAX;

/// Where a page's contents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loc {
    /// Nowhere: never allocated, or freed.
    None,
    Ssd,
    Host,
    Gpu,
}

/// What a page in transfer waits for; the order is that of service in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// Planned eviction to the SSD, and to the host.
    EvictSsd,
    EvictHost,
    /// A fault on a page on the SSD, on the host, nowhere.
    FaultSsd,
    FaultHost,
    FaultAlloc,
    /// A prefetch from the SSD, from the host; an allocation ahead of use.
    FetchSsd,
    FetchHost,
    Alloc,
    /// The page is not in transfer.
    Idle,
}

const QUEUES: usize = Queue::Idle as usize;

/// What a run has neighbours in.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Its tensor, in page order.
    Tensor,
    /// The GPU's memory, in order of arrival.
    Arrival,
    /// The queue that it waits in.
    Queue,
}

/// The ends of an order, or the neighbours of a run in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// The first run, or the one before.
    pub first: u32,
    /// The last run, or the one after.
    last: u32,
}

const NONE: Ends = Ends {
    first: NIL,
    last: NIL,
};

/// Pages of one tensor that follow each other and share their fate.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub tensor: u32,
    pub len: u64,
    pub loc: Loc,
    pub queue: Queue,
    /// Its neighbours, by [`Order`].
    links: [Ends; 3],
    /// The braid that it is a lane of.
    braid: u32,
}

impl Run {
    /// The next run of its tensor.
    pub(super) fn next(&self) -> u32 {
        self.links[Order::Tensor as usize].last
    }

    fn prev(&self) -> u32 {
        self.links[Order::Tensor as usize].first
    }

    /// The run that arrived next.
    fn newer(&self) -> u32 {
        self.links[Order::Arrival as usize].last
    }

    /// The orders that it is in.
    fn orders(&self) -> impl Iterator<Item = Order> {
        let arrived = (self.loc == Loc::Gpu).then_some(Order::Arrival);
        let queued = (self.queue != Queue::Idle).then_some(Order::Queue);
        [Order::Tensor].into_iter().chain(arrived).chain(queued)
    }
}

/// What is known of a tensor without walking its runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorPages {
    pub runs: Ends,
    pub pages: u64,
    /// On the GPU and not in transfer.
    pub ready: u64,
    /// Pages that are in transfer.
    pub in_transfer: u64,
}

/// All pages of all tensors.
#[derive(Debug)]
pub(super) struct Pages {
    runs: Vec<Run>,
    free: Vec<u32>,
    pub tensors: Vec<TensorPages>,
    arrival: Ends,
    queues: [Ends; QUEUES],
    /// Pages on the GPU, and in each queue.
    gpu_used: u64,
    queued: [u64; QUEUES],
    braids: Vec<Braid>,
    unused_braids: Vec<u32>,
    /// Pages in host memory.
    pub host_used: u64,
}

impl Pages {
    /// Tensor `i` has `pages[i]` pages, all at `locs[i]` (not the GPU).
    pub(super) fn new(pages: &[u64], locs: &[Loc]) -> Self {
        let mut p = Self {
            runs: Vec::new(),
            free: Vec::new(),
            tensors: Vec::new(),
            arrival: NONE,
            queues: [NONE; QUEUES],
            gpu_used: 0,
            queued: [0; QUEUES],
            braids: Vec::new(),
            unused_braids: Vec::new(),
            host_used: 0,
        };
        for (i, (&len, &loc)) in pages.iter().zip(locs).enumerate() {
            let run = p.alloc(Run {
                tensor: i as u32,
                len,
                loc,
                queue: Queue::Idle,
                links: [NONE; 3],
                braid: NIL,
            });
            p.tensors.push(TensorPages {
                runs: Ends {
                    first: run,
                    last: run,
                },
                pages: len,
                ready: 0,
                in_transfer: 0,
            });
        }
        p
    }

    pub(super) fn run(&self, r: u32) -> &Run {
        &self.runs[r as usize]
    }

    /// Pages on the GPU.
    pub(super) fn gpu_pages(&self) -> u64 {
        self.gpu_used
    }

    /// The run whose first page arrived first, `NIL` if the GPU is empty.
    pub(super) fn oldest(&self) -> u32 {
        self.first_from(self.arrival.first, |_| true)
    }

    /// The run whose first page arrived next after run `r`, which is in no braid.
    pub(super) fn after(&self, r: u32) -> u32 {
        self.first_from(self.run(r).newer(), |_| true)
    }

    /// The run that arrived last, or a lane of the braid that did.
    pub(super) fn newest(&self) -> u32 {
        self.arrival.last
    }

    /// The next run to be served of a queue, `NIL` if it is empty.
    pub(super) fn front(&self, q: Queue) -> u32 {
        self.queues[q as usize].first
    }

    /// Pages in a queue.
    pub(super) fn queued(&self, q: Queue) -> u64 {
        self.queued[q as usize]
    }

    /// Puts an idle run, wholly, at the end of a queue.
    pub(super) fn enqueue(&mut self, r: u32, q: Queue) {
        debug_assert_eq!(self.run(r).queue, Queue::Idle);
        let Run {
            tensor, len, loc, ..
        } = *self.run(r);
        let t = &mut self.tensors[tensor as usize];
        t.in_transfer += len;
        if loc == Loc::Gpu {
            t.ready -= len;
        }
        self.push_queue(r, q);
    }

    /// Moves the first `n` pages of run `r` to `loc`, in queue `queue` or idle, at
    /// the end of the orders that they join. Returns what is left of `r`, or `NIL`.
    pub(super) fn move_front(&mut self, r: u32, n: u64, loc: Loc, queue: Queue) -> u32 {
        let from = self.run(r).clone();
        debug_assert!(n > 0 && n <= from.len);
        self.count(&from, n, loc, queue);
        let before = from.prev();
        if self.can_grow(before, loc, queue) {
            self.resize(before, n as i64);
            self.resize(r, -(n as i64));
            if n < from.len {
                return r;
            }
            self.drop_empty(r);
            self.join_next(before);
            return NIL;
        }
        let (part, rest) = if n < from.len {
            (self.cut_front(r, n), r)
        } else {
            (r, NIL)
        };
        if from.loc == Loc::Gpu && loc != Loc::Gpu {
            self.remove_arrival(part);
        }
        if from.queue != Queue::Idle {
            self.remove_queue(part);
        }
        if loc == Loc::Gpu && from.loc != Loc::Gpu {
            self.runs[part as usize].loc = loc;
            self.arrive(part, NIL);
        }
        self.runs[part as usize].loc = loc;
        if queue != Queue::Idle {
            self.push_queue(part, queue);
        } else if rest == NIL {
            self.join_next(part);
        }
        rest
    }

    /// Keeps the counters of a move of `n` pages.
    fn count(&mut self, from: &Run, n: u64, loc: Loc, queue: Queue) {
        let t = &mut self.tensors[from.tensor as usize];
        let ready = |l: Loc, q: Queue| u64::from(l == Loc::Gpu && q == Queue::Idle) * n;
        let moving = |q: Queue| u64::from(q != Queue::Idle) * n;
        t.ready = t.ready + ready(loc, queue) - ready(from.loc, from.queue);
        t.in_transfer = t.in_transfer + moving(queue) - moving(from.queue);
        let host = |l: Loc| u64::from(l == Loc::Host) * n;
        self.host_used = self.host_used + host(loc) - host(from.loc);
    }

    /// Whether pages that follow run `p` and move to (`loc`, `queue`) become part of it.
    fn can_grow(&self, p: u32, loc: Loc, queue: Queue) -> bool {
        if p == NIL {
            return false;
        }
        let run = self.run(p);
        run.loc == loc
            && run.queue == queue
            && (loc != Loc::Gpu || self.arrival.last == p && run.braid == NIL)
            && (queue == Queue::Idle || self.queues[queue as usize].last == p)
    }

    /// Makes one run of `r` and the next of its tensor, where nothing tells them apart.
    fn join_next(&mut self, r: u32) {
        let next = self.run(r).next();
        if next == NIL {
            return;
        }
        let (a, b) = (self.run(r), self.run(next));
        let plain = a.loc != Loc::Gpu && a.queue == Queue::Idle;
        if plain && a.loc == b.loc && b.queue == Queue::Idle {
            self.runs[r as usize].len += b.len;
            self.runs[next as usize].len = 0;
            self.drop_empty(next);
        }
    }

    fn alloc(&mut self, run: Run) -> u32 {
        if let Some(r) = self.free.pop() {
            self.runs[r as usize] = run;
            return r;
        }
        self.runs.push(run);
        self.runs.len() as u32 - 1
    }

    /// Takes an empty run out of all orders.
    fn drop_empty(&mut self, r: u32) {
        self.leave_braid(r);
        for order in self.run(r).orders() {
            self.unlink(order, r);
        }
        self.free.push(r);
    }

    /// Cuts the first `n` pages off run `r` into a run before it, everywhere.
    fn cut_front(&mut self, r: u32, n: u64) -> u32 {
        let part = Run {
            len: n,
            braid: NIL,
            ..self.run(r).clone()
        };
        self.runs[r as usize].len -= n;
        let new = self.alloc(part);
        for order in self.run(r).orders() {
            self.link(order, new, r);
        }
        new
    }

    /// The ends of the order that `r` is in.
    fn ends(&mut self, order: Order, r: u32) -> &mut Ends {
        let run = &self.runs[r as usize];
        match order {
            Order::Tensor => &mut self.tensors[run.tensor as usize].runs,
            Order::Arrival => &mut self.arrival,
            Order::Queue => &mut self.queues[run.queue as usize],
        }
    }

    /// Puts `r` into an order before `next`, at its end if that is `NIL`.
    fn link(&mut self, order: Order, r: u32, next: u32) {
        let o = order as usize;
        let prev = match next {
            NIL => std::mem::replace(&mut self.ends(order, r).last, r),
            next => std::mem::replace(&mut self.runs[next as usize].links[o].first, r),
        };
        match prev {
            NIL => self.ends(order, r).first = r,
            prev => self.runs[prev as usize].links[o].last = r,
        }
        self.runs[r as usize].links[o] = Ends {
            first: prev,
            last: next,
        };
    }

    /// Takes `r` out of an order.
    fn unlink(&mut self, order: Order, r: u32) {
        let o = order as usize;
        let Ends { first, last } = self.run(r).links[o];
        match first {
            NIL => self.ends(order, r).first = last,
            prev => self.runs[prev as usize].links[o].last = last,
        }
        match last {
            NIL => self.ends(order, r).last = first,
            next => self.runs[next as usize].links[o].first = first,
        }
    }

    /// Adds `by` pages to run `r`, and to the orders that it is in.
    fn resize(&mut self, r: u32, by: i64) {
        let run = &mut self.runs[r as usize];
        run.len = run.len.wrapping_add_signed(by);
        if run.loc == Loc::Gpu {
            self.gpu_used = self.gpu_used.wrapping_add_signed(by);
        }
        if run.queue != Queue::Idle {
            let queued = &mut self.queued[run.queue as usize];
            *queued = queued.wrapping_add_signed(by);
        }
    }

    /// Puts run `r` into the order of arrival before `next`.
    fn arrive(&mut self, r: u32, next: u32) {
        self.gpu_used += self.run(r).len;
        self.link(Order::Arrival, r, next);
    }

    fn remove_arrival(&mut self, r: u32) {
        self.leave_braid(r);
        self.gpu_used -= self.run(r).len;
        self.unlink(Order::Arrival, r);
    }

    fn push_queue(&mut self, r: u32, q: Queue) {
        let run = &mut self.runs[r as usize];
        run.queue = q;
        self.queued[q as usize] += run.len;
        self.link(Order::Queue, r, NIL);
    }

    fn remove_queue(&mut self, r: u32) {
        self.unlink(Order::Queue, r);
        let run = &mut self.runs[r as usize];
        self.queued[run.queue as usize] -= run.len;
        run.queue = Queue::Idle;
    }

    /// Recounts everything from the runs; for tests.
    ///
    /// # Errors
    /// The first counter that disagrees.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut gpu, mut host) = (0, 0);
        let mut queued = [0u64; QUEUES];
        for (i, t) in self.tensors.iter().enumerate() {
            let (mut pages, mut ready, mut moving) = (0, 0, 0);
            let mut r = t.runs.first;
            while r != NIL {
                let run = self.run(r);
                pages += run.len;
                gpu += u64::from(run.loc == Loc::Gpu) * run.len;
                host += u64::from(run.loc == Loc::Host) * run.len;
                if run.queue == Queue::Idle {
                    ready += u64::from(run.loc == Loc::Gpu) * run.len;
                } else {
                    moving += run.len;
                    queued[run.queue as usize] += run.len;
                }
                r = run.next();
            }
            if (pages, ready, moving) != (t.pages, t.ready, t.in_transfer) {
                return Err(format!(
                    "tensor {i}: {pages} {ready} {moving} pages, not {t:?}"
                ));
            }
        }
        let (mut arrived, mut r) = (0, self.arrival.first);
        while r != NIL {
            arrived += self.run(r).len;
            r = self.run(r).newer();
        }
        if arrived != gpu {
            return Err(format!("{arrived} pages in order of arrival, {gpu} there"));
        }
        let (known, queues) = ((self.gpu_used, self.host_used), self.queued);
        if ((gpu, host), queued) != (known, queues) {
            return Err(format!(
                "pages on the GPU, the host, in queues: {gpu} {host} {queued:?}, not {known:?} {queues:?}"
            ));
        }
        Ok(())
    }
}
