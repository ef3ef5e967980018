// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! UVM's tools: events that one process wants to hear of neither hurt others nor tell of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::FlushEvents;
use vgpu_client::{Buffer, Event, EventQueue, Gpu, Kernel, Op, Process, BLOCK};

use crate::{gpu_writes, start, still_works, NONE, WORDS};

/// Time for others to come to where they wait, on a machine that is busy.
const WHILE: Duration = Duration::from_millis(500);

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "events: a GPU goes while another process hands out its events",
        NONE,
        gpu_goes,
    );
    suite.test(
        "events: replays of another process' faults are not told",
        NONE,
        others_replays,
    );
    suite.test(
        "events: nor as the GPU comes again and counts from the beginning",
        NONE,
        gpu_comes_again,
    );
    suite.test(
        "events: others' faults wait for few queues",
        NONE,
        few_queues,
    );
    suite.test(
        "events: little has yet to be handed out where there are many queues",
        NONE,
        little_waits,
    );
}

fn flushes(while_it_is: &str) -> Result<Option<SetParameter>, Failure> {
    SetParameter::new("nvidia_uvm", "uvm_rust_test_flush", while_it_is)
}

/// A process without a GPU hands out events, among which is one of a channel of the GPU's; meanwhile the GPU's last process
/// unregisters it.
fn gpu_goes() -> Outcome {
    if flushes("0")?.is_none() {
        skip!("this nvidia-uvm.ko has no parameter uvm_rust_test_flush");
    }
    let other = Process::new()?;
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    let queue = EventQueue::new(&process, 1 << 12)?;
    gpu_writes(&gpu, &buffer, 1)?;
    let waits = flushes("1")?;
    thread::scope(|scope| {
        let flush = scope.spawn(|| other.call(&mut FlushEvents::default()));
        thread::sleep(WHILE);
        ensure!(!flush.is_finished(), "no event was left to be handed out");
        let goes = scope.spawn(|| gpu.unregister());
        thread::sleep(WHILE);
        drop(waits);
        flush.joined()??;
        goes.joined()??;
        Ok::<_, Failure>(())
    })?;
    drop((queue, buffer, process));
    let (process, gpu) = start()?;
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// What the queue's process hears of, once nothing of the GPU's is under way.
fn heard(queue: &EventQueue, gpu: &Gpu) -> Result<Vec<Event>, Failure> {
    gpu.drain_faults()?;
    Ok(queue.take(gpu.uuid())?)
}

fn replays(events: &[Event]) -> usize {
    events.iter().filter(|e| **e == Event::Replay).count()
}

/// Batches of faults among what a process hears of.
fn batches(events: &[Event]) -> usize {
    let mut batches: Vec<u32> = (events.iter())
        .filter_map(|event| match event {
            Event::GpuFault { batch, .. } => Some(*batch),
            _ => None,
        })
        .collect();
    batches.sort_unstable();
    batches.dedup();
    batches.len()
}

/// Both have the GPU, and it is the same.
fn others_replays() -> Outcome {
    let (process, gpu) = start()?;
    let queue = EventQueue::new(&process, 1 << 12)?;
    let other = Process::new()?;
    let others_gpu = other.gpu(0)?;
    for round in 0..4 {
        let theirs = Buffer::<u64>::managed(&other, 2 * WORDS)?;
        gpu_writes(&others_gpu, &theirs, round)?;
        let events = heard(&queue, &gpu)?;
        ensure!(
            events.is_empty(),
            "round {round}: who had no fault hears of {events:?}"
        );
        let mine = Buffer::<u64>::managed(&process, 2 * WORDS)?;
        gpu_writes(&gpu, &mine, round)?;
        let events = heard(&queue, &gpu)?;
        let (faults, replays) = (batches(&events), replays(&events));
        ensure!(
            faults > 0 && replays >= faults,
            "round {round}: {replays} replays of {faults} batches of its own"
        );
    }
    Ok(Pass::Ok)
}

/// A GPU that nobody has any more goes. Then its batches have the numbers once more that they had for those who had it before.
fn gpu_comes_again() -> Outcome {
    let (process, gpu) = start()?;
    let queue = EventQueue::new(&process, 1 << 12)?;
    for round in 0..4 {
        let mine = Buffer::<u64>::managed(&process, WORDS)?;
        gpu_writes(&gpu, &mine, round)?;
    }
    heard(&queue, &gpu)?;
    gpu.unregister()?;
    let other = Process::new()?;
    let others_gpu = other.gpu(0)?;
    let gpu = process.gpu(0)?;
    for round in 0..16 {
        let theirs = Buffer::<u64>::managed(&other, WORDS)?;
        gpu_writes(&others_gpu, &theirs, round)?;
        let events = heard(&queue, &gpu)?;
        ensure!(
            events.is_empty(),
            "round {round}: who had no fault since hears of {events:?}"
        );
    }
    Ok(Pass::Ok)
}

/// As many queues as are tried, and more than anybody needs.
const QUEUES: usize = 400;

/// Queues of a process, until it gets no more.
fn queues_of(process: &Process) -> Vec<EventQueue> {
    let made = (0..QUEUES).map(|_| EventQueue::new(process, 2));
    made.map_while(Result::ok).collect()
}

/// How long a kernel takes that faults on every page of a block; the median of several.
fn faults_take(process: &Process, gpu: &Gpu) -> Result<Duration, Failure> {
    let mut took = Vec::new();
    for round in 0..5 {
        let buffer = Buffer::<u64>::managed(process, WORDS)?;
        buffer.fill(|_| 0);
        let begin = Instant::now();
        gpu_writes(gpu, &buffer, round)?;
        took.push(begin.elapsed());
    }
    took.sort();
    Ok(took[took.len() / 2])
}

/// A process whose faults are told to all its queues, and another that faults meanwhile.
fn few_queues() -> Outcome {
    let (process, gpu) = start()?;
    let other = Process::new()?;
    let others_gpu = other.gpu(0)?;
    let ends = AtomicBool::new(false);
    let beside = |queues: usize| {
        thread::scope(|scope| {
            let faulting = scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let buffer = Buffer::<u64>::managed(&process, 4 * WORDS)?;
                    buffer.fill(|_| 0);
                    gpu_writes(&gpu, &buffer, 0)?;
                }
                Ok::<_, Failure>(())
            });
            let took = faults_take(&other, &others_gpu);
            ends.store(true, Ordering::Relaxed);
            faulting.joined()??;
            ends.store(false, Ordering::Relaxed);
            let took = took?;
            println!("# beside a process with {queues} queues another's kernel takes {took:?}");
            Ok::<_, Failure>(())
        })
    };
    beside(0)?;
    let mut queues = queues_of(&process);
    beside(queues.len())?;
    ensure!(queues.len() < QUEUES, "a process gets {QUEUES} queues");
    ensure!(queues.len() >= 16, "only {} queues", queues.len());
    // What is given back can be had again, and each VA space has its own.
    drop(queues.pop());
    queues.push(EventQueue::new(&process, 2)?);
    drop(EventQueue::new(&other, 2)?);
    Ok(Pass::Ok)
}

/// Blocks that a kernel uses: more than may wait to be handed out to as many queues as a process may have.
const BLOCKS: usize = 96;

/// A kernel's migrations are handed out when somebody asks for them. Until then they are kept, but not without end.
fn little_waits() -> Outcome {
    let (process, gpu) = start()?;
    let mut queues = queues_of(&process);
    queues.pop();
    let queue = EventQueue::new(&process, 1 << 16)?;
    let buffer = Buffer::<u64>::managed(&process, BLOCKS * WORDS)?;
    for block in 0..BLOCKS {
        buffer.set(block * WORDS, 1);
    }
    let one_each = Op::atomic_add(&buffer).every(BLOCK).pattern(1, 0);
    gpu.launch(&Kernel::new().op(one_each))?.wait()?.ok()?;
    ensure!(
        heard(&queue, &gpu).is_err(),
        "nothing is lost to {} queues",
        queues.len()
    );
    // What waits has been handed out, and there is room again.
    drop(queue);
    let queue = EventQueue::new(&process, 1 << 12)?;
    let small = Buffer::<u64>::managed(&process, WORDS)?;
    small.fill(|_| 0);
    gpu_writes(&gpu, &small, 1)?;
    let events = heard(&queue, &gpu)?;
    let moved = |e: &Event| matches!(e, Event::Migration { .. });
    ensure!(events.iter().any(moved), "no migration is told: {events:?}");
    Ok(Pass::Ok)
}
