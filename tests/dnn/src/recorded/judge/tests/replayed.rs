// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A plan that the library's executor carries out, on a GPU that is a list of blocks.

use super::*;
use std::sync::{Arc, Mutex};
use uvmrust::follow::Executor;
use uvmrust::{Carrier, Moves, Range, Tier, Uvm};

/// The faults of a block that is not there when a kernel comes to it.
const FAULTS: u64 = BLOCK / PAGE;

/// A GPU, full or not, which pushes out what came longest ago.
#[derive(Default)]
struct Blocks {
    there: Mutex<Vec<u64>>,
}

/// The blocks of a range.
fn blocks(range: Range) -> impl Iterator<Item = u64> {
    (range.base..range.base + range.length).step_by(BLOCK as usize)
}

impl Blocks {
    /// Brings a block; whether it was not there.
    fn bring(&self, block: u64) -> bool {
        let mut there = self.there.lock().unwrap();
        if there.contains(&block) {
            return false;
        }
        if there.len() as u64 == GPU_BYTES / BLOCK {
            there.remove(0);
        }
        there.push(block);
        true
    }

    fn take(&self, range: Range) {
        let gone: std::collections::BTreeSet<_> = blocks(range).collect();
        self.there.lock().unwrap().retain(|at| !gone.contains(at));
    }

    /// A kernel goes through all of its memory at once; its faults.
    fn run(&self, memory: &[Range]) -> u64 {
        let mut parts = Vec::new();
        for range in memory {
            let count = range.length / BLOCK;
            for (i, block) in blocks(*range).enumerate() {
                parts.push(((i as f64 + 0.5) / count as f64, block));
            }
        }
        parts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let faults = parts.iter().filter(|(_, block)| self.bring(*block));
        faults.count() as u64 * FAULTS
    }
}

/// Of a queue that a test shares with it.
struct Gpu(Arc<Blocks>);

impl Carrier for Gpu {
    fn carry(&self, range: Range, to: Tier) -> uvmrust::Result<()> {
        match to {
            Tier::Gpu(_) => blocks(range).for_each(|block| {
                self.0.bring(block);
            }),
            Tier::Host | Tier::Ssd => self.0.take(range),
        }
        Ok(())
    }
}

/// The faults of three steps of a program under a plan, of which every move is waited for. No memory is
/// twice at the same place.
pub(super) fn steps(plan: &str, workload: &Workload) -> [u64; 3] {
    let mut text = plan.to_owned() + "start 0\n";
    for (k, kernel) in workload.kernels.iter().enumerate() {
        text += &format!("launch {k} {}\n", kernel.name);
    }
    for (t, tensor) in workload.tensors.iter().enumerate() {
        text += &format!("tensor {t} {}\n", tensor.name);
    }
    let plan = uvmrust::plan::Plan::parse(&text).unwrap();
    let gpu = Arc::new(Blocks::default());
    let moves = Moves::new(Gpu(Arc::clone(&gpu))).unwrap();
    let executor = Executor::with(&plan, Uvm::process(), moves).unwrap();
    let mut next = 1 << 40;
    let mut allocate = |bytes| {
        let range = Range {
            base: next,
            length: bytes,
        };
        next += bytes + 3 * BLOCK;
        executor.allocated(range.base, bytes);
        range
    };
    let mut memory = BTreeMap::new();
    for (t, tensor) in (0..).zip(&workload.tensors) {
        if tensor.name.starts_with("alloc") {
            memory.insert(t, allocate(tensor.bytes));
        }
    }
    let mut step = || {
        let mut faults = 0;
        for (k, kernel) in (0..).zip(&workload.kernels) {
            for used in &kernel.uses {
                let bytes = workload.tensors[used.tensor as usize].bytes;
                memory.entry(used.tensor).or_insert_with(|| allocate(bytes));
            }
            let (pending, left) = executor.launch(&kernel.name, &mut std::iter::empty());
            assert_eq!(left, None);
            if !pending.is_empty() {
                executor.queue(&pending.on([7; 16]));
            }
            assert!(executor.wait(super::super::super::MOST));
            let used = kernel.uses.iter().map(|used| memory[&used.tensor]);
            faults += gpu.run(&used.collect::<Vec<_>>());
            memory.retain(|&t, range| {
                let tensor = &workload.tensors[t as usize];
                let lives = tensor.lasting || tensor.last() != k;
                if !lives {
                    executor.freed(executor.begins(range.base).unwrap());
                    gpu.take(*range);
                }
                lives
            });
        }
        faults
    };
    [step(), step(), step()]
}
