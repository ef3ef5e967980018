// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Step 18: access counters.

use uvm_suite::{ensure, no_leak, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::{self, Uuid};
use vgpu_client::vgpu::{PERSONALITY_AMPERE, PERSONALITY_VOLTA};
use vgpu_client::{Buffer, Cause, Event, EventQueue, Gpu, NvStatus, Op, PAGE};

use crate::user::{resident_on, run_kernel, start, unchanged, WORDS};
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "step 18: access counters, configured and reset",
        NONE,
        access_counters,
    );
    suite.test(
        "step 18: access counters move pages",
        NONE,
        access_counter_migration,
    );
    suite.test("step 18: no leak after steps 13 to 18", NONE, no_leak);
}

fn counters_config(gpu: &Gpu) -> uvm::ReconfigureAccessCounters {
    uvm::ReconfigureAccessCounters {
        gpu: gpu.uuid(),
        granularity: 3,
        momc_granularity: 3,
        use_limit: 4,
        momc_use_limit: 4,
        threshold: 8,
        enable_migrations: 1,
        ..Default::default()
    }
}

/// Why a test of counters on Volta is skipped where UVM has none.
const NONE_ON_VOLTA: &str = "this release has no access counters on Volta (docs/bases.md)";

/// Whether UVM counts the accesses of this GPU, by its answer to the first call about them: releases from 570.133 on
/// refuse it on Volta.
fn counts<T>(gpu: &Gpu, answer: vgpu_client::Result<T>) -> Result<bool, Failure> {
    let is_volta = gpu.info().personality == PERSONALITY_VOLTA;
    match answer {
        Err(e) if is_volta && e.status() == Some(NvStatus::NOT_SUPPORTED) => Ok(false),
        answer => Ok(answer.map(|_| true)?),
    }
}

/// UVM tells the GPU to count, and to start over; the GPU notifies at the threshold that was
/// set, and once until it is told to start over.
fn access_counters() -> Outcome {
    const THRESHOLD: u64 = 8;
    let (process, gpu) = start()?;
    if gpu.info().personality == PERSONALITY_AMPERE {
        skip!("UVM has no access counters on GA100 (docs/vgpu.md)");
    }
    let mut by_default = uvm::AccessCountersEnabledByDefault {
        gpu: gpu.uuid(),
        ..Default::default()
    };
    process.call(&mut by_default)?;
    // In the CPU's memory, mapped by the GPU; each read of the kernel is an access.
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    let (at, bytes) = (buffer.address(), buffer.bytes());
    process.set_accessed_by(at, bytes, gpu.uuid())?;
    process.set_preferred_location(at, bytes, Uuid::CPU)?;
    buffer.fill(|i| i as u64);
    let read = |times| run_kernel(&gpu, Op::read(&buffer).range(0, 1).lanes(1).times(times));
    read(1)?;
    let notified = |times| -> Result<u64, Failure> {
        let before = gpu.stats()?.access_notifications;
        let report = read(times)?;
        ensure!(
            report.faults == 0,
            "it is not mapped: {} faults",
            report.faults
        );
        Ok(gpu.stats()?.access_notifications - before)
    };
    let ignored = process.call(&mut uvm::SetIgnoreAccessCounters {
        gpu: gpu.uuid(),
        ignore: 1,
        rm_status: 0,
    });
    if !counts(&gpu, ignored)? {
        skip!("{NONE_ON_VOLTA}");
    }
    process.call(&mut counters_config(&gpu))?;
    let below = notified(THRESHOLD - 1)?;
    ensure!(below == 0, "{below} notifications below the threshold");
    let at = notified(1)?;
    ensure!(at == 1, "{at} notifications at the threshold");
    let again = notified(10 * THRESHOLD)?;
    ensure!(again == 0, "{again} notifications of what was notified");
    let clears = gpu.stats()?.access_clears;
    process.call(&mut uvm::ResetAccessCounters {
        gpu: gpu.uuid(),
        ..Default::default()
    })?;
    let cleared = gpu.stats()?.access_clears - clears;
    ensure!(cleared == 1, "a reset made {cleared} clears");
    let over = (notified(THRESHOLD - 1)?, notified(1)?);
    ensure!(over == (0, 1), "after the reset: {over:?} notifications");
    process.call(&mut uvm::SetIgnoreAccessCounters {
        gpu: gpu.uuid(),
        ignore: 0,
        rm_status: 0,
    })?;
    unchanged(&buffer, |i| i as u64)?;
    Ok(Pass::Ok)
}

fn access_counter_migration() -> Outcome {
    let (process, gpu) = start()?;
    if gpu.info().personality != PERSONALITY_VOLTA {
        skip!("UVM drops virtual notifications on x86 (docs/vgpu.md); run with GPU=volta");
    }
    if !counts(&gpu, process.call(&mut counters_config(&gpu)))? {
        skip!("{NONE_ON_VOLTA}");
    }
    let events = EventQueue::new(&process, 1 << 12)?;
    let buffer = Buffer::<u64>::managed(&process, 4 * WORDS)?;
    // Mapped from the CPU's memory, and staying there until counted.
    process.set_accessed_by(buffer.address(), buffer.bytes(), gpu.uuid())?;
    process.set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    buffer.fill(|i| i as u64 + 7);
    run_kernel(&gpu, Op::read(&buffer).every(PAGE))?;
    resident_on(&process, buffer.address(), Uuid::CPU)?;
    process.unset_preferred_location(buffer.address(), buffer.bytes())?;

    let sum = (0..4 * 512u64).map(|page| page * 512 + 7).sum::<u64>();
    for _ in 0..20 {
        let read = run_kernel(&gpu, Op::read(&buffer).every(PAGE))?;
        ensure!(read.sum == sum, "the GPU's sum is {}, not {sum}", read.sum);
        std::thread::sleep(std::time::Duration::from_millis(100));
        let moved = events.take(gpu.uuid())?.iter().any(|event| {
            matches!(
                event,
                Event::Migration {
                    cause: Cause::AccessCounter,
                    ..
                }
            )
        });
        if moved {
            resident_on(&process, buffer.address(), gpu.uuid())?;
            unchanged(&buffer, |i| i as u64 + 7)?;
            return Ok(Pass::Ok);
        }
    }
    let stats = gpu.stats()?;
    let (sent, remote) = (stats.access_notifications, stats.remote_accesses);
    Err(format!("nothing moved: {remote} remote accesses, {sent} notifications").into())
}
