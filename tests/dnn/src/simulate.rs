// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The same programs in uvmsim: the same tensors at the same addresses, the same kernels,
//! as much GPU memory, and a V100 around it.
//!
//! Bytes and times are scaled alike, so the link has its own rate. What a fault takes is not
//! scaled, so there is less time for prefetches than a whole step leaves.

use crate::program::{Launch, Program};
use crate::report::Simulated;
use crate::run::V100_LINK;
use anyhow::{Context, Result};
use uvm_policy::prefetch::worker::Params;
use uvm_policy::prefetch::Config;
use uvmsim_machine::Machine;
use uvmsim_physical::policies::{deepum_config, execution_ids, BaseUvm, DeepUm, Driver, Parts};
use uvmsim_physical::workload::{Kernel, Use};
use uvmsim_physical::{Layout, Limits, Outcome, Policy, RunError, Workload};
use uvmsim_trace::Kind;
use vgpu_client::{BLOCK, PAGE};

/// Chunks that `driver-preevict` keeps ready.
const READY: u32 = 4;

/// Runs the workload of a name in so much GPU memory; what the last of `steps` iterations
/// does.
pub fn run(name: &str, gpu_bytes: u64, steps: u32, policy: &str, ahead: u32) -> Result<Simulated> {
    let (program, _) = crate::run::program(name, crate::run::footprint(gpu_bytes))?;
    let (workload, layout) = workload(&program, &program.launches.iter().collect::<Vec<_>>());
    let (outcome, table_bytes) = outcome(&workload, &layout, gpu_bytes, steps, policy, ahead)?;
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

/// What the last of `steps` iterations does, and how large DeepUM's tables are then.
fn outcome(
    workload: &Workload,
    layout: &Layout,
    gpu_bytes: u64,
    steps: u32,
    policy: &str,
    ahead: u32,
) -> Result<(Outcome, u64)> {
    let whole = uvmsim_machine::presets::find("v100-16").context("no such machine")?;
    let machine = Machine {
        gpu_mem: gpu_bytes,
        tree_prefetch: u64::from(policy != "uvm-noprefetch"),
        pcie_h2d: V100_LINK,
        pcie_d2h: V100_LINK,
        keep_clean: 0,
        ..whole
    };
    let limits = Limits {
        warm_up: steps.saturating_sub(1),
        ..Limits::default()
    };
    let failed = |e: RunError| anyhow::anyhow!("uvmsim, {policy}: {e}");
    let go = |policy: &mut dyn Policy| {
        uvmsim_physical::run(&machine, workload, layout, policy, limits).map_err(failed)
    };
    let config = Config {
        ahead,
        ..deepum_config()
    };
    let ids = execution_ids(workload, layout);
    let paper = |parts| {
        let mut deepum = DeepUm::new(ids.clone(), config)
            .map_err(failed)?
            .with(parts);
        let outcome = go(&mut deepum)?;
        Ok((outcome, deepum.stats().table_bytes as u64))
    };
    let driver = |watermark| {
        let act = true;
        let params = Params {
            act,
            watermark,
            tenant: 1,
        };
        let driver = Driver::new(ids.clone(), config, params).map_err(failed)?;
        Ok((go(&mut driver.keeping())?, 0))
    };
    match policy {
        "deepum-prefetch" => paper(Parts::Prefetch),
        "deepum-preevict" => paper(Parts::PreEvict),
        "deepum" => paper(Parts::All),
        "driver-prefetch" => driver(0),
        "driver-preevict" => driver(READY),
        _ => Ok((go(&mut BaseUvm)?, 0)),
    }
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
            ("driver-prefetch", 8),
            ("driver-prefetch", 32),
            ("driver-preevict", 32),
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

/// The program as uvmsim has it, with these launches as a step.
fn workload(program: &Program, launches: &[&Launch]) -> (Workload, Layout) {
    let kind = |t: usize| match t {
        _ if program.inputs.contains(&t) => Kind::Input,
        _ if program.persistent.contains(&t) => Kind::Weight,
        _ => Kind::Activation,
    };
    let places = program.places.iter().enumerate();
    let tensors = places.map(|(t, p)| (format!("t{t}"), p.pages * PAGE, kind(t)));
    let kernels = launches.iter().map(|l| {
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

    const GPU: u64 = 60 * BLOCK;

    #[test]
    fn the_drivers_prefetcher_leaves_few_faults() -> Result<()> {
        for name in ["bert-base", "gpt2-l", "resnet152", "dlrm"] {
            let of = |steps, policy| run(name, GPU, steps, policy, 32);
            let uvm = of(8, "uvm")?;
            for policy in ["driver-prefetch", "driver-preevict"] {
                let (early, late) = (of(8, policy)?, of(30, policy)?);
                assert!(
                    early.faults_per_iteration < uvm.faults_per_iteration * 0.04,
                    "{uvm:?} {early:?}"
                );
                // DeepUM's table 5 has 2 % of plain UVM's faults left, and less.
                assert!(
                    late.faults_per_iteration < uvm.faults_per_iteration * 0.02,
                    "{uvm:?} {late:?}"
                );
                // It moves whole blocks.
                assert!(late.h2d_bytes < uvm.h2d_bytes * 1.4, "{uvm:?} {late:?}");
            }
        }
        Ok(())
    }

    /// With chunks ready, few are taken from blocks in use when memory is needed. DLRM's kernels need
    /// more at once than are kept ready.
    #[test]
    fn the_drivers_pre_eviction_makes_the_room() -> Result<()> {
        for (name, most) in [
            ("bert-base", 0.1),
            ("gpt2-l", 0.1),
            ("resnet152", 0.1),
            ("dlrm", 0.8),
        ] {
            let (program, _) = crate::run::program(name, crate::run::footprint(GPU))?;
            let launches: Vec<_> = program.launches.iter().collect();
            let (workload, layout) = workload(&program, &launches);
            let of = |policy| outcome(&workload, &layout, GPU, 8, policy, 32);
            let (without, _) = of("driver-prefetch")?;
            let (with, _) = of("driver-preevict")?;
            println!("{name}: {} of {}", with.reclaimed, without.reclaimed);
            assert!(without.reclaimed > 40, "{name}: {without:?}");
            let share = with.reclaimed as f64 / without.reclaimed as f64;
            assert!(share < most, "{name}: {share}");
        }
        Ok(())
    }

    #[test]
    fn an_order_that_no_one_can_predict_costs_no_more() -> Result<()> {
        let (program, shuffled) =
            crate::run::program(crate::run::RANDOM, crate::run::footprint(GPU))?;
        assert!(shuffled);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut drawn = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            &program.launches[(random >> 8) as usize % program.launches.len()]
        };
        let launches: Vec<_> = (0..8 * program.launches.len()).map(|_| drawn()).collect();
        let (workload, layout) = workload(&program, &launches);
        let of = |policy| outcome(&workload, &layout, GPU, 1, policy, 32);
        let (uvm, _) = of("uvm")?;
        for policy in ["driver-prefetch", "driver-preevict"] {
            let (ours, _) = of(policy)?;
            let (ins, outs) = (ours.bytes.host_to_gpu, ours.bytes.gpu_to_host);
            println!(
                "{policy}: {} of {} faults, {ins} of {} in",
                ours.faults, uvm.faults, uvm.bytes.host_to_gpu
            );
            assert!(ours.faults as f64 <= uvm.faults as f64 * 1.05);
            assert!(ins as f64 <= uvm.bytes.host_to_gpu as f64 * 1.05);
            assert!(outs as f64 <= uvm.bytes.gpu_to_host as f64 * 1.05);
        }
        Ok(())
    }
}
