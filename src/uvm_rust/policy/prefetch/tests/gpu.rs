// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A GPU with room for some blocks, whose faults and evictions use the policies.

use super::super::*;
use crate::policy::evict::{Queue, Queues};
use crate::testing::Dice;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Kernels, each with its execution ID and the blocks that it touches.
pub struct Program(Vec<(u64, Vec<u32>)>);

impl Program {
    /// A forward and a backward pass over `layers` layers of `blocks` blocks: each
    /// kernel touches its layer and the one before; the way back in reverse.
    pub fn training(layers: u32, blocks: u32) -> Self {
        let layer = |l: u32| l * blocks..(l + 1) * blocks;
        let touch = |l: u32| layer(l.saturating_sub(1)).chain(layer(l));
        let forward = (0..layers).map(|l| (u64::from(l), touch(l).collect()));
        let back = (0..layers)
            .rev()
            .map(|l| (u64::from(1000 + l), touch(l).rev().collect()));
        Self(forward.chain(back).collect())
    }

    /// Kernels that look things up at random places of a big table.
    pub fn lookups(kernels: u64, blocks: usize, table: usize, rng: &mut Dice) -> Self {
        let places = |_| (0..blocks).map(|_| rng.below(table) as u32).collect();
        Self((0..kernels).zip((0..kernels).map(places)).collect())
    }

    /// The same kernels in another order.
    pub fn shuffled(&self, rng: &mut Dice) -> Self {
        let mut kernels = self.0.clone();
        rng.shuffle(&mut kernels);
        Self(kernels)
    }
}

/// Until which kernel each block is expected.
#[derive(Default)]
pub struct Expected(BTreeMap<UmBlock, u32>);

impl Expected {
    /// `block` faulted, or was handed out, for the kernel that is `ahead`.
    pub fn expect(&mut self, p: &Predictor, block: UmBlock, ahead: u32) {
        if self.needed_in(p, block).is_none_or(|before| ahead > before) {
            self.0.insert(block, p.now().wrapping_add(ahead));
        }
    }

    /// Kernels until the last one that is expected to access `block`.
    pub fn needed_in(&self, p: &Predictor, block: UmBlock) -> Option<u32> {
        let left = self.0.get(&block)?.wrapping_sub(p.now());
        u32::try_from(left as i32).ok()
    }
}

pub struct Gpu {
    predictor: Option<Predictor>,
    expected: Expected,
    /// Which chunk holds a block, and which block a chunk holds.
    resident: BTreeMap<u32, u32>,
    holds: Vec<Option<u32>>,
    queues: Queues,
    /// A prefetch that waits for room.
    held: Option<Prefetch>,
    /// Blocks copied to the GPU.
    pub copies: u64,
}

impl Gpu {
    pub fn new(config: Config, chunks: u32) -> Self {
        Self {
            predictor: Some(Predictor::new(config).unwrap()),
            ..Self::without_prefetch(chunks)
        }
    }

    pub fn without_prefetch(chunks: u32) -> Self {
        let mut queues = Queues::new(chunks).unwrap();
        for c in 0..chunks {
            queues.enqueue(c, Queue::Free).unwrap();
        }
        Self {
            predictor: None,
            expected: Expected::default(),
            resident: BTreeMap::new(),
            holds: (0..chunks).map(|_| None).collect(),
            queues,
            held: None,
            copies: 0,
        }
    }

    /// Runs a program; returns the blocks that faulted. With a seed, the blocks of
    /// each kernel are touched in random order.
    pub fn run(&mut self, program: &Program, seed: u64) -> u64 {
        let mut rng = Dice::new(seed);
        let mut faults = 0;
        for (id, blocks) in &program.0 {
            let mut blocks = blocks.clone();
            if seed != 0 {
                rng.shuffle(&mut blocks);
            }
            if let Some(p) = &mut self.predictor {
                p.on_kernel(ExecId(*id)).unwrap();
            }
            // Time to prefetch until the kernel begins, and while it runs.
            self.prefetch(40);
            for n in blocks {
                if !self.resident.contains_key(&n) {
                    faults += 1;
                    self.migrate(n);
                    if let Some(p) = &mut self.predictor {
                        p.on_fault(UmBlock(n)).unwrap();
                        self.expected.expect(p, UmBlock(n), 0);
                    }
                }
                self.prefetch(1);
            }
        }
        faults
    }

    /// Migrates up to `n` predicted blocks.
    fn prefetch(&mut self, mut n: u32) {
        while n > 0 {
            let held = self.held.take().map(Next::Prefetch);
            let Some(p) = &mut self.predictor else { return };
            let next = held.unwrap_or_else(|| {
                let next = p.next(16);
                if let Next::Prefetch(x) = next {
                    self.expected.expect(p, x.block, x.ahead);
                }
                next
            });
            match next {
                Next::Idle => return,
                Next::More => {}
                Next::Prefetch(x) if self.resident.contains_key(&x.block.0) => {}
                Next::Prefetch(x) => {
                    let victim = self.queues.pick(1000, |c| self.needed_in(c)).unwrap();
                    if victim.expected {
                        self.held = Some(x);
                        return;
                    }
                    self.migrate(x.block.0);
                    n -= 1;
                }
            }
        }
    }

    fn needed_in(&self, chunk: u32) -> Option<u32> {
        let block = UmBlock(self.holds[chunk as usize]?);
        self.expected.needed_in(self.predictor.as_ref()?, block)
    }

    fn migrate(&mut self, block: u32) {
        let victim = self.queues.pick(1000, |c| self.needed_in(c)).unwrap();
        if let Some(old) = self.holds[victim.chunk as usize].replace(block) {
            self.resident.remove(&old);
        }
        self.resident.insert(block, victim.chunk);
        self.queues.enqueue(victim.chunk, Queue::Used).unwrap();
        self.copies += 1;
    }
}
