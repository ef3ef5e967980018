// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pages come, leave, are written and die; chunks are reclaimed for those that come.

use uvm_policy::evict::Queue as Evictable;
use uvm_policy::mask::PageMask;
use uvmsim_machine::PAGE;

use super::System;
use super::HOLDER;
use super::NEVER;
use crate::links::Direction;
use crate::policy::Policy;
use crate::policy::Tier;
use crate::run::RunError;

impl System<'_> {
    /// Gives a tensor new contents outside the GPU: in host memory, or on the SSD
    /// if that is full.
    pub(crate) fn place_outside(&mut self, t: u32) {
        for (b, pages) in self.parts(t) {
            self.forget(b, pages);
            let resident = self.blocks[b as usize].gpu & pages;
            self.leave(b, resident, self.now);
            let to_host = self.host.make_room(&mut self.blocks, b, pages.count());
            let block = &mut self.blocks[b as usize];
            block.live |= pages;
            if to_host {
                self.host.keep(block, pages);
            } else if self.machine.ssd_write > 0.0 {
                block.ssd |= pages;
            } else {
                self.failure.get_or_insert(RunError::HostFull);
            }
        }
    }

    /// The contents of `pages` no longer matter.
    pub(super) fn forget(&mut self, b: u32, pages: PageMask) {
        let block = &mut self.blocks[b as usize];
        block.live -= pages;
        block.ssd -= pages;
        self.host.forget(block, pages);
    }

    /// Nothing in the chunk of `b` may matter any more; then it is reclaimed before others.
    pub(super) fn free_if_dead(&mut self, b: u32) {
        let block = &self.blocks[b as usize];
        let dead = block.chunk && (block.gpu & block.live).is_empty();
        if dead && self.roots.queue_of(b) != Some(Evictable::Discarded) {
            let _ = self.roots.set(b, Evictable::Discarded);
        }
    }

    /// `pages` are discarded. A chunk that holds nothing else is reclaimed after the others of its
    /// kind, also if it was of that kind before.
    pub(super) fn mark_discarded(&mut self, b: u32, pages: PageMask) {
        self.forget(b, pages);
        let block = &mut self.blocks[b as usize];
        block.discarded |= pages;
        if block.chunk && block.gpu.is_subset(&block.discarded) {
            let _ = self.roots.set(b, Evictable::Discarded);
        }
    }

    /// The GPU has written `pages`, which it has.
    pub(crate) fn written(&mut self, b: u32, pages: PageMask) {
        let block = &mut self.blocks[b as usize];
        block.live |= pages;
        self.host.forget(block, pages);
        block.ssd -= pages;
        if self.roots.queue_of(b) == Some(Evictable::Discarded) {
            self.touch_lru(b);
        }
    }

    /// Marks the pages of `t` as a dead tensor's, or as a living one's.
    pub(crate) fn mark_dead(&mut self, t: u32, dead: bool) {
        for (b, pages) in self.parts(t) {
            let block = &mut self.blocks[b as usize];
            if dead {
                block.dead |= pages;
            } else {
                block.dead -= pages;
            }
        }
    }

    /// `pages` are no longer in GPU memory as of time `t`.
    pub(super) fn leave(&mut self, b: u32, pages: PageMask, t: u64) {
        let block = &mut self.blocks[b as usize];
        self.flow[1] += u64::from((block.gpu & pages).count());
        block.gpu -= pages;
        block.unmapped -= pages;
        if block.chunk && block.gpu.is_empty() {
            block.chunk = false;
            self.note_left(b);
            self.roots.remove(b);
            // Whoever expects it has to say so again.
            self.roots.unexpect(b);
            self.chunks.give(t);
        }
    }

    /// Copies `pages` of `b` out and drops them, from time `t` on; returns when
    /// that is done.
    pub(super) fn copy_out(
        &mut self,
        b: u32,
        pages: PageMask,
        t: u64,
        to: Tier,
        invalidates: bool,
    ) -> u64 {
        let block = &mut self.blocks[b as usize];
        let pages = pages & block.gpu;
        if invalidates {
            let dead = pages & block.dead;
            self.host.forget(block, dead);
            block.live -= dead;
            block.ssd -= dead;
        }
        self.out.dropped += PAGE * u64::from((pages - block.live).count());
        let end = self.write_out(b, pages, t, to);
        self.host.note_clean(b, &mut self.blocks[b as usize]);
        self.blocks[b as usize].gone_at = end;
        self.leave(b, pages, end);
        end
    }

    /// Copies those of `pages` out that have no copy outside, from time `t` on;
    /// returns when that is done.
    pub(super) fn write_out(&mut self, b: u32, pages: PageMask, t: u64, to: Tier) -> u64 {
        let block = &self.blocks[b as usize];
        let dirty = (pages & block.gpu & block.live) - (block.host | block.ssd);
        let t = t.max(block.ready_at);
        if dirty.is_empty() {
            return t;
        }
        let bytes = u64::from(dirty.count()) * PAGE;
        let has_ssd = self.machine.ssd_write > 0.0;
        let host = (to == Tier::Host || !has_ssd)
            && self.host.make_room(&mut self.blocks, b, dirty.count());
        let block = &mut self.blocks[b as usize];
        let (start, end);
        if host {
            self.host.keep(block, dirty);
            self.out.host_peak = self.out.host_peak.max(self.host.bytes());
            self.out.bytes.gpu_to_host += bytes;
            (start, end) = self.links.copy(Direction::Out, bytes, t);
        } else if has_ssd {
            block.ssd |= dirty;
            self.out.bytes.gpu_to_ssd += bytes;
            (start, end) = self.links.copy_ssd(Direction::Out, bytes, t);
        } else {
            self.failure.get_or_insert(RunError::HostFull);
            return t;
        }
        if let Some(r) = &mut self.recorder {
            r.copy(Direction::Out, !host, bytes, start, end);
        }
        end
    }

    /// Copies or zeroes `pages` of `b` into its root chunk from time `t` on;
    /// returns when they are there.
    pub(crate) fn copy_in(&mut self, b: u32, pages: PageMask, t: u64) -> u64 {
        let block = &mut self.blocks[b as usize];
        debug_assert!(block.chunk);
        let t = t.max(block.gone_at);
        let wanted = pages - block.gpu;
        let from_host = wanted & block.live & block.host;
        let from_ssd = (wanted & block.live) - block.host;
        let fresh = wanted - block.live;
        block.gpu |= wanted;
        block.seen |= wanted;
        block.unmapped -= pages;
        block.discarded -= pages;
        self.flow[0] += u64::from(wanted.count());
        if self.machine.keep_clean == 0 {
            self.host.forget(block, from_host);
            block.ssd -= from_ssd;
        }
        let mut end = t;
        for (mask, ssd) in [(from_host, false), (from_ssd, true)] {
            if mask.is_empty() {
                continue;
            }
            let bytes = u64::from(mask.count()) * PAGE;
            let (start, done) = if ssd {
                self.out.bytes.ssd_to_gpu += bytes;
                self.links.copy_ssd(Direction::In, bytes, t)
            } else {
                self.out.bytes.host_to_gpu += bytes;
                self.links.copy(Direction::In, bytes, t)
            };
            if let Some(r) = &mut self.recorder {
                r.copy(Direction::In, ssd, bytes, start, done);
            }
            end = end.max(done);
        }
        if !fresh.is_empty() && self.zeroing {
            let bytes = u64::from(fresh.count()) * PAGE;
            self.out.zeroed += bytes;
            end = end.max(t + (bytes as f64 / self.machine.zero_rate() * 1e9) as u64);
        }
        let block = &mut self.blocks[b as usize];
        block.ready_at = block.ready_at.max(end);
        self.host.note_clean(b, block);
        self.touch_lru(b);
        end
    }

    /// `b` was migrated or prefetched.
    pub(crate) fn touch_lru(&mut self, b: u32) {
        // The queues were made for all blocks: no call about one fails.
        let _ = self.roots.used_by(b, HOLDER);
        let _ = self.roots.insert(b, HOLDER);
    }

    /// Gives `b` a root chunk that is wanted at time `t`; returns when it is free.
    /// `None`: nothing can be reclaimed.
    pub(crate) fn take_chunk(&mut self, t: u64, demand: bool, policy: &dyn Policy) -> Option<u64> {
        if let Some(at) = self.chunks.take(t) {
            return Some(at);
        }
        while let Some(v) = self.roots.victim().filter(|v| v.queue < Evictable::Used) {
            #[cfg(test)]
            self.victims.push(v.chunk);
            // Lazily discarded pages are still mapped.
            let mapped = !self.blocks[v.chunk as usize].mapped().is_empty();
            let cost = u64::from(mapped) * self.machine.tlb_invalidate;
            self.copy_out(v.chunk, PageMask::FULL, t + cost, Tier::Host, false);
            if let Some(at) = self.chunks.take(t) {
                return Some(at);
            }
        }
        if !demand && self.evicting() > 0 {
            return None;
        }
        loop {
            let (start, q) = self.next_eviction();
            if start == NEVER {
                break;
            }
            self.start_eviction(q, t, policy);
            if let Some(at) = self.chunks.take(t) {
                return Some(at);
            }
        }
        // For a prefetch nothing goes that is expected.
        let v = self.roots.victim().filter(|v| demand || !v.expected)?;
        #[cfg(test)]
        self.victims.push(v.chunk);
        let cost = self.machine.evict_overhead + self.machine.tlb_invalidate;
        self.out.reclaimed += 1;
        let _ = self.roots.begin_eviction(v.chunk);
        let (to, invalidates) = (policy.reclaim_to(), policy.invalidates());
        self.copy_out(v.chunk, PageMask::FULL, t + cost, to, invalidates);
        self.chunks.take(t)
    }

    /// Makes sure that `b` has a root chunk, as part of a fault at time `t`.
    pub(crate) fn demand_chunk(&mut self, b: u32, t: u64, policy: &dyn Policy) -> u64 {
        if self.blocks[b as usize].chunk {
            return t;
        }
        // A prefetch that has a chunk but no data yet gives it up first.
        let got = self.take_chunk(t, true, policy).or_else(|| self.unstage());
        let Some(at) = got else {
            self.failure.get_or_insert(RunError::GpuFull);
            return t;
        };
        self.blocks[b as usize].chunk = true;
        self.evict_wait += at.saturating_sub(t);
        self.note_gpu_peak();
        at.max(t)
    }

    pub(super) fn note_gpu_peak(&mut self) {
        self.out.gpu_peak = self.out.gpu_peak.max(self.chunks.used_bytes());
    }
}
