// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim programs`: several programs that take turns on one GPU, under plain UVM, DeepUM, and the order of turns.

use serde_json::json;
use uvm_policy::evict::Choice;
use uvmsim_machine::parse_bytes;
use uvmsim_programs::{Error, Policy, Programs, BLOCK};

use crate::Failure;

/// The most accesses that are looked at.
const MOST: u64 = 1 << 24;

/// The policies that are compared, by name: what is evicted, and whether kernels' blocks are brought ahead of need.
const POLICIES: [(&str, &str, bool); 3] = [
    ("uvm", "lru", false),
    ("deepum", "lru", true),
    ("turns", "turns", true),
];

#[derive(clap::Args)]
pub struct Args {
    /// How many programs take turns, for each row of the table.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    programs: Vec<u32>,
    /// What each of them uses in each turn.
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES", default_value = "1GiB")]
    working_set: u64,
    /// GPU memory for them; without it one and a half working sets.
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    gpu_mem: Option<u64>,
    /// How many turns each program has.
    #[arg(long, default_value_t = 8)]
    turns: u32,
    /// How often a program goes through its working set in a turn.
    #[arg(long, default_value_t = 3)]
    passes: u32,
    /// Print one JSON object for each row.
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<(), Failure> {
    let blocks = |bytes: u64| u32::try_from(bytes / BLOCK).unwrap_or(u32::MAX);
    let working_set = blocks(args.working_set);
    if !args.json {
        println!("programs  policy    to the GPU   must move   ratio");
    }
    for &programs in &args.programs {
        let plain = Programs::on_one_and_a_half(programs, working_set);
        let what = Programs {
            chunks: args.gpu_mem.map_or(plain.chunks, blocks),
            turns: args.turns,
            passes: args.passes,
            ..plain
        };
        let accesses = [programs, working_set, args.turns, args.passes]
            .iter()
            .try_fold(1u64, |all, &n| all.checked_mul(n.into()));
        if accesses.is_none_or(|n| n > MOST) || what.chunks > 1 << 20 {
            return Err(Failure::usage("that is more than can be looked at"));
        }
        let required = what.least().map_err(failed)? * BLOCK;
        for (name, evict, prefetch) in POLICIES {
            let evict = Choice::named(evict).unwrap_or_default();
            let moved = what.run(Policy { evict, prefetch }).map_err(failed)?;
            let bytes = moved.blocks * BLOCK;
            if args.json {
                let row = json!({
                    "programs": programs,
                    "policy": name,
                    "bytes": bytes,
                    "required": required,
                    "simulated": true,
                    "verified": false,
                    "working_set_bytes": u64::from(working_set) * BLOCK,
                    "gpu_bytes": u64::from(what.chunks) * BLOCK,
                    "turns": args.turns,
                    "faulted_blocks": moved.faults,
                });
                println!("{row}");
                continue;
            }
            let mib = |bytes: u64| bytes >> 20;
            println!(
                "{programs:8}  {name:8}{:8} MiB{:8} MiB{:8.2}",
                mib(bytes),
                mib(required),
                bytes as f64 / required as f64
            );
        }
    }
    Ok(())
}

fn failed(error: Error) -> Failure {
    match error {
        Error::Shape => Failure::usage(
            "there must be programs, turns and passes, and room for a working set of four blocks or more",
        ),
        Error::OutOfMemory => Failure::run("there is not enough memory"),
    }
}
