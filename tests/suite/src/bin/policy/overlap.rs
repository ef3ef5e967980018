// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The stages of prefetching go on at the same time, and faults of others do not end it (`uvm_rust_prefetch=1`).
//!
//! Vgpu's copies take their time (`copy_mib_s`), so that a block's copy is still under way when the worker could have
//! begun the next one. Whether the worker had is a count of the driver's, not a time.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, DriverStats, Gpu, Kernel, Op, Process, BLOCK};

use crate::together::{is_on, BLOCK_WORDS, PARAMETER};
use crate::wasted::Rig;

/// How often the worker brings all blocks of the program.
const TIMES: u64 = 3;
/// How many other processes fault all the time.
const OTHERS: usize = 4;
/// How far from each other the accesses of these are.
const APART: u64 = 64 << 10;
/// How many batches of their faults are serviced for each block that is prefetched, at most.
const BATCHES: u64 = 4;
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(300);

pub fn run(suite: &mut Suite) {
    suite.test("copies of several blocks are under way", &[], beside);
    suite.test("another process faults all the time", &[], among_faults);
}

/// While a block is copied, the next one has begun; each copy is waited for once, if at all.
fn beside() -> Outcome {
    if !is_on() {
        skip!("{PARAMETER} is not on");
    }
    let mut rig = Rig::learnt()?;
    let before = rig.process.prefetch_waits()?;
    let moved = moved(&rig)?;
    let mut blocks = 0;
    for _ in 0..TIMES {
        blocks += rig.wants_all()?;
        has_ended(&rig)?;
        rig.settle()?;
    }
    let moved = self::moved(&rig)? - moved;
    let after = rig.process.prefetch_waits()?;
    let (waited, beside) = (after.0 - before.0, after.1 - before.1);
    println!(
        "# {moved} blocks came, {waited} copies were waited for, {beside} of them beside another"
    );
    ensure!(moved == blocks, "{moved} of {blocks} blocks came");
    ensure!(waited <= moved, "copies are waited for twice");
    ensure!(
        4 * waited >= moved,
        "copies are over at once: load vgpu with copy_mib_s"
    );
    ensure!(
        2 * beside >= waited,
        "a block's copy is waited for before the next block is begun"
    );
    Ok(Pass::Ok)
}

/// The worker waits for faults before each block, and goes on all the same.
fn among_faults() -> Outcome {
    if !is_on() {
        skip!("{PARAMETER} is not on");
    }
    let mut rig = Rig::learnt()?;
    let done = AtomicBool::new(false);
    let (moved, batches) = std::thread::scope(|scope| -> Result<_, Failure> {
        let others = [(); OTHERS].map(|()| scope.spawn(|| faults_until(&done)));
        let came = come_among(&mut rig);
        done.store(true, Relaxed);
        for other in others {
            other.joined()??;
        }
        came
    })?;
    println!("# {moved} blocks came among {batches} batches of others' faults");
    Ok(Pass::Ok)
}

/// The worker brings all blocks of the program, again and again, while others' faults are serviced. How many blocks came,
/// and how many batches of faults there were meanwhile.
fn come_among(rig: &mut Rig) -> Result<(u64, u64), Failure> {
    let batches = |rig: &Rig| -> Result<u64, Failure> {
        Ok(DriverStats::get(&rig.process, rig.gpu.uuid(), true)?.batches)
    };
    let start = Instant::now();
    let first = batches(rig)?;
    while batches(rig)? < first + OTHERS as u64 {
        ensure!(start.elapsed() < PATIENCE, "the others do not fault");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (before, first, mut wanted) = (moved(rig)?, batches(rig)?, 0);
    let most = BATCHES * TIMES * rig.blocks();
    for _ in 0..TIMES {
        wanted += rig.wants_all()?;
        loop {
            let (moved, batches) = (moved(rig)? - before, batches(rig)? - first);
            if moved >= wanted {
                break;
            }
            ensure!(
                batches <= most && start.elapsed() < PATIENCE,
                "{moved} of {wanted} blocks came among {batches} batches of others' faults"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let batches = batches(rig)? - first;
    ensure!(
        4 * batches >= wanted,
        "the others had {batches} batches of faults while {wanted} blocks came"
    );
    Ok((moved(rig)? - before, batches))
}

/// Waits until the worker has done all that it was woken for. Its counts may stand still before, while it waits for a copy.
fn has_ended(rig: &Rig) -> Result<(), Failure> {
    let start = Instant::now();
    while rig.process.prefetch_worker_is_at_work()? {
        ensure!(start.elapsed() < PATIENCE, "the worker does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How many blocks were prefetched for the program.
fn moved(rig: &Rig) -> Result<u64, Failure> {
    Ok(rig.process.prefetch_stats(rig.gpu.uuid())?.prefetched)
}

/// A process that announces nothing: its block goes to the host again and again, and its kernel faults.
fn faults_until(done: &AtomicBool) -> Result<(), Failure> {
    let process = Process::new()?;
    let gpu: Gpu = process.gpu(0)?;
    let data = Buffer::<u64>::managed(&process, BLOCK_WORDS)?;
    data.fill(|i| i as u64);
    while !done.load(Relaxed) {
        process.migrate(data.address(), BLOCK, Uuid::CPU)?;
        let check = Op::check(&data).every(APART).pattern(0, APART / 8).lanes(1);
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    }
    Ok(())
}
