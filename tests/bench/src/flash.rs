// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a page costs on its way between host memory and the SSD.

use crate::measure::{nanoseconds, say, Driver, ROUNDS};
use anyhow::{ensure, Context, Result};
use nix::time::ClockId;
use std::env;
use vgpu_client::flash::Flash;
use vgpu_client::{Buffer, Process, BLOCK, PAGE};

/// Instructions of the caller per page of whole va_blocks that it has moved to the
/// device and back: unmapping or mapping, encryption, checksum, and the block layer.
/// The device's name is in `BENCH_DEVICE`; it is OVERWRITTEN.
pub fn spills(process: &Process) -> Result<()> {
    const BLOCKS: u64 = 16;
    let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
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
        let start = nanoseconds(clock)?;
        process.flash_move(data.address(), data.bytes(), false)?;
        let spilled = nanoseconds(clock)?;
        let there = process.flash_stats()?.pages_mine;
        ensure!(
            there == pages as u64,
            "{there} of {pages} pages were spilled"
        );
        let middle = nanoseconds(clock)?;
        process.flash_move(data.address(), data.bytes(), true)?;
        let fetched = nanoseconds(clock)?;
        if round > 0 {
            for (row, spent) in [
                ("flash/spill", spilled - start),
                ("flash/fetch", fetched - middle),
            ] {
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
