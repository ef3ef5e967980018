// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program that is recorded, planned and run with its plan, as `uvmrun` has a CUDA program
//! recorded and run: with the library's recorder ([`Record`]) and its executor of plans
//! ([`Executor`]), which the preload has too.
//!
//! The program trains a chain of layers. It has its data and weights from the start, and makes
//! what its kernels hand on in each step, which it frees when nobody needs it any more. Each
//! page holds one word that the kernels check, as in `run`.
//!
//! The software GPU computes in no time. What is recorded of a kernel is the time that it stands
//! for. What the plan moves before a kernel is waited for, as if links took no time. So is what the
//! driver's own prefetcher moves: a kernel comes to the next block only once the worker has nothing to do.

pub mod judge;

use crate::scaled::Bytes;
use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use uvmrust::follow::Executor;
use uvmrust::plan::Plan;
use uvmrust::record::Record;
use uvmrust::Uvm;
use vgpu_client::uvm::Uuid;
use vgpu_client::{
    Buffer, Discard, DriverStats, Error, Gpu, Idle, Kernel, Op, Outcome, Process, Report, BLOCK,
    PAGE,
};

/// Bytes of the GPU's memory that the program may have.
pub const GPU_BYTES: u64 = 32 << 20;
/// MiB of each layer's weights, and of what it hands on.
const LAYERS: [(u64, u64); 8] = [
    (2, 2),
    (6, 4),
    (4, 2),
    (4, 4),
    (2, 4),
    (6, 2),
    (4, 2),
    (4, 4),
];
/// The same in `train-elsewhere`: some have other sizes than in the run that was recorded.
const OTHER_LAYERS: [(u64, u64); 8] = [
    (4, 2),
    (6, 4),
    (4, 4),
    (4, 4),
    (2, 4),
    (6, 2),
    (6, 2),
    (2, 4),
];
/// MiB of the data.
const DATA: u64 = 6;
/// Bytes that a kernel works through in a second.
const RATE: f64 = 8e9;
/// Steps, of which the last is counted; a step that has one before and one behind it is recorded.
const STEPS: u32 = 3;
/// More of them, for a prefetcher that learns, and for a program that comes back to its plan.
const LEARNING: u32 = 2;
/// The step in which `train-leaves` leaves its plan, from 0.
const LEAVES: u32 = 1;
/// Most that the moves before one kernel may take, or the driver's worker before a block.
const MOST: Duration = Duration::from_secs(120);
const WORDS: u64 = PAGE / 8;

/// Plain UVM: with its tree prefetcher, and without, which is recorded. The names are those of `uvm-dnn run`.
const UVM: &str = "uvm";
const NO_TREE: &str = "uvm-noprefetch";
/// The driver's own prefetcher, which has DeepUM's method: all of it, where the program's allocator discards what is
/// free; and without discards, where memory is freed.
const DEEPUM: &str = "deepum";
/// The same, looking one kernel ahead.
const NEAR: &str = "deepum=1";
const PREEVICT: &str = "deepum-preevict";
/// Kernels that it looks ahead if nothing is said: the default of `uvm_rust_prefetch_ahead`.
const AHEAD: u32 = 32;
/// The program that launches a kernel which its plan does not have.
pub const LEAVING: &str = "train-leaves";
/// The program that has its memory at other places, and some of other sizes.
pub const ELSEWHERE: &str = "train-elsewhere";

/// A run: a line that the program prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Run {
    /// What the program is called, as `uvm-dnn program` has it.
    pub program: String,
    /// What moves its memory.
    pub policy: String,
    /// Faults of the counted step.
    pub faults: u64,
    /// Faults of each step.
    pub steps: Vec<u64>,
    /// How often it left its plan.
    pub left: u64,
    /// Bytes that were moved in it.
    pub bytes: Bytes,
    /// Most that was allocated at once.
    pub program_bytes: u64,
    /// Bytes of GPU memory that it could have.
    pub gpu_bytes: u64,
    /// Where its allocations were, in their order.
    pub addresses: Vec<u64>,
    /// How many bytes each of them has.
    pub sizes: Vec<u64>,
    /// Bytes that the host compared at the end: all of the data and weights.
    pub compared: u64,
    /// Bytes among them that were not as they had been written.
    pub differ: u64,
    /// Words that kernels found to be others than what had been written.
    pub mismatches: u64,
}

/// `uvm-dnn program`: runs the program of a name, which `uvmrun` may have started to record it or
/// with a plan, and prints what it did.
pub fn run(name: &str, policy: &str) -> Result<()> {
    let plan = std::env::var_os("UVMRUST_PLAN");
    let folder = std::env::var_os("UVMRUST_RECORD");
    ensure!(
        plan.is_some() == (policy == "plan"),
        "a plan is for the policy `plan`: start it by uvmrun"
    );
    let (places, layers) = match name {
        "train" | LEAVING => (Places::up(), LAYERS),
        ELSEWHERE => (Places::down(), OTHER_LAYERS),
        _ => anyhow::bail!("no program '{name}'"),
    };
    let plan = match plan {
        Some(path) => Some(Plan::parse(&std::fs::read_to_string(path)?)?),
        None => None,
    };
    let idle = Idle::leaving(Some((GPU_BYTES / BLOCK) as usize))?;
    let there = idle.available() as u64 * BLOCK;
    ensure!(there == GPU_BYTES, "{there} bytes of GPU memory are there");
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    Uvm::process().use_fd(Some(process.uvm_fd().as_raw_fd()));
    let executor = plan.as_ref().map(|plan| {
        let executor = Executor::new(plan, Uvm::process());
        executor.context("the plan was not made of a record")
    });
    let mut training = Training {
        process: &process,
        gpu: &gpu,
        record: folder.map(|folder| Record::new(folder.as_ref())),
        executor: executor.transpose()?,
        waits: [DEEPUM, NEAR, PREEVICT].contains(&policy),
        pool: [DEEPUM, NEAR].contains(&policy).then(BTreeMap::new),
        places,
        layers,
        addresses: Vec::new(),
        sizes: Vec::new(),
        compared: 0,
        differ: 0,
        mismatches: 0,
        live: 0,
        most: 0,
        value: 0,
        launches: 0,
        left: 0,
    };
    let run = training.run(name, policy)?;
    println!("{}", serde_json::to_string(&run)?);
    Ok(())
}

/// Where allocations are made.
struct Places {
    next: u64,
    upwards: bool,
    /// What was freed, by its size.
    free: BTreeMap<u64, BTreeSet<u64>>,
}

impl Places {
    /// One behind the other; where one of their size was freed, if there is one. So a step has its
    /// memory where the last one had it.
    fn up() -> Self {
        Self {
            next: 0x3000_0000_0000,
            upwards: true,
            free: BTreeMap::new(),
        }
    }

    /// One before the other, some room between them, and never twice at the same place.
    fn down() -> Self {
        Self {
            next: 0x5000_0000_0000,
            upwards: false,
            free: BTreeMap::new(),
        }
    }

    fn take(&mut self, bytes: u64) -> u64 {
        if !self.upwards {
            self.next -= bytes + 3 * BLOCK;
            return self.next;
        }
        let again = self.free.get_mut(&bytes).and_then(BTreeSet::pop_first);
        again.unwrap_or_else(|| {
            self.next += bytes;
            self.next - bytes
        })
    }

    fn give(&mut self, at: u64, bytes: u64) {
        self.free.entry(bytes).or_default().insert(at);
    }
}

/// Managed memory, and what the first word of its first page holds; those of the others count on from it.
struct Memory {
    buffer: Buffer<u64>,
    holds: u64,
    /// What the host has written into the other words, which count on from it. No kernel writes them.
    filled: u64,
}

impl Memory {
    /// An access to every page of one of its blocks.
    fn pages(&self, op: Op, block: u64, value: u64) -> Op {
        let first = block * BLOCK;
        let bytes = BLOCK.min(self.buffer.bytes() - first);
        op.range((first / 8) as usize, (bytes / 8) as usize)
            .every(PAGE)
            .pattern(value + first / PAGE, 1)
            .warps((bytes / PAGE).div_ceil(32) as u32)
            .barrier()
    }
}

/// A kernel that goes through all of its memory at once, each from the first block to the last, as
/// uvmsim has it of any kernel. It checks what it reads, and what it writes if that holds
/// something, and writes `value`. Returns what it does with each block.
fn streaming(reads: &[&Memory], written: &Memory, value: u64) -> Vec<Vec<Op>> {
    let mut parts = Vec::new();
    for memory in reads.iter().copied().chain([written]) {
        let blocks = memory.buffer.bytes().div_ceil(BLOCK);
        for block in 0..blocks {
            parts.push(((block as f64 + 0.5) / blocks as f64, memory, block));
        }
    }
    parts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let accesses = |(_, memory, block): (f64, &Memory, u64)| {
        let mut ops = Vec::new();
        if memory.holds != 0 {
            ops.push(memory.pages(Op::check(&memory.buffer), block, memory.holds));
        }
        if std::ptr::eq(memory, written) {
            ops.push(memory.pages(Op::write(&memory.buffer), block, value));
        }
        ops
    };
    parts.into_iter().map(accesses).collect()
}

struct Training<'a> {
    process: &'a Process,
    gpu: &'a Gpu,
    record: Option<Record>,
    executor: Option<Executor<'a>>,
    /// Whether kernels wait for the driver's prefetch worker at each block.
    waits: bool,
    /// What the program's allocator keeps of what was freed, by address, if it discards instead of freeing.
    pool: Option<BTreeMap<u64, Buffer<u64>>>,
    places: Places,
    layers: [(u64, u64); 8],
    addresses: Vec<u64>,
    sizes: Vec<u64>,
    compared: u64,
    differ: u64,
    mismatches: u64,
    live: u64,
    most: u64,
    /// What was written last.
    value: u64,
    launches: u64,
    left: u64,
}

impl Training<'_> {
    fn run(&mut self, name: &str, policy: &str) -> Result<Run> {
        let data = self.filled(DATA)?;
        let mut weights = Vec::new();
        for (mib, _) in self.layers {
            weights.push(self.filled(mib)?);
        }
        let steps = match self.waits || name == LEAVING {
            true => STEPS + LEARNING,
            false => STEPS,
        };
        let mut counts = vec![self.counts()?];
        for step in 0..steps {
            let start = Instant::now();
            self.step(&data, &mut weights, name == LEAVING && step == LEAVES)?;
            let (before, after) = (counts.last().map_or(0, |c| c.1), self.counts()?);
            // A VM that is short of the host's time takes minutes for some.
            eprintln!(
                "{name}, {policy}: step {} of {steps} in {:.1} s, {} faults",
                step + 1,
                start.elapsed().as_secs_f64(),
                after.1 - before
            );
            counts.push(after);
        }
        for memory in weights.iter().chain([&data]) {
            self.check(memory)?;
        }
        if let Some(executor) = &self.executor {
            let (failed, why) = executor.errors();
            ensure!(failed == 0, "{failed} moves failed: {why:?}");
        }
        let steps = counts.windows(2).map(|two| two[1].1 - two[0].1).collect();
        let [.., before, after] = counts[..] else {
            anyhow::bail!("there are too few steps");
        };
        for memory in weights.into_iter().chain([data]) {
            self.free(memory)?;
        }
        Ok(Run {
            program: name.to_owned(),
            policy: policy.to_owned(),
            faults: after.1 - before.1,
            steps,
            left: self.left,
            bytes: Bytes {
                host_to_gpu: after.0.host_to_gpu - before.0.host_to_gpu,
                gpu_to_host: after.0.gpu_to_host - before.0.gpu_to_host,
                ..Bytes::default()
            },
            program_bytes: self.most,
            gpu_bytes: GPU_BYTES,
            addresses: std::mem::take(&mut self.addresses),
            sizes: std::mem::take(&mut self.sizes),
            compared: self.compared,
            differ: self.differ,
            mismatches: self.mismatches,
        })
    }

    /// Forward through all layers, and back; with a kernel between that no other step has.
    fn step(&mut self, data: &Memory, weights: &mut [Memory], leaves: bool) -> Result<()> {
        let number = self.launches;
        let mut handed: Vec<Memory> = Vec::new();
        for (layer, (_, mib)) in self.layers.into_iter().enumerate() {
            let mut next = self.allocate(mib)?;
            let input = handed.last().unwrap_or(data);
            self.launch("forward", number, &[input, &weights[layer]], &mut next)?;
            handed.push(next);
        }
        let last = handed.pop().context("there are no layers")?;
        let mut gradient = self.allocate(last.buffer.bytes() >> 20)?;
        if leaves {
            self.launch("evaluate", number, &[&last], &mut gradient)?;
        }
        self.launch("loss", number, &[&last], &mut gradient)?;
        self.free(last)?;
        for weights in weights.iter_mut().rev() {
            let below = handed.pop();
            let mut next = None;
            if let Some(below) = &below {
                let mut memory = self.allocate(below.buffer.bytes() >> 20)?;
                self.launch("backward", number, &[&gradient, weights], &mut memory)?;
                next = Some(memory);
            }
            let input = below.as_ref().unwrap_or(data);
            self.launch("update", number, &[input, &gradient], weights)?;
            if let Some(below) = below {
                self.free(below)?;
            }
            let done = match next {
                Some(next) => std::mem::replace(&mut gradient, next),
                None => break,
            };
            self.free(done)?;
        }
        self.free(gradient)?;
        Ok(())
    }

    fn allocate(&mut self, mib: u64) -> Result<Memory> {
        let bytes = mib << 20;
        let at = self.places.take(bytes);
        let kept = self.pool.as_mut().and_then(|pool| pool.remove(&at));
        let buffer = match kept {
            Some(buffer) => {
                // Pages that were discarded lazily are mapped, so that no write of a kernel takes the discard back.
                self.process.migrate(at, bytes, self.gpu.uuid())?;
                buffer
            }
            None => Buffer::managed_at(self.process, at, (bytes / 8) as usize)?,
        };
        if let Some(record) = &mut self.record {
            record.allocated(at, bytes);
        }
        if let Some(executor) = &self.executor {
            executor.allocated(at, bytes);
        }
        self.addresses.push(at);
        self.sizes.push(bytes);
        self.live += bytes;
        self.most = self.most.max(self.live);
        Ok(Memory {
            buffer,
            holds: 0,
            filled: 0,
        })
    }

    fn free(&mut self, memory: Memory) -> Result<()> {
        let (at, bytes) = (memory.buffer.address(), memory.buffer.bytes());
        if let Some(record) = &mut self.record {
            if let Some(gone) = record.begins(at) {
                record.freed(gone);
            }
        }
        if let Some(executor) = &self.executor {
            if let Some(gone) = executor.begins(at) {
                executor.freed(gone);
            }
        }
        self.live -= bytes;
        if let Some(pool) = &mut self.pool {
            self.process.discard(at, bytes, Discard::Lazy)?;
            pool.insert(at, memory.buffer);
        }
        self.places.give(at, bytes);
        Ok(())
    }

    /// Memory that the host writes.
    fn filled(&mut self, mib: u64) -> Result<Memory> {
        let mut memory = self.allocate(mib)?;
        memory.holds = self.next_value();
        memory.filled = memory.holds << 8;
        let wanted = |word| wanted(memory.holds, memory.filled, word as u64);
        memory.buffer.fill(wanted);
        Ok(memory)
    }

    fn next_value(&mut self) -> u64 {
        self.value += 1 << 24;
        self.value
    }

    /// Launches a kernel that reads some memory and writes other, which it has read if that holds
    /// something.
    fn launch(
        &mut self,
        name: &str,
        first: u64,
        reads: &[&Memory],
        written: &mut Memory,
    ) -> Result<()> {
        let value = self.next_value();
        let blocks = streaming(reads, written, value);
        let (mut words, mut bytes) = (Vec::new(), 0);
        for memory in reads.iter().copied().chain([&*written]) {
            words.push(memory.buffer.address());
            bytes += memory.buffer.bytes();
        }
        written.holds = value;
        let ns = (bytes as f64 / RATE * 1e9) as u64;
        let number = self
            .record
            .as_mut()
            .map(|record| record.launched(0, name, Some(&mut words.iter().copied())));
        self.follow(name, &words)?;
        let exec_id = self.launches - first + 1;
        self.process.announce(self.gpu.uuid(), exec_id)?;
        self.launches += 1;
        let parts = match self.waits {
            true => blocks,
            false => vec![blocks.concat()],
        };
        self.settle()?;
        for ops in parts {
            let kernel = ops.into_iter().fold(Kernel::new(), Kernel::op);
            let report = self.gpu.launch(&kernel)?.wait()?;
            self.checked(report)?;
            self.settle()?;
        }
        if let (Some(record), Some(number)) = (&mut self.record, number) {
            record.took(number, ns);
        }
        Ok(())
    }

    /// Waits until the driver's prefetch worker has nothing to do, if kernels wait for it.
    fn settle(&self) -> Result<()> {
        let start = Instant::now();
        while self.waits && self.process.prefetch_worker_is_at_work()? {
            ensure!(
                start.elapsed() < MOST,
                "the worker takes more than {MOST:?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Has done what the plan says before a launch.
    fn follow(&mut self, name: &str, words: &[u64]) -> Result<()> {
        let Some(executor) = &self.executor else {
            return Ok(());
        };
        let (pending, left) = executor.launch(name, &mut words.iter().copied());
        self.left += u64::from(left.is_some());
        if !pending.is_empty() {
            executor.queue(&pending.on(self.gpu.uuid().0));
        }
        ensure!(executor.wait(MOST), "moves take more than {MOST:?}");
        Ok(())
    }

    /// Bytes that were moved so far, and faults.
    fn counts(&self) -> Result<(Bytes, u64)> {
        self.gpu.drain_faults()?;
        let stats = DriverStats::get(self.process, self.gpu.uuid(), false)?;
        Ok((Bytes::moved(&stats), stats.faults - stats.duplicates))
    }

    /// Takes what a kernel has found in the memory that it read. What it finds wrong is counted.
    fn checked(&mut self, report: Report) -> Result<()> {
        let mismatches = report.mismatches;
        match report.ok() {
            Err(Error::Kernel(report)) if report.outcome == Outcome::Done => {
                eprintln!("a kernel: {report}");
                self.mismatches += mismatches;
                Ok(())
            }
            checked => Ok(checked.map(drop)?),
        }
    }

    /// The host reads what lives on, and compares each byte.
    fn check(&mut self, memory: &Memory) -> Result<()> {
        let (at, bytes) = (memory.buffer.address(), memory.buffer.bytes());
        self.process.migrate(at, bytes, Uuid::CPU)?;
        let seen = (0..bytes / 8).map(|word| memory.buffer.get(word as usize));
        let differ = differing(seen, memory.holds, memory.filled);
        if differ > 0 {
            eprintln!("{differ} of {bytes} bytes at {at:#x} are not what was written");
        }
        self.compared += bytes;
        self.differ += differ;
        Ok(())
    }
}

/// What a word of memory is to be: the first of each page is a kernel's or the host's, the others are the host's.
fn wanted(holds: u64, filled: u64, word: u64) -> u64 {
    match word % WORDS {
        0 => holds + word / WORDS,
        _ => filled + word,
    }
}

/// Bytes that are not what they are to be.
fn differing(seen: impl Iterator<Item = u64>, holds: u64, filled: u64) -> u64 {
    let differing = |(word, seen): (u64, u64)| {
        let differs = (seen ^ wanted(holds, filled, word)).to_ne_bytes();
        differs.into_iter().filter(|&byte| byte != 0).count() as u64
    };
    (0..).zip(seen).map(differing).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_that_is_not_as_it_was_written_is_counted() {
        let right: Vec<u64> = (0..3 * WORDS)
            .map(|word| wanted(1 << 24, 1 << 32, word))
            .collect();
        let differ = |seen: &[u64]| differing(seen.iter().copied(), 1 << 24, 1 << 32);
        assert_eq!(differ(&right), 0);
        for word in [0, 1, WORDS - 1, WORDS, 3 * WORDS - 1] {
            for byte in 0..8 {
                let mut wrong = right.clone();
                wrong[word as usize] ^= 1 << (8 * byte);
                assert_eq!(differ(&wrong), 1, "byte {byte} of word {word}");
            }
        }
        // Another page's, and zeros.
        let other = [&right[WORDS as usize..], &right[..WORDS as usize]].concat();
        assert!(differ(&other) >= 3 * WORDS);
        assert!(differ(&vec![0; right.len()]) >= 3 * WORDS);
    }
}
