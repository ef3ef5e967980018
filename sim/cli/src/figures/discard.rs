// SPDX-License-Identifier: GPL-2.0 OR MIT

//! UvmDiscard, tables 1, 3 to 5 and 7, figures 6 and 7.
//!
//! The micro-benchmarks are rebuilt from what the paper's text and its tables of
//! traffic say of their buffers.

use uvmsim_machine::Machine;
use uvmsim_physical::workload::Kernel;
use uvmsim_physical::workload::Use;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Policy;
use uvmsim_physical::System;
use uvmsim_physical::Workload;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Figure;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;
use uvmsim_trace::Kind;

use super::desk::both;
use super::desk::cell;
use super::desk::pictured;
use super::desk::run_for;
use super::desk::run_physical;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Measured;
use super::desk::Point;
use super::desk::Sources;
use super::desk::Why;

const PRINTED: &str = "printed in the paper, exact to its last digit";
const PRESETS: [(&str, &str); 2] = [("PCIe 3", "3080ti-pcie3"), ("PCIe 4", "3080ti-pcie4")];
const EXCLUSIVE: &str = "copies exclusive as upstream (--keep-clean 0)";

/// The paper's three systems.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Opt,
    Discard,
    Lazy,
}

const MODES: [Mode; 3] = [Mode::Opt, Mode::Discard, Mode::Lazy];

fn figure(
    name: &'static str,
    source: &'static str,
    title: &'static str,
    unit: &'static str,
) -> Figure {
    Figure {
        published: PRINTED,
        machine: format!("physical model, presets 3080ti-pcie3 and 3080ti-pcie4, {EXCLUSIVE}"),
        ..Figure::new(name, source, title, unit)
    }
}

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

impl Program {
    fn prefetch(&self, k: usize, s: &mut System<'_>) {
        let workload = s.workload;
        for u in workload
            .kernels
            .get(k)
            .map_or(&[][..], |kernel| &kernel.uses)
        {
            s.prefetch(u.tensor);
        }
    }
}

/// Carries out a program's requests.
struct ByHand<'a>(&'a Program);

impl Policy for ByHand<'_> {
    fn name(&self) -> &str {
        "by-hand"
    }

    fn kernel_start(&mut self, k: usize, s: &mut System<'_>) {
        if k == 0 && self.0.prefetched {
            self.0.prefetch(0, s);
        }
        // The calls before this kernel are in its stream.
        s.in_stream();
        if self.0.prefetched {
            self.0.prefetch(k + 1, s);
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
    let one = |tensor, read| Use {
        tensor,
        read,
        write: !read,
    };
    let reads = reads.iter().map(|&t| one(t, true));
    Kernel {
        name: name.into(),
        ns: (bytes / machine.gpu_bw * 1e9) as u64,
        uses: reads.chain(writes.iter().map(|&t| one(t, false))).collect(),
    }
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
    let kernels = (0..FIR_WINDOWS)
        .map(|i| {
            kernel(
                "fir",
                &[i],
                &[FIR_WINDOWS + i],
                2.0 * window as f64,
                machine,
            )
        })
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
    let mut kernels = Vec::new();
    for _ in 0..SORT_PASSES {
        kernels.push(kernel("sort", &[0], &[1], 2.0 * SORT_BYTES as f64, machine));
        kernels.push(kernel(
            "reorder",
            &[1],
            &[0],
            2.0 * SORT_BYTES as f64,
            machine,
        ));
    }
    let mut workload = Workload::new("radix-sort", tensors, kernels);
    keep_to_the_end(&mut workload, 1..2);
    Program {
        workload,
        prefetched: 2 * SORT_BYTES <= machine.gpu_mem,
        discards: (0..2 * SORT_PASSES as u32).map(|k| vec![k % 2]).collect(),
        mode,
    }
}

const RATIOS: [(&str, u64); 4] = [("<100%", 0), ("200%", 2), ("300%", 3), ("400%", 4)];

/// One run of a program whose buffers are `ratio` times GPU memory; 0: all fits.
fn program(
    desk: &mut Desk,
    name: &str,
    make: fn(Mode, &Machine) -> Program,
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
        run_for(&machine, &p.workload, &layout, &mut ByHand(&p), once)
    })
}

/// Published run times, per system, oversubscription and PCIe generation.
type Times = [[[f64; 2]; 4]; 2];

fn run_times(
    desk: &mut Desk,
    f: &mut Figure,
    name: &str,
    make: fn(Mode, &Machine) -> Program,
    published: &Times,
) {
    f.columns = RATIOS
        .iter()
        .flat_map(|(r, _)| PRESETS.map(|(p, _)| format!("{r} {}", p.replace("PCIe ", "P"))))
        .collect();
    for (m, mode) in [Mode::Discard, Mode::Lazy].into_iter().enumerate() {
        let mut cells = Vec::new();
        for (r, &(_, ratio)) in RATIOS.iter().enumerate() {
            for (p, (_, preset)) in PRESETS.into_iter().enumerate() {
                let opt = program(desk, name, make, Mode::Opt, preset, ratio);
                let ours = program(desk, name, make, mode, preset, ratio);
                cells.push(cell(
                    published[m][r][p],
                    both(&opt, &ours, |a, b| b.step_s / a.step_s),
                ));
            }
        }
        f.rows.push(Row {
            label: format!(
                "Uvm{}",
                if mode == Mode::Lazy {
                    "DiscardLazy"
                } else {
                    "Discard"
                }
            ),
            cells,
        });
    }
}

const FIR_NOTE: &str = "FIR is rebuilt from the text and table 4: 5.66 GB of input in 24 windows, as much output, kernels as fast as memory";

/// Table 3.
pub fn table_3(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "discard-t3",
        "UvmDiscard table 3",
        "FIR",
        "run time over UVM-opt's",
    );
    let published = [
        [[1.0, 1.01], [0.51, 0.52], [0.62, 0.65], [0.71, 0.71]],
        [[1.0, 1.0], [0.52, 0.52], [0.62, 0.66], [0.72, 0.71]],
    ];
    run_times(desk, &mut f, "fir", fir, &published);
    f.notes.push(FIR_NOTE.into());
    f
}

/// Table 4.
pub fn table_4(desk: &mut Desk) -> Figure {
    let mut f = figure("discard-t4", "UvmDiscard table 4", "traffic of FIR", "GB");
    f.columns = RATIOS.map(|(r, _)| r.to_string()).into();
    let published = [
        [5.66, 11.44, 13.38, 14.34],
        [5.66, 5.88, 7.81, 8.78],
        [5.66, 5.88, 7.81, 8.78],
    ];
    for (mode, published) in MODES.into_iter().zip(published) {
        let cells = RATIOS
            .iter()
            .zip(published)
            .map(|(&(_, ratio), published)| {
                let ours = program(desk, "fir", fir, mode, PRESETS[0].1, ratio);
                cell(published, value(&ours, |m| m.bytes() as f64 / 1e9))
            });
        f.rows.push(Row {
            label: format!("{mode:?}"),
            cells: cells.collect(),
        });
    }
    f.notes.push(FIR_NOTE.into());
    f
}

/// Table 5.
pub fn table_5(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "discard-t5",
        "UvmDiscard table 5",
        "radix sort",
        "run time over UVM-opt's",
    );
    let published = [
        [[1.21, 1.28], [0.87, 0.83], [0.95, 0.93], [0.97, 0.97]],
        [[1.0, 1.02], [0.87, 0.83], [0.95, 0.92], [0.97, 0.99]],
    ];
    run_times(desk, &mut f, "sort", sort, &published);
    f.notes.push("the sort is rebuilt from the text and table 6: 5 GB and a temporary buffer as large, 8 passes of two kernels, each from the first page to the last; the real kernels scatter, so that more of what they touch is gone again".into());
    f
}

/// Table 7, which cannot be rebuilt.
pub fn table_7(_desk: &mut Desk) -> Figure {
    let mut f = figure(
        "discard-t7",
        "UvmDiscard table 7",
        "hash join",
        "run time over UVM-opt's",
    );
    f.columns = RATIOS
        .iter()
        .flat_map(|(r, _)| PRESETS.map(|(p, _)| format!("{r} {}", p.replace("PCIe ", "P"))))
        .collect();
    let rows = [
        (
            "UvmDiscard",
            [1.05, 1.09, 0.24, 0.31, 0.51, 0.54, 0.86, 0.89],
        ),
        (
            "UvmDiscardLazy",
            [1.02, 1.04, 0.24, 0.31, 0.51, 0.54, 0.86, 0.88],
        ),
    ];
    let why = "the paper does not say how large the join's tables and intermediate buffers are, and its traffic does not determine them";
    for (label, published) in rows {
        f.rows.push(Row {
            label: label.into(),
            cells: published
                .iter()
                .map(|&p| cell(p, Value::Absent(why.into())))
                .collect(),
        });
    }
    f
}

// Deep learning.

/// Bytes that the paper's Darknet allocates, at two batches (section 7.5).
struct Darknet {
    net: &'static str,
    label: &'static str,
    allocated: [(u64, f64); 2],
}

const DARKNET: [Darknet; 4] = [
    darknet("vgg16", "VGG-16", [(75, 12.0), (150, 21.1)]),
    darknet("darknet19", "Darknet-19", [(171, 11.2), (360, 23.4)]),
    darknet("darknet53", "ResNet-53", [(56, 10.8), (150, 28.5)]),
    darknet("rnn", "RNN", [(150, 10.2), (300, 20.0)]),
];

const fn darknet(net: &'static str, label: &'static str, allocated: [(u64, f64); 2]) -> Darknet {
    Darknet {
        net,
        label,
        allocated,
    }
}

impl Darknet {
    /// Bytes at `batch`, on the line through the two points.
    fn bytes(&self, batch: u64) -> f64 {
        let [(a, x), (b, y)] = self.allocated;
        1e9 * (x + (y - x) * (batch as f64 - a as f64) / (b - a) as f64)
    }
}

const SCALED: &str = "Darknet allocates each buffer once and reuses none, ours reuses memory: GPU memory is scaled so that the zoo's step exceeds it as much as the paper says that Darknet's does (a line through its two points for a network)";

/// A step of `d` on a GPU scaled to its footprint.
fn training(
    desk: &mut Desk,
    d: &'static Darknet,
    batch: u64,
    policy: &'static str,
    preset: &'static str,
) -> Answer {
    desk.ask(
        format!("darknet {} {batch} {policy} {preset}", d.net),
        move |s: &Sources| {
            let mut point = Point::new(d.net, batch, preset).with("keep-clean", 0);
            let (w, l) = point.workload(s)?;
            let memory = point.machine()?.gpu_mem as f64 * l.span as f64 / d.bytes(batch);
            point = point.with("gpu-mem", memory as u64);
            let machine = point.machine()?;
            let mut policy = uvmsim_physical::policies::make(policy, &machine, &w, &l)
                .map_err(|e| Why::Fails(e.to_string()))?;
            run_physical(&machine, &w, &l, policy.as_mut())
        },
    )
}

/// Table 1, throughput only.
pub fn table_1(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "discard-t1",
        "UvmDiscard table 1",
        "VGG-16 on a GTX 1070",
        "images/s",
    );
    f.digits = 0;
    f.machine = format!("physical model, preset gtx1070, {EXCLUSIVE}");
    let batches = [40, 50, 60, 70, 80];
    f.columns = batches.map(|b| format!("batch {b}")).into();
    let rows = [
        ("DarkNet-UVM", "uvm-opt", [29.0, 29.0, 25.0, 22.0, 20.0]),
        (
            "DarkNet-Discard",
            "uvm-discard",
            [29.0, 29.0, 28.0, 26.0, 24.0],
        ),
    ];
    for (label, policy, published) in rows {
        let cells = batches.iter().zip(published).map(|(&batch, published)| {
            let ours = training(desk, &DARKNET[0], batch, policy, "gtx1070");
            cell(published, value(&ours, |m| batch as f64 / m.step_s))
        });
        f.rows.push(Row {
            label: label.into(),
            cells: cells.collect(),
        });
    }
    f.notes.push(SCALED.into());
    f.notes.push("the table's traffic is over an unstated number of steps and is left out, and so is PyTorch-LMS, no policy of uvmsim".into());
    f
}

fn throughput(desk: &mut Desk, mut f: Figure, preset: &'static str) -> Figure {
    f.published = "a picture only; the text: UvmDiscard costs up to 16 % where all fits, and the lazy one is best where it does not";
    f.digits = 1;
    f.machine = format!("physical model, preset {preset}, {EXCLUSIVE}");
    let policies = ["ideal", "uvm-opt", "uvm-discard", "uvm-discard-lazy"];
    f.columns = policies.map(String::from).into();
    for d in &DARKNET {
        let [(first, _), (last, _)] = d.allocated;
        for batch in [first / 2, first, last] {
            let cells: Vec<Cell> = policies
                .iter()
                .map(|policy| {
                    let ours = training(desk, d, batch, policy, preset);
                    pictured(value(&ours, |m: &Measured| batch as f64 / m.step_s))
                })
                .collect();
            f.rows.push(Row {
                label: format!("{} {batch}", d.label),
                cells,
            });
        }
    }
    f.notes.push(SCALED.into());
    f.notes
        .push("\"ideal\" is the paper's No-UVM where all fits in GPU memory".into());
    f
}

/// Figure 6.
pub fn figure_6(desk: &mut Desk) -> Figure {
    let f = figure(
        "discard-6",
        "UvmDiscard figure 6",
        "training with PCIe 4",
        "samples/s",
    );
    throughput(desk, f, PRESETS[1].1)
}

/// Figure 7.
pub fn figure_7(desk: &mut Desk) -> Figure {
    let f = figure(
        "discard-7",
        "UvmDiscard figure 7",
        "training with PCIe 3",
        "samples/s",
    );
    throughput(desk, f, PRESETS[0].1)
}
