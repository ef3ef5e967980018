// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Plans as text, for people, for `uvmsim run --plan` and for a runtime that
//! carries them out through the driver.
//!
//! # The format, versions 1 and 2
//!
//! One record a line, fields separated by blanks; `#` starts a comment line.
//!
//! ```text
//! uvmplan 1
//! meta trace bert-large
//! kernels 1671
//! span 34980495360
//! at 0 allocate 17 34359738368 100663296
//! at 12 evict 31 8589934592 67108864 host
//! at 12 free 30 4294967296 4096
//! at 900 prefetch 31 8589934592 67108864
//! ```
//!
//! | record | fields |
//! |---|---|
//! | `uvmplan` | version; the first line |
//! | `meta` | key, value |
//! | `kernels` | kernels of the step that the plan is for |
//! | `span` | bytes of the virtual range that the offsets are in |
//! | `again` | in version 2 only: kernel of the trace before which another runs again, and which |
//! | `at` | kernel before whose start the request is made, request, tensor, first byte, bytes, and for `evict` and `copy` the tier, `host` or `ssd` |
//!
//! Requests: `prefetch` and `evict` (G10's g10_prefetch and g10_pre_evict; MOST's
//! calls), `copy` (as evict, but the memory stays), `allocate` and `free` (G10's g10_alloc and g10_free), `discard`
//! (UvmDiscardLazy). Those of one kernel are made in the order of the lines;
//! kernels are numbered from 0 in the order of execution, and the step repeats.
//! Offsets are whole pages; a range is a tensor's.
//!
//! A plan with kernels that run again has version 2, as a runtime that cannot run them must
//! not take it for another. Its `again` records come before its requests, in the order in
//! which those kernels run. In `kernels` and `at` they are kernels of their own, and what
//! they write are tensors of their own, numbered on from the trace's in the order of writing
//! ([`crate::rerun`]).

use std::fmt;
use std::fmt::Write;

use uvmsim_machine::PAGE;

use crate::plan::recompute::Made;
use crate::plan::Op;
use crate::plan::Plan;
use crate::policy::Tier;
use crate::rerun::Rerun;
use crate::rerun::SAME;
use crate::workload::Layout;
use crate::workload::Workload;

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Error {}

impl Plan {
    /// The same plan with each allocation and release as a request of its own.
    pub fn explicit(&self, layout: &Layout) -> Self {
        let kernels = self.before.len();
        let mut plan = Plan {
            before: vec![Vec::new(); kernels],
            allocate_ahead: None,
            releases: false,
            again: self.again.clone(),
        };
        for (k, ops) in self.before.iter().enumerate() {
            let dead = (k + kernels - 1) % kernels;
            if self.releases {
                plan.before[k].extend(layout.deaths[dead].iter().map(|&t| Op::Free(t)));
            }
            plan.before[k].extend(ops);
            if let Some(ahead) = self.allocate_ahead {
                let from = if k == 0 { 0 } else { k + ahead as usize };
                for births in layout.births.iter().take(k + ahead as usize + 1).skip(from) {
                    plan.before[k].extend(births.iter().map(|&t| Op::Allocate(t)));
                }
            }
        }
        plan
    }

    /// The plan as text; the step is that with what runs again.
    pub fn text(&self, workload: &Workload, layout: &Layout) -> String {
        let mut out = format!(
            "uvmplan {}\nmeta trace {}\nkernels {}\nspan {}\n",
            if self.again.is_empty() { 1 } else { 2 },
            workload.name,
            workload.kernels.len(),
            layout.span
        );
        for Rerun { before, kernel } in &self.again {
            let _ = writeln!(out, "again {before} {kernel}");
        }
        for (k, ops) in self.explicit(layout).before.iter().enumerate() {
            for op in ops {
                let (word, t, tier) = match *op {
                    Op::Prefetch(t) => ("prefetch", t, ""),
                    Op::Evict(t, Tier::Host) => ("evict", t, " host"),
                    Op::Evict(t, Tier::Ssd) => ("evict", t, " ssd"),
                    Op::Copy(t, Tier::Host) => ("copy", t, " host"),
                    Op::Copy(t, Tier::Ssd) => ("copy", t, " ssd"),
                    Op::Allocate(t) => ("allocate", t, ""),
                    Op::Free(t) => ("free", t, ""),
                    Op::Discard(t) => ("discard", t, ""),
                };
                let (at, bytes) = range(workload, layout, t);
                let _ = writeln!(out, "at {k} {word} {t} {at} {bytes}{tier}");
            }
        }
        out
    }

    /// Reads a plan for `workload`, and the step as the plan has it.
    ///
    /// # Errors
    /// See [`Self::parse`]; or a kernel cannot run again as the plan says.
    pub fn read(text: &str, workload: &Workload) -> Result<Made, Error> {
        let mut again = Vec::new();
        let mut at = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            match fields.as_slice() {
                ["again", rest @ ..] => {
                    let rerun = rerun(rest).map_err(|what| Error { line: i + 1, what })?;
                    again.push(rerun);
                    at.push(i + 1);
                }
                ["at", ..] => break,
                _ => {}
            }
        }
        let refused = |e: crate::rerun::Refused| Error {
            line: at.get(e.rerun).copied().unwrap_or(1),
            what: e.what,
        };
        let workload = workload.with_reruns(&again, SAME).map_err(refused)?;
        let layout = Layout::new(&workload);
        let plan = Self::parse(text, &workload, &layout)?;
        Ok(Made {
            workload,
            layout,
            plan,
        })
    }

    /// Reads a plan for `workload`, which has all kernels that run again.
    ///
    /// # Errors
    /// It is not a plan of this version, or not one for this workload: another
    /// number of kernels, an unknown tensor, a range that is not the tensor's, a
    /// request for a tensor that is not alive then.
    pub fn parse(text: &str, workload: &Workload, layout: &Layout) -> Result<Self, Error> {
        let mut plan = Plan {
            before: vec![Vec::new(); workload.kernels.len()],
            allocate_ahead: None,
            releases: false,
            again: Vec::new(),
        };
        let mut lines = text.lines().enumerate();
        let error = |line: usize, what: String| Error {
            line: line + 1,
            what,
        };
        let first = lines.next().map_or("", |(_, line)| line);
        let reruns = match first.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["uvmplan", "1"] => false,
            ["uvmplan", "2"] => true,
            _ => return Err(error(0, "want `uvmplan 1` or `uvmplan 2`".into())),
        };
        let mut requests = false;
        for (i, line) in lines {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let done = match fields.as_slice() {
                [] | ["meta", ..] => Ok(()),
                [first, ..] if first.starts_with('#') => Ok(()),
                ["kernels", n] => same("kernels", n, workload.kernels.len() as u64),
                ["span", n] => same("bytes of span", n, layout.span),
                ["again", rest @ ..] if reruns && !requests => {
                    rerun(rest).map(|rerun| plan.again.push(rerun))
                }
                ["at", rest @ ..] => {
                    requests = true;
                    request(rest, workload, layout).map(|(k, op)| plan.before[k].push(op))
                }
                [other, ..] => Err(format!("`{other}` is no record of a plan")),
            };
            done.map_err(|what| error(i, what))?;
        }
        Ok(plan)
    }
}

fn range(workload: &Workload, layout: &Layout, t: u32) -> (u64, u64) {
    (
        layout.addresses[t as usize],
        workload.tensors[t as usize].bytes.next_multiple_of(PAGE),
    )
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{what} `{text}` is not a number"))
}

fn same(what: &str, text: &str, have: u64) -> Result<(), String> {
    let want = number(text, what)?;
    if want == have {
        Ok(())
    } else {
        Err(format!(
            "the plan is for {want} {what}, the trace has {have}"
        ))
    }
}

fn rerun(fields: &[&str]) -> Result<Rerun, String> {
    let [before, kernel] = fields else {
        return Err("want `again BEFORE KERNEL`".into());
    };
    let kernel_of = |text| {
        let n = number(text, "kernel")?;
        u32::try_from(n).map_err(|_| format!("there is no kernel {n}"))
    };
    Ok(Rerun {
        before: kernel_of(before)?,
        kernel: kernel_of(kernel)?,
    })
}

fn request(fields: &[&str], workload: &Workload, layout: &Layout) -> Result<(usize, Op), String> {
    let [k, word, t, at, bytes, tier @ ..] = fields else {
        return Err("want `at KERNEL REQUEST TENSOR FIRST-BYTE BYTES [TIER]`".into());
    };
    let kernel = number(k, "kernel")?;
    if kernel >= workload.kernels.len() as u64 {
        return Err(format!("there is no kernel {kernel}"));
    }
    let number_of = number(t, "tensor")?;
    let tensor = workload
        .tensors
        .get(usize::try_from(number_of).unwrap_or(usize::MAX));
    let tensor = tensor
        .filter(|t| !t.uses.is_empty())
        .ok_or(format!("no kernel uses tensor {number_of}"))?;
    let t = number_of as u32;
    let want = range(workload, layout, t);
    let have = (number(at, "first byte")?, number(bytes, "bytes")?);
    if want != have {
        return Err(format!(
            "tensor {t} ({}) is at {} and has {} bytes, not at {} with {}",
            tensor.name, want.0, want.1, have.0, have.1
        ));
    }
    let op = match (*word, tier) {
        ("prefetch", []) => Op::Prefetch(t),
        ("evict", ["host"]) => Op::Evict(t, Tier::Host),
        ("evict", ["ssd"]) => Op::Evict(t, Tier::Ssd),
        ("copy", ["host"]) => Op::Copy(t, Tier::Host),
        ("copy", ["ssd"]) => Op::Copy(t, Tier::Ssd),
        ("allocate", []) => Op::Allocate(t),
        ("free", []) => Op::Free(t),
        ("discard", []) => Op::Discard(t),
        _ => return Err(format!("`{word} {}` is no request", tier.join(" "))),
    };
    check_alive(workload, kernel as u32, t, op)?;
    Ok((kernel as usize, op))
}

/// Refuses a request that would harm: dropping what is needed, or touching memory
/// that is another tensor's then.
fn check_alive(workload: &Workload, kernel: u32, t: u32, op: Op) -> Result<(), String> {
    let tensor = &workload.tensors[t as usize];
    let (first, last) = (tensor.first(), tensor.last());
    let after = (last + 1) % workload.kernels.len() as u32;
    let fine = match op {
        Op::Free(_) | Op::Discard(_) => !tensor.lasting && kernel == after,
        Op::Allocate(_) => kernel <= first && !tensor.lasting,
        Op::Prefetch(_) | Op::Evict(..) | Op::Copy(..) => {
            tensor.lasting || (first..=last).contains(&kernel)
        }
    };
    if fine {
        Ok(())
    } else {
        Err(format!(
            "tensor {t} ({}) lives in kernels {first} to {last}: no such request before {kernel}",
            tensor.name
        ))
    }
}
