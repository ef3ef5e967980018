// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The pools that PyTorch's graphs allocate from: it says when one begins, when it ends, and
//! when the last graph that has memory of it is gone.

use core::ffi::c_int;
use std::collections::{BTreeMap, BTreeSet};

/// PyTorch's `MempoolId_t`, a pair of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphPool(pub u64, pub u64);

/// What is known of pools.
#[derive(Debug)]
pub(crate) struct Graphs {
    /// Into which a device allocates now, the last one first.
    current: BTreeMap<c_int, Vec<GraphPool>>,
    /// How often each was begun and not released.
    uses: BTreeMap<(c_int, GraphPool), u64>,
    /// Those that no graph has any more, as far as they may still have memory.
    gone: BTreeSet<(c_int, GraphPool)>,
}

impl Graphs {
    pub(crate) const fn new() -> Self {
        Self {
            current: BTreeMap::new(),
            uses: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Each begin is one use, which a release ends (`beginAllocateToPool` and `releasePool`
    /// of c10/cuda/CUDACachingAllocator.cpp: `createOrIncrefPool`, `use_count`).
    pub(crate) fn begin(&mut self, device: c_int, pool: GraphPool) {
        *self.uses.entry((device, pool)).or_default() += 1;
        self.gone.remove(&(device, pool));
        self.current.entry(device).or_default().push(pool);
    }

    pub(crate) fn end(&mut self, device: c_int, pool: GraphPool) {
        let Some(current) = self.current.get_mut(&device) else {
            return;
        };
        if let Some(at) = current.iter().rposition(|&other| other == pool) {
            current.remove(at);
        }
    }

    pub(crate) fn release(&mut self, device: c_int, pool: GraphPool) {
        let Some(uses) = self.uses.get_mut(&(device, pool)) else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(&(device, pool));
            self.gone.insert((device, pool));
        }
    }

    /// The pool into which a device allocates what is captured now.
    pub(crate) fn current(&self, device: c_int) -> Option<GraphPool> {
        self.current.get(&device)?.last().copied()
    }

    /// Whether any capture with a pool is under way.
    pub(crate) fn any_current(&self) -> bool {
        self.current.values().any(|pools| !pools.is_empty())
    }

    /// Whether no graph has the pool any more.
    pub(crate) fn is_gone(&self, device: c_int, pool: GraphPool) -> bool {
        self.gone.contains(&(device, pool))
    }
}
