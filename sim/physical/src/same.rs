// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The simulator's own eviction order, held to the driver's
//! (crate uvm-policy) before that takes its place.

use std::hash::BuildHasher;
use std::hash::Hasher;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use uvm_policy::evict::Queue;
use uvm_policy::evict::RootChunks;

use crate::lru::List;
use crate::lru::Lru;

/// From a seed that is printed, and that `UVM_TEST_SEED` sets.
fn config(cases: u32) -> ProptestConfig {
    let given = std::env::var("UVM_TEST_SEED").ok();
    let seed = given
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
    eprintln!("UVM_TEST_SEED={seed}");
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    }
}

const BLOCKS: u32 = 40;

/// What happens to blocks.
#[derive(Clone, Debug)]
enum Step {
    /// Pages of it came.
    Touch(u32),
    /// All of its pages were discarded.
    Discard(u32),
    /// It lost its chunk.
    Leave(u32),
    /// It is needed until so many kernels from now.
    Expect(u32, u32),
    /// A kernel ends.
    Tick,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..BLOCKS).prop_map(Step::Touch),
        1 => (0..BLOCKS).prop_map(Step::Discard),
        2 => (0..BLOCKS).prop_map(Step::Leave),
        4 => (0..BLOCKS, 0..6u32).prop_map(|(b, n)| Step::Expect(b, n)),
        2 => Just(Step::Tick),
    ];
    prop::collection::vec(step, 1..200)
}

/// The order as `System` keeps it.
struct Old {
    lru: Lru,
    discarded: List,
    until: Vec<Option<u64>>,
    now: u64,
    /// Until when each block was needed when it was parked; `Lru` goes by that.
    parked: Vec<Option<u64>>,
}

impl Old {
    /// `System::next_unkept` and `System::victim`.
    fn victim(&mut self, demand: bool) -> Option<u32> {
        if let Some(b) = self.discarded.iter().next() {
            return Some(b);
        }
        self.lru.wake(self.now);
        while let Some(b) = self.lru.awake_after(None) {
            match self.until[b as usize].filter(|&until| until >= self.now) {
                None => return Some(b),
                Some(until) => {
                    self.parked[b as usize] = Some(until);
                    self.lru.park(b, until);
                }
            }
        }
        demand.then(|| self.lru.parked().next()).flatten()
    }

    /// Whether `Lru` has an older opinion of when a block is needed than there is.
    fn is_stale(&self) -> bool {
        let mut parked = self.lru.parked();
        parked.any(|b| self.parked[b as usize] != self.until[b as usize])
    }
}

proptest! {
    #![proptest_config(config(512))]

    /// Up to the 64 chunks that the driver looks at, and where all are kept only if the
    /// simulator knows until when.
    #[test]
    fn victims_are_the_same(steps in steps()) {
        let mut old = Old {
            lru: Lru::new(BLOCKS as usize),
            discarded: List::new(BLOCKS as usize),
            until: vec![None; BLOCKS as usize],
            now: 0,
            parked: vec![None; BLOCKS as usize],
        };
        let mut new = RootChunks::new(BLOCKS).unwrap();
        let owner = new.add_owner();
        for step in steps {
            match step {
                Step::Touch(b) => {
                    old.discarded.remove(b);
                    old.lru.push(b);
                    new.used_by(b, 1).unwrap();
                    new.insert(b, 1).unwrap();
                }
                Step::Discard(b) if new.queue_of(b) == Some(Queue::Used) => {
                    old.lru.remove(b);
                    old.discarded.push(b);
                    new.set(b, Queue::Discarded).unwrap();
                }
                Step::Leave(b) => {
                    old.lru.remove(b);
                    old.discarded.remove(b);
                    new.remove(b);
                }
                Step::Expect(b, ahead) => {
                    let until = &mut old.until[b as usize];
                    *until = (*until).max(Some(old.now + u64::from(ahead)));
                    new.expect(b, owner, old.now as u32 + ahead);
                }
                Step::Tick => {
                    old.now += 1;
                    new.set_now(owner, old.now as u32);
                }
                Step::Discard(_) => {}
            }
            let victim = new.victim();
            let spared = victim.filter(|v| !v.expected).map(|v| v.chunk);
            prop_assert_eq!(spared, old.victim(false));
            if !old.is_stale() {
                prop_assert_eq!(victim.map(|v| v.chunk), old.victim(true));
            }
        }
    }
}
