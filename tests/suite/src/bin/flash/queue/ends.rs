// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What comes to an end while requests wait: a child, memory, the device, the process; and the system sleeps.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Joined, Killed, Outcome, Pass, Suite};
use vgpu_client::flash::{FROM_GPUS, TO_HOST};
use vgpu_client::{Process, BLOCK, PAGE};

use super::{all_well, away::FAR, by_block, reap, request, submit};
use crate::failures::{has_dmsetup, while_it_is_silent, Dm, PATIENCE};
use crate::rig::{check, no_leak, plain, write, Done, Rig};
use crate::wear::limit;
use crate::{NONE, SILENT};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("asked for later: a child", NONE, child);
    suite.test("asked for later: memory is freed", NONE, freed);
    suite.test("asked for later: the device is detached", NONE, detached);
    suite.test(
        "asked for later: the device is detached in the middle",
        NONE,
        detached_in_the_middle,
    );
    suite.test(
        "asked for later: a file is closed during a detach",
        SILENT,
        closed_meanwhile,
    );
    suite.test("asked for later: the process ends", NONE, ends);
    suite.test("asked for later: the system sleeps", NONE, sleeps);
}

/// It asks for moves of its parent's memory, and ends; its parent is told.
fn child() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(4)?;
    write(&buffer, 41);
    let requests = by_block(&buffer, 0, 0);
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let taken = rig.process.flash_submit(&requests, None);
        // SAFETY: ends this process, without what it would do to the parent's objects.
        unsafe { libc::_exit(i32::from(taken.ok() != Some(4))) };
    }
    ensure!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` is a valid place.
    unsafe { libc::waitpid(child, &mut status, 0) };
    ensure!(status == 0, "the child ended with {status:#x}");
    all_well(&reap(&rig, 4)?)?;
    let stats = rig.stats()?;
    ensure!(stats.pages == 4 * BLOCK / PAGE, "{stats:?}");
    check(&buffer, 41)?;
    Ok(Pass::Ok)
}

/// What is freed while it waits is no memory any more; what came in its place is left alone.
fn freed() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    for round in 0..3 {
        let (buffer, kept) = (rig.buffer(3)?, rig.buffer(1)?);
        write(&buffer, 43);
        write(&kept, 47);
        let mut requests = by_block(&buffer, 0, 0);
        requests.extend(by_block(&buffer, TO_HOST, 10));
        requests.push(request(&kept, 0, 20));
        submit(&rig, &requests)?;
        if round > 0 {
            rig.process.flash_reap(0, 0, 0)?;
        }
        drop(buffer);
        let done = reap(&rig, 7)?;
        for one in &done {
            let ok = one.status == 0 || one.status == -libc::ENXIO && one.user_data < 20;
            ensure!(ok, "{done:?}");
        }
        check(&kept, 47)?;
    }
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn detached() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(8)?;
    write(&buffer, 53);
    let mut requests = Vec::new();
    for round in 0..5 {
        requests.extend(by_block(&buffer, 0, round * 100));
        requests.extend(by_block(&buffer, TO_HOST, round * 100 + 50));
    }
    submit(&rig, &requests)?;
    rig.process.flash_reap(0, 0, 0)?;
    std::thread::sleep(Duration::from_millis(300));
    rig.process.flash_detach()?;
    let done = reap(&rig, requests.len())?;
    for one in &done {
        ensure!([0, -libc::ENODEV].contains(&one.status), "{one:?}");
    }
    ensure!(done.iter().any(|c| c.status != 0), "all were done before");
    ensure!(rig.stats()?.attached == 0, "still attached");
    check(&buffer, 53)?;
    submit(&rig, &by_block(&buffer, 0, 0))?;
    let done = reap(&rig, 8)?;
    ensure!(done.iter().all(|c| c.status == -libc::ENODEV), "{done:?}");
    Ok(Pass::Ok)
}

/// One part is written by then, and the next one in host memory, or on its way there.
fn detached_in_the_middle() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(FAR)?;
    rig.gpu_write(&buffer, 57)?;
    {
        // A part takes four seconds.
        let _slow = limit("4")?;
        submit(&rig, &[request(&buffer, FROM_GPUS, 0)])?;
        let stats = rig.wait_until(PATIENCE, |s| s.pages > 0)?;
        ensure!(stats.pages > 0, "nothing began: {stats:?}");
        rig.process.flash_detach()?;
        let done = reap(&rig, 1)?[0];
        ensure!(done.status == -libc::ENODEV, "{done:?}");
    }
    ensure!(rig.stats()?.attached == 0, "still attached");
    check(&buffer, 57)?;
    rig.gpu_check(&buffer, 57)?;
    Ok(Pass::Ok)
}

/// A detach waits for a device that is silent. Who closes a file with a request meanwhile waits for neither.
fn closed_meanwhile() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(2)?;
    write(&buffer, 59);
    rig.spill(&buffer)?;
    let other = Rig::unattached(Process::new()?)?;
    let theirs = other.buffer(1)?;
    write(&theirs, 61);

    let silence = dm.suspend()?;
    std::thread::scope(|scope| -> Done {
        let detach = scope.spawn(|| rig.process.flash_detach());
        while_it_is_silent(silence, || {
            // It has begun to bring back what does not come.
            std::thread::sleep(Duration::from_secs(1));
            ensure!(!detach.is_finished(), "the device is gone at once");
            submit(&other, &by_block(&theirs, TO_HOST, 0))?;
            // The worker has found that a device is being detached.
            std::thread::sleep(Duration::from_millis(300));
            let closing = std::thread::spawn(move || drop((theirs, other)));
            let start = Instant::now();
            while !closing.is_finished() && start.elapsed() < PATIENCE / 3 {
                std::thread::sleep(Duration::from_millis(20));
            }
            ensure!(closing.is_finished(), "closing waits for the detach");
            ensure!(!detach.is_finished(), "the detach was over before");
            Ok(())
        })?;
        Ok(detach.joined()??)
    })?;
    check(&buffer, 59)?;
    Ok(Pass::Ok)
}

/// A process with much to do, slowly: it is gone soon, however it ends.
fn ends() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let _slow = limit("1")?;
    for killed in [false, true] {
        let mut child = Killed::run(if killed {
            "--child-waits"
        } else {
            "--child-leaves"
        })?;
        let patience = Duration::from_secs(60);
        let stats = rig.wait_until(patience, |s| s.spilled > 0 && s.pages > 0)?;
        if killed {
            ensure!(stats.spilled > 0, "nothing began: {stats:?}");
            child.0.kill()?;
        }
        let start = Instant::now();
        let status = child.0.wait()?;
        ensure!(killed || status.success(), "{status}");
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "it ended after {:?}",
            start.elapsed()
        );
        no_leak(&rig)?;
    }
    // The tenant's workers go on.
    drop(_slow);
    let buffer = rig.buffer(1)?;
    write(&buffer, 59);
    submit(&rig, &[request(&buffer, 0, 0)])?;
    all_well(&reap(&rig, 1)?)?;
    check(&buffer, 59)?;
    Ok(Pass::Ok)
}

/// Run by the test above: asks for more than can be done, and leaves; or waits to be killed.
pub(crate) fn child_asks(leaves: bool) -> ExitCode {
    let work = || -> Done {
        let rig = Rig::unattached(Process::new()?)?;
        let (buffer, process) = (rig.buffer(FAR)?, &rig.process);
        rig.gpu_write(&buffer, 61)?;
        // It ends in the middle of this one: a part is written, and the next one on its way from the GPU.
        let mut requests = vec![request(&buffer, FROM_GPUS, 0)];
        for _ in 0..3 {
            requests.extend(by_block(&buffer, 0, 0));
            requests.extend(by_block(&buffer, TO_HOST, 0));
        }
        let taken = process.flash_submit(&requests, None)?;
        ensure!(taken == 121, "{taken} were taken");
        if leaves {
            // Something has begun.
            std::thread::sleep(Duration::from_millis(500));
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
        process.flash_reap(200, 121, u32::MAX)?;
        Ok(())
    };
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why:?}");
            ExitCode::FAILURE
        }
    }
}

/// It sleeps while requests are carried out, and wakes up to the others.
fn sleeps() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(8)?;
    write(&buffer, 67);
    let mut sleeps = 0;
    for round in 0..4 {
        let mut requests = by_block(&buffer, 0, 0);
        requests.extend(by_block(&buffer, TO_HOST, 10));
        submit(&rig, &requests)?;
        let mut done = Vec::new();
        while done.len() < requests.len() {
            let start = Instant::now();
            rig.gpu.suspend(Duration::from_millis(100))?;
            let took = start.elapsed();
            ensure!(took < Duration::from_secs(30), "a suspend took {took:?}");
            sleeps += 1;
            ensure!(sleeps < 400, "no end: {} in round {round}", done.len());
            done.extend(rig.process.flash_reap(20, 0, 0)?.0);
            std::thread::sleep(Duration::from_millis(50));
        }
        all_well(&done)?;
    }
    check(&buffer, 67)?;
    no_leak(&rig)?;
    Ok(Pass::Ok)
}
