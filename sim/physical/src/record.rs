// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What happened when, in a bounded number of bins.

use uvmsim_trace::Kind;

use crate::links::Direction;

/// A bin of a [`Timeline`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Bin {
    /// Bytes to the GPU from the host.
    pub host_in: f64,
    /// Bytes to the GPU from the SSD.
    pub ssd_in: f64,
    /// Bytes from the GPU to the host.
    pub host_out: f64,
    /// Bytes from the GPU to the SSD.
    pub ssd_out: f64,
    /// Nanoseconds in which kernels stood still.
    pub stalled: f64,
}

/// Link use, stalls and memory over one iteration.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Nanoseconds that the bins span.
    pub span: u64,
    /// Equal parts of the span.
    pub bins: Vec<Bin>,
    /// Bytes of GPU memory by kind, at some times; index as in [`Kind::ALL`],
    /// then bytes of nothing alive.
    pub memory: Vec<(u64, [u64; 7])>,
}

/// An interval in which something happened.
struct Event {
    from: u64,
    to: u64,
    what: What,
}

enum What {
    Copy(Direction, bool, u64),
    Stall,
}

/// Takes notes for a [`Timeline`].
#[derive(Default)]
pub struct Recorder {
    events: Vec<Event>,
    memory: Vec<(u64, [u64; 7])>,
}

impl Recorder {
    /// A copy of `bytes`.
    pub fn copy(&mut self, d: Direction, ssd: bool, bytes: u64, from: u64, to: u64) {
        let what = What::Copy(d, ssd, bytes);
        self.events.push(Event { from, to, what });
    }

    /// Kernels stood still for this time.
    pub fn stall(&mut self, from: u64, to: u64) {
        if from < to {
            let what = What::Stall;
            self.events.push(Event { from, to, what });
        }
    }

    /// GPU memory by kind.
    pub fn memory(&mut self, at: u64, by_kind: [u64; Kind::ALL.len() + 1]) {
        self.memory.push((at, by_kind));
    }

    /// The timeline from `from` to `to` in `bins` bins.
    pub fn finish(self, from: u64, to: u64, bins: usize) -> Timeline {
        let span = (to - from).max(1);
        let mut out = vec![Bin::default(); bins];
        let width = span as f64 / bins as f64;
        for e in &self.events {
            let (a, b) = (e.from.clamp(from, to), e.to.clamp(from, to));
            if b <= a {
                continue;
            }
            let whole = (e.to - e.from) as f64;
            let first = ((a - from) as f64 / width) as usize;
            let last = (((b - from) as f64 / width) as usize).min(bins - 1);
            for (i, bin) in out.iter_mut().enumerate().take(last + 1).skip(first) {
                let low = ((a - from) as f64).max(i as f64 * width);
                let high = ((b - from) as f64).min((i + 1) as f64 * width);
                let part = (high - low).max(0.0);
                match e.what {
                    What::Stall => bin.stalled += part,
                    What::Copy(d, ssd, bytes) => {
                        let share = part / whole * bytes as f64;
                        *match (d, ssd) {
                            (Direction::In, false) => &mut bin.host_in,
                            (Direction::In, true) => &mut bin.ssd_in,
                            (Direction::Out, false) => &mut bin.host_out,
                            (Direction::Out, true) => &mut bin.ssd_out,
                        } += share;
                    }
                }
            }
        }
        let memory = self.memory.into_iter();
        Timeline {
            span,
            bins: out,
            memory: memory.map(|(t, m)| (t.saturating_sub(from), m)).collect(),
        }
    }
}
