// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim plan`: writes the plan that a policy makes for a trace.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use uvmsim_machine::Machine;
use uvmsim_physical::plan::best;
use uvmsim_physical::plan::best::Until;
use uvmsim_physical::plan::recompute::Made;
use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Workload;
use uvmsim_plan::Name;
use uvmsim_plan::Plan;
use uvmsim_plan::Program;
use uvmsim_trace::Trace;

use crate::machine;
use crate::progress;
use crate::run;
use crate::Failure;

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
    /// Look for a better plan for so many seconds at most, of the policies `best` and those
    /// that recompute: the plan then depends on how fast this machine is [default: until
    /// there is nothing left to try].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    budget: Option<Duration>,
    /// File to write the plan to; - is standard output.
    #[arg(short, long, default_value = "-")]
    output: String,
    /// Run kernels whose tensors do not fit in GPU memory together: UVM pages
    /// while they run.
    #[arg(long)]
    large_kernels: bool,
    /// Print one JSON object: what the plan has, and the plan itself if it is not
    /// written to a file.
    #[arg(long)]
    json: bool,
}

/// A time in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    Duration::try_from_secs_f64(number).map_err(|e| e.to_string())
}

/// How often each request occurs, by its word in the text.
fn requests(plan: &Plan) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for request in &plan.requests {
        *counts.entry(request.what.word()).or_insert(0) += 1;
    }
    counts
}

/// `meta source` of the traces whose programs follow a plan by the names of kernels and tensors.
const RECORDERS: [&str; 2] = ["uvmrun", "uvmrust.offload"];

/// By what a program is known again that the trace was recorded of: how many launches come before
/// the step, the names of its kernels, and which allocations its tensors are. `None` for any other
/// trace.
fn program(trace: &Trace) -> Result<Option<Program>, Failure> {
    if !RECORDERS.contains(&trace.meta("source")) {
        return Ok(None);
    }
    let start = trace.meta("start").parse().map_err(|_| {
        Failure::usage("`meta start` of a recorded trace is a number; record it anew")
    })?;
    let name = |(number, name): (usize, &str)| Name {
        of: number as u64,
        name: name.into(),
        line: 0,
    };
    let launches = trace.kernels.iter().map(|kernel| kernel.name.as_str());
    let tensors = trace.tensors.iter().map(|tensor| tensor.name.as_str());
    let named = tensors.enumerate().filter(|(_, name)| !name.is_empty());
    Ok(Some(Program {
        start,
        launches: launches.enumerate().map(name).collect(),
        tensors: named.map(name).collect(),
    }))
}

/// The plan that was asked for, of the step that is given, and the policy without a plan that is faster
/// than it, if there is one.
fn planned(
    args: &Args,
    machine: &Machine,
    (workload, layout): (Workload, Layout),
    until: Until<'_>,
) -> Result<(Made, Option<&'static str>), Failure> {
    let mut faster = None;
    let made = progress::during(&format!("{}: planning", args.policy), |line| {
        let told = |tried| line.set_message(run::so_far(&args.policy, tried));
        let until = until.telling(&told);
        if let Some(name) = run::recomputing(&args.policy) {
            return policies::recompute(name, machine, &workload, until);
        }
        let plan = if args.policy == "best" {
            let found = best::find(machine, &workload, &layout, until)?;
            faster = found.faster.map(|f| (f, found.step_ns));
            found.plan
        } else {
            policies::plan(&args.policy, machine, &workload, &layout)?
        };
        Ok(Made {
            workload,
            layout,
            plan,
        })
    });
    let made = made.map_err(|e| Failure::run(format!("{}: {e}", args.policy)))?;
    let Some(((name, theirs), ours)) = faster else {
        return Ok((made, None));
    };
    let [theirs, ours] = [theirs, ours].map(|ns| ns as f64 / 1e9);
    eprintln!(
        "best: {name}, which makes no plan, takes {theirs:.4} s a step; this plan {ours:.4} s"
    );
    Ok((made, Some(name)))
}

pub fn main(args: &Args) -> Result<(), Failure> {
    let machine = args.machine.machine("a100")?;
    let trace = crate::read_trace(&args.trace)?;
    let program = program(&trace)?;
    crate::check_fits(&trace, &machine, args.large_kernels)?;
    let (workload, layout) = crate::workload(&trace)?;
    // Of 200,000 kernels, it is a fifth of all that is in memory.
    drop(trace);
    let began = std::time::Instant::now();
    let until = args.budget.map_or(Until::NEVER, Until::after);
    // Who knows a program by its launches sees no part of a kernel, and allocations whole.
    let until = match program {
        Some(_) => until.coarse(),
        None => until,
    };
    let (made, faster) = planned(args, &machine, (workload, layout), until)?;
    let (seconds, plan) = (began.elapsed().as_secs_f64(), &made.plan);
    let evictions = plan.evictions();
    let mut records = plan.records(&made.workload, &made.layout);
    // No program that is known by its launches can be made to run some again.
    records.program = program.filter(|_| records.again.is_empty());
    let text = records.to_string();
    if !args.json {
        // Not in the plan: the same trace gives the same file.
        let again = match plan.again.len() {
            0 => String::new(),
            n => format!(" {n} kernels run again,"),
        };
        eprintln!(
            "{}:{again} {evictions} evictions a step, plan_s {seconds:.3}",
            args.policy
        );
        return crate::write_file(&args.output, &text);
    }
    let mut object = json!({
        "policy": args.policy,
        "machine": machine.preset,
        "kernels": made.workload.kernels.len(),
        "span": made.layout.span,
        "plan_s": seconds,
        "evictions": evictions,
        "again": plan.again.len(),
        "faster": faster,
        "requests": requests(&records),
    });
    if args.output == "-" {
        object["plan"] = json!(text);
    } else {
        crate::write_file(&args.output, &text)?;
        object["file"] = json!(args.output);
    }
    crate::print_json(&object)
}
