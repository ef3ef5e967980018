// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Tracepoints of `uvm_rust`, for perf, bpftrace and tracefs (`uvm_rust_trace.h`): each call is one event if somebody
//! listens, and a static branch that is not taken if nobody does. `docs/uapi.md` says what each means.

use super::bindings;
use crate::policy::stats::Queue;

/// What became of pages that left host memory for the SSD tier.
#[cfg(not(uvm_native))]
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// They were written to the device.
    Written = 0,
    /// The device had them, so they were not written again.
    Unwritten = 1,
    /// They were discarded, and so nobody needs them.
    Dropped = 2,
}

/// A batch of faults of the GPU with this index has been serviced, or was given up.
#[cfg(not(uvm_native))]
#[inline(always)]
pub(crate) fn fault_batch(gpu: u32, batch: u32, faults: u64, duplicates: u64) {
    // SAFETY: numbers; no preconditions.
    unsafe { bindings::uvm_seam_trace_fault_batch(id(gpu), batch.into(), faults, duplicates) };
}

/// What this client has in root chunk `chunk` of the GPU with this index is being taken.
pub(crate) fn evict(client: u64, gpu: u32, chunk: u32, queue: Queue) {
    // SAFETY: as above.
    unsafe { bindings::uvm_seam_trace_evict(client, id(gpu), chunk.into(), queue as u64) };
}

/// A range of this client's has been discarded.
pub(crate) fn discard(client: u64, base: u64, length: u64, eager: bool) {
    // SAFETY: as above.
    unsafe { bindings::uvm_seam_trace_discard(client, base, length, eager.into()) };
}

/// So many bytes of the client's va_block at `start` have left host memory.
#[cfg(not(uvm_native))]
pub(super) fn spill(client: u64, start: u64, bytes: u64, how: How) {
    // SAFETY: as above.
    unsafe { bindings::uvm_seam_trace_spill(client, start, bytes, how as u64) };
}

/// The number by which NVIDIA's driver calls a GPU; the CPU has 0.
fn id(index: u32) -> u64 {
    u64::from(index) + 1
}
