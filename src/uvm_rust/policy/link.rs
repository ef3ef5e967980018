// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How much of a VA space's memory `UVM_MIGRATE` has on its way at a time, while other VA spaces copy on the same GPU
//! (L-window).
//!
//! The copies of all processes go through the same few channels of a GPU, in the order in which they were pushed. A fault's
//! copy so waits for all that is queued before it. `UVM_MIGRATE` queues its whole range before it waits for anything,
//! and with `UVM_MIGRATE_FLAG_ASYNC` it does not wait at all. A channel takes 1,023 pushes, of 2 MiB each: one
//! thread can queue 2 GiB before a fault of another process, and eight threads queue as much as their ranges have.
//!
//! # The window
//!
//! A VA space that shares a GPU has a *quantum* of bytes on its way at most. It is in two halves: while one half is copied,
//! threads of the VA space push the other. When that is full, they wait until the first half is over. So the link
//! does not wait for the VA space, and a fault's copy waits for one quantum of each other VA space at most.
//!
//! Deficit round robin (M. Shreedhar, G. Varghese, "Efficient Fair Queueing Using Deficit Round Robin", SIGCOMM 1995) gives
//! each queue a quantum of bytes in each round. Here the channel is the round: it is served in its order, so that of two
//! VA spaces that always have copies left each gets a quantum in turn, as each may push again only when its own are over. A
//! VA space with one thread has its turn behind one quantum of each other one. This needs no queue of who waits, and nobody
//! waits for copies of others: a thread waits for those of its own VA space, for which `UVM_MIGRATE` waits at its end as well.
//! A process that ends leaves nothing that others would wait for.
//!
//! What counts is what a thread is about to move, va_block by va_block. If some of that is there already, the half is full
//! too early, and its copies are over the sooner.
//!
//! # Invariants
//!
//! - **L-alone**: a VA space that [`Sharers`] know to be alone takes no part of this.
//! - **L-window**: of what was taken and pushed, no more than a quantum is on its way, or one va_block in each half if that
//!   is more. Between the two a thread holds one va_block more.
//! - **L-deadline**: while none of its copies ends for [`MOST_US`], a VA space pushes one va_block in each such time as if there was
//!   room. The GPU may have stopped, and what waits for the thread's locks goes on.

mod sharers;

pub use sharers::Sharers;

/// For how long a VA space waits while none of its copies ends, in microseconds.
pub const MOST_US: u64 = 250_000;

/// How many microseconds a thread sleeps between two looks.
pub const LOOK_US: u64 = 50;

/// Va_blocks that are known of each half: the last ones. A channel copies in its order, so that those before them are over
/// as well.
pub const KNOWN: usize = 16;

/// What was taken of one half.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    bytes: u64,
    /// The addresses of the last va_blocks; the first `len` are known.
    blocks: [u64; KNOWN],
    len: usize,
    /// Where the next one is put once all places are used.
    next: usize,
}

impl Half {
    fn add(&mut self, block: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let mut known = self.blocks.iter().take(self.len);
        if known.any(|one| *one == block) {
            return;
        }
        if let Some(place) = self.blocks.get_mut(self.next) {
            *place = block;
        }
        self.next = (self.next + 1) % KNOWN;
        self.len = (self.len + 1).min(KNOWN);
    }

    /// Forgets what is over. Returns whether that was any of it.
    fn forget(&mut self, mut is_copied: impl FnMut(u64) -> bool) -> bool {
        let before = self.len;
        let mut at = 0;
        while at < self.len {
            match self.blocks.get(at) {
                Some(block) if !is_copied(*block) => at += 1,
                _ => {
                    self.len -= 1;
                    self.blocks.swap(at, self.len);
                }
            }
        }
        self.len < before
    }
}

/// What a VA space has on its way.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Bytes of a half; more than 0.
    half: u64,
    /// What was pushed before, and what is pushed now.
    before: Half,
    now: Half,
    /// Since when both are full and no copy has ended; `None` if there is room, or nobody has looked.
    full_since_us: Option<u64>,
}

impl Window {
    /// Makes an empty window of `quantum` bytes.
    pub fn new(quantum: u64) -> Self {
        Self {
            half: (quantum / 2).max(1),
            before: Half::default(),
            now: Half::default(),
            full_since_us: None,
        }
    }

    /// Takes `bytes` of a va_block, which its thread is about to move. Returns whether there is room; else the thread looks
    /// again later. `is_copied` says whether a va_block at some address has no copy under way, or is gone.
    pub fn takes(
        &mut self,
        block: u64,
        bytes: u64,
        is_copied: impl FnMut(u64) -> bool,
        now_us: impl FnOnce() -> u64,
    ) -> bool {
        let is_full = self.now.bytes.saturating_add(bytes) > self.half;
        if is_full && self.now.bytes > 0 {
            if self.before.forget(is_copied) {
                self.full_since_us = None;
            }
            if self.before.len == 0 {
                self.before = core::mem::take(&mut self.now);
            } else {
                let now_us = now_us();
                let since_us = *self.full_since_us.get_or_insert(now_us);
                if now_us.saturating_sub(since_us) < MOST_US {
                    return false;
                }
            }
            self.full_since_us = None;
        }
        self.now.add(block, bytes);
        true
    }

    /// Takes it without room, for a thread that is killed.
    pub fn takes_anyway(&mut self, block: u64, bytes: u64) {
        self.now.add(block, bytes);
    }
}

#[cfg(test)]
mod tests;
