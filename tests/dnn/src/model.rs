// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The same programs on a model of the driver, on the host: the very tables, queues and
//! marks of the driver, with blocks of 2 MiB for memory and a clock for the rest.
//!
//! A kernel takes its blocks one by one; one that is not on the GPU is a fault, which is served
//! at once. Then it computes, and in that time the worker brings and pushes out as many
//! blocks as the link can move. What comes of it is faulted blocks, and blocks moved; the VM
//! counts faults, of which a block has many.

use crate::program::{Program, BLOCK_PAGES};
use anyhow::{ensure, Result};
use uvm_policy::evict::{Owner, RootChunks};
use uvm_policy::prefetch::{Config, Correlator, ExecId, Feed, Next, UmBlock};
use vgpu_client::BLOCK;

/// Nanoseconds that a block takes on the link of a V100.
const BLOCK_NS: u64 = (BLOCK as f64 / crate::run::V100_LINK * 1e9) as u64;

/// Iterations that are run, unless somebody wants more.
pub const STEPS: u32 = 8;

/// Of these, not counted: all is new to the tables.
const LEARNING: u32 = 2;

/// Whose all chunks are, as the queues number processes.
const PROCESS: u64 = 1;

/// Which parts of the driver are turned on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Prefetch; else learn only.
    pub act: bool,
    /// Chunks kept ready by pre-eviction.
    pub ready: u32,
    /// Kernels to look ahead.
    pub ahead: u32,
    /// Kernels in random order.
    pub shuffled: bool,
}

/// Blocks per iteration, from the third on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Blocks that a kernel faulted on.
    pub faulted: f64,
    /// Moved to the GPU, by faults and prefetches.
    pub moved_in: f64,
    /// Moved to the host.
    pub moved_out: f64,
    /// Of the blocks moved to the host, those moved ahead of need.
    pub pushed_out: f64,
    /// Prefetches that were held back for want of room.
    pub held: f64,
}

struct Model {
    /// The chunk of each block, if it is on the GPU.
    chunk_of: Vec<Option<u32>>,
    /// The block of each chunk.
    block_of: Vec<Option<usize>>,
    free: Vec<u32>,
    roots: RootChunks,
    owner: Owner,
    feed: Feed,
    correlator: Correlator,
    policy: Policy,
    counts: Counts,
}

impl Model {
    fn new(blocks: usize, chunks: u32, policy: Policy) -> Option<Self> {
        let mut roots = RootChunks::new(chunks).ok()?;
        let owner = roots.add_owner(PROCESS);
        let config = Config {
            ahead: policy.ahead,
            ..Config::default()
        };
        Some(Self {
            chunk_of: vec![None; blocks],
            block_of: vec![None; chunks as usize],
            free: (0..chunks).rev().collect(),
            roots,
            owner,
            feed: Feed::new(256, 4096).ok()?,
            correlator: Correlator::new(config).ok()?,
            policy,
            counts: Counts::default(),
        })
    }

    /// Makes room by taking a chunk from what it holds; whether that was moved.
    fn evict(&mut self, chunk: u32) {
        if let Some(block) = self.block_of[chunk as usize].take() {
            self.chunk_of[block] = None;
            self.counts.moved_out += 1.0;
        }
        self.roots.remove(chunk);
        self.roots.unexpect(chunk);
        self.free.push(chunk);
    }

    /// Brings a block; the time that the link takes.
    fn bring(&mut self, block: usize) -> u64 {
        let mut spent = BLOCK_NS;
        if self.free.is_empty() {
            if let Some(chunk) = self.roots.pick() {
                self.evict(chunk);
                spent += BLOCK_NS;
            }
        }
        if let Some(chunk) = self.free.pop() {
            self.chunk_of[block] = Some(chunk);
            self.block_of[chunk as usize] = Some(block);
            let _ = self.roots.used_by(chunk, PROCESS);
            let _ = self.roots.insert(chunk, PROCESS);
            self.counts.moved_in += 1.0;
        }
        spent
    }

    /// The worker, for so long.
    fn work(&mut self, mut nanoseconds: u64) {
        loop {
            self.correlator.absorb(&self.feed, u32::MAX);
            let now = self.correlator.now();
            self.roots.set_now(self.owner, now);
            if !self.policy.act {
                return;
            }
            let spent = match self.correlator.next(256) {
                Next::More => continue,
                Next::Idle
                    if (self.free.len() as u32) < self.policy.ready
                        && self.correlator.foresees() =>
                {
                    let Some(chunk) = self.roots.pick_early(PROCESS) else {
                        return;
                    };
                    self.evict(chunk);
                    self.counts.pushed_out += 1.0;
                    BLOCK_NS
                }
                Next::Idle => return,
                Next::Prefetch(p) => {
                    let block = (p.block.address() / BLOCK) as usize;
                    let expected = |m: &Self| m.roots.victim().is_some_and(|v| v.expected);
                    let mut spent = 0;
                    if self.chunk_of[block].is_none() {
                        if self.free.is_empty() && expected(self) {
                            self.correlator.hold(p);
                            self.counts.held += 1.0;
                            continue;
                        }
                        spent = self.bring(block);
                        if let Some(chunk) = self.chunk_of[block] {
                            self.roots.brought(chunk, self.owner);
                        }
                    }
                    if let Some(chunk) = self.chunk_of[block] {
                        self.roots
                            .expect(chunk, self.owner, now.wrapping_add(p.ahead));
                    }
                    spent
                }
            };
            if nanoseconds < spent {
                return;
            }
            nanoseconds -= spent;
        }
    }

    fn kernel(&mut self, id: u64, blocks: &[usize], nanoseconds: u64) {
        self.roots.begins(self.owner);
        self.feed.announce(ExecId(id));
        // The worker wakes at once; it has the time of one block until the first fault.
        self.work(0);
        for &block in blocks {
            if self.chunk_of[block].is_none() {
                self.counts.faulted += 1.0;
                self.bring(block);
                if let Some(b) = UmBlock::from_address(block as u64 * BLOCK) {
                    self.feed.fault(b);
                }
            }
        }
        self.work(nanoseconds);
    }
}

/// Runs a program `steps` times in `chunks` blocks of memory.
pub fn run(program: &Program, chunks: u32, steps: u32, policy: Policy) -> Result<Counts> {
    ensure!(steps > LEARNING, "more than {LEARNING} iterations, please");
    let blocks = program.pages.div_ceil(BLOCK_PAGES) as usize;
    let model = Model::new(blocks, chunks, policy);
    ensure!(model.is_some(), "no memory");
    let Some(mut model) = model else {
        return Ok(Counts::default());
    };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for step in 0..steps {
        if step == LEARNING {
            model.counts = Counts::default();
        }
        for n in 0..program.launches.len() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let n = match policy.shuffled {
                true => (random >> 8) as usize % program.launches.len(),
                false => n,
            };
            let l = &program.launches[n];
            let mut used = Vec::new();
            for &t in l.reads.iter().chain(&l.writes) {
                let p = program.places[t];
                for b in p.first / BLOCK_PAGES..(p.first + p.pages).div_ceil(BLOCK_PAGES) {
                    if !used.contains(&(b as usize)) {
                        used.push(b as usize);
                    }
                }
            }
            model.kernel(l.id, &used, l.nanoseconds);
        }
    }
    let per = |n: f64| n / f64::from(steps - LEARNING);
    let c = model.counts;
    Ok(Counts {
        faulted: per(c.faulted),
        moved_in: per(c.moved_in),
        moved_out: per(c.moved_out),
        pushed_out: per(c.pushed_out),
        held: per(c.held),
    })
}

/// Prints what the model says of every workload and policy.
pub fn print(chunks: u32, steps: u32) -> Result<()> {
    println!(
        "{:<14} {:<22} {:>8} {:>8} {:>8} {:>8}",
        "workload", "policy", "faulted", "in", "out", "held"
    );
    let bytes = crate::run::footprint(u64::from(chunks) * BLOCK);
    let names = crate::run::WORKLOADS.iter().map(|w| w.0);
    for name in names.chain([crate::run::RANDOM]) {
        let (program, shuffled) = crate::run::program(name, bytes)?;
        let base = Policy {
            shuffled,
            ..Policy::default()
        };
        let on = |ahead, ready| Policy {
            act: true,
            ahead,
            ready,
            ..base
        };
        for (what, policy) in [
            ("uvm", base),
            ("deepum-prefetch N=8", on(8, 0)),
            ("deepum-prefetch N=32", on(32, 0)),
            ("deepum-preevict N=8", on(8, 4)),
            ("deepum-preevict N=32", on(32, 4)),
            ("deepum-preevict N=128", on(128, 4)),
        ] {
            let c = run(&program, chunks, steps, policy)?;
            println!(
                "{name:<14} {what:<22} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
                c.faulted, c.moved_in, c.moved_out, c.held
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKS: u32 = 60;

    fn counts(name: &str, policy: Policy) -> Result<Counts> {
        counts_of(name, STEPS, policy)
    }

    fn counts_of(name: &str, steps: u32, policy: Policy) -> Result<Counts> {
        let (program, shuffled) =
            crate::run::program(name, crate::run::footprint(u64::from(CHUNKS) * BLOCK))?;
        run(&program, CHUNKS, steps, Policy { shuffled, ..policy })
    }

    const ON: Policy = Policy {
        act: true,
        ready: 0,
        ahead: 32,
        shuffled: false,
    };

    #[test]
    fn few_faults_are_left_and_no_more_is_moved() -> Result<()> {
        for (name, left) in [
            ("bert-base", 0.04),
            ("gpt2-l", 0.01),
            ("resnet152", 0.02),
            ("dlrm", 0.1),
        ] {
            let (uvm, ours) = (counts(name, Policy::default())?, counts(name, ON)?);
            assert!(uvm.faulted > 80.0, "{name}: {uvm:?}");
            assert!(
                ours.faulted <= uvm.faulted * left,
                "{name}: {uvm:?} {ours:?}"
            );
            assert!(
                ours.moved_in + ours.moved_out <= (uvm.moved_in + uvm.moved_out) * 1.05,
                "{name}: {uvm:?} {ours:?}"
            );
        }
        Ok(())
    }

    /// DeepUM's table 5 has 2 % of plain UVM's faults left, and less.
    #[test]
    fn over_many_iterations_hardly_a_fault_is_left() -> Result<()> {
        for name in ["bert-base", "gpt2-l", "resnet152", "dlrm"] {
            let (uvm, ours) = (
                counts_of(name, 30, Policy::default())?,
                counts_of(name, 30, ON)?,
            );
            assert!(
                ours.faulted < uvm.faulted * 0.02,
                "{name}: {uvm:?} {ours:?}"
            );
        }
        Ok(())
    }

    /// Most blocks are pushed out ahead of need, where kernels leave the time for that.
    #[test]
    fn pre_eviction_makes_the_room() -> Result<()> {
        for (name, least) in [
            ("bert-base", 0.5),
            ("gpt2-l", 0.5),
            ("resnet152", 0.5),
            ("dlrm", 0.1),
        ] {
            let c = counts(name, Policy { ready: 4, ..ON })?;
            assert!(c.pushed_out > c.moved_out * least, "{name}: {c:?}");
        }
        Ok(())
    }

    #[test]
    fn an_order_that_no_one_can_predict_costs_no_more() -> Result<()> {
        let name = crate::run::RANDOM;
        let uvm = counts(name, Policy::default())?;
        for ready in [0, 4] {
            let ours = counts(name, Policy { ready, ..ON })?;
            assert!(ours.faulted <= uvm.faulted * 1.05, "{uvm:?} {ours:?}");
            assert!(ours.moved_in <= uvm.moved_in * 1.05, "{uvm:?} {ours:?}");
            assert!(ours.moved_out <= uvm.moved_out * 1.05, "{uvm:?} {ours:?}");
        }
        Ok(())
    }
}
