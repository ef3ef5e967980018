// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmsim import`: traces of others.

use std::path::PathBuf;

use crate::Failure;

/// `uvmsim import`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    from: From,
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
        /// The trace to write; - is standard output.
        #[arg(short, long, value_name = "FILE")]
        output: String,
    },
}

/// Runs `uvmsim import`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let From::G10 {
        traces,
        net,
        batch,
        output,
    } = &args.from;
    let trace = uvmsim_trace::g10::import(traces, net, *batch).map_err(Failure::usage)?;
    crate::write_file(output, &trace.to_string())?;
    if output != "-" {
        eprintln!(
            "{output}: {} kernels, {} tensors, {:.3} s",
            trace.kernels.len(),
            trace.tensors.len(),
            trace.ideal_ns() as f64 / 1e9
        );
    }
    Ok(())
}
