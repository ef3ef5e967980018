// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Puts cells together, and compares them with plain UVM.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// A workload under a policy: a cell of `out/dnn.json`. Counts are means per iteration, from
/// the third on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cell {
    /// Name of the network in the zoo.
    pub workload: String,
    /// `uvm`, `uvm-noprefetch`, `deepum-prefetch`, `deepum-preevict` or `deepum`.
    pub policy: String,
    /// Kernels that are looked ahead; 0 where nothing is prefetched.
    pub ahead: u32,
    /// Iterations, those that are not counted with them.
    pub iterations: u32,
    /// Entries that the GPU wrote to its fault buffer.
    pub faults_per_iteration: f64,
    /// Bytes copied to the GPU.
    pub h2d_bytes: f64,
    /// Bytes copied to the host.
    pub d2h_bytes: f64,
    /// Memory of the tables at the end.
    pub table_bytes: u64,
    /// Whether all data was as it should be.
    pub verified: bool,
    /// Kernels of an iteration.
    pub kernels: u64,
    /// Memory of an iteration.
    pub footprint_bytes: u64,
    /// Bytes of GPU memory that there are.
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
    /// How much slower than a V100's this machine's link was taken to be.
    pub slower: f64,
    /// Seconds of wall clock, which say nothing of a GPU.
    pub seconds_per_iteration: f64,
}

/// What uvmsim says of the same: an iteration of a workload under a policy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Simulated {
    /// Name of the network, as [`Cell::workload`] has it.
    pub workload: String,
    /// Name of the policy, as [`Cell::policy`] has it.
    pub policy: String,
    /// Kernels that are looked ahead, as [`Cell::ahead`] has them.
    pub ahead: u32,
    /// Pages that were faulted on.
    pub faults_per_iteration: f64,
    /// Bytes copied to the GPU.
    pub h2d_bytes: f64,
    /// Bytes copied to the host.
    pub d2h_bytes: f64,
    /// Memory of the tables at the end.
    pub table_bytes: u64,
}

/// How far the kernels are looked ahead where nothing else is asked for.
const AHEAD: u32 = 32;

#[derive(Debug, Default, Deserialize, Serialize)]
struct Table {
    /// The policies, with [`AHEAD`].
    cells: Vec<Cell>,
    /// `deepum-prefetch` with other numbers of kernels looked ahead.
    sweep: Vec<Cell>,
    /// What uvmsim says of both.
    uvmsim: Vec<Simulated>,
}

/// What is compared: faults, and bytes moved.
#[derive(Clone, Copy, Debug)]
struct Counts {
    faults: f64,
    bytes: f64,
}

impl Counts {
    fn of(self, base: Option<Self>) -> [String; 2] {
        let percent = |value: f64, base: Option<f64>| match base {
            Some(b) if b > 0.0 => format!("{:.1} %", value / b * 100.0),
            _ => "-".to_owned(),
        };
        [
            percent(self.faults, base.map(|b| b.faults)),
            percent(self.bytes, base.map(|b| b.bytes)),
        ]
    }
}

impl From<&Cell> for Counts {
    fn from(c: &Cell) -> Self {
        Self {
            faults: c.faults_per_iteration,
            bytes: c.h2d_bytes + c.d2h_bytes,
        }
    }
}

impl From<&Simulated> for Counts {
    fn from(c: &Simulated) -> Self {
        Self {
            faults: c.faults_per_iteration,
            bytes: c.h2d_bytes + c.d2h_bytes,
        }
    }
}

/// Reads cells, has uvmsim do the same, prints the tables and writes them as JSON.
pub fn run(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(from).with_context(|| format!("reading {}", from.display()))?;
    let mut table = Table::default();
    for line in text.lines().filter(|l| l.starts_with('{')) {
        let cell: Cell = serde_json::from_str(line)?;
        if cell.workload != crate::run::RANDOM {
            table.uvmsim.push(crate::simulate::run(
                &cell.workload,
                cell.gpu_bytes,
                cell.iterations,
                &cell.policy,
                cell.ahead,
            )?);
        }
        match cell.ahead {
            0 | AHEAD => table.cells.push(cell),
            _ => table.sweep.push(cell),
        }
    }
    anyhow::ensure!(!table.cells.is_empty(), "nothing was measured");
    // A network's policies stand together.
    let networks = crate::run::WORKLOADS.map(|w| w.0);
    let of = |c: &Cell| networks.iter().position(|n| *n == c.workload);
    table.cells.sort_by_key(|c| of(c).unwrap_or(networks.len()));
    table.print_policies();
    table.print_sweep();
    fs::write(to, serde_json::to_string_pretty(&table)? + "\n")
        .with_context(|| format!("writing {}", to.display()))
}

impl Table {
    /// Plain UVM of a workload, on the software GPU and in uvmsim.
    fn plain(&self, workload: &str) -> [Option<Counts>; 2] {
        let here = |w: &str, p: &str| w == workload && p == "uvm";
        let cell = self.cells.iter().find(|c| here(&c.workload, &c.policy));
        let simulated = self.uvmsim.iter().find(|c| here(&c.workload, &c.policy));
        [cell.map(Counts::from), simulated.map(Counts::from)]
    }

    fn simulated(&self, cell: &Cell) -> Option<Counts> {
        let same = |s: &&Simulated| {
            (&s.workload, &s.policy, s.ahead) == (&cell.workload, &cell.policy, cell.ahead)
        };
        self.uvmsim.iter().find(same).map(Counts::from)
    }

    fn print_policies(&self) {
        println!(
            "{:<13} {:<15} {:>7} {:>8} {:>7} {:>7} {:>8} {:>6}  {:>17}",
            "workload",
            "policy",
            "faults",
            "of uvm",
            "MiB in",
            "out",
            "of uvm",
            "tables",
            "uvmsim: of uvm"
        );
        for c in &self.cells {
            let [uvm, simulated_uvm] = self.plain(&c.workload);
            let [faults, bytes] = Counts::from(c).of(uvm);
            let theirs = self.simulated(c).map(|s| s.of(simulated_uvm).join(" "));
            println!(
                "{:<13} {:<15} {:>7.0} {:>8} {:>7.1} {:>7.1} {:>8} {:>5}K  {:>17}",
                c.workload,
                c.policy,
                c.faults_per_iteration,
                faults,
                c.h2d_bytes / 1048576.0,
                c.d2h_bytes / 1048576.0,
                bytes,
                c.table_bytes / 1024,
                theirs.unwrap_or_default(),
            );
        }
    }

    /// DeepUM's figure 11, in faults and bytes of plain UVM's.
    fn print_sweep(&self) {
        if self.sweep.is_empty() {
            return;
        }
        println!("\nKernels looked ahead (N), under deepum-prefetch, of plain UVM's");
        println!(
            "{:<13} {:>5} {:>9} {:>9} {:>16} {:>9}",
            "workload", "N", "faults", "bytes", "uvmsim: faults", "bytes"
        );
        let here = |c: &&Cell| c.policy == "deepum-prefetch";
        let mut all: Vec<&Cell> = self.cells.iter().filter(here).chain(&self.sweep).collect();
        all.sort_by_key(|c| {
            let first = self.cells.iter().position(|o| o.workload == c.workload);
            (first, c.ahead)
        });
        for c in all {
            let [uvm, simulated_uvm] = self.plain(&c.workload);
            let [faults, bytes] = Counts::from(c).of(uvm);
            let simulated = self.simulated(c).map(|s| s.of(simulated_uvm));
            let [their_faults, their_bytes] = simulated.unwrap_or_default();
            println!(
                "{:<13} {:>5} {faults:>9} {bytes:>9} {their_faults:>16} {their_bytes:>9}",
                c.workload, c.ahead
            );
        }
    }
}
