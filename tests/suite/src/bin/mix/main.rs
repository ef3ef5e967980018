// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Several processes at a time, each with a random program over managed, ordinary and SSD-backed memory that it checks against
//! a model of its own; and a parent that kills them, limits their memory, and has things fail.
//!
//! Each worker's operations are by the seed, and so are the parent's. The order among them is not: the machine says it, so
//! a failure may not come again with its seed.

mod acts;
mod board;
mod crew;
mod deeds;
mod events;
mod parent;
mod watch;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use board::Board;
use crew::Waiting;
use deeds::Without;
use uvm_suite::{clock_seed, no_leak, Allowed, Suite, EVICTING_ORDINARY};

const HELP: &str = "usage: mix [--ops N] [--seed N] [--processes N] [--device PATH]
           [--without KIND[,KIND]] [--oversubscription TIMES] [--patience SECONDS]
           [--large PERCENT]
  --ops N                    operations, of all processes together (10000)
  --seed N                   which programs (from the clock, and printed)
  --processes N              how many at a time (4)
  --device PATH              a block device for the SSD tier, which is OVERWRITTEN
  --without KIND[,KIND]      leave out kinds of operation, as the report names them,
                             or ordinary memory (ordinary)
  --oversubscription TIMES   memory used by all, in times of the GPU's (1.5)
  --patience SECONDS         the longest that an operation may take (60)
  --large PERCENT            of the operations, as many touch up to 512 pages, and the
                             others up to 4 (5)
";

/// What a run is.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) ops: u64,
    pub(crate) seed: u64,
    pub(crate) processes: usize,
    pub(crate) device: Option<PathBuf>,
    pub(crate) without: Without,
    pub(crate) oversubscription: f64,
    pub(crate) patience: Duration,
    /// Of a hundred operations, so many touch as much memory as they can.
    pub(crate) large_percent: usize,
}

/// What Linux, UVM and the software GPU say of what is done to them on purpose.
const SAID: &[Allowed] = &[
    EVICTING_ORDINARY[0],
    Allowed {
        text: "is beyond its memory cgroup's limit",
        times: usize::MAX,
    },
    Allowed {
        text: "Memory cgroup out of memory",
        times: usize::MAX,
    },
];

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        ops: 10_000,
        seed: clock_seed(),
        processes: 4,
        device: None,
        without: Without::default(),
        oversubscription: 1.5,
        patience: Duration::from_secs(60),
        large_percent: 5,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("ops") => options.ops = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("processes") => options.processes = parser.value()?.parse()?,
            Long("device") => options.device = Some(parser.value()?.into()),
            Long("without") => options.without.add(&parser.value()?.string()?)?,
            Long("oversubscription") => options.oversubscription = parser.value()?.parse()?,
            Long("patience") => options.patience = Duration::from_secs(parser.value()?.parse()?),
            Long("large") => options.large_percent = parser.value()?.parse()?,
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if !(1..=32).contains(&options.processes) {
        return Err("--processes: use 1 to 32".into());
    }
    if !(0.1..=8.0).contains(&options.oversubscription) {
        return Err("--oversubscription: use 0.1 to 8".into());
    }
    if options.large_percent > 100 {
        return Err("--large: use 0 to 100".into());
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(parsed) => parsed,
        Err(error) => {
            eprint!("mix: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let Options {
        ops,
        seed,
        processes,
        ..
    } = options;
    println!(
        "# seed {seed} (repeat with: mix --ops {ops} --seed {seed} --processes {processes}, which repeats what each \
         process does, and not the order among them)"
    );
    let made = Board::new(processes + 1).and_then(|board| {
        let crew = Waiting::new(&options, &board)?;
        Ok((board, crew))
    });
    let (board, crew) = match made {
        Ok(made) => made,
        Err(error) => {
            println!("Bail out! no process to start the others: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut suite = Suite::new("mix", None);
    let name = format!("{ops} operations of {processes} processes, seed {seed}");
    suite.test(&name, SAID, || parent::run(&options, &board, crew));
    suite.test("no leak after it", &[], no_leak);
    suite.finish()
}
