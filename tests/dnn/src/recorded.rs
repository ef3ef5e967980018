// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A program that is recorded, planned and run with its plan, as `uvmrun` has a CUDA program
//! recorded and run: with the library's recorder ([`Record`]) and its executor of plans
//! ([`Executor`]), which the preload has too.
//!
//! The program trains a chain of layers. It has its data and weights from the start, and makes
//! what its kernels hand on in each step, which it frees when nobody needs it any more. Each
//! page holds one word that the kernels check, as in `run`.
//!
//! The software GPU computes in no time. What is recorded of a kernel is the time that it stands
//! for; what the plan moves before a kernel is waited for, as if links took no time; and where
//! the driver is to hide its work behind kernels, they last as long as the VM's link is slow.

pub mod judge;

use crate::run::link;
use crate::scaled::{Bytes, MACHINE};
use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::Duration;
use uvmrust::follow::Executor;
use uvmrust::plan::Plan;
use uvmrust::record::Record;
use uvmrust::Uvm;
use vgpu_client::{Buffer, DriverStats, Gpu, Idle, Kernel, Op, Process, BLOCK, PAGE};

/// Bytes of the GPU's memory that the program may have.
pub const GPU_BYTES: u64 = 48 << 20;
/// MiB of each layer's weights, and of what it hands on.
const LAYERS: [(u64, u64); 8] = [
    (4, 4),
    (6, 6),
    (8, 2),
    (6, 4),
    (4, 6),
    (8, 4),
    (6, 4),
    (6, 4),
];
/// MiB of the data.
const DATA: u64 = 10;
/// Bytes that a kernel works through in a second.
const RATE: f64 = 8e9;
/// Steps, of which the last is counted.
const STEPS: u32 = 5;
/// Most that the moves before one kernel may take.
const MOST: Duration = Duration::from_secs(120);
const WORDS: u64 = PAGE / 8;

/// A run: a line that the program prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Run {
    /// The program's name.
    pub program: String,
    /// What moves its memory.
    pub policy: String,
    /// Faults of the counted step.
    pub faults: u64,
    /// Bytes that were moved in it.
    pub bytes: Bytes,
    /// Most that was allocated at once.
    pub program_bytes: u64,
    /// GPU memory.
    pub gpu_bytes: u64,
    /// Where its allocations were, in their order.
    pub addresses: Vec<u64>,
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
    let places = match name {
        "train" => Places::up(),
        "train-elsewhere" => Places::down(),
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
    let slower = match policy {
        "deepum" => {
            let machine = uvmsim_machine::presets::find(MACHINE).context("no such machine")?;
            machine.pcie_h2d / link(&process, &gpu)?
        }
        _ => 0.0,
    };
    let mut training = Training {
        process: &process,
        gpu: &gpu,
        record: folder.map(|folder| Record::new(folder.as_ref())),
        executor: executor.transpose()?,
        slower,
        places,
        addresses: Vec::new(),
        live: 0,
        most: 0,
        value: 0,
        launches: 0,
    };
    let run = training.run(name, policy)?;
    println!("{}", serde_json::to_string(&run)?);
    Ok(())
}

/// Where allocations are made: as CUDA does, where one of their size was freed, or else at a new
/// place.
struct Places {
    next: u64,
    upwards: bool,
    free: BTreeMap<u64, Vec<u64>>,
}

impl Places {
    /// One behind the other.
    fn up() -> Self {
        Self {
            next: 0x3000_0000_0000,
            upwards: true,
            free: BTreeMap::new(),
        }
    }

    /// One before the other, and some room between them.
    fn down() -> Self {
        Self {
            next: 0x5000_0000_0000,
            upwards: false,
            free: BTreeMap::new(),
        }
    }

    fn take(&mut self, bytes: u64) -> u64 {
        if let Some(at) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return at;
        }
        if self.upwards {
            self.next += bytes;
            return self.next - bytes;
        }
        self.next -= bytes + 3 * BLOCK;
        self.next
    }

    fn give(&mut self, at: u64, bytes: u64) {
        self.free.entry(bytes).or_default().push(at);
    }
}

/// Managed memory, and what its first page holds; the others count on from it.
struct Memory {
    buffer: Buffer<u64>,
    holds: u64,
}

impl Memory {
    /// An access to every page.
    fn pages(&self, op: Op, value: u64) -> Op {
        let pages = self.buffer.bytes() / PAGE;
        op.every(PAGE)
            .pattern(value, 1)
            .warps(pages.div_ceil(32).clamp(1, 64) as u32)
    }
}

struct Training<'a> {
    process: &'a Process,
    gpu: &'a Gpu,
    record: Option<Record>,
    executor: Option<Executor<'a>>,
    /// By how much kernels last longer than they stand for; 0: they do not last.
    slower: f64,
    places: Places,
    addresses: Vec<u64>,
    live: u64,
    most: u64,
    /// What was written last.
    value: u64,
    launches: u64,
}

impl Training<'_> {
    fn run(&mut self, name: &str, policy: &str) -> Result<Run> {
        let data = self.filled(DATA)?;
        let mut weights = Vec::new();
        for (mib, _) in LAYERS {
            weights.push(self.filled(mib)?);
        }
        let (mut before, mut after) = (None, None);
        for _ in 0..STEPS {
            before = after;
            self.step(&data, &mut weights)?;
            after = Some(self.counts()?);
        }
        for memory in weights.iter().chain([&data]) {
            check(memory)?;
        }
        if let Some(executor) = &self.executor {
            let (failed, why) = executor.errors();
            ensure!(failed == 0, "{failed} moves failed: {why:?}");
        }
        let (before, after) = before.zip(after).context("there are too few steps")?;
        for memory in weights.into_iter().chain([data]) {
            self.free(memory);
        }
        Ok(Run {
            program: name.to_owned(),
            policy: policy.to_owned(),
            faults: after.1 - before.1,
            bytes: Bytes {
                host_to_gpu: after.0.host_to_gpu - before.0.host_to_gpu,
                gpu_to_host: after.0.gpu_to_host - before.0.gpu_to_host,
                ..Bytes::default()
            },
            program_bytes: self.most,
            gpu_bytes: GPU_BYTES,
            addresses: std::mem::take(&mut self.addresses),
        })
    }

    /// Forward through all layers, and back.
    fn step(&mut self, data: &Memory, weights: &mut [Memory]) -> Result<()> {
        let number = self.launches;
        let mut handed: Vec<Memory> = Vec::new();
        for (layer, (_, mib)) in LAYERS.into_iter().enumerate() {
            let mut next = self.allocate(mib)?;
            let input = handed.last().unwrap_or(data);
            self.launch("forward", number, &[input, &weights[layer]], &mut next)?;
            handed.push(next);
        }
        let last = handed.pop().context("there are no layers")?;
        let mut gradient = self.allocate(LAYERS[LAYERS.len() - 1].1)?;
        self.launch("loss", number, &[&last], &mut gradient)?;
        self.free(last);
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
                self.free(below);
            }
            let done = match next {
                Some(next) => std::mem::replace(&mut gradient, next),
                None => break,
            };
            self.free(done);
        }
        self.free(gradient);
        Ok(())
    }

    fn allocate(&mut self, mib: u64) -> Result<Memory> {
        let bytes = mib << 20;
        let at = self.places.take(bytes);
        let buffer = Buffer::managed_at(self.process, at, (bytes / 8) as usize)?;
        if let Some(record) = &mut self.record {
            record.allocated(at, bytes);
        }
        if let Some(executor) = &self.executor {
            executor.allocated(at, bytes);
        }
        self.addresses.push(at);
        self.live += bytes;
        self.most = self.most.max(self.live);
        Ok(Memory { buffer, holds: 0 })
    }

    fn free(&mut self, memory: Memory) {
        let (at, bytes) = (memory.buffer.address(), memory.buffer.bytes());
        if let Some(record) = &mut self.record {
            record.freed(at);
        }
        if let Some(executor) = &self.executor {
            executor.freed(at);
        }
        self.live -= bytes;
        drop(memory);
        self.places.give(at, bytes);
    }

    /// Memory that the host writes.
    fn filled(&mut self, mib: u64) -> Result<Memory> {
        let mut memory = self.allocate(mib)?;
        memory.holds = self.next_value();
        for page in 0..memory.buffer.bytes() / PAGE {
            let value = memory.holds + page;
            memory.buffer.set((page * WORDS) as usize, value);
        }
        Ok(memory)
    }

    fn next_value(&mut self) -> u64 {
        self.value += 1 << 24;
        self.value
    }

    /// Launches a kernel that reads some memory and then writes other. Weights that it writes, it
    /// has read before: what they hold says so.
    fn launch(
        &mut self,
        name: &str,
        first: u64,
        reads: &[&Memory],
        written: &mut Memory,
    ) -> Result<()> {
        let value = self.next_value();
        let mut kernel = Kernel::new();
        let (mut words, mut bytes) = (Vec::new(), 0);
        let again = (written.holds != 0).then_some(&*written);
        for memory in reads.iter().copied().chain(again) {
            let op = memory.pages(Op::check(&memory.buffer), memory.holds);
            kernel = kernel.op(op);
        }
        for memory in reads.iter().copied().chain([&*written]) {
            words.push(memory.buffer.address());
            bytes += memory.buffer.bytes();
        }
        kernel = kernel.op(written.pages(Op::write(&written.buffer), value).barrier());
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
        self.gpu.launch(&kernel)?.wait()?.ok()?;
        std::thread::sleep(Duration::from_nanos((ns as f64 * self.slower) as u64));
        if let (Some(record), Some(number)) = (&mut self.record, number) {
            record.took(number, ns);
        }
        Ok(())
    }

    /// Has done what the plan says before a launch.
    fn follow(&self, name: &str, words: &[u64]) -> Result<()> {
        let Some(executor) = &self.executor else {
            return Ok(());
        };
        let (pending, left) = executor.launch(name, &mut words.iter().copied());
        ensure!(
            left.is_none(),
            "launch {} leaves the plan: {left:?}",
            self.launches
        );
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
        Ok((Bytes::moved(&stats), self.gpu.stats()?.faults))
    }
}

/// The host reads what lives on.
fn check(memory: &Memory) -> Result<()> {
    for page in 0..memory.buffer.bytes() / PAGE {
        let (seen, wanted) = (
            memory.buffer.get((page * WORDS) as usize),
            memory.holds + page,
        );
        let at = memory.buffer.address();
        ensure!(
            seen == wanted,
            "page {page} of {at:#x}: {seen:#x}, not {wanted:#x}"
        );
    }
    Ok(())
}
