// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! G10 (MICRO 2023), figures 11 to 19.
//!
//! The published numbers are the artifact's own data files, so they are exact; ours
//! are its traces on its machine (`--model g10`).

use serde::Deserialize;
use uvmsim_g10::Machine;
use uvmsim_g10::Policy;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;

use super::artifact;
use super::artifact::Table;
use super::desk::both;
use super::desk::unpublished;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Measured;
use super::desk::Origin;
use super::desk::Point;
use super::sheet;
use super::sheet::Sheet;
use crate::g10::Runner;

/// Network of the importer, its name in figures, in files of results and of slowdowns, the
/// batch of figure 11.
#[derive(Deserialize)]
struct Net {
    name: String,
    label: String,
    file: String,
    traces: String,
    batch: u64,
}

impl Net {
    fn all() -> Vec<Self> {
        sheet::rows("g10-11")
    }

    /// Of the networks and batches of a figure's rows.
    fn of(sheet: &Sheet) -> Vec<(Self, String)> {
        let rows: Vec<(String, String)> = sheet.rows();
        let find = |name: &str| Self::all().into_iter().find(|n| n.name == name);
        let rows = rows.into_iter();
        rows.filter_map(|(name, batch)| Some((find(&name)?, batch)))
            .collect()
    }

    /// Its name and the batch of figure 11.
    fn title(&self) -> String {
        format!("{} {}", self.label, self.batch)
    }

    fn run(&self, desk: &mut Desk, batch: u64, policy: Policy, machine: &Machine) -> Answer {
        let point = Point {
            origin: Origin::Artifact,
            ..Point::new(&self.name, batch, "a100")
        };
        desk.on_g10(&point, Runner::Built(policy), machine)
    }

    /// The network's step under a policy at the batch of figure 11, on the artifact's machine.
    fn plain(&self, desk: &mut Desk, policy: Policy) -> Answer {
        self.run(desk, self.batch, policy, &Machine::default())
    }
}

/// The artifact's name of each policy of figure 11, and ours.
const POLICIES: [(&str, Policy); 6] = [
    ("lru", Policy::BaseUvm),
    ("FlashNeuron", Policy::FlashNeuron),
    ("deepUM", Policy::DeepUm),
    ("G10GDSSSD", Policy::G10Gds),
    ("G10GDSFULL", Policy::G10Host),
    G10,
];
const G10: (&str, Policy) = ("prefetch_lru", Policy::G10);

/// Those of most figures.
const FOUR: [(&str, Policy); 4] = [POLICIES[0], POLICIES[1], POLICIES[2], G10];

const CYCLES: f64 = 1.2e9;
const GIB: f64 = (1u64 << 30) as f64;
const PAGES_IN_GIB: f64 = GIB / 4096.0;

/// What a file of the artifact says, by block and column.
struct Data(Result<Table, String>);

impl Data {
    fn read(desk: &Desk, file: &str, lines: usize) -> Self {
        Self(artifact::table(desk.dir(), file, lines))
    }

    fn get(&self, block: &str, column: &str, line: usize) -> Value {
        let Table { columns, blocks } = match &self.0 {
            Ok(table) => table,
            Err(why) => return Value::Absent(why.clone()),
        };
        // The last block of the name, which is a network's or begins with it.
        let named = |b: &&(String, _)| b.0.split('|').next() == Some(block);
        let block = blocks.iter().rev().find(named);
        let column = columns.iter().position(|c| c == column);
        let value = block.and_then(|(_, lines)| lines.get(line)?.get(column?));
        value.cloned().unwrap_or_else(Value::none)
    }

    /// The share of the ideal speed.
    fn speed(&self, block: &str, column: &str) -> Value {
        quotient(&self.get(block, "ideal", 0), &self.get(block, column, 0))
    }

    /// Batches or sizes that the file has a block for, in its order.
    fn blocks(&self) -> Vec<String> {
        let names = |t: &Table| t.blocks.iter().map(|b| b.0.clone()).collect();
        self.0.as_ref().map_or(Vec::new(), names)
    }
}

fn scaled(v: Value, factor: f64) -> Value {
    match v {
        Value::Number(v) => Value::Number(v * factor),
        other => other,
    }
}

/// `a / b`, both published.
fn quotient(a: &Value, b: &Value) -> Value {
    match (a.number(), b.number()) {
        (Some(a), Some(b)) => Value::Number(a / b),
        (None, _) => a.clone(),
        _ => b.clone(),
    }
}

fn speed(answer: &Answer) -> Value {
    value(answer, Measured::normalized)
}

/// Figure 11, and ours as a column that the paper has not.
pub fn figure_11(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let data = Data::read(desk, "overall_performance/all.base.txt", 1);
    let row = |net: Net| {
        let cells = POLICIES.map(|(name, policy)| {
            Cell::new(
                data.speed(&net.label, name),
                speed(&net.plain(desk, policy)),
            )
        });
        let ours = unpublished(speed(&net.plain(desk, Policy::Best)));
        Row::new(net.title(), cells.into_iter().chain([ours]))
    };
    Net::all().into_iter().map(row).collect()
}

/// Figure 12. The artifact splits what is not stall by whether a queue of
/// transfers has anything in it; that is not kept here.
pub fn figure_12(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let parts = ["compute", "overlap", "stall"]
        .map(|p| Data::read(desk, &format!("overall_breakdown/{p}.txt"), 1));
    let row = |net: Net| {
        let cells = FOUR.map(|(name, policy)| {
            // FlashNeuron's are in ms, the others in cycles.
            let unit = match policy {
                Policy::FlashNeuron => 1e-3,
                _ => 1.0 / CYCLES,
            };
            let [compute, overlap, stall] =
                [0, 1, 2].map(|i: usize| scaled(parts[i].get(&net.label, name, 0), unit));
            let running = match (compute.number(), overlap.number()) {
                (Some(a), Some(b)) => Value::Number(a + b),
                _ => compute,
            };
            let answer = net.plain(desk, policy);
            let run = Cell::new(running, value(&answer, |m| m.ideal_s.min(m.step_s)));
            let stall = Cell::new(stall, value(&answer, |m| (m.step_s - m.ideal_s).max(0.0)));
            [run, stall]
        });
        Row::new(net.title(), cells.into_iter().flatten())
    };
    Net::all().into_iter().map(row).collect()
}

/// Figure 13, as shares.
pub fn figure_13(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let row = |net: Net| {
        let cells = FOUR.map(|(name, policy)| {
            let answer = net.plain(desk, policy);
            let file = format!("{}-{name}.txt", net.traces);
            [1.01, 2.0].map(|times| Cell {
                published: artifact::slowed(desk.dir(), &file, times),
                ours: value(&answer, |m| {
                    let above = m.slowdowns.iter().filter(|s| **s > times).count();
                    above as f64 / m.slowdowns.len().max(1) as f64
                }),
            })
        });
        Row::new(net.title(), cells.into_iter().flatten())
    };
    Net::all().into_iter().map(row).collect()
}

/// Figure 14, traffic of a step.
pub fn figure_14(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let data = Data::read(desk, "overall_traffic/traffic.txt", 4);
    let mut rows = Vec::new();
    for net in Net::all() {
        for (name, policy) in FOUR {
            let answer = net.plain(desk, policy);
            let cells = (0..4).map(|i| {
                Cell::new(
                    scaled(data.get(&net.label, name, i), 1.0 / PAGES_IN_GIB),
                    value(&answer, |m| m.traffic[i] as f64 / GIB),
                )
            });
            rows.push(Row::new(format!("{} {policy}", net.title()), cells));
        }
    }
    rows
}

/// `rows`, or one that says why there is none: what is wrong with `file`.
fn at_least_one(rows: Vec<Row>, desk: &Desk, sheet: &Sheet, file: &str) -> Vec<Row> {
    if !rows.is_empty() {
        return rows;
    }
    let why = Data::read(desk, file, 1).0.err().unwrap_or_default();
    let cell = |_| Cell::new(Value::Absent(why.clone()), Value::Absent(why.clone()));
    vec![Row::new("all", sheet.figure.columns.iter().map(cell))]
}

/// A line of the speeds under four policies beside those of a block of `data`.
fn speeds(
    desk: &mut Desk,
    net: &Net,
    (label, batch): (String, u64),
    (data, block): (&Data, &str),
    machine: &Machine,
) -> Row {
    let cells = FOUR.map(|(name, policy)| {
        Cell::new(
            data.speed(block, name),
            speed(&net.run(desk, batch, policy, machine)),
        )
    });
    Row::new(label, cells)
}

/// Figure 15, speed by batch size.
pub fn figure_15(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let mut rows = Vec::new();
    for net in Net::all() {
        let data = Data::read(desk, &format!("overall_batchsize/{}.txt", net.file), 1);
        for block in data.blocks() {
            let of = (format!("{} {block}", net.label), block.parse().unwrap_or(0));
            rows.push(speeds(desk, &net, of, (&data, &block), &Machine::default()));
        }
    }
    at_least_one(rows, desk, sheet, "overall_batchsize/bert.txt")
}

/// A row of step times against host memory, of `batch` in `file`.
fn host_row(
    desk: &mut Desk,
    sheet: &Sheet,
    net: &Net,
    batch: &str,
    policy: Policy,
    file: &str,
) -> Row {
    let data = Data::read(desk, file, 1);
    let sizes = sheet.figure.columns.iter();
    let cells = sizes.map(|column| {
        let gib = column.trim_end_matches(" GiB");
        let published = scaled(data.get(gib, batch, 0), 1.0 / CYCLES);
        if published == Value::none() {
            return unpublished(Value::none());
        }
        let machine = Machine {
            host_gib: gib.parse().unwrap_or(128.0),
            ..Machine::default()
        };
        let answer = net.run(desk, batch.parse().unwrap_or(0), policy, &machine);
        Cell::new(published, value(&answer, |m| m.step_s))
    });
    Row::new(format!("{} {batch} {policy}", net.label), cells)
}

/// Figure 16, host memory under G10.
pub fn figure_16(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let mut rows = Vec::new();
    for net in Net::all() {
        let file = format!("sensitivity_cpumem/{}.txt", net.file);
        let data = Data::read(desk, &file, 1).0;
        let batches = data.map_or(Vec::new(), |t| t.columns);
        for batch in batches {
            rows.push(host_row(desk, sheet, &net, &batch, Policy::G10, &file));
        }
    }
    at_least_one(rows, desk, sheet, "sensitivity_cpumem/bert.txt")
}

/// Figure 17, host memory by policy.
pub fn figure_17(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let mut rows = Vec::new();
    for (net, batch) in Net::of(sheet) {
        for (name, policy) in [POLICIES[1], POLICIES[2], G10] {
            let file = format!("sensitivity_cpumem_combined/{name}/{}.txt", net.file);
            rows.push(host_row(desk, sheet, &net, &batch, policy, &file));
        }
    }
    rows
}

/// Figure 18, bandwidths of the SSD.
pub fn figure_18(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let mut rows = Vec::new();
    for net in Net::all() {
        let batch = if net.name == "BERT" { 512 } else { net.batch };
        let data = Data::read(desk, &format!("sensitivity_ssdbw/{}.txt", net.file), 1);
        for block in data.blocks() {
            let machine = Machine {
                ssd_gbps: block.parse().unwrap_or(3.2),
                pcie_gbps: 32.0,
                ..Machine::default()
            };
            let of = (format!("{} {batch}, {block} GB/s", net.label), batch);
            rows.push(speeds(desk, &net, of, (&data, &block), &machine));
        }
    }
    at_least_one(rows, desk, sheet, "sensitivity_ssdbw/bert.txt")
}

/// G10's run with a profile that is wrong by so much.
fn with_error(desk: &mut Desk, net: &Net, percent: &str) -> Answer {
    let error: f64 = percent.trim_end_matches('%').parse().unwrap_or(0.0);
    let machine = Machine {
        time_error: error / 100.0,
        seed: Machine::artifact_seed(&net.name),
        ..Machine::default()
    };
    net.run(desk, net.batch, Policy::G10, &machine)
}

/// Figure 19, profiles that are wrong.
pub fn figure_19(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let data = Data::read(desk, "sensitivity_variation/all.txt", 1);
    let row = |net: Net| {
        let right = with_error(desk, &net, "0%");
        let cells = sheet.figure.columns.iter().map(|percent| {
            let [published, exact] = [percent, "0%"].map(|p| data.get(&net.label, p, 0));
            let speed = |a: &Measured, b: &Measured| a.normalized() / b.normalized();
            let ours = both(&with_error(desk, &net, percent), &right, speed);
            Cell::new(quotient(&published, &exact), ours)
        });
        Row::new(net.title(), cells)
    };
    Net::all().into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use uvmsim_trace::testing::g10_traces as traces;

    use super::*;

    /// How far a number of ours may be from the published one.
    const NEAR: f64 = 0.0013;

    /// Those that are further, and how far each may be; why is not known.
    const FURTHER: [(&str, f64); 1] =
        [("sensitivity_ssdbw/bert.txt: BERT 512 base-uvm 12.8", 0.004)];

    /// What `f` makes once its runs are made.
    fn made<T>(dir: PathBuf, f: impl Fn(&mut Desk) -> T) -> T {
        let mut desk = Desk::new(dir);
        f(&mut desk);
        desk.run(2, None, |_| {});
        f(&mut desk)
    }

    /// What a number is of, the published one, ours.
    type Compared = (String, Value, Value);

    /// Whether all of `cells` that can be compared are near, or fail in both; says which do not.
    /// One that is called further must be.
    fn assert_near(cells: Vec<Compared>) {
        let (mut compared, mut near, mut wrong) = (0, 0, Vec::new());
        for (what, published, ours) in cells {
            let off = match (&published, &ours) {
                (_, Value::Absent(_)) => continue,
                (Value::Fails(_), Value::Fails(_)) => 0.0,
                (Value::Number(a), Value::Number(b)) => (b - a).abs() / a.max(1.0 / PAGES_IN_GIB),
                _ => f64::INFINITY,
            };
            compared += 1;
            near += usize::from(off <= NEAR);
            let further = FURTHER.iter().find(|f| f.0 == what);
            let allowed = further.map_or(0.0..=NEAR, |f| NEAR..=f.1);
            if !allowed.contains(&off) {
                wrong.push(format!(
                    "{what}: {ours:?}, published {published:?}, off by {off}"
                ));
            }
        }
        eprintln!("of {compared} cells {near} are within 0.13 %");
        assert!(compared > 0, "no trace was found");
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Cycles of a step under each policy, of blocks of a file of figures 11, 15 and 18.
    fn block(desk: &mut Desk, net: &Net, batch: u64, file: &str, all: &mut Vec<Compared>) {
        let data = Data::read(desk, file, 1);
        for block in data.blocks() {
            let name = block.split('|').next().unwrap_or_default();
            let mut machine = Machine::default();
            let mut batch = batch;
            match file.split('/').next() {
                Some("overall_batchsize") => batch = name.parse().unwrap(),
                Some("sensitivity_ssdbw") => {
                    machine.ssd_gbps = name.parse().unwrap();
                    machine.pcie_gbps = 32.0;
                }
                _ if name != net.label => continue,
                _ => {}
            }
            for (column, policy) in POLICIES.into_iter().chain([("ideal", Policy::Ideal)]) {
                let published = data.get(name, column, 0);
                if published != Value::none() {
                    let answer = net.run(desk, batch, policy, &machine);
                    let ours = value(&answer, |m| m.step_s * CYCLES);
                    let what = format!("{file}: {} {batch} {policy} {name}", net.label);
                    all.push((what, published, ours));
                }
            }
        }
    }

    #[test]
    fn every_published_cell_whose_trace_is_here() {
        let Some(dir) = traces() else { return };
        assert_near(made(dir, |desk| {
            let mut all = Vec::new();
            for net in Net::all() {
                let (file, batch) = (&net.file, net.batch);
                let at_32 = if net.name == "BERT" { 512 } else { batch };
                for (batch, file) in [
                    (batch, "overall_performance/all.base.txt".into()),
                    (batch, format!("overall_batchsize/{file}.txt")),
                    (at_32, format!("sensitivity_ssdbw/{file}.txt")),
                ] {
                    block(desk, &net, batch, &file, &mut all);
                }
            }
            all
        }));
    }

    /// Figure 14's pages, and the seconds of 16 and 17, which has points that were not run.
    #[test]
    fn every_published_line_whose_trace_is_here() {
        let Some(dir) = traces() else { return };
        type Rows = fn(&mut Desk, &Sheet) -> Vec<Row>;
        let figures: [(_, Rows); 3] = [
            ("g10-14", figure_14),
            ("g10-16", figure_16),
            ("g10-17", figure_17),
        ];
        for (name, make) in figures {
            let mut sheets = sheet::SHEETS.iter();
            let sheet = sheets.find(|s| s.figure.name == name).unwrap();
            let rows = made(dir.clone(), |desk| make(desk, sheet));
            let cells = rows.into_iter().flat_map(|row| {
                let cells = row.cells.into_iter();
                cells.map(move |c| (format!("{name} {}", row.label), c.published, c.ours))
            });
            let ran = |(_, p, _): &Compared| name != "g10-17" || p.number().is_some();
            assert_near(cells.filter(ran).collect());
        }
    }

    /// Figure 19: the plan is made with the profile, the step takes other times.
    #[test]
    fn profiling_errors_of_figure_19() {
        let Some(dir) = traces() else { return };
        assert_near(made(dir, |desk| {
            let data = Data::read(desk, "sensitivity_variation/all.txt", 1);
            let mut all = Vec::new();
            for net in Net::all() {
                for percent in ["0%", "5%", "10%", "15%", "20%", "25%"] {
                    let ours = speed(&with_error(desk, &net, percent));
                    let what = format!("{} {percent}", net.label);
                    all.push((what, data.get(&net.label, percent, 0), ours));
                }
            }
            all
        }));
    }

    /// Ours is ahead of G10 on every headline point, and does not mind wrong profiles.
    #[test]
    fn our_planner_is_ahead_and_robust() {
        let Some(dir) = traces() else { return };
        let all = made(dir, |desk| {
            let run = |desk: &mut Desk, net: &Net, policy, time_error| {
                let machine = Machine {
                    time_error,
                    seed: 7,
                    ..Machine::default()
                };
                speed(&net.run(desk, net.batch, policy, &machine)).number()
            };
            let of = |net: Net| {
                let runs = [(Policy::Best, 0.0), (Policy::Best, 0.2), (Policy::G10, 0.0)];
                let [best, wrong, g10] = runs.map(|(policy, off)| run(desk, &net, policy, off));
                Some((best?, wrong?, g10?, net))
            };
            Net::all().into_iter().filter_map(of).collect::<Vec<_>>()
        });
        for (best, wrong, g10, net) in &all {
            let net = &net.label;
            eprintln!("{net}: {best:.4}, with times 20 % off {wrong:.4}, G10 {g10:.4}");
            assert!(best > g10, "{net}: {best} against {g10}");
            assert!(*wrong > best * 0.99, "{net}: {wrong} where times are off");
            assert!(net != "ViT" || *best >= 0.82);
        }
        assert!(!all.is_empty());
        let product: f64 = all.iter().map(|a| a.0).product();
        assert!(product.powf(1.0 / all.len() as f64) >= 0.95);
    }
}
