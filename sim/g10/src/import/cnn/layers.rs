// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Layers, their shapes and who uses whom.

use uvmsim_trace::TensorId;

/// A layer's number, which is its place in execution order.
pub(super) type LayerId = usize;

/// Channels, height and width of an input.
pub(super) type Shape = [u64; 3];

/// Size, stride and padding of a window that goes over a side of the input.
pub(super) type Window = [u64; 3];

/// What a layer computes.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Channels in and out; the window over the height, and over the width.
    Conv([u64; 2], [Window; 2]),
    /// Whether running statistics are kept.
    BatchNorm(bool),
    /// Whether it works in place; so with dropout.
    Relu(bool),
    Dropout(bool),
    MaxPool(Window),
    /// Height and width of the output.
    AvgPool([u64; 2]),
    /// Features in and out; whether it has a bias.
    Linear([u64; 2], bool),
    Add,
    Concat,
    Scale,
}

/// A layer, between those that make its inputs and those that use its output.
pub(super) struct Layer {
    pub op: Op,
    /// Producers of its inputs, in order.
    pub prev: Vec<LayerId>,
    /// Users of its output, in order.
    pub next: Vec<LayerId>,
    pub input: Shape,
    pub output: Shape,
    pub tensors: Tensors,
}

/// A layer's tensors; those that its kind lacks are `None`.
#[derive(Default)]
pub(super) struct Tensors {
    pub x: Vec<TensorId>,
    pub out: Option<TensorId>,
    pub weight: Option<TensorId>,
    pub bias: Option<TensorId>,
    pub d_weight: Option<TensorId>,
    pub d_bias: Option<TensorId>,
    /// Gradients of the inputs.
    pub d_in: Vec<TensorId>,
    /// Gradients of the output, one for each use.
    pub d_out: Vec<TensorId>,
    /// A dropout's mask, a number for each element.
    pub mask: Option<TensorId>,
    /// A batch norm's mu, var, v1, v2, d_mu, d_var, d_v1, d_v2.
    pub norm: Vec<TensorId>,
    /// A batch norm's running mean and variance.
    pub running: Vec<TensorId>,
}

/// The network as its layers, in execution order.
pub(super) struct Graph {
    pub batch: u64,
    pub layers: Vec<Layer>,
}

impl Graph {
    pub(super) fn new(batch: u64) -> Self {
        Self {
            batch,
            layers: Vec::new(),
        }
    }

    pub(super) fn add_first(&mut self, op: Op, input: Shape) -> LayerId {
        self.push(op, Vec::new(), input)
    }

    /// Adds a layer behind `prev`, which must not be empty.
    pub(super) fn add(&mut self, op: Op, prev: &[LayerId]) -> LayerId {
        let mut input = self.layers[prev[0]].output;
        if matches!(op, Op::Concat) {
            let channels = prev.iter().map(|&p| self.layers[p].output[0]);
            input[0] = channels.sum::<u64>().min(1 << 24);
        }
        self.push(op, prev.to_vec(), input)
    }

    fn push(&mut self, op: Op, prev: Vec<LayerId>, input: Shape) -> LayerId {
        let id = self.layers.len();
        for &p in &prev {
            self.layers[p].next.push(id);
        }
        let output = output_shape(&op, input);
        let tensors = Tensors::default();
        self.layers.push(Layer {
            op,
            prev,
            next: Vec::new(),
            input,
            output,
            tensors,
        });
        id
    }

    /// Gives a Scale the height and width of `like`'s output.
    pub(super) fn set_scale_like(&mut self, scale: LayerId, like: LayerId) {
        let [_, h, w] = self.layers[like].output;
        let [c, ..] = self.layers[scale].input;
        self.layers[scale].output = [c, h, w];
    }

    /// Whether `op` can follow layer `x`.
    pub(super) fn check(&self, op: &Op, x: LayerId) -> Result<(), String> {
        self.check_size(op, self.layers[x].output)
    }

    /// Whether `op` can work on an input of that shape.
    pub(super) fn check_size(&self, op: &Op, [c, h, w]: Shape) -> Result<(), String> {
        let fits = |[k, stride, pad]: Window, side: u64| {
            stride > 0 && k > 0 && side + 2 * pad >= k && side < 1 << 20 && pad < 1 << 20
        };
        match *op {
            Op::Conv([cin, _], _) if cin != c => {
                Err(format!("it takes {cin} channels and is given {c}"))
            }
            Op::Linear([0, _], _) => Err("it has no inputs".into()),
            _ => match window(op) {
                Some([high, wide]) if !fits(high, h) || !fits(wide, w) => {
                    Err(format!("its window does not fit an input of {h} x {w}"))
                }
                _ => Ok(()),
            },
        }
    }
}

/// The windows that go over the input's height, and over its width.
fn window(op: &Op) -> Option<[Window; 2]> {
    match *op {
        Op::Conv(_, windows) => Some(windows),
        Op::MaxPool(window) => Some([window; 2]),
        _ => None,
    }
}

fn output_shape(op: &Op, [c, h, w]: Shape) -> Shape {
    if let Some([high, wide]) = window(op) {
        let places = |[k, s, p]: Window, side: u64| (side + 2 * p - k) / s + 1;
        let channels = match *op {
            Op::Conv([_, cout], _) => cout,
            _ => c,
        };
        return [channels, places(high, h), places(wide, w)];
    }
    match *op {
        Op::AvgPool(out) => [c, out[0], out[1]],
        Op::Linear([fin, fout], _) => {
            // Far beyond any network; keeps later products in range.
            let features = c.saturating_mul(h).saturating_mul(w) / fin;
            [features.saturating_mul(fout).min(1 << 24), 1, 1]
        }
        _ => [c, h, w],
    }
}
