// SPDX-License-Identifier: GPL-2.0 OR MIT

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

/// No run.
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
    /// Not in transfer.
    Idle,
}

const QUEUES: usize = Queue::Idle as usize;

/// Pages of one tensor that follow each other and share their fate.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub tensor: u32,
    pub len: u64,
    pub loc: Loc,
    pub queue: Queue,
    /// Neighbours in the tensor, in page order.
    prev: u32,
    pub next: u32,
    /// Neighbours in order of arrival on the GPU.
    older: u32,
    newer: u32,
    /// Neighbours in the queue.
    q_prev: u32,
    q_next: u32,
    /// The braid that it is a lane of.
    braid: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    pages: u64,
}

const EMPTY: List = List {
    head: NIL,
    tail: NIL,
    pages: 0,
};

/// What is known of a tensor without walking its runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorPages {
    pub first: u32,
    pub pages: u64,
    /// On the GPU and not in transfer.
    pub ready: u64,
    /// In transfer.
    pub in_transfer: u64,
}

/// All pages of all tensors.
#[derive(Debug)]
pub(super) struct Pages {
    runs: Vec<Run>,
    free: Vec<u32>,
    pub tensors: Vec<TensorPages>,
    arrival: List,
    queues: [List; QUEUES],
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
            arrival: EMPTY,
            queues: [EMPTY; QUEUES],
            braids: Vec::new(),
            unused_braids: Vec::new(),
            host_used: 0,
        };
        for (i, (&len, &loc)) in pages.iter().zip(locs).enumerate() {
            let first = p.alloc(Run {
                tensor: i as u32,
                len,
                loc,
                queue: Queue::Idle,
                prev: NIL,
                next: NIL,
                older: NIL,
                newer: NIL,
                q_prev: NIL,
                q_next: NIL,
                braid: NIL,
            });
            p.tensors.push(TensorPages {
                first,
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
        self.arrival.pages
    }

    /// The run whose first page arrived first, `NIL` if the GPU is empty.
    pub(super) fn oldest(&self) -> u32 {
        self.first_from(self.arrival.head, |_| true)
    }

    /// The run whose first page arrived next after run `r`, which is in no braid.
    pub(super) fn after(&self, r: u32) -> u32 {
        self.first_from(self.run(r).newer, |_| true)
    }

    /// The run that arrived last, or a lane of the braid that did.
    pub(super) fn newest(&self) -> u32 {
        self.arrival.tail
    }

    /// The next run to be served of a queue, `NIL` if it is empty.
    pub(super) fn front(&self, q: Queue) -> u32 {
        self.queues[q as usize].head
    }

    /// Pages in a queue.
    pub(super) fn queued(&self, q: Queue) -> u64 {
        self.queues[q as usize].pages
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
        if self.can_grow(from.prev, loc, queue) {
            self.runs[from.prev as usize].len += n;
            self.resize_lists(from.prev, n as i64);
            self.resize_lists(r, -(n as i64));
            self.runs[r as usize].len -= n;
            if n < from.len {
                return r;
            }
            let grown = from.prev;
            self.unlink(r);
            self.join_next(grown);
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
            self.push_arrival(part);
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
            && (loc != Loc::Gpu || self.arrival.tail == p && run.braid == NIL)
            && (queue == Queue::Idle || self.queues[queue as usize].tail == p)
    }

    /// Makes one run of `r` and the next of its tensor, where nothing tells them apart.
    fn join_next(&mut self, r: u32) {
        let next = self.run(r).next;
        if next == NIL {
            return;
        }
        let (a, b) = (self.run(r), self.run(next));
        let plain = a.loc != Loc::Gpu && a.queue == Queue::Idle;
        if plain && a.loc == b.loc && b.queue == Queue::Idle {
            self.runs[r as usize].len += b.len;
            self.runs[next as usize].len = 0;
            self.unlink(next);
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

    /// Takes an empty run out of its tensor and of all orders.
    fn unlink(&mut self, r: u32) {
        let Run {
            tensor,
            loc,
            queue,
            prev,
            next,
            ..
        } = *self.run(r);
        if loc == Loc::Gpu {
            self.remove_arrival(r);
        }
        if queue != Queue::Idle {
            self.remove_queue(r);
        }
        if prev == NIL {
            self.tensors[tensor as usize].first = next;
        } else {
            self.runs[prev as usize].next = next;
        }
        if next != NIL {
            self.runs[next as usize].prev = prev;
        }
        self.free.push(r);
    }

    /// Cuts the first `n` pages off run `r` into a run before it, everywhere.
    fn cut_front(&mut self, r: u32, n: u64) -> u32 {
        let mut part = self.run(r).clone();
        part.len = n;
        part.braid = NIL;
        part.next = r;
        part.newer = r;
        part.q_next = r;
        let new = self.alloc(part.clone());
        self.runs[r as usize].len -= n;
        self.runs[r as usize].prev = new;
        if part.prev == NIL {
            self.tensors[part.tensor as usize].first = new;
        } else {
            self.runs[part.prev as usize].next = new;
        }
        if part.loc == Loc::Gpu {
            self.runs[r as usize].older = new;
            match part.older {
                NIL => self.arrival.head = new,
                o => self.runs[o as usize].newer = new,
            }
        }
        if part.queue != Queue::Idle {
            self.runs[r as usize].q_prev = new;
            match part.q_prev {
                NIL => self.queues[part.queue as usize].head = new,
                p => self.runs[p as usize].q_next = new,
            }
        }
        new
    }

    /// Adjusts the lengths of the lists that `r` is in.
    fn resize_lists(&mut self, r: u32, by: i64) {
        let Run { loc, queue, .. } = *self.run(r);
        if loc == Loc::Gpu {
            self.arrival.pages = self.arrival.pages.wrapping_add_signed(by);
        }
        if queue != Queue::Idle {
            let q = &mut self.queues[queue as usize];
            q.pages = q.pages.wrapping_add_signed(by);
        }
    }

    fn push_arrival(&mut self, r: u32) {
        let tail = self.arrival.tail;
        let run = &mut self.runs[r as usize];
        run.older = tail;
        run.newer = NIL;
        self.arrival.pages += run.len;
        match tail {
            NIL => self.arrival.head = r,
            t => self.runs[t as usize].newer = r,
        }
        self.arrival.tail = r;
    }

    fn remove_arrival(&mut self, r: u32) {
        self.leave_braid(r);
        let Run {
            older, newer, len, ..
        } = *self.run(r);
        match older {
            NIL => self.arrival.head = newer,
            o => self.runs[o as usize].newer = newer,
        }
        match newer {
            NIL => self.arrival.tail = older,
            n => self.runs[n as usize].older = older,
        }
        self.arrival.pages -= len;
    }

    fn push_queue(&mut self, r: u32, q: Queue) {
        let tail = self.queues[q as usize].tail;
        let run = &mut self.runs[r as usize];
        run.queue = q;
        run.q_prev = tail;
        run.q_next = NIL;
        let len = run.len;
        match tail {
            NIL => self.queues[q as usize].head = r,
            t => self.runs[t as usize].q_next = r,
        }
        let list = &mut self.queues[q as usize];
        list.tail = r;
        list.pages += len;
    }

    fn remove_queue(&mut self, r: u32) {
        let Run {
            queue,
            q_prev,
            q_next,
            len,
            ..
        } = *self.run(r);
        let q = queue as usize;
        match q_prev {
            NIL => self.queues[q].head = q_next,
            p => self.runs[p as usize].q_next = q_next,
        }
        match q_next {
            NIL => self.queues[q].tail = q_prev,
            n => self.runs[n as usize].q_prev = q_prev,
        }
        self.queues[q].pages -= len;
        self.runs[r as usize].queue = Queue::Idle;
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
            let mut r = t.first;
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
                r = run.next;
            }
            if (pages, ready, moving) != (t.pages, t.ready, t.in_transfer) {
                return Err(format!(
                    "tensor {i}: {pages} {ready} {moving} pages, not {t:?}"
                ));
            }
        }
        let (mut arrived, mut r) = (0, self.arrival.head);
        while r != NIL {
            arrived += self.run(r).len;
            r = self.run(r).newer;
        }
        if arrived != gpu {
            return Err(format!("{arrived} pages in order of arrival, {gpu} there"));
        }
        let known = self.queues.map(|q| q.pages);
        if (gpu, host, queued) != (self.arrival.pages, self.host_used, known) {
            return Err(format!(
                "pages on the GPU, the host, in queues: {gpu} {host} {queued:?}, not {} {} {known:?}",
                self.arrival.pages, self.host_used
            ));
        }
        Ok(())
    }
}
