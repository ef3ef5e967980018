// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! FIR (paper §7.2): a filter over a long input, window by window.
//!
//! Each iteration prefetches a window of the input and of the output and runs a
//! kernel over both; the input's window is then useless. An input and an output of
//! 5.66 GB each explain all cells of table 4. Without discard all that does not fit is
//! evicted once: 2 · 5.66 GB less the GPU's memory. With discard only the part of the
//! output that does not fit is evicted.

use crate::program::{Program, Span, Step};
use crate::scale::blocks_of_gb;

/// Size of the input, and of the output, in the paper.
const GB: f64 = 5.66;

/// Blocks in a window: a 42nd of the input.
const WINDOW: usize = 2;

/// The filter, window by window over the input.
pub fn program() -> Program {
    let mut p = Program::default();
    let blocks = blocks_of_gb(GB);
    let input = p.buffer("input", blocks);
    let output = p.buffer("output", blocks);
    p.host_write(p.all(input));
    p.push(Step::Start);
    for first in (0..blocks).step_by(WINDOW) {
        let window = |buffer| Span {
            buffer,
            first,
            blocks: WINDOW.min(blocks - first),
        };
        p.launch(&[window(input).read(), window(output).write()]);
        p.discard(window(input));
    }
    p.push(Step::Stop);
    p.host_read(p.all(output));
    p
}
