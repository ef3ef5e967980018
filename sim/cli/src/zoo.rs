// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim zoo`: lists the networks, or writes a training step of one as a trace.

use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use serde::de::DeserializeOwned;
use serde_json::json;
use uvmsim_machine::Machine;
use uvmsim_trace::Trace;
use uvmsim_zoo::config;
use uvmsim_zoo::Entry;
use uvmsim_zoo::Optimizer;
use uvmsim_zoo::Options;
use uvmsim_zoo::Precision;
use uvmsim_zoo::LARGEST;
use uvmsim_zoo::LARGEST_ROWS;
use uvmsim_zoo::NETS;

use crate::machine;
use crate::Failure;

#[derive(clap::Args)]
pub struct Args {
    /// The network; without it, all are listed.
    net: Option<String>,
    /// A network from a configuration file instead, as Hugging Face's models have it: Llama,
    /// Mistral, Qwen2, GPT-2 or OPT.
    #[arg(long, value_name = "FILE", conflicts_with = "net")]
    config: Option<String>,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    machine: machine::Choice,
    /// File to write the trace to; - is standard output.
    #[arg(short, long, default_value = "-")]
    output: String,
    /// Print JSON: the list, or what is in the trace.
    #[arg(long)]
    json: bool,
}

/// What may be chosen of a step.
#[derive(clap::Args, Clone, Debug)]
pub struct Shape {
    /// Samples in the step [default: the network's own].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    pub batch: Option<u64>,
    /// Tokens or time steps in a sample [default: the network's own].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=65536))]
    tokens: Option<u64>,
    /// The number format that tensors and products have.
    #[arg(long, default_value = "tf32", value_parser = PossibleValuesParser::new(["fp32", "tf32", "fp16", "bf16"]).try_map(named::<Precision>))]
    precision: Precision,
    /// Optimizer [default: the network's own].
    #[arg(long, value_parser = PossibleValuesParser::new(["sgd", "momentum", "adam"]).try_map(named::<Optimizer>))]
    optimizer: Option<Optimizer>,
}

/// The step that a command looks at.
#[derive(clap::Args)]
pub struct Source {
    /// The trace; - is standard input.
    #[arg(long, conflicts_with = "net")]
    trace: Option<String>,
    /// A network of the zoo instead of a trace.
    #[arg(long)]
    net: Option<String>,
    #[command(flatten)]
    pub shape: Shape,
}

impl Source {
    /// The step; one of the zoo has the times of `machine`.
    pub fn trace(&self, machine: &Machine) -> Result<Trace, Failure> {
        match (&self.trace, &self.net) {
            (Some(path), _) => crate::read_trace(path),
            (None, Some(net)) => trace(net, &self.shape, machine),
            (None, None) => Err(Failure::usage("give --trace or --net")),
        }
    }
}

/// How many times GPU memory a step's peak is, as text.
pub fn over(text: &str) -> Result<f64, String> {
    let over = text.parse().ok().filter(|o| (1.0..=100.0).contains(o));
    over.ok_or_else(|| "it must be from 1 to 100".into())
}

/// `machine` with GPU memory for a part of the step's peak, which is `over` times as large.
pub fn shrunk(machine: &Machine, over: f64, peak_bytes: u64) -> Machine {
    let gpu_mem = ((peak_bytes as f64 / over) as u64).max(32 << 20);
    let base = machine.clone();
    Machine { gpu_mem, ..base }
}

/// The variant of an enum that is called `name`.
fn named<T: DeserializeOwned>(name: String) -> Result<T, serde_json::Error> {
    serde_json::from_value(name.into())
}

/// The network of this name.
pub fn find(net: &str) -> Result<&'static Entry, Failure> {
    uvmsim_zoo::find(net).ok_or_else(|| {
        let names: Vec<_> = NETS.iter().map(|e| &*e.name).collect();
        let names = names.join(", ");
        Failure::usage(format!("the zoo has no `{net}`; it has {names}"))
    })
}

/// The network in a configuration file; - is standard input.
fn read(path: &str) -> Result<Entry, Failure> {
    let text = crate::read_text(path)?;
    let stem = Path::new(path).file_stem().and_then(|s| s.to_str());
    let name = stem.filter(|_| path != "-").unwrap_or("config");
    config::parse(name, &text).map_err(|e| Failure::usage(format!("{path}: {e}")))
}

/// The network of the zoo that is called so, else that in the file of this name.
pub fn entry(model: &str) -> Result<Entry, Failure> {
    match find(model) {
        Ok(entry) => Ok(entry.clone()),
        Err(_) if model == "-" || Path::new(model).exists() => read(model),
        Err(unknown) => Err(Failure::usage(format!(
            "{unknown}, and no file is called so"
        ))),
    }
}

/// A training step of `net` on `machine`.
pub fn trace(net: &str, shape: &Shape, machine: &Machine) -> Result<Trace, Failure> {
    trace_of(find(net)?, shape, machine)
}

/// A training step of a network on `machine`.
pub fn trace_of(entry: &Entry, shape: &Shape, machine: &Machine) -> Result<Trace, Failure> {
    let options = Options {
        batch: shape.batch.unwrap_or(entry.batch),
        tokens: shape.tokens,
        precision: shape.precision,
        optimizer: shape.optimizer,
    };
    if options.batch.saturating_mul(shape.tokens_of(entry)) > LARGEST_ROWS {
        return Err(Failure::usage(format!(
            "--batch times --tokens may be at most {LARGEST_ROWS}"
        )));
    }
    Ok(entry.trace(&options, machine))
}

impl Shape {
    /// The same with so many samples.
    pub fn of(&self, batch: u64) -> Self {
        Self {
            batch: Some(batch),
            ..self.clone()
        }
    }

    /// Tokens of a sample of this network; 0: it has no such thing.
    pub fn tokens_of(&self, entry: &Entry) -> u64 {
        match entry.tokens {
            0 => 0,
            own => self.tokens.unwrap_or(own),
        }
    }

    /// Its number format and the optimizer, for a sentence.
    pub fn how(&self, entry: &Entry) -> String {
        let optimizer = self.optimizer.unwrap_or(entry.optimizer);
        format!("{:?}, {optimizer:?}", self.precision).to_lowercase()
    }
}

/// Lists the networks, or writes a step of one as a trace.
pub fn main(args: &Args) -> Result<(), Failure> {
    let own = args.config.as_deref().map(read).transpose()?;
    let named = args.net.as_deref().map(find).transpose()?;
    let Some(entry) = own.as_ref().or(named) else {
        if args.json {
            let object = |e: &Entry| json!({"name": e.name, "about": e.about, "parameters": e.parameters, "batch": e.batch, "tokens": e.tokens});
            return crate::print_json(&NETS.iter().map(object).collect());
        }
        let row = |name: &str, parameters: &str, batch: &str, tokens: &str, about: &str| {
            format!("{name:<12} {parameters:>13} {batch:>7} {tokens:>7}  {about}\n")
        };
        let mut text = row("network", "parameters", "batch", "tokens", "");
        for e in NETS.iter() {
            let [parameters, batch, tokens] =
                [e.parameters, e.batch, e.tokens].map(|n| n.to_string());
            let tokens = if e.tokens == 0 { "-" } else { &tokens };
            text += &row(&e.name, &parameters, &batch, tokens, &e.about);
        }
        return crate::write_file("-", &text);
    };
    let machine = args.machine.machine("a100")?;
    let trace = trace_of(entry, &args.shape, &machine)?;
    crate::trace::write(&trace, &args.output, args.json)
}
