// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Faults beside what the driver does with a device of itself: spills for want of host memory, and reads of what the
//! correlation prefetcher predicts (`uvm_rust_prefetch=1`). No call moves anything to the device or from it.
//!
//! A program announces its kernels and runs them, until the driver foresees them. Then, again and again: its next kernels are
//! announced, and what they need is read from the device; they run, and their data go to the host; another program
//! writes more memory than the host may have, until the data are on the device. A third program's GPU looks at a block of its
//! own twice while the driver reads, and twice while it writes.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

use uvm_suite::modules::parameter;
use uvm_suite::{ensure, Failure, Joined};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Kernel, Op, Process, BLOCK};

use crate::overlap::look;
use crate::rig::{check, no_leak, plain, write, Done, Rig, WORDS};

/// The parameter of the module that this needs.
pub(crate) const PARAMETER: &str = "uvm_rust_prefetch";

/// Blocks that the host may have. Above seven eighths of them the driver spills, and reads nothing for prefetches.
const HOST_BLOCKS: usize = 24;
/// Kernels of the program, each of which needs a block: as many as may be on their way for prefetches.
const KERNELS: usize = 8;
/// How often the program runs before anything is on the device: the driver looks further ahead each time.
const ROUNDS: usize = 12;
/// How often all of that is done, and how many looks there are each time.
const TURNS: usize = 3;
const LOOKS: usize = 4;
/// After so many blocks of a flood somebody looks: the host is full by then, and the device writes.
const LOOKS_AFTER: [usize; 2] = [3, 6];
/// A flood writes no more blocks.
const FLOOD_MOST: usize = 16 * HOST_BLOCKS;
/// So long, at most, reads for prefetches may take until half of them have ended, and the prefetcher until it is at rest.
const PATIENCE: Duration = Duration::from_secs(20);

/// Values of the first words.
const DATA: u64 = 53;
const WANTED: u64 = 59;

/// What the driver did of itself.
#[derive(Debug, Default)]
struct Did {
    /// Blocks that were on the device, and came to the GPU before their kernel ran.
    brought: usize,
    /// Bytes that left host memory for the device.
    spilled: u64,
}

/// Runs it on the device of that path. Returns how many operations for others a fault's read was behind, at most.
pub(crate) fn faults(path: &Path) -> Result<u64, Failure> {
    let rig = Rig::with(plain(path, HOST_BLOCKS as u64))?;
    let third = Rig::unattached(Process::new()?)?;
    let flooding = Rig::unattached(Process::new()?)?;
    let wanted = third.buffer(TURNS * LOOKS)?;
    let mut program = Program::learnt(&rig)?;
    write(&wanted, WANTED);
    let mut flood = Flood::new(&flooding);
    flood.until(|_| Ok(program.is_away()? && is_away(&third, &wanted)?))?;

    let before = rig.stats()?;
    let mut did = Did::default();
    std::thread::scope(|scope| -> Done {
        let (looks, asked) = channel();
        let looking = scope.spawn(|| look_when_asked(&third, &wanted, asked));
        let ran = (0..TURNS).try_for_each(|_| -> Done {
            did.brought += program.turn(&mut flood, &looks)?;
            Ok(())
        });
        drop(looks);
        let looked = looking.joined()?;
        ran.and(looked)
    })?;
    let stats = rig.stats()?;
    did.spilled = stats.spilled - before.spilled;
    let most = stats.fault_waits_most;
    println!("# {did:?}; {most} operations for others, at most, ahead of a fault's");
    ensure!(
        stats.parked - before.parked >= (TURNS * LOOKS) as u64,
        "not each look's fault was put off: {stats:?}"
    );
    ensure!(
        did.brought >= TURNS * KERNELS / 4 && did.spilled >= (TURNS * KERNELS) as u64 * BLOCK,
        "the device has had little to do: {did:?}"
    );
    ensure!(most > 0, "no fault found anything ahead of it");
    check(&program.data, DATA)?;
    drop((wanted, flood, program));
    no_leak(&rig)?;
    Ok(most)
}

/// Whether the driver prefetches.
pub(crate) fn is_on() -> bool {
    parameter("nvidia_uvm", PARAMETER).as_deref() == Some("Y")
}

/// Whether nothing of the buffer's blocks is in memory, by their first pages.
fn is_away(rig: &Rig, buffer: &Buffer<u64>) -> Result<bool, Failure> {
    for block in 0..buffer.len() / WORDS {
        if !is_nowhere(rig, buffer, block)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_nowhere(rig: &Rig, buffer: &Buffer<u64>, block: usize) -> Result<bool, Failure> {
    let at = buffer.address() + block as u64 * BLOCK;
    Ok(rig.process.residency(at)?.resident.is_empty())
}

/// Looks at one block after the other, each when it is asked.
fn look_when_asked(rig: &Rig, wanted: &Buffer<u64>, asked: Receiver<()>) -> Done {
    for (block, ()) in asked.iter().enumerate() {
        ensure!(
            is_nowhere(rig, wanted, block)?,
            "block {block} is not on the device"
        );
        look(rig, wanted, block, WANTED)?;
    }
    Ok(())
}

/// The program that announces its kernels.
struct Program<'a> {
    rig: &'a Rig,
    data: Buffer<u64>,
    announced: u64,
}

impl<'a> Program<'a> {
    /// One whose kernels the driver foresees, and whose data are in host memory.
    fn learnt(rig: &'a Rig) -> Result<Self, Failure> {
        let data = rig.buffer(KERNELS)?;
        write(&data, DATA);
        let mut program = Self {
            rig,
            data,
            announced: 0,
        };
        for _ in 0..ROUNDS {
            program.runs()?;
        }
        program.to_host()?;
        let stats = rig.process.prefetch_stats(rig.gpu.uuid())?;
        ensure!(
            stats.kernels_right > KERNELS as u64,
            "the kernels are not foreseen: {stats:?}"
        );
        Ok(program)
    }

    fn announces(&mut self, kernel: usize) -> Done {
        self.announced += 1;
        let id = 1 + kernel as u64;
        Ok(self.rig.process.announce(self.rig.gpu.uuid(), id)?)
    }

    /// Announces each kernel, and runs it. Then nothing is on its way to the GPU any more.
    fn runs(&mut self) -> Done {
        for kernel in 0..KERNELS {
            self.announces(kernel)?;
            let op = Op::check(&self.data)
                .range(kernel * WORDS, WORDS)
                .every(4096)
                .pattern(DATA + (kernel * WORDS) as u64, 512)
                .lanes(1);
            self.rig.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        }
        let start = Instant::now();
        let (process, gpu) = (&self.rig.process, self.rig.gpu.uuid());
        while process.prefetch_stats(gpu)?.kernels < self.announced
            || process.prefetch_worker_is_at_work()?
        {
            ensure!(start.elapsed() < PATIENCE, "the prefetcher is not at rest");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn to_host(&self) -> Done {
        let (base, bytes) = (self.data.address(), self.data.bytes());
        Ok(self.rig.process.migrate(base, bytes, Uuid::CPU)?)
    }

    fn is_away(&self) -> Result<bool, Failure> {
        is_away(self.rig, &self.data)
    }

    /// How many of its blocks are on the GPU.
    fn on_gpu(&self) -> Result<usize, Failure> {
        let mut there = 0;
        for block in 0..KERNELS {
            let at = self.data.address() + block as u64 * BLOCK;
            let residency = self.rig.process.residency(at)?;
            there += usize::from(residency.resident.contains(&self.rig.gpu.uuid()));
        }
        Ok(there)
    }

    /// Waits until so many blocks are on the GPU, or that takes too long; returns how many are.
    fn waits_for(&self, blocks: usize, start: Instant) -> Result<usize, Failure> {
        loop {
            let there = self.on_gpu()?;
            if there >= blocks || start.elapsed() > PATIENCE {
                return Ok(there);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// From data on the device to data on the device; returns how many blocks the driver brought by itself. What it brings
    /// last, it brings while the flood has begun.
    fn turn(&mut self, flood: &mut Flood<'_>, looks: &Sender<()>) -> Result<usize, Failure> {
        ensure!(self.is_away()?, "the data are not on the device");
        flood.make_room();
        let start = Instant::now();
        for kernel in 0..KERNELS {
            self.announces(kernel)?;
        }
        for blocks in [1, KERNELS / 4] {
            self.waits_for(blocks, start)?;
            let _ = looks.send(());
        }
        self.waits_for(KERNELS / 2, start)?;
        for _ in 0..HOST_BLOCKS / 2 {
            flood.block()?;
        }
        let brought = self.on_gpu()?;
        self.runs()?;
        self.to_host()?;
        flood.until(|blocks| {
            if LOOKS_AFTER.contains(&blocks) {
                let _ = looks.send(());
            }
            Ok(blocks > LOOKS_AFTER[1] && self.is_away()?)
        })?;
        Ok(brought)
    }
}

/// The program that writes more than the host may have. What it wrote long ago it frees.
struct Flood<'a> {
    rig: &'a Rig,
    blocks: VecDeque<Buffer<u64>>,
}

impl<'a> Flood<'a> {
    fn new(rig: &'a Rig) -> Self {
        Self {
            rig,
            blocks: VecDeque::new(),
        }
    }

    /// Writes one block more, for which it may have to wait.
    fn block(&mut self) -> Done {
        let block = self.rig.buffer(1)?;
        write(&block, 61);
        self.blocks.push_back(block);
        if self.blocks.len() > 2 * HOST_BLOCKS {
            self.blocks.pop_front();
        }
        Ok(())
    }

    /// Writes until `done` says so of the number of blocks that it has written.
    fn until(&mut self, mut done: impl FnMut(usize) -> Result<bool, Failure>) -> Done {
        for blocks in 1..=FLOOD_MOST {
            self.block()?;
            if done(blocks)? {
                return Ok(());
            }
        }
        Err("what is older than all of this stays in host memory".into())
    }

    /// Frees what it wrote last, which is in host memory.
    fn make_room(&mut self) {
        let left = self.blocks.len().saturating_sub(HOST_BLOCKS / 2);
        self.blocks.truncate(left);
    }
}
