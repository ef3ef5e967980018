// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The ioctls that discard and migrate, with the structures that they take.

use core::ffi::c_void;
use std::time::Instant;

use super::{behind_a_discard, Fit, Outcome, Uvm};
use crate::groups::in_groups;
use crate::sys::Sys;
use crate::uapi::{self, DiscardBatch, Migrate, NativeDiscard};
use crate::{Error, Place, Range, Result};

/// Room behind each structure of NVIDIA's, in words. Their numbers say nothing of the
/// size, so a driver whose structure has grown writes as much as it likes.
const ROOM: usize = 64;

#[repr(C)]
struct Roomy<T> {
    params: T,
    room: [u64; ROOM],
}

impl<S: Sys> Uvm<S> {
    pub(super) fn migrate(&self, fd: i32, range: Range, place: Place) -> Result<()> {
        let mut params = Migrate {
            base: range.base,
            length: range.length,
            destination: match place {
                Place::Host => uapi::CPU_UUID,
                Place::Gpu(uuid) => uuid,
            },
            numa_node: -1,
            ..Migrate::default()
        };
        let status = self.native(fd, uapi::UVM_MIGRATE, &mut params, |p| p.status)?;
        Error::check_status(status)
    }

    pub(super) fn batch_uvm_rust(
        &self,
        fd: i32,
        ranges: &[Range],
        fit: Fit,
        flags: u32,
        outcome: &mut Outcome,
    ) -> Result<()> {
        outcome.counted = true;
        let one_call = |ranges: &[Range], outcome: &mut Outcome| {
            let mut params = batch(ranges, flags);
            let result = self.call(fd, uapi::DISCARD_BATCH, &mut params);
            outcome.done += params.first_failed as usize;
            outcome.blocks_discarded += params.blocks_discarded;
            outcome.blocks_skipped += params.blocks_skipped;
            outcome.blocks_partial += params.blocks_partial;
            result.map_err(Error::from_errno)
        };
        let fits = |range: &Range| range.fits() && fit(*range) == Ok(*range);
        if ranges.iter().all(fits) {
            return ranges
                .chunks(uapi::DISCARD_MAX_RANGES)
                .try_for_each(|some| one_call(some, outcome));
        }
        in_groups(ranges, fit, outcome, |group, outcome| {
            let before = outcome.done;
            let result = one_call(group, outcome);
            let done = outcome.done - before;
            outcome.done = before;
            (done, result)
        })
    }

    pub(super) fn batch_native(
        &self,
        fd: i32,
        ranges: &[Range],
        fit: Fit,
        flags: u32,
        outcome: &mut Outcome,
    ) -> Result<()> {
        for range in ranges {
            let range = fit(*range)?;
            if range.length != 0 {
                self.native_discard(fd, range, flags)?;
            }
            outcome.done += 1;
        }
        Ok(())
    }

    /// Discards whole pages by NVIDIA's call, of that driver or of ours where it leaves the discard
    /// to it. The call notes a discard before it unmaps (580.142 to 595.45.04,
    /// `va_block_discard_locked`). Two things leave the note and the mapping, a lazy discard, of which
    /// a write is lost:
    /// - The unmap fails, for want of memory to split a mapping of 2 MiB. A migration ends that, to the
    ///   host, since nobody has said which processor comes next.
    /// - A page of the block was read-duplicated. The call ends that, unmaps only such pages, and
    ///   succeeds. So an eager discard is two calls: the second unmaps what is marked and mapped of
    ///   `range`. What else of the block an earlier discard has marked, the first may have mapped, and
    ///   it stays so. Only a driver can mend that, as ours does (its mend `kept_mapped`).
    fn native_discard(&self, fd: i32, range: Range, flags: u32) -> Result<()> {
        let eager = flags == uapi::DISCARD_EAGER;
        for call in 0..1 + u32::from(eager) {
            let status = self.native_discard_once(fd, range, flags);
            let done = status.and_then(Error::check_discard);
            let begun = call > 0 || status.is_ok_and(|status| !Error::is_before_discard(status));
            if done.is_err() && begun {
                if eager {
                    // Where that fails too, the error asks the caller for it.
                    let _ = self.migrate(fd, range, Place::Host);
                }
                return done.map_err(behind_a_discard);
            }
            done?;
        }
        Ok(())
    }

    fn native_discard_once(&self, fd: i32, range: Range, flags: u32) -> Result<u32> {
        let mut params = NativeDiscard {
            base: range.base,
            length: range.length,
            flags: flags.into(),
            status: 0,
        };
        self.native(fd, uapi::UVM_DISCARD, &mut params, |p| p.status)
    }

    /// The status of one of NVIDIA's calls, which is made again while the driver is busy,
    /// for as long as [`Sys::patience`].
    fn native<T: Copy>(
        &self,
        fd: i32,
        nr: u32,
        params: &mut T,
        status: impl Fn(&T) -> u32,
    ) -> Result<u32> {
        let mut since = None;
        loop {
            // An unknown number and a closed file are the same to the caller.
            self.roomy_call(fd, nr, params)
                .map_err(|errno| match errno {
                    libc::EINVAL | libc::ENOSYS => Error::NotSupported,
                    errno => Error::from_errno(errno),
                })?;
            let status = status(params);
            let since = since.get_or_insert_with(Instant::now);
            if status != uapi::NV_ERR_BUSY_RETRY || since.elapsed() >= self.sys.patience() {
                return Ok(status);
            }
            std::thread::yield_now();
        }
    }

    /// A call whose structure has more room than we know of.
    pub(super) fn roomy_call<T: Copy>(
        &self,
        fd: i32,
        nr: u32,
        params: &mut T,
    ) -> core::result::Result<(), i32> {
        let mut roomy = Roomy {
            params: *params,
            room: [0; ROOM],
        };
        let done = self.call(fd, nr, &mut roomy);
        *params = roomy.params;
        done
    }

    pub(super) fn call<T>(
        &self,
        fd: i32,
        nr: u32,
        params: &mut T,
    ) -> core::result::Result<(), i32> {
        // SAFETY: callers pass the structure of `nr`. What it points to is an array that
        // outlives the call: of ranges or requests, which are only read, or for completions.
        unsafe { self.sys.ioctl(fd, nr, (params as *mut T).cast::<c_void>()) }
    }
}

/// The structure for a batch of ranges, which are to outlive it.
pub(super) fn batch(ranges: &[Range], flags: u32) -> DiscardBatch {
    DiscardBatch {
        size: size_of::<DiscardBatch>() as u32,
        flags,
        ranges: ranges.as_ptr() as u64,
        range_count: ranges.len() as u32,
        range_size: size_of::<Range>() as u32,
        ..DiscardBatch::default()
    }
}
