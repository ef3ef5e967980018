// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Waits: of one stream for another, and of the program for a stream.
//!
//! Blocking streams, and the threads' own default streams, wait for the legacy default stream, and
//! it for them ("Stream synchronization behavior", CUDA Driver API). On a GPU (H200, driver
//! 580.159.04, CUDA 13.0) a program that waits for a blocking stream without work behind the
//! legacy stream's did not wait for that (`tests/link_program.c`).

use core::ffi::{c_int, c_uint, c_void};

use super::{check, is_legacy, Cuda, Stream, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS};
use crate::Result;

/// `CU_EVENT_DISABLE_TIMING`: the event orders work and measures nothing.
const DISABLE_TIMING: c_uint = 2;

impl Cuda {
    /// Waits for all work in `stream`, and, for the legacy default stream, for all that its
    /// next work would come behind. (In the relaxed mode: it may count as unsafe while
    /// this thread captures another stream.)
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    pub unsafe fn synchronize(&self, stream: Stream) -> Result<()> {
        // SAFETY: by our contract.
        check(unsafe { self.synchronize_code(stream) })
    }

    /// As [`Cuda::synchronize`], with CUDA's own code for what is wrong; 0: nothing.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    unsafe fn synchronize_code(&self, stream: Stream) -> c_int {
        let Some(call) = self.stream_synchronize else {
            return CUDA_ERROR_NOT_SUPPORTED;
        };
        // SAFETY: by our contract.
        self.unordered(|| unsafe {
            if is_legacy(stream) {
                // "When an action is taken in the legacy stream", that waits for all blocking
                // streams; nothing says that a wait for it from here is such an action.
                match self.order_code(stream, stream) {
                    CUDA_SUCCESS => {}
                    error => return error,
                }
            }
            call(stream)
        })
    }

    /// Waits for all that the next work of `stream` would come behind: as [`Cuda::synchronize`], and
    /// for a blocking stream also for the legacy default stream. That one is not waited for
    /// where the blocking stream has no work, or an event alone, behind the legacy stream's, so a
    /// host function is put there. So it is in a stream that does not block: its last wait for
    /// another holds back "all future work" (`cuStreamWaitEvent`), and nothing says that the
    /// program's wait is such work.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    pub unsafe fn drain(&self, stream: Stream) -> Result<()> {
        // SAFETY: by our contract.
        check(unsafe { self.drain_code(stream) })
    }

    /// As [`Cuda::drain`], with CUDA's own code for what is wrong; 0: nothing.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    pub unsafe fn drain_code(&self, stream: Stream) -> c_int {
        // SAFETY: by our contract; the host function takes no data.
        unsafe {
            match self.launch_host_func {
                Some(put) if !is_legacy(stream) => {
                    match put(stream, nothing, core::ptr::null_mut()) {
                        CUDA_SUCCESS => {}
                        error => return error,
                    }
                }
                _ => {}
            }
            self.synchronize_code(stream)
        }
    }

    /// Makes work that comes into `later` from now on wait for all that is in `earlier`.
    ///
    /// # Safety
    /// Both are streams, or special ones; a special one, and `earlier`, of the current
    /// context.
    pub unsafe fn order(&self, earlier: Stream, later: Stream) -> Result<()> {
        // SAFETY: by our contract.
        check(unsafe { self.order_code(earlier, later) })
    }

    /// # Safety
    /// As for [`Cuda::order`].
    unsafe fn order_code(&self, earlier: Stream, later: Stream) -> c_int {
        let (Some(create), Some(record), Some(wait), Some(destroy)) = (
            self.event_create,
            self.event_record,
            self.stream_wait_event,
            self.event_destroy,
        ) else {
            return CUDA_ERROR_NOT_SUPPORTED;
        };
        let mut event = core::ptr::null_mut();
        // SAFETY: outputs are writable, the streams by our contract, and the event is used
        // only between its creation and destruction; CUDA keeps what the wait needs.
        unsafe {
            match create(&mut event, DISABLE_TIMING) {
                CUDA_SUCCESS => {}
                error => return error,
            }
            let queued = match record(event, earlier) {
                CUDA_SUCCESS => wait(later, event, 0),
                error => error,
            };
            let _ = destroy(event);
            queued
        }
    }
}

/// A host function that only takes its turn in a stream.
unsafe extern "C" fn nothing(_: *mut c_void) {}
