// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmsim trace`: checks a trace and says what is in it.

use serde_json::json;
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

/// Runs `uvmsim trace`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let trace = crate::read_trace(&args.file)?;
    let peak = live(&trace).into_iter().max().unwrap_or(0);
    let set = trace
        .kernels
        .iter()
        .map(|k| trace.working_set(k))
        .max()
        .unwrap_or(0);
    let total: u64 = trace.tensors.iter().map(|t| t.bytes).sum();
    let text = if args.json {
        let kinds: serde_json::Map<_, _> = Kind::ALL
            .iter()
            .map(|&k| (k.to_string(), json!(trace.bytes_of(k))))
            .collect();
        let object = json!({
            "meta": trace.meta,
            "kernels": trace.kernels.len(),
            "tensors": trace.tensors.len(),
            "ideal_s": trace.ideal_ns() as f64 / 1e9,
            "bytes": { "total": total, "peak_live": peak, "largest_working_set": set },
            "bytes_by_kind": kinds,
        });
        format!("{object:#}\n")
    } else {
        let gib = |b: u64| format!("{:>10.3} GiB", b as f64 / (1u64 << 30) as f64);
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
        out += &format!("{:<20} {}\n", "largest working set", gib(set));
        for k in Kind::ALL {
            out += &format!("{:<20} {}\n", k, gib(trace.bytes_of(k)));
        }
        out
    };
    crate::write_file("-", &text)
}
