// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which process this is: what lies between it and the one in which the library was loaded.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// A process, as seen from where the library was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation {
    /// How many calls of `fork` lie between.
    pub(crate) forks: u32,
    /// At one of these, the parent had a descriptor of UVM, or it is not known.
    pub(crate) inherited: bool,
}

/// The generation of this process, which its children find and change.
pub(crate) struct Lineage {
    /// The process in the lower half, or 0 before it is known; in the upper one its forks,
    /// and in the top bit whether it inherited. One word: who sees the number of a new
    /// process sees its forks too.
    pub(crate) word: AtomicU64,
}

const INHERITED: u64 = 1 << 63;

impl Generation {
    fn of(word: u64) -> Self {
        Self {
            forks: (word >> 32) as u32 & 0x7fff_ffff,
            inherited: word & INHERITED != 0,
        }
    }

    /// The word for the child `pid` of this one.
    fn child(self, pid: u32, inherited: bool) -> u64 {
        let forks = u64::from(self.forks.wrapping_add(1) & 0x7fff_ffff);
        u64::from(inherited) << 63 | forks << 32 | u64::from(pid)
    }
}

impl Lineage {
    /// The library was loaded in process `pid`.
    pub(crate) fn began(&self, pid: u32) {
        self.word.store(u64::from(pid), Relaxed);
    }

    /// Process `pid` was just forked, and has one thread.
    pub(crate) fn forked(&self, pid: u32, inherited: bool) {
        let parent = Generation::of(self.word.load(Relaxed));
        self.word.store(parent.child(pid, inherited), Relaxed);
    }

    /// That of process `pid`, which asks. If nobody told of its fork, which
    /// `pthread_atfork` is not of clone(2) called as such, this takes note of it.
    pub(crate) fn generation(&self, pid: u32) -> Generation {
        let known = self.word.load(Relaxed);
        if known as u32 == pid || known == 0 {
            return Generation::of(known);
        }
        let this = Generation::of(known).child(pid, true);
        match self.word.compare_exchange(known, this, Relaxed, Relaxed) {
            Ok(_) => Generation::of(this),
            // Another thread of this process was faster.
            Err(other) => Generation::of(other),
        }
    }
}
