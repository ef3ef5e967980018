// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory in use during each kernel: sums over ranges, and their maxima, in time that
//! grows with the logarithm of the number of kernels.
//!
//! Kernels are in groups, and groups are the leaves of a binary tree. Its nodes are
//! numbered as a heap's are: 1 is the root, and below node `i` are `2 * i` and `2 * i + 1`.

use alloc::vec;
use alloc::vec::Vec;

/// Kernels of a group, which are looked at one by one.
const GROUP: usize = 64;

/// A number for each kernel.
pub(super) struct Levels {
    /// Less what the nodes above have more.
    own: Vec<i64>,
    /// The node of the first group: a power of two, as there are as many leaves.
    leaves: usize,
    /// What all kernels below each node have more.
    more: Vec<i64>,
    /// The largest number below each node, less what the nodes above that one have more.
    top: Vec<i64>,
}

impl Levels {
    /// `laps` times these numbers.
    pub fn repeated(laps: usize, numbers: impl Iterator<Item = i64> + Clone) -> Self {
        let own: Vec<i64> = core::iter::repeat_n(numbers, laps).flatten().collect();
        let leaves = own.len().div_ceil(GROUP).next_power_of_two();
        let mut levels = Self {
            own,
            leaves,
            more: vec![0; 2 * leaves],
            top: vec![i64::MIN; 2 * leaves],
        };
        for group in 0..levels.own.len().div_ceil(GROUP) {
            levels.refresh_leaf(group);
        }
        for node in (1..leaves).rev() {
            levels.refresh(node);
        }
        levels
    }

    /// The number of kernel `i`, which there is.
    pub fn get(&self, i: usize) -> i64 {
        self.own[i] + self.above(2 * (self.leaves + i / GROUP))
    }

    /// What the nodes above `node` have more.
    fn above(&self, mut node: usize) -> i64 {
        let mut sum = 0;
        while node > 1 {
            node /= 2;
            sum += self.more[node];
        }
        sum
    }

    fn refresh_leaf(&mut self, group: usize) {
        let from = group * GROUP;
        let to = (from + GROUP).min(self.own.len());
        let (node, own) = (self.leaves + group, self.own[from..to].iter().max());
        // The kernels that there are not are no maximum, whatever is added to all.
        self.top[node] = own.map_or(i64::MIN, |o| o + self.more[node]);
    }

    fn refresh(&mut self, node: usize) {
        let below = self.top[2 * node].max(self.top[2 * node + 1]);
        self.top[node] = below.saturating_add(self.more[node]);
    }

    fn refresh_above(&mut self, mut node: usize) {
        while node > 1 {
            node /= 2;
            self.refresh(node);
        }
    }

    /// Adds `x` to the numbers of kernels `from` to before `to`, of those there are.
    pub fn add(&mut self, from: usize, to: usize, x: i64) {
        let to = to.min(self.own.len());
        if from >= to {
            return;
        }
        let (first, last) = (from.div_ceil(GROUP), to / GROUP);
        if first > last {
            return self.add_within(from, to, x);
        }
        self.add_within(from, first * GROUP, x);
        self.add_within(last * GROUP, to, x);
        let (mut l, mut r) = (self.leaves + first, self.leaves + last);
        let ends = [l, r.max(l + 1) - 1];
        while l < r {
            if l % 2 == 1 {
                self.add_to_node(l, x);
                l += 1;
            }
            if r % 2 == 1 {
                r -= 1;
                self.add_to_node(r, x);
            }
            l /= 2;
            r /= 2;
        }
        if first < last {
            for end in ends {
                self.refresh_above(end);
            }
        }
    }

    fn add_to_node(&mut self, node: usize, x: i64) {
        self.more[node] += x;
        self.top[node] = self.top[node].saturating_add(x);
    }

    /// The same within one group.
    fn add_within(&mut self, from: usize, to: usize, x: i64) {
        if from < to {
            self.own[from..to].iter_mut().for_each(|v| *v += x);
            self.refresh_leaf(from / GROUP);
            self.refresh_above(self.leaves + from / GROUP);
        }
    }

    /// Whether a kernel from `from` to before `to` has more than `limit` and fulfils
    /// `holds`, which is given the kernel and its number.
    pub fn any_above(
        &self,
        from: usize,
        to: usize,
        limit: i64,
        mut holds: impl FnMut(usize, i64) -> bool,
    ) -> bool {
        let first = self.find((1, self.leaves), 0, (from, to), limit, false, &mut holds);
        first.is_some()
    }

    /// The last kernel from `from` to before `to` that has more than `limit`.
    pub fn last_above(&self, from: usize, to: usize, limit: i64) -> Option<usize> {
        self.find((1, self.leaves), 0, (from, to), limit, true, &mut |_, _| {
            true
        })
    }

    /// The first kernel, or the `last`, below `node` that is within `range`, has more than `limit` and fulfils
    /// `holds`. `groups`: how many are below the node, which the nodes above it have `above` more than.
    fn find(
        &self,
        (node, groups): (usize, usize),
        above: i64,
        range: (usize, usize),
        limit: i64,
        last: bool,
        holds: &mut impl FnMut(usize, i64) -> bool,
    ) -> Option<usize> {
        // The first kernel below the node, and that after the last.
        let begin = (node * groups - self.leaves) * GROUP;
        let (from, to) = (range.0.max(begin), range.1.min(begin + groups * GROUP));
        if from >= to || self.top[node].saturating_add(above) <= limit {
            return None;
        }
        let more = above + self.more[node];
        if groups > 1 {
            let halves = [2 * node + usize::from(last), 2 * node + usize::from(!last)];
            let below = |node| self.find((node, groups / 2), more, range, limit, last, holds);
            return halves.into_iter().find_map(below);
        }
        let to = to.min(self.own.len());
        let is_it = |&i: &usize| {
            let level = self.own[i] + more;
            level > limit && holds(i, level)
        };
        let mut kernels = from..to;
        if last {
            kernels.rfind(is_it)
        } else {
            kernels.find(is_it)
        }
    }
}
