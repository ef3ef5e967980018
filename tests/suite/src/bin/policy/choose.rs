// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the driver picks for each process (`uvm_rust_choose=1`): what comes along with faults, and with `uvm_rust_prefetch=1`
//! whether predicted blocks are brought.
//!
//! Two processes have more memory than the GPU, at the same time. One reads single pages here and there, of which nothing is
//! needed but the page itself. The other reads a word of each 64 KiB, block by block, for which the whole block is best.

use oorandom::Rand64;
use uvm_suite::modules::parameter;
use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::{DriverStats, Kernel, Op, BLOCK, PAGE};

use crate::shares::{value, Tenant, STEP};
use crate::together::{is_on, BLOCK_WORDS};
use crate::wasted::Rig;

const PARAMETER: &str = "uvm_rust_choose";

/// How often the one process reads a page of each of its blocks before the pick must be made, and after it.
const LEARNING: u64 = 8;
const READS: u64 = 8;
/// Blocks that are read at the same time.
const TOGETHER: u32 = 32;
/// How often the other process goes through its memory.
const ROUNDS: u64 = 8;
/// Kernels that a program announces in an order of no sense.
const KERNELS: u64 = 64;

pub fn run(suite: &mut Suite) {
    suite.test("what comes along is each process's own pick", &[], along);
    suite.test(
        "who announces what was predicted has it brought",
        &[],
        ahead,
    );
}

fn chooses() -> bool {
    parameter("nvidia_uvm", PARAMETER).as_deref() == Some("Y")
}

/// Bytes that came to the GPU for a process's faults, and along with them.
fn came(of: &Tenant) -> Result<u64, Failure> {
    let stats = DriverStats::get(&of.process, of.gpu.uuid(), false)?;
    Ok(stats.host_to_gpu.iter().map(|t| t.bytes).sum())
}

/// Reads a word of a page of each block, at the same random place in all of them, and compares it, so many times. Returns how
/// many pages that were.
fn reads_pages(of: &Tenant, dice: &mut Rand64, times: u64) -> Result<u64, Failure> {
    let blocks = (of.data.bytes() / BLOCK) as usize - 1;
    let step = STEP.wrapping_mul(BLOCK / 8);
    for _ in 0..times {
        let word = (dice.rand_range(0..BLOCK / PAGE) * (PAGE / 8)) as usize;
        let check = Op::check(&of.data).range(word, blocks * BLOCK_WORDS);
        let check = check.every(BLOCK).pattern(value(word), step);
        let kernel = Kernel::new().op(check.warps(TOGETHER).lanes(1));
        of.gpu.launch(&kernel)?.wait()?.ok()?;
    }
    Ok(times * blocks as u64)
}

fn along() -> Outcome {
    if !chooses() {
        skip!("{PARAMETER} is not on");
    }
    let room = Tenant::new(1)?.gpu.info().vidmem_bytes / BLOCK;
    let (sparse, dense) = (Tenant::new(4 * room)?, Tenant::new(room * 3 / 2)?);
    let mut dice = Rand64::new(7);
    let learning = reads_pages(&sparse, &mut dice, LEARNING)?;
    let first = came(&sparse)?;
    for _ in 0..ROUNDS {
        dense.goes_through()?;
    }
    let reads = reads_pages(&sparse, &mut dice, READS)?;
    let bytes = came(&sparse)? - first;
    let mut picks = sparse.process.picks_along()?;
    picks.sort();
    println!(
        "# {picks:?}; {} KiB came with each of the first {learning} pages, and {} with each of the last {reads}",
        (first / learning) >> 10,
        (bytes / reads) >> 10
    );
    ensure!(picks == ["block", "nothing"], "the picks are {picks:?}");
    // The tree prefetcher brings 64 KiB at least, and duels go on.
    ensure!(
        bytes <= reads * 8 * PAGE,
        "{bytes} bytes came with {reads} pages"
    );
    for of in [&sparse, &dense] {
        let is_whole = of.data.first_other(value).is_none();
        ensure!(is_whole, "the data are not what they were");
    }
    Ok(Pass::Ok)
}

fn ahead() -> Outcome {
    if !chooses() || !is_on() {
        skip!("{PARAMETER} and uvm_rust_prefetch are not on");
    }
    let mut rig = Rig::learnt()?;
    let blocks = rig.wants_all()?;
    rig.settle()?;
    let of = |rig: &Rig| rig.process.prefetch_stats(rig.gpu.uuid());
    let stats = of(&rig)?;
    ensure!(
        rig.process.prefetch_is_picked()? && stats.prefetched >= blocks,
        "kernels come as predicted, and {} of {blocks} blocks came: {stats:?}",
        stats.prefetched
    );
    drop(rig);
    // Kernels that the predictor does not foresee, though it knows each of them.
    let rig = Rig::new()?;
    let mut dice = Rand64::new(11);
    for _ in 0..KERNELS {
        let kernel = dice.rand_range(0..6);
        rig.process.announce(rig.gpu.uuid(), 1 + kernel)?;
        rig.touches(kernel as usize * BLOCK_WORDS)?;
    }
    let stats = of(&rig)?;
    println!(
        "# of {} kernels {} came as predicted: {} blocks were brought",
        stats.kernels, stats.kernels_right, stats.prefetched
    );
    ensure!(
        !rig.process.prefetch_is_picked()? && stats.prefetched == 0,
        "kernels come in no order, and blocks are brought: {stats:?}"
    );
    Ok(Pass::Ok)
}
