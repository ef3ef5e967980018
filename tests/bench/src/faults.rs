// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Rows `fault/<batch>/<duplicates>` say what a serviced fault costs the fault handler's
//! thread. `<batch>` is the most entries that a batch may have, a parameter of the module,
//! which the caller has set. `<duplicates>` is the share of entries that ask for what
//! another one asks for.
//!
//! A kernel reads pages that the CPU has written. Several warps of different µTLBs read
//! each page, since the GPU merges what one instruction of a warp asks for, and so makes no
//! duplicates of it. The caller has turned the tree prefetcher off: a fault then costs its
//! own page. A share of a 2 MiB block's migration is the same code in both drivers, and
//! many times the loop's instructions. The number of faults outstanding is a few batches,
//! since what a batch leaves in the ring is flushed and comes back.

use crate::measure::{fault_clock, nanoseconds, say, Driver};
use anyhow::{ensure, Result};
use vgpu_client::{Buffer, Kernel, Op, Process, BLOCK};

/// Rounds of each row; the first warms up and is not reported.
const ROUNDS: usize = 7;
/// (percent of duplicates, warps that ask for each page)
const SHARES: [(u32, u32); 3] = [(0, 1), (50, 2), (90, 10)];
/// µTLBs of the software GPU, which the askers of a page are spread over.
const UTLBS: u32 = 16;

/// Measures the rows of this batch size, or one of them.
pub fn run(driver: Driver, batch: u32, only: Option<u32>) -> Result<()> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let clock = fault_clock()?;
    // With small batches every fault costs a replay, which takes its time.
    let blocks = if batch < 256 { 1 } else { 3 };
    let data = Buffer::<u64>::managed(&process, (blocks * BLOCK / 8) as usize)?;
    for (percent, askers) in SHARES {
        if only.is_some_and(|only| only != percent) {
            continue;
        }
        for round in 0..ROUNDS {
            data.fill(|i| (i + round) as u64);
            let before = (gpu.stats()?, nanoseconds(clock)?);
            let mut kernel = Kernel::new();
            for asker in 0..askers {
                let (lanes, warps) = spread(batch / askers);
                let first = asker * UTLBS / askers;
                let op = Op::check(&data).pattern(round as u64, 1);
                kernel = kernel.op(op.lanes(lanes).warps(warps).utlbs(first, 4));
            }
            gpu.launch(&kernel)?.wait()?.ok()?;
            gpu.drain_faults()?;
            let after = gpu.stats()?;
            let spent = nanoseconds(clock)? - before.1;
            let faults = after.faults - before.0.faults;
            let again = after.fault_duplicates - before.0.fault_duplicates;
            ensure!(faults > 0, "batch {batch}: the GPU did not fault");
            if round == 0 {
                continue;
            }
            let row = format!("fault/{batch}/{percent}");
            say(
                driver,
                &row,
                "instructions/fault",
                spent as f64 / faults as f64,
            );
            eprintln!(
                "{driver:?} {row}: {faults} faults, {again} duplicates, {spent} instructions"
            );
        }
    }
    Ok(())
}

/// Lanes and warps of one asker, so that about this many pages are asked for at a time.
fn spread(pages: u32) -> (u32, u32) {
    let lanes = pages.clamp(1, 32);
    (lanes, (pages / lanes).max(1))
}
