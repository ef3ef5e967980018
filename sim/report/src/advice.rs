// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a step needs on a machine, what of that fits, and which policy does best with the rest:
//! a page, for a terminal or as HTML.

use std::fmt::Write;

use uvmsim_machine::Machine;
use uvmsim_physical::policies::RECOMPUTING;
use uvmsim_physical::Outcome;
use uvmsim_physical::Workload;

use crate::document;
use crate::marked;
use crate::seconds;
use crate::svg;
use crate::text::wrap;
use crate::BOUND_WHOM;
use crate::GB;
use crate::KINDS;
use crate::NO_UVM;

/// What the page is made of.
pub struct Advice<'a> {
    /// What trains, and how: a line.
    pub subject: String,
    /// On what: a line.
    pub place: String,
    /// The step that was asked for.
    pub workload: &'a Workload,
    /// The machine that it is to run on.
    pub machine: &'a Machine,
    /// Samples in the step.
    pub batch: u64,
    /// The largest batch that fits in GPU memory whole, and the time of its step there in seconds;
    /// none if not one sample does.
    pub whole: Option<(u64, f64)>,
    /// A time that no step beats that keeps all tensors, seconds.
    pub bound_s: f64,
    /// What each policy does, or why it cannot; nothing where nothing has to move.
    pub outcomes: &'a [(String, Result<Outcome, String>)],
    /// How it was made, as a command line.
    pub command: String,
}

/// A part of the page: a heading, a table whose first line is its head, and sentences.
struct Part {
    title: String,
    table: Vec<Vec<String>>,
    lines: Vec<String>,
}

/// Bytes of each kind that are alive where most is, by the kind's number.
pub fn held(workload: &Workload) -> [u64; 6] {
    let alive = workload.live_bytes();
    let most = (0..alive.len()).max_by_key(|&k| alive[k]).unwrap_or(0) as u32;
    let mut held = [0; 6];
    for t in workload.tensors.iter().filter(|t| !t.uses.is_empty()) {
        if t.lasting || (t.first()..=t.last()).contains(&most) {
            held[t.kind as usize] += t.bytes;
        }
    }
    held
}

fn gb(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / GB)
}

/// A rate in three digits or more.
fn rate(per_second: f64) -> String {
    let digits = if per_second < 10.0 { 2 } else { 1 };
    format!("{per_second:.digits$}")
}

impl Advice<'_> {
    fn spilled(&self) -> u64 {
        let peak = self.workload.peak_bytes();
        peak.saturating_sub(self.machine.gpu_mem)
    }

    /// Policies that could run it, the fastest first.
    fn ranked(&self) -> Vec<(&str, &Outcome)> {
        let done = self.outcomes.iter();
        let done = done.filter_map(|(name, o)| Some((name.as_str(), o.as_ref().ok()?)));
        let mut done: Vec<_> = done.collect();
        done.sort_by_key(|(_, o)| o.step_ns);
        done
    }

    /// The fastest policy that runs each kernel once.
    pub fn fastest(&self) -> Option<&str> {
        self.fastest_mover().map(|(name, _)| name)
    }

    fn fastest_mover(&self) -> Option<(&str, &Outcome)> {
        let mut ranked = self.ranked().into_iter();
        ranked.find(|(name, _)| !RECOMPUTING.contains(name))
    }

    fn samples(&self, o: &Outcome) -> f64 {
        self.batch as f64 / seconds(o.step_ns.max(1))
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = vec![self.needs(), self.fits()];
        if !self.outcomes.is_empty() {
            parts.push(self.policies());
        }
        parts.push(self.advice());
        parts
    }

    fn needs(&self) -> Part {
        let (peak, gpu) = (self.workload.peak_bytes(), self.machine.gpu_mem);
        let row = |name: &str, bytes: u64| {
            let share = format!("{:.0} %", 100.0 * bytes as f64 / gpu.max(1) as f64);
            vec![name.to_string(), gb(bytes), share]
        };
        let mut table = vec![["", "GB", "of the GPU"].map(String::from).to_vec()];
        for (bytes, kind) in held(self.workload).into_iter().zip(KINDS) {
            if bytes > 0 {
                table.push(row(kind.name, bytes));
            }
        }
        table.push(row("together", peak));
        let (spilled, host) = (self.spilled(), self.machine.host_mem);
        let line = match (spilled, spilled.saturating_sub(host)) {
            (0, _) => format!("It fits: {} of {} GB.", gb(peak), gb(gpu)),
            (_, 0) => format!(
                "{} GB more than the GPU's {} spill to host memory, which has {}.",
                gb(spilled),
                gb(gpu),
                gb(host)
            ),
            (_, ssd) => format!(
                "{} GB more than the GPU's {} spill: {} to host memory, {} to the SSD.",
                gb(spilled),
                gb(gpu),
                gb(host),
                gb(ssd)
            ),
        };
        Part {
            title: "What it needs, where most is alive".into(),
            table,
            lines: vec![line],
        }
    }

    fn fits(&self) -> Part {
        let line = match self.whole {
            Some((batch, step_s)) => format!(
                "Batch {batch} is the largest that fits whole: {} samples a second.",
                rate(batch as f64 / step_s)
            ),
            None => "Not one sample fits whole.".into(),
        };
        Part {
            title: "Which batch fits".into(),
            table: Vec::new(),
            lines: vec![line],
        }
    }

    fn policies(&self) -> Part {
        let head = [
            "policy",
            "step s",
            "samples/s",
            "of ideal",
            "stalled",
            "GB moved",
        ];
        let mut table = vec![head.map(String::from).to_vec()];
        let ranked = self.ranked();
        for (name, o) in &ranked {
            let stalled = o.stalls.total() as f64 / o.step_ns.max(1) as f64;
            table.push(vec![
                marked(name),
                format!("{:.3}", seconds(o.step_ns)),
                rate(self.samples(o)),
                format!("{:.3}", o.normalized()),
                format!("{:.0} %", 100.0 * stalled),
                gb(o.bytes.total()),
            ]);
        }
        let mut lines = vec![format!(
            "The bound of moves is {:.3} s: {BOUND_WHOM} can be faster.",
            self.bound_s
        )];
        if ranked.iter().any(|(name, _)| marked(name) != *name) {
            lines.push(format!("* {NO_UVM}"));
        }
        let refused = self.outcomes.iter();
        lines.extend(refused.filter_map(|(name, o)| {
            let why = o.as_ref().err()?;
            Some(format!("{name} cannot run it: {why}."))
        }));
        Part {
            title: format!("Batch {} under each policy", self.batch),
            table,
            lines,
        }
    }

    fn advice(&self) -> Part {
        let mut lines = Vec::new();
        if self.spilled() == 0 {
            let step = seconds(self.workload.ideal_ns());
            let samples = rate(self.batch as f64 / step.max(1e-9));
            lines.push(format!(
                "Nothing has to move: with all in GPU memory a step takes {step:.3} s, {samples} samples a second."
            ));
        }
        if let Some((name, o)) = self.fastest_mover() {
            lines.push(self.praise(name, o));
            lines.extend(self.again(o));
        }
        lines.extend(self.batches());
        Part {
            title: "Advice".into(),
            table: Vec::new(),
            lines,
        }
    }

    /// The fastest policy without reruns beside plain UVM and the next.
    fn praise(&self, name: &str, o: &Outcome) -> String {
        let times = |other: &Outcome| other.step_ns as f64 / o.step_ns.max(1) as f64;
        let mut line = format!("{name} is the fastest policy that runs no kernel twice");
        let ranked = self.ranked();
        let mut others = ranked
            .iter()
            .filter(|(n, _)| !RECOMPUTING.contains(n) && *n != name);
        if let Some((next, other)) = others.next() {
            let _ = write!(line, ", {:.2} times as fast as {next}", times(other));
        }
        if let Some((base, other)) = others.find(|(n, _)| *n == "base-uvm") {
            let _ = write!(line, " and {:.2} times as fast as {base}", times(other));
        }
        line.push('.');
        if name == "best" {
            line += " `uvmsim plan` writes its plan, which `uvmrun --plan` carries out.";
        }
        line
    }

    /// What running kernels twice would bring.
    fn again(&self, mover: &Outcome) -> Option<String> {
        let ranked = self.ranked();
        let mut faster = ranked.iter().filter(|(name, _)| RECOMPUTING.contains(name));
        let (name, o) = faster.next().filter(|(_, o)| o.step_ns < mover.step_ns)?;
        let times = mover.step_ns as f64 / o.step_ns.max(1) as f64;
        Some(format!(
            "{name} is {times:.2} times as fast still, where the framework runs kernels again, as with torch.utils.checkpoint."
        ))
    }

    /// Whether to take the batch that fits whole.
    fn batches(&self) -> Option<String> {
        let (batch, step_s) = self.whole?;
        let whole = batch as f64 / step_s;
        let (name, o) = self.ranked().into_iter().next()?;
        let ratio = whole / self.samples(o);
        let (whole, ours) = (rate(whole), rate(self.samples(o)));
        let verdict = if ratio > 1.0 {
            format!("the smaller batch trains {ratio:.2} times as fast")
        } else {
            format!("the larger batch trains {:.2} times as fast", 1.0 / ratio)
        };
        Some(format!(
            "Batch {batch}, which fits, makes {whole} samples a second, batch {} under {name} {ours}: {verdict}.",
            self.batch
        ))
    }

    /// The page for a terminal of 80 columns.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for line in [&self.subject, &self.place] {
            wrap(&mut out, line, [0, 0]);
        }
        for part in self.parts() {
            let _ = writeln!(out, "\n{}", part.title);
            align(&mut out, &part.table);
            for line in &part.lines {
                wrap(&mut out, line, [2, 2]);
            }
        }
        out
    }

    /// The same as a page of its own.
    pub fn html(&self) -> String {
        let mut out = format!("<p>{}</p>", svg::escape(&self.place));
        for part in self.parts() {
            let _ = write!(out, "<h2>{}</h2>", svg::escape(&part.title));
            if let Some((head, rows)) = part.table.split_first() {
                out.push_str("<table><thead>");
                row(&mut out, "th", head);
                out.push_str("</thead><tbody>");
                rows.iter().for_each(|cells| row(&mut out, "td", cells));
                out.push_str("</tbody></table>");
            }
            for line in &part.lines {
                let _ = write!(out, "<p>{}</p>", svg::escape(line));
            }
        }
        let subject = svg::escape(&self.subject);
        document(&subject, &subject, &out, &self.command)
    }
}

fn row(out: &mut String, tag: &str, cells: &[String]) {
    out.push_str("<tr>");
    for cell in cells {
        let _ = write!(out, "<{tag}>{}</{tag}>", svg::escape(cell));
    }
    out.push_str("</tr>");
}

/// A table with names on the left and numbers on the right of their columns.
fn align(out: &mut String, table: &[Vec<String>]) {
    let columns = table.first().map_or(0, Vec::len);
    let width = |c: usize| table.iter().map(|row| row[c].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for cells in table {
        let mut line = format!("  {:<1$}", cells[0], widths[0]);
        for (cell, width) in cells.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::outcomes;

    /// AlexNet's step of batch 8 and what some policies make of it with so much memory.
    fn page<T>(gpu_mem: u64, whole: Option<(u64, f64)>, f: impl Fn(&Advice<'_>) -> T) -> T {
        let machine = Machine {
            gpu_mem,
            ..uvmsim_machine::presets::find("a100").unwrap()
        };
        let options = uvmsim_zoo::Options::new(8, uvmsim_zoo::Precision::Fp32);
        let net = uvmsim_zoo::find("alexnet").unwrap();
        let trace = net.trace(&options, &machine);
        let workload = Workload::from_trace(&trace);
        let policies = ["base-uvm", "most", "g10-host", "flashneuron"];
        let mut outcomes = outcomes(&policies, &trace, &machine, 0);
        if workload.peak_bytes() <= gpu_mem {
            outcomes.clear();
        }
        let bound_s = uvmsim_physical::bound_ns(&machine, &workload) as f64 / 1e9;
        f(&Advice {
            subject: "alexnet <own>".into(),
            place: "a100".into(),
            workload: &workload,
            machine: &machine,
            batch: 8,
            whole,
            bound_s,
            outcomes: &outcomes,
            command: "uvmsim".into(),
        })
    }

    #[test]
    fn a_page_says_what_spills_and_who_is_fastest() {
        page(600 << 20, Some((2, 1.0)), |advice| {
            let (text, html) = (advice.text(), advice.html());
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            for said in [
                "weights",
                "spill to host memory",
                "Batch 2 is the largest",
                "g10-host*",
                NO_UVM,
            ] {
                assert!(text.contains(said), "no {said} in {text}");
                assert!(html.contains(said), "no {said} in {html}");
            }
            let ranked = advice.ranked();
            assert!(ranked.windows(2).all(|w| w[0].1.step_ns <= w[1].1.step_ns));
            let fastest = advice.fastest().unwrap();
            assert!(
                text.contains(&format!("{fastest} is the fastest")),
                "{text}"
            );
            // Two samples a second are fewer than eight in a step.
            assert!(text.contains("the larger batch trains"), "{text}");
            assert!(html.contains("alexnet &lt;own&gt;") && !html.contains("<own>"));
            // All but what each tensor is rounded up by.
            let (held, peak) = (held(advice.workload), advice.workload.peak_bytes());
            let rounded = peak - held.iter().sum::<u64>();
            assert!(rounded < 4096 * advice.workload.tensors.len() as u64);
        });
    }

    #[test]
    fn what_fits_needs_no_policy() {
        page(4 << 30, None, |advice| {
            let text = advice.text();
            for said in [
                "It fits: ",
                "Nothing has to move",
                "Not one sample fits whole",
            ] {
                assert!(text.contains(said), "no {said} in {text}");
            }
            assert!(!text.contains("under each policy") && advice.fastest().is_none());
        });
    }
}
