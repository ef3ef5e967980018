// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The SSD tier: data that goes to a device and comes back, and what else a page on
//! flash can meet.
//!
//! Needs nvidia-uvm.ko with `uvm_rust_flash=1` and `uvm_enable_builtin_tests=1`,
//! vgpu.ko, and a block device of at least 256 MiB that is OVERWRITTEN.

mod again;
mod broken;
mod copies;
mod copying;
mod crowd;
mod demo;
mod failures;
mod files;
mod interface;
mod lacking;
mod locks;
mod mapped;
mod overlap;
mod paths;
mod queue;
mod random;
mod rig;
mod saturated;
mod scarce;
mod silent;
mod stripe;
mod tenants;
mod trim;
mod waits;
mod wear;

use std::path::PathBuf;
use std::process::ExitCode;

use uvm_suite::{clock_seed, Allowed, Pass, Suite};

const HELP: &str = "usage: flash [--device PATH] [--bad-device PATH] [--only TEXT] [--demo FILE]
             [--overlap FILE] [--mib N] [--ops N] [--fuzz N] [--seed N]
  --device PATH  a block device, which is OVERWRITTEN ($SSD, or /dev/nvme0n1)
  --bad-device PATH  another, with the bad sectors of scripts/ssd.sh
  --only TEXT    only tests whose name holds TEXT
  --demo FILE    run the programs of `make ssd-demo` instead, and write FILE
  --overlap FILE measure how reads and copies go on at the same time, and write FILE
  --mib N        of so many MiB (64)
  --ops N        length of the random program (2000)
  --fuzz N       so many fuzzed calls from each thread (3000)
  --seed N       where it begins (from the clock)
";

const NONE: &[Allowed] = &[];

/// Who looks at each new device may do so while it goes.
const SILENT: &[Allowed] = &[Allowed {
    text: "Buffer I/O error on dev dm-",
    times: 1000,
}];

/// What the kernel and the driver say while a device fails.
const FAILING: &[Allowed] = &[
    Allowed {
        text: "flash:",
        times: 1000,
    },
    Allowed {
        text: "I/O error",
        times: 1000,
    },
];

struct Options {
    only: Option<String>,
    demo: Option<PathBuf>,
    overlap: Option<PathBuf>,
    mib: u64,
    ops: u32,
    fuzz: u32,
    seed: u64,
    /// Be a program that a test runs.
    child: Option<&'static str>,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        only: None,
        demo: None,
        overlap: None,
        mib: 64,
        ops: 2000,
        fuzz: 3000,
        seed: clock_seed(),
        child: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("device") => rig::set_device(parser.value()?.into()),
            Long("bad-device") => broken::set_bad_device(parser.value()?.into()),
            Long("only") => options.only = Some(parser.value()?.string()?),
            Long("demo") => options.demo = Some(parser.value()?.into()),
            Long("overlap") => options.overlap = Some(parser.value()?.into()),
            Long("mib") => options.mib = parser.value()?.parse()?,
            Long("ops") => options.ops = parser.value()?.parse()?,
            Long("fuzz") => options.fuzz = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("child-reads") => options.child = Some("reads"),
            Long("child-works") => options.child = Some("works"),
            Long("child-sweeps") => options.child = Some("sweeps"),
            Long("child-fuzzes") => options.child = Some("fuzzes"),
            Long("child-hogs") => options.child = Some("hogs"),
            Long("child-spills") => options.child = Some("spills"),
            Long("child-faults") => options.child = Some("faults"),
            Long("child-evicts") => options.child = Some("evicts"),
            Long("child-sleeps") => options.child = Some("sleeps"),
            Long("child-changes") => options.child = Some("changes"),
            Long("child-fills") => options.child = Some("fills"),
            Long("child-counts") => options.child = Some("counts"),
            Long("child-leaves") => options.child = Some("leaves"),
            Long("child-waits") => options.child = Some("waits"),
            Long("child-writes") => options.child = Some("writes"),
            Long("child-migrates") => options.child = Some("migrates"),
            Long("child-maps") => options.child = Some("maps"),
            Long("child-attaches") => options.child = Some("attaches"),
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(options)
}

/// What ends the program before its first test: without the tier there is none. It is skipped
/// only where nobody has said that there is a device.
fn unfit() -> Option<ExitCode> {
    let on = uvm_suite::modules::parameter("nvidia_uvm", "uvm_rust_flash").as_deref() == Some("Y");
    let why = match (on, rig::device().exists()) {
        (true, true) => return None,
        (false, _) => "load nvidia-uvm.ko with uvm_rust_flash=1".to_string(),
        (true, false) => format!("{} is not there", rig::device().display()),
    };
    if rig::is_named() {
        println!("TAP version 14\nBail out! {why}");
        return Some(ExitCode::FAILURE);
    }
    println!("TAP version 14\n1..0 # SKIP {why}");
    Some(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprint!("flash: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if let Some(ended) = unfit() {
        return ended;
    }
    match options.child {
        Some("reads") => return failures::child_reads(),
        Some("works") => return failures::child_works(options.seed),
        Some("sweeps") => return broken::child_sweeps(),
        Some("fuzzes") => return interface::child_fuzzes(options.fuzz, options.seed),
        Some("hogs") => return tenants::child_hogs(),
        Some("spills") => return tenants::child_spills(options.mib),
        Some("faults") => return locks::child_faults(),
        Some("evicts") => return locks::child_evicts(),
        Some("sleeps") => return locks::child_sleeps(),
        Some("writes") => return files::child_writes(),
        Some("migrates") => return files::child_migrates(),
        Some("maps") => return files::child_maps(),
        Some("changes") => return waits::child_changes(),
        Some("fills") => return tenants::child_fills(),
        Some("counts") => return tenants::child_counts(),
        Some(child @ ("leaves" | "waits")) => return queue::ends::child_asks(child == "leaves"),
        Some(_) => return failures::child_attaches(),
        None => {}
    }
    let mut suite = Suite::new("flash", options.only);
    println!("# seed {}", options.seed);
    if let Some(out) = options.demo {
        demo::run(&mut suite, &out, options.ops, options.seed);
        return suite.finish();
    }
    if let Some(out) = options.overlap {
        overlap::demo(&mut suite, &out, options.mib);
        stripe::demo(&mut suite, &out, options.mib.min(64));
        return suite.finish();
    }
    interface::run(&mut suite, options.fuzz, options.seed);
    paths::run(&mut suite);
    queue::run(&mut suite);
    copies::run(&mut suite);
    copying::run(&mut suite);
    tenants::run(&mut suite);
    waits::run(&mut suite);
    overlap::run(&mut suite);
    scarce::run(&mut suite);
    lacking::run(&mut suite);
    wear::run(&mut suite);
    trim::run(&mut suite);
    stripe::run(&mut suite);
    failures::run(&mut suite);
    again::run(&mut suite);
    mapped::run(&mut suite);
    silent::run(&mut suite);
    locks::run(&mut suite);
    files::run(&mut suite);
    crowd::run(&mut suite);
    broken::run(&mut suite);
    let (ops, seed) = (options.ops, options.seed);
    suite.test("a random program", NONE, || {
        let rig = rig::Rig::new(24)?;
        random::run(&rig, 48, ops, seed)?;
        rig::no_leak(&rig)?;
        Ok(Pass::Ok)
    });
    suite.finish()
}
