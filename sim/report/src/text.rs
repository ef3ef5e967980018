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

/// Columns of a terminal.
pub(crate) const COLUMNS: usize = 80;

/// `text`, broken between words, behind so many blanks in the first line and in the others.
pub(crate) fn wrap(out: &mut String, text: &str, [first, others]: [usize; 2]) {
    let mut indent = first;
    let mut line = " ".repeat(indent);
    for word in text.split_whitespace() {
        if line.len() > indent && line.len() + 1 + word.len() > COLUMNS {
            let _ = writeln!(out, "{line}");
            indent = others;
            line = " ".repeat(indent);
        }
        if line.len() > indent {
            line.push(' ');
        }
        line += word;
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let mut out = String::new();
        let long = "x".repeat(90);
        let text = format!("{} {long} end", "ab ".repeat(40).trim());
        wrap(&mut out, &text, [1, 2]);
        let lines: Vec<&str> = out.lines().collect();
        assert!(
            lines.iter().all(|l| l.len() <= COLUMNS || l.trim() == long),
            "{out}"
        );
        let words = out.split_whitespace().count();
        assert_eq!((words, lines.last()), (42, Some(&"  end")));
        assert!(lines[0].starts_with(" ab"), "{out}");
    }
}
