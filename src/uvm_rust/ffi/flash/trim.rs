// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Telling the device what it need not keep, as `policy/flash/trim.rs` sees it.

use super::bindings;
use super::dev::Dev;
use super::tier::{current, goes_on_for, is_attached, workers};
use crate::driver::flash::Counter;
use crate::ffi::{seam, time};
use crate::policy::flash::cause::Cause;
use crate::policy::flash::table::Trim;
use crate::policy::flash::trim::{self, Machine};
use crate::policy::flash::Table;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Somebody who trims a device. Invariant: there is a tier, and the device's file is open.
struct Trimming<'a>(&'a Arc<Dev>);

impl Machine for Trimming<'_> {
    fn is_wanted(&mut self) -> bool {
        // SAFETY: the address is that of a static; a byte is read at once.
        let is_asked = unsafe { (&raw const bindings::uvm_rust_flash_trim).read_volatile() };
        is_asked && self.0.forgets()
    }

    fn is_idle(&mut self) -> bool {
        // Who suspends, or detaches, waits for this.
        // SAFETY: by the type's invariant.
        !seam::suspends()
            && unsafe { is_attached(current(), self.0) && !goes_on_for(current(), self.0) }
    }

    fn is_hurried(&mut self) -> bool {
        seam::suspends() || time::rest()
    }

    fn tell(&mut self) {
        self.0.tell();
    }

    fn workers(&mut self) -> u32 {
        // SAFETY: by the type's invariant.
        unsafe { workers(current()) }
    }

    fn now_us(&mut self) -> u64 {
        time::now_us()
    }

    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T {
        f(&mut self.0.flash().table.lock())
    }

    fn discard(&mut self, trim: &Trim) -> bool {
        let turn = Dev::begin_for_others(self.0, || Cause::Trim);
        // SAFETY: no lock is held that I/O may need, and by the type's invariant the device is open; nobody else has
        // these slots (T-out).
        let result = unsafe { super::io::discard(self.0.seam(), trim) };
        drop(turn);
        if result == 0 {
            return true;
        }
        self.0.forgets_nothing();
        if result == -crate::driver::ioctl::EOPNOTSUPP {
            pr_info!("flash: the device cannot be trimmed\n");
        } else {
            pr_warn!(
                "flash: trimming failed, error {result}; the device is not trimmed any more\n"
            );
        }
        false
    }

    fn count(&mut self, bytes: u64) {
        self.0.counts(Counter::Trimmed, bytes);
    }
}

/// Trims some of an attached device. Returns in how many milliseconds somebody is to look again, if so.
///
/// # Safety
///
/// There is a tier, and the device's file is open meanwhile; no lock is held.
pub(super) unsafe fn turn(dev: &Arc<Dev>) -> Option<u64> {
    trim::turn(&mut Trimming(dev))
}

/// Trims a device that is let go, and of which nobody needs anything.
///
/// # Safety
///
/// As [`turn`], but for the lock of attaching.
pub(super) unsafe fn last(dev: &Arc<Dev>) {
    trim::last(&mut Trimming(dev));
}
