// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the tests of several crates share.

use std::path::Path;
use std::path::PathBuf;

use crate::Kernel;
use crate::Kind;
use crate::Tensor;
use crate::Trace;

#[path = "../../../tests/skipped.rs"]
mod skip;

/// A step of two layers and their updates, as text; more than 40 MiB at once.
pub const STEP: &str = "uvmtrace 1
meta name small
meta batch 4
tensor 0 input 8388608 x
tensor 1 weight 8388608 w
tensor 2 activation 16777216 a
tensor 3 activation 16777216 b
tensor 4 gradient 8388608 g
tensor 5 workspace 4194304 s
kernel 0 1000000 first 0,1 2 - phase=forward
kernel 1 1000000 second 2 3 5 phase=forward
kernel 2 1000000 makeLoss 2,3 4 - phase=backward
kernel 3 1000000 update 1,4 1 - phase=optimizer
";

/// The folder of the G10 artifact's traces, below `$UVM_SHARED` or beside the checkout; where it
/// is not there, the test that asks for it is said to be skipped.
#[track_caller]
pub fn g10_traces() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let shared = std::env::var_os("UVM_SHARED").map_or_else(|| beside.into(), PathBuf::from);
    let traces = Some(shared.join("g10/traces")).filter(|dir| Path::is_dir(dir));
    if traces.is_none() {
        skip::skipped("no G10 traces (set UVM_SHARED)");
    }
    traces
}

/// A chain of layers, forward and back, of the bytes of their activation and of their weight,
/// and of so many nanoseconds: each keeps the activation for its backward kernel.
pub fn chain(layers: &[(u64, u64, u64)]) -> Trace {
    let mut t = Trace::new("random", 1);
    let mut weights = Vec::new();
    let first = 1 + layers.first().map_or(1, |l| l.0);
    let mut values = vec![t.add_tensor(Tensor::new(Kind::Input, first, "x"))];
    let add = |t: &mut Trace, name: &str, ns, reads, writes| {
        t.kernels.push(Kernel {
            reads,
            writes,
            ..Kernel::new(name, ns)
        });
    };
    for (i, &(activation, weight, ns)) in layers.iter().enumerate() {
        let w = t.add_tensor(Tensor::new(Kind::Weight, weight, "w"));
        let a = t.add_tensor(Tensor::new(Kind::Activation, activation, "a"));
        add(&mut t, "forward", ns, vec![values[i], w], vec![a]);
        weights.push(w);
        values.push(a);
    }
    let mut grad = t.add_tensor(Tensor::new(Kind::Gradient, 4096, "loss"));
    let last = vec![values[layers.len()]];
    add(&mut t, "makeLoss", 1000, last, vec![grad]);
    for (i, &(activation, _, ns)) in layers.iter().enumerate().rev() {
        let g = t.add_tensor(Tensor::new(Kind::Gradient, activation, "g"));
        let reads = vec![grad, values[i], weights[i]];
        add(&mut t, "backward", ns, reads, vec![g, weights[i]]);
        grad = g;
    }
    t
}
