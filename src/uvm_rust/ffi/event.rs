// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! User space's events (`eventfd(2)`), which the kernel signals.

use core::ffi::c_int;
use core::ptr::NonNull;
use kernel::prelude::*;

/// The kernel's `struct eventfd_ctx`, opaque here.
#[repr(C)]
struct EventfdCtx {
    _opaque: [u8; 0],
}

/// Kernel functions, exported to GPL modules. Before 6.8 `eventfd_signal` takes a count.
mod kernels {
    use super::{c_int, EventfdCtx};

    extern "C" {
        pub(super) fn eventfd_ctx_fdget(fd: c_int) -> *mut EventfdCtx;
        pub(super) fn eventfd_ctx_put(event: *mut EventfdCtx);
        #[cfg(uvm_eventfd_counts)]
        pub(super) fn eventfd_signal(event: *mut EventfdCtx, n: u64) -> u64;
        #[cfg(not(uvm_eventfd_counts))]
        pub(super) fn eventfd_signal_mask(event: *mut EventfdCtx, mask: u32);
    }
}

/// The first of the addresses by which the kernel means an error.
const FIRST_ERROR: isize = -4095;

/// A reference to an event, which outlives its descriptor.
///
/// Invariant: a reference of `eventfd_ctx_fdget`, put by `drop`.
pub(crate) struct Event(NonNull<EventfdCtx>);

// SAFETY: an event belongs to no thread.
unsafe impl Send for Event {}
// SAFETY: the kernel locks it.
unsafe impl Sync for Event {}

impl Event {
    /// The event of descriptor `fd` of the calling thread.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such descriptor, `EINVAL` if it is none of `eventfd(2)`.
    pub(crate) fn of(fd: c_int) -> Result<Self> {
        // SAFETY: no preconditions; the reference that it gives is put by `drop`.
        let event = unsafe { kernels::eventfd_ctx_fdget(fd) };
        match event as isize {
            error @ FIRST_ERROR..0 => Err(Error::from_errno(error as c_int)),
            _ => NonNull::new(event).map(Self).ok_or(EINVAL),
        }
    }

    /// Adds one to the event's count, which wakes waiters. May be called under any lock of ours.
    pub(crate) fn signal(&self) {
        // SAFETY: by the type's invariant.
        unsafe {
            #[cfg(uvm_eventfd_counts)]
            kernels::eventfd_signal(self.0.as_ptr(), 1);
            #[cfg(not(uvm_eventfd_counts))]
            kernels::eventfd_signal_mask(self.0.as_ptr(), 0);
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant, and nobody uses it any more.
        unsafe { kernels::eventfd_ctx_put(self.0.as_ptr()) };
    }
}
