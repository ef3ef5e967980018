// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A view as lines, for a screen or a page of a given width.
//!
//! Each line is made of parts, the most important first; those that do not fit are left out
//! whole, so that a narrow terminal shows less, and no number in half.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use uvmrust_system::{Driver, Whose};

use crate::missing::MISSING;
use crate::options::wrapped;
use crate::rates::{Moves, Rates};
use crate::sample::{GpuSample, ProcessSample, SsdSample};
use crate::units::{bytes, count, spark};
use crate::view::{self, View};

/// Below this many columns there are no sparklines, and names are short.
const NARROW: u16 = 64;

/// Bytes of a chunk.
const CHUNK: f64 = 2097152.0;

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn alarm() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

/// A line that is filled up to its width.
struct Row {
    spans: Vec<Span<'static>>,
    left: usize,
}

impl Row {
    fn new(width: u16) -> Self {
        Self {
            spans: Vec::new(),
            left: width.into(),
        }
    }

    /// Adds a part if it fits; what comes behind one that does not is left out, too.
    fn part(mut self, text: impl Into<String>, style: Style) -> Self {
        let text = text.into();
        let span = Span::styled(text, style);
        match self.left.checked_sub(span.width()) {
            Some(left) => {
                self.left = left;
                self.spans.push(span);
            }
            None => self.left = 0,
        }
        self
    }

    /// Adds a text, cut to what fits.
    fn cut(self, text: &str, style: Style) -> Self {
        let mut cut = String::new();
        for c in text.chars().filter(|c| !c.is_control()) {
            let longer = format!("{cut}{c}");
            if Span::raw(longer.as_str()).width() > self.left {
                break;
            }
            cut = longer;
        }
        self.part(cut, style)
    }

    fn line(self) -> Line<'static> {
        Line::from(self.spans)
    }
}

/// The line that stays on top.
pub(crate) fn head(view: &View, width: u16) -> Line<'static> {
    let sample = &view.sample;
    let driver = sample.driver.as_ref();
    let version = sample
        .module
        .as_ref()
        .and_then(|module| module.version.clone())
        .or_else(|| driver?.version.clone())
        .unwrap_or_default();
    let whose = match &sample.module {
        None => "no nvidia-uvm".into(),
        Some(module) if module.whose == Whose::UvmRust => format!("uvm-rust {version}"),
        Some(_) => format!("NVIDIA's own {version}"),
    };
    let users = sample.processes.len();
    let hidden = if sample.processes_hidden { "+" } else { "" };
    let row = Row::new(width)
        .part("uvmtop", bold())
        .part(format!("  {}", whose.trim_end()), Style::new())
        .part(format!("  GPUs {}", sample.gpus.len()), Style::new())
        .part(format!("  users {users}{hidden}"), Style::new());
    match driver {
        Some(Driver { software: true, .. }) => row.part("  software GPU", dim()),
        _ => row,
    }
    .line()
}

/// Everything below it, in order.
pub(crate) fn body(view: &View, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for gpu in &view.sample.gpus {
        lines.extend(gpu_lines(view, gpu, width));
    }
    if view.sample.gpus.is_empty() {
        lines.push(Row::new(width).cut("No GPU is seen.", Style::new()).line());
    }
    if let Some(ssd) = &view.sample.ssd {
        lines.extend(ssd_lines(view, ssd, width));
    }
    lines.extend(process_lines(view, width));
    for note in &view.sample.notes {
        for text in wrapped(note, width.into()) {
            lines.push(Row::new(width).cut(&text, dim()).line());
        }
    }
    lines
}

/// The lines of the page that `?` shows: what the driver does not tell.
pub(crate) fn missing(width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![Row::new(width)
        .part("What the driver does not tell", bold())
        .line()];
    for sentence in MISSING {
        let texts = wrapped(sentence, usize::from(width.saturating_sub(2)).max(1));
        for (index, text) in texts.iter().enumerate() {
            let mark = if index == 0 { "- " } else { "  " };
            let row = Row::new(width).part(mark, dim());
            lines.push(row.cut(text, Style::new()).line());
        }
    }
    lines
}

fn gpu_lines(view: &View, gpu: &GpuSample, width: u16) -> Vec<Line<'static>> {
    let key = gpu.key();
    let title = match gpu.gpu.id {
        Some(id) => format!("GPU {id}"),
        None => "GPU -".into(),
    };
    let mut row = Row::new(width).part(title, bold());
    if let Some(name) = &gpu.gpu.name {
        row = row.cut(&format!("  {name}"), Style::new());
    }
    row = row.part(format!("  {key}"), dim());
    if gpu.gpu.part_of.is_some() {
        row = row.part("  part (MIG)", dim());
    }
    if gpu.gpu.instances > 0 {
        row = row.part(format!("  MIG: {}", gpu.gpu.instances), dim());
    }
    let mut lines = vec![row.line()];
    lines.extend(nvml_line(gpu, width));
    if gpu.gpu.id.is_none() {
        let says = "  no process has it registered";
        lines.push(Row::new(width).cut(says, dim()).line());
        return lines;
    }
    lines.extend(memory_line(gpu, width));
    let (Some(rates), Some(history)) = (view.rates.get(&key), view.history.get(&key)) else {
        lines.extend(total_lines(gpu, width));
        return lines;
    };
    lines.extend(rate_lines(gpu, rates, history, width));
    lines
}

/// What NVML tells: of memory that is managed and memory that is not.
fn nvml_line(gpu: &GpuSample, width: u16) -> Option<Line<'static>> {
    let nvml = gpu.nvml.as_ref()?;
    let [used, total] = [nvml.bytes_used, nvml.bytes_total].map(|n| bytes(n as f64));
    let row = Row::new(width).part("  NVML", dim());
    let row = row.part(
        format!("    used {used} of {total}, all kinds of memory"),
        Style::new(),
    );
    let mut row = row.part(
        format!("  processes {}", nvml.processes.len()),
        Style::new(),
    );
    // Those with most of it, as many as fit.
    let mut most: Vec<_> = nvml
        .processes
        .iter()
        .filter_map(|p| Some((p.bytes?, p.pid)))
        .collect();
    most.sort_unstable_by(|a, b| b.cmp(a));
    for (held, pid) in most {
        row = row.part(format!("  {pid}: {}", bytes(held as f64)), dim());
    }
    Some(row.line())
}

/// How much of the GPU's memory is managed, and how.
fn memory_line(gpu: &GpuSample, width: u16) -> Option<Line<'static>> {
    let queued = gpu.queued?;
    let mut row = Row::new(width).part("  memory", dim());
    for (name, chunks) in [
        ("used", queued.used),
        ("discarded", queued.discarded),
        ("unused", queued.unused),
        ("free", queued.free),
    ] {
        row = row.part(
            format!("  {name} {}", bytes(chunks as f64 * CHUNK)),
            Style::new(),
        );
    }
    Some(row.line())
}

/// Before there are rates: what was counted in all.
fn total_lines(gpu: &GpuSample, width: u16) -> Vec<Line<'static>> {
    let (to_gpu, to_host, faults, evicted) = match (&gpu.counts, &gpu.gpu.debug) {
        (Some(counts), _) => (
            counts
                .host_to_gpu
                .total()
                .saturating_add(counts.gpu_to_gpu.total()),
            counts.gpu_to_host.total(),
            counts.faults,
            Some(&counts.evictions),
        ),
        (None, Some(debug)) => (debug.bytes_in, debug.bytes_out, debug.faults, None),
        (None, None) => return Vec::new(),
    };
    let row = Row::new(width).part("  so far", dim());
    let row = row
        .part(format!("  in {}", bytes(to_gpu as f64)), Style::new())
        .part(format!("  out {}", bytes(to_host as f64)), Style::new())
        .part(format!("  faults {}", count(faults as f64)), Style::new());
    let mut lines = vec![match evicted {
        Some(chunks) => row
            .part(
                format!("  evicted {}", count(chunks.taken() as f64)),
                Style::new(),
            )
            .part(
                format!(" (discarded {})", count(chunks.discarded as f64)),
                dim(),
            )
            .line(),
        None => row.line(),
    }];
    if let Some(counts) = &gpu.counts {
        let mut row = Row::new(width).part("  why in", dim());
        for (name, sum) in counts.host_to_gpu.named() {
            if sum > 0 {
                row = row.part(format!("  {name} {}", bytes(sum as f64)), Style::new());
            }
        }
        lines.push(row.line());
    }
    lines
}

/// A value with its sparkline, and what it is made of.
fn rate_line(
    name: &str,
    value: String,
    history: &view::Line,
    made_of: Vec<String>,
    width: u16,
) -> Line<'static> {
    let mut row = Row::new(width)
        .part(format!("  {name:<8}"), dim())
        .part(format!("{value:>11}"), Style::new());
    if width >= NARROW {
        let bars = usize::from(width / 4).min(32);
        let bars = spark(history, bars);
        row = row.part(format!("  {bars}"), Style::new().fg(Color::Cyan));
    }
    for part in made_of {
        row = row.part(format!("  {part}"), Style::new());
    }
    row.line()
}

fn rate_lines(
    gpu: &GpuSample,
    rates: &Rates,
    history: &view::History,
    width: u16,
) -> Vec<Line<'static>> {
    let to_gpu = rates.to_gpu.total() + rates.from_gpus.total();
    let per_second = |rate: f64| format!("{}/s", bytes(rate));
    // NVIDIA's own counts do not say why.
    let ours = gpu.counts.is_some();
    let why = |moves: &Moves| -> Vec<String> {
        let named = moves.named().into_iter();
        named
            .filter(|(_, rate)| ours && *rate > 0.0)
            .map(|(name, rate)| format!("{name} {}", bytes(rate)))
            .collect()
    };
    let mut into = why(&rates.to_gpu);
    if rates.from_gpus.total() > 0.0 {
        into.insert(0, format!("GPUs {}", bytes(rates.from_gpus.total())));
    }
    let mut lines = vec![
        rate_line("in", per_second(to_gpu), &history.to_gpu, into, width),
        rate_line(
            "out",
            per_second(rates.to_host.total()),
            &history.to_host,
            why(&rates.to_host),
            width,
        ),
    ];
    let faults = format!("{}/s", count(rates.faults));
    let mut about = Vec::new();
    if ours && rates.faults > 0.0 {
        let share = (rates.duplicates / rates.faults * 100.0).round();
        about.push(format!("duplicates {share:.0} %"));
        about.push(format!("batches {}/s", count(rates.batches)));
    }
    lines.push(rate_line("faults", faults, &history.faults, about, width));
    if ours {
        let evicted = format!("{}/s", count(rates.evicted));
        let mut about = Vec::new();
        if rates.evicted > 0.0 {
            about.push(format!("discarded {}/s", count(rates.evicted_discarded)));
            about.push(format!("unused {}/s", count(rates.evicted_unused)));
        }
        lines.push(rate_line(
            "evicted",
            evicted,
            &history.evicted,
            about,
            width,
        ));
    }
    lines
}

fn ssd_lines(view: &View, ssd: &SsdSample, width: u16) -> Vec<Line<'static>> {
    let row = Row::new(width).part("SSD", bold());
    if !ssd.attached {
        return vec![row.part("  none is attached", dim()).line()];
    }
    let row = row
        .part(format!("  {}", bytes(ssd.bytes as f64)), Style::new())
        .part(
            format!("  mine {}", bytes(ssd.bytes_mine as f64)),
            Style::new(),
        );
    let Some(all) = &ssd.all else {
        return vec![row.part("  the rest is for root", dim()).line()];
    };
    let mut lines = vec![row
        .part(
            format!("  used {}", bytes(all.bytes_used as f64)),
            Style::new(),
        )
        .part(
            format!("  host {}", bytes(all.host_bytes as f64)),
            Style::new(),
        )
        .part(format!(" (most {})", bytes(all.host_peak as f64)), dim())
        .line()];
    let mut row = Row::new(width).part("  moved", dim());
    let moved = match &view.ssd {
        Some(rates) => [rates.spilled, rates.fetched, rates.written, rates.dropped]
            .map(|rate| format!("{}/s", bytes(rate))),
        None => {
            [all.spilled, all.fetched, all.written, all.dropped].map(|total| bytes(total as f64))
        }
    };
    let names = ["out", "in", "written", "discarded"];
    for (name, moved) in names.iter().zip(moved) {
        row = row.part(format!("  {name} {moved}"), Style::new());
    }
    lines.push(row.line());
    let bad = [
        ("refused", all.refused, Style::new()),
        ("write errors", all.write_errors, alarm()),
        ("read errors", all.read_errors, alarm()),
        ("lost pages", all.lost_pages, alarm()),
    ];
    if bad.iter().any(|&(_, number, _)| number > 0) {
        let mut row = Row::new(width).part("  trouble", dim());
        for (name, number, style) in bad.into_iter().filter(|&(_, number, _)| number > 0) {
            row = row.part(format!("  {name} {}", count(number as f64)), style);
        }
        lines.push(row.line());
    }
    lines
}

fn process_lines(view: &View, width: u16) -> Vec<Line<'static>> {
    let sample = &view.sample;
    if sample.processes.is_empty() {
        let says = match sample.processes_hidden {
            true => "No process of this user has UVM open.",
            false => "No process has UVM open.",
        };
        return vec![Row::new(width).cut(says, dim()).line()];
    }
    let name = if width < NARROW { 8 } else { 16 };
    let rates = !view.processes.is_empty();
    let unit = if rates { "/s" } else { "" };
    let mut row = Row::new(width).part(format!("{:>8}", "PID"), bold());
    row = row.part(format!(" {:<name$}", "COMMAND"), bold());
    let titles = [
        "ON GPU",
        "IN",
        "OUT",
        "FAULTS",
        "EVICTED",
        "PREDICTED",
        "TENANT SSD",
    ];
    for title in titles {
        let now = ["ON GPU", "PREDICTED", "TENANT SSD"].contains(&title);
        let unit = if now { "" } else { unit };
        let title = format!("{title}{unit}");
        row = row.part(format!(" {title:>11}"), bold());
    }
    let mut lines = vec![row.line()];
    let mut processes: Vec<_> = sample.processes.iter().collect();
    // Who moves most comes first.
    let moved = |process: &ProcessSample| match view.processes.get(&process.pid) {
        Some(rates) => rates.to_gpu.total() + rates.to_host.total() + rates.faults,
        None => 0.0,
    };
    processes.sort_by(|a, b| moved(b).total_cmp(&moved(a)).then(a.pid.cmp(&b.pid)));
    lines.extend(processes.iter().map(|process| {
        let mut row = Row::new(width).part(format!("{:>8}", process.pid), Style::new());
        let command: String = process
            .command
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        let command: String = command.chars().take(name).collect();
        row = row.part(format!(" {command:<name$}"), Style::new());
        for cell in cells(view.processes.get(&process.pid), rates, process) {
            row = row.part(format!(" {cell:>11}"), Style::new());
        }
        row.line()
    }));
    lines
}

/// The numbers of a process: a second's if there are any rates, or else its sums.
fn cells(now: Option<&Rates>, rates: bool, process: &ProcessSample) -> [String; 7] {
    let unknown = || "-".to_owned();
    let predicted = process.prefetching.filter(|about| about.kernels > 0);
    let predicted = predicted.map(|about| {
        let share = about.right as f64 / about.kernels as f64 * 100.0;
        format!("{share:.0} %")
    });
    let predicted = predicted.unwrap_or_else(unknown);
    let on_gpu = process.bytes_gpu.as_ref();
    let on_gpu = on_gpu.map_or_else(unknown, |gpus| bytes(gpus.values().sum::<u64>() as f64));
    let ssd = process.bytes_ssd_tenant;
    let ssd = ssd.map_or_else(unknown, |on_ssd| bytes(on_ssd as f64));
    let numbers = match (rates, now, &process.gpus) {
        (true, Some(now), _) => Some([
            now.to_gpu.total() + now.from_gpus.total(),
            now.to_host.total(),
            now.faults,
            now.evicted,
        ]),
        (false, _, Some(gpus)) => {
            let mut sums = [0.0; 4];
            for counts in gpus.values() {
                sums[0] += (counts.host_to_gpu.total() as f64) + counts.gpu_to_gpu.total() as f64;
                sums[1] += counts.gpu_to_host.total() as f64;
                sums[2] += counts.faults as f64;
                sums[3] += counts.evictions.taken() as f64;
            }
            Some(sums)
        }
        _ => None,
    };
    match numbers {
        Some([to_gpu, to_host, faults, evicted]) => [
            on_gpu,
            bytes(to_gpu),
            bytes(to_host),
            count(faults),
            count(evicted),
            predicted,
            ssd,
        ],
        None => [
            on_gpu,
            unknown(),
            unknown(),
            unknown(),
            unknown(),
            predicted,
            ssd,
        ],
    }
}
