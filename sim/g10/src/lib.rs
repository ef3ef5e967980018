// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The G10 artifact (MICRO '23): its traces ([`import()`]), and its machine, bugs included.
//!
//! Two simulators, as there: `events` moves 4 KiB pages in batches of 50 every
//! 13 µs (base UVM, DeepUM+, G10), `queues` moves whole tensors through FIFOs
//! (FlashNeuron, G10-GDS, G10-Host). Time is counted in cycles of 1.2 GHz.
//! Nothing here is fitted: the rules are the artifact's, and tests compare the
//! outcome with its published cells.

mod best;
mod events;
mod import;
mod order;
mod pages;
mod plan;
mod queues;
mod view;

use std::fmt;

use uvmsim_trace::KernelTooLarge;
use uvmsim_trace::Trace;

pub use events::KernelRecord;
pub use import::column;
pub use import::graph;
pub use import::import;
pub use import::import_between;
pub use import::ImportError;
pub use plan::Design;
pub use plan::Hint;
pub use plan::Target;

/// Cycles per second of the artifact's clock.
pub const CYCLES_PER_SECOND: u64 = 1_200_000_000;

/// Which design drives the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Everything is resident, whatever the GPU has.
    Ideal,
    /// Demand paging, the page that arrived first goes first (`lru`).
    BaseUvm,
    /// Prefetch eight kernels ahead, evict what no near kernel uses (`deepUM`).
    DeepUm,
    /// Activations of the forward pass to the SSD (`FlashNeuron`).
    FlashNeuron,
    /// G10's plan without host memory and UVM (`G10GDSSSD`).
    G10Gds,
    /// G10's plan without UVM (`G10GDSFULL`).
    G10Host,
    /// G10's plan with UVM's faults (`prefetch_lru`).
    G10,
    /// Our own planner on the machine of G10.
    Best,
}

impl Policy {
    /// Every policy of the artifact, and the ideal.
    pub const ALL: [Policy; 8] = [
        Policy::BaseUvm,
        Policy::FlashNeuron,
        Policy::DeepUm,
        Policy::G10Gds,
        Policy::G10Host,
        Policy::G10,
        Policy::Best,
        Policy::Ideal,
    ];

    /// The name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Policy::Ideal => "ideal",
            Policy::BaseUvm => "base-uvm",
            Policy::DeepUm => "deepum",
            Policy::FlashNeuron => "flashneuron",
            Policy::G10Gds => "g10-gds",
            Policy::G10Host => "g10-host",
            Policy::G10 => "g10",
            Policy::Best => "best",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The machine; the defaults are the paper's table 2 as the artifact has it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// GPU memory in GiB.
    pub gpu_gib: f64,
    /// Host memory for evicted pages in GiB; G10-GDS has none whatever this says.
    pub host_gib: f64,
    /// The link of the GPU, each way, in 1e9 B/s (the planner reads it as GiB/s).
    pub pcie_gbps: f64,
    /// The SSD, each way, in the same unit.
    pub ssd_gbps: f64,
    /// Latency of a fault, in µs; used by the planner, and in a ratio.
    pub fault_us: f64,
    /// Latency of the SSD, in µs; likewise.
    pub ssd_us: f64,
    /// Allocation on the GPU, in µs per byte.
    pub malloc_us_per_byte: f64,
    /// Pages of a transfer batch.
    pub batch_pages: u32,
    /// Kernels that DeepUM+ looks ahead.
    pub prefetch_degree: usize,
    /// The planner's slack, as a share of a transfer's time.
    pub slack: f64,
    /// Each kernel's time is multiplied by a random number in 1 ± this, after
    /// planning (figure 19).
    pub time_error: f64,
    /// The seed of those numbers.
    pub seed: u32,
    /// Whether the factors that the artifact sets by hand for some of its points
    /// apply (for BERT 512, ViT 1280 and 1024, and the variants without UVM).
    pub hand_tuned: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            gpu_gib: 40.0,
            host_gib: 128.0,
            pcie_gbps: 15.754,
            ssd_gbps: 3.2,
            fault_us: 45.0,
            ssd_us: 20.0,
            malloc_us_per_byte: 0.000000814,
            batch_pages: 50,
            prefetch_degree: 8,
            slack: 0.5,
            time_error: 0.0,
            seed: 1,
            hand_tuned: true,
        }
    }
}

impl Machine {
    /// A machine of so many MiB of GPU memory and of host memory.
    pub fn of_mib(gpu: u32, host: u32) -> Self {
        Self {
            gpu_gib: f64::from(gpu) / 1024.0,
            host_gib: f64::from(host) / 1024.0,
            ..Self::default()
        }
    }

    /// The seed that the artifact uses for a network in figure 19.
    pub fn artifact_seed(net: &str) -> u32 {
        match net {
            "BERT" => 15,
            "ResNet152" => 10,
            "SENet154" => 25,
            _ => 1,
        }
    }
}

/// Bytes moved in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Host memory to GPU.
    pub host_to_gpu: u64,
    /// GPU to host memory.
    pub gpu_to_host: u64,
    /// From the SSD to the GPU.
    pub ssd_to_gpu: u64,
    /// From the GPU to the SSD.
    pub gpu_to_ssd: u64,
}

impl Traffic {
    /// The bytes of all four ways together.
    pub fn total(&self) -> u64 {
        self.host_to_gpu + self.gpu_to_host + self.ssd_to_gpu + self.gpu_to_ssd
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The step with everything resident, in cycles.
    pub ideal_cycles: u64,
    /// The step, in cycles: the faster of the two simulated, as the artifact reports.
    pub step_cycles: u64,
    /// Traffic of that step.
    pub traffic: Traffic,
    /// Pages that kernels of that step had to wait for as faults.
    pub faults: u64,
    /// Time of each kernel of that step, in cycles, the wait for it included.
    pub kernel_cycles: Vec<u64>,
    /// Every kernel of every simulated step; empty where the artifact's simulator
    /// has no such record.
    pub records: Vec<KernelRecord>,
}

impl Outcome {
    /// The share of the ideal speed.
    pub fn normalized(&self) -> f64 {
        self.ideal_cycles as f64 / self.step_cycles as f64
    }
}

/// Why a run has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A kernel's working set is larger than the GPU.
    #[error("{0}")]
    KernelTooLarge(KernelTooLarge),
    /// The policy cannot run the trace on this machine; why.
    #[error("{0}")]
    Unsupported(String),
    /// An option has a value that the model cannot work with.
    #[error("{0}")]
    Option(String),
    /// The simulator broke its own rules; what it found.
    #[error("a bug of uvmsim, please report it: {0}")]
    Internal(String),
}

/// Runs `trace` under `policy`.
///
/// # Errors
/// A kernel that does not fit, a policy that fails as it does in the artifact
/// (figure 11's missing bars), options out of range.
pub fn run(trace: &Trace, policy: Policy, machine: &Machine) -> Result<Outcome, RunError> {
    check(machine)?;
    let view = view::View::new(trace, machine)?;
    match policy {
        Policy::Ideal => Ok(ideal(&view)),
        Policy::BaseUvm => events::run(&view, machine, events::Mode::Lru, Vec::new()),
        Policy::DeepUm => {
            let hints = plan::look_ahead(&view, machine.prefetch_degree);
            events::run(&view, machine, events::Mode::DeepUm, hints)
        }
        Policy::G10 => {
            let plan = plan::g10(&view, machine, Design::G10);
            events::run(&view, machine, events::Mode::Lru, plan.hints)
        }
        Policy::Best => search(&view, machine, Vec::new),
        Policy::FlashNeuron => queues::flashneuron(&view, machine),
        Policy::G10Gds => queues::g10(&view, machine, Design::Gds),
        Policy::G10Host => queues::g10(&view, machine, Design::Host),
    }
}

/// Runs `trace` under our own planner, which also tries the plans that `others` makes,
/// as [`run_plan`] would carry them out, if it is not near the ideal without.
///
/// # Errors
/// As [`run_plan`].
pub fn run_best(
    trace: &Trace,
    machine: &Machine,
    others: impl FnOnce() -> Vec<Moves>,
) -> Result<Outcome, RunError> {
    check(machine)?;
    let view = view::View::new(trace, machine)?;
    let hints = || {
        let all = others();
        all.iter().filter_map(|m| hints(&view, m).ok()).collect()
    };
    search(&view, machine, hints)
}

fn search(
    view: &view::View,
    machine: &Machine,
    others: impl FnOnce() -> Vec<Vec<Hint>>,
) -> Result<Outcome, RunError> {
    let (hints, mode, outcome) = best::search(view, machine, others)?;
    if machine.time_error == 0.0 {
        return Ok(outcome);
    }
    events::run(view, machine, mode, hints)
}

/// A plan made elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The instructions, in the order in which they are carried out within a kernel.
    pub list: Vec<Hint>,
    /// Whether a tensor that does not survive the step is freed after its last use;
    /// else it stays, as if it mattered, like under base UVM.
    pub frees: bool,
}

/// What G10's planner moves in a step of `trace` on `machine`, for another machine to
/// carry out: in order of the kernels, evictions and prefetches without the hints that
/// allocate and free. Kernels need not fit in the GPU.
///
/// # Errors
/// A kernel that takes no time; a machine out of the planner's range.
pub fn moves(trace: &Trace, machine: &Machine, design: Design) -> Result<Vec<Hint>, RunError> {
    check(machine)?;
    let view = view::View::of(trace)?;
    let plan = plan::g10(&view, machine, design);
    let kernels = view.kernels.len().max(1);
    let moves = plan.moves.iter().filter(|h| h.to != Target::Free);
    let moves = moves.map(|h| Hint {
        kernel: h.kernel % kernels,
        ..*h
    });
    Ok(moves.collect())
}

/// Runs `trace` under a plan made elsewhere. Memory of tensors that do not survive the
/// step is allocated at the first kernel that uses them, and freed after the last if
/// the plan frees.
///
/// # Errors
/// As [`run`]; and a move of a tensor or at a kernel that does not exist.
pub fn run_plan(trace: &Trace, moves: &Moves, machine: &Machine) -> Result<Outcome, RunError> {
    check(machine)?;
    let view = view::View::new(trace, machine)?;
    let hints = hints(&view, moves)?;
    events::run(&view, machine, events::Mode::Lru, hints)
}

/// A plan made elsewhere, with allocations and frees.
fn hints(view: &view::View, moves: &Moves) -> Result<Vec<Hint>, RunError> {
    let (kernels, tensors) = (view.kernels.len(), view.tensors.len());
    for m in &moves.list {
        if m.kernel >= kernels || m.tensor as usize >= tensors {
            return Err(RunError::Option(format!(
                "the plan moves tensor {} at kernel {}, and the trace has {tensors} tensors and {kernels} kernels",
                m.tensor, m.kernel
            )));
        }
    }
    let mut hints = plan::with_lifetimes(view, moves.list.clone());
    if !moves.frees {
        hints.retain(|h| h.to != Target::Free);
    }
    Ok(hints)
}

fn ideal(view: &view::View) -> Outcome {
    let cycles = view.ideal_cycles();
    Outcome {
        ideal_cycles: cycles,
        step_cycles: cycles,
        kernel_cycles: view.kernels.iter().map(|k| k.cycles).collect(),
        ..Outcome::default()
    }
}

fn check(m: &Machine) -> Result<(), RunError> {
    let bad = |what: &str| Err(RunError::Option(what.into()));
    let positive = |v: f64| v.is_finite() && v > 0.0;
    if !positive(m.gpu_gib) || m.gpu_gib > 65536.0 {
        return bad("GPU memory must be more than 0 and at most 64 TiB");
    }
    if !(m.host_gib >= 0.0 && m.host_gib <= 4096.0) {
        // The artifact counts host pages in 32 bits.
        return bad("host memory must be 0 to 4 TiB in the g10 model");
    }
    if !positive(m.pcie_gbps) || !positive(m.ssd_gbps) || m.ssd_gbps > m.pcie_gbps {
        return bad("bandwidths must be positive, and the SSD's no more than the link's");
    }
    if (f64::from(m.batch_pages) / m.pcie_gbps * m.ssd_gbps) < 1.0 {
        return bad("the SSD must manage a page per batch: raise its bandwidth");
    }
    if !(0.0..1.0).contains(&m.time_error) {
        return bad("the error of kernel times must be 0 to 1");
    }
    Ok(())
}
