// SPDX-License-Identifier: GPL-2.0 OR MIT

//! DeepUM (ASPLOS 2023), figures 9 to 12 and tables 3 to 7.
//!
//! Ours are steps of the zoo on the physical model; `deepum` is the driver's own
//! tables (`src/uvm_rust/policy/prefetch/`).

use uvm_policy::prefetch::Config;
use uvm_policy::prefetch::Shape;
use uvmsim_physical::policies::deepum_config;
use uvmsim_physical::policies::execution_ids;
use uvmsim_physical::policies::DeepUm;
use uvmsim_physical::policies::Parts;
use uvmsim_physical::Workload;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Figure;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;

use super::desk::add_mean;
use super::desk::both;
use super::desk::cell;
use super::desk::pictured;
use super::desk::run_physical;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Measured;
use super::desk::Point;
use super::desk::Why;

/// A network and batch of figure 9(b), with what the paper says of it.
struct Published {
    net: &'static str,
    label: &'static str,
    batch: u64,
    /// Seconds for 100 iterations, naive UM and DeepUM (figure 9(b)).
    um_s: f64,
    deepum_s: f64,
    /// Tables in MB (table 4).
    tables_mb: f64,
    /// Faults an iteration, UM and DeepUM (table 5).
    um_faults: f64,
    deepum_faults: f64,
}

const fn point(
    net: &'static str,
    label: &'static str,
    batch: u64,
    [um_s, deepum_s, tables_mb, um_faults, deepum_faults]: [f64; 5],
) -> Published {
    Published {
        net,
        label,
        batch,
        um_s,
        deepum_s,
        tables_mb,
        um_faults,
        deepum_faults,
    }
}

const XL: &str = "gpt2-xl";
const POINTS: [Published; 23] = [
    point(
        XL,
        "GPT-2 XL 3",
        3,
        [4597.0, 1429.0, 308.0, 7437122.0, 687.0],
    ),
    point(
        XL,
        "GPT-2 XL 5",
        5,
        [7706.0, 2332.0, 344.0, 12395173.0, 7612.0],
    ),
    point(
        XL,
        "GPT-2 XL 7",
        7,
        [10981.0, 3163.0, 348.0, 17210705.0, 2549.0],
    ),
    point(
        "gpt2-l",
        "GPT-2 L 3",
        3,
        [1865.0, 605.0, 169.0, 2948920.0, 235.0],
    ),
    point(
        "gpt2-l",
        "GPT-2 L 5",
        5,
        [3839.0, 1163.0, 213.0, 6055304.0, 476.0],
    ),
    point(
        "gpt2-l",
        "GPT-2 L 7",
        7,
        [5727.0, 1695.0, 232.0, 8974631.0, 884.0],
    ),
    point(
        "bert-large",
        "BERT L 14",
        14,
        [978.0, 290.0, 78.0, 1171717.0, 2913.0],
    ),
    point(
        "bert-large",
        "BERT L 16",
        16,
        [1307.0, 403.0, 75.0, 1777710.0, 84.0],
    ),
    point(
        "bert-large",
        "BERT L 18",
        18,
        [1430.0, 438.0, 74.0, 1834746.0, 1355.0],
    ),
    point(
        "bert-base",
        "BERT B 29",
        29,
        [135.0, 129.0, 19.0, 88459.0, 1595.0],
    ),
    point(
        "bert-base",
        "BERT B 30",
        30,
        [273.0, 158.0, 27.0, 349106.0, 4536.0],
    ),
    point(
        "bert-base",
        "BERT B 31",
        31,
        [578.0, 222.0, 33.0, 1077223.0, 5531.0],
    ),
    point(
        "dlrm",
        "DLRM 96K",
        96 << 10,
        [1203.0, 1005.0, 13.0, 1263865.0, 3706.0],
    ),
    point(
        "dlrm",
        "DLRM 128K",
        128 << 10,
        [1657.0, 1363.0, 19.0, 1712886.0, 6912.0],
    ),
    point(
        "dlrm",
        "DLRM 160K",
        160 << 10,
        [2123.0, 1682.0, 30.0, 2583610.0, 22624.0],
    ),
    point(
        "dlrm",
        "DLRM 192K",
        192 << 10,
        [2894.0, 2201.0, 31.0, 3471958.0, 32139.0],
    ),
    point(
        "dlrm",
        "DLRM 224K",
        224 << 10,
        [3318.0, 2507.0, 35.0, 4278593.0, 38437.0],
    ),
    point(
        "resnet152",
        "ResNet152 1280",
        1280,
        [31002.0, 3922.0, 115.0, 121380940.0, 34323.0],
    ),
    point(
        "resnet152",
        "ResNet152 1536",
        1536,
        [38173.0, 4767.0, 128.0, 144893625.0, 72598.0],
    ),
    point(
        "resnet152",
        "ResNet152 1792",
        1792,
        [49283.0, 5965.0, 130.0, 182230994.0, 144455.0],
    ),
    point(
        "resnet200",
        "ResNet200 1024",
        1024,
        [32420.0, 4585.0, 144.0, 126734315.0, 107093.0],
    ),
    point(
        "resnet200",
        "ResNet200 1280",
        1280,
        [44900.0, 5835.0, 151.0, 173517031.0, 68039.0],
    ),
    point(
        "resnet200",
        "ResNet200 1536",
        1536,
        [57302.0, 7235.0, 169.0, 207933814.0, 118472.0],
    ),
];

/// Those that figures 11 and 12 show a line of: each network's largest batch.
const LARGEST: [usize; 7] = [2, 5, 8, 11, 16, 19, 22];

const MACHINE: &str = "physical model, preset v100-32: V100 32 GB, 512 GB host, link 13 GB/s, copies exclusive as upstream (--keep-clean 0); steps of the zoo in 32-bit numbers";
const FOOTPRINT: &str = "the zoo's steps are built from shapes: no cuDNN workspaces, no framework overhead, so less memory than PyTorch 1.8 takes; where ours fits in 32 GB, there is nothing to move";

fn figure(
    name: &'static str,
    source: &'static str,
    title: &'static str,
    unit: &'static str,
) -> Figure {
    Figure {
        published: "printed in the paper, exact to its last digit",
        machine: MACHINE.into(),
        notes: vec![FOOTPRINT.into()],
        ..Figure::new(name, source, title, unit)
    }
}

fn step(p: &Published) -> Point {
    Point::new(p.net, p.batch, "v100-32").with("keep-clean", 0)
}

/// A run with the tables changed by `change`; `other` is the tables' bytes.
fn with_tables(
    desk: &mut Desk,
    at: &Point,
    name: &str,
    change: fn(&mut Config, u32),
    by: u32,
) -> Answer {
    let point = at.clone();
    desk.ask(format!("{at:?} deepum {name} {by}"), move |s| {
        let (w, l) = point.workload(s)?;
        let machine = point.machine()?;
        let mut config = deepum_config();
        change(&mut config, by);
        let mut policy =
            DeepUm::new(execution_ids(&w, &l), config).map_err(|e| Why::Fails(e.to_string()))?;
        let mut m = run_physical(&machine, &w, &l, &mut policy)?;
        m.other = policy.stats().table_bytes as f64;
        Ok(m)
    })
}

fn deepum(desk: &mut Desk, at: &Point) -> Answer {
    with_tables(desk, at, "paper", |_, _| {}, 0)
}

/// Figure 9(b).
pub fn figure_9(desk: &mut Desk) -> Figure {
    let mut f = figure("deepum-9", "DeepUM figure 9(b)", "100 iterations", "s");
    f.digits = 0;
    f.log = true;
    f.columns = ["um", "deepum", "ideal"].map(String::from).into();
    for p in &POINTS {
        let at = step(p);
        let hundred = |m: &Measured| 100.0 * m.step_s;
        let um = desk.physical(&at, "base-uvm");
        let ours = deepum(desk, &at);
        f.rows.push(Row {
            label: p.label.into(),
            cells: vec![
                cell(p.um_s, value(&um, hundred)),
                cell(p.deepum_s, value(&ours, hundred)),
                pictured(value(&um, |m| 100.0 * m.ideal_s)),
            ],
        });
    }
    f.notes
        .push("IBM's LMS, the third system of the figure, is no policy of uvmsim".into());
    f
}

/// Table 5.
pub fn table_5(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "deepum-t5",
        "DeepUM table 5",
        "faults of an iteration",
        "pages",
    );
    f.digits = 0;
    f.log = true;
    f.columns = ["um", "deepum", "unforeseen"].map(String::from).into();
    for p in &POINTS {
        let at = step(p);
        let um = desk.physical(&at, "base-uvm");
        let ours = deepum(desk, &at);
        let faults = |m: &Measured| m.faults as f64;
        f.rows.push(Row {
            label: p.label.into(),
            cells: vec![
                cell(p.um_faults, value(&um, faults)),
                cell(p.deepum_faults, value(&ours, faults)),
                Cell {
                    published: Value::none(),
                    ours: value(&ours, |m| (m.faults - m.late_faults) as f64),
                },
            ],
        });
    }
    f.notes.push("the table prints batches 3, 5, 7 for the BERTs too; they are taken to be those of figure 9".into());
    f.notes.push("ours counts pages that a kernel stopped for and the tree prefetcher did not bring; what the paper's counter counts it does not say".into());
    f.notes.push("unforeseen: without pages of blocks that were in the prefetch queue when the kernel reached them. The tables had named those; the link was behind, and a kernel that gets ahead of its prefetches faults in ours, on up to 256 pages of each block. The paper's counts leave no room for that, and it does not say why".into());
    f
}

/// How many execution IDs the step has; nothing is run.
fn distinct_kernels(desk: &mut Desk, at: &Point) -> Answer {
    let point = at.clone();
    desk.ask(format!("execution IDs {at:?}"), move |s| {
        let (w, l) = point.workload(s)?;
        let mut ids = execution_ids(&w, &l);
        ids.sort_unstable();
        ids.dedup();
        Ok(Measured {
            other: ids.len() as f64,
            ..Measured::default()
        })
    })
}

/// Bytes of a block table with all its rows (section 6.2), of 4-byte block numbers.
const WHOLE_TABLE: f64 = 2048.0 * 2.0 * (1.0 + 4.0) * 4.0;

/// Table 4.
pub fn table_4(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "deepum-t4",
        "DeepUM table 4",
        "memory of the correlation tables",
        "MB",
    );
    f.digits = 1;
    f.log = true;
    f.columns = ["whole", "grown"].map(String::from).into();
    let ids: Vec<Answer> = POINTS
        .iter()
        .map(|p| distinct_kernels(desk, &step(p)))
        .collect();
    for (p, ids) in POINTS.iter().zip(ids) {
        let ours = deepum(desk, &step(p));
        let whole = value(&ids, |m| m.other * WHOLE_TABLE / 1e6);
        let grown = Cell {
            published: Value::none(),
            ours: value(&ours, |m| m.other / 1e6),
        };
        f.rows.push(Row {
            label: p.label.into(),
            cells: vec![cell(p.tables_mb, whole), grown],
        });
    }
    f.notes.push("whole: the paper's 2048 rows of two ways, each a block number of 4 bytes and four successors, for every execution ID of the step; the paper does not print the size of an entry, and with 8 bytes ours is twice this".into());
    f.notes.push("grown: what ours take, all queues included; a table grows with what it holds, up to the same 2048 rows".into());
    f
}

/// DeepUM without its later parts.
fn partly(desk: &mut Desk, at: &Point, parts: Parts) -> Answer {
    desk.physical_with(at, &format!("deepum {parts:?}"), move |w, l| {
        let policy = DeepUm::new(execution_ids(w, l), deepum_config())
            .map_err(|e| Why::Fails(e.to_string()))?;
        Ok(Box::new(policy.with(parts)))
    })
}

/// Figure 10.
pub fn figure_10(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "deepum-10",
        "DeepUM figure 10",
        "what each part of DeepUM gains",
        "time, as a share of naive UM's",
    );
    f.published =
        "averages in the text, to one digit after the point of a per cent; the bars are pictures";
    f.columns = ["prefetch", "+pre-evict", "+invalidate"]
        .map(String::from)
        .into();
    for p in &POINTS {
        let at = step(p);
        let um = desk.physical(&at, "base-uvm");
        let parts = [
            partly(desk, &at, Parts::Prefetch),
            partly(desk, &at, Parts::PreEvict),
            deepum(desk, &at),
        ];
        let cells = parts.map(|part| pictured(both(&um, &part, |um, p| p.step_s / um.step_s)));
        f.rows.push(Row {
            label: p.label.into(),
            cells: cells.into(),
        });
    }
    add_mean(&mut f, [0.544, 0.363, 0.333].map(Value::Number));
    f
}

/// Figure 11.
pub fn figure_11(desk: &mut Desk) -> Figure {
    let ahead = [8, 16, 32, 64, 128];
    let mut f = figure(
        "deepum-11",
        "DeepUM figure 11",
        "kernels looked ahead (N)",
        "speed over N = 8",
    );
    f.published = "the text says only that N = 32 is best; the bars are pictures";
    f.digits = 3;
    f.columns = ahead.map(|n| format!("N={n}")).into();
    for p in LARGEST.iter().map(|&i| &POINTS[i]) {
        let at = step(p);
        let answers = ahead.map(|n| with_tables(desk, &at, "N", |c, n| c.ahead = n, n));
        let cells = answers
            .iter()
            .map(|a| pictured(both(&answers[0], a, |first, a| first.step_s / a.step_s)));
        f.rows.push(Row {
            label: p.label.into(),
            cells: cells.collect(),
        });
    }
    add_mean(&mut f, vec![Value::none(); ahead.len()]);
    f
}

/// Table 6: ways, successors, rows of configurations 0 to 12.
const SHAPES: [[u32; 3]; 13] = [
    [2, 4, 128],
    [2, 8, 128],
    [4, 4, 128],
    [2, 4, 512],
    [2, 8, 512],
    [4, 4, 512],
    [2, 4, 1024],
    [2, 8, 1024],
    [4, 4, 1024],
    [2, 4, 2048],
    [2, 8, 2048],
    [4, 4, 2048],
    [2, 4, 4096],
];

/// Figure 12, whose configurations are table 6.
pub fn figure_12(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "deepum-12",
        "DeepUM figure 12, table 6",
        "shapes of the block tables",
        "speed over configuration 0",
    );
    f.published =
        "the text says only that configuration 9 is best on average; the bars are pictures";
    f.digits = 3;
    f.columns = SHAPES
        .map(|[assoc, succs, rows]| format!("{rows}x{assoc}x{succs}"))
        .into();
    for p in LARGEST.iter().map(|&i| &POINTS[i]) {
        let at = step(p);
        let change = |c: &mut Config, i: u32| {
            let [assoc, succs, rows] = SHAPES[i as usize];
            c.shape = Shape { rows, assoc, succs };
        };
        let answers: Vec<Answer> = (0..SHAPES.len() as u32)
            .map(|i| with_tables(desk, &at, "shape", change, i))
            .collect();
        let cells = answers
            .iter()
            .map(|a| pictured(both(&answers[0], a, |first, a| first.step_s / a.step_s)));
        f.rows.push(Row {
            label: p.label.into(),
            cells: cells.collect(),
        });
    }
    add_mean(&mut f, vec![Value::none(); SHAPES.len()]);
    f.notes
        .push("columns are NumRows x Assoc x NumSuccs; 2048x2x4 is configuration 9".into());
    f
}

/// The largest batch whose live bytes fit in host memory at their peak, which is
/// what DeepUM's section 6.2 says limits it.
fn largest_batch(desk: &mut Desk, net: &'static str, tokens: Option<u64>, host: f64) -> Answer {
    desk.ask(format!("largest {net} {tokens:?} {host}"), move |s| {
        let fits = |batch: u64| -> Result<bool, Why> {
            let point = Point {
                tokens,
                ..Point::new(net, batch, "v100-32")
            };
            let live = Workload::from_trace(&*point.trace(s)?).live_bytes();
            Ok(live.into_iter().max().unwrap_or(0) as f64 <= host)
        };
        let (mut low, mut high) = (0, 1);
        while fits(high)? {
            low = high;
            high *= 2;
            if high > uvmsim_zoo::LARGEST {
                return Err(Why::Fails(format!(
                    "{low} samples still fit, and the zoo builds no larger step"
                )));
            }
        }
        while high - low > 1.max(low / 200) {
            let middle = (low + high) / 2;
            if fits(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(Measured {
            other: low as f64,
            ..Measured::default()
        })
    })
}

const LARGEST_NOTE: &str = "ours: the largest batch, within 0.5 %, whose live bytes fit in host memory at their peak; nothing is run, and fragmentation does not count";

fn largest(
    f: &mut Figure,
    desk: &mut Desk,
    nets: &[(&'static str, &'static str, Option<u64>, f64)],
    host: f64,
) {
    f.digits = 0;
    f.columns = vec!["batch".into()];
    for &(net, label, tokens, published) in nets {
        let ours = largest_batch(desk, net, tokens, host);
        f.rows.push(Row {
            label: label.into(),
            cells: vec![cell(published, value(&ours, |m| m.other))],
        });
    }
    f.log = true;
    f.notes.push(LARGEST_NOTE.into());
}

/// Table 3.
pub fn table_3(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "deepum-t3",
        "DeepUM table 3",
        "largest batches under DeepUM",
        "samples",
    );
    f.machine = "512 GB of host memory; steps of the zoo".into();
    let nets = [
        (XL, "GPT-2 XL", None, 16.0),
        ("gpt2-l", "GPT-2 L", None, 24.0),
        ("bert-large", "BERT Large", None, 192.0),
        ("bert-base", "BERT Base", None, 256.0),
        ("dlrm", "DLRM", None, 524_288.0),
        ("resnet200", "ResNet200", None, 2304.0),
        ("resnet152", "ResNet152", None, 1792.0),
    ];
    largest(&mut f, desk, &nets, 512e9);
    f
}

/// Table 7.
pub fn table_7(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "deepum-t7",
        "DeepUM table 7",
        "largest batches under DeepUM in 128 GB",
        "samples",
    );
    f.machine = "128 GB of host memory; steps of the zoo".into();
    let nets = [
        ("bert-large", "BERT Large (CoLA)", None, 64.0),
        ("dcgan", "DCGAN (celebA)", None, 3500.0),
    ];
    largest(&mut f, desk, &nets, 128e9);
    for (label, published) in [
        ("ResNet200 (CIFAR-10)", 6400.0),
        ("MobileNet (CIFAR-100)", 5100.0),
    ] {
        let why = "the zoo's network takes images of 224 x 224, not CIFAR's";
        f.rows.push(Row {
            label: label.into(),
            cells: vec![cell(published, Value::Absent(why.into()))],
        });
    }
    f.notes.push("the TensorFlow systems of the table are no policies of uvmsim; CoLA's sentences are shorter than the 512 tokens assumed".into());
    f
}
