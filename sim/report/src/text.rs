// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Results as a table for a terminal.

use std::fmt::Write;

use uvmsim_physical::policies::FAULTLESS;
use uvmsim_physical::Outcome;

/// What a mark behind a policy's name says.
pub const NO_UVM: &str = "no UVM: free of faults";

/// `name`, and a mark if it is that of a policy without UVM.
pub fn marked(name: &str) -> String {
    let mark = if FAULTLESS.contains(&name) { "*" } else { "" };
    format!("{name}{mark}")
}

/// A line a policy, in at most 80 columns, and one for the mark if any has it.
pub fn table(outcomes: &[(String, Result<Outcome, String>)]) -> String {
    let mut out = format!(
        "{:<17} {:>9} {:>6} {:>8} {:>8} {:>8} {:>10} {:>6}\n",
        "policy", "step s", "ideal", "in GB", "out GB", "SSD GB", "faults", "stall"
    );
    let mut any = false;
    for (name, outcome) in outcomes {
        match outcome {
            Ok(o) => {
                any |= FAULTLESS.contains(&name.as_str());
                let b = &o.bytes;
                let gb = |v: u64| v as f64 / 1e9;
                let _ = writeln!(
                    out,
                    "{:<17} {:>9.3} {:>6.3} {:>8.1} {:>8.1} {:>8.1} {:>10} {:>5.0}%",
                    marked(name),
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
    if any {
        let _ = writeln!(out, "* {NO_UVM}");
    }
    out
}
