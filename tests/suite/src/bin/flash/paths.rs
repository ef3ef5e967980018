// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The ways of a page to flash and back.

use std::fs::File;
use std::io::Read;

use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Discard, Flash, BLOCK, PAGE};

use crate::failures::{has_dmsetup, Dm};
use crate::rig::{check, device, no_leak, write, Rig};
use crate::{NONE, SILENT};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("to flash by call, back by a CPU's fault", NONE, cpu_fault);
    suite.test("to flash by call, back by call", NONE, by_call);
    suite.test("to flash by call, back by a GPU's fault", NONE, gpu_fault);
    suite.test("to flash by call, back by UVM_MIGRATE", NONE, migrate);
    suite.test("part of a block", NONE, part);
    suite.test("a page that a pipe holds stays", NONE, held_by_a_pipe);
    suite.test("freed on flash", NONE, freed);
    suite.test("discarded on flash", NONE, discarded);
    suite.test("detaching brings all back", NONE, detach);
    suite.test("above the watermark", NONE, watermark);
    suite.test("host memory of what is on a GPU is freed", NONE, unused);
    suite.test("a share of the device's time", NONE, share);
    suite.test("GPU, host and device oversubscribed", NONE, oversubscribed);
    suite.test("a quota", NONE, quota);
    suite.test("a full device", SILENT, full);
}

/// Host memory enough that nothing is spilled but by call.
const AMPLE: u64 = 1 << 10;

fn cpu_fault() -> Outcome {
    let rig = Rig::new(AMPLE)?;
    let buffer = rig.buffer(4)?;
    write(&buffer, 7);
    rig.spill(&buffer)?;
    let stats = rig.stats()?;
    ensure!(stats.pages == 4 * 512, "not all is on flash: {stats:?}");
    ensure!(stats.extents == 4, "not one extent a block: {stats:?}");
    ensure!(stats.host_pages == 0, "host memory stays: {stats:?}");
    check(&buffer, 7)?;
    let stats = rig.stats()?;
    ensure!(stats.fetched == buffer.bytes(), "{stats:?}");
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn by_call() -> Outcome {
    let rig = Rig::new(AMPLE)?;
    let buffer = rig.buffer(4)?;
    write(&buffer, 9);
    for _ in 0..3 {
        rig.spill(&buffer)?;
        ensure!(rig.stats()?.pages == 4 * 512, "not all is on flash");
        rig.fetch(&buffer)?;
        no_leak(&rig)?;
    }
    check(&buffer, 9)?;
    Ok(Pass::Ok)
}

fn gpu_fault() -> Outcome {
    let rig = Rig::new(AMPLE)?;
    let buffer = rig.buffer(4)?;
    write(&buffer, 11);
    rig.spill(&buffer)?;
    rig.gpu_check(&buffer, 11)?;
    no_leak(&rig)?;
    rig.gpu_write(&buffer, 12)?;
    rig.process
        .migrate(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    rig.spill(&buffer)?;
    ensure!(rig.stats()?.pages == 4 * 512, "not all is on flash");
    check(&buffer, 12)?;
    Ok(Pass::Ok)
}

fn migrate() -> Outcome {
    let rig = Rig::new(AMPLE)?;
    let buffer = rig.buffer(4)?;
    for to in [rig.gpu.uuid(), Uuid::CPU] {
        write(&buffer, 13);
        rig.spill(&buffer)?;
        rig.process.migrate(buffer.address(), buffer.bytes(), to)?;
        no_leak(&rig)?;
        check(&buffer, 13)?;
    }
    Ok(Pass::Ok)
}

/// Every third page is fetched and spilled again: extents are cut, and nothing is lost.
fn part() -> Outcome {
    let rig = Rig::new(AMPLE)?;
    let buffer = rig.buffer(2)?;
    write(&buffer, 17);
    rig.spill(&buffer)?;
    for page in (0..1024).step_by(3) {
        let at = buffer.address() + page * PAGE;
        rig.process.flash_move(at, PAGE, true)?;
    }
    let stats = rig.stats()?;
    ensure!(stats.pages == 1024 - 342, "{stats:?}");
    rig.spill(&buffer)?;
    ensure!(rig.stats()?.pages == 1024, "{:?}", rig.stats()?);
    check(&buffer, 17)?;
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// A pipe that has been given a page by reference shows what the program writes to the page later.
/// Direct I/O and RDMA work likewise. So the page must not be replaced by another one meanwhile.
fn held_by_a_pipe() -> Outcome {
    for discard in [false, true] {
        let rig = Rig::new(AMPLE)?;
        let buffer = rig.buffer(2)?;
        write(&buffer, 41);
        let [reader, _writer] = buffer.hold_page(0)?;
        if discard {
            let how = Discard::Eager;
            rig.process.discard(buffer.address(), BLOCK, how)?;
        }
        rig.spill(&buffer)?;
        let stats = rig.stats()?;
        ensure!(stats.host_pages > 0, "nothing stayed: {stats:?}");
        ensure!(stats.pages >= 512, "the next block stayed, too: {stats:?}");
        write(&buffer, 43);
        let mut seen = [0; 8];
        File::from(reader).read_exact(&mut seen)?;
        let seen = u64::from_ne_bytes(seen);
        ensure!(
            seen == 43,
            "discard {discard}: the pipe has an older page, with {seen}"
        );
        // Nobody holds it now.
        rig.spill(&buffer)?;
        ensure!(rig.stats()?.pages == 1024, "{:?}", rig.stats()?);
        check(&buffer, 43)?;
        no_leak(&rig)?;
    }
    Ok(Pass::Ok)
}

fn freed() -> Outcome {
    let rig = Rig::new(AMPLE)?;
    let buffer = rig.buffer(4)?;
    write(&buffer, 19);
    rig.spill(&buffer)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn discarded() -> Outcome {
    let rig = Rig::new(AMPLE)?;
    for how in [Discard::Eager, Discard::Lazy] {
        let buffer = rig.buffer(2)?;
        write(&buffer, 23);
        rig.spill(&buffer)?;
        rig.process.discard(buffer.address(), buffer.bytes(), how)?;
        no_leak(&rig)?;
        let other = buffer.first_other(|_| 0);
        ensure!(other.is_none(), "{how:?}: not zeros: {other:?}");
        // Discarded in host memory, it is dropped there without a write.
        write(&buffer, 29);
        rig.process.discard(buffer.address(), buffer.bytes(), how)?;
        let before = rig.stats()?;
        rig.spill(&buffer)?;
        let after = rig.stats()?;
        ensure!(
            after.written == before.written,
            "{how:?}: written: {after:?}"
        );
    }
    Ok(Pass::Ok)
}

fn detach() -> Outcome {
    let rig = Rig::new(AMPLE)?;
    let buffer = rig.buffer(8)?;
    write(&buffer, 31);
    rig.spill(&buffer)?;
    rig.process.flash_detach()?;
    check(&buffer, 31)?;
    Ok(Pass::Ok)
}

/// The CPU writes four times what the host may hold.
fn watermark() -> Outcome {
    let limit = 8;
    let rig = Rig::new(limit)?;
    let buffer = rig.buffer(4 * limit as usize)?;
    write(&buffer, 37);
    check(&buffer, 37)?;
    let stats = rig.stats()?;
    ensure!(stats.spilled > 0 && stats.fetched > 0, "{stats:?}");
    // A thread that waits has allocated a block at most.
    let most = (limit + 2) * 512;
    ensure!(stats.host_peak <= most, "over the watermark: {stats:?}");
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// What the host keeps for pages that have gone to a GPU leaves before any page is written.
fn unused() -> Outcome {
    let rig = Rig::new(8)?;
    let (first, second) = (rig.buffer(6)?, rig.buffer(6)?);
    write(&first, 43);
    rig.process
        .migrate(first.address(), first.bytes(), rig.gpu.uuid())?;
    write(&second, 53);
    let stats = rig.stats()?;
    ensure!(stats.host_peak <= 10 * 512, "over the watermark: {stats:?}");
    ensure!(stats.written == 0, "written needlessly: {stats:?}");
    rig.gpu_check(&first, 43)?;
    check(&second, 53)?;
    Ok(Pass::Ok)
}

/// With a fiftieth of the time to write in, the workers rest 49 times as long as they write.
fn share() -> Outcome {
    struct Share;
    impl Share {
        const FILE: &'static str = "/sys/module/nvidia_uvm/parameters/uvm_rust_flash_share";
    }
    impl Drop for Share {
        fn drop(&mut self) {
            let _ = std::fs::write(Self::FILE, "100");
        }
    }
    let limit = 8;
    let rested = |percent| -> Result<u64, Failure> {
        let _restored = Share;
        std::fs::write(Share::FILE, percent)?;
        let rig = Rig::new(limit)?;
        let buffer = rig.buffer(4 * limit as usize)?;
        write(&buffer, 59);
        check(&buffer, 59)?;
        let stats = rig.stats()?;
        ensure!(stats.spilled > 0, "nothing was spilled: {stats:?}");
        Ok(stats.rested_us)
    };
    let (all, little) = (rested("100")?, rested("2")?);
    println!("# rested {all} us with all of it, {little} us with 2 %");
    ensure!(all == 0, "rested {all} us without being told to");
    // A block takes more than 50 us to encrypt and write, and at least 24 are written.
    ensure!(little > 24 * 49 * 50, "rested {little} us only");
    Ok(Pass::Ok)
}

/// A program of four times the GPU's memory and twice the host's.
fn oversubscribed() -> Outcome {
    let vidmem: usize = std::env::var("VIDMEM_MB")
        .ok()
        .and_then(|mb| mb.parse().ok())
        .unwrap_or(64);
    let blocks = 4 * vidmem / 2;
    let rig = Rig::new(blocks as u64 / 2)?;
    let buffer = rig.buffer(blocks)?;
    rig.gpu_write(&buffer, 41)?;
    rig.gpu_check(&buffer, 41)?;
    let stats = rig.stats()?;
    ensure!(stats.spilled > 0 && stats.fetched > 0, "{stats:?}");
    println!("# {stats:?}");
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn quota() -> Outcome {
    let rig = Rig::with(Flash {
        path: device(),
        host_bytes: AMPLE * BLOCK,
        quota_bytes: 3 * BLOCK,
        flags: vgpu_client::flash::FORCE,
    })?;
    let buffer = rig.buffer(8)?;
    write(&buffer, 47);
    rig.spill(&buffer)?;
    let stats = rig.stats()?;
    ensure!(stats.pages_mine == 3 * 512, "{stats:?}");
    ensure!(stats.refused == 5, "{stats:?}");
    check(&buffer, 47)?;
    Ok(Pass::Ok)
}

/// What does not fit stays in host memory.
fn full() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let slots = 12;
    let dm = Dm::small((slots + 1) * BLOCK)?;
    let rig = Rig::with(Flash {
        path: &dm.0,
        host_bytes: AMPLE * BLOCK,
        quota_bytes: 0,
        flags: vgpu_client::flash::FORCE,
    })?;
    ensure!(u64::from(rig.stats()?.slots) == slots, "{:?}", rig.stats()?);
    let buffer = rig.buffer(slots as usize + 4)?;
    write(&buffer, 83);
    rig.spill(&buffer)?;
    let stats = rig.stats()?;
    ensure!(stats.refused > 0 && stats.free_slots <= 1, "{stats:?}");
    check(&buffer, 83)?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}
