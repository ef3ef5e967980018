// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim choose`: what the chooser comes to, beside each policy that can be set for all of a run.

use serde_json::json;
use uvmsim_physical::patterns;
use uvmsim_physical::patterns::Pattern;
use uvmsim_physical::Outcome;
use uvmsim_physical::RunError;

use crate::machine;
use crate::Failure;

#[derive(clap::Args)]
pub struct Args {
    /// The patterns, comma-separated [default: all].
    #[arg(long, value_delimiter = ',')]
    patterns: Vec<String>,
    /// The program announces no kernels to the chooser.
    #[arg(long)]
    silent: bool,
    /// Seed of what is random in a pattern.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    machine: machine::Choice,
    /// Print one JSON object for each row.
    #[arg(long)]
    json: bool,
}

/// The chooser's name in the table.
const CHOOSER: &str = "chooser";

/// The most GPU memory that patterns are made for.
const MOST_CHUNKS: u64 = 4096;

pub fn main(args: &Args) -> Result<(), Failure> {
    let machine = args.machine.machine("a100")?;
    let chunks = machine.chunks();
    if !(16..=MOST_CHUNKS).contains(&chunks) {
        return Err(Failure::usage(
            "patterns are made for 32 MiB to 8 GiB of GPU memory: give --gpu-mem",
        ));
    }
    let all = patterns::PATTERNS
        .iter()
        .map(|(name, _)| (*name).to_owned());
    let names = match args.patterns.is_empty() {
        true => all.collect(),
        false => args.patterns.clone(),
    };
    for name in names {
        let Some(pattern) = Pattern::new(&name, chunks, args.seed) else {
            let known: Vec<_> = patterns::PATTERNS.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            return Err(Failure::usage(format!(
                "no pattern is called `{name}`; there are {known}"
            )));
        };
        if !args.json {
            println!("{name}: a program that {}", pattern.about);
        }
        for fixed in patterns::FIXED {
            row(
                args,
                &name,
                fixed.name,
                patterns::under(fixed, &machine, &pattern),
            )?;
        }
        let chosen = patterns::under_chooser(&machine, &pattern, !args.silent);
        row(args, &name, CHOOSER, chosen)?;
    }
    Ok(())
}

fn row(
    args: &Args,
    pattern: &str,
    policy: &str,
    outcome: Result<Outcome, RunError>,
) -> Result<(), Failure> {
    let o = outcome.map_err(|e| Failure::run(format!("{pattern} under {policy}: {e}")))?;
    let moved = o.bytes.host_to_gpu + o.bytes.gpu_to_host;
    if args.json {
        let row = json!({
            "pattern": pattern,
            "policy": policy,
            "step_s": o.step_ns as f64 / 1e9,
            "bytes": moved,
            "faults": o.faults,
            "batches": o.batches,
            "simulated": true,
        });
        println!("{row}");
        return Ok(());
    }
    println!(
        "  {policy:11}{:9.1} ms{:8} MiB moved{:9} faults{:7} batches",
        o.step_ns as f64 / 1e6,
        moved >> 20,
        o.faults,
        o.batches
    );
    Ok(())
}
