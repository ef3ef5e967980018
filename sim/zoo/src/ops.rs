// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Operators: shapes, arithmetic, what each keeps for backward.
//!
//! The saved tensors are those of PyTorch's autograd formulas: a convolution or
//! product keeps its inputs, ReLU, tanh, sigmoid and softmax their output,
//! batch and layer normalisation their input and two statistics, max pooling its
//! indices, dropout a byte mask. Root mean square normalisation, rotary positions and
//! attention without stored scores are one kernel each, as in the libraries that fuse them.

use uvmsim_trace::TensorId;

use crate::net::Back;
use crate::net::Forward;
use crate::net::Net;
use crate::net::Val;
use crate::roofline::Class::Product;
use crate::roofline::Class::Vector;

/// A convolution's shape: output channels, kernel, stride, padding, groups.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// How many channels the output has.
    pub out: u64,
    /// Height and width of the kernel.
    pub kernel: [u64; 2],
    /// Pixels from one place of the kernel to the next.
    pub stride: u64,
    /// Padding in height and width.
    pub pad: [u64; 2],
    /// Into how many groups of channels it falls.
    pub groups: u64,
    /// Whether it has a bias.
    pub bias: bool,
    /// Whether it is transposed.
    pub transposed: bool,
}

impl Conv {
    /// `out` channels, a square kernel with "same" padding, stride 1, no bias.
    pub fn new(out: u64, kernel: u64) -> Self {
        Self {
            out,
            kernel: [kernel; 2],
            stride: 1,
            pad: [kernel / 2; 2],
            groups: 1,
            bias: false,
            transposed: false,
        }
    }

    /// The same convolution with this stride.
    pub fn stride(self, stride: u64) -> Self {
        Self { stride, ..self }
    }

    /// The same convolution with this padding.
    pub fn pad(self, pad: u64) -> Self {
        Self {
            pad: [pad; 2],
            ..self
        }
    }

    /// With a kernel of height `h` and width `w`, padded to keep the shape.
    pub fn rect(self, h: u64, w: u64) -> Self {
        Self {
            kernel: [h, w],
            pad: [h / 2, w / 2],
            ..self
        }
    }

    /// In this many groups.
    pub fn groups(self, groups: u64) -> Self {
        Self { groups, ..self }
    }

    /// The same convolution with a bias.
    pub fn bias(self) -> Self {
        Self { bias: true, ..self }
    }

    /// The same convolution, but transposed.
    pub fn transposed(self) -> Self {
        Self {
            transposed: true,
            ..self
        }
    }

    fn output(&self, x: Val) -> [u64; 4] {
        let side = |i: usize| {
            let (n, k, p) = (x.shape[2 + i], self.kernel[i], self.pad[i]);
            if self.transposed {
                (n - 1) * self.stride + k - 2 * p
            } else {
                (n + 2 * p - k) / self.stride + 1
            }
        };
        [x.shape[0], self.out, side(0), side(1)]
    }
}

/// What normalisation learns that shifts as well as scales.
const SHIFTED: [&str; 2] = ["weight", "bias"];

impl Net {
    /// The operator that makes `y`, with gradients of its own for all that it is made of.
    fn done(&mut self, name: &str, y: Val, forward: Forward, backs: Vec<Back>) -> Val {
        self.op(name, y, forward, backs, &[])
    }

    /// An operator of one value, to a new one of `shape`, whose backward takes as many operations
    /// and reads `saved`.
    fn map(&mut self, name: &str, x: Val, shape: [u64; 4], flops: u64, saved: &[TensorId]) -> Val {
        let y = self.output(name, shape);
        let back = Back::new("backward", Vector, flops, saved).of(x);
        let forward = Forward::new(Vector, flops, &[x.tensor]);
        self.done(name, y, forward, vec![back])
    }

    /// A convolution, as `c` describes it.
    pub fn conv(&mut self, name: &str, x: Val, c: Conv) -> Val {
        let shape = c.output(x);
        let per_output = x.shape[1] / c.groups * c.kernel[0] * c.kernel[1];
        let weight = self.param(&format!("{name}.weight"), c.out * per_output);
        let bias = c.bias.then(|| self.param(&format!("{name}.bias"), c.out));
        let y = self.output(name, shape);
        // Each element of the larger side meets each weight of its group once.
        let positions = if c.transposed {
            x.shape[0] * x.shape[2] * x.shape[3]
        } else {
            y.shape[0] * y.shape[2] * y.shape[3]
        };
        let flops = 2 * positions * c.out * per_output;
        let mut reads = vec![x.tensor, weight];
        reads.extend(bias);
        let backs = vec![
            Back::new("grad_weight", Product, flops, &[x.tensor]).of_param(weight),
            Back::new("grad_input", Product, flops, &[weight]).of(x),
        ];
        let backs = bias
            .map(|b| Back::new("grad_bias", Vector, y.size(), &[]).of_param(b))
            .into_iter()
            .chain(backs)
            .collect();
        self.done(name, y, Forward::new(Product, flops, &reads), backs)
    }

    /// A linear layer over rows: `[rows, columns]` to `[rows, out]`.
    pub fn linear(&mut self, name: &str, x: Val, out: u64, bias: bool) -> Val {
        let weight = self.param(&format!("{name}.weight"), x.shape[1] * out);
        self.linear_with(name, x, weight, out, bias)
    }

    /// A linear layer with a weight that may be another layer's.
    pub fn linear_with(
        &mut self,
        name: &str,
        x: Val,
        weight: TensorId,
        out: u64,
        bias: bool,
    ) -> Val {
        let bias = bias.then(|| self.param(&format!("{name}.bias"), out));
        let y = self.output(name, [x.shape[0], out, 1, 1]);
        let flops = 2 * x.shape[0] * x.shape[1] * out;
        let mut reads = vec![x.tensor, weight];
        reads.extend(bias);
        let mut backs = vec![
            Back::new("grad_input", Product, flops, &[weight]).of(x),
            Back::new("grad_weight", Product, flops, &[x.tensor]).of_param(weight),
        ];
        backs.extend(bias.map(|b| Back::new("grad_bias", Vector, y.size(), &[]).of_param(b)));
        self.done(name, y, Forward::new(Product, flops, &reads), backs)
    }

    /// A batch of products, `flops` in all, of two values.
    pub fn matmul(&mut self, name: &str, a: Val, b: Val, shape: [u64; 4], flops: u64) -> Val {
        let y = self.output(name, shape);
        let backs = vec![
            Back::new("grad_a", Product, flops, &[b.tensor]).of(a),
            Back::new("grad_b", Product, flops, &[a.tensor]).of(b),
        ];
        let forward = Forward::new(Product, flops, &[a.tensor, b.tensor]);
        self.done(name, y, forward, backs)
    }

    /// Batch normalisation over channels.
    pub fn batch_norm(&mut self, name: &str, x: Val) -> Val {
        let running = ["running_mean", "running_var"];
        self.norm(name, x, x.shape[1], [5, 8], &SHIFTED, &running)
    }

    /// Layer normalisation of each row.
    pub fn layer_norm(&mut self, name: &str, x: Val) -> Val {
        self.norm(name, x, x.shape[0], [7, 10], &SHIFTED, &[])
    }

    /// Root mean square normalisation of each row (Zhang, Sennrich, 2019).
    pub fn rms_norm(&mut self, name: &str, x: Val) -> Val {
        self.norm(name, x, x.shape[0], [5, 8], &["weight"], &[])
    }

    /// Normalisation of so many `groups`: keeps a statistic of each for each of the `learned`
    /// parameters, and changes those that are `running`. It takes so many operations an element,
    /// forward and backward.
    fn norm(
        &mut self,
        name: &str,
        x: Val,
        groups: u64,
        flops: [u64; 2],
        learned: &[&str],
        running: &[&str],
    ) -> Val {
        let learned = learned.iter().map(|what| format!("{name}.{what}"));
        let learned: Vec<_> = learned.map(|path| self.param(&path, x.shape[1])).collect();
        let running = running.iter().map(|what| format!("{name}.{what}"));
        let running: Vec<_> = running.map(|path| self.buffer(&path, groups)).collect();
        let statistics = learned.len() as u64 * groups * 4;
        let saved = self.saved(&format!("{name}.statistics"), statistics);
        let y = self.output(name, x.shape);
        let [forward, backward] = flops.map(|f| f * x.size());
        let back = Back::new("backward", Vector, backward, &[x.tensor, learned[0], saved]).of(x);
        let back = learned.iter().fold(back, |b, &p| b.of_param(p));
        let reads = [&[x.tensor], &learned[..], &running[..]].concat();
        let saves = [&[saved], &running[..]].concat();
        let forward = Forward::new(Vector, forward, &reads).saving(&saves);
        self.done(name, y, forward, vec![back])
    }

    /// An activation in place, whose gradient is computed from its output.
    pub fn relu(&mut self, name: &str, x: Val) -> Val {
        let y = self.again(x);
        let back = Back::new("backward", Vector, x.size(), &[y.tensor]).of(x);
        let forward = Forward::new(Vector, x.size(), &[x.tensor]);
        self.done(name, y, forward, vec![back.in_place()])
    }

    /// An elementwise function with a new output; backward reads its output.
    pub fn from_output(&mut self, name: &str, x: Val, flops: u64) -> Val {
        let y = self.output(name, x.shape);
        let flops = flops * x.size();
        let back = Back::new("backward", Vector, flops, &[y.tensor]).of(x);
        self.done(
            name,
            y,
            Forward::new(Vector, flops, &[x.tensor]),
            vec![back],
        )
    }

    /// GELU, whose backward reads its input.
    pub fn gelu(&mut self, name: &str, x: Val) -> Val {
        self.map(name, x, x.shape, 20 * x.size(), &[x.tensor])
    }

    /// SiLU, whose backward reads its input.
    pub fn silu(&mut self, name: &str, x: Val) -> Val {
        self.map(name, x, x.shape, 8 * x.size(), &[x.tensor])
    }

    /// Rotary positions of a query's or a key's heads (Su et al., 2021). Nothing is kept: the
    /// gradient turns back by the same angles.
    pub fn rotate(&mut self, name: &str, x: Val) -> Val {
        self.map(name, x, x.shape, 3 * x.size(), &[])
    }

    /// Causal attention of `heads` over samples of `tokens` rows without stored scores (Dao, 2023:
    /// FlashAttention-2): of each row's, a logarithm of their sum is kept.
    pub fn flash_attention(&mut self, name: &str, qkv: [Val; 3], heads: u64, tokens: u64) -> Val {
        let [q, k, v] = qkv;
        let (rows, reads) = (q.shape[0], qkv.map(|x| x.tensor));
        let sums = self.saved(&format!("{name}.logsumexp"), rows * heads * 4);
        let y = self.output(name, q.shape);
        // Half of each product of all rows, as later tokens are masked: two of them forward,
        // five backward, which makes the scores again.
        let product = rows * tokens * q.shape[1];
        let saved = [&reads[..], &[y.tensor, sums]].concat();
        let back = Back::new("backward", Product, 5 * product, &saved).of(q);
        let forward = Forward::new(Product, 2 * product, &reads).saving(&[sums]);
        self.done(name, y, forward, vec![back.of(k).of(v)])
    }

    /// The hyperbolic tangent of each element.
    pub fn tanh(&mut self, name: &str, x: Val) -> Val {
        self.from_output(name, x, 8)
    }

    /// The logistic function of each element.
    pub fn sigmoid(&mut self, name: &str, x: Val) -> Val {
        self.from_output(name, x, 6)
    }

    /// Softmax of each row, with its scale and mask.
    pub fn softmax(&mut self, name: &str, x: Val) -> Val {
        self.from_output(name, x, 6)
    }

    /// Dropout; keeps a byte a element.
    pub fn dropout(&mut self, name: &str, x: Val) -> Val {
        let mask = self.saved(&format!("{name}.mask"), x.size());
        let y = self.output(name, x.shape);
        let back = Back::new("backward", Vector, x.size(), &[mask]).of(x);
        let forward = Forward::new(Vector, 4 * x.size(), &[x.tensor]).saving(&[mask]);
        self.done(name, y, forward, vec![back])
    }

    /// Max pooling; keeps an 8-byte index for each output.
    pub fn max_pool(
        &mut self,
        name: &str,
        x: Val,
        kernel: u64,
        stride: u64,
        pad: u64,
        ceil: bool,
    ) -> Val {
        let side = |n: u64| {
            let room = n + 2 * pad - kernel;
            (room + if ceil { stride - 1 } else { 0 }) / stride + 1
        };
        let shape = [x.shape[0], x.shape[1], side(x.shape[2]), side(x.shape[3])];
        let y = self.output(name, shape);
        let index = self.saved(&format!("{name}.index"), y.size() * 8);
        let flops = y.size() * kernel * kernel;
        let back = Back::new("backward", Vector, flops, &[x.tensor, index]).of(x);
        let forward = Forward::new(Vector, flops, &[x.tensor]).saving(&[index]);
        self.done(name, y, forward, vec![back])
    }

    /// Average pooling to `side` × `side`.
    pub fn avg_pool_to(&mut self, name: &str, x: Val, side: u64) -> Val {
        self.map(name, x, [x.shape[0], x.shape[1], side, side], x.size(), &[])
    }

    /// Average pooling that keeps the shape (3 × 3, stride 1, padded).
    pub fn avg_pool_same(&mut self, name: &str, x: Val) -> Val {
        self.map(name, x, x.shape, x.size(), &[])
    }

    /// The sum of two values; the gradient of both is the sum's.
    pub fn add(&mut self, name: &str, a: Val, b: Val) -> Val {
        let y = self.output(name, a.shape);
        self.sum(name, y, a, b)
    }

    fn sum(&mut self, name: &str, y: Val, a: Val, b: Val) -> Val {
        let forward = Forward::new(Vector, a.size(), &[a.tensor, b.tensor]);
        self.op(name, y, forward, Vec::new(), &[a, b])
    }

    /// Adds `b` to `a` in place.
    pub fn add_in_place(&mut self, name: &str, a: Val, b: Val) -> Val {
        let y = self.again(a);
        self.sum(name, y, a, b)
    }

    /// Each element of `x` times that of `s`, or each channel times the channel's.
    pub fn scale(&mut self, name: &str, x: Val, s: Val) -> Val {
        let y = self.output(name, x.shape);
        let both = [x.tensor, s.tensor];
        let back = Back::new("backward", Vector, 3 * x.size(), &both).of(x);
        let forward = Forward::new(Vector, x.size(), &both);
        self.done(name, y, forward, vec![back.of(s)])
    }

    /// Channels of several values, side by side.
    pub fn concat(&mut self, name: &str, xs: &[Val]) -> Val {
        let mut shape = xs[0].shape;
        shape[1] = xs.iter().map(|x| x.shape[1]).sum();
        let y = self.output(name, shape);
        let reads: Vec<_> = xs.iter().map(|x| x.tensor).collect();
        let back = Back::new("backward", Vector, y.size(), &[]);
        let back = xs.iter().fold(back, |b, &x| b.of(x));
        self.done(name, y, Forward::new(Vector, y.size(), &reads), vec![back])
    }

    /// A copy in another order (a transposition made contiguous).
    pub fn copy(&mut self, name: &str, x: Val, shape: [u64; 4]) -> Val {
        self.map(name, x, shape, 0, &[])
    }

    /// Patches `[batch, hidden, h, w]` as rows, with learned tokens and positions.
    pub fn tokens(&mut self, name: &str, x: Val, params: &[TensorId], shape: [u64; 4]) -> Val {
        let y = self.output(name, shape);
        let mut reads = vec![x.tensor];
        reads.extend(params);
        let back = Back::new("backward", Vector, y.size(), &[]).of(x);
        let back = params.iter().fold(back, |b, &p| b.of_param(p));
        self.done(name, y, Forward::new(Vector, y.size(), &reads), vec![back])
    }

    /// A copy of some rows; the gradient is zero in the others.
    pub fn copy_part(&mut self, name: &str, x: Val, shape: [u64; 4]) -> Val {
        let y = self.output(name, shape);
        let bytes = 2 * y.size() * self.elem;
        let back = Back::new("backward", Vector, 0, &[]).of(x);
        let forward = Forward::new(Vector, 0, &[x.tensor]).moving(bytes);
        self.done(name, y, forward, vec![back])
    }

    /// Dot products of pairs of vectors of one value.
    pub fn pairs(&mut self, name: &str, x: Val, shape: [u64; 4], flops: u64) -> Val {
        let y = self.output(name, shape);
        let back = Back::new("backward", Product, 2 * flops, &[x.tensor]).of(x);
        let forward = Forward::new(Product, flops, &[x.tensor]);
        self.done(name, y, forward, vec![back])
    }

    /// Rows of a table looked up by index. Its gradient is dense: as large as the
    /// table.
    pub fn embedding(
        &mut self,
        name: &str,
        table: TensorId,
        index: Val,
        dim: u64,
        shape: [u64; 4],
    ) -> Val {
        let y = self.output(name, shape);
        let rows = index.size() * dim * self.elem;
        let back =
            Back::new("grad_weight", Vector, index.size() * dim, &[index.tensor]).of_param(table);
        let forward = Forward::new(Vector, 0, &[index.tensor, table]).moving(2 * rows);
        self.done(name, y, forward, vec![back])
    }

    /// Mean cross-entropy of rows of logits: log-softmax, then the loss.
    pub fn cross_entropy(&mut self, x: Val) -> Val {
        let target = self.input("target", [x.shape[0], 1, 1, 1], 8);
        let p = self.from_output("log_softmax", x, 6);
        let loss = self.output("loss", [1, 1, 1, 1]);
        let back = Back::new("backward", Vector, p.size(), &[target.tensor]).of(p);
        let forward = Forward::new(Vector, p.shape[0], &[p.tensor, target.tensor]);
        self.done("loss", loss, forward, vec![back])
    }

    /// Mean binary cross-entropy, or squared error, of all elements.
    pub fn simple_loss(&mut self, name: &str, x: Val) -> Val {
        let target = self.input(&format!("{name}.target"), x.shape, 4);
        let loss = self.output(name, [1, 1, 1, 1]);
        let back = Back::new("backward", Vector, 4 * x.size(), &[x.tensor, target.tensor]).of(x);
        let forward = Forward::new(Vector, 4 * x.size(), &[x.tensor, target.tensor]);
        self.done(name, loss, forward, vec![back])
    }
}
