// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Detaching: the machine of `policy/flash/drain.rs`.

use super::block::drop_idle;
use super::chosen::Chosen;
use super::dev::Dev;
use super::fetch::WAIT_MS;
use super::tier::{current, detaching, unseen};
use crate::driver::flash::Tier;
use crate::ffi::{seam, time};
use crate::policy::flash::drain::{self, Fetched, Left, Machine, Stays};
use crate::policy::mask::PageMask;
use kernel::sync::Arc;

/// One detaching. Invariant: the tier exists; the caller keeps it.
struct Draining {
    tier: *const Tier,
    dev: Arc<Dev>,
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
        unsafe { self.at.state(&self.dev) }.is_some()
    }

    fn open(&mut self) -> bool {
        self.at.open()
    }

    fn close(&mut self) {
        self.at.close();
    }

    fn read_again(&mut self) {
        // SAFETY: the reference ends with this function.
        if let Some(state) = unsafe { self.at.state(&self.dev) } {
            state.pages.read_again();
        }
    }

    fn fetch(&mut self) -> Fetched {
        // SAFETY: the reference ends here.
        let pages = unsafe { self.at.state(&self.dev) }.map(|state| state.pages.on_flash());
        match pages {
            Some(pages) => self.at.fetch(&pages),
            None => Fetched::All,
        }
    }

    fn give_up(&mut self) {
        // SAFETY: the reference ends with this function.
        if let Some(state) = unsafe { self.at.state(&self.dev) } {
            super::block::give_up(state, &PageMask::FULL);
        }
    }

    fn drop_idle(&mut self) {
        // SAFETY: null, or it is locked.
        unsafe { drop_idle(self.at.known()) };
    }

    fn dying(&mut self) -> bool {
        // A suspend waits for this call, and CPU faults wait for the suspend.
        time::rest() || seam::suspends()
    }

    fn nap(&mut self) {
        time::nap();
    }

    fn rest(&mut self) {
        time::rest();
    }

    fn left(&mut self) -> Left {
        let progress = self.dev.progress();
        let table = self.dev.flash().table.lock();
        Left {
            pages: table.usage().pages,
            is_busy: table.is_busy(),
            progress,
        }
    }

    fn wait(&mut self, progress: u32) {
        self.dev.wait(progress, WAIT_MS);
    }
}

/// Brings all data on the device, which the tier does not have any more, to host memory. If this fails, some data
/// stay there: the caller keeps the device, and may call again. Sleeps, with no lock but the attach lock.
///
/// # Safety
///
/// The tier exists throughout the call.
pub(super) unsafe fn drain(dev: Arc<Dev>) -> Result<(), Stays> {
    let tier = current();
    // SAFETY: by this function's contract.
    let number = unsafe { detaching(tier) };
    drain::drain(&mut Draining {
        tier,
        dev,
        number,
        at: Chosen::none(),
    })
}
