// SPDX-License-Identifier: GPL-2.0-only OR MIT

mod explore;
mod script;
mod threads;
mod world;

use super::*;
use crate::policy::evict::{Choice, Queue, OWNERS};
use crate::policy::mask::Region;
use crate::policy::prefetch::feed::FETCHES;
use crate::policy::prefetch::{Config, ExecId, UmBlock};
use crate::testing::tell_mutant;
use std::format;
use std::panic::catch_unwind;
use std::string::String;
use std::vec::Vec;

/// Looks two kernels ahead.
fn correlator() -> Correlator {
    Correlator::new(Config {
        ahead: 2,
        max_kernels: crate::testing::size(64),
        ..Config::default()
    })
    .unwrap()
}

#[test]
fn what_a_gpu_gets_is_mapped_there_and_what_is_put_away_is_not() {
    assert!(To::Gpu.is_mapped());
    assert!(!To::Host.is_mapped());
}

/// Every part of the worker is needed: without it a script or the explorer fails.
#[test]
#[cfg_attr(miri, ignore = "thousands of interleavings")]
fn whatever_is_taken_out_is_noticed() {
    let mut unnoticed = Vec::new();
    for &part in Part::ALL {
        let scripts = script::ALL.iter();
        let by: Vec<_> = scripts
            .filter(|(_, script)| catch_unwind(|| script(Some(part))).is_err())
            .map(|(name, _)| *name)
            .collect();
        let explored = (1..=60).find_map(|seed| {
            // What is broken may panic, too.
            match catch_unwind(|| explore::explore(seed, Some(part))) {
                Ok(Ok(_)) => None,
                Ok(Err(wrong)) => Some(format!("order {seed}: {wrong}")),
                Err(_) => Some(format!("order {seed}: it panicked")),
            }
        });
        let scripts = match by[..] {
            [] => String::new(),
            [first, ref others @ ..] => format!("script {first} and {} others, ", others.len()),
        };
        let none = (!by.is_empty()).then_some("no order of 60");
        tell_mutant(&format!("{part:?}"), &scripts, explored.as_deref().or(none));
        if by.is_empty() && explored.is_none() {
            unnoticed.push(part);
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
