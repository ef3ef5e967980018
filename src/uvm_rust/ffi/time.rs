// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The clock, and waiting by it.

use super::bindings;

/// Half of what [`nap`] may take, in microseconds.
const NAP_US: u64 = 500;

/// Microseconds, from some time on.
pub(crate) fn now_us() -> u64 {
    // SAFETY: no preconditions.
    let ns = unsafe { bindings::ktime_get() };
    ns.unsigned_abs() / 1000
}

/// Milliseconds, by the same clock.
pub(crate) fn now() -> u64 {
    now_us() / 1000
}

/// Sleeps for a moment, a millisecond at most. No spinlock is held.
pub(crate) fn nap() {
    sleep_us(NAP_US);
}

/// Sleeps so many microseconds, or up to twice as long. No spinlock is held.
pub(crate) fn sleep_us(us: u64) {
    // SAFETY: one that held a spinlock would be told by the kernel; memory is safe all the same.
    unsafe { bindings::uvm_seam_sleep(us) };
}

/// Lets others run; whether the calling thread is to die. No spinlock is held.
pub(crate) fn rest() -> bool {
    // SAFETY: as for `sleep_us`.
    unsafe { bindings::uvm_seam_rest() }
}
