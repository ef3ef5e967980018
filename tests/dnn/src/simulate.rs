// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The same programs in uvmsim: the same tensors at the same addresses, the same kernels,
//! as much GPU memory, and a V100 around it.
//!
//! Bytes and times are scaled alike, so the link has its own rate. What a fault takes is not
//! scaled, so there is less time for prefetches than a whole step leaves.

use crate::program::Program;
use crate::report::Simulated;
use crate::run::V100_LINK;
use anyhow::{Context, Result};
use uvm_policy::prefetch::Config;
use uvmsim_machine::Machine;
use uvmsim_physical::policies::{deepum_config, execution_ids, BaseUvm, DeepUm, Parts};
use uvmsim_physical::workload::{Kernel, Use};
use uvmsim_physical::{Layout, Limits, Policy, Workload};
use uvmsim_trace::Kind;
use vgpu_client::{BLOCK, PAGE};

/// Runs the workload of a name in so much GPU memory; what the last of `steps` iterations
/// does.
pub fn run(name: &str, gpu_bytes: u64, steps: u32, policy: &str, ahead: u32) -> Result<Simulated> {
    let whole = uvmsim_machine::presets::find("v100-16").context("no such machine")?;
    let machine = Machine {
        gpu_mem: gpu_bytes,
        tree_prefetch: u64::from(policy != "uvm-noprefetch"),
        pcie_h2d: V100_LINK,
        pcie_d2h: V100_LINK,
        keep_clean: 0,
        ..whole
    };
    let (program, _) = crate::run::program(name, crate::run::footprint(gpu_bytes))?;
    let (workload, layout) = workload(&program);
    let limits = Limits {
        warm_up: steps.saturating_sub(1),
        ..Limits::default()
    };
    let failed = |e: uvmsim_physical::RunError| anyhow::anyhow!("uvmsim, {policy}: {e}");
    let go = |policy: &mut dyn Policy| {
        uvmsim_physical::run(&machine, &workload, &layout, policy, limits).map_err(failed)
    };
    let parts = match policy {
        "deepum-prefetch" => Some(Parts::Prefetch),
        "deepum-preevict" => Some(Parts::PreEvict),
        "deepum" => Some(Parts::All),
        _ => None,
    };
    let (outcome, table_bytes) = match parts {
        None => (go(&mut BaseUvm)?, 0),
        Some(parts) => {
            let config = Config {
                ahead,
                ..deepum_config()
            };
            let ids = execution_ids(&workload, &layout);
            let mut deepum = DeepUm::new(ids, config).map_err(failed)?.with(parts);
            let outcome = go(&mut deepum)?;
            (outcome, deepum.stats().table_bytes as u64)
        }
    };
    Ok(Simulated {
        workload: name.to_owned(),
        policy: policy.to_owned(),
        ahead,
        faults_per_iteration: outcome.faults as f64,
        h2d_bytes: outcome.bytes.host_to_gpu as f64,
        d2h_bytes: outcome.bytes.gpu_to_host as f64,
        table_bytes,
    })
}

/// Prints what uvmsim says of every workload and policy.
pub fn print(chunks: u64, steps: u32) -> Result<()> {
    println!(
        "{:<14} {:<22} {:>8} {:>8} {:>8}",
        "workload", "policy", "faults", "MiB in", "MiB out"
    );
    for (name, _) in crate::run::WORKLOADS {
        for (policy, ahead) in [
            ("uvm-noprefetch", 0),
            ("uvm", 0),
            ("deepum-prefetch", 8),
            ("deepum-prefetch", 32),
            ("deepum-prefetch", 128),
            ("deepum-preevict", 32),
            ("deepum", 32),
        ] {
            let s = run(name, chunks * BLOCK, steps, policy, ahead)?;
            println!(
                "{name:<14} {:<22} {:>8.0} {:>8.1} {:>8.1}",
                match ahead {
                    0 => policy.to_owned(),
                    n => format!("{policy} N={n}"),
                },
                s.faults_per_iteration,
                s.h2d_bytes / 1048576.0,
                s.d2h_bytes / 1048576.0
            );
        }
    }
    Ok(())
}

/// The program as uvmsim has it.
fn workload(program: &Program) -> (Workload, Layout) {
    let kind = |t: usize| match t {
        _ if program.inputs.contains(&t) => Kind::Input,
        _ if program.persistent.contains(&t) => Kind::Weight,
        _ => Kind::Activation,
    };
    let places = program.places.iter().enumerate();
    let tensors = places.map(|(t, p)| (format!("t{t}"), p.pages * PAGE, kind(t)));
    let kernels = program.launches.iter().map(|l| {
        let used = |t: &usize, write: bool| Use {
            tensor: *t as u32,
            read: !write,
            write,
        };
        let reads = l.reads.iter().map(|t| used(t, false));
        Kernel {
            name: format!("{:x}", l.id),
            ns: l.nanoseconds,
            uses: reads
                .chain(l.writes.iter().map(|t| used(t, true)))
                .collect(),
        }
    });
    let workload = Workload::new("scaled", tensors.collect(), kernels.collect());
    let at = program.places.iter().map(|p| p.first * PAGE).collect();
    let layout = Layout::at(&workload, at);
    (workload, layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uvmsim_agrees_that_few_faults_are_left() -> Result<()> {
        let gpu = 60 * BLOCK;
        for name in ["bert-base", "gpt2-l", "resnet152"] {
            let of = |policy| run(name, gpu, 12, policy, 32);
            let (bare, uvm) = (of("uvm-noprefetch")?, of("uvm")?);
            let (ours, whole) = (of("deepum-prefetch")?, of("deepum-preevict")?);
            assert!(uvm.faults_per_iteration > 10_000.0, "{uvm:?}");
            assert!(bare.faults_per_iteration > 1.2 * uvm.faults_per_iteration);
            assert!(ours.faults_per_iteration < uvm.faults_per_iteration / 10.0);
            assert!(whole.faults_per_iteration < uvm.faults_per_iteration / 50.0);
            // Without its tensors' deaths it moves whole blocks, dead pages with them.
            assert!(ours.h2d_bytes < uvm.h2d_bytes * 1.4, "{uvm:?} {ours:?}");
            assert!(of("deepum")?.h2d_bytes < uvm.h2d_bytes / 2.0);
            assert!(ours.table_bytes > 0 && uvm.table_bytes == 0);
        }
        Ok(())
    }
}
