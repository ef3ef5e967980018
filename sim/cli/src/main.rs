// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim`: how a model trains on a GPU whose memory is too small for it.

mod advise;
mod bound;
mod choose;
mod compare;
mod figures;
mod g10;
mod import;
mod machine;
mod plan;
mod pool;
mod programs;
mod progress;
mod proof;
mod run;
mod trace;
mod zoo;

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::Parser;
use clap::Subcommand;
use uvmsim_machine::Machine;
use uvmsim_physical::Layout;
use uvmsim_physical::Workload;
use uvmsim_trace::TensorId;
use uvmsim_trace::Trace;

/// Simulates training steps that need more memory than the GPU has.
#[derive(Parser)]
#[command(name = "uvmsim", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the networks of the zoo, or write a training step of one as a trace.
    Zoo(zoo::Args),
    /// Turn traces of others into uvmsim's.
    Import(import::Args),
    /// Check a trace and say what is in it.
    Trace(trace::Args),
    /// List machines, or show the constants of one.
    Machine(machine::Args),
    /// Run a trace under one policy.
    Run(run::Args),
    /// Write the plan that a policy makes: what to move before which kernel.
    Plan(plan::Args),
    /// Run a trace under many policies, as a table or a report with plots.
    Compare(compare::Args),
    /// Say what of a model's step fits, and which batch and policy to take: one page.
    Advise(advise::Args),
    /// Say how fast a step can be at most, how near our plan is, and prove it.
    Bound(proof::Args),
    /// Say what moves where several programs take turns on one GPU, and what must.
    Programs(programs::Args),
    /// Say what the chooser of policies comes to for patterns of accesses, and what each fixed policy does.
    Choose(choose::Args),
    /// Regenerate the papers' tables and figures, with theirs beside ours.
    Figures(figures::Args),
    /// Print a completion script for a shell.
    Completions {
        /// The shell that the script is for.
        shell: clap_complete::Shell,
    },
}

/// An error with the exit code it leads to.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    fn new(message: impl fmt::Display, code: u8) -> Self {
        let message = message.to_string();
        Self { message, code }
    }

    /// What was asked for makes no sense: exit code 2.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(message, 2)
    }

    /// It cannot be run: exit code 1.
    pub fn run(message: impl fmt::Display) -> Self {
        Self::new(message, 1)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Zoo(args) => zoo::main(&args),
        Command::Import(args) => import::main(&args),
        Command::Trace(args) => trace::main(&args),
        Command::Machine(args) => machine::main(&args),
        Command::Run(args) => run::main(&args),
        Command::Plan(args) => plan::main(&args),
        Command::Compare(args) => compare::main(&args),
        Command::Advise(args) => advise::main(&args),
        Command::Bound(args) => proof::main(&args),
        Command::Programs(args) => programs::main(&args),
        Command::Choose(args) => choose::main(&args),
        Command::Figures(args) => figures::main(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "uvmsim", &mut io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("uvmsim: {}", e.message);
            ExitCode::from(e.code)
        }
    }
}

/// What stands in a file; `-` is standard input.
fn read_text(path: &str) -> Result<String, Failure> {
    let text = if path == "-" {
        io::read_to_string(io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|e| Failure::usage(format!("{path}: {e}")))
}

/// Reads and checks a trace; `-` is standard input.
fn read_trace(path: &str) -> Result<Trace, Failure> {
    read_text(path)?
        .parse()
        .map_err(|e| Failure::usage(format!("{path}: {e}")))
}

/// The most bytes that the kernels of a step may use, counted once for each kernel
/// that uses them: the physical model keeps some bytes for each va_block of each.
const MOST_USED: u64 = 1 << 48;

/// The most bytes that the tensors of a step may span: the physical model keeps
/// about half a KiB for each va_block, 4 GiB in all.
const MOST_SPANNED: u64 = 1 << 44;

/// The step of `trace` as the physical model sees it.
fn workload(trace: &Trace) -> Result<(Workload, Layout), Failure> {
    let mut used = 0u64;
    for (i, k) in trace.kernels.iter().enumerate() {
        used = used.saturating_add(trace.working_set(k));
        if used > MOST_USED {
            let largest = k.uses().max_by_key(|&t| trace.tensor(t).bytes);
            let largest = largest.map_or_else(String::new, |t| trace.tensor_object(t));
            return Err(Failure::run(format!(
                "line {}: kernel {i} ({}): kernels up to here use more than 256 TiB, too much for --model physical; the largest that this one uses is {largest}",
                k.line, k.name
            )));
        }
    }
    let workload = Workload::from_trace(trace);
    // What lives at once is known before the layout is made of it.
    let least = workload.peak_bytes();
    let too_wide = || {
        let tensors = trace.tensors.iter().enumerate();
        let largest = tensors.max_by_key(|(_, t)| t.bytes);
        let (line, object) = largest.map_or((0, String::new()), |(i, t)| {
            (t.line, trace.tensor_object(TensorId(i as u32)))
        });
        Failure::run(format!(
            "line {line}: {object}: the step spans more than 16 TiB, too much for --model physical; this is its largest tensor"
        ))
    };
    if least > MOST_SPANNED {
        return Err(too_wide());
    }
    let layout = Layout::new(&workload);
    if layout.span > MOST_SPANNED {
        return Err(too_wide());
    }
    Ok((workload, layout))
}

/// Refuses a kernel that the GPU cannot hold, unless `allowed`.
fn check_fits(trace: &Trace, machine: &Machine, allowed: bool) -> Result<(), Failure> {
    match trace.check_fits(machine.gpu_mem) {
        Err(e) if !allowed => Err(Failure::run(format!(
            "{e}; raise --gpu-mem, or let it page with --large-kernels"
        ))),
        _ => Ok(()),
    }
}

/// Writes `text` to `path`; `-` is standard output.
fn write_file(path: &str, text: &str) -> Result<(), Failure> {
    if path == "-" {
        use io::Write;
        return match io::stdout().write_all(text.as_bytes()) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::run(e)),
            _ => Ok(()),
        };
    }
    std::fs::write(path, text).map_err(|e| Failure::run(format!("{path}: {e}")))
}

/// Writes a value to standard output.
fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    write_file("-", &format!("{value:#}\n"))
}

/// Writes plots, each with its name, as files of `folder`.
fn write_plots(
    folder: &Path,
    plots: impl IntoIterator<Item = (String, String)>,
) -> Result<(), Failure> {
    let failed = |path: &Path, e: io::Error| Failure::run(format!("{}: {e}", path.display()));
    std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    for (name, svg) in plots {
        let path = folder.join(format!("{name}.svg"));
        let svg = uvmsim_report::svg::standalone(&svg);
        std::fs::write(&path, svg).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

/// How the program was called, for what it writes.
fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("uvmsim {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_step_too_large_for_the_model_names_line_and_tensor() {
        let of = |bytes: u64| {
            let text = format!("uvmtrace 1\ntensor 0 input {bytes} big\nkernel 0 10 a 0 - -\n");
            let trace: Trace = text.parse().unwrap_or_default();
            let done = workload(&trace).map(|_| ()).map_err(|e| e.message);
            done.err().unwrap_or_default()
        };
        let used = of(1 << 52);
        assert!(
            used.starts_with("line 3: kernel 0 (a)") && used.ends_with("tensor 0 (big)"),
            "{used}"
        );
        let spanned = of(MOST_SPANNED + 1);
        assert!(spanned.starts_with("line 2: tensor 0 (big)"), "{spanned}");
        assert_eq!(of(MOST_SPANNED), "");
    }
}
