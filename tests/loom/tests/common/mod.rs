// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How all tests run their models.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// Something that threads do, and whether what came of it is right.
pub type Model = fn() -> bool;

/// How many interleavings of `model` there are with two preemptions at most, when all are right; nothing when one is
/// wrong, after which no other is tried. A use that is torn takes one preemption, and a second one lets its thread go
/// on early.
pub fn every_interleaving(model: Model) -> Option<usize> {
    let (count, wrong) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (counted, told) = (Arc::clone(&count), Arc::clone(&wrong));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    let checked = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Relaxed);
            if !model() {
                told.store(true, Relaxed);
                // Loom tries on for as long as a model returns.
                resume_unwind(Box::new(()));
            }
        });
    }));
    match checked {
        Ok(()) => Some(count.load(Relaxed)),
        Err(_) if wrong.load(Relaxed) => None,
        Err(other) => resume_unwind(other),
    }
}
