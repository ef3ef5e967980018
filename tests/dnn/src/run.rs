// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Runs programs on the software GPU, and counts.
//!
//! Each page of a tensor holds one number that is checked: what its last writer put there. A
//! kernel checks what it reads, and then writes; so what comes out is verified throughout.
//!
//! The software GPU computes in no time. A kernel is therefore followed by a pause: the time
//! that it would compute by the zoo's roofline of a V100, scaled as the bytes are. The pause
//! is scaled once more by how much slower the VM moves a block in and another out than that
//! GPU's link, which does both at a time. So prefetching gets as much time for as many bytes
//! as on the real machine.

use crate::program::{trace, Launch, Program};
use crate::report::Cell;
use anyhow::{ensure, Context, Result};
use std::time::{Duration, Instant};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Discard, DiscardRange, Gpu, Kernel, Op, Process, BLOCK, PAGE};

/// Networks and their batch sizes.
pub const WORKLOADS: [(&str, u64); 4] = [
    ("bert-base", 16),
    ("gpt2-l", 2),
    ("resnet152", 32),
    ("dlrm", 16384),
];
/// The workload whose kernels come in another order each step, so that no prediction helps.
pub const RANDOM: &str = "random-order";
/// Steps, unless DNN_STEPS says otherwise; counted from the third on.
const STEPS: usize = 5;
const LEARNING: usize = 2;
/// How much more than the GPU's memory a step needs, in percent.
const OVERSUBSCRIBED: u64 = 150;
/// Bytes per second of the V100's link, as AutoVM measured it.
pub const V100_LINK: f64 = 13.0e9;
const WORDS: u64 = PAGE / 8;

/// Runs the named workloads, or all.
pub fn run(policy: &str, names: &[&str]) -> Result<()> {
    let all: Vec<&str> = WORKLOADS.iter().map(|w| w.0).chain([RANDOM]).collect();
    let names = if names.is_empty() { &all[..] } else { names };
    for &name in names {
        let cell = cell(policy, name).with_context(|| format!("{name}, {policy}"))?;
        eprintln!(
            "    {name} {policy}: {:.0} faults, {:.1} MiB in, {:.1} MiB out per iteration",
            cell.faults_per_iteration,
            cell.h2d_bytes / 1048576.0,
            cell.d2h_bytes / 1048576.0
        );
        println!("{}", serde_json::to_string(&cell)?);
    }
    Ok(())
}

fn cell(policy: &str, name: &str) -> Result<Cell> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let usable = gpu.info().usable_bytes();
    let (program, shuffled) = program(name, footprint(usable))?;
    ensure!(
        program.widest() * PAGE < usable / 2,
        "a kernel needs half of the GPU's memory"
    );
    let slower = turnover(&process, &gpu)? * V100_LINK / BLOCK as f64;
    let mut step = Step::new(&process, &gpu, &program, slower)?;
    step.shuffled = shuffled;
    step.discards = policy == "deepum";
    let mut counted = (gpu.stats()?, Instant::now());
    let iterations = match std::env::var("DNN_STEPS") {
        Ok(text) => text.parse().context("DNN_STEPS is not a number")?,
        Err(_) => STEPS,
    };
    ensure!(
        iterations > LEARNING,
        "DNN_STEPS: at least {}",
        LEARNING + 1
    );
    for n in 0..iterations {
        if n == LEARNING {
            gpu.drain_faults()?;
            counted = (gpu.stats()?, Instant::now());
        }
        step.run(n as u64)?;
    }
    gpu.drain_faults()?;
    let (before, after) = (counted.0, gpu.stats()?);
    let steps = (iterations - LEARNING) as f64;
    let learnt = process.prefetch_stats(gpu.uuid())?;
    step.check_all()?;
    Ok(Cell {
        workload: name.to_owned(),
        policy: policy.to_owned(),
        ahead: ahead()?,
        iterations: iterations as u32,
        faults_per_iteration: (after.faults - before.faults) as f64 / steps,
        h2d_bytes: (after.h2d_bytes - before.h2d_bytes) as f64 / steps,
        d2h_bytes: (after.d2h_bytes - before.d2h_bytes) as f64 / steps,
        table_bytes: learnt.table_bytes,
        verified: true,
        kernels: program.launches.len() as u64,
        footprint_bytes: program.pages * PAGE,
        gpu_bytes: usable,
        prefetched: learnt.prefetched,
        held: learnt.held,
        pushed_out: learnt.pushed_out,
        kernels_right: learnt.kernels_right,
        kernels_wrong: learnt.kernels_wrong,
        slower,
        seconds_per_iteration: counted.1.elapsed().as_secs_f64() / steps,
    })
}

/// What a step needs on a GPU of so many bytes.
pub fn footprint(usable: u64) -> u64 {
    usable * OVERSUBSCRIBED / 100
}

/// `uvm_rust_prefetch_ahead` of the driver that is loaded; 0 where it does not prefetch.
fn ahead() -> Result<u32> {
    let parameter = |name: &str| {
        let path = format!("/sys/module/nvidia_uvm/parameters/uvm_rust_prefetch{name}");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        Ok::<_, anyhow::Error>(text.trim().to_owned())
    };
    match parameter("")?.as_str() {
        "0" | "N" => Ok(0),
        _ => parameter("_ahead")?
            .parse()
            .context("uvm_rust_prefetch_ahead"),
    }
}

/// The program of a name, in so many bytes, and whether its kernels come in random order.
pub fn program(name: &str, bytes: u64) -> Result<(Program, bool)> {
    Ok(match WORKLOADS.iter().find(|w| w.0 == name) {
        Some((_, batch)) => (Program::new(&trace(name, *batch)?, bytes)?, false),
        None if name == RANDOM => (Program::adversary(bytes / PAGE)?, true),
        None => anyhow::bail!("no workload '{name}'"),
    })
}

/// Seconds that a block of 2 MiB takes in, and another out.
fn turnover(process: &Process, gpu: &Gpu) -> Result<f64> {
    const BLOCKS: u64 = 8;
    let data = Buffer::<u64>::managed(process, (BLOCKS * BLOCK / 8) as usize)?;
    data.fill(|i| i as u64);
    let mut start = Instant::now();
    // The first time memory of the host is allocated and zeroed.
    for _ in 0..2 {
        start = Instant::now();
        process.migrate(data.address(), data.bytes(), gpu.uuid())?;
        process.migrate(data.address(), data.bytes(), Uuid::CPU)?;
    }
    Ok(start.elapsed().as_secs_f64() / BLOCKS as f64)
}

/// Bytes per second to the GPU by UVM_MIGRATE: the best of some times, as the first has memory to
/// get, and whatever else the host does slows each.
pub(crate) fn link(process: &Process, gpu: &Gpu) -> Result<f64> {
    let data = Buffer::<u64>::managed(process, (8 * BLOCK / 8) as usize)?;
    data.fill(|i| i as u64);
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let start = Instant::now();
        process.migrate(data.address(), data.bytes(), gpu.uuid())?;
        best = best.max(data.bytes() as f64 / start.elapsed().as_secs_f64());
        process.migrate(data.address(), data.bytes(), Uuid::CPU)?;
    }
    Ok(best)
}

struct Step<'a> {
    process: &'a Process,
    gpu: &'a Gpu,
    program: &'a Program,
    data: Buffer<u64>,
    /// For each tensor what its first page holds; the others count on from it.
    holds: Vec<Option<u64>>,
    /// Launches of all steps so far.
    kernels: u64,
    slower: f64,
    shuffled: bool,
    /// Say which blocks hold nothing any more, and when they are needed again.
    discards: bool,
    random: u64,
}

impl<'a> Step<'a> {
    fn new(process: &'a Process, gpu: &'a Gpu, program: &'a Program, slower: f64) -> Result<Self> {
        let mut step = Self {
            process,
            gpu,
            program,
            data: Buffer::managed(process, (program.pages * WORDS) as usize)?,
            holds: vec![None; program.places.len()],
            kernels: 0,
            slower,
            shuffled: false,
            discards: false,
            random: 0x9e37_79b9_7f4a_7c15,
        };
        for &t in &program.persistent {
            step.fill(t, 1 << 32);
        }
        Ok(step)
    }

    /// The host writes a tensor.
    fn fill(&mut self, tensor: usize, value: u64) {
        let place = self.program.places[tensor];
        for page in 0..place.pages {
            let at = (place.first + page) * WORDS;
            self.data.set(at as usize, value + page);
        }
        self.holds[tensor] = Some(value);
    }

    fn run(&mut self, number: u64) -> Result<()> {
        for &t in &self.program.inputs {
            self.fill(t, (number + 2) << 32);
        }
        for n in 0..self.program.launches.len() {
            let n = if self.shuffled {
                self.next_random() as usize % self.program.launches.len()
            } else {
                n
            };
            self.launch(&self.program.launches[n])?;
        }
        Ok(())
    }

    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        self.kernels += 1;
        let mut kernel = Kernel::new();
        for &t in &launch.reads {
            let value = self.holds[t].with_context(|| format!("tensor {t} holds nothing"))?;
            kernel = kernel.op(self.pages(Op::check(&self.data), t, value));
        }
        for (i, &t) in launch.writes.iter().enumerate() {
            let value = self.kernels << 32 | 1 << 63 | (i as u64) << 24;
            let op = self.pages(Op::write(&self.data), t, value);
            // What is read and written in place is read first.
            kernel = kernel.op(if i == 0 && !launch.reads.is_empty() {
                op.barrier()
            } else {
                op
            });
            self.holds[t] = Some(value);
        }
        self.process.announce(self.gpu.uuid(), launch.id)?;
        if self.discards {
            // As an allocator does that hands out memory which it had discarded.
            for &block in &launch.wakes {
                let (at, bytes) = self.block(block);
                self.process.migrate(at, bytes, self.gpu.uuid())?;
            }
        }
        self.gpu.launch(&kernel)?.wait()?.ok()?;
        if self.discards && !launch.dies.is_empty() {
            let range = |&b: &u64| {
                let (base, length) = self.block(b);
                DiscardRange { base, length }
            };
            let ranges: Vec<_> = launch.dies.iter().map(range).collect();
            self.process.discard_batch(&ranges, Discard::Lazy).1?;
        }
        let pause = (launch.nanoseconds as f64 * self.slower) as u64;
        std::thread::sleep(Duration::from_nanos(pause));
        Ok(())
    }

    /// Address and length of a block of the buffer.
    fn block(&self, number: u64) -> (u64, u64) {
        let offset = number * BLOCK;
        let bytes = BLOCK.min(self.data.bytes() - offset);
        (self.data.address() + offset, bytes)
    }

    /// An access to every page of a tensor.
    fn pages(&self, op: Op, tensor: usize, value: u64) -> Op {
        let place = self.program.places[tensor];
        op.range(
            (place.first * WORDS) as usize,
            (place.pages * WORDS) as usize,
        )
        .every(PAGE)
        .pattern(value, 1)
        .warps((place.pages.div_ceil(32)).clamp(1, 64) as u32)
    }

    /// The host reads what lives on.
    fn check_all(&self) -> Result<()> {
        for &t in &self.program.persistent {
            let (place, value) = (self.program.places[t], self.holds[t]);
            let value = value.context("a tensor holds nothing")?;
            for page in 0..place.pages {
                let seen = self.data.get(((place.first + page) * WORDS) as usize);
                ensure!(
                    seen == value + page,
                    "tensor {t}, page {page}: {seen:#x}, not {:#x}",
                    value + page
                );
            }
        }
        Ok(())
    }
}
