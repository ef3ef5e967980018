// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim compare --zoo`: every network, at some sizes of GPU memory, under every
//! policy, with the bound.

use std::fmt::Write;

use serde_json::json;
use serde_json::Value;
use uvmsim_machine::Machine;
use uvmsim_physical::policies::FAULTLESS;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Workload;
use uvmsim_report::NO_UVM;
use uvmsim_zoo::NETS;

use super::run_all;
use super::Outcomes;
use crate::zoo;
use crate::Failure;

/// What is to be compared.
pub struct Sweep<'a> {
    /// The networks; none: all.
    pub nets: &'a [String],
    /// Times that a step's peak is as large as GPU memory.
    pub over: &'a [f64],
    pub shape: &'a zoo::Shape,
    pub policies: &'a [String],
    pub threads: usize,
}

/// A network on a GPU that is too small for it.
struct Point {
    net: &'static str,
    over: f64,
    machine: Machine,
    /// The ideal time and the bound, in seconds.
    ideal: f64,
    bound: f64,
    outcomes: Outcomes,
}

/// Of its rivals, ours must be ahead.
const RIVALS: [&str; 6] = ["deepum", "g10", "most", "teraio", "autovm", "autovm-late"];
/// Share of the bound within which there is no room left.
const ROOM: f64 = 0.01;

impl Sweep<'_> {
    /// Runs all points and prints the table, or the JSON object.
    pub fn run(&self, base: &Machine, json: bool) -> Result<(), Failure> {
        for name in self.nets {
            zoo::find(name)?;
        }
        let wanted = |name: &str| self.nets.is_empty() || self.nets.iter().any(|n| n == name);
        let mut points = Vec::new();
        for &over in self.over {
            if !json {
                crate::write_file("-", &head(over, base, self.policies))?;
            }
            for net in NETS.iter().filter(|e| wanted(&e.name)) {
                let point = self.point(&net.name, over, base)?;
                if !json {
                    crate::write_file("-", &point.row())?;
                }
                points.push(point);
            }
        }
        if json {
            let list: Vec<Value> = points.iter().map(Point::object).collect();
            let all = json!({"machine": base.preset, "points": list});
            return crate::print_json(&all);
        }
        crate::write_file("-", &summary(&points))
    }

    fn point(&self, net: &'static str, over: f64, base: &Machine) -> Result<Point, Failure> {
        let trace = zoo::trace(net, self.shape, base)?;
        let (workload, layout): (Workload, Layout) = crate::workload(&trace)?;
        let machine = zoo::shrunk(base, over, workload.peak_bytes());
        let (limits, threads) = (Limits::default(), self.threads);
        let step = (&machine, &workload, &layout);
        let outcomes = run_all(self.policies, step, limits, None, threads);
        Ok(Point {
            net,
            over,
            ideal: workload.ideal_ns() as f64 / 1e9,
            bound: uvmsim_physical::bound_ns(&machine, &workload) as f64 / 1e9,
            machine,
            outcomes,
        })
    }
}

/// What a group of rows begins with: policies' names from top to bottom where they have
/// parts, as columns are narrow.
fn head(over: f64, machine: &Machine, policies: &[String]) -> String {
    let preset = machine.preset;
    let mut out =
        format!("share of the ideal speed on {preset}, GPU memory for 1/{over} of the peak\n");
    let names = policies.iter().map(String::as_str).chain(["bound"]);
    let names: Vec<Vec<&str>> = names.map(parts).collect();
    let lines = names.iter().map(Vec::len).max().unwrap_or(0);
    let width = name_width(policies.len());
    for line in 0..lines {
        let first = if line + 1 == lines { "network" } else { "" };
        let mut text = format!("{first:<width$.width$}");
        for name in &names {
            let skip = lines - name.len();
            let part = line.checked_sub(skip).map_or("", |i| name[i]);
            let _ = write!(text, " {part:>4}");
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

/// Letters that a network's name has beside the shares of so many policies and the bound in a
/// terminal of 80 columns: none where the policies are too many, as the name has a line then.
fn name_width(policies: usize) -> usize {
    if 10 + 5 * (policies + 1) <= 80 {
        10
    } else {
        0
    }
}

/// A name in parts of at most four letters.
fn parts(name: &str) -> Vec<&str> {
    match name {
        "uvm-discard" => vec!["uvm", "disc"],
        "uvm-discard-lazy" => vec!["uvm", "disc", "lazy"],
        "autovm" => vec!["auto", "vm"],
        "autovm-late" => vec!["auto", "vm", "late"],
        "flashneuron" => vec!["flsh", "neur"],
        "deepum" => vec!["deep", "um"],
        "teraio" => vec!["tera", "io"],
        "bound" => vec!["bnd"],
        _ => name.split('-').collect(),
    }
}

/// A share in four letters.
fn cell(share: f64) -> String {
    let text = format!("{share:.3}");
    match text.strip_prefix('0') {
        Some(text) => text.into(),
        None => format!("{share:.2}"),
    }
}

impl Point {
    fn row(&self) -> String {
        let first = name_width(self.outcomes.len());
        let mut out = match first {
            0 => format!("{}\n", self.net),
            _ => format!("{:<10}", self.net.get(..11).unwrap_or(self.net)),
        };
        let line = if first == 0 { out.len() } else { 0 };
        let mut used = out.len() - line;
        let cells = self.outcomes.iter().map(|(_, o)| match o {
            Ok(o) => cell(o.normalized()),
            Err(_) => "-".into(),
        });
        for (i, c) in cells.chain([cell(self.ideal / self.bound)]).enumerate() {
            // A long name reaches into the first column.
            let width = (first + 5 * (i + 1)).saturating_sub(used);
            let _ = write!(out, "{c:>width$}");
            used = out.len() - line;
        }
        out + "\n"
    }

    fn object(&self) -> Value {
        json!({
            "net": self.net,
            "over": self.over,
            "gpu_mem_bytes": self.machine.gpu_mem,
            "ideal_s": self.ideal,
            "bound_s": self.bound,
            "policies": super::objects(&self.outcomes, self.bound),
        })
    }

    fn seconds(&self, policy: &str) -> Option<f64> {
        let of = |(name, o): &(String, Result<uvmsim_physical::Outcome, String>)| match o {
            Ok(o) if name == policy => Some(o.step_ns as f64 / 1e9),
            _ => None,
        };
        self.outcomes.iter().find_map(of)
    }

    /// The policies that are faster than ours.
    fn ahead(&self) -> Vec<&str> {
        let Some(best) = self.seconds("best") else {
            return Vec::new();
        };
        let faster = |name: &&str| self.seconds(name).is_some_and(|s| s < best);
        let names = self.outcomes.iter().map(|(name, _)| name.as_str());
        names.filter(|n| *n != "ideal").filter(faster).collect()
    }
}

/// Where ours stands, in some lines.
fn summary(points: &[Point]) -> String {
    let ours = points.iter().filter_map(|p| Some((p, p.seconds("best")?)));
    let (mut all, mut near, mut first, mut out) = (0, 0, 0, String::new());
    for (p, best) in ours {
        all += 1;
        near += usize::from(best <= p.bound * (1.0 + ROOM));
        let ahead = p.ahead();
        first += usize::from(!ahead.iter().any(|n| RIVALS.contains(n)));
        if !ahead.is_empty() {
            let ahead = ahead.join(", ");
            let _ = writeln!(
                out,
                "{} at 1/{}: best takes {best:.4} s, the bound is {:.4} s, faster: {ahead}",
                p.net, p.over, p.bound
            );
        }
    }
    if all == 0 {
        return out;
    }
    out += &format!(
        "best: within {} % of the bound on {near} of {all} points; deepum, g10, most, teraio and autovm no faster on {first}\n",
        ROOM * 100.0
    );
    let run = |name: &&&str| points.iter().any(|p| p.seconds(name).is_some());
    let names: Vec<&str> = FAULTLESS.iter().filter(run).copied().collect();
    if !names.is_empty() {
        let _ = writeln!(out, "{}: {NO_UVM}", names.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvmsim_physical::policies;

    #[test]
    fn the_table_fits_a_terminal() {
        let names = policies::NAMES.iter().filter(|n| **n != "ideal");
        let names: Vec<String> = names.map(ToString::to_string).collect();
        for name in &names {
            assert!(parts(name).iter().all(|p| p.len() <= 4), "{name}");
        }
        let machine = uvmsim_machine::presets::find("a100").unwrap_or_else(|| panic!("no preset"));
        let not_run = |n: &String| (n.clone(), Err("not run".into()));
        let outcomes: Outcomes = names.iter().map(not_run).collect();
        let point = Point {
            net: "inceptionv3",
            over: 1.5,
            machine: machine.clone(),
            ideal: 1.0,
            bound: 1.0,
            outcomes,
        };
        let text = head(1.5, &machine, &names) + &point.row();
        assert!(text.lines().all(|l| l.len() <= 80), "{text}");
        assert!(point.row().ends_with(" 1.00\n"), "{text}");
        assert_eq!((cell(0.0444), cell(1.0)), (".044".into(), "1.00".into()));
    }
}
