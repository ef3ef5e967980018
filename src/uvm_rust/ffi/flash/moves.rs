// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Moving a range by call, as `policy/flash/moves.rs` sees it.

use super::attach::Reading;
use super::chosen::Chosen;
use super::spill::move_out;
use super::tier::{count_of_device, current, has_device, may_write, wrote, OwnerHandle};
use super::{bindings, read_parameter};
use crate::driver::flash::Counter;
use crate::ffi::seam::VaSpace;
use crate::policy::flash::drain::Fetched;
use crate::policy::flash::moves::{run, Failed, Machine};
use crate::policy::mask::PageMask;
use bindings::{mm_struct, uvm_seam_flash_io, uvm_seam_space, uvm_va_block_struct};
use core::ptr::null_mut;

/// Milliseconds between two looks of who waits: the rate may change, and the process be killed.
const NAP_MS: u32 = 10;

/// One call.
///
/// Invariant: the VA space is there, and so is its tenant, and the tier; pointers of what was taken are null
/// where it was not.
struct Moving {
    space: *mut uvm_seam_space,
    owner: OwnerHandle,
    io: *mut uvm_seam_flash_io,
    device: Option<Reading>,
    mm: *mut mm_struct,
    at: Chosen,
    block: *mut uvm_va_block_struct,
    pages: PageMask,
    /// Bytes that were given to the device and are not paid for.
    wrote: u64,
}

fn rate() -> u32 {
    read_parameter(&raw const bindings::uvm_rust_flash_move_mib)
}

// In all blocks below the pointers are valid by the type's invariant, and locks are held as the policy
// documents it (V-order).
impl Machine for Moving {
    fn take_turn(&mut self) -> bool {
        // SAFETY: see above; no lock is held.
        unsafe { bindings::uvm_seam_flash_take_turn(self.owner.seam()) }
    }

    fn end_turn(&mut self) {
        // SAFETY: the turn is ours.
        unsafe { bindings::uvm_seam_flash_end_turn(self.owner.seam()) };
    }

    fn has_device(&mut self) -> bool {
        // SAFETY: see above.
        unsafe { has_device(current()) }
    }

    fn may_write(&mut self) -> bool {
        // SAFETY: see above.
        rate() == 0 || unsafe { may_write(self.owner) }
    }

    fn is_awaited(&mut self) -> bool {
        // SAFETY: no preconditions.
        unsafe { bindings::uvm_seam_flash_suspends() }
    }

    fn count_throttled(&mut self) {
        // Without the lock of attaching: who detaches may take long.
        // SAFETY: see above.
        unsafe { count_of_device(current(), Counter::Throttled, 1) };
    }

    fn nap(&mut self) -> bool {
        // SAFETY: no spinlock is held.
        !unsafe { bindings::uvm_seam_flash_nap(NAP_MS) }
    }

    fn open(&mut self) -> bool {
        // SAFETY: no preconditions.
        self.io = unsafe { bindings::uvm_rust_flash_io_alloc(true, true) };
        !self.io.is_null()
    }

    fn close(&mut self) {
        let io = core::mem::replace(&mut self.io, null_mut());
        // SAFETY: null, or `open` got it, and it is not used any more.
        unsafe { bindings::uvm_rust_flash_io_free(io) };
    }

    fn keep_device(&mut self) -> bool {
        let lock = Reading::lock();
        self.device = (!lock.attached().is_null()).then_some(lock);
        self.device.is_some()
    }

    fn leave_device(&mut self) {
        self.device = None;
    }

    fn enter_space(&mut self) {
        // SAFETY: see above.
        self.mm = unsafe { bindings::uvm_seam_flash_enter_space(self.space) };
    }

    fn leave_space(&mut self) {
        let mm = core::mem::replace(&mut self.mm, null_mut());
        // SAFETY: `enter_space` took the lock, and gave the process.
        unsafe { bindings::uvm_seam_flash_exit_space(self.space, mm) };
    }

    fn is_managed(&mut self, base: u64, length: u64) -> bool {
        // SAFETY: the VA space is locked.
        unsafe { bindings::uvm_seam_flash_is_managed(self.space, self.mm, base, length) }
    }

    fn prepare(&mut self) -> bool {
        // SAFETY: the process is kept until `leave_space`, which comes after `put`.
        unsafe { self.at.open_for(self.mm) }
    }

    fn put(&mut self) {
        self.at.close();
    }

    fn choose(&mut self, base: u64, end: u64) -> Option<u64> {
        let (mut start, mut pages) = (base, bindings::uvm_rust_mask::default());
        // SAFETY: the VA space is locked, and all from `base` to `end` is managed; `start` and `pages` are
        // ours for the call.
        let block =
            unsafe { bindings::uvm_seam_flash_next_block(self.space, &mut start, end, &mut pages) };
        self.block = block;
        self.pages = PageMask::from_words(pages.words);
        // SAFETY: the VA space's lock keeps the block, until another is chosen or all is let go.
        unsafe { self.at.choose(block) }.then_some(start)
    }

    fn write(&mut self) {
        let Some(lock) = &self.device else {
            return;
        };
        // SAFETY: the lock keeps the device, and the VA space's the block, which is not locked; the buffer is
        // ours.
        let bytes = unsafe { move_out(lock.attached(), self.io, self.block, &self.pages) };
        self.wrote = self.wrote.saturating_add(bytes);
    }

    fn lock(&mut self) {
        self.at.lock();
    }

    fn unlock(&mut self) {
        self.at.unlock();
    }

    fn fetch(&mut self) -> Fetched {
        self.at.fetch(&self.pages)
    }

    fn dying(&mut self) -> bool {
        // SAFETY: no preconditions.
        unsafe { bindings::uvm_seam_dying() }
    }

    fn rest(&mut self) {
        // SAFETY: no spinlock is held.
        unsafe { bindings::uvm_seam_rest() };
    }

    fn pay(&mut self) {
        // SAFETY: see above.
        unsafe { wrote(self.owner, core::mem::take(&mut self.wrote), rate()) };
    }
}

/// Moves a range between host memory and the device. Sleeps, and takes the VA space's lock itself. There is a
/// tier.
pub(crate) fn move_range(
    space: &VaSpace<'_>,
    base: u64,
    length: u64,
    to_host: bool,
) -> Result<(), Failed> {
    let space = space.as_ptr();
    // SAFETY: the VA space is there, and has a tenant, as there is a tier.
    let owner = unsafe { OwnerHandle::new(bindings::uvm_seam_flash_owner_of(space)) };
    let mut moving = Moving {
        space,
        owner,
        io: null_mut(),
        device: None,
        mm: null_mut(),
        at: Chosen::none(),
        block: null_mut(),
        pages: PageMask::EMPTY,
        wrote: 0,
    };
    run(&mut moving, base, length, to_host)
}
