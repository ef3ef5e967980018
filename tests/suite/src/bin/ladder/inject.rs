// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Step 20: errors and delays that NVIDIA's driver makes when it is asked to. An error comes
//! once, is told, and leaves everything as it was; a delay widens a race, which is run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::{self, Uuid};
use vgpu_client::{Buffer, Error, Gpu, Kernel, NvStatus, Op, Process, Vgpu, BLOCK};

use crate::NONE;

/// Words of a 2 MiB block.
const WORDS: usize = (BLOCK / 8) as usize;
/// How long UVM is to wait where it is asked to: udelay() of x86 can do no more than a
/// quarter of a second.
const DELAY: Duration = Duration::from_millis(200);

/// How much longer than without a delay it must take. udelay() counts ticks or loops, and
/// how many there are in 4 ms the kernel is told (vm.sh) or has found out as it booted: on a
/// busy host a few too many or too few.
const LEAST: Duration = Duration::from_millis(100);

/// The shortest time that something took without a delay, and with one. A machine that has
/// other work may make any round longer, but none shorter.
struct Shortest([Duration; 2]);

impl Shortest {
    const fn new() -> Self {
        Self([Duration::MAX; 2])
    }

    fn took(&mut self, delayed: bool, time: Duration) {
        let shortest = &mut self.0[usize::from(delayed)];
        *shortest = time.min(*shortest);
    }

    /// The delay was waited for in each round that had one.
    fn differ(&self) -> Result<(), Failure> {
        let [plain, delayed] = self.0;
        println!("# at least {plain:?} without the delay, {delayed:?} with it");
        ensure!(
            delayed >= plain + LEAST,
            "a round with a delay of {DELAY:?} took {delayed:?}, and one without {plain:?}"
        );
        Ok(())
    }
}

/// When something began, and when it ended.
type Span = (Instant, Instant);

pub(crate) fn run(suite: &mut Suite) {
    for (name, test) in [
        (
            "UVM_TEST_VA_RANGE_INJECT_SPLIT_ERROR",
            split_error as fn() -> Outcome,
        ),
        (
            "UVM_TEST_VA_RANGE_INJECT_ADD_GPU_VA_SPACE_ERROR",
            add_space_error,
        ),
        ("UVM_TEST_VA_SPACE_INJECT_ERROR", block_error),
        ("UVM_TEST_VA_SPACE_MM_RETAIN", mm_retain),
        ("UVM_TEST_DESTROY_GPU_VA_SPACE_DELAY", destroy_delay),
        ("UVM_TEST_SPLIT_INVALIDATE_DELAY", split_delay),
        ("UVM_TEST_FORCE_CPU_TO_CPU_COPY_WITH_CE", copy_between_nodes),
        ("UVM_TEST_SKIP_MIGRATE_VMA", skip_migrate_vma),
    ] {
        suite.test(&format!("step 20: {name}"), NONE, test);
    }
}

fn start() -> Result<(Process, Gpu), Failure> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    Ok((process, gpu))
}

fn delay_us(delayed: bool) -> u64 {
    if delayed {
        DELAY.as_micros() as u64
    } else {
        0
    }
}

fn on_gpu(gpu: &Gpu, op: Op) -> Result<(), Failure> {
    Ok(gpu.launch(&Kernel::new().op(op))?.wait()?.ok().map(drop)?)
}

fn exactly(buffer: &Buffer<u64>, value: impl Fn(usize) -> u64) -> Result<(), Failure> {
    match buffer.first_other(value) {
        None => Ok(()),
        Some((i, seen)) => Err(format!("word {i} is {seen:#x}").into()),
    }
}

/// What is there when a call was to fail for lack of memory.
fn no_memory<T>(what: &str, result: Result<T, Error>) -> Result<(), Failure> {
    let status = result.err().and_then(|e| e.status());
    ensure!(
        status == Some(NvStatus::NO_MEMORY),
        "{what}: {status:?}, not the error that was asked for"
    );
    Ok(())
}

/// The split of a range fails, in the middle of a va_block and between two. The range stays
/// whole, and the next split works.
fn split_error() -> Outcome {
    let (process, gpu) = start()?;
    for at in [BLOCK / 2, BLOCK] {
        let buffer = Buffer::<u64>::managed(&process, 2 * WORDS)?;
        on_gpu(&gpu, Op::write(&buffer).pattern(5, 1).warps(8))?;
        let lookup_address = buffer.address() + at;
        process.call(&mut uvm::VaRangeInjectSplitError {
            lookup_address,
            rm_status: 0,
        })?;
        let split_address = buffer.address() + at - 1;
        let split = || {
            process.call(&mut uvm::VaRangeSplit {
                split_address,
                rm_status: 0,
            })
        };
        no_memory("a split", split())?;
        exactly(&buffer, |i| 5 + i as u64)?;
        on_gpu(&gpu, Op::atomic_add(&buffer).pattern(1, 0).warps(8))?;
        split()?;
        // There is nothing left to split here.
        let again = split().err().and_then(|e| e.status());
        ensure!(
            again == Some(NvStatus::INVALID_ADDRESS),
            "split twice at {at:#x}: {again:?}"
        );
        on_gpu(&gpu, Op::atomic_add(&buffer).pattern(1, 0).warps(8))?;
        exactly(&buffer, |i| 7 + i as u64)?;
    }
    Ok(Pass::Ok)
}

/// An address space is not added to a GPU because one range of many cannot be.
fn add_space_error() -> Outcome {
    let process = Process::new()?;
    process.register_gpu(Vgpu::open()?.info(0)?.uuid())?;
    let buffers = [(); 3].map(|()| Buffer::<u64>::managed(&process, WORDS));
    let [first, second, third] = buffers;
    let buffers = [first?, second?, third?];
    for buffer in &buffers {
        buffer.fill(|i| i as u64);
    }
    process.call(&mut uvm::VaRangeInjectAddGpuVaSpaceError {
        lookup_address: buffers[1].address(),
        rm_status: 0,
    })?;
    no_memory("the address space", process.attach(0))?;
    for buffer in &buffers {
        exactly(buffer, |i| i as u64)?;
    }
    let gpu = process.attach(0)?;
    for buffer in &buffers {
        on_gpu(&gpu, Op::atomic_add(buffer).pattern(1, 0).warps(8))?;
        exactly(buffer, |i| 1 + i as u64)?;
    }
    Ok(Pass::Ok)
}

/// The n-th va_block that is looked up or made cannot be. A call says so; a GPU's fault is
/// looked at once more before it may end a program, and served then.
fn block_error() -> Outcome {
    const BLOCKS: u32 = 4;
    let (process, gpu) = start()?;
    let fail = |va_block_fail_nth| {
        process.call(&mut uvm::VaSpaceInjectError {
            va_block_fail_nth,
            ..Default::default()
        })
    };
    // Looks a va_block up, and asks for no error in it.
    let look_up = |buffer: &Buffer<u64>, n: usize| {
        process.call(&mut uvm::VaBlockInjectError {
            lookup_address: buffer.address_of(n * WORDS),
            ..Default::default()
        })
    };
    for nth in 1..=BLOCKS {
        let buffer = Buffer::<u64>::managed(&process, BLOCKS as usize * WORDS)?;
        fail(nth)?;
        for n in 1..=BLOCKS {
            let found = look_up(&buffer, n as usize - 1);
            match n == nth {
                true => no_memory("a va_block", found)?,
                false => found?,
            }
        }
        let untouched = Buffer::<u64>::managed(&process, BLOCKS as usize * WORDS)?;
        for buffer in [&buffer, &untouched] {
            fail(nth)?;
            on_gpu(&gpu, Op::write(buffer).pattern(3, 1).warps(8))?;
            // The GPU's faults had the error: as many look-ups as would have it work.
            for n in 0..BLOCKS as usize {
                look_up(buffer, n)?;
            }
            exactly(buffer, |i| 3 + i as u64)?;
        }
    }
    Ok(Pass::Ok)
}

/// UVM reads this process's memory through the mm that it holds, also what changes while it
/// sleeps with it.
fn mm_retain() -> Outcome {
    const MISSING_TABLE_ENTRY: NvStatus = NvStatus(0x4a);
    let process = Process::new()?;
    let mut own = uvm::GetKernelVirtualAddress::default();
    process.call(&mut own)?;
    let buffer = Buffer::<u64>::ordinary(512)?;
    buffer.set(7, 41);
    let retain = |va_space_ptr, addr, sleep_us| {
        let mut retain = uvm::VaSpaceMmRetain {
            va_space_ptr,
            addr,
            sleep_us,
            ..Default::default()
        };
        process.call(&mut retain).map(|()| retain)
    };
    let now = retain(own.addr, buffer.address_of(7), 0)?;
    ensure!(now.val_before == 41, "it read {}", now.val_before);

    // Changed at some time during the call, whenever the other thread is let run: what is
    // read after the sleep is not older than what was read before it.
    let stop = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                buffer.set(7, buffer.get(7) + 1);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let seen = retain(own.addr, buffer.address_of(7), 300_000);
        stop.store(true, Ordering::Relaxed);
        seen
    })?;
    ensure!(
        seen.val_before >= 41 && seen.val_after > seen.val_before,
        "{} before its sleep, {} after",
        seen.val_before,
        seen.val_after
    );
    let status = |r: Result<_, Error>| r.err().and_then(|e: Error| e.status());
    let nobody = status(retain(own.addr + 8, buffer.address_of(7), 0));
    ensure!(
        nobody == Some(MISSING_TABLE_ENTRY),
        "an address space that is nobody's: {nobody:?}"
    );
    let nowhere = status(retain(own.addr, 0x1000, 0));
    ensure!(
        nowhere == Some(NvStatus::INVALID_ADDRESS),
        "an address without memory: {nowhere:?}"
    );
    Ok(Pass::Ok)
}

/// While one thread waits for the end of the GPU's address space, another makes the next
/// one, and programs go on there.
fn destroy_delay() -> Outcome {
    let process = Process::new()?;
    process.register_gpu(Vgpu::open()?.info(0)?.uuid())?;
    let buffer = Buffer::<u64>::managed(&process, 2 * WORDS)?;
    buffer.fill(|i| i as u64);
    let mut gpu = process.attach(0)?;
    let mut beside = 0;
    const ROUNDS: u64 = 10;
    let mut shortest = Shortest::new();
    for round in 1..=ROUNDS {
        let delayed = round % 2 == 0;
        process.call(&mut uvm::DestroyGpuVaSpaceDelay {
            delay_us: delay_us(delayed),
            rm_status: 0,
        })?;
        on_gpu(&gpu, Op::atomic_add(&buffer).pattern(1, 0).warps(8))?;
        let old = gpu;
        let (took, next) = std::thread::scope(|scope| {
            let end = scope.spawn(move || {
                let start = Instant::now();
                old.detach().map(|()| start.elapsed())
            });
            // Refused until the old one is out of the way.
            let next = loop {
                match process.attach(0) {
                    Err(e) if e.status().is_some() && !end.is_finished() => {}
                    other => break other,
                }
            };
            beside += u32::from(delayed && !end.is_finished());
            (end.join(), next)
        });
        shortest.took(delayed, took.joined()??);
        gpu = match next {
            Ok(gpu) => gpu,
            // Refused to its very end: the next try is after it.
            Err(e) if e.status().is_some() => process.attach(0)?,
            Err(e) => return Err(e.into()),
        };
        on_gpu(&gpu, Op::atomic_add(&buffer).pattern(1, 0).warps(8))?;
        exactly(&buffer, |i| i as u64 + 2 * round)?;
    }
    println!(
        "# {beside} of {} address spaces were made while the last one ended",
        ROUNDS / 2
    );
    shortest.differ()?;
    ensure!(beside > 0, "none was made while the last one ended");
    process.call(&mut uvm::DestroyGpuVaSpaceDelay::default())?;
    Ok(Pass::Ok)
}

/// A va_block of ordinary memory is split when managed memory comes to lie in its 2 MiB,
/// slowly, while the GPU and the CPU work on the rest of it.
fn split_delay() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("this driver or kernel has no HMM");
    }
    let (mut beside, mut shortest) = (0, Shortest::new());
    for round in 0..8 {
        let delayed = round % 2 == 1;
        process.call(&mut uvm::SplitInvalidateDelay {
            delay_us: delay_us(delayed),
            rm_status: 0,
        })?;
        let half = WORDS / 2;
        let ordinary = Buffer::<u64>::ordinary(half)?;
        ordinary.fill(|i| i as u64);
        let add = |n| on_gpu(&gpu, Op::atomic_add(&ordinary).pattern(n, 0).warps(8));
        add(1)?;
        let (split, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        let (took, managed, adds) = std::thread::scope(|scope| {
            let worker = scope.spawn(|| -> Result<(u64, Vec<Span>), Failure> {
                let (mut adds, mut spans) = (0, Vec::new());
                while !split.load(Ordering::Relaxed) || adds == 0 {
                    let start = Instant::now();
                    begun.store(true, Ordering::Relaxed);
                    add(1)?;
                    spans.push((start, Instant::now()));
                    // Back to the CPU, so that the GPU faults in the block again.
                    let word = (adds as usize * 512) % half;
                    ensure!(
                        ordinary.get(word) == word as u64 + adds + 2,
                        "word {word} is {:#x} after {adds} additions",
                        ordinary.get(word)
                    );
                    adds += 1;
                }
                Ok((adds, spans))
            });
            while !begun.load(Ordering::Relaxed) && !worker.is_finished() {
                std::thread::yield_now();
            }
            let start = Instant::now();
            let at = ordinary.address() + BLOCK / 2;
            let managed = Buffer::<u64>::managed_at(&process, at, half);
            let took = start.elapsed();
            split.store(true, Ordering::Relaxed);
            (took, managed, worker.join().map(|adds| (adds, start)))
        });
        let (adds, start) = adds.joined()?;
        let (adds, spans) = adds?;
        let in_split = |&&(from, to): &&Span| from < start + took && to > start;
        let managed = managed?;
        shortest.took(delayed, took);
        if delayed {
            beside += spans.iter().filter(in_split).count();
        }
        on_gpu(&gpu, Op::write(&managed).pattern(round, 1).warps(8))?;
        add(1)?;
        exactly(&managed, |i| round + i as u64)?;
        exactly(&ordinary, |i| i as u64 + adds + 2)?;
    }
    process.call(&mut uvm::SplitInvalidateDelay::default())?;
    println!("# {beside} additions while a block was split");
    shortest.differ()?;
    ensure!(beside > 0, "nothing ran while a block was split");
    Ok(Pass::Ok)
}

/// Managed memory goes from one of the CPU's nodes to another: by the CPU, or by a copy
/// engine.
fn copy_between_nodes() -> Outcome {
    if !Path::new("/sys/devices/system/node/node1").exists() {
        skip!("the machine has one NUMA node");
    }
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, 2 * WORDS)?;
    let (at, bytes) = (buffer.address(), buffer.bytes());
    process.migrate_with(at, bytes, Uuid::CPU, 0)?;
    buffer.fill(|i| i as u64 ^ 5);
    let mut node = 0;
    for force in [0, 1, 1, 0] {
        process.call(&mut uvm::ForceCpuToCpuCopyWithCe {
            force,
            rm_status: 0,
        })?;
        let there = process.residency(at)?;
        ensure!(
            there.node == node,
            "it is on node {}, not {node}",
            there.node
        );
        node = 1 - node;
        let before = gpu.stats()?.h2h_bytes;
        process.migrate_with(at, bytes, Uuid::CPU, node)?;
        let copied = gpu.stats()?.h2h_bytes - before;
        let want = if force == 1 { bytes } else { 0 };
        ensure!(
            copied == want,
            "forced {force}: copy engines copied {copied} bytes, not {want}"
        );
        let there = process.residency(at)?;
        ensure!(
            there.resident == [Uuid::CPU] && there.node == node,
            "it is on {:?}, node {}, not {node}",
            there.resident,
            there.node
        );
        exactly(&buffer, |i| i as u64 ^ 5)?;
    }
    Ok(Pass::Ok)
}

/// UVM asks user space to move pages that it cannot move itself. Where ordinary memory is
/// HMM's, and not ATS's, that path is never taken: the call changes nothing.
fn skip_migrate_vma() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("this driver or kernel has no HMM");
    }
    let buffer = Buffer::<u64>::ordinary(WORDS)?;
    buffer.fill(|i| i as u64);
    for skip in [1, 0] {
        process.call(&mut uvm::SkipMigrateVma { skip, rm_status: 0 })?;
        for to in [gpu.uuid(), Uuid::CPU] {
            let node = if to == Uuid::CPU { 0 } else { -1 };
            process.migrate_with(buffer.address(), buffer.bytes(), to, node)?;
            let there = process.residency(buffer.address())?;
            ensure!(
                there.resident == [to],
                "skip {skip}: it is on {:?}, not on {to:?}",
                there.resident
            );
        }
        exactly(&buffer, |i| i as u64)?;
    }
    Ok(Pass::Ok)
}
