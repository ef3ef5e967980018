// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The parser of the text format.

use std::str::FromStr;

use crate::Error;
use crate::Kernel;
use crate::Kind;
use crate::Phase;
use crate::Tensor;
use crate::TensorId;
use crate::Trace;
use crate::FORMAT_VERSION;

impl FromStr for Trace {
    type Err = Error;

    /// Reads the text format and validates the result ([`Trace::validate`]).
    ///
    /// # Errors
    /// The first thing wrong, with its line.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut trace = Trace::default();
        let mut seen_header = false;
        for (line, n) in text.lines().zip(1..) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let record = match fields.first() {
                None => continue,
                Some(f) if f.starts_with('#') => continue,
                Some(f) => *f,
            };
            let done = if !seen_header {
                seen_header = true;
                header(&fields)
            } else {
                match record {
                    "meta" => meta(&mut trace, &fields, line),
                    "tensor" => tensor(&mut trace, &fields, n),
                    "kernel" => kernel(&mut trace, &fields, n),
                    _ => Err(format!(
                        "'{record}' is no record; expected meta, tensor, kernel or a # comment"
                    )),
                }
            };
            done.map_err(|what| Error::new(n, object_of(&fields), what))?;
        }
        if !seen_header {
            let what = "the file is empty; expected 'uvmtrace 1'";
            return Err(Error::new(1, "", what));
        }
        trace.validate()?;
        Ok(trace)
    }
}

/// `tensor 7` or `kernel 12`, as far as the line gives it.
fn object_of(fields: &[&str]) -> String {
    match fields {
        [r @ ("tensor" | "kernel"), n, ..] => format!("{r} {n}"),
        _ => String::new(),
    }
}

fn header(fields: &[&str]) -> Result<(), String> {
    match fields {
        ["uvmtrace", v] if *v == FORMAT_VERSION.to_string() => Ok(()),
        ["uvmtrace", v] => Err(format!(
            "format version {v}; this program reads version {FORMAT_VERSION}"
        )),
        _ => Err("not a uvmsim trace; its first line must be 'uvmtrace 1'".into()),
    }
}

fn meta(trace: &mut Trace, fields: &[&str], line: &str) -> Result<(), String> {
    let [_, key, ..] = fields else {
        return Err("meta needs a key and a value".into());
    };
    let value = line.trim_start().strip_prefix("meta").unwrap_or("");
    let value = value.trim_start().strip_prefix(key).unwrap_or("");
    if trace.meta.contains_key(*key) {
        return Err(format!("meta {key} is given twice"));
    }
    trace.set_meta(key, value);
    Ok(())
}

/// A whole number that is not negative.
fn number(s: &str, what: &str) -> Result<u64, String> {
    s.parse().map_err(|_| {
        if s.starts_with('-') {
            format!("{what} {s} is negative")
        } else {
            format!("{what} '{s}' is not a whole number below 2^64")
        }
    })
}

/// Checks that records are numbered from 0 without gaps.
fn in_order(s: &str, next: usize, what: &str) -> Result<(), String> {
    if number(s, "number")? == next as u64 {
        Ok(())
    } else {
        Err(format!(
            "{what} numbers run from 0 without gaps; expected {next}"
        ))
    }
}

fn tensor(trace: &mut Trace, fields: &[&str], line: u32) -> Result<(), String> {
    let [_, id, kind, bytes, rest @ ..] = fields else {
        return Err("a tensor needs a number, a kind, a size in bytes".into());
    };
    in_order(id, trace.tensors.len(), "tensor")?;
    if trace.tensors.len() >= u32::MAX as usize {
        return Err("more than 2^32 - 1 tensors".into());
    }
    let known = Kind::ALL.into_iter().find(|k| k.as_str() == *kind);
    let kind = known.ok_or_else(|| {
        let all = Kind::ALL.map(Kind::as_str).join(", ");
        format!("kind '{kind}' is unknown; one of {all}")
    })?;
    let bytes = number(bytes, "size")?;
    let name = match rest {
        [] => "",
        [name] => name,
        _ => return Err("a tensor's name has no blanks".into()),
    };
    trace.tensors.push(Tensor {
        kind,
        bytes,
        name: name.into(),
        line,
    });
    Ok(())
}

fn kernel(trace: &mut Trace, fields: &[&str], line: u32) -> Result<(), String> {
    let [_, id, duration, name, reads, writes, workspace, options @ ..] = fields else {
        return Err(
            "a kernel needs a number, a duration in ns, a name, and three lists of tensors \
                    (read, written, scratch; '-' for none)"
                .into(),
        );
    };
    in_order(id, trace.kernels.len(), "kernel")?;
    let mut k = Kernel {
        name: (*name).into(),
        duration_ns: number(duration, "duration")?,
        reads: list(reads)?,
        writes: list(writes)?,
        workspace: list(workspace)?,
        line,
        ..Kernel::default()
    };
    for option in options {
        let (key, value) = option
            .split_once('=')
            .ok_or_else(|| format!("'{option}' is not key=value"))?;
        match key {
            "flops" => k.flops = Some(number(value, key)?),
            "bytes" => k.bytes = Some(number(value, key)?),
            "out_fault_ns" => k.out_fault_ns = Some(number(value, key)?),
            "all_fault_ns" => k.all_fault_ns = Some(number(value, key)?),
            "phase" => k.phase = Some(phase(value)?),
            "checkpoint" => k.checkpoint = Some(part(value)?),
            _ => {
                return Err(format!(
                "option '{key}' is unknown; one of flops, bytes, out_fault_ns, all_fault_ns, phase, checkpoint"
            ))
            }
        }
    }
    trace.kernels.push(k);
    Ok(())
}

fn list(s: &str) -> Result<Vec<TensorId>, String> {
    if s == "-" {
        return Ok(Vec::new());
    }
    let tensor = |f| {
        let n = number(f, "tensor number")?;
        let id = u32::try_from(n).map(TensorId);
        id.map_err(|_| format!("there is no tensor {n}"))
    };
    s.split(',').map(tensor).collect()
}

/// The most parts that a forward pass may have.
const MOST_PARTS: u64 = 1 << 20;

fn part(s: &str) -> Result<u32, String> {
    match number(s, "checkpoint")? {
        n if n < MOST_PARTS => Ok(n as u32),
        n => Err(format!("checkpoint {n} is not below {MOST_PARTS}")),
    }
}

fn phase(s: &str) -> Result<Phase, String> {
    let all = [Phase::Forward, Phase::Backward, Phase::Optimizer];
    let known = all.into_iter().find(|p| p.as_str() == s);
    known.ok_or_else(|| format!("phase '{s}' is unknown; one of forward, backward, optimizer"))
}
