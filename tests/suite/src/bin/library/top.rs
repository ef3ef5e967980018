// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `uvmtop` on the real driver: its numbers are the statistics'.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use uvm_suite::{ensure, skip, Failure, Outcome, Pass};
use vgpu_client::{driver_version, Buffer, DriverStats, Gpu, Kernel, Op, Process, BLOCK};

/// Bit of `UVM_RUST_GET_VERSION`: the driver has statistics.
const FEATURE_STATS: u64 = uvm_uapi::UVM_RUST_FEATURE_STATS as u64;

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
    let pid = Value::from(std::process::id());
    let mine = shown["processes"]
        .as_array()
        .and_then(|all| all.iter().find(|p| p["pid"] == pid))
        .ok_or_else(|| Failure::from(format!("this process is not shown: {shown}")))?;
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

/// What uvmtop, which is beside this program, tells once.
fn uvmtop() -> Result<Value, Failure> {
    let program = std::env::current_exe()?.with_file_name("uvmtop");
    let told = Command::new(&program)
        .args(["--once", "--json"])
        .output()
        .map_err(|e| {
            let program = program.display();
            Failure::from(format!("{program}: {e} (cargo build --release -p uvmtop)"))
        })?;
    ensure!(
        told.status.success(),
        "uvmtop: {}: {}",
        told.status,
        String::from_utf8_lossy(&told.stderr)
    );
    serde_json::from_slice(&told.stdout).map_err(|e| format!("uvmtop's JSON: {e}").into())
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
