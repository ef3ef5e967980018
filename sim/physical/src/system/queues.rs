// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Requests that wait: for the link, for memory.

use std::collections::VecDeque;

use uvm_policy::mask::PageMask;

use super::System;
use super::NEVER;
use crate::links::Direction;
use crate::policy::Policy;
use crate::policy::Tier;

/// Prefetches that may hold a root chunk while they wait for the link, so that
/// evictions and copies overlap.
const STAGED: usize = 4;

/// The queue of prefetches from the SSD.
const FROM_SSD: usize = 1;

/// The queue of prefetches that need no copy.
const FRESH: usize = 2;

pub(super) struct Prefetch {
    pub block: u32,
    pub pages: PageMask,
    pub issue: u64,
    /// Nobody has asked for it.
    pub guess: bool,
    /// When its root chunk is free, once it has one.
    pub chunk_at: Option<u64>,
}

pub(super) struct Evict {
    pub block: u32,
    pub pages: PageMask,
    pub issue: u64,
    pub to: Tier,
}

/// Requests in order, for one source.
#[derive(Default)]
pub(super) struct Queue {
    pub items: VecDeque<Prefetch>,
    /// When the head could next try for a chunk.
    pub base: u64,
    /// Whether the head waits for memory that nothing can yield now.
    pub blocked: bool,
}

impl System<'_> {
    pub(super) fn enqueue(&mut self, block: u32, pages: PageMask, guess: bool) {
        let issue = self.cpu_free;
        let b = &mut self.blocks[block as usize];
        b.queued += 1;
        let copied = (pages & b.live) - b.gpu;
        let queue = if copied.is_empty() {
            FRESH
        } else {
            usize::from(!((copied & b.ssd) - b.host).is_empty())
        };
        b.queue = queue as u8;
        let queue = &mut self.prefetches[queue];
        queue.items.push_back(Prefetch {
            block,
            pages,
            issue,
            guess,
            chunk_at: None,
        });
        self.pump_next = self.pump_next.min(issue);
    }

    pub(super) fn queue_eviction(&mut self, block: u32, pages: PageMask, to: Tier) {
        self.blocks[block as usize].leaving |= pages;
        let evict = self.leaving(block, pages, to);
        self.evicts[usize::from(to == Tier::Ssd)].push_back(evict);
    }

    /// A copy out of the pages, from when the driver's thread has asked for it.
    pub(super) fn leaving(&mut self, block: u32, pages: PageMask, to: Tier) -> Evict {
        let issue = self.cpu_free;
        self.pump_next = self.pump_next.min(issue);
        Evict {
            block,
            pages,
            issue,
            to,
        }
    }

    /// When the next eviction could start, and its queue.
    pub(super) fn next_eviction(&self) -> (u64, usize) {
        let start = |q: usize| {
            self.evicts[q].front().map_or(NEVER, |e| {
                e.issue.max(match e.to {
                    Tier::Ssd => self.links.ssd_free(Direction::Out),
                    Tier::Host => self.links.free(Direction::Out),
                })
            })
        };
        let (host, ssd) = (start(0), start(1));
        if ssd <= host {
            (ssd, 1)
        } else {
            (host, 0)
        }
    }

    /// Carries out the next eviction of queue `q` from time `t` on.
    pub(super) fn start_eviction(&mut self, q: usize, t: u64, policy: &dyn Policy) {
        if let Some(e) = self.evicts[q].pop_front() {
            let block = &mut self.blocks[e.block as usize];
            let pages = e.pages & block.leaving;
            block.leaving -= pages;
            if !pages.is_empty() {
                self.copy_out(e.block, pages, t.max(e.issue), e.to, policy.invalidates());
            }
        }
    }

    pub(super) fn unstage(&mut self) -> Option<u64> {
        let queues = self.prefetches.iter_mut();
        let staged = queues.flat_map(|q| q.items.iter_mut().take(STAGED));
        let at = staged.filter_map(|p| p.chunk_at.take()).next()?;
        self.chunks.staged -= 1;
        Some(at)
    }

    /// A kernel has started: what was blocked may find victims now.
    pub(crate) fn unblock(&mut self) {
        if self.prefetches.iter().any(|q| q.blocked) {
            self.retry_blocked(self.now);
            self.pump_next = self.pump_next.min(self.now);
        }
    }

    fn retry_blocked(&mut self, t: u64) {
        for q in &mut self.prefetches {
            if q.blocked {
                q.blocked = false;
                q.base = q.base.max(t);
            }
        }
    }

    /// Starts every queued request that can start by time `t`.
    pub(crate) fn pump(&mut self, t: u64, policy: &dyn Policy) {
        loop {
            let (evict, from) = self.next_eviction();
            // A copy of what stays waits while there is anything to evict.
            let copy = match self.copies.front() {
                Some(e) if evict == NEVER => e.issue.max(self.links.free(Direction::Out)),
                _ => NEVER,
            };
            let starts: [u64; 3] = std::array::from_fn(|q| self.prefetch_start(q, t, policy));
            // Staging may have emptied the eviction queue, or started evictions.
            let first = starts.into_iter().fold(evict.min(copy), u64::min);
            self.pump_next = first;
            if first > t || first == NEVER {
                return;
            }
            if first == evict {
                self.start_eviction(from, first, policy);
                self.retry_blocked(first);
            } else if first == copy {
                if let Some(e) = self.copies.pop_front() {
                    self.write_out(e.block, e.pages, first, e.to);
                    self.host
                        .note_clean(e.block, &mut self.blocks[e.block as usize]);
                }
            } else {
                // Of two that could start, the SSD's: it leaves the link soon.
                let mut queues = [FROM_SSD, 0, FRESH].into_iter();
                let queue = queues.find(|&q| starts[q] == first);
                self.start_prefetch(queue.unwrap_or(FRESH), first);
            }
            if self.failure.is_some() {
                return;
            }
        }
    }

    /// Until when it is the link, or the SSD, that the queue waits for in which `block`
    /// is; from then on it waits for memory.
    pub(crate) fn link_until(&self, block: u32) -> u64 {
        let q = usize::from(self.blocks[block as usize].queue);
        let Some(item) = self.prefetches[q].items.front() else {
            return NEVER;
        };
        let head = &self.blocks[item.block as usize];
        let link = self.link_free(q, item).max(item.issue);
        match item.chunk_at {
            _ if head.chunk => NEVER,
            Some(at) if at <= link => NEVER,
            _ => link,
        }
    }

    /// When the link is free for `item` of queue `q`.
    fn link_free(&self, q: usize, item: &Prefetch) -> u64 {
        let block = &self.blocks[item.block as usize];
        let copied = (item.pages & block.live) - block.gpu;
        match (copied.is_empty(), q) {
            (true, _) => 0,
            (false, 0 | FRESH) => self.links.free(Direction::In),
            (false, _) => self.links.ssd_free(Direction::In),
        }
    }

    /// When the head of queue `q` could start; takes chunks for the first few.
    fn prefetch_start(&mut self, q: usize, t: u64, policy: &dyn Policy) -> u64 {
        for i in 0..STAGED {
            let queue = &self.prefetches[q];
            let Some(item) = queue.items.get(i) else {
                break;
            };
            let base = item.issue.max(queue.base);
            if queue.blocked || base > t {
                break;
            }
            let block = &self.blocks[item.block as usize];
            if block.chunk || item.chunk_at.is_some() {
                continue;
            }
            match self.take_chunk(base, false, policy) {
                Some(at) => {
                    self.prefetches[q].items[i].chunk_at = Some(at);
                    self.chunks.staged += 1;
                }
                None => {
                    self.prefetches[q].blocked = true;
                    break;
                }
            }
        }
        let queue = &self.prefetches[q];
        let Some(item) = queue.items.front() else {
            return NEVER;
        };
        let block = &self.blocks[item.block as usize];
        if !block.chunk && item.chunk_at.is_none() {
            return if queue.blocked {
                NEVER
            } else {
                item.issue.max(queue.base)
            };
        }
        let link = self.link_free(q, item);
        item.issue.max(link).max(item.chunk_at.unwrap_or(0))
    }

    fn start_prefetch(&mut self, q: usize, t: u64) {
        let Some(item) = self.prefetches[q].items.pop_front() else {
            return;
        };
        self.prefetches[q].base = self.prefetches[q].base.max(t);
        let block = &mut self.blocks[item.block as usize];
        block.queued -= 1;
        if let Some(at) = item.chunk_at {
            self.chunks.staged -= 1;
            if block.chunk {
                self.chunks.give(at);
            } else {
                block.chunk = true;
            }
        }
        if !self.blocks[item.block as usize].chunk {
            return;
        }
        self.note_gpu_peak();
        let new = self.blocks[item.block as usize].mapped().is_empty();
        self.copy_in(item.block, item.pages, t);
        if item.guess && new {
            self.roots.brought(item.block, self.owner);
        }
    }
}
