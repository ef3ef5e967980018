// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The state of the machine: va_blocks, memories, links, queues.
//!
//! Its parts: what is known of a va_block (`block.rs`), the memories (`memory.rs`), what waits
//! (`queues.rs`), what policies ask for (`requests.rs`), what the driver's prefetch worker does
//! (`worker.rs`), what becomes of pages (`pages.rs`), which blocks
//! have left (`left.rs`), and whether it all adds up (`check.rs`).

mod block;
mod check;
mod left;
mod memory;
mod pages;
mod queues;
mod requests;
mod worker;

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ops::Range;

use uvm_policy::evict::Owner;
use uvm_policy::evict::RootChunks;
use uvm_policy::mask::PageMask;
use uvmsim_machine::Machine;

use crate::links::Links;
use crate::plan::What;
use crate::record::Recorder;
use crate::result::Outcome;
use crate::run::RunError;
use crate::workload::blocks_of;
use crate::workload::Layout;
use crate::workload::Workload;
use block::Block;
use memory::Chunks;
use memory::Host;
use queues::Evict;
use queues::Queue;
pub(crate) use worker::Tables;

/// The process that uses all chunks, as the eviction queues number them.
const HOLDER: u64 = 1;

/// A time that never comes: nothing is due.
pub(crate) const NEVER: u64 = u64::MAX;

/// The machine, as a policy sees it.
pub struct System<'a> {
    /// The constants of the machine.
    pub machine: &'a Machine,
    /// The step that runs on it.
    pub workload: &'a Workload,
    /// Where its tensors lie.
    pub layout: &'a Layout,
    /// Virtual time, in nanoseconds.
    pub now: u64,
    pub(crate) blocks: Vec<Block>,
    pub(crate) links: Links,
    /// When the driver's thread for requests is free.
    cpu_free: u64,
    /// When the next kernel may start, for requests in its stream.
    pub(crate) gate: u64,
    pub(crate) chunks: Chunks,
    /// The driver's queues of the root chunks in use; a chunk has its block's number.
    roots: RootChunks,
    /// The process whose policy says which blocks are expected.
    owner: Owner,
    /// The policy's time, in which it says until when a block is expected.
    clock: u32,
    host: Host,
    /// From host memory, from the SSD, and of pages that need no copy.
    prefetches: [Queue; 3],
    /// To host memory, and to the SSD.
    evicts: [VecDeque<Evict>; 2],
    /// Copies of what stays; evictions go first.
    copies: VecDeque<Evict>,
    pub(crate) pump_next: u64,
    /// Waiting for evictions within a fault.
    pub(crate) evict_wait: u64,
    pub(crate) out: Outcome,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) failure: Option<RunError>,
    /// The blocks that have left since the policy last asked, if it asks.
    left: Option<Vec<u32>>,
    zeroing: bool,
    /// Parts of tensors that requests may name, from first byte to end.
    named: Vec<Range<u64>>,
    /// What leaves or is copied once the kernel is past it, by va_block.
    behind: BTreeMap<u32, Vec<(PageMask, What)>>,
    /// The blocks whose chunks were reclaimed, in order.
    #[cfg(test)]
    pub(crate) victims: Vec<u32>,
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
        let mut roots = RootChunks::with_policy(blocks as u32, machine.evict_choice())
            .map_err(|_| RunError::Infeasible("no memory for the eviction queues".into()))?;
        roots.set_room(machine.chunks() as u32);
        let mut system = Self {
            machine,
            workload,
            layout,
            now: 0,
            blocks: vec![Block::default(); blocks],
            links: Links::new(machine),
            cpu_free: 0,
            gate: 0,
            chunks: Chunks::new(machine.chunks()),
            roots,
            owner: 0,
            clock: 0,
            host: Host::new(machine.host_mem),
            prefetches: Default::default(),
            evicts: Default::default(),
            copies: VecDeque::new(),
            pump_next: NEVER,
            evict_wait: 0,
            out: Outcome::default(),
            recorder: None,
            failure: None,
            left: None,
            zeroing,
            named: Vec::new(),
            behind: BTreeMap::new(),
            #[cfg(test)]
            victims: Vec::new(),
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

    /// Root chunks that nothing holds.
    pub fn free_chunks(&self) -> u64 {
        self.chunks.unheld()
    }

    /// Requests in the prefetch queues.
    pub fn queued(&self) -> usize {
        self.prefetches.iter().map(|q| q.items.len()).sum()
    }

    /// Blocks in the eviction queue.
    pub fn evicting(&self) -> u64 {
        self.evicts.iter().map(|q| q.len() as u64).sum()
    }

    /// The parts of va_blocks that tensor `t` covers, or the part of a tensor that has this name.
    fn parts(&self, t: u32) -> impl Iterator<Item = (u32, PageMask)> {
        let part = (t as usize).checked_sub(self.workload.tensors.len());
        let range = match part {
            Some(part) => self.named[part].clone(),
            None => self.layout.range(self.workload, t),
        };
        blocks_of(range).map(|(b, region)| (b, region.into()))
    }

    fn cpu(&mut self, cost: u64) {
        self.cpu_free = self.cpu_free.max(self.now) + cost;
    }
}
