// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A trace as the artifact sees it: pages, cycles, and sets in the order in which
//! its hash tables give them out.

use uvmsim_trace::Trace;

use super::Machine;
use super::RunError;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// A kernel in the artifact's terms.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// Duration with everything resident.
    pub cycles: u64,
    /// Measured durations with outputs, and with everything, page-faulting.
    pub out_fault_cycles: u64,
    pub all_fault_cycles: u64,
    /// Inputs, in the order in which the artifact's set gives them out.
    pub inputs: Vec<u32>,
    /// Outputs and workspace that are not inputs, in that order.
    pub outputs: Vec<u32>,
    /// All tensors, in the order in which a set made from both sets gives them.
    pub required: Vec<u32>,
    /// Whether it is the loss, between forward and backward.
    pub is_loss: bool,
}

/// A tensor in the artifact's terms.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub pages: u64,
    /// Whether it survives the step.
    pub is_weight: bool,
    /// First kernel that uses it.
    pub birth: usize,
    /// One past the last kernel that reads it; `None` if none does, and it lives
    /// in its first kernel alone.
    pub death: Option<usize>,
}

impl Tensor {
    pub(super) fn bytes(&self) -> u64 {
        self.pages * PAGE
    }

    pub(super) fn is_alive(&self, kernel: usize) -> bool {
        self.is_weight
            || match self.death {
                None => kernel == self.birth,
                Some(d) => kernel >= self.birth && kernel < d,
            }
    }

    /// One past the last kernel in which it lives; of one that nothing uses, a kernel
    /// that there is not.
    pub(super) fn end(&self) -> usize {
        self.death.unwrap_or(self.birth.saturating_add(1))
    }
}

/// A trace in the artifact's terms.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub name: String,
    pub batch: String,
    pub kernels: Vec<Kernel>,
    pub tensors: Vec<Tensor>,
}

impl View {
    pub(super) fn new(trace: &Trace, machine: &Machine) -> Result<Self, RunError> {
        let gpu = (machine.gpu_gib * (1u64 << 30) as f64) as u64;
        trace.check_fits(gpu).map_err(RunError::KernelTooLarge)?;
        Self::of(trace)
    }

    /// The same for any GPU: there may be kernels that do not fit.
    pub(super) fn of(trace: &Trace) -> Result<Self, RunError> {
        let tensor = |t: &uvmsim_trace::Tensor| Tensor {
            pages: t.bytes.div_ceil(PAGE),
            is_weight: t.kind.is_persistent(),
            birth: usize::MAX,
            death: None,
        };
        let mut view = Self {
            name: trace.meta("name").into(),
            batch: trace.meta("batch").into(),
            kernels: Vec::new(),
            tensors: trace.tensors.iter().map(tensor).collect(),
        };
        for (i, k) in trace.kernels.iter().enumerate() {
            let kernel = kernel(k);
            for &t in &kernel.required {
                let tensor = &mut view.tensors[t as usize];
                tensor.birth = tensor.birth.min(i);
            }
            for &t in &kernel.inputs {
                view.tensors[t as usize].death = Some(i + 1);
            }
            view.kernels.push(kernel);
        }
        if let Some(i) = view.kernels.iter().position(|k| k.cycles == 0) {
            return Err(RunError::Unsupported(format!(
                "kernel {i} takes no time; the g10 model needs at least 1 ns"
            )));
        }
        Ok(view)
    }

    pub(super) fn ideal_cycles(&self) -> u64 {
        self.kernels.iter().map(|k| k.cycles).sum()
    }

    /// Bytes of the weights, and of everything else.
    pub(super) fn totals(&self) -> (u64, u64) {
        let (mut weights, mut rest) = (0, 0);
        for t in &self.tensors {
            *(if t.is_weight { &mut weights } else { &mut rest }) += t.bytes();
        }
        (weights, rest)
    }

    /// The moment each kernel starts when everything is resident, in µs, over two steps, and
    /// the end of the second.
    pub(super) fn two_steps(&self) -> Vec<f64> {
        let mut time = 0.0;
        let mut starts = vec![0.0];
        for k in self.kernels.iter().chain(&self.kernels) {
            time += k.cycles as f64 / (1.2 * 1000.0);
            starts.push(time);
        }
        starts
    }
}

/// Nanoseconds to cycles, by way of milliseconds and truncated, as the artifact
/// reads its files.
fn cycles(ns: u64) -> u64 {
    (ns as f64 / 1e6 * 1.2e9 / 1000.0) as u64
}

fn kernel(k: &uvmsim_trace::Kernel) -> Kernel {
    let scratch: Vec<u32> = k.workspace.iter().map(|t| t.0).collect();
    let inputs = set_order(k.reads.iter().map(|t| t.0), &scratch);
    let writes = k.writes.iter().chain(&k.workspace).map(|t| t.0);
    let mut outputs = set_order(writes, &scratch);
    let required = set_order(inputs.iter().chain(&outputs).copied(), &scratch);
    outputs.retain(|t| !inputs.contains(t));
    let ideal = cycles(k.duration_ns);
    let out_fault = k.out_fault_ns.map_or(ideal, cycles).max(ideal);
    let all_fault = k.all_fault_ns.map_or(out_fault, cycles).max(out_fault);
    Kernel {
        cycles: ideal,
        out_fault_cycles: out_fault,
        all_fault_cycles: all_fault,
        inputs,
        outputs,
        required,
        is_loss: k.name == "makeLoss",
    }
}

/// The order in which the GNU C++ library's hash set of pointers gives out what was
/// put in, as far as it can be known without the artifact's heap. An element goes
/// to the front of its bucket, an empty bucket to the front of all. Buckets are 13,
/// then 29, and so on. Tensors lie one after the other in memory, so that two meet
/// in a bucket where their numbers agree modulo its count; scratch was made
/// elsewhere and is taken to meet nobody.
fn set_order(items: impl Iterator<Item = u32>, scratch: &[u32]) -> Vec<u32> {
    const BUCKETS: [u32; 6] = [13, 29, 59, 127, 257, 541];
    let mut size = 0;
    let mut set: Vec<u32> = Vec::new();
    let put = |set: &mut Vec<u32>, item: u32, buckets: u32| {
        let meets = |o: &u32| {
            o % buckets == item % buckets && !scratch.contains(o) && !scratch.contains(&item)
        };
        let at = set.iter().position(meets).unwrap_or(0);
        set.insert(at, item);
    };
    for item in items {
        if set.contains(&item) {
            continue;
        }
        if set.len() as u32 == BUCKETS[size] && size + 1 < BUCKETS.len() {
            size += 1;
            for old in std::mem::take(&mut set) {
                put(&mut set, old, BUCKETS[size]);
            }
        }
        put(&mut set, item, BUCKETS[size]);
    }
    set
}
