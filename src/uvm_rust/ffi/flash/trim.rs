// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Trimming the device: the machine of `policy/flash/trim.rs`.

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

/// A run that trims a device. Invariant: there is a tier, and the device's file is open.
struct Trimming<'a> {
    dev: &'a Arc<Dev>,
    /// Whether the device is being let go, so that nobody else uses it.
    is_last: bool,
}

/// Whether the thread that lets a device go is being killed, or the system is to sleep.
fn is_hurried() -> bool {
    seam::suspends() || time::rest()
}

impl Machine for Trimming<'_> {
    fn is_wanted(&mut self) -> bool {
        // SAFETY: the address is that of a static; a byte is read at once.
        let is_asked = unsafe { (&raw const bindings::uvm_rust_flash_trim).read_volatile() };
        is_asked && self.dev.forgets()
    }

    fn is_idle(&mut self) -> bool {
        // A suspend and a detach wait for this.
        // SAFETY: by the type's invariant.
        !seam::suspends()
            && unsafe { is_attached(current(), self.dev) && !goes_on_for(current(), self.dev) }
    }

    fn is_hurried(&mut self) -> bool {
        is_hurried()
    }

    fn tell(&mut self) {
        self.dev.tell();
    }

    fn workers(&mut self) -> u32 {
        // SAFETY: by the type's invariant.
        unsafe { workers(current()) }
    }

    fn now_us(&mut self) -> u64 {
        time::now_us()
    }

    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T {
        f(&mut self.dev.flash().table.lock())
    }

    fn discard(&mut self, trim: &Trim) -> bool {
        let (dev, is_last) = (self.dev, self.is_last);
        // A detach and a suspend wait for this.
        let is_over = || match is_last {
            true => is_hurried(),
            // SAFETY: by the type's invariant.
            false => seam::suspends() || !unsafe { is_attached(current(), dev) },
        };
        let Some(turn) = Dev::begin_unless(dev, Cause::Trim, is_over) else {
            return false;
        };
        // SAFETY: no lock is held that I/O may need, and by the type's invariant the device is open; nobody else has
        // these slots (T-out).
        let result = unsafe { super::io::discard(self.dev.seam(), trim) };
        drop(turn);
        if result == 0 {
            return true;
        }
        self.dev.forgets_nothing();
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
        self.dev.counts(Counter::Trimmed, bytes);
    }
}

/// Trims some slots of an attached device. Returns after how many milliseconds to look again, if at all.
///
/// # Safety
///
/// There is a tier, and the device's file stays open during the call. The caller holds no lock.
pub(super) unsafe fn turn(dev: &Arc<Dev>) -> Option<u64> {
    trim::turn(&mut Trimming {
        dev,
        is_last: false,
    })
}

/// Trims a device that is let go, and whose data nobody needs.
///
/// # Safety
///
/// As [`turn`], but for the lock of attaching.
pub(super) unsafe fn last(dev: &Arc<Dev>) {
    trim::last(&mut Trimming { dev, is_last: true });
}
