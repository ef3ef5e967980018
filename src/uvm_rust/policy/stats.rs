// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Statistics: what a GPU did, for one process or for all.
//!
//! [`Counters`] is what the driver adds to; [`Snapshot`] is what a user sees. The
//! meaning of each number is that of `struct uvm_rust_stats` in
//! `include/uapi/uvm_rust_ioctl.h`.
//!
//! Locking: none. Every counter is an atomic that is added to with relaxed ordering, so
//! that counting neither orders nor delays the work that it counts. A snapshot that is
//! taken meanwhile may show one counter before an event and another after it.
//! [`Counters::reset`] alone sets counters back.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Causes of a copy that have a name; `UVM_RUST_CAUSE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// A CPU or GPU access that had no page.
    Fault = 0,
    /// Brought along by the tree prefetcher.
    Prefetch = 1,
    /// Pushed out of a GPU to make room.
    Eviction = 2,
    /// `UvmMigrate`, policies, range groups, tools.
    Api = 3,
    /// A GPU's access counter said that the page is used much.
    AccessCounter = 4,
}

/// Where a root chunk was reclaimed from; `UVM_RUST_QUEUE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Queue {
    /// Held by UVM and used by nothing.
    Free = 0,
    /// A va_block had the chunk, with nothing resident in it.
    Unused = 1,
    /// A va_block had the chunk, with nothing resident but what is discarded.
    Discarded = 2,
    /// A va_block had the chunk, with resident pages in it.
    Used = 3,
    /// Not off a queue: asked for by address.
    Address = 4,
}

/// Directions in which bytes move, seen from one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Direction {
    /// Copies from host memory to this GPU.
    HostToGpu = 0,
    /// Copies from this GPU to host memory.
    GpuToHost = 1,
    /// Copies from another GPU to this one.
    GpuToGpu = 2,
}

/// Room for causes, named and reserved; `UVM_RUST_CAUSE_MAX`.
pub const CAUSES: usize = 8;
/// Room for queues, named and reserved; `UVM_RUST_QUEUE_MAX`.
pub const QUEUES: usize = 8;
const DIRECTIONS: usize = 3;
const CAUSE_NAMES: [&str; 5] = ["fault", "prefetch", "eviction", "api", "access-counter"];
const QUEUE_NAMES: [&str; 5] = ["free", "unused", "discarded", "used", "address"];

impl Queue {
    /// The queue with this number, if it has a name.
    pub fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0 => Self::Free,
            1 => Self::Unused,
            2 => Self::Discarded,
            3 => Self::Used,
            4 => Self::Address,
            _ => return None,
        })
    }
}

/// Bytes and pages of one direction and cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many bytes were copied.
    pub bytes: u64,
    /// The same traffic in pages of 4 KiB.
    pub pages: u64,
}

#[derive(Default)]
struct AtomicTraffic {
    bytes: AtomicU64,
    pages: AtomicU64,
}

/// The running counts of one GPU, for one process or for all.
#[derive(Default)]
pub struct Counters {
    traffic: [[AtomicTraffic; CAUSES]; DIRECTIONS],
    faults: AtomicU64,
    duplicates: AtomicU64,
    batches: AtomicU64,
    replays: AtomicU64,
    evictions: [AtomicU64; QUEUES],
    thrashed: AtomicU64,
    prefetch_wasted: AtomicU64,
    /// The batch that the last fault belonged to, so that each is counted once.
    last_batch: AtomicU32,
}

impl Counters {
    /// Sets all counts to 0. The caller sees to it that nobody counts meanwhile.
    pub fn reset(&self) {
        let traffic = self.traffic.iter().flatten();
        let traffic = traffic.flat_map(|t| [&t.bytes, &t.pages]);
        let events = [
            &self.faults,
            &self.duplicates,
            &self.batches,
            &self.replays,
            &self.thrashed,
            &self.prefetch_wasted,
        ];
        for counter in traffic.chain(events).chain(&self.evictions) {
            counter.store(0, Relaxed);
        }
        self.last_batch.store(0, Relaxed);
    }

    /// Counts a copy of `bytes` bytes; of a part of a page, as a page.
    pub fn copied(&self, direction: Direction, cause: Cause, bytes: u64) {
        let t = &self.traffic[direction as usize][cause as usize];
        t.bytes.fetch_add(bytes, Relaxed);
        t.pages.fetch_add(bytes.div_ceil(4096), Relaxed);
    }

    /// Counts `instances` faults of batch `batch`, `duplicates` of which needed
    /// no work. Returns whether it was the first call for this batch.
    ///
    /// Calls for one GPU come from its bottom half only, one batch after the
    /// other (caller holds the GPU's replayable-fault service lock).
    #[inline(always)]
    pub fn faulted(&self, batch: u32, instances: u64, duplicates: u64) -> bool {
        self.faults.fetch_add(instances, Relaxed);
        if duplicates != 0 {
            self.duplicates.fetch_add(duplicates, Relaxed);
        }
        let first = self.last_batch.load(Relaxed) != batch;
        if first {
            self.last_batch.store(batch, Relaxed);
            self.batches.fetch_add(1, Relaxed);
        }
        first
    }

    /// Counts replays sent to the GPU.
    pub fn replayed(&self, n: u64) {
        self.replays.fetch_add(n, Relaxed);
    }

    /// Counts a 2 MiB root chunk reclaimed from `queue`.
    pub fn evicted(&self, queue: Queue) {
        self.evictions[queue as usize].fetch_add(1, Relaxed);
    }

    /// Counts a block of 2 MiB that comes back soon after its eviction ([`returns`]).
    pub fn thrashed(&self) {
        self.thrashed.fetch_add(1, Relaxed);
    }

    /// Counts a block that was evicted before the kernel began for which a prediction had brought it.
    pub fn prefetch_wasted(&self) {
        self.prefetch_wasted.fetch_add(1, Relaxed);
    }

    /// How many bytes evictions have copied off the GPU.
    pub fn evicted_bytes(&self) -> u64 {
        let of = |d: Direction| &self.traffic[d as usize][Cause::Eviction as usize];
        of(Direction::GpuToHost).bytes.load(Relaxed)
    }

    /// The counts as they are now, read one by one.
    pub fn snapshot(&self) -> Snapshot {
        let traffic = |d: Direction| {
            core::array::from_fn(|c| {
                let t = &self.traffic[d as usize][c];
                Traffic {
                    bytes: t.bytes.load(Relaxed),
                    pages: t.pages.load(Relaxed),
                }
            })
        };
        Snapshot {
            host_to_gpu: traffic(Direction::HostToGpu),
            gpu_to_host: traffic(Direction::GpuToHost),
            gpu_to_gpu: traffic(Direction::GpuToGpu),
            faults: self.faults.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            batches: self.batches.load(Relaxed),
            replays: self.replays.load(Relaxed),
            evictions: core::array::from_fn(|q| self.evictions[q].load(Relaxed)),
            thrashed: self.thrashed.load(Relaxed),
            prefetch_wasted: self.prefetch_wasted.load(Relaxed),
        }
    }
}

/// The counts of one moment, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Copied from host memory to the GPU, by cause.
    pub host_to_gpu: [Traffic; CAUSES],
    /// Copied from the GPU to host memory, by cause.
    pub gpu_to_host: [Traffic; CAUSES],
    /// Copied to this GPU from another, by cause.
    pub gpu_to_gpu: [Traffic; CAUSES],
    /// Replayable faults that were taken off the fault buffer.
    pub faults: u64,
    /// Those for which nothing was left to do.
    pub duplicates: u64,
    /// Batches in which they were taken.
    pub batches: u64,
    /// Replays that were sent to the GPU.
    pub replays: u64,
    /// Root chunks reclaimed, by queue.
    pub evictions: [u64; QUEUES],
    /// Blocks of 2 MiB that came back soon after their eviction ([`returns`]).
    pub thrashed: u64,
    /// Blocks that were evicted before the kernel began for which a prediction had brought them.
    pub prefetch_wasted: u64,
}

impl Snapshot {
    /// The counts that are one number each, with their names in texts.
    fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("faults", self.faults),
            ("duplicates", self.duplicates),
            ("batches", self.batches),
            ("replays", self.replays),
            ("thrashed", self.thrashed),
            ("prefetch-wasted", self.prefetch_wasted),
        ]
    }
}

/// The text of the debugfs files: a name and a number a line, then a table, all
/// in columns that fit a terminal and that `awk` can read.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, n) in self.named() {
            writeln!(f, "{name:<22} {n}")?;
        }
        for (name, n) in QUEUE_NAMES.iter().zip(self.evictions) {
            writeln!(f, "evictions-{name:<12} {n}")?;
        }
        writeln!(
            f,
            "{:<16} {:>20} {:>20} {:>20}",
            "bytes-by-cause", "host-to-gpu", "gpu-to-host", "gpu-to-gpu"
        )?;
        for (i, name) in CAUSE_NAMES.iter().enumerate() {
            writeln!(
                f,
                "{name:<16} {:>20} {:>20} {:>20}",
                self.host_to_gpu[i].bytes, self.gpu_to_host[i].bytes, self.gpu_to_gpu[i].bytes
            )?;
        }
        Ok(())
    }
}

pub mod evicting;
pub mod fdinfo;
pub mod held;
pub mod places;
pub mod returns;
#[cfg(test)]
mod tests;
