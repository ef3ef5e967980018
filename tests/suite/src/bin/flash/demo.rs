// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `make ssd-demo`: programs of four times the GPU's memory and twice the host's, and
//! what they moved.

use std::path::Path;

use serde::Serialize;
use uvm_suite::{Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{DriverStats, FlashStats, BLOCK};

use crate::rig::{check, Done, Rig};
use crate::{random, NONE};

#[derive(Serialize)]
struct Report {
    runs: Vec<Run>,
}

/// A run; the fields are those of `out/ssd.json` (docs/ssd.md).
#[derive(Serialize)]
struct Run {
    workload: &'static str,
    policy: &'static str,
    bytes: Bytes,
    predicted: Option<Bytes>,
    faults: u64,
    slots_leaked: u64,
    verified: bool,
    gpu_bytes: u64,
    host_limit: u64,
    host_peak: u64,
    program_bytes: u64,
    written_to_ssd: u64,
}

#[derive(Clone, Copy, Serialize)]
struct Bytes {
    host_to_gpu: u64,
    gpu_to_host: u64,
    ssd_to_host: u64,
    host_to_ssd: u64,
}

#[derive(Clone, Copy)]
struct Sizes {
    gpu_bytes: u64,
    blocks: usize,
    host_blocks: u64,
    ops: u32,
    seed: u64,
}

type Work = fn(&Rig, Sizes) -> Done;

/// Runs all, and writes `out`.
pub(crate) fn run(suite: &mut Suite, out: &Path, ops: u32, seed: u64) {
    let gpu_mb: u64 = std::env::var("VIDMEM_MB")
        .ok()
        .and_then(|mb| mb.parse().ok())
        .unwrap_or(32);
    let gpu_bytes = gpu_mb << 20;
    let blocks = 4 * gpu_bytes / BLOCK;
    let sizes = Sizes {
        gpu_bytes,
        blocks: blocks as usize,
        host_blocks: blocks / 2,
        ops,
        seed,
    };
    let works: [(&'static str, &'static str, Work); 4] = [
        ("sweep by the GPU", "base UVM + SSD", sweep_gpu),
        ("sweep by the CPU", "base UVM + SSD", sweep_cpu),
        ("layers, forth and back", "pre-evict and prefetch", layers),
        ("random", "base UVM + SSD, and calls", random_work),
    ];
    let mut report = Report { runs: Vec::new() };
    for (workload, policy, work) in works {
        suite.test(&format!("{workload}: {policy}"), NONE, || {
            let (run, outcome) = measure(workload, policy, work, sizes)?;
            report.runs.push(run);
            outcome
        });
    }
    suite.test("the report", NONE, || write_report(&report, out));
}

fn write_report(report: &Report, out: &Path) -> Outcome {
    println!(
        "# {:<24} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "MiB", "host>gpu", "gpu>host", "ssd>host", "host>ssd", "faults"
    );
    for r in &report.runs {
        let mb = |bytes: u64| bytes >> 20;
        println!(
            "# {:<24} {:>9} {:>9} {:>9} {:>9} {:>8}",
            r.workload,
            mb(r.bytes.host_to_gpu),
            mb(r.bytes.gpu_to_host),
            mb(r.bytes.ssd_to_host),
            mb(r.bytes.host_to_ssd),
            r.faults
        );
    }
    let text = serde_json::to_string_pretty(report).map_err(|e| Failure::from(e.to_string()))?;
    std::fs::write(out, text + "\n")?;
    Ok(Pass::Ok)
}

fn measure(
    workload: &'static str,
    policy: &'static str,
    work: Work,
    sizes: Sizes,
) -> Result<(Run, Outcome), Failure> {
    let rig = Rig::new(sizes.host_blocks)?;
    let outcome = work(&rig, sizes);
    let verified = outcome.is_ok();
    let driver = DriverStats::get(&rig.process, rig.gpu.uuid(), false)?;
    if verified {
        let _ = crate::rig::no_leak(&rig);
    }
    let flash: FlashStats = rig.stats()?;
    let sum = |t: &[vgpu_client::Traffic; 8]| t.iter().map(|t| t.bytes).sum();
    let run = Run {
        workload,
        policy,
        bytes: Bytes {
            host_to_gpu: sum(&driver.host_to_gpu),
            gpu_to_host: sum(&driver.gpu_to_host),
            ssd_to_host: flash.fetched,
            host_to_ssd: flash.spilled,
        },
        predicted: None,
        faults: driver.faults,
        // All of the program's memory has been freed.
        slots_leaked: u64::from(flash.slots - flash.free_slots),
        verified,
        gpu_bytes: sizes.gpu_bytes,
        host_limit: sizes.host_blocks * BLOCK,
        host_peak: flash.host_peak * 4096,
        program_bytes: sizes.blocks as u64 * BLOCK,
        written_to_ssd: flash.written,
    };
    let outcome = outcome.and_then(|()| {
        uvm_suite::ensure!(run.slots_leaked == 0, "slots leak: {flash:?}");
        uvm_suite::ensure!(run.bytes.host_to_ssd > 0, "nothing was spilled: {flash:?}");
        Ok(Pass::Ok)
    });
    Ok((run, outcome))
}

fn sweep_gpu(rig: &Rig, sizes: Sizes) -> Done {
    let buffer = rig.buffer(sizes.blocks)?;
    rig.gpu_write(&buffer, 3)?;
    rig.gpu_check(&buffer, 3)?;
    rig.gpu_write(&buffer, 5)?;
    check(&buffer, 5)
}

fn sweep_cpu(rig: &Rig, sizes: Sizes) -> Done {
    let buffer = rig.buffer(sizes.blocks)?;
    crate::rig::write(&buffer, 7);
    check(&buffer, 7)?;
    rig.gpu_check(&buffer, 7)
}

/// Sixteen tensors are written one after the other and used in reverse, as those of a
/// forward and a backward pass; each is evicted after its use and prefetched before.
fn layers(rig: &Rig, sizes: Sizes) -> Done {
    let tensors: Vec<_> = (0..16)
        .map(|_| rig.buffer(sizes.blocks / 16))
        .collect::<Result<_, _>>()?;
    for (i, tensor) in tensors.iter().enumerate() {
        rig.gpu_write(tensor, i as u64 * 11)?;
        rig.process
            .migrate(tensor.address(), tensor.bytes(), Uuid::CPU)?;
        // The last ones are needed first: they stay in the host.
        if i < 10 {
            rig.spill(tensor)?;
        }
    }
    for (i, tensor) in tensors.iter().enumerate().rev() {
        rig.fetch(tensor)?;
        rig.process
            .migrate(tensor.address(), tensor.bytes(), rig.gpu.uuid())?;
        rig.gpu_check(tensor, i as u64 * 11)?;
        rig.process.discard(
            tensor.address(),
            tensor.bytes(),
            vgpu_client::Discard::Eager,
        )?;
    }
    Ok(())
}

fn random_work(rig: &Rig, sizes: Sizes) -> Done {
    random::run(rig, sizes.blocks, sizes.ops, sizes.seed)
}
