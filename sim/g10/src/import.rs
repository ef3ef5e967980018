// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Importer of the artifact's traces.
//!
//! A trace there is a network graph, `Nets/<Net>.txt`, and four files of one
//! line per kernel, `results/<Model>/cudnn<batch>{,InputPF,PF,Workspace}.txt`:
//! the measured times (all resident; outputs page-faulting; everything
//! page-faulting) and the cuDNN workspace. Kernels and tensors follow from the
//! graph by the artifact's rules, in its order and with its quirks: sizes are
//! whole 4 KiB pages, biases of the transformers are broadcast to the batch.

mod build;
mod cnn;
mod transformer;

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use uvmsim_trace::Error;
use uvmsim_trace::Kind;
use uvmsim_trace::Phase;
use uvmsim_trace::Tensor;
use uvmsim_trace::Trace;

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// No network of that name; the known ones follow.
    #[error("there is no network '{0}' in the G10 traces; one of {}", NETS.map(|n| n.name).join(", "))]
    UnknownNet(String),
    /// A file could not be read.
    #[error("{0}: {1}; the folder must hold Nets/ and results/ as in the G10 artifact")]
    Read(PathBuf, std::io::Error),
    /// A file says what it must not.
    #[error("{0}: {1}")]
    Parse(PathBuf, Error),
    /// The times are for another number of kernels than the graph has.
    #[error("{file}: {lines} lines, but the network has {kernels} kernels")]
    Count {
        /// The file of times or workspaces.
        file: PathBuf,
        /// How many lines it has.
        lines: usize,
        /// How many kernels the graph has.
        kernels: usize,
    },
    /// The folder of a network's times has fewer than two batches: these.
    #[error("{0}: a line through the times of two batches needs two; there is {1:?}")]
    Batches(PathBuf, Vec<u64>),
}

/// How a network's graph file is written.
enum Graph {
    /// Operators; tensors numbered below `border` are weights.
    Operators { border: u32 },
    /// PyTorch's printed modules; the input is square, `side` pixels.
    Modules { side: u64 },
}

struct Net {
    /// As the user and the artifact's results call it.
    name: &'static str,
    /// The graph's file, without `.txt`, and the folder of results.
    file: &'static str,
    graph: Graph,
}

const NETS: [Net; 5] = [
    net("BERT", "BERT_Base", Graph::Operators { border: 210 }),
    net("VIT", "VIT", Graph::Operators { border: 184 }),
    net("Inceptionv3", "Inceptionv3", Graph::Modules { side: 299 }),
    net("ResNet152", "ResNet152", Graph::Modules { side: 224 }),
    net("SENet154", "SENet154", Graph::Modules { side: 224 }),
];

const fn net(name: &'static str, file: &'static str, graph: Graph) -> Net {
    Net { name, file, graph }
}

/// Imports network `net` (`BERT`, `VIT`, `Inceptionv3`, `ResNet152`, `SENet154`;
/// case does not matter) at `batch` samples from the folder `dir`.
///
/// # Errors
/// An unknown network, a missing or malformed file, and times for another number
/// of kernels.
pub fn import(dir: &Path, net: &str, batch: u64) -> Result<Trace, ImportError> {
    let net = find(net)?;
    let trace = network(dir, net, batch)?;
    let times = Times::read(dir, net, batch, trace.kernels.len())?;
    finish(trace, &times, dir)
}

/// The same; where there are no times for `batch`, each kernel's times and workspace are
/// on the line through those of the two batches next to it, one on each side if there
/// are such, as the artifact's own are at most of its batches. The trace's `source` says
/// which two.
///
/// # Errors
/// Those of [`import`], and fewer than two batches with times.
pub fn import_between(dir: &Path, net: &str, batch: u64) -> Result<Trace, ImportError> {
    let net = find(net)?;
    let batches = net.batches(dir);
    if batches.contains(&batch) {
        return import(dir, net.name, batch);
    }
    let Some([from, to]) = neighbours(&batches, batch) else {
        return Err(ImportError::Batches(net.results(dir), batches));
    };
    let mut trace = network(dir, net, batch)?;
    let kernels = trace.kernels.len();
    let [a, b] = [from, to].map(|batch| Times::read(dir, net, batch, kernels));
    let times = a?.line(from, &b?, to, batch);
    let source = format!("g10, times on the line through those of batches {from} and {to}");
    trace.set_meta("source", &source);
    finish(trace, &times, dir)
}

fn find(net: &str) -> Result<&'static Net, ImportError> {
    let is = |n: &&Net| n.name.eq_ignore_ascii_case(net) || n.file.eq_ignore_ascii_case(net);
    let found = NETS.iter().find(is);
    found.ok_or_else(|| ImportError::UnknownNet(net.into()))
}

impl Net {
    /// The folder of the network's times.
    fn results(&self, dir: &Path) -> PathBuf {
        dir.join("results").join(self.file)
    }

    /// The batches that have times, in order.
    fn batches(&self, dir: &Path) -> Vec<u64> {
        let files = fs::read_dir(self.results(dir)).into_iter().flatten();
        let names = files.flatten().map(|f| f.file_name());
        let batch = |name: std::ffi::OsString| {
            let name = name.to_str()?.strip_prefix("cudnn")?;
            name.strip_suffix(".txt")?.parse().ok()
        };
        let mut all: Vec<u64> = names.filter_map(batch).collect();
        all.sort_unstable();
        all
    }
}

/// The two of `batches`, which are in order and do not have `batch`, that a line to it
/// goes through.
fn neighbours(batches: &[u64], batch: u64) -> Option<[u64; 2]> {
    let above = batches.partition_point(|&b| b < batch);
    let first = above.saturating_sub(1).min(batches.len().checked_sub(2)?);
    Some([batches[first], batches[first + 1]])
}

/// The network's tensors and kernels, without times.
fn network(dir: &Path, net: &Net, batch: u64) -> Result<Trace, ImportError> {
    let graph_file = dir.join("Nets").join(format!("{}.txt", net.file));
    let text = read(&graph_file)?;
    let mut trace = match net.graph {
        Graph::Operators { border } => transformer::build(&text, border, batch),
        Graph::Modules { side } => cnn::build(&text, side, batch),
    }
    .map_err(|e| ImportError::Parse(graph_file, e))?;
    trace.set_meta("name", net.name);
    trace.set_meta("batch", &batch.to_string());
    trace.set_meta("source", "g10");
    Ok(trace)
}

/// What the files of a batch say of each kernel.
struct Times {
    /// Nanoseconds with everything resident.
    ideal: Vec<u64>,
    /// Nanoseconds when outputs page-fault.
    out_fault: Vec<u64>,
    /// Nanoseconds when everything page-faults.
    all_fault: Vec<u64>,
    /// Bytes that the kernel needs besides its tensors.
    workspace: Vec<u64>,
}

impl Times {
    fn read(dir: &Path, net: &Net, batch: u64, kernels: usize) -> Result<Self, ImportError> {
        let column = |suffix: &str, unit: &str| {
            let file = net.results(dir).join(format!("cudnn{batch}{suffix}.txt"));
            let text = read(&file)?;
            let values = column(&text, unit).map_err(|e| ImportError::Parse(file.clone(), e))?;
            if values.len() != kernels {
                let lines = values.len();
                return Err(ImportError::Count {
                    file,
                    lines,
                    kernels,
                });
            }
            Ok(values)
        };
        Ok(Self {
            ideal: column("", "ms")?,
            out_fault: column("InputPF", "ms")?,
            all_fault: column("PF", "ms")?,
            workspace: column("Workspace", "B")?,
        })
    }

    /// What the line through these, of batch `from`, and `other`, of batch `to`, has at
    /// `batch`.
    fn line(&self, from: u64, other: &Self, to: u64, batch: u64) -> Self {
        let share = (batch as f64 - from as f64) / (to as f64 - from as f64);
        let at = |a: &[u64], b: &[u64], least: f64| -> Vec<u64> {
            let point = |(&a, &b): (&u64, &u64)| a as f64 + (b as f64 - a as f64) * share;
            let all = a.iter().zip(b).map(point);
            // Outside the two, a line that falls with the batch would end below nothing.
            all.map(|v| v.max(least).round() as u64).collect()
        };
        Self {
            ideal: at(&self.ideal, &other.ideal, 1.0),
            out_fault: at(&self.out_fault, &other.out_fault, 1.0),
            all_fault: at(&self.all_fault, &other.all_fault, 1.0),
            workspace: at(&self.workspace, &other.workspace, 0.0),
        }
    }
}

/// The step with its kernels' times, workspaces and phases.
fn finish(mut trace: Trace, times: &Times, dir: &Path) -> Result<Trace, ImportError> {
    for (i, k) in trace.kernels.iter_mut().enumerate() {
        k.duration_ns = times.ideal[i];
        k.out_fault_ns = Some(times.out_fault[i]);
        k.all_fault_ns = Some(times.all_fault[i]);
    }
    for (i, &bytes) in times.workspace.iter().enumerate().filter(|&(_, &b)| b > 0) {
        let name = format!("{}.{i}.workspace", trace.kernels[i].name);
        let t = Tensor::new(Kind::Workspace, build::whole_pages(bytes), &name);
        let id = trace.add_tensor(t);
        trace.kernels[i].workspace.push(id);
    }
    set_phases(&mut trace);
    let checked = trace.validate();
    checked.map_err(|e| ImportError::Parse(dir.to_path_buf(), e))?;
    Ok(trace)
}

/// Builds a step, without times, from the text of a graph alone: a list of
/// `operators` or printed modules. For fuzzing and for graphs that have no times.
///
/// # Errors
/// The first thing wrong with the text.
pub fn graph(text: &str, operators: bool, batch: u64) -> Result<Trace, Error> {
    let batch = batch.max(1);
    if operators {
        transformer::build(text, 210, batch)
    } else {
        cnn::build(text, 224, batch)
    }
}

fn read(file: &Path) -> Result<String, ImportError> {
    fs::read_to_string(file).map_err(|e| ImportError::Read(file.to_path_buf(), e))
}

/// The second field of every line `index value unit`: milliseconds (returned in
/// ns) or bytes.
///
/// # Errors
/// The first line that is not such, or out of order.
pub fn column(text: &str, unit: &str) -> Result<Vec<u64>, Error> {
    let mut values = Vec::new();
    let lines = text.lines().zip(1..);
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        let object = format!("kernel {}", values.len());
        let fail = |what: String| Error::new(number, object.clone(), what);
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [index, value, u] = fields[..] else {
            return Err(fail(format!(
                "expected 'index value {unit}', found '{line}'"
            )));
        };
        if index.parse() != Ok(values.len()) {
            return Err(fail(format!("the index is '{index}'")));
        }
        if u != unit {
            return Err(fail(format!("the unit is '{u}', not '{unit}'")));
        }
        let parsed = if unit == "ms" {
            ms_to_ns(value)
        } else {
            value.parse().ok()
        };
        values.push(parsed.ok_or_else(|| fail(format!("'{value}' is no number of {unit}")))?);
    }
    Ok(values)
}

/// A decimal number of milliseconds with at most six digits after the point.
fn ms_to_ns(s: &str) -> Option<u64> {
    let (whole, fraction) = s.split_once('.').unwrap_or((s, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !digits(whole) || !digits(fraction) {
        return None;
    }
    // As many nanoseconds as the digits say, without the point.
    format!("{whole}{fraction:0<6}").parse().ok()
}

/// Forward up to the kernel `makeLoss`, then backward, updates marked.
fn set_phases(trace: &mut Trace) {
    let mut phase = Phase::Forward;
    for k in &mut trace.kernels {
        k.phase = Some(if k.name.contains("Apply_Grad") {
            Phase::Optimizer
        } else {
            phase
        });
        if k.name == "makeLoss" {
            phase = Phase::Backward;
        }
    }
}

#[cfg(test)]
mod tests;
