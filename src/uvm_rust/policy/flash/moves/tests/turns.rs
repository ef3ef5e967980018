// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A call and a worker of a tenant that both write as much as they may, in virtual time.

use super::*;
use crate::policy::flash::pace::{may_write, paid_after, Ns};
use crate::policy::flash::queue::LATER_MS;
use crate::testing::{model, Dice};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// What a tenant may write, and when it has paid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    now: Ns,
    paid: Ns,
    mib: u32,
    /// Somebody waits to suspend from then on.
    suspend: Ns,
    /// Who has the turn gives it up after so many naps; it does not in the driver.
    gives_up: Option<u32>,
    naps: u32,
}

impl Rate {
    pub(super) fn is_paid(&self) -> bool {
        may_write(self.paid, self.now)
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.now >= self.suspend || self.gives_up.is_some_and(|naps| self.naps >= naps)
    }

    pub(super) fn nap(&mut self) {
        self.now.0 += 10 * MS;
        self.naps += 1;
    }

    /// So many blocks were written, each of which takes a moment.
    pub(super) fn pay(&mut self, blocks: u64) {
        self.now.0 += blocks * MS;
        self.paid = paid_after(self.paid, self.now, blocks * BLOCK_BYTES, self.mib);
    }
}

const CALL: usize = 0;
const WORKER: usize = 1;

/// How often each writes, and how often another one did at most while it wanted to; and how often the system slept.
fn both_write(seed: u64, mib: u32, gives_up: Option<u32>) -> ([u32; 2], u32, u32) {
    let mut dice = Dice::new(seed);
    let mut rate = Rate {
        now: Ns(0),
        paid: Ns(0),
        mib,
        suspend: Ns(u64::MAX),
        gives_up,
        naps: 0,
    };
    // When each comes to the line, where the first is served first (`turn.rs`).
    // The worker comes while the call writes its first part, which takes 8 ms or more.
    let mut comes = [0, dice.below(8) as u64 * MS];
    let (mut wrote, mut passed, mut worst, mut slept) = ([0; 2], [0; 2], 0, 0);
    for _ in 0..200 {
        let who = usize::from(comes[WORKER] < comes[CALL]);
        rate.now.0 = rate.now.0.max(comes[who]);
        if gives_up.is_none() && dice.one_in(20) {
            rate.suspend = Ns(rate.now.0 + dice.below(1000) as u64 * MS);
        }
        // Calls never give their turn up but for a suspend.
        let naps = gives_up.filter(|_| who == WORKER);
        let mut m = Script {
            rate: Some(Rate {
                gives_up: naps,
                naps: 0,
                ..rate
            }),
            ..Script::default()
        };
        let moved = Run::new(16 * MIB, AT_ONCE, To::Device).step(&mut m);
        assert!(m.held.is_empty(), "the turn is over");
        rate = Rate {
            gives_up,
            ..m.rate.unwrap()
        };
        let again = moved == Err(Failed::Again);
        if again {
            assert!(who == WORKER || rate.now >= rate.suspend, "a call gave up");
        } else {
            assert_eq!(moved, Ok(()));
            wrote[who] += 1;
            passed[who] = 0;
            passed[1 - who] += 1;
            worst = worst.max(passed[1 - who]);
        }
        if rate.now >= rate.suspend {
            // The system sleeps, and wakes up.
            rate.now.0 += 100 * MS;
            rate.suspend = Ns(u64::MAX);
            slept += 1;
        }
        let later = match who {
            CALL => 0,
            _ if again => LATER_MS * MS,
            _ => dice.below(3) as u64 * MS,
        };
        comes[who] = rate.now.0 + later;
    }
    (wrote, worst, slept)
}

proptest! {
    #![proptest_config(model(100))]

    /// Neither has to wait for more than one part of the other's, and what a suspend has put off.
    #[test]
    fn a_call_and_a_worker_write_in_turns(seed in any::<u64>(), mib in 1u32..2000) {
        let (wrote, worst, slept) = both_write(seed, mib, None);
        prop_assert!(worst <= 3 + slept, "{worst} in a row, of {wrote:?}");
        prop_assert!(wrote[CALL].abs_diff(wrote[WORKER]) <= 2 + 2 * slept, "{wrote:?}");
    }
}

/// A worker that gives its turn up after half a second never writes where a part takes more than that.
#[test]
fn who_gives_its_turn_up_for_its_rate_starves() {
    let (wrote, worst, _) = both_write(1, 8, Some(50));
    assert!(wrote[WORKER] <= 1 && worst > 20, "{wrote:?}, {worst}");
}
