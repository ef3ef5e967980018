// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Replayable faults: what the service loop of a GPU decides.
//!
//! ```text
//!   fetch     Coalescer::add, one fault at a time       drops duplicates as they come
//!   order     order()                                   by address space, page, access
//!   service   groups(), pages()                         a va_block at a time
//!   replay    Service::batch_done, Service::finish      when the GPU tries again
//!   throttle  PrefetchFaults::decide                    when prefetch faults are useless
//! ```
//!
//! Faults are records of 32 bytes in the caller's array; nothing here allocates.
//! What upstream does in `uvm_gpu_replayable_faults.c` is named at each item.
//!
//! Locking: all of it belongs to the GPU's replayable-fault service lock.

mod batch;
mod replay;

// A world takes what its adapter needs.
#[allow(unused_imports)]
pub use batch::{
    groups, order, pages, Coalescer, Group, Key, Last, Merge, Page, TooMany, MAX_BATCH,
};
#[allow(unused_imports)]
pub use replay::{Limits, PrefetchFaults, Replay, ReplayPolicy, Service, Switch};

/// Size of a page; addresses of faults are multiples of it once in a batch.
pub const PAGE_SIZE: u64 = 4096;

/// How a fault accessed memory, the most intrusive last (`uvm_fault_access_type_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Access {
    /// A prefetch instruction: harmless if it fails.
    #[default]
    Prefetch = 0,
    /// A read.
    Read = 1,
    /// A write.
    Write = 2,
    /// An atomic that need not be atomic to other processors.
    AtomicWeak = 3,
    /// An atomic.
    AtomicStrong = 4,
}

impl Access {
    /// The access with upstream's number.
    pub fn from_number(n: u8) -> Option<Self> {
        Some(match n {
            0 => Self::Prefetch,
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::AtomicWeak,
            4 => Self::AtomicStrong,
            _ => return None,
        })
    }

    /// Its bit in [`Fault::accesses`].
    pub fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Fault {
    /// The virtual address, of 57 bits at most.
    pub address: u64,
    /// Whose address it is: any number that is the same for the same address space.
    /// At fetch the instance pointer, after translation the va_space.
    pub space: u64,
    /// Faults that this one stands for, itself included; at least 1 unless filtered.
    pub instances: u32,
    /// For the caller: the place of the full record, for example.
    pub tag: u32,
    /// The µTLB that sent it.
    pub utlb: u16,
    /// How it accessed memory; of all instances, the most intrusive.
    pub access: Access,
    /// [`Access::bit`] of all instances.
    pub accesses: u8,
    /// [`Fault::FATAL`] and others.
    pub flags: u8,
    /// 0.
    pub reserved: [u8; 3],
}

const _: () = assert!(size_of::<Fault>() == 32);

impl Fault {
    /// Cannot be serviced. Never merged, since it must be cancelled on its own.
    pub const FATAL: u8 = 1 << 0;
    /// Another fault stands for it.
    pub const FILTERED: u8 = 1 << 1;
    /// Left alone for a while, as its page thrashes.
    pub const THROTTLED: u8 = 1 << 2;
    /// A prefetch of an address that is not mapped or not allowed.
    pub const INVALID_PREFETCH: u8 = 1 << 3;

    /// Whether one of `flags` is set.
    pub fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Faults taken off the buffer.
    pub faults: u32,
    /// Those that needed no work: another on the same page came before in the order.
    pub duplicates: u32,
    /// Invalid prefetches.
    pub invalid_prefetches: u32,
    /// A page was throttled.
    pub throttled: bool,
}

impl Summary {
    /// Counts an ordered and serviced batch. Upstream counts while it services
    /// (`update_batch_and_notify_fault`, `mark_fault_invalid_prefetch`,
    /// `mark_fault_throttled`); the numbers are the same.
    pub fn of(faults: &[Fault], order: &[Key]) -> Self {
        let mut s = Self::default();
        for page in pages(order) {
            let (instances, _) = page.count(faults, order);
            s.faults += instances;
            s.duplicates += instances.saturating_sub(1);
        }
        for f in order.iter().filter_map(|k| faults.get(k.index())) {
            s.throttled |= f.is(Fault::THROTTLED);
            if f.is(Fault::INVALID_PREFETCH) {
                s.invalid_prefetches += f.instances;
            }
        }
        s
    }
}
