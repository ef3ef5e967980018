// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Radix-sort (paper §7.3): passes over keys and values.
//!
//! Each pass sorts parts of the input into a temporary buffer, after which the
//! input is discarded, and writes them back to the input in order, after which the
//! temporary buffer is. Both are 5.00 GB, which is what moves when all fits, and
//! 300 GB in the sixteen kernels of eight passes (of four bits each) is what two
//! such buffers come to when nothing stays. Two passes are run, which repeat.
//!
//! As in the paper, nothing is prefetched when memory is oversubscribed.

use crate::program::{Next, Program, Step, Use};
use crate::scale::blocks_of_gb;

/// Size of keys and values together, in the paper.
const GB: f64 = 5.0;

/// Passes that are run, of eight.
const PASSES: usize = 2;

/// Places at which the second kernel writes at the same time: 64 thread blocks
/// that each fill 16 buckets, of the paper's size.
const BUCKETS: f64 = 64.0 * 16.0;

/// The program, that knows whether its data fit.
pub fn program(fits: bool) -> Program {
    let mut p = Program::default();
    let input = p.buffer("input", blocks_of_gb(GB));
    let temporary = p.buffer("temporary", blocks_of_gb(GB));
    let buckets = (BUCKETS / crate::scale::FACTOR) as u32;
    p.host_write(p.all(input));
    p.push(Step::Start);
    for pass in 0..PASSES {
        let (from, to) = (p.all(input), p.all(temporary));
        launch(&mut p, &[from.read(), to.write()], fits);
        discard(&mut p, from.read(), fits);
        launch(&mut p, &[to.read(), from.write().streams(buckets)], fits);
        if pass + 1 < PASSES {
            discard(&mut p, to.read(), fits);
        }
    }
    p.push(Step::Stop);
    p.host_read(p.all(input));
    p
}

fn launch(p: &mut Program, uses: &[Use], fits: bool) {
    if fits {
        p.launch(uses);
    } else {
        p.push(Step::Kernel(uses.to_vec()));
    }
}

fn discard(p: &mut Program, of: Use, fits: bool) {
    let next = if fits { Next::Prefetch } else { Next::Fault };
    p.push(Step::Discard(of.span, next));
}
