// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The program of `make workloads`: runs cases in the VM, a test and a line of JSON
//! for each cell; and puts such lines together on the host.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, Failure, Pass, Suite};
use uvm_workloads::cases::{self, Case};
use uvm_workloads::oracle::{traffic, Knowledge};
use uvm_workloads::program::Mode;
use uvm_workloads::report::{self, Cell, Report};
use uvm_workloads::run::run;
use vgpu_client::{Idle, BLOCK};

const HELP: &str = "usage: workloads [--only TEXT] [--times N] [--mode MODE]...
  --only TEXT   only applications whose name holds TEXT, such as 'fir' or 'vgg16'
  --times N     only where memory is N times the GPU's, rounded
  --mode MODE   opt, discard, lazy (all of them)
       workloads --predict [--only TEXT]
  what the oracle's model says of the driver; needs no VM
       workloads --report FILE... [--out FILE]
  prints the cells in the files as a table, writes them to --out as one JSON
  object, and fails if one is not as it must be
";

#[derive(Default)]
struct Options {
    only: String,
    times: Option<f64>,
    modes: Vec<Mode>,
    predict: bool,
    report: Vec<PathBuf>,
    out: Option<PathBuf>,
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
                let mode = Mode::ALL.into_iter().find(|m| m.name() == name);
                options
                    .modes
                    .push(mode.ok_or("--mode: use opt, discard or lazy")?);
            }
            Long("predict") => options.predict = true,
            Long("report") => options.report = parser.values()?.map(PathBuf::from).collect(),
            Long("out") => options.out = Some(parser.value()?.into()),
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if options.modes.is_empty() {
        options.modes = Mode::ALL.to_vec();
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
    if options.report.is_empty() {
        return measure(&options);
    }
    match put_together(&options) {
        Ok(good) => ExitCode::from(u8::from(!good)),
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

/// Runs the cases: a test for each cell, and its line of JSON.
fn measure(options: &Options) -> ExitCode {
    let mut suite = Suite::new("workloads", None);
    for case in &options.cases() {
        let mut cells = Vec::new();
        let idle = Idle::leaving(case.available).map_err(|e| e.to_string());
        for &mode in &options.modes {
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
    let model = blocks(if mode == Mode::Opt {
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
    let (distant, wrong) = (report::distant(&cells), report::failures(&cells));
    distant
        .iter()
        .for_each(|line| println!("not within 10 points: {line}"));
    wrong.iter().for_each(|line| println!("WRONG: {line}"));
    let expected = cases.len() * Mode::ALL.len();
    if cells.len() < expected {
        println!("{} of {expected} cells", cells.len());
    }
    let good = wrong.is_empty();
    if let Some(out) = &options.out {
        let text = serde_json::to_string_pretty(&Report { cells }).map_err(|e| e.to_string())?;
        fs::write(out, text + "\n").map_err(|e| format!("{}: {e}", out.display()))?;
    }
    Ok(good)
}
