// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Two VA spaces of one process, as two libraries that each open the driver have: what the one moves of ordinary memory, the GPUs of
//! the other have mapped. Linux frees the page that was moved, and gives it to anybody.

use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Gpu, Kernel, Op, Process, PAGE};

use crate::isolation::migrate;
use crate::{gpu_reads, gpu_writes, start_ordinary, still_works, NONE, WORDS};

/// How long the threads of a test move the memory back and forth.
const LOOPS: Duration = Duration::from_secs(3);

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "two_spaces: a page of the host that the one moves is taken from the other's GPU",
        NONE,
        host_page,
    );
    suite.test(
        "two_spaces: a page of a GPU's that both have used is one space's",
        NONE,
        gpu_page,
    );
    suite.test(
        "two_spaces: a page that came from the other space's GPU memory stays in the host",
        NONE,
        to_host,
    );
    suite.test(
        "two_spaces: both move the same memory while GPUs and CPUs write to it",
        NONE,
        both_move,
    );
    suite.test(
        "two_spaces: memory on a GPU that the other has not registered comes to its GPU, two GPUs",
        NONE,
        strangers_gpu,
    );
}

fn right(buffer: &Buffer<u64>, first: u64, what: &str) -> Result<(), Failure> {
    let wrong = buffer.first_other(|word| first + word as u64);
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?} {what}");
    Ok(())
}

/// In pages of 4 KiB, none of which is Linux's one of zeros.
fn ordinary() -> Result<Buffer<u64>, Failure> {
    let buffer = Buffer::<u64>::ordinary(WORDS)?;
    buffer.huge_pages(false)?;
    buffer.fill(|_| 0);
    Ok(buffer)
}

fn host_page() -> Outcome {
    let (one, gpu) = start_ordinary!("a GPU writes to pages that Linux has freed");
    let other = Process::new()?;
    let others_gpu = other.gpu(0)?;
    let buffer = ordinary()?;
    other.set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    gpu_writes(&others_gpu, &buffer, 1)?;
    migrate(&one, &buffer, 0..buffer.bytes() / PAGE, gpu.uuid())?;
    gpu_writes(&others_gpu, &buffer, 2)?;
    right(&buffer, 2, "after the other's GPU wrote to it")?;
    // What is advised stays so.
    migrate(&one, &buffer, 0..buffer.bytes() / PAGE, gpu.uuid())?;
    gpu_writes(&others_gpu, &buffer, 3)?;
    let there = other.residency(buffer.address())?;
    ensure!(
        there.resident.contains(&Uuid::CPU),
        "the other's preferred location is no longer the host: {there:?}"
    );
    right(&buffer, 3, "after the other's GPU wrote once more")?;
    still_works(&one, &gpu)?;
    still_works(&other, &others_gpu)?;
    Ok(Pass::Ok)
}

/// Each writes to what the other has on the GPU; then one of them goes, and what it has is still there.
fn gpu_page() -> Outcome {
    let (last, last_gpu) = start_ordinary!("a chunk is two va_blocks'");
    for writer_goes in [true, false] {
        let (one, other) = (Process::new()?, Process::new()?);
        let (gpu, others_gpu) = (one.gpu(0)?, other.gpu(0)?);
        let buffer = ordinary()?;
        for round in (0..8).step_by(2) {
            gpu_writes(&gpu, &buffer, round)?;
            if round % 4 == 0 {
                right(&buffer, round, "after the one's GPU wrote to it")?;
            }
            gpu_writes(&others_gpu, &buffer, round + 1)?;
            if round == 4 {
                right(&buffer, round + 1, "after the other's GPU wrote to it")?;
            }
        }
        let stays = if writer_goes {
            drop((others_gpu, other));
            (one, gpu)
        } else {
            drop((gpu, one));
            (other, others_gpu)
        };
        gpu_writes(&last_gpu, &ordinary()?, 0)?;
        right(&buffer, 7, "after a VA space has gone")?;
        still_works(&stays.0, &stays.1)?;
    }
    still_works(&last, &last_gpu)?;
    Ok(Pass::Ok)
}

fn to_host() -> Outcome {
    let (one, gpu) = start_ordinary!("a chunk is two va_blocks'");
    let other = Process::new()?;
    let others_gpu = other.gpu(0)?;
    let buffer = ordinary()?;
    for round in 0..3 {
        gpu_writes(&gpu, &buffer, round)?;
        migrate(&other, &buffer, 0..buffer.bytes() / PAGE, Uuid::CPU)?;
        right(&buffer, round, "after the other moved it to the host")?;
        gpu_writes(&gpu, &buffer, round + 10)?;
        right(&buffer, round + 10, "after the one's GPU wrote to it anew")?;
    }
    still_works(&one, &gpu)?;
    still_works(&other, &others_gpu)?;
    Ok(Pass::Ok)
}

/// What the one has on a GPU that the other knows nothing of, the other's GPU reads and writes. It cannot be moved by
/// the other's call, and stays as it is.
fn strangers_gpu() -> Outcome {
    let (one, gpu) = start_ordinary!("the kernel follows a NULL pointer");
    if gpu.info().gpu_count < 2 {
        skip!("there is one GPU");
    }
    let other = Process::new()?;
    let others_gpu = other.gpu(1)?;
    let buffer = ordinary()?;
    for round in (0..6).step_by(2) {
        gpu_writes(&gpu, &buffer, round)?;
        gpu_reads(&others_gpu, &buffer, round)?;
        gpu_writes(&gpu, &buffer, round)?;
        gpu_writes(&others_gpu, &buffer, round + 1)?;
        right(&buffer, round + 1, "after the other's GPU wrote to it")?;
    }
    gpu_writes(&gpu, &buffer, 7)?;
    let there = one.residency(buffer.address())?;
    ensure!(
        there.resident.contains(&gpu.uuid()),
        "not on the GPU: {there:?}"
    );
    for to in [others_gpu.uuid(), Uuid::CPU] {
        // It may be refused.
        let _ = migrate(&other, &buffer, 0..buffer.bytes() / PAGE, to);
    }
    other.set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    gpu_reads(&others_gpu, &buffer, 7)?;
    right(&buffer, 7, "after the other tried to move it")?;
    still_works(&one, &gpu)?;
    still_works(&other, &others_gpu)?;
    Ok(Pass::Ok)
}

/// Adds to all words until the time is over, and says how often.
fn adds(gpu: &Gpu, buffer: &Buffer<u64>, until: Instant) -> Result<u64, Failure> {
    let kernel = Kernel::new().op(Op::atomic_add(buffer).pattern(1, 0).warps(8));
    let mut times = 0;
    while Instant::now() < until {
        gpu.launch(&kernel)?.wait()?.ok()?;
        times += 1;
    }
    Ok(times)
}

fn both_move() -> Outcome {
    let (one, gpu) = start_ordinary!("a GPU writes to pages that Linux has freed");
    let other = Process::new()?;
    let others_gpu = other.gpu(0)?;
    let buffer = ordinary()?;
    let until = Instant::now() + LOOPS;
    let moves = |process: &Process, places: [Uuid; 2]| -> Result<u64, Failure> {
        let mut times = 0;
        while Instant::now() < until {
            for to in places {
                migrate(process, &buffer, 0..buffer.bytes() / PAGE, to)?;
                times += 1;
            }
        }
        Ok(times)
    };
    let (added, moved) = std::thread::scope(|scope| -> Result<(u64, u64), Failure> {
        let adding = [&gpu, &others_gpu].map(|gpu| {
            let buffer = &buffer;
            scope.spawn(move || adds(gpu, buffer, until))
        });
        let moving = [
            (&one, [gpu.uuid(), Uuid::CPU]),
            (&other, [Uuid::CPU, gpu.uuid()]),
        ]
        .map(|(process, places)| {
            let moves = &moves;
            scope.spawn(move || moves(process, places))
        });
        let (mut added, mut moved) = (0, 0);
        for adding in adding {
            added += adding.joined()??;
        }
        for moving in moving {
            moved += moving.joined()??;
        }
        Ok((added, moved))
    })?;
    println!("# added to {added} times, moved {moved} times");
    if added < 2 || moved < 4 {
        skip!("there was no time for it");
    }
    let wrong = buffer.first_other(|_| added);
    ensure!(wrong.is_none(), "(word, value) is {wrong:?}, not {added}");
    still_works(&one, &gpu)?;
    still_works(&other, &others_gpu)?;
    Ok(Pass::Ok)
}
