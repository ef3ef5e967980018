// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim compare`: one trace, or the zoo, under many policies.

#[path = "compare/zoo.rs"]
mod sweep;

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use serde_json::Value;
use uvmsim_machine::Machine;
use uvmsim_physical::plan::best::Until;
use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Outcome;
use uvmsim_physical::Workload;
use uvmsim_report::Report;
use uvmsim_report::BOUND;
use uvmsim_report::BOUND_WHOM;

use crate::machine;
use crate::pool;
use crate::progress;
use crate::run;
use crate::zoo;
use crate::Failure;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: zoo::Source,
    /// Every network of the zoo instead, with GPU memory for a part of its peak (--over).
    #[arg(long, conflicts_with_all = ["trace", "net", "report", "svg", "gpu-mem"])]
    zoo: bool,
    /// Of the zoo, these networks, comma-separated.
    #[arg(long, value_delimiter = ',', requires = "zoo")]
    nets: Vec<String>,
    /// For --zoo: how many times GPU memory a step's peak is.
    #[arg(long, value_delimiter = ',', requires = "zoo", value_parser = zoo::over, default_values = ["1.25", "1.5", "2"])]
    over: Vec<f64>,
    /// Simulate by this model of the machine.
    #[arg(long, value_enum, default_value = "physical")]
    model: run::Model,
    #[command(flatten)]
    machine: machine::Choice,
    /// The policies, comma-separated [default: all but checkpoint and best-recompute, under
    /// which kernels run again].
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
    /// Write a report with plots.
    #[arg(long, value_name = "FILE.html")]
    report: Option<String>,
    /// Write each plot as a file of its own.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<String>,
    /// Run kernels whose tensors do not fit in GPU memory together: UVM pages
    /// while they run.
    #[arg(long)]
    large_kernels: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Threads [default: all cores].
    #[arg(long)]
    threads: Option<usize>,
}

/// What each policy did, or why it could not.
pub type Outcomes = Vec<(String, Result<Outcome, String>)>;

/// Runs each policy, several at a time; the results do not depend on how many unless there is a
/// `budget` for planning.
pub fn run_all(
    names: &[String],
    step: (&Machine, &Workload, &Layout),
    limits: Limits,
    budget: Option<Duration>,
    threads: usize,
) -> Outcomes {
    let bar = progress::of(names.len(), "policies");
    let outcomes = pool::map(names, threads, |name| {
        bar.set_message(name.clone());
        let told = |tried| bar.set_message(run::so_far(name, tried));
        let until = budget.map_or(Until::NEVER, Until::after).telling(&told);
        let outcome = run::policy(name, step, limits, until);
        bar.inc(1);
        (name.clone(), outcome)
    });
    bar.finish_and_clear();
    outcomes
}

pub fn main(args: &Args) -> Result<(), Failure> {
    let threads = args.threads.unwrap_or_else(pool::cores);
    if args.model == run::Model::G10 {
        if args.zoo {
            return Err(Failure::usage("--zoo needs --model physical"));
        }
        if args.report.is_some() || args.svg.is_some() {
            return Err(Failure::usage("--report and --svg need --model physical"));
        }
        let trace = args.source.trace(&args.machine.machine("a100")?)?;
        return crate::g10::compare(&trace, &args.policies, &args.machine, args.json, threads);
    }
    let names: Vec<String> = if args.policies.is_empty() {
        policies::NAMES.iter().map(ToString::to_string).collect()
    } else {
        args.policies.clone()
    };
    for name in &names {
        run::check_policy(name)?;
    }
    let machine = args.machine.machine("a100")?;
    if args.zoo {
        let all: Vec<String> = names.into_iter().filter(|n| n != "ideal").collect();
        let sweep = sweep::Sweep {
            nets: &args.nets,
            over: &args.over,
            shape: &args.source.shape,
            policies: &all,
            threads,
        };
        return sweep.run(&machine, args.json);
    }
    let trace = args.source.trace(&machine)?;
    crate::check_fits(&trace, &machine, args.large_kernels)?;
    let (workload, layout) = crate::workload(&trace)?;
    let drawing = args.report.is_some() || args.svg.is_some();
    let limits = Limits {
        bins: if drawing { 460 } else { 0 },
        ..Limits::default()
    };
    let step = (&machine, &workload, &layout);
    let outcomes = run_all(&names, step, limits, None, threads);
    let bound_s = uvmsim_physical::bound_ns(&machine, &workload) as f64 / 1e9;
    let report = Report {
        trace: &trace,
        machine: &machine,
        outcomes: &outcomes,
        bound_s: Some(bound_s),
        command: crate::command_line(),
    };
    if let Some(path) = &args.report {
        crate::write_file(path, &report.html())?;
    }
    if let Some(folder) = &args.svg {
        let plots = report.figures().into_iter().map(|f| (f.name, f.svg));
        crate::write_plots(Path::new(folder), plots)?;
    }
    if args.json {
        let list = objects(&outcomes, bound_s);
        let all = json!({"machine": machine.preset, "bound_s": bound_s, "policies": list});
        crate::print_json(&all)?;
    } else {
        let (text, bound) = (uvmsim_report::table(&outcomes), format!("({BOUND})"));
        let line = format!("{bound:<17} {bound_s:>9.3}  {BOUND_WHOM} can be faster\n");
        let done = outcomes
            .iter()
            .filter_map(|(n, o)| Some((n, o.as_ref().ok()?)));
        let below: String = done.filter_map(|(n, o)| run::without_plan(n, o)).collect();
        crate::write_file("-", &(text + &line + &below))?;
    }
    if let Some(path) = &args.report {
        eprintln!("report: {path}");
    }
    if outcomes.iter().all(|(_, o)| o.is_err()) {
        return Err(Failure::run("no policy could run this"));
    }
    Ok(())
}

/// What the runs say of themselves, or why they cannot be.
pub fn objects(outcomes: &[(String, Result<Outcome, String>)], bound_s: f64) -> Vec<Value> {
    let object = |(name, o): &(String, Result<Outcome, String>)| match o {
        Ok(o) => run::object(name, o, Some(bound_s)),
        Err(e) => json!({"policy": name, "error": e}),
    };
    outcomes.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_do_not_depend_on_threads() {
        let machine = uvmsim_machine::Machine {
            gpu_mem: 512 << 20,
            ..uvmsim_machine::presets::find("a100").unwrap_or_else(|| panic!("no preset"))
        };
        let options = uvmsim_zoo::Options::new(8, uvmsim_zoo::Precision::Tf32);
        let net = uvmsim_zoo::find("vgg16").unwrap_or_else(|| panic!("no network"));
        let workload = Workload::from_trace(&net.trace(&options, &machine));
        let layout = Layout::new(&workload);
        let names: Vec<String> = policies::NAMES.iter().map(ToString::to_string).collect();
        let run = |threads| {
            let limits = Limits::default();
            let step = (&machine, &workload, &layout);
            let all = run_all(&names, step, limits, None, threads);
            let lines = all.into_iter().map(|(name, o)| format!("{name} {o:?}"));
            lines.collect::<Vec<_>>()
        };
        let one = run(1);
        assert_eq!(one.len(), names.len());
        assert_eq!(one, run(4));
        assert!(one.iter().any(|line| line.contains("Ok(")));
    }
}
