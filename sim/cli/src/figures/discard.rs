// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! UvmDiscard, tables 1 and 3 to 8, figures 6 and 7.
//!
//! The micro-benchmarks are rebuilt from what the paper's text and its tables of
//! traffic say of their buffers.

use serde::Deserialize;
use uvmsim_machine::Machine;
use uvmsim_physical::policies::prefetch_ahead;
use uvmsim_physical::workload::Kernel;
use uvmsim_physical::workload::Use;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Policy;
use uvmsim_physical::System;
use uvmsim_physical::Workload;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;
use uvmsim_trace::Kind;

use super::desk::both;
use super::desk::cell;
use super::desk::pictured;
use super::desk::run_physical;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Measured;
use super::desk::Point;
use super::sheet;
use super::sheet::Sheet;

pub const PCIE3: &str = "3080ti-pcie3";
pub const PCIE4: &str = "3080ti-pcie4";

/// The paper's three systems.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Opt,
    Discard,
    Lazy,
}

/// All of them, in the order of the paper's tables.
const MODES: [Mode; 3] = [Mode::Opt, Mode::Discard, Mode::Lazy];

// The micro-benchmarks.

/// A program: kernels over buffers, one run of it, with requests by hand.
struct Program {
    workload: Workload,
    /// Whether each kernel's buffers are prefetched one kernel ahead.
    prefetched: bool,
    /// Buffers that hold nothing useful once a kernel is done.
    discards: Vec<Vec<u32>>,
    mode: Mode,
}

/// Carries out a program's requests.
struct ByHand<'a>(&'a Program);

impl Policy for ByHand<'_> {
    fn name(&self) -> &str {
        "by-hand"
    }

    fn kernel_start(&mut self, k: usize, s: &mut System<'_>) {
        if self.0.prefetched {
            prefetch_ahead(k, s);
        } else {
            s.in_stream();
        }
    }

    fn kernel_end(&mut self, k: usize, s: &mut System<'_>) {
        if self.0.mode != Mode::Opt {
            for &t in &self.0.discards[k] {
                s.discard(t, self.0.mode == Mode::Discard);
            }
        }
    }

    fn waits(&self) -> bool {
        self.0.prefetched
    }
}

/// A kernel that streams its buffers through the GPU's memory.
fn kernel(name: &str, reads: &[u32], writes: &[u32], bytes: f64, machine: &Machine) -> Kernel {
    let reads = reads.iter().map(|&t| Use::read(t));
    let writes = writes.iter().map(|&t| Use::write(t));
    let ns = (bytes / machine.gpu_bw * 1e9) as u64;
    Kernel::new(name, ns, reads.chain(writes))
}

/// Keeps what is not read again alive to the end: the program's output.
fn keep_to_the_end(w: &mut Workload, tensors: impl Iterator<Item = u32>) {
    let last = w.kernels.len() as u32 - 1;
    for t in tensors {
        let uses = &mut w.tensors[t as usize].uses;
        if uses.last().is_some_and(|u| u.0 < last) {
            uses.push((last, false));
        }
    }
}

/// FIR (section 7.2): 5.66 GB of input in windows, each read once and then useless,
/// and as much output. The size of the output and of a window follow from table 4:
/// what leaves the GPU is what does not fit.
const FIR_INPUT: u64 = 5_660_000_000;
const FIR_WINDOWS: u32 = 24;

fn fir(mode: Mode, machine: &Machine) -> Program {
    let window = FIR_INPUT / u64::from(FIR_WINDOWS);
    let buffer = |name: &str, kind, i| (format!("{name}.{i}"), window, kind);
    let mut tensors: Vec<_> = (0..FIR_WINDOWS)
        .map(|i| buffer("input", Kind::Weight, i))
        .collect();
    tensors.extend((0..FIR_WINDOWS).map(|i| buffer("output", Kind::Activation, i)));
    let bytes = 2.0 * window as f64;
    let kernels = (0..FIR_WINDOWS)
        .map(|i| kernel("fir", &[i], &[FIR_WINDOWS + i], bytes, machine))
        .collect();
    let mut workload = Workload::new("fir", tensors, kernels);
    keep_to_the_end(&mut workload, FIR_WINDOWS..2 * FIR_WINDOWS);
    Program {
        workload,
        prefetched: true,
        discards: (0..FIR_WINDOWS).map(|i| vec![i]).collect(),
        mode,
    }
}

/// Radix sort (section 7.3): 5 GB of keys and values and a temporary buffer as
/// large; each pass sorts into the temporary buffer and back. Eight passes make the
/// traffic of table 6. Nothing is prefetched where memory is oversubscribed.
const SORT_BYTES: u64 = 5_000_000_000;
const SORT_PASSES: usize = 8;

fn sort(mode: Mode, machine: &Machine) -> Program {
    let tensors = vec![
        ("keys".into(), SORT_BYTES, Kind::Weight),
        ("temporary".into(), SORT_BYTES, Kind::Activation),
    ];
    let bytes = 2.0 * SORT_BYTES as f64;
    let pass = [("sort", 0, 1), ("reorder", 1, 0)];
    let pass = pass.map(|(name, from, to)| kernel(name, &[from], &[to], bytes, machine));
    let kernels = std::iter::repeat_n(pass, SORT_PASSES).flatten();
    let mut workload = Workload::new("radix-sort", tensors, kernels.collect());
    keep_to_the_end(&mut workload, 1..2);
    Program {
        workload,
        prefetched: 2 * SORT_BYTES <= machine.gpu_mem,
        discards: (0..2 * SORT_PASSES as u32).map(|k| vec![k % 2]).collect(),
        mode,
    }
}

/// A micro-benchmark: its name, and a run of it.
#[derive(Clone, Copy)]
pub struct Bench(&'static str, fn(Mode, &Machine) -> Program);
pub const FIR: Bench = Bench("fir", fir);
pub const SORT: Bench = Bench("sort", sort);

/// How many times GPU memory the buffers are, by column; 0: all fits.
const RATIOS: [u64; 4] = [0, 2, 3, 4];

/// One run of a program whose buffers are `ratio` times GPU memory.
fn program(
    desk: &mut Desk,
    Bench(name, make): Bench,
    mode: Mode,
    preset: &'static str,
    ratio: u64,
) -> Answer {
    let point = Point::new("", 1, preset).with("keep-clean", 0);
    desk.ask(format!("{name} {mode:?} {preset} {ratio}"), move |_| {
        let mut machine = point.machine()?;
        let footprint = Layout::new(&make(mode, &machine).workload).span;
        if let Some(share) = footprint.checked_div(ratio) {
            machine.gpu_mem = share;
        }
        let p = make(mode, &machine);
        let layout = Layout::new(&p.workload);
        let once = Limits {
            warm_up: 0,
            ..Limits::default()
        };
        run_physical(&machine, &p.workload, &layout, &mut ByHand(&p), once)
    })
}

/// The published run times of UvmDiscard and UvmDiscardLazy: at each ratio with either PCIe.
fn both_systems(sheet: &Sheet) -> impl Iterator<Item = (String, Mode, Vec<f64>)> {
    let modes = [
        ("UvmDiscard", Mode::Discard),
        ("UvmDiscardLazy", Mode::Lazy),
    ];
    let rows = modes.into_iter().zip(sheet.rows());
    rows.map(|((label, mode), published)| (label.into(), mode, published))
}

/// Tables 3 and 5, run times.
pub fn run_times(desk: &mut Desk, sheet: &Sheet, bench: Bench) -> Vec<Row> {
    let row = |(label, mode, published): (String, Mode, Vec<f64>)| {
        let points = RATIOS.iter().flat_map(|&r| [(r, PCIE3), (r, PCIE4)]);
        let cells = points.zip(published).map(|((ratio, preset), published)| {
            let opt = program(desk, bench, Mode::Opt, preset, ratio);
            let ours = program(desk, bench, mode, preset, ratio);
            cell(published, both(&opt, &ours, |a, b| b.step_s / a.step_s))
        });
        Row::new(label, cells)
    };
    both_systems(sheet).map(row).collect()
}

/// Tables 4 and 6, gigabytes that cross the link, under each system at each ratio.
pub fn traffic(desk: &mut Desk, sheet: &Sheet, bench: Bench) -> Vec<Row> {
    let row = |(mode, published): (Mode, Vec<f64>)| {
        let cells = RATIOS.iter().zip(published).map(|(&ratio, published)| {
            let ours = program(desk, bench, mode, PCIE3, ratio);
            cell(
                published,
                value(&ours, |m| m.traffic.iter().sum::<u64>() as f64 / 1e9),
            )
        });
        Row::new(format!("{mode:?}"), cells)
    };
    MODES.into_iter().zip(sheet.rows()).map(row).collect()
}

/// A cell of the hash join's, which cannot be rebuilt.
fn of_join(published: f64) -> Cell {
    let why = "the paper does not say how large the join's tables and intermediate buffers are, and its traffic does not determine them";
    cell(published, Value::Absent(why.into()))
}

/// Table 7, run times of the hash join.
pub fn table_7(_: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let row = |(label, _, published): (String, Mode, Vec<f64>)| {
        Row::new(label, published.into_iter().map(of_join))
    };
    both_systems(sheet).map(row).collect()
}

/// Table 8, traffic of the hash join.
pub fn table_8(_: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let row = |(mode, published): (Mode, Vec<f64>)| {
        Row::new(format!("{mode:?}"), published.into_iter().map(of_join))
    };
    MODES.into_iter().zip(sheet.rows()).map(row).collect()
}

// Deep learning.

/// GB that the paper's Darknet allocates, at two batches (section 7.5).
#[derive(Clone, Deserialize)]
struct Darknet {
    net: String,
    label: String,
    allocated: [(u64, f64); 2],
}

impl Darknet {
    fn all() -> Vec<Self> {
        sheet::rows("discard-6")
    }

    /// Bytes at `batch`, on the line through the two points.
    fn bytes(&self, batch: u64) -> f64 {
        let [(a, x), (b, y)] = self.allocated;
        1e9 * (x + (y - x) * (batch as f64 - a as f64) / (b - a) as f64)
    }

    /// Samples a second of a step on a GPU scaled to the paper's footprint.
    fn speed(&self, desk: &mut Desk, batch: u64, policy: &str, preset: &'static str) -> Value {
        let (d, name) = (self.clone(), policy.to_string());
        let key = format!("darknet {} {batch} {policy} {preset}", d.net);
        let answer = desk.ask(key, move |s| {
            let point = Point::new(&d.net, batch, preset).with("keep-clean", 0);
            let (_, layout) = point.workload(s)?;
            let memory = point.machine()?.gpu_mem as f64 * layout.span as f64 / d.bytes(batch);
            point.with("gpu-mem", memory as u64).run(s, &name)
        });
        value(&answer, |m: &Measured| batch as f64 / m.step_s)
    }
}

/// Table 1, throughput only.
pub fn table_1(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let Some(vgg) = Darknet::all().into_iter().next() else {
        return Vec::new();
    };
    let row = |(label, policy, published): (String, String, Vec<(u64, f64)>)| {
        let cells = published
            .into_iter()
            .map(|(batch, published)| cell(published, vgg.speed(desk, batch, &policy, "gtx1070")));
        Row::new(label, cells)
    };
    sheet.rows().into_iter().map(row).collect()
}

/// Figures 6 and 7, throughput.
pub fn throughput(desk: &mut Desk, preset: &'static str) -> Vec<Row> {
    let mut rows = Vec::new();
    for d in Darknet::all() {
        let [(first, _), (last, _)] = d.allocated;
        for batch in [first / 2, first, last] {
            let cells = ["ideal", "uvm-opt", "uvm-discard", "uvm-discard-lazy"]
                .map(|policy| pictured(d.speed(desk, batch, policy, preset)));
            rows.push(Row::new(format!("{} {batch}", d.label), cells));
        }
    }
    rows
}
