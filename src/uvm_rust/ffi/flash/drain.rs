// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Detaching, as `policy/flash/drain.rs` sees it.

use super::block::drop_idle;
use super::chosen::Chosen;
use super::tier::{current, detaching, unseen};
use super::{bindings, flash, table_of};
use crate::policy::flash::drain::{self, Fetched, Left, Machine, Stays};
use crate::policy::mask::PageMask;
use bindings::{uvm_rust_flash_table, uvm_rust_tier, uvm_seam_flash_dev};

/// One detaching. Invariant: the tier, the device and its table are there; whoever called keeps them.
struct Draining {
    tier: *mut uvm_rust_tier,
    dev: *mut uvm_seam_flash_dev,
    table: *mut uvm_rust_flash_table,
    number: u32,
    at: Chosen,
}

// In all blocks below the pointers are valid by the type's invariant.
impl Machine for Draining {
    fn choose(&mut self) -> bool {
        // SAFETY: see above; the reference is ours until `release`.
        unsafe { self.at.choose(unseen(self.tier, self.number)) }
    }

    fn release(&mut self) {
        // SAFETY: `choose` took the reference.
        unsafe { self.at.release() };
    }

    fn lock(&mut self) {
        self.at.lock();
    }

    fn unlock(&mut self) {
        self.at.unlock();
    }

    fn try_space(&mut self) -> bool {
        self.at.try_space()
    }

    fn leave_space(&mut self) {
        self.at.leave_space();
    }

    fn is_on_device(&mut self) -> bool {
        // SAFETY: the reference is not used.
        unsafe { self.at.state(self.dev) }.is_some()
    }

    fn open(&mut self) -> bool {
        self.at.open()
    }

    fn close(&mut self) {
        self.at.close();
    }

    fn fetch(&mut self) -> Fetched {
        // SAFETY: the reference ends here.
        let pages = unsafe { self.at.state(self.dev) }.map(|state| state.pages.on_flash());
        match pages {
            Some(pages) => self.at.fetch(&pages),
            None => Fetched::All,
        }
    }

    fn give_up(&mut self) {
        // SAFETY: the reference ends with this function.
        if let Some(state) = unsafe { self.at.state(self.dev) } {
            super::block::give_up(state, &PageMask::FULL);
        }
    }

    fn drop_idle(&mut self) {
        // SAFETY: null, or it is locked.
        unsafe { drop_idle(self.at.known()) };
    }

    fn dying(&mut self) -> bool {
        // SAFETY: no preconditions.
        unsafe { bindings::uvm_seam_dying() }
    }

    fn nap(&mut self) {
        // SAFETY: no spinlock is held.
        unsafe { bindings::uvm_seam_nap() };
    }

    fn rest(&mut self) {
        // SAFETY: no spinlock is held.
        unsafe { bindings::uvm_seam_rest() };
    }

    fn left(&mut self) -> Left {
        // SAFETY: see above.
        let progress = unsafe { bindings::uvm_seam_flash_progress(self.dev) };
        // SAFETY: see above.
        let table = unsafe { flash(self.table) }.table.lock();
        Left {
            pages: table.usage().pages,
            is_busy: table.is_busy(),
            progress,
        }
    }

    fn wait(&mut self, progress: u32) {
        // SAFETY: see above; no lock is held.
        unsafe { bindings::uvm_seam_flash_wait(self.dev, progress) };
    }
}

/// Brings all that is on the device to host memory, which the tier has not any more. If something stays, the
/// device is to be kept, and this called again. Sleeps, with no lock but that of attaching.
///
/// # Safety
///
/// The tier and the device are there meanwhile.
pub(super) unsafe fn drain(dev: *mut uvm_seam_flash_dev) -> Result<(), Stays> {
    let tier = current();
    // SAFETY: by this function's contract.
    let (table, number) = unsafe { (table_of(dev), detaching(tier)) };
    drain::drain(&mut Draining {
        tier,
        dev,
        table,
        number,
        at: Chosen::none(),
    })
}
