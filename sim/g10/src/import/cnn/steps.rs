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
        Op::Conv {
            cin, cout, kernel, ..
        } => {
            if l.prev.is_empty() {
                x.push(new(Activation, size_in, "input"));
            }
            let weights = cout * cin * kernel[0] * kernel[1];
            s.out = Some(new(Activation, size_out, "out"));
            s.weight = Some(new(Weight, weights, "weight"));
            s.d_weight = Some(new(Gradient, weights, "d_weight"));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
        }
        Op::Relu { inplace } => {
            s.out = if inplace { x.first().copied() } else { None };
            s.out = s.out.or_else(|| Some(new(Activation, size_in, "out")));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
        }
        Op::Dropout { inplace } => {
            s.mask = Some(new(Activation, size_in, "mask"));
            s.out = if inplace { x.first().copied() } else { None };
            s.out = s.out.or_else(|| Some(new(Activation, size_in, "out")));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
        }
        Op::MaxPool { .. } | Op::AvgPool { .. } | Op::Scale => {
            s.out = Some(new(Activation, size_out, "out"));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
        }
        Op::Linear { fin, fout, bias } => {
            s.weight = Some(new(Weight, fin * fout, "weight"));
            s.out = Some(new(Activation, size_out, "out"));
            s.d_in = vec![new(Gradient, size_in, "d_in")];
            s.d_weight = Some(new(Gradient, fin * fout, "d_weight"));
            if bias {
                s.bias = Some(new(Weight, fout, "bias"));
                s.d_bias = Some(new(Gradient, fout, "d_bias"));
            }
        }
        Op::BatchNorm { tracked } => {
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

fn forward(t: &mut Trace, l: &Layer) {
    let s = &l.tensors;
    let mut run = |name: &str, more: &[Option<TensorId>]| {
        let x: Vec<_> = s.x.iter().copied().map(Some).collect();
        run(t, name, &[&x, more].concat(), &[s.out]);
    };
    match l.op {
        Op::Conv { .. } => run("Conv2d_Forward", &[s.weight]),
        Op::Relu { .. } => run("ReLU_Forward", &[]),
        Op::MaxPool { .. } => run("MaxPool2d_Forward", &[]),
        Op::AvgPool { .. } => run("AdaptiveAvgPool2d_Forward", &[]),
        Op::Scale => run("Scale_Forward", &[]),
        Op::Dropout { .. } => run("Dropout_Forward", &[s.mask]),
        Op::Linear { .. } => run("Linear_Forward", &[s.weight, s.bias]),
        Op::BatchNorm { .. } => {
            let reads: Vec<_> = s.x.iter().copied().chain(s.weight).collect();
            let reads = [&reads[..], &s.running].concat();
            let out: Vec<_> = s.out.into_iter().collect();
            let writes = [&s.running[..], &out, &s.norm[..4]].concat();
            kernel(t, "BatchNorm2d_Forward", &reads, &writes);
        }
        Op::Add => run("Add_Forward", &[]),
        Op::Concat => run("Concat_Forward", &[]),
    }
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
    let mut run = |name: &str, reads: &[Option<TensorId>], write: Option<TensorId>| {
        run(t, name, reads, &[write]);
    };
    match l.op {
        Op::Conv { .. } => {
            run("Conv2d_Backward_Weight", &[g, x], s.d_weight);
            run("Conv2d_Backward_Input", &[g, s.weight], d_in);
            run("Conv2d_Apply_Grad", &[s.d_weight, s.weight], s.weight);
        }
        Op::Relu { .. } => run("ReLU_Backward", &[x, g], d_in),
        Op::AvgPool { .. } => run("AdaptiveAvgPool2d_Backward", &[x, g], d_in),
        Op::MaxPool { .. } => run("MaxPool2d_Backward", &[x, g], d_in),
        Op::Dropout { .. } => run("Dropout_Backward", &[s.mask, g], d_in),
        Op::Linear { .. } => {
            if s.bias.is_some() {
                run("Linear_Backward_Bias", &[g], s.d_bias);
                run("Linear_Apply_Grad_Bias", &[s.d_bias, s.bias], s.bias);
            }
            run("Linear_Backward_Weight", &[g, x], s.d_weight);
            run("Linear_Backward_Input", &[s.weight, g], d_in);
            let update = [s.d_weight, s.weight];
            run("Linear_Apply_Grad_Weight", &update, s.weight);
        }
        Op::BatchNorm { .. } => {
            let reads: Vec<_> = [first, s.norm[2], s.norm[3]]
                .into_iter()
                .chain(s.weight)
                .collect();
            let d_weight: Vec<_> = s.d_weight.into_iter().collect();
            let writes = [&s.d_in[..], &d_weight, &s.norm[4..]].concat();
            kernel(t, "BatchNorm2d_Backward", &reads, &writes);
            let update = [s.d_weight, s.weight];
            self::run(t, "BatchNorm2d_Apply_Grad", &update, &[s.weight]);
        }
        Op::Concat => kernel(t, "Concat_Backward", &[first], &s.d_in),
        Op::Scale => run("Scale_Backward", &[g], d_in),
        Op::Add => {}
    }
}
