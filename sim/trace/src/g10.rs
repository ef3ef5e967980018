// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Importer of the traces of the G10 artifact (MICRO '23).
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

use std::fmt;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use crate::Error;
use crate::Kind;
use crate::Phase;
use crate::Tensor;
use crate::Trace;

/// Why an import failed.
#[derive(Debug)]
pub enum ImportError {
    /// No network of that name; the known ones follow.
    UnknownNet(String),
    /// A file could not be read.
    Read(PathBuf, std::io::Error),
    /// A file says what it must not.
    Parse(PathBuf, Error),
    /// The times are for another number of kernels than the graph has.
    Count {
        /// The file of times or workspaces.
        file: PathBuf,
        /// Its lines.
        lines: usize,
        /// The graph's kernels.
        kernels: usize,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNet(net) => {
                let all = NETS.map(|n| n.name).join(", ");
                write!(
                    f,
                    "there is no network '{net}' in the G10 traces; one of {all}"
                )
            }
            Self::Read(file, e) => write!(
                f,
                "{}: {e}; the folder must hold Nets/ and results/ as in the G10 artifact",
                file.display()
            ),
            Self::Parse(file, e) => write!(f, "{}: {e}", file.display()),
            Self::Count {
                file,
                lines,
                kernels,
            } => write!(
                f,
                "{}: {lines} lines, but the network has {kernels} kernels",
                file.display()
            ),
        }
    }
}

impl std::error::Error for ImportError {}

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
    Net {
        name: "BERT",
        file: "BERT_Base",
        graph: Graph::Operators { border: 210 },
    },
    Net {
        name: "VIT",
        file: "VIT",
        graph: Graph::Operators { border: 184 },
    },
    Net {
        name: "Inceptionv3",
        file: "Inceptionv3",
        graph: Graph::Modules { side: 299 },
    },
    Net {
        name: "ResNet152",
        file: "ResNet152",
        graph: Graph::Modules { side: 224 },
    },
    Net {
        name: "SENet154",
        file: "SENet154",
        graph: Graph::Modules { side: 224 },
    },
];

/// Imports network `net` (`BERT`, `VIT`, `Inceptionv3`, `ResNet152`, `SENet154`;
/// case does not matter) at `batch` samples from the folder `dir`.
///
/// # Errors
/// An unknown network, a missing or malformed file, and times for another number
/// of kernels.
pub fn import(dir: &Path, net: &str, batch: u64) -> Result<Trace, ImportError> {
    let net = NETS
        .iter()
        .find(|n| n.name.eq_ignore_ascii_case(net) || n.file.eq_ignore_ascii_case(net))
        .ok_or_else(|| ImportError::UnknownNet(net.into()))?;
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

    let times = |suffix: &str, unit: &str| {
        let file = dir
            .join("results")
            .join(net.file)
            .join(format!("cudnn{batch}{suffix}.txt"));
        let text = read(&file)?;
        let values = column(&text, unit).map_err(|e| ImportError::Parse(file.clone(), e))?;
        if values.len() != trace.kernels.len() {
            let (lines, kernels) = (values.len(), trace.kernels.len());
            return Err(ImportError::Count {
                file,
                lines,
                kernels,
            });
        }
        Ok(values)
    };
    let ideal = times("", "ms")?;
    let out_fault = times("InputPF", "ms")?;
    let all_fault = times("PF", "ms")?;
    let workspace = times("Workspace", "B")?;
    for (i, k) in trace.kernels.iter_mut().enumerate() {
        k.duration_ns = ideal[i];
        k.out_fault_ns = Some(out_fault[i]);
        k.all_fault_ns = Some(all_fault[i]);
    }
    for (i, &bytes) in workspace.iter().enumerate().filter(|&(_, &b)| b > 0) {
        let name = format!("{}.{i}.workspace", trace.kernels[i].name);
        let t = Tensor::new(Kind::Workspace, build::whole_pages(bytes), &name);
        let id = trace.add_tensor(t);
        trace.kernels[i].workspace.push(id);
    }
    set_phases(&mut trace);
    trace
        .validate()
        .map_err(|e| ImportError::Parse(dir.to_path_buf(), e))?;
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
    for (i, line) in text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty())
    {
        let fail = |what: String| Error {
            line: u32::try_from(i + 1).unwrap_or(u32::MAX),
            object: format!("kernel {}", values.len()),
            what,
        };
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
    let ns: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(ns)
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
