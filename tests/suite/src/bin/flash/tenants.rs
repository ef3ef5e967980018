// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Several tenants on one device, each a user in a memory cgroup: what each may have, and that none waits for another.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};

use uvm_suite::uvmtop::{self, Metrics};
use uvm_suite::{ensure, skip, this_program, Failure, Killed, Outcome, Pass, Suite};
use vgpu_client::{flash, Buffer, Flash, Kernel, Op, Process, BLOCK, PAGE};

use crate::failures::{has_dmsetup, while_it_is_silent, Dm, TwoParts, PATIENCE};
use crate::rig::{check, device, no_leak, plain, write, Done, Rig, WORDS};
use crate::{NONE, SILENT};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("more descriptors are not more quota", NONE, descriptors);
    suite.test("a descriptor that a child inherits", NONE, inherited);
    suite.test("more processes are not more quota", NONE, children);
    suite.test("who has less than its share is not spilled", NONE, fair);
    suite.test(
        "nobody is spilled because others cannot be",
        NONE,
        fair_at_quota,
    );
    suite.test(
        "others are spilled if who has most cannot be",
        NONE,
        most_at_quota,
    );
    suite.test(
        "other processes' counters are not for everybody",
        NONE,
        counters,
    );
    suite.test("nobody waits for another's page", SILENT, reads_apart);
    suite.test("nobody waits for another's reads", SILENT, queues_apart);
    suite.test("nobody waits for another's room", SILENT, room_apart);
    suite.test("a GPU's first touch waits for room", SILENT, first_touch);
    suite.test(
        "what needs no host memory waits for none",
        SILENT,
        needs_no_room,
    );
}

/// A quota of so many blocks.
fn limited(blocks: u64) -> Flash<'static> {
    Flash {
        path: device(),
        host_bytes: 1 << 31,
        quota_bytes: blocks * BLOCK,
        flags: flash::FORCE,
    }
}

fn descriptors() -> Outcome {
    let rig = Rig::with(limited(3))?;
    let mine = rig.buffer(2)?;
    write(&mine, 7);
    rig.spill(&mine)?;
    let other = Process::new()?;
    let theirs = Buffer::<u64>::managed(&other, 4 * WORDS)?;
    write(&theirs, 8);
    other.flash_move(theirs.address(), theirs.bytes(), false)?;
    for process in [&rig.process, &other] {
        let stats = process.flash_stats()?;
        ensure!(stats.pages_mine == 3 * 512, "not one quota: {stats:?}");
        ensure!(stats.pages == 3 * 512, "not one quota: {stats:?}");
        same_in_fdinfo(process)?;
    }
    // Each has its own part, where the tenant has all.
    let parts = [(&rig.process, 2), (&other, 1)];
    for (process, blocks) in parts {
        let told = process.told("nvidia-uvm-ssd")?;
        ensure!(
            told == Some(blocks * BLOCK),
            "{told:?} bytes are told of {blocks} blocks"
        );
    }
    uvmtop_tells(&rig, 3 * BLOCK, 3 * BLOCK)?;
    check(&mine, 7)?;
    // What has come back and was not written to is on the device too, and counts for the tenant alone.
    uvmtop_tells(&rig, BLOCK, rig.stats()?.pages_mine * PAGE)?;
    check(&theirs, 8)?;
    Ok(Pass::Ok)
}

/// What uvmtop tells of this process's memory on the device, and of its tenant's, as JSON and to Prometheus.
fn uvmtop_tells(rig: &Rig, own: u64, tenant: u64) -> Done {
    let sample = uvmtop::sample()?;
    let mine = uvmtop::own(&sample)?;
    let all = rig.stats()?.pages * PAGE;
    let metrics = Metrics::get()?;
    let pid = std::process::id().to_string();
    for (shown, name, of_process, told) in [
        (&mine["bytes_ssd"], "uvm_rust_process_ssd_bytes", true, own),
        (
            &mine["bytes_ssd_tenant"],
            "uvm_rust_process_tenant_ssd_bytes",
            true,
            tenant,
        ),
        (
            &sample["ssd"]["all"]["bytes_used"],
            "uvm_rust_ssd_used_bytes",
            false,
            all,
        ),
    ] {
        let labels = [("pid", &*pid)];
        let labels = if of_process { &labels[..] } else { &[] };
        let value = metrics.value(name, labels)?;
        ensure!(
            shown.as_u64() == Some(told) && value == Some(told),
            "{name}: {shown} as JSON, {value:?} to Prometheus, and it is {told}"
        );
    }
    Ok(())
}

/// What a child spills through it counts to who has initialized it.
fn inherited() -> Outcome {
    let rig = Rig::with(limited(3))?;
    let buffer = rig.buffer(4)?;
    write(&buffer, 9);
    // SAFETY: the child makes two system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let moved = rig
            .process
            .flash_move(buffer.address(), buffer.bytes(), false);
        // SAFETY: ends this process, without what it would do to the parent's objects.
        unsafe { libc::_exit(i32::from(moved.is_err())) };
    }
    ensure!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` is a valid place.
    unsafe { libc::waitpid(child, &mut status, 0) };
    ensure!(status == 0, "the child ended with {status:#x}");
    let stats = rig.stats()?;
    ensure!(stats.pages_mine == 3 * 512, "counted to another: {stats:?}");
    check(&buffer, 9)?;
    Ok(Pass::Ok)
}

/// In a descriptor's fdinfo stands what its own tenant has, as in the statistics.
fn same_in_fdinfo(process: &Process) -> Done {
    let told = process.told("nvidia-uvm-tenant-ssd")?;
    let pages = process.flash_stats()?.pages_mine;
    ensure!(
        told == Some(pages * 4096),
        "{told:?} bytes, and {pages} pages"
    );
    Ok(())
}

/// The user nobody: another tenant than whoever runs the tests.
pub(crate) const NOBODY: u32 = 65534;

/// Run by the test below: spills so many MiB, says so, and keeps them until its input ends.
pub(crate) fn child_spills(mib: u64) -> ExitCode {
    let Ok(process) = Process::new() else {
        return ExitCode::from(4);
    };
    let work = || -> Done {
        let blocks = (mib << 20) / BLOCK;
        let buffer = Buffer::<u64>::managed(&process, blocks as usize * WORDS)?;
        write(&buffer, 41);
        process.flash_move(buffer.address(), buffer.bytes(), false)?;
        same_in_fdinfo(&process)?;
        println!("{}", process.flash_stats()?.pages_mine);
        std::io::stdin().read_line(&mut String::new())?;
        check(&buffer, 41)
    };
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:?}");
            ExitCode::from(3)
        }
    }
}

/// What another process has on the device that spills four blocks, as this user or as nobody;
/// and what is there then. `None` if nobody may not open UVM.
fn spilled_by_child(rig: &Rig, user: Option<u32>) -> Result<Option<(u64, u64)>, Failure> {
    let mut command = this_program()?;
    command.args(["--child-spills", "--mib", "8"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user);
    }
    let mut child = Killed(command.spawn()?);
    let output = child.0.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let there = rig.stats()?.pages;
    same_in_fdinfo(&rig.process)?;
    drop(child.0.stdin.take());
    let status = child.0.wait()?;
    if status.code() == Some(4) {
        return Ok(None);
    }
    ensure!(status.success(), "the child ended with {status}: {line}");
    let theirs = line
        .trim()
        .parse()
        .map_err(|_| format!("it said: {line}"))?;
    Ok(Some((theirs, there)))
}

/// A child with a descriptor of its own has no quota of its own; another user has.
fn children() -> Outcome {
    let rig = Rig::with(limited(3))?;
    let mine = rig.buffer(2)?;
    write(&mine, 43);
    rig.spill(&mine)?;
    let seen = spilled_by_child(&rig, None)?;
    ensure!(
        seen == Some((3 * 512, 3 * 512)),
        "not one quota: the child and all have {seen:?} pages"
    );
    let Some(seen) = spilled_by_child(&rig, Some(NOBODY))? else {
        skip!("other users cannot open /dev/nvidia-uvm")
    };
    ensure!(
        seen == (3 * 512, 5 * 512),
        "not two quotas: the other user and all have {seen:?} pages"
    );
    check(&mine, 43)?;
    Ok(Pass::Ok)
}

/// Host memory of 16 blocks.
const HOST: u64 = 16;

/// Run by tests below: uses more of host memory than there is, again and again, and says so.
pub(crate) fn child_hogs() -> ExitCode {
    let work = || -> Done {
        let process = Process::new()?;
        let buffer = Buffer::<u64>::managed(&process, 3 * HOST as usize * WORDS)?;
        for n in 0..2 {
            write(&buffer, n);
            check(&buffer, n)?;
        }
        let stats = process.flash_stats()?;
        ensure!(stats.pages_mine > 0, "nothing was spilled: {stats:?}");
        Ok(())
    };
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:?}");
            ExitCode::from(3)
        }
    }
}

/// What was in host memory first, and is little, stays there while another process fills it.
fn fair() -> Outcome {
    let rig = Rig::new(HOST)?;
    let mine = rig.buffer(4)?;
    write(&mine, 11);
    let output = this_program()?.arg("--child-hogs").uid(NOBODY).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let stats = rig.stats()?;
    ensure!(stats.spilled > 0, "nothing was spilled: {stats:?}");
    ensure!(stats.pages_mine == 0, "it was spilled: {stats:?}");
    check(&mine, 11)?;
    Ok(Pass::Ok)
}

/// Another tenant has too much, and nothing of that can be spilled, as it has its quota.
fn fair_at_quota() -> Outcome {
    let rig = Rig::with(Flash {
        host_bytes: 8 * BLOCK,
        ..limited(1)
    })?;
    let mine = rig.buffer(1)?;
    write(&mine, 61);
    let hog = of_nobody()?;
    let theirs = Buffer::<u64>::managed(&hog, 24 * WORDS)?;
    for n in 0..2 {
        write(&theirs, n);
        check(&theirs, n)?;
    }
    let stats = rig.stats()?;
    ensure!(
        stats.spilled > 0 && stats.refused > 0,
        "nothing was written, or refused: {stats:?}"
    );
    ensure!(stats.pages_mine == 0, "it was spilled: {stats:?}");
    check(&mine, 61)?;
    Ok(Pass::Ok)
}

/// Of two tenants that have their share, the one that has most can have no more on the device: the
/// other one is spilled, and it is not looked at the first one's blocks again and again.
fn most_at_quota() -> Outcome {
    let rig = Rig::with(Flash {
        host_bytes: 8 * BLOCK,
        ..limited(1)
    })?;
    let hog = of_nobody()?;
    let theirs = Buffer::<u64>::managed(&hog, 8 * WORDS)?;
    write(&theirs, 107);
    let mine = rig.buffer(5)?;
    write(&mine, 109);
    let stats = rig.wait_until(PATIENCE, |s| s.pages_mine > 0)?;
    ensure!(
        hog.flash_stats()?.pages_mine == 512 && stats.refused > 0,
        "it does not have its quota: {stats:?}"
    );
    ensure!(stats.pages_mine == 512, "it was not spilled: {stats:?}");
    check(&theirs, 107)?;
    check(&mine, 109)?;
    Ok(Pass::Ok)
}

/// Run by the test below, as another user.
pub(crate) fn child_counts() -> ExitCode {
    let Ok(process) = Process::new() else {
        return ExitCode::from(4);
    };
    let Ok(s) = process.flash_stats() else {
        return ExitCode::from(3);
    };
    println!("{s:?}");
    let known = s.attached == 1 && s.slots > 0;
    let others = [
        u64::from(s.free_slots),
        u64::from(s.extents),
        s.pages,
        s.pages_mine,
        s.host_pages,
        s.host_peak,
        s.written,
        s.spilled,
        s.fetched,
        s.relocated,
        s.dropped,
        s.write_errors,
        s.read_errors,
        s.lost_pages,
        s.refused,
        s.unwritten,
        s.parked,
        s.throttled,
        s.rested_us,
        s.fault_waits_most,
        s.trimmed,
    ];
    ExitCode::from(u8::from(!known || others.iter().any(|n| *n != 0)))
}

fn counters() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(2)?;
    write(&buffer, 17);
    rig.spill(&buffer)?;
    let stats = rig.stats()?;
    ensure!(stats.written > 0, "root sees nothing: {stats:?}");
    let child = this_program()?.arg("--child-counts").uid(NOBODY).output();
    let output = match child {
        Ok(output) if output.status.code() == Some(4) => {
            skip!("other users cannot open /dev/nvidia-uvm")
        }
        Ok(output) => output,
        Err(error) => skip!("cannot run as another user: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(Pass::Ok)
}

/// One process's GPU fault waits for a read that does not end; another's is served meanwhile.
fn reads_apart() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(2)?;
    write(&buffer, 19);
    rig.spill(&buffer)?;
    let other = Rig::unattached(Process::new()?)?;
    let theirs = other.buffer(2)?;
    write(&theirs, 23);

    let silence = dm.suspend()?;
    let op = Op::check(&buffer).pattern(19, 1).warps(8);
    let waiting = rig.gpu.launch(&Kernel::new().op(op))?;
    while_it_is_silent(silence, || {
        rig.wait_until(PATIENCE / 3, |s| s.parked > 0)?;
        other.gpu_sees(&theirs, 23)
    })?;
    waiting.wait()?.ok()?;
    let stats = rig.stats()?;
    ensure!(stats.parked > 0, "no fault was put off: {stats:?}");
    check(&buffer, 19)?;
    check(&theirs, 23)?;
    drop((buffer, theirs));
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// A process of nobody's, who is another tenant than this one. UVM asks for the real user: all that
/// root may stays allowed.
pub(crate) fn of_nobody() -> Result<Process, Failure> {
    let real = |user: u32| -> Done {
        // SAFETY: changes the credentials of this thread; that of the C library would change all.
        let changed = unsafe { libc::syscall(libc::SYS_setreuid, user, -1) };
        ensure!(
            changed == 0,
            "setreuid: {}",
            std::io::Error::last_os_error()
        );
        Ok(())
    };
    // SAFETY: has no conditions.
    let before = unsafe { libc::getuid() };
    real(NOBODY)?;
    let process = Process::new();
    real(before)?;
    Ok(process?)
}

/// Many reads of one tenant's do not end, in two processes of which the second begins when the
/// first one's are under way; another tenant's one is made meanwhile.
fn queues_apart() -> Outcome {
    /// Blocks of one tenant that are read at a time; the second process has more than all that are.
    const AT_A_TIME: usize = 8;
    const MORE: usize = 16;
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    // The first slot, which begins at 2 MiB, gets a page of each block: what a block asks for is
    // all that it ever asks for, and nobody looks again for its sake.
    let dm = TwoParts::new(2 * BLOCK)?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let second = Rig::unattached(Process::new()?)?;
    let (first, more) = (rig.buffer(AT_A_TIME)?, second.buffer(MORE)?);
    for (of, buffer, value) in [(&rig, &first, 47), (&second, &more, 59)] {
        write(buffer, value);
        for page in (0..buffer.bytes()).step_by(BLOCK as usize) {
            let page = buffer.address() + page;
            of.process.flash_move(page, PAGE, false)?;
        }
    }
    let other = Rig::unattached(of_nobody()?)?;
    let theirs = other.buffer(1)?;
    write(&theirs, 53);
    other.spill(&theirs)?;
    let stats = rig.stats()?;
    ensure!(stats.pages == 24 + 512, "not all is on flash: {stats:?}");

    let silence = dm.1.suspend()?;
    let a_word_each = |buffer: &Buffer<u64>, value| {
        let op = Op::check(buffer).every(BLOCK).pattern(value, WORDS as u64);
        let warps = buffer.bytes() / BLOCK;
        Kernel::new().op(op.warps(warps as u32).lanes(1))
    };
    let waiting = rig.gpu.launch(&a_word_each(&first, 47))?;
    let mut more_waiting = None;
    while_it_is_silent(silence, || {
        // Each has been put off several times by then, so that all have asked.
        let asked = |at_least| rig.wait_until(PATIENCE / 4, move |s| s.parked >= at_least);
        let parked = asked(8 * AT_A_TIME as u64)?.parked;
        more_waiting = Some(second.gpu.launch(&a_word_each(&more, 59))?);
        asked(parked + 8 * (AT_A_TIME + MORE) as u64)?;
        // One page: what is put off comes back with each replay, and a busy host has much to do.
        let one = Op::check(&theirs).range(0, 1).pattern(53, 1).lanes(1);
        other.gpu.launch(&Kernel::new().op(one))?.wait()?.ok()?;
        Ok(())
    })?;
    waiting.wait()?.ok()?;
    more_waiting.ok_or("not launched")?.wait()?.ok()?;
    other.gpu_check(&theirs, 53)?;
    check(&first, 47)?;
    check(&more, 59)?;
    check(&theirs, 53)?;
    drop((first, more, theirs, second, other));
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// Run by the test below: as another tenant, takes 24 blocks of host memory as fast as it gets them,
/// so that each of the workers has one to write before there is nothing left to look at.
pub(crate) fn child_fills() -> ExitCode {
    let work = || -> Done {
        let hog = of_nobody()?;
        let buffer = Buffer::<u64>::managed(&hog, 24 * WORDS)?;
        (0..24).for_each(|block| buffer.set(block * WORDS, 1));
        Ok(())
    };
    ExitCode::from(u8::from(work().is_err()))
}

/// The host is full and nothing can be written: who has less than its share of it goes on.
fn room_apart() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 8))?;
    let mine = rig.buffer(1)?;
    let silence = dm.suspend()?;
    let mut hog = Killed::run("--child-fills")?;
    while_it_is_silent(silence, || {
        rig.wait_until(PATIENCE / 3, |s| s.host_pages > 8 * 512)?;
        write(&mine, 29);
        rig.gpu_check(&mine, 29)?;
        let stats = rig.stats()?;
        // Or nobody waited, and this showed nothing.
        ensure!(
            (8 * 512 + 1..=11 * 512).contains(&stats.host_pages),
            "the host is not full, or the other one does not wait: {stats:?}"
        );
        Ok(())
    })?;
    hog.0.kill()?;
    hog.0.wait()?;
    check(&mine, 29)?;
    drop(mine);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// Writes to one block after the other, until so many pages of host memory are in use; upstream
/// makes them for a block at a time. Returns in how many blocks: so many are begun before spills
/// begin that each of the workers has one to write, and none looks in vain.
fn use_host_pages(rig: &Rig, buffer: &Buffer<u64>, pages: u64) -> Result<usize, Failure> {
    let mut blocks = 0;
    while rig.stats()?.host_pages < pages {
        ensure!(
            blocks < buffer.len() / WORDS,
            "{blocks} blocks are not enough"
        );
        buffer.set(blocks * WORDS, blocks as u64);
        blocks += 1;
    }
    Ok(blocks)
}

/// The GPU touches blocks that do not exist yet, for which others leave it, while the host is
/// full: the host may not hold more and more.
fn first_touch() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 4))?;
    let (host, dense) = (rig.buffer(4)?, rig.buffer(12)?);
    rig.gpu_write(&dense, 31)?;
    let fresh = rig.buffer(40)?;
    // Spills begin at seven eighths of the limit, and would keep up with the rest.
    use_host_pages(&rig, &host, 3 * 512)?;
    let silence = dm.suspend()?;
    use_host_pages(&rig, &host, 4 * 512)?;
    let op = Op::write(&fresh).every(BLOCK).pattern(37, 1).lanes(1);
    let waiting = rig.gpu.launch(&Kernel::new().op(op))?;
    // Evictions move whole blocks of `dense`: one is over the limit by as much as it has.
    let most = (4 + 3) * 512;
    let full = rig.wait_until(PATIENCE / 3, |s| s.parked >= 16 || s.host_pages > most)?;
    drop(silence);
    waiting.wait()?.ok()?;
    ensure!(full.host_pages <= most, "it did not wait: {full:?}");
    ensure!(full.parked > 0, "no fault was put off: {full:?}");
    check(&dense, 31)?;
    for block in 0..40 {
        let seen = fresh.get(block * WORDS);
        ensure!(seen == 37 + block as u64, "block {block} is {seen}");
    }
    drop((host, dense, fresh));
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// The host is full, by this process, and nothing can be written: what is there already can be
/// used, and goes to a GPU that has room.
fn needs_no_room() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 8))?;
    let buffer = rig.buffer(12)?;
    let silence = dm.suspend()?;
    while_it_is_silent(silence, || {
        let blocks = use_host_pages(&rig, &buffer, 8 * 512 + 1)?;
        for block in 0..blocks {
            let seen = buffer.get(block * WORDS);
            ensure!(
                seen == block as u64,
                "the CPU reads {seen} in block {block}"
            );
        }
        let op = Op::check(&buffer)
            .range(0, blocks * WORDS)
            .every(BLOCK)
            .pattern(0, 1);
        rig.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        let stats = rig.stats()?;
        ensure!(stats.spilled == 0, "something was written: {stats:?}");
        Ok(())
    })?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}
