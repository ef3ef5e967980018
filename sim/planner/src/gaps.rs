// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Gaps: the times in which nothing uses a tensor (G10 section 4.2 calls them
//! inactive periods).

use alloc::vec;
use alloc::vec::Vec;

use super::{Step, Use};

/// Kernels in a row that do not use a tensor, from one use to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub tensor: u32,
    /// The first kernel that does not use it.
    pub start: u32,
    /// The next that does, counted on into the next step.
    pub next: u32,
    /// Whether it was written since the gap before.
    pub written: bool,
}

/// All gaps of a step, and where to find them.
pub(super) struct Gaps {
    /// By tensor, then by start.
    pub all: Vec<Gap>,
    /// Numbers of the gaps that start with each kernel.
    pub starting: Groups,
    /// Tensors that each kernel writes.
    pub written: Groups,
}

/// Numbers in groups, those of each group in their order.
pub(super) struct Groups {
    sorted: Vec<u32>,
    /// Where each group begins, and the end.
    first: Vec<u32>,
}

impl Groups {
    /// The numbers below `count`, each in the group that `group` gives.
    fn new(groups: usize, count: usize, group: impl Fn(usize) -> usize) -> Self {
        let mut first = vec![0u32; groups + 1];
        for i in 0..count {
            first[group(i) + 1] += 1;
        }
        for g in 0..groups {
            first[g + 1] += first[g];
        }
        let mut at = first[..groups].to_vec();
        let mut sorted = vec![0u32; count];
        for i in 0..count {
            let slot = &mut at[group(i)];
            sorted[*slot as usize] = i as u32;
            *slot += 1;
        }
        Self { sorted, first }
    }

    /// Those in group `g`.
    pub fn of(&self, g: usize) -> &[u32] {
        &self.sorted[self.first[g] as usize..self.first[g + 1] as usize]
    }
}

impl Gaps {
    /// The gaps of `step`.
    pub fn of(step: &Step) -> Self {
        let n = step.kernel_ns.len();
        let uses = &step.uses;
        let by_tensor = Groups::new(step.tensors.len(), uses.len(), |i| uses[i].tensor as usize);
        let mut all = Vec::new();
        for (t, tensor) in step.tensors.iter().enumerate() {
            let own = by_tensor.of(t);
            if tensor.pages == 0 || own.is_empty() {
                continue;
            }
            let kernel = |i: usize| uses[own[i] as usize].kernel;
            let mut written = false;
            let mut add = |start: u32, next: u32, write: bool| {
                written |= write;
                if next > start {
                    all.push(Gap {
                        tensor: t as u32,
                        start,
                        next,
                        written: core::mem::take(&mut written),
                    });
                }
            };
            for i in 1..own.len() {
                let write = uses[own[i - 1] as usize].write;
                add(kernel(i - 1) + 1, kernel(i), write);
            }
            let write = own.last().is_some_and(|&u| uses[u as usize].write);
            if tensor.lasting {
                let (first, end) = (kernel(0), kernel(own.len() - 1) + 1);
                if end < n as u32 {
                    add(end, first + n as u32, write);
                } else {
                    add(0, first, write);
                }
            }
        }
        let starting = Groups::new(n, all.len(), |i| all[i].start as usize);
        let writes: Vec<&Use> = uses.iter().filter(|u| u.write).collect();
        let mut written = Groups::new(n, writes.len(), |i| writes[i].kernel as usize);
        for i in &mut written.sorted {
            *i = writes[*i as usize].tensor;
        }
        Self {
            all,
            starting,
            written,
        }
    }

    /// The gaps of tensor `t`.
    pub fn of_tensor(&self, t: u32) -> &[Gap] {
        let from = self.all.partition_point(|g| g.tensor < t);
        let to = self.all.partition_point(|g| g.tensor <= t);
        &self.all[from..to]
    }
}
