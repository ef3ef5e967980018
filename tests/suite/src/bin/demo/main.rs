// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The program of `make demo`: managed memory of half to twice the GPU's.
//!
//! The CPU fills, a GPU kernel checks every byte and writes new ones, evicting
//! and faulting as it must, and the CPU checks every byte. One line of JSON for
//! each size, with counts that any nvidia-uvm.ko gives: bytes and faults are the
//! GPU's own, evictions are counted from UVM's tools events.
//!
//! One warp goes through memory in order with one access at a time, and each GPU
//! fault is serviced before the next comes, so that all counts but the
//! duplicates' repeat. A second kernel with many warps makes the duplicates; what
//! it does is left out of the counts that must repeat, but not of the checks.

mod compare;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use vgpu_client::vgpu::Stats;
use vgpu_client::{
    driver_version, Buffer, DriverStats, Error, EventCounts, EventQueue, Gpu, Kernel, Op, Process,
    Result, BLOCK,
};

const HELP: &str = "usage: demo [--size TIMES]... [--variant NAME] [--quiet]
  --size TIMES     memory used, in times of the GPU's (0.5 1 1.5 2)
  --variant NAME   what to call the driver in the output (found out)
  --quiet          no progress on standard error
       demo --compare FILE... [--out FILE]
  prints the runs in the files as a table, writes them to --out as one JSON
  object, and fails unless the variants agree
";

struct Options {
    sizes: Vec<f64>,
    variant: Option<String>,
    quiet: bool,
    compare: Vec<PathBuf>,
    out: Option<PathBuf>,
}

fn options() -> std::result::Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        sizes: Vec::new(),
        variant: None,
        quiet: false,
        compare: Vec::new(),
        out: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("size") => {
                let size: f64 = parser.value()?.parse()?;
                if !(size > 0.0 && size <= 16.0) {
                    return Err("--size: use a number from 0 to 16".into());
                }
                options.sizes.push(size);
            }
            Long("variant") => options.variant = Some(parser.value()?.string()?),
            Long("quiet") => options.quiet = true,
            Long("compare") => options.compare = parser.values()?.map(PathBuf::from).collect(),
            Long("out") => options.out = Some(parser.value()?.into()),
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if options.sizes.is_empty() {
        options.sizes = vec![0.5, 1.0, 1.5, 2.0];
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprint!("demo: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if !options.compare.is_empty() {
        return compare::run(&options.compare, options.out.as_deref());
    }
    let mut verified = true;
    for &size in &options.sizes {
        match run(size, &options) {
            Ok(run) => {
                match serde_json::to_string(&run) {
                    Ok(line) => println!("{line}"),
                    Err(error) => eprintln!("demo: {error}"),
                }
                verified &= run.verified;
            }
            Err(error) => {
                eprintln!("demo: at {size} times the GPU's memory: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::from(u8::from(!verified))
}

/// What one size gave. One line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Run {
    variant: String,
    oversubscription: f64,
    h2d_bytes: u64,
    d2h_bytes: u64,
    faults: u64,
    duplicates: u64,
    evictions: u64,
    verified: bool,
}

/// Values the CPU fills in, and what the GPU makes of them.
fn filled(i: usize) -> u64 {
    FIRST.wrapping_add(STEP.wrapping_mul(i as u64))
}
const FIRST: u64 = 0x0123_4567_89ab_cdef;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const ADDED: u64 = 0x1111;

fn run(size: f64, options: &Options) -> Result<Run> {
    let say = |what: &str| {
        if !options.quiet {
            eprintln!("# {size} times the GPU's memory: {what}");
        }
    };
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let events = EventQueue::new(&process, 1 << 16)?;
    let ours = driver_version(&process)?.is_some();
    let variant = options.variant.clone();
    let variant = variant.unwrap_or_else(|| if ours { "rust" } else { "upstream" }.into());

    let bytes = (gpu.info().vidmem_bytes as f64 * size) as u64 / BLOCK * BLOCK;
    let data = Buffer::<u64>::managed(&process, (bytes / 8) as usize)?;
    let before = gpu.stats()?;
    let mut counts = EventCounts::default();
    let mut verified = true;

    say(&format!("the CPU fills {} MiB", bytes >> 20));
    data.fill(filled);

    say("the GPU checks and adds, a page at a time");
    let check = Op::check(&data).pattern(FIRST, STEP).lanes(1).utlbs(0, 1);
    let add = Op::atomic_add(&data)
        .pattern(ADDED, 0)
        .lanes(1)
        .utlbs(0, 1)
        .barrier();
    verified &= good(&gpu, Kernel::new().op(check).op(add).utlb_faults(1), &say)?;
    counts.add(&events.take(gpu.uuid())?);

    say("the CPU checks every byte");
    verified &= same(&data, |i| filled(i).wrapping_add(ADDED), &say);
    counts.add(&events.take(gpu.uuid())?);
    let steady = gpu.stats()?;
    if ours {
        let counted = DriverStats::get(&process, gpu.uuid(), false)?;
        compare(&counted, &before, &steady, counts.evictions, &say);
    }

    // Every page is wanted by the two halves of 64 warps at once.
    say("the GPU checks again, with 128 warps");
    let first = FIRST.wrapping_add(ADDED);
    let many = || Op::check(&data).pattern(first, STEP).warps(64);
    verified &= good(&gpu, Kernel::new().op(many()).op(many()), &say)?;
    verified &= same(&data, |i| filled(i).wrapping_add(ADDED), &say);
    let after = gpu.stats()?;

    Ok(Run {
        variant,
        oversubscription: size,
        h2d_bytes: steady.h2d_bytes - before.h2d_bytes,
        d2h_bytes: steady.d2h_bytes - before.d2h_bytes,
        faults: steady.faults - before.faults,
        duplicates: after.fault_duplicates - before.fault_duplicates,
        evictions: counts.evictions,
        verified,
    })
}

/// Runs a kernel. False, with a word why, if it saw wrong values.
fn good(gpu: &Gpu, kernel: Kernel, say: &impl Fn(&str)) -> Result<bool> {
    match gpu.launch(&kernel)?.wait()?.ok() {
        Ok(_) => Ok(true),
        Err(Error::Kernel(report)) => {
            say(&format!("WRONG: {report}"));
            Ok(false)
        }
        Err(other) => Err(other),
    }
}

/// True if every element is what it should be.
fn same(data: &Buffer<u64>, value: impl Fn(usize) -> u64, say: &impl Fn(&str)) -> bool {
    match data.first_other(&value) {
        None => true,
        Some((i, seen)) => {
            say(&format!(
                "WRONG: element {i} is {seen:#x}, not {:#x}",
                value(i)
            ));
            false
        }
    }
}

/// Says where our driver's own counts are not what others saw.
fn compare(ours: &DriverStats, before: &Stats, after: &Stats, evictions: u64, say: &impl Fn(&str)) {
    let sum = |traffic: &[vgpu_client::Traffic]| traffic.iter().map(|t| t.bytes).sum::<u64>();
    for (what, driver, seen) in [
        (
            "bytes to the GPU",
            sum(&ours.host_to_gpu),
            after.h2d_bytes - before.h2d_bytes,
        ),
        (
            "bytes from the GPU",
            sum(&ours.gpu_to_host),
            after.d2h_bytes - before.d2h_bytes,
        ),
        ("faults", ours.faults, after.faults - before.faults),
        ("evicted chunks", ours.evicted_chunks(), evictions),
    ] {
        if driver != seen {
            say(&format!(
                "the driver counted {driver} {what}, and {seen} were seen"
            ));
        }
    }
}
