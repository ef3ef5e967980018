// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Correlation prefetching: which UM block a GPU will need next, learnt from the
//! order of kernels and of faults (DeepUM, ASPLOS'23, §4).
//!
//! ```text
//!  on_kernel(id) ──▶ execution-ID table: which kernel follows      (kernels.rs)
//!  on_fault(block) ─▶ block table of that kernel: which block      (blocks.rs)
//!                     follows
//!  next() ◀── the chain: walk the current kernel's table from its start block
//!             to its end block, then the next kernel's, … up to N kernels ahead
//!                 └──▶ expected blocks, spared by eviction          (evict/roots.rs)
//!  the worker, which does all that and moves the blocks            (worker.rs)
//! ```
//!
//! # Where this differs from the paper, and why
//!
//! - Start and end blocks (§4.2) are taken over from a kernel's first execution.
//!   Later executions fault on fewer blocks, as others are resident or were
//!   prefetched, so their first and last fault would cut the chain short. A block that
//!   was not reached is linked in before the start, or behind the fault before it.
//! - A fault on a block that the chain has already met means that the prefetch was
//!   late, not wrong: the chain goes on. Another fault is followed from its block
//!   while the chain keeps its place; the paper begins anew at every fault.
//! - A kernel that was never seen after just these three predecessors is predicted
//!   to be followed by what always followed it, if that is one kernel.
//! - Back-off. A wrong prediction of a kernel halves how far the chain looks ahead,
//!   down to not at all; a right one lets it look one further. A kernel whose
//!   table proves wrong is no longer prefetched until its faults agree with it again.
//!
//! # Bounds
//!
//! Every call takes bounded time: the length of a bucket, a set of records, a row,
//! or, when a block table grows or forgets, that of one table. Memory is bounded by
//! [`Config::memory_limit`], or a [`Share`] of what a process may have, whatever IDs and blocks arrive; over it, the least
//! recently used IDs are dropped. Tables hold addresses, never pointers; a block
//! that is predicted may have been freed, and the caller must look it up.
//!
//! The chain may look further ahead than the GPU has memory. A prefetch must not
//! evict what is itself expected: where [`super::evict::RootChunks::victim`] says that its
//! victim is, the caller holds the prefetch back until the next kernel.
//!
//! The eviction queues know which blocks are expected: each block that was handed out, until the kernel that it was
//! handed out for is over (the caller tells them by [`super::evict::RootChunks::expect`]). A block that faulted, or
//! was migrated, belongs to the running kernel. The queues see faults and migrations themselves, and hear of the next
//! kernel when it is announced
//! ([`super::evict::RootChunks::begins`]).
//!
//! Locking: the caller serialises all calls. Calls may allocate, so the lock is not a
//! spinlock.

mod blocks;
mod feed;
mod kernels;
mod lane;
mod ring;
mod share;
mod types;
pub mod worker;

pub use blocks::Shape;
pub use feed::{Correlator, Feed};
pub use share::Share;
pub use types::{Config, ExecId, FromSsd, Next, Prefetch, Stats, UmBlock, Walk};

use crate::mem::OutOfMemory;
use kernels::{Before, Evidence, Kernels, Slot};
use ring::Ring;

/// A predicted kernel, and what was prefetched for it.
#[derive(Clone, Copy, Default)]
struct Link {
    id: ExecId,
    /// Stamp of the walk through its table; 0 if it had none.
    stamp: u32,
    /// Blocks handed out for it.
    prefetched: u32,
}

/// A walk through the table of one kernel, breadth first.
struct Tour {
    kernel: ExecId,
    slot: Slot,
    /// Sequence number of the kernel's execution.
    seq: u32,
    stamp: u32,
    /// Whether the end block was not met yet.
    expanding: bool,
    /// Blocks to hand out and to follow.
    queue: Ring<UmBlock>,
}

/// The kernel that runs, and what it did so far.
struct Current {
    id: ExecId,
    slot: Slot,
    link: Link,
    /// Blocks in its table when it began.
    known_blocks: u32,
    faults: u32,
    unknown: u32,
    last: Option<UmBlock>,
}

impl Current {
    fn evidence(&self) -> Evidence {
        Evidence {
            known_blocks: self.known_blocks,
            prefetched: self.link.prefetched,
            faults: self.faults,
            unknown: self.unknown,
        }
    }
}

/// Ranges of blocks that went away. What is older than the ring is forgotten with
/// all that was learnt before.
struct Forgets {
    /// First and last block.
    ring: Ring<(UmBlock, UmBlock)>,
    /// How many ranges went away so far, those that left the ring included; wraps.
    count: u32,
}

/// The predictor of one process on one GPU.
pub struct Predictor {
    config: Config,
    kernels: Kernels,
    current: Option<Current>,
    before: Before,
    /// Sequence number of the current kernel.
    seq: u32,
    /// What was predicted to follow the current kernel.
    foreseen: Option<ExecId>,
    /// The kernels that the chain has reached, the next one first.
    chain: Ring<Link>,
    /// Whether the chain can go on once a kernel has ended.
    chain_ended: bool,
    main: Tour,
    /// The tour that follows a fault which the chain had not met.
    fix: Tour,
    next_stamp: u32,
    window: u32,
    forgets: Forgets,
    stats: Stats,
    /// How many bytes the share was last told that the tables take.
    settled: usize,
}

const MAX_FORGETS: usize = 32;

impl Tour {
    fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            kernel: ExecId(0),
            slot: Slot::MAX,
            seq: 0,
            stamp: 0,
            expanding: false,
            queue: Ring::new(capacity)?,
        })
    }
}

impl Forgets {
    /// Whether `block` went away after the first `since` ranges.
    fn covers(&self, block: UmBlock, since: u32) -> bool {
        let missed = self.count.wrapping_sub(since) as usize;
        missed > self.ring.len()
            || self
                .ring
                .iter()
                .skip(self.ring.len() - missed)
                .any(|&(first, last)| first <= block && block <= last)
    }
}

impl Predictor {
    /// A predictor that knows nothing.
    pub fn new(mut config: Config) -> Result<Self, OutOfMemory> {
        config.shape = config.shape.clamped();
        config.ahead = config.ahead.min(4096);
        config.max_kernels = config.max_kernels.clamp(1, 1 << 20);
        config.max_records = config.max_records.clamp(1, 1 << 10);
        let blocks = (config.shape.rows * config.shape.assoc) as usize;
        Ok(Self {
            config,
            kernels: Kernels::new(config)?,
            current: None,
            before: Before::default(),
            seq: 0,
            foreseen: None,
            chain: Ring::new(config.ahead as usize)?,
            chain_ended: true,
            main: Tour::new(blocks)?,
            fix: Tour::new(blocks)?,
            next_stamp: 1,
            window: config.ahead,
            forgets: Forgets {
                ring: Ring::new(MAX_FORGETS)?,
                count: 0,
            },
            stats: Stats::default(),
            settled: 0,
        })
    }

    /// Learns that the kernel `id` is about to run. If memory is short, the predictor knows as much of the kernel as of
    /// one that it has never seen.
    pub fn on_kernel(&mut self, id: ExecId) -> Result<(), OutOfMemory> {
        self.stats.kernels += 1;
        self.seq = self.seq.wrapping_add(1);
        let followed = self.end_kernel(id);
        let right = self.score(id);
        let slot = self.kernels.find_or_insert(id, self.forgets.count);
        self.fix.queue.clear();
        let link = match self.chain.front() {
            Some(link) if link.id == id && right => self.chain.pop().unwrap_or_default(),
            _ => self.restart_chain(id, slot.ok()),
        };
        self.foreseen = self.kernels.predict(id, self.before);
        self.chain_ended = false;
        let slot = slot?;
        self.refresh(slot);
        let known_blocks = self.kernels.table(slot).map_or(0, |t| t.len());
        self.current = Some(Current {
            id,
            slot,
            link,
            known_blocks,
            faults: 0,
            unknown: 0,
            last: None,
        });
        followed
    }

    /// Learns that the current kernel faulted on `block`, which is being migrated. If memory is short, the predictor
    /// forgets the fault.
    pub fn on_fault(&mut self, block: UmBlock) -> Result<(), OutOfMemory> {
        let Some(mut c) = self.current.take_if(|c| self.kernels.is(c.slot, c.id)) else {
            return Ok(());
        };
        let result = self.fault_in(&mut c, block);
        self.current = Some(c);
        result
    }

    /// No kernel that is known runs from here on.
    pub fn on_idle(&mut self) {
        self.current = None;
        self.before = Before::default();
        self.foreseen = None;
        self.chain_ended = true;
        self.fix.queue.clear();
        let _ = self.restart_chain(ExecId(0), None);
    }

    /// The number of the current kernel, in the sequence of [`Prefetch::ahead`]. It
    /// jumps where the chain breaks, so that what was expected no longer is.
    pub fn now(&self) -> u32 {
        self.seq
    }

    /// The next block to prefetch, looking at `steps` blocks or kernels at most.
    pub fn next(&mut self, steps: u32) -> Next {
        for _ in 0..steps {
            let found = if self.fix.queue.len() != 0 {
                self.step(false)
            } else if self.main.queue.len() != 0 {
                self.step(true)
            } else if self.advance() {
                None
            } else {
                return Next::Idle;
            };
            if let Some(p) = found {
                self.stats.prefetches += 1;
                return Next::Prefetch(p);
            }
        }
        Next::More
    }

    /// The range of blocks from `first` to `last` went away: it was freed, or the
    /// process may no longer use it.
    pub fn forget(&mut self, first: UmBlock, last: UmBlock) {
        if self.forgets.ring.len() == MAX_FORGETS {
            self.forgets.ring.pop();
        }
        self.forgets.ring.push((first, last));
        self.forgets.count = self.forgets.count.wrapping_add(1);
        // Blocks in the queue may be gone. The next faults lead back to those that are not.
        self.main.queue.clear();
        self.fix.queue.clear();
        if let Some(c) = &mut self.current {
            c.last = None;
        }
    }

    /// What was predicted, and how well.
    pub fn stats(&self) -> Stats {
        Stats {
            dropped: self.kernels.dropped(),
            remembered: self.kernels.len(),
            table_bytes: self.kernels.bytes() + self.queue_bytes(),
            window: self.window,
            ..self.stats
        }
    }

    /// Tells `share` how many bytes the tables take, and keeps the tables within the bytes that `share` leaves. Tables
    /// that take more lose some of the least recently used IDs at once, and more with each call that learns, until they
    /// fit. The table in use stays. Every call has the same `share`.
    pub fn settle(&mut self, share: &Share) {
        let queues = self.queue_bytes();
        let takes = self.kernels.bytes() + queues;
        let room = share.settle(core::mem::replace(&mut self.settled, takes), takes);
        self.kernels.set_memory_limit(room.saturating_sub(queues));
    }

    /// Drops the tables, and leaves their part of `share` to others. The predictor is not used after this.
    pub fn leave(&mut self, share: &Share) {
        share.settle(core::mem::take(&mut self.settled), 0);
    }

    fn queue_bytes(&self) -> usize {
        self.main.queue.bytes() + self.fix.queue.bytes() + self.chain.bytes()
    }

    /// Whether the kernels have come as predicted so far, so that the back-off lets the chain look past the current
    /// kernel. If not, a move for a later kernel's sake does not pay, and least of all one that makes room.
    pub fn foresees(&self) -> bool {
        self.window > 0
    }

    // Kernels.

    /// Ends the current kernel, which `next` follows: judges its table and learns.
    fn end_kernel(&mut self, next: ExecId) -> Result<(), OutOfMemory> {
        let Some(c) = self.current.take() else {
            return Ok(());
        };
        let before = self.before;
        self.before = [before[1], before[2], c.id];
        if !self.kernels.is(c.slot, c.id) {
            return Ok(());
        }
        self.kernels.judge(c.slot, &c.evidence());
        self.kernels.learn(c.slot, before, next)
    }

    /// Compares what was foreseen with the kernel that came, and adapts the window.
    fn score(&mut self, id: ExecId) -> bool {
        match self.foreseen {
            Some(f) if f == id => {
                self.stats.kernels_right += 1;
                self.window = (self.window + 1).min(self.config.ahead);
                true
            }
            Some(_) => {
                self.stats.kernels_wrong += 1;
                self.window /= 2;
                false
            }
            None => false,
        }
    }

    /// Begins the chain anew at the current kernel.
    fn restart_chain(&mut self, id: ExecId, slot: Option<Slot>) -> Link {
        self.chain.clear();
        self.main.queue.clear();
        // Blocks that the old chain expected are no longer expected.
        self.seq = self.seq.wrapping_add(self.config.ahead + 1);
        match slot {
            Some(slot) => self.enter(id, slot, self.seq),
            None => Link::default(),
        }
    }

    /// Extends the chain by a kernel, if it may and can.
    fn advance(&mut self) -> bool {
        let ahead = self.chain.len() as u32;
        let Some(c) = self
            .current
            .as_ref()
            .filter(|_| !self.chain_ended && ahead < self.window)
        else {
            return false;
        };
        // The last four of: what ran, the current kernel, the chain.
        let mut ids = [self.before[0], self.before[1], self.before[2], c.id];
        for link in self.chain.iter().skip(self.chain.len().saturating_sub(4)) {
            ids = [ids[1], ids[2], ids[3], link.id];
        }
        let next = self.kernels.predict(ids[3], [ids[0], ids[1], ids[2]]);
        let found = next.and_then(|id| Some((id, self.kernels.find(id)?)));
        let Some((id, slot)) = found else {
            self.chain_ended = true;
            return false;
        };
        let link = self.enter(id, slot, self.seq.wrapping_add(ahead + 1));
        self.chain.push(link)
    }

    /// Begins the walk through the table of a kernel.
    fn enter(&mut self, id: ExecId, slot: Slot, seq: u32) -> Link {
        self.refresh(slot);
        self.kernels.touch(slot);
        let mut link = Link {
            id,
            ..Link::default()
        };
        self.main.queue.clear();
        if self.kernels.is_trusted(slot) {
            link.stamp = self.next_stamp;
            self.next_stamp = self.next_stamp.wrapping_add(1).max(1);
            self.main.kernel = id;
            self.main.slot = slot;
            self.main.seq = seq;
            self.main.stamp = link.stamp;
            self.main.expanding = true;
            let shape = self.config.shape;
            if let Some(table) = self.kernels.table(slot) {
                if let Some(start) = table.start() {
                    table.meet(start, link.stamp, shape);
                    self.main.queue.push(start);
                }
            }
        }
        link
    }

    // Blocks.

    fn fault_in(&mut self, c: &mut Current, block: UmBlock) -> Result<(), OutOfMemory> {
        self.refresh(c.slot);
        if c.last == Some(block) {
            return Ok(());
        }
        let shape = self.config.shape;
        let known = self
            .kernels
            .table(c.slot)
            .is_some_and(|t| t.contains(block, shape));
        self.stats.faults += 1;
        // A kernel may run, and fault, for days.
        c.faults = c.faults.saturating_add(1);
        if !known {
            self.stats.faults_unknown += 1;
            c.unknown = c.unknown.saturating_add(1);
        }
        self.kernels.insert_block(c.slot, block)?;
        let Some(table) = self.kernels.table(c.slot) else {
            return Ok(());
        };
        // Stamp 0 is that of a way never met: the kernel is not being walked.
        let missed = c.link.stamp != 0 && table.meet(block, c.link.stamp, shape);
        match (c.last, table.start()) {
            (Some(last), _) => {
                table.learn(last, block, shape);
                if !known && table.end() == Some(last) {
                    table.set_end(block);
                }
            }
            (None, None) => {
                table.set_start(block);
                table.set_end(block);
            }
            (None, Some(start)) if start != block && (!known || missed) => {
                table.learn(block, start, shape);
                table.set_start(block);
            }
            (None, Some(_)) => {}
        }
        c.last = Some(block);
        if missed {
            self.follow(c, block);
        }
        Ok(())
    }

    /// Follows a fault that the chain had not met.
    fn follow(&mut self, c: &Current, block: UmBlock) {
        self.fix.kernel = c.id;
        self.fix.slot = c.slot;
        self.fix.seq = self.seq;
        self.fix.stamp = c.link.stamp;
        self.fix.expanding = true;
        expand(&mut self.fix, &mut self.kernels, self.config.shape, block);
    }

    /// Hands out the next block of a tour and queues its successors.
    fn step(&mut self, main: bool) -> Option<Prefetch> {
        let tour = if main { &mut self.main } else { &mut self.fix };
        let block = tour.queue.pop()?;
        if !self.kernels.is(tour.slot, tour.kernel) {
            tour.queue.clear();
            return None;
        }
        let end = self.kernels.table(tour.slot).and_then(|t| t.end());
        if self.config.walk == Walk::ToEnd && end == Some(block) {
            tour.expanding = false;
        }
        if tour.expanding {
            expand(tour, &mut self.kernels, self.config.shape, block);
        }
        let ahead = tour.seq.wrapping_sub(self.seq);
        let kernel = tour.kernel;
        match self.current.as_mut().filter(|_| ahead == 0) {
            Some(c) => c.link.prefetched = c.link.prefetched.saturating_add(1),
            None => {
                if let Some(link) = self.chain.back_mut() {
                    link.prefetched = link.prefetched.saturating_add(1);
                }
            }
        }
        Some(Prefetch {
            block,
            kernel,
            ahead,
            ssd: FromSsd::Not,
        })
    }

    /// Takes out of a table what went away since it was last used.
    fn refresh(&mut self, slot: Slot) {
        let forgets = &self.forgets;
        self.kernels
            .forget(slot, forgets.count, |b, since| forgets.covers(b, since));
    }
}

/// Queues the successors of `block` that the tour has not met.
fn expand(tour: &mut Tour, kernels: &mut Kernels, shape: Shape, block: UmBlock) {
    let Some(table) = kernels.table(tour.slot) else {
        return;
    };
    // At most 16 successors: `Shape::clamped`.
    let mut succs = [UmBlock(0); 16];
    let mut n = 0;
    for (to, from) in succs.iter_mut().zip(table.successors(block, shape)) {
        *to = from;
        n += 1;
    }
    for &s in &succs[..n] {
        // One that lost its place in the table leads no further.
        if table.meet(s, tour.stamp, shape) || !table.contains(s, shape) {
            tour.queue.push(s);
        }
    }
}

#[cfg(test)]
mod tests;
