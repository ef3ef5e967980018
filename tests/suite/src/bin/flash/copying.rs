// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Faults of users' copy engines on pages that are on the device. No GPU repeats such a fault, but the engine faults anew once its
//! channel goes on: so nobody else waits for the page (docs/ssd.md).

use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Channel, Gpu, Kernel, Op, Process, PAGE};

use crate::failures::{has_dmsetup, while_it_is_silent, Dm, Silence};
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
    suite.test(
        "nobody's faults wait for the page of a copy engine's",
        SILENT,
        others,
    );
    suite.test(
        "before the system sleeps a copy engine's fault is served",
        SILENT,
        sleeps,
    );
    suite.test(
        "a channel goes whose copy engine's fault waits",
        SILENT,
        leaves,
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
    ends(rig, buffer, ())
}

/// A process with a block on a device that does not answer any more, and a copy engine's fault on one of the block's pages.
struct Waits {
    rig: Rig,
    _process: Process,
    gpu: Gpu,
    /// Channels for more such faults. Nobody gets one while the page is being read: it takes the VA space's lock for writing.
    more: Vec<Channel>,
    block: Buffer<u64>,
    silence: Silence,
    _device: Dm,
}

impl Waits {
    /// `spills` moves to the device what is to be there. `None`: there are no such faults, or no such devices.
    fn new(spills: impl FnOnce(&Process, &Buffer<u64>) -> Done) -> Result<Option<Self>, Failure> {
        if !has_dmsetup() {
            return Ok(None);
        }
        let device = Dm::new()?;
        let rig = Rig::with(plain(&device.0, 1 << 10))?;
        if !rig.gpu.has_copies() {
            return Ok(None);
        }
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let more = (0..8).map(|_| gpu.new_channel());
        let more = more.collect::<Result<_, _>>()?;
        let block = Buffer::managed(&process, WORDS)?;
        write(&block, FIRST);
        spills(&process, &block)?;
        let silence = device.suspend()?;
        gpu.channel().copy(block.address() + 8 * WORD as u64)?;
        let waits = Self {
            rig,
            _process: process,
            gpu,
            more,
            block,
            silence,
            _device: device,
        };
        match waits.gpu.channel().wait_for_copy_fault(PATIENCE) {
            Ok(_) => {
                // The handler has had time for it.
                std::thread::sleep(Duration::from_millis(200));
                Ok(Some(waits))
            }
            Err(error) => {
                waits.silence.end()?;
                Err(error.into())
            }
        }
    }
}

/// Ends the silence while `waits` is under way, which needs that.
fn ended_meanwhile<T: Send>(
    silence: Silence,
    waits: impl FnOnce() -> vgpu_client::Result<T> + Send,
) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(waits);
        std::thread::sleep(Duration::from_millis(300));
        silence.end()?;
        let done = thread.joined()?;
        Ok(done?)
    })
}

/// Nothing is left of a test on `rig`; `others` are other processes that go before its own does.
fn ends<T>(rig: Rig, block: Buffer<u64>, others: T) -> Outcome {
    drop(block);
    no_leak(&rig)?;
    drop((others, rig));
    Ok(Pass::Ok)
}

fn all_of(process: &Process, block: &Buffer<u64>) -> Done {
    process.flash_move(block.address(), block.bytes(), false)?;
    Ok(())
}

/// A kernel of `other` faults, and its copy engine does.
pub(crate) fn faults(other: &Rig) -> Done {
    let (fine, copied) = (other.buffer(2)?, other.buffer(1)?);
    write(&fine, 107);
    write(&copied, 109);
    let op = Op::check(&fine).pattern(107, 1).warps(8);
    let kernel = other.gpu.launch(&Kernel::new().op(op))?;
    kernel.wait_for(PATIENCE)?.ok()?;
    let made = other.gpu.channel().copies()?.made;
    other.gpu.channel().copy(copied.address())?;
    other.gpu.channel().wait_for_copies(made + 1, PATIENCE)?;
    check(&fine, 107)
}

/// The fault's page is in host memory, where it shall stay, as most of its block. NVIDIA's prefetcher would bring the others to the
/// host along, which are on the device.
fn along() -> Outcome {
    let spills = |process: &Process, block: &Buffer<u64>| -> Done {
        process.set_preferred_location(block.address(), block.bytes(), Uuid::CPU)?;
        process.flash_move(block.address() + 300 * PAGE, 212 * PAGE, false)?;
        Ok(())
    };
    let Some(waits) = Waits::new(spills)? else {
        skip!("there are no such faults, or dmsetup is not installed");
    };
    let other = Rig::unattached(Process::new()?)?;
    while_it_is_silent(waits.silence, || {
        waits.gpu.channel().wait_for_copies(1, PATIENCE)?;
        faults(&other)
    })?;
    added(&waits.block)?;
    ends(waits.rig, waits.block, other)
}

/// While another VA space's faults are serviced, the fault of the channel's copy comes again, and the copy waits.
pub(crate) fn others_go_on(channel: &Channel, other: &Rig) -> Done {
    let (before, start) = (channel.copies()?, Instant::now());
    for _ in 0..4 {
        faults(other)?;
    }
    let after = channel.copies()?;
    let came = after.faults - before.faults;
    println!("# it came {came} times in {:?}", start.elapsed());
    ensure!(after.made == 0, "it did not wait: {after:?}");
    ensure!(came > 0, "it does not come again");
    Ok(())
}

/// Another process' kernel faults meanwhile, and its copy engine does. Faults of several channels come again all the time, so
/// that there always is one.
fn others() -> Outcome {
    let Some(waits) = Waits::new(all_of)? else {
        skip!("there are no such faults, or dmsetup is not installed");
    };
    let channel = waits.gpu.channel();
    for more in &waits.more {
        more.copy(waits.block.address() + 8 * WORD as u64)?;
    }
    let other = Rig::unattached(Process::new()?)?;
    while_it_is_silent(waits.silence, || others_go_on(channel, &other))?;
    for channel in waits.more.iter().chain([channel]) {
        channel.wait_for_copies(1, PATIENCE)?;
    }
    let stats = waits.rig.stats()?;
    ensure!(stats.parked > 0, "the fault was not put off: {stats:?}");
    let seen = waits.block.get(WORD);
    ensure!(seen == FIRST + WORD as u64 + 9, "{seen:#x}");
    ends(waits.rig, waits.block, other)
}

/// Upstream leaves no such fault before the system sleeps, and RM relies on that.
fn sleeps() -> Outcome {
    let Some(waits) = Waits::new(all_of)? else {
        skip!("there are no such faults, or dmsetup is not installed");
    };
    let gpu = &waits.gpu;
    ended_meanwhile(waits.silence, || gpu.suspend(Duration::from_millis(20)))?;
    gpu.channel().wait_for_copies(1, PATIENCE)?;
    added(&waits.block)?;
    ends(waits.rig, waits.block, ())
}

/// Its GPU is unregistered, which waits for the read of the page, and for nothing else. The copy may have been made just before.
fn leaves() -> Outcome {
    let Some(waits) = Waits::new(all_of)? else {
        skip!("there are no such faults, or dmsetup is not installed");
    };
    let gpu = waits.gpu;
    ended_meanwhile(waits.silence, || gpu.unregister())?;
    let other = Rig::unattached(Process::new()?)?;
    faults(&other)?;
    if check(&waits.block, FIRST).is_err() {
        added(&waits.block)?;
    }
    ends(waits.rig, waits.block, other)
}

/// All words are as they were written, and the copy engine has added 1 to its own.
fn added(buffer: &Buffer<u64>) -> Done {
    let wrong = buffer.first_other(|i| FIRST + i as u64 + u64::from(i == WORD));
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    Ok(())
}
