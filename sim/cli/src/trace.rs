// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim trace`: checks a trace and says what is in it.

use serde_json::json;
use serde_json::Value;
use uvmsim_physical::workload::running_sums;
use uvmsim_trace::Kind;
use uvmsim_trace::Trace;

use crate::Failure;

#[derive(clap::Args)]
pub struct Args {
    /// The trace; - is standard input.
    file: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The most bytes alive in a kernel: what persists, and from first to last use the rest.
fn peak_live(trace: &Trace) -> u64 {
    let n = trace.kernels.len();
    let mut change = vec![0i64; n + 1];
    let mut always = 0;
    for (t, life) in trace.tensors.iter().zip(trace.lifetimes()) {
        match life {
            _ if t.kind.is_persistent() => always += t.bytes as i64,
            Some((first, last)) => {
                change[first] += t.bytes as i64;
                change[last + 1] -= t.bytes as i64;
            }
            None => {}
        }
    }
    let alive = running_sums(&change[..n]);
    (always + alive.max().unwrap_or(0)) as u64
}

/// What is in a trace.
pub fn object(trace: &Trace) -> Value {
    let kinds: serde_json::Map<_, _> = Kind::ALL
        .iter()
        .map(|&k| (k.to_string(), json!(trace.bytes_of(k))))
        .collect();
    json!({
        "meta": trace.meta,
        "kernels": trace.kernels.len(),
        "tensors": trace.tensors.len(),
        "ideal_s": trace.ideal_ns() as f64 / 1e9,
        "bytes": {
            "total": trace.tensors.iter().map(|t| t.bytes).sum::<u64>(),
            "peak_live": peak_live(trace),
            "largest_working_set": largest_working_set(trace),
        },
        "bytes_by_kind": kinds,
    })
}

/// Writes a trace that was made, to `output`; with `json`, what is in it goes to
/// standard output, and the trace too if that is where it was to go.
pub fn write(trace: &Trace, output: &str, json: bool) -> Result<(), Failure> {
    if !json {
        return crate::write_file(output, &trace.to_string());
    }
    let mut object = object(trace);
    if output == "-" {
        object["trace"] = json!(trace.to_string());
    } else {
        crate::write_file(output, &trace.to_string())?;
        object["file"] = json!(output);
    }
    crate::print_json(&object)
}

fn largest_working_set(trace: &Trace) -> u64 {
    let sets = trace.kernels.iter().map(|k| trace.working_set(k));
    sets.max().unwrap_or(0)
}

/// The same for people.
fn text(trace: &Trace) -> String {
    let gib = |b: u64| format!("{:>10.3} GiB", b as f64 / (1u64 << 30) as f64);
    let count = |n: usize| format!("{n:>10}");
    let mut out = String::new();
    for (k, v) in &trace.meta {
        out += &format!("{k:<20} {v}\n");
    }
    let ideal = format!("{:>10.3} s", trace.ideal_ns() as f64 / 1e9);
    for (what, value) in [
        ("kernels", count(trace.kernels.len())),
        ("tensors", count(trace.tensors.len())),
        ("all resident", ideal),
        ("peak live", gib(peak_live(trace))),
        ("largest working set", gib(largest_working_set(trace))),
    ] {
        out += &format!("{what:<20} {value}\n");
    }
    for k in Kind::ALL {
        out += &format!("{:<20} {}\n", k, gib(trace.bytes_of(k)));
    }
    out
}

pub fn main(args: &Args) -> Result<(), Failure> {
    let trace = crate::read_trace(&args.file)?;
    if args.json {
        return crate::print_json(&object(&trace));
    }
    crate::write_file("-", &text(&trace))
}
