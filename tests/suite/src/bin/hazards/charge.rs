// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is evicted is charged to the memory cgroup of its owner, which may be full. That is the
//! owner's affair, and not that of those who need the GPU's memory.

use std::io::{BufRead, BufReader, Write};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use uvm_suite::{ensure, skip, this_program, Failure, Group, Killed, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Gpu, Process, BLOCK};

use crate::migrate::holds;
use crate::{gpu_writes, spared, start, NONE, WORDS};

/// What the owner may have of host memory, beyond what it has when all of its data is on the GPU:
/// enough for all but that data.
const HEADROOM: u64 = 8 << 20;

/// What the owner writes; the others' words are smaller.
const OWNERS: u64 = 1 << 56;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "charge: who evicts does not fail by the owner's memory limit",
        NONE,
        owner_is_full,
    );
}

/// Words of a buffer of so many bytes, in whole blocks.
fn words(bytes: u64) -> usize {
    (bytes / BLOCK) as usize * WORDS
}

/// Run by the test below: fills most of the GPU, and looks at its data when it is told to. Then all
/// of that data is on the host.
pub(crate) fn child_evicted() -> ExitCode {
    let work = || -> Result<(), Failure> {
        let (process, gpu) = start()?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes() / 4 * 3))?;
        gpu_writes(&gpu, &buffer, OWNERS)?;
        println!("{}", buffer.bytes());
        std::io::stdout().flush()?;
        std::io::stdin().read_line(&mut String::new())?;
        holds(&buffer, OWNERS)
    };
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure:?}");
            ExitCode::FAILURE
        }
    }
}

/// A process, whose cgroup allows it less host memory than it has on the GPU, and two others without
/// a limit: one that needs all of the GPU, and one whose faults come between those.
fn owner_is_full() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("the unmodified driver ends the others' kernels, see docs/fixes.md");
    }
    let Some(group) = Group::new()? else {
        skip!("there are no cgroups");
    };
    let mut command = this_program()?;
    command
        .arg("--child-evicted")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut owner = Killed(group.within(|| command.spawn())??);
    let mut line = String::new();
    let said = owner.0.stdout.take().ok_or("the owner has no output")?;
    BufReader::new(said).read_line(&mut line)?;
    let on_gpu: u64 = line.trim().parse().map_err(|_| "the owner has no GPU")?;
    ensure!(on_gpu >= 2 * HEADROOM, "{on_gpu} bytes fit the limit");
    group.limit(&(group.charged()? + HEADROOM).to_string())?;

    let all = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes()))?;
    needs_all(&gpu, &all)?;
    // What the owner still has there: only then it looks.
    while gpu.evict_any()? {}
    let (full, ended) = (group.events("max")?, group.events("oom_kill")?);
    ensure!(full > 0, "the limit was never reached");
    ensure!(ended == 0, "{ended} processes of the owner's were ended");
    // Its data is on the host, and in its own group: over the limit, which is lifted before it takes more.
    let charged = group.charged()?;
    ensure!(
        charged >= on_gpu,
        "{on_gpu} bytes were evicted, and {charged} are charged"
    );
    group.limit("max")?;
    let tell = owner.0.stdin.as_mut().ok_or("the owner has no input")?;
    writeln!(tell)?;
    let status = owner.0.wait()?;
    ensure!(status.success(), "the owner ended with {status}");
    Ok(Pass::Ok)
}

/// Has the GPU write all of `all`, while a bystander's pages go there and back again, until `all` is
/// there; both have what was written.
fn needs_all(gpu: &Gpu, all: &Buffer<u64>) -> Result<(), Failure> {
    let (process, bystander) = start()?;
    let few = Buffer::<u64>::managed(&process, WORDS)?;
    let over = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let by = scope.spawn(|| goes_on(&process, &bystander, &few, &over));
        let wrote = gpu_writes(gpu, all, 1 << 40);
        over.store(true, Ordering::Relaxed);
        let rounds = by
            .join()
            .map_err(|_| Failure::from("a thread panicked"))??;
        wrote.map(|()| rounds)
    })?;
    println!("# the bystander had {rounds} turns");
    holds(&few, rounds)?;
    holds(all, 1 << 40)
}

/// Writes `few` on the GPU and takes it to the host again, until it is `over`, and once at least; how
/// often.
fn goes_on(
    process: &Process,
    gpu: &Gpu,
    few: &Buffer<u64>,
    over: &AtomicBool,
) -> Result<u64, Failure> {
    let mut rounds = 0;
    while rounds == 0 || !over.load(Ordering::Relaxed) {
        rounds += 1;
        gpu_writes(gpu, few, rounds)?;
        process.migrate(few.address(), few.bytes(), Uuid::CPU)?;
    }
    Ok(rounds)
}
