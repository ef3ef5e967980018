// SPDX-License-Identifier: GPL-2.0 OR MIT

//! MOST, figures 1 and 5 to 8.
//!
//! The paper runs the G10 artifact's simulator with an RTX 4090 and an SSD alone.
//! Figures 5 and 8 do the same (`--model g10`). What is lost to oversubscription, and
//! several GPUs, only the physical model knows: figures 1, 6 and 7.

use uvmsim_engine::g10::Machine;
use uvmsim_engine::g10::Policy;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Figure;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;

use super::desk::add_mean;
use super::desk::both;
use super::desk::pictured;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Point;
use crate::g10::Runner;

const AVERAGES: &str = "averages in the text, to one digit after the point; the bars are pictures";
const PHYSICAL: &str =
    "physical model, preset rtx4090: 24 GB, PCIe 5, SSD 3.2 GB/s each way, no host memory";
const TRACES: &str = "BERT and ViT are the traces of the artifact whose simulator the paper runs, at a batch without times those on the line through two others; the artifact's ViT has 384 channels, 6 heads and patches of 32, where ViT-Base has 768, 12 and 16, whose largest kernel does not fit at batch 4096; OPT-1.3B is the zoo's, with a roofline's times, as no trace of it is public, with samples of 128 tokens (the paper does not say)";
const G10_MACHINE: &str = "the artifact's machine (--model g10) with MOST's table I: 24 GiB, PCIe 5 x16 (63.015 GB/s), SSD 3.2 GB/s, no host memory";

/// The steps of table I, each network's smaller batch first.
fn points() -> [(&'static str, Point); 6] {
    let artifact = |net, batch| Point {
        artifact: true,
        ..Point::new(net, batch, "rtx4090")
    };
    let opt = |batch| Point {
        tokens: Some(128),
        ..Point::new("opt-1.3b", batch, "rtx4090")
    };
    [
        ("BERT 512", artifact("BERT", 512)),
        ("BERT 1024", artifact("BERT", 1024)),
        ("ViT 2048", artifact("VIT", 2048)),
        ("ViT 4096", artifact("VIT", 4096)),
        ("OPT-1.3B 128", opt(128)),
        ("OPT-1.3B 256", opt(256)),
    ]
}

fn figure(
    name: &'static str,
    source: &'static str,
    title: &'static str,
    unit: &'static str,
    machine: &str,
) -> Figure {
    Figure {
        published: AVERAGES,
        machine: machine.into(),
        notes: vec![TRACES.into()],
        ..Figure::new(name, source, title, unit)
    }
}

const POLICIES: [&str; 4] = ["base-uvm", "deepum", "g10", "most"];

/// Figure 1.
pub fn figure_1(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "most-1",
        "MOST figure 1",
        "share of the step lost to oversubscription",
        "% of the step",
        PHYSICAL,
    );
    f.columns = POLICIES[..3].iter().map(ToString::to_string).collect();
    f.digits = 1;
    for (label, point) in points() {
        let cells = POLICIES[..3].iter().map(|policy| {
            let share =
                |m: &super::desk::Measured| 100.0 * m.stalls.eviction as f64 / 1e9 / m.step_s;
            pictured(value(&desk.physical(&point, policy), share))
        });
        f.rows.push(Row {
            label: label.into(),
            cells: cells.collect(),
        });
    }
    add_mean(&mut f, [43.7, 38.5, 36.7].map(Value::Number));
    f.notes.push("ours counts waiting for evictions only; the mean is geometric, the paper does not say which it takes".into());
    f
}

/// Speed of the last of `answers` over that of each other.
fn speedups(answers: &[Answer]) -> Vec<Value> {
    let Some((most, others)) = answers.split_last() else {
        return Vec::new();
    };
    others
        .iter()
        .map(|o| both(o, most, |o, m| o.step_s / m.step_s))
        .collect()
}

/// The artifact's machine with MOST's numbers.
fn machine(ssd_gbps: f64) -> Machine {
    Machine {
        gpu_gib: 24.0,
        host_gib: 0.0,
        pcie_gbps: 63.015,
        ssd_gbps,
        ..Machine::default()
    }
}

/// Runners of MOST's four policies on the artifact's machine.
const RUNNERS: [Runner; 4] = [
    Runner::Built(Policy::BaseUvm),
    Runner::Built(Policy::DeepUm),
    Runner::Built(Policy::G10),
    Runner::Most,
];

/// Figure 5.
pub fn figure_5(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "most-5",
        "MOST figure 5",
        "speed of MOST",
        "MOST's speed over the column's",
        G10_MACHINE,
    );
    f.columns = ["base-uvm", "deepum", "g10"].map(String::from).into();
    for (label, point) in points() {
        let answers = RUNNERS.map(|r| desk.on_g10(&point, r, &machine(3.2)));
        f.rows.push(Row {
            label: label.into(),
            cells: speedups(&answers).into_iter().map(pictured).collect(),
        });
    }
    add_mean(&mut f, [2.6, 1.229, 1.128].map(Value::Number));
    f.notes.push(
        "the traces decide this number: see what experiments showed in docs/simulator-figures.md"
            .into(),
    );
    f
}

/// Figure 6.
pub fn figure_6(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "most-6",
        "MOST figure 6",
        "oversubscription stalls under MOST",
        "share of the column's stalls",
        PHYSICAL,
    );
    f.columns = POLICIES[..3].iter().map(ToString::to_string).collect();
    for (label, point) in points() {
        let most = desk.physical(&point, "most");
        let cells = POLICIES[..3].iter().map(|policy| {
            let other = desk.physical(&point, policy);
            let share = |o: &super::desk::Measured, m: &super::desk::Measured| {
                m.stalls.eviction as f64 / o.stalls.eviction.max(1) as f64
            };
            pictured(both(&other, &most, share))
        });
        f.rows.push(Row {
            label: label.into(),
            cells: cells.collect(),
        });
    }
    add_mean(&mut f, [0.292, 0.725, 0.792].map(Value::Number));
    f
}

/// Figure 7.
pub fn figure_7(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "most-7",
        "MOST figure 7",
        "several GPUs that share an SSD",
        "MOST's speed over the column's",
        PHYSICAL,
    );
    f.machine += "; NVLink 900 GB/s";
    f.columns = ["deepum", "g10"].map(String::from).into();
    for (label, point) in points().into_iter().step_by(2) {
        for gpus in [2, 4, 8] {
            let point = point.clone().with("gpus", gpus).with("nvlink", 900);
            let answers: Vec<Answer> = POLICIES[1..]
                .iter()
                .map(|p| desk.physical(&point, p))
                .collect();
            f.rows.push(Row {
                label: format!("{label}, {gpus} GPUs"),
                cells: speedups(&answers).into_iter().map(pictured).collect(),
            });
        }
    }
    add_mean(&mut f, [1.503, 1.120].map(Value::Number));
    f.notes.push("the text does not say how many GPUs; ours has each network's smaller batch, split over the GPUs, whose memory holds the tensors once".into());
    f
}

/// Figure 8.
pub fn figure_8(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "most-8",
        "MOST figure 8",
        "SSD bandwidth",
        "MOST's speed over the column's",
        G10_MACHINE,
    );
    f.machine = G10_MACHINE.replace("SSD 3.2 GB/s", "SSD as the row says");
    f.columns = ["deepum", "g10"].map(String::from).into();
    for (label, point) in points() {
        for ssd in [3.2, 6.4, 12.8, 25.6] {
            let answers: Vec<Answer> = RUNNERS[1..]
                .iter()
                .map(|&r| desk.on_g10(&point, r, &machine(ssd)))
                .collect();
            let cells: Vec<Cell> = speedups(&answers).into_iter().map(pictured).collect();
            f.rows.push(Row {
                label: format!("{label}, {ssd} GB/s"),
                cells,
            });
        }
    }
    add_mean(&mut f, [1.200, 1.099].map(Value::Number));
    f
}
