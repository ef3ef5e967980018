// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What runs in the VM: workloads, and the CPU time of the thread that does the
//! driver's part of them.
//!
//! The clock of a thread stands still while it does not run, so neither the
//! software GPU's work nor idling counts; what the driver spins while it waits
//! for the GPU does, in both drivers alike.

use anyhow::{ensure, Context, Result};
use nix::time::{clock_getcpuclockid, clock_gettime, ClockId};
use nix::unistd::Pid;
use std::fs;
use vgpu_client::{Buffer, Gpu, Kernel, Op, Process, BLOCK};

/// Rounds of each workload; the first warms up and is not reported.
const ROUNDS: usize = 6;

/// Measures every row for the driver that is loaded.
pub fn run(driver: &str) -> Result<()> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    faults(driver, &process, &gpu)?;
    evictions(driver, &process, &gpu)
}

/// Prints one measurement: driver, row, unit, value.
pub(crate) fn say(driver: &str, row: &str, unit: &str, value: f64) {
    println!("{driver}\t{row}\t{unit}\t{value:.1}");
}

/// The CPU clock of the kernel thread of this name.
fn thread_clock(name: &str) -> Result<ClockId> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|c| c.trim_end() == name) {
            return Ok(clock_getcpuclockid(Pid::from_raw(pid))?);
        }
    }
    anyhow::bail!("no thread is called '{name}'; is the GPU registered?")
}

/// The CPU clock of the thread that services the first GPU's faults.
pub(crate) fn fault_clock() -> Result<ClockId> {
    thread_clock("UVM GPU1 BH")
        .or_else(|_| thread_clock("UVM GPU 1 BH"))
        .context("the fault handler's thread")
}

/// What a CPU clock shows.
pub(crate) fn nanoseconds(clock: ClockId) -> Result<u64> {
    let t = clock_gettime(clock)?;
    Ok(t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

/// Instructions of the bottom half per fault that the GPU wrote, for reads of a
/// buffer that the CPU has just written, in order and scattered.
fn faults(driver: &str, process: &Process, gpu: &Gpu) -> Result<()> {
    let clock = fault_clock()?;
    let data = Buffer::<u64>::managed(process, (16 * BLOCK / 8) as usize)?;
    for scattered in [false, true] {
        let row = if scattered {
            "fault/scattered"
        } else {
            "fault/in-order"
        };
        for round in 0..ROUNDS {
            data.fill(|i| (i + round) as u64);
            let before = (gpu.stats()?.faults, nanoseconds(clock)?);
            let op = Op::check(&data).pattern(round as u64, 1).warps(64);
            let op = if scattered { op.permuted() } else { op };
            gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
            gpu.drain_faults()?;
            let faults = gpu.stats()?.faults - before.0;
            ensure!(faults > 0, "{row}: the GPU did not fault");
            let spent = nanoseconds(clock)? - before.1;
            if round > 0 {
                say(
                    driver,
                    row,
                    "instructions/fault",
                    spent as f64 / faults as f64,
                );
            }
        }
    }
    Ok(())
}

/// Instructions of the caller per 2 MiB chunk that is evicted with all its pages.
fn evictions(driver: &str, process: &Process, gpu: &Gpu) -> Result<()> {
    const BLOCKS: u64 = 16;
    let data = Buffer::<u64>::managed(process, (BLOCKS * BLOCK / 8) as usize)?;
    for round in 0..ROUNDS {
        data.fill(|i| i as u64);
        process.migrate(data.address(), data.bytes(), gpu.uuid())?;
        let before = nanoseconds(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
        for block in 0..BLOCKS {
            let evicted = gpu.evict(data.address() + block * BLOCK)?;
            ensure!(evicted, "block {block} had no chunk to evict");
        }
        let spent = nanoseconds(ClockId::CLOCK_PROCESS_CPUTIME_ID)? - before;
        if round > 0 {
            say(
                driver,
                "evict/2MiB",
                "instructions/chunk",
                spent as f64 / BLOCKS as f64,
            );
        }
        let wrong = data.first_other(|i| i as u64);
        ensure!(wrong.is_none(), "after eviction: {wrong:?}");
    }
    Ok(())
}
