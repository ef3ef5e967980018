// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What policies may say and request.

use uvm_policy::evict::Owner;
use uvm_policy::mask::PageMask;

use super::System;
use super::HOLDER;
use crate::plan::Part;
use crate::plan::What;
use crate::policy::Tier;

impl System<'_> {
    /// The policy's time is `now`, in steps of its own, from now on.
    pub fn set_clock(&mut self, now: u32) {
        let owner = self.owner();
        if std::mem::replace(&mut self.clock, now) != now {
            self.roots.begins(owner);
        }
        self.roots.set_now(owner, now);
    }

    /// The owner of marks, from the first time on that a policy says something of kernels: as long as none
    /// does, nothing is known of what runs.
    fn owner(&mut self) -> Owner {
        if self.owner == 0 {
            self.owner = self.roots.add_owner(HOLDER);
        }
        self.owner
    }

    /// `block` should not be reclaimed while others can be, until the policy's time is
    /// over that is `ahead` from now.
    pub fn expect(&mut self, block: u32, ahead: u32) {
        let (owner, until) = (self.owner(), self.clock.wrapping_add(ahead));
        self.roots.expect(block, owner, until);
    }

    /// The same for all blocks that kernel `k` uses, if there is such a kernel.
    pub fn expect_all(&mut self, k: usize, ahead: u32) {
        let layout = self.layout;
        for t in layout.touches.get(k).map_or(&[][..], Vec::as_slice) {
            self.expect(t.block, ahead);
        }
    }

    /// Copies the block out that was migrated least recently, of those that are not
    /// expected and not leaving already (pre-eviction). Returns whether there is one.
    pub fn push_out(&mut self) -> bool {
        let Some(b) = self.roots.pick_early(HOLDER) else {
            return false;
        };
        self.roots.pass_over(b, HOLDER);
        self.evict_block(b, Tier::Host);
        true
    }

    /// Brings tensor `t` into GPU memory; pages without contents are zeroed.
    pub fn prefetch(&mut self, t: u32) {
        self.cpu(self.machine.prefetch_call);
        for (b, pages) in self.parts(t) {
            let block = &mut self.blocks[b as usize];
            // What has not left yet stays.
            block.leaving -= pages;
            block.discarded -= pages;
            if (pages - block.mapped()).is_empty() && block.queued == 0 {
                self.cpu(self.machine.prefetch_resident);
                self.touch_lru(b);
            } else {
                self.cpu(self.machine.prefetch_block);
                self.enqueue(b, pages, false);
            }
        }
    }

    /// Brings a block's pages into GPU memory, those that it ever had there, as a guess: nobody has asked for
    /// them.
    pub fn prefetch_block(&mut self, block: u32) {
        let b = &self.blocks[block as usize];
        // A guess does not bring back what was discarded.
        let pages = (b.seen | b.live) - b.discarded - b.gpu;
        if !pages.is_empty() && b.queued == 0 {
            self.cpu(self.machine.prefetch_block);
            self.enqueue(block, pages, true);
        }
    }

    /// Copies tensor `t` out of GPU memory and frees what it held there.
    pub fn evict(&mut self, t: u32, to: Tier) {
        self.cpu(self.machine.prefetch_call);
        for (b, pages) in self.parts(t) {
            self.evict_pages(b, pages, to);
        }
    }

    fn evict_pages(&mut self, b: u32, pages: PageMask, to: Tier) {
        let pages = pages & self.blocks[b as usize].gpu;
        if pages.is_empty() {
            return;
        }
        self.cpu(self.machine.prefetch_block);
        let issue = self.cpu_free;
        let block = &self.blocks[b as usize];
        if ((pages & block.live) - (block.host | block.ssd)).is_empty() {
            // Nothing to copy, so nothing to wait for.
            self.copy_out(b, pages, issue, to, false);
            self.pump_next = self.pump_next.min(issue);
        } else {
            self.queue_eviction(b, pages, to);
        }
    }

    /// Copies tensor `t` out of GPU memory and keeps it there, so that it can be
    /// dropped later without a copy.
    pub fn copy(&mut self, t: u32, to: Tier) {
        self.cpu(self.machine.prefetch_call);
        for (b, pages) in self.parts(t) {
            self.copy_pages(b, pages, to);
        }
    }

    fn copy_pages(&mut self, block: u32, pages: PageMask, to: Tier) {
        self.cpu(self.machine.prefetch_block);
        let copy = self.leaving(block, pages, to);
        self.copies.push_back(copy);
    }

    /// [Evicts](Self::evict) or [copies](Self::copy) tensor `t`, each va_block as soon as the kernel that is
    /// about to start is past it. What that kernel does not use stays.
    pub fn behind(&mut self, t: u32, what: What) {
        self.cpu(self.machine.prefetch_call);
        for (b, pages) in self.parts(t) {
            self.behind.entry(b).or_default().push((pages, what));
        }
    }

    /// The kernel is past these pages of block `b`.
    pub(crate) fn passed(&mut self, b: u32, pages: PageMask) {
        let Some(mut asked) = self.behind.remove(&b) else {
            return;
        };
        asked.retain(|&(these, what)| {
            let passed = these.is_subset(&pages);
            match what {
                What::Evict(to) if passed => self.evict_pages(b, these, to),
                What::Copy(to) if passed => self.copy_pages(b, these, to),
                _ => {}
            }
            !passed
        });
        if !asked.is_empty() {
            self.behind.insert(b, asked);
        }
    }

    /// The kernel has ended: nothing is behind it any more.
    pub(crate) fn passed_all(&mut self) {
        self.behind.clear();
    }

    /// Requests may name these parts of tensors, by the numbers after those of tensors.
    pub(crate) fn name_parts(&mut self, parts: &[Part]) {
        let range = |p: &Part| {
            let from = self.layout.addresses[p.tensor as usize] + p.offset;
            from..from + p.bytes
        };
        self.named = parts.iter().map(range).collect();
    }

    /// Copies a block out of GPU memory.
    pub fn evict_block(&mut self, block: u32, to: Tier) {
        self.cpu(self.machine.prefetch_block);
        let pages = self.blocks[block as usize].gpu;
        self.queue_eviction(block, pages, to);
    }

    /// Discards tensor `t`: its contents no longer matter. Eager unmaps its pages
    /// at once (UvmDiscard section 5.1), lazy does not (5.2).
    pub fn discard(&mut self, t: u32, eager: bool) {
        if eager {
            self.cpu(self.machine.discard_call);
        }
        let cost = if eager {
            self.machine.discard_block
        } else {
            self.machine.discard_lazy_block
        };
        for (b, pages) in self.parts(t) {
            self.cpu(cost);
            if eager {
                let block = &mut self.blocks[b as usize];
                block.unmapped |= pages & block.gpu;
            }
            self.mark_discarded(b, pages);
        }
    }

    /// As a lazy discard, by an allocator that needs no call for it and knows more than the driver:
    /// what it has handed out and nobody has written yet is worth nothing either.
    pub fn release(&mut self, t: u32) {
        for (b, pages) in self.parts(t) {
            self.forget(b, pages);
            self.free_if_dead(b);
        }
    }

    /// The program frees tensor `t`: its pages are nowhere, and their chunks free.
    pub fn free(&mut self, t: u32) {
        for (b, pages) in self.parts(t) {
            self.forget(b, pages);
            let block = &mut self.blocks[b as usize];
            block.seen -= pages;
            block.discarded -= pages;
            let resident = block.gpu & pages;
            self.leave(b, resident, self.now);
        }
    }

    /// The next kernel waits until the driver has processed all requests made so
    /// far: they are in its stream.
    pub fn in_stream(&mut self) {
        self.gate = self.cpu_free;
    }
}
