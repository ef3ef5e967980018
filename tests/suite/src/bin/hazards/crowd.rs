// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Ordinary memory with thousands of mappings, as children have by fork(), and one process by mremap(). Linux goes through all of them
//! for each page that it isolates, whether they have the page or not. A GPU's fault shall not, as all processes' faults wait for its service.

use std::time::{Duration, Instant};

use uvm_suite::{ensure, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Kernel, Op, Process, PAGE};

use crate::isolation::migrate;
use crate::{gpu_writes, start, start_ordinary, NONE, PAGE_WORDS, WORDS};

/// Pages of a va_block.
const PAGES: u64 = (WORDS / PAGE_WORDS) as u64;
/// So many mappings that the difference shows beside all else that a fault costs.
const MANY: usize = 16_384;
/// How long a kernel may take that is served within a second.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "crowd: a GPU's faults are as fast where memory has many mappings",
        NONE,
        as_fast,
    );
    suite.test(
        "crowd: memory with more than 256 mappings stays in the host",
        NONE,
        stays,
    );
    suite.test(
        "crowd: what a GPU has of memory with many mappings comes back beside other processes' faults",
        NONE,
        comes_back,
    );
    suite.test(
        "crowd: an atomic to a huge page with many mappings is served",
        NONE,
        huge_page_atomics,
    );
    suite.test(
        "crowd: memory with one mapping goes to a GPU while another thread moves huge pages beside it",
        NONE,
        beside_splits,
    );
}

/// A va_block of ordinary memory, and a page behind it, by which it keeps what belongs to its first mapping when that is moved.
fn two_mebibytes() -> Result<Buffer<u64>, Failure> {
    let buffer = Buffer::<u64>::ordinary(WORDS + PAGE_WORDS)?;
    buffer.huge_pages(false)?;
    buffer.set(WORDS, 0);
    Ok(buffer)
}

/// Has Linux know so many mappings more of the first words of `buffer`, until what this returns is dropped.
fn crowd(buffer: &Buffer<u64>, words: usize, times: usize) -> Result<Vec<Buffer<u64>>, Failure> {
    let mappings: vgpu_client::Result<_> = (0..times).map(|_| buffer.moved(words)).collect();
    Ok(mappings?)
}

/// Compares with memory that has one mapping.
fn as_fast() -> Outcome {
    let (_process, gpu) = start_ordinary!("faults take seconds");
    let times = [0, MANY].map(|mappings| -> Result<Duration, Failure> {
        let buffer = two_mebibytes()?;
        let _crowd = crowd(&buffer, WORDS, mappings)?;
        buffer.fill(|i| i as u64);
        let begin = Instant::now();
        gpu_writes(&gpu, &buffer, 7)?;
        let took = begin.elapsed();
        println!("# with {mappings} mappings more: {took:?}");
        let wrong = buffer.first_other(|i| 7 + i as u64);
        ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
        Ok(took)
    });
    let [one, many] = times;
    let (one, many) = (one?, many?);
    ensure!(
        many < 4 * one,
        "{many:?}, where memory with one mapping took {one:?}"
    );
    Ok(Pass::Ok)
}

fn stays() -> Outcome {
    let (process, gpu) = start_ordinary!("all goes to the GPU");
    // Of the last, which are as many as of the first, each is of half of the memory.
    for (mappings, words, place) in [
        (250, WORDS, gpu.uuid()),
        (260, WORDS, Uuid::CPU),
        (500, WORDS / 2, gpu.uuid()),
        // More than are counted.
        (1030, PAGE_WORDS, Uuid::CPU),
    ] {
        let buffer = two_mebibytes()?;
        let _crowd = crowd(&buffer, words, mappings)?;
        buffer.fill(|i| i as u64);
        gpu_writes(&gpu, &buffer, 7)?;
        let what = format!("with {mappings} mappings of {words} words");
        all_on(&process, &buffer, place, &what)?;
        let wrong = buffer.first_other(|i| 7 + i as u64);
        ensure!(wrong.is_none(), "{what}, (word, value) is {wrong:x?}");
    }
    // Where nobody has touched a page, the process gets one.
    let buffer = two_mebibytes()?;
    let _crowd = crowd(&buffer, WORDS, 260)?;
    gpu_writes(&gpu, &buffer, 9)?;
    all_on(&process, &buffer, Uuid::CPU, "new memory")?;
    let wrong = buffer.first_other(|i| 9 + i as u64);
    ensure!(
        wrong.is_none(),
        "of new memory, (word, value) is {wrong:x?}"
    );
    Ok(Pass::Ok)
}

/// The memory is on the GPU before it has the mappings. Where mremap() has moved it, the GPU has none, and faults.
fn comes_back() -> Outcome {
    let (process, gpu) = start_ordinary!("faults take seconds");
    let (other_process, other_gpu) = start()?;
    let theirs = Buffer::<u64>::managed(&other_process, WORDS)?;
    gpu_writes(&other_gpu, &theirs, 1)?;
    theirs.fill(|_| 0);
    let old = two_mebibytes()?;
    old.fill(|i| i as u64);
    migrate(&process, &old, 0..PAGES, gpu.uuid())?;
    let buffer = old.moved(WORDS)?;
    let _crowd = crowd(&old, WORDS, MANY)?;
    let write = Op::write(&buffer).pattern(7, 1).warps(8);
    let begin = Instant::now();
    let launched = gpu.launch(&Kernel::new().op(write))?;
    // The driver is at it when the other's faults come.
    std::thread::sleep(Duration::from_millis(100));
    let theirs_begin = Instant::now();
    gpu_writes(&other_gpu, &theirs, 5)?;
    let others = theirs_begin.elapsed();
    launched.wait()?.ok()?;
    let own = begin.elapsed();
    println!("# its own faults took {own:?}, another process' {others:?}");
    ensure!(
        others < own / 4,
        "another process' faults took {others:?}, those of this one {own:?}"
    );
    all_on(&process, &buffer, Uuid::CPU, "after the faults")?;
    let wrong = buffer.first_other(|i| 7 + i as u64);
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    Ok(Pass::Ok)
}

/// NVIDIA's code has Linux take such a page from the CPU where it is in the host. Linux then splits the mapping, but not the
/// page, and says of none but its first page that it has taken it.
fn huge_page_atomics() -> Outcome {
    let (_process, gpu) = start_ordinary!("all goes to the GPU");
    let words = 2 * WORDS;
    let buffer = Buffer::<u64>::ordinary(words + PAGE_WORDS)?;
    buffer.huge_pages(true)?;
    buffer.set(words, 0);
    let _crowd = crowd(&buffer, words, 260)?;
    buffer.fill(|i| i as u64);
    gpu_writes(&gpu, &buffer, 7)?;
    let add = Op::atomic_add(&buffer).pattern(1, 0).warps(8);
    let launched = gpu.launch(&Kernel::new().op(add))?;
    launched.wait_for(PATIENCE)?.ok()?;
    let wrong = buffer.first_other(|i| 8 + i as u64);
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    Ok(Pass::Ok)
}

/// Linux splits a huge page before it moves it, and nobody else may look at the memory's mappings meanwhile.
fn beside_splits() -> Outcome {
    let (process, gpu) = start_ordinary!("all goes to the GPU");
    let (own, theirs) = (8 * PAGES, 9 * PAGES..20 * PAGES);
    let buffer = Buffer::<u64>::ordinary(theirs.end as usize * PAGE_WORDS)?;
    buffer.huge_pages(true)?;
    buffer.fill(|i| i as u64);
    let write = Op::write(&buffer).range(0, own as usize * PAGE_WORDS);
    let kernel = Kernel::new().op(write.pattern(7, 1).warps(8));
    std::thread::scope(|scope| -> Result<(), Failure> {
        let moves = scope.spawn(|| migrate(&process, &buffer, theirs, gpu.uuid()));
        gpu.launch(&kernel)?.wait()?.ok()?;
        moves.joined()??;
        Ok(())
    })?;
    pages_on(
        &process,
        &buffer,
        own,
        gpu.uuid(),
        "beside the other thread",
    )?;
    let wrong = buffer.first_other(|i| match i < own as usize * PAGE_WORDS {
        true => 7 + i as u64,
        false => i as u64,
    });
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    Ok(Pass::Ok)
}

fn all_on(process: &Process, buffer: &Buffer<u64>, at: Uuid, what: &str) -> Result<(), Failure> {
    pages_on(process, buffer, PAGES, at, what)
}

/// Of the first `pages`.
fn pages_on(
    process: &Process,
    buffer: &Buffer<u64>,
    pages: u64,
    at: Uuid,
    what: &str,
) -> Result<(), Failure> {
    for page in 0..pages {
        let there = process.residency(buffer.address() + page * PAGE)?;
        ensure!(
            there.resident == [at],
            "{what}: page {page} is on {:?}",
            there.resident
        );
    }
    Ok(())
}
