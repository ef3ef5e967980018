// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A GPU on which processes fault, for tests of what goes.

use crate::evict::policies::tests::Agrees;
use crate::evict::policies::{spared, Choice};
use crate::evict::{Change, Chunk, Holder, RootChunks};
use std::collections::BTreeMap;
use std::vec::Vec;

/// A GPU, and the process and the block that each of its chunks holds.
pub struct Gpu {
    pub roots: RootChunks,
    pub holds: Vec<Option<(Holder, u32)>>,
    pub spared: usize,
    /// How many chunks of a process are protected.
    lows: BTreeMap<Holder, u32>,
}

impl Gpu {
    pub fn new(policy: &str, chunks: u32) -> Self {
        let choice = Choice::named(policy).unwrap();
        let mut roots = RootChunks::with_policy(chunks, choice).unwrap();
        (0..chunks).for_each(|c| roots.change(c, Change::Free { zeroed: false }).unwrap());
        Self {
            roots,
            holds: std::vec![None; chunks as usize],
            spared: spared(chunks) as usize,
            lows: BTreeMap::new(),
        }
    }

    /// Protects so many chunks of a process.
    pub fn protects(&mut self, holder: Holder, low: u32) {
        while !self.roots.heed_lows(7) {}
        self.lows.insert(holder, low);
        self.roots.protect(holder, low, self.count(holder) as u32);
        self.roots.unsettle_low(holder);
        while !self.roots.settle_low(holder, 7) {}
    }

    /// As the driver does after each allocation for a process with a low.
    fn allocates(&mut self, holder: Holder, chunk: Chunk) {
        if let Some(&low) = self.lows.get(&holder) {
            self.roots.claim(chunk, holder).unwrap();
            let held = self.count(holder) as u32 + 1;
            self.roots.protect(holder, low, held);
        }
    }

    pub fn count(&self, holder: Holder) -> usize {
        let held = self.holds.iter().flatten();
        held.filter(|(h, _)| *h == holder).count()
    }

    /// Whether `holder` faults as it accesses `block`. Whose chunk goes is checked against the rule.
    pub fn faults(&mut self, holder: Holder, block: u32) -> bool {
        if self.holds.contains(&Some((holder, block))) {
            return false;
        }
        let chunk = self.roots.choose(&mut Agrees).unwrap();
        self.roots.begin_eviction(chunk);
        self.roots.evicted(chunk).unwrap();
        self.holds[chunk as usize] = None;
        // As upstream: whose the chunk is is known once it may be evicted again.
        self.roots.used_by(chunk, 0).unwrap();
        self.allocates(holder, chunk);
        let change = match holder {
            0 => Change::Split,
            holder => Change::Whole(holder),
        };
        self.roots.change(chunk, change).unwrap();
        self.holds[chunk as usize] = Some((holder, block));
        true
    }

    /// The process that gives up a chunk next, if no chunk is free.
    pub fn next(&mut self) -> Option<Holder> {
        let chunk = self.roots.choose(&mut Agrees)?;
        Some(self.holds[chunk as usize]?.0)
    }

    /// Faults of processes 2 to 4, which go through 60 blocks each, beside process 1, which goes through 1,024: after the
    /// first round, as nobody has shares before.
    pub fn faults_beside_a_loud_one(mut self) -> usize {
        let mut faults = 0;
        let mut next = 0;
        for round in 0..20 {
            for (holder, block) in (2..5).flat_map(|h| (0..60).map(move |b| (h, b))) {
                let faulted = self.faults(holder, block);
                faults += usize::from(faulted && round > 0);
                // The loud one faults eight times for each access of another.
                for _ in 0..8 {
                    next = (next + 1) % 1024;
                    self.faults(1, next);
                }
            }
        }
        faults
    }
}
