// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory in use during each kernel: sums over ranges, and their maxima, in time that
//! hardly grows with the number of kernels.

use crate::mem::{OutOfMemory, TryVec};

/// Kernels of a group, for which the maximum is kept.
const GROUP: usize = 128;

/// A number for each kernel.
pub(super) struct Levels {
    /// Less what all of the group have more.
    own: TryVec<i64>,
    /// What all kernels of each group have more.
    more: TryVec<i64>,
    /// The largest number of each group.
    top: TryVec<i64>,
}

impl Levels {
    /// `laps` times these numbers.
    pub fn repeated(
        laps: usize,
        numbers: impl Iterator<Item = i64> + Clone,
    ) -> Result<Self, OutOfMemory> {
        let mut own = TryVec::new();
        for _ in 0..laps {
            for x in numbers.clone() {
                own.push(x)?;
            }
        }
        let groups = own.len().div_ceil(GROUP);
        let mut levels = Self {
            own,
            more: TryVec::filled(groups, 0)?,
            top: TryVec::filled(groups, 0)?,
        };
        for g in 0..groups {
            levels.refresh(g);
        }
        Ok(levels)
    }

    /// The number of kernel `i`, which there is.
    pub fn get(&self, i: usize) -> i64 {
        self.own[i] + self.more[i / GROUP]
    }

    fn refresh(&mut self, group: usize) {
        let from = group * GROUP;
        let to = (from + GROUP).min(self.own.len());
        let own = self.own[from..to].iter().copied().max();
        self.top[group] = own.map_or(i64::MIN, |o| o + self.more[group]);
    }

    /// Adds `x` to the numbers of kernels `from` to before `to`, of those there are.
    pub fn add(&mut self, from: usize, to: usize, x: i64) {
        let to = to.min(self.own.len());
        let mut i = from;
        while i < to {
            let group = i / GROUP;
            let end = (group + 1) * GROUP;
            if i % GROUP == 0 && end <= to {
                self.more[group] += x;
                self.top[group] += x;
            } else {
                for v in &mut self.own[i..end.min(to)] {
                    *v += x;
                }
                self.refresh(group);
            }
            i = end;
        }
    }

    /// Whether a kernel from `from` to before `to` has more than `limit` and fulfils
    /// `holds`, which is given the kernel and its number.
    pub fn any_above(
        &self,
        from: usize,
        to: usize,
        limit: i64,
        holds: impl Fn(usize, i64) -> bool,
    ) -> bool {
        let to = to.min(self.own.len());
        let mut i = from;
        while i < to {
            let group = i / GROUP;
            let end = ((group + 1) * GROUP).min(to);
            if self.top[group] > limit {
                for j in i..end {
                    let level = self.get(j);
                    if level > limit && holds(j, level) {
                        return true;
                    }
                }
            }
            i = end;
        }
        false
    }
}
