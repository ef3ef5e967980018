// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The tracepoints `uvm_rust:*`, which `perf`, bpftrace and trace-cmd read (docs/trace.md).
//!
//! Each function says one event. Where nobody listens that is the call and a branch that the kernel patches. No lock is
//! needed, and none is taken that a caller may hold.

use super::bindings;
pub(crate) use bindings::{uvm_rust_trace_discard as Discard, uvm_rust_trace_evict as Evict};
#[cfg(not(uvm_native))]
pub(crate) use bindings::{
    uvm_rust_trace_fault_batch as FaultBatch, uvm_rust_trace_spill as Spill,
};

macro_rules! events {
    ($($(#[$attribute:meta])* $name:ident($of:ident) = $c:ident;)*) => {$(
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name(of: &$of) {
            // SAFETY: C reads what `of` is during the call.
            unsafe { bindings::$c(of) };
        }
    )*};
}

events! {
    /// Says that a batch of faults was serviced.
    #[cfg(not(uvm_native))]
    fault_batch(FaultBatch) = uvm_seam_trace_fault_batch;
    /// Says that a va_block lost its chunks in a root chunk.
    evict(Evict) = uvm_seam_trace_evict;
    /// Says that a range was discarded.
    discard(Discard) = uvm_seam_trace_discard;
    /// Says that a va_block was written to the SSD.
    #[cfg(not(uvm_native))]
    spill(Spill) = uvm_seam_trace_spill;
}
