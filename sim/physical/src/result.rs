// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a run reports.

pub use uvmsim_g10::Traffic as Bytes;

use crate::record::Timeline;

/// Nanoseconds in which no kernel made progress, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Fault handling and the copies it waits for, without evictions.
    pub fault: u64,
    /// Evictions waited for: oversubscription (MOST section II). By a fault, or by the
    /// prefetch that a kernel waits for, where it could start but for want of memory.
    pub eviction: u64,
    /// Prefetches that came too late, where it is the link or the SSD that is busy.
    pub prefetch: u64,
    /// Driver calls in the stream: discards, migrations.
    pub calls: u64,
    /// NVLink: scattering inputs, reducing outputs.
    pub peers: u64,
}

impl Stalls {
    /// The time lost to all causes together.
    pub fn total(&self) -> u64 {
        self.fault + self.eviction + self.prefetch + self.calls + self.peers
    }
}

/// One iteration under a policy.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The name of the policy.
    pub policy: String,
    /// Duration with everything in GPU memory, nanoseconds.
    pub ideal_ns: u64,
    /// Duration of the step, nanoseconds.
    pub step_ns: u64,
    /// Bytes moved in the step.
    pub bytes: Bytes,
    /// Bytes dropped unwritten because they were dead.
    pub dropped: u64,
    /// Bytes zeroed in GPU memory.
    pub zeroed: u64,
    /// Pages that kernels faulted on.
    pub faults: u64,
    /// Of those, pages of va_blocks that waited in a prefetch queue: foreseen, late.
    pub late_faults: u64,
    /// Batches in which faults were serviced.
    pub batches: u64,
    /// Root chunks reclaimed by the driver, from blocks in use.
    pub reclaimed: u64,
    /// Time lost, by cause.
    pub stalls: Stalls,
    /// Most host memory in use, bytes.
    pub host_peak: u64,
    /// Most GPU memory in use, bytes.
    pub gpu_peak: u64,
    /// Duration of each kernel with its stalls, nanoseconds.
    pub kernel_ns: Vec<u64>,
    /// Where the time went, if asked for.
    pub timeline: Option<Timeline>,
}

impl Outcome {
    /// Ideal time over time.
    pub fn normalized(&self) -> f64 {
        self.ideal_ns as f64 / self.step_ns.max(1) as f64
    }
}
