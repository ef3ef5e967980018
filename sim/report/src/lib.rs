// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! uvmsim's results as one self-contained HTML page, or as SVG files.

pub mod advice;
pub mod published;
pub mod svg;
mod text;

use std::fmt::Write;

use svg::Bar;
use svg::Life;
use svg::Series;
use uvmsim_machine::Machine;
use uvmsim_machine::CONSTANTS;
use uvmsim_physical::policies::RECOMPUTING;
use uvmsim_physical::workload::Tensor;
use uvmsim_physical::Bin;
use uvmsim_physical::Outcome;
use uvmsim_physical::Timeline;
use uvmsim_physical::Workload;
use uvmsim_trace::Kind;
use uvmsim_trace::Trace;

pub use text::marked;
pub use text::table;
pub use text::NO_UVM;

/// What a report is about.
pub struct Report<'a> {
    /// The step that was run.
    pub trace: &'a Trace,
    /// The machine that it ran on.
    pub machine: &'a Machine,
    /// What each policy did, or why it could not.
    pub outcomes: &'a [(String, Result<Outcome, String>)],
    /// A lower bound of the step time, seconds, where one was computed.
    pub bound_s: Option<f64>,
    /// How it was made, as a command line.
    pub command: String,
}

/// A plot, for a file of its own.
pub struct Figure {
    /// File name without ending.
    pub name: String,
    /// What it is headed with.
    pub title: String,
    /// The plot itself, as SVG.
    pub svg: String,
}

impl Figure {
    fn new(name: impl Into<String>, title: impl Into<String>, svg: String) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            svg,
        }
    }
}

/// What a bound is called, after what it bounds.
pub const BOUND: &str = "bound of moves";

/// Who cannot be faster than a bound: what is thrown away and computed again needs no
/// copy, so that such a policy may be.
pub const BOUND_WHOM: &str = "no policy that keeps all tensors, without recomputation,";

const GB: f64 = 1e9;

const fn series(name: &'static str, colour: &'static str) -> Series {
    Series { name, colour }
}

/// Okabe and Ito's colours: told apart by most eyes.
const KINDS: [Series; 7] = [
    series("weights", "#0072b2"),
    series("gradients", "#d55e00"),
    series("optimizer", "#56b4e9"),
    series("activations", "#009e73"),
    series("workspace", "#f0e442"),
    series("input", "#cc79a7"),
    series("nothing alive", "#b0b0b0"),
];
const TIMES: [Series; 6] = [
    series("compute", "#009e73"),
    series("faults", "#d55e00"),
    series("evictions", "#e69f00"),
    series("late prefetches", "#cc79a7"),
    series("driver calls", "#808080"),
    series("NVLink", "#56b4e9"),
];
const LINKS: [Series; 4] = [
    series("host to GPU", "#0072b2"),
    series("SSD to GPU", "#56b4e9"),
    series("GPU to host", "#d55e00"),
    series("GPU to SSD", "#e69f00"),
];

/// `n` with its digits in threes.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(d);
    }
    out
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Report<'_> {
    fn done(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.outcomes
            .iter()
            .filter_map(|(name, o)| o.as_ref().ok().map(|o| (name.as_str(), o)))
    }

    /// All plots, in the order of the page.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = vec![self.times(), self.traffic(), self.lives()];
        for (name, o) in self.done() {
            if let Some(t) = &o.timeline {
                figures.extend(self.over_time(name, t));
            }
        }
        figures
    }

    /// A bar for each policy that ran, with the note and the parts that `of` makes.
    fn bars(&self, of: impl Fn(&Outcome) -> (String, Vec<f64>)) -> Vec<Bar> {
        let bar = |(name, o): (&str, &Outcome)| {
            let (note, parts) = of(o);
            let label = name.into();
            Bar { label, note, parts }
        };
        self.done().map(bar).collect()
    }

    /// Step time of each policy, by cause.
    fn times(&self) -> Figure {
        let bars = self.bars(|o| {
            let (s, step) = (&o.stalls, seconds(o.step_ns));
            let compute = o.step_ns.saturating_sub(s.total());
            let parts = [compute, s.fault, s.eviction, s.prefetch, s.calls, s.peers];
            let note = format!("{step:.3} s, {:.1} % of ideal", 100.0 * o.normalized());
            (note, parts.map(seconds).to_vec())
        });
        let marks: Vec<_> = self.bound_s.map(|b| (b, BOUND)).into_iter().collect();
        let title = "Step time by policy";
        Figure::new("times", title, svg::bars(title, "s", &TIMES, &bars, &marks))
    }

    /// Bytes moved under each policy.
    fn traffic(&self) -> Figure {
        let bars = self.bars(|o| {
            let b = &o.bytes;
            let parts = [b.host_to_gpu, b.ssd_to_gpu, b.gpu_to_host, b.gpu_to_ssd];
            let note = format!("{:.1} GB", b.total() as f64 / GB);
            (note, parts.map(|v| v as f64 / GB).to_vec())
        });
        let title = "Bytes moved by policy";
        Figure::new("traffic", title, svg::bars(title, "GB", &LINKS, &bars, &[]))
    }

    /// Lives of the largest tensors, in ideal time.
    fn lives(&self) -> Figure {
        const LARGEST: usize = 160;
        let w = Workload::from_trace(self.trace);
        let mut starts = vec![0.0];
        for k in &w.kernels {
            starts.push(starts[starts.len() - 1] + seconds(k.ns));
        }
        let mut largest: Vec<_> = w.tensors.iter().filter(|t| !t.uses.is_empty()).collect();
        largest.sort_by_key(|t| std::cmp::Reverse(t.bytes));
        largest.truncate(LARGEST);
        largest.sort_by_key(|t| (t.lasting, t.first(), t.last()));
        let end = starts[w.kernels.len()];
        let life = |tensor: &Tensor| {
            let mut parts = Vec::new();
            let mut at = if tensor.lasting {
                0.0
            } else {
                starts[tensor.first() as usize]
            };
            for &(k, _) in &tensor.uses {
                let (from, to) = (starts[k as usize], starts[k as usize + 1]);
                if from > at {
                    parts.push((at, from, false));
                }
                parts.push((from, to, true));
                at = to;
            }
            if tensor.lasting && at < end {
                parts.push((at, end, false));
            }
            let mb = tensor.bytes as f64 / 1e6;
            Life {
                title: format!("{} ({}, {mb:.1} MB)", tensor.name, tensor.kind),
                colour: KINDS[tensor.kind as usize].colour,
                parts,
            }
        };
        let lives: Vec<Life> = largest.into_iter().map(life).collect();
        let title = "Lives of the largest tensors: a line each, pale where it is kept and not used";
        let svg = svg::lifetimes(title, &KINDS[..6], end, &lives);
        Figure::new("lifetimes", title, svg)
    }

    /// Memory, links and stalls under one policy.
    fn over_time(&self, name: &str, t: &Timeline) -> [Figure; 3] {
        let span = seconds(t.span);
        let mut times: Vec<f64> = t.memory.iter().map(|(at, _)| seconds(*at)).collect();
        let gb = |(_, m): &(u64, [u64; 7])| m.iter().map(|b| *b as f64 / GB).collect();
        let mut values: Vec<Vec<f64>> = t.memory.iter().map(gb).collect();
        if let Some(last) = values.last().cloned() {
            times.push(span);
            values.push(last);
        }
        let limit = Some((self.machine.gpu_mem as f64 / GB, "GPU memory"));
        let memory = format!("{name}: GPU memory by kind");
        let width = (span / t.bins.len().max(1) as f64).max(1e-12);
        let rate = |b: &Bin| {
            let moved = [b.host_in, b.ssd_in, b.host_out, b.ssd_out];
            moved.map(|v| v / GB / width).to_vec()
        };
        let rates: Vec<Vec<f64>> = t.bins.iter().map(rate).collect();
        let links = format!("{name}: link use");
        let top = self.machine.pcie_h2d.max(self.machine.pcie_d2h) / GB;
        let bins = t.bins.iter();
        let stalled: Vec<f64> = bins.map(|b| b.stalled / 1e9 / width).collect();
        let stalls = format!("{name}: stalls");
        let memory_svg = svg::areas(&memory, "GB", &KINDS, &times, &values, limit);
        let links_svg = svg::mirror(&links, "GB/s", &LINKS, span, &rates, top);
        let stalls_svg = svg::strip(&stalls, "stalled", "#d55e00", &stalled);
        [
            Figure::new(format!("{name}-memory"), memory, memory_svg),
            Figure::new(format!("{name}-links"), links, links_svg),
            Figure::new(format!("{name}-stalls"), stalls, stalls_svg),
        ]
    }

    /// The whole report as a page.
    pub fn html(&self) -> String {
        let name = svg::escape(self.trace.meta("name"));
        let batch = svg::escape(self.trace.meta("batch"));
        let mut out = String::new();
        self.facts(&mut out);
        self.outcome_table(&mut out);
        let mut policy = String::new();
        for f in self.figures() {
            let of = f.name.strip_suffix("-memory").unwrap_or_default();
            if !of.is_empty() {
                policy = of.into();
                let _ = write!(out, "<h2 id=\"{0}\">{0}</h2>", svg::escape(&policy));
            }
            let heading = f
                .title
                .strip_prefix(&format!("{policy}: "))
                .map_or_else(|| f.title.clone(), String::from);
            let _ = write!(
                out,
                "<figure><figcaption>{}</figcaption>{}</figure>",
                svg::escape(&heading),
                f.svg
            );
        }
        self.constants(&mut out);
        let preset = self.machine.preset;
        document(
            &format!("{name} on {preset}"),
            &format!("{name}, batch {batch}, on {preset}"),
            &out,
            &self.command,
        )
    }

    fn facts(&self, out: &mut String) {
        let w = Workload::from_trace(self.trace);
        let peak = w.peak_bytes();
        let largest = (0..w.kernels.len()).map(|k| w.working_set(k)).max();
        let gb = |bytes: u64, digits: usize| format!("{:.digits$} GB", bytes as f64 / GB);
        let bound = self.bound_s.map(|b| format!("{b:.3} s"));
        let facts = [
            ("kernels", w.kernels.len().to_string()),
            ("tensors", w.tensors.len().to_string()),
            ("ideal step", format!("{:.3} s", seconds(w.ideal_ns()))),
            ("peak of live bytes", gb(peak, 1)),
            ("GPU memory", gb(self.machine.gpu_mem, 1)),
            ("largest kernel", gb(largest.unwrap_or(0), 2)),
            ("weights", gb(self.trace.bytes_of(Kind::Weight), 2)),
            (BOUND, bound.unwrap_or("not computed".into())),
        ];
        out.push_str("<dl>");
        for (key, value) in facts {
            let _ = write!(out, "<div><dt>{key}</dt><dd>{value}</dd></div>");
        }
        out.push_str("</dl>");
    }

    fn outcome_table(&self, out: &mut String) {
        out.push_str(
            "<table><thead><tr><th>policy<th>step s<th>of ideal<th>of bound of moves<th>in GB<th>out GB<th>SSD in GB<th>SSD out GB<th>faults<th>stalled s</tr></thead><tbody>",
        );
        for (name, outcome) in self.outcomes {
            let (id, name) = (svg::escape(name), svg::escape(&marked(name)));
            match outcome {
                Ok(o) => {
                    let b = &o.bytes;
                    let name = if o.timeline.is_some() {
                        format!("<a href=\"#{id}\">{name}</a>")
                    } else {
                        name
                    };
                    // It bounds neither what has no limit to its memory nor what recomputes.
                    let moves = o.policy != "ideal" && !RECOMPUTING.contains(&o.policy.as_str());
                    let bound = self.bound_s.filter(|_| moves);
                    let of_bound = bound.map_or("-".into(), |bound| {
                        format!("{:.3}", bound / seconds(o.step_ns.max(1)))
                    });
                    let _ = write!(
                        out,
                        "<tr><td>{name}<td>{:.3}<td>{:.3}<td>{of_bound}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}<td>{}<td>{:.3}</tr>",
                        seconds(o.step_ns),
                        o.normalized(),
                        b.host_to_gpu as f64 / GB,
                        b.gpu_to_host as f64 / GB,
                        b.ssd_to_gpu as f64 / GB,
                        b.gpu_to_ssd as f64 / GB,
                        grouped(o.faults),
                        seconds(o.stalls.total())
                    );
                }
                Err(why) => {
                    let _ = write!(
                        out,
                        "<tr><td>{name}<td colspan=\"9\" class=\"why\">{}</tr>",
                        svg::escape(why)
                    );
                }
            }
        }
        out.push_str("</tbody></table><p class=\"dim\">Of ideal: the time with all memory on the GPU, over the step's. Of bound of moves: the same for the bound: ");
        out.push_str(BOUND_WHOM);
        out.push_str(" can be faster. *: ");
        out.push_str(NO_UVM);
        out.push_str(".</p>");
    }

    fn constants(&self, out: &mut String) {
        out.push_str("<details><summary>Constants of the machine</summary><table class=\"constants\"><thead><tr><th>option<th>value<th>meaning<th>source</tr></thead><tbody>");
        for c in CONSTANTS {
            let _ = write!(
                out,
                "<tr><td><code>--{}</code><td>{}<td>{}<td>{}</tr>",
                c.option,
                c.unit.show(c.get(self.machine)),
                svg::escape(c.meaning),
                svg::escape(c.source)
            );
        }
        out.push_str("</tbody></table></details>");
    }
}

/// A page of its own, which `command` made; the title and the heading are HTML like the rest.
fn document(title: &str, heading: &str, body: &str, command: &str) -> String {
    let (style, command) = (include_str!("../style.css"), svg::escape(command));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{style}</style></head><body><main><h1>{heading}</h1>{body}\
         <p class=\"dim\">Made by <code>{command}</code></p></main></body></html>\n"
    )
}

#[cfg(test)]
mod tests;
