// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The memories: root chunks of the GPU's, pages of the host's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::VecDeque;

use uvm_policy::mask::PageMask;
use uvmsim_machine::BLOCK;
use uvmsim_machine::PAGE;

use super::block::Block;

/// The 2 MiB root chunks of the GPU: how many there are, are free, and will be.
pub(crate) struct Chunks {
    /// All that there are.
    pub all: u64,
    free: u64,
    /// When chunks whose contents are being copied out are free.
    pending: BinaryHeap<Reverse<u64>>,
    /// Those that prefetches hold which wait for the link.
    pub staged: u64,
}

impl Chunks {
    pub fn new(all: u64) -> Self {
        Self {
            all,
            free: all,
            pending: BinaryHeap::new(),
            staged: 0,
        }
    }

    /// Those that nothing holds, or will once it is copied out.
    pub fn unheld(&self) -> u64 {
        self.free + self.pending.len() as u64
    }

    /// Bytes of those that something holds.
    pub fn used_bytes(&self) -> u64 {
        (self.all - self.unheld()) * BLOCK
    }

    /// Takes one that is wanted at time `t`; returns when it is free, the soonest. `None`: all
    /// are held.
    pub fn take(&mut self, t: u64) -> Option<u64> {
        while self.pending.peek().is_some_and(|&Reverse(at)| at <= t) {
            self.pending.pop();
            self.free += 1;
        }
        if self.free > 0 {
            self.free -= 1;
            return Some(t);
        }
        self.pending.pop().map(|Reverse(at)| at)
    }

    /// Gives one back that is free from time `at` on.
    pub fn give(&mut self, at: u64) {
        self.pending.push(Reverse(at));
    }
}

/// How much of the host's memory is in use, and how much there is.
pub(super) struct Host {
    /// Pages that it has copies of.
    pub pages: u64,
    /// Pages that it has room for.
    pub cap: u64,
    /// Blocks that may have copies of pages that are elsewhere too.
    clean: VecDeque<u32>,
}

impl Host {
    pub fn new(bytes: u64) -> Self {
        Self {
            pages: 0,
            cap: bytes / PAGE,
            clean: VecDeque::new(),
        }
    }

    /// Bytes that it has copies of.
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE
    }

    /// It has copies of `pages`, of which it has none.
    pub fn keep(&mut self, block: &mut Block, pages: PageMask) {
        block.host |= pages;
        self.pages += u64::from(pages.count());
    }

    /// What copies it has of `pages` are not valid.
    pub fn forget(&mut self, block: &mut Block, pages: PageMask) {
        self.pages -= u64::from((block.host & pages).count());
        block.host -= pages;
    }

    /// Remembers that `block`, number `b`, may have copies that can be dropped.
    pub fn note_clean(&mut self, b: u32, block: &mut Block) {
        if !block.clean_listed && !(block.host & (block.gpu | block.ssd)).is_empty() {
            block.clean_listed = true;
            self.clean.push_back(b);
        }
    }

    /// Makes room for `pages` pages of `b`, if need be by dropping copies of what is
    /// elsewhere too; but not `b`'s, which is about to leave that elsewhere.
    pub fn make_room(&mut self, blocks: &mut [Block], b: u32, pages: u16) -> bool {
        let mut listed = false;
        let mut room = true;
        while room && self.pages + u64::from(pages) > self.cap {
            match self.clean.pop_front() {
                Some(clean) if clean == b => listed = true,
                Some(clean) => {
                    let block = &mut blocks[clean as usize];
                    block.clean_listed = false;
                    let elsewhere = block.gpu | block.ssd;
                    self.forget(block, elsewhere);
                }
                None => room = false,
            }
        }
        if listed {
            self.clean.push_front(b);
        }
        room
    }
}
