// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A random program: writes and checks by CPU and GPU, migrations, spills, fetches,
//! discards and advice that it is read-mostly, of random ranges, checked against what each
//! piece was last given.

use oorandom::Rand32;
use uvm_suite::{ensure, Failure};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Discard, Kernel, NvStatus, Op};

use crate::rig::{Done, Rig, WORDS};

/// What a reference value is kept for, and everything happens to: a page.
const PIECE: usize = 512;

/// A program of `ops` operations on `blocks` blocks, from `seed`.
pub(crate) fn run(rig: &Rig, blocks: usize, ops: u32, seed: u64) -> Done {
    let mut program = Program {
        rig,
        buffer: rig.buffer(blocks)?,
        last: vec![None; blocks * WORDS / PIECE],
        random: Rand32::new(seed),
        value: 0,
    };
    let part = (ops / 10).max(1000);
    for n in 0..ops {
        program
            .step()
            .map_err(|f| Failure::from(format!("operation {n} of seed {seed}: {f:?}")))?;
        if n % part == part - 1 {
            println!("# {} operations done", n + 1);
        }
    }
    program.check_all()
}

struct Program<'a> {
    rig: &'a Rig,
    buffer: Buffer<u64>,
    /// What each piece was last given: this + the word's number. `None` if it was
    /// discarded, or never written: anything goes.
    last: Vec<Option<u64>>,
    random: Rand32,
    value: u64,
}

impl Program<'_> {
    fn step(&mut self) -> Done {
        let (first, count) = self.range();
        let at = self.buffer.address_of(first * PIECE);
        let bytes = (count * PIECE * 8) as u64;
        let process = &self.rig.process;
        match self.random.rand_range(0..21) {
            0..=3 => self.write(first, count, false),
            4..=6 => self.write(first, count, true),
            7..=8 => self.check(first, count, false),
            9..=11 => self.check(first, count, true),
            12 => Ok(process.migrate(at, bytes, self.rig.gpu.uuid())?),
            13 => Ok(process.migrate(at, bytes, Uuid::CPU)?),
            14..=16 => Ok(process.flash_move(at, bytes, false)?),
            17 => Ok(process.flash_move(at, bytes, true)?),
            18 => {
                self.rig.gpu.evict_any()?;
                Ok(())
            }
            19 => {
                let on = self.random.rand_range(0..3) > 0;
                // A range that is split needs room in the table of extents.
                match process.read_duplication(at, bytes, on) {
                    Err(error) if error.status() == Some(NvStatus::NO_MEMORY) => Ok(()),
                    other => Ok(other?),
                }
            }
            _ => {
                process.discard(at, bytes, Discard::Eager)?;
                self.last[first..first + count].fill(None);
                Ok(())
            }
        }
    }

    /// Few pieces mostly, sometimes many, and now and then two whole blocks.
    fn range(&mut self) -> (usize, usize) {
        let most = match self.random.rand_range(0..32) {
            0..=23 => 4,
            24..=30 => 64,
            _ => 1024,
        };
        let count = self.random.rand_range(1..most + 1) as usize;
        let count = count.min(self.last.len());
        let first = self
            .random
            .rand_range(0..(self.last.len() - count + 1) as u32);
        (first as usize, count)
    }

    fn write(&mut self, first: usize, count: usize, on_gpu: bool) -> Done {
        self.value += 1 << 32;
        let (from, words) = (first * PIECE, count * PIECE);
        if on_gpu {
            // The pattern counts from the range's first word.
            let op = Op::write(&self.buffer)
                .range(from, words)
                .pattern(self.value + from as u64, 1)
                .warps(8);
            self.rig.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        } else {
            (from..from + words).for_each(|i| self.buffer.set(i, self.value + i as u64));
        }
        self.last[first..first + count].fill(Some(self.value));
        Ok(())
    }

    /// Neighbours that were last given the same are checked as one; a GPU checks all of
    /// them in one kernel, which has at most as many ops as a range has pages.
    fn check(&self, first: usize, count: usize, on_gpu: bool) -> Done {
        let mut kernel = Kernel::new();
        let mut ops = 0;
        let mut piece = first;
        for alike in self.last[first..first + count].chunk_by(|a, b| a == b) {
            let (from, words) = (piece * PIECE, alike.len() * PIECE);
            piece += alike.len();
            let Some(value) = alike[0] else { continue };
            if on_gpu {
                let op = Op::check(&self.buffer)
                    .range(from, words)
                    .pattern(value + from as u64, 1)
                    .warps(2);
                kernel = kernel.op(op);
                ops += 1;
            } else {
                for i in from..from + words {
                    let seen = self.buffer.get(i);
                    let want = value + i as u64;
                    ensure!(seen == want, "word {i} is {seen:#x}, not {want:#x}");
                }
            }
        }
        if ops > 0 {
            self.rig.gpu.launch(&kernel)?.wait()?.ok()?;
        }
        Ok(())
    }

    fn check_all(&self) -> Done {
        self.check(0, self.last.len(), false)
    }
}
