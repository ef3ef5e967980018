// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! MOST, figures 1 and 5 to 8.
//!
//! The paper runs the G10 artifact's simulator with an RTX 4090 and an SSD alone.
//! Figures 5 and 8 do the same (`--model g10`). What is lost to oversubscription, and
//! several GPUs, only the physical model knows: figures 1, 6 and 7.

use uvmsim_g10::Machine;
use uvmsim_g10::Policy;
use uvmsim_report::published::Row;

use super::desk::both;
use super::desk::pictured;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Measured;
use super::desk::Origin;
use super::desk::Point;
use super::sheet;
use super::sheet::Sheet;
use crate::g10::Runner;

/// The steps of table I, each network's smaller batch first.
fn points() -> impl Iterator<Item = (String, Point)> {
    type Step = (bool, String, String, u64);
    let rows = sheet::rows("most-1").into_iter();
    rows.map(|(artifact, net, label, batch): Step| {
        let mut point = Point::new(&net, batch, "rtx4090");
        if artifact {
            point.origin = Origin::Between;
        } else {
            point.tokens = Some(128);
        }
        (label, point)
    })
}

const POLICIES: [&str; 4] = ["base-uvm", "deepum", "g10", "most"];

/// Figure 1, what oversubscription costs.
pub fn figure_1(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let share = |m: &Measured| 100.0 * m.stalls.eviction as f64 / 1e9 / m.step_s;
    let row = |(label, point)| {
        let cells = POLICIES[..3].iter();
        let cells = cells.map(|policy| pictured(value(&desk.physical(&point, policy), share)));
        Row::new(label, cells)
    };
    points().map(row).collect()
}

/// A line with the speed of the last of `answers` over that of each other.
fn speedups(label: String, answers: Vec<Answer>) -> Row {
    let Some((most, others)) = answers.split_last() else {
        return Row::new(label, []);
    };
    let speedup = |o| pictured(both(o, most, |o, m| o.step_s / m.step_s));
    Row::new(label, others.iter().map(speedup))
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

/// Figure 5, the speed of MOST.
pub fn figure_5(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let row = |(label, point)| {
        let answers = RUNNERS.map(|r| desk.on_g10(&point, r, &machine(3.2)));
        speedups(label, answers.into())
    };
    points().map(row).collect()
}

/// Figure 6, MOST's stalls for evictions.
pub fn figure_6(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let share =
        |o: &Measured, m: &Measured| m.stalls.eviction as f64 / o.stalls.eviction.max(1) as f64;
    let row = |(label, point)| {
        let most = desk.physical(&point, "most");
        let cells = POLICIES[..3].iter();
        let cells = cells.map(|p| pictured(both(&desk.physical(&point, p), &most, share)));
        Row::new(label, cells)
    };
    points().map(row).collect()
}

/// Figure 7, several GPUs with one SSD.
pub fn figure_7(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let split = |(label, point): (String, Point)| {
        [2, 4, 8].map(|gpus| {
            let point = point.clone().with("gpus", gpus).with("nvlink", 900);
            (format!("{label}, {gpus} GPUs"), point)
        })
    };
    let row = |(label, point)| {
        let answers = POLICIES[1..].iter().map(|p| desk.physical(&point, p));
        speedups(label, answers.collect())
    };
    points().step_by(2).flat_map(split).map(row).collect()
}

/// Figure 8, bandwidths of the SSD.
pub fn figure_8(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let mut rows = Vec::new();
    for (label, point) in points() {
        for ssd in [3.2, 6.4, 12.8, 25.6] {
            let answers = RUNNERS[1..]
                .iter()
                .map(|&r| desk.on_g10(&point, r, &machine(ssd)));
            rows.push(speedups(format!("{label}, {ssd} GB/s"), answers.collect()));
        }
    }
    rows
}
