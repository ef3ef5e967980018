// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Ordinary memory that several processes have by fork(), and that one thread moves while others move it, read it, fork and end:
//! nobody may wait for ever. Linux has one lock of such memory for all of these processes, and each va_block has one of its own.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use uvm_suite::modules::SetParameter;
use uvm_suite::{
    ensure, say, skip, stacks, this_program, who_waits, Failure, Forked, Joined, Outcome, Pass,
    Suite, EVICTING_ORDINARY,
};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Gpu, Kernel, NvStatus, Op, Process, BLOCK, PAGE};

use crate::held::rm_wants_all;
use crate::{gpu_writes, start, start_ordinary, WORDS};

/// How long the processes of a test may take in all; they take some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long each has to come to where it would wait, while the thread that moves memory has the va_block.
const STEP: Duration = Duration::from_millis(700);
/// How long the end of a process may take that is killed. Who has the va_block has it twice as long.
const MOST: Duration = Duration::from_secs(5);
/// How long processes go on in loops.
const LOOPS: Duration = Duration::from_secs(4);

/// What happens meanwhile, the value of `uvm_rust_test_copy` that has the thread wait which moves memory, and what does it.
type Way = (
    &'static str,
    Option<&'static str>,
    fn() -> Result<(), Failure>,
);

const WAYS: [Way; 10] = [
    (
        "RM evicts what mremap() moved there, and a child ends",
        Some("2"),
        stray,
    ),
    (
        "a child reads of it, and another one ends",
        Some("2"),
        read_by_child,
    ),
    ("a child moves the same memory", Some("3"), || {
        two_spaces(false, &FEW)
    }),
    (
        "a child moves the other half of the same memory",
        Some("3"),
        || two_spaces(false, &HALVES),
    ),
    (
        "a child moves the same memory, and it is evicted",
        Some("3"),
        || two_spaces(true, &FEW),
    ),
    (
        "a child's GPU faults on the other half, and isolating is slow",
        Some("4"),
        fault_meets_migrate,
    ),
    (
        "its parent reserves a part of the memory for RM",
        Some("2"),
        reserves,
    ),
    ("a child that waits for it is killed", Some("2"), killed),
    (
        "its process' parent, which reads of the same memory, is killed",
        Some("2"),
        killed_reader,
    ),
    ("children read of it, fork and end, in loops", None, loops),
];

/// What one of two VA spaces has on its GPU, and what it then moves there. Pages of the va_block.
struct Part {
    before: Range<u64>,
    moves: Range<u64>,
}

const FEW: [Part; 2] = [
    Part {
        before: 32..48,
        moves: 0..16,
    },
    Part {
        before: 48..64,
        moves: 16..32,
    },
];

/// Each takes longer for its pages than the other one has its va_block free at first.
const HALVES: [Part; 2] = [
    Part {
        before: 0..16,
        moves: 0..256,
    },
    Part {
        before: 256..272,
        moves: 256..512,
    },
];

pub(crate) fn run(suite: &mut Suite) {
    for (way, value, _) in WAYS {
        let name = format!("isolation: a va_block migrates while {way}");
        suite.test(&name, EVICTING_ORDINARY, || goes_on(way, value));
    }
}

/// In a program of one thread, as only such a one forks. If it is stuck no signal ends it, and neither the GPU nor the module can
/// be used any more. This process tells what can be told, as the other one may wait for a lock of its own memory.
fn goes_on(way: &str, value: Option<&str>) -> Outcome {
    let _ = start_ordinary!("each waits for the other");
    if value.is_some() && SetParameter::new("nvidia_uvm", "uvm_rust_test_copy", "0")?.is_none() {
        skip!("this nvidia-uvm.ko has no parameter uvm_rust_test_copy");
    }
    let mut child = this_program()?.args(["--child-isolates", way]).spawn()?;
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            ensure!(
                status.success(),
                "the process that forks ended with {status}"
            );
            return Ok(Pass::Ok);
        }
        sleep(Duration::from_millis(50));
    }
    println!("# the processes do not end. Where the first one is in the kernel:");
    say(&stacks(child.id()));
    println!("# Who waits, of all processes:");
    say(&who_waits());
    println!("Bail out! the driver is stuck");
    std::process::exit(1);
}

/// Run by the test above.
pub(crate) fn child_isolates(way: &str) -> ExitCode {
    let way = WAYS.iter().find(|(name, ..)| *name == way);
    let outcome = way.map_or(Err("no such way".into()), |(.., does)| does());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("# {failure:?}");
            ExitCode::FAILURE
        }
    }
}

/// The driver finds pages at the place to which mremap() has moved them, and moves them to the host. RM evicts their neighbours
/// meanwhile, which the driver has not found there yet: Linux says where they are.
fn stray() -> Result<(), Failure> {
    const PAGES: u64 = BLOCK / PAGE;
    let (process, gpu) = start()?;
    let old = filled(2 * WORDS, 5)?;
    // The second half of both blocks in one root chunk, which is evicted first, and the first in another.
    for half in [PAGES / 2..PAGES, 0..PAGES / 2] {
        for block in [0, PAGES] {
            let pages = half.start + block..half.end + block;
            migrate(&process, &old, pages, gpu.uuid())?;
        }
    }
    let new = Buffer::<u64>::ordinary(2 * WORDS)?;
    new.huge_pages(false)?;
    new.take_pages_of(&old)?;
    migrate(&process, &new, 0..16, gpu.uuid())?;
    let (mut to_child, child) = ends_when_told()?;
    let set = waits("2")?;
    scope(|scope| -> Result<(), Failure> {
        // A thread cannot begin while another one moves memory of its process.
        let evicts = scope.spawn(|| {
            sleep(2 * STEP);
            rm_wants_all(&gpu)
        });
        sleep(STEP);
        let moves = scope.spawn(|| migrate(&process, &new, 0..16, Uuid::CPU));
        sleep(2 * STEP);
        to_child.write_all(&[1])?;
        sleep(STEP);
        drop(set);
        moves.joined()??;
        evicts.joined()??;
        Ok(())
    })?;
    ensure!(child.wait()?.success(), "the child");
    all_there(&new, 5)
}

/// One child faults on a page of the GPU's, so that Linux moves it for both processes.
fn read_by_child() -> Result<(), Failure> {
    let (process, gpu) = start()?;
    let buffer = filled(WORDS, 6)?;
    process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
    let (mut to_reader, mut there) = UnixStream::pair()?;
    let last = WORDS - 1;
    let reader =
        Forked::new(|| there.read_exact(&mut [0]).is_ok() && buffer.get(last) == 6 + last as u64)?;
    let (mut to_child, child) = ends_when_told()?;
    let set = waits("2")?;
    scope(|scope| -> Result<(), Failure> {
        let moves = scope.spawn(|| migrate(&process, &buffer, 0..16, Uuid::CPU));
        sleep(STEP);
        to_reader.write_all(&[1])?;
        sleep(STEP);
        to_child.write_all(&[1])?;
        sleep(STEP);
        drop(set);
        moves.joined()??;
        Ok(())
    })?;
    ensure!(
        reader.wait()?.success(),
        "the child does not see what it inherited"
    );
    ensure!(child.wait()?.success(), "the child that ends");
    all_there(&buffer, 6)
}

/// A child has a VA space of its own. Either moves a part of what both have, at the same addresses; or RM evicts what the parent
/// has on the GPU, and the child as well, to Linux.
fn two_spaces(evicts: bool, [own, theirs]: &'static [Part; 2]) -> Result<(), Failure> {
    let (process, gpu) = start()?;
    let buffer = filled(WORDS, 7)?;
    migrate(&process, &buffer, own.before.clone(), gpu.uuid())?;
    let (mut here, child) = mover(&buffer, theirs)?;
    let set = waits("3")?;
    scope(|scope| -> Result<(), Failure> {
        let moves = scope.spawn(|| -> Result<(), Failure> {
            if evicts {
                // The child has its va_block by then, and the page that is evicted may stay.
                sleep(STEP / 2);
                rm_wants_all(&gpu)?;
            } else {
                migrate(&process, &buffer, own.moves.clone(), gpu.uuid())?;
            }
            Ok(())
        });
        here.write_all(&[1])?;
        sleep(2 * STEP);
        drop(set);
        moves.joined()??;
        Ok(())
    })?;
    ensure!(child.wait()?.success(), "the child");
    if !evicts {
        all_on(&process, &buffer, own.moves.clone(), &gpu)?;
    }
    all_there(&buffer, 7)?;
    gpu_writes(&gpu, &buffer, 9)?;
    all_there(&buffer, 9)
}

/// The thread that services faults isolates pages of a process' va_block for the child, whose GPU reads its half. It has no turn to
/// wait for.
fn fault_meets_migrate() -> Result<(), Failure> {
    let (process, gpu) = start()?;
    let buffer = filled(WORDS, 7)?;
    let [own, theirs] = &HALVES;
    migrate(&process, &buffer, own.before.clone(), gpu.uuid())?;
    let (mut here, child) = child_with(&buffer, theirs.before.clone(), |_, gpu| {
        let words = words(&theirs.moves);
        let op = Op::check(&buffer)
            .range(words.start, words.len())
            .pattern(7 + words.start as u64, 1);
        gpu.launch(&Kernel::new().op(op.warps(8)))?.wait()?.ok()?;
        Ok(())
    })?;
    let _set = waits("4")?;
    here.write_all(&[1])?;
    let begin = Instant::now();
    migrate(&process, &buffer, own.moves.clone(), gpu.uuid())?;
    println!("# UVM_MIGRATE took {:?}", begin.elapsed());
    ensure!(child.wait()?.success(), "the child");
    println!("# the faults took {:?}", begin.elapsed());
    all_there(&buffer, 7)
}

/// UVM_CREATE_EXTERNAL_RANGE splits the va_block and moves what the range covers to the host, of which a child has its own va_block,
/// and is moving the rest. From 570 on, who migrates may have a GPU's chunks that are allocated ahead, and this call has none.
fn reserves() -> Result<(), Failure> {
    let (process, gpu) = start()?;
    let buffer = filled(WORDS, 7)?;
    migrate(&process, &buffer, 0..16, gpu.uuid())?;
    let (mut here, child) = moves_back(&buffer)?;
    let set = waits("2")?;
    scope(|scope| -> Result<(), Failure> {
        here.write_all(&[1])?;
        sleep(STEP);
        let reserves = scope.spawn(|| process.create_external_range(buffer.address(), 16 * PAGE));
        sleep(STEP);
        ensure!(!reserves.is_finished(), "it did not wait for its child");
        drop(set);
        reserves.joined()??;
        Ok(())
    })?;
    ensure!(child.wait()?.success(), "the child");
    all_there(&buffer, 7)
}

/// The child of [`two_spaces()`] waits for its parent's va_block, and ends when it is to.
fn killed() -> Result<(), Failure> {
    let (process, gpu) = start()?;
    let buffer = filled(WORDS, 7)?;
    migrate(&process, &buffer, 32..48, gpu.uuid())?;
    let (mut here, child) = mover(&buffer, &FEW[1])?;
    let set = waits("2")?;
    scope(|scope| -> Result<(), Failure> {
        let moves = scope.spawn(|| migrate(&process, &buffer, 32..48, Uuid::CPU));
        sleep(STEP);
        here.write_all(&[1])?;
        sleep(STEP);
        let begin = Instant::now();
        // This kills it.
        drop(child);
        let took = begin.elapsed();
        drop(set);
        ensure!(took < MOST, "its end took {took:?}");
        moves.joined()??;
        Ok(())
    })?;
    all_there(&buffer, 7)
}

/// A process faults on memory that it has on its GPU, and that its child inherited, which has its own va_block there. While it
/// waits for that one it can be killed.
fn killed_reader() -> Result<(), Failure> {
    let buffer = filled(WORDS, 7)?;
    let (mut here, mut there) = UnixStream::pair()?;
    let reader = told(|| reads_behind_child(&buffer, &mut there))?;
    here.read_exact(&mut [0])?;
    let set = waits("2")?;
    here.write_all(&[1])?;
    sleep(3 * STEP);
    let begin = Instant::now();
    drop(reader);
    let took = begin.elapsed();
    drop(set);
    ensure!(took < MOST, "its end took {took:?}");
    all_there(&buffer, 7)
}

fn reads_behind_child(buffer: &Buffer<u64>, parent: &mut UnixStream) -> Result<(), Failure> {
    let (process, gpu) = start()?;
    migrate(&process, buffer, 0..16, gpu.uuid())?;
    let (mut here, _child) = moves_back(buffer)?;
    parent.write_all(&[1])?;
    parent.read_exact(&mut [0])?;
    here.write_all(&[1])?;
    sleep(STEP);
    let seen = buffer.get(0);
    Err(format!("it read {seen} while its child had the va_block").into())
}

/// A child that has its va_block, and moves memory when it is told to.
fn mover(buffer: &Buffer<u64>, part: &'static Part) -> Result<(UnixStream, Forked), Failure> {
    child_with(buffer, part.before.clone(), |process, gpu| {
        migrate(process, buffer, part.moves.clone(), gpu.uuid())?;
        all_on(process, buffer, part.moves.clone(), gpu)?;
        all_there(buffer, 7)?;
        gpu_writes(gpu, buffer, 8)?;
        all_there(buffer, 8)
    })
}

/// A child that has a part of the memory on its GPU, and moves it to the host when it is told to.
fn moves_back(buffer: &Buffer<u64>) -> Result<(UnixStream, Forked), Failure> {
    child_with(buffer, 48..64, |process, _| {
        Ok(migrate(process, buffer, 48..64, Uuid::CPU)?)
    })
}

/// A child with a GPU of its own, to which it moves these pages. It does the rest when it is told to.
fn child_with(
    buffer: &Buffer<u64>,
    pages: Range<u64>,
    rest: impl FnOnce(&Process, &Gpu) -> Result<(), Failure>,
) -> Result<(UnixStream, Forked), Failure> {
    let (mut here, mut there) = UnixStream::pair()?;
    let child = told(|| {
        let (process, gpu) = start()?;
        migrate(&process, buffer, pages, gpu.uuid())?;
        there.write_all(&[1])?;
        there.read_exact(&mut [0])?;
        rest(&process, &gpu)
    })?;
    here.read_exact(&mut [0])?;
    Ok((here, child))
}

/// A child that does this, and says why if it fails.
fn told(does: impl FnOnce() -> Result<(), Failure>) -> std::io::Result<Forked> {
    Forked::new(|| match does() {
        Ok(()) => true,
        Err(failure) => {
            println!("# the child: {failure:?}");
            false
        }
    })
}

/// As [`read_by_child()`], without anything that has a thread wait. With the mend `forked`, what a GPU gets is no child's any
/// more, so that children are made anew; without it they and the process meet all the time.
fn loops() -> Result<(), Failure> {
    const ALL: Range<u64> = 0..BLOCK / PAGE;
    let (process, gpu) = start()?;
    let buffer = filled(WORDS, 8)?;
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < LOOPS {
        migrate(&process, &buffer, ALL, gpu.uuid())?;
        let reads = Forked::new(|| reads_for(&buffer, LOOPS / 4))?;
        let forks = Forked::new(|| forks_for(LOOPS / 4))?;
        let until = Instant::now() + LOOPS / 4;
        while Instant::now() < until {
            migrate(&process, &buffer, ALL, Uuid::CPU)?;
            migrate(&process, &buffer, ALL, gpu.uuid())?;
            rounds += 1;
        }
        ensure!(reads.wait()?.success(), "the child that reads");
        ensure!(forks.wait()?.success(), "the child that forks");
    }
    println!("# {rounds} times there and back");
    all_there(&buffer, 8)
}

fn reads_for(buffer: &Buffer<u64>, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        for word in (0..WORDS).step_by((PAGE / 8) as usize) {
            let seen = buffer.get(word);
            if seen != 8 + word as u64 {
                println!("# the child sees {seen:#x} in word {word}");
                return false;
            }
        }
    }
    true
}

fn forks_for(time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        let ended = Forked::new(|| true).and_then(Forked::wait);
        if !ended.is_ok_and(|status| status.success()) {
            return false;
        }
    }
    true
}

/// A child that ends when it is told to.
fn ends_when_told() -> Result<(UnixStream, Forked), Failure> {
    let (here, mut there) = UnixStream::pair()?;
    let child = Forked::new(move || there.read_exact(&mut [0]).is_ok())?;
    Ok((here, child))
}

fn waits(value: &str) -> Result<Option<SetParameter>, Failure> {
    SetParameter::new("nvidia_uvm", "uvm_rust_test_copy", value)
}

fn filled(len: usize, first: u64) -> Result<Buffer<u64>, Failure> {
    let buffer = Buffer::<u64>::ordinary(len)?;
    buffer.huge_pages(false)?;
    buffer.fill(|i| first + i as u64);
    Ok(buffer)
}

/// UVM_MIGRATE, again for as long as fewer pages were migrated than asked for, as Linux changed them meanwhile. The caller is told so:
/// uvm.h documents NV_WARN_MORE_PROCESSING_REQUIRED for that.
pub(crate) fn migrate(
    process: &Process,
    buffer: &Buffer<u64>,
    pages: Range<u64>,
    to: Uuid,
) -> vgpu_client::Result<()> {
    let first = buffer.address() + pages.start * PAGE;
    loop {
        match process.migrate(first, (pages.end - pages.start) * PAGE, to) {
            Err(error) if error.status() == Some(NvStatus::MORE_PROCESSING) => {}
            other => return other,
        }
    }
}

fn words(pages: &Range<u64>) -> Range<usize> {
    let of = |page: u64| (page * PAGE / 8) as usize;
    of(pages.start)..of(pages.end)
}

fn all_there(buffer: &Buffer<u64>, first: u64) -> Result<(), Failure> {
    let wrong = buffer.first_other(|i| first + i as u64);
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    Ok(())
}

fn all_on(
    process: &Process,
    buffer: &Buffer<u64>,
    pages: Range<u64>,
    gpu: &Gpu,
) -> Result<(), Failure> {
    for page in pages {
        let there = process.residency(buffer.address() + page * PAGE)?;
        ensure!(
            there.resident == [gpu.uuid()],
            "page {page} is on {:?} after UVM_MIGRATE",
            there.resident
        );
    }
    Ok(())
}
