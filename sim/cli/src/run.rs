// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmsim run`: one trace, one policy.

use serde_json::json;
use serde_json::Value;
use uvmsim_machine::Machine;
use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Outcome;
use uvmsim_physical::Workload;

use crate::machine;
use crate::Failure;

/// `uvmsim run`.
#[derive(clap::Args)]
pub struct Args {
    /// The trace; - is standard input.
    #[arg(long)]
    trace: String,
    /// The policy.
    #[arg(long)]
    policy: String,
    /// The machine model.
    #[arg(long, value_enum, default_value = "physical")]
    model: Model,
    #[command(flatten)]
    machine: machine::Choice,
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

/// What a run says of itself.
pub fn object(o: &Outcome, bound_s: Option<f64>) -> Value {
    let s = |ns: u64| ns as f64 / 1e9;
    json!({
        "model": "physical",
        "policy": o.policy,
        "ideal_s": s(o.ideal_ns),
        "step_s": s(o.step_ns),
        "normalized": o.normalized(),
        "bound_s": bound_s,
        "bytes": {
            "host_to_gpu": o.bytes.host_to_gpu,
            "gpu_to_host": o.bytes.gpu_to_host,
            "ssd_to_gpu": o.bytes.ssd_to_gpu,
            "gpu_to_ssd": o.bytes.gpu_to_ssd,
        },
        "faults": o.faults,
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

/// Runs one policy.
pub fn policy(
    name: &str,
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
    limits: Limits,
) -> Result<Outcome, String> {
    let mut policy = policies::make(name, machine, workload, layout).map_err(|e| e.to_string())?;
    uvmsim_physical::run(machine, workload, layout, policy.as_mut(), limits)
        .map_err(|e| e.to_string())
}

/// Runs `uvmsim run`.
pub fn main(args: &Args) -> Result<(), Failure> {
    if args.model == Model::G10 {
        let trace = crate::read_trace(&args.trace)?;
        return crate::g10::run(&trace, &args.policy, &args.machine, args.json);
    }
    if !policies::NAMES.contains(&args.policy.as_str()) {
        let names = policies::NAMES.join(", ");
        return Err(Failure::usage(format!(
            "no policy is called `{}`; there are {names}",
            args.policy
        )));
    }
    let machine = args.machine.machine("a100")?;
    let trace = crate::read_trace(&args.trace)?;
    let workload = Workload::from_trace(&trace);
    let layout = Layout::new(&workload);
    let outcome = policy(
        &args.policy,
        &machine,
        &workload,
        &layout,
        Limits::default(),
    )
    .map_err(|e| Failure::run(format!("{}: {e}", args.policy)))?;
    let bound_s = uvmsim_physical::bound_ns(&machine, &workload) as f64 / 1e9;
    let text = if args.json {
        format!("{:#}\n", object(&outcome, Some(bound_s)))
    } else {
        uvmsim_report::table(&[(args.policy.clone(), Ok(outcome))])
    };
    crate::write_file("-", &text)
}
