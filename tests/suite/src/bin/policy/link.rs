// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! How long a process that moves one block at a time waits for one whose threads move many. Bytes are counted, no time is
//! taken: what the copy engines copy for the loud process while the quiet one has its block copied.
//!
//! Vgpu's copies take their time (`copy_mib_s`), so that they queue up as those of a GPU do.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::shares::{FIRST, STEP};
use uvm_suite::modules::parameter;
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Gpu, Kernel, Op, Process, BLOCK};

const PARAMETER: &str = "uvm_rust_link_quantum";
/// Threads of the loud process, and the blocks that each of them moves by a call.
const THREADS: u64 = 8;
const BLOCKS: u64 = 8;
/// How often the quiet process moves its block there and back.
const TIMES: u64 = 8;
/// The most MiB that are copied while it has its block moved once, on the average, with the default quantum; and the least
/// where there is none.
const IN_WINDOWS: u64 = 32;
const WITHOUT: u64 = 40;

pub fn run(suite: &mut Suite) {
    let name = "a process that moves one block at a time beside one whose threads move many";
    suite.test(name, &[], || beside(Quiet::moves));
    let name = "a process that faults on one block at a time beside one whose threads move many";
    suite.test(name, &[], || beside(Quiet::faults));
}

/// A process that moves its memory to the GPU and back.
struct Mover {
    process: Process,
    gpu: Gpu,
    data: Buffer<u64>,
}

impl Mover {
    fn new(blocks: u64) -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let data = Buffer::managed(&process, (blocks * BLOCK / 8) as usize)?;
        data.fill(|i| FIRST.wrapping_add(STEP.wrapping_mul(i as u64)));
        Ok(Self { process, gpu, data })
    }

    /// Moves a part of it there and back until it `is_over`.
    fn moves_until(&self, part: u64, is_over: &AtomicBool) -> Result<(), Failure> {
        let base = self.data.address() + part * BLOCKS * BLOCK;
        while !is_over.load(Relaxed) {
            for to in [self.gpu.uuid(), Uuid::CPU] {
                self.process.migrate(base, BLOCKS * BLOCK, to)?;
            }
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        let value = |i: usize| FIRST.wrapping_add(STEP.wrapping_mul(i as u64));
        (0..self.data.len())
            .step_by(512)
            .all(|i| self.data.get(i) == value(i))
    }

    /// What the GPU's copy engines have copied, for all processes.
    fn copied(&self) -> Result<u64, Failure> {
        let stats = self.gpu.stats()?;
        Ok(stats.h2d_bytes + stats.d2h_bytes)
    }
}

struct Quiet(Mover);

impl Quiet {
    fn moves(&self) -> Result<(), Failure> {
        let data = &self.0.data;
        Ok(self
            .0
            .process
            .migrate(data.address(), BLOCK, self.0.gpu.uuid())?)
    }

    fn faults(&self) -> Result<(), Failure> {
        let check = Op::check(&self.0.data).every(BLOCK).pattern(FIRST, STEP);
        let kernel = Kernel::new().op(check.lanes(1));
        self.0.gpu.launch(&kernel)?.wait()?.ok()?;
        Ok(())
    }

    fn goes_back(&self) -> Result<(), Failure> {
        Ok(self
            .0
            .process
            .migrate(self.0.data.address(), BLOCK, Uuid::CPU)?)
    }
}

fn beside(comes: impl Fn(&Quiet) -> Result<(), Failure>) -> Outcome {
    let Some(quantum) = parameter("nvidia_uvm", PARAMETER) else {
        skip!("{PARAMETER} is not there: not our driver");
    };
    let quantum: u64 = quantum.parse().map_err(|_| "no number")?;
    let (loud, quiet) = (Mover::new(THREADS * BLOCKS)?, Quiet(Mover::new(1)?));
    let over = AtomicBool::new(false);
    let (there, back) = thread::scope(|scope| {
        let movers: Vec<_> = (0..THREADS)
            .map(|part| {
                let (loud, over) = (&loud, &over);
                scope.spawn(move || loud.moves_until(part, over))
            })
            .collect();
        let has_failed = || movers.iter().any(|mover| mover.is_finished());
        let counted = among(&quiet, comes, has_failed);
        over.store(true, Relaxed);
        for mover in movers {
            mover.joined()??;
        }
        counted
    })?;
    println!("# quantum of {quantum} MiB: {there} KiB were copied while a block came, {back} KiB while it went");
    ensure!(
        loud.is_whole() && quiet.0.is_whole(),
        "the data are not what they were"
    );
    let of_one = ((there + back) / 2) >> 10;
    match quantum {
        0 => ensure!(
            of_one >= WITHOUT,
            "{of_one} MiB, as few as with a quantum: load vgpu with copy_mib_s"
        ),
        _ => ensure!(
            of_one <= IN_WINDOWS,
            "{of_one} MiB: the quiet process waits for more than the loud one's quantum"
        ),
    }
    Ok(Pass::Ok)
}

/// How many KiB are copied while the quiet process has its block come, and go, on the average; its own are among these.
fn among(
    quiet: &Quiet,
    comes: impl Fn(&Quiet) -> Result<(), Failure>,
    has_failed: impl Fn() -> bool,
) -> Result<(u64, u64), Failure> {
    let first = quiet.0.copied()?;
    while quiet.0.copied()? < first + THREADS * BLOCKS * BLOCK {
        ensure!(!has_failed(), "the loud process has ended");
        thread::sleep(Duration::from_millis(10));
    }
    // From the first copy on the GPU is shared.
    comes(quiet)?;
    quiet.goes_back()?;
    let (mut there, mut back) = (0, 0);
    for _ in 0..TIMES {
        let before = quiet.0.copied()?;
        comes(quiet)?;
        let between = quiet.0.copied()?;
        quiet.goes_back()?;
        let after = quiet.0.copied()?;
        there += between - before;
        back += after - between;
    }
    Ok(((there / TIMES) >> 10, (back / TIMES) >> 10))
}
