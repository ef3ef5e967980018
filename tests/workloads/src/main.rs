// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The program of `make workloads`: runs cases in the VM, a test and a line of JSON
//! for each cell; and puts such lines together on the host.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, Failure, Pass, Suite};
use uvm_workloads::beside;
use uvm_workloads::cases::{self, Case};
use uvm_workloads::oracle::{traffic, Knowledge};
use uvm_workloads::program::Mode;
use uvm_workloads::report::{self, Cell, Report};
use uvm_workloads::run::run;
use vgpu_client::{driver_version, Idle, Process, BLOCK};

const HELP: &str = "usage: workloads [--only TEXT] [--times N] [--mode MODE]...
  --only TEXT   only applications whose name holds TEXT, such as 'fir' or 'vgg16'
  --times N     only where memory is N times the GPU's, rounded
  --mode MODE   of our driver opt, discard, lazy; of NVIDIA's as it is, from 580 on,
                plain, native, native-lazy (all of the driver that is loaded)
       workloads --predict [--only TEXT]
  what the oracle's model says of the driver; needs no VM
       workloads --report FILE... [--out FILE] [--base VERSION [--native]]
  prints the cells in the files as a table, writes them to --out as one JSON
  object, and fails if one is not as it must be
  --base VERSION  they were measured on this release of NVIDIA's driver, and no
                  mode may be missing
  --native        it has a discard of its own: NVIDIA's modes may be missing neither
";

#[derive(Default)]
struct Options {
    only: String,
    times: Option<f64>,
    modes: Vec<Mode>,
    predict: bool,
    report: Vec<PathBuf>,
    out: Option<PathBuf>,
    base: Option<String>,
    native: bool,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => options.only = parser.value()?.string()?,
            Long("times") => options.times = Some(parser.value()?.parse()?),
            Long("mode") => {
                let name = parser.value()?.string()?;
                let all = Mode::ALL.map(Mode::name).join(", ");
                let mode = Mode::named(&name).ok_or(format!("--mode: use one of {all}"))?;
                options.modes.push(mode);
            }
            Long("predict") => options.predict = true,
            Long("report") => options.report = parser.values()?.map(PathBuf::from).collect(),
            Long("base") => options.base = Some(parser.value()?.string()?),
            Long("native") => options.native = true,
            Long("out") => options.out = Some(parser.value()?.into()),
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if options.native && options.base.is_none() {
        return Err("--native says something of --base, which is missing".into());
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprint!("workloads: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if options.predict {
        predict(&options);
        return ExitCode::SUCCESS;
    }
    let done = if options.report.is_empty() {
        modes(&options.modes).map(|modes| measure(&options, &modes))
    } else {
        put_together(&options).map(|good| ExitCode::from(u8::from(!good)))
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn cases(&self) -> Vec<Case> {
        let mut cases = cases::all();
        cases.retain(|c| {
            c.workload.contains(&self.only)
                && self.times.is_none_or(|t| t == c.oversubscription.round())
        });
        cases
    }
}

/// The modes of the driver that is loaded: those that are asked for, or all that it has.
fn modes(asked: &[Mode]) -> Result<Vec<Mode>, String> {
    let process = Process::new().map_err(|e| e.to_string())?;
    let version = driver_version(&process).map_err(|e| e.to_string())?;
    let native = u64::from(uvm_uapi::UVM_RUST_FEATURE_NATIVE_DISCARD);
    let (whose, there) = match version {
        None => ("NVIDIA's", Mode::NVIDIAS),
        Some((_, features)) if features & native != 0 => {
            return Err("NVIDIA's discard stands behind our driver's call, which is no mode".into())
        }
        Some(_) => ("our", Mode::OURS),
    };
    if let Some(other) = asked.iter().find(|mode| !there.contains(mode)) {
        let name = other.name();
        return Err(format!(
            "{whose} driver is loaded, which has no mode {name}"
        ));
    }
    let asked = if asked.is_empty() { &there } else { asked };
    Ok(asked.to_vec())
}

/// Runs the cases: a test for each cell, and its line of JSON.
fn measure(options: &Options, modes: &[Mode]) -> ExitCode {
    let mut suite = Suite::new("workloads", None);
    for case in &options.cases() {
        let mut cells = Vec::new();
        let idle = Idle::leaving(case.available).map_err(|e| e.to_string());
        for &mode in modes {
            let name = report::name(&case.workload, case.oversubscription, mode.name());
            suite.test(&name, &[], || {
                let room = idle
                    .as_ref()
                    .map_err(|e| Failure::from(e.clone()))?
                    .available();
                let enough = case.available.unwrap_or(case.program.footprint());
                ensure!(
                    room >= enough,
                    "{enough} blocks must fit the GPU, and {room} do: give the VM more VIDMEM"
                );
                cells.push(one(case, mode, room)?);
                report::relate(&mut cells);
                let wrong = report::failures(&cells[cells.len() - 1..]);
                ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
                Ok(Pass::Ok)
            });
        }
        for cell in &cells {
            match serde_json::to_string(cell) {
                Ok(line) => println!("{line}"),
                Err(error) => println!("# {name}: {error}", name = case.workload),
            }
        }
    }
    suite.finish()
}

/// One cell, with a word on how far it is now and then.
fn one(case: &Case, mode: Mode, available: usize) -> Result<Cell, vgpu_client::Error> {
    let (started, steps) = (Instant::now(), case.program.steps.len());
    let name = report::name(&case.workload, case.oversubscription, mode.name());
    println!(
        "# {name}: {} blocks, {available} of them fit",
        case.program.footprint()
    );
    let mut said = Instant::now();
    let measured = run(&case.program, mode, &mut |step| {
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            println!(
                "# {name}: step {step} of {steps}, {} s",
                started.elapsed().as_secs()
            );
        }
    })?;
    let blocks = |knowledge| traffic(&case.program, available, knowledge).blocks();
    let model = blocks(if mode.of_ours() == Mode::Opt {
        Knowledge::Nothing
    } else {
        Knowledge::Told
    });
    println!(
        "# {name}: {:.1} blocks in, {:.1} out, {model} by the model, {} s",
        measured.h2d_bytes as f64 / BLOCK as f64,
        measured.d2h_bytes as f64 / BLOCK as f64,
        started.elapsed().as_secs()
    );
    Ok(Cell {
        workload: case.workload.clone(),
        oversubscription: case.oversubscription_with(available),
        mode: mode.name().into(),
        h2d_bytes: measured.h2d_bytes,
        d2h_bytes: measured.d2h_bytes,
        required_bytes: blocks(Knowledge::Future) * BLOCK,
        ratio_to_opt: None,
        paper_ratio_to_opt: report::paper_ratio(case, mode),
        verified: measured.verified,
    })
}

fn predict(options: &Options) {
    for case in options.cases() {
        let room = case.available.unwrap_or(case.program.footprint());
        let of = |knowledge| traffic(&case.program, room, knowledge).blocks();
        let (opt, told) = (of(Knowledge::Nothing), of(Knowledge::Told));
        println!(
            "{:<14}{:>6.2} {:>4} blocks, {room:>4} fit: opt {opt:>5}, discard {told:>5} ({:.3}), required {:>5}",
            case.workload,
            case.oversubscription,
            case.program.footprint(),
            told as f64 / opt.max(1) as f64,
            of(Knowledge::Future)
        );
    }
}

/// Reads cells from files, and judges them.
fn put_together(options: &Options) -> Result<bool, String> {
    let mut cells: Vec<Cell> = Vec::new();
    for file in &options.report {
        let named = |error: String| format!("{}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|e| named(e.to_string()))?;
        // A console may mix other things in.
        for line in text.lines().filter(|line| line.starts_with('{')) {
            cells.push(serde_json::from_str(line).map_err(|e| named(e.to_string()))?);
        }
    }
    if cells.is_empty() {
        return Err("no cells: the VM printed none".into());
    }
    let cases = cases::all();
    cells.sort_by_key(|cell| {
        let is = |c: &Case| c.is(&cell.workload, cell.oversubscription);
        (
            cases.iter().position(is),
            Mode::ALL.iter().position(|m| m.name() == cell.mode),
        )
    });
    report::relate(&mut cells);
    print!("{}", report::table(&cells, &cases));
    let mut wrong = report::failures(&cells);
    let distant = report::distant(&cells);
    let mut expected = Mode::OURS.to_vec();
    if let Some(base) = &options.base {
        if options.native {
            expected = Mode::ALL.to_vec();
            print!("\n{}", beside::table(&cells, base));
            wrong.extend(beside::dearer(&cells));
        } else {
            println!("{}", beside::why_none(base));
        }
        wrong.extend(beside::missing(&cells, &expected));
    }
    distant
        .iter()
        .for_each(|line| println!("not within 10 points: {line}"));
    wrong.iter().for_each(|line| println!("WRONG: {line}"));
    let expected = cases.len() * expected.len();
    if cells.len() < expected {
        println!("{} of {expected} cells", cells.len());
    }
    let good = wrong.is_empty();
    if let Some(out) = &options.out {
        let base = options.base.clone();
        let report = Report { base, cells };
        let text = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        fs::write(out, text + "\n").map_err(|e| format!("{}: {e}", out.display()))?;
    }
    Ok(good)
}
