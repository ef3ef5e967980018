// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The table of processes. A column is there if it has a number of some process.

use ratatui::style::{Color, Style};
use ratatui::text::Line;
use uvmrust_system::Counts;

use crate::rates::Rates;
use crate::sample::ProcessSample;
use crate::screen::{alarm, bold, dim, Row, NARROW};
use crate::units::{bytes, count, spark};
use crate::view::View;

/// A process at this moment.
struct Now<'a> {
    process: &'a ProcessSample,
    /// Its rates, if any process has some.
    rates: Option<Option<&'a Rates>>,
}

struct Column {
    title: &'static str,
    /// It shows what happens in a second, once two samples are there.
    is_rate: bool,
    /// What it shows of a process; `None` if that is not known.
    cell: fn(&Now<'_>) -> Option<String>,
}

/// The columns, the most important first.
const COLUMNS: [Column; 13] = [
    Column {
        title: "ON GPU",
        is_rate: false,
        cell: |now| sum(now.process.bytes_gpu.as_ref()?.values()),
    },
    Column {
        title: "MAX",
        is_rate: false,
        cell: maximum,
    },
    Column {
        title: "IN",
        is_rate: true,
        cell: |now| {
            let into = now.number(
                |rates| rates.to_gpu.total() + rates.from_gpus.total(),
                |counts| counts.host_to_gpu.total() as f64 + counts.gpu_to_gpu.total() as f64,
            );
            into.map(bytes)
        },
    },
    Column {
        title: "OUT",
        is_rate: true,
        cell: |now| {
            let out = |counts: &Counts| counts.gpu_to_host.total() as f64;
            now.number(|rates| rates.to_host.total(), out).map(bytes)
        },
    },
    Column {
        title: "FAULTS",
        is_rate: true,
        cell: |now| {
            let faults = |counts: &Counts| counts.faults as f64;
            now.number(|rates| rates.faults, faults).map(count)
        },
    },
    Column {
        title: "ON HOST",
        is_rate: false,
        cell: |now| sum([now.process.bytes_host?].iter()),
    },
    Column {
        title: "EVICTED",
        is_rate: true,
        cell: |now| {
            let evicted = |counts: &Counts| counts.evictions.taken() as f64;
            now.own(|rates| rates.evicted, evicted).map(count)
        },
    },
    Column {
        title: "THRASHED",
        is_rate: true,
        cell: |now| {
            let thrashed = |counts: &Counts| counts.thrashed as f64;
            now.own(|rates| rates.thrashed, thrashed).map(count)
        },
    },
    Column {
        title: "DISCARDED",
        is_rate: false,
        cell: |now| sum(now.process.bytes_gpu_discarded.as_ref()?.values()),
    },
    Column {
        title: "PREDICTED",
        is_rate: false,
        cell: |now| {
            let about = now.process.prefetching.filter(|about| about.kernels > 0)?;
            let share = about.right as f64 / about.kernels as f64 * 100.0;
            Some(format!("{share:.0} %"))
        },
    },
    Column {
        title: "WASTED",
        is_rate: true,
        cell: |now| {
            // Nothing is brought for who announces nothing.
            now.process.prefetching?;
            let wasted = |counts: &Counts| counts.prefetch_wasted as f64;
            now.own(|rates| rates.prefetch_wasted, wasted).map(count)
        },
    },
    Column {
        title: "ON SSD",
        is_rate: false,
        cell: |now| sum([now.process.bytes_ssd?].iter()),
    },
    Column {
        title: "TENANT SSD",
        is_rate: false,
        cell: |now| sum([now.process.bytes_ssd_tenant?].iter()),
    },
];

/// The column behind which a sparkline shows what was moved, in both directions.
const SPARK_BEHIND: &str = "OUT";

/// Values of that sparkline: few where columns are what there is no room for.
fn bars(width: u16) -> usize {
    match width {
        ..NARROW => 0,
        NARROW..200 => 6,
        _ => 12,
    }
}

/// Those without which there is no table, known or not.
const ALWAYS: [&str; 4] = ["ON GPU", "IN", "OUT", "FAULTS"];

impl Now<'_> {
    /// As [`Self::number`], of what only our module tells, and UVM's tools interface does not.
    fn own(&self, rate: fn(&Rates) -> f64, total: fn(&Counts) -> f64) -> Option<f64> {
        self.process.gpus.as_ref()?;
        self.number(rate, total)
    }

    /// A second's number if there are any rates, or else the sum over all GPUs.
    fn number(&self, rate: fn(&Rates) -> f64, total: fn(&Counts) -> f64) -> Option<f64> {
        match self.rates {
            Some(rates) => rates.map(rate),
            None => Some(self.process.gpus.as_ref()?.values().map(total).sum()),
        }
    }
}

fn sum<'a>(numbers: impl Iterator<Item = &'a u64>) -> Option<String> {
    Some(bytes(numbers.sum::<u64>() as f64))
}

/// What it may take of all GPUs that have a maximum for it, with a mark where it takes all of one's.
fn maximum(now: &Now<'_>) -> Option<String> {
    let of = &now.process.bytes_gpu_max;
    let mark = if now.process.is_at_maximum() { "!" } else { "" };
    let max = sum(of.values()).filter(|_| !of.is_empty())?;
    Some(format!("{max}{mark}"))
}

/// The lines of all processes, those first that move most.
pub(crate) fn process_lines(view: &View, width: u16) -> Vec<Line<'static>> {
    let sample = &view.sample;
    if sample.processes.is_empty() {
        let says = match sample.processes_hidden {
            true => "No process of this user has UVM open.",
            false => "No process has UVM open.",
        };
        return vec![Row::new(width).cut(says, dim()).line()];
    }
    let has_rates = !view.processes.is_empty();
    let now = |process| Now {
        process,
        rates: has_rates.then(|| view.processes.get(&process.pid)),
    };
    let is_known = |column: &&Column| {
        let mut processes = sample.processes.iter();
        ALWAYS.contains(&column.title)
            || processes.any(|process| (column.cell)(&now(process)).is_some())
    };
    let columns: Vec<_> = COLUMNS.iter().filter(is_known).collect();
    let name = if width < NARROW { 8 } else { 16 };
    let mut row = Row::new(width).part(format!("{:>8}", "PID"), bold());
    row = row.part(format!(" {:<name$}", "COMMAND"), bold());
    let bars = if has_rates { bars(width) } else { 0 };
    for column in &columns {
        let unit = if has_rates && column.is_rate {
            "/s"
        } else {
            ""
        };
        let title = format!("{}{unit}", column.title);
        row = row.part(format!(" {title:>11}"), bold());
        if column.title == SPARK_BEHIND && bars > 0 {
            row = row.part(format!(" {:>bars$}", "MOVED"), bold());
        }
    }
    let mut lines = vec![row.line()];
    let mut processes: Vec<_> = sample.processes.iter().collect();
    let moved = |process: &ProcessSample| match view.processes.get(&process.pid) {
        Some(rates) => rates.to_gpu.total() + rates.to_host.total() + rates.faults,
        None => 0.0,
    };
    processes.sort_by(|a, b| moved(b).total_cmp(&moved(a)).then(a.pid.cmp(&b.pid)));
    lines.extend(processes.into_iter().map(|process| {
        let mut row = Row::new(width).part(format!("{:>8}", process.pid), Style::new());
        let command = process.command.chars().filter(|c| !c.is_control());
        let command: String = command.take(name).collect();
        row = row.part(format!(" {command:<name$}"), Style::new());
        for column in &columns {
            let cell = (column.cell)(&now(process)).unwrap_or_else(|| "-".into());
            let is_full = column.title == "MAX" && process.is_at_maximum();
            let style = if is_full { alarm() } else { Style::new() };
            row = row.part(format!(" {cell:>11}"), style);
            if column.title == SPARK_BEHIND && bars > 0 {
                let moved = view.moved.get(&process.pid);
                let moved = moved.map_or_else(|| " ".repeat(bars), |moved| spark(moved, bars));
                row = row.part(format!(" {moved}"), Style::new().fg(Color::Cyan));
            }
        }
        row.line()
    }));
    lines
}
