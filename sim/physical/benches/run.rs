// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a simulated step costs: against kernels, bytes and policies.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::criterion_group;
use criterion::criterion_main;
use criterion::BenchmarkId;
use criterion::Criterion;
use criterion::Throughput;
use uvmsim_machine::Machine;
use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Workload;
use uvmsim_zoo::Options;
use uvmsim_zoo::Precision;

const LIMITS: Limits = Limits {
    warm_up: 0,
    bins: 0,
    give_up: u64::MAX,
    longest_step: u64::MAX,
    learning: false,
};

fn workload(net: &str, batch: u64, machine: &Machine) -> Workload {
    let options = Options::new(batch, Precision::Tf32);
    Workload::from_trace(&uvmsim_zoo::find(net).unwrap().trace(&options, machine))
}

/// A step of one policy, on a GPU that holds half of what is live.
fn step(c: &mut Criterion, group: &str, cases: &[(&str, u64)], policy: &str) {
    let mut group = c.benchmark_group(group);
    group.sample_size(10);
    for &(net, batch) in cases {
        let mut machine = uvmsim_machine::presets::find("a100").unwrap();
        let w = workload(net, batch, &machine);
        let l = Layout::new(&w);
        machine.gpu_mem = w.peak_bytes() / 2;
        group.throughput(Throughput::Elements(w.kernels.len() as u64));
        group.bench_function(BenchmarkId::new(format!("{net}-{batch}"), policy), |b| {
            b.iter(|| {
                let mut p = policies::make(policy, &machine, &w, &l).unwrap();
                uvmsim_physical::run(&machine, &w, &l, p.as_mut(), LIMITS).unwrap()
            })
        });
    }
}

fn kernels(c: &mut Criterion) {
    let nets = [("resnet50", 64), ("resnet152", 64), ("resnet200", 64)];
    step(c, "kernels", &nets, "most");
}

fn bytes(c: &mut Criterion) {
    let batches = [("resnet50", 32), ("resnet50", 64), ("resnet50", 128)];
    step(c, "bytes", &batches, "base-uvm");
}

criterion_group!(benches, kernels, bytes);
criterion_main!(benches);
