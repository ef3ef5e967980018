// SPDX-License-Identifier: GPL-2.0 OR MIT

//! G10 (MICRO 2023), figures 11 to 19.
//!
//! The published numbers are the artifact's own data files, so they are exact; ours
//! are its traces on its machine (`--model g10`).

use std::collections::BTreeMap;

use uvmsim_engine::g10::Machine;
use uvmsim_engine::g10::Policy;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Figure;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;

use super::artifact;
use super::artifact::Table;
use super::desk::both;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use crate::g10::Runner;

/// Network of the importer, its name in figures, in files of results, the batch of
/// figure 11.
struct Net {
    name: &'static str,
    label: &'static str,
    file: &'static str,
    traces: &'static str,
    batch: u64,
}

const NETS: [Net; 5] = [
    net("BERT", "BERT", "bert", "BERT_Base", 256),
    net("VIT", "ViT", "vit", "VIT", 1280),
    net(
        "Inceptionv3",
        "Inceptionv3",
        "inception",
        "Inceptionv3",
        1536,
    ),
    net("ResNet152", "ResNet152", "resnet", "ResNet152", 1280),
    net("SENet154", "SENet154", "senet", "SENet154", 1024),
];

const fn net(
    name: &'static str,
    label: &'static str,
    file: &'static str,
    traces: &'static str,
    batch: u64,
) -> Net {
    Net {
        name,
        label,
        file,
        traces,
        batch,
    }
}

/// The artifact's name of each policy, and ours.
const POLICIES: [(&str, Policy); 7] = [
    ("lru", Policy::BaseUvm),
    ("FlashNeuron", Policy::FlashNeuron),
    ("deepUM", Policy::DeepUm),
    ("G10GDSSSD", Policy::G10Gds),
    ("G10GDSFULL", Policy::G10Host),
    ("prefetch_lru", Policy::G10),
    ("ideal", Policy::Ideal),
];

/// Those of most figures.
const FOUR: [&str; 4] = ["lru", "FlashNeuron", "deepUM", "prefetch_lru"];

const EXACT: &str = "the artifact's data files, exact";
const MACHINE: &str = "the artifact's traces and machine (--model g10): A100 40 GB, 128 GiB host, link 15.754 GB/s, SSD 3.2 GB/s";
const CYCLES: f64 = 1.2e9;
const GIB: f64 = (1u64 << 30) as f64;
const PAGES_IN_GIB: f64 = GIB / 4096.0;

fn policy(name: &str) -> Option<Policy> {
    POLICIES.iter().find(|p| p.0 == name).map(|p| p.1)
}

fn columns(names: &[&str]) -> Vec<String> {
    let ours = |n: &&str| policy(n).map_or((*n).to_string(), |p| p.as_str().to_string());
    names.iter().map(ours).collect()
}

fn figure(
    name: &'static str,
    source: &'static str,
    title: &'static str,
    unit: &'static str,
) -> Figure {
    Figure {
        digits: 3,
        published: EXACT,
        machine: MACHINE.into(),
        ..Figure::new(name, source, title, unit)
    }
}

/// What a file of the artifact says, by block and column.
struct Data(Result<BTreeMap<(String, String, usize), Value>, String>);

impl Data {
    fn read(desk: &Desk, file: &str, lines: usize) -> Self {
        let table = artifact::table(desk.dir(), file, lines);
        Self(table.map(|Table { columns, blocks }| {
            let mut all = BTreeMap::new();
            for (name, values) in blocks {
                let name = name.split('|').next().unwrap_or_default().to_string();
                for (i, line) in values.into_iter().enumerate() {
                    for (column, v) in columns.iter().zip(line) {
                        all.insert((name.clone(), column.clone(), i), v);
                    }
                }
            }
            all
        }))
    }

    fn get(&self, block: &str, column: &str, line: usize) -> Value {
        match &self.0 {
            Ok(all) => {
                let key = (block.to_string(), column.to_string(), line);
                all.get(&key).cloned().unwrap_or_else(Value::none)
            }
            Err(why) => Value::Absent(why.clone()),
        }
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

fn run(desk: &mut Desk, net: &Net, batch: u64, policy: Policy, machine: &Machine) -> Answer {
    desk.artifact(net.name, batch, Runner::Built(policy), machine)
}

/// Figure 11, and ours as a column that the paper has not.
pub fn figure_11(desk: &mut Desk) -> Figure {
    let data = Data::read(desk, "overall_performance/all.base.txt", 1);
    let mut f = figure(
        "g10-11",
        "G10 figure 11",
        "training speed",
        "share of the ideal speed",
    );
    let names: Vec<&str> = POLICIES[..6].iter().map(|p| p.0).collect();
    f.columns = columns(&names);
    f.columns.push("best (ours)".into());
    for net in &NETS {
        let ideal = data.get(net.label, "ideal", 0);
        let mut cells: Vec<Cell> = POLICIES[..6]
            .iter()
            .map(|&(name, policy)| Cell {
                published: quotient(&ideal, &data.get(net.label, name, 0)),
                ours: value(
                    &run(desk, net, net.batch, policy, &Machine::default()),
                    |m| m.normalized(),
                ),
            })
            .collect();
        cells.push(Cell {
            published: Value::none(),
            ours: value(
                &run(desk, net, net.batch, Policy::Best, &Machine::default()),
                |m| m.normalized(),
            ),
        });
        f.rows.push(Row {
            label: format!("{} {}", net.label, net.batch),
            cells,
        });
    }
    f.notes.push("base UVM, DeepUM+ and G10 are simulated page by page, the others by tensors, as in the artifact; so the step from g10-host to g10 is also one between simulators".into());
    f
}

/// Figure 12. The artifact splits what is not stall by whether a queue of
/// transfers has anything in it; that is not kept here.
pub fn figure_12(desk: &mut Desk) -> Figure {
    let parts = ["compute", "overlap", "stall"]
        .map(|p| Data::read(desk, &format!("overall_breakdown/{p}.txt"), 1));
    let mut f = figure("g10-12", "G10 figure 12", "where the step's time goes", "s");
    f.columns = ["uvm", "flash", "deepum", "g10"]
        .iter()
        .flat_map(|p| [format!("{p} run"), format!("{p} stall")])
        .collect();
    for net in &NETS {
        let mut cells = Vec::new();
        for name in FOUR {
            // FlashNeuron's are in ms, the others in cycles.
            let unit = if name == "FlashNeuron" {
                1e-3
            } else {
                1.0 / CYCLES
            };
            let [compute, overlap, stall] =
                [0, 1, 2].map(|i: usize| scaled(parts[i].get(net.label, name, 0), unit));
            let running = match (compute.number(), overlap.number()) {
                (Some(a), Some(b)) => Value::Number(a + b),
                _ => compute,
            };
            let Some(policy) = policy(name) else { continue };
            let answer = run(desk, net, net.batch, policy, &Machine::default());
            cells.push(Cell {
                published: running,
                ours: value(&answer, |m| m.ideal_s.min(m.step_s)),
            });
            cells.push(Cell {
                published: stall,
                ours: value(&answer, |m| (m.step_s - m.ideal_s).max(0.0)),
            });
        }
        f.rows.push(Row {
            label: format!("{} {}", net.label, net.batch),
            cells,
        });
    }
    f.notes.push("\"run\" is the paper's compute and overlap together; ours is the ideal time, and stall is the rest of the step".into());
    f.notes.push("for base UVM the artifact's parts do not add up to its step (BERT: 24.9e9 of 23.6e9 cycles), so stalls there differ from ours".into());
    f
}

/// Figure 13, as shares.
pub fn figure_13(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "g10-13",
        "G10 figure 13",
        "kernels that are slowed down",
        "share of the kernels",
    );
    let over = [1.01, 2.0];
    f.columns = ["uvm", "flash", "deepum", "g10"]
        .iter()
        .flat_map(|p| over.map(|o| format!("{p} >{o}x")))
        .collect();
    for net in &NETS {
        let mut cells = Vec::new();
        for name in FOUR {
            let Some(policy) = policy(name) else { continue };
            let answer = run(desk, net, net.batch, policy, &Machine::default());
            for times in over {
                let file = format!("{}-{name}.txt", net.traces);
                cells.push(Cell {
                    published: artifact::slowed(desk.dir(), &file, times),
                    ours: value(&answer, |m| {
                        let above = m.slowdowns.iter().filter(|s| **s > times).count();
                        above as f64 / m.slowdowns.len().max(1) as f64
                    }),
                });
            }
        }
        f.rows.push(Row {
            label: format!("{} {}", net.label, net.batch),
            cells,
        });
    }
    f
}

/// Figure 14.
pub fn figure_14(desk: &mut Desk) -> Figure {
    let data = Data::read(desk, "overall_traffic/traffic.txt", 4);
    let mut f = figure("g10-14", "G10 figure 14", "traffic of a step", "GiB");
    f.digits = 1;
    f.columns = ["SSD to GPU", "GPU to SSD", "host to GPU", "GPU to host"]
        .map(String::from)
        .into();
    for net in &NETS {
        for name in FOUR {
            let Some(policy) = policy(name) else { continue };
            let answer = run(desk, net, net.batch, policy, &Machine::default());
            let cells = (0..4).map(|i| Cell {
                published: scaled(data.get(net.label, name, i), 1.0 / PAGES_IN_GIB),
                ours: value(&answer, |m| m.traffic[i] as f64 / GIB),
            });
            f.rows.push(Row {
                label: format!("{} {} {}", net.label, net.batch, policy.as_str()),
                cells: cells.collect(),
            });
        }
    }
    f
}

/// Batches or sizes that a file has a block for, in its order.
fn blocks(desk: &Desk, file: &str) -> Vec<String> {
    let table = artifact::table(desk.dir(), file, 1);
    table.map_or(Vec::new(), |t| t.blocks.into_iter().map(|b| b.0).collect())
}

/// Adds a row that says what is missing if there is no other.
fn at_least_one_row(f: &mut Figure, desk: &Desk, file: &str) {
    if f.rows.is_empty() {
        let why = artifact::table(desk.dir(), file, 1)
            .err()
            .unwrap_or_default();
        let cell = || Cell {
            published: Value::Absent(why.clone()),
            ours: Value::Absent(why.clone()),
        };
        let cells = f.columns.iter().map(|_| cell()).collect();
        f.rows.push(Row {
            label: "all".into(),
            cells,
        });
    }
}

/// Figure 15.
pub fn figure_15(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "g10-15",
        "G10 figure 15",
        "speed by batch size",
        "share of the ideal speed",
    );
    f.columns = columns(&FOUR);
    for net in &NETS {
        let file = format!("overall_batchsize/{}.txt", net.file);
        let data = Data::read(desk, &file, 1);
        for block in blocks(desk, &file) {
            let batch: u64 = block.parse().unwrap_or(0);
            let ideal = data.get(&block, "ideal", 0);
            let cells = FOUR.map(|name| Cell {
                published: quotient(&ideal, &data.get(&block, name, 0)),
                ours: policy(name).map_or_else(Value::none, |p| {
                    value(&run(desk, net, batch, p, &Machine::default()), |m| {
                        m.normalized()
                    })
                }),
            });
            f.rows.push(Row {
                label: format!("{} {batch}", net.label),
                cells: cells.into(),
            });
        }
    }
    at_least_one_row(&mut f, desk, "overall_batchsize/bert.txt");
    f
}

const HOSTS: [&str; 8] = ["0", "16", "32", "64", "96", "128", "192", "256"];

fn with_host(gib: &str) -> Machine {
    Machine {
        host_gib: gib.parse().unwrap_or(128.0),
        ..Machine::default()
    }
}

/// A row of step times against host memory, of `batch` in `file`.
fn host_row(desk: &mut Desk, net: &Net, batch: &str, policy: Policy, file: &str) -> Row {
    let data = Data::read(desk, file, 1);
    let cells = HOSTS.map(|gib| {
        let published = scaled(data.get(gib, batch, 0), 1.0 / CYCLES);
        let ours = if published == Value::none() {
            Value::none()
        } else {
            value(
                &run(
                    desk,
                    net,
                    batch.parse().unwrap_or(0),
                    policy,
                    &with_host(gib),
                ),
                |m| m.step_s,
            )
        };
        Cell { published, ours }
    });
    Row {
        label: format!("{} {batch} {}", net.label, policy.as_str()),
        cells: cells.into(),
    }
}

/// Figure 16.
pub fn figure_16(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "g10-16",
        "G10 figure 16",
        "host memory and batch sizes under G10",
        "s",
    );
    f.digits = 2;
    f.columns = HOSTS.map(|h| format!("{h} GiB")).into();
    for net in &NETS {
        let file = format!("sensitivity_cpumem/{}.txt", net.file);
        let batches = artifact::table(desk.dir(), &file, 1).map_or(Vec::new(), |t| t.columns);
        for batch in batches {
            let row = host_row(desk, net, &batch, Policy::G10, &file);
            f.rows.push(row);
        }
    }
    at_least_one_row(&mut f, desk, "sensitivity_cpumem/bert.txt");
    f
}

/// Figure 17.
pub fn figure_17(desk: &mut Desk) -> Figure {
    let mut f = figure("g10-17", "G10 figure 17", "host memory and policies", "s");
    f.digits = 2;
    f.columns = HOSTS.map(|h| format!("{h} GiB")).into();
    for (net, batch) in [(&NETS[1], "1024"), (&NETS[2], "1280")] {
        for name in ["FlashNeuron", "deepUM", "prefetch_lru"] {
            let Some(policy) = policy(name) else { continue };
            let file = format!("sensitivity_cpumem_combined/{name}/{}.txt", net.file);
            let row = host_row(desk, net, batch, policy, &file);
            f.rows.push(row);
        }
    }
    f
}

/// Figure 18.
pub fn figure_18(desk: &mut Desk) -> Figure {
    let mut f = figure(
        "g10-18",
        "G10 figure 18",
        "SSD bandwidth, with a link of 32 GB/s",
        "share of the ideal speed",
    );
    f.machine = MACHINE.replace(
        "link 15.754 GB/s, SSD 3.2 GB/s",
        "link 32 GB/s, SSD as the row says",
    );
    f.columns = columns(&FOUR);
    for net in &NETS {
        let batch = if net.name == "BERT" { 512 } else { net.batch };
        let file = format!("sensitivity_ssdbw/{}.txt", net.file);
        let data = Data::read(desk, &file, 1);
        for block in blocks(desk, &file) {
            let machine = Machine {
                ssd_gbps: block.parse().unwrap_or(3.2),
                pcie_gbps: 32.0,
                ..Machine::default()
            };
            let ideal = data.get(&block, "ideal", 0);
            let cells = FOUR.map(|name| Cell {
                published: quotient(&ideal, &data.get(&block, name, 0)),
                ours: policy(name).map_or_else(Value::none, |p| {
                    value(&run(desk, net, batch, p, &machine), |m| m.normalized())
                }),
            });
            f.rows.push(Row {
                label: format!("{} {batch}, {block} GB/s", net.label),
                cells: cells.into(),
            });
        }
    }
    at_least_one_row(&mut f, desk, "sensitivity_ssdbw/bert.txt");
    f
}

/// Figure 19.
pub fn figure_19(desk: &mut Desk) -> Figure {
    let errors = ["0%", "5%", "10%", "15%", "20%", "25%"];
    let data = Data::read(desk, "sensitivity_variation/all.txt", 1);
    let mut f = figure(
        "g10-19",
        "G10 figure 19",
        "wrong profiles under G10",
        "speed as a share of that with a right profile",
    );
    f.digits = 4;
    f.columns = errors.map(String::from).into();
    for net in &NETS {
        let mut at = |percent: &str| {
            let machine = Machine {
                time_error: percent.trim_end_matches('%').parse::<f64>().unwrap_or(0.0) / 100.0,
                seed: Machine::artifact_seed(net.name),
                ..Machine::default()
            };
            run(desk, net, net.batch, Policy::G10, &machine)
        };
        let (right, right_published) = (at("0%"), data.get(net.label, "0%", 0));
        let cells = errors.map(|percent| Cell {
            published: quotient(&data.get(net.label, percent, 0), &right_published),
            ours: both(&at(percent), &right, |a, b| a.normalized() / b.normalized()),
        });
        f.rows.push(Row {
            label: format!("{} {}", net.label, net.batch),
            cells: cells.into(),
        });
    }
    f
}
