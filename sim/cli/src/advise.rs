// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim advise`: what of a model's step fits, and what to do about the rest.

use std::time::Duration;

use serde_json::json;
use serde_json::Map;
use serde_json::Value;
use uvmsim_machine::presets;
use uvmsim_machine::Machine;
use uvmsim_physical::Limits;
use uvmsim_physical::Workload;
use uvmsim_report::advice;
use uvmsim_report::advice::Advice;
use uvmsim_trace::Kind;
use uvmsim_trace::Trace;
use uvmsim_zoo::Entry;
use uvmsim_zoo::LARGEST;

use crate::compare;
use crate::machine;
use crate::plan;
use crate::pool;
use crate::progress;
use crate::zoo;
use crate::Failure;

/// What `uvmsim advise` takes.
#[derive(clap::Args)]
pub struct Args {
    /// A network of the zoo, or a configuration file as Hugging Face's models have it
    /// (config.json).
    model: String,
    #[command(flatten)]
    shape: zoo::Shape,
    #[command(flatten)]
    machine: machine::Choice,
    /// Let each of `best`, `checkpoint` and `best-recompute` look for a better plan for so many
    /// seconds at most.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = plan::seconds)]
    budget: Duration,
    /// Write the page as HTML, too.
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Threads [default: all cores].
    #[arg(long)]
    threads: Option<usize>,
}

/// Those that are compared: plain UVM, what a driver can do, what a framework can do.
const POLICIES: [&str; 8] = [
    "base-uvm",
    "uvm-discard-lazy",
    "deepum",
    "g10",
    "most",
    "best",
    "checkpoint",
    "best-recompute",
];

/// A model's steps on a machine, by their batch.
struct Model<'a> {
    entry: &'a Entry,
    shape: &'a zoo::Shape,
    machine: &'a Machine,
}

impl Model<'_> {
    fn trace(&self, batch: u64) -> Result<Trace, Failure> {
        zoo::trace_of(self.entry, &self.shape.of(batch), self.machine)
    }

    /// The largest batch whose step `fits`, and that step's ideal time; none if no batch does.
    fn largest(&self, fits: impl Fn(&Workload) -> bool) -> Option<(u64, f64)> {
        let step = |batch: u64| {
            let workload = Workload::from_trace(&self.trace(batch).ok()?);
            let seconds = workload.ideal_ns() as f64 / 1e9;
            fits(&workload).then_some((batch, seconds))
        };
        let mut best = step(1)?;
        let mut over = 2;
        while let Some(found) = step(over) {
            best = found;
            over *= 2;
            if over > LARGEST {
                return Some(best);
            }
        }
        while over - best.0 > 1 {
            let middle = best.0 + (over - best.0) / 2;
            match step(middle) {
                Some(found) => best = found,
                None => over = middle,
            }
        }
        Some(best)
    }
}

/// The most bytes that a kernel of the step uses.
fn largest_kernel(workload: &Workload) -> u64 {
    let sizes = (0..workload.kernels.len()).map(|k| workload.working_set(k));
    sizes.max().unwrap_or(0)
}

/// Runs `uvmsim advise`: writes the page, or one JSON object.
pub fn main(args: &Args) -> Result<(), Failure> {
    let entry = zoo::entry(&args.model)?;
    let machine = args.machine.machine("a100")?;
    let model = Model {
        entry: &entry,
        shape: &args.shape,
        machine: &machine,
    };
    let batch = args.shape.batch.unwrap_or(entry.batch);
    let trace = model.trace(batch)?;
    let (workload, layout) = crate::workload(&trace)?;
    let what = format!("{}: looking for the largest batch that fits", entry.name);
    let gpu = machine.gpu_mem;
    let whole = progress::during(&what, |_| model.largest(|w| w.peak_bytes() <= gpu));
    if largest_kernel(&workload) > gpu {
        let what = format!("{}: looking for the largest batch that runs", entry.name);
        let runs = progress::during(&what, |_| model.largest(|w| largest_kernel(w) <= gpu));
        let most = match runs {
            Some((batch, _)) => format!("the largest batch whose kernels all fit is {batch}"),
            None => "that of one sample does not fit either".into(),
        };
        let why = trace.check_fits(gpu).err();
        let why = why.map_or_else(String::new, |e| e.to_string());
        return Err(Failure::run(format!("{why}; {most}")));
    }
    let spills = workload.peak_bytes() > gpu;
    let names = POLICIES.iter().filter(|_| spills).map(ToString::to_string);
    let names: Vec<String> = names.collect();
    let threads = args.threads.unwrap_or_else(pool::cores);
    let step = (&machine, &workload, &layout);
    let budget = Some(args.budget);
    let outcomes = compare::run_all(&names, step, Limits::default(), budget, threads);
    let advice = Advice {
        subject: subject(&entry, &args.shape, batch),
        place: place(&machine),
        workload: &workload,
        machine: &machine,
        batch,
        whole,
        bound_s: uvmsim_physical::bound_ns(&machine, &workload) as f64 / 1e9,
        outcomes: &outcomes,
        command: crate::command_line(),
    };
    if let Some(path) = &args.html {
        crate::write_file(path, &advice.html())?;
    }
    if args.json {
        crate::print_json(&object(&entry, &advice))?;
    } else {
        crate::write_file("-", &advice.text())?;
    }
    if !outcomes.is_empty() && outcomes.iter().all(|(_, o)| o.is_err()) {
        return Err(Failure::run("no policy could run this"));
    }
    Ok(())
}

/// What trains, and how.
fn subject(entry: &Entry, shape: &zoo::Shape, batch: u64) -> String {
    let parameters = entry.parameters as f64;
    let parameters = match parameters {
        p if p < 1e9 => format!("{:.1} million", p / 1e6),
        p => format!("{:.2} billion", p / 1e9),
    };
    let tokens = match shape.tokens_of(entry) {
        0 => String::new(),
        tokens => format!(" of {tokens} tokens"),
    };
    let how = shape.how(entry);
    let (name, about) = (&entry.name, &entry.about);
    format!("{name} ({about}; {parameters} parameters), batch {batch}{tokens}, {how}")
}

fn place(machine: &Machine) -> String {
    let preset = presets::PRESETS.iter().find(|p| p.name == machine.preset);
    let about = preset.map_or("", |p| &p.about);
    let gb = machine.gpu_mem as f64 / 1e9;
    format!("on {}, {gb:.1} GB for tensors ({about})", machine.preset)
}

fn object(entry: &Entry, advice: &Advice<'_>) -> Value {
    let held = Kind::ALL.into_iter().zip(advice::held(advice.workload));
    let held: Map<String, Value> = held.map(|(k, b)| (k.to_string(), b.into())).collect();
    let peak = advice.workload.peak_bytes();
    json!({
        "model": entry.name,
        "parameters": entry.parameters,
        "machine": advice.machine.preset,
        "batch": advice.batch,
        "gpu_mem_bytes": advice.machine.gpu_mem,
        "peak_bytes": peak,
        "held_bytes": held,
        "spilled_bytes": peak.saturating_sub(advice.machine.gpu_mem),
        "ideal_s": advice.workload.ideal_ns() as f64 / 1e9,
        "bound_s": advice.bound_s,
        "largest_whole_batch": advice.whole.map(|w| w.0),
        "largest_whole_step_s": advice.whole.map(|w| w.1),
        "fastest": advice.fastest(),
        "policies": compare::objects(advice.outcomes, advice.bound_s),
    })
}
