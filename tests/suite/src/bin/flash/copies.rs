// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Read-mostly memory: what is fetched stays on the device as well, and leaves host memory
//! without a write until somebody may have written to it.

use uvm_suite::{ensure, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Discard, Flash, Kernel, Op, BLOCK, PAGE};

use crate::rig::{check, device, no_leak, plain, write, Done, Rig, WORDS};
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test("read by a CPU, it is not written again", NONE, cpu_reads);
    suite.test("read by a GPU, it is not written again", NONE, gpu_reads);
    suite.test("migrated, it is not written again", NONE, migrated);
    suite.test("written by a CPU, it is", NONE, cpu_writes);
    suite.test("written by a GPU, it is", NONE, gpu_writes);
    suite.test("discarded, it is not on the device", NONE, discarded);
    suite.test("no longer read-mostly", NONE, no_longer);
    suite.test("copies make room", NONE, make_room);
    suite.test("a split needs no extent of the limit", NONE, split);
    suite.test("detaching gives copies up", NONE, detach);
}

const BLOCKS: usize = 2;
const BYTES: u64 = BLOCKS as u64 * BLOCK;

fn read_mostly(rig: &Rig, buffer: &Buffer<u64>, on: bool) -> Done {
    let process = &rig.process;
    Ok(process.read_duplication(buffer.address(), buffer.bytes(), on)?)
}

/// A rig with a buffer of read-mostly memory that is on the device.
fn spilled(value: u64) -> Result<(Rig, Buffer<u64>), uvm_suite::Failure> {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(BLOCKS)?;
    write(&buffer, value);
    read_mostly(&rig, &buffer, true)?;
    rig.spill(&buffer)?;
    ensure!(rig.stats()?.pages == BYTES / PAGE, "{:?}", rig.stats()?);
    Ok((rig, buffer))
}

/// Evicts until nothing is left on the GPU.
fn evict_all(rig: &Rig) -> Done {
    for _ in 0..1000 {
        if !rig.gpu.evict_any()? {
            return Ok(());
        }
    }
    Err("a GPU has more to evict than it has memory".into())
}

/// Spills the buffer; returns what was written for it, and what left without.
fn spill(rig: &Rig, buffer: &Buffer<u64>) -> Result<(u64, u64), uvm_suite::Failure> {
    evict_all(rig)?;
    let before = rig.stats()?;
    rig.spill(buffer)?;
    let after = rig.stats()?;
    ensure!(
        after.host_pages == 0,
        "not all has left the host: {after:?}"
    );
    Ok((
        after.written - before.written,
        after.unwritten - before.unwritten,
    ))
}

fn cpu_reads() -> Outcome {
    let (rig, buffer) = spilled(101)?;
    for _ in 0..3 {
        check(&buffer, 101)?;
        ensure!(rig.stats()?.pages == BYTES / PAGE, "no copies are kept");
        let moved = spill(&rig, &buffer)?;
        ensure!(moved == (0, BYTES), "{moved:?}");
    }
    check(&buffer, 101)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn gpu_reads() -> Outcome {
    let (rig, buffer) = spilled(103)?;
    for _ in 0..3 {
        rig.gpu_check(&buffer, 103)?;
        check(&buffer, 103)?;
        let moved = spill(&rig, &buffer)?;
        ensure!(moved == (0, BYTES), "{moved:?}");
    }
    rig.gpu_check(&buffer, 103)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn migrated() -> Outcome {
    let (rig, buffer) = spilled(107)?;
    for to in [Uuid::CPU, rig.gpu.uuid(), Uuid::CPU] {
        rig.process.migrate(buffer.address(), buffer.bytes(), to)?;
        let moved = spill(&rig, &buffer)?;
        ensure!(moved == (0, BYTES), "{moved:?}");
    }
    check(&buffer, 107)?;
    Ok(Pass::Ok)
}

/// One page of a block that was read is written to, and then another, not read before.
fn cpu_writes() -> Outcome {
    let (rig, buffer) = spilled(109)?;
    check(&buffer, 109)?;
    buffer.set(0, 1);
    let moved = spill(&rig, &buffer)?;
    ensure!(moved == (PAGE, BYTES - PAGE), "{moved:?}");
    buffer.set(WORDS, 2);
    ensure!(
        buffer.get(0) == 1 && buffer.get(1) == 110,
        "what was written is gone"
    );
    spill(&rig, &buffer)?;
    let other = buffer.first_other(|i| match i {
        0 => 1,
        WORDS => 2,
        i => 109 + i as u64,
    });
    ensure!(other.is_none(), "{other:?}");
    Ok(Pass::Ok)
}

fn gpu_writes() -> Outcome {
    let (rig, buffer) = spilled(113)?;
    rig.gpu_check(&buffer, 113)?;
    let op = Op::write(&buffer)
        .range(WORDS, WORDS)
        .pattern(5, 1)
        .warps(8);
    rig.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
    rig.gpu.drain_faults()?;
    let moved = spill(&rig, &buffer)?;
    ensure!(moved == (BLOCK, BYTES - BLOCK), "{moved:?}");
    let other = buffer.first_other(|i| match i / WORDS {
        1 => 5 + (i - WORDS) as u64,
        _ => 113 + i as u64,
    });
    ensure!(other.is_none(), "{other:?}");
    // What was migrated to the GPU is not fetched but mapped; it is written all the same.
    rig.process
        .migrate(buffer.address(), buffer.bytes(), rig.gpu.uuid())?;
    rig.gpu_write(&buffer, 127)?;
    let moved = spill(&rig, &buffer)?;
    ensure!(moved == (BYTES, 0), "{moved:?}");
    check(&buffer, 127)?;
    Ok(Pass::Ok)
}

fn discarded() -> Outcome {
    for how in [Discard::Eager, Discard::Lazy] {
        let (rig, buffer) = spilled(131)?;
        check(&buffer, 131)?;
        rig.process.discard(buffer.address(), buffer.bytes(), how)?;
        no_leak(&rig)?;
        spill(&rig, &buffer)?;
        no_leak(&rig)?;
        // In read-mostly memory each page that a CPU writes to is a fault of its own.
        read_mostly(&rig, &buffer, false)?;
        write(&buffer, 137);
        spill(&rig, &buffer)?;
        check(&buffer, 137)?;
    }
    Ok(Pass::Ok)
}

/// Copies that are there stay good, and no more are made.
fn no_longer() -> Outcome {
    let (rig, buffer) = spilled(139)?;
    check(&buffer, 139)?;
    read_mostly(&rig, &buffer, false)?;
    let moved = spill(&rig, &buffer)?;
    ensure!(moved == (0, BYTES), "{moved:?}");
    check(&buffer, 139)?;
    no_leak(&rig)?;
    write(&buffer, 149);
    let moved = spill(&rig, &buffer)?;
    ensure!(moved == (BYTES, 0), "{moved:?}");
    check(&buffer, 149)?;
    Ok(Pass::Ok)
}

/// With a quota that copies fill, all of another buffer goes to the device.
fn make_room() -> Outcome {
    let rig = Rig::with(Flash {
        quota_bytes: BYTES,
        ..plain(device(), 1 << 10)
    })?;
    let (first, second) = (rig.buffer(BLOCKS)?, rig.buffer(BLOCKS)?);
    write(&first, 151);
    read_mostly(&rig, &first, true)?;
    rig.spill(&first)?;
    check(&first, 151)?;
    write(&second, 157);
    rig.spill(&second)?;
    let stats = rig.stats()?;
    ensure!(stats.refused == 0, "copies are in the way: {stats:?}");
    ensure!(stats.spilled == 2 * BYTES, "{stats:?}");
    check(&first, 151)?;
    check(&second, 157)?;
    Ok(Pass::Ok)
}

/// A va_block is split while copies of other pages take all extents that there may be.
fn split() -> Outcome {
    const EXTENTS: u64 = 4096;
    let rig = Rig::new(1 << 10)?;
    let blocks = EXTENTS / 256;
    let buffer = rig.buffer(blocks as usize + 1)?;
    write(&buffer, 167);
    let process = &rig.process;
    read_mostly(&rig, &buffer, true)?;
    let last = buffer.address() + blocks * BLOCK;
    process.flash_move(last, BLOCK, false)?;
    for page in (1..EXTENTS).map(|n| n * 2) {
        process.flash_move(buffer.address() + page * PAGE, PAGE, false)?;
    }
    rig.gpu_check(&buffer, 167)?;
    let stats = rig.stats()?;
    // A process gets three times as many as it leaves, and not one more.
    ensure!(
        u64::from(stats.extents) == EXTENTS / 4 * 3 && stats.refused > 0,
        "{stats:?}"
    );
    process.read_duplication(last, BLOCK / 2, false)?;
    check(&buffer, 167)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn detach() -> Outcome {
    let (rig, buffer) = spilled(163)?;
    check(&buffer, 163)?;
    rig.process.flash_detach()?;
    check(&buffer, 163)?;
    drop(rig);
    // The next device knows nothing of them.
    let rig = Rig::new(1 << 10)?;
    ensure!(rig.stats()?.pages == 0, "{:?}", rig.stats()?);
    check(&buffer, 163)?;
    Ok(Pass::Ok)
}
