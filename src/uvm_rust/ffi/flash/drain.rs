// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Detaching, as `policy/flash/drain.rs` sees it.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::block::drop_idle;
use super::chosen::{as_c, Chosen};
use super::tier::{detaching, unseen};
use super::{bindings, flash};
use crate::ffi::status::Status;
use crate::policy::flash::drain::{self, Fetched, Left, Machine, Stays};
use crate::policy::mask::PageMask;
use bindings::{uvm_rust_flash_table, uvm_rust_tier, uvm_seam_flash_dev};

crate::ffi::check_exports!(uvm_rust_flash_drain);

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
        let Some(pages) = pages else {
            return Fetched::All;
        };
        let Some((block, context)) = self.at.opened() else {
            return Fetched::Failed;
        };
        let mut again = false;
        // SAFETY: the block and its VA space are locked, and the context is open; the mask is read, and
        // `again` written once.
        let status = unsafe {
            bindings::uvm_seam_flash_fetch_back(block, context, &as_c(&pages), &mut again)
        };
        match Status::check(status) {
            Ok(()) if again => Fetched::Again,
            Ok(()) => Fetched::All,
            Err(_) => Fetched::Failed,
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

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_drain(
    tier: *mut uvm_rust_tier,
    dev: *mut uvm_seam_flash_dev,
    table: *mut uvm_rust_flash_table,
) -> u32 {
    let mut draining = Draining {
        tier,
        dev,
        table,
        // SAFETY: I-own.
        number: unsafe { detaching(tier) },
        at: Chosen::none(),
    };
    match drain::drain(&mut draining) {
        Ok(()) => bindings::UVM_RUST_FLASH_DRAINED,
        Err(Stays::Interrupted) => bindings::UVM_RUST_FLASH_INTERRUPTED,
        Err(Stays::Busy) => bindings::UVM_RUST_FLASH_STAYS,
    }
}
