// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The state of the machine: va_blocks, root chunks, memories, queues.
//!
//! For each page of a va_block: whether GPU memory has it (`gpu`), whether its
//! contents matter (`live`), and whether host memory or the SSD hold a valid copy
//! (`host`, `ssd`). A page's contents are in at least one of the three while it is
//! live. A write on the GPU makes the other copies invalid.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::VecDeque;

use uvm_policy::evict::Owner;
use uvm_policy::evict::Queue as Evictable;
use uvm_policy::evict::RootChunks;
use uvm_policy::evict::Victim;
use uvm_policy::mask::PageMask;
use uvmsim_machine::Machine;
use uvmsim_machine::PAGE;

use crate::links::Direction;
use crate::links::Links;
use crate::policy::Policy;
use crate::policy::Tier;
use crate::record::Recorder;
use crate::result::Outcome;
use crate::run::RunError;
use crate::workload::Layout;
use crate::workload::Workload;

/// Prefetches that may hold a root chunk while they wait for the link, so that
/// evictions and copies overlap.
const STAGED: usize = 4;

/// The queue of prefetches from the SSD.
const FROM_SSD: usize = 1;

/// The queue of prefetches that need no copy.
const FRESH: usize = 2;

/// The process that uses all chunks, as the eviction queues number them.
const HOLDER: u64 = 1;

/// No time at all.
pub(crate) const NEVER: u64 = u64::MAX;

/// A va_block.
#[derive(Clone, Default)]
pub(crate) struct Block {
    /// Pages in GPU memory.
    pub gpu: PageMask,
    /// Pages whose contents matter.
    pub live: PageMask,
    /// Pages with a valid copy in host memory.
    pub host: PageMask,
    /// Pages with a valid copy on the SSD.
    pub ssd: PageMask,
    /// Pages in GPU memory that an eager discard has unmapped.
    pub unmapped: PageMask,
    /// Pages of tensors that are dead, whatever the machine knows of it.
    pub dead: PageMask,
    /// Pages that are asked to leave.
    leaving: PageMask,
    /// Pages that the GPU has ever had.
    pub seen: PageMask,
    /// When what was last copied in is there.
    pub ready_at: u64,
    /// When what was last copied out is gone.
    pub gone_at: u64,
    /// Whether it holds a root chunk.
    pub chunk: bool,
    /// Requests for it in the prefetch queues.
    pub queued: u32,
    /// The queue of the last of these.
    queue: u8,
    /// Whether the fault batch being serviced has it: then it is not reclaimed.
    pinned: bool,
    /// Whether it is in the list of clean host copies.
    clean_listed: bool,
}

impl Block {
    /// Pages that the GPU can access without a fault.
    pub(crate) fn mapped(&self) -> PageMask {
        self.gpu - self.unmapped
    }
}

struct Prefetch {
    block: u32,
    pages: PageMask,
    issue: u64,
    /// When its root chunk is free, once it has one.
    chunk_at: Option<u64>,
}

struct Evict {
    block: u32,
    pages: PageMask,
    issue: u64,
    to: Tier,
}

/// Requests in order, for one source.
#[derive(Default)]
struct Queue {
    items: VecDeque<Prefetch>,
    /// When the head could next try for a chunk.
    base: u64,
    /// Whether the head waits for memory that nothing can yield now.
    blocked: bool,
}

/// The machine, as a policy sees it.
pub struct System<'a> {
    /// Its constants.
    pub machine: &'a Machine,
    /// What runs.
    pub workload: &'a Workload,
    /// Where its tensors lie.
    pub layout: &'a Layout,
    /// Virtual time, nanoseconds.
    pub now: u64,
    pub(crate) blocks: Vec<Block>,
    pub(crate) links: Links,
    /// When the driver's thread for requests is free.
    cpu_free: u64,
    /// When the next kernel may start, for requests in its stream.
    pub(crate) gate: u64,
    free_chunks: u64,
    chunks: u64,
    /// When chunks whose contents are being copied out are free.
    pending: BinaryHeap<Reverse<u64>>,
    staged: u64,
    /// The driver's queues of the root chunks in use; a chunk has its block's number.
    roots: RootChunks,
    /// The process whose policy says which blocks are expected.
    owner: Owner,
    /// The policy's time, in which it says until when a block is expected.
    clock: u32,
    host_pages: u64,
    host_cap: u64,
    /// Blocks that may have host copies of pages that are elsewhere too.
    clean: VecDeque<u32>,
    /// From host memory, from the SSD, and of pages that need no copy.
    prefetches: [Queue; 3],
    /// To host memory, and to the SSD.
    evicts: [VecDeque<Evict>; 2],
    /// Copies of what stays; evictions go first.
    copies: VecDeque<Evict>,
    pub(crate) pump_next: u64,
    /// Blocks of the fault batch being serviced.
    batch: Vec<u32>,
    /// Waiting for evictions within a fault.
    pub(crate) evict_wait: u64,
    pub(crate) out: Outcome,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) failure: Option<RunError>,
    zeroing: bool,
    /// Pages that came into and left GPU memory, ever.
    flow: [u64; 2],
}

impl<'a> System<'a> {
    pub(crate) fn new(
        machine: &'a Machine,
        workload: &'a Workload,
        layout: &'a Layout,
        zeroing: bool,
    ) -> Result<Self, RunError> {
        let blocks = layout.blocks();
        let mut roots = RootChunks::new(blocks as u32)
            .map_err(|_| RunError::Infeasible("no memory for the eviction queues".into()))?;
        let owner = roots.add_owner();
        let mut system = Self {
            machine,
            workload,
            layout,
            now: 0,
            blocks: vec![Block::default(); blocks],
            links: Links::new(machine),
            cpu_free: 0,
            gate: 0,
            free_chunks: machine.chunks(),
            chunks: machine.chunks(),
            pending: BinaryHeap::new(),
            staged: 0,
            roots,
            owner,
            clock: 0,
            host_pages: 0,
            host_cap: machine.host_mem / PAGE,
            clean: VecDeque::new(),
            prefetches: Default::default(),
            evicts: Default::default(),
            copies: VecDeque::new(),
            pump_next: NEVER,
            batch: Vec::new(),
            evict_wait: 0,
            out: Outcome::default(),
            recorder: None,
            failure: None,
            zeroing,
            flow: [0; 2],
        };
        for t in 0..workload.tensors.len() as u32 {
            let tensor = &workload.tensors[t as usize];
            if tensor.lasting && !tensor.uses.is_empty() {
                system.place_outside(t);
            }
        }
        Ok(system)
    }

    /// Gives a tensor new contents outside the GPU: in host memory, or on the SSD
    /// if that is full.
    pub(crate) fn place_outside(&mut self, t: u32) {
        let parts: Vec<_> = self.layout.parts(self.workload, t).collect();
        for (b, region) in parts {
            let pages = PageMask::from(region);
            self.forget(b, pages);
            let resident = self.blocks[b as usize].gpu & pages;
            self.leave(b, resident, self.now);
            let to_host = self.make_host_room(b, region.pages());
            let block = &mut self.blocks[b as usize];
            block.live |= pages;
            if to_host {
                block.host |= pages;
                self.host_pages += u64::from(region.pages());
            } else if self.machine.ssd_write > 0.0 {
                block.ssd |= pages;
            } else {
                self.failure.get_or_insert(RunError::HostFull);
            }
        }
    }

    // What policies may ask.

    /// Bytes of GPU memory that nothing holds.
    pub fn free_bytes(&self) -> u64 {
        self.free_chunks * uvmsim_machine::BLOCK
    }

    /// Root chunks that nothing holds.
    pub fn free_chunks(&self) -> u64 {
        self.free_chunks + self.pending.len() as u64
    }

    /// Whether all of a block's pages that are live are in GPU memory.
    pub fn resident(&self, block: u32) -> bool {
        let b = &self.blocks[block as usize];
        (b.live - b.gpu).is_empty()
    }

    /// Whether every page of tensor `t` is in GPU memory or on its way.
    pub fn tensor_resident(&self, t: u32) -> bool {
        self.layout
            .parts(self.workload, t)
            .all(|(b, region)| PageMask::from(region).is_subset(&self.blocks[b as usize].gpu))
    }

    /// Requests in the prefetch queues.
    pub fn queued(&self) -> usize {
        self.prefetches.iter().map(|q| q.items.len()).sum()
    }

    /// Blocks in the eviction queue.
    pub fn evicting(&self) -> u64 {
        self.evicts.iter().map(|q| q.len() as u64).sum()
    }

    // What policies may say and request.

    /// The policy's time is `now`, in steps of its own, from now on.
    pub fn set_clock(&mut self, now: u32) {
        self.clock = now;
        self.roots.set_now(self.owner, now);
    }

    /// `block` should not be reclaimed while others can be, until the policy's time is
    /// over that is `ahead` from now.
    pub fn expect(&mut self, block: u32, ahead: u32) {
        let until = self.clock.wrapping_add(ahead);
        self.roots.expect(block, self.owner, until);
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
        let parts: Vec<_> = self.layout.parts(self.workload, t).collect();
        for (b, region) in parts {
            let pages = PageMask::from(region);
            let block = &mut self.blocks[b as usize];
            // What has not left yet stays.
            block.leaving -= pages;
            if (pages - block.mapped()).is_empty() && block.queued == 0 {
                self.cpu(self.machine.prefetch_resident);
                self.touch_lru(b);
            } else {
                self.cpu(self.machine.prefetch_block);
                self.enqueue(b, pages);
            }
        }
    }

    /// Brings a block's pages into GPU memory, those that it ever had there.
    pub fn prefetch_block(&mut self, block: u32) {
        let b = &self.blocks[block as usize];
        let pages = (b.seen | b.live) - b.gpu;
        if !pages.is_empty() && b.queued == 0 {
            self.cpu(self.machine.prefetch_block);
            self.enqueue(block, pages);
        }
    }

    fn enqueue(&mut self, block: u32, pages: PageMask) {
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
            chunk_at: None,
        });
        self.pump_next = self.pump_next.min(issue);
    }

    /// Copies tensor `t` out of GPU memory and frees what it held there.
    pub fn evict(&mut self, t: u32, to: Tier) {
        self.cpu(self.machine.prefetch_call);
        let parts: Vec<_> = self.layout.parts(self.workload, t).collect();
        for (b, region) in parts {
            let pages = PageMask::from(region) & self.blocks[b as usize].gpu;
            if !pages.is_empty() {
                self.cpu(self.machine.prefetch_block);
                let issue = self.cpu_free;
                let block = &self.blocks[b as usize];
                if ((pages & block.live) - (block.host | block.ssd)).is_empty() {
                    // Nothing to copy, so nothing to wait for.
                    self.copy_out(b, pages, issue, to, false);
                    self.pump_next = self.pump_next.min(issue);
                    continue;
                }
                self.queue_eviction(Evict {
                    block: b,
                    pages,
                    issue,
                    to,
                });
            }
        }
    }

    fn queue_eviction(&mut self, e: Evict) {
        self.blocks[e.block as usize].leaving |= e.pages;
        self.pump_next = self.pump_next.min(e.issue);
        self.evicts[usize::from(e.to == Tier::Ssd)].push_back(e);
    }

    /// When the next eviction could start, and its queue.
    fn next_eviction(&self) -> (u64, usize) {
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
    fn start_eviction(&mut self, q: usize, t: u64, policy: &dyn Policy) {
        if let Some(e) = self.evicts[q].pop_front() {
            let block = &mut self.blocks[e.block as usize];
            let pages = e.pages & block.leaving;
            block.leaving -= pages;
            if !pages.is_empty() {
                self.copy_out(e.block, pages, t.max(e.issue), e.to, policy.invalidates());
            }
        }
    }

    /// Copies tensor `t` out of GPU memory and keeps it there, so that it can be
    /// dropped later without a copy.
    pub fn copy(&mut self, t: u32, to: Tier) {
        self.cpu(self.machine.prefetch_call);
        let parts: Vec<_> = self.layout.parts(self.workload, t).collect();
        for (block, region) in parts {
            self.cpu(self.machine.prefetch_block);
            let issue = self.cpu_free;
            self.copies.push_back(Evict {
                block,
                pages: region.into(),
                issue,
                to,
            });
            self.pump_next = self.pump_next.min(issue);
        }
    }

    /// Copies a block out of GPU memory.
    pub fn evict_block(&mut self, block: u32, to: Tier) {
        self.cpu(self.machine.prefetch_block);
        let pages = self.blocks[block as usize].gpu;
        let issue = self.cpu_free;
        self.queue_eviction(Evict {
            block,
            pages,
            issue,
            to,
        });
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
        let parts: Vec<_> = self.layout.parts(self.workload, t).collect();
        for (b, region) in parts {
            self.cpu(cost);
            let pages = PageMask::from(region);
            if eager {
                let block = &mut self.blocks[b as usize];
                block.unmapped |= pages & block.gpu;
            }
            self.forget(b, pages);
        }
    }

    /// As a lazy discard, by an allocator that needs no call for it.
    pub fn release(&mut self, t: u32) {
        let parts: Vec<_> = self.layout.parts(self.workload, t).collect();
        for (b, region) in parts {
            self.forget(b, region.into());
        }
    }

    /// The next kernel waits until the driver has processed all requests made so
    /// far: they are in its stream.
    pub fn in_stream(&mut self) {
        self.gate = self.cpu_free;
    }

    fn cpu(&mut self, cost: u64) {
        self.cpu_free = self.cpu_free.max(self.now) + cost;
    }

    // State changes.

    /// The contents of `pages` no longer matter.
    fn forget(&mut self, b: u32, pages: PageMask) {
        let block = &mut self.blocks[b as usize];
        block.live -= pages;
        block.ssd -= pages;
        let in_host = block.host & pages;
        block.host -= pages;
        self.host_pages -= u64::from(in_host.count());
        let dead = block.chunk && (block.gpu & block.live).is_empty();
        if dead && self.roots.queue_of(b) != Some(Evictable::Discarded) {
            let _ = self.roots.set(b, Evictable::Discarded);
        }
    }

    /// The GPU has written `pages`, which it has.
    pub(crate) fn written(&mut self, b: u32, pages: PageMask) {
        let block = &mut self.blocks[b as usize];
        block.live |= pages;
        if !((block.host | block.ssd) & pages).is_empty() {
            self.host_pages -= u64::from((block.host & pages).count());
            block.host -= pages;
            block.ssd -= pages;
        }
        if self.roots.queue_of(b) == Some(Evictable::Discarded) {
            self.touch_lru(b);
        }
    }

    /// Marks the pages of `t` as a dead tensor's, or as a living one's.
    pub(crate) fn mark_dead(&mut self, t: u32, dead: bool) {
        let parts: Vec<_> = self.layout.parts(self.workload, t).collect();
        for (b, region) in parts {
            let block = &mut self.blocks[b as usize];
            if dead {
                block.dead |= region.into();
            } else {
                block.dead -= region.into();
            }
        }
    }

    /// `pages` are no longer in GPU memory as of time `t`.
    fn leave(&mut self, b: u32, pages: PageMask, t: u64) {
        let block = &mut self.blocks[b as usize];
        self.flow[1] += u64::from((block.gpu & pages).count());
        block.gpu -= pages;
        block.unmapped -= pages;
        if block.chunk && block.gpu.is_empty() {
            block.chunk = false;
            self.roots.remove(b);
            self.pending.push(Reverse(t));
        }
    }

    /// Makes room for `pages` pages of `b` in host memory, if need be by dropping copies
    /// of what is elsewhere too; but not `b`'s, which is about to leave that elsewhere.
    fn make_host_room(&mut self, b: u32, pages: u16) -> bool {
        let mut listed = false;
        let mut room = true;
        while room && self.host_pages + u64::from(pages) > self.host_cap {
            match self.clean.pop_front() {
                Some(clean) if clean == b => listed = true,
                Some(clean) => {
                    let block = &mut self.blocks[clean as usize];
                    block.clean_listed = false;
                    let spare = block.host & (block.gpu | block.ssd);
                    block.host -= spare;
                    self.host_pages -= u64::from(spare.count());
                }
                None => room = false,
            }
        }
        if listed {
            self.clean.push_front(b);
        }
        room
    }

    /// Copies `pages` of `b` out and drops them, from time `t` on; returns when
    /// that is done.
    fn copy_out(&mut self, b: u32, pages: PageMask, t: u64, to: Tier, invalidates: bool) -> u64 {
        let block = &mut self.blocks[b as usize];
        let pages = pages & block.gpu;
        if invalidates {
            let dead = pages & block.dead;
            self.host_pages -= u64::from((block.host & dead).count());
            block.live -= dead;
            block.host -= dead;
            block.ssd -= dead;
        }
        self.out.dropped += PAGE * u64::from((pages - block.live).count());
        let end = self.write_out(b, pages, t, to);
        self.note_clean(b);
        self.blocks[b as usize].gone_at = end;
        self.leave(b, pages, end);
        end
    }

    /// Copies those of `pages` out that have no copy outside, from time `t` on;
    /// returns when that is done.
    fn write_out(&mut self, b: u32, pages: PageMask, t: u64, to: Tier) -> u64 {
        let block = &self.blocks[b as usize];
        let dirty = (pages & block.gpu & block.live) - (block.host | block.ssd);
        let t = t.max(block.ready_at);
        if dirty.is_empty() {
            return t;
        }
        let bytes = u64::from(dirty.count()) * PAGE;
        let has_ssd = self.machine.ssd_write > 0.0;
        let host = (to == Tier::Host || !has_ssd) && self.make_host_room(b, dirty.count());
        let block = &mut self.blocks[b as usize];
        let (start, end);
        if host {
            block.host |= dirty;
            self.host_pages += u64::from(dirty.count());
            self.out.host_peak = self.out.host_peak.max(self.host_pages * PAGE);
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

    /// Remembers that `b` may have host copies that can be dropped.
    fn note_clean(&mut self, b: u32) {
        let block = &mut self.blocks[b as usize];
        if !block.clean_listed && !(block.host & (block.gpu | block.ssd)).is_empty() {
            block.clean_listed = true;
            self.clean.push_back(b);
        }
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
        self.flow[0] += u64::from(wanted.count());
        if self.machine.keep_clean == 0 {
            block.host -= from_host;
            self.host_pages -= u64::from(from_host.count());
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
        self.note_clean(b);
        self.touch_lru(b);
        end
    }

    /// `b` was migrated or prefetched.
    pub(crate) fn touch_lru(&mut self, b: u32) {
        // The queues were made for all blocks: no call about one fails.
        let _ = self.roots.used_by(b, HOLDER);
        if !self.blocks[b as usize].pinned {
            let _ = self.roots.insert(b, HOLDER);
        }
    }

    // Root chunks.

    fn settle(&mut self, t: u64) {
        while self.pending.peek().is_some_and(|&Reverse(at)| at <= t) {
            self.pending.pop();
            self.free_chunks += 1;
        }
    }

    /// Gives `b` a root chunk that is wanted at time `t`; returns when it is free.
    /// `None`: nothing can be reclaimed.
    pub(crate) fn take_chunk(&mut self, t: u64, demand: bool, policy: &dyn Policy) -> Option<u64> {
        self.settle(t);
        if self.free_chunks > 0 {
            self.free_chunks -= 1;
            return Some(t);
        }
        if let Some(Reverse(at)) = self.pending.pop() {
            return Some(at);
        }
        while let Some(v) = self.victim().filter(|v| v.queue < Evictable::Used) {
            // Lazily discarded pages are still mapped.
            let mapped = !self.blocks[v.chunk as usize].mapped().is_empty();
            let cost = if mapped {
                self.machine.tlb_invalidate
            } else {
                0
            };
            self.copy_out(v.chunk, PageMask::FULL, t + cost, Tier::Host, false);
            if let Some(Reverse(at)) = self.pending.pop() {
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
            if let Some(Reverse(at)) = self.pending.pop() {
                return Some(at);
            }
        }
        // For a prefetch nothing goes that is expected.
        let v = self.victim().filter(|v| demand || !v.expected)?;
        let cost = self.machine.evict_overhead + self.machine.tlb_invalidate;
        self.out.reclaimed += 1;
        self.copy_out(
            v.chunk,
            PageMask::FULL,
            t + cost,
            policy.reclaim_to(),
            policy.invalidates(),
        );
        self.pending.pop().map(|Reverse(at)| at)
    }

    /// What the driver's queues choose to reclaim next; none of the fault batch that is
    /// being serviced.
    fn victim(&self) -> Option<Victim> {
        self.roots.victim()
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

    fn unstage(&mut self) -> Option<u64> {
        let staged = self
            .prefetches
            .iter_mut()
            .flat_map(|q| q.items.iter_mut().take(STAGED));
        let at = staged.filter_map(|p| p.chunk_at.take()).next()?;
        self.staged -= 1;
        Some(at)
    }

    /// Bytes of GPU memory in root chunks that something holds.
    pub(crate) fn used_bytes(&self) -> u64 {
        (self.chunks - self.free_chunks - self.pending.len() as u64) * uvmsim_machine::BLOCK
    }

    fn note_gpu_peak(&mut self) {
        self.out.gpu_peak = self.out.gpu_peak.max(self.used_bytes());
    }

    // Queues.

    /// A kernel has started: what was blocked may find victims now.
    pub(crate) fn unblock(&mut self) {
        let now = self.now;
        for q in &mut self.prefetches {
            if q.blocked {
                q.blocked = false;
                q.base = q.base.max(now);
                self.pump_next = self.pump_next.min(now);
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
                    self.note_clean(e.block);
                }
            } else {
                // Of two that could start, the SSD's: it leaves the link soon.
                let queue = [FROM_SSD, 0, FRESH]
                    .into_iter()
                    .find(|&q| starts[q] == first);
                self.start_prefetch(queue.unwrap_or(FRESH), first);
            }
            if self.failure.is_some() {
                return;
            }
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
                    self.staged += 1;
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
            self.staged -= 1;
            if block.chunk {
                self.pending.push(Reverse(at));
            } else {
                block.chunk = true;
            }
        }
        if !self.blocks[item.block as usize].chunk {
            return;
        }
        self.note_gpu_peak();
        self.copy_in(item.block, item.pages, t);
    }

    // Fault batches.

    /// Starts to service a fault batch: its blocks are not reclaimed until that is done.
    pub(crate) fn begin_batch(&mut self, blocks: impl Iterator<Item = u32>) {
        for b in blocks {
            self.roots.remove(b);
            self.blocks[b as usize].pinned = true;
            self.batch.push(b);
        }
    }

    /// The batch has been serviced.
    pub(crate) fn end_batch(&mut self) {
        for b in std::mem::take(&mut self.batch) {
            let block = &mut self.blocks[b as usize];
            block.pinned = false;
            if block.chunk {
                let _ = self.roots.insert(b, HOLDER);
            }
        }
    }

    // Checks.

    /// Bytes of GPU memory by kind, then of pages that hold nothing alive.
    pub(crate) fn memory_by_kind(&self, k: u32) -> [u64; 7] {
        let mut out = [0; 7];
        let mut alive = 0;
        for (i, t) in self.workload.tensors.iter().enumerate() {
            if t.uses.is_empty() || !(t.lasting || (t.first() <= k && k <= t.last())) {
                continue;
            }
            let pages: u64 = self
                .layout
                .parts(self.workload, i as u32)
                .map(|(b, region)| u64::from((self.blocks[b as usize].gpu & region.into()).count()))
                .sum();
            out[t.kind as usize] += pages * PAGE;
            alive += pages * PAGE;
        }
        let all: u64 = self
            .blocks
            .iter()
            .map(|b| u64::from(b.gpu.count()) * PAGE)
            .sum();
        out[6] = all.saturating_sub(alive);
        out
    }

    /// Whether everything adds up: no live page without a copy, no memory over
    /// its limit, as many chunks as there are, as many pages in as came and left.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let mut chunks = self.free_chunks + self.pending.len() as u64 + self.staged;
        let (mut host, mut gpu) = (0, 0);
        for (i, b) in self.blocks.iter().enumerate() {
            if !(b.live - (b.gpu | b.host | b.ssd)).is_empty() {
                return Err(RunError::Lost { block: i as u32 });
            }
            if b.chunk == b.gpu.is_empty() {
                return Err(RunError::Accounts {
                    what: "chunks and resident pages",
                });
            }
            chunks += u64::from(b.chunk);
            host += u64::from(b.host.count());
            gpu += u64::from(b.gpu.count());
        }
        let whats = [
            (chunks == self.chunks, "root chunks"),
            (
                host == self.host_pages && host <= self.host_cap,
                "host pages",
            ),
            (
                gpu == self.flow[0] - self.flow[1],
                "pages that came and left",
            ),
            (gpu * PAGE <= self.machine.gpu_mem, "GPU memory"),
        ];
        match whats.into_iter().find(|(ok, _)| !ok) {
            Some((_, what)) => Err(RunError::Accounts { what }),
            None => Ok(()),
        }
    }
}
