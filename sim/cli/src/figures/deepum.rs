// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! DeepUM (ASPLOS 2023), figures 9 to 12 and tables 3 to 7.
//!
//! Ours are steps of the zoo on the physical model; `deepum` is the driver's own
//! tables (`src/uvm_rust/policy/prefetch/`).

use serde::Deserialize;
use uvm_policy::prefetch::Config;
use uvm_policy::prefetch::Shape;
use uvmsim_physical::policies::deepum_config;
use uvmsim_physical::policies::execution_ids;
use uvmsim_physical::policies::DeepUm;
use uvmsim_physical::policies::Parts;
use uvmsim_physical::Limits;
use uvmsim_physical::Workload;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;

use super::desk::both;
use super::desk::cell;
use super::desk::pictured;
use super::desk::run_physical;
use super::desk::unpublished;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Measured;
use super::desk::Point;
use super::desk::Why;
use super::sheet;
use super::sheet::Sheet;

/// A network and batch of figure 9(b), with what the paper says of it.
#[derive(Deserialize)]
struct Step {
    net: String,
    label: String,
    batch: u64,
    /// Seconds for 100 iterations, naive UM and DeepUM (figure 9(b)).
    um_s: f64,
    deepum_s: f64,
    /// Tables in MB (table 4).
    tables_mb: f64,
    /// Faults an iteration, UM and DeepUM (table 5).
    um_faults: f64,
    deepum_faults: f64,
}

impl Step {
    fn point(&self) -> Point {
        Point::new(&self.net, self.batch, "v100-32").with("keep-clean", 0)
    }
}

/// A line for each step.
fn each_step<I>(mut cells: impl FnMut(&Step, &Point) -> I) -> Vec<Row>
where
    I: IntoIterator<Item = Cell>,
{
    let steps: Vec<Step> = sheet::rows("deepum-9");
    let row = |p: &Step| Row::new(&p.label, cells(p, &p.point()));
    steps.iter().map(row).collect()
}

/// A line for each network's largest batch, which figures 11 and 12 show: the speed with each of
/// `configs` over that with the first.
fn each_largest(desk: &mut Desk, configs: &[Config]) -> Vec<Row> {
    let steps: Vec<Step> = sheet::rows("deepum-9");
    let networks = steps.chunk_by(|a, b| a.net == b.net);
    let row = |p: &Step| {
        let configs = configs.iter();
        let answers = configs.map(|&c| deepum(desk, &p.point(), Parts::All, c));
        let answers: Vec<Answer> = answers.collect();
        let speed = |a| pictured(both(&answers[0], a, |first, a| first.step_s / a.step_s));
        Row::new(&p.label, answers.iter().map(speed))
    };
    networks.filter_map(<[Step]>::last).map(row).collect()
}

/// A run of parts of DeepUM; `other` is the tables' bytes.
fn deepum(desk: &mut Desk, at: &Point, parts: Parts, config: Config) -> Answer {
    let point = at.clone();
    desk.ask(format!("{at:?} deepum {parts:?} {config:?}"), move |s| {
        let (w, l) = point.workload(s)?;
        let mut policy = DeepUm::new(execution_ids(&w, &l), config)?.with(parts);
        let mut m = run_physical(&point.machine()?, &w, &l, &mut policy, Limits::default())?;
        m.other = policy.stats().table_bytes as f64;
        Ok(m)
    })
}

/// The paper's DeepUM, or parts of it.
fn paper(desk: &mut Desk, at: &Point, parts: Parts) -> Answer {
    deepum(desk, at, parts, deepum_config())
}

/// Figure 9(b), seconds of 100 iterations.
pub fn figure_9(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let hundred = |m: &Measured| 100.0 * m.step_s;
    each_step(|p, at| {
        let um = desk.physical(at, "base-uvm");
        let ours = paper(desk, at, Parts::All);
        [
            cell(p.um_s, value(&um, hundred)),
            cell(p.deepum_s, value(&ours, hundred)),
            pictured(value(&um, |m| 100.0 * m.ideal_s)),
        ]
    })
}

/// Table 5, faults of an iteration.
pub fn table_5(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let faults = |m: &Measured| m.faults as f64;
    each_step(|p, at| {
        let um = desk.physical(at, "base-uvm");
        let ours = paper(desk, at, Parts::All);
        [
            cell(p.um_faults, value(&um, faults)),
            cell(p.deepum_faults, value(&ours, faults)),
            unpublished(value(&ours, |m| (m.faults - m.late_faults) as f64)),
        ]
    })
}

/// How many execution IDs the step has; nothing is run.
fn distinct_kernels(desk: &mut Desk, at: &Point) -> Answer {
    let point = at.clone();
    desk.ask(format!("execution IDs {at:?}"), move |s| {
        let (w, l) = point.workload(s)?;
        let mut ids = execution_ids(&w, &l);
        ids.sort_unstable();
        ids.dedup();
        Ok(Measured::other(ids.len() as f64))
    })
}

/// Bytes of a block table with all its rows (section 6.2), of 4-byte block numbers.
const WHOLE_TABLE: f64 = 2048.0 * 2.0 * (1.0 + 4.0) * 4.0;

/// Table 4, memory of the tables.
pub fn table_4(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    each_step(|p, at| {
        let ids = distinct_kernels(desk, at);
        let whole = value(&ids, |m| m.other * WHOLE_TABLE / 1e6);
        let ours = paper(desk, at, Parts::All);
        let grown = value(&ours, |m| m.other / 1e6);
        [cell(p.tables_mb, whole), unpublished(grown)]
    })
}

/// Figure 10, what each part gains.
pub fn figure_10(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    each_step(|_, at| {
        let um = desk.physical(at, "base-uvm");
        [Parts::Prefetch, Parts::PreEvict, Parts::All].map(|parts| {
            let part = paper(desk, at, parts);
            pictured(both(&um, &part, |um, p| p.step_s / um.step_s))
        })
    })
}

/// Figure 11, kernels looked ahead.
pub fn figure_11(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let config = |ahead| Config {
        ahead,
        ..deepum_config()
    };
    let configs: Vec<_> = sheet.rows().into_iter().map(config).collect();
    each_largest(desk, &configs)
}

/// Figure 12, whose configurations are table 6.
pub fn figure_12(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let config = |[rows, assoc, succs]: [u32; 3]| Config {
        shape: Shape { rows, assoc, succs },
        ..deepum_config()
    };
    let configs: Vec<_> = sheet.rows().into_iter().map(config).collect();
    each_largest(desk, &configs)
}

/// The largest batch whose live bytes fit in host memory at their peak, which is
/// what DeepUM's section 6.2 says limits it.
fn largest_batch(desk: &mut Desk, net: String, host: f64) -> Answer {
    desk.ask(format!("largest {net} {host}"), move |s| {
        let fits = |batch: u64| -> Result<bool, Why> {
            let trace = Point::new(&net, batch, "v100-32").trace(s)?;
            Ok(Workload::from_trace(&trace).peak_bytes() as f64 <= host)
        };
        let (mut low, mut high) = (0, 1);
        while fits(high)? {
            low = high;
            high *= 2;
            if high > uvmsim_zoo::LARGEST {
                return Err(Why::Fails(format!(
                    "{low} samples still fit, and the zoo builds no larger step"
                )));
            }
        }
        while high - low > 1.max(low / 200) {
            let middle = (low + high) / 2;
            if fits(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(Measured::other(low as f64))
    })
}

/// Tables 3 and 7.
pub fn largest(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let row = |(net, label, gb, published): (String, String, f64, f64)| {
        let ours = if net.is_empty() {
            Value::Absent("the zoo's network takes images of 224 x 224, not CIFAR's".into())
        } else {
            value(&largest_batch(desk, net, gb * 1e9), |m| m.other)
        };
        Row::new(label, [cell(published, ours)])
    };
    sheet.rows().into_iter().map(row).collect()
}
