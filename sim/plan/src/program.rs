// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How a plan knows the program that it is for: by its allocations and launches, which are
//! the same in the next run, and not by addresses, which are not.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::number;
use crate::Number;

/// By what a tensor is known: which allocation of managed memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The program's, by number, from 0: `alloc12`. For what was there before the step.
    Program(u64),
    /// One of the step's: `kernel5.0` is the first between the launch before kernel 5 and
    /// this one.
    Step {
        /// Before the launch of which kernel.
        kernel: u32,
        /// Which of these, from 0.
        nth: u32,
    },
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(number) => write!(f, "alloc{number}"),
            Self::Step { kernel, nth } => write!(f, "kernel{kernel}.{nth}"),
        }
    }
}

/// A tensor's name that is no key: its allocation cannot be known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoKey;

impl FromStr for Key {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        if let Some(number) = text.strip_prefix("alloc") {
            return number.parse().map(Self::Program).map_err(|_| NoKey);
        }
        let rest = text.strip_prefix("kernel").ok_or(NoKey)?;
        let (kernel, nth) = rest.split_once('.').ok_or(NoKey)?;
        match (kernel.parse(), nth.parse()) {
            (Ok(kernel), Ok(nth)) => Ok(Self::Step { kernel, nth }),
            _ => Err(NoKey),
        }
    }
}

/// The name of a kernel or of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The number of what is called so.
    pub of: u64,
    /// What it is called: one word.
    pub name: Box<str>,
    /// The line that it is from.
    pub line: usize,
}

/// The program that a plan is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Launches before the first step.
    pub start: u64,
    /// The names of the step's kernels, one for each, in order.
    pub launches: Vec<Name>,
    /// The names of tensors, of each at most one.
    pub tensors: Vec<Name>,
}

impl Program {
    /// Names of the step's kernels, in order; at least one.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.launches.iter().map(|launch| &*launch.name)
    }

    /// The name of a kernel of the step.
    pub fn name(&self, kernel: usize) -> Option<&str> {
        self.launches.get(kernel).map(|launch| &*launch.name)
    }

    /// Tensors whose allocation is known, with what it is known by.
    pub fn keys(&self) -> impl Iterator<Item = (u64, Key)> + '_ {
        let key = |tensor: &Name| Some((tensor.of, tensor.name.parse().ok()?));
        self.tensors.iter().filter_map(key)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "start {}", self.start)?;
        for Name { of, name, .. } in &self.launches {
            writeln!(f, "launch {of} {name}")?;
        }
        for Name { of, name, .. } in &self.tensors {
            writeln!(f, "tensor {of} {name}")?;
        }
        Ok(())
    }
}

/// The records of a program as they are read.
#[derive(Debug, Default)]
pub(crate) struct Records {
    start: Option<u64>,
    launches: Vec<Name>,
    tensors: Vec<Name>,
    named: BTreeSet<u64>,
    any: bool,
}

impl Records {
    /// Adds what a line of the plan says: `record` is its first word, `fields` are the others.
    pub fn add(&mut self, record: &str, fields: &[&str], line: usize) -> Result<(), String> {
        self.any = true;
        let name = |of, name: &&str| Name {
            of,
            name: (*name).into(),
            line,
        };
        match (record, fields) {
            ("start", [_]) if self.start.is_some() => return Err("a second time".to_owned()),
            ("start", [launches]) => self.start = Some(number(launches, "start")?),
            ("launch", [kernel, word]) => {
                let next = self.launches.len() as u64;
                if number(kernel, "kernel")? != next {
                    return Err(format!("kernel {kernel} is named where {next} is next"));
                }
                self.launches.push(name(next, word));
            }
            ("tensor", [tensor, word]) => {
                let of = number(tensor, "tensor")?;
                if !self.named.insert(of) {
                    return Err(format!("tensor {of} is named a second time"));
                }
                self.tensors.push(name(of, word));
            }
            ("start", _) => return Err("want `start LAUNCHES`".to_owned()),
            ("launch", _) => return Err("want `launch KERNEL NAME`".to_owned()),
            _ => return Err("want `tensor TENSOR NAME`".to_owned()),
        }
        Ok(())
    }

    /// What they say of a step of this many kernels, if they say anything.
    pub fn finish(self, kernels: Number) -> Result<Option<Program>, String> {
        if !self.any {
            return Ok(None);
        }
        let (named, kernels) = (self.launches.len() as u64, kernels.value);
        if named != kernels {
            return Err(format!("it names {named} of {kernels} kernels"));
        }
        let start = self.start.ok_or("it names kernels, and no `start`")?;
        Ok(Some(Program {
            start,
            launches: self.launches,
            tensors: self.tensors,
        }))
    }
}
