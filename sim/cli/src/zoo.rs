// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmsim zoo`.

use serde_json::json;
use uvmsim_machine::Machine;
use uvmsim_trace::Trace;
use uvmsim_zoo::Optimizer;
use uvmsim_zoo::Options;
use uvmsim_zoo::Precision;
use uvmsim_zoo::LARGEST;
use uvmsim_zoo::NETS;

use crate::machine;
use crate::Failure;

/// `uvmsim zoo`.
#[derive(clap::Args)]
pub struct Args {
    /// The network; without it, all are listed.
    net: Option<String>,
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
    /// Number format.
    #[arg(long, value_enum, default_value = "tf32")]
    precision: Format,
    /// Optimizer [default: the network's own].
    #[arg(long, value_enum)]
    optimizer: Option<Rule>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Format {
    Fp32,
    Tf32,
    Fp16,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Rule {
    Sgd,
    Momentum,
    Adam,
}

/// A training step of `net` on `machine`.
pub fn trace(net: &str, shape: &Shape, machine: &Machine) -> Result<Trace, Failure> {
    let Some(entry) = uvmsim_zoo::find(net) else {
        let names: Vec<_> = NETS.iter().map(|e| e.name).collect();
        return Err(Failure::usage(format!(
            "the zoo has no `{net}`; it has {}",
            names.join(", ")
        )));
    };
    let precision = match shape.precision {
        Format::Fp32 => Precision::Fp32,
        Format::Tf32 => Precision::Tf32,
        Format::Fp16 => Precision::Fp16,
    };
    let optimizer = shape.optimizer.map(|o| match o {
        Rule::Sgd => Optimizer::Sgd,
        Rule::Momentum => Optimizer::Momentum,
        Rule::Adam => Optimizer::Adam,
    });
    let options = Options {
        batch: shape.batch.unwrap_or(entry.batch),
        tokens: shape.tokens,
        precision,
        optimizer,
    };
    Ok(entry.trace(&options, machine))
}

/// Runs `uvmsim zoo`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let Some(net) = &args.net else {
        let text = if args.json {
            let list: Vec<_> = NETS
                .iter()
                .map(|e| json!({"name": e.name, "about": e.about, "parameters": e.parameters, "batch": e.batch, "tokens": e.tokens}))
                .collect();
            format!("{:#}\n", json!(list))
        } else {
            let head = format!(
                "{:<12} {:>13} {:>7} {:>7}  {}\n",
                "network", "parameters", "batch", "tokens", ""
            );
            NETS.iter().fold(head, |out, e| {
                let tokens = if e.tokens == 0 {
                    "-".into()
                } else {
                    e.tokens.to_string()
                };
                out + &format!(
                    "{:<12} {:>13} {:>7} {tokens:>7}  {}\n",
                    e.name, e.parameters, e.batch, e.about
                )
            })
        };
        return crate::write_file("-", &text);
    };
    let machine = args.machine.machine("a100")?;
    let trace = trace(net, &args.shape, &machine)?;
    crate::trace::write(&trace, &args.output, args.json)
}
