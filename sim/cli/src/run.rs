// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim run`: one trace, one policy.

use serde_json::json;
use serde_json::Value;
use uvmsim_machine::Machine;
use uvmsim_physical::plan::best;
use uvmsim_physical::plan::best::Tried;
use uvmsim_physical::plan::best::Until;
use uvmsim_physical::plan::recompute::Made;
use uvmsim_physical::plan::Plan;
use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Outcome;
use uvmsim_physical::Policy;
use uvmsim_physical::RunError;
use uvmsim_physical::Tier;
use uvmsim_physical::Workload;

use crate::machine;
use crate::progress;
use crate::Failure;

#[derive(clap::Args)]
pub struct Args {
    /// The trace; - is standard input.
    #[arg(long)]
    trace: String,
    /// The policy that decides what moves when.
    #[arg(long, required_unless_present = "plan", conflicts_with = "plan")]
    policy: Option<String>,
    /// A plan to replay instead, as `uvmsim plan` writes it.
    #[arg(long, value_name = "FILE")]
    plan: Option<String>,
    /// Scale each kernel's time by a random factor within 1 ± this, after
    /// planning.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    noise: f64,
    /// Seed of the noise.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulate by this model of the machine.
    #[arg(long, value_enum, default_value = "physical")]
    model: Model,
    #[command(flatten)]
    machine: machine::Choice,
    /// Run kernels whose tensors do not fit in GPU memory together: UVM pages
    /// while they run.
    #[arg(long)]
    large_kernels: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// How the machine is modelled.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The G10 artifact's rules, bugs included, to compare with its numbers.
    G10,
    /// va_blocks, faults, links and memories in virtual time.
    Physical,
}

/// What a run under policy `name` says of itself.
pub fn object(name: &str, o: &Outcome, bound_s: Option<f64>) -> Value {
    let s = |ns: u64| ns as f64 / 1e9;
    json!({
        "model": "physical",
        "policy": name,
        "ran_as": o.policy,
        "ideal_s": s(o.ideal_ns),
        "step_s": s(o.step_ns),
        "normalized": o.normalized(),
        "bound_s": bound_s,
        "bytes": o.bytes,
        "faults": o.faults,
        "late_faults": o.late_faults,
        "fault_batches": o.batches,
        "stall_s": s(o.stalls.total()),
        "stalls_s": {
            "fault": s(o.stalls.fault),
            "eviction": s(o.stalls.eviction),
            "prefetch": s(o.stalls.prefetch),
            "calls": s(o.stalls.calls),
            "peers": s(o.stalls.peers),
        },
        "dropped_bytes": o.dropped,
        "zeroed_bytes": o.zeroed,
        "reclaimed_chunks": o.reclaimed,
        "host_peak_bytes": o.host_peak,
        "gpu_peak_bytes": o.gpu_peak,
    })
}

/// A policy, with the step and where it lies if kernels run again under it.
type Ready = (Option<(Workload, Layout)>, Box<dyn Policy>);

/// What is made of a policy's name; ours looks for a better plan until then.
fn ready(
    name: &str,
    machine: &Machine,
    w: &Workload,
    l: &Layout,
    until: Until<'_>,
) -> Result<Ready, RunError> {
    if let Some(name) = recomputing(name) {
        let made = policies::recompute(name, machine, w, until)?;
        return Ok(replayed(made, name));
    }
    if name == "best" {
        let found = best::find(machine, w, l, until)?;
        return Ok((None, policies::of_best(found, machine, w, l)?));
    }
    Ok((None, policies::make(name, machine, w, l)?))
}

fn replayed(made: Made, name: &'static str) -> Ready {
    let policy = policies::Planned::new(name, made.plan, Tier::Host);
    (Some((made.workload, made.layout)), Box::new(policy))
}

/// Runs a step under one policy; ours looks for a plan as `until` says.
pub fn policy(
    name: &str,
    (machine, workload, layout): (&Machine, &Workload, &Layout),
    limits: Limits,
    until: Until<'_>,
) -> Result<Outcome, String> {
    let run = || {
        let (own, mut policy) = ready(name, machine, workload, layout, until)?;
        let (w, l) = own.as_ref().map_or((workload, layout), |(w, l)| (w, l));
        uvmsim_physical::run(machine, w, l, policy.as_mut(), limits)
    };
    run().map_err(|e| e.to_string())
}

/// How far the search of `name` is, in a few words.
pub fn so_far(name: &str, tried: Tried) -> String {
    let (runs, best_s) = (tried.runs, tried.best_ns as f64 / 1e9);
    match tried.best_ns {
        u64::MAX => format!("{name}: {runs} runs"),
        _ => format!("{name}: {runs} runs, best so far {best_s:.3} s"),
    }
}

/// What a table says below of `best` where it is no plan.
pub fn without_plan(name: &str, o: &Outcome) -> Option<String> {
    let other = name == "best" && o.policy != name;
    other.then(|| format!("best: {}, which is faster than all plans\n", o.policy))
}

/// Refuses what is no policy's name.
pub fn check_policy(name: &str) -> Result<(), Failure> {
    let all = [policies::NAMES, policies::RECOMPUTING, &[policies::CHOOSER]].concat();
    if all.contains(&name) {
        return Ok(());
    }
    let all = all.join(", ");
    Err(Failure::usage(format!(
        "no policy is called `{name}`; there are {all}"
    )))
}

/// The policy `name`, if kernels run again under it.
pub fn recomputing(name: &str) -> Option<&'static str> {
    let mut all = policies::RECOMPUTING.iter().copied();
    all.find(|n| *n == name)
}

/// The step and the plan in `path`.
fn read_plan(path: &str, workload: &Workload) -> Result<Made, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::usage(format!("{path}: {e}")))?;
    Plan::read(&text, workload).map_err(|e| Failure::usage(format!("{path}: {e}")))
}

fn planned(args: &Args, machine: &Machine, w: &Workload, l: &Layout) -> Result<Ready, Failure> {
    if let Some(path) = &args.plan {
        return Ok(replayed(read_plan(path, w)?, "plan"));
    }
    let Some(policy) = &args.policy else {
        return Err(Failure::usage("give --policy or --plan"));
    };
    let made = progress::during(&format!("{policy}: planning"), |line| {
        let told = |tried| line.set_message(so_far(policy, tried));
        ready(policy, machine, w, l, Until::NEVER.telling(&told))
    });
    made.map_err(|e| Failure::run(format!("{policy}: {e}")))
}

pub fn main(args: &Args) -> Result<(), Failure> {
    if args.model == Model::G10 {
        let Some(policy) = &args.policy else {
            return Err(Failure::usage("--plan needs --model physical"));
        };
        let trace = crate::read_trace(&args.trace)?;
        return crate::g10::run(&trace, policy, &args.machine, args.json);
    }
    if let Some(policy) = &args.policy {
        check_policy(policy)?;
    }
    if !(0.0..1.0).contains(&args.noise) {
        return Err(Failure::usage("--noise must be at least 0 and less than 1"));
    }
    let machine = args.machine.machine("a100")?;
    let trace = crate::read_trace(&args.trace)?;
    crate::check_fits(&trace, &machine, args.large_kernels)?;
    let (workload, layout) = crate::workload(&trace)?;
    let bound_s = uvmsim_physical::bound_ns(&machine, &workload) as f64 / 1e9;
    let (own, mut policy) = planned(args, &machine, &workload, &layout)?;
    let (mut workload, layout) = own.unwrap_or((workload, layout));
    let name = args.policy.clone().unwrap_or_else(|| "plan".into());
    workload.add_noise(args.noise, args.seed);
    let outcome = progress::during(&format!("{name}: running"), |_| {
        let limits = Limits::default();
        uvmsim_physical::run(&machine, &workload, &layout, policy.as_mut(), limits)
            .map_err(|e| Failure::run(format!("{name}: {e}")))
    })?;
    if args.json {
        return crate::print_json(&object(&name, &outcome, Some(bound_s)));
    }
    let below = without_plan(&name, &outcome).unwrap_or_default();
    let table = uvmsim_report::table(&[(name, Ok(outcome))]);
    crate::write_file("-", &(table + &below))
}
