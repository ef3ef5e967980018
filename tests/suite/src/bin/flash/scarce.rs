// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Fetches while the driver gets no memory for itself, and while others have all that reads are made with.

use std::sync::{mpsc, Barrier};

use uvm_suite::modules::{parameter, SetParameter};
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::PAGE;

use crate::failures::{has_dmsetup, while_it_is_silent, Dm, PATIENCE};
use crate::rig::{check, no_leak, plain, write, Done, Rig, WORDS};
use crate::{NONE, SILENT};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("a CPU's fetch needs no memory", NONE, cpu);
    suite.test("a GPU's fetch needs no memory", NONE, gpu);
    suite.test("more faults than there are buffers", SILENT, line);
}

/// Until this is dropped, the driver's buffers and tables get no memory.
fn starve() -> Result<SetParameter, Failure> {
    let set = SetParameter::new("nvidia_uvm", "uvm_rust_test_starve", "1")?;
    set.ok_or_else(|| "there is no parameter uvm_rust_test_starve".into())
}

/// Runs `fetch` while there is no memory. A page could be written by call meanwhile, which fails. A CPU's fault that
/// fails for want of memory is tried for ever, so there is some again after a while.
fn without_memory(rig: &Rig, fetch: impl FnOnce() -> Done) -> Done {
    let other = rig.buffer(1)?;
    write(&other, 1);
    let starving = starve()?;
    let (over, ends) = mpsc::channel();
    let watch = std::thread::spawn(move || {
        let in_time = ends.recv_timeout(PATIENCE).is_ok();
        drop(starving);
        in_time
    });
    let refused = rig.process.flash_move(other.address(), PAGE, false);
    let fetched = fetch();
    let _ = over.send(());
    let in_time = watch.joined()?;
    ensure!(in_time, "it came only when there was memory");
    let errno = refused.err().and_then(|error| error.errno());
    ensure!(
        errno == Some(libc::ENOMEM),
        "there was memory: a write by call came to {errno:?}"
    );
    fetched
}

fn cpu() -> Outcome {
    let rig = Rig::new(64)?;
    let buffer = rig.buffer(4)?;
    write(&buffer, 61);
    rig.spill(&buffer)?;
    let before = rig.stats()?;
    ensure!(before.pages == 4 * 512, "not all is on flash: {before:?}");
    without_memory(&rig, || check(&buffer, 61))?;
    let after = rig.stats()?;
    let fetched = after.fetched - before.fetched;
    ensure!(fetched == buffer.bytes(), "{fetched} bytes were fetched");
    ensure!(after.read_errors == 0, "reads failed: {after:?}");
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn gpu() -> Outcome {
    let rig = Rig::new(64)?;
    let buffer = rig.buffer(4)?;
    // What a GPU's first faults make the driver remember is there.
    rig.gpu_write(&buffer, 67)?;
    check(&buffer, 67)?;
    // In pieces: one page of 16 stays.
    for piece in 0..buffer.bytes() / (16 * PAGE) {
        let at = buffer.address() + piece * 16 * PAGE;
        rig.process.flash_move(at, 15 * PAGE, false)?;
    }
    let before = rig.stats()?;
    ensure!(before.pages == 4 * 480, "not all is on flash: {before:?}");
    without_memory(&rig, || rig.gpu_check(&buffer, 67))?;
    let after = rig.stats()?;
    ensure!(after.read_errors == 0, "reads failed: {after:?}");
    ensure!(after.pages == 0, "not all has come: {after:?}");
    check(&buffer, 67)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// Each thread's fault waits for a read of its own, while the device answers nothing; those for which there is no buffer
/// wait for one.
fn line() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let sets = parameter("nvidia_uvm", "uvm_rust_flash_sets");
    let sets: usize = sets.and_then(|sets| sets.parse().ok()).unwrap_or(0);
    ensure!(sets > 0, "there is no parameter uvm_rust_flash_sets");
    let threads = sets + 16;
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(threads)?;
    for block in 0..threads {
        buffer.set(block * WORDS, 71 + block as u64);
        let at = buffer.address() + (block * WORDS * 8) as u64;
        rig.process.flash_move(at, PAGE, false)?;
    }
    let before = rig.stats()?;
    ensure!(before.pages == threads as u64, "not all is on flash");
    let (start, silence) = (Barrier::new(threads + 1), dm.suspend()?);
    std::thread::scope(|scope| -> Done {
        let readers: Vec<_> = (0..threads)
            .map(|block| {
                let (buffer, start) = (&buffer, &start);
                scope.spawn(move || {
                    start.wait();
                    buffer.get(block * WORDS)
                })
            })
            .collect();
        while_it_is_silent(silence, || {
            start.wait();
            std::thread::sleep(std::time::Duration::from_secs(2));
            let fetched = rig.stats()?.fetched;
            ensure!(fetched == before.fetched, "the device answered");
            Ok(())
        })?;
        for (block, reader) in readers.into_iter().enumerate() {
            let seen = reader.joined()?;
            ensure!(seen == 71 + block as u64, "block {block} is {seen:#x}");
        }
        Ok(())
    })?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}
