// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Faults of users' copy engines, which nobody replays: upstream services one after the other, and then clears the faulted bit
//! of the channel, or kills it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use uvm_suite::{ensure, skip, until_it_dies, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Channel, Copies, Gpu, Kernel, Op, Process, PAGE};

use crate::faults::NOWHERE;
use crate::ordinary::Shared;
use crate::{start, start_ordinary, still_works, NONE, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("copying: a page that a CPU has written", NONE, || {
        written(true)
    });
    suite.test(
        "copying: ordinary memory that a CPU has written",
        NONE,
        || written(false),
    );
    suite.test(
        "copying: many channels fault while kernels do, in two processes",
        NONE,
        many,
    );
    suite.test(
        "copying: a page of ordinary memory that somebody holds, with others",
        NONE,
        || held(WORDS, 300),
    );
    suite.test(
        "copying: a page of ordinary memory that somebody holds, alone",
        NONE,
        || held(WORDS_OF_PAGE, 0),
    );
    suite.test(
        "copying: copies beyond the end of a file cost nobody else a fault",
        NONE,
        beyond,
    );
    suite.test(
        "fatal: a copy engine's access where nothing is mapped",
        NONE,
        nowhere,
    );
}

/// Of each process of a test of many.
const CHANNELS: usize = 8;
const ROUNDS: usize = 16;
const WORDS_OF_PAGE: usize = PAGE as usize / 8;
/// How long a copy may take. A machine with other work is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process with a GPU whose copy engines fault; `None`: they do not.
fn faulting() -> Result<Option<(Process, Gpu)>, Failure> {
    let (process, gpu) = start()?;
    Ok(gpu.has_copies().then_some((process, gpu)))
}

/// Has a channel's copy engine add 1 to the second word of each of `pages`, one after the other.
fn add(channel: &Channel, buffer: &Buffer<u64>, pages: &[usize]) -> Result<Copies, Failure> {
    let mut copies = channel.copies()?;
    for page in pages {
        channel.copy(buffer.address() + *page as u64 * PAGE + 8)?;
        copies = channel.wait_for_copies(copies.made + 1, PATIENCE)?;
    }
    Ok(copies)
}

/// All words are as they were written, from `first` on, and 1 was added in `pages`.
fn added(buffer: &Buffer<u64>, first: u64, pages: &[usize]) -> Result<(), Failure> {
    let one = |i: usize| i % WORDS_OF_PAGE == 1 && pages.contains(&(i / WORDS_OF_PAGE));
    let wrong = buffer.first_other(|i| first + i as u64 + u64::from(one(i)));
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    Ok(())
}

fn written(managed: bool) -> Outcome {
    let Some((process, gpu)) = faulting()? else {
        skip!("copy engines of this GPU do not fault");
    };
    if !managed && !process.has_hmm()? {
        skip!("this driver or kernel has no HMM");
    }
    let buffer = match managed {
        true => Buffer::<u64>::managed(&process, WORDS)?,
        false => Buffer::<u64>::ordinary(WORDS)?,
    };
    buffer.fill(|i| 100 + i as u64);
    let pages = [511, 0, 7];
    let copies = add(gpu.channel(), &buffer, &pages)?;
    ensure!(copies.faults > 0, "no copy faulted: {copies:?}");
    added(&buffer, 100, &pages)?;
    // Once more, as the CPU has the pages now.
    buffer.fill(|i| 200 + i as u64);
    let again = add(gpu.channel(), &buffer, &pages)?;
    ensure!(again.faults > copies.faults, "no copy faulted: {again:?}");
    added(&buffer, 200, &pages)?;
    Ok(Pass::Ok)
}

/// A page with one reference more than Linux knows of is not migrated. The copy engine accesses it where it is, and another
/// process' faults are serviced meanwhile. Where others move along with the page, NVIDIA's code takes the fault for serviced, and it
/// comes again; else it tries again.
fn held(words: usize, page: usize) -> Outcome {
    let Some((_process, gpu)) = faulting()? else {
        skip!("copy engines of this GPU do not fault");
    };
    let _hmm = start_ordinary!("the unmodified driver tries to migrate the page for ever");
    let (other_process, other_gpu) = start()?;
    let theirs = Buffer::<u64>::managed(&other_process, WORDS)?;
    let buffer = Buffer::<u64>::ordinary(words)?;
    buffer.huge_pages(false)?;
    buffer.fill(|i| 100 + i as u64);
    let held = buffer.hold_page(page * WORDS_OF_PAGE)?;
    gpu.channel()
        .copy(buffer.address() + page as u64 * PAGE + 8)?;
    let made = gpu.channel().wait_for_copies(1, PATIENCE);
    let write = Op::write(&theirs).pattern(7, 1).warps(4);
    let others = other_gpu.launch(&Kernel::new().op(write))?;
    let ended = others.wait_for(PATIENCE);
    drop(held);
    ensure!(ended.is_ok(), "another process' faults wait: {ended:?}");
    made?;
    added(&buffer, 100, &[page])?;
    Ok(Pass::Ok)
}

/// No fault of a batch is forgotten, and none goes to another's channel.
fn many() -> Outcome {
    let (Some(one), Some(other)) = (faulting()?, faulting()?) else {
        skip!("copy engines of this GPU do not fault");
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (process, gpu) in [&one, &other] {
            for n in 0..CHANNELS {
                threads.push(scope.spawn(move || copies(process, gpu, n)));
            }
        }
        all(threads)
    })?;
    still_works(&one.0, &one.1)?;
    still_works(&other.0, &other.1)?;
    Ok(Pass::Ok)
}

/// One of several channels of a process: it reads a buffer of its own, and then copies, each time to a page that the CPU has.
fn copies(process: &Process, gpu: &Gpu, number: usize) -> Result<(), Failure> {
    let first = (number as u64 + 1) << 32;
    let channel = gpu.new_channel()?;
    let buffer = Buffer::<u64>::managed(process, WORDS)?;
    buffer.fill(|i| first + i as u64);
    let pages: Vec<_> = (0..ROUNDS).map(|round| round * 31).collect();
    let read = Op::check(&buffer).pattern(first, 1).warps(4);
    channel.launch(&Kernel::new().op(read))?.wait()?.ok()?;
    // The CPU takes the pages back.
    added(&buffer, first, &[])?;
    add(&channel, &buffer, &pages)?;
    added(&buffer, first, &pages)
}

fn all(threads: Vec<ScopedJoinHandle<'_, Result<(), Failure>>>) -> Result<(), Failure> {
    for thread in threads {
        thread.joined()??;
    }
    Ok(())
}

/// UVM has no page for such a copy, and kills its channel; another process' faults are in the same batches.
fn beyond() -> Outcome {
    let Some((process, gpu)) = faulting()? else {
        skip!("copy engines of this GPU do not fault");
    };
    if !process.has_hmm()? {
        skip!("this driver or kernel has no HMM");
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let offenders = scope.spawn(|| -> Result<(), Failure> {
            while !ends.load(Ordering::Relaxed) {
                copies_beyond()?;
            }
            Ok(())
        });
        let (process, gpu) = (&process, &gpu);
        let others = (0..CHANNELS).map(|n| scope.spawn(move || copies(process, gpu, n)));
        let others = all(others.collect());
        ends.store(true, Ordering::Relaxed);
        others.and(all(vec![offenders]))
    })?;
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// A process, each of whose channels copies to where its file does not reach, and is killed.
fn copies_beyond() -> Result<(), Failure> {
    let (process, gpu) = start()?;
    let shared = Shared::new()?;
    let written = Buffer::managed(&process, WORDS_OF_PAGE)?;
    let channels = (0..CHANNELS).map(|_| gpu.new_channel());
    let channels = channels.collect::<Result<Vec<_>, _>>()?;
    for channel in &channels {
        channel.copy(shared.address + Shared::PAGE as u64)?;
    }
    channels
        .iter()
        .try_for_each(|channel| until_it_dies(channel, &written, PATIENCE))
}

/// UVM gives the fault back to RM, which stops the channel, and no other.
fn nowhere() -> Outcome {
    let Some((process, gpu)) = faulting()? else {
        skip!("copy engines of this GPU do not fault");
    };
    let (other_process, other_gpu) = start()?;
    let victim = gpu.new_channel()?;
    victim.copy(NOWHERE)?;
    let written = Buffer::managed(&process, WORDS_OF_PAGE)?;
    until_it_dies(&victim, &written, PATIENCE)?;
    let copies = victim.copies()?;
    ensure!(copies.made == 0 && copies.faults == 1, "{copies:?}");
    let copies = add(
        other_gpu.channel(),
        &Buffer::<u64>::managed(&other_process, WORDS)?,
        &[3],
    )?;
    ensure!(copies.made == 1, "{copies:?}");
    still_works(&process, &gpu)?;
    still_works(&other_process, &other_gpu)?;
    Ok(Pass::Ok)
}
