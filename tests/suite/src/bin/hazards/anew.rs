// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Ordinary memory that is to go to a GPU, for which the driver has GPU memory by the time that the move fails, or begins anew without some of
//! its pages. Whoever gets that GPU memory next has it alone.

use std::thread::{scope, sleep};
use std::time::Duration;

use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite, EVICTING_ORDINARY};
use vgpu_client::{Buffer, Gpu, Process};

use crate::covered::{all_mine, others_write, MINE, THEIRS};
use crate::held::leave;
use crate::{gpu_writes, start_ordinary, still_works, NONE, PAGE_WORDS, WORDS};

/// Words of the pages that a root chunk has no room for, beside a block.
const FEW: usize = 16 * PAGE_WORDS;
/// How long a thread has to come to where it waits.
const STEP: Duration = Duration::from_millis(700);

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "anew: what a move had that found no memory for the rest is had by one process",
        NONE,
        without_memory,
    );
    suite.test(
        "anew: what a move had for a page that somebody holds meanwhile is had by one process",
        EVICTING_ORDINARY,
        held_meanwhile,
    );
}

/// Of the one root chunk that RM has left some pages are in use. A block has the others by the time that there is none for the rest, and
/// they keep the root chunk from being evicted.
fn without_memory() -> Outcome {
    let (process, gpu) =
        start_ordinary!("the unmodified driver gives that memory to two processes");
    let rm = leave(&process, &gpu, 1)?;
    let _few = on_gpu(&process, &gpu, FEW)?;
    let buffer = on_host(WORDS)?;
    let moved = process.migrate(buffer.address(), buffer.bytes(), gpu.uuid());
    ensure!(moved.is_err(), "there was memory for a whole block");
    drop(rm);
    one_has_each(&process, &gpu, &buffer)
}

/// The rest of a block takes an eviction, after which the move begins anew. Its first page stays then, for which there was memory before.
fn held_meanwhile() -> Outcome {
    let (process, gpu) =
        start_ordinary!("the unmodified driver gives that memory to two processes");
    let rm = leave(&process, &gpu, 2)?;
    let _evicted = on_gpu(&process, &gpu, WORDS)?;
    let _few = on_gpu(&process, &gpu, FEW)?;
    let buffer = on_host(WORDS)?;
    let Some(evicts) = waits("2")? else {
        skip!("this nvidia-uvm.ko has no parameter uvm_rust_test_copy");
    };
    scope(|scope| -> Result<(), Failure> {
        let moves = scope.spawn(|| process.migrate(buffer.address(), buffer.bytes(), gpu.uuid()));
        sleep(STEP);
        ensure!(!moves.is_finished(), "nothing was evicted");
        let isolates = waits("3")?;
        sleep(STEP);
        ensure!(!moves.is_finished(), "the move did not begin anew");
        let held = buffer.hold_page(0)?;
        drop((isolates, evicts));
        // Whether all pages have moved is not asked here.
        let _ = moves.joined()?;
        drop(held);
        Ok(())
    })?;
    drop(rm);
    one_has_each(&process, &gpu, &buffer)
}

/// Has the thread wait that evicts, or the one that is about to isolate pages: isolation.rs.
fn waits(value: &str) -> Result<Option<SetParameter>, Failure> {
    SetParameter::new("nvidia_uvm", "uvm_rust_test_copy", value)
}

fn on_host(words: usize) -> Result<Buffer<u64>, Failure> {
    let buffer = Buffer::<u64>::ordinary(words)?;
    buffer.huge_pages(false)?;
    buffer.fill(|i| MINE + i as u64);
    Ok(buffer)
}

fn on_gpu(process: &Process, gpu: &Gpu, words: usize) -> Result<Buffer<u64>, Failure> {
    let buffer = on_host(words)?;
    process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
    Ok(buffer)
}

/// Another process gets what is free on the GPU. Then the block goes there.
fn one_has_each(process: &Process, gpu: &Gpu, buffer: &Buffer<u64>) -> Outcome {
    let theirs = others_write()?;
    // A page that stayed may be mapped where it is, and then the GPU does not fault on it.
    process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
    gpu_writes(gpu, buffer, MINE)?;
    let wrong = theirs.1.first_other(|i| THEIRS + i as u64);
    ensure!(
        wrong.is_none(),
        "of the other process, (word, value) is {wrong:x?}"
    );
    all_mine(buffer)?;
    drop(theirs);
    still_works(process, gpu)?;
    Ok(Pass::Ok)
}
