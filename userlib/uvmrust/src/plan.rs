// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Carrying out a plan of uvmsim's (`uvmplan 1`, docs/simulator-formats.md): before each
//! kernel of a step, what is to come to the GPU, what is to leave it, and what nobody will
//! read (G10 §4.4).
//!
//! Offsets of a plan are in one range, in which the program has each tensor where the plan
//! says. What moves is queued and not waited for, as advice (see [`Moves`]);
//! what is freed is discarded at once, before the kernel may write there again.

use std::fmt;

use crate::{Backend, Error, Mode, Move, Moves, Range, Result, Sys, Tier, Uvm};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `prefetch` and `allocate`: GPU memory, with the contents if there are any.
    Bring,
    /// `evict`: out of the GPU, to the SSD or only to the host.
    Evict {
        /// Whether to the SSD.
        ssd: bool,
    },
    /// `free` and `discard`: the contents are not needed.
    Drop,
    /// `copy`: written out, and kept. The driver keeps no second copy, so that nothing is done.
    Copy,
}

/// A request of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub ask: Ask,
    /// First byte, from the start of the plan's range.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A plan for a step that repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    span: u64,
    /// By kernel; those of one in the order to make them in.
    requests: Vec<Request>,
    /// Where each kernel's begin, and the end.
    begins: Vec<usize>,
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for PlanError {}

/// Most kernels of a step; a larger number is a mistake.
const MAX_KERNELS: u64 = 1 << 26;

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// It is not one of version 1: the line and what is wrong. `kernels` and `span` come
    /// before the first request.
    pub fn parse(text: &str) -> std::result::Result<Self, PlanError> {
        let mut lines = text.lines().enumerate();
        if lines
            .next()
            .is_none_or(|(_, line)| fields(line) != ["uvmplan", "1"])
        {
            let what = "this is no plan of version 1: want `uvmplan 1`".to_owned();
            return Err(PlanError { line: 1, what });
        }
        let (mut kernels, mut span) = (None, None);
        let mut asked = Vec::new();
        let mut end = 1;
        for (i, line) in lines {
            end = i + 1;
            let done = match fields(line).as_slice() {
                [] | ["meta", ..] => Ok(()),
                [first, ..] if first.starts_with('#') => Ok(()),
                ["kernels", n] => once(&mut kernels, n, MAX_KERNELS),
                ["span", n] => once(&mut span, n, 1 << 56),
                ["at", rest @ ..] => match (kernels, span) {
                    (Some(kernels), Some(span)) => {
                        request(rest, kernels, span).map(|request| asked.push(request))
                    }
                    _ => Err("a request before `kernels` and `span`".to_owned()),
                },
                [other, ..] => Err(format!("`{other}` is no record of a plan")),
            };
            done.map_err(|what| PlanError { line: end, what })?;
        }
        let (Some(kernels), Some(span)) = (kernels, span) else {
            let what = "it has no `kernels` or no `span`".to_owned();
            return Err(PlanError { line: end, what });
        };
        // Stable: those of one kernel stay in order.
        asked.sort_by_key(|&(kernel, _)| kernel);
        let begins = (0..=kernels)
            .map(|k| asked.partition_point(|&(kernel, _)| kernel < k))
            .collect();
        let requests = asked.into_iter().map(|(_, request)| request).collect();
        Ok(Self {
            span,
            requests,
            begins,
        })
    }

    /// Kernels of the step; at least 1.
    pub fn kernels(&self) -> u64 {
        self.begins.len() as u64 - 1
    }

    /// Bytes of the range that the offsets are in.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// What to ask for before the `n`th kernel that the program starts, from 0: the step
    /// repeats.
    pub fn before(&self, n: u64) -> &[Request] {
        let kernel = (n % self.kernels()) as usize;
        &self.requests[self.begins[kernel]..self.begins[kernel + 1]]
    }
}

fn fields(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn number(text: &str) -> std::result::Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number"))
}

fn once(value: &mut Option<u64>, text: &str, most: u64) -> std::result::Result<(), String> {
    match number(text)? {
        n if n == 0 || n > most => Err(format!("{n} is not between 1 and {most}")),
        _ if value.is_some() => Err("a second time".to_owned()),
        n => {
            *value = Some(n);
            Ok(())
        }
    }
}

/// Kernel and request of an `at`.
fn request(
    fields: &[&str],
    kernels: u64,
    span: u64,
) -> std::result::Result<(u64, Request), String> {
    let [kernel, word, _tensor, offset, length, tier @ ..] = fields else {
        return Err("want `at KERNEL REQUEST TENSOR FIRST-BYTE BYTES [TIER]`".to_owned());
    };
    let kernel = number(kernel)?;
    if kernel >= kernels {
        return Err(format!(
            "there is no kernel {kernel}: the step has {kernels}"
        ));
    }
    let (offset, length) = (number(offset)?, number(length)?);
    if length == 0 || offset.checked_add(length).is_none_or(|end| end > span) {
        return Err(format!(
            "{length} bytes at {offset} are not in the span of {span}"
        ));
    }
    let ask = match (*word, tier) {
        ("prefetch" | "allocate", []) => Ask::Bring,
        ("evict", ["host"]) => Ask::Evict { ssd: false },
        ("evict", ["ssd"]) => Ask::Evict { ssd: true },
        ("copy", ["host" | "ssd"]) => Ask::Copy,
        ("free" | "discard", []) => Ask::Drop,
        _ => return Err(format!("`{word} {}` is no request", tier.join(" "))),
    };
    Ok((
        kernel,
        Request {
            ask,
            offset,
            length,
        },
    ))
}

impl<S: Sys> Uvm<S> {
    /// Makes the requests before a kernel, in order: moves are queued, and what is dropped
    /// is discarded before this returns, eagerly, so that it needs no prefetch. Calls
    /// nothing of CUDA.
    ///
    /// # Errors
    /// The first error of a discard, after which the rest was done all the same.
    ///
    /// # Safety
    /// `base` is where the plan's range begins, in managed memory that stays. All that the
    /// plan drops before this kernel is not read any more, by nobody, until it is written
    /// again, and no reference to it is live.
    pub unsafe fn carry_out(
        &self,
        requests: &[Request],
        base: u64,
        gpu: [u8; 16],
        moves: &Moves,
    ) -> Result<()> {
        let mut queue = Vec::new();
        let mut result = Ok(());
        for request in requests {
            let range = Range {
                base: base.checked_add(request.offset).ok_or(Error::Invalid)?,
                length: request.length,
            };
            let to = match request.ask {
                Ask::Bring => Tier::Gpu(gpu),
                Ask::Evict { ssd: true } => Tier::Ssd,
                Ask::Evict { ssd: false } => Tier::Host,
                Ask::Copy => continue,
                Ask::Drop => {
                    if matches!(self.backend(), Backend::UvmRust | Backend::Native) {
                        // SAFETY: by our contract; an eager discard needs no prefetch.
                        let done = unsafe { self.discard(range, Mode::Eager) };
                        result = result.and(done);
                    }
                    continue;
                }
            };
            queue.push(Move { range, to });
        }
        if !queue.is_empty() {
            moves.submit(&queue);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const GOOD: &str = "uvmplan 1\n# a comment\nmeta trace a b\nkernels 3\nspan 16384\n\
        at 2 prefetch 7 4096 4096\nat 0 evict 1 0 4096 host\nat 2 evict 1 0 4096 ssd\n\
        at 2 discard 3 8192 8192\nat 0 copy 2 4096 4096 ssd\n";

    #[test]
    fn requests_are_found_by_kernel_in_their_order() {
        let plan = Plan::parse(GOOD).unwrap();
        assert_eq!((plan.kernels(), plan.span()), (3, 16384));
        let asks = |n| plan.before(n).iter().map(|r| r.ask).collect::<Vec<_>>();
        let (host, ssd) = (Ask::Evict { ssd: false }, Ask::Evict { ssd: true });
        assert_eq!(asks(0), [host, Ask::Copy]);
        assert_eq!(asks(1), []);
        assert_eq!(asks(2), [Ask::Bring, ssd, Ask::Drop]);
        // The step repeats.
        assert_eq!(plan.before(5), plan.before(2));
        assert_eq!(plan.before(u64::MAX), plan.before(0));
        let drop = plan.before(2)[2];
        assert_eq!((drop.offset, drop.length), (8192, 8192));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let said = |text: &str| Plan::parse(text).unwrap_err().to_string();
        assert!(said("").starts_with("line 1:"));
        assert!(said("uvmplan 2\n").starts_with("line 1:"));
        assert!(said("uvmplan 1\nkernels 3\n").contains("no `kernels` or no `span`"));
        for (line, text) in [
            ("kernels 3\nkernels 3", "line 3: a second time"),
            ("kernels 0", "line 2: 0 is not between"),
            ("kernels x", "line 2: `x` is not a number"),
            ("at 0 free 1 0 4096", "line 2: a request before"),
            ("what", "line 2: `what` is no record"),
            (
                "kernels 3\nspan 4096\nat 3 free 1 0 4096",
                "line 4: there is no kernel 3",
            ),
            (
                "kernels 3\nspan 4096\nat 0 free 1 0 8192",
                "line 4: 8192 bytes at 0",
            ),
            (
                "kernels 3\nspan 4096\nat 0 free 1 18446744073709551615 2",
                "line 4: 2 bytes",
            ),
            ("kernels 3\nspan 4096\nat 0 free 1 0 0", "line 4: 0 bytes"),
            (
                "kernels 3\nspan 4096\nat 0 evict 1 0 4096",
                "line 4: `evict ` is no request",
            ),
            (
                "kernels 3\nspan 4096\nat 0 free 1 0 4096 ssd",
                "line 4: `free ssd`",
            ),
            ("kernels 3\nspan 4096\nat 0 free", "line 4: want `at"),
        ] {
            let said = said(&format!("uvmplan 1\n{line}\n"));
            assert!(said.starts_with(text), "{line}: {said}");
        }
    }
}
