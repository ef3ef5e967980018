// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Steps 13 to 17: an address space and a channel of a user's, and managed memory.

use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::{self, Uuid};
use vgpu_client::vgpu::{
    FAULT_INVALID_PDE, FAULT_INVALID_PTE, FEATURE_TLB, OP_READ, OP_WRITE, PERSONALITY_BLACKWELL,
};
use vgpu_client::{
    Buffer, Cause, Event, EventQueue, Gpu, Kernel, Op, Outcome as Ended, Process, BLOCK, PAGE,
};

use crate::NONE;

/// Words of a 2 MiB block.
pub(crate) const WORDS: usize = (BLOCK / 8) as usize;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "step 13: UVM_TEST_INVALIDATE_TLB, all modes",
        NONE,
        invalidate_tlb,
    );
    suite.test(
        "step 13: UVM_TEST_CHECK_CHANNEL_VA_SPACE",
        NONE,
        check_channel,
    );
    suite.test(
        "step 14: GPU faults and UVM_TEST_VA_RESIDENCY_INFO",
        NONE,
        faults,
    );
    suite.test(
        "step 14: UVM_TEST_CHANGE_PTE_MAPPING",
        NONE,
        change_pte_mapping,
    );
    suite.test("step 14: HMM", NONE, hmm);
    suite.test(
        "step 14: the software TLB through 50 rounds of CPU and GPU",
        NONE,
        tlb,
    );
    suite.test("step 15: UVM_TEST_EVICT_CHUNK", NONE, evict_chunk);
    suite.test("step 15: oversubscription", NONE, oversubscription);
    suite.test(
        "step 15: UVM_TEST_VA_BLOCK_INJECT_ERROR",
        NONE,
        inject_block_error,
    );
    suite.test(
        "step 15: UVM_TEST_PMM_INJECT_PMA_EVICT_ERROR",
        NONE,
        inject_pma_error,
    );
    suite.test(
        "step 16: UVM_TEST_SET_PAGE_PREFETCH_POLICY, by tools events",
        NONE,
        prefetch,
    );
    suite.test(
        "step 16: UVM_TEST_SET_PAGE_THRASHING_POLICY, by tools events",
        NONE,
        thrashing,
    );
    suite.test("step 17: a fatal fault is cancelled", NONE, fatal_fault);
    suite.test("step 17: UVM_TEST_DRAIN_REPLAYABLE_FAULTS", NONE, drain);
}

pub(crate) fn start() -> Result<(Process, Gpu), Failure> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let count = process.gpu_references(gpu.uuid())?;
    ensure!(count >= 1, "UVM counts {count} registrations of the GPU");
    Ok((process, gpu))
}

pub(crate) fn run_kernel(gpu: &Gpu, op: Op) -> Result<vgpu_client::Report, Failure> {
    Ok(gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?)
}

pub(crate) fn resident_on(process: &Process, va: u64, where_: Uuid) -> Result<(), Failure> {
    let residency = process.residency(va)?;
    ensure!(
        residency.resident == [where_],
        "{va:#x} is on {:?}",
        residency.resident
    );
    Ok(())
}

pub(crate) fn unchanged(buffer: &Buffer<u64>, value: impl Fn(usize) -> u64) -> Result<(), Failure> {
    match buffer.first_other(value) {
        None => Ok(()),
        Some((i, seen)) => Err(format!("element {i} is {seen:#x}").into()),
    }
}

/// Each call is one invalidate of its kind at the GPU, with a membar if one was asked for;
/// and what the TLB held is gone, if it is what was named.
fn invalidate_tlb() -> Outcome {
    const ALL: u32 = 1;
    const TARGETED: u32 = 2;
    const NO_MEMBAR: u32 = 1;
    const LOCAL_MEMBAR: u32 = 3;
    // The push's own semaphore has one, whatever is asked for.
    const PUSH_MEMBARS: u64 = 1;
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    let page = || run_kernel(&gpu, Op::read(&buffer).range(0, 1));
    page()?;
    let cached = gpu.info().features & FEATURE_TLB != 0;
    // Up to the root's: page tables of more bits have one level more.
    let root = if gpu.info().va_bits() > 49 { 7 } else { 6 };
    // Blackwell has none for the GPU: the acknowledgement is one.
    let acks = gpu.info().personality == PERSONALITY_BLACKWELL;
    let no_membar = |membar| membar == NO_MEMBAR || acks && membar == LOCAL_MEMBAR;
    for target_va_mode in [ALL, TARGETED] {
        for page_table_level in 1..=root {
            for membar in 1..=3 {
                page()?;
                let before = gpu.stats()?;
                process.call(&mut uvm::InvalidateTlb {
                    gpu: gpu.uuid(),
                    va: buffer.address(),
                    target_va_mode,
                    page_table_level,
                    membar,
                    ..Default::default()
                })?;
                let after = gpu.stats()?;
                let made = (
                    after.tlb_invalidates_all - before.tlb_invalidates_all,
                    after.tlb_invalidates_targeted - before.tlb_invalidates_targeted,
                );
                let what =
                    format!("mode {target_va_mode}, level {page_table_level}, membar {membar}");
                let want = if target_va_mode == ALL {
                    (1, 0)
                } else {
                    (0, 1)
                };
                ensure!(made == want, "{what}: (all, targeted) is {made:?}");
                let membars = after.membars - before.membars;
                ensure!(
                    (membars > PUSH_MEMBARS) != no_membar(membar),
                    "{what}: {membars} membars"
                );
                // The first look walks the page tables again, the second does not. Without a membar
                // UVM asks for no acknowledgement either, and the invalidate may be late.
                let patience = Instant::now() + Duration::from_secs(10);
                page()?;
                let mut walked = gpu.stats()?.walks;
                while membar == NO_MEMBAR && walked == after.walks && Instant::now() < patience {
                    std::thread::sleep(Duration::from_millis(10));
                    page()?;
                    walked = gpu.stats()?.walks;
                }
                ensure!(
                    !cached || walked > after.walks,
                    "{what}: the TLB still had it"
                );
                page()?;
                ensure!(
                    !cached || gpu.stats()?.walks == walked,
                    "{what}: the TLB keeps nothing, so that this test shows nothing"
                );
            }
        }
    }
    Ok(Pass::Ok)
}

fn check_channel() -> Outcome {
    use std::os::fd::AsRawFd;
    let (process, gpu) = start()?;
    process.call(&mut uvm::CheckChannelVaSpace {
        gpu: gpu.uuid(),
        rm_ctrl_fd: -1,
        h_client: gpu.vaspace().h_client,
        h_channel: gpu.channel().handle(),
        va_space_fd: process.uvm_fd().as_raw_fd(),
        ..Default::default()
    })?;
    Ok(Pass::Ok)
}

fn faults() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, 2 * WORDS)?;
    buffer.fill(|i| i as u64 + 1);
    resident_on(&process, buffer.address(), Uuid::CPU)?;

    let one = run_kernel(&gpu, Op::read(&buffer).range(0, 1))?;
    ensure!(
        one.sum == 1 && one.faults >= 1,
        "one read: sum {}, {} faults",
        one.sum,
        one.faults
    );
    resident_on(&process, buffer.address(), gpu.uuid())?;
    resident_on(&process, buffer.address_of(WORDS), Uuid::CPU)?;

    let all = run_kernel(&gpu, Op::read(&buffer).range(0, WORDS).warps(16))?;
    let sum = (1..=WORDS as u64).sum::<u64>();
    ensure!(all.sum == sum, "the GPU's sum is {}, not {sum}", all.sum);
    resident_on(&process, buffer.address_of(WORDS - 1), gpu.uuid())?;

    run_kernel(
        &gpu,
        Op::write(&buffer)
            .range(WORDS, WORDS)
            .pattern(9, 3)
            .warps(16),
    )?;
    run_kernel(
        &gpu,
        Op::atomic_add(&buffer)
            .range(WORDS, WORDS)
            .pattern(1, 0)
            .warps(16),
    )?;
    run_kernel(
        &gpu,
        Op::check(&buffer)
            .range(WORDS, WORDS)
            .pattern(10, 3)
            .warps(16),
    )?;
    unchanged(&buffer, |i| match i {
        i if i < WORDS => i as u64 + 1,
        i => 10 + 3 * (i - WORDS) as u64,
    })?;
    resident_on(&process, buffer.address_of(2 * WORDS - 1), Uuid::CPU)?;
    Ok(Pass::Ok)
}

fn change_pte_mapping() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    run_kernel(&gpu, Op::write(&buffer).pattern(1, 1))?;
    let change = |mapping| {
        process.call(&mut uvm::ChangePteMapping {
            processor: gpu.uuid(),
            va: buffer.address(),
            mapping,
            rm_status: 0,
        })
    };
    let now = || {
        process
            .residency(buffer.address())
            .map(|r| r.mapping(gpu.uuid()))
    };

    change(1)?;
    let read_only = now()?;
    ensure!(read_only == 1, "made read-only, but mapped {read_only}");
    let read = run_kernel(&gpu, Op::read(&buffer).range(0, 1))?;
    ensure!(read.faults == 0, "a read of a read-only mapping faulted");
    let write = run_kernel(&gpu, Op::write(&buffer).range(0, 1).pattern(77, 0))?;
    ensure!(
        write.faults >= 1,
        "a write to a read-only mapping did not fault"
    );

    change(0)?;
    let none = now()?;
    ensure!(none == 0, "unmapped, but mapped {none}");
    let read = run_kernel(&gpu, Op::read(&buffer).range(0, 1))?;
    ensure!(
        read.faults >= 1 && read.sum == 77,
        "{} faults, saw {}",
        read.faults,
        read.sum
    );

    change(2)?;
    run_kernel(&gpu, Op::atomic_add(&buffer).range(0, 1).pattern(1, 0))?;
    ensure!(buffer.get(0) == 78, "the CPU sees {}", buffer.get(0));
    Ok(Pass::Ok)
}

fn hmm() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("this driver or kernel has no HMM");
    }
    let buffer = Buffer::<u64>::ordinary(2 * WORDS)?;
    buffer.fill(|i| i as u64 + 3);
    let read = run_kernel(&gpu, Op::read(&buffer).range(0, 1))?;
    ensure!(read.sum == 3, "the GPU saw {}", read.sum);
    run_kernel(
        &gpu,
        Op::write(&buffer)
            .range(WORDS, 64 * 512)
            .pattern(900, 1)
            .warps(4),
    )?;
    run_kernel(
        &gpu,
        Op::atomic_add(&buffer).range(WORDS, 512).pattern(1, 0),
    )?;
    unchanged(&buffer, |i| match i.checked_sub(WORDS) {
        Some(k) if k < 512 => 901 + k as u64,
        Some(k) if k < 64 * 512 => 900 + k as u64,
        _ => i as u64 + 3,
    })?;
    Ok(Pass::Ok)
}

fn tlb() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, 32 * 512)?;
    for round in 1..=50u64 {
        let value = 1000 * round;
        let kernel = Kernel::new()
            .op(Op::write(&buffer).pattern(value, 1).warps(4))
            .op(Op::check(&buffer).pattern(value, 1).warps(4).barrier());
        gpu.launch(&kernel)?.wait()?.ok()?;
        for page in 0..32 {
            let i = page * 512 + round as usize;
            let seen = buffer.get(i);
            ensure!(
                seen == value + i as u64,
                "round {round}: the CPU saw {seen} at {i}"
            );
            buffer.set(page * 512, round);
        }
        let read = run_kernel(&gpu, Op::read(&buffer).every(PAGE).warps(4))?;
        ensure!(
            read.sum == 32 * round,
            "round {round}: the GPU saw {}",
            read.sum
        );
    }
    Ok(Pass::Ok)
}

fn evict_chunk() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, 2 * WORDS)?;
    buffer.fill(|i| i as u64 ^ 5);
    process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
    resident_on(&process, buffer.address(), gpu.uuid())?;
    ensure!(
        gpu.evict(buffer.address())?,
        "nothing was evicted by address"
    );
    resident_on(&process, buffer.address(), Uuid::CPU)?;
    resident_on(&process, buffer.address_of(WORDS), gpu.uuid())?;
    // UVM's own choice: chunks that are free or unused come first.
    let (second, mut chunks) = (buffer.address_of(WORDS), 0);
    while process.residency(second)?.resident != [Uuid::CPU] {
        ensure!(
            chunks < 512 && gpu.evict_any()?,
            "not evicted after {chunks} chunks"
        );
        chunks += 1;
    }
    unchanged(&buffer, |i| i as u64 ^ 5)?;
    Ok(Pass::Ok)
}

fn oversubscription() -> Outcome {
    let (process, gpu) = start()?;
    let events = EventQueue::new(&process, 1 << 16)?;
    let bytes = (gpu.info().vidmem_bytes * 5 / 4).next_multiple_of(BLOCK);
    let buffer = Buffer::<u64>::managed(&process, (bytes / 8) as usize)?;
    // A word in every 64 KiB: what moves is the same, and the CPU has less to do.
    let op = |op: fn(&Buffer<u64>) -> Op| op(&buffer).every(65536).pattern(7, 1).warps(32);
    run_kernel(&gpu, op(Op::write))?;
    run_kernel(&gpu, op(Op::check))?;
    let evicted = events.take(gpu.uuid())?.iter().any(|e| {
        matches!(
            e,
            Event::Migration {
                cause: Cause::Eviction,
                ..
            }
        )
    });
    ensure!(
        evicted,
        "{} MiB were used and nothing was evicted",
        bytes >> 20
    );
    for k in 0..(bytes / 65536) as usize {
        let seen = buffer.get(k * 8192);
        ensure!(seen == 7 + k as u64, "the CPU saw {seen} for write {k}");
    }
    Ok(Pass::Ok)
}

fn inject_block_error() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    buffer.set(0, 1);
    process.call(&mut uvm::VaBlockInjectError {
        lookup_address: buffer.address(),
        page_table_retries: 2,
        user_pages_retries: 2,
        populate_error: 1,
        ..Default::default()
    })?;
    run_kernel(&gpu, Op::write(&buffer).pattern(5, 1).warps(8))?;
    unchanged(&buffer, |i| 5 + i as u64)?;
    Ok(Pass::Ok)
}

fn inject_pma_error() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, 4 * WORDS)?;
    buffer.fill(|i| i as u64);
    process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
    let error_after_num_chunks = 1;
    process.call(&mut uvm::PmmInjectPmaEvictError {
        gpu: gpu.uuid(),
        error_after_num_chunks,
        rm_status: 0,
    })?;
    // Asks for all of the GPU's memory, so that UVM has to evict and meets the error.
    let evict = vgpu_client::vgpu::Inject {
        kind: vgpu_client::vgpu::INJECT_EVICT_PAGES,
        count: gpu.info().usable_bytes() / BLOCK,
        ..Default::default()
    };
    let asked = gpu.device().inject(evict)?;
    ensure!(
        asked.status != 0,
        "the eviction succeeded in spite of the injected error"
    );
    unchanged(&buffer, |i| i as u64)?;
    Ok(Pass::Ok)
}

fn prefetch() -> Outcome {
    let (process, gpu) = start()?;
    let events = EventQueue::new(&process, 1 << 12)?;
    let prefetched = |policy: u32| -> Result<u64, Failure> {
        process.call(&mut uvm::SetPagePrefetchPolicy {
            policy,
            rm_status: 0,
        })?;
        let buffer = Buffer::<u64>::managed(&process, WORDS)?;
        buffer.fill(|_| 1);
        events.take(gpu.uuid())?;
        // One after another from the start: the tree fills up from below.
        let first = Op::read(&buffer).range(0, WORDS / 8).lanes(1);
        run_kernel(&gpu, first)?;
        let moved = events
            .take(gpu.uuid())?
            .into_iter()
            .filter_map(|event| match event {
                Event::Migration {
                    cause: Cause::Prefetch,
                    bytes,
                    ..
                } => Some(bytes),
                _ => None,
            });
        Ok(moved.sum())
    };
    let with = prefetched(0)?;
    let without = prefetched(1)?;
    process.call(&mut uvm::SetPagePrefetchPolicy {
        policy: 0,
        rm_status: 0,
    })?;
    ensure!(with > 0, "enabled, but nothing was prefetched");
    ensure!(
        without == 0,
        "disabled, but {without} bytes were prefetched"
    );
    Ok(Pass::Ok)
}

fn thrashing() -> Outcome {
    let (process, gpu) = start()?;
    let events = EventQueue::of_thrashing(&process, 1 << 14)?;
    let thrash = |policy: u32, rounds: u64| -> Result<bool, Failure> {
        process.call(&mut uvm::SetPageThrashingPolicy {
            policy,
            pin_ns: 0,
            rm_status: 0,
        })?;
        let mut now = uvm::GetPageThrashingPolicy::default();
        process.call(&mut now)?;
        ensure!(
            now.policy == policy,
            "set to {policy}, but is {}",
            now.policy
        );
        let buffer = Buffer::<u64>::managed(&process, 512)?;
        for round in 0..rounds {
            buffer.set(0, round);
            run_kernel(&gpu, Op::atomic_add(&buffer).range(0, 1).pattern(1, 0))?;
            let seen = buffer.get(0);
            ensure!(seen == round + 1, "round {round}: the CPU saw {seen}");
        }
        Ok(events.take(gpu.uuid())?.contains(&Event::Thrashing))
    };
    let off = thrash(1, 50)?;
    let on = thrash(0, 50)?;
    ensure!(!off, "thrashing was reported though the policy is off");
    if !on {
        let name = "uvm_perf_thrashing_lapse_usec";
        let lapse = uvm_suite::modules::parameter("nvidia_uvm", name).unwrap_or_default();
        let slow = lapse.parse::<u64>().is_ok_and(|usec| usec < 100_000);
        ensure!(
            slow,
            "50 rounds of CPU and GPU on a page were not seen as thrashing"
        );
        skip!("the VM is too slow for {name}={lapse}; load with {name}=250000");
    }
    Ok(Pass::Ok)
}

fn fatal_fault() -> Outcome {
    let (process, gpu) = start()?;
    let events = EventQueue::new(&process, 1 << 10)?;
    // Below where anything is ever mapped.
    let va = 0x1000_0000;
    for kind in [OP_READ, OP_WRITE] {
        let report = gpu.launch(&Kernel::new().op(Op::wild(kind, va)))?.wait()?;
        ensure!(
            report.outcome == Ended::Faulted,
            "a wild access ended as {:?}",
            report.outcome
        );
        ensure!(
            report.fault_va == va,
            "fault at {:#x}, not {va:#x}",
            report.fault_va
        );
        ensure!(
            report.fault_kind == kind,
            "kind {}, not {kind}",
            report.fault_kind
        );
        let kinds = [FAULT_INVALID_PDE, FAULT_INVALID_PTE];
        ensure!(
            kinds.contains(&report.fault_type),
            "fault type {}",
            report.fault_type
        );
    }
    let fatal = events
        .take(gpu.uuid())?
        .iter()
        .filter(|e| **e == Event::FatalFault)
        .count();
    ensure!(fatal >= 2, "{fatal} events of fatal faults");
    // The channel goes on.
    let buffer = Buffer::<u64>::managed(&process, 512)?;
    run_kernel(&gpu, Op::write(&buffer).pattern(4, 0))?;
    unchanged(&buffer, |_| 4)?;
    Ok(Pass::Ok)
}

/// A kernel of prefetch instructions is done before UVM has looked at its faults. After the
/// drain nothing is left to serve: what was served stays all that is. (UVM drops faults that
/// came while it served others; a prefetch is not made again.)
fn drain() -> Outcome {
    let (process, gpu) = start()?;
    // Only what faulted is to be there.
    let prefetcher = |policy| {
        process.call(&mut uvm::SetPagePrefetchPolicy {
            policy,
            rm_status: 0,
        })
    };
    prefetcher(1)?;
    let outcome = (0..3).try_for_each(|round| -> Result<(), Failure> {
        let buffer = Buffer::<u64>::managed(&process, WORDS)?;
        buffer.fill(|i| i as u64);
        let served = || -> Result<(usize, u64), Failure> {
            let mapped = (0..512)
                .step_by(4)
                .try_fold(0, |n, page| -> Result<usize, Failure> {
                    let there = process.residency(buffer.address() + page * PAGE)?;
                    Ok(n + usize::from(there.mapping(gpu.uuid()) > 0))
                })?;
            let stats = gpu.stats()?;
            Ok((mapped, stats.replays_start + stats.replays_ack))
        };
        let few = Op::prefetch(&buffer).every(PAGE).lanes(16).warps(8);
        let done = run_kernel(&gpu, few)?;
        ensure!(done.faults > 0, "round {round}: a prefetch did not fault");
        gpu.drain_faults()?;
        let drained = served()?;
        ensure!(
            drained.0 > 0,
            "round {round}: drained, and no fault is served"
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
        let later = served()?;
        // The last replay is pushed and not waited for.
        ensure!(
            later.0 == drained.0 && later.1 <= drained.1 + 1,
            "round {round}: (pages, replays) went from {drained:?} to {later:?} after the drain"
        );
        unchanged(&buffer, |i| i as u64)
    });
    let outcome = outcome.and_then(|()| drain_beside_a_kernel(&process, &gpu));
    prefetcher(0)?;
    outcome?;
    Ok(Pass::Ok)
}

/// Drains while a kernel faults on a few pages at a time. Each look at the buffer disables the interrupt and enables it again, and
/// what came meanwhile has to be told: with pulses, UVM must have the GPU look again.
fn drain_beside_a_kernel(process: &Process, gpu: &Gpu) -> Result<(), Failure> {
    let buffer = Buffer::<u64>::managed(process, WORDS)?;
    let few = Op::write(&buffer).every(PAGE).pattern(1, 0);
    let few = Kernel::new().op(few.lanes(1).warps(8)).utlb_faults(1);
    let before = gpu.stats()?.kernels;
    let running = gpu.launch(&few)?;
    while gpu.stats()?.kernels == before {
        gpu.drain_faults()?;
    }
    running.wait()?.ok()?;
    Ok(())
}
