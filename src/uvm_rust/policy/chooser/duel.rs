// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What comes along with faults: by what a block costs under each rule, from its arrival on.
//!
//! The tree prefetcher brings 64 KiB for each page that faults, and more where much of the block is there. That saves
//! services of faults where a program uses what comes, and is in vain where it uses a page here and there. Which pages of
//! those that came are used, a driver does not see. It does see what the blocks cost: pages that are copied, and services
//! of faults. In a duel, one block in eight by a hash of its address is served by another rule, and the costs of an
//! arrival are compared. A service counts for either rule what services have cost on average in that duel: that one is
//! alone in a batch of faults, or one of many, is not the rule's doing.
//!
//! A duel lasts for a window, and the first one comes after a window. A duel in which too few blocks arrive for that ends
//! without a verdict once faults have been serviced so often as no window of arrivals takes: a process whose blocks stay
//! has them served one way. Once the pick has won against both others, duels are rarer the more often it wins. If twice
//! as many pages fault for each arrival, or half as many, the process does something else, and duels begin anew.

use super::super::mask::BLOCK_SHIFT;
use super::super::stats::returns::mix;
use super::Along;

/// The fewest arrivals in a window; on a larger GPU a window is a quarter of its chunks.
const WINDOW: u32 = 32;
/// One block in so many has the other rule in a duel.
const SAMPLE: u64 = 8;
/// Arrivals of such blocks that a verdict needs.
const ENOUGH: u32 = 4;
/// Windows between duels at first.
const EVERY: u32 = 16;
/// The most of these.
const RAREST: u32 = 128;
/// Services for each arrival of a window that end a duel. A block has so many pages, so that no more services bring it.
const SERVICES: u64 = 512;

/// What blocks have cost.
#[derive(Clone, Copy, Default)]
struct Side {
    arrivals: u32,
    /// Pages that came with faults.
    pages: u64,
    /// Services of faults, and what they have cost, in copies of a page.
    services: u64,
    work: u64,
    /// Pages that have faulted.
    faulted: u64,
}

impl Side {
    /// Sixteen times what there is for each arrival.
    fn per_arrival(self, sum: u64) -> u64 {
        sum.saturating_mul(16) / u64::from(self.arrivals.max(1))
    }

    /// Sixteen times the cost of an arrival, in copies of a page, if a service costs a 16th of `service`.
    fn cost(self, service: u64) -> u64 {
        let work = self.services.saturating_mul(service) / 16;
        self.per_arrival(self.pages.saturating_add(work))
    }
}

/// The pick, and how it fares.
pub(super) struct Duel {
    window: u32,
    picked: Along,
    /// The rule that some blocks have in a duel.
    rival: Along,
    /// Whether there is a duel.
    is_on: bool,
    /// Windows until there is one again, and how many there are between two.
    until: u32,
    every: u32,
    /// Duels that the pick has won since it was picked, or since the process did something else; no more than 2 are counted.
    won: u32,
    /// Arrivals of this window.
    arrivals: u32,
    /// Of the blocks that have the pick, and of those that have the rival in a duel.
    sides: [Side; 2],
    /// How much has faulted for each arrival in the last window, if that is known.
    usual: Option<u64>,
}

impl Duel {
    pub(super) fn new(chunks: u32) -> Self {
        Self {
            window: (chunks / 4).max(WINDOW),
            picked: Along::Tree,
            rival: Along::Nothing,
            is_on: false,
            until: 1,
            every: EVERY,
            won: 0,
            arrivals: 0,
            sides: [Side::default(); 2],
            usual: None,
        }
    }

    pub(super) fn picked(&self) -> Along {
        self.picked
    }

    pub(super) fn along(&self, address: u64) -> Along {
        match self.is_rivals(address) {
            false => self.picked,
            true => self.rival,
        }
    }

    pub(super) fn arrived(&mut self, address: u64) {
        if self.arrivals >= self.window {
            self.window_ends();
        }
        self.arrivals += 1;
        let side = self.side_of(address);
        side.arrivals = side.arrivals.saturating_add(1);
    }

    pub(super) fn copied(&mut self, address: u64, pages: u64) {
        let side = self.side_of(address);
        side.pages = side.pages.saturating_add(pages);
    }

    pub(super) fn served(&mut self, address: u64, faulted: u32, work: u32) {
        let side = self.side_of(address);
        side.services = side.services.saturating_add(1);
        side.work = side.work.saturating_add(work.into());
        side.faulted = side.faulted.saturating_add(faulted.into());
        let services = self.sides.iter().map(|side| side.services).sum::<u64>();
        if self.is_on && services >= SERVICES.saturating_mul(self.window.into()) {
            self.is_on = false;
            self.until = 1;
            self.window_begins();
        }
    }

    /// Whether the block at `address` has the rival.
    fn is_rivals(&self, address: u64) -> bool {
        self.is_on && mix(address >> BLOCK_SHIFT) % SAMPLE == 0
    }

    fn side_of(&mut self, address: u64) -> &mut Side {
        let is_rivals = self.is_rivals(address);
        let [of_pick, of_rival] = &mut self.sides;
        if is_rivals {
            of_rival
        } else {
            of_pick
        }
    }

    fn window_begins(&mut self) {
        self.arrivals = 0;
        self.sides = [Side::default(); 2];
    }

    fn window_ends(&mut self) {
        let [of_pick, of_other] = self.sides;
        if self.is_on && of_other.arrivals < ENOUGH {
            // The duel goes on for a window: a verdict as soon as there are enough would be of fewer.
            self.arrivals = 0;
            return;
        }
        let now = of_pick.per_arrival(of_pick.faulted);
        let before = self.usual.replace(now);
        let differs = |before: u64| now / 2 > before || now < before / 2;
        if self.is_on {
            let services = of_pick.services.saturating_add(of_other.services);
            let work = of_pick.work.saturating_add(of_other.work);
            let service = work.saturating_mul(16) / services.max(1);
            self.ends(of_pick.cost(service), of_other.cost(service));
        } else if before.is_some_and(differs) {
            self.begins_anew();
            self.is_on = true;
        } else {
            self.until = self.until.saturating_sub(1);
            self.is_on = self.until == 0;
        }
        self.window_begins();
    }

    /// A duel ends, in which an arrival has cost so much under either rule.
    fn ends(&mut self, pick: u64, rival: u64) {
        let before = (self.picked, self.rival);
        // The rival must be better by more than an eighth.
        if rival.saturating_mul(8) < pick.saturating_mul(7) {
            self.picked = self.rival;
            self.begins_anew();
        } else if self.won < 2 {
            self.won += 1;
        } else {
            self.every = (self.every * 2).min(RAREST);
        }
        self.rival = third(before);
        self.is_on = false;
        self.until = if self.won < 2 { 1 } else { self.every };
    }

    fn begins_anew(&mut self) {
        self.every = EVERY;
        self.won = 0;
    }
}

/// The rule that is neither of two.
fn third(of: (Along, Along)) -> Along {
    let mut others = Along::ALL.into_iter().filter(|&a| a != of.0 && a != of.1);
    others.next().unwrap_or_default()
}
