// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmsim plan`.

use uvmsim_physical::policies;

use crate::machine;
use crate::Failure;

/// `uvmsim plan`.
#[derive(clap::Args)]
pub struct Args {
    /// The trace; - is standard input.
    #[arg(long)]
    trace: String,
    /// The policy; one that plans.
    #[arg(long, default_value = "best")]
    policy: String,
    #[command(flatten)]
    machine: machine::Choice,
    /// File to write the plan to; - is standard output.
    #[arg(short, long, default_value = "-")]
    output: String,
}

/// Runs `uvmsim plan`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let machine = args.machine.machine("a100")?;
    let trace = crate::read_trace(&args.trace)?;
    let (workload, layout) = crate::workload(&trace)?;
    let began = std::time::Instant::now();
    let plan = policies::plan(&args.policy, &machine, &workload, &layout)
        .map_err(|e| Failure::run(format!("{}: {e}", args.policy)))?;
    // Not in the plan: the same trace gives the same file.
    eprintln!(
        "{}: {} evictions a step, plan_s {:.3}",
        args.policy,
        plan.evictions(),
        began.elapsed().as_secs_f64()
    );
    crate::write_file(&args.output, &plan.text(&workload, &layout))
}
