// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The calls: NVIDIA's flags and errors, and our batch.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::{driver_version, Discard, DiscardBatch, DiscardRange, NvStatus, BLOCK, PAGE};

use crate::rig::{Rig, WORDS};
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test("UVM_DISCARD: what it refuses", NONE, refusals);
    suite.test("UVM_RUST_DISCARD_BATCH: counts", NONE, counts);
    suite.test(
        "UVM_RUST_DISCARD_BATCH: what it refuses",
        NONE,
        batch_refusals,
    );
    suite.test(
        "UVM_RUST_DISCARD_BATCH: a place that is not writable",
        NONE,
        read_only,
    );
    suite.test(
        "UVM_RUST_DISCARD_BATCH: does not keep the system awake",
        NONE,
        suspended,
    );
    suite.test(
        "while the system sleeps, a call of ours copies nothing from its process",
        NONE,
        asleep,
    );
}

fn refusals() -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(2)?;
    let (at, len) = (buffer.address(), buffer.bytes());
    let cases = [
        ("flags 2", at, len, 2, NvStatus::INVALID_ARGUMENT),
        ("flags 3", at, len, 3, NvStatus::INVALID_ARGUMENT),
        ("odd base", at + 8, PAGE, 1, NvStatus::INVALID_ADDRESS),
        ("odd length", at, 8, 1, NvStatus::INVALID_ADDRESS),
        ("length 0", at, 0, 1, NvStatus::INVALID_ADDRESS),
        (
            "beyond the end",
            at,
            len + 8 * BLOCK,
            1,
            NvStatus::INVALID_ADDRESS,
        ),
        ("wraps", at, u64::MAX - 4095, 1, NvStatus::INVALID_ADDRESS),
        (
            "nothing there",
            0x1000_0000,
            PAGE,
            0,
            NvStatus::INVALID_ADDRESS,
        ),
    ];
    for (what, base, length, flags, want) in cases {
        let status = rig
            .process
            .discard_with(base, length, flags)
            .err()
            .and_then(|e| e.status());
        ensure!(status == Some(want), "{what}: {status:?}, not {want:?}");
    }
    // Memory that nobody touched is as good as discarded.
    rig.process.discard(at, len, Discard::Eager)?;
    rig.process.discard(at, len, Discard::Lazy)?;
    Ok(Pass::Ok)
}

fn counts() -> Outcome {
    let rig = Rig::new()?;
    if rig.is_native() {
        skip!("NVIDIA's discard leaves no part of a block alone: all count as discarded");
    }
    let (_, features) = driver_version(&rig.process)?.ok_or("no UVM_RUST_GET_VERSION")?;
    ensure!(
        features & u64::from(uvm_uapi::UVM_RUST_FEATURE_DISCARD) != 0,
        "the feature bit of discard is not set"
    );
    let buffer = rig.buffer(4)?;
    rig.gpu_write(&buffer, 1)?;
    let range = |first: u64, bytes: u64| DiscardRange {
        base: buffer.address() + first,
        length: bytes,
    };
    // Blocks 0 and 1 whole; of block 2, mapped with one entry, a part.
    let (batch, result) = rig.process.discard_batch(
        &[range(0, 2 * BLOCK), range(2 * BLOCK, BLOCK / 2)],
        Discard::Eager,
    );
    result?;
    let seen = (
        batch.blocks_discarded,
        batch.blocks_skipped,
        batch.blocks_partial,
    );
    ensure!(seen == (2, 1, 0), "eager: {seen:?}, not (2, 1, 0)");
    ensure!(
        batch.first_failed == 2,
        "first_failed is {}",
        batch.first_failed
    );
    // A lazy discard unmaps nothing, so a part is no obstacle, down to 64 KiB.
    let (batch, result) = rig.process.discard_batch(
        &[
            range(2 * BLOCK, BLOCK / 2),
            range(3 * BLOCK + PAGE, 128 << 10),
            range(3 * BLOCK, PAGE),
        ],
        Discard::Lazy,
    );
    result?;
    let seen = (
        batch.blocks_discarded,
        batch.blocks_skipped,
        batch.blocks_partial,
    );
    ensure!(seen == (1, 1, 1), "lazy: {seen:?}, not (1, 1, 1)");
    ensure!(
        rig.is_discarded(&buffer, 2 * 512 + 255)?,
        "page 255 of block 2 is live"
    );
    ensure!(
        !rig.is_discarded(&buffer, 2 * 512 + 256)?,
        "page 256 of block 2 is discarded"
    );
    Ok(Pass::Ok)
}

fn batch_refusals() -> Outcome {
    let rig = Rig::new()?;
    if !rig.counts_evictions() {
        skip!("NVIDIA's driver has no such call");
    }
    let buffer = rig.buffer(2)?;
    buffer.set(0, 1);
    buffer.set(WORDS, 1);
    let good = DiscardRange {
        base: buffer.address(),
        length: BLOCK,
    };
    let bad = |base, length| DiscardRange { base, length };
    for (what, range, want) in [
        ("unaligned", bad(good.base + 1, PAGE), libc::EINVAL),
        ("empty", bad(good.base, 0), libc::EINVAL),
        ("wraps", bad(PAGE.wrapping_neg(), 2 * PAGE), libc::EINVAL),
        ("nothing there", bad(0x1000_0000, PAGE), libc::ENXIO),
    ] {
        let (batch, result) = rig
            .process
            .discard_batch(&[good, range, good], Discard::Eager);
        let errno = result.err().and_then(|e| e.errno());
        ensure!(errno == Some(want), "{what}: errno {errno:?}, not {want}");
        let seen = (batch.first_failed, batch.blocks_discarded);
        ensure!(
            seen == (1, 1),
            "{what}: {seen:?} are first_failed and discarded, not (1, 1)"
        );
    }
    let (batch, result) = rig.process.discard_batch(&[], Discard::Lazy);
    result?;
    ensure!(batch.blocks_discarded == 0, "no range discards nothing");
    Ok(Pass::Ok)
}

/// Makes the call once, also where it is to be made again; its errno, or 0.
fn raw(rig: &Rig, batch: *mut DiscardBatch) -> i32 {
    let (fd, number) = (
        rig.process.uvm_fd().as_raw_fd(),
        uvm_uapi::UVM_RUST_DISCARD_BATCH,
    );
    // SAFETY: the structure of that number; the array that it names outlives the call.
    match unsafe { libc::ioctl(fd, number as libc::Ioctl, batch) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

fn batch_of(ranges: &[DiscardRange]) -> DiscardBatch {
    DiscardBatch {
        size: size_of::<DiscardBatch>() as u32,
        flags: uvm_uapi::UVM_RUST_DISCARD_EAGER,
        ranges: ranges.as_ptr() as u64,
        range_count: ranges.len() as u32,
        range_size: size_of::<DiscardRange>() as u32,
        ..Default::default()
    }
}

/// Who cannot be told what was discarded has nothing discarded.
fn read_only() -> Outcome {
    let rig = Rig::new()?;
    if !rig.counts_evictions() {
        skip!("NVIDIA's driver has no such call");
    }
    let buffer = rig.buffer(1)?;
    rig.gpu_write(&buffer, 1)?;
    let ranges = [DiscardRange {
        base: buffer.address(),
        length: BLOCK,
    }];
    let batch = batch_of(&ranges);
    // SAFETY: new memory of a page, which this function alone knows, and which it gives back at its end.
    let errno = unsafe {
        let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let anywhere = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE as usize, write, anywhere, -1, 0);
        ensure!(page != libc::MAP_FAILED, "no memory");
        let place = page.cast::<DiscardBatch>();
        place.write(batch);
        let protected = libc::mprotect(page, PAGE as usize, read) == 0;
        let errno = raw(&rig, place);
        libc::munmap(page, PAGE as usize);
        ensure!(protected, "mprotect failed");
        errno
    };
    ensure!(errno == libc::EFAULT, "errno {errno}, not EFAULT");
    ensure!(
        !rig.is_discarded(&buffer, 0)?,
        "it is discarded, and nobody was told"
    );
    Ok(Pass::Ok)
}

/// A call of many ranges ends when the system is to sleep, tells what it did, and is made again as it is.
fn suspended() -> Outcome {
    const RANGES: usize = 1 << 18;
    const PATIENCE: Duration = Duration::from_secs(120);
    let rig = Rig::new()?;
    if !rig.counts_evictions() {
        skip!("NVIDIA's driver has no such call");
    }
    let buffer = rig.buffer(1)?;
    rig.gpu_write(&buffer, 1)?;
    let range = DiscardRange {
        base: buffer.address(),
        length: BLOCK,
    };
    let ranges = vec![range; RANGES];
    let mut batch = batch_of(&ranges);
    (batch.first_failed, batch.blocks_discarded) = (!0, !0);
    let given = batch;
    // The GPU sleeps again and again, until it meets the call. One that comes while the system sleeps is refused, and
    // discards nothing.
    let start = Instant::now();
    let errno = std::thread::scope(|scope| -> Result<i32, Failure> {
        let calling = scope.spawn(|| loop {
            let errno = raw(&rig, &mut batch);
            let met = rig.is_discarded(&buffer, 0).unwrap_or(true);
            if errno != libc::EAGAIN || met || start.elapsed() > PATIENCE {
                return errno;
            }
        });
        while !calling.is_finished() {
            rig.gpu.suspend(Duration::from_millis(20))?;
            std::thread::sleep(Duration::from_millis(20));
        }
        calling.joined()
    })?;
    ensure!(rig.is_discarded(&buffer, 0)?, "nothing is discarded");
    ensure!(
        errno == libc::EAGAIN,
        "errno {errno}, not EAGAIN: the system waited for {RANGES} ranges"
    );
    ensure!(
        start.elapsed() <= PATIENCE,
        "no call met a suspend within {PATIENCE:?}"
    );
    let (done, counted) = (batch.first_failed, batch.blocks_discarded);
    ensure!(
        batch.size == given.size && done > 0 && done < given.range_count,
        "{batch:?}"
    );
    ensure!(counted == u64::from(done), "{batch:?}");
    // Made again, with less of it than a guest does in a second.
    batch.range_count = 100;
    let errno = raw(&rig, &mut batch);
    ensure!(
        (errno, batch.first_failed) == (0, 100),
        "{errno}: {batch:?}"
    );
    ensure!(rig.is_discarded(&buffer, 0)?, "it is not discarded");
    Ok(Pass::Ok)
}

/// A call that comes while the system sleeps is refused before it looks at memory of its process: managed memory cannot be had
/// then, and the call would try until the system wakes up, whatever kills its process.
fn asleep() -> Outcome {
    const PATIENCE: Duration = Duration::from_secs(60);
    const UVM_DISCARD: u64 = 80;
    // Nothing is mapped at this address.
    const NOWHERE: usize = 8;
    let rig = Rig::new()?;
    if !rig.counts_evictions() {
        skip!("NVIDIA's driver has no such calls");
    }
    let fd = rig.process.uvm_fd().as_raw_fd();
    let numbers = [
        u64::from(uvm_uapi::UVM_RUST_GET_VERSION),
        u64::from(uvm_uapi::UVM_RUST_DISCARD_BATCH),
        UVM_DISCARD,
    ];
    for number in numbers {
        let start = Instant::now();
        let calling = std::thread::scope(|scope| -> Result<i32, Failure> {
            let calling = scope.spawn(move || loop {
                // SAFETY: there is no memory for the call to change.
                let done = unsafe { libc::ioctl(fd, number as libc::Ioctl, NOWHERE) };
                let errno = std::io::Error::last_os_error().raw_os_error();
                if done == 0 || errno != Some(libc::EFAULT) || start.elapsed() > PATIENCE {
                    return errno.unwrap_or(0);
                }
            });
            while !calling.is_finished() {
                rig.gpu.suspend(Duration::from_millis(100))?;
            }
            calling.joined()
        });
        let errno = calling?;
        ensure!(errno == libc::EAGAIN, "call {number:#x}: errno {errno}");
    }
    Ok(Pass::Ok)
}
