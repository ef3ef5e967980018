// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A network as a tape: forward kernels in order, each with what its backward
//! needs; [`Net::train`] turns it into a training step.
//!
//! The rules are those of an eager framework (PyTorch). An operator's output is a
//! new tensor unless the operator works in place, and what backward reads stays alive until
//! then. A second gradient of the same value is a new tensor and an addition. A
//! parameter's gradient lives from its first kernel to the optimizer's.

use std::collections::HashMap;

use serde::Deserialize;
use uvmsim_machine::Machine;
use uvmsim_trace::Kernel;
use uvmsim_trace::Kind;
use uvmsim_trace::Phase;
use uvmsim_trace::Tensor;
use uvmsim_trace::TensorId;
use uvmsim_trace::Trace;

use crate::roofline::Class;
use crate::roofline::Cost;

/// One training step: forward, backward, optimizer.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The tensors, whose names are unique, and the kernels in order: `layer3.1.conv2.forward`.
    /// Durations and phases are those of [`Step::timed`].
    pub trace: Trace,
    /// What each kernel costs.
    pub costs: Vec<Cost>,
    /// Number of the first backward and of the first optimizer kernel.
    pub phases: [usize; 2],
    /// Learned parameters, in elements.
    pub parameters: u64,
}

impl Step {
    /// The step as a trace, with durations from `machine`'s roofline.
    pub fn timed(mut self, machine: &Machine, precision: Precision) -> Trace {
        let source = format!("uvmsim zoo, roofline of {}", machine.preset);
        self.trace.set_meta("source", &source);
        let kernels = self.trace.kernels.iter_mut().zip(&self.costs);
        for (i, (kernel, cost)) in kernels.enumerate() {
            kernel.duration_ns = cost.nanoseconds(machine, precision);
            kernel.phase = Some(match i {
                i if i < self.phases[0] => Phase::Forward,
                i if i < self.phases[1] => Phase::Backward,
                _ => Phase::Optimizer,
            });
        }
        self.trace
    }
}

/// A value of the network: a tensor and the shape it is seen in.
///
/// Two values may share a tensor (a view, an operator in place); gradients
/// belong to values.
#[derive(Clone, Copy, Debug)]
pub struct Val {
    id: usize,
    /// The tensor that holds the value.
    pub tensor: TensorId,
    /// Batch, channels, height, width; or rows, columns, 1, 1.
    pub shape: [u64; 4],
}

impl Val {
    /// How many elements the value has.
    pub fn size(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// What a backward kernel makes.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// The gradient of a value.
    Val(Val),
    /// The gradient of a parameter.
    Param(TensorId),
}

/// A kernel of an operator's backward.
#[derive(Clone, Debug)]
pub struct Back {
    what: &'static str,
    reads: Vec<TensorId>,
    targets: Vec<Target>,
    flops: u64,
    class: Class,
    in_place: bool,
}

impl Back {
    /// A backward kernel `what`, reading the output's gradient and `saved`.
    pub fn new(what: &'static str, class: Class, flops: u64, saved: &[TensorId]) -> Self {
        Self {
            what,
            reads: saved.to_vec(),
            targets: Vec::new(),
            flops,
            class,
            in_place: false,
        }
    }

    /// Makes the gradient of `v`.
    pub fn of(mut self, v: Val) -> Self {
        self.targets.push(Target::Val(v));
        self
    }

    /// Makes the gradient of parameter `p`.
    pub fn of_param(mut self, p: TensorId) -> Self {
        self.targets.push(Target::Param(p));
        self
    }

    /// Overwrites the output's gradient with the input's.
    pub fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }
}

#[derive(Clone, Debug)]
struct Node {
    name: String,
    out: Val,
    backs: Vec<Back>,
    /// Values whose gradient is the output's own (addition, view).
    passes: Vec<Val>,
}

/// A forward pass whose backward pass comes after other forward passes.
pub struct Suspended(Vec<Node>);

/// How parameters are updated.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Stochastic gradient descent without state.
    Sgd,
    /// With one momentum per parameter.
    Momentum,
    /// Two moments per parameter.
    Adam,
}

impl Optimizer {
    /// State tensors per parameter.
    pub fn states(self) -> &'static [&'static str] {
        match self {
            Self::Sgd => &[],
            Self::Momentum => &["momentum"],
            Self::Adam => &["exp_avg", "exp_avg_sq"],
        }
    }
}

/// The number format of a step.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// FP32 throughout, products on CUDA cores.
    Fp32,
    /// FP32 tensors, products on TF32 tensor cores.
    Tf32,
    /// FP16 tensors, with FP32 optimizer states and master weights.
    Fp16,
    /// The same in bfloat16, whose products run at FP16's rate.
    Bf16,
}

impl Precision {
    /// Bytes of an activation's element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp32 | Self::Tf32 => 4,
            Self::Fp16 | Self::Bf16 => 2,
        }
    }
}

/// A network under construction.
#[derive(Default)]
pub struct Net {
    step: Step,
    /// Samples in the step.
    pub batch: u64,
    nodes: Vec<Node>,
    /// Parameters by path, so that a layer built twice shares them.
    params: HashMap<String, TensorId>,
    /// Parameters that have a gradient, and the gradient.
    param_grads: Vec<(TensorId, TensorId)>,
    /// How often each tensor name was given.
    names: HashMap<String, u32>,
    scope: Vec<String>,
    /// The part of the forward pass that is being built, and how many have begun.
    part: Option<u32>,
    parts: u32,
    /// Bytes of an element.
    pub elem: u64,
    /// For each value, whether it needs a gradient.
    needs_grad: Vec<bool>,
}

impl Net {
    /// An empty network called `name`, for `batch` samples.
    pub fn new(name: &str, batch: u64, precision: Precision) -> Self {
        Self {
            step: Step {
                trace: Trace::new(name, batch),
                ..Step::default()
            },
            batch,
            elem: precision.bytes(),
            ..Self::default()
        }
    }

    /// Builds `f` with `name.` before every name.
    pub fn scope<R>(&mut self, name: &str, f: impl FnOnce(&mut Self) -> R) -> R {
        self.scope.push(name.into());
        let r = f(self);
        self.scope.pop();
        r
    }

    /// The same for a block that checkpointing would run again as a whole.
    pub fn part<R>(&mut self, name: &str, f: impl FnOnce(&mut Self) -> R) -> R {
        let outer = self.part.replace(self.parts);
        self.parts += 1;
        let r = self.scope(name, f);
        self.part = outer;
        r
    }

    /// `name` with its scope.
    pub fn path(&self, name: &str) -> String {
        let mut path = self.scope.join(".");
        if !path.is_empty() && !name.is_empty() {
            path.push('.');
        }
        path + name
    }

    fn tensor(&mut self, mut name: String, bytes: u64, kind: Kind) -> TensorId {
        let given = self.names.entry(name.clone()).or_insert(0);
        *given += 1;
        if *given > 1 {
            name = format!("{name}#{given}");
        }
        let tensor = Tensor::new(kind, bytes.max(1), &name);
        self.step.trace.add_tensor(tensor)
    }

    fn value(&mut self, tensor: TensorId, shape: [u64; 4], needs_grad: bool) -> Val {
        self.needs_grad.push(needs_grad);
        Val {
            id: self.needs_grad.len() - 1,
            tensor,
            shape,
        }
    }

    /// Data of `elem`-byte elements that the step is given.
    pub fn input(&mut self, name: &str, shape: [u64; 4], elem: u64) -> Val {
        let name = self.path(name);
        let tensor = self.tensor(name, shape.iter().product::<u64>() * elem, Kind::Input);
        self.value(tensor, shape, false)
    }

    /// The learned parameter of this name, of `len` elements.
    pub fn param(&mut self, name: &str, len: u64) -> TensorId {
        let known = self.params.len();
        let tensor = self.lasting(name, len * self.elem);
        if self.params.len() > known {
            self.step.parameters += len;
        }
        tensor
    }

    /// The buffer of this name, of `len` FP32 elements; it stays but is not
    /// learned.
    pub fn buffer(&mut self, name: &str, len: u64) -> TensorId {
        self.lasting(name, len * 4)
    }

    /// The tensor of this name, which outlives the step.
    fn lasting(&mut self, name: &str, bytes: u64) -> TensorId {
        let path = self.path(name);
        if let Some(&tensor) = self.params.get(&path) {
            return tensor;
        }
        let tensor = self.tensor(path.clone(), bytes, Kind::Weight);
        self.params.insert(path, tensor);
        tensor
    }

    /// A tensor of `bytes` that forward makes and backward reads.
    pub fn saved(&mut self, name: &str, bytes: u64) -> TensorId {
        let name = self.path(name);
        self.tensor(name, bytes, Kind::Activation)
    }

    /// A new value for the output of operator `name`.
    pub fn output(&mut self, name: &str, shape: [u64; 4]) -> Val {
        let bytes = shape.iter().product::<u64>() * self.elem;
        let name = self.path(name) + ".out";
        let tensor = self.tensor(name, bytes, Kind::Activation);
        self.value(tensor, shape, true)
    }

    /// `v` as another value of the same tensor, as after an operator in place.
    pub fn again(&mut self, v: Val) -> Val {
        self.value(v.tensor, v.shape, self.needs_grad[v.id])
    }

    /// `v`, through which no gradient flows.
    pub fn detach(&mut self, v: Val) -> Val {
        self.value(v.tensor, v.shape, false)
    }

    /// `v` seen in another shape. No kernel; its gradient is seen likewise.
    pub fn view(&mut self, v: Val, shape: [u64; 4]) -> Val {
        debug_assert_eq!(v.size(), shape.iter().product::<u64>());
        let out = self.value(v.tensor, shape, self.needs_grad[v.id]);
        self.nodes.push(Node {
            name: String::new(),
            out,
            backs: Vec::new(),
            passes: vec![v],
        });
        out
    }

    /// The operator that makes `out`, which is returned: its forward kernel, and how its gradient is
    /// computed.
    ///
    /// `passes` are values whose gradient is the output's.
    pub fn op(
        &mut self,
        name: &str,
        out: Val,
        forward: Forward,
        backs: Vec<Back>,
        passes: &[Val],
    ) -> Val {
        let path = self.path(name);
        let writes = [&[out.tensor], &forward.saves[..]].concat();
        let mut cost = self.cost(forward.class, forward.flops, &forward.reads, &writes);
        cost.bytes = forward.bytes.unwrap_or(cost.bytes);
        self.kernel(format!("{path}.forward"), cost, &forward.reads, &writes);
        if let Some(kernel) = self.step.trace.kernels.last_mut() {
            kernel.checkpoint = self.part;
        }
        self.nodes.push(Node {
            name: path,
            out,
            backs,
            passes: passes.to_vec(),
        });
        out
    }

    /// The cost of a kernel that moves each tensor as often as it is named.
    fn cost(&self, class: Class, flops: u64, reads: &[TensorId], writes: &[TensorId]) -> Cost {
        let moved = reads.iter().chain(writes);
        Cost {
            class,
            flops,
            bytes: moved.map(|&t| self.step.trace.tensor(t).bytes).sum(),
        }
    }

    /// Adds a kernel. A tensor that is named twice in a list is in it once.
    fn kernel(&mut self, name: String, cost: Cost, reads: &[TensorId], writes: &[TensorId]) {
        let mut kernel = Kernel::new(&name, 0);
        for (list, ids) in [(&mut kernel.reads, reads), (&mut kernel.writes, writes)] {
            for id in ids {
                if !list.contains(id) {
                    list.push(*id);
                }
            }
        }
        kernel.flops = Some(cost.flops);
        kernel.bytes = Some(cost.bytes);
        self.step.trace.kernels.push(kernel);
        self.step.costs.push(cost);
    }

    /// The whole step: backward from `losses`, then an update of each parameter.
    pub fn train(mut self, losses: &[Val], optimizer: Optimizer) -> Step {
        self.backward(losses);
        self.update("", optimizer);
        self.finish()
    }

    /// The step as built.
    pub fn finish(self) -> Step {
        self.step
    }

    /// Computes gradients from `losses`, values that nothing follows and whose
    /// own gradient is one. Nodes that no gradient reaches stay on the tape.
    pub fn backward(&mut self, losses: &[Val]) {
        self.begin_backward();
        // The gradient of a loss, one, is part of its first backward kernel.
        self.differentiate(losses.iter().map(|loss| (*loss, NO_TENSOR)));
    }

    /// The same from `out`, whose gradient another GPU sends.
    pub fn backward_from_sent(&mut self, out: Val) {
        self.begin_backward();
        let grad = self.tensor("sent".into(), out.size() * self.elem, Kind::Activation);
        let cost = self.cost(Class::Vector, 0, &[], &[grad]);
        self.kernel("receive".into(), cost, &[], &[grad]);
        self.differentiate([(out, grad)].into_iter());
    }

    /// What was built since the last backward pass, for [`Net::resume`] to go on with.
    pub fn suspend(&mut self) -> Suspended {
        Suspended(std::mem::take(&mut self.nodes))
    }

    /// The next backward pass is that of what was built before.
    pub fn resume(&mut self, built: Suspended) {
        self.nodes = built.0;
    }

    fn begin_backward(&mut self) {
        if self.step.phases[0] == 0 {
            self.step.phases[0] = self.step.costs.len();
        }
    }

    /// The backward pass of the tape, from values with these gradients.
    fn differentiate(&mut self, from: impl Iterator<Item = (Val, TensorId)>) {
        let nodes = std::mem::take(&mut self.nodes);
        let mut tape = Tape {
            grads: vec![None; self.needs_grad.len()],
            net: self,
        };
        for (val, grad) in from {
            tape.grads[val.id] = Some(Grad::own(grad));
        }
        let last_first = nodes.into_iter().rev();
        let mut kept: Vec<_> = last_first.filter(|node| !tape.node(node)).collect();
        kept.reverse();
        self.nodes = kept;
    }

    /// Updates every parameter under `prefix` that has a gradient, and forgets
    /// the gradients.
    pub fn update(&mut self, prefix: &str, optimizer: Optimizer) {
        if self.step.phases[1] == 0 {
            self.step.phases[1] = self.step.costs.len();
        }
        let mut grads = std::mem::take(&mut self.param_grads);
        grads.sort_unstable();
        for (param, grad) in grads {
            let name = self.step.trace.tensor(param).name.clone();
            if name.starts_with(prefix) {
                self.update_one(param, grad, &name, optimizer);
            } else {
                self.param_grads.push((param, grad));
            }
        }
    }

    fn update_one(&mut self, param: TensorId, grad: TensorId, name: &str, optimizer: Optimizer) {
        let len = self.step.trace.tensor(param).bytes / self.elem;
        let master = (self.elem != 4).then_some("master");
        let mut writes = vec![param];
        for state in optimizer.states().iter().copied().chain(master) {
            writes.push(self.tensor(format!("{name}.{state}"), len * 4, Kind::Optimizer));
        }
        let mut reads = vec![grad];
        reads.extend(&writes);
        let cost = self.cost(Class::Vector, 12 * len, &reads, &writes);
        self.kernel(format!("{name}.update"), cost, &reads, &writes);
    }
}

/// Stands for the gradient of a loss.
const NO_TENSOR: TensorId = TensorId(u32::MAX);

/// A forward kernel's side of an operator.
#[derive(Clone, Debug)]
pub struct Forward {
    class: Class,
    flops: u64,
    reads: Vec<TensorId>,
    saves: Vec<TensorId>,
    /// Bytes moved, where that is less than the tensors' sizes.
    bytes: Option<u64>,
}

impl Forward {
    /// A kernel of `flops` operations that reads `reads`.
    pub fn new(class: Class, flops: u64, reads: &[TensorId]) -> Self {
        Self {
            class,
            flops,
            reads: reads.to_vec(),
            saves: Vec::new(),
            bytes: None,
        }
    }

    /// Also writes `saves`, for backward or for later steps.
    pub fn saving(mut self, saves: &[TensorId]) -> Self {
        self.saves.extend(saves);
        self
    }

    /// The kernel moves only so many `bytes`.
    pub fn moving(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }
}

/// A gradient of a value, and whether other values share its tensor.
#[derive(Clone, Copy)]
struct Grad {
    tensor: TensorId,
    shared: bool,
}

impl Grad {
    /// That of one value alone.
    fn own(tensor: TensorId) -> Self {
        Self {
            tensor,
            shared: false,
        }
    }
}

/// Reverse-mode differentiation of the tape.
struct Tape<'a> {
    net: &'a mut Net,
    grads: Vec<Option<Grad>>,
}

impl Tape<'_> {
    /// Emits the backward kernels of `node`; false if no gradient reaches it.
    fn node(&mut self, node: &Node) -> bool {
        let Some(incoming) = self.grads[node.out.id] else {
            return false;
        };
        for &v in &node.passes {
            let mut grad = incoming;
            grad.shared |= node.passes.len() > 1;
            self.receive(&node.name, v, grad);
        }
        for back in &node.backs {
            self.kernel(node, back, incoming);
        }
        true
    }

    fn kernel(&mut self, node: &Node, back: &Back, incoming: Grad) {
        let targets = back.targets.iter().copied();
        let wanted: Vec<Target> = targets.filter(|&t| self.wants(t)).collect();
        if wanted.is_empty() {
            return;
        }
        let given = Some(incoming.tensor).filter(|&t| t != NO_TENSOR);
        let reads: Vec<_> = given.iter().chain(&back.reads).copied().collect();
        let write = |&target: &Target| match (target, given) {
            (Target::Val(_), Some(t)) if back.in_place && !incoming.shared => t,
            (Target::Val(v), _) => self.fresh(&node.name, v),
            (Target::Param(p), _) => self.fresh_param(p),
        };
        let writes: Vec<_> = wanted.iter().map(write).collect();
        let cost = self.net.cost(back.class, back.flops, &reads, &writes);
        let name = format!("{}.{}", node.name, back.what);
        self.net.kernel(name, cost, &reads, &writes);
        for (target, tensor) in wanted.into_iter().zip(writes) {
            match target {
                Target::Val(v) => self.receive(&node.name, v, Grad::own(tensor)),
                Target::Param(p) => self.receive_param(&node.name, p, tensor),
            }
        }
    }

    fn wants(&self, target: Target) -> bool {
        match target {
            Target::Val(v) => self.net.needs_grad[v.id],
            Target::Param(_) => true,
        }
    }

    fn fresh(&mut self, name: &str, v: Val) -> TensorId {
        let bytes = v.size() * self.net.elem;
        let name = format!("{name}.grad_in");
        self.net.tensor(name, bytes, Kind::Activation)
    }

    fn sum_of(&self, param: TensorId) -> Option<TensorId> {
        let mut grads = self.net.param_grads.iter().rev();
        grads.find(|g| g.0 == param).map(|g| g.1)
    }

    /// A parameter's gradient the first time, then a tensor to add to it.
    fn fresh_param(&mut self, p: TensorId) -> TensorId {
        let Tensor { name, bytes, .. } = self.net.step.trace.tensor(p).clone();
        let (what, kind) = match self.sum_of(p) {
            Some(_) => ("grad_part", Kind::Activation),
            None => ("grad", Kind::Gradient),
        };
        self.net.tensor(format!("{name}.{what}"), bytes, kind)
    }

    fn receive(&mut self, name: &str, v: Val, g: Grad) {
        if !self.net.needs_grad[v.id] {
            return;
        }
        let Some(old) = self.grads[v.id] else {
            self.grads[v.id] = Some(g);
            return;
        };
        let sum = match (old.shared, g.shared) {
            (false, _) => old.tensor,
            (true, false) => g.tensor,
            (true, true) => self.fresh(name, v),
        };
        self.add(name, [old.tensor, g.tensor], sum);
        self.grads[v.id] = Some(Grad::own(sum));
    }

    fn receive_param(&mut self, name: &str, p: TensorId, tensor: TensorId) {
        match self.sum_of(p) {
            None => self.net.param_grads.push((p, tensor)),
            Some(sum) => self.add(name, [sum, tensor], sum),
        }
    }

    fn add(&mut self, name: &str, reads: [TensorId; 2], sum: TensorId) {
        let len = self.net.step.trace.tensor(sum).bytes / self.net.elem;
        let cost = self.net.cost(Class::Vector, len, &reads, &[sum]);
        let name = format!("{name}.accumulate");
        self.net.kernel(name, cost, &reads, &[sum]);
    }
}
