// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Several programs that take turns on one GPU: what moves to the GPU under the driver's policies, and what must.
//!
//! Each program goes through its working set several times in a turn, with announced kernels. The GPU's chunks, the
//! order of evictions and the prefetcher are the driver's own (`uvm_policy`); only time is missing, so a prefetcher has as
//! long as it needs before a kernel begins. [`Programs::least`] is what no policy can do without.

mod gpu;
mod least;

use std::ops::Range;

use gpu::Gpu;
use uvm_policy::evict::Choice;

/// Bytes of a block.
pub const BLOCK: u64 = 2 << 20;

/// Programs that take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Programs {
    /// How many there are.
    pub programs: u32,
    /// Blocks that each of them uses in each turn.
    pub working_set: u32,
    /// Blocks that the GPU has room for; at least a working set.
    pub chunks: u32,
    /// How many turns each program has.
    pub turns: u32,
    /// How often a program goes through its working set in a turn.
    pub passes: u32,
    /// Kernels that a pass consists of.
    pub kernels: u32,
    /// Whether a program announces at the end of its turn that no kernel follows.
    pub rests: bool,
}

/// How memory is managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which used chunk is evicted, by the driver's choice of policies.
    pub evict: Choice,
    /// Whether DeepUM's prefetcher brings what it predicts.
    pub prefetch: bool,
}

/// What became of all turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Blocks that moved to the GPU, the first time included.
    pub blocks: u64,
    /// Those of them that a kernel had to wait for.
    pub faults: u64,
}

/// Why programs cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A number is 0, a program has more kernels than blocks, or the GPU has no room for a working set.
    Shape,
    /// There is not enough memory.
    OutOfMemory,
}

/// A kernel of a program, numbered from 1 on, and the blocks that it uses, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kernel {
    program: u32,
    number: u32,
    blocks: Range<u32>,
    /// The program's turn ends with it.
    last: bool,
}

impl Programs {
    /// So many programs on a GPU that has room for one and a half of their working sets.
    pub fn on_one_and_a_half(programs: u32, working_set: u32) -> Self {
        Self {
            programs,
            working_set,
            chunks: working_set + working_set / 2,
            turns: 8,
            passes: 3,
            kernels: 4,
            rests: true,
        }
    }

    /// Runs all turns under `policy`.
    pub fn run(&self, policy: Policy) -> Result<Moved, Error> {
        self.check()?;
        let mut gpu = Gpu::new(self, policy).map_err(|_| Error::OutOfMemory)?;
        for kernel in self.kernels() {
            gpu.announce(kernel.program, kernel.number);
            for block in kernel.blocks {
                gpu.access(kernel.program, block);
            }
            if kernel.last && self.rests {
                gpu.announce(kernel.program, 0);
            }
        }
        Ok(gpu.moved)
    }

    /// The fewest blocks that can move to the GPU, whatever is evicted and whenever blocks are brought: those that Belady's
    /// rule brings, which knows all accesses to come.
    pub fn least(&self) -> Result<u64, Error> {
        self.check()?;
        let accesses = self.kernels().flat_map(|kernel| {
            let program = u64::from(kernel.program);
            let numbered = move |block| (program << 32) | u64::from(block);
            kernel.blocks.map(numbered)
        });
        Ok(least::misses(&accesses.collect::<Vec<_>>(), self.chunks))
    }

    fn check(&self) -> Result<(), Error> {
        let is_right = [self.programs, self.turns, self.passes, self.kernels]
            .iter()
            .all(|&n| n > 0)
            && self.kernels <= self.working_set
            && self.working_set <= self.chunks;
        is_right.then_some(()).ok_or(Error::Shape)
    }

    /// All kernels, in the order in which they run.
    fn kernels(&self) -> impl Iterator<Item = Kernel> {
        let all = *self;
        let turns = (0..all.turns).flat_map(move |_| 0..all.programs);
        turns.flat_map(move |program| {
            let numbers =
                (0..all.passes).flat_map(move |pass| (0..all.kernels).map(move |n| (pass, n)));
            numbers.map(move |(pass, n)| {
                let first =
                    |n| (u64::from(all.working_set) * u64::from(n) / u64::from(all.kernels)) as u32;
                Kernel {
                    program,
                    number: n + 1,
                    blocks: first(n)..first(n + 1),
                    last: pass + 1 == all.passes && n + 1 == all.kernels,
                }
            })
        })
    }
}

#[cfg(test)]
mod tests;
