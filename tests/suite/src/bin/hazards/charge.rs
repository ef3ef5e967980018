// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is evicted is charged to the memory cgroup of its owner, which may be full. That is the
//! owner's affair, and not that of those who need the GPU's memory.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use uvm_suite::{
    ensure, skip, this_program, Allowed, Failure, Group, KernelLog, Killed, Outcome, Pass, Suite,
};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Gpu, Process, BLOCK};

use crate::migrate::holds;
use crate::{gpu_writes, spared, start, NONE, WORDS};

/// What the owner may have of host memory, beyond what it has when all of its data is on the GPU:
/// enough for all but that data.
const HEADROOM: u64 = 8 << 20;

/// Bytes of ordinary memory that a GPU touches first.
const TOUCHED: u64 = 4 * HEADROOM;

/// How much of the GPU's memory the owner writes that shall not have it.
const TIMES: u64 = 4;

/// What the owner writes; the others' words are smaller.
const OWNERS: u64 = 1 << 56;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "charge: who evicts does not fail by the owner's memory limit",
        NONE,
        || owner_is_full("--child-evicted"),
    );
    suite.test(
        "charge: nor by that of who opened a VA space that several processes may share",
        NONE,
        || owner_is_full("--child-evicted-shared"),
    );
    suite.test(
        "charge: nobody waits for the owner's memory.high",
        NONE,
        owner_is_slow,
    );
    suite.test(
        "charge: nor for that of whose fault is serviced",
        NONE,
        faulting_is_slow,
    );
    suite.test(
        "charge: who services all faults asks Linux to end nobody for ordinary memory",
        &[Allowed {
            text: "Memory cgroup out of memory: Killed process",
            times: 1,
        }],
        touched_is_full,
    );
    suite.test(
        "charge: the GPU is no way around a memory limit",
        &[Allowed {
            text: "is beyond its memory cgroup's limit",
            times: 1,
        }],
        limit_is_one,
    );
    suite.test(
        "charge: nor is a VA space that several processes may share",
        NONE,
        sharers_limit_is_one,
    );
    suite.test(
        "charge: range groups that calls make without end count",
        NONE,
        range_groups_count,
    );
}

/// Words of a buffer of so many bytes, in whole blocks.
fn words(bytes: u64) -> usize {
    (bytes / BLOCK) as usize * WORDS
}

/// Run by the tests below: fills most of the GPU, and looks at its data when it is told to. Then all
/// of that data is on the host.
pub(crate) fn child_evicted(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes() / 4 * 3))?;
        gpu_writes(&gpu, &buffer, OWNERS)?;
        told_to_go_on(buffer.bytes())?;
        holds(&buffer, OWNERS)
    })
}

/// Run by a test below: has the GPU write what stays on the host, once it is told to.
pub(crate) fn child_on_host(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes()))?;
        process.set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?;
        told_to_go_on(buffer.bytes())?;
        gpu_writes(&gpu, &buffer, OWNERS)
    })
}

/// Run by tests below: has the GPU write ordinary memory that nobody has touched, once it is told to.
pub(crate) fn child_touches(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::ordinary(words(TOUCHED))?;
        buffer.huge_pages(false)?;
        told_to_go_on(buffer.bytes())?;
        gpu_writes(&gpu, &buffer, OWNERS)
    })
}

/// Run by `overflow`: has the GPU write `TIMES` what it holds, once it is told to.
pub(crate) fn child_overflows(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes() * TIMES))?;
        told_to_go_on(buffer.bytes())?;
        gpu_writes(&gpu, &buffer, OWNERS)
    })
}

fn child(work: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure:?}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the size of its buffer, and waits for a line.
fn told_to_go_on(bytes: u64) -> Result<(), Failure> {
    println!("{bytes}");
    std::io::stdout().flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A child in a cgroup, that waits for a line.
struct Owner {
    child: Killed,
    /// The bytes of its buffer.
    bytes: u64,
}

impl Owner {
    fn start(group: &Group, child: &str) -> Result<Self, Failure> {
        let mut command = this_program()?;
        command
            .arg(child)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Killed(group.within(|| command.spawn())??);
        let mut line = String::new();
        let said = child.0.stdout.take().ok_or("the owner has no output")?;
        BufReader::new(said).read_line(&mut line)?;
        let bytes = line.trim().parse().map_err(|_| "the owner has no GPU")?;
        ensure!(bytes >= 2 * HEADROOM, "{bytes} bytes fit the limit");
        Ok(Self { child, bytes })
    }

    /// Tells the owner to go on, and waits for its end.
    fn end(mut self) -> Result<ExitStatus, Failure> {
        let tell = self.child.0.stdin.as_mut().ok_or("no input")?;
        writeln!(tell)?;
        Ok(self.child.0.wait()?)
    }

    /// The same, of one that is to find its data as it was.
    fn ends_well(self) -> Result<(), Failure> {
        let status = self.end()?;
        ensure!(status.success(), "the owner ended with {status}");
        Ok(())
    }
}

/// Starts a process of the test's own, and a cgroup; ends the test where there is none.
macro_rules! start_with_group {
    () => {{
        let (process, gpu) = start()?;
        if spared(&process)? {
            skip!("the unmodified driver ends processes, see docs/fixes.md");
        }
        let Some(group) = Group::new()? else {
            skip!("there are no cgroups");
        };
        (process, gpu, group)
    }};
}

/// A process, whose cgroup allows it less host memory than it has on the GPU, and two others without
/// a limit: one that needs all of the GPU, and one whose faults come between those. What is evicted is charged to
/// the `child`'s group alone, as nobody else is in it.
fn owner_is_full(child: &str) -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let owner = Owner::start(&group, child)?;
    group.limit(&(group.charged()? + HEADROOM).to_string())?;

    evict_owner(&process, &gpu)?;
    let (full, ended) = (group.events("max")?, group.events("oom_kill")?);
    ensure!(full > 0, "the limit was never reached");
    ensure!(ended == 0, "{ended} processes of the owner's were ended");
    // Its data is on the host, and in its own group: over the limit, which is lifted before it takes more.
    let (charged, on_gpu) = (group.charged()?, owner.bytes);
    ensure!(
        charged >= on_gpu,
        "{on_gpu} bytes were evicted, and {charged} are charged"
    );
    group.limit("max")?;
    owner.ends_well()?;
    Ok(Pass::Ok)
}

/// The same with `memory.high`, of which Linux counts how often somebody had to wait for it.
fn owner_is_slow() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let owner = Owner::start(&group, "--child-evicted")?;
    let high = group.charged()? + HEADROOM;
    group.slow_from(&high.to_string())?;

    evict_owner(&process, &gpu)?;
    let (charged, waits) = (group.charged()?, group.events("high")?);
    ensure!(
        charged > high,
        "{charged} bytes are charged, and {high} are allowed"
    );
    ensure!(waits == 0, "an eviction waited {waits} times");
    group.slow_from("max")?;
    owner.ends_well()?;
    Ok(Pass::Ok)
}

/// A GPU's faults take the host's memory, above the `memory.high` of the process whose they are. Linux has its own
/// threads wait, and not the one that services all processes' faults.
fn faulting_is_slow() -> Outcome {
    let (_process, _gpu, group) = start_with_group!();
    let owner = Owner::start(&group, "--child-on-host")?;
    let high = group.charged()? + HEADROOM;
    group.slow_from(&high.to_string())?;
    let blocks = owner.bytes / BLOCK;
    owner.ends_well()?;
    let (most, waits) = (group.most_charged()?, group.events("high")?);
    println!("# {waits} waits for {blocks} va_blocks, {most} bytes at most, {high} allowed");
    ensure!(
        most > high,
        "{most} bytes were charged, and {high} are allowed"
    );
    ensure!(waits < blocks / 2, "{waits} waits for {blocks} va_blocks");
    Ok(Pass::Ok)
}

/// A GPU touches more ordinary memory than the cgroup of its process has room for. Linux ends that process, for a thread that nobody else
/// waits for: others' faults go on meanwhile.
fn touched_is_full() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let mut log = KernelLog::open()?;
    let owner = Owner::start(&group, "--child-touches")?;
    group.limit(&(group.charged()? + HEADROOM).to_string())?;
    let few = Buffer::<u64>::managed(&process, WORDS)?;
    let over = AtomicBool::new(false);
    let (status, rounds) = std::thread::scope(|scope| {
        let by = scope.spawn(|| goes_on(&process, &gpu, &few, &over));
        let status = owner.end();
        over.store(true, Ordering::Relaxed);
        by.join()
            .map_err(|_| Failure::from("a thread panicked"))?
            .and_then(|rounds| Ok((status?, rounds)))
    })?;
    let ended = group.events("oom_kill")?;
    let lines = log.lines().into_iter().map(|(_, line)| line);
    let who: Vec<_> = lines
        .filter(|line| line.contains("invoked oom-killer"))
        .collect();
    println!("# {rounds} turns of others, {ended} processes ended, by {who:?}");
    holds(&few, rounds)?;
    ensure!(status.signal() == Some(9), "the owner ended with {status}");
    ensure!(ended == 1, "{ended} processes were ended");
    ensure!(!who.is_empty(), "nobody has asked Linux for that");
    // Upstream's threads have names that begin so.
    ensure!(!who.iter().any(|line| line.starts_with("UVM")), "{who:?}");
    Ok(Pass::Ok)
}

/// A process whose own faults evict its own memory has no more of the host's, beside its limit, than a GPU holds: then
/// it is ended. Another process of its cgroup lives on, and kernels of others go on.
fn limit_is_one() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let status = overflow(&process, &gpu, &group, "--child-overflows", 1)?;
    ensure!(status.signal() == Some(9), "the owner ended with {status}");
    Ok(Pass::Ok)
}

/// One whose VA space has no mm is not ended, as others may have the VA space. Over the limit it gets no more of the GPU's
/// memory, and its kernel ends.
fn sharers_limit_is_one() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let status = overflow(&process, &gpu, &group, "--child-shares", 0)?;
    ensure!(
        status.code() == Some(1),
        "who shares its VA space ended with {status}"
    );
    Ok(Pass::Ok)
}

/// How the owner ends, a child of this program in the group: its faults evict its own memory beyond the group's limit, by `gpus`
/// times what the GPU holds, and less than once more.
fn overflow(
    process: &Process,
    gpu: &Gpu,
    group: &Group,
    owner: &str,
    gpus: u64,
) -> Result<ExitStatus, Failure> {
    let mut neighbour = Owner::start(group, "--child-evicted")?;
    let owner = Owner::start(group, owner)?;
    let limit = group.charged()? + HEADROOM;
    group.limit(&limit.to_string())?;
    let holds_at_once = gpu.info().usable_bytes();
    ensure!(owner.bytes >= TIMES * holds_at_once / 2, "too small");
    let status = owner.end()?;
    let (ended, most) = (group.events("oom_kill")?, group.most_charged()?);
    println!("# {most} bytes at most, {limit} allowed, {holds_at_once} on the GPU");
    ensure!(ended == 0, "Linux has chosen {ended} processes");
    ensure!(
        most > limit + gpus * holds_at_once,
        "it ended below the bound, at {most}"
    );
    ensure!(
        neighbour.child.0.try_wait()?.is_none(),
        "its neighbour ended, too"
    );
    // The driver's own part of the GPU's memory is more than what a test can use; pieces come in 2 MiB; and an owner
    // that is ended goes on until it looks.
    ensure!(
        most <= limit + (gpus + 1) * holds_at_once,
        "{most} bytes were charged, beyond {limit}"
    );
    let few = Buffer::<u64>::managed(process, WORDS)?;
    gpu_writes(gpu, &few, 1)?;
    holds(&few, 1)?;
    Ok(status)
}

/// How many range groups are made, which cost their process nothing but a call.
const CALLS: u32 = 40_000;

/// Range groups are charged to who makes them. Ranges and va_blocks come with pages of the process' own here, which would
/// hide whether they count: tests/seam/charge.c has these.
fn range_groups_count() -> Outcome {
    let (process, _gpu, group) = start_with_group!();
    let before = group.charged()?;
    let made =
        group.within(|| (0..CALLS).try_for_each(|_| process.create_range_group().map(drop)))?;
    made?;
    let bytes = group.charged()?.saturating_sub(before);
    println!("# {CALLS} range groups: {bytes} bytes");
    // Each has an id and two lists at least.
    ensure!(bytes >= u64::from(CALLS) * 40, "{bytes} bytes are charged");
    Ok(Pass::Ok)
}

/// Brings all that the owner has on the GPU to the host: the GPU is needed whole, and then what is left is evicted.
fn evict_owner(process: &Process, gpu: &Gpu) -> Result<(), Failure> {
    let all = Buffer::<u64>::managed(process, words(gpu.info().usable_bytes()))?;
    needs_all(gpu, &all)?;
    while gpu.evict_any()? {}
    Ok(())
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
