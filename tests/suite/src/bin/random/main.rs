// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A random program over more managed and ordinary memory than the GPU has,
//! checked against a model in user space.
//!
//! One seed gives one program, whatever the machine does. On a failure the seed,
//! the operation and the history of the bad page are printed.

mod area;
mod discard;
mod ever;
mod history;
mod program;

use std::process::ExitCode;

use program::{Memory, Program};
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

pub(crate) struct Options {
    pub(crate) ops: u64,
    pub(crate) seed: u64,
    pub(crate) oversubscription: f64,
    pub(crate) memory: Memory,
    pub(crate) eviction: bool,
    pub(crate) read_duplication: bool,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        ops: 10_000,
        seed: clock_seed(),
        oversubscription: 1.5,
        memory: Memory::Both,
        eviction: true,
        read_duplication: true,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("ops") => options.ops = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("oversubscription") => {
                let times: f64 = parser.value()?.parse()?;
                if !(0.1..=8.0).contains(&times) {
                    return Err("--oversubscription: use a number from 0.1 to 8".into());
                }
                options.oversubscription = times;
            }
            Long("memory") => {
                options.memory = match parser.value()?.string()?.as_str() {
                    "both" => Memory::Both,
                    "managed" => Memory::Managed,
                    "ordinary" => Memory::Ordinary,
                    _ => return Err("--memory: use managed, ordinary or both".into()),
                }
            }
            Long("no-eviction") => {
                options.eviction = false;
                options.oversubscription = 0.4;
            }
            Long("no-read-duplication") => options.read_duplication = false,
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(options)
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
        options.seed, options.ops, options.seed
    );
    let mut suite = Suite::new("random", None);
    let name = format!("{} operations, seed {}", options.ops, options.seed);
    suite.test(&name, EVICTING_ORDINARY, || run(&options));
    suite.test("no leak after it", &[], no_leak);
    suite.finish()
}

fn run(options: &Options) -> Outcome {
    let mut program = Program::new(options)?;
    let step = (options.ops / 40).max(1);
    for index in 0..options.ops {
        program
            .step(index)
            .map_err(|why| program.explain(index, &why))?;
        if index % step == step - 1 {
            println!("# {} operations done", index + 1);
        }
    }
    program
        .check_all()
        .map_err(|why| program.explain(options.ops, &why))?;
    println!("# {}", program.summary());
    ensure!(
        program.ran_everything() || options.ops < 1000,
        "some kind of operation never ran"
    );
    Ok(Pass::Ok)
}
