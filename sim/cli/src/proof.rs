// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim bound`: how fast a step can be at most, how near `best` is, and the proof.

use std::time::Duration;

use serde_json::json;
use uvmsim_bound::Certified;
use uvmsim_physical::plan::best;
use uvmsim_physical::plan::best::Until;

use crate::machine;
use crate::progress;
use crate::run;
use crate::zoo;
use crate::Failure;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: zoo::Source,
    #[command(flatten)]
    machine: machine::Choice,
    /// GPU memory for a part of the step's peak instead: how many times as large the peak is.
    #[arg(long, value_name = "TIMES", value_parser = zoo::over, conflicts_with = "gpu-mem")]
    over: Option<f64>,
    /// Solve a linear program as well, and check in integers what its solution proves.
    #[arg(long)]
    certify: bool,
    /// Ends of kernels at which the program looks at memory; more take longer, and prove no less but
    /// for where they lie.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    points: u32,
    /// Seconds that `best` may look for a plan.
    #[arg(long, value_name = "SECONDS", value_parser = crate::plan::seconds, default_value = "10")]
    budget: Duration,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<(), Failure> {
    let mut machine = args.machine.machine("a100")?;
    let trace = args.source.trace(&machine)?;
    let (workload, layout) = crate::workload(&trace)?;
    if let Some(over) = args.over {
        machine = zoo::shrunk(&machine, over, workload.peak_bytes());
    }
    let chain_ns = uvmsim_physical::bound_ns(&machine, &workload);
    let certified = if args.certify {
        let points = args.points as usize;
        let solve = |_: &_| uvmsim_bound::certify(&machine, &workload, points);
        let done = progress::during("bound: solving", solve);
        Some(done.ok_or_else(|| Failure::run("the solver has no result; try other --points"))?)
    } else {
        None
    };
    let found = progress::during("best: planning", |line| {
        let told = |tried| line.set_message(run::so_far("best", tried));
        let until = Until::after(args.budget).telling(&told);
        best::find(&machine, &workload, &layout, until)
    });
    let found = found.map_err(|e| Failure::run(format!("best: {e}")))?;
    let best_ns = found.faster.map_or(found.step_ns, |f| f.1);
    let proven = certified.as_ref().map_or(0, |c| c.bound_ns);
    let ideal_ns = workload.ideal_ns();
    let times = Times {
        ideal_ns,
        chain_ns,
        best_ns,
        bound_ns: chain_ns.max(proven),
    };
    if args.json {
        return crate::print_json(&times.object(certified.as_ref()));
    }
    crate::write_file("-", &times.text(certified.as_ref()))
}

/// What is said, in nanoseconds.
struct Times {
    ideal_ns: u64,
    /// The bound that needs no solver.
    chain_ns: u64,
    /// The larger of the bounds.
    bound_ns: u64,
    best_ns: u64,
}

impl Times {
    /// How near `best` is to the bound: 1 if it is there.
    fn share(&self) -> f64 {
        self.bound_ns as f64 / self.best_ns.max(1) as f64
    }

    fn object(&self, certified: Option<&Certified>) -> serde_json::Value {
        let s = |ns: u64| ns as f64 / 1e9;
        json!({
            "ideal_s": s(self.ideal_ns),
            "chain_s": s(self.chain_ns),
            "certified_s": certified.map(|c| s(c.bound_ns)),
            "claimed_s": certified.map(|c| c.claimed_ns / 1e9),
            "columns": certified.map(|c| c.columns),
            "rows": certified.map(|c| c.rows),
            "checked": certified.is_some(),
            "bound_s": s(self.bound_ns),
            "best_s": s(self.best_ns),
            "bound_over_best": self.share(),
        })
    }

    fn text(&self, certified: Option<&Certified>) -> String {
        let s = |ns: u64| ns as f64 / 1e9;
        let mut out = format!("ideal      {:>12.6} s\n", s(self.ideal_ns));
        out += &format!(
            "bound      {:>12.6} s, by a chain of copies; not checked\n",
            s(self.chain_ns)
        );
        if let Some(c) = certified {
            out += &format!(
                "certified  {:>12.6} s, by a linear program of {} columns and {} rows; checked in integers\n",
                s(c.bound_ns),
                c.columns,
                c.rows
            );
        }
        let gap = 100.0 * (1.0 / self.share() - 1.0);
        out += &format!(
            "best       {:>12.6} s, {gap:.1} % more than the larger bound\n",
            s(self.best_ns)
        );
        out
    }
}
