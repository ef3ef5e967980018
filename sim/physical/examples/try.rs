// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Runs policies on a network of the zoo: `try NET BATCH MACHINE [POLICY...]`.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Workload;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let machine = uvmsim_machine::presets::find(&args[2]).unwrap();
    let net = uvmsim_zoo::find(&args[0]).unwrap();
    let options = uvmsim_zoo::Options {
        batch: args[1].parse().unwrap(),
        tokens: std::env::var("TOKENS").ok().map(|t| t.parse().unwrap()),
        precision: uvmsim_zoo::Precision::Tf32,
        optimizer: None,
    };
    let trace = net.trace(&options, &machine);
    let t0 = Instant::now();
    let w = Workload::from_trace(&trace);
    let l = Layout::new(&w);
    let peak = w.live_bytes().into_iter().max().unwrap_or(0) as f64 / 1e9;
    println!(
        "{} kernels, ideal {:.3} s, peak {peak:.1} GB, span {:.1} GB, {:?}",
        w.kernels.len(),
        w.ideal_ns() as f64 / 1e9,
        l.span as f64 / 1e9,
        t0.elapsed()
    );
    let names: Vec<&str> = if args.len() > 3 {
        args[3..].iter().map(String::as_str).collect()
    } else {
        policies::NAMES.to_vec()
    };
    for name in names {
        let t0 = Instant::now();
        let mut policy = match policies::make(name, &machine, &w, &l) {
            Ok(p) => p,
            Err(e) => {
                println!("{name:18} {e}");
                continue;
            }
        };
        let planned = t0.elapsed();
        match uvmsim_physical::run(&machine, &w, &l, policy.as_mut(), Limits::default()) {
            Ok(o) => {
                if std::env::var("WORST").is_ok() {
                    worst(&o, &w);
                }
                println!(
                "{name:18} {:8.3} s  {:.3}  in {:6.1} out {:6.1} ssd {:6.1}/{:6.1} GB  faults {:9} batches {:8} stalls f {:.3} e {:.3} p {:.3} c {:.3}  plan {planned:?} run {:?}",
                o.step_ns as f64 / 1e9,
                o.normalized(),
                o.bytes.host_to_gpu as f64 / 1e9,
                o.bytes.gpu_to_host as f64 / 1e9,
                o.bytes.ssd_to_gpu as f64 / 1e9,
                o.bytes.gpu_to_ssd as f64 / 1e9,
                o.faults,
                o.batches,
                o.stalls.fault as f64 / 1e9,
                o.stalls.eviction as f64 / 1e9,
                o.stalls.prefetch as f64 / 1e9,
                o.stalls.calls as f64 / 1e9,
                t0.elapsed(),
            )
            }
            Err(e) => println!("{name:18} {e}"),
        }
    }
}

/// Prints the kernels that stalled most.
#[allow(dead_code)]
fn worst(o: &uvmsim_physical::Outcome, w: &Workload) {
    let mut by: Vec<(u64, usize)> = o
        .kernel_ns
        .iter()
        .zip(&w.kernels)
        .enumerate()
        .map(|(i, (ns, k))| (ns.saturating_sub(k.ns), i))
        .collect();
    by.sort_unstable_by(|a, b| b.cmp(a));
    for (ns, i) in by.iter().take(25) {
        println!(
            "  {:9.3} ms  {:9.3} ms  {i:5} {}  {:.1} MB",
            *ns as f64 / 1e6,
            w.kernels[*i].ns as f64 / 1e6,
            w.kernels[*i].name,
            w.working_set(*i) as f64 / 1e6
        );
    }
}
