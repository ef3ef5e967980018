// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Cost of a run against the number of kernels, and against the number of bytes, in
//! CPU time.

#![allow(missing_docs)]

use criterion::black_box;
use criterion::criterion_group;
use criterion::criterion_main;
use criterion::BenchmarkId;
use criterion::Criterion;
use uvmsim_cputime::CpuTime;
use uvmsim_g10 as g10;
use uvmsim_g10::Hint;
use uvmsim_g10::Machine;
use uvmsim_g10::Moves;
use uvmsim_g10::Policy;
use uvmsim_g10::Target;
use uvmsim_trace::Kernel;
use uvmsim_trace::Kind;
use uvmsim_trace::Tensor;
use uvmsim_trace::Trace;

/// `layers` forward and as many backward kernels over `bytes` of activations in
/// all; durations go with the bytes, so that the schedule keeps its shape.
fn step(layers: u64, bytes: u64) -> Trace {
    let mut t = Trace::new("bench", 1);
    let size = bytes / layers;
    let ns = size / 10;
    let mut values = vec![t.add_tensor(Tensor::new(Kind::Input, size, "x"))];
    for _ in 0..layers {
        let a = t.add_tensor(Tensor::new(Kind::Activation, size, "a"));
        let mut k = Kernel::new("forward", ns);
        k.reads.extend(values.last());
        k.writes = vec![a];
        t.kernels.push(k);
        values.push(a);
    }
    let mut grad = t.add_tensor(Tensor::new(Kind::Gradient, 4096, "loss"));
    let mut k = Kernel::new("makeLoss", 1000);
    k.reads.extend(values.last());
    k.writes = vec![grad];
    t.kernels.push(k);
    for &x in values.iter().rev().skip(1) {
        let g = t.add_tensor(Tensor::new(Kind::Gradient, size, "g"));
        let mut k = Kernel::new("backward", ns);
        k.reads = vec![grad, x];
        k.writes = vec![g];
        t.kernels.push(k);
        grad = g;
    }
    t
}

/// A plan that needs no planner: each activation leaves two kernels after it was
/// made, every fifth for the SSD, and comes back eight kernels before its use.
fn moves(layers: usize) -> Moves {
    let activations = (0..layers - 10).map(|i| (i, i as u32 + 1));
    let out = activations.clone().map(|(i, tensor)| {
        let to = [Target::Ssd, Target::Host][usize::from(i % 5 > 0)];
        Hint::new(i + 2, tensor, to)
    });
    // Backward kernels begin after the loss, with the last activation.
    let back = activations.rev();
    let back = back.map(|(i, tensor)| Hint::new(2 * layers - i - 8, tensor, Target::Gpu));
    Moves {
        list: out.chain(back).collect(),
        frees: true,
    }
}

/// Memory that grows with the bytes: as many moves of larger tensors.
fn machine(gib: u64) -> Machine {
    let scale = gib as f64 / 64.0;
    Machine {
        gpu_gib: 40.0 * scale,
        host_gib: 128.0 * scale,
        ..Machine::default()
    }
}

const LAYERS: [u64; 4] = [200, 400, 800, 1600];
const GIB: [u64; 4] = [16, 32, 64, 128];

/// The machine alone, carrying out a plan.
fn plan(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("plan/kernels");
    for layers in LAYERS {
        let (trace, moves) = (step(layers, 64 << 30), moves(layers as usize));
        group.bench_with_input(BenchmarkId::from_parameter(layers), &trace, |b, t| {
            b.iter(|| g10::run_plan(black_box(t), &moves, &Machine::default()));
        });
    }
    group.finish();
    let mut group = c.benchmark_group("plan/gib");
    let moves = moves(400);
    for gib in GIB {
        let (trace, machine) = (step(400, gib << 30), machine(gib));
        group.bench_with_input(BenchmarkId::from_parameter(gib), &trace, |b, t| {
            b.iter(|| g10::run_plan(black_box(t), &moves, &machine));
        });
    }
    group.finish();
}

fn engine(c: &mut Criterion<CpuTime>) {
    let policies = [Policy::BaseUvm, Policy::DeepUm, Policy::G10];
    for policy in policies {
        let mut group = c.benchmark_group(format!("{policy}/kernels"));
        for layers in LAYERS {
            let trace = step(layers, 64 << 30);
            group.bench_with_input(BenchmarkId::from_parameter(layers), &trace, |b, t| {
                b.iter(|| g10::run(black_box(t), policy, &Machine::default()));
            });
        }
        group.finish();
        let mut group = c.benchmark_group(format!("{policy}/gib"));
        for gib in GIB {
            let (trace, machine) = (step(400, gib << 30), machine(gib));
            group.bench_with_input(BenchmarkId::from_parameter(gib), &trace, |b, t| {
                b.iter(|| g10::run(black_box(t), policy, &machine));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = uvmsim_cputime::criterion().sample_size(10);
    targets = engine, plan
}
criterion_main!(benches);
