// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Where figures ask for runs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use uvmsim_g10 as g10;
use uvmsim_physical::policies;
use uvmsim_physical::Bytes;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Policy;
use uvmsim_physical::RunError;
use uvmsim_physical::Stalls;
use uvmsim_physical::Workload;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Value;
use uvmsim_trace::Trace;
use uvmsim_zoo::Optimizer;
use uvmsim_zoo::Options;
use uvmsim_zoo::Precision;

use crate::g10::Runner;

/// What a run came to, as far as figures want to know.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Duration of the step, seconds.
    pub step_s: f64,
    /// With everything in GPU memory, seconds.
    pub ideal_s: f64,
    /// Bytes moved: SSD to GPU, GPU to SSD, host to GPU, GPU to host.
    pub traffic: [u64; 4],
    /// Pages that kernels faulted on.
    pub faults: u64,
    /// Of those, pages whose prefetch was queued; only the physical model knows.
    pub late_faults: u64,
    /// Time lost, by cause; only the physical model knows.
    pub stalls: Stalls,
    /// Each kernel's time over its ideal time.
    pub slowdowns: Vec<f64>,
    /// What else a figure measures.
    pub other: f64,
}

impl Measured {
    /// Speed as a share of the ideal one.
    pub fn normalized(&self) -> f64 {
        self.ideal_s / self.step_s.max(1e-12)
    }

    /// What is no run's result.
    pub fn other(other: f64) -> Self {
        Self {
            other,
            ..Self::default()
        }
    }
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The policy cannot run it.
    Fails(String),
    /// Something that the run needs is not there.
    Missing(String),
    /// It has not been run yet.
    Pending,
}

impl From<RunError> for Why {
    fn from(e: RunError) -> Self {
        Self::Fails(e.to_string())
    }
}

/// What a run came to, or why there is no result.
pub type Answer = Result<Measured, Why>;

/// What `of` an answer is, as a cell.
pub fn value(answer: &Answer, of: impl FnOnce(&Measured) -> f64) -> Value {
    match answer {
        Ok(m) => Value::Number(of(m)),
        Err(Why::Fails(why)) => Value::Fails(why.clone()),
        Err(Why::Missing(why)) => Value::Absent(why.clone()),
        Err(Why::Pending) => Value::none(),
    }
}

/// The geometric mean of what is there.
pub fn mean<'a>(values: impl IntoIterator<Item = &'a Value>) -> Value {
    let numbers = values.into_iter().filter_map(Value::number);
    let logs: Vec<f64> = numbers.map(f64::ln).collect();
    if logs.is_empty() {
        return Value::none();
    }
    Value::Number((logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// A cell whose published number is a plot that cannot be read off.
pub const PICTURE: &str =
    "the paper's number is a bar of a picture, and its text, which is at hand, does not give it";

/// `ours`, where the paper has only a picture.
pub fn pictured(ours: Value) -> Cell {
    Cell::new(Value::Absent(PICTURE.into()), ours)
}

/// `ours`, which the paper does not have.
pub fn unpublished(ours: Value) -> Cell {
    Cell::new(Value::none(), ours)
}

/// A cell with both numbers.
pub fn cell(published: f64, ours: Value) -> Cell {
    Cell::new(Value::Number(published), ours)
}

/// `of` two answers, as a cell.
pub fn both(a: &Answer, b: &Answer, of: impl FnOnce(&Measured, &Measured) -> f64) -> Value {
    match (a, b) {
        (Ok(a), Ok(b)) => Value::Number(of(a, b)),
        (Err(_), _) => value(a, |_| 0.0),
        _ => value(b, |_| 0.0),
    }
}

/// Where a step is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A network of the zoo.
    Zoo,
    /// A trace of the artifact.
    Artifact,
    /// The same; where there are no times for the batch, they are on a line through those of two
    /// batches that have them.
    Between,
}

/// A step on a machine of the physical model.
#[derive(Clone, Debug)]
pub struct Point {
    /// What the network is called there.
    pub net: String,
    /// Where the network is from.
    pub origin: Origin,
    /// Samples in the step.
    pub batch: u64,
    /// Tokens in a sample; `None`: the network's own.
    pub tokens: Option<u64>,
    /// Optimizer; `None`: the network's own.
    pub optimizer: Option<Optimizer>,
    /// Preset of the machine.
    pub machine: &'static str,
    /// Constants of the machine that are changed.
    pub changes: Vec<(&'static str, String)>,
}

impl Point {
    /// A step of the zoo's `net` on `machine`, in 32-bit numbers.
    pub fn new(net: &str, batch: u64, machine: &'static str) -> Self {
        Self {
            net: net.into(),
            origin: Origin::Zoo,
            batch,
            tokens: None,
            optimizer: None,
            machine,
            changes: Vec::new(),
        }
    }

    /// With a constant of the machine changed.
    pub fn with(mut self, option: &'static str, value: impl ToString) -> Self {
        self.changes.push((option, value.to_string()));
        self
    }

    /// The machine with its changes.
    pub fn machine(&self) -> Result<uvmsim_machine::Machine, Why> {
        let mut m = uvmsim_machine::presets::find(self.machine)
            .ok_or_else(|| Why::Missing(format!("there is no machine {}", self.machine)))?;
        for (option, value) in &self.changes {
            m.set(option, value)
                .map_err(|e| Why::Missing(e.to_string()))?;
        }
        Ok(m)
    }

    /// The step as a trace.
    pub fn trace(&self, sources: &Sources) -> Result<Arc<Trace>, Why> {
        if self.origin != Origin::Zoo {
            return sources.artifact(&self.net, self.batch, self.origin);
        }
        let entry = uvmsim_zoo::find(&self.net)
            .ok_or_else(|| Why::Missing(format!("the zoo has no {}", self.net)))?;
        let options = Options {
            tokens: self.tokens,
            optimizer: self.optimizer,
            ..Options::new(self.batch, Precision::Fp32)
        };
        Ok(Arc::new(entry.trace(&options, &self.machine()?)))
    }

    /// The step as the physical model sees it.
    pub fn workload(&self, sources: &Sources) -> Result<(Workload, Layout), Why> {
        let w = Workload::from_trace(&*self.trace(sources)?);
        let l = Layout::new(&w);
        Ok((w, l))
    }

    /// A run of it on the physical machine.
    pub fn run(&self, sources: &Sources, policy: &str) -> Answer {
        let (w, l) = self.workload(sources)?;
        let machine = self.machine()?;
        let mut policy = policies::make(policy, &machine, &w, &l)?;
        run_physical(&machine, &w, &l, policy.as_mut(), Limits::default())
    }
}

type Work = Arc<dyn Fn(&Sources) -> Answer + Send + Sync>;

/// A trace that was read, or why not.
type Read = Result<Arc<Trace>, Why>;

/// What runs share: traces that were read.
pub struct Sources {
    dir: PathBuf,
    traces: Mutex<HashMap<(String, u64, Origin), Read>>,
}

impl Sources {
    /// The artifact's trace of `net` at `batch`.
    fn artifact(&self, net: &str, batch: u64, origin: Origin) -> Read {
        let import = match origin {
            Origin::Between => uvmsim_g10::import_between,
            _ => uvmsim_g10::import,
        };
        let read = || match import(&self.dir, net, batch) {
            Ok(trace) => Ok(Arc::new(trace)),
            Err(e) => Err(Why::Missing(format!("no trace ({e})"))),
        };
        let mut traces = self.traces.lock().unwrap_or_else(|e| e.into_inner());
        let entry = traces.entry((net.into(), batch, origin));
        entry.or_insert_with(read).clone()
    }
}

/// Takes requests for runs, makes them, and hands out their results.
pub struct Desk {
    sources: Sources,
    /// Requests in the order in which they were made first.
    asked: Vec<(String, Work)>,
    answers: HashMap<String, Answer>,
}

impl Desk {
    /// Without results; `dir` has the artifact's data.
    pub fn new(dir: PathBuf) -> Self {
        Self {
            sources: Sources {
                dir,
                traces: Mutex::default(),
            },
            asked: Vec::new(),
            answers: HashMap::new(),
        }
    }

    /// The folder of the artifact's data.
    pub fn dir(&self) -> &std::path::Path {
        &self.sources.dir
    }

    /// The result of `work`, which `key` describes wholly; pending when first asked.
    pub fn ask(
        &mut self,
        key: String,
        work: impl Fn(&Sources) -> Answer + Send + Sync + 'static,
    ) -> Answer {
        if let Some(answer) = self.answers.get(&key) {
            return answer.clone();
        }
        self.answers.insert(key.clone(), Err(Why::Pending));
        self.asked.push((key, Arc::new(work)));
        Err(Why::Pending)
    }

    /// A run of a step on the artifact's machine.
    pub fn on_g10(&mut self, point: &Point, policy: Runner, machine: &g10::Machine) -> Answer {
        let (point, machine) = (point.clone(), machine.clone());
        self.ask(format!("{point:?} {policy:?} {machine:?}"), move |s| {
            on_artifact_machine(&*point.trace(s)?, policy, &machine)
        })
    }

    /// A run of a step on the physical machine.
    pub fn physical(&mut self, point: &Point, policy: &'static str) -> Answer {
        let at = point.clone();
        self.ask(format!("{point:?} {policy}"), move |s| at.run(s, policy))
    }

    /// Runs that nobody has made yet.
    pub fn pending(&self) -> usize {
        self.asked.len()
    }

    /// Makes all pending runs, `threads` at a time, and begins none once `limit` is
    /// over; `done` is told what each was.
    pub fn run(&mut self, threads: usize, limit: Option<Duration>, done: impl Fn(&str) + Sync) {
        let began = Instant::now();
        let asked = std::mem::take(&mut self.asked);
        let answers = crate::pool::map(&asked, threads, |(key, work)| {
            let answer = if limit.is_some_and(|l| began.elapsed() >= l) {
                Err(Why::Missing("not run within --limit".into()))
            } else {
                work(&self.sources)
            };
            done(key);
            answer
        });
        for ((key, _), answer) in asked.into_iter().zip(answers) {
            self.answers.insert(key, answer);
        }
    }
}

fn on_artifact_machine(trace: &Trace, policy: Runner, machine: &g10::Machine) -> Answer {
    let o = policy.run_on(trace, machine).map_err(Why::Fails)?;
    let s = |cycles: u64| cycles as f64 / g10::CYCLES_PER_SECOND as f64;
    let ideal = trace.kernels.iter().map(|k| k.duration_ns as f64);
    let ideal = ideal.map(|ns| ns * g10::CYCLES_PER_SECOND as f64 / 1e9);
    let kernels = o.kernel_cycles.iter().zip(ideal);
    Ok(Measured {
        step_s: s(o.step_cycles),
        ideal_s: s(o.ideal_cycles),
        traffic: ways(&o.traffic),
        faults: o.faults,
        slowdowns: kernels.map(|(c, i)| *c as f64 / i.max(1.0)).collect(),
        ..Measured::default()
    })
}

/// Runs one policy on the physical machine, for as many steps as `limits` says.
pub fn run_physical(
    machine: &uvmsim_machine::Machine,
    w: &Workload,
    l: &Layout,
    policy: &mut dyn Policy,
    limits: Limits,
) -> Answer {
    let o = uvmsim_physical::run(machine, w, l, policy, limits)?;
    Ok(Measured {
        step_s: o.step_ns as f64 / 1e9,
        ideal_s: o.ideal_ns as f64 / 1e9,
        traffic: ways(&o.bytes),
        faults: o.faults,
        late_faults: o.late_faults,
        stalls: o.stalls,
        ..Measured::default()
    })
}

/// Bytes from the SSD, to it, from the host, to it.
fn ways(b: &Bytes) -> [u64; 4] {
    [b.ssd_to_gpu, b.gpu_to_ssd, b.host_to_gpu, b.gpu_to_host]
}
