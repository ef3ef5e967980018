// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Tensor vitality analysis: the intervals in which nothing uses a tensor.

use std::ops::Range;
use std::ops::RangeInclusive;

use super::super::view::View;

/// A time between two uses of a tensor.
#[derive(Clone, Debug)]
pub(in super::super) struct Interval {
    pub tensor: u32,
    pub bytes: i64,
    /// The first kernel that does not use it.
    pub start: usize,
    /// The next kernel that does.
    pub end: usize,
    /// Whether `end` is in the next step.
    pub looped: bool,
    /// Its length in µs.
    pub time: f64,
    /// Its length times the tensor's size.
    pub area: f64,
    /// Benefit of an eviction, as of the last weighing.
    pub benefit: f64,
    /// The planner has looked at it.
    pub handled: bool,
    /// The tensor is evicted in it.
    pub moved: bool,
    /// The kernel in which half of it is written, and from which half of it is
    /// read back; known until the links' bookings change.
    pub written: Option<usize>,
    pub read: Option<usize>,
}

impl Interval {
    /// Its kernels, counted on into the next step, of `n` kernels.
    pub fn kernels(&self, n: usize) -> Range<usize> {
        self.start..self.end + if self.looped { n } else { 0 }
    }

    /// Forgets what bookings of these kernels may have changed.
    pub fn forget(&mut self, out: &RangeInclusive<usize>, into: &RangeInclusive<usize>) {
        let meets =
            |r: &RangeInclusive<usize>, a: usize, b: usize| *r.start() <= b && a <= *r.end();
        if self.written.is_some_and(|w| meets(out, self.start, w)) {
            self.written = None;
        }
        if self.read.is_some_and(|r| meets(into, r, self.end)) {
            self.read = None;
        }
    }
}

/// All intervals, by tensor, then by time. A weight's last interval runs on to its
/// first use in the next step.
pub(in super::super) fn of(view: &View, starts: &[f64]) -> Vec<Interval> {
    let n = view.kernels.len();
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); view.tensors.len()];
    for (k, kernel) in view.kernels.iter().enumerate() {
        for &t in &kernel.required {
            uses[t as usize].push(k);
        }
    }
    let mut all = Vec::new();
    for (t, tensor) in view.tensors.iter().enumerate() {
        let mut add = |start: usize, end: usize| {
            let looped = end < start;
            let time = if looped { starts[end + n] } else { starts[end] } - starts[start];
            let bytes = tensor.bytes() as i64;
            all.push(Interval {
                tensor: t as u32,
                bytes,
                start,
                end,
                looped,
                time,
                area: time * bytes as f64,
                benefit: 0.0,
                handled: false,
                moved: false,
                written: None,
                read: None,
            });
        };
        let uses = &uses[t];
        // Writes after the last read count for weights only.
        let last = if tensor.is_weight {
            n
        } else {
            tensor.death.unwrap_or(0)
        };
        for pair in uses.windows(2).filter(|p| p[1] < last && p[1] > p[0] + 1) {
            add(pair[0] + 1, pair[1]);
        }
        if let (true, Some(&first), Some(&end)) = (tensor.is_weight, uses.first(), uses.last()) {
            if end + 1 < n {
                add(end + 1, first);
            } else if first > 0 {
                add(0, first);
            }
        }
    }
    all
}
