// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Ordinary memory that cannot be evicted for a while, as somebody holds its pages, and who
//! needs GPU memory meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvm_suite::modules::SetParameter;
use uvm_suite::rm::{inject, keep, IN_USE};
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::vgpu::{Inject, INJECT_EVICT_PAGES};
use vgpu_client::{Buffer, Channel, Gpu, Kernel, Op, Process, Vgpu, BLOCK};

use crate::{start, NONE, PAGE_WORDS, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "held: root chunks that stay now and then do not add up to no memory",
        NONE,
        not_added_up,
    );
    suite.test(
        "held: pages that mremap() moved to another place of a block",
        NONE,
        moved_in_block,
    );
    suite.test(
        "held: a fault waits for what RM has taken and may give back",
        NONE,
        waits_for_rm,
    );
    suite.test(
        "held: what an eviction got in vain goes to one owner each",
        NONE,
        one_owner_each,
    );
    suite.test(
        "held: what an eviction got in vain is had by who made it",
        NONE,
        had_by_the_evictor,
    );
    suite.test(
        "held: who gives up does not wait for the others' giving up",
        NONE,
        given_up_together,
    );
    suite.test(
        "held: memory goes from hand to hand, and nobody goes without",
        NONE,
        hand_to_hand,
    );
}

pub(crate) const NO_HOLDING: &str = "this nvidia-uvm.ko has no parameter uvm_rust_test_held";

/// Whether memory can be held here. The unmodified driver dies when it evicts part of a block of
/// ordinary memory (docs/fixes.md), so it is not even filled.
pub(crate) fn can_hold() -> Result<bool, Failure> {
    Ok(SetParameter::new("nvidia_uvm", "uvm_rust_test_held", "0")?.is_some())
}

/// RM takes what it can have of the GPU's memory, for as long as its client is open, and leaves
/// so many root chunks to UVM.
pub(crate) fn leave(process: &Process, gpu: &Gpu, chunks: u64) -> Result<Vgpu, Failure> {
    let rm = Vgpu::open()?;
    let all = gpu.info().vidmem_bytes / BLOCK * BLOCK;
    for begin in (BLOCK..all).step_by(BLOCK as usize) {
        if process.check_leak(gpu.uuid(), BLOCK)? <= chunks {
            return Ok(rm);
        }
        let done = keep(&rm, gpu.index(), begin, begin + BLOCK)?;
        ensure!(
            done.status == 0 || done.status == IN_USE,
            "the range at {begin:#x}: {:#x}",
            done.status
        );
    }
    Err("RM could not have as much as that".into())
}

/// Blocks of ordinary memory that are on the GPU, and that each eviction finds held by
/// somebody while the second part lives.
pub(crate) fn held(process: &Process, gpu: &Gpu, blocks: u64) -> Result<Option<Held>, Failure> {
    let mut buffers = Vec::new();
    for round in 0..blocks {
        let buffer = Buffer::<u64>::ordinary(WORDS)?;
        buffer.huge_pages(false)?;
        let write = Op::write(&buffer).pattern(round << 32, 1).warps(8);
        gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
        process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
        buffers.push(buffer);
    }
    let set = SetParameter::new("nvidia_uvm", "uvm_rust_test_held", "1")?;
    Ok(set.map(|set| Held { buffers, set }))
}

pub(crate) struct Held {
    pub(crate) buffers: Vec<Buffer<u64>>,
    pub(crate) set: SetParameter,
}

impl Held {
    /// Lets the pages go, and looks at them all.
    pub(crate) fn end(self) -> Outcome {
        drop(self.set);
        for (round, buffer) in self.buffers.iter().enumerate() {
            let first = (round as u64) << 32;
            if let Some((i, seen)) = buffer.first_other(|i| first + i as u64) {
                return Err(format!("word {i} of block {round} is {seen:#x}").into());
            }
        }
        Ok(Pass::Ok)
    }
}

/// RM asks for all the GPU's memory; returns what came of it.
pub(crate) fn rm_wants_all(gpu: &Gpu) -> vgpu_client::Result<Inject> {
    inject(gpu, INJECT_EVICT_PAGES, gpu.info().usable_bytes() / BLOCK)
}

/// Eviction after eviction finds some root chunks held before it finds one that is not. All of
/// them succeed, however many have been held since the first.
fn not_added_up() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let blocks = gpu.info().usable_bytes() / BLOCK;
    let Some(held) = held(&process, &gpu, blocks / 2)? else {
        skip!("{NO_HOLDING}");
    };
    let filler = Buffer::<u64>::managed(&process, WORDS * blocks as usize)?;
    for _ in 0..8 {
        process.migrate(filler.address(), filler.bytes(), gpu.uuid())?;
    }
    held.end()
}

/// Pages that a va_block has got from another by mremap(), at another place than they had there, and that somebody holds:
/// an eviction leaves them. From 590 on their chunks do not know the new place, and looked like nobody's.
fn moved_in_block() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? || !can_hold()? {
        skip!("no HMM, or {NO_HOLDING}");
    }
    let old = pages(gpu.channel(), 128, 7)?;
    let begin = Buffer::<u64>::ordinary(PAGE_WORDS)?;
    let new = Buffer::<u64>::ordinary_at(begin.address() + BLOCK / 2, old.len())?;
    new.huge_pages(false)?;
    new.take_pages_of(&old)?;
    let check = || {
        let check = Op::check(&new).pattern(7, 1).warps(4);
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()
    };
    check()?;
    let set = SetParameter::new("nvidia_uvm", "uvm_rust_test_held", "1")?;
    let before = gpu.stats()?.d2h_bytes;
    rm_wants_all(&gpu)?;
    let copied = gpu.stats()?.d2h_bytes - before;
    drop(set);
    ensure!(
        copied == 0,
        "{copied} bytes of pages that are held went to the host"
    );
    check()?;
    let wrong = new.first_other(|i| 7 + i as u64);
    ensure!(wrong.is_none(), "{wrong:x?} is not what was written");
    Ok(Pass::Ok)
}

/// RM asks for more than it can get: it has all of the rest before it comes to the pages that
/// are held. A kernel that runs meanwhile waits until RM gives up.
fn waits_for_rm() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let Some(held) = held(&process, &gpu, 2)? else {
        skip!("{NO_HOLDING}");
    };
    let rest = Buffer::<u64>::managed(&process, 4 * WORDS)?;
    let ended = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| -> Result<u64, Failure> {
        let rm = scope.spawn(|| {
            let asked = rm_wants_all(&gpu);
            ended.store(true, Ordering::SeqCst);
            asked
        });
        let mut rounds = 0;
        let outcome: Result<(), Failure> = loop {
            let write = Op::write(&rest).pattern(rounds, 1).warps(8);
            let ran = gpu.launch(&Kernel::new().op(write))?.wait()?;
            if let Err(e) = ran.ok() {
                break Err(e.into());
            }
            rounds += 1;
            if ended.load(Ordering::SeqCst) {
                break Ok(());
            }
            process.migrate(rest.address(), rest.bytes(), Uuid::CPU)?;
            std::thread::sleep(Duration::from_millis(1));
        };
        let asked = rm.joined()??;
        outcome?;
        ensure!(asked.status != 0, "RM got all it asked for");
        Ok(rounds)
    })?;
    let wrong = rest.first_other(|i| rounds - 1 + i as u64);
    ensure!(wrong.is_none(), "{wrong:x?} is not what was written");
    held.end()
}

/// Words of a page, and pages of each buffer of [`one_owner_each()`].
const PAGES: usize = 24;

/// RM evicts root chunks of which a few pages are in use, and held, and the rest is free. The
/// free part becomes the evictor's, and free again, slowly, when the eviction fails; GPU faults of two
/// threads take pages of it at the same moment. A page that was given to two shows in what
/// they read.
fn one_owner_each() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let kept = small(gpu.channel(), 1 << 56)?;
    let Some(set) = SetParameter::new("nvidia_uvm", "uvm_rust_test_held", "2")? else {
        skip!("{NO_HOLDING}");
    };
    let ended = AtomicBool::new(false);
    let channels = [gpu.new_channel()?, gpu.new_channel()?];
    std::thread::scope(|scope| -> Result<(), Failure> {
        let takers: Vec<_> = channels
            .iter()
            .zip(2u64..)
            .map(|(channel, taker)| {
                let (process, ended) = (&process, &ended);
                scope.spawn(move || taker_of_pages(process, channel, taker << 56, ended))
            })
            .collect();
        // A call ends at once when the takers have a chunk of each root chunk just then.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            rm_wants_all(&gpu)?;
        }
        ended.store(true, Ordering::SeqCst);
        for taker in takers {
            let rounds = taker.joined()??;
            ensure!(rounds > 0, "nobody took a page");
        }
        Ok(())
    })?;
    drop(set);
    let wrong = kept.first_other(|i| (1 << 56) + i as u64);
    ensure!(wrong.is_none(), "{wrong:x?} is not what was written first");
    Ok(Pass::Ok)
}

/// Ordinary memory that the GPU has written, and so has: each page in a chunk of its own.
fn small(channel: &Channel, first: u64) -> Result<Buffer<u64>, Failure> {
    pages(channel, PAGES, first)
}

fn pages(channel: &Channel, pages: usize, first: u64) -> Result<Buffer<u64>, Failure> {
    let buffer = Buffer::<u64>::ordinary(pages * PAGE_WORDS)?;
    buffer.huge_pages(false)?;
    let write = Op::write(&buffer).pattern(first, 1).warps(4);
    channel.launch(&Kernel::new().op(write))?.wait()?.ok()?;
    Ok(buffer)
}

/// Takes pages and gives them back, until @ended; the GPU and the CPU find in them what was
/// written. Returns how many rounds that were.
fn taker_of_pages(
    process: &Process,
    channel: &Channel,
    own: u64,
    ended: &AtomicBool,
) -> Result<u64, Failure> {
    let mut rounds = 0;
    while !ended.load(Ordering::SeqCst) {
        let first = own | rounds << 32;
        let buffers = [small(channel, first)?, small(channel, first)?];
        for buffer in &buffers {
            let check = Op::check(buffer).pattern(first, 1).warps(4);
            channel.launch(&Kernel::new().op(check))?.wait()?.ok()?;
        }
        for buffer in &buffers {
            process.migrate(buffer.address(), buffer.bytes(), Uuid::CPU)?;
            let wrong = buffer.first_other(|i| first + i as u64);
            ensure!(wrong.is_none(), "{wrong:x?} is not what was written last");
        }
        rounds += 1;
    }
    Ok(rounds)
}

/// Pages of a chunk of 64 KiB, and such chunks of a root chunk.
const PAGES_64K: usize = 16;
const CHUNKS_64K: usize = 32;

/// Each root chunk is full: of managed memory in small chunks, and of two that are held. Whoever
/// wants one page evicts what it can of all of them before it gives up; the page is there then.
fn had_by_the_evictor() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    if !can_hold()? {
        skip!("{NO_HOLDING}");
    }
    let _rm = leave(&process, &gpu, 4)?;
    let roots = process.check_leak(gpu.uuid(), BLOCK)? as usize;
    let mut buffers = Vec::new();
    for chunk in 0..roots * (CHUNKS_64K - 1) {
        let first = (chunk as u64) << 32;
        // In the middle of what there is of its root chunk.
        buffers.push(if chunk % (CHUNKS_64K - 1) == CHUNKS_64K / 2 {
            pages(gpu.channel(), 2 * PAGES_64K, first)?
        } else {
            let buffer = Buffer::<u64>::managed(&process, PAGES_64K * PAGE_WORDS)?;
            let write = Op::write(&buffer).pattern(first, 1).warps(4);
            gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
            buffer
        });
    }
    let Some(set) = SetParameter::new("nvidia_uvm", "uvm_rust_test_held", "1")? else {
        skip!("{NO_HOLDING}");
    };
    let start = Instant::now();
    let mut fresh = Vec::new();
    for round in 0..4 {
        fresh.push(pages(gpu.channel(), 1, round << 56)?);
    }
    println!(
        "# {roots} root chunks; four pages took {:?}",
        start.elapsed()
    );
    drop(set);
    let all = buffers.iter().zip((0..).map(|n| n << 32));
    for (buffer, first) in all.chain(fresh.iter().zip((0..).map(|n| n << 56))) {
        let wrong = buffer.first_other(|i| first + i as u64);
        ensure!(
            wrong.is_none(),
            "{wrong:x?} is not what was written from {first:#x}"
        );
    }
    Ok(Pass::Ok)
}

/// How many times longer the last of eight threads may take than one alone. When each waited for the others' giving up,
/// too, the last one took sixteen times as long.
const TOGETHER: u32 = 2;

/// Evictions of which each left its chunk held, and between which more time passed, are not of one row
/// (`HELD_MS` in `policy/evict/wait.rs`).
const HELD: Duration = Duration::from_secs(3);

/// Threads that all want what is held, and fail: the last of them not long after the first.
fn given_up_together() -> Outcome {
    const THREADS: usize = 8;
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    if !can_hold()? {
        skip!("{NO_HOLDING}");
    }
    let _rm = leave(&process, &gpu, 4)?;
    let roots = process.check_leak(gpu.uuid(), BLOCK)?;
    let buffers = (0..THREADS)
        .map(|_| {
            let buffer = Buffer::<u64>::managed(&process, WORDS)?;
            buffer.fill(|i| i as u64);
            Ok(buffer)
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let Some(held) = held(&process, &gpu, roots)? else {
        skip!("{NO_HOLDING}");
    };
    let migrate = |buffer: &Buffer<u64>| {
        let start = Instant::now();
        let moved = process.migrate(buffer.address(), buffer.bytes(), gpu.uuid());
        (moved.is_err(), start.elapsed())
    };
    // Or the thread would go on with a row of an earlier test, and give up sooner.
    std::thread::sleep(HELD + HELD / 2);
    let (failed, alone) = migrate(&buffers[0]);
    ensure!(failed, "one thread had memory that is held");
    let took = std::thread::scope(|scope| {
        let threads: Vec<_> = buffers
            .iter()
            .map(|buffer| scope.spawn(|| migrate(buffer)))
            .collect();
        let joined = threads.into_iter().map(Joined::joined);
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    println!("# {took:?}, and one alone {alone:?}");
    let failed = took.iter().filter(|(failed, _)| *failed);
    ensure!(
        failed.count() > THREADS / 2,
        "they had memory that is held: {took:?}"
    );
    let slowest = took.iter().map(|(_, time)| *time).max();
    ensure!(
        slowest < Some(TOGETHER * alone),
        "the slowest took {slowest:?}, and one alone {alone:?}"
    );
    for buffer in &buffers {
        let wrong = buffer.first_other(|i| i as u64);
        ensure!(wrong.is_none(), "{wrong:x?} is not what was written");
    }
    held.end()
}

/// Each thread wants the only root chunks there are, which the others have just got. None is ever
/// told that there is no memory.
fn hand_to_hand() -> Outcome {
    let (process, gpu) = start()?;
    if !can_hold()? {
        skip!("{NO_HOLDING}");
    }
    let _rm = leave(&process, &gpu, 2)?;
    let rounds = std::thread::scope(|scope| -> Result<u64, Failure> {
        let threads: Vec<_> = (1u64..5)
            .map(|own| {
                let (process, gpu) = (&process, &gpu);
                scope.spawn(move || -> Result<u64, Failure> {
                    let buffer = Buffer::<u64>::managed(process, WORDS)?;
                    let start = Instant::now();
                    let mut rounds = 0;
                    while start.elapsed() < Duration::from_secs(5) {
                        let first = own << 56 | rounds << 32;
                        buffer.fill(|i| first + i as u64);
                        process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
                        let wrong = buffer.first_other(|i| first + i as u64);
                        ensure!(wrong.is_none(), "{wrong:x?} is not what was written");
                        rounds += 1;
                    }
                    Ok(rounds)
                })
            })
            .collect();
        threads
            .into_iter()
            .try_fold(0, |sum, thread| Ok(sum + thread.joined()??))
    })?;
    println!("# {rounds} migrations");
    Ok(Pass::Ok)
}
