// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The walk's reads: as it goes, or once all evictions are known.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::super::levels::Levels;
use super::super::{duration, Tier, What};
use super::{Walk, Wanted, LAPS};

impl Walk<'_> {
    /// Reads what kernel `at` needs and nobody had room for so far.
    pub(super) fn read_now(&mut self, at: usize) {
        for way in 0..2 {
            while self.wanted[way].peek().is_some_and(|w| w.0.next <= at) {
                if let Some(Reverse(w)) = self.wanted[way].pop() {
                    self.read(at, way, w);
                }
            }
        }
    }

    /// Keeps the ways in busy during kernel `at`, as far as there is room; the SSD,
    /// the slower, first.
    pub(super) fn read_ahead(&mut self, at: usize) {
        let end = self.now(at + 1);
        for way in [1, 0] {
            while let Some(&Reverse(w)) = self.wanted[way].peek() {
                let room = self.capacity() - w.pages;
                if self.read_free[way] >= end
                    || w.gone >= end
                    || self.gpu.any_above(at, w.next, room, |_, _| true)
                {
                    break;
                }
                self.wanted[way].pop();
                self.relieve(at, w.next, -w.pages);
                self.read(at, way, w);
            }
        }
    }

    /// Asks for `w` as kernel `at` starts.
    fn read(&mut self, at: usize, way: usize, w: Wanted) {
        let pages = w.pages as u64;
        let start = self.read_free[way].max(self.now(at)).max(w.gone);
        let tier = if way == 0 { Tier::Host } else { Tier::Ssd };
        let there = start + duration(pages, self.read_ps(tier));
        self.read_free[way] = there;
        if way == 1 {
            // The SSD's bytes cross the link as well.
            self.read_free[0] += duration(pages, self.machine.link_in);
        }
        self.late.push((w.next, there));
        self.ask(at, w.tensor, What::Prefetch);
    }

    /// Waits for what kernel `at` uses and is fetched late.
    pub(super) fn wait_for_reads(&mut self, at: usize) {
        let latest = self.late.iter().filter(|l| l.0 <= at).map(|l| l.1).max();
        if let Some(until) = latest {
            self.wait(at, until);
            self.late.retain(|l| l.0 > at);
        }
    }

    /// Kernel `at` starts at `until`, if that is later than it would.
    pub(super) fn wait(&mut self, at: usize, until: u64) {
        let wait = until.saturating_sub(self.now(at));
        self.stall += wait;
        self.waits[at % self.n] += wait;
        // The next lap will see the same.
        self.reads.lengthen(at + self.n, wait);
    }

    /// Fetches earlier what memory has room for, in the order of need; not earlier than
    /// its way is free, nor before what is needed sooner and comes the same way.
    pub(super) fn fetch_early(&mut self) {
        let (n, capacity) = (self.n, self.capacity());
        let mut gpu = Levels::repeated(1, self.in_step().iter().copied());
        let begins = self.begins();
        self.away.sort_unstable_by_key(|a| (a.back, a.tensor));
        // The kernel of the last request, and when the way is free.
        let mut ways = [(0, 0); 2];
        for i in 0..self.away.len() {
            let a = self.away[i];
            let (last, free) = ways[usize::from(a.tier == Tier::Ssd)];
            let earliest = begins.partition_point(|&t| t <= free).saturating_sub(1);
            let earliest = earliest
                .max(last)
                .max(a.gone + 1 - self.lap())
                .min(a.back - self.lap());
            let mut at = a.back - self.lap();
            // Lap by lap, as the step repeats: back to where memory has no room.
            while at > earliest {
                let lap = (at - 1) / n * n;
                let (from, to) = (earliest.max(lap) - lap, at - lap);
                let full = gpu.last_above(from, to, capacity - a.pages);
                let room = full.map_or(from, |i| i + 1);
                gpu.add(room, to, a.pages);
                at = lap + room;
                if full.is_some() {
                    break;
                }
            }
            let takes = duration(a.pages as u64, self.read_ps(a.tier));
            let free = begins[at].max(free) + takes;
            ways[usize::from(a.tier == Tier::Ssd)] = (at, free);
            self.ask(at, a.tensor, What::Prefetch);
        }
    }

    /// Pages in GPU memory during each kernel of the step, where nothing comes back early.
    fn in_step(&self) -> Vec<i64> {
        let n = self.n;
        // What each kernel has more than the one before it.
        let mut change = vec![0; n + 1];
        for a in self.away.iter() {
            let (from, to) = (a.gone, a.back.max(a.gone));
            let whole = (to - from) / n;
            change[0] -= whole as i64 * a.pages;
            let (from, to) = (from % n, from % n + (to - from) % n);
            change[from] -= a.pages;
            if to > n {
                change[0] -= a.pages;
                change[to - n] += a.pages;
            } else {
                change[to] += a.pages;
            }
        }
        let mut absent = 0;
        let levels = self.step.live.iter().zip(&change).map(|(live, change)| {
            absent += change;
            *live as i64 + absent
        });
        levels.collect()
    }

    /// The first kernel of the lap that is the plan.
    fn lap(&self) -> usize {
        (LAPS - 1) * self.n
    }

    /// When each kernel of the last lap and of two more begins, from the lap's start.
    fn begins(&self) -> Vec<u64> {
        let mut begins = Vec::with_capacity(3 * self.n);
        let mut time = 0;
        for _ in 0..3 {
            for (d, w) in self.step.kernel_ns.iter().zip(&self.waits) {
                begins.push(time + w);
                time += d + w;
            }
        }
        begins
    }

    pub(super) fn read_ps(&self, from: Tier) -> u64 {
        match from {
            Tier::Host => self.machine.link_in,
            Tier::Ssd => self.machine.ssd_in,
        }
    }
}
