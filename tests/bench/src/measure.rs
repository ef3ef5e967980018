// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What runs in the VM: workloads, and the CPU time of the thread that does the
//! driver's part of them.
//!
//! The clock of a thread stands still while it does not run, so neither the
//! software GPU's work nor idling counts; what the driver spins while it waits
//! for the GPU does, in both drivers alike.

use crate::{flash, queues};
use anyhow::{bail, ensure, Context, Result};
use nix::time::{clock_getcpuclockid, clock_gettime, ClockId};
use nix::unistd::Pid;
use std::fs;
use vgpu_client::{Buffer, Discard, Error, Gpu, Kernel, Op, Process, BLOCK};

/// Rounds of each workload; the first warms up and is not reported.
pub(crate) const ROUNDS: usize = 6;

/// Rounds of faults in order, whose batches differ, and with them what they cost, by twentieths.
const IN_ORDER_ROUNDS: usize = 21;

/// Which driver is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// NVIDIA's, unmodified, which is the baseline.
    Upstream,
    /// Ours, with its parameters as they are by default.
    Rust,
    /// Ours with upstream's fault loop and no statistics, so that what is left of
    /// ours on a fault's way is what discard and the eviction queues put there.
    RustWithCLoop,
    /// Ours with the SSD tier turned on, and a device at hand that is not attached yet.
    RustWithFlash,
}

impl Driver {
    /// The driver that the command line names so.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "upstream" => Self::Upstream,
            "rust" => Self::Rust,
            "rust-c-loop" => Self::RustWithCLoop,
            "rust-flash" => Self::RustWithFlash,
            other => bail!("no driver '{other}': use upstream, rust, rust-c-loop or rust-flash"),
        })
    }
}

/// Measures every row whose name holds `only`, for the driver that is loaded.
pub fn run(driver: Driver, only: &str) -> Result<()> {
    let wanted = |row: &str| row.contains(only);
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    if wanted("fault") {
        faults(driver, &process, &gpu)?;
    }
    // What follows does not depend on who services the faults.
    match driver {
        Driver::RustWithCLoop => return Ok(()),
        Driver::RustWithFlash if wanted("flash") => return flash::spills(&process),
        Driver::RustWithFlash => return Ok(()),
        Driver::Upstream | Driver::Rust => {}
    }
    if wanted("evict") {
        evictions(driver, &process, &gpu)?;
    }
    if wanted("discard") {
        for mib in [2, 8, 32, 128] {
            discards(driver, &process, &gpu, mib)?;
        }
        traffic(driver, &process, &gpu, 128)?;
    }
    if wanted("queue") {
        queues::run(driver)?;
    }
    Ok(())
}

/// Prints one measurement: driver, row, unit, value.
pub(crate) fn say(driver: Driver, row: &str, unit: &str, value: f64) {
    let (driver, note) = match driver {
        Driver::Upstream => ("upstream", ""),
        Driver::Rust => ("rust", ""),
        Driver::RustWithCLoop => ("rust", " (C loop)"),
        Driver::RustWithFlash => ("rust", " (SSD tier)"),
    };
    println!("{driver}\t{row}{note}\t{unit}\t{value:.1}");
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
///
/// Scattered faults are as many at a time as a batch takes, 256. If there were more, the batches would depend on when
/// the bottom half looks, and with them a fault's cost, by half.
fn faults(driver: Driver, process: &Process, gpu: &Gpu) -> Result<()> {
    let clock = fault_clock()?;
    let data = Buffer::<u64>::managed(process, (16 * BLOCK / 8) as usize)?;
    for scattered in [false, true] {
        let (row, warps, rounds) = if scattered {
            ("fault/scattered", 8, ROUNDS)
        } else {
            ("fault/in-order", 64, IN_ORDER_ROUNDS)
        };
        for round in 0..rounds {
            data.fill(|i| (i + round) as u64);
            let before = (gpu.stats()?.faults, nanoseconds(clock)?);
            let op = Op::check(&data).pattern(round as u64, 1).warps(warps);
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
fn evictions(driver: Driver, process: &Process, gpu: &Gpu) -> Result<()> {
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

/// The two kinds of discard, as rows name them.
const KINDS: [(Discard, &str); 2] = [(Discard::Eager, "eager"), (Discard::Lazy, "lazy")];

/// How a driver is rid of what a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It knows no discard: the buffer is freed, or its contents are kept.
    Without,
    /// By ioctl 80, with a prefetch before the memory is written anew.
    Discard,
}

/// The ways of a driver, and what stands before the kind in the names of their rows. The unmodified
/// driver of 580 and later has both: rows "native" are its own discard, beside ours.
fn ways(driver: Driver, process: &Process) -> Result<Vec<(Way, &'static str)>> {
    if driver != Driver::Upstream {
        return Ok(vec![(Way::Discard, "")]);
    }
    let mut ways = vec![(Way::Without, "")];
    // Flags that do not exist are refused by whoever knows the call; others do not know its number.
    match process.discard_with(0, 0, u64::MAX) {
        Err(Error::Uvm { .. }) => ways.push((Way::Discard, "native/")),
        Err(Error::Os { .. }) => {}
        other => bail!("a discard of nothing, with flags that do not exist: {other:?}"),
    }
    Ok(ways)
}

/// A buffer that is on the GPU, mapped there, and live.
fn on_gpu(process: &Process, gpu: &Gpu, bytes: u64) -> Result<Buffer<u64>> {
    let buffer = Buffer::managed(process, (bytes / 8) as usize)?;
    process.migrate(buffer.address(), bytes, gpu.uuid())?;
    Ok(buffer)
}

/// Instructions of the caller to get rid of what a buffer holds. Ours discards it, and so does NVIDIA's where
/// it can; the unmodified driver without a discard frees it and allocates as much again on the GPU.
///
/// The rows "renew" say what it costs until the memory can be written anew without a
/// fault: with a discard, that takes a prefetch more.
fn discards(driver: Driver, process: &Process, gpu: &Gpu, mib: u64) -> Result<()> {
    let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
    let bytes = mib << 20;
    for (way, whose) in ways(driver, process)? {
        for (how, kind) in KINDS {
            let mut buffer = on_gpu(process, gpu, bytes)?;
            for round in 0..ROUNDS {
                let start = nanoseconds(clock)?;
                let middle;
                if way == Way::Without {
                    drop(buffer);
                    buffer = on_gpu(process, gpu, bytes)?;
                    middle = nanoseconds(clock)?;
                } else {
                    process.discard(buffer.address(), bytes, how)?;
                    middle = nanoseconds(clock)?;
                    process.migrate(buffer.address(), bytes, gpu.uuid())?;
                }
                let end = nanoseconds(clock)?;
                if round == 0 {
                    continue;
                }
                for (what, spent) in [("discard", middle - start), ("renew", end - start)] {
                    let row = format!("{what}/{whose}{kind}/{mib}MiB");
                    say(driver, &row, "instructions/call", spent as f64);
                }
            }
        }
    }
    Ok(())
}

/// Bytes that the GPU copies, both ways, when all of a buffer is discarded, then evicted, and then prefetched
/// again. A driver without a discard keeps what is in it.
fn traffic(driver: Driver, process: &Process, gpu: &Gpu, mib: u64) -> Result<()> {
    let bytes = mib << 20;
    for (way, whose) in ways(driver, process)? {
        for (how, kind) in KINDS {
            let buffer = on_gpu(process, gpu, bytes)?;
            let before = gpu.stats()?;
            if way == Way::Discard {
                process.discard(buffer.address(), bytes, how)?;
            }
            for at in (0..bytes).step_by(BLOCK as usize) {
                let evicted = gpu.evict(buffer.address() + at)?;
                ensure!(evicted, "{kind}: byte {at} had no chunk to evict");
            }
            process.migrate(buffer.address(), bytes, gpu.uuid())?;
            let after = gpu.stats()?;
            let moved = after.h2d_bytes + after.d2h_bytes - before.h2d_bytes - before.d2h_bytes;
            let row = format!("discard/{whose}bytes/{kind}/{mib}MiB");
            say(driver, &row, "bytes copied", moved as f64);
        }
    }
    Ok(())
}
