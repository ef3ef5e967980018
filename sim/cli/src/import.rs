// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim import`: traces of others.

use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use uvmsim_trace::Trace;

use crate::machine;
use crate::Failure;

/// The PyTorch importer; the program carries it, so that it need not be installed.
const PYTORCH: &str = include_str!("../../python/uvmsim_torch.py");

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    from: From,
    /// The trace to write; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-", global = true)]
    output: String,
    /// Print one JSON object: what is in the trace.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum From {
    /// A network of the G10 artifact (MICRO '23).
    G10 {
        /// The folder that holds Nets/ and results/.
        #[arg(long, value_name = "DIR")]
        traces: PathBuf,
        /// BERT, VIT, Inceptionv3, ResNet152 or SENet154.
        #[arg(long)]
        net: String,
        /// Samples in the step; there must be times for it.
        #[arg(long)]
        batch: u64,
        /// Where there are no times for the batch, take them from the line through the
        /// two batches next to it, as most of the artifact's own times are.
        #[arg(long)]
        interpolate: bool,
    },
    /// A PyTorch model's training step: forward, backward, optimizer.
    ///
    /// Nothing is computed and no GPU is needed: the step runs once on PyTorch's
    /// "meta" device, which has shapes and no data. Needs PyTorch 1.13 or later.
    Pytorch(Pytorch),
}

#[derive(clap::Args)]
struct Pytorch {
    /// A function of a Python module in this folder or on PYTHONPATH: given the
    /// batch, it returns a model, a tuple of inputs, and a function from the
    /// model's output to the loss.
    #[arg(value_name = "MODULE:FUNCTION")]
    model: String,
    /// Samples in the step.
    #[arg(long, default_value_t = 32)]
    batch: u64,
    /// The optimizer that the step ends with.
    #[arg(long, default_value = "adam", value_parser = ["adam", "momentum", "sgd"])]
    optimizer: String,
    /// Number format whose rate matrix products run at.
    #[arg(long, default_value = "tf32", value_parser = ["fp32", "tf32", "fp16"])]
    precision: String,
    /// Durations of your own instead of the machine's roofline: lines of a
    /// kernel's number and its time in ns.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The Python that has PyTorch.
    #[arg(long, default_value = "python3")]
    python: String,
    #[command(flatten)]
    machine: machine::Choice,
}

impl Pytorch {
    /// Runs the importer and checks what it says.
    fn import(&self) -> Result<Trace, Failure> {
        let m = self.machine.machine("a100")?;
        let mut command = Command::new(&self.python);
        command
            .args(["-c", PYTORCH, &self.model])
            .args(["--batch", &self.batch.to_string()])
            .args(["--optimizer", &self.optimizer])
            .args(["--precision", &self.precision])
            .args(["--constants", &machine::constants(&m).to_string()])
            .stderr(Stdio::inherit());
        if let Some(path) = &self.profile {
            command.arg("--profile").arg(path);
        }
        let done = command.output().map_err(|e| {
            Failure::run(format!(
                "cannot run {}: {e}; give the Python that has PyTorch with --python",
                self.python
            ))
        })?;
        if !done.status.success() {
            let what = format!("{} could not import {}", self.python, self.model);
            return Err(match done.status.code() {
                Some(2) => Failure::usage(what),
                _ => Failure::run(what),
            });
        }
        String::from_utf8_lossy(&done.stdout)
            .parse()
            .map_err(|e| Failure::run(format!("{}: {e}", self.model)))
    }
}

pub fn main(args: &Args) -> Result<(), Failure> {
    let trace = match &args.from {
        From::G10 {
            traces,
            net,
            batch,
            interpolate,
        } => {
            let import = if *interpolate {
                uvmsim_g10::import_between
            } else {
                uvmsim_g10::import
            };
            import(traces, net, *batch).map_err(Failure::usage)?
        }
        From::Pytorch(p) => p.import()?,
    };
    crate::trace::write(&trace, &args.output, args.json)?;
    if args.output != "-" && !args.json {
        eprintln!(
            "{}: {} kernels, {} tensors, {:.3} s",
            args.output,
            trace.kernels.len(),
            trace.tensors.len(),
            trace.ideal_ns() as f64 / 1e9
        );
    }
    Ok(())
}
