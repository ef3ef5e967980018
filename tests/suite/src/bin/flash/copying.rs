// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Faults of users' copy engines on pages that are on the device. Nobody replays such a fault; the thread that services all
//! GPU faults reads the page for it (docs/ssd.md).

use std::time::Duration;

use uvm_suite::{ensure, skip, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Kernel, Op, Process, PAGE};

use crate::failures::{has_dmsetup, while_it_is_silent, Dm};
use crate::rig::{check, no_leak, plain, write, Done, Rig, WORDS};
use crate::{NONE, SILENT};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "a copy engine's fault brings its page from the device",
        NONE,
        brought,
    );
    suite.test(
        "a copy engine's fault waits for no pages that go to the host along with its own",
        SILENT,
        along,
    );
}

/// The page, and the word of it, to which the copy engine adds 1, and what was written first.
const WORD: usize = 77 * 512 + 1;
const FIRST: u64 = 103;
const PATIENCE: Duration = Duration::from_secs(20);

fn brought() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    if !rig.gpu.has_copies() {
        skip!("copy engines of this GPU do not fault");
    }
    let buffer = rig.buffer(1)?;
    write(&buffer, FIRST);
    rig.spill(&buffer)?;
    let before = rig.stats()?;
    ensure!(before.pages == 512, "{before:?}");
    let channel = rig.gpu.channel();
    channel.copy(buffer.address() + 8 * WORD as u64)?;
    channel.wait_for_copies(1, PATIENCE)?;
    let after = rig.stats()?;
    ensure!(after.pages < before.pages, "nothing was read: {after:?}");
    added(&buffer)?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// The fault's page is in host memory, where it shall stay, as most of its block. NVIDIA's prefetcher would bring the others to the
/// host along, which are on a device that does not answer. Another process' faults are serviced by the same thread.
fn along() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let device = Dm::new()?;
    let rig = Rig::with(plain(&device.0, 1 << 10))?;
    if !rig.gpu.has_copies() {
        skip!("copy engines of this GPU do not fault");
    }
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let block = Buffer::managed(&process, WORDS)?;
    write(&block, FIRST);
    process.set_preferred_location(block.address(), block.bytes(), Uuid::CPU)?;
    process.flash_move(block.address() + 300 * PAGE, 212 * PAGE, false)?;
    let fine = rig.buffer(2)?;
    write(&fine, 107);
    while_it_is_silent(device.suspend()?, || {
        gpu.channel().copy(block.address() + 8 * WORD as u64)?;
        gpu.channel().wait_for_copies(1, PATIENCE)?;
        let op = Op::check(&fine).pattern(107, 1).warps(8);
        let kernel = rig.gpu.launch(&Kernel::new().op(op))?;
        kernel.wait_for(PATIENCE)?.ok()?;
        Ok(())
    })?;
    added(&block)?;
    check(&fine, 107)?;
    drop((block, fine));
    no_leak(&rig)?;
    drop((gpu, process, rig));
    Ok(Pass::Ok)
}

/// All words are as they were written, and the copy engine has added 1 to its own.
fn added(buffer: &Buffer<u64>) -> Done {
    let wrong = buffer.first_other(|i| FIRST + i as u64 + u64::from(i == WORD));
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    Ok(())
}
