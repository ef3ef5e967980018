// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the allocator has done. The structures are C's too: fields are only added, at the end.

/// Of all devices, in calls and bytes since the start.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many blocks were given out, since the start.
    pub mallocs: u64,
    /// Of these blocks, those that came from the cache.
    pub reused: u64,
    /// Bytes had from CUDA and not given back.
    pub held_bytes: u64,
    /// How many bytes were discarded, since the start.
    pub discarded_bytes: u64,
    /// Bytes prefetched, to be used after a discard.
    pub prefetched_bytes: u64,
}

impl Stats {
    /// The sum of two, as of two devices.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            mallocs: self.mallocs + other.mallocs,
            reused: self.reused + other.reused,
            held_bytes: self.held_bytes + other.held_bytes,
            discarded_bytes: self.discarded_bytes + other.discarded_bytes,
            prefetched_bytes: self.prefetched_bytes + other.prefetched_bytes,
        }
    }
}

/// A number that goes up and down, as PyTorch's statistics have it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metric {
    /// The number as it is now.
    pub current: u64,
    /// The most that it was since the last reset.
    pub peak: u64,
    /// By how much it went up in all.
    pub allocated: u64,
    /// By how much it went down in all.
    pub freed: u64,
}

impl Metric {
    pub(crate) fn up(&mut self, by: u64) {
        self.current += by;
        self.allocated += by;
        self.peak = self.peak.max(self.current);
    }

    pub(crate) fn down(&mut self, by: u64) {
        self.current = self.current.saturating_sub(by);
        self.freed += by;
    }
}

/// What was counted for one device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Blocks that are given out.
    pub blocks: Metric,
    /// Their bytes, with what was added to fill them up.
    pub allocated_bytes: Metric,
    /// The bytes that were asked for.
    pub requested_bytes: Metric,
    /// Pieces had from CUDA.
    pub segments: Metric,
    /// The bytes of these pieces, used and cached.
    pub reserved_bytes: Metric,
    /// Allocations that CUDA refused for want of memory, after which the cache was emptied.
    pub retries: u64,
    /// Requests for which there was no memory.
    pub failures: u64,
    /// Discards put into streams.
    pub discards: u64,
    /// The bytes that these discards covered.
    pub discarded_bytes: u64,
    /// Prefetches put into streams, of what was discarded.
    pub prefetches: u64,
    /// The bytes that these prefetches covered.
    pub prefetched_bytes: u64,
    /// Bytes that may hold data, used or not, in blocks of 2 MiB.
    pub live_bytes: u64,
    /// How many of these fit the GPU, as far as is known; else 0.
    pub budget_bytes: u64,
    /// 1: what becomes free is discarded; 0: all fits, and it is not.
    pub short: u64,
}
