// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Runs that arrived by turns.
//!
//! Where each batch brings in ten pages of one tensor and forty of another, the
//! order of arrival is ten of the one, forty of the other, and so on. A braid says
//! so once: its lanes stand in the order of arrival one after the other, each with
//! the pages of its turn. It is cut into runs of one turn only when a victim is
//! taken from it, which a plan that keeps memory from filling up never lets happen.

use super::Order;
use super::Pages;
use super::Queue;
use super::Run;
use super::NIL;

/// The most runs that take turns.
pub(crate) const LANES: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Lane {
    /// `NIL` once it has left the GPU.
    run: u32,
    /// Pages when the braid was made. As runs are cut at the front only, those
    /// that are left are the last ones.
    total: u64,
    /// Pages that come in a turn.
    turn: u64,
}

/// Runs that took turns to arrive; they are neighbours in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Braid {
    lanes: [Lane; LANES],
}

impl Braid {
    /// Its lanes that are still there, in their order within a turn.
    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|l| l.run != NIL)
    }
}

impl Pages {
    /// The first pages of the queued `runs`, so many of each a turn, come to the
    /// GPU in `turns` turns. No run is used up.
    pub(crate) fn arrive_by_turns(&mut self, runs: &[(u32, u64)], turns: u64) {
        debug_assert!(runs.len() > 1 && runs.len() <= LANES);
        let mut lanes = [Lane {
            run: NIL,
            total: 0,
            turn: 1,
        }; LANES];
        for (lane, &(r, turn)) in lanes.iter_mut().zip(runs) {
            let total = turn * turns;
            let rest = self.move_front(r, total, super::Loc::Gpu, Queue::Idle);
            debug_assert!(rest == r, "a run in a braid is used up");
            let run = self.run(r).prev();
            debug_assert!(self.run(run).len == total, "a lane has grown a run");
            *lane = Lane { run, total, turn };
        }
        if turns == 1 {
            return;
        }
        let id = self.unused_braids.pop().unwrap_or_else(|| {
            self.braids.push(Braid { lanes });
            self.braids.len() as u32 - 1
        });
        self.braids[id as usize] = Braid { lanes };
        for lane in lanes.iter().filter(|l| l.run != NIL) {
            self.runs[lane.run as usize].braid = id;
        }
    }

    /// The first run from `r` on that `may` be taken, in the order of the runs' first
    /// pages. Within a braid, lanes may not be taken because they wait in a queue or
    /// their tensor is spared; either lasts as long as a place in the order is kept,
    /// so that it does not matter which lane `r` is.
    pub(crate) fn first_from(&self, mut r: u32, may: impl Fn(&Run) -> bool) -> u32 {
        while r != NIL {
            let run = self.run(r);
            if run.braid == NIL {
                if may(run) {
                    return r;
                }
                r = run.newer();
                continue;
            }
            let braid = &self.braids[run.braid as usize];
            let turn = |l: &&Lane| (l.total - self.run(l.run).len) / l.turn;
            let lanes = braid.lanes().filter(|l| may(self.run(l.run)));
            // Of lanes at the same turn, the first in it.
            if let Some(lane) = lanes.min_by_key(turn) {
                return lane.run;
            }
            r = braid
                .lanes()
                .last()
                .map_or(NIL, |l| self.run(l.run).newer());
        }
        NIL
    }

    /// Makes plain runs of the braid that `r` is a lane of, if it is one; `r` stays
    /// the run of the lane's first page. Lanes in a queue stay whole: they leave the
    /// GPU, so that their place in the order of arrival no longer matters.
    pub(crate) fn untangle(&mut self, r: u32) {
        let id = self.run(r).braid;
        if id == NIL {
            return;
        }
        let braid = self.braids[id as usize];
        self.unused_braids.push(id);
        let mut lanes: Vec<Lane> = braid.lanes().copied().collect();
        for lane in &lanes {
            self.runs[lane.run as usize].braid = NIL;
        }
        let Some(end) = lanes.last().map(|l| self.run(l.run).newer()) else {
            return;
        };
        lanes.retain(|l| self.run(l.run).queue == Queue::Idle);
        if lanes.len() < 2 {
            return;
        }
        // Taken out, and put back by turns before what arrived after the braid.
        let mut left: Vec<u64> = lanes.iter().map(|l| self.run(l.run).len).collect();
        for lane in &lanes {
            self.remove_arrival(lane.run);
            self.runs[lane.run as usize].len = 0;
        }
        let turn = |l: &Lane, left: u64| (l.total - left) / l.turn;
        let start = lanes.iter().zip(&left).map(|(l, &n)| turn(l, n)).min();
        let mut now = start.unwrap_or(0);
        while left.iter().any(|&n| n > 0) {
            for (lane, left) in lanes.iter_mut().zip(&mut left) {
                if *left == 0 || turn(lane, *left) != now {
                    continue;
                }
                let n = lane.turn - (lane.total - *left) % lane.turn;
                *left -= n;
                if self.run(lane.run).len == 0 {
                    self.runs[lane.run as usize].len = n;
                } else {
                    lane.run = self.insert_after(lane.run, n);
                }
                self.arrive(lane.run, end);
            }
            now += 1;
        }
    }

    /// A run of `n` pages after run `r` in its tensor, in the same state, in no order.
    fn insert_after(&mut self, r: u32, n: u64) -> u32 {
        let mut run = self.run(r).clone();
        run.len = n;
        let new = self.alloc(run);
        self.link(Order::Tensor, new, self.run(r).next());
        new
    }

    /// Braids that were there at one time, at least.
    #[cfg(test)]
    pub(crate) fn braids(&self) -> usize {
        self.braids.len()
    }

    /// Run `r` leaves the order of arrival.
    pub(super) fn leave_braid(&mut self, r: u32) {
        let id = self.run(r).braid;
        if id == NIL {
            return;
        }
        self.runs[r as usize].braid = NIL;
        let lanes = &mut self.braids[id as usize].lanes;
        for lane in lanes.iter_mut().filter(|l| l.run == r) {
            lane.run = NIL;
        }
        let mut left = lanes.iter().map(|l| l.run).filter(|&r| r != NIL);
        if let (Some(last), None) = (left.next(), left.next()) {
            self.runs[last as usize].braid = NIL;
            self.unused_braids.push(id);
        }
    }
}
