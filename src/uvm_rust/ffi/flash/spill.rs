// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A spill of va_blocks, as `policy/flash/spill.rs` sees it.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::block::{handle, known, used};
use super::chosen::{as_c, Chosen};
use super::tier::{
    current, ended, goes_on_for, hope_for_all, oldest_copies, victim, workers, BlockHandle, Live,
    State,
};
use super::{bindings, flash, is_sound, piece_of, read_parameter, table_of};
use crate::driver::flash::Counter;
use crate::ffi::discard::read;
use crate::ffi::status::Status;
use crate::policy::flash::pressure::Tried;
use crate::policy::flash::spill::{self, Copies, Count, Facts, Machine, Unmapped};
use crate::policy::flash::{pace, BlockPages, Move, Place, Spill, Table};
use crate::policy::mask::PageMask;
use bindings::{
    uvm_rust_flash_table, uvm_rust_mask, uvm_rust_tier, uvm_seam_flash_dev, uvm_seam_flash_io,
    uvm_va_block_struct,
};
use core::ffi::c_int;
use kernel::page::PAGE_SIZE;

crate::ffi::check_exports!(uvm_rust_flash_work,);

/// The device that is spilled to, for the length of a call.
///
/// Invariant: the tier and the device are there; whoever called keeps them.
#[derive(Clone, Copy)]
pub(super) struct To {
    pub(super) tier: *mut uvm_rust_tier,
    pub(super) dev: *mut uvm_seam_flash_dev,
}

impl To {
    /// As [`Copies::give_up_oldest`]; `tenant`: a key, or 0 for anybody.
    ///
    /// # Safety
    ///
    /// No va_block is locked.
    unsafe fn give_up_oldest(self, tenant: u64) -> Option<u32> {
        // SAFETY: by the type's invariant.
        let block = unsafe { oldest_copies(self.tier, tenant) };
        if block.is_null() {
            return None;
        }
        // SAFETY: it came with a reference, which is given back last; it is locked, and what is known
        // of it is there meanwhile.
        unsafe {
            bindings::uvm_seam_va_block_lock(block);
            let state = used(bindings::uvm_seam_va_block_flash(block));
            let state = state.filter(|state| state.is_on(self.dev));
            let pages = state.map_or(0, |state| super::block::give_up(state, &PageMask::FULL));
            bindings::uvm_seam_va_block_unlock(block);
            bindings::uvm_seam_va_block_put(block);
            Some(pages)
        }
    }
}

impl Copies for To {
    fn give_up_oldest(&mut self, _of_own: bool) -> Option<u32> {
        // SAFETY: it is only made where no va_block is locked.
        unsafe { To::give_up_oldest(*self, 0) }
    }
}

/// A worker, or a call.
pub(super) struct Spilling {
    to: To,
    /// Invariant: the device's, which keeps it.
    table: *mut uvm_rust_flash_table,
    /// Invariant: a buffer that is used by nobody else.
    io: *mut uvm_seam_flash_io,
    /// Bytes that the device was given to write.
    wrote: u64,
    at: Chosen,
}

impl Spilling {
    /// # Safety
    ///
    /// The tier and the device are there, and the buffer is nobody else's, as long as the result.
    unsafe fn new(dev: *mut uvm_seam_flash_dev, io: *mut uvm_seam_flash_io) -> Self {
        let to = To {
            tier: current(),
            dev,
        };
        Self {
            to,
            // SAFETY: by this function's contract.
            table: unsafe { table_of(dev) },
            io,
            wrote: 0,
            at: Chosen::none(),
        }
    }

    fn counts(&self, counter: Counter, n: u64) -> u64 {
        // SAFETY: by the type's invariant.
        unsafe { flash(self.table) }.counters.add(counter, n)
    }

    /// The device was given so many pages to write. Returns how many bytes that is.
    fn writes(&mut self, pages: u16) -> u64 {
        let bytes = u64::from(pages) * PAGE_SIZE as u64;
        self.wrote = self.wrote.saturating_add(bytes);
        bytes
    }

    /// Tells the tier of the chosen va_block, if anything is known of it.
    fn with_known(&mut self, what: impl FnOnce(&mut State, &mut Live, BlockHandle)) {
        let block = self.at.known();
        if block.is_null() {
            return;
        }
        // SAFETY: it is known; its owner outlives it (I-owner).
        unsafe {
            let block = known(block);
            block
                .owner()
                .with(|tier, live| what(tier, live, handle(block)));
        }
    }
}

impl Copies for Spilling {
    fn give_up_oldest(&mut self, of_own: bool) -> Option<u32> {
        let mut tenant = 0;
        if of_own {
            self.lock();
            let block = self.at.known();
            if !block.is_null() {
                // SAFETY: it is locked, and known.
                tenant = unsafe { known(block) }.owner().key();
            }
            self.unlock();
            if tenant == 0 {
                return None;
            }
        }
        // SAFETY: the policy calls this with no block locked.
        unsafe { self.to.give_up_oldest(tenant) }
    }
}

// In all blocks below the pointers of `self.to` and `self.io` are valid by the types' invariants, and a
// block is chosen where the policy asks about one; what else a call needs is in each comment.
impl Machine for Spilling {
    fn goes_on(&mut self) -> bool {
        // SAFETY: no preconditions.
        let status = unsafe { bindings::uvm_seam_global_status() };
        // SAFETY: see above.
        status == 0 && unsafe { goes_on_for(self.to.tier, self.to.dev) }
    }

    fn choose(&mut self) -> bool {
        // SAFETY: see above; the reference is ours until `release`.
        unsafe { self.at.choose(victim(self.to.tier)) }
    }

    fn release(&mut self) {
        // SAFETY: `choose` took the reference.
        unsafe { self.at.release() };
    }

    fn enter(&mut self) -> bool {
        // SAFETY: no lock is held.
        unsafe { bindings::uvm_seam_flash_enter() }
    }

    fn leave(&mut self) {
        // SAFETY: entered.
        unsafe { bindings::uvm_seam_flash_leave() };
    }

    fn ended(&mut self, tried: Tried) -> bool {
        // SAFETY: see above.
        let stops = unsafe { ended(self.to.tier, self.to.dev, tried) };
        if stops {
            self.tell(false);
        }
        stops
    }

    fn hope_for_all(&mut self) {
        // SAFETY: see above.
        unsafe { hope_for_all(self.to.tier) };
    }

    fn now_us(&mut self) -> u64 {
        // SAFETY: no preconditions.
        unsafe { bindings::uvm_seam_flash_now_us() }
    }

    fn rest(&mut self, began: Option<u64>) {
        let now = self.now_us();
        let took = now.saturating_sub(began.unwrap_or(now));
        let us = pace::rest_us(
            took,
            read_parameter(&raw const bindings::uvm_rust_flash_share),
        );
        if us > 0 {
            // SAFETY: no lock is held.
            unsafe { bindings::uvm_seam_flash_sleep(us) };
            // What it was, not what it was to be.
            let slept = self.now_us().saturating_sub(now);
            self.counts(Counter::RestedUs, slept);
        }
        // SAFETY: no spinlock is held.
        unsafe { bindings::uvm_seam_rest() };
    }

    fn workers(&mut self) -> u32 {
        // SAFETY: see above.
        unsafe { workers(self.to.tier) }
    }

    fn open(&mut self) -> bool {
        self.at.open()
    }

    fn close(&mut self) {
        self.at.close();
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

    fn is_known(&mut self) -> bool {
        self.at.alive().is_some()
    }

    fn may_spill(&mut self) -> bool {
        // SAFETY: the block is locked and alive, and its VA space locked by us or by the caller.
        let may_spill = |block| unsafe { bindings::uvm_seam_flash_may_spill(block) };
        self.at.alive().is_some_and(may_spill)
    }

    fn facts(&mut self) -> Facts {
        let mut facts = bindings::uvm_seam_flash_facts::default();
        if let Some(block) = self.at.alive() {
            // SAFETY: the block is locked and alive.
            unsafe { bindings::uvm_seam_flash_look(block, &mut facts) };
        }
        Facts {
            only_host: PageMask::from_words(facts.only_host.words),
            mapped: PageMask::from_words(facts.mapped.words),
            has_unused: facts.has_unused,
        }
    }

    fn not_held(&mut self, pages: &PageMask) -> PageMask {
        let mut mask = as_c(pages);
        let Some(block) = self.at.locked() else {
            return PageMask::EMPTY;
        };
        // SAFETY: the block is locked; `mask` is read and written.
        unsafe {
            bindings::uvm_seam_flash_leave_held(block, &mut mask);
            read(&mask)
        }
    }

    fn use_device(&mut self) -> bool {
        // SAFETY: the block is locked and alive.
        let make = |block| unsafe { bindings::uvm_seam_flash_use(block, self.to.dev) };
        self.at.alive().is_some_and(make)
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table, u64) -> T) -> Option<T> {
        let block = self.at.known();
        // SAFETY: the reference ends with this function.
        let state = unsafe { self.at.state(self.to.dev) }?;
        // SAFETY: not null, as it has a state.
        let tenant = unsafe { known(block) }.owner().key();
        let (pages, flash) = state.split();
        let mut table = flash.table.lock();
        Some(f(pages, &mut table, tenant))
    }

    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T {
        // SAFETY: see above.
        f(&mut unsafe { flash(self.table) }.table.lock())
    }

    fn unmap(&mut self, pages: &PageMask) -> Unmapped {
        let Some((block, context)) = self.at.opened() else {
            return Unmapped::Failed;
        };
        let mut again = false;
        // SAFETY: the block and its VA space are locked, and the context is open; the mask is read, and
        // `again` written once.
        let status =
            unsafe { bindings::uvm_seam_flash_unmap(block, context, &as_c(pages), &mut again) };
        match Status::check(status) {
            Ok(()) if again => Unmapped::Again,
            Ok(()) => Unmapped::All,
            Err(_) => Unmapped::Failed,
        }
    }

    fn wait_gpus(&mut self) -> bool {
        // SAFETY: the block is locked.
        let wait = |block| unsafe { bindings::uvm_seam_flash_wait_gpus(block) };
        self.at.locked().is_some_and(wait)
    }

    fn discarded(&mut self, pages: &PageMask) -> PageMask {
        let mut stale = uvm_rust_mask::default();
        if let Some(block) = self.at.locked() {
            // SAFETY: the block is locked; the masks are read and written.
            unsafe { bindings::uvm_seam_flash_stale(block, &as_c(pages), &mut stale) };
        }
        PageMask::from_words(stale.words)
    }

    fn dropped(&mut self, pages: &PageMask) {
        if let Some(block) = self.at.locked() {
            // SAFETY: the block is locked, and `discarded` gave `pages`; the mask is read.
            unsafe { bindings::uvm_seam_flash_dropped(block, &as_c(pages)) };
        }
    }

    fn left_host(&mut self, pages: &PageMask) -> bool {
        // SAFETY: the block is locked, and the GPUs were waited for; the mask is read.
        let left = |block| unsafe { bindings::uvm_seam_flash_left_host(block, &as_c(pages)) };
        self.at.locked().is_some_and(left)
    }

    fn hold(&mut self, spill: &Spill) -> bool {
        // SAFETY: the block is locked, and the buffer holds nothing; the mask is read.
        let hold =
            |block| unsafe { bindings::uvm_seam_flash_hold(block, &as_c(&spill.pages), self.io) };
        self.at.locked().is_some_and(hold)
    }

    fn set_aside(&mut self) {
        self.with_known(|tier, live, block| tier.dequeue(live, block));
    }

    fn hope(&mut self) {
        self.with_known(|tier, live, block| tier.hope(live, block));
    }

    fn write(&mut self, spill: &Spill) -> PageMask {
        let mut good = PageMask::EMPTY;
        for piece in spill.pieces() {
            // SAFETY: no lock is held; what is to be written was held by `hold`, and its place is pinned.
            let written =
                unsafe { bindings::uvm_seam_flash_write(self.to.dev, self.io, &piece_of(piece)) };
            if written == bindings::UVM_RUST_FLASH_NOT_WRITTEN as c_int {
                continue;
            }
            // What fails half-way has worn the device as well.
            let bytes = self.writes(piece.pages.pages());
            if written == 0 {
                good |= PageMask::from(piece.pages);
                self.counts(Counter::Written, bytes);
            } else if self.counts(Counter::WriteErrors, 1) == 1 {
                kernel::pr_warn!("flash: a write failed; the pages stay in host memory\n");
            }
        }
        // SAFETY: the buffer is ours.
        unsafe { bindings::uvm_seam_flash_release(self.io) };
        good
    }

    fn copy(&mut self, to_move: &Move) -> bool {
        let transfer = |at: Place, write| {
            // SAFETY: no lock is held; the buffer is ours, and the places are pinned by the move.
            0 == unsafe {
                bindings::uvm_seam_flash_copy(
                    self.to.dev,
                    self.io,
                    at.slot,
                    at.offset,
                    to_move.pages,
                    write,
                )
            }
        };
        if !transfer(to_move.from, false) {
            self.counts(Counter::ReadErrors, 1);
            return false;
        }
        let copied = transfer(to_move.to, true);
        self.writes(to_move.pages);
        if !copied {
            self.counts(Counter::WriteErrors, 1);
        }
        copied
    }

    fn is_sound(&mut self) -> bool {
        // SAFETY: see above.
        unsafe { is_sound(self.to.dev) }
    }

    fn tell(&mut self, ended: bool) {
        // SAFETY: see above.
        unsafe { bindings::uvm_seam_flash_tell(self.to.dev, ended) };
    }

    fn count(&mut self, what: Count, n: u64) {
        let counter = match what {
            Count::Spilled => Counter::Spilled,
            Count::Dropped => Counter::Dropped,
            Count::Unwritten => Counter::Unwritten,
            Count::Relocated => Counter::Relocated,
            Count::Refused => Counter::Refused,
        };
        self.counts(counter, n);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_work(dev: *mut uvm_seam_flash_dev, io: *mut uvm_seam_flash_io) {
    // SAFETY: I-own and I-call: the caller keeps both.
    spill::work(&mut unsafe { Spilling::new(dev, io) });
}

/// Writes what of `pages` the block has in host memory, by call. Returns how many bytes the device was
/// given to write.
///
/// # Safety
///
/// As [`Spilling::new`] for the call; a reference on the block is held, and the lock of its VA space in read
/// mode, but not its own.
pub(super) unsafe fn move_out(
    dev: *mut uvm_seam_flash_dev,
    io: *mut uvm_seam_flash_io,
    block: *mut uvm_va_block_struct,
    pages: &PageMask,
) -> u64 {
    // SAFETY: by this function's contract.
    let mut spilling = unsafe { Spilling::new(dev, io) };
    // SAFETY: by this function's contract; the caller's reference is enough.
    unsafe { spilling.at.choose(block) };
    spill::move_out(&mut spilling, pages);
    spilling.wrote
}
