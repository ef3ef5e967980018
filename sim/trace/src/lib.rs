// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A training step as kernels in order and the tensors they use.
//!
//! `docs/simulator-formats.md` has the text format: its records, the options of a kernel, what exists
//! before a step and after it, and what is refused.

mod parse;
pub mod testing;
mod validate;

use std::collections::BTreeMap;
use std::fmt;

pub use validate::KernelTooLarge;

/// The version of the text format that this crate reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// What a tensor is for; it decides how long the tensor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A parameter or a persistent buffer: exists before the step and after it.
    Weight,
    /// A gradient: written before it is read, dead after its last read.
    Gradient,
    /// Optimizer state: persistent like a weight.
    Optimizer,
    /// A layer's output: written before it is read, dead after its last read.
    Activation,
    /// Scratch of one kernel.
    Workspace,
    /// Data that exists before its first use, is given anew each step and is
    /// dead after its last use.
    Input,
}

impl Kind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Kind; 6] = [
        Kind::Weight,
        Kind::Gradient,
        Kind::Optimizer,
        Kind::Activation,
        Kind::Workspace,
        Kind::Input,
    ];

    /// The word that stands for it in a trace.
    pub const fn as_str(self) -> &'static str {
        const WORDS: [&str; Kind::ALL.len()] = [
            "weight",
            "gradient",
            "optimizer",
            "activation",
            "workspace",
            "input",
        ];
        WORDS[self as usize]
    }

    /// Whether the contents survive from one step to the next.
    pub const fn is_persistent(self) -> bool {
        matches!(self, Kind::Weight | Kind::Optimizer)
    }

    /// Whether the contents exist before a kernel of the step has written them.
    pub const fn exists_at_start(self) -> bool {
        matches!(self, Kind::Weight | Kind::Optimizer | Kind::Input)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where in the step a kernel belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Up to and including the loss.
    Forward,
    /// Kernels that compute gradients.
    Backward,
    /// Kernels that update parameters.
    Optimizer,
}

impl Phase {
    /// The word that stands for it in a trace.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
        }
    }
}

/// A tensor's number: its place in [`Trace::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub u32);

impl TensorId {
    /// As an index into [`Trace::tensors`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A tensor of the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// What it is for.
    pub kind: Kind,
    /// Its size, greater than zero.
    pub bytes: u64,
    /// A name for people, without blanks; may be empty.
    pub name: String,
    /// The line of the file that defines it; 0 if it was not read from a file.
    pub line: u32,
}

impl Tensor {
    /// A tensor that no file defines. Blanks in `name` become `_`.
    pub fn new(kind: Kind, bytes: u64, name: &str) -> Self {
        Self {
            kind,
            bytes,
            name: word(name),
            line: 0,
        }
    }
}

/// A kernel of the step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    /// A name for people, without blanks, not empty.
    pub name: String,
    /// How long it runs when everything it uses is resident, in ns.
    pub duration_ns: u64,
    /// Tensors it reads, without repeats.
    pub reads: Vec<TensorId>,
    /// Tensors it writes, without repeats.
    pub writes: Vec<TensorId>,
    /// Scratch tensors, without repeats; in neither of the other lists.
    pub workspace: Vec<TensorId>,
    /// Floating-point operations, where known.
    pub flops: Option<u64>,
    /// Bytes it moves to and from device memory, where known.
    pub bytes: Option<u64>,
    /// Measured duration in ns with inputs resident and outputs page-faulting.
    pub out_fault_ns: Option<u64>,
    /// Measured duration in ns with inputs and outputs page-faulting.
    pub all_fault_ns: Option<u64>,
    /// Its part of the step, where known.
    pub phase: Option<Phase>,
    /// The part of the forward pass that checkpointing runs again as a whole, and that this
    /// kernel is in.
    pub checkpoint: Option<u32>,
    /// The line of the file that defines it; 0 if it was not read from a file.
    pub line: u32,
}

impl Kernel {
    /// A kernel that no file defines. Blanks in `name` become `_`.
    pub fn new(name: &str, duration_ns: u64) -> Self {
        Self {
            name: word(name),
            duration_ns,
            ..Self::default()
        }
    }

    /// All tensors it uses: reads, writes, scratch. One that is read and written
    /// comes twice.
    pub fn uses(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.reads
            .iter()
            .chain(&self.writes)
            .chain(&self.workspace)
            .copied()
    }
}

/// One training step, as kernels over tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Free-form facts: `name` and `batch` are shown in reports; `source` says
    /// what made the trace.
    pub meta: BTreeMap<String, String>,
    /// All tensors, by number.
    pub tensors: Vec<Tensor>,
    /// All kernels, in execution order.
    pub kernels: Vec<Kernel>,
}

impl Trace {
    /// A trace of nothing yet, of network `name` at `batch` samples.
    pub fn new(name: &str, batch: u64) -> Self {
        let mut t = Self::default();
        t.set_meta("name", name);
        t.set_meta("batch", &batch.to_string());
        t
    }

    /// Sets a fact. Line breaks in `value` become blanks.
    pub fn set_meta(&mut self, key: &str, value: &str) {
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        self.meta.insert(word(key), value);
    }

    /// The fact `key`, empty if there is none.
    pub fn meta(&self, key: &str) -> &str {
        self.meta.get(key).map_or("", String::as_str)
    }

    /// Adds a tensor and returns its number.
    pub fn add_tensor(&mut self, t: Tensor) -> TensorId {
        self.tensors.push(t);
        TensorId(self.tensors.len() as u32 - 1)
    }

    /// Tensor `id`.
    ///
    /// # Panics
    /// If there is none; a validated trace has every tensor that a kernel names.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// The time of the step when everything is resident, in ns.
    pub fn ideal_ns(&self) -> u64 {
        self.kernels.iter().map(|k| k.duration_ns).sum()
    }

    /// Bytes that kernel `k` needs resident at once; a tensor counts once.
    pub fn working_set(&self, k: &Kernel) -> u64 {
        let mut ids: Vec<_> = k.uses().collect();
        ids.sort_unstable();
        ids.dedup();
        ids.iter().map(|&id| self.tensor(id).bytes).sum()
    }
}

impl fmt::Display for Trace {
    /// Writes the text format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "uvmtrace {FORMAT_VERSION}")?;
        for (k, v) in &self.meta {
            writeln!(f, "meta {k} {v}")?;
        }
        for (i, t) in self.tensors.iter().enumerate() {
            write!(f, "tensor {i} {} {}", t.kind, t.bytes)?;
            if !t.name.is_empty() {
                write!(f, " {}", t.name)?;
            }
            writeln!(f)?;
        }
        for (i, k) in self.kernels.iter().enumerate() {
            write!(f, "kernel {i} {} {}", k.duration_ns, k.name)?;
            for ids in [&k.reads, &k.writes, &k.workspace] {
                let ids: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
                let none = if ids.is_empty() { "-" } else { "" };
                write!(f, " {none}{}", ids.join(","))?;
            }
            let options = [
                ("flops", k.flops),
                ("bytes", k.bytes),
                ("out_fault_ns", k.out_fault_ns),
                ("all_fault_ns", k.all_fault_ns),
            ];
            for (key, value) in options {
                if let Some(v) = value {
                    write!(f, " {key}={v}")?;
                }
            }
            if let Some(p) = k.phase {
                write!(f, " phase={}", p.as_str())?;
            }
            if let Some(part) = k.checkpoint {
                write!(f, " checkpoint={part}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// `s` as one field of a record.
fn word(s: &str) -> String {
    s.split_whitespace().collect::<Vec<_>>().join("_")
}

/// What is wrong with a trace, where, and with which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line of the file, from 1; 0 if the trace was not read from a file.
    pub line: u32,
    /// The object: `tensor 7 (conv1.weight)`; empty if there is none.
    pub object: String,
    /// What is wrong with it.
    pub what: String,
}

impl Error {
    /// What is wrong with `object` in line `line`.
    pub fn new(line: u32, object: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            line,
            object: object.into(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if !self.object.is_empty() {
            write!(f, "{}: ", self.object)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
