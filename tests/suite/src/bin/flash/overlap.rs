// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `scripts/overlap.sh`: how long pages take from the device to the GPU, beside the time of
//! either way alone. The device and vgpu's copies are paced, so that the times are theirs.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, BLOCK};

use crate::rig::{no_leak, write, Done, Rig};
use crate::NONE;

/// The field `overlap` of `out/ssd.json` (docs/ssd.md).
#[derive(Clone, Copy, Debug, Serialize)]
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

/// Measures `mib` MiB, and writes `out`.
pub(crate) fn run(suite: &mut Suite, out: &Path, mib: u64) {
    suite.test("reads and copies at the same time", NONE, || {
        let overlap = measure(mib << 20)?;
        println!("# {overlap:.3?}");
        write_report(overlap, out)
    });
}

fn write_report(overlap: Overlap, out: &Path) -> Outcome {
    let report = serde_json::json!({ "overlap": overlap });
    let text = serde_json::to_string_pretty(&report).map_err(|e| Failure::from(e.to_string()))?;
    std::fs::write(out, text + "\n")?;
    Ok(Pass::Ok)
}

fn measure(bytes: u64) -> Result<Overlap, Failure> {
    let blocks = bytes / BLOCK;
    let rig = Rig::new(4 * blocks)?;
    let _unlimited = SetParameter::new("nvidia_uvm", "uvm_rust_flash_move_mib", "0")?;
    let buffer = rig.buffer(blocks as usize)?;
    write(&buffer, 17);
    leave(&rig, &buffer)?;
    let ssd_s = seconds(|| rig.fetch(&buffer))?;
    let gpu_s = seconds(|| to_gpu(&rig, &buffer))?;
    rig.gpu_check(&buffer, 17)?;
    rig.process.migrate(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    leave(&rig, &buffer)?;
    let (at, gpu) = (buffer.address(), rig.gpu.uuid());
    let both = || Ok(rig.process.flash_move_to_gpu(at, buffer.bytes(), gpu)?);
    let both_s = seconds(both)?;
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

/// All of the buffer goes to the device.
fn leave(rig: &Rig, buffer: &Buffer<u64>) -> Done {
    rig.spill(buffer)?;
    let stats = rig.stats()?;
    ensure!(stats.pages == buffer.bytes() / 4096, "not all is there: {stats:?}");
    Ok(())
}

fn to_gpu(rig: &Rig, buffer: &Buffer<u64>) -> Done {
    Ok(rig.process.migrate(buffer.address(), buffer.bytes(), rig.gpu.uuid())?)
}

fn seconds(what: impl FnOnce() -> Done) -> Result<f64, Failure> {
    let start = Instant::now();
    what()?;
    Ok(start.elapsed().as_secs_f64())
}
