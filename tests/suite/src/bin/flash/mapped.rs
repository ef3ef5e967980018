// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Pages that are mapped while they are written to the device, and no longer when the write ends.

use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::{Kernel, Op, BLOCK, PAGE};

use crate::failures::{has_dmsetup, while_it_is_silent, Dm};
use crate::rig::{plain, Done, Rig, WORDS};
use crate::SILENT;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "written by a mapping that came and went while it was spilled, it stays",
        SILENT,
        came_and_went,
    );
}

/// Words of half a block.
const HALF: usize = WORDS / 2;

/// How long the driver may take for what it does later.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first half of a block is in host memory, and mapped by a GPU, which accesses it there. The device falls silent
/// while a worker writes that half. The other half is evicted, and upstream then maps all of the block for the GPU. The
/// GPU writes, without a fault. With the preferred location, that mapping ends. What it wrote is there.
fn came_and_went() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let device = Dm::new()?;
    let rig = Rig::with(plain(&device.0, 2))?;
    let (process, gpu) = (&rig.process, rig.gpu.uuid());
    let buffer = rig.buffer(1)?;
    let (at, half) = (buffer.address(), BLOCK / 2);
    buffer.fill(|i| i as u64);
    process.set_accessed_by(at, BLOCK, gpu)?;
    process.migrate(at + half, half, gpu)?;
    ensure!(is_mapped(&rig, at)?, "the GPU does not access it");

    let more = rig.buffer(2)?;
    let silence = device.suspend()?;
    while_it_is_silent(silence, || {
        // More host memory than there is to be, a page at a time.
        let start = Instant::now();
        for page in 0.. {
            if !is_mapped(&rig, at)? {
                break;
            }
            let word = page * PAGE as usize / 8;
            ensure!(word < 2 * WORDS, "nothing is spilled");
            ensure!(start.elapsed() < 2 * PATIENCE, "it took too long");
            more.set(word, 1);
        }
        ensure!(rig.gpu.evict(at + half)?, "nothing is evicted");
        until("the GPU does not get its mapping back", || {
            is_mapped(&rig, at)
        })?;
        let op = Op::write(&buffer)
            .range(0, HALF)
            .pattern(5_000_000, 1)
            .warps(8);
        rig.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        process.set_preferred_location(at, BLOCK, gpu)?;
        ensure!(!is_mapped(&rig, at)?, "the mapping did not go");
        Ok(())
    })?;
    let stats = rig.wait_until(PATIENCE, |s| s.spilled > 0)?;
    ensure!(stats.spilled > 0, "no write has ended: {stats:?}");
    let wrong = (0..HALF).find(|&i| buffer.get(i) != 5_000_000 + i as u64);
    let seen = wrong.map(|i| (i, buffer.get(i)));
    ensure!(seen.is_none(), "lost: {seen:?}");
    Ok(Pass::Ok)
}

/// Whether the GPU has the page at this address mapped.
fn is_mapped(rig: &Rig, at: u64) -> Result<bool, Failure> {
    Ok(rig.process.residency(at)?.mapping(rig.gpu.uuid()) > 0)
}

fn until(what: &str, mut so: impl FnMut() -> Result<bool, Failure>) -> Done {
    let start = Instant::now();
    while !so()? {
        ensure!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
