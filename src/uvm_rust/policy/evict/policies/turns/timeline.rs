// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which program's turn it is on a GPU, and in how many turns each of the others has its next one: what MSched (arXiv
//! 2512.24637) calls the task timeline, and has from the scheduler.
//!
//! A program is a process that announces kernels. Its turn begins when it announces one after another program had the
//! GPU, and lasts until yet another one announces one. Nobody says when turns come: a program is expected to come again
//! after as many turns as the last time.

use super::super::super::holders::list_of;
use super::{Holder, OutOfMemory};
use crate::mem::TryVec;

/// Programs that are known at a time. One more takes the place of the one whose last turn was longest ago.
pub(super) const PROGRAMS: usize = 64;

/// How far away the next turn of a program is that stays away.
pub(super) const NEVER: u64 = u64::MAX;

/// A program, if it has had a turn.
#[derive(Clone, Copy, Default)]
struct Program {
    holder: Holder,
    /// The number of its last turn; 0 if it had none.
    turn: u64,
    /// How many turns its last turn was behind the one before; 0 if it had no more than one.
    period: u64,
    /// Kernels that it has announced in its last turn, and in the one before; 0 if there was none.
    kernels: u32,
    kernels_before: u32,
    /// Memory comes for it outside of its turn, and not by prediction: so its kernels run all the same.
    strays: bool,
    /// How many used chunks the policy has on the list of its number.
    chunks: u32,
}

/// The programs of one GPU.
pub(super) struct Timeline {
    programs: TryVec<Program>,
    /// The number of the present turn.
    now: u64,
    /// The program whose turn it is, unless it has said that no kernel follows.
    running: Option<usize>,
}

impl Timeline {
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        Ok(Self {
            programs: TryVec::filled(PROGRAMS, Program::default())?,
            now: 0,
            running: None,
        })
    }

    /// The number of the present turn.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// `holder` announces a kernel. Returns whether its turn begins with it.
    pub(super) fn begins(&mut self, holder: Holder) -> bool {
        let number = self.find(holder).unwrap_or_else(|| self.place(holder));
        let now = self.now + 1;
        let Some(p) = self.programs.get_mut(number) else {
            return false;
        };
        p.strays = false;
        self.running = Some(number);
        if p.turn != 0 && p.turn == self.now {
            p.kernels = p.kernels.saturating_add(1);
            return false;
        }
        p.period = if p.turn == 0 { 0 } else { now - p.turn };
        (p.turn, p.kernels_before, p.kernels) = (now, p.kernels, 1);
        self.now = now;
        // Whoever still runs beside this one shows it again.
        self.programs.iter_mut().for_each(|p| p.strays = false);
        true
    }

    /// No kernel of `holder` follows.
    pub(super) fn rests(&mut self, holder: Holder) {
        if self.find(holder) == self.running {
            self.running = None;
        }
    }

    /// Memory comes for `holder`, as its kernels fault on it, or as it is `predicted`.
    pub(super) fn brings(&mut self, holder: Holder, predicted: bool) {
        let number = self.find(holder);
        if number == self.running {
            return;
        }
        if let Some(p) = number.and_then(|number| self.programs.get_mut(number)) {
            p.strays = !predicted;
        }
    }

    /// The number of the program that `holder` is.
    pub(super) fn find(&self, holder: Holder) -> Option<usize> {
        let first = list_of(holder) % PROGRAMS;
        let mut numbers = (first..PROGRAMS).chain(0..first);
        numbers.find(|&n| {
            let is = |p: &Program| p.turn != 0 && p.holder == holder;
            self.programs.get(n).is_some_and(is)
        })
    }

    /// A place for a program that has none: what is left of the one whose last turn was longest ago becomes the new one's,
    /// if no place is without chunks.
    fn place(&mut self, holder: Holder) -> usize {
        let places = self.programs.iter().enumerate();
        let least = places.min_by_key(|(_, p)| (p.chunks != 0, p.turn));
        let number = least.map_or(0, |(number, _)| number);
        if let Some(p) = self.programs.get_mut(number) {
            let chunks = p.chunks;
            *p = Program {
                holder,
                chunks,
                ..Program::default()
            };
        }
        number
    }

    /// Program `number` has one used chunk more, or less.
    pub(super) fn counts(&mut self, number: usize, more: bool) {
        if let Some(p) = self.programs.get_mut(number) {
            p.chunks = if more {
                p.chunks.saturating_add(1)
            } else {
                p.chunks.saturating_sub(1)
            };
        }
    }

    /// The number of the last turn of program `number`; 0 if it had none.
    pub(super) fn turn_of(&self, number: usize) -> u64 {
        self.programs.get(number).map_or(0, |p| p.turn)
    }

    /// Whether program `number`, if there is such a one, waits for its turn.
    pub(super) fn waits(&self, number: usize) -> bool {
        let strays = self.programs.get(number).is_none_or(|p| p.strays);
        self.running != Some(number) && !strays
    }

    /// Of the programs that wait for their turn and have chunks, but for those that are `spared`, the one whose turn is
    /// farthest away, and how many turns that is.
    pub(super) fn farthest(&self, spared: impl Fn(Holder) -> bool) -> Option<(usize, u64)> {
        // A new program comes again once all others have had their turns.
        let all = self.programs.iter().filter(|p| p.chunks != 0).count() as u64;
        let programs = self.programs.iter().enumerate();
        let waiting =
            programs.filter(|&(n, p)| p.chunks != 0 && self.waits(n) && !spared(p.holder));
        let with_distance = waiting.map(|(n, p)| (self.distance(p, all), p.turn, n));
        let (distance, _, number) = with_distance.max()?;
        Some((number, distance))
    }

    /// In how many turns `p` has its next one, if one that had a single turn comes again after `all` turns.
    fn distance(&self, p: &Program, all: u64) -> u64 {
        let period = if p.period == 0 { all } else { p.period };
        let since = self.now - p.turn;
        match period.checked_sub(since) {
            Some(turns) => turns,
            // It is late: it comes at any moment, unless it has missed a second turn as well.
            None if since <= 2 * period => 0,
            None => NEVER,
        }
    }

    /// Whether the kernel that is `ahead` kernels after the current one of `holder` belongs to its present turn, which is
    /// taken to have as many kernels as its last one; `None` if `holder` is no program.
    pub(super) fn is_in_turn(&self, holder: Holder, ahead: u32) -> Option<bool> {
        let number = self.find(holder)?;
        let p = self.programs.get(number)?;
        // A turn that is longer than the last one may be of any length.
        let fits =
            p.kernels > p.kernels_before || p.kernels.saturating_add(ahead) <= p.kernels_before;
        Some(self.running == Some(number) && fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// A timeline on which these programs, each with a chunk, had their turns.
    fn after(turns: &[Holder]) -> Timeline {
        let mut timeline = Timeline::new().unwrap();
        for &holder in turns {
            let is_new = timeline.find(holder).is_none();
            timeline.begins(holder);
            if is_new {
                let number = timeline.find(holder).unwrap();
                timeline.counts(number, true);
            }
        }
        timeline
    }

    /// The programs that wait, the farthest first, and how many turns away each is.
    fn order(timeline: &Timeline) -> Vec<(Holder, u64)> {
        let mut order: Vec<(Holder, u64)> = Vec::new();
        let holder = |n: usize| timeline.programs[n].holder;
        while let Some((number, turns)) =
            timeline.farthest(|h| order.iter().any(|&(before, _)| before == h))
        {
            order.push((holder(number), turns));
        }
        order
    }

    #[test]
    fn the_program_that_has_just_run_comes_last() {
        assert_eq!(order(&after(&[1, 2, 3, 4])), [(3, 3), (2, 2), (1, 1)]);
        let steady = after(&[1, 2, 3, 4, 1, 2, 3, 4, 1]);
        assert_eq!(order(&steady), [(4, 3), (3, 2), (2, 1)]);
    }

    #[test]
    fn a_program_comes_again_as_it_did() {
        // Where two are as far away, the one that has run last comes last.
        let tie = after(&[1, 2, 1, 3, 1, 2]);
        assert_eq!(order(&tie), [(1, 1), (3, 1)]);
        // The first has every other turn, so that it comes next though it has just run.
        assert_eq!(
            order(&after(&[1, 2, 1, 3, 1, 2, 1, 3, 1, 2])),
            [(3, 2), (1, 1)]
        );
    }

    #[test]
    fn a_program_that_stays_away_is_the_farthest() {
        let rounds = [3, 1, 2, 3, 1, 2, 1];
        assert_eq!(order(&after(&rounds)), [(2, 2), (3, 0)]);
        let rounds = [&rounds[..], &[2, 1]].concat();
        assert_eq!(order(&after(&rounds)), [(2, 1), (3, 0)]);
        let rounds = [&rounds[..], &[2, 1]].concat();
        assert_eq!(order(&after(&rounds)), [(3, NEVER), (2, 1)]);
    }

    #[test]
    fn a_turn_lasts_until_another_program_comes() {
        let mut timeline = after(&[1]);
        assert!(!timeline.begins(1));
        timeline = after(&[1, 2]);
        assert!(!timeline.begins(2));
        assert_eq!(
            (timeline.now(), timeline.turn_of(timeline.find(2).unwrap())),
            (2, 2)
        );
        // It pauses, and goes on.
        timeline.rests(1);
        assert_eq!(order(&timeline), [(1, 1)]);
        timeline.rests(2);
        assert_eq!(order(&timeline), [(2, 2), (1, 1)]);
        assert!(!timeline.begins(2));
        assert_eq!((timeline.now(), order(&timeline)), (2, Vec::from([(1, 1)])));
        assert!(timeline.begins(1) && timeline.begins(3));
    }

    #[test]
    fn a_program_that_runs_out_of_turn_does_not_wait() {
        let mut timeline = after(&[1, 2, 3]);
        timeline.brings(2, false);
        timeline.brings(9, false);
        timeline.brings(3, false);
        assert_eq!(order(&timeline), [(1, 1)]);
        // It was a prediction that came late.
        timeline.brings(2, true);
        assert_eq!(order(&timeline), [(2, 2), (1, 1)]);
        // So does one that has said that nothing follows, until the next turn.
        timeline.rests(3);
        timeline.brings(3, false);
        assert_eq!(order(&timeline), [(2, 2), (1, 1)]);
        timeline.begins(1);
        assert_eq!(order(&timeline), [(3, 2), (2, 1)]);
        timeline.brings(2, false);
        timeline.begins(1);
        assert_eq!(order(&timeline), [(3, 2)]);
    }

    #[test]
    fn a_turn_has_as_many_kernels_as_the_last_one() {
        let fits =
            |t: &Timeline, ahead: [u32; 4]| ahead.map(|ahead| t.is_in_turn(1, ahead).unwrap());
        let mut timeline = after(&[1, 1, 1]);
        assert_eq!(
            fits(&timeline, [0, 1, 2, 99]),
            [true; 4],
            "nothing is known"
        );
        assert_eq!(timeline.is_in_turn(2, 0), None);
        timeline.begins(2);
        assert_eq!(fits(&timeline, [0, 1, 2, 99]), [false; 4], "it waits");
        timeline.begins(1);
        assert_eq!(fits(&timeline, [0, 2, 3, 99]), [true, true, false, false]);
        timeline.begins(1);
        assert_eq!(fits(&timeline, [0, 1, 2, 99]), [true, true, false, false]);
        timeline.begins(1);
        assert_eq!(fits(&timeline, [0, 1, 2, 99]), [true, false, false, false]);
        timeline.begins(1);
        assert_eq!(fits(&timeline, [0, 1, 2, 99]), [true; 4], "it is longer");
    }

    #[test]
    fn one_program_more_than_there_are_places_takes_the_oldest() {
        let all: Vec<Holder> = (1..=PROGRAMS as Holder).collect();
        let mut timeline = after(&all);
        let last = PROGRAMS as Holder + 1;
        timeline.begins(last);
        assert_eq!((timeline.find(1), timeline.find(2).is_some()), (None, true));
        assert!(timeline.find(last).is_some());
        // The oldest one's chunk counts as the new one's.
        timeline.begins(2);
        assert!(order(&timeline).iter().any(|&(holder, _)| holder == last));
        // One without chunks goes before.
        let mut timeline = after(&all);
        let tenth = timeline.find(10).unwrap();
        timeline.counts(tenth, false);
        timeline.begins(last);
        assert_eq!(
            (timeline.find(last), timeline.find(1).is_some()),
            (Some(tenth), true)
        );
        assert!(!order(&timeline).iter().any(|&(holder, _)| holder == last));
    }
}
