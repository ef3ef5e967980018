// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A GPU needs ordinary memory that nobody has touched, and the memory cgroup of its process is full, or nearly. Who services the faults of
//! all processes leaves it to others to make room, and takes no more than the faults want.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use uvm_suite::{ensure, skip, Allowed, Group, Joined, KernelLog, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Kernel, Op, Process, BLOCK, PAGE};

use crate::charge::{
    child, goes_on, start_with_group, told_to_go_on, words, Owner, HEADROOM, OWNERS,
};
use crate::migrate::holds;
use crate::{gpu_writes, NONE, WORDS};

/// Bytes of ordinary memory that a GPU touches first, far more than the limit.
const TOUCHED: u64 = 4 * HEADROOM;
/// Bytes of memory for reading only, which the limit has room for.
const READ: u64 = 2 * HEADROOM;
/// What Linux charges at once for each CPU, which the driver keeps clear.
const AHEAD: u64 = 64 * PAGE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "charge: who services all faults asks Linux to end nobody for ordinary memory",
        &[Allowed {
            text: "Memory cgroup out of memory: Killed process",
            times: 1,
        }],
        touched_is_full,
    );
    for (what, way, new) in [
        ("memory for reading only", "--child-reads-untouched", READ),
        ("huge pages of it", "--child-reads-huge", READ),
        ("a hole in it", "--child-reads-hole", PAGE),
    ] {
        let name = format!("charge: in a full cgroup a GPU reads zeros in {what}");
        suite.test(&name, NONE, || reads_zeros(way, new));
    }
    suite.test(
        "charge: in a full cgroup a GPU takes the pages that it writes alone",
        NONE,
        ends_alone,
    );
}

/// Blocks of which a GPU writes the first and the last page, and how much of each comes along at most: the two pages' 64 KiB, which
/// is what faults count by where the prefetcher is on.
const BLOCKS: u64 = 8;
const OF_BLOCK: u64 = 2 * (64 << 10);

/// Run by a test below: has the GPU write ordinary memory that nobody has touched, once it is told to.
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

/// What of the memory that a child reads somebody has touched.
pub(crate) enum Read {
    Nothing,
    /// Nothing, and Linux may take huge pages for it.
    NothingHuge,
    /// All but the page in the middle.
    AllButOne,
}

/// Run by a test below: has the GPU read zeros in ordinary memory that is for reading only, once it is told to.
pub(crate) fn child_reads(process: vgpu_client::Result<Process>, what: Read) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::ordinary(words(READ))?;
        buffer.huge_pages(matches!(what, Read::NothingHuge))?;
        if let Read::AllButOne = what {
            let hole = buffer.len() / 2;
            for word in (0..buffer.len()).step_by((PAGE / 8) as usize) {
                if word != hole {
                    buffer.set(word, 0);
                }
            }
        }
        buffer.protect()?;
        told_to_go_on(buffer.bytes())?;
        let check = Op::check(&buffer).pattern(0, 0).warps(8);
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
        Ok(())
    })
}

/// Run by a test below: has the GPU write the first and the last page of 2 MiB blocks that nobody has touched, once it is told to.
pub(crate) fn child_writes_ends(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::ordinary(words(BLOCKS * BLOCK))?;
        buffer.huge_pages(false)?;
        told_to_go_on(buffer.bytes())?;
        let page = (PAGE / 8) as usize;
        for block in (0..buffer.len()).step_by(WORDS) {
            let ends = [block, block + WORDS - page];
            let kernel = ends.into_iter().fold(Kernel::new(), |kernel, end| {
                kernel.op(Op::write(&buffer).range(end, page).pattern(end as u64, 1))
            });
            gpu.launch(&kernel)?.wait()?.ok()?;
            for end in ends {
                let (wrote, last) = (buffer.get(end), buffer.get(end + page - 1));
                ensure!(
                    (wrote, last) == (end as u64, (end + page - 1) as u64),
                    "at word {end} are {wrote} and {last}"
                );
            }
        }
        Ok(())
    })
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
        by.joined()?.and_then(|rounds| Ok((status?, rounds)))
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

/// A GPU reads what nobody has touched in memory for reading only, where Linux maps one page of zeros for all. The cgroup has room
/// for the `new` bytes, but not for what the driver keeps clear beside them.
fn reads_zeros(way: &str, new: u64) -> Outcome {
    let (process, _gpu, group) = start_with_group!();
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let cpus = std::thread::available_parallelism()?.get() as u64;
    takes_no_more(&group, way, new, cpus * AHEAD * 3 / 4)
}

/// The cgroup has room for the pages that a GPU writes and some more, but not for one of the blocks that these are of.
fn ends_alone() -> Outcome {
    let (process, _gpu, group) = start_with_group!();
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    takes_no_more(&group, "--child-writes-ends", BLOCKS * OF_BLOCK, BLOCK / 4)
}

/// An owner's kernels end well where the cgroup has room for its `new` bytes and for `some` more.
fn takes_no_more(group: &Group, child: &str, new: u64, some: u64) -> Outcome {
    let owner = Owner::start(group, child)?;
    let before = group.charged()?;
    group.limit(&(before + new + some).to_string())?;
    let status = owner.end()?;
    let (most, ended) = (group.most_charged()?, group.events("oom_kill")?);
    println!("# {before} bytes before, {most} at most, {new} were to come");
    ensure!(status.success(), "the owner ended with {status}");
    ensure!(ended == 0, "{ended} processes were ended");
    Ok(Pass::Ok)
}
