// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Moving a range by call, as `policy/flash/moves.rs` sees it.

use super::attach::Reading;
use super::block::span;
use super::chosen::Chosen;
use super::io::Io;
use super::room::owner_of;
use super::spill::move_out;
use super::tier::{count_of_device, current, has_device, may_write, wrote, OwnerHandle};
use super::{bindings, read_parameter};
use crate::driver::flash::Counter;
use crate::ffi::seam::VaSpace;
use crate::policy::discard::BLOCK_BYTES;
use crate::policy::flash::drain::Fetched;
use crate::policy::flash::moves::{run, Failed, Machine};
use crate::policy::flash::turn::Ticket;
use crate::policy::mask::{PageMask, Region};
use bindings::{mm_struct, uvm_seam_space, uvm_va_block_struct};
use core::ptr::null_mut;
use kernel::page::PAGE_SIZE;

/// Milliseconds between two looks of who waits: the rate may change, and the process be killed.
const NAP_MS: u32 = 10;

/// MiB a second that a tenant may write by call.
fn rate() -> u32 {
    read_parameter(&raw const bindings::uvm_rust_flash_move_mib)
}

/// One call of `UVM_RUST_FLASH_MOVE`.
///
/// Invariant: the VA space is there, and so is its tenant, and the tier; pointers of what was taken are null
/// where it was not.
struct Moving {
    space: *mut uvm_seam_space,
    owner: OwnerHandle,
    /// Of the turn that was taken.
    ticket: Option<Ticket>,
    io: Option<Io>,
    device: Option<Reading>,
    mm: *mut mm_struct,
    at: Chosen,
    block: *mut uvm_va_block_struct,
    pages: PageMask,
    /// Bytes that were given to the device and are not paid for.
    wrote: u64,
}

/// The first va_block with pages from `start` to `end`, and these.
///
/// # Safety
///
/// The VA space is locked, and all of that is managed memory.
unsafe fn next_block(
    space: *mut uvm_seam_space,
    start: u64,
    end: u64,
) -> Option<(*mut uvm_va_block_struct, PageMask)> {
    let (mut range, mut at) = (bindings::uvm_rust_range::default(), start);
    while at <= end {
        // SAFETY: by this function's contract; `range` is ours for the call.
        let of = unsafe { bindings::uvm_seam_range(space, at, end, &mut range) };
        if of.is_null() {
            return None;
        }
        let last = end.min(range.last);
        at = at.max(range.first);
        while at <= last {
            // SAFETY: the range is there, and has that address.
            let block = unsafe { bindings::uvm_seam_range_block(of, at) };
            if !block.is_null() {
                let of = span(block);
                let page = |address: u64| ((address - of.first) / PAGE_SIZE as u64) as u16;
                let pages = Region::new(page(at), page(last.min(of.last)) + 1);
                return Some((block, pages.into()));
            }
            at = (at - at % BLOCK_BYTES).saturating_add(BLOCK_BYTES);
        }
        at = range.last.saturating_add(1);
    }
    None
}

// In all blocks below the pointers are valid by the type's invariant, and locks are held as the policy
// documents it (V-order).
impl Machine for Moving {
    fn take_turn(&mut self) -> bool {
        // SAFETY: see above.
        self.ticket = unsafe { self.owner.get() }.take_turn();
        self.ticket.is_some()
    }

    fn end_turn(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // SAFETY: see above.
            unsafe { self.owner.get() }.end_turn(ticket);
        }
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
        unsafe { bindings::msleep_interruptible(NAP_MS) == 0 }
    }

    fn open(&mut self) -> bool {
        self.io = Io::new(true, true);
        self.io.is_some()
    }

    fn close(&mut self) {
        self.io = None;
    }

    fn keep_device(&mut self) -> bool {
        let lock = Reading::lock();
        self.device = lock.attached().is_some().then_some(lock);
        self.device.is_some()
    }

    fn leave_device(&mut self) {
        self.device = None;
    }

    fn enter_space(&mut self) {
        // SAFETY: see above.
        self.mm = unsafe { bindings::uvm_seam_space_lock(self.space, true) };
    }

    fn leave_space(&mut self) {
        let mm = core::mem::replace(&mut self.mm, null_mut());
        // SAFETY: `enter_space` took the lock, and gave the process.
        unsafe { bindings::uvm_seam_space_unlock(self.space, mm) };
    }

    fn is_managed(&mut self, base: u64, length: u64) -> bool {
        // SAFETY: the VA space is locked.
        let kind = unsafe { bindings::uvm_seam_range_kind(self.space, self.mm, base, length) };
        kind == bindings::UVM_RUST_KIND_MANAGED
    }

    fn prepare(&mut self) -> bool {
        // SAFETY: the process is kept until `leave_space`, which comes after `put`.
        unsafe { self.at.open_for(self.mm) }
    }

    fn put(&mut self) {
        self.at.close();
    }

    fn choose(&mut self, base: u64, end: u64) -> Option<u64> {
        // SAFETY: the VA space is locked, and all from `base` to `end` is managed.
        let next = unsafe { next_block(self.space, base, end) };
        let (block, pages) = next.unwrap_or((null_mut(), PageMask::EMPTY));
        (self.block, self.pages) = (block, pages);
        // SAFETY: the VA space's lock keeps the block, until another is chosen or all is let go.
        unsafe { self.at.choose(block) }.then(|| span(block).last + 1)
    }

    fn write(&mut self) {
        let dev = self.device.as_ref().and_then(Reading::attached);
        let (Some(dev), Some(io)) = (dev, &mut self.io) else {
            return;
        };
        // SAFETY: the lock keeps the device, and the VA space's the block, which is not locked; the buffer has
        // pages of its own.
        let bytes = unsafe { move_out(dev, io, self.block, &self.pages) };
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
        // SAFETY: no spinlock is held.
        unsafe { bindings::uvm_seam_rest() }
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
    let Some(owner) = (unsafe { owner_of(space) }) else {
        return Err(Failed::NoDevice);
    };
    let mut moving = Moving {
        space,
        owner,
        ticket: None,
        io: None,
        device: None,
        mm: null_mut(),
        at: Chosen::none(),
        block: null_mut(),
        pages: PageMask::EMPTY,
        wrote: 0,
    };
    run(&mut moving, base, length, to_host)
}
