// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Who waits for room or for a read, and what may not come of it: that nobody goes on any more, or
//! that the driver's count of host memory is wrong.

use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Group, Joined, Killed, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Kernel, Op, Process, BLOCK};

use crate::failures::{has_dmsetup, while_it_is_silent, Dm, TwoParts, PATIENCE};
use crate::rig::{check, no_leak, plain, write, Done, Rig, WORDS};
use crate::{NONE, SILENT};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("a tenant's read waits for none of its others", SILENT, own);
    suite.test("who is killed waits for no room", SILENT, killed);
    suite.test(
        "what is kept of blocks is charged to their tenant",
        NONE,
        charged,
    );
    suite.test("a tenant whose cgroup is full is spilled", NONE, full_group);
    suite.test("a tenant that is gone holds no cgroup", NONE, gone);
    suite.test("room, and who wants the VA space's lock", NONE, writers);
}

/// One process's GPU fault waits for a read that does not end. Another read of the same tenant is
/// made meanwhile. Each of those who read may be asked, not only the one that hangs.
fn own() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    // The first slot begins at 2 MiB.
    let dm = TwoParts::new(2 * BLOCK)?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let (hangs, fine) = (rig.buffer(1)?, rig.buffer(1)?);
    write(&hangs, 97);
    write(&fine, 101);
    rig.spill(&hangs)?;
    rig.spill(&fine)?;
    // To make one takes the VA space's lock, which a read has.
    let other = rig.gpu.new_channel()?;

    let silence = dm.1.suspend()?;
    let op = Op::check(&hangs).pattern(97, 1).warps(8);
    let waiting = rig.gpu.launch(&Kernel::new().op(op))?;
    while_it_is_silent(silence, || {
        // Put off more than once, so that the read was asked for, and has begun.
        rig.wait_until(PATIENCE / 3, |s| s.parked >= 40)?;
        let op = Op::check(&fine).pattern(101, 1).warps(8);
        other.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        Ok(())
    })?;
    waiting.wait()?.ok()?;
    check(&hangs, 97)?;
    check(&fine, 101)?;
    drop((hangs, fine));
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// Whether a child has ended by itself within `time`.
pub(crate) fn ends_in(child: &mut Killed, time: Duration) -> Result<bool, Failure> {
    let start = Instant::now();
    while child.0.try_wait()?.is_none() {
        if start.elapsed() > time {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(true)
}

/// The host is full, and nothing can be written. Whoever is killed there ends.
fn killed() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 4))?;
    let silence = dm.suspend()?;
    let mut hog = Killed::run("--child-hogs")?;
    let full = rig.wait_until(PATIENCE / 3, |s| s.host_pages > 4 * 512)?;
    // A moment, for the next page, which it waits for.
    std::thread::sleep(Duration::from_millis(300));
    let waits = hog.0.try_wait()?.is_none();
    hog.0.kill()?;
    let ended = ends_in(&mut hog, PATIENCE / 3);
    silence.end()?;
    ensure!(full.host_pages > 4 * 512, "the host is not full: {full:?}");
    ensure!(waits, "it waited for nothing");
    ensure!(ended?, "it waited for room when it was killed");
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// A process that was set up in the group, by who is not in it any more. The tenant is of the group.
/// Its pages are charged to where the process is.
fn process_of(group: &Group) -> Result<Process, Failure> {
    Ok(group.within(Process::new)??)
}

/// The tenant is of the group, and who touches its pages is not: that one pays for the pages, and
/// the group for what the driver keeps of each va_block.
fn charged() -> Outcome {
    // Of each it keeps more than 128 bytes. Many, so that they are far more than what the CPUs have
    // not told of when they are asked, which is less than a page each.
    const BLOCKS: usize = 512;
    let rig = Rig::new(2 * BLOCKS as u64)?;
    let Some(group) = Group::new()? else {
        skip!("there are no cgroups");
    };
    let tenant = process_of(&group)?;
    let buffer = Buffer::<u64>::managed(&tenant, BLOCKS * WORDS)?;
    let before = group.settled_objects()?;
    (0..BLOCKS).for_each(|block| buffer.set(block * WORDS, 1));
    let after = group.settled_objects()?;
    ensure!(
        after >= before + BLOCKS as u64 * 128,
        "{before} bytes were charged, and {after} are, for {BLOCKS} blocks more"
    );
    drop((buffer, tenant));
    drop(group);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// The kernel frees a memory cgroup that was removed only when nobody refers to it, as a tenant does.
fn gone() -> Outcome {
    const TENANTS: usize = 8;
    let rig = Rig::new(64)?;
    let Some(before) = Group::dying()? else {
        skip!("there are no cgroups");
    };
    for _ in 0..TENANTS {
        let Some(group) = Group::new()? else {
            skip!("there are no cgroups any more");
        };
        let tenant = process_of(&group)?;
        let buffer = Buffer::<u64>::managed(&tenant, WORDS)?;
        write(&buffer, 107);
        drop((buffer, tenant));
        drop(group);
    }
    let start = Instant::now();
    let mut after = None;
    while start.elapsed() < PATIENCE && after.is_none_or(|n| n >= before + TENANTS / 2) {
        // What the files that were read in the cgroup have in the page cache refers to it, too.
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        std::thread::sleep(Duration::from_millis(500));
        after = Group::dying()?;
    }
    ensure!(
        after.is_some_and(|n| n < before + TENANTS / 2),
        "{after:?} removed cgroups are kept after {TENANTS} tenants, and {before} were before them"
    );
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// What the driver keeps of a va_block is charged to the tenant, and where that cannot be, to
/// nobody: a block that is not known would be neither counted nor spilled.
fn full_group() -> Outcome {
    const HOST: usize = 8;
    let rig = Rig::new(HOST as u64)?;
    let Some(group) = Group::new()? else {
        skip!("there are no cgroups");
    };
    let before = rig.stats()?.host_pages;
    let tenant = process_of(&group)?;
    let buffer = Buffer::<u64>::managed(&tenant, 3 * HOST * WORDS)?;
    group.limit("0")?;
    write(&buffer, 103);
    let stats = rig.stats()?;
    ensure!(
        stats.host_pages + stats.pages >= before + 3 * HOST as u64 * 512,
        "not all is counted: {stats:?}"
    );
    ensure!(stats.spilled > 0, "it is not spilled: {stats:?}");
    // What comes between a look and its page is over the limit by as much.
    ensure!(
        stats.host_peak <= (HOST as u64 + 4) * 512,
        "the host was not kept: {stats:?}"
    );
    // Who made those pages pays for its own again.
    let file = fs::File::open("/dev/null");
    ensure!(file.is_ok(), "charged to the tenant: {file:?}");
    check(&buffer, 103)?;
    drop((buffer, tenant));
    drop(group);
    let after = rig.stats()?.host_pages;
    ensure!(
        after == before,
        "{after} pages are counted, and {before} were"
    );
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// Run by the test below: more pages than the host may have, while another thread changes the VA
/// space all the time.
pub(crate) fn child_changes() -> ExitCode {
    let work = || -> Done {
        let process = Process::new()?;
        let buffer = Buffer::<u64>::managed(&process, 24 * WORDS)?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| -> Done {
            let changing = scope.spawn(|| -> Done {
                // Each waits for the faults, which wait for room, and spills for nobody.
                while !done.load(Ordering::Relaxed) {
                    process.create_range_group()?;
                }
                Ok(())
            });
            for n in 0..2 {
                write(&buffer, n);
                check(&buffer, n)?;
            }
            done.store(true, Ordering::Relaxed);
            changing.joined()?
        })?;
        // The other thread may have been in the way of each spill. Nobody is now, and the workers look
        // again without being asked.
        let start = Instant::now();
        while process.flash_stats()?.spilled == 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    ExitCode::from(u8::from(work().is_err()))
}

/// Faults wait for room with the VA space's lock, somebody wants it for writing, and who makes the
/// room needs it, too: none waits for ever.
fn writers() -> Outcome {
    let rig = Rig::new(8)?;
    let mut child = Killed::run("--child-changes")?;
    ensure!(
        ends_in(&mut child, 2 * PATIENCE)?,
        "they wait for each other: {:?}",
        rig.stats()?
    );
    let status = child.0.wait()?;
    ensure!(status.success(), "it ended with {status}");
    let stats = rig.stats()?;
    ensure!(stats.spilled > 0, "nothing was spilled: {stats:?}");
    no_leak(&rig)?;
    Ok(Pass::Ok)
}
