// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Two devices as one, by the kernel's device mapper: a stripe. The second is given by `$SECOND_SSD`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::BLOCK;

use crate::failures::{has_dmsetup, Dm};
use crate::overlap::{seconds, write_report};
use crate::rig::{check, device, no_leak, plain, write, Done, Rig};
use crate::{NONE, SILENT};

/// Sectors of a chunk, 512 KiB: a read or write of 2 MiB is half of it on either device.
const CHUNK: u64 = 1024;

/// So many times as fast as one device two have to be read.
const FASTER: f64 = 1.5;

pub(crate) fn run(suite: &mut Suite) {
    suite.test("two devices, striped", SILENT, striped);
}

/// The field `stripe` of `out/ssd.json` (docs/ssd.md).
#[derive(Clone, Copy, Debug, Serialize)]
struct Stripe {
    bytes: u64,
    /// Seconds from one device to host memory.
    one_s: f64,
    /// Seconds from two devices to host memory.
    two_s: f64,
    /// How many times as fast two devices are.
    ratio: f64,
}

/// Measures, on devices that are paced, and adds to `out`.
pub(crate) fn demo(suite: &mut Suite, out: &Path, mib: u64) {
    suite.test("reads of two devices", NONE, || {
        // A stripe has its devices for itself.
        let one_s = reads(device(), mib << 20)?;
        let Some(dm) = stripe()? else {
            skip!("no dmsetup, or no $SECOND_SSD");
        };
        let two_s = reads(&dm.0, mib << 20)?;
        let stripe = Stripe {
            bytes: mib << 20,
            one_s,
            two_s,
            ratio: one_s / two_s,
        };
        println!("# {stripe:.3?}");
        write_report(&["stripe"], stripe, out)?;
        ensure!(
            stripe.ratio >= FASTER,
            "two devices are read only {:.2} times as fast as one",
            stripe.ratio
        );
        Ok(Pass::Ok)
    });
}

/// Seconds that so many bytes take from a device to host memory, by call, which reads ahead.
fn reads(path: &Path, bytes: u64) -> Result<f64, Failure> {
    let blocks = bytes / BLOCK;
    let rig = Rig::with(plain(path, 4 * blocks))?;
    let _unlimited = SetParameter::new("nvidia_uvm", "uvm_rust_flash_move_mib", "0")?;
    let buffer = rig.buffer(blocks as usize)?;
    write(&buffer, 109);
    rig.spill(&buffer)?;
    let pages = rig.stats()?.pages;
    ensure!(pages == blocks * 512, "{pages} pages are on the device");
    let took = seconds(|| rig.fetch(&buffer))?;
    check(&buffer, 109)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(took)
}

/// The device that `$SECOND_SSD` names.
pub(crate) fn second_device() -> Option<PathBuf> {
    std::env::var_os("SECOND_SSD").map(PathBuf::from)
}

/// Of a device, what its file of `name` in /sys says, in words.
fn numbers(device: &Path, name: &str) -> Result<Vec<u64>, Failure> {
    let class = Path::new("/sys/class/block").join(device.file_name().unwrap_or_default());
    let text = std::fs::read_to_string(class.join(name))?;
    Ok(text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect())
}

/// Both devices in turn; `None` where that cannot be had.
fn stripe() -> Result<Option<Dm>, Failure> {
    let Some(second) = second_device().filter(|_| has_dmsetup()) else {
        return Ok(None);
    };
    let mut sectors = u64::MAX;
    for of in [device(), &second] {
        let size = numbers(of, "size")?.first().copied();
        sectors = sectors.min(size.unwrap_or(0) / CHUNK * CHUNK);
    }
    let table = format!(
        "0 {} striped 2 {CHUNK} {} 0 {} 0",
        2 * sectors,
        device().display(),
        second.display()
    );
    Dm::create(&table).map(Some)
}

/// Sectors that were read and written of a device so far.
fn moved(of: &Path) -> Result<[u64; 2], Failure> {
    let numbers = numbers(of, "stat")?;
    let at = |n: usize| numbers.get(n).copied().ok_or("no such number");
    Ok([at(2)?, at(6)?])
}

/// What is written and read is half on either device, comes back as it was, and is trimmed on both.
fn striped() -> Outcome {
    let Some(dm) = stripe()? else {
        skip!("no dmsetup, or no $SECOND_SSD");
    };
    let both = [
        device().to_owned(),
        second_device().ok_or("no second device")?,
    ];
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(8)?;
    write(&buffer, 113);
    let before = [moved(&both[0])?, moved(&both[1])?];
    rig.spill(&buffer)?;
    rig.fetch(&buffer)?;
    for (of, before) in both.iter().zip(before) {
        for (now, before) in moved(of)?.into_iter().zip(before) {
            // Who looks at each new device may have read a little.
            let (sectors, half) = (now - before, buffer.bytes() / 512 / 2);
            ensure!(
                (half..half / 8 * 10).contains(&sectors),
                "{} moved {sectors} sectors",
                of.display()
            );
        }
    }
    check(&buffer, 113)?;
    rig.spill(&buffer)?;
    rig.gpu_check(&buffer, 113)?;
    drop(buffer);
    no_leak(&rig)?;
    trimmed(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

fn trimmed(rig: &Rig) -> Done {
    let stats = rig.wait_until(Duration::from_secs(60), |s| s.trimmed >= 8 * BLOCK)?;
    ensure!(stats.trimmed >= 8 * BLOCK, "not trimmed: {stats:?}");
    Ok(())
}
