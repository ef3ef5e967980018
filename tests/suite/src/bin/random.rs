// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A random program over more managed and ordinary memory than the GPU has,
//! checked against a model in user space.
//!
//! One seed gives one program, whatever the machine does. On a failure the seed,
//! the operation and the history of the bad page are printed.

use std::process::ExitCode;

use uvm_suite::random::{Kind, Memory, Program, Setup, Values};
use uvm_suite::{clock_seed, ensure, no_leak, Outcome, Pass, Suite, EVICTING_ORDINARY};

const HELP: &str = "usage: random [--ops N] [--seed N] [--oversubscription TIMES]
  --ops N                    operations (10000)
  --seed N                   which program (from the clock, and printed)
  --oversubscription TIMES   memory used, in times of the GPU's (1.5)
  --memory KIND              managed, ordinary or both (both)
  --no-eviction              use 0.4 times the GPU's memory, and evict nothing
  --no-read-duplication      do not turn read duplication on
The unmodified driver crashes when it evicts part of a block of ordinary memory, and
loses writes to read-duplicated pages (docs/fixes.md): give it --no-read-duplication
and --memory managed, or --no-read-duplication and --no-eviction.
";

/// Kinds of operation, with how likely they are.
const KINDS: [(Kind, u64); 14] = [
    (Kind::CpuRead, 14),
    (Kind::CpuWrite, 12),
    (Kind::CpuAtomic, 6),
    (Kind::GpuRead, 16),
    (Kind::GpuWrite, 16),
    (Kind::GpuAtomic, 8),
    (Kind::GpuMany, 6),
    (Kind::Migrate, 8),
    (Kind::PreferredLocation, 4),
    (Kind::AccessedBy, 3),
    (Kind::ReadDuplication, 3),
    (Kind::Evict, 3),
    (Kind::Discard, 6),
    (Kind::Free, 1),
];

struct Options {
    ops: u64,
    setup: Setup,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut setup = Setup {
        seed: clock_seed(),
        oversubscription: 1.5,
        memory: Memory::Both,
        eviction: true,
        read_duplication: true,
        values: Values::Any,
        splits_may_fail: false,
        evictions_may_fail: false,
        large_percent: 100,
    };
    let mut ops = 10_000;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("ops") => ops = parser.value()?.parse()?,
            Long("seed") => setup.seed = parser.value()?.parse()?,
            Long("oversubscription") => {
                let times: f64 = parser.value()?.parse()?;
                if !(0.1..=8.0).contains(&times) {
                    return Err("--oversubscription: use a number from 0.1 to 8".into());
                }
                setup.oversubscription = times;
            }
            Long("memory") => {
                setup.memory = match parser.value()?.string()?.as_str() {
                    "both" => Memory::Both,
                    "managed" => Memory::Managed,
                    "ordinary" => Memory::Ordinary,
                    _ => return Err("--memory: use managed, ordinary or both".into()),
                }
            }
            Long("no-eviction") => {
                setup.eviction = false;
                setup.oversubscription = 0.4;
            }
            Long("no-read-duplication") => setup.read_duplication = false,
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(Options { ops, setup })
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprint!("random: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    println!(
        "# seed {} (repeat with: random --ops {} --seed {})",
        options.setup.seed, options.ops, options.setup.seed
    );
    let mut suite = Suite::new("random", None);
    let name = format!("{} operations, seed {}", options.ops, options.setup.seed);
    suite.test(&name, EVICTING_ORDINARY, || run(&options));
    suite.test("no leak after it", &[], no_leak);
    suite.finish()
}

fn run(options: &Options) -> Outcome {
    let mut program = Program::new(&options.setup)?;
    let mut counts = [0u64; KINDS.len()];
    let step = (options.ops / 40).max(1);
    for index in 0..options.ops {
        let kind = program.draw(&KINDS);
        counts[KINDS.iter().position(|k| k.0 == kind).unwrap_or(0)] += 1;
        program
            .act(index, kind)
            .map_err(|why| program.explain(index, &why))?;
        if index % step == step - 1 {
            println!("# {} operations done", index + 1);
        }
    }
    program
        .check_all()
        .map_err(|why| program.explain(options.ops, &why))?;
    let of_each: Vec<_> = KINDS
        .iter()
        .zip(counts)
        .map(|((kind, _), n)| format!("{kind:?} {n}"))
        .collect();
    println!("# {}; {}", program.size(), of_each.join(", "));
    ensure!(
        counts.iter().all(|n| *n > 0) || options.ops < 1000,
        "some kind of operation never ran"
    );
    Ok(Pass::Ok)
}
