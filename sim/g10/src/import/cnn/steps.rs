// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Tensors and kernels of a training step of a convolutional network.

use super::super::build::kernel;
use super::super::build::tensor;
use super::layers::Graph;
use super::layers::Layer;
use super::layers::Op;
use super::layers::Shape;
use uvmsim_trace::Kind;
use uvmsim_trace::TensorId;
use uvmsim_trace::Trace;

/// The step of `g`, without times.
pub(super) fn trace(g: &mut Graph) -> Trace {
    let mut t = Trace::default();
    for i in 0..g.layers.len() {
        create(&mut t, g, i);
    }
    output_gradients(&mut t, g);
    for (i, l) in g.layers.iter().enumerate() {
        if i == 0 {
            kernel(&mut t, "LoadData_A0", &[], &l.tensors.x);
        }
        forward(&mut t, l);
    }
    if let Some(last) = g.layers.last() {
        let reads: Vec<_> = last.tensors.out.into_iter().collect();
        kernel(&mut t, "makeLoss", &reads, &last.tensors.d_out[..1]);
    }
    for l in g.layers.iter().rev() {
        backward(&mut t, l);
    }
    t
}

/// Creates layer `i`'s tensors in the artifact's order.
fn create(t: &mut Trace, g: &mut Graph, i: usize) {
    let batch = g.batch;
    let elements = |[c, h, w]: Shape| batch.saturating_mul(c).saturating_mul(h).saturating_mul(w);
    let l = &g.layers[i];
    let (size_in, size_out, c) = (elements(l.input), elements(l.output), l.input[0]);
    let before = l.prev.iter().map(|&p| &g.layers[p]);
    let producers: Vec<_> = before.clone().map(|p| elements(p.output)).collect();
    let mut x: Vec<TensorId> = before.filter_map(|p| p.tensors.out).collect();
    let mut s = super::layers::Tensors::default();
    let mut new = |kind, n, what: &str| tensor(t, kind, n, &format!("{i}.{what}"));
    use Kind::{Activation, Gradient, Weight};
    match l.op {
        Op::Conv([cin, cout], [[high, ..], [wide, ..]]) => {
            if l.prev.is_empty() {
                x.push(new(Activation, size_in, "input"));
            }
            let weights = cout * cin * high * wide;
            s.out = Some(new(Activation, size_out, "out"));
            s.weight = Some(new(Weight, weights, "weight"));
            s.d_weight = Some(new(Gradient, weights, "d_weight"));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
        }
        Op::Relu(inplace) | Op::Dropout(inplace) => {
            if matches!(l.op, Op::Dropout(_)) {
                s.mask = Some(new(Activation, size_in, "mask"));
            }
            let same = x.first().copied().filter(|_| inplace);
            s.out = same.or_else(|| Some(new(Activation, size_in, "out")));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
        }
        Op::MaxPool(_) | Op::AvgPool(_) | Op::Scale => {
            s.out = Some(new(Activation, size_out, "out"));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
        }
        Op::Linear([fin, fout], bias) => {
            s.weight = Some(new(Weight, fin * fout, "weight"));
            s.out = Some(new(Activation, size_out, "out"));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
            s.d_weight = Some(new(Gradient, fin * fout, "d_weight"));
            if bias {
                s.bias = Some(new(Weight, fout, "bias"));
                s.d_bias = Some(new(Gradient, fout, "d_bias"));
            }
        }
        Op::BatchNorm(tracked) => {
            s.out = Some(new(Activation, size_in, "out"));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
            s.weight = Some(new(Weight, 2 * c, "alpha_beta"));
            s.d_weight = Some(new(Gradient, 2 * c, "d_alpha_beta"));
            s.norm = [
                (Activation, c, "mu"),
                (Activation, c, "var"),
                (Activation, size_in, "v1"),
                (Activation, c, "v2"),
                (Gradient, c, "d_mu"),
                (Gradient, c, "d_var"),
                (Gradient, size_in, "d_v1"),
                (Gradient, c, "d_v2"),
            ]
            .map(|(kind, n, what)| new(kind, n, what))
            .to_vec();
            if tracked {
                s.running = ["running_m", "running_v"]
                    .map(|w| new(Weight, c, w))
                    .to_vec();
            }
        }
        Op::Add => s.out = Some(new(Activation, size_in, "out")),
        Op::Concat => {
            let mut new_d_in = |&n| new(Gradient, n, "d_in");
            s.d_in = producers.iter().map(&mut new_d_in).collect();
            s.out = Some(new(Activation, size_out, "out"));
        }
    }
    s.x = x;
    g.layers[i].tensors = s;
}

/// Finds each layer's output gradients. They are the input gradients of its users; an
/// addition passes its own on.
fn output_gradients(t: &mut Trace, g: &mut Graph) {
    for i in (0..g.layers.len()).rev() {
        let l = &g.layers[i];
        let d_out = if l.next.is_empty() {
            let [c, h, w] = l.output;
            let n = g.batch.saturating_mul(c * h * w);
            vec![tensor(t, Kind::Gradient, n, &format!("{i}.d_out"))]
        } else {
            l.next
                .iter()
                .filter_map(|&n| {
                    let user = &g.layers[n];
                    match user.op {
                        Op::Add => user.tensors.d_out.first().copied(),
                        Op::Concat => {
                            let place = user.prev.iter().position(|&p| p == i)?;
                            user.tensors.d_in.get(place).copied()
                        }
                        _ => user.tensors.d_in.first().copied(),
                    }
                })
                .collect()
        };
        g.layers[i].tensors.d_out = d_out;
    }
}

/// Adds a kernel over those of the tensors that there are.
fn run(t: &mut Trace, name: &str, reads: &[Option<TensorId>], writes: &[Option<TensorId>]) {
    let there = |list: &[Option<TensorId>]| list.iter().flatten().copied().collect::<Vec<_>>();
    kernel(t, name, &there(reads), &there(writes));
}

/// What the artifact calls kernels of this kind.
fn name(op: &Op) -> &'static str {
    match op {
        Op::Conv(..) => "Conv2d",
        Op::Relu(_) => "ReLU",
        Op::MaxPool(_) => "MaxPool2d",
        Op::AvgPool(_) => "AdaptiveAvgPool2d",
        Op::Scale => "Scale",
        Op::Dropout(_) => "Dropout",
        Op::Linear(..) => "Linear",
        Op::BatchNorm(_) => "BatchNorm2d",
        Op::Add => "Add",
        Op::Concat => "Concat",
    }
}

fn forward(t: &mut Trace, l: &Layer) {
    let s = &l.tensors;
    let (mut reads, mut writes) = (s.x.clone(), s.running.clone());
    match l.op {
        Op::Dropout(_) => reads.extend(s.mask),
        _ => reads.extend(s.weight.into_iter().chain(s.bias)),
    }
    reads.extend(&s.running);
    writes.extend(s.out);
    writes.extend(s.norm.iter().take(4));
    kernel(t, &format!("{}_Forward", name(&l.op)), &reads, &writes);
}

fn backward(t: &mut Trace, l: &Layer) {
    let s = &l.tensors;
    let Some(&first) = s.d_out.first() else {
        return;
    };
    if s.d_out.len() > 1 {
        kernel(t, "Add_MultiGredient", &s.d_out, &[first]);
    }
    let (g, x, d_in) = (Some(first), s.x.first().copied(), s.d_in.first().copied());
    let mut run = |what: &str, reads: &[Option<TensorId>], write: Option<TensorId>| {
        run(t, &format!("{}_{what}", name(&l.op)), reads, &[write]);
    };
    let update = [s.d_weight, s.weight];
    match l.op {
        Op::Conv(..) => {
            run("Backward_Weight", &[g, x], s.d_weight);
            run("Backward_Input", &[g, s.weight], d_in);
            run("Apply_Grad", &update, s.weight);
        }
        Op::Relu(_) | Op::AvgPool(_) | Op::MaxPool(_) => run("Backward", &[x, g], d_in),
        Op::Dropout(_) => run("Backward", &[s.mask, g], d_in),
        Op::Linear(..) => {
            if s.bias.is_some() {
                run("Backward_Bias", &[g], s.d_bias);
                run("Apply_Grad_Bias", &[s.d_bias, s.bias], s.bias);
            }
            run("Backward_Weight", &[g, x], s.d_weight);
            run("Backward_Input", &[s.weight, g], d_in);
            run("Apply_Grad_Weight", &update, s.weight);
        }
        Op::BatchNorm(_) => {
            let kept = [first, s.norm[2], s.norm[3]].into_iter();
            let reads: Vec<_> = kept.chain(s.weight).collect();
            let d_weight: Vec<_> = s.d_weight.into_iter().collect();
            let writes = [&s.d_in[..], &d_weight, &s.norm[4..]].concat();
            kernel(t, "BatchNorm2d_Backward", &reads, &writes);
            self::run(t, "BatchNorm2d_Apply_Grad", &update, &[s.weight]);
        }
        Op::Concat => kernel(t, "Concat_Backward", &[first], &s.d_in),
        Op::Scale => run("Backward", &[g], d_in),
        Op::Add => {}
    }
}
