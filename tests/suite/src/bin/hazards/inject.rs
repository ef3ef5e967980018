// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Errors that the software GPU is asked to make.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use uvm_suite::rm::{inject, keep, stop_channel, IN_USE};
use uvm_suite::{
    ensure, no_leak, skip, this_program, Allowed, Failure, Joined, Outcome, Pass, Suite,
};
use vgpu_client::uvm::{PmmReleaseFreeRootChunks, Uuid};
use vgpu_client::vgpu::{self, Inject, FEATURE_POISON, FEATURE_TLB, POISON};
use vgpu_client::{Buffer, Error, Gpu, Kernel, Op, Process, Vgpu, BLOCK};

use crate::{start, still_works, NONE, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("injected: a full fault buffer", NONE, full_buffer);
    // A stale translation may lead to memory that is not UVM's any more.
    let stale = &[Allowed {
        text: "; kernel ended",
        times: 10,
    }];
    suite.test(
        "injected: dropped invalidates are noticed",
        stale,
        dropped_invalidates,
    );
    suite.test("injected: refused allocations", NONE, refused_allocations);
    suite.test("injected: RM takes all memory back", NONE, evicted_by_rm);
    suite.test(
        "injected: RM takes a range back and keeps it",
        NONE,
        range_kept_by_rm,
    );
    suite.test(
        "injected: RM takes ranges back in two threads",
        NONE,
        ranges_kept_at_a_time,
    );
    suite.test("injected: memory that is kept is missed", NONE, missed);
    let error = &[Allowed {
        text: "vgpu",
        times: 4,
    }];
    suite.test(
        "injected: a channel error stops that channel only",
        error,
        channel_error,
    );
    suite.test("injected: not without CAP_SYS_ADMIN", NONE, no_privilege);
    suite.test("freed memory is poisoned, and nobody sees it", NONE, poison);
}

fn full_buffer() -> Outcome {
    let (process, gpu) = start()?;
    let before = gpu.stats()?;
    inject(&gpu, vgpu::INJECT_FAULT_BUFFER_FULL, 50)?;
    still_works(&process, &gpu)?;
    inject(&gpu, vgpu::INJECT_FAULT_BUFFER_FULL, 0)?;
    let held = gpu.stats()?.faults_held - before.faults_held;
    ensure!(held > 0, "no access was held back");

    // And a real one: more faults at a time than there are entries. If UVM took them away as
    // fast as they came, once more.
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let (held, faults) = overflow(&process, &gpu)?;
        if held > 0 {
            return Ok(Pass::Ok);
        }
        seen.push(faults);
    }
    let entries = gpu.info().fault_entries;
    Err(format!("{seen:?} faults, and the buffer of {entries} entries was never full").into())
}

/// Makes twice as many faults as the buffer has entries: (accesses that were held back,
/// faults).
fn overflow(process: &Process, gpu: &Gpu) -> Result<(u64, u64), Failure> {
    let faults = gpu.info().fault_entries * 2;
    let pages = (faults as usize).min(16 * 512);
    let buffer = Buffer::<u64>::managed(process, pages * 512)?;
    let all = Op::write(&buffer)
        .every(4096)
        .pattern(1, 1)
        .warps(faults.div_ceil(32));
    let before = gpu.stats()?;
    let done = gpu.launch(&Kernel::new().op(all).utlb_faults(512))?;
    let done = done.wait()?.ok()?;
    // No µTLB is at its limit, so that what was held back met a full buffer.
    let held = gpu.stats()?.faults_held - before.faults_held;
    for page in 0..pages {
        let seen = buffer.get(page * 512);
        ensure!(seen == 1 + page as u64, "page {page} holds {seen}");
    }
    Ok((held, done.faults))
}

/// The test of the test: if UVM did not invalidate, would anybody notice?
fn dropped_invalidates() -> Outcome {
    let (process, gpu) = start()?;
    if gpu.info().features & FEATURE_TLB == 0 {
        skip!("vgpu.ko was loaded without its TLB");
    }
    inject(&gpu, vgpu::INJECT_DROP_INVALIDATES, vgpu::INJECT_FOREVER)?;
    let noticed = ping_pong_goes_wrong(&process, &gpu);
    inject(&gpu, vgpu::INJECT_DROP_INVALIDATES, 0)?;
    let dropped = gpu.stats()?.tlb_invalidates_dropped;
    ensure!(dropped > 0, "no invalidate was dropped");
    ensure!(
        noticed?,
        "{dropped} invalidates were dropped, and all data was right"
    );
    drop((process, gpu));
    let (process, gpu) = start()?;
    ensure!(
        !ping_pong_goes_wrong(&process, &gpu)?,
        "wrong data with all invalidates made"
    );
    Ok(Pass::Ok)
}

fn ping_pong_goes_wrong(process: &Process, gpu: &Gpu) -> Result<bool, Failure> {
    let buffer = Buffer::<u64>::managed(process, 32 * 512)?;
    for round in 0..10u64 {
        buffer.fill(|i| round + i as u64);
        let kernel = Kernel::new()
            .op(Op::check(&buffer).pattern(round, 1))
            .op(Op::atomic_add(&buffer).pattern(5, 0).barrier());
        match gpu.launch(&kernel)?.wait()?.ok() {
            Ok(_) => {}
            Err(Error::Kernel(_)) => return Ok(true),
            Err(other) => return Err(other.into()),
        }
        if buffer.first_other(|i| round + i as u64 + 5).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn refused_allocations() -> Outcome {
    let (process, gpu) = start()?;
    let warm = Buffer::<u64>::managed(&process, 8 * WORDS)?;
    gpu.launch(&Kernel::new().op(Op::write(&warm).pattern(1, 1).warps(16)))?
        .wait()?
        .ok()?;
    inject(&gpu, vgpu::INJECT_PMA_FAILURE, vgpu::INJECT_FOREVER)?;
    // UVM has to make room among what it holds.
    let buffer = Buffer::<u64>::managed(&process, 16 * WORDS)?;
    let ended = gpu
        .launch(&Kernel::new().op(Op::write(&buffer).pattern(2, 1).warps(16)))?
        .wait();
    inject(&gpu, vgpu::INJECT_PMA_FAILURE, 0)?;
    ended?.ok()?;
    for (buffer, first) in [(&warm, 1), (&buffer, 2)] {
        let wrong = buffer.first_other(|i| first + i as u64);
        ensure!(wrong.is_none(), "wrong data: {wrong:?}");
    }
    Ok(Pass::Ok)
}

fn evict(gpu: &Gpu, what: Inject) -> Result<Inject, Failure> {
    Ok(gpu.device().inject(Inject {
        gpu: gpu.index(),
        ..what
    })?)
}

/// RM asks UVM only for pages that UVM has: what is free, RM takes itself. So UVM has nearly
/// all of them here, in a buffer that is as large as the GPU's memory allows.
fn evicted_by_rm() -> Outcome {
    let (process, gpu) = start()?;
    let count = (gpu.info().usable_bytes() / BLOCK)
        .saturating_sub(16)
        .max(1);
    let buffer = Buffer::<u64>::managed(&process, count as usize * WORDS)?;
    gpu.launch(&Kernel::new().op(Op::write(&buffer).pattern(7, 1).warps(16)))?
        .wait()?
        .ok()?;
    let kind = vgpu::INJECT_EVICT_PAGES;
    let done = evict(
        &gpu,
        Inject {
            kind,
            count,
            ..Default::default()
        },
    )?;
    ensure!(done.status == 0, "UVM refused with {:#x}", done.status);
    ensure!(
        done.bytes == count * BLOCK,
        "UVM gave {} of {}",
        done.bytes,
        count * BLOCK
    );
    let wrong = buffer.first_other(|i| 7 + i as u64);
    ensure!(wrong.is_none(), "wrong data: {wrong:?}");
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

const STEP: u64 = 2 * BLOCK;

/// RM takes ranges of vidmem back, all that it can have, and keeps them: UVM has so much
/// less, until RM's client closes. A range with memory of UVM's own in it is refused.
fn range_kept_by_rm() -> Outcome {
    let (process, gpu) = start()?;
    // A client of its own, to give the memory back by closing.
    let rm = Vgpu::open()?;
    let buffer = Buffer::<u64>::managed(&process, 8 * WORDS)?;
    gpu.launch(&Kernel::new().op(Op::write(&buffer).pattern(7, 1).warps(16)))?
        .wait()?
        .ok()?;
    let bytes_of_uvm = || -> Result<u64, Failure> {
        process.call(&mut PmmReleaseFreeRootChunks {
            gpu: gpu.uuid(),
            rm_status: 0,
        })?;
        Ok(gpu.stats()?.pma_bytes)
    };
    let before = bytes_of_uvm()?;
    let all = gpu.info().vidmem_bytes / (2 * STEP) * (2 * STEP);
    let (mut kept, mut refused) = (0, 0);
    // What a small program needs is left.
    let left = all / 2..all / 2 + 2 * STEP;
    for begin in (0..all).step_by(STEP as usize) {
        if left.contains(&begin) {
            continue;
        }
        let done = keep(&rm, gpu.index(), begin, begin + STEP)?;
        match (done.status, done.bytes) {
            (0, STEP) => kept += STEP,
            // RM's own, at the start, is not to be had.
            (0, bytes) if begin == 0 => kept += bytes,
            (IN_USE, 0) => refused += 1,
            other => return Err(format!("the range at {begin:#x}: {other:x?}").into()),
        }
    }
    println!("# RM got {kept} bytes of {all}, and {refused} ranges were refused");
    ensure!(kept >= all / 2, "RM got {kept} bytes of {all}");
    // UVM's channels and page tables are on this GPU.
    ensure!(refused > 0, "RM took ranges that UVM works with");
    let now = gpu.stats()?.pma_bytes;
    ensure!(
        now >= kept,
        "{now} bytes are given out, less than RM keeps ({kept})"
    );
    let wrong = buffer.first_other(|i| 7 + i as u64);
    ensure!(wrong.is_none(), "wrong data: {wrong:?}");
    still_works(&process, &gpu)?;
    drop(rm);
    let after = bytes_of_uvm()?;
    ensure!(
        after <= before,
        "{after} bytes are given out after RM gave back, {before} before"
    );
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// Two clients of RM's take ranges back at the same time, each from its half of vidmem, while a
/// program's data is in the way, and give them back.
fn ranges_kept_at_a_time() -> Outcome {
    const ROUNDS: u64 = 6;
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, 16 * WORDS)?;
    let half = gpu.info().vidmem_bytes / 2 / STEP * STEP;
    let before = gpu.stats()?.pma_bytes;
    let mut kept = 0;
    for round in 0..ROUNDS {
        gpu.launch(&Kernel::new().op(Op::write(&buffer).pattern(round, 1).warps(16)))?
            .wait()?
            .ok()?;
        let taken = std::thread::scope(|scope| {
            let take = |first: u64| {
                let gpu = &gpu;
                move || -> Result<(Vgpu, u64), Failure> {
                    let rm = Vgpu::open()?;
                    let mut kept = 0;
                    // All but what is RM's own, at the start.
                    for begin in (first + STEP..first + half).step_by(STEP as usize) {
                        let done = keep(&rm, gpu.index(), begin, begin + STEP)?;
                        ensure!(
                            matches!((done.status, done.bytes), (0, STEP) | (IN_USE, 0)),
                            "the range at {begin:#x}: {:#x}, {} bytes",
                            done.status,
                            done.bytes
                        );
                        kept += done.bytes;
                    }
                    Ok((rm, kept))
                }
            };
            let threads = [scope.spawn(take(0)), scope.spawn(take(half))];
            threads.map(|thread| thread.joined()?)
        });
        let taken: Vec<(Vgpu, u64)> = taken.into_iter().collect::<Result<_, _>>()?;
        let now = gpu.stats()?.pma_bytes;
        let sum: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
        ensure!(now >= sum, "{now} bytes are given out, and RM keeps {sum}");
        kept += sum;
        drop(taken);
        let wrong = buffer.first_other(|i| round + i as u64);
        ensure!(wrong.is_none(), "round {round}: wrong data: {wrong:?}");
    }
    ensure!(
        kept >= ROUNDS * half / 2,
        "RM got {kept} bytes in {ROUNDS} rounds"
    );
    drop(buffer);
    still_works(&process, &gpu)?;
    process.call(&mut PmmReleaseFreeRootChunks {
        gpu: gpu.uuid(),
        rm_status: 0,
    })?;
    let after = gpu.stats()?.pma_bytes;
    ensure!(
        after <= before + 2 * BLOCK,
        "{after} bytes are given out, {before} were before"
    );
    Ok(Pass::Ok)
}

/// The test of the test at the end of each suite: memory that somebody keeps is missed, until it
/// is given back.
fn missed() -> Outcome {
    let (process, gpu) = start()?;
    let rm = Vgpu::open()?;
    let begin = gpu.info().vidmem_bytes / 2 / STEP * STEP;
    let done = keep(&rm, gpu.index(), begin, begin + STEP)?;
    ensure!(
        (done.status, done.bytes) == (0, STEP),
        "the range at {begin:#x}: {:#x}, {} bytes",
        done.status,
        done.bytes
    );
    drop((process, gpu));
    let said = match no_leak() {
        Ok(_) => return Err(format!("{STEP} bytes are kept, and nothing is missed").into()),
        Err(failure) => format!("{failure:?}"),
    };
    ensure!(said.contains("are to be had"), "it fails by: {said}");
    drop(rm);
    no_leak()
}

fn channel_error() -> Outcome {
    let (process, gpu) = start()?;
    let (other_process, other_gpu) = start()?;
    let victim = gpu.new_channel()?;
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    // The va_block is there before both come for it, of which upstream asserts (docs/fixes.md).
    buffer.set(0, 0);
    stop_channel(&gpu, &victim, &buffer)?;
    still_works(&process, &gpu)?;
    still_works(&other_process, &other_gpu)?;
    Ok(Pass::Ok)
}

/// Runs as another user; exit status 0 if injecting is refused with EPERM.
pub(crate) fn unprivileged() -> ExitCode {
    let inject = Inject {
        kind: vgpu::INJECT_PMA_FAILURE,
        ..Default::default()
    };
    let refused = match Vgpu::open() {
        Ok(device) => device.inject(inject).err().and_then(|e| e.errno()),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(3);
        }
    };
    ExitCode::from(u8::from(refused != Some(libc::EPERM)))
}

fn no_privilege() -> Outcome {
    let status = this_program()?
        .arg("--inject-unprivileged")
        .uid(65534)
        .status();
    match status.map(|s| s.code()) {
        Ok(Some(0)) => Ok(Pass::Ok),
        Ok(Some(3)) => skip!("other users cannot open /dev/vgpu"),
        Ok(code) => Err(format!("allowed, or another error (exit {code:?})").into()),
        Err(error) => skip!("cannot run as another user: {error}"),
    }
}

fn poison() -> Outcome {
    let (process, gpu) = start()?;
    if gpu.info().features & FEATURE_POISON == 0 {
        skip!("vgpu.ko was loaded without poisoning");
    }
    let before = gpu.stats()?.poisoned_bytes;
    let buffer = Buffer::<u64>::managed(&process, 8 * WORDS)?;
    let secret = 0x5ec7_e700_0000_0000;
    gpu.launch(&Kernel::new().op(Op::write(&buffer).pattern(secret, 1).warps(16)))?
        .wait()?
        .ok()?;
    drop(buffer);
    process.call(&mut PmmReleaseFreeRootChunks {
        gpu: gpu.uuid(),
        rm_status: 0,
    })?;
    let poisoned = gpu.stats()?.poisoned_bytes - before;
    ensure!(poisoned >= 8 * BLOCK, "only {poisoned} bytes were poisoned");

    // New memory, first touched by a GPU, is zero: neither secret nor poison.
    let (other_process, other_gpu) = start()?;
    let fresh = Buffer::<u64>::managed(&other_process, 16 * WORDS)?;
    let zero = Op::check(&fresh).pattern(0, 0).warps(16);
    other_gpu.launch(&Kernel::new().op(zero))?.wait()?.ok()?;
    let on_gpu = other_process.residency(fresh.address())?.resident;
    ensure!(
        !on_gpu.contains(&Uuid::CPU),
        "the fresh page is on {on_gpu:?}"
    );
    let seen = fresh.first_other(|_| 0);
    ensure!(
        seen.is_none(),
        "fresh memory holds {seen:x?} (poison is {POISON:#x})"
    );
    Ok(Pass::Ok)
}
