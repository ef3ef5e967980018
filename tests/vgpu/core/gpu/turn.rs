// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The emulator's turn in the adversarial order: steps of whom the schedule names.

use super::Gpu;
use super::BUDGET_PER_TURN;
use super::ENTRIES_PER_TURN;
use crate::emu::machine::Machine;
use crate::emu::order::Party;
use crate::emu::order::Schedule;
use crate::emu::sm::Budget;

impl<M: Machine> Gpu<M> {
    /// Takes steps until the epoch ends, kernels have had their share of the turn, or nobody
    /// can go on. True if anything was done.
    #[cold]
    pub(super) fn run_adversarially(&mut self, now: u64) -> bool {
        let Some(mut schedule) = self.schedule.take() else {
            return false;
        };
        let mut any = false;
        let mut budget = BUDGET_PER_TURN;
        while !budget.is_spent() && self.step(&schedule, &mut budget) {
            any = true;
            self.hw.arrive();
            if schedule.stepped(self.parties()) {
                break;
            }
        }
        self.schedule = Some(schedule);
        self.hw.linger(any, now);
        any
    }

    /// Those who take turns: channels first, users after them.
    fn parties(&self) -> usize {
        self.channels.len() + self.hw.users.len()
    }

    /// One step, of the first by rank who can go on; false if nobody can. Whoever cannot
    /// is left as he was.
    fn step(&mut self, schedule: &Schedule, budget: &mut Budget) -> bool {
        let mut below = u64::MAX;
        while let Some((rank, party)) = self.next_party(schedule, below) {
            if self.run_party(schedule, party, budget) {
                #[cfg(test)]
                self.trace.push(party);
                return true;
            }
            below = rank;
        }
        false
    }

    /// The party with the highest rank below `below` that has something to do.
    fn next_party(&self, schedule: &Schedule, below: u64) -> Option<(u64, Party)> {
        let parties = self.parties();
        let channels = self.channels.iter().map(|c| {
            let is_busy = c.is_busy(&self.hw.m);
            is_busy.then_some(Party::Channel(c.id))
        });
        let users = self.hw.users.iter().map(|u| {
            let is_busy = !self.preempted && u.is_busy();
            is_busy.then_some(Party::User(u.h_channel))
        });
        let busy = channels.chain(users).enumerate();
        busy.filter_map(|(i, party)| party.map(|p| (schedule.rank(p, i, parties), p)))
            .filter(|&(rank, _)| rank < below)
            .max_by_key(|&(rank, _)| rank)
    }

    /// Runs a party for one step's methods or instructions; false if nothing was done.
    fn run_party(&mut self, schedule: &Schedule, party: Party, budget: &mut Budget) -> bool {
        match party {
            Party::Channel(id) => {
                let channel = self.channels.iter_mut().find(|c| c.id == id);
                let methods = schedule.methods();
                channel.is_some_and(|c| c.run_methods(&mut self.hw, ENTRIES_PER_TURN, methods))
            }
            Party::User(handle) => {
                let Ok(i) = self.find_user(handle) else {
                    return false;
                };
                let most = Budget::of_instructions(schedule.instructions());
                let mut left = most;
                let progress = self.hw.run_user(i, &mut left);
                budget.take_part(most, left);
                progress
            }
        }
    }
}
