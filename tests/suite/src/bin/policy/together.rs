// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Blocks that one kernel needs at the same time, and nobody has foreseen, on a GPU full of blocks that
//! are expected (`uvm_rust_prefetch=1`).
//!
//! A program announces the same few kernels again and again, which together need more memory than the
//! GPU has, until a prefetch is held back: then all that is there is expected by one of them. The next
//! kernel needs other blocks than before. Each comes by a fault, and none may make way for another, nor for
//! the prefetcher, while the kernel runs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, DriverStats, Gpu, Kernel, Op, PrefetchStats, Process, BLOCK};

pub(crate) const PARAMETER: &str = "/sys/module/nvidia_uvm/parameters/uvm_rust_prefetch";

/// Kernels of the program, and the blocks of each.
const KERNELS: u64 = 8;
const BLOCKS: usize = 6;
/// How often the program runs before the kernel that is different.
const ROUNDS: u64 = 6;
/// How far from each other the accesses of the kernel are in a block.
const APART: u64 = 32 << 10;
/// Chunks that may go besides those that the blocks take: the worker's last prefetch may be under way.
const OTHERS: u64 = 2;
/// How often the system sleeps.
const SLEEPS: u64 = 12;
pub(crate) const BLOCK_WORDS: usize = BLOCK as usize / 8;

/// A kernel that needs `together` blocks that nobody expects, each warp one of them.
pub fn together(together: usize) -> Outcome {
    if !is_on() {
        skip!("{PARAMETER} is not on");
    }
    let process = Process::new()?;
    let gpu: Gpu = process.gpu(0)?;
    let blocks = KERNELS as usize * BLOCKS;
    ensure!(
        blocks as u64 * BLOCK > gpu.info().vidmem_bytes,
        "{blocks} blocks fit the GPU: it is too large for this test"
    );
    let data = Buffer::<u64>::managed(&process, blocks * BLOCK_WORDS)?;
    let others = Buffer::<u64>::managed(&process, together * BLOCK_WORDS)?;
    others.fill(|i| i as u64);
    let quiet = quiet(&process, &gpu, &others)?;
    let mut kernels = 0;
    let before = loop {
        let held = process.prefetch_stats(gpu.uuid())?.held;
        let k = kernels % KERNELS;
        kernels += 1;
        process.announce(gpu.uuid(), 1 + k)?;
        let stats = settled(&process, &gpu, kernels, quiet)?;
        // No prefetch has room that does not take it from what is expected.
        if kernels > ROUNDS * KERNELS && stats.held > held {
            break stats;
        }
        ensure!(
            kernels < 2 * ROUNDS * KERNELS,
            "not all of the GPU is ever expected: {stats:?}"
        );
        let first = k as usize * BLOCKS * BLOCK_WORDS;
        let touch = Op::write(&data).range(first, BLOCKS * BLOCK_WORDS);
        gpu.launch(&Kernel::new().op(touch.every(BLOCK).lanes(1)))?
            .wait()?
            .ok()?;
    };
    ensure!(
        before.kernels_wrong == 0 && before.kernels_right > KERNELS,
        "the kernels are not foreseen: {before:?}"
    );
    let evicted = DriverStats::get(&process, gpu.uuid(), true)?.evicted_chunks();
    let check = Op::check(&others)
        .every(APART)
        .pattern(0, APART / 8)
        .warps(together as u32)
        .lanes(1)
        .blocked();
    let report = gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    let evicted = DriverStats::get(&process, gpu.uuid(), true)?.evicted_chunks() - evicted;
    let pushed = process.prefetch_stats(gpu.uuid())?.pushed_out - before.pushed_out;
    println!(
        "# {together} blocks, {} accesses: {evicted} chunks went, {pushed} of them ahead of need, in {} replays",
        report.accesses, report.replays
    );
    ensure!(report.mismatches == 0, "the data are not what they were");
    ensure!(
        evicted + pushed <= together as u64 + OTHERS,
        "blocks that one kernel needs make way for each other"
    );
    Ok(Pass::Ok)
}

/// The prefetcher only tries for the lock of power management. Whenever it does not get that lock, somebody
/// suspends, who has it: a prefetcher that gave it back all the same would let the rest of the driver run
/// meanwhile, and nobody could suspend or call again.
pub fn sleeps() -> Outcome {
    if !is_on() {
        skip!("{PARAMETER} is not on");
    }
    let process = Process::new()?;
    let gpu: Gpu = process.gpu(0)?;
    let data = Buffer::<u64>::managed(&process, KERNELS as usize * BLOCKS * BLOCK_WORDS)?;
    let quiet = quiet(&process, &gpu, &data)?;
    let stop = AtomicBool::new(false);
    let run = |k: u64| -> Result<(), Failure> {
        // Whoever calls while the system sleeps is told to try again.
        while let Err(failed) = process.announce(gpu.uuid(), 1 + k) {
            ensure!(failed.errno() == Some(libc::EAGAIN), "announcing: {failed}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let first = k as usize * BLOCKS * BLOCK_WORDS;
        let touch = Op::write(&data).range(first, BLOCKS * BLOCK_WORDS);
        gpu.launch(&Kernel::new().op(touch.every(BLOCK).lanes(1)))?
            .wait()?
            .ok()?;
        Ok(())
    };
    let kernels = std::thread::scope(|scope| {
        let program = scope.spawn(|| -> Result<u64, Failure> {
            let mut kernels = 0;
            while !stop.load(Relaxed) {
                run(kernels % KERNELS)?;
                kernels += 1;
            }
            Ok(kernels)
        });
        let mut slept = Ok(());
        for n in 0..SLEEPS {
            std::thread::sleep(Duration::from_millis(100 + 37 * n));
            slept = slept.and_then(|()| gpu.suspend(Duration::from_millis(100)));
        }
        stop.store(true, Relaxed);
        let ran = program.join();
        slept?;
        ran.joined()?
    })?;
    let stats = settled(&process, &gpu, kernels, quiet)?;
    println!(
        "# {kernels} kernels, and {} KiB came ahead of them, while the system slept {SLEEPS} times",
        stats.bytes_in >> 10
    );
    ensure!(stats.bytes_in > 0, "nothing is ever prefetched");
    Ok(Pass::Ok)
}

/// Whether the driver prefetches.
pub(crate) fn is_on() -> bool {
    std::fs::read_to_string(PARAMETER).is_ok_and(|on| on.trim() == "Y")
}

/// How long the worker's counts stand still at least before the worker is at rest: a multiple of what one block takes to
/// the GPU and back, which depends on the machine.
pub(crate) fn quiet(
    process: &Process,
    gpu: &Gpu,
    data: &Buffer<u64>,
) -> vgpu_client::Result<Duration> {
    let start = Instant::now();
    process.migrate(data.address(), BLOCK, gpu.uuid())?;
    process.migrate(data.address(), BLOCK, Uuid::CPU)?;
    Ok((4 * start.elapsed()).max(Duration::from_millis(50)))
}

/// Waits until so many announcements were learnt of, and the worker has nothing more to do, as its counts have stood
/// still for so long.
pub(crate) fn settled(
    process: &Process,
    gpu: &Gpu,
    kernels: u64,
    quiet: Duration,
) -> vgpu_client::Result<PrefetchStats> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let did = |s: &PrefetchStats| {
        [
            s.kernels,
            s.blocks,
            s.predicted,
            s.bytes_in,
            s.held,
            s.pushed_out,
        ]
    };
    let mut last = process.prefetch_stats(gpu.uuid())?;
    let mut same = 0;
    while (same < 5 || last.kernels < kernels) && Instant::now() < deadline {
        std::thread::sleep(quiet / 5);
        let now = process.prefetch_stats(gpu.uuid())?;
        same = if did(&now) == did(&last) { same + 1 } else { 0 };
        last = now;
    }
    Ok(last)
}
