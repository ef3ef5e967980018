// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Devices that fail for a while: what they have still is read again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use uvm_suite::{ensure, skip, until_it_dies, Failure, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Kernel, Op, Outcome as Ended, BLOCK, PAGE};

use crate::failures::{has_dmsetup, Dm, PATIENCE};
use crate::rig::{check, device, no_leak, plain, write, Done, Rig};
use crate::wear::limit;
use crate::FAILING;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "what could not be read is read again later",
        FAILING,
        comes_back,
    );
    suite.test(
        "a GPU's access is fatal, and the page comes back later",
        FAILING,
        comes_back_after_gpu,
    );
    suite.test(
        "a copy engine's access is fatal, and a kernel's brings the page later",
        FAILING,
        comes_back_after_copy,
    );
    suite.test(
        "a device that fails is not detached",
        FAILING,
        stays_attached,
    );
    suite.test(
        "what is something else for a while comes back",
        FAILING,
        changed_for_a_while,
    );
    suite.test("what is wrong once is read once more", FAILING, wrong_once);
    suite.test("relocation copies no wrong bytes", FAILING, not_relocated);
}

/// Waits until the driver asks the device for pages again that it could not read.
pub(crate) fn until_read_again() {
    std::thread::sleep(Duration::from_millis(1200));
}

/// All of a buffer is on a device, which fails from now on.
fn failing() -> Result<Option<(Dm, Rig, Buffer<u64>)>, Failure> {
    if !has_dmsetup() {
        return Ok(None);
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(2)?;
    write(&buffer, 211);
    rig.spill(&buffer)?;
    dm.become_("error", "")?;
    Ok(Some((dm, rig, buffer)))
}

/// The pages that a call could not bring back.
fn comes_back() -> Outcome {
    let Some((dm, rig, buffer)) = failing()? else {
        skip!("dmsetup is not installed");
    };
    for _ in 0..2 {
        ensure!(rig.fetch(&buffer).is_err(), "it was read");
        let stats = rig.stats()?;
        ensure!(stats.lost_pages > 0 && stats.fetched == 0, "{stats:?}");
        ensure!(stats.pages == 2 * 512, "a place is given back: {stats:?}");
        until_read_again();
    }
    // It asks for few pages of those that it wants, and not again at once.
    let asked = rig.stats()?.lost_pages;
    ensure!(asked < 100, "{asked} pages were tried");
    ensure!(rig.fetch(&buffer).is_err(), "it was read");
    let before = rig.stats()?.read_errors;
    for _ in 0..100 {
        let page = rig.process.flash_move(buffer.address(), PAGE, true);
        ensure!(page.is_err(), "it was read");
    }
    let after = rig.stats()?.read_errors;
    ensure!(
        after < before + 20,
        "it was asked again: {before}, {after} errors"
    );
    dm.become_("linear", "")?;
    until_read_again();
    check(&buffer, 211)?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

fn comes_back_after_gpu() -> Outcome {
    let Some((dm, rig, buffer)) = failing()? else {
        skip!("dmsetup is not installed");
    };
    let op = Op::read(&buffer).range(0, 8).warps(1);
    let report = rig.gpu.launch(&Kernel::new().op(op))?.wait()?;
    ensure!(report.outcome == Ended::Faulted, "{report:?}");
    ensure!(rig.stats()?.lost_pages > 0, "{:?}", rig.stats()?);
    dm.become_("linear", "")?;
    until_read_again();
    check(&buffer, 211)?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// The copy has found out that its page is lost, so that no kernel has to.
fn comes_back_after_copy() -> Outcome {
    let Some((dm, rig, buffer)) = failing()? else {
        skip!("dmsetup is not installed");
    };
    if !rig.gpu.has_copies() {
        skip!("copy engines of this GPU do not fault");
    }
    let victim = rig.gpu.new_channel()?;
    victim.copy(buffer.address())?;
    until_it_dies(&victim, &rig.buffer(1)?, PATIENCE)?;
    ensure!(rig.stats()?.lost_pages > 0, "{:?}", rig.stats()?);
    dm.become_("linear", "")?;
    until_read_again();
    let op = Op::check(&buffer).pattern(211, 1).range(0, 8).warps(1);
    let kernel = rig.gpu.launch(&Kernel::new().op(op))?;
    kernel.wait_for(PATIENCE)?.ok()?;
    check(&buffer, 211)?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// A detaching that brought nothing back may be made again.
fn stays_attached() -> Outcome {
    let Some((dm, rig, buffer)) = failing()? else {
        skip!("dmsetup is not installed");
    };
    let detached = rig.process.flash_detach().err().and_then(|e| e.errno());
    ensure!(detached == Some(libc::EBUSY), "detached: {detached:?}");
    dm.become_("linear", "")?;
    // It reads again at once.
    rig.process.flash_detach()?;
    check(&buffer, 211)?;
    Ok(Pass::Ok)
}

/// A byte of each page of the device's first slots is another one, until it is set right.
struct Changed {
    file: File,
    bytes: Vec<u8>,
}

impl Changed {
    /// The place in its page.
    const AT: u64 = 77;

    fn of(slots: u64) -> Result<Self, Failure> {
        let file = OpenOptions::new().read(true).write(true).open(device())?;
        let mut bytes = vec![0; (slots * 512) as usize];
        for (byte, at) in bytes.iter_mut().zip(Self::places()) {
            file.read_exact_at(std::slice::from_mut(byte), at)?;
        }
        let changed = Self { file, bytes };
        changed.write(0xff)?;
        Ok(changed)
    }

    /// Where the bytes are: the first slot begins after 2 MiB.
    fn places() -> impl Iterator<Item = u64> {
        (0..).map(|page| BLOCK + page * PAGE + Self::AT)
    }

    fn write(&self, mask: u8) -> Done {
        for (byte, at) in self.bytes.iter().zip(Self::places()) {
            self.file.write_all_at(&[byte ^ mask], at)?;
        }
        Ok(self.file.sync_all()?)
    }

    fn set_right(self) -> Done {
        self.write(0)
    }
}

fn changed_for_a_while() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(2)?;
    write(&buffer, 223);
    rig.spill(&buffer)?;
    let changed = Changed::of(2)?;
    ensure!(
        rig.fetch(&buffer).is_err(),
        "wrong bytes were taken for right"
    );
    let stats = rig.stats()?;
    ensure!(stats.lost_pages > 0 && stats.fetched == 0, "{stats:?}");
    changed.set_right()?;
    until_read_again();
    check(&buffer, 223)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// One read in ten is changed on the way. Of a hundred pages one is wrong twice in a row.
fn wrong_once() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(2)?;
    write(&buffer, 227);
    rig.spill(&buffer)?;
    dm.become_("flakey", "0 1 2 random_read_corrupt 100000000")?;
    let lost = |page: &u64| {
        let at = buffer.address() + page * PAGE;
        rig.process.flash_move(at, PAGE, true).is_err()
    };
    let lost = (0..2 * 512).filter(lost).count() as u64;
    dm.become_("linear", "")?;
    let stats = rig.stats()?;
    ensure!(stats.read_errors > 20, "few were changed: {stats:?}");
    ensure!(
        lost * 3 < stats.read_errors,
        "{lost} pages are lost: {stats:?}"
    );
    until_read_again();
    check(&buffer, 227)?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// What is on the device stays where it is while it is read as something else.
fn not_relocated() -> Outcome {
    /// Slots of the device.
    const SLOTS: u64 = 12;
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::small((1 + SLOTS) * BLOCK)?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let fresh = rig.buffer(1)?;
    write(&fresh, 229);
    let old = rig.buffer(SLOTS as usize)?;
    write(&old, 233);
    let unlimited = limit("0")?;
    rig.spill(&old)?;
    // A quarter of each slot stays, so that relocation has something to gain.
    for block in 0..SLOTS {
        let from = old.address() + block * BLOCK;
        rig.process.flash_move(from, BLOCK / 4 * 3, true)?;
    }
    let changed = Changed::of(SLOTS)?;
    rig.spill(&fresh)?;
    let stats = rig.stats()?;
    changed.set_right()?;
    ensure!(
        stats.read_errors > 0 && stats.refused > 0,
        "it was not tried: {stats:?}"
    );
    ensure!(stats.relocated == 0, "wrong bytes were copied: {stats:?}");
    rig.spill(&fresh)?;
    let stats = rig.stats()?;
    ensure!(stats.relocated > 0, "it does not recover: {stats:?}");
    drop(unlimited);
    check(&fresh, 229)?;
    check(&old, 233)?;
    drop((fresh, old));
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}
