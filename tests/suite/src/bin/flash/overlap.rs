// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What goes on at the same time: reads of the device and copies to the GPU, and faults beside what others read
//! and write.
//!
//! `scripts/overlap.sh` measures it: how long pages take from the device to the GPU, beside the time of
//! either way alone. Vgpu's copies are paced there, and the device is one of two: an NVMe that moves so many bytes a second,
//! and a device each operation of which takes so long ([`Delayed`]). So the times are theirs, and not the emulator's.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Kernel, Op, BLOCK};

use crate::interface::errno;
use crate::rig::{check, device, no_leak, plain, write, Done, Rig, WORDS};
use crate::{saturated, NONE};

/// So much longer than the slower of both ways alone it may take.
const MOST: f64 = 1.15;

/// So many operations of the device for others a fault's read may be behind.
const MOST_AHEAD: u64 = 2;

/// Words of a page.
const PAGE_WORDS: usize = 512;

pub(crate) fn run(suite: &mut Suite) {
    suite.test("to a GPU from wherever it is", NONE, to_gpu_from_all);
    suite.test("faults go first", NONE, || {
        // Whether others are under way when a fault asks is luck, but hardly thrice. A fault whose thread gets no CPU
        // for a quarter of a second lets another operation begin (policy/flash/arbiter.rs): hardly twice.
        let (mut ahead, mut first) = (false, 0);
        for _ in 0..3 {
            let most = faults_among_others(device())?;
            ahead |= most > 0;
            first += u32::from(most <= MOST_AHEAD);
            if ahead && first == 2 {
                return Ok(Pass::Ok);
            }
        }
        ensure!(ahead, "no fault found anything ahead of it");
        Err(format!("more than {MOST_AHEAD} operations for others were ahead of a fault's").into())
    });
}

/// The field `overlap` of `out/ssd.json` (docs/ssd.md), without the faults.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Overlap {
    bytes: u64,
    /// From host memory to the GPU.
    gpu_s: f64,
    /// From the device to host memory.
    ssd_s: f64,
    /// From the device to the GPU.
    both_s: f64,
    /// `both_s` by the longer of the others.
    ratio: f64,
}

/// The most operations of the device for others that a fault's read was behind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct FaultWaits {
    fault_waits_max: Option<u64>,
    /// That of faults beside moves by call, if that was measured.
    fault_waits_moves: Option<u64>,
    /// That of faults beside spills for want of host memory, and reads for prefetches.
    fault_waits_spills: Option<u64>,
}

/// A device each operation of which takes the same time, however many are under way: null_blk, as `scripts/ssd.sh` makes it.
pub(crate) struct Delayed {
    path: PathBuf,
    /// The time, in microseconds.
    latency_us: u64,
}

impl Delayed {
    /// The one that `$DELAY_SSD` and `$DELAY_US` tell of.
    pub(crate) fn named() -> Result<Option<Self>, Failure> {
        let Some(path) = std::env::var_os("DELAY_SSD") else {
            return Ok(None);
        };
        let latency = std::env::var("DELAY_US")
            .ok()
            .and_then(|us| us.parse().ok());
        Ok(Some(Self {
            path: path.into(),
            latency_us: latency.ok_or("no DELAY_US beside DELAY_SSD")?,
        }))
    }
}

/// Measures `mib` MiB on an NVMe, and on a device of fixed latency if there is one; adds to `out`.
pub(crate) fn demo(suite: &mut Suite, out: &Path, mib: u64) {
    measured(suite, out, mib, "the NVMe", &["overlap"], device());
    match Delayed::named() {
        Ok(Some(delayed)) => {
            let field = ["overlap", "delay"];
            measured(suite, out, mib, "a delay", &field, &delayed.path);
            suite.test("a delay: the report of its latency", NONE, || {
                let latency = serde_json::json!({ "latency_us": delayed.latency_us });
                write_report(&field, latency, out)
            });
        }
        Ok(None) => {}
        Err(failed) => {
            suite.test("a device of fixed latency", NONE, || Err(failed));
        }
    }
}

/// Measures one device, and adds `field` to `out`.
fn measured(suite: &mut Suite, out: &Path, mib: u64, of: &str, field: &[&str], path: &Path) {
    suite.test(
        &format!("{of}: reads and copies at the same time"),
        NONE,
        || {
            let overlap = measure(path, mib << 20)?;
            println!("# {overlap:.3?}");
            write_report(field, overlap, out)?;
            ensure!(
                overlap.ratio <= MOST,
                "one after the other: {overlap:.3?} (more than {MOST})"
            );
            Ok(Pass::Ok)
        },
    );
    let mut waits = FaultWaits::default();
    suite.test(&format!("{of}: faults beside moves"), NONE, || {
        few_ahead(*waits.fault_waits_moves.insert(faults_among_others(path)?))
    });
    suite.test(
        &format!("{of}: faults beside spills and prefetches"),
        NONE,
        || {
            if !saturated::is_on() {
                skip!("{} is not on", saturated::PARAMETER);
            }
            few_ahead(*waits.fault_waits_spills.insert(saturated::faults(path)?))
        },
    );
    suite.test(&format!("{of}: the faults' report"), NONE, || {
        waits.fault_waits_max = waits.fault_waits_moves.max(waits.fault_waits_spills);
        write_report(field, waits, out)
    });
}

/// A fault's read was behind so few operations for others.
fn few_ahead(most: u64) -> Outcome {
    ensure!(
        most <= MOST_AHEAD,
        "{most} operations for others were ahead of a fault's"
    );
    Ok(Pass::Ok)
}

/// Adds the keys of `fields` to the object at `path` of what the report has already.
pub(crate) fn write_report(path: &[&str], fields: impl Serialize, out: &Path) -> Outcome {
    let failed = |e: serde_json::Error| Failure::from(e.to_string());
    let mut report = serde_json::json!({});
    if out.exists() {
        report = serde_json::from_str(&std::fs::read_to_string(out)?).map_err(failed)?;
    }
    add(
        &mut report,
        path,
        serde_json::to_value(fields).map_err(failed)?,
    );
    let text = serde_json::to_string_pretty(&report).map_err(failed)?;
    std::fs::write(out, text + "\n")?;
    Ok(Pass::Ok)
}

/// Adds the keys of an object to the one at `path`. What is no object there goes.
fn add(report: &mut Value, path: &[&str], fields: Value) {
    let mut at = report;
    for key in path {
        at = &mut at[*key];
        if !at.is_object() {
            *at = serde_json::json!({});
        }
    }
    if let (Some(there), Value::Object(fields)) = (at.as_object_mut(), fields) {
        there.extend(fields);
    }
}

fn measure(path: &Path, bytes: u64) -> Result<Overlap, Failure> {
    let blocks = bytes / BLOCK;
    let rig = Rig::with(plain(path, 4 * blocks))?;
    let _unlimited = SetParameter::new("nvidia_uvm", "uvm_rust_flash_move_mib", "0")?;
    let buffer = rig.buffer(blocks as usize)?;
    write(&buffer, 17);
    leave(&rig, &buffer)?;
    let ssd_s = seconds(|| rig.fetch(&buffer))?;
    let gpu_s = seconds(|| to_gpu(&rig, &buffer).and_then(|()| arrives(&rig, &buffer, 17)))?;
    rig.gpu_check(&buffer, 17)?;
    rig.process
        .migrate(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    leave(&rig, &buffer)?;
    let (at, gpu) = (buffer.address(), rig.gpu.uuid());
    let both_s = seconds(|| {
        rig.process.flash_move_to_gpu(at, buffer.bytes(), gpu)?;
        arrives(&rig, &buffer, 17)
    })?;
    rig.gpu_check(&buffer, 17)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(Overlap {
        bytes,
        gpu_s,
        ssd_s,
        both_s,
        ratio: both_s / gpu_s.max(ssd_s),
    })
}

/// Waits until the time of what was copied to the GPU is over: copies are seen before that, by up to 16 MiB, and kernels
/// run after it.
fn arrives(rig: &Rig, buffer: &Buffer<u64>, value: u64) -> Done {
    let op = Op::check(buffer).range(0, 1).pattern(value, 1).warps(1);
    rig.gpu
        .launch(&Kernel::new().op(op.lanes(1)))?
        .wait()?
        .ok()?;
    Ok(())
}

/// All of the buffer goes to the device.
fn leave(rig: &Rig, buffer: &Buffer<u64>) -> Done {
    rig.spill(buffer)?;
    let stats = rig.stats()?;
    ensure!(
        stats.pages == buffer.bytes() / 4096,
        "not all is there: {stats:?}"
    );
    Ok(())
}

fn to_gpu(rig: &Rig, buffer: &Buffer<u64>) -> Done {
    Ok(rig
        .process
        .migrate(buffer.address(), buffer.bytes(), rig.gpu.uuid())?)
}

pub(crate) fn seconds(what: impl FnOnce() -> Done) -> Result<f64, Failure> {
    let start = Instant::now();
    what()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Every second page of one block is on the device, one block is whole there, one in host memory, one on the
/// GPU, and one nobody has touched.
fn to_gpu_from_all() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffers: Vec<_> = (0..4).map(|_| rig.buffer(1)).collect::<Result<_, _>>()?;
    let untouched = rig.buffer(3)?;
    for (i, buffer) in (1..).zip(&buffers) {
        write(buffer, i * 1000);
    }
    let [mixed, away, _, there] = &buffers[..] else {
        return Err("four buffers".into());
    };
    rig.spill(mixed)?;
    for page in (0..512).step_by(2) {
        let _ = mixed.get(page * PAGE_WORDS);
    }
    rig.spill(away)?;
    to_gpu(&rig, there)?;
    let gpu = rig.gpu.uuid();
    for buffer in buffers.iter().chain([&untouched]) {
        rig.process
            .flash_move_to_gpu(buffer.address(), buffer.bytes(), gpu)?;
    }
    ensure!(rig.stats()?.pages == 0, "some stay on the device");
    let before = faults_of(&rig)?;
    for (i, buffer) in (1..).zip(&buffers) {
        rig.gpu_check(buffer, i * 1000)?;
    }
    let faults = faults_of(&rig)? - before;
    ensure!(faults == 0, "{faults} faults on what is on the GPU");
    for (i, buffer) in (1..).zip(&buffers) {
        check(buffer, i * 1000)?;
    }
    ensure!(untouched.get(0) == 0, "memory that nobody has touched");
    let nobody = rig
        .process
        .flash_move_to_gpu(there.address(), BLOCK, Uuid([7; 16]));
    ensure!(errno(nobody) == Some(libc::ENODEV), "to a GPU of nobody");
    let elsewhere = rig.process.flash_move_to_gpu(0x1000, 0x1000, gpu);
    ensure!(errno(elsewhere) == Some(libc::ENXIO), "memory of nobody");
    drop((buffers, untouched));
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn faults_of(rig: &Rig) -> Result<u64, Failure> {
    let stats = vgpu_client::DriverStats::get(&rig.process, rig.gpu.uuid(), false)?;
    Ok(stats.faults)
}

/// The GPU reads what is on the device, block by block, while threads have other memory written and read all the
/// time. Returns how many of their operations a fault's read was behind.
fn faults_among_others(path: &Path) -> Result<u64, Failure> {
    let rig = Rig::with(plain(path, 1 << 10))?;
    let _unlimited = SetParameter::new("nvidia_uvm", "uvm_rust_flash_move_mib", "0")?;
    let wanted = rig.buffer(12)?;
    let others: Vec<_> = (0..4).map(|_| rig.buffer(8)).collect::<Result<_, _>>()?;
    write(&wanted, 31);
    others.iter().for_each(|other| write(other, 41));
    rig.spill(&wanted)?;
    let done = AtomicBool::new(false);
    let churn = |other: &Buffer<u64>| -> Done {
        while !done.load(Relaxed) {
            rig.spill(other)?;
            rig.fetch(other)?;
        }
        Ok(())
    };
    let before = rig.stats()?;
    std::thread::scope(|scope| -> Done {
        let churning: Vec<_> = others
            .iter()
            .map(|other| scope.spawn(|| churn(other)))
            .collect();
        let looked = look_block_by_block(&rig, &wanted);
        done.store(true, Relaxed);
        for thread in churning {
            thread.joined()??;
        }
        looked
    })?;
    let stats = rig.stats()?;
    ensure!(
        stats.parked > before.parked,
        "no fault was put off: {stats:?}"
    );
    let others_wrote = stats.written - before.written;
    ensure!(
        others_wrote > wanted.bytes(),
        "the others have not done much: {stats:?}"
    );
    let most = stats.fault_waits_most;
    println!("# {most} operations for others, at most, ahead of a fault's");
    for other in &others {
        check(other, 41)?;
    }
    drop((wanted, others));
    no_leak(&rig)?;
    Ok(most)
}

fn look_block_by_block(rig: &Rig, buffer: &Buffer<u64>) -> Done {
    (0..buffer.len() / WORDS).try_for_each(|block| look(rig, buffer, block, 31))
}

/// The GPU reads a block, of a buffer whose words are `value` + index.
pub(crate) fn look(rig: &Rig, buffer: &Buffer<u64>, block: usize, value: u64) -> Done {
    let first = block * WORDS;
    let op = Op::check(buffer)
        .range(first, WORDS)
        .pattern(value + first as u64, 1)
        .warps(1);
    rig.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_of_its_own_is_beside_the_keys_that_were_there() {
        let mut report = json!({ "runs": [1], "overlap": { "ratio": 3.0, "fault_waits_max": 9 } });
        let measured = Overlap {
            bytes: 4,
            gpu_s: 2.0,
            ssd_s: 1.0,
            both_s: 2.5,
            ratio: 1.25,
        };
        add(
            &mut report,
            &["overlap", "delay"],
            json!({ "ratio": 1.0, "gpu_s": 5.0 }),
        );
        add(&mut report, &["overlap", "delay"], json!({ "ratio": 1.1 }));
        add(
            &mut report,
            &["overlap"],
            serde_json::to_value(measured).unwrap(),
        );
        let waits = FaultWaits {
            fault_waits_max: Some(2),
            fault_waits_moves: Some(2),
            fault_waits_spills: None,
        };
        add(
            &mut report,
            &["overlap"],
            serde_json::to_value(waits).unwrap(),
        );
        let overlap = json!({
            "bytes": 4, "gpu_s": 2.0, "ssd_s": 1.0, "both_s": 2.5, "ratio": 1.25,
            "fault_waits_max": 2, "fault_waits_moves": 2, "fault_waits_spills": null,
            "delay": { "ratio": 1.1, "gpu_s": 5.0 },
        });
        assert_eq!(report, json!({ "runs": [1], "overlap": overlap }));
    }

    #[test]
    fn what_is_no_object_makes_way_for_one() {
        let mut report = json!({ "overlap": null });
        add(&mut report, &["overlap", "delay"], json!({ "ratio": 1.0 }));
        assert_eq!(report, json!({ "overlap": { "delay": { "ratio": 1.0 } } }));
    }
}
