// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a page costs on its way between host memory and the SSD.

use crate::measure::{nanoseconds, say, Driver, ROUNDS};
use anyhow::{ensure, Context, Result};
use nix::time::{clock_getcpuclockid, ClockId};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::{env, fs};
use vgpu_client::flash::Flash;
use vgpu_client::{Buffer, Process, BLOCK, PAGE};

/// Instructions per page of whole va_blocks that are moved to the device and back: unmapping or
/// mapping, encryption, checksum, and the block layer, by the caller and by the kernel's workers,
/// who read for it.
/// The device's name is in `BENCH_DEVICE`; it is OVERWRITTEN.
pub fn spills(process: &Process) -> Result<()> {
    const BLOCKS: u64 = 16;
    let device = env::var("BENCH_DEVICE").context("BENCH_DEVICE, a block device")?;
    process.flash_attach(Flash {
        path: device.as_ref(),
        host_bytes: 1 << 30,
        quota_bytes: 0,
        flags: 0,
    })?;
    let data = Buffer::<u64>::managed(process, (BLOCKS * BLOCK / 8) as usize)?;
    let pages = (data.bytes() / PAGE) as f64;
    for round in 0..ROUNDS {
        data.fill(|i| (i + round) as u64);
        let start = Spent::now()?;
        process.flash_move(data.address(), data.bytes(), false)?;
        let spill = start.since()?;
        let there = process.flash_stats()?.pages_mine;
        ensure!(
            there == pages as u64,
            "{there} of {pages} pages were spilled"
        );
        let start = Spent::now()?;
        process.flash_move(data.address(), data.bytes(), true)?;
        let fetch = start.since()?;
        if round > 0 {
            for (row, spent) in [("flash/spill", spill), ("flash/fetch", fetch)] {
                let each = spent as f64 / pages;
                say(Driver::Rust, row, "instructions/page", each);
            }
        }
        let wrong = data.first_other(|i| (i + round) as u64);
        ensure!(wrong.is_none(), "after spill and fetch: {wrong:?}");
    }
    drop(data);
    process.flash_detach()?;
    Ok(())
}

const MINE: ClockId = ClockId::CLOCK_PROCESS_CPUTIME_ID;

/// CPU time up to some moment, in nanoseconds.
struct Spent {
    mine: u64,
    workers: HashMap<i32, u64>,
}

impl Spent {
    fn now() -> Result<Self> {
        let workers = workers()?;
        // Last here and first below, as looking for the workers takes time of this process's own.
        let mine = nanoseconds(MINE)?;
        Ok(Self { mine, workers })
    }

    /// What was spent since, by this process and by the kernel's workers.
    fn since(&self) -> Result<u64> {
        let mine = nanoseconds(MINE)? - self.mine;
        // Those that have come meanwhile had spent nothing before.
        let before = |pid| self.workers.get(pid).copied().unwrap_or(0);
        let now = workers()?;
        Ok(mine + now.iter().map(|(pid, ns)| ns - before(pid)).sum::<u64>())
    }
}

/// CPU time of each of the kernel's workers.
fn workers() -> Result<HashMap<i32, u64>> {
    let mut spent = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // A task may end while it is looked at.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if !name.starts_with("kworker/") {
            continue;
        }
        if let Ok(clock) = clock_getcpuclockid(Pid::from_raw(pid)) {
            spent.insert(pid, nanoseconds(clock)?);
        }
    }
    Ok(spent)
}
