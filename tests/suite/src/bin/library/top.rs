// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `uvmtop` on the real driver: its numbers are the statistics'.

use std::time::Duration;

use uvm_suite::truth::{agrees, FEATURE_QUOTA};
use uvm_suite::{ensure, skip, uvmtop, Failure, Outcome, Pass};
use vgpu_client::uvm::Uuid;
use vgpu_client::{driver_version, Buffer, Discard, DriverStats, Gpu, Kernel, Op, Process, BLOCK};

/// Bit of `UVM_RUST_GET_VERSION`: the driver has statistics.
const FEATURE_STATS: u64 = uvm_uapi::UVM_RUST_FEATURE_STATS as u64;

/// A program that faults, is evicted and moves memory by call; then both are asked.
pub(crate) fn equals_statistics() -> Outcome {
    let process = Process::new()?;
    if !matches!(driver_version(&process)?, Some((_, features)) if features & FEATURE_STATS != 0) {
        skip!("this driver counts nothing");
    }
    let gpu: Gpu = process.gpu(0)?;
    let blocks = gpu.info().vidmem_bytes / BLOCK + 4;
    let data = Buffer::<u64>::managed(&process, (blocks * BLOCK / 8) as usize)?;
    data.fill(|i| i as u64);
    let check = Op::check(&data).every(4096).pattern(0, 512).warps(32);
    gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    let wrong = data.first_other(|i| i as u64);
    ensure!(
        wrong.is_none(),
        "the data are not what they were: {wrong:?}"
    );
    settle(&process, &gpu)?;

    let here = agrees(&process, &gpu, &[&data], None)?.here;
    ensure!(
        here.faults > 0 && here.evicted_chunks() > 0 && here.gpu_to_host[2].bytes > 0,
        "nothing was evicted: {here:?}"
    );
    println!(
        "# {} faults, {} chunks evicted, {} KiB to the GPU, {} KiB back, told by both",
        here.faults,
        here.evicted_chunks(),
        here.host_to_gpu.iter().map(|t| t.bytes).sum::<u64>() >> 10,
        here.gpu_to_host.iter().map(|t| t.bytes).sum::<u64>() >> 10
    );
    Ok(Pass::Ok)
}

/// A program that goes twice through somewhat more memory than the GPU has, discards some, and may have no more.
pub(crate) fn thrash_is_shown() -> Outcome {
    let process = Process::new()?;
    let features = driver_version(&process)?.map_or(0, |(_, features)| features);
    if features & FEATURE_QUOTA == 0 {
        skip!("this driver has no queues, which know what is discarded");
    }
    let gpu: Gpu = process.gpu(0)?;
    let blocks = gpu.info().usable_bytes() / BLOCK + 8;
    let data = Buffer::<u64>::managed(&process, (blocks * BLOCK / 8) as usize)?;
    data.fill(|i| i as u64);
    let stats = |whole| DriverStats::get(&process, gpu.uuid(), whole);
    let through = || -> Result<DriverStats, Failure> {
        // One warp, as several would take each other's blocks.
        let check = Op::check(&data).every(4096).pattern(0, 512).warps(1);
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
        settle(&process, &gpu)?;
        Ok(stats(false)?)
    };
    let once = through()?;
    ensure!(
        once.evicted_chunks() > 0 && once.thrashed == 0,
        "nothing has come back yet: {once:?}"
    );
    let twice = through()?;
    let evicted = twice.evicted_chunks() - once.evicted_chunks();
    println!("# {} of {evicted} evicted blocks came back", twice.thrashed);
    ensure!(
        twice.thrashed <= blocks && twice.thrashed >= blocks * 3 / 4,
        "of {blocks} blocks, each of which was evicted and came back: {twice:?}"
    );

    let last = data.address() + (blocks - 2) * BLOCK;
    process.discard(last, 2 * BLOCK, Discard::Lazy)?;
    // Memory that nobody has touched is nowhere.
    let untouched = Buffer::<u64>::managed(&process, 3 * BLOCK as usize / 8)?;
    let mine = [&data, &untouched];
    let truth = agrees(&process, &gpu, &mine, None)?;
    ensure!(
        truth.discarded() == 2 * BLOCK && truth.here.thrashed > 0,
        "two blocks are discarded, and some came back: {:?}",
        truth.all
    );
    ensure!(
        truth.on_gpu() > 0 && truth.host > 0 && truth.on_gpu() + truth.host == data.bytes(),
        "{} bytes on the GPU and {} on the host are not all",
        truth.on_gpu(),
        truth.host
    );

    // What is too much leaves at once.
    let max = process.set_quota(gpu.uuid(), 8 * BLOCK)?;
    let lowered = agrees(&process, &gpu, &mine, Some(max))?;
    ensure!(lowered.on_gpu() == max, "{max} bytes are the most");
    // What is discarded went first, and is nowhere now.
    let (gone, went) = (truth.discarded(), truth.on_gpu() - max);
    ensure!(
        lowered.host == truth.host + went - gone,
        "{went} bytes left the GPU, {gone} of them discarded: {} were on the host, and {} are",
        truth.host,
        lowered.host
    );
    let page = uvmtop::said(&["--once"])?;
    let mark = format!("{}.0 MiB!", max >> 20);
    ensure!(page.contains(&mark), "no {mark} in the page: {page}");

    // All of it on the host, and then none.
    process.migrate(data.address(), data.bytes(), Uuid::CPU)?;
    let home = agrees(&process, &gpu, &mine, Some(max))?;
    ensure!(home.on_gpu() == 0, "something has stayed on the GPU");
    println!("# {} KiB are on the host, told by both", home.host >> 10);
    drop(data);
    let none = agrees(&process, &gpu, &[&untouched], Some(max))?;
    ensure!(home.host > 0 && none.host == 0, "what is freed is nowhere");
    Ok(Pass::Ok)
}

/// Waits until the driver has done what is left of the faults.
fn settle(process: &Process, gpu: &Gpu) -> Result<(), Failure> {
    let mut last = (0, 0);
    for _ in 0..300 {
        let now = DriverStats::get(process, gpu.uuid(), true)?;
        if last == (now.faults, now.replays) {
            return Ok(());
        }
        last = (now.faults, now.replays);
        std::thread::sleep(Duration::from_millis(200));
    }
    Err("faults come for a minute".into())
}
