// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A network as a tape: forward kernels in order, each with what its backward
//! needs; [`Net::train`] turns it into a training step.
//!
//! The rules are those of an eager framework (PyTorch): an operator's output is a
//! new tensor unless it works in place; what backward reads stays alive until
//! then; a second gradient of the same value is a new tensor and an addition; a
//! parameter's gradient lives from its first kernel to the optimizer's.

use std::collections::HashMap;

use uvmsim_machine::Machine;
use uvmsim_trace::Kind;
use uvmsim_trace::Phase;
use uvmsim_trace::Trace;

use crate::roofline::Class;
use crate::roofline::Cost;

/// A tensor's place in [`Step::tensors`].
pub type TensorId = usize;

/// A tensor of a step.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name, unique in the step.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// What it is for.
    pub kind: Kind,
}

/// A kernel of a step.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Layer and operator, `layer3.1.conv2.forward`.
    pub name: String,
    /// Tensors read.
    pub reads: Vec<TensorId>,
    /// Tensors written.
    pub writes: Vec<TensorId>,
    /// Scratch.
    pub workspace: Option<TensorId>,
    /// What it costs.
    pub cost: Cost,
    /// The part of the forward pass that it is in, if it is in one (see [`Net::part`]).
    pub part: Option<u32>,
}

/// One training step: forward, backward, optimizer.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// `resnet50`.
    pub net: String,
    /// Samples in the step.
    pub batch: u64,
    /// All tensors.
    pub tensors: Vec<Tensor>,
    /// All kernels, in order.
    pub kernels: Vec<Kernel>,
    /// Number of the first backward and of the first optimizer kernel.
    pub phases: [usize; 2],
    /// Learned parameters, in elements.
    pub parameters: u64,
}

impl Step {
    /// The step as a trace, with durations from `machine`'s roofline.
    pub fn trace(&self, machine: &Machine, precision: Precision) -> Trace {
        let mut trace = Trace::new(&self.net, self.batch);
        trace.set_meta(
            "source",
            &format!("uvmsim zoo, roofline of {}", machine.preset),
        );
        for t in &self.tensors {
            trace.add_tensor(uvmsim_trace::Tensor::new(t.kind, t.bytes, &t.name));
        }
        let ids = |list: &[TensorId]| {
            let mut out = Vec::with_capacity(list.len());
            for &t in list {
                let id = uvmsim_trace::TensorId(t as u32);
                if !out.contains(&id) {
                    out.push(id);
                }
            }
            out
        };
        for (i, k) in self.kernels.iter().enumerate() {
            let mut kernel =
                uvmsim_trace::Kernel::new(&k.name, k.cost.nanoseconds(machine, precision));
            kernel.reads = ids(&k.reads);
            kernel.writes = ids(&k.writes);
            kernel.workspace = ids(k.workspace.as_slice());
            kernel.flops = Some(k.cost.flops);
            kernel.bytes = Some(k.cost.bytes);
            kernel.checkpoint = k.part;
            kernel.phase = Some(match i {
                i if i < self.phases[0] => Phase::Forward,
                i if i < self.phases[1] => Phase::Backward,
                _ => Phase::Optimizer,
            });
            trace.kernels.push(kernel);
        }
        trace
    }
}

/// A value of the network: a tensor and the shape it is seen in.
///
/// Two values may share a tensor (a view, an operator in place); gradients
/// belong to values.
#[derive(Clone, Copy, Debug)]
pub struct Val {
    id: usize,
    /// Its tensor.
    pub tensor: TensorId,
    /// Batch, channels, height, width; or rows, columns, 1, 1.
    pub shape: [u64; 4],
}

impl Val {
    /// Its elements.
    pub fn len(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    workspace: u64,
    /// Bytes moved, where that is less than the tensors' sizes.
    bytes: Option<u64>,
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
            workspace: 0,
            bytes: None,
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

    /// Uses `bytes` of scratch.
    pub fn scratch(mut self, bytes: u64) -> Self {
        self.workspace = bytes;
        self
    }

    /// Moves only `bytes`.
    pub fn moving(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
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
    outs: Vec<Val>,
    backs: Vec<Back>,
    /// Values whose gradient is the output's own (addition, view).
    passes: Vec<Val>,
}

/// How parameters are updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// FP32 throughout, products on CUDA cores.
    Fp32,
    /// FP32 tensors, products on TF32 tensor cores.
    Tf32,
    /// FP16 tensors, with FP32 optimizer states and master weights.
    Fp16,
}

impl Precision {
    /// Bytes of an activation's element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp32 | Self::Tf32 => 4,
            Self::Fp16 => 2,
        }
    }
}

/// A network under construction.
pub struct Net {
    step: Step,
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
    elem: u64,
    /// For each value, whether it needs a gradient.
    needs_grad: Vec<bool>,
}

impl Net {
    /// An empty network called `name`, for `batch` samples.
    pub fn new(name: &str, batch: u64, precision: Precision) -> Self {
        Self {
            step: Step {
                net: name.into(),
                batch,
                ..Step::default()
            },
            nodes: Vec::new(),
            params: HashMap::new(),
            param_grads: Vec::new(),
            names: HashMap::new(),
            scope: Vec::new(),
            part: None,
            parts: 0,
            elem: precision.bytes(),
            needs_grad: Vec::new(),
        }
    }

    /// Samples in the step.
    pub fn batch(&self) -> u64 {
        self.step.batch
    }

    /// Bytes of an element.
    pub fn elem(&self) -> u64 {
        self.elem
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
        self.step.tensors.push(Tensor {
            name,
            bytes: bytes.max(1),
            kind,
        });
        self.step.tensors.len() - 1
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
        let path = self.path(name);
        if let Some(&tensor) = self.params.get(&path) {
            return tensor;
        }
        self.step.parameters += len;
        let tensor = self.tensor(path.clone(), len * self.elem, Kind::Weight);
        self.params.insert(path, tensor);
        tensor
    }

    /// The buffer of this name, of `len` FP32 elements; it stays but is not
    /// learned.
    pub fn buffer(&mut self, name: &str, len: u64) -> TensorId {
        let path = self.path(name);
        if let Some(&tensor) = self.params.get(&path) {
            return tensor;
        }
        let tensor = self.tensor(path.clone(), len * 4, Kind::Weight);
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
        debug_assert_eq!(v.len(), shape.iter().product::<u64>());
        let out = self.value(v.tensor, shape, self.needs_grad[v.id]);
        self.nodes.push(Node {
            name: String::new(),
            outs: vec![out],
            backs: Vec::new(),
            passes: vec![v],
        });
        out
    }

    /// An operator: its forward kernel, and how its gradient is computed.
    ///
    /// `passes` are values whose gradient is the output's.
    pub fn op(
        &mut self,
        name: &str,
        forward: Forward,
        outs: &[Val],
        backs: Vec<Back>,
        passes: &[Val],
    ) {
        let path = self.path(name);
        let workspace = self.workspace(&path, forward.workspace);
        let writes: Vec<_> = outs
            .iter()
            .map(|v| v.tensor)
            .chain(forward.saves.iter().copied())
            .collect();
        let cost = self.cost(
            forward.class,
            forward.flops,
            &forward.reads,
            &writes,
            forward.bytes,
        );
        self.step.kernels.push(Kernel {
            name: format!("{path}.forward"),
            reads: forward.reads,
            writes,
            workspace,
            cost,
            part: self.part,
        });
        self.nodes.push(Node {
            name: path,
            outs: outs.to_vec(),
            backs,
            passes: passes.to_vec(),
        });
    }

    fn workspace(&mut self, path: &str, bytes: u64) -> Option<TensorId> {
        (bytes > 0).then(|| self.tensor(format!("{path}.workspace"), bytes, Kind::Workspace))
    }

    fn cost(
        &self,
        class: Class,
        flops: u64,
        reads: &[TensorId],
        writes: &[TensorId],
        bytes: Option<u64>,
    ) -> Cost {
        let sum = |ids: &[TensorId]| ids.iter().map(|&t| self.step.tensors[t].bytes).sum::<u64>();
        Cost {
            class,
            flops,
            bytes: bytes.unwrap_or_else(|| sum(reads) + sum(writes)),
        }
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
        if self.step.phases[0] == 0 {
            self.step.phases[0] = self.step.kernels.len();
        }
        let nodes = std::mem::take(&mut self.nodes);
        let mut tape = Tape {
            grads: vec![None; self.needs_grad.len()],
            net: self,
        };
        for loss in losses {
            // The gradient of the loss, one, is part of its first backward kernel.
            tape.grads[loss.id] = Some(Grad {
                tensor: NO_TENSOR,
                shared: false,
            });
        }
        let mut kept: Vec<_> = nodes
            .into_iter()
            .rev()
            .filter(|node| !tape.node(node))
            .collect();
        kept.reverse();
        self.nodes = kept;
    }

    /// Updates every parameter under `prefix` that has a gradient, and forgets
    /// the gradients.
    pub fn update(&mut self, prefix: &str, optimizer: Optimizer) {
        if self.step.phases[1] == 0 {
            self.step.phases[1] = self.step.kernels.len();
        }
        let mut grads = std::mem::take(&mut self.param_grads);
        grads.sort_unstable();
        for (param, grad) in grads {
            let name = self.step.tensors[param].name.clone();
            if name.starts_with(prefix) {
                self.update_one(param, grad, &name, optimizer);
            } else {
                self.param_grads.push((param, grad));
            }
        }
    }

    fn update_one(&mut self, param: TensorId, grad: TensorId, name: &str, optimizer: Optimizer) {
        let len = self.step.tensors[param].bytes / self.elem;
        let master = (self.elem != 4).then_some("master");
        let mut writes = vec![param];
        for state in optimizer.states().iter().copied().chain(master) {
            writes.push(self.tensor(format!("{name}.{state}"), len * 4, Kind::Optimizer));
        }
        let mut reads = vec![grad];
        reads.extend(&writes);
        let cost = self.cost(Class::Vector, 12 * len, &reads, &writes, None);
        let name = format!("{name}.update");
        self.step.kernels.push(Kernel {
            name,
            reads,
            writes,
            workspace: None,
            cost,
            part: None,
        });
    }
}

/// Stands for the gradient of a loss.
const NO_TENSOR: TensorId = usize::MAX;

/// A forward kernel's side of an operator.
#[derive(Clone, Debug)]
pub struct Forward {
    class: Class,
    flops: u64,
    reads: Vec<TensorId>,
    saves: Vec<TensorId>,
    workspace: u64,
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
            workspace: 0,
            bytes: None,
        }
    }

    /// Also writes `saves`, for backward or for later steps.
    pub fn saving(mut self, saves: &[TensorId]) -> Self {
        self.saves.extend(saves);
        self
    }

    /// Uses `bytes` of scratch.
    pub fn scratch(mut self, bytes: u64) -> Self {
        self.workspace = bytes;
        self
    }

    /// Moves only `bytes`.
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

/// Reverse-mode differentiation of the tape.
struct Tape<'a> {
    net: &'a mut Net,
    grads: Vec<Option<Grad>>,
}

impl Tape<'_> {
    /// Emits the backward kernels of `node`; false if no gradient reaches it.
    fn node(&mut self, node: &Node) -> bool {
        let incoming: Vec<Grad> = node.outs.iter().filter_map(|v| self.grads[v.id]).collect();
        if incoming.is_empty() {
            return false;
        }
        for &v in &node.passes {
            let shared = node.passes.len() > 1 || incoming[0].shared;
            self.receive(
                &node.name,
                v,
                Grad {
                    tensor: incoming[0].tensor,
                    shared,
                },
            );
        }
        for back in &node.backs {
            self.kernel(node, back, &incoming);
        }
        true
    }

    fn kernel(&mut self, node: &Node, back: &Back, incoming: &[Grad]) {
        let wanted: Vec<Target> = back
            .targets
            .iter()
            .copied()
            .filter(|&t| self.wants(t))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let mut reads: Vec<_> = incoming
            .iter()
            .map(|g| g.tensor)
            .filter(|&t| t != NO_TENSOR)
            .collect();
        let first = reads.first().copied();
        reads.extend(&back.reads);
        let writes: Vec<_> = wanted
            .iter()
            .map(|&target| match (target, first) {
                (Target::Val(_), Some(t)) if back.in_place && !incoming[0].shared => t,
                (Target::Val(v), _) => self.fresh(&node.name, v),
                (Target::Param(p), _) => self.fresh_param(p),
            })
            .collect();
        let workspace = self.net.workspace(&node.name, back.workspace);
        let cost = self
            .net
            .cost(back.class, back.flops, &reads, &writes, back.bytes);
        let name = format!("{}.{}", node.name, back.what);
        self.net.step.kernels.push(Kernel {
            name,
            reads,
            writes: writes.clone(),
            workspace,
            cost,
            part: None,
        });
        for (target, tensor) in wanted.into_iter().zip(writes) {
            match target {
                Target::Val(v) => self.receive(
                    &node.name,
                    v,
                    Grad {
                        tensor,
                        shared: false,
                    },
                ),
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
        self.net.tensor(
            format!("{name}.grad_in"),
            v.len() * self.net.elem,
            Kind::Activation,
        )
    }

    fn sum_of(&self, param: TensorId) -> Option<TensorId> {
        self.net
            .param_grads
            .iter()
            .rev()
            .find(|&&(p, _)| p == param)
            .map(|&(_, g)| g)
    }

    /// A parameter's gradient the first time, then a tensor to add to it.
    fn fresh_param(&mut self, p: TensorId) -> TensorId {
        let Tensor { name, bytes, .. } = self.net.step.tensors[p].clone();
        match self.sum_of(p) {
            Some(_) => self
                .net
                .tensor(format!("{name}.grad_part"), bytes, Kind::Activation),
            None => self
                .net
                .tensor(format!("{name}.grad"), bytes, Kind::Gradient),
        }
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
        self.grads[v.id] = Some(Grad {
            tensor: sum,
            shared: false,
        });
    }

    fn receive_param(&mut self, name: &str, p: TensorId, tensor: TensorId) {
        match self.sum_of(p) {
            None => self.net.param_grads.push((p, tensor)),
            Some(sum) => self.add(name, [sum, tensor], sum),
        }
    }

    fn add(&mut self, name: &str, reads: [TensorId; 2], sum: TensorId) {
        let len = self.net.step.tensors[sum].bytes / self.net.elem;
        let cost = self.net.cost(Class::Vector, len, &reads, &[sum], None);
        self.net.step.kernels.push(Kernel {
            name: format!("{name}.accumulate"),
            reads: reads.to_vec(),
            writes: vec![sum],
            workspace: None,
            cost,
            part: None,
        });
    }
}
