// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Plans as text: for people, for `uvmsim run --plan`, and for a runtime that carries them out
//! through the driver. Whoever reads or writes one does so here.
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
//! | `at` | kernel before whose start the request is made, request, tensor, first byte, bytes, and for `evict` and `copy` the tier, `host` or `ssd`, and maybe `behind` |
//! | `start` | launches of the program before its first step |
//! | `launch` | kernel, its name |
//! | `tensor` | tensor, its name: which allocation of the program it is |
//!
//! Requests: `prefetch` and `evict` (G10's g10_prefetch and g10_pre_evict; MOST's calls),
//! `copy` (as evict, but the memory stays), `allocate` and `free` (G10's g10_alloc and
//! g10_free), `discard` (UvmDiscardLazy). Those of one kernel are made in the order of the
//! lines; kernels are numbered from 0 in the order of execution, and the step repeats. Offsets
//! are whole pages; a range is a tensor's, or a part of it. `kernels` and `span` come before all requests.
//!
//! The kernel before uses what is to leave or to be copied `behind` it: each va_block is as soon as that kernel is
//! past it, if whoever carries out the plan can tell, and at the latest when the request is made.
//!
//! A plan with kernels that run again has version 2, as a runtime that cannot run them must not
//! take it for another. Its `again` records come before its requests, in the order in which
//! those kernels run. In `kernels` and `at` they are kernels of their own, and what they write
//! are tensors of their own, numbered on from the trace's in the order of writing.
//!
//! `start`, `launch` and `tensor` are in the plans of programs that were recorded ([`Program`]),
//! before the requests: `launch` for each kernel, in order. They are in version 1 only: whatever may know a program
//! by its launches cannot make it run some again.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod program;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

pub use program::{Key, Name, NoKey, Program};

/// A place outside GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The machine's own memory.
    Host,
    /// The device behind the host.
    Ssd,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Bring it to GPU memory.
    Prefetch,
    /// Take it out of GPU memory.
    Evict(Tier),
    /// Write it out and keep it.
    Copy(Tier),
    /// Give the range memory.
    Allocate,
    /// Take it back with its contents.
    Free,
    /// The contents are not needed.
    Discard,
}

/// Every request, with its words.
const WORDS: [(What, &str, &str); 8] = [
    (What::Prefetch, "prefetch", ""),
    (What::Evict(Tier::Host), "evict", "host"),
    (What::Evict(Tier::Ssd), "evict", "ssd"),
    (What::Copy(Tier::Host), "copy", "host"),
    (What::Copy(Tier::Ssd), "copy", "ssd"),
    (What::Allocate, "allocate", ""),
    (What::Free, "free", ""),
    (What::Discard, "discard", ""),
];

impl What {
    /// The word that stands for it; evictions and copies have their tier after the range.
    pub fn word(self) -> &'static str {
        self.words().0
    }

    fn words(self) -> (&'static str, &'static str) {
        let found = WORDS.iter().find(|w| w.0 == self);
        found.map_or(("", ""), |w| (w.1, w.2))
    }
}

/// One line of a plan: what is to be done with a part of a tensor before a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kernel before whose start it is made.
    pub kernel: u64,
    /// What is to be done with it.
    pub what: What,
    /// The tensor's number in the trace.
    pub tensor: u64,
    /// First byte, from the start of the plan's range.
    pub offset: u64,
    /// Bytes, at least one; within the plan's range.
    pub bytes: u64,
    /// Whether it had better be done of each va_block as soon as the kernel before is past it; of evictions
    /// and copies only.
    pub behind: bool,
    /// The line that it is from.
    pub line: usize,
}

/// A kernel that runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The kernel of the trace before which it does.
    pub before: u32,
    /// Which kernel of the trace it is.
    pub kernel: u32,
    /// The line that it is from.
    pub line: usize,
}

/// A number, and the line that it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The value, as the plan has it.
    pub value: u64,
    /// The line of the plan that has it, from 1.
    pub line: usize,
}

/// A plan for a step that repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the trace is called.
    pub trace: String,
    /// Kernels of the step, at least one; those that run again among them.
    pub kernels: Number,
    /// Bytes of the virtual range that the offsets are in, at least one.
    pub span: Number,
    /// Kernels that run again, in order.
    pub again: Vec<Again>,
    /// The requests, in the order of the lines.
    pub requests: Vec<Request>,
    /// How to know the program that the step is of; `None`: it was not recorded of one.
    pub program: Option<Program>,
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong in that line, as a sentence.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for Error {}

/// Most kernels of a step; a larger number is a mistake.
const MAX_KERNELS: u64 = 1 << 26;
/// Most bytes of a range, likewise.
const MAX_SPAN: u64 = 1 << 56;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.again.is_empty() { 1 } else { 2 };
        let (kernels, span) = (self.kernels.value, self.span.value);
        writeln!(f, "uvmplan {version}\nmeta trace {}", self.trace)?;
        writeln!(f, "kernels {kernels}\nspan {span}")?;
        // Before the requests, so that a plan that is cut off anywhere is not taken for a plan of a range.
        self.program.iter().try_for_each(|p| write!(f, "{p}"))?;
        for a in &self.again {
            writeln!(f, "again {} {}", a.before, a.kernel)?;
        }
        for r in &self.requests {
            let (word, tier) = r.what.words();
            let blank = if tier.is_empty() { "" } else { " " };
            let (kernel, tensor, offset, bytes) = (r.kernel, r.tensor, r.offset, r.bytes);
            let behind = if r.behind { " behind" } else { "" };
            writeln!(
                f,
                "at {kernel} {word} {tensor} {offset} {bytes}{blank}{tier}{behind}"
            )?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = Error;

    /// Reads a plan.
    ///
    /// # Errors
    /// The first thing that is wrong:
    ///
    /// - the text is no plan, or one of a version that is not known;
    /// - a record is none, or lacks or repeats something;
    /// - a request is for no kernel of the step, or for no range of the span;
    /// - the program is not named whole.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut lines = text.lines().zip(1..);
        let first = lines.next().map_or("", |(line, _)| line);
        let reruns = has_reruns(first).map_err(|what| Error { line: 1, what })?;
        let mut trace = String::new();
        let (mut kernels, mut span) = (None, None);
        let (mut again, mut requests) = (Vec::new(), Vec::new());
        let mut program = program::Records::default();
        let mut end = 1;
        for (text, line) in lines {
            end = line;
            let done = match fields(text).as_slice() {
                [] => Ok(()),
                ["meta", rest @ ..] => {
                    if let ["trace", name @ ..] = rest {
                        trace = name.join(" ");
                    }
                    Ok(())
                }
                [first, ..] if first.starts_with('#') => Ok(()),
                ["kernels", n] => once(&mut kernels, n, MAX_KERNELS, line),
                ["span", n] => once(&mut span, n, MAX_SPAN, line),
                ["again", rest @ ..] if reruns && requests.is_empty() => {
                    rerun(rest, line).map(|a| again.push(a))
                }
                ["at", rest @ ..] => match (kernels, span) {
                    (Some(kernels), Some(span)) => {
                        request(rest, kernels, span, line).map(|r| requests.push(r))
                    }
                    _ => Err("a request before `kernels` and `span`".to_owned()),
                },
                [record @ ("start" | "launch" | "tensor"), rest @ ..] if !reruns => {
                    program.add(record, rest, line)
                }
                [other, ..] => Err(format!("`{other}` is no record of a plan, or not here")),
            };
            done.map_err(|what| Error { line, what })?;
        }
        let (Some(kernels), Some(span)) = (kernels, span) else {
            let what = "it has no `kernels` or no `span`".to_owned();
            return Err(Error { line: end, what });
        };
        let told = |what| Error { line: end, what };
        Ok(Self {
            trace,
            kernels,
            span,
            again,
            requests,
            program: program.finish(kernels).map_err(told)?,
        })
    }
}

/// Whether this is the first line of a plan in which kernels may run again.
fn has_reruns(first: &str) -> Result<bool, String> {
    match fields(first).as_slice() {
        ["uvmplan", "1"] => Ok(false),
        ["uvmplan", "2"] => Ok(true),
        _ => Err("this is no plan: want `uvmplan 1` or `uvmplan 2`".to_owned()),
    }
}

fn fields(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{what} `{text}` is not a number"))
}

fn once(value: &mut Option<Number>, text: &str, most: u64, line: usize) -> Result<(), String> {
    match number(text, "the number")? {
        n if n == 0 || n > most => Err(format!("{n} is not between 1 and {most}")),
        _ if value.is_some() => Err("a second time".to_owned()),
        n => {
            *value = Some(Number { value: n, line });
            Ok(())
        }
    }
}

fn rerun(fields: &[&str], line: usize) -> Result<Again, String> {
    let [before, kernel] = fields else {
        return Err("want `again BEFORE KERNEL`".to_owned());
    };
    let kernel_of = |text| {
        let n = number(text, "kernel")?;
        u32::try_from(n).map_err(|_| format!("there is no kernel {n}"))
    };
    Ok(Again {
        before: kernel_of(before)?,
        kernel: kernel_of(kernel)?,
        line,
    })
}

fn request(fields: &[&str], kernels: Number, span: Number, line: usize) -> Result<Request, String> {
    let [kernel, word, tensor, offset, bytes, tier @ ..] = fields else {
        return Err("want `at KERNEL REQUEST TENSOR FIRST-BYTE BYTES [TIER [behind]]`".to_owned());
    };
    let kernel = number(kernel, "kernel")?;
    let (kernels, span) = (kernels.value, span.value);
    if kernel >= kernels {
        return Err(format!(
            "there is no kernel {kernel}: the step has {kernels}"
        ));
    }
    let tensor = number(tensor, "tensor")?;
    let (offset, bytes) = (number(offset, "first byte")?, number(bytes, "bytes")?);
    if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > span) {
        return Err(format!(
            "{bytes} bytes at {offset} are not in the span of {span}"
        ));
    }
    let (tier, behind) = match tier {
        [tier, "behind"] => (*tier, true),
        _ => (&*tier.join(" "), false),
    };
    let known = WORDS.iter().find(|w| w.1 == *word && w.2 == tier);
    let Some(&(what, ..)) = known else {
        return Err(format!("`{word} {tier}` is no request"));
    };
    Ok(Request {
        kernel,
        what,
        tensor,
        offset,
        bytes,
        behind,
        line,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use alloc::string::ToString;

    use super::*;

    const GOOD: &str = "uvmplan 1\n# a comment\nmeta trace a b\nkernels 3\nspan 16384\n\
        at 2 prefetch 7 4096 4096\nat 0 evict 1 0 4096 host\nat 2 evict 1 0 4096 ssd\n\
        at 2 discard 3 8192 8192\nat 0 copy 2 4096 4096 ssd\n\
        at 1 evict 7 4096 4096 host behind\n";

    /// The plan of a program that was recorded, as it is written.
    fn recorded() -> String {
        let program = "start 0\nlaunch 0 a\nlaunch 1 ?\nlaunch 2 a\n\
            tensor 1 alloc12\ntensor 7 other.0\ntensor 3 kernel2.1\n";
        let (head, requests) = GOOD.split_at(GOOD.find("at ").unwrap());
        head.replace("# a comment\n", "") + program + requests
    }

    #[test]
    fn what_is_written_is_read_again() {
        let plan: Plan = GOOD.parse().unwrap();
        assert_eq!(plan.trace, "a b");
        assert_eq!((plan.kernels.value, plan.kernels.line), (3, 4));
        assert_eq!((plan.requests.len(), plan.requests[1].line), (6, 7));
        let behind = plan.requests.iter().filter(|r| r.behind);
        assert_eq!(behind.map(|r| r.kernel).collect::<Vec<_>>(), [1]);
        let same = GOOD.replace("# a comment\n", "");
        assert_eq!(plan.to_string(), same);
        let again = same
            .replace("uvmplan 1", "uvmplan 2")
            .replace("at 2 prefetch", "again 1 0\nagain 2 0\nat 2 prefetch");
        let plan: Plan = again.parse().unwrap();
        assert_eq!((plan.again[1].before, plan.again[1].kernel), (2, 0));
        assert_eq!(plan.to_string(), again);
    }

    #[test]
    fn a_recorded_program_is_written_and_read_again() {
        assert_eq!(GOOD.parse::<Plan>().unwrap().program, None);
        let text = recorded();
        let plan: Plan = text.parse().unwrap();
        assert_eq!(plan.to_string(), text);
        assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
        let program = plan.program.unwrap();
        assert_eq!((program.start, program.launches[2].line), (0, 8));
        assert_eq!(program.names().collect::<Vec<_>>(), ["a", "?", "a"]);
        assert_eq!((program.name(1), program.name(3)), (Some("?"), None));
        // Of no allocation that could be known again is `other.0`.
        let keys: Vec<_> = program.keys().collect();
        let step = Key::Step { kernel: 2, nth: 1 };
        assert_eq!(keys, [(1, Key::Program(12)), (3, step)]);
        assert_eq!((program.tensors[1].of, program.tensors[1].line), (7, 10));
        // Where the records are does not matter.
        let (first, rest) = text.split_at(text.find("start").unwrap());
        let (program, requests) = rest.split_at(rest.find("at ").unwrap());
        let other: Plan = format!("{first}{requests}{program}").parse().unwrap();
        assert_eq!(other.to_string(), text);
    }

    /// Its requests would drop what is in another place.
    #[test]
    fn a_recorded_program_s_plan_is_never_taken_for_one_of_a_range() {
        let text = recorded();
        let mut read = 0;
        for end in 0..text.len() {
            if let Ok(plan) = text[..end].parse::<Plan>() {
                assert!(plan.program.is_some() || plan.requests.is_empty(), "{end}");
                read += 1;
            }
        }
        assert!(read > 0);
    }

    #[test]
    fn keys_are_written_and_read_again() {
        for text in ["alloc0", "alloc18446744073709551615", "kernel5.0"] {
            let key: Key = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
        }
        for text in "/alloc/alloc-1/kernel/kernel5/kernel5./kernelx.0/x".split('/') {
            assert_eq!(text.parse::<Key>(), Err(NoKey), "{text}");
        }
    }

    #[test]
    fn every_request_has_its_words() {
        for (what, word, tier) in WORDS {
            let line = format!("at 0 {word} 1 0 1 {tier}");
            let text = format!(
                "uvmplan 1\nmeta trace t\nkernels 1\nspan 1\n{}\n",
                line.trim()
            );
            let plan: Plan = text.parse().unwrap();
            assert_eq!((plan.requests[0].what, what.word()), (what, word));
            assert_eq!(plan.to_string(), text);
        }
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let said = |text: &str| text.parse::<Plan>().unwrap_err().to_string();
        assert!(said("").starts_with("line 1:"));
        assert!(said("uvmplan 3\n").starts_with("line 1:"));
        assert!(said("uvmplan 1\nkernels 3\n").contains("no `kernels` or no `span`"));
        let both = "kernels 3\nspan 4096";
        // The lines after the first, with `+` for both of these and blanks around new lines, and
        // what is said.
        let cases = "
            kernels 3 / kernels 3 | line 3: a second time
            kernels 0 | line 2: 0 is not between
            kernels x | line 2: the number `x` is not a number
            at 0 free 1 0 4096 | line 2: a request before
            what | line 2: `what` is no record
            again 1 0 | line 2: `again` is no record
            + / at 3 free 1 0 4096 | line 4: there is no kernel 3
            + / at 0 free x 0 4096 | line 4: tensor `x`
            + / at 0 free 1 0 8192 | line 4: 8192 bytes at 0
            + / at 0 free 1 18446744073709551615 2 | line 4: 2 bytes
            + / at 0 free 1 0 0 | line 4: 0 bytes
            + / at 0 evict 1 0 4096 | line 4: `evict ` is no request
            + / at 0 free 1 0 4096 ssd | line 4: `free ssd`
            + / at 0 free | line 4: want `at
            + / at 0 free 1 0 4096 behind | line 4: `free behind`
            + / at 0 evict 1 0 4096 behind | line 4: `evict behind`
            + / at 0 evict 1 0 4096 ssd behind it | line 4: `evict ssd behind it`
            + / launch 1 a | line 4: kernel 1 is named where 0
            + / launch x a | line 4: kernel `x` is not
            + / launch 0 | line 4: want `launch
            + / tensor 0 | line 4: want `tensor
            + / tensor x a | line 4: tensor `x` is not
            + / tensor 0 a / tensor 0 b | line 5: tensor 0 is named a second time
            + / start | line 4: want `start
            + / start x | line 4: start `x` is not
            + / start 0 / start 0 | line 5: a second time
            + / start 0 / launch 0 a | line 5: it names 1 of 3
            kernels 1 / span 4096 / launch 0 a | line 4: it names kernels, and no `start`
            kernels 1 / span 4096 / tensor 0 alloc0 | line 4: it names 0 of 1";
        for case in cases.trim().lines() {
            let (lines, what) = case.trim().split_once(" | ").unwrap();
            let lines = lines.replace('+', both).replace(" / ", "\n");
            let said = said(&format!("uvmplan 1\n{lines}\n"));
            assert!(said.starts_with(what), "{lines}: {said}");
        }
        // Kernels that run again come first.
        let late = format!("uvmplan 2\n{both}\nat 0 free 1 0 1\nagain 1 0\n");
        assert!(said(&late).starts_with("line 5: `again` is no record"));
        // A program cannot be made to run some again.
        let named = "uvmplan 2\nkernels 1\nspan 1\nstart 0\n";
        assert!(said(named).starts_with("line 4: `start` is no record"));
        assert!(said("uvmplan 2\nagain 1\n").starts_with("line 2: want `again"));
        assert!(said("uvmplan 2\nagain 4294967296 0\n").starts_with("line 2: there is no kernel"));
    }
}
