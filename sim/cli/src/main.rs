// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmsim`: how a model trains on a GPU whose memory is too small for it.

mod bound;
mod compare;
mod g10;
mod import;
mod machine;
mod plan;
mod run;
mod trace;
mod zoo;

use std::fmt;
use std::io;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::Parser;
use clap::Subcommand;

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
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
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
    /// What was asked for makes no sense: exit code 2.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            code: 2,
        }
    }

    /// It cannot be run: exit code 1.
    pub fn run(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            code: 1,
        }
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

/// Reads and checks a trace; `-` is standard input.
fn read_trace(path: &str) -> Result<uvmsim_trace::Trace, Failure> {
    let text = if path == "-" {
        io::read_to_string(io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|e| Failure::usage(format!("{path}: {e}")))?;
    let trace: uvmsim_trace::Trace = text
        .parse()
        .map_err(|e| Failure::usage(format!("{path}: {e}")))?;
    trace
        .validate()
        .map_err(|e| Failure::usage(format!("{path}: {e}")))?;
    Ok(trace)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
