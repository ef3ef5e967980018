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

/// `layers` forward and as many backward kernels over so many GiB of activations in
/// all; durations go with the bytes, so that the schedule keeps its shape.
fn step(layers: u64, gib: u64) -> Trace {
    let mut t = Trace::new("bench", 1);
    let size = (gib << 30) / layers;
    let tensor = |t: &mut Trace, kind, bytes| t.add_tensor(Tensor::new(kind, bytes, "t"));
    let kernel = |t: &mut Trace, name: &str, ns, reads, written| {
        let writes = vec![written];
        let kernel = Kernel::new(name, ns);
        t.kernels.push(Kernel {
            reads,
            writes,
            ..kernel
        });
        written
    };
    let mut values = vec![tensor(&mut t, Kind::Input, size)];
    for i in 0..layers as usize {
        let a = tensor(&mut t, Kind::Activation, size);
        values.push(kernel(&mut t, "forward", size / 10, vec![values[i]], a));
    }
    let loss = tensor(&mut t, Kind::Gradient, 4096);
    let last = values.pop().into_iter().collect();
    let mut grad = kernel(&mut t, "makeLoss", 1000, last, loss);
    for &x in values.iter().rev() {
        let g = tensor(&mut t, Kind::Gradient, size);
        grad = kernel(&mut t, "backward", size / 10, vec![grad, x], g);
    }
    t
}

/// A plan that needs no planner: each activation leaves two kernels after it was
/// made, every fifth for the SSD, and comes back eight kernels before its use.
fn moves(layers: u64) -> Moves {
    let layers = layers as usize;
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

/// What `run` costs with more and more kernels, and with more and more bytes.
fn sweep(c: &mut Criterion<CpuTime>, name: &str, run: impl Fn(&Trace, &Moves, &Machine)) {
    let kernels = [200, 400, 800, 1600].map(|layers| (layers, layers, 64));
    let bytes = [16, 32, 64, 128].map(|gib| (gib, 400, gib));
    for (what, points) in [("kernels", kernels), ("gib", bytes)] {
        let mut group = c.benchmark_group(format!("{name}/{what}"));
        for (parameter, layers, gib) in points {
            let (trace, moves, machine) = (step(layers, gib), moves(layers), machine(gib));
            group.bench_function(BenchmarkId::from_parameter(parameter), |b| {
                b.iter(|| run(black_box(&trace), &moves, &machine));
            });
        }
        group.finish();
    }
}

fn engine(c: &mut Criterion<CpuTime>) {
    for policy in [Policy::BaseUvm, Policy::DeepUm, Policy::G10] {
        sweep(c, policy.as_str(), |trace, _, machine| {
            let _ = black_box(g10::run(trace, policy, machine));
        });
    }
}

/// The machine alone, carrying out a plan.
fn plan(c: &mut Criterion<CpuTime>) {
    sweep(c, "plan", |trace, moves, machine| {
        let _ = black_box(g10::run_plan(trace, moves, machine));
    });
}

criterion_group! {
    name = benches;
    config = uvmsim_cputime::criterion().sample_size(10);
    targets = engine, plan
}
criterion_main!(benches);
