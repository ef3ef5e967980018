// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The rings by which the fault loop and the announcements feed the correlator, and the
//! correlator itself (DeepUM §3.1).
//!
//! ```text
//!  announcements ──▶ kernels  ─┐
//!                              ├─▶ Correlator ──▶ Predictor ──▶ blocks to prefetch
//!  fault loop ─────▶ faults   ─┘        ▲
//!                                       ├── what had no room, again
//!  reads that ended ────────────────────┴── what was to come from the SSD first, again
//! ```
//!
//! Two rings, each with one producer and one consumer at a time. A fault carries the
//! number of the announcement before it, so that the correlator sees both in the order
//! in which they came. A full ring drops what would be learnt, and never a fault: the
//! fault loop does not wait for this module, nor depend on it.
//!
//! Locking: producers of one ring are serialised by their caller (announcements by
//! whoever takes them, faults by the GPU's service lock), as are the calls of
//! [`Correlator`]. Between producers and consumer there is no lock.

use super::lane::Lane;
use super::ring::Ring;
use super::{Config, ExecId, FromSsd, Next, Predictor, Prefetch, Share, Stats, UmBlock};
use crate::mem::OutOfMemory;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The ID that says that no known kernel is running.
const IDLE: u64 = 0;

/// How many blocks may be on their way from the SSD for prefetches of one process on one GPU: 16 MiB, as much as a
/// call reads ahead.
pub const FETCHES: usize = 8;

/// The rings of one process on one GPU.
pub struct Feed {
    kernels: Lane,
    /// Each entry has the block in its upper half, and the number of the announcement in its lower half.
    faults: Lane,
    /// Announcements that found room.
    announced: AtomicU32,
    /// The last fault that was put into the ring.
    last: AtomicU64,
    /// Whether an announcement found no room, so that faults after it belong to no known kernel.
    overrun: AtomicBool,
    /// How many reads of the SSD have ended; wraps.
    reads_ended: AtomicU32,
    dropped_kernels: AtomicU64,
    dropped_faults: AtomicU64,
}

impl Feed {
    /// Makes rings with room for so many announcements and faults.
    pub fn new(kernels: u32, faults: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            kernels: Lane::new(kernels)?,
            faults: Lane::new(faults)?,
            announced: AtomicU32::new(0),
            last: AtomicU64::new(u64::MAX),
            overrun: AtomicBool::new(false),
            reads_ended: AtomicU32::new(0),
            dropped_kernels: AtomicU64::new(0),
            dropped_faults: AtomicU64::new(0),
        })
    }

    /// Puts the announcement that kernel `id` is about to run; [`ExecId`] 0: no known kernel.
    pub fn announce(&self, id: ExecId) {
        if !self.kernels.push(id.0) {
            self.dropped_kernels.fetch_add(1, Ordering::Relaxed);
            self.overrun.store(true, Ordering::Release);
            return;
        }
        let number = self.announced.load(Ordering::Relaxed).wrapping_add(1);
        self.announced.store(number, Ordering::Release);
    }

    /// Puts the fault on `block`, whose migration has begun. Returns whether the
    /// correlator has something new to learn.
    pub fn fault(&self, block: UmBlock) -> bool {
        let number = self.announced.load(Ordering::Acquire);
        let fault = (u64::from(block.0) << 32) | u64::from(number);
        // A block is serviced in several batches, as its faults come.
        if number == 0 || self.last.load(Ordering::Relaxed) == fault {
            return false;
        }
        if !self.faults.push(fault) {
            self.dropped_faults.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.last.store(fault, Ordering::Relaxed);
        true
    }

    /// Notes that a read of the SSD has ended, which a prefetch may wait for. Any thread may call this.
    pub fn read_ended(&self) {
        self.reads_ended.fetch_add(1, Ordering::Release);
    }

    /// How many announcements and faults found no room.
    pub fn dropped(&self) -> (u64, u64) {
        (
            self.dropped_kernels.load(Ordering::Relaxed),
            self.dropped_faults.load(Ordering::Relaxed),
        )
    }
}

/// Learns from a [`Feed`], and says what to prefetch.
pub struct Correlator {
    predictor: Predictor,
    /// How many announcements were taken off the ring; wraps.
    taken: u32,
    /// A block for which there was no room, until the next kernel.
    held: Option<Prefetch>,
    /// Whether nothing is prefetched until the next kernel.
    holding: bool,
    /// Blocks that have to come from the SSD first; the first one was looked at longest ago. A block whose kernel is
    /// over stays among them while it is on its way, because the device still reads it.
    coming: Ring<Prefetch>,
    /// How many of `coming` are to be looked at, from the first one on.
    to_look: usize,
    /// How many reads had ended when `to_look` was last set.
    reads_ended: u32,
    /// Whether `held` waits for a block of `coming` to be over, and not for the next kernel.
    is_behind: bool,
}

impl Correlator {
    /// Makes a correlator that has learnt nothing.
    pub fn new(config: Config) -> Result<Self, OutOfMemory> {
        Ok(Self {
            predictor: Predictor::new(config)?,
            taken: 0,
            held: None,
            holding: false,
            coming: Ring::new(FETCHES)?,
            to_look: 0,
            reads_ended: 0,
            is_behind: false,
        })
    }

    /// Takes up to `most` kernels and faults off the rings, and learns from them. Returns
    /// whether the rings are empty. If memory is short, it learns less.
    pub fn absorb(&mut self, feed: &Feed, most: u32) -> bool {
        let ended = feed.reads_ended.load(Ordering::Acquire);
        if core::mem::replace(&mut self.reads_ended, ended) != ended {
            self.to_look = self.coming.len();
        }
        for _ in 0..most {
            let fault = feed.faults.front();
            // Faults of the current kernel, or an earlier one, go before the next.
            let due = |f: &u64| (*f as u32).wrapping_sub(self.taken) as i32 <= 0;
            if let Some(fault) = fault.filter(due) {
                feed.faults.pop();
                let _ = self.predictor.on_fault(UmBlock((fault >> 32) as u32));
            } else if let Some(id) = feed.kernels.pop() {
                self.taken = self.taken.wrapping_add(1);
                self.kernel(id);
            } else {
                if feed.overrun.swap(false, Ordering::Acquire) {
                    self.kernel(IDLE);
                }
                return true;
            }
        }
        false
    }

    fn kernel(&mut self, id: u64) {
        self.holding = false;
        let next = self.now().wrapping_add(1);
        let mut is_known = false;
        if id == IDLE {
            self.predictor.on_idle();
        } else {
            is_known = self.predictor.on_kernel(ExecId(id)).is_ok();
        }
        // Each prefetch is one kernel nearer, if the kernels come as foreseen, and void once its own kernel is over.
        let foreseen = is_known && self.now() == next;
        let nearer = |p: Prefetch| {
            let ahead = p.ahead.checked_sub(1).filter(|_| foreseen)?;
            Some(Prefetch { ahead, ..p })
        };
        self.held = self.held.and_then(nearer);
        self.change_coming(|p| match p.ssd {
            FromSsd::Over => Some(p),
            _ => Some(nearer(p).unwrap_or(p.over())),
        });
        self.to_look = self.coming.len();
    }

    /// Replaces each block of `coming` by what `change` returns for it, or drops it; keeps the order.
    fn change_coming(&mut self, mut change: impl FnMut(Prefetch) -> Option<Prefetch>) {
        for _ in 0..self.coming.len() {
            if let Some(prefetch) = self.coming.pop().and_then(&mut change) {
                self.coming.push(prefetch);
            }
        }
    }

    /// The next block to prefetch, looking at `steps` blocks or kernels at most.
    pub fn next(&mut self, steps: u32) -> Next {
        if self.holding {
            return Next::Idle;
        }
        if let Some(left) = self.to_look.checked_sub(1) {
            self.to_look = left;
            if let Some(p) = self.coming.pop() {
                return Next::Prefetch(p);
            }
        }
        if self.held.is_some() && self.is_behind && !self.may_fetch() {
            return Next::Idle;
        }
        match self.held.take() {
            Some(p) => Next::Prefetch(p),
            None => self.predictor.next(steps),
        }
    }

    /// How many blocks are on their way from the SSD.
    #[cfg(test)]
    pub(super) fn on_their_way(&self) -> usize {
        self.coming.len()
    }

    /// The blocks that are looked at when a read has ended, and not before.
    #[cfg(test)]
    pub(super) fn waits_for_reads(&self) -> impl Iterator<Item = UmBlock> + '_ {
        let to_look = if self.holding {
            usize::MAX
        } else {
            self.to_look
        };
        self.coming.iter().skip(to_look).map(|p| p.block)
    }

    /// Whether one more block may be on its way from the SSD.
    pub fn may_fetch(&self) -> bool {
        self.coming.len() < FETCHES
    }

    /// Notes that pages of `prefetch` have to come from the SSD first. [`Correlator::next`] returns the prefetch
    /// again when a read has ended ([`Feed::read_ended`]) or a kernel begins; after its own kernel, to see whether
    /// the pages are still on their way.
    pub fn comes(&mut self, prefetch: Prefetch) {
        let prefetch = prefetch.coming();
        if !self.joins(prefetch) {
            self.coming.push(prefetch);
        }
    }

    /// Whether the block of `prefetch` is on its way already, because it was predicted for another kernel as well. If
    /// so, it is on its way for the later of the two kernels, up to which it stays, also if the other one is over.
    fn joins(&mut self, prefetch: Prefetch) -> bool {
        let mut joins = false;
        self.change_coming(|p| {
            let same = p.block == prefetch.block;
            joins |= same;
            if !same {
                return Some(p);
            }
            let later = if p.ssd == FromSsd::Over || prefetch.ahead > p.ahead {
                prefetch
            } else {
                p
            };
            let was_asked = [p.ssd, prefetch.ssd].contains(&FromSsd::Asked);
            Some(if was_asked { later.asked() } else { later })
        });
        joins
    }

    /// Holds `prefetch` back, because too many blocks are on their way from the SSD: it comes next, once one of them
    /// is over. If its own block is among them, it is on its way already.
    pub fn fall_behind(&mut self, prefetch: Prefetch) {
        if !self.joins(prefetch.coming()) {
            self.held = Some(prefetch);
            self.is_behind = true;
        }
    }

    /// Has `prefetch` come again, before others. One that has to come from the SSD keeps its place in `coming`.
    fn keep(&mut self, prefetch: Prefetch) {
        if prefetch.ssd != FromSsd::Not {
            self.comes(prefetch);
            self.to_look = self.coming.len();
        } else {
            self.held = Some(prefetch);
            self.is_behind = false;
        }
    }

    /// Whether making room ahead of need pays ([`Predictor::foresees`]).
    pub fn foresees(&self) -> bool {
        self.predictor.foresees()
    }

    /// Holds `prefetch` back, because only blocks that are themselves expected could make
    /// room: nothing is prefetched until the next kernel, and then this one first.
    pub fn hold(&mut self, prefetch: Prefetch) {
        self.holding = true;
        self.keep(prefetch);
    }

    /// Whether all announcements have been taken off the rings.
    pub fn is_current(&self, feed: &Feed) -> bool {
        feed.kernels.front().is_none()
    }

    /// Puts `prefetch` back, which was not begun because another kernel was announced meanwhile or the worker had to
    /// stop. It comes first once that is learnt, unless its own kernel is over.
    pub fn put_back(&mut self, prefetch: Prefetch) {
        self.keep(prefetch);
    }

    /// Forgets blocks `first` to `last`, whose memory went away.
    pub fn forget(&mut self, first: UmBlock, last: UmBlock) {
        self.held = None;
        // Nobody reads freed memory. But another va_block in the same 2 MiB may be being read, so the block keeps its
        // place until the worker has looked.
        self.change_coming(|p| {
            let is_kept = p.block < first || last < p.block;
            Some(if is_kept { p } else { p.over() })
        });
        self.to_look = self.coming.len();
        self.predictor.forget(first, last);
    }

    /// The current kernel's number in the sequence to which [`Prefetch::ahead`] is
    /// added; it may jump, and wraps.
    pub fn now(&self) -> u32 {
        self.predictor.now()
    }

    /// Tells `share` how many bytes the tables take ([`Predictor::settle`]).
    pub fn settle(&mut self, share: &Share) {
        self.predictor.settle(share);
    }

    /// Leaves `share` to others for good ([`Predictor::leave`]).
    pub fn leave(&mut self, share: &Share) {
        self.predictor.leave(share);
    }

    /// What was predicted, and how well.
    pub fn stats(&self) -> Stats {
        self.predictor.stats()
    }
}

#[cfg(test)]
mod tests;
