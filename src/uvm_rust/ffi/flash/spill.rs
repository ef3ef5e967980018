// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Spilling va_blocks: the machine of `policy/flash/spill.rs`.

use super::bindings;
use super::block::{handle, known, known_of, only_host, pages_of, span, use_device, used};
use super::chosen::Chosen;
use super::dev::{Dev, Others};
use super::io::Io;
use super::tier::{
    current, ended, goes_on_for, hope_for_all, is_attached, is_short, oldest_copies, trim_in,
    victim, workers, BlockHandle, Live, State,
};
use crate::driver::discard::status;
use crate::driver::flash::{Counter, Tier};
use crate::ffi::discard::as_c;
use crate::ffi::seam::{self, PmLock};
use crate::ffi::time::{self, now_us};
use crate::ffi::vaspace::space_of_block;
use crate::ffi::{space, trace};
use crate::policy::flash::cause::Writer;
use crate::policy::flash::pressure::Tried;
use crate::policy::flash::spill::{self, Copies, Count, Facts, Machine, Unmapped};
use crate::policy::flash::trim::LOOK_MS;
use crate::policy::flash::{pace, BlockPages, Move, Piece, Spill, Table};
use crate::policy::mask::{PageMask, Region};
use bindings::uvm_va_block_struct;
use core::ptr::null_mut;
use kernel::page::PAGE_SIZE;
use kernel::sync::Arc;

/// The device that is spilled to, and the tier, for the length of a call.
///
/// Invariant: the tier exists; the caller keeps it.
#[derive(Clone)]
pub(super) struct To {
    pub(super) tier: *const Tier,
    pub(super) dev: Arc<Dev>,
}

impl To {
    /// As [`Copies::give_up_oldest`], of the tenant with this key, or of any with 0.
    ///
    /// # Safety
    ///
    /// No va_block is locked.
    unsafe fn give_up_oldest(&self, tenant: u64) -> Option<u32> {
        // SAFETY: by the type's invariant.
        let block = unsafe { oldest_copies(self.tier, tenant) };
        if block.is_null() {
            return None;
        }
        // SAFETY: it came with a reference, which is given back last; it is locked, and what is known
        // of it is there meanwhile.
        unsafe {
            bindings::uvm_seam_block_lock(block);
            let state = used(known_of(block));
            let state = state.filter(|state| state.is_on(&self.dev));
            let pages = state.map_or(0, |state| super::block::give_up(state, &PageMask::FULL));
            bindings::uvm_seam_block_unlock(block);
            bindings::uvm_seam_va_block_put(block);
            Some(pages)
        }
    }
}

impl Copies for To {
    fn give_up_oldest(&mut self, _of_own: bool) -> Option<u32> {
        // SAFETY: it is only made where no va_block is locked.
        unsafe { To::give_up_oldest(self, 0) }
    }
}

/// A spill under way, by a worker or by a call.
pub(super) struct Spilling<'a> {
    to: To,
    /// The buffer to encrypt into; it has its own pages.
    io: &'a mut Io,
    /// How many bytes the device was given to write.
    wrote: u64,
    at: Chosen,
    /// Who spills: a worker, or a call, which has the VA space locked.
    by: Writer,
    /// The turn with the device, between `take_turn` and `end_turn`.
    turn: Option<Others>,
    /// The lock of power management, between `enter` and `leave`.
    pm: Option<PmLock>,
    /// How long this has waited for turns since the last rest, in microseconds.
    waited_us: u64,
    /// What the tracepoint will tell of this spill.
    told: trace::Spill,
}

impl<'a> Spilling<'a> {
    /// # Safety
    ///
    /// The tier outlives the result, and the buffer has pages of its own.
    pub(super) unsafe fn new(dev: &Arc<Dev>, io: &'a mut Io) -> Self {
        Self {
            to: To {
                tier: current(),
                dev: dev.clone(),
            },
            io,
            wrote: 0,
            at: Chosen::none(),
            by: Writer::Worker,
            turn: None,
            pm: None,
            waited_us: 0,
            told: trace::Spill::default(),
        }
    }

    fn counts(&self, counter: Counter, n: u64) -> u64 {
        self.to.dev.counts(counter, n)
    }

    /// Counts `pages` as written, and notes that they will need trimming. Returns their bytes.
    fn writes(&mut self, pages: u16) -> u64 {
        // SAFETY: by the invariant of `To`.
        unsafe { trim_in(self.to.tier, &self.to.dev, LOOK_MS) };
        let bytes = u64::from(pages) * PAGE_SIZE as u64;
        self.wrote = self.wrote.saturating_add(bytes);
        bytes
    }

    /// Calls `what` with the tier's state and the chosen va_block, if that has a record.
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

impl Copies for Spilling<'_> {
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
impl Machine for Spilling<'_> {
    fn goes_on(&mut self) -> bool {
        // SAFETY: no preconditions.
        let status = unsafe { bindings::uvm_seam_global_status() };
        // SAFETY: see above.
        status == 0 && unsafe { goes_on_for(self.to.tier, &self.to.dev) }
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
        self.pm = PmLock::try_read();
        self.pm.is_some()
    }

    fn leave(&mut self) {
        self.pm = None;
    }

    fn suspends(&mut self) -> bool {
        seam::suspends()
    }

    fn ended(&mut self, tried: Tried) -> bool {
        // SAFETY: see above.
        let stops = unsafe { ended(self.to.tier, &self.to.dev, tried) };
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
        now_us()
    }

    fn rest(&mut self, began: Option<u64>) {
        let now = now_us();
        // A worker does not use the device while it waits for its turn.
        let waited = core::mem::take(&mut self.waited_us);
        let took = now
            .saturating_sub(began.unwrap_or(now))
            .saturating_sub(waited);
        let us = pace::rest_us(took, read_parameter!(uvm_rust_flash_share));
        if us > 0 {
            time::sleep_us(us);
            // How long the worker really slept, which may be longer than it asked for.
            let slept = now_us().saturating_sub(now);
            self.counts(Counter::RestedUs, slept);
        }
        time::rest();
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
        let may_spill = |block| {
            // SAFETY: the block is locked and alive, and its VA space locked by us or by the caller.
            unsafe {
                let span = span(block);
                let space = space_of_block(block);
                !bindings::uvm_seam_has_non_faultable(space)
                    && bindings::uvm_range_group_all_migratable(space.cast(), span.first, span.last)
            }
        };
        self.at.alive().is_some_and(may_spill)
    }

    fn facts(&mut self) -> Facts {
        let Some(block) = self.at.alive() else {
            return Facts::default();
        };
        // SAFETY: the block is locked and alive.
        let of = unsafe { pages_of(block, null_mut()) };
        Facts {
            only_host: only_host(&of),
            mapped: of.mapped.set(),
            has_unused: !of.allocated.set().is_subset(&of.host.set()),
        }
    }

    fn not_held(&mut self, pages: &PageMask, unmapped: bool) -> PageMask {
        let Some(block) = self.at.locked() else {
            return PageMask::EMPTY;
        };
        let mut free = as_c(pages);
        // SAFETY: the block is locked, which keeps its host memory; the mask is ours for the call.
        unsafe { bindings::uvm_seam_flash_host(block, &mut free, null_mut(), !unmapped) };
        PageMask::from_words(free.words)
    }

    fn use_device(&mut self) -> bool {
        let Some(block) = self.at.alive() else {
            return false;
        };
        // SAFETY: the block is locked.
        let span = unsafe { span(block) };
        let pages = (span.last - span.first + 1) / PAGE_SIZE as u64;
        // SAFETY: the block is locked and known, and who spills keeps the device.
        unsafe { use_device(self.at.known(), &self.to.dev, pages as u16) }
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table, u64) -> T) -> Option<T> {
        let block = self.at.known();
        // SAFETY: the reference ends with this function.
        let state = unsafe { self.at.state(&self.to.dev) }?;
        // SAFETY: not null, as it has a state.
        let tenant = unsafe { known(block) }.owner().key();
        let (pages, flash) = state.split();
        let mut table = flash.table.lock();
        Some(f(pages, &mut table, tenant))
    }

    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T {
        f(&mut self.to.dev.flash().table.lock())
    }

    fn unmap(&mut self, pages: &PageMask) -> Unmapped {
        let Some((block, context)) = self.at.opened() else {
            return Unmapped::Failed;
        };
        // SAFETY: the block and its VA space are locked, and the context is open; the mask is read.
        match unsafe { bindings::uvm_seam_block_unmap(block, context, &as_c(pages)) } {
            status::OK if self.wait_gpus() => Unmapped::All,
            status::AGAIN => Unmapped::Again,
            _ => Unmapped::Failed,
        }
    }

    fn wait_gpus(&mut self) -> bool {
        // SAFETY: the block is locked.
        let wait = |block| unsafe { bindings::uvm_seam_block_wait(block, true) };
        self.at.locked().map(wait) == Some(status::OK)
    }

    fn discarded(&mut self, pages: &PageMask) -> PageMask {
        let stale = self
            .at
            .discarded()
            .map(|state| state.stale(pages, &PageMask::EMPTY));
        stale.unwrap_or(PageMask::EMPTY)
    }

    fn dropped(&mut self, pages: &PageMask) {
        if let Some(state) = self.at.discarded() {
            state.dropped(pages);
        }
    }

    fn left_host(&mut self, pages: &PageMask) -> bool {
        let Some(block) = self.at.alive() else {
            return false;
        };
        // SAFETY: the block is locked and alive, and the GPUs were waited for; the mask is read. The reference ends with
        // the statement.
        unsafe {
            let in_flight = used(self.at.known()).map(|state| state.pages.in_flight());
            let unused = unused(block, pages, in_flight.unwrap_or(PageMask::EMPTY));
            bindings::uvm_seam_block_drop(block, &as_c(pages), !pages.is_subset(&unused));
            for run in unused.runs() {
                bindings::uvm_seam_host_chunk_free(block, run.first(), run.outer());
            }
            super::block::count(block, false);
            !unused.is_empty()
        }
    }

    fn hold(&mut self, spill: &Spill) -> bool {
        let Some(block) = self.at.alive() else {
            return false;
        };
        // SAFETY: the block is locked and alive, and so is its VA space.
        let (state, span) = unsafe { (space::of(space_of_block(block)), span(block)) };
        self.told = trace::Spill {
            pid: state.map_or(0, |state| state.pid()),
            address: span.first,
            ..Default::default()
        };
        // SAFETY: the block is locked.
        unsafe { self.io.hold(block, &spill.pages) }
    }

    fn set_aside(&mut self) {
        self.with_known(|tier, live, block| tier.dequeue(live, block));
    }

    fn hope(&mut self) {
        self.with_known(|tier, live, block| tier.hope(live, block));
    }

    fn seal(&mut self, piece: &Piece) -> bool {
        self.io.seal(&self.to.dev, piece)
    }

    fn take_turn(&mut self) -> bool {
        let came = now_us();
        let (tier, dev, by) = (self.to.tier, &self.to.dev, self.by);
        // SAFETY: by the invariant of `To`.
        let cause = || by.cause(|| unsafe { is_short(tier) });
        // SAFETY: by the invariant of `To`.
        let is_detached = || !unsafe { is_attached(tier, dev) };
        let is_over = || by.gives_up(seam::suspends, is_detached);
        self.turn = Dev::begin_as(dev, cause, is_over);
        self.waited_us = self.waited_us.saturating_add(now_us().saturating_sub(came));
        self.turn.is_some()
    }

    fn end_turn(&mut self) {
        self.turn = None;
    }

    fn write(&mut self, piece: &Piece) -> bool {
        // SAFETY: no lock is held; what is to be written was held by `hold`, and its place is pinned.
        let wrote = unsafe { self.io.write(&self.to.dev, piece) };
        // A write that fails half-way has worn the device as well.
        let bytes = self.writes(piece.pages.pages());
        if wrote {
            self.told.written += bytes;
            self.counts(Counter::Written, bytes);
            return true;
        }
        self.told.errors += 1;
        if self.counts(Counter::WriteErrors, 1) == 1 {
            kernel::pr_warn!("flash: a write failed; the pages stay in host memory\n");
        }
        false
    }

    fn written(&mut self) {
        self.io.release();
    }

    fn copy_in(&mut self, to_move: &Move) -> Option<bool> {
        let dev = &self.to.dev;
        // SAFETY: no lock is held, and the place is pinned by the move.
        let read = unsafe { self.io.copy(dev, to_move.from, to_move.pages, false) };
        let is_right = read && self.io.is_as_written(dev, &to_move.piece());
        if !is_right {
            self.counts(Counter::ReadErrors, 1);
        }
        read.then_some(is_right)
    }

    fn copy_out(&mut self, to_move: &Move) -> bool {
        let dev = &self.to.dev;
        // SAFETY: no lock is held, and the place is pinned by the move.
        let wrote = unsafe { self.io.copy(dev, to_move.to, to_move.pages, true) };
        self.writes(to_move.pages);
        if !wrote {
            self.counts(Counter::WriteErrors, 1);
        }
        wrote
    }

    fn is_sound(&mut self) -> bool {
        self.to.dev.is_sound()
    }

    fn tell(&mut self, ended: bool) {
        if ended {
            trace::spill(&self.told);
        }
        self.to.dev.tell();
    }

    fn count(&mut self, what: Count, n: u64) {
        if what == Count::Spilled {
            self.told.bytes += n;
        }
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

/// The chunks of host memory that are of no use once `pages` have left it: nothing else is resident there, or `in_flight`,
/// and nobody holds them.
///
/// # Safety
///
/// The block is locked and alive, and the GPUs' work on it has ended.
unsafe fn unused(
    block: *mut uvm_va_block_struct,
    pages: &PageMask,
    in_flight: PageMask,
) -> PageMask {
    // SAFETY: by this function's contract.
    let of = unsafe { pages_of(block, null_mut()) };
    let kept = (of.host.set() - *pages) | in_flight;
    let (mut left, mut unused) = (of.allocated.set(), PageMask::EMPTY);
    while let Some(index) = left.next(0, true) {
        let (mut first, mut outer) = (index, index + 1);
        // SAFETY: as above; `first` and `outer` are ours for the call.
        let is_free =
            unsafe { bindings::uvm_seam_host_chunk(block, index.into(), &mut first, &mut outer) };
        // Chunks are freed whole.
        let chunk = PageMask::from(Region::new(first, outer));
        left -= chunk;
        // A page that direct I/O holds is kept: if its data come back, they come back to this very page.
        if is_free && !chunk.intersects(&kept) {
            unused |= chunk;
        }
    }
    unused
}

/// Writes those of `pages` that the block has in host memory, for a call. Returns how many bytes the device was given
/// to write.
///
/// # Safety
///
/// As [`Spilling::new`], during the call. The caller holds a reference on the block, and the lock of its VA space in
/// read mode, but not the block's.
pub(super) unsafe fn move_out(
    dev: &Arc<Dev>,
    io: &mut Io,
    block: *mut uvm_va_block_struct,
    pages: &PageMask,
) -> u64 {
    // SAFETY: by this function's contract.
    let mut spilling = unsafe { Spilling::new(dev, io) };
    spilling.by = Writer::Call;
    // SAFETY: by this function's contract; the caller's reference is enough.
    unsafe { spilling.at.choose(block) };
    spill::move_out(&mut spilling, pages);
    spilling.wrote
}
