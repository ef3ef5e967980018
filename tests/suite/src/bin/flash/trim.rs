// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the device is told to forget: all that nobody needs, and nothing else. On an emulated NVMe over a file
//! what was forgotten reads as zeros.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::{Buffer, BLOCK};

use crate::failures::{has_dmsetup, Dm};
use crate::rig::{check, device, no_leak, plain, write, Done, Rig};
use crate::{NONE, SILENT};

/// What trimming waits for at most: a look is due in a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than somebody takes to look whether there is something to trim.
const LOOK: Duration = Duration::from_millis(2500);

pub(crate) fn run(suite: &mut Suite) {
    suite.test("what is freed is trimmed", NONE, freed);
    suite.test("detaching trims all that was written", NONE, detached);
    suite.test("a device that cannot be trimmed", SILENT, refused);
}

/// Memory that `O_DIRECT` can read into.
#[repr(align(4096))]
struct Aligned([u8; BLOCK as usize]);

/// The slots of 2 MiB that hold anything but zeros, without the first, which has the mark; around the page cache,
/// which is not told what was trimmed.
fn slots_with_data() -> Result<BTreeSet<u64>, Failure> {
    let mut options = File::options();
    let mut file = options
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(device())?;
    let mut block = Box::new(Aligned([0; BLOCK as usize]));
    let mut with_data = BTreeSet::new();
    for slot in 0.. {
        let n = file.read(&mut block.0)?;
        if n == 0 {
            break;
        }
        if slot > 0 && block.0[..n].iter().any(|byte| *byte != 0) {
            with_data.insert(slot);
        }
    }
    Ok(with_data)
}

/// Empties the device. False where that cannot be done, or cannot be seen.
fn is_emptied() -> Result<bool, Failure> {
    let discarded = Command::new("blkdiscard")
        .arg("--force")
        .arg(device())
        .status()
        .is_ok_and(|status| status.success());
    Ok(discarded && slots_with_data()?.is_empty())
}

/// While others' pages come and go, what is freed is trimmed, and nothing else is.
fn freed() -> Outcome {
    if !is_emptied()? {
        skip!("{} does not read as zeros when trimmed", device().display());
    }
    let rig = Rig::new(1 << 10)?;
    let _unlimited = SetParameter::new("nvidia_uvm", "uvm_rust_flash_move_mib", "0")?;
    let (goes, stays, moves) = (rig.buffer(12)?, rig.buffer(5)?, rig.buffer(4)?);
    let all = [&goes, &stays, &moves];
    for (buffer, value) in all.into_iter().zip([83, 89, 97]) {
        write(buffer, value);
        rig.spill(buffer)?;
    }
    let full = slots_with_data()?;
    ensure!(full.len() >= 21, "only {full:?} have data");
    drop(goes);
    let done = AtomicBool::new(false);
    let stats = std::thread::scope(|scope| -> Result<_, Failure> {
        let moving = scope.spawn(|| come_and_go(&rig, &moves, &done));
        let stats = rig.wait_until(PATIENCE, |s| s.trimmed >= 24 * BLOCK);
        done.store(true, Relaxed);
        moving.joined()??;
        stats
    })?;
    ensure!(stats.trimmed >= 24 * BLOCK, "not trimmed: {stats:?}");
    let in_use = |s: &vgpu_client::FlashStats| u64::from(s.slots - s.free_slots);
    // Those that are in use hold data, and after a while no others.
    let mut left = slots_with_data()?;
    for _ in 0..20 {
        if left.len() as u64 == in_use(&rig.stats()?) {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
        left = slots_with_data()?;
    }
    let stats = rig.stats()?;
    println!(
        "# {} of {} slots have data, {stats:?}",
        left.len(),
        stats.slots
    );
    ensure!(
        left.len() as u64 == in_use(&stats),
        "{left:?} have data: {stats:?}"
    );
    check(&stays, 89)?;
    check(&moves, 97)?;
    drop((stays, moves));
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// Moves a buffer to the device and back until that is `done`.
fn come_and_go(rig: &Rig, buffer: &Buffer<u64>, done: &AtomicBool) -> Done {
    while !done.load(Relaxed) {
        rig.fetch(buffer)?;
        check(buffer, 97)?;
        rig.spill(buffer)?;
    }
    Ok(())
}

/// What is freed right before the device goes is trimmed then, unless nobody wants that.
fn detached() -> Outcome {
    if !is_emptied()? {
        skip!("{} does not read as zeros when trimmed", device().display());
    }
    for (trim, left) in [("0", 6), ("1", 0)] {
        let _trim = SetParameter::new("nvidia_uvm", "uvm_rust_flash_trim", trim)?;
        let rig = Rig::new(1 << 10)?;
        let buffer = rig.buffer(6)?;
        write(&buffer, 101);
        rig.spill(&buffer)?;
        let full = slots_with_data()?;
        ensure!(full.len() == 6, "{full:?} have data, with trimming {trim}");
        drop(buffer);
        if trim == "0" {
            std::thread::sleep(LOOK);
            let stats = rig.stats()?;
            ensure!(stats.trimmed == 0, "trimmed against orders: {stats:?}");
        }
        drop(rig);
        let seen = slots_with_data()?;
        ensure!(
            seen.len() == left,
            "{seen:?} have data, with trimming {trim}"
        );
        ensure!(
            trim == "1" || is_emptied()?,
            "it cannot be emptied any more"
        );
    }
    Ok(Pass::Ok)
}

/// Takes discards from a device, which is gone after the test: what it allows at most is not always taken back.
fn take_discards(of: &Path) -> Done {
    let rdev = std::fs::metadata(of)?.rdev();
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    let queue = format!("/sys/dev/block/{major}:{minor}/queue");
    Ok(std::fs::write(queue + "/discard_max_bytes", "0")?)
}

/// A device that refuses is used as any other, and not asked again.
fn refused() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    take_discards(&dm.0)?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    for value in [103, 107] {
        let buffer = rig.buffer(6)?;
        write(&buffer, value);
        rig.spill(&buffer)?;
        check(&buffer, value)?;
        drop(buffer);
        no_leak(&rig)?;
        std::thread::sleep(LOOK);
    }
    let stats = rig.stats()?;
    ensure!(stats.trimmed == 0, "{stats:?}");
    drop(rig);
    Ok(Pass::Ok)
}
