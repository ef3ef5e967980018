// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmsim trace`: checks a trace and says what is in it.

use serde_json::json;
use serde_json::Value;
use uvmsim_trace::Kind;
use uvmsim_trace::Trace;

use crate::Failure;

/// `uvmsim trace`.
#[derive(clap::Args)]
pub struct Args {
    /// The trace; - is standard input.
    file: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Bytes alive in each kernel: what persists, and from first to last use the rest.
fn live(trace: &Trace) -> Vec<u64> {
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
    let mut now = always;
    change[..n]
        .iter()
        .map(|c| {
            now += c;
            now as u64
        })
        .collect()
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
            "peak_live": live(trace).into_iter().max().unwrap_or(0),
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
    crate::write_file("-", &format!("{object:#}\n"))
}

fn largest_working_set(trace: &Trace) -> u64 {
    let sets = trace.kernels.iter().map(|k| trace.working_set(k));
    sets.max().unwrap_or(0)
}

/// The same for people.
fn text(trace: &Trace) -> String {
    let gib = |b: u64| format!("{:>10.3} GiB", b as f64 / (1u64 << 30) as f64);
    let peak = live(trace).into_iter().max().unwrap_or(0);
    let mut out = String::new();
    for (k, v) in &trace.meta {
        out += &format!("{k:<20} {v}\n");
    }
    out += &format!("{:<20} {:>10}\n", "kernels", trace.kernels.len());
    out += &format!("{:<20} {:>10}\n", "tensors", trace.tensors.len());
    out += &format!(
        "{:<20} {:>10.3} s\n",
        "all resident",
        trace.ideal_ns() as f64 / 1e9
    );
    out += &format!("{:<20} {}\n", "peak live", gib(peak));
    out += &format!(
        "{:<20} {}\n",
        "largest working set",
        gib(largest_working_set(trace))
    );
    for k in Kind::ALL {
        out += &format!("{:<20} {}\n", k, gib(trace.bytes_of(k)));
    }
    out
}

/// Runs `uvmsim trace`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let trace = crate::read_trace(&args.file)?;
    let text = if args.json {
        format!("{:#}\n", object(&trace))
    } else {
        text(&trace)
    };
    crate::write_file("-", &text)
}
