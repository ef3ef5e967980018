// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The explorer: the real worker, tables and queues, while others run in an order that is drawn.
//!
//! Between any two calls of the worker others go on ([`super::threads`]): the process announces,
//! faults, frees, discards, sets policies and ends; another process faults, and evicts; the GPU
//! leaves and comes back; the system suspends; copies end. What is asked of the worker
//! ([`super::world`]): the invariants of `worker.rs`, and that it gets on and ends.
//!
//! `UVM_EXPLORE` is the number of interleavings, `UVM_TEST_SEED` the seed of the first one;
//! each has the seed after the last one's. A failure names its own.

use super::threads::{
    away, close, fresh, is_marked, neighbour, policies, program, reads, reads_of_others, spills,
    storm, suspend, touches, unmap,
};
use super::world::{Model, World, OURS, THEIRS};
use super::*;
use crate::testing::setting;
use std::boxed::Box;
use std::format;
use std::future::Future;
use std::pin::Pin;
use std::string::{String, ToString};
use std::vec::Vec;

/// Kernels of the process, and the blocks that they use.
const KERNELS: u32 = 5;
const BLOCKS: u32 = 2 * KERNELS + 3;

/// What became of an interleaving, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    turns: u64,
    moved: u64,
    pushed: u64,
    asked: u64,
    predicted: u64,
}

/// Who runs besides the worker.
fn cast(w: &World, chunks: u32, has_ssd: bool) -> Vec<Pin<Box<dyn Future<Output = ()> + '_>>> {
    let mut others: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    others.push(Box::pin(program(w, KERNELS, 4 + w.below(6) as u32)));
    if w.chance(2) {
        others.push(Box::pin(neighbour(w, chunks + w.below(20) as u32)));
    }
    for _ in 0..w.below(12) {
        let b = w.below(BLOCKS as usize);
        others.push(match w.below(20) {
            0..=2 => Box::pin(unmap(w, b)),
            3..=5 => Box::pin(policies(w, b)),
            6..=13 => Box::pin(touches(w, 1 + w.below(30))),
            14 => Box::pin(away(w, w.now().blocks.iter().all(|b| b.space == OURS))),
            15 => Box::pin(suspend(w)),
            16 if w.chance(4) => Box::pin(close(w, w.below(2_000))),
            _ => Box::pin(storm(w, w.below(80))),
        });
    }
    if has_ssd {
        others.push(Box::pin(reads_of_others(w, w.below(60))));
        // More is on the SSD than may be on its way, and comes slowly.
        let much = w.chance(2);
        others.push(Box::pin(spills(w, 8 + w.below(40), much)));
        for _ in 0..2 {
            others.push(Box::pin(reads(w, 60, if much { 400 } else { 12 })));
        }
    }
    others
}

/// Runs the one interleaving that `seed` chooses, without the part `lack`.
pub(super) fn explore(seed: u64, lack: Option<Part>) -> Result<Seen, String> {
    let mut dice = crate::testing::Dice::new(seed ^ 0xD1CE);
    let chunks = 3 + dice.below(BLOCKS as usize - 2) as u32;
    let watermark = [0, 1, 2, 3][dice.below(4)];
    let mut worker = Worker::new(Params {
        act: true,
        watermark,
        tenant: OURS as u64,
    });
    worker.take_out(lack);
    let w = World::new(seed, chunks, worker);
    w.fails.set([usize::MAX, usize::MAX, 40][dice.below(3)]);
    (0..BLOCKS).for_each(|um| w.now().blocks.push(fresh(OURS, um)));
    if dice.one_in(2) {
        (100..104).for_each(|um| w.now().blocks.push(fresh(THEIRS, um)));
    }
    let others = cast(&w, chunks, seed % 4 == 0);
    let mut model = Model::new(&w, others, watermark);
    let mut seen = Seen::default();
    for _ in 0..50_000 {
        let (wrong, woken) = {
            let s = &mut *w.now();
            (s.wrong.take(), s.woken)
        };
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if let Some(um) = if woken { None } else { waits_in_vain(&w) } {
            return Err(format!("it waits for a read of {um} that has ended"));
        }
        if model.others.is_empty() && !woken {
            return finish(&w, model, seen);
        }
        model.step();
        // A work item runs some time after it was queued.
        if w.now().woken && w.chance(3) {
            w.now().woken = false;
            let turn = w.worker.turn(&mut model);
            seen.turns += 1;
            w.now().woken |= turn.is_more();
        }
    }
    Err("no end".to_string())
}

/// A block that is not looked at again before another read ends, and of which nobody reads anything.
fn waits_in_vain(w: &World) -> Option<u32> {
    let s = w.now();
    let is_read = |um: u32| {
        let mut blocks = s.blocks.iter();
        blocks.any(|b| b.alive && b.space == OURS && b.um == um && !b.coming().is_empty())
    };
    let tables = w.tables.borrow();
    let mut waits = tables.waits_for_reads().map(|block| block.0);
    waits.find(|um| !is_read(*um))
}

/// What must be when all has ended.
fn finish(w: &World, mut model: Model<'_>, mut seen: Seen) -> Result<Seen, String> {
    w.now().stopping = true;
    let turn = w.worker.turn(&mut model);
    if turn.is_more() {
        return Err("it does not stop".to_string());
    }
    w.worker.retire(&mut model);
    if is_marked(w) {
        return Err("marks are left".to_string());
    }
    let predicted = w.tables.borrow().stats().prefetches;
    // What was held back is counted again when it comes; what was put back or put aside, when it comes, if it does.
    let not_counted = seen.turns + model.waits + model.aside;
    if model.counted < predicted.saturating_sub(not_counted) {
        return Err(format!("{} of {predicted} were counted", model.counted));
    }
    let s = w.now();
    if s.spaces[OURS].readers + s.pm_readers > 0 {
        return Err("a lock is held".to_string());
    }
    if s.blocks.iter().any(|b| b.locked) {
        return Err("a va_block is locked".to_string());
    }
    seen.moved = model.moved;
    seen.pushed = model.pushed;
    seen.asked = model.asked;
    seen.predicted = predicted;
    match &s.wrong {
        Some(wrong) => Err(wrong.clone()),
        None => Ok(seen),
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of interleavings")]
fn no_interleaving_breaks_an_invariant() {
    let count = setting("UVM_EXPLORE", 1_000);
    let seed = setting("UVM_TEST_SEED", 1);
    std::eprintln!("UVM_TEST_SEED={seed} UVM_EXPLORE={count}");
    let mut all = Seen::default();
    for seed in (0..count).map(|n| seed.wrapping_add(n)) {
        match explore(seed, None) {
            Ok(seen) => {
                all.turns += seen.turns;
                all.moved += seen.moved;
                all.pushed += seen.pushed;
                all.asked += seen.asked;
                all.predicted += seen.predicted;
            }
            Err(wrong) => panic!("{wrong}: UVM_TEST_SEED={seed} UVM_EXPLORE=1"),
        }
    }
    std::eprintln!("{all:?}");
    // It did what there was to be looked at.
    if count >= 100 {
        assert!(all.moved > 3 * count && all.pushed > count, "{all:?}");
        assert!(all.asked > count / 4, "{all:?}");
    }
}
