// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The replayable-fault service loop.
//!
//! A GPU writes an entry into its fault buffer, a ring, for each access that
//! found no page, and stalls the access until the driver replays it. One call of
//! [`Service::run`] works on what the ring holds:
//!
//! ```text
//!  fetch     ring -> records, duplicates coalesced           batch.rs
//!  order     sort, coalesce across the batch, translate      batch.rs
//!  service   per VA space: lock; per va_block: the machine   service.rs
//!  replay    by the replay policy                            decide.rs
//!  cancel    what no page can be found for                   cancel.rs
//! ```
//!
//! The loop acts only through [`Machine`]: in the driver that is a GPU with
//! upstream's va_block code behind it, under `cargo test` a model of one. What a
//! fault leads to (residency, copies, mappings) is the machine's.
//!
//! # Invariants
//!
//! Checked where [`Machine::CHECKS`] is set (debug and develop builds, tests).
//!
//! - **F-get**: an entry of the ring is read once, its valid bit cleared, and only
//!   then GET moves past it; GET never passes PUT.
//! - **F-order**: what the machine is given is sorted by VA space, address, and
//!   falling access type, so that it can walk a va_block's faults forward.
//! - **F-merge**: each entry read is either in that order or merged into one that
//!   is, for the same instance pointer, subcontext and page, with an access no
//!   less intrusive. An entry that is fatal by itself is never merged.
//! - **F-replay**: once GET has moved, a replay follows before the call ends,
//!   whatever happens in between: the faults behind those entries are stalled
//!   until then.
//! - **F-stale**: before a fault is cancelled, all earlier replays have ended, the
//!   ring has been flushed, and the fault has come back, under the lock of its VA
//!   space: what is cancelled cannot have been mended meanwhile.
//! - **F-dead**: a fault whose channel is gone is stale; it is flushed, not
//!   cancelled.
//! - **F-lock**: every `enter` that took the locks of a VA space is followed by one
//!   `leave`, before another `enter`.
//! - **F-own**: where the service of one VA space fails, as it does where the cgroup of that process is full or the CPU would get
//!   SIGBUS, the batch's faults of that VA space are cancelled, and no other's. On a GPU that cannot cancel by address all of
//!   the batch are.
//! - **F-again**: a fault whose service asks to be tried again is tried so often only. Then it is tried in place, and then the
//!   faults of its VA space are left for the replay, as those of a busy one. A fault that comes back again and again
//!   although its service succeeds is tried in place, too.
//! - **F-busy**: of a VA space whose locks others have, nothing is serviced and
//!   nothing is cancelled. Its faults come back by the replay that F-replay owes them.
//! - **F-turn**: where several VA spaces have faults, each is serviced for a limited time in a batch, and for one va_block at
//!   least, unless it is passed for what an earlier turn took too long. What is left of its faults comes back by the replay that F-replay owes them.
//!
//! Locking: none here. The caller owns the ring for the length of a call (in the
//! driver, the GPU's replayable-fault service lock).

mod again;
mod alone;
mod batch;
mod cancel;
mod decide;
mod patience;
mod service;
mod turns;

pub use batch::{run_within, Batch};
#[allow(unused_imports)]
pub use cancel::{cancels_as, cancels_where_it_came_from, CancelAs};
// The driver uses a part of it; tests and uvmsim the rest.
#[allow(unused_imports)]
pub use decide::{
    flush_after_batch, goes_on, prefetch_faults, waits_for_entry, AfterBatch, EntryWait, Flush,
    PrefetchFaults, PrefetchSwitch, ReplayPolicy, SPIN_US, UNWRITTEN_US,
};
#[allow(unused_imports)]
pub use patience::{Patience, LEAST_US, MOST_US};
pub use service::{Entered, Entering, Looked, Machine, Outcome, Served, Service, Translated};

/// Accesses, from the least to the most intrusive; upstream's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Access {
    /// A prefetch: not replayed, never fatal.
    Prefetch = 0,
    /// A load, which does not write.
    Read = 1,
    /// A store, which writes the page.
    Write = 2,
    /// An atomic that need not be one for the whole system.
    AtomicWeak = 3,
    /// An atomic for the whole system.
    AtomicStrong = 4,
}

/// A fault, or several that were coalesced. What the ring's entries become.
///
/// Its layout is that of `struct uvm_rust_fault`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// First byte of the page, 4 KiB aligned at least.
    pub address: u64,
    /// Whose: a key of instance pointer and subcontext until the batch is
    /// translated, the VA space from then on.
    pub who: u64,
    /// Number of the entry in the machine's fault cache that stands for all.
    pub entry: u32,
    /// How many entries of the ring this stands for.
    pub instances: u16,
    /// The µTLB that `entry` came from.
    pub utlb: u16,
    /// The most intrusive access ([`Access`] as a number).
    pub access: u8,
    /// All accesses: bit n for access n.
    pub accesses: u8,
    /// Not 0 for a fault that no page can mend.
    pub fatal: u8,
    /// Padding up to 32 bytes, which C sets to 0.
    pub reserved: [u8; 5],
}

impl Record {
    /// Address and access as one number: in its order, the more intrusive access
    /// of a page comes first. The low bits of a page's address are free for it.
    fn place(&self) -> u64 {
        self.address.wrapping_add(u64::from(7 - (self.access & 7)))
    }

    /// Whether two faults may become one.
    fn merges_with(&self, other: &Self) -> bool {
        self.address == other.address
            && self.who == other.who
            && (self.fatal | other.fatal) == 0
            && self.instances.checked_add(other.instances).is_some()
    }
}

/// What does not change while a GPU is in use, from upstream's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Entries of the ring.
    pub ring: u32,
    /// Most entries of a batch (`uvm_perf_fault_batch_count`), 1..=`ring`.
    pub max_batch: u32,
    /// µTLBs of the GPU.
    pub utlbs: u32,
    /// When replays are sent (`uvm_perf_fault_replay_policy`).
    pub policy: ReplayPolicy,
    /// Share of duplicates above which PUT is read again before a flush, in percent
    /// (`uvm_perf_fault_replay_update_put_ratio`), 0..=100.
    pub update_put_percent: u32,
    /// Most batches of a call (`uvm_perf_fault_max_batches_per_service`).
    pub max_batches: u32,
    /// Most batches of a call that held throttled pages
    /// (`uvm_perf_fault_max_throttle_per_service`).
    pub max_throttled: u32,
    /// Whether faults are coalesced (`uvm_perf_fault_coalesce`).
    pub coalesce: bool,
    /// Whether the GPU can cancel by address (Volta and later). If not, the
    /// machine finds the µTLB to cancel (Pascal).
    pub cancels_by_address: bool,
    /// How many microseconds the turn of a VA space has (`uvm_rust_fault_turn_us`); 0: nobody takes turns (F-turn).
    pub turn_us: u32,
}

#[cfg(test)]
mod tests;
