// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The driver and the simulator: what the GPU accesses, migrates and discards in a random order, and
//! what the prefetcher brings and pushes out, makes the same chunks go, one after the other, and brings
//! the same pages.
//!
//! [`Driver`] is what the driver's adapters make of its policy modules, call by call: C's hooks
//! (`src/nvidia-uvm-c/evict`, `discard`, `fault`) and upstream around them, for one process and one GPU.

use std::collections::BTreeSet;

use proptest::prelude::*;
use uvm_policy::discard::BlockState;
use uvm_policy::discard::Facts;
use uvm_policy::discard::Memory;
use uvm_policy::discard::Mode;
use uvm_policy::evict::Change;
use uvm_policy::evict::Choice;
use uvm_policy::evict::Chunk;
use uvm_policy::evict::Holder;
use uvm_policy::evict::Lists;
use uvm_policy::evict::Owner;
use uvm_policy::evict::Queue;
use uvm_policy::evict::RootChunks;
use uvm_policy::mask::PageMask;
use uvm_policy::mask::Region;
use uvm_policy::mask::PAGES;
use uvm_policy::tree;

use super::*;
use crate::run::collect;
use crate::run::service;
use crate::workload::Touch;

#[path = "../../../../tests/model.rs"]
#[allow(dead_code)] // Miri, which runs fewer steps, runs none of these.
mod random;

use random::model;

/// The address of the one VA space.
const SPACE: Holder = 0xffff_8881_0000_8000;
const GPU: Memory = Memory(1);
/// The pages of a 64 KiB page, and the share of a subtree, in percent: upstream's.
const BIG: u16 = 16;
const THRESHOLD: u32 = 51;

/// A va_block of managed memory, whole and aligned.
#[derive(Default)]
struct VaBlock {
    chunk: Option<Chunk>,
    /// Pages that were ever resident anywhere.
    populated: PageMask,
    resident: PageMask,
    /// All of it went to the host, and the chunk stayed.
    pushed_out: bool,
    /// From its first discard on.
    state: Option<BlockState>,
}

impl VaBlock {
    fn discarded(&self) -> PageMask {
        let state = self.state.as_ref();
        state.map_or(PageMask::EMPTY, BlockState::discarded)
    }
}

/// The driver, as far as it decides.
struct Driver {
    roots: RootChunks,
    /// The va_block that each root chunk backs.
    backs: Vec<Option<u32>>,
    blocks: Vec<VaBlock>,
    /// The va_blocks whose chunks went, in order.
    victims: Vec<u32>,
    /// The owner of the worker's marks, and its kernel's number.
    owner: Owner,
    now: u32,
    /// What had no room, and up to which kernel it is expected.
    held: Vec<(u32, u32)>,
}

/// The PMM agrees to every chunk that the queues choose.
struct Agrees;

impl Lists for Agrees {
    fn evictable(&mut self, _: Chunk) -> bool {
        true
    }
}

impl Driver {
    fn new(chunks: u32, blocks: usize, choice: Choice) -> Self {
        let mut roots = RootChunks::with_policy(chunks, choice).unwrap();
        (0..chunks).for_each(|c| roots.change(c, Change::Free { zeroed: false }).unwrap());
        Self {
            backs: vec![None; chunks as usize],
            blocks: (0..blocks).map(|_| VaBlock::default()).collect(),
            victims: Vec::new(),
            owner: roots.add_owner(SPACE),
            now: 0,
            held: Vec::new(),
            roots,
        }
    }

    /// `uvm_va_block_service_locked` for the faults of a batch on one va_block, with what
    /// `uvm_perf_prefetch_get_hint_va_block` adds.
    fn fault(&mut self, b: u32, faulted: PageMask) {
        let shape = tree::Shape::WHOLE;
        let mut leaves = self.blocks[b as usize].resident | faulted;
        tree::grow(&mut leaves, shape, Region::WHOLE, BIG, &faulted, None);
        let along = tree::prefetch(&leaves, shape, &faulted, Region::WHOLE, THRESHOLD);
        self.make_resident(b, faulted | along);
    }

    /// `uvm_va_block_make_resident`, with the chunk that it takes if there is none, and
    /// `uvm_va_block_retry_deinit` behind it.
    fn make_resident(&mut self, b: u32, pages: PageMask) {
        let is_new = self.blocks[b as usize].chunk.is_none();
        let chunk = match self.blocks[b as usize].chunk {
            Some(chunk) => chunk,
            None => self.allocate(b),
        };
        let block = &mut self.blocks[b as usize];
        block.resident |= pages;
        block.populated |= pages;
        block.pushed_out = false;
        if let Some(state) = &mut block.state {
            state.prepare(GPU, &pages);
            state.accessed(&pages);
        }
        // While the chunk is being allocated nobody knows whose it is.
        let holder = if is_new { 0 } else { SPACE };
        self.roots.used_by(chunk, holder).unwrap();
        if is_new {
            self.roots.change(chunk, Change::Whole(SPACE)).unwrap();
        }
    }

    /// `uvm_pmm_gpu_alloc`, which evicts where nothing is free. The chunk is pinned.
    fn allocate(&mut self, b: u32) -> Chunk {
        let chunk = self.roots.choose(&mut Agrees).expect("a chunk");
        self.roots.begin_eviction(chunk);
        if let Some(victim) = self.backs[chunk as usize].replace(b) {
            let block = &mut self.blocks[victim as usize];
            // The simulator takes the chunk of what was pushed out at once.
            if !block.pushed_out {
                self.victims.push(victim);
            }
            if let Some(state) = &mut block.state {
                let needless = state.needless(&block.resident);
                state.dropped(&needless);
                state.released(GPU, Region::WHOLE);
            }
            block.resident = PageMask::EMPTY;
            block.chunk = None;
            // uvm_pmm_gpu_mark_chunk_evicted
            self.roots.evicted(chunk).unwrap();
        }
        self.roots.change(chunk, Change::Pinned).unwrap();
        // Before the chunk comes back by a change, which is that of an eviction that has failed.
        self.roots.eviction_over(chunk, true).unwrap();
        let block = &mut self.blocks[b as usize];
        block.chunk = Some(chunk);
        if let Some(state) = &mut block.state {
            state.added(GPU, Region::WHOLE, &PageMask::FULL);
        }
        chunk
    }

    /// What the prefetch worker does with a block that it expects up to kernel `until`
    /// (`prefetch/worker/run.rs`, `bring` and `way`).
    fn bring(&mut self, b: u32, until: u32) -> bool {
        let block = &self.blocks[b as usize];
        let is_new = block.resident.is_empty();
        let wanted = block.populated - block.discarded();
        if !(wanted - block.resident).is_empty() {
            if block.chunk.is_none() && self.roots.victim().is_some_and(|v| v.expected) {
                self.held.push((b, until));
                return true;
            }
            self.make_resident(b, wanted);
            if let Some(chunk) = self.blocks[b as usize].chunk.filter(|_| is_new) {
                self.roots.brought(chunk, self.owner);
            }
        }
        let chunk = self.blocks[b as usize].chunk;
        if let Some(chunk) = chunk {
            self.roots.expect(chunk, self.owner, until);
        }
        chunk.is_some()
    }

    /// The next kernel begins.
    fn kernel(&mut self) {
        self.now += 1;
        self.roots.begins(self.owner);
        self.roots.set_now(self.owner, self.now);
        for (b, until) in std::mem::take(&mut self.held) {
            self.bring(b, until);
        }
    }

    /// The worker pushes a block out (`prefetch/worker/room.rs`): `UVM_MIGRATE` to the host, which
    /// leaves the chunk to the block.
    fn push_out(&mut self) {
        let Some(chunk) = self.roots.pick_early(SPACE) else {
            return;
        };
        if let Some(b) = self.backs[chunk as usize] {
            let block = &mut self.blocks[b as usize];
            if let Some(state) = &mut block.state {
                let stale = state.stale(&block.resident, &PageMask::EMPTY);
                state.dropped(&stale);
            }
            block.resident = PageMask::EMPTY;
            block.pushed_out = true;
        }
        // block_clear_resident_processor
        self.roots.set(chunk, Queue::Unused).unwrap();
    }

    /// What the walk of a discard does with one va_block (`discard/walk.rs`), of which nothing is
    /// mapped with one entry and pages are told apart.
    fn discard(&mut self, b: u32, region: Region, eager: bool) {
        let mode = if eager { Mode::Eager } else { Mode::Lazy };
        let block = &mut self.blocks[b as usize];
        let state = block.state.get_or_insert_with(|| {
            let mut state = BlockState::new(PAGES);
            state.track(GPU, &block.resident).unwrap();
            state
        });
        let facts = Facts {
            // What is resident in host memory is dropped there.
            resident: block.resident,
            mapped_2m: false,
        };
        let plan = state.plan(region, mode, 0, &facts);
        block.resident -= plan.drop;
        state.commit(&plan);
        let queue = state.queue(GPU, &block.resident);
        if let Some(chunk) = block.chunk {
            if block.resident.is_empty() && !plan.drop.is_empty() {
                // block_clear_resident_processor
                self.roots.set(chunk, Queue::Unused).unwrap();
            }
            if queue == Queue::Discarded {
                self.roots.set(chunk, Queue::Discarded).unwrap();
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The GPU goes through these tensors at once, and writes to them.
    Access(Vec<u32>),
    /// `UVM_MIGRATE` to the GPU, and a kernel that writes all of it.
    Migrate(u32),
    /// A discard of a tensor, eager or not.
    Discard(u32, bool),
    /// The next kernel, for the prefetcher.
    Kernel,
    /// The prefetcher expects a va_block for the kernel that is so many ahead, and brings it.
    Bring(u32, u32),
    /// The prefetcher pushes a va_block out.
    PushOut,
}

/// The tensors of a world.
const TENSORS: u32 = 40;

fn step() -> impl Strategy<Value = Step> {
    let tensor = 0..TENSORS;
    prop_oneof![
        4 => prop::collection::vec(tensor.clone(), 1..4).prop_map(Step::Access),
        2 => tensor.clone().prop_map(Step::Migrate),
        3 => (tensor.clone(), any::<bool>()).prop_map(|(t, eager)| Step::Discard(t, eager)),
        1 => Just(Step::Kernel),
        4 => (tensor, 0..8u32).prop_map(|(t, ahead)| Step::Bring(t, ahead)),
        1 => Just(Step::PushOut),
    ]
}

/// Tensors of so many quarters of a MiB, all of which last.
fn world(sizes: &[u64]) -> Workload {
    let named = sizes.iter().enumerate();
    let tensors = named.map(|(i, n)| (format!("t{i}"), n * MIB / 4, Kind::Weight));
    let uses = (0..sizes.len() as u32).map(Use::read);
    let kernels = vec![Kernel::new("k", 1000, uses)];
    Workload::new("world", tensors.collect(), kernels)
}

/// Both sides, one step after the other.
///
/// Left out is where the simulator is not meant to do as the driver does. Its copies take their time,
/// and a chunk for them is chosen when the link is free, not when they are asked for: so each step is
/// over before the next begins, and what is migrated is one va_block. A chunk of which all pages were
/// migrated to the host is free at once, and not the block's until somebody needs it.
struct Pair<'a> {
    system: System<'a>,
    driver: Driver,
    /// Tensors that were lazily discarded, and have to be migrated before they are used.
    lazy: BTreeSet<u32>,
}

impl Pair<'_> {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Access(ref tensors) => {
                for &t in tensors {
                    if self.lazy.remove(&t) {
                        self.migrate(t);
                    }
                }
                let touches: Vec<_> = tensors.iter().flat_map(|&t| self.touches(t)).collect();
                self.access(&touches);
            }
            Step::Migrate(t) if self.touches(t).len() > 1 => self.access(&self.touches(t)),
            Step::Migrate(t) => self.migrate(t),
            Step::Kernel => self.kernel(),
            Step::Bring(t, ahead) => {
                let b = self.touches(t)[0].block;
                if !self.driver.bring(b, self.driver.now + ahead) {
                    return;
                }
                self.system.expect(b, ahead);
                self.system.prefetch_block(b);
                self.finish();
            }
            Step::PushOut => {
                self.driver.push_out();
                self.system.push_out();
                self.finish();
            }
            // In the driver it keeps its chunk, and a discard would put that behind others.
            Step::Discard(t, _) if self.has_pushed_out(t) => {}
            Step::Discard(t, eager) => {
                let eager = eager || self.touches(t).len() > 1;
                self.lazy.remove(&t);
                if !eager {
                    self.lazy.insert(t);
                }
                for touch in self.touches(t) {
                    self.driver.discard(touch.block, touch.region, eager);
                }
                self.system.discard(t, eager);
                self.finish();
            }
        }
    }

    fn kernel(&mut self) {
        self.driver.kernel();
        self.system.set_clock(self.driver.now);
        self.system.unblock();
        self.finish();
    }

    fn has_pushed_out(&self, t: u32) -> bool {
        let mut touches = self.touches(t).into_iter();
        touches.any(|touch| self.driver.blocks[touch.block as usize].pushed_out)
    }

    fn migrate(&mut self, t: u32) {
        self.lazy.remove(&t);
        // A migration that a program asks for takes what is expected as well, where there is nothing
        // else; the simulator's is a planner's, and waits.
        while self.driver.roots.victim().is_some_and(|v| v.expected) {
            self.kernel();
        }
        for touch in self.touches(t) {
            self.driver.make_resident(touch.block, touch.pages());
        }
        self.system.prefetch(t);
        self.finish();
        for touch in self.touches(t) {
            self.system.written(touch.block, touch.pages());
        }
    }

    fn touches(&self, t: u32) -> Vec<Touch> {
        let parts = self.system.layout.parts(self.system.workload, t);
        let touch = |(block, region)| Touch {
            block,
            region,
            read: false,
            write: true,
        };
        parts.map(touch).collect()
    }

    /// As long as a page is missing, the GPU faults, and the driver services a batch. What has come stays as long
    /// as the kernel needs it, so that each va_block takes two batches at most, of 256 faults.
    fn access(&mut self, touches: &[Touch]) {
        for i in 0..touches.len() {
            let (b, pages) = (touches[i].block, touches[i].pages());
            let mut rounds = 0;
            while !(pages - self.system.blocks[b as usize].mapped()).is_empty() {
                rounds += 1;
                assert!(rounds <= 2, "va_block {b} needs more batches than two");
                for (b, faulted) in collect(&self.system, &touches[i..], false) {
                    self.driver.fault(b, faulted);
                }
                service(&mut self.system, &mut policies::BaseUvm, &touches[i..]);
                assert!(self.system.failure.is_none());
            }
            self.system.written(b, pages);
        }
    }

    fn finish(&mut self) {
        self.system.pump(u64::MAX / 2, &policies::BaseUvm);
        let free = self.system.links.free(crate::links::Direction::In);
        self.system.now = self.system.now.max(free);
    }

    /// The same chunks went, the same pages are there, and the same of them are discarded.
    fn compare(&self) -> Result<(), String> {
        let (theirs, ours) = (&self.driver.victims, &self.system.victims);
        if theirs != ours {
            return Err(format!(
                "the driver evicts {theirs:?}, the simulator {ours:?}"
            ));
        }
        let blocks = self.driver.blocks.iter().zip(&self.system.blocks);
        for (b, (theirs, ours)) in blocks.enumerate() {
            let discarded = theirs.discarded() & theirs.resident;
            for (what, theirs, ours) in [
                ("resident", theirs.resident, ours.mapped()),
                ("discarded", discarded, ours.discarded & ours.mapped()),
            ] {
                if theirs != ours {
                    let [theirs, ours] = [theirs, ours].map(|m| m.runs().collect::<Vec<_>>());
                    return Err(format!(
                        "of va_block {b} are {what} in the driver {theirs:?}, in the simulator {ours:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// A history that fails is long, and so is what it is shrunk to otherwise.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        max_shrink_iters: 3000,
        ..model(cases)
    }
}

proptest! {
    #![proptest_config(config(768))]

    #[test]
    fn the_driver_and_the_simulator_evict_the_same(
        sizes in prop::collection::vec(4u64..20, TENSORS as usize),
        steps in prop::collection::vec(step(), 1..80),
        choice in prop::sample::select(Choice::ALL),
    ) {
        let w = world(&sizes);
        let l = Layout::new(&w);
        let mut m = machine(32);
        m.evict_policy = choice.number();
        let mut pair = Pair {
            system: System::new(&m, &w, &l, true).unwrap(),
            driver: Driver::new(m.chunks() as u32, l.blocks(), choice),
            lazy: BTreeSet::new(),
        };
        // In the driver a first announcement makes the worker.
        pair.kernel();
        for t in 0..TENSORS {
            for touch in pair.touches(t) {
                pair.driver.blocks[touch.block as usize].populated |= touch.pages();
            }
        }
        for (i, step) in steps.iter().enumerate() {
            pair.step(step);
            let compared = pair.compare();
            compared.map_err(|e| TestCaseError::fail(format!("step {i}, {step:?}: {e}")))?;
            // The simulator does not wait for a kernel if there is room before that.
            while !pair.driver.held.is_empty() {
                pair.step(&Step::Kernel);
                let compared = pair.compare();
                compared.map_err(|e| TestCaseError::fail(format!("kernels after step {i}, {step:?}: {e}")))?;
            }
        }
    }
}
