// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Puts cells together, and compares them with plain UVM.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// A workload under a policy: a cell of `out/dnn.json`. Counts are means per iteration, from
/// the third on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cell {
    /// The network.
    pub workload: String,
    /// `uvm`, `uvm-noprefetch`, `deepum-prefetch`, `deepum-preevict` or `deepum`.
    pub policy: String,
    /// Entries that the GPU wrote to its fault buffer.
    pub faults_per_iteration: f64,
    /// Bytes copied to the GPU.
    pub h2d_bytes: f64,
    /// Bytes copied back.
    pub d2h_bytes: f64,
    /// Memory of the tables at the end.
    pub table_bytes: u64,
    /// Whether all data was as it should be.
    pub verified: bool,
    /// Kernels of an iteration.
    pub kernels: u64,
    /// Memory of an iteration.
    pub footprint_bytes: u64,
    /// The GPU's.
    pub gpu_bytes: u64,
    /// Blocks prefetched, in all.
    pub prefetched: u64,
    /// Blocks held back for want of room, in all.
    pub held: u64,
    /// Blocks pushed out ahead of need, in all.
    pub pushed_out: u64,
    /// Kernels predicted, in all.
    pub kernels_right: u64,
    /// Kernels predicted wrongly, in all.
    pub kernels_wrong: u64,
    /// Wall clock.
    pub seconds_per_iteration: f64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Table {
    cells: Vec<Cell>,
}

/// Reads cells, prints the table and writes it as JSON.
pub fn run(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(from).with_context(|| format!("reading {}", from.display()))?;
    let mut cells = Vec::new();
    for line in text.lines().filter(|l| l.starts_with('{')) {
        cells.push(serde_json::from_str::<Cell>(line)?);
    }
    anyhow::ensure!(!cells.is_empty(), "nothing was measured");
    println!(
        "{:<14} {:<16} {:>8} {:>7} {:>8} {:>8} {:>7} {:>8}",
        "workload", "policy", "faults", "of uvm", "MiB in", "MiB out", "of uvm", "tables K"
    );
    for c in &cells {
        let uvm = cells
            .iter()
            .find(|o| o.workload == c.workload && o.policy == "uvm");
        let of = |value: f64, base: Option<f64>| match base {
            Some(b) if b > 0.0 => format!("{:.1} %", value / b * 100.0),
            _ => "-".to_owned(),
        };
        let moved = |c: &Cell| c.h2d_bytes + c.d2h_bytes;
        println!(
            "{:<14} {:<16} {:>8.0} {:>7} {:>8.1} {:>8.1} {:>7} {:>8}",
            c.workload,
            c.policy,
            c.faults_per_iteration,
            of(c.faults_per_iteration, uvm.map(|u| u.faults_per_iteration)),
            c.h2d_bytes / 1048576.0,
            c.d2h_bytes / 1048576.0,
            of(moved(c), uvm.map(moved)),
            c.table_bytes / 1024,
        );
    }
    let table = Table { cells };
    fs::write(to, serde_json::to_string_pretty(&table)? + "\n")
        .with_context(|| format!("writing {}", to.display()))
}
