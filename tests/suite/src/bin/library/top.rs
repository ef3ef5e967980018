// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `uvmtop` on the real driver: its numbers are the statistics'.

use std::process::Command;
use std::time::Duration;

use serde_json::{json, Value};
use uvm_suite::{ensure, skip, Failure, Outcome, Pass};
use vgpu_client::{driver_version, Buffer, Discard, DriverStats, Gpu, Kernel, Op, Process, BLOCK};

/// Bit of `UVM_RUST_GET_VERSION`: the driver has statistics.
const FEATURE_STATS: u64 = uvm_uapi::UVM_RUST_FEATURE_STATS as u64;

/// The same: a VA space has a maximum of GPU memory.
const FEATURE_QUOTA: u64 = uvm_uapi::UVM_RUST_FEATURE_QUOTA as u64;

/// The names that uvmtop gives causes and queues, in the order of the uAPI's numbers.
const CAUSES: [&str; 5] = ["fault", "prefetch", "eviction", "api", "access_counter"];
const QUEUES: [&str; 5] = ["free", "unused", "discarded", "used", "address"];

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

    let here = DriverStats::get(&process, gpu.uuid(), false)?;
    let all = DriverStats::get(&process, gpu.uuid(), true)?;
    let shown = uvmtop()?;
    let after = DriverStats::get(&process, gpu.uuid(), true)?;
    ensure!(
        (all.faults, all.queued) == (after.faults, after.queued),
        "something moved meanwhile"
    );
    ensure!(
        here.faults > 0 && here.evicted_chunks() > 0 && here.gpu_to_host[2].bytes > 0,
        "nothing was evicted: {here:?}"
    );

    let whole = shown["gpus"]
        .as_array()
        .and_then(|gpus| gpus.iter().find(|g| !g["counts"].is_null()))
        .ok_or_else(|| Failure::from(format!("no GPU has counts: {shown}")))?;
    same("the GPU", &whole["counts"], &all)?;
    for (n, queue) in QUEUES.iter().enumerate() {
        let (there, told) = (&whole["queued"][*queue], all.queued[n]);
        ensure!(
            there == &Value::from(told),
            "queue {queue}: {there}, not {told}"
        );
    }
    let mine = own(&shown)?;
    let mut gpus = mine["gpus"].as_object().into_iter().flatten();
    let (Some((_, counts)), None) = (gpus.next(), gpus.next()) else {
        return Err(format!("not one GPU of this process: {mine}").into());
    };
    same("this process", counts, &here)?;
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
    let (here, all, shown) = (stats(false)?, stats(true)?, uvmtop()?);
    let mine = own(&shown)?;
    for counts in mine["gpus"]
        .as_object()
        .into_iter()
        .flat_map(|of| of.values())
    {
        same("this process", counts, &here)?;
    }
    let gpus = shown["gpus"].as_array().into_iter().flatten();
    for counts in gpus.map(|gpu| &gpu["counts"]).filter(|c| !c.is_null()) {
        same("the GPU", counts, &all)?;
    }
    let only = |of: &Value| {
        of.as_object()
            .and_then(|gpus| gpus.values().next()?.as_u64())
    };
    ensure!(
        only(&mine["bytes_gpu_discarded"]) == Some(2 * BLOCK) && mine["bytes_gpu_max"] == json!({}),
        "two blocks are discarded, and there is no maximum: {mine}"
    );

    // What is too much leaves at once.
    let max = process.set_quota(gpu.uuid(), 8 * BLOCK)?;
    let shown = uvmtop()?;
    let mine = own(&shown)?;
    let told = ["bytes_gpu", "bytes_gpu_max"].map(|key| only(&mine[key]));
    ensure!(told == [Some(max); 2], "{max} bytes are the most: {mine}");
    let page = said(&["--once"])?;
    let mark = format!("{}.0 MiB!", max >> 20);
    ensure!(page.contains(&mark), "no {mark} in the page: {page}");
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

/// What uvmtop tells of this process.
pub(crate) fn own(shown: &Value) -> Result<&Value, Failure> {
    let pid = Value::from(std::process::id());
    let mut all = shown["processes"].as_array().into_iter().flatten();
    all.find(|process| process["pid"] == pid)
        .ok_or_else(|| format!("this process is not shown: {shown}").into())
}

/// What uvmtop tells once, as JSON.
fn uvmtop() -> Result<Value, Failure> {
    let told = said(&["--once", "--json"])?;
    serde_json::from_str(&told).map_err(|e| format!("uvmtop's JSON: {e}").into())
}

/// uvmtop, which is beside this program.
pub(crate) fn command(options: &[&str]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?.with_file_name("uvmtop"));
    command.args(options);
    Ok(command)
}

/// What uvmtop prints with these options; an error if it fails.
fn said(options: &[&str]) -> Result<String, Failure> {
    let mut command = command(options)?;
    let told = command.output().map_err(|e| {
        let program = command.get_program().to_string_lossy();
        Failure::from(format!("{program}: {e} (cargo build --release -p uvmtop)"))
    })?;
    ensure!(
        told.status.success(),
        "uvmtop: {}: {}",
        told.status,
        String::from_utf8_lossy(&told.stderr)
    );
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// Whether all that uvmtop shows of `whom` is what the driver's statistics say.
fn same(whom: &str, shown: &Value, told: &DriverStats) -> Result<(), Failure> {
    let is = |name: &str, shown: &Value, told: u64| {
        ensure!(
            shown == &Value::from(told),
            "{whom}: uvmtop says {name} {shown}, the statistics {told}"
        );
        Ok::<(), Failure>(())
    };
    is("faults", &shown["faults"], told.faults)?;
    is("duplicates", &shown["duplicates"], told.duplicates)?;
    is("batches", &shown["batches"], told.batches)?;
    is("replays", &shown["replays"], told.replays)?;
    is("thrashed", &shown["thrashed"], told.thrashed)?;
    let wasted = told.prefetch_wasted;
    is("prefetch_wasted", &shown["prefetch_wasted"], wasted)?;
    for (n, queue) in QUEUES.iter().enumerate() {
        is(queue, &shown["evictions"][*queue], told.evictions[n])?;
    }
    for (n, cause) in CAUSES.iter().enumerate() {
        is(
            cause,
            &shown["host_to_gpu"][*cause],
            told.host_to_gpu[n].bytes,
        )?;
        is(
            cause,
            &shown["gpu_to_host"][*cause],
            told.gpu_to_host[n].bytes,
        )?;
        is(
            cause,
            &shown["gpu_to_gpu"][*cause],
            told.gpu_to_gpu[n].bytes,
        )?;
    }
    Ok(())
}
