// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Results as a table for a terminal.

use std::fmt::Write;

use uvmsim_physical::Outcome;

/// A line a policy, in at most 80 columns.
pub fn table(outcomes: &[(String, Result<Outcome, String>)]) -> String {
    let mut out = format!(
        "{:<17} {:>9} {:>6} {:>8} {:>8} {:>8} {:>10} {:>6}\n",
        "policy", "step s", "ideal", "in GB", "out GB", "SSD GB", "faults", "stall"
    );
    for (name, outcome) in outcomes {
        match outcome {
            Ok(o) => {
                let b = &o.bytes;
                let gb = |v: u64| v as f64 / 1e9;
                let _ = writeln!(
                    out,
                    "{name:<17} {:>9.3} {:>6.3} {:>8.1} {:>8.1} {:>8.1} {:>10} {:>5.0}%",
                    o.step_ns as f64 / 1e9,
                    o.normalized(),
                    gb(b.host_to_gpu),
                    gb(b.gpu_to_host),
                    gb(b.ssd_to_gpu + b.gpu_to_ssd),
                    o.faults,
                    100.0 * o.stalls.total() as f64 / o.step_ns.max(1) as f64
                );
            }
            Err(why) => {
                let _ = writeln!(out, "{name:<17} {why}");
            }
        }
    }
    out
}
