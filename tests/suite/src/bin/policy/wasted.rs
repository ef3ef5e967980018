// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Blocks that are prefetched for kernels which have not begun, and evicted before these do (`uvm_rust_prefetch=1`):
//! `prefetch_wasted` counts them, and no others.
//!
//! A program announces the same few kernels again and again, until the worker looks as far ahead as it may. All its memory
//! goes to the host, and each kernel is announced, and does not run: the worker brings what later ones need. Then another
//! process, which announces nothing, fills the GPU.

use uvm_suite::{ensure, skip, truth, uvmtop, Failure, Outcome, Pass};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Discard, DriverStats, Gpu, Kernel, Op, Process, BLOCK};

use crate::quota::inject;
use crate::together::{is_on, quiet, settled, BLOCK_WORDS, PARAMETER};

/// Kernels of the program, and the blocks of each.
const KERNELS: u64 = 4;
const BLOCKS: usize = 2;
/// How often the program runs before anything is asked.
const ROUNDS: u64 = 12;
/// Kernels that the worker looks ahead: the default of `uvm_rust_prefetch_ahead`.
const AHEAD: u64 = 32;

pub(crate) struct Rig {
    pub(crate) process: Process,
    pub(crate) gpu: Gpu,
    data: Buffer<u64>,
    quiet: std::time::Duration,
    announced: u64,
}

impl Rig {
    pub(crate) fn new() -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu: Gpu = process.gpu(0)?;
        let data = Buffer::managed(&process, KERNELS as usize * BLOCKS * BLOCK_WORDS)?;
        data.fill(|i| i as u64);
        let quiet = quiet(&process, &gpu, &data)?;
        Ok(Self {
            process,
            gpu,
            data,
            quiet,
            announced: 0,
        })
    }

    /// The program runs until the worker looks as far ahead as it may, and nothing of it is on the GPU.
    pub(crate) fn learnt() -> Result<Self, Failure> {
        let mut rig = Self::new()?;
        for _ in 0..ROUNDS {
            rig.round()?;
        }
        rig.another_fills_the_gpu()?;
        Ok(rig)
    }

    /// The blocks of all kernels.
    pub(crate) fn blocks(&self) -> u64 {
        self.data.bytes() / BLOCK
    }

    /// All of the program's memory goes to the host, and each kernel is announced, so that the worker is to bring all
    /// blocks of the program. Returns how many these are.
    pub(crate) fn wants_all(&mut self) -> Result<u64, Failure> {
        let (base, bytes) = (self.data.address(), self.data.bytes());
        self.process.migrate(base, bytes, Uuid::CPU)?;
        for _ in 0..KERNELS {
            self.announce()?;
        }
        Ok(self.blocks())
    }

    /// Announces the next kernel.
    fn announce(&mut self) -> Result<(), Failure> {
        let kernel = self.announced % KERNELS;
        self.process.announce(self.gpu.uuid(), 1 + kernel)?;
        self.announced += 1;
        Ok(())
    }

    /// Waits until the worker has done what it makes of all announcements.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        let stats = settled(&self.process, &self.gpu, self.announced, self.quiet)?;
        ensure!(
            stats.kernels == self.announced && stats.kernels_wrong == 0,
            "not each kernel is learnt of: {stats:?}"
        );
        Ok(())
    }

    /// Announces and runs the kernels of a round from the next one on.
    fn round(&mut self) -> Result<(), Failure> {
        for _ in 0..KERNELS {
            self.announce()?;
            self.run(self.announced - 1)?;
        }
        self.settle()
    }

    /// Runs the kernel of an announcement.
    fn run(&self, announced: u64) -> Result<(), Failure> {
        let first = (announced % KERNELS) as usize * BLOCKS * BLOCK_WORDS;
        let touch = Op::write(&self.data).range(first, BLOCKS * BLOCK_WORDS);
        let kernel = Kernel::new().op(touch.every(BLOCK).lanes(1));
        self.gpu.launch(&kernel)?.wait()?.ok()?;
        Ok(())
    }

    /// A kernel that nobody announces writes the block of this word.
    pub(crate) fn touches(&self, word: usize) -> Result<(), Failure> {
        let touch = Op::write(&self.data).range(word, BLOCK_WORDS);
        let kernel = Kernel::new().op(touch.every(BLOCK).lanes(1));
        self.gpu.launch(&kernel)?.wait()?.ok()?;
        Ok(())
    }

    /// Of each kernel's blocks, how many have a page on the GPU.
    fn on_gpu(&self) -> Result<[u64; KERNELS as usize], Failure> {
        let mut there = [0; KERNELS as usize];
        for (kernel, there) in there.iter_mut().enumerate() {
            for block in kernel * BLOCKS..(kernel + 1) * BLOCKS {
                let at = self.data.address() + block as u64 * BLOCK;
                let residency = self.process.residency(at)?;
                *there += u64::from(residency.resident.contains(&self.gpu.uuid()));
            }
        }
        Ok(there)
    }

    /// How many prefetches of this process were in vain.
    fn wasted(&self) -> Result<u64, Failure> {
        let of = |whole| DriverStats::get(&self.process, self.gpu.uuid(), whole);
        let (own, all) = (of(false)?.prefetch_wasted, of(true)?.prefetch_wasted);
        ensure!(own <= all, "{own} of {all} are this process's");
        Ok(own)
    }

    /// Evictions of this process's used chunks, also those that failed.
    fn used_evictions(&self) -> Result<u64, Failure> {
        let stats = DriverStats::get(&self.process, self.gpu.uuid(), false)?;
        Ok(stats.evictions[uvm_uapi::UVM_RUST_QUEUE_USED as usize])
    }

    /// Another process takes all of the GPU, and goes.
    fn another_fills_the_gpu(&self) -> Result<(), Failure> {
        let other = Process::new()?;
        let gpu: Gpu = other.gpu(0)?;
        let blocks = gpu.info().vidmem_bytes / BLOCK;
        let filler = Buffer::<u64>::managed(&other, blocks as usize * BLOCK_WORDS)?;
        filler.fill(|_| 1);
        other.migrate(filler.address(), filler.bytes(), gpu.uuid())?;
        Ok(())
    }

    /// All of the program's memory is on the host, and each kernel is announced once. The worker's walk is as far ahead as it
    /// looks: each announcement has it bring what the kernel so far ahead needs, which is one of the same few.
    fn foresee(&mut self) -> Result<[u64; KERNELS as usize], Failure> {
        self.wants_all()?;
        self.settle()?;
        self.on_gpu()
    }
}

/// What is evicted before its kernel is in vain, once each. What nobody had foreseen is not, nor what a kernel has begun for.
pub(crate) fn wasted() -> Outcome {
    if !is_on() {
        skip!("{PARAMETER} is not on");
    }
    // What kernels brought by faults is in no prediction's way.
    let mut rig = Rig::learnt()?;
    ensure!(
        rig.on_gpu()? == [0; 4] && rig.wasted()? == 0,
        "nothing was brought ahead of need, and {} went in vain",
        rig.wasted()?
    );

    let there = rig.foresee()?;
    ensure!(
        there == [BLOCKS as u64; 4],
        "not all blocks of the next kernels are there: {there:?}"
    );
    // The first eviction of one block fails. It is tried again, and counts then.
    let failing = rig.data.address() + (BLOCKS as u64) * BLOCK;
    if let Err(failed) = inject(&rig.process, failing) {
        skip!("errors cannot be injected: {failed}");
    }
    let before = rig.used_evictions()?;
    rig.another_fills_the_gpu()?;
    let (wasted, gone) = (rig.wasted()?, rig.used_evictions()? - before);
    let brought: u64 = there.iter().sum();
    println!("# {brought} blocks were brought, {gone} evictions took them, {wasted} in vain");
    ensure!(rig.on_gpu()? == [0; 4], "not all is evicted");
    ensure!(gone > brought, "no eviction has failed");
    ensure!(
        wasted == brought,
        "{wasted} prefetches were in vain, of {there:?}"
    );

    // The same, but each kernel comes before its blocks go.
    rig.foresee()?;
    for _ in 0..AHEAD {
        rig.announce()?;
    }
    rig.settle()?;
    rig.another_fills_the_gpu()?;
    ensure!(
        rig.on_gpu()? == [0; 4] && rig.wasted()? == wasted,
        "kernels had begun, and {} went in vain",
        rig.wasted()? - wasted
    );
    shown(&mut rig)?;
    Ok(Pass::Ok)
}

/// The columns of `uvmtop` that this program has a number for: all but those of an SSD tier, which `flash` looks at.
const COLUMNS: [&str; 11] = [
    "ON GPU",
    "MAX",
    "IN",
    "OUT",
    "FAULTS",
    "ON HOST",
    "EVICTED",
    "THRASHED",
    "DISCARDED",
    "PREDICTED",
    "WASTED",
];

/// What `uvmtop` tells of such a program is what the driver's statistics say, and none of it is 0.
fn shown(rig: &mut Rig) -> Result<(), Failure> {
    // With room for half of its blocks, it evicts its own, and they come back.
    let max = rig.process.set_quota(rig.gpu.uuid(), 4 * BLOCK)?;
    for _ in 0..2 {
        rig.round()?;
    }
    // The last kernel's second block is there.
    let last = rig.data.address() + rig.data.bytes() - BLOCK;
    rig.process.discard(last, BLOCK, Discard::Lazy)?;
    let truth = truth::agrees(&rig.process, &rig.gpu, &[&rig.data], Some(max))?;
    let cells = uvmtop::cells(&uvmtop::said(&["--once"])?)?;
    println!("# uvmtop: {cells:?}");
    for column in COLUMNS {
        let cell = cells.get(column).map_or("-", String::as_str);
        ensure!(
            !cell.starts_with(['-', '0']),
            "uvmtop's {column} is {cell}, of {:?} and {:?}",
            truth.here,
            truth.learnt
        );
    }
    Ok(())
}
