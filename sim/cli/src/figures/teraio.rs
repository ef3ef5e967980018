// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! TERAIO (NeurIPS 2025), figures 1, 7 and 9.
//!
//! Ours are the first of two GPUs of a pipeline, whose step comes in micro-batches.

use serde::Deserialize;
use uvmsim_machine::GIB;
use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Workload;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;
use uvmsim_zoo::config;
use uvmsim_zoo::Options;
use uvmsim_zoo::Precision;

use super::desk::both;
use super::desk::cell;
use super::desk::mean;
use super::desk::pictured;
use super::desk::run_physical;
use super::desk::value;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Measured;
use super::desk::Point;
use super::desk::Why;
use super::sheet;
use super::sheet::Sheet;

/// GPU memory that M is a share of: see the notes in `figures.toml`.
const MEMORY: u64 = 80 * GIB;

/// Micro-batches from which on the peak of a step is the same.
const SETTLED: u64 = 3;

/// A model of figure 7.
#[derive(Clone, Deserialize)]
struct Model {
    label: String,
    /// As Hugging Face has it.
    config: serde_json::Value,
    host_gb: f64,
    /// The published average share of the ideal under TERAIO-Mixed.
    #[serde(default)]
    mixed: Option<f64>,
    points: Vec<Training>,
}

/// Samples of a step, tokens of each, and M, per cent.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Training(u64, u64, f64);

fn models() -> Vec<Model> {
    sheet::rows("teraio-7")
}

/// The machine, on which a tensor is in one place: TERAIO's table has a tensor's current device (section 3.3).
fn machine() -> Point {
    let point = Point::new("", 0, "h100-nvl").with("gpu-mem", MEMORY);
    point.with("keep-clean", 0)
}

impl Model {
    /// What the GPU does for so many micro-batches of so many samples.
    fn step(&self, at: Training, samples: u64, parts: u64) -> Result<Workload, Why> {
        let entry = config::parse(&self.label, &self.config.to_string())
            .map_err(|e| Why::Missing(e.to_string()))?;
        let options = Options {
            tokens: Some(at.1),
            ..Options::new(samples, Precision::Fp32)
        };
        let step = entry.first_stage(&options, parts);
        let step = step.ok_or_else(|| Why::Missing("no decoder".into()))?;
        let trace = step.timed(&machine().machine()?, Precision::Fp32);
        Ok(Workload::from_trace(&trace))
    }

    fn at(&self, at: Training) -> String {
        format!("{} {} x {}", self.label, at.0, at.1)
    }

    /// The peak of micro-batches of so many samples, in per cent.
    fn m(&self, at: Training, samples: u64) -> Result<f64, Why> {
        let peak = self.step(at, samples, SETTLED)?.peak_bytes();
        Ok(peak as f64 * 100.0 / MEMORY as f64)
    }

    /// The samples of a micro-batch, a power of two, whose peak is nearest to M; and that peak.
    fn samples(&self, at: Training) -> Result<(u64, f64), Why> {
        let mut nearest = (1, self.m(at, 1)?);
        while nearest.1 < at.2 && 2 * nearest.0 <= at.0 {
            let next = (2 * nearest.0, self.m(at, 2 * nearest.0)?);
            if next.1 - at.2 > at.2 - nearest.1 {
                break;
            }
            nearest = next;
        }
        Ok(nearest)
    }

    /// What kernels use of memory, in per cent: the mean, as the step's seconds, and the most.
    fn used(&self, at: Training) -> Answer {
        let (samples, _) = self.samples(at)?;
        let w = self.step(at, samples, SETTLED)?;
        let used = (0..w.kernels.len()).map(|k| w.working_set(k) as f64 * 100.0 / MEMORY as f64);
        Ok(Measured {
            step_s: used.clone().sum::<f64>() / w.kernels.len() as f64,
            other: used.fold(0.0, f64::max),
            ..Measured::default()
        })
    }

    /// Something of the model at a point, under a key of its own.
    fn ask(
        &self,
        desk: &mut Desk,
        at: Training,
        key: &str,
        of: impl Fn(&Self, Training) -> Answer + Send + Sync + 'static,
    ) -> Answer {
        let model = self.clone();
        let key = format!("teraio {} {at:?} {key}", self.label);
        desk.ask(key, move |_| of(&model, at))
    }

    /// A run at a point, with this much host memory and this rate to the SSDs.
    fn run(&self, desk: &mut Desk, at: Training, gb: f64, ssd: f64) -> Answer {
        let key = format!("{gb} {ssd}");
        self.ask(desk, at, &key, move |model, at| {
            let (samples, _) = model.samples(at)?;
            let w = model.step(at, samples, at.0 / samples)?;
            let l = Layout::new(&w);
            let with = machine().with("host-mem", format!("{gb}GB"));
            let machine = with
                .with("ssd-read", ssd)
                .with("ssd-write", ssd)
                .machine()?;
            let mut policy = policies::make("teraio", &machine, &w, &l)?;
            run_physical(&machine, &w, &l, policy.as_mut(), Limits::default())
        })
    }
}

/// Rate to the SSDs of a GPU, GB/s.
const SSDS: f64 = 16.0;

/// Figure 1, what the kernels use of GPU memory.
pub fn figure_1(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let line = |model: Model| {
        let at = model.points[0];
        let used = model.ask(desk, at, "used", Model::used);
        let cells = [value(&used, |m| m.step_s), value(&used, |m| m.other)];
        Row::new(model.label, cells.map(pictured))
    };
    let models = models().into_iter();
    let llamas = models.filter(|m| m.label.starts_with("Llama"));
    llamas.map(line).collect()
}

/// Figure 7, the throughput of each model, on average over its points.
pub fn figure_7(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let line = |model: Model| {
        let mut share = |gb| {
            let runs = model.points.iter().map(|&at| model.run(desk, at, gb, SSDS));
            let shares: Vec<Value> = runs.map(|r| value(&r, Measured::normalized)).collect();
            mean(&shares)
        };
        let (ssd, mixed) = (share(0.0), share(model.host_gb));
        let mixed = match model.mixed {
            Some(published) => cell(published, mixed),
            None => pictured(mixed),
        };
        Row::new(&model.label, [pictured(ssd), mixed])
    };
    models().into_iter().map(line).collect()
}

/// The labels of figure 7, what a step needs.
pub fn memory(desk: &mut Desk, _: &Sheet) -> Vec<Row> {
    let mut rows = Vec::new();
    for model in models() {
        for &at in &model.points {
            let m = model.ask(desk, at, "M", |model, at| {
                Ok(Measured::other(model.samples(at)?.1))
            });
            rows.push(Row::new(model.at(at), [cell(at.2, value(&m, |m| m.other))]));
        }
    }
    rows
}

/// Figure 9(b), less of both memories.
pub fn figure_9(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let Some(model) = models().pop() else {
        return Vec::new();
    };
    let rows: Vec<(f64, f64, f64)> = sheet.rows();
    let runs = rows
        .iter()
        .map(|&(ssd, gb, _)| model.run(desk, model.points[0], gb, ssd));
    let runs: Vec<Answer> = runs.collect();
    let line = |(&(ssd, gb, published), run): (&(f64, f64, f64), &Answer)| {
        let ours = both(&runs[0], run, |all, part| all.step_s / part.step_s);
        Row::new(format!("{ssd} GB/s, {gb} GB"), [cell(published, ours)])
    };
    rows.iter().zip(&runs).map(line).collect()
}
