// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What `UVM_RUST_FLASH_MOVE` writes: how much a tenant may, in how many threads, what counts,
//! and that nobody who waits is in the way of a suspend.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Barrier;
use std::time::Duration;

use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, this_program, Failure, Joined, Killed, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Process, BLOCK};

use crate::failures::{has_dmsetup, Dm};
use crate::rig::{check, no_leak, plain, write, Done, Rig, WORDS};
use crate::tenants::NOBODY;
use crate::{FAILING, NONE, SILENT};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("moving by call is throttled", NONE, throttled);
    suite.test("moving in several threads is, together", NONE, together);
    suite.test("moving does not keep the system awake", NONE, suspended);
    suite.test(
        "a long move does not keep the system awake",
        NONE,
        long_move,
    );
    suite.test("writes that fail wear as well", FAILING, failed);
    suite.test("relocation for a move wears as well", SILENT, relocated);
    suite.test("who goes and comes again still pays", NONE, comes_again);
}

/// What a tenant may write in a second, in MiB, until this is dropped; 0 is no limit.
pub(crate) fn limit(mib: &str) -> Result<SetParameter, Failure> {
    let set = SetParameter::new("nvidia_uvm", "uvm_rust_flash_move_mib", mib)?;
    set.ok_or_else(|| "there is no parameter uvm_rust_flash_move_mib".into())
}

/// Waits until this user has paid for what tests before this one wrote: debts outlive who made them.
fn no_debts() -> Done {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(1)?;
    write(&buffer, 1);
    let slow = slowly()?;
    rig.process
        .flash_move(buffer.address(), vgpu_client::PAGE, false)?;
    drop(slow);
    rig.fetch(&buffer)?;
    // A second's worth may be written in advance.
    std::thread::sleep(Duration::from_millis(1500));
    Ok(())
}

fn throttled() -> Outcome {
    no_debts()?;
    let rig = Rig::new(1 << 10)?;
    let buffers = [rig.buffer(4)?, rig.buffer(4)?];
    for buffer in &buffers {
        write(buffer, 13);
    }
    let spill_both = || -> Result<u64, Failure> {
        let before = rig.stats()?.throttled;
        for buffer in &buffers {
            rig.spill(buffer)?;
        }
        let after = rig.stats()?;
        ensure!(after.pages == 8 * 512, "not all is on flash: {after:?}");
        Ok(after.throttled - before)
    };
    let unlimited = limit("0")?;
    ensure!(spill_both()? == 0, "throttled without a limit");
    drop(unlimited);
    for buffer in &buffers {
        rig.fetch(buffer)?;
    }
    // Eight MiB take eight seconds, of which one may be had in advance: the second call waits
    // unless six have passed by then.
    let slow = limit("1")?;
    let seen = spill_both()?;
    drop(slow);
    ensure!(seen == 1, "throttled {seen} times, not once");
    for buffer in &buffers {
        check(buffer, 13)?;
    }
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// What a tenant may write in a second: so little that whoever has written a block waits.
fn slowly() -> Result<SetParameter, Failure> {
    limit("1")
}

/// Waits until somebody was throttled.
fn until_throttled(rig: &Rig) -> Result<vgpu_client::FlashStats, Failure> {
    rig.wait_until(Duration::from_secs(60), |s| s.throttled > 0)
}

fn spill(process: &Process, buffer: &Buffer<u64>) -> Result<(), vgpu_client::Error> {
    process.flash_move(buffer.address(), buffer.bytes(), false)
}

/// Four threads, of two processes: while the first has written and pays, no other one writes. All
/// are there before the first call, which holds the lock of the address space that a new thread wants.
fn together() -> Outcome {
    no_debts()?;
    let rig = Rig::new(1 << 10)?;
    let other = Process::new()?;
    let processes = [&rig.process, &rig.process, &other, &other];
    let mut buffers = Vec::new();
    for process in processes {
        buffers.push(Buffer::<u64>::managed(process, 6 * WORDS)?);
    }
    for buffer in &buffers {
        write(buffer, 67);
    }
    // Twelve MiB are eleven seconds.
    let slow = slowly()?;
    let all = &Barrier::new(processes.len());
    std::thread::scope(|scope| -> Done {
        let threads: Vec<_> = processes
            .iter()
            .zip(&buffers)
            .map(|(process, buffer)| {
                scope.spawn(move || {
                    all.wait();
                    spill(process, buffer)
                })
            })
            .collect();
        let first = until_throttled(&rig);
        drop(slow);
        for thread in threads {
            thread.joined()??;
        }
        let first = first?;
        ensure!(first.throttled > 0, "nobody waited: {first:?}");
        ensure!(first.written == 6 * BLOCK, "more than one wrote: {first:?}");
        Ok(())
    })?;
    ensure!(
        rig.stats()?.pages == 24 * 512,
        "not all is on flash: {:?}",
        rig.stats()?
    );
    for buffer in &buffers {
        check(buffer, 67)?;
    }
    drop(buffers);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// A call that waits is ended when the system is to sleep, and made again afterwards (by the
/// client, as UVM's other calls).
fn suspended() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffers = [rig.buffer(8)?, rig.buffer(4)?];
    for buffer in &buffers {
        write(buffer, 71);
    }
    let slow = slowly()?;
    // Sixteen seconds, in one part.
    spill(&rig.process, &buffers[0])?;
    std::thread::scope(|scope| -> Done {
        let moving = scope.spawn(|| spill(&rig.process, &buffers[1]));
        let before = until_throttled(&rig);
        let slept = rig.gpu.suspend(Duration::from_millis(100));
        let after = rig.stats();
        drop(slow);
        moving.joined()??;
        slept?;
        let (before, after) = (before?, after?);
        ensure!(before.throttled > 0, "nobody waited: {before:?}");
        ensure!(
            after.pages == 8 * 512,
            "it slept when more had been moved: {after:?}"
        );
        Ok(())
    })?;
    ensure!(
        rig.stats()?.pages == 12 * 512,
        "not all is on flash: {:?}",
        rig.stats()?
    );
    for buffer in &buffers {
        check(buffer, 71)?;
    }
    drop(buffers);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// A call that moves much and waits for nothing ends, too, and goes on where it was.
fn long_move() -> Outcome {
    /// Several parts of 16 MiB.
    const BLOCKS: usize = 56;
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(BLOCKS)?;
    write(&buffer, 89);
    let unlimited = limit("0")?;
    spill(&rig.process, &buffer)?;
    drop(unlimited);
    let all = rig.stats()?.pages;
    ensure!(all == BLOCKS as u64 * 512, "only {all} pages are on flash");
    std::thread::scope(|scope| -> Done {
        let moving = scope.spawn(|| rig.fetch(&buffer));
        while rig.stats()?.fetched == 0 && !moving.is_finished() {
            std::thread::yield_now();
        }
        let slept = rig.gpu.suspend(Duration::from_millis(100));
        let after = rig.stats();
        moving.joined()??;
        slept?;
        let after = after?;
        ensure!(after.pages > 0, "it slept when all was moved: {after:?}");
        Ok(())
    })?;
    let stats = rig.stats()?;
    ensure!(stats.pages == 0, "not all came back: {stats:?}");
    check(&buffer, 89)?;
    Ok(Pass::Ok)
}

/// Another user, all of whose VA spaces have gone, is the same tenant when it comes again, with the same debt.
fn comes_again() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let _slow = slowly()?;
    // Sixteen seconds, in one part.
    if !spilled_by_nobody(16)? {
        skip!("other users cannot open /dev/nvidia-uvm");
    }
    let before = rig.stats()?.throttled;
    spilled_by_nobody(2)?;
    let waited = rig.stats()?.throttled - before;
    ensure!(waited == 1, "it waited {waited} times, not once");
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// Another user's process spills so many MiB, and is killed. False if that user may not open UVM.
fn spilled_by_nobody(mib: u64) -> Result<bool, Failure> {
    let mut command = this_program()?;
    command.args(["--child-spills", "--mib", &mib.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Killed(command.uid(NOBODY).spawn()?);
    let output = child.0.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.is_empty() && child.0.wait()?.code() == Some(4) {
        return Ok(false);
    }
    ensure!(line.trim() == (mib * 256).to_string(), "it said: {line}");
    child.0.kill()?;
    child.0.wait()?;
    Ok(true)
}

/// What the device has not taken is paid for, too.
fn failed() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(6)?;
    write(&buffer, 73);
    dm.become_("flakey", "0 1 1 error_writes")?;
    let slow = slowly()?;
    spill(&rig.process, &buffer)?;
    let stats = rig.stats()?;
    ensure!(
        stats.spilled == 0 && stats.throttled == 0,
        "it was written, or waited for: {stats:?}"
    );
    pays(&rig, &buffer, slow)?;
    dm.become_("linear", "")?;
    check(&buffer, 73)?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// The next call waits, for what the last one wrote.
fn pays(rig: &Rig, buffer: &Buffer<u64>, slow: SetParameter) -> Done {
    std::thread::scope(|scope| -> Done {
        let moving = scope.spawn(|| spill(&rig.process, buffer));
        let seen = until_throttled(rig);
        drop(slow);
        moving.joined()??;
        let seen = seen?;
        ensure!(seen.throttled > 0, "it was for nothing: {seen:?}");
        Ok(())
    })
}

/// What a call finds no room for, and copies others' pages about to make some, it pays for.
fn relocated() -> Outcome {
    /// Slots of the device.
    const SLOTS: usize = 12;
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::small((1 + SLOTS as u64) * BLOCK)?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let fresh = rig.buffer(1)?;
    write(&fresh, 79);
    let old = rig.buffer(SLOTS)?;
    write(&old, 83);
    let unlimited = limit("0")?;
    spill(&rig.process, &old)?;
    let stats = rig.stats()?;
    let blocks = stats.pages / 512;
    // A quarter of each slot stays.
    for block in 0..SLOTS as u64 {
        let from = old.address() + block * BLOCK;
        rig.process.flash_move(from, BLOCK / 4 * 3, true)?;
    }
    drop(unlimited);
    let slow = slowly()?;
    spill(&rig.process, &fresh)?;
    let stats = rig.stats()?;
    ensure!(
        stats.relocated >= 2 << 20 && stats.pages == blocks * 128,
        "of {blocks} blocks not all was copied, or more was written: {stats:?}"
    );
    pays(&rig, &fresh, slow)?;
    check(&fresh, 79)?;
    check(&old, 83)?;
    drop((fresh, old));
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}
