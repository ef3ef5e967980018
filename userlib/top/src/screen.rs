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
use crate::processes::process_lines;
use crate::rates::{Moves, Rates};
use crate::sample::{GpuSample, SsdSample};
use crate::units::{bytes, count, spark};
use crate::view::{self, View};

/// Below this many columns there are no sparklines, and names are short.
pub(crate) const NARROW: u16 = 64;

/// Bytes of a chunk.
const CHUNK: f64 = 2097152.0;

pub(crate) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub(crate) fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

pub(crate) fn alarm() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

/// A line that is filled up to its width.
pub(crate) struct Row {
    spans: Vec<Span<'static>>,
    left: usize,
}

impl Row {
    pub(crate) fn new(width: u16) -> Self {
        Self {
            spans: Vec::new(),
            left: width.into(),
        }
    }

    /// Adds a part if it fits; what comes behind one that does not is left out, too.
    pub(crate) fn part(mut self, text: impl Into<String>, style: Style) -> Self {
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
    pub(crate) fn cut(self, text: &str, style: Style) -> Self {
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

    pub(crate) fn line(self) -> Line<'static> {
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
    let hidden = match sample.processes_hidden_count {
        Some(0) => String::new(),
        _ if !sample.processes_hidden => String::new(),
        Some(hidden) => format!("  hidden {hidden}"),
        None => "  hidden ?".into(),
    };
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
    let thrashed = gpu.counts.as_ref().map_or(0, |counts| counts.thrashed);
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
            .part(
                format!("  thrashed {}", count(thrashed as f64)),
                Style::new(),
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
        let thrashed = format!("{}/s", count(rates.thrashed));
        let mut about = Vec::new();
        if rates.prefetch_wasted > 0.0 {
            let wasted = count(rates.prefetch_wasted);
            about.push(format!("prefetched in vain {wasted}/s"));
        }
        lines.push(rate_line(
            "thrashed",
            thrashed,
            &history.thrashed,
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
