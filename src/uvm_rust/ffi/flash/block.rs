// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! C's calls on the tier's state of a va_block (`uvm_va_block_t.uvm_rust_flash`). The va_block's lock protects the
//! state, except for the record, which is the tier's.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::dev::{Dev, Waits};
use super::room::owner_of;
use super::tier::{BlockHandle, OwnerHandle, Record};
use super::{bindings, PREFETCHERS};
use crate::driver::flash::Flash;
use crate::ffi::discard::{read, short, write};
use crate::ffi::space;
use crate::ffi::time::now_us;
use crate::ffi::vaspace::space_of_block;
use crate::ffi::work::Charging;
use crate::mem::charged_box;
use crate::policy::flash::block::may_only_read;
use crate::policy::flash::tier;
use crate::policy::flash::wants::{Asks, Park, Stored, Wants};
use crate::policy::flash::BlockPages;
use crate::policy::mask::PageMask;
use bindings::{uvm_rust_flash_block, uvm_rust_mask, uvm_va_block_struct};
use core::cell::UnsafeCell;
use core::ptr::{null_mut, NonNull};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::ForeignOwnable;

crate::ffi::check_exports!(
    uvm_rust_flash_note,
    uvm_rust_flash_block_gone,
    uvm_rust_flash_is_lost,
    uvm_rust_flash_may_only_read,
    uvm_rust_flash_add_stored,
    uvm_rust_flash_leave_copied,
    uvm_rust_flash_maps,
);

/// Which pages of a va_block are on a device. Dropping it gives their places back.
pub(super) struct State {
    pub(super) pages: BlockPages,
    device: Arc<Dev>,
}

impl State {
    /// Whether the state is of this device.
    pub(super) fn is_on(&self, dev: &Dev) -> bool {
        core::ptr::eq(&*self.device, dev)
    }

    pub(super) fn split(&mut self) -> (&mut BlockPages, &Flash) {
        (&mut self.pages, self.device.flash())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.pages.release(&mut self.device.flash().table.lock());
    }
}

/// The part of a block that the va_block's lock protects.
#[derive(Default)]
struct Own {
    wants: Wants,
    /// Set while faults wait for pages whose read has not begun.
    waits: Option<Waits>,
    /// `None` until the first spill.
    state: Option<KBox<State>>,
}

/// What the tier knows of a va_block.
pub(super) struct Block {
    owner: OwnerHandle,
    /// Read and written under the tier's lock only.
    record: UnsafeCell<Record>,
    /// Null until the block is published, and fixed from then on.
    of: UnsafeCell<*mut uvm_va_block_struct>,
    own: UnsafeCell<Own>,
}

impl Block {
    /// Allocates the state; [`free`] gives it back.
    ///
    /// The memory is charged to the tenant, or to nobody if the tenant's cgroup is full. A block without state would be neither
    /// counted nor spilled, so a tenant could get around its limits.
    fn new(owner: OwnerHandle) -> Option<NonNull<Self>> {
        // SAFETY: the tenant keeps its group, and outlives this (I-owner).
        let _charging = unsafe { Charging::to(owner.group()) };
        let new = Self {
            owner,
            record: UnsafeCell::new(tier::Block::new(owner)),
            of: UnsafeCell::new(null_mut()),
            own: UnsafeCell::default(),
        };
        let block = charged_box(new).ok()?;
        NonNull::new(block.into_foreign().cast_mut().cast())
    }

    pub(super) fn owner(&self) -> OwnerHandle {
        self.owner
    }

    pub(super) fn record(&self) -> *mut Record {
        self.record.get()
    }

    /// # Safety
    ///
    /// It was published.
    pub(super) unsafe fn of(&self) -> *mut uvm_va_block_struct {
        // SAFETY: by this function's contract nobody writes to it any more.
        unsafe { *self.of.get() }
    }
}

/// # Safety
///
/// `block` came from [`Block::new`] and is not used again; the tier has no handle of it.
pub(super) unsafe fn free(block: NonNull<Block>) {
    // SAFETY: by this function's contract: `new` got it from `into_foreign`, and it is dropped once.
    drop(unsafe { <KBox<Block> as ForeignOwnable>::from_foreign(block.as_ptr().cast()) });
}

/// # Safety
///
/// I-own: `block` came from [`Block::new`] and is not destroyed during `'a`.
pub(super) unsafe fn known<'a>(block: *mut uvm_rust_flash_block) -> &'a Block {
    // SAFETY: by this function's contract; only shared references are made to the whole.
    unsafe { &*block.cast::<Block>() }
}

/// The block of a va_block; null if it has none, or is dead.
///
/// # Safety
///
/// I-lock: its lock is held.
pub(super) unsafe fn known_of(of: *mut uvm_va_block_struct) -> *mut uvm_rust_flash_block {
    // SAFETY: by this function's contract.
    let slot = unsafe { bindings::uvm_seam_flash_slot(of).as_ref() };
    slot.map_or(null_mut(), |known| *known)
}

/// The memory range of a va_block.
///
/// # Safety
///
/// The va_block is alive, and the lock of its VA space held.
pub(super) unsafe fn memory_of(of: *mut uvm_va_block_struct) -> bindings::uvm_rust_range {
    // SAFETY: by this function's contract.
    let at = unsafe { span(of) }.first;
    let mut range = bindings::uvm_rust_range {
        preferred: bindings::UVM_RUST_MEMORY_NONE,
        ..Default::default()
    };
    // SAFETY: by this function's contract; `range` is ours for the call.
    unsafe { bindings::uvm_seam_range(space_of_block(of), at, at, &mut range) };
    range
}

/// Where a va_block's pages are, as `gpu` sees them, or as no GPU does if that is null.
///
/// # Safety
///
/// I-lock: the va_block's lock is held, and it is alive; the lock of its VA space keeps the GPU.
pub(in crate::ffi) unsafe fn pages_of(
    of: *mut uvm_va_block_struct,
    gpu: *mut bindings::uvm_gpu_struct,
) -> bindings::uvm_rust_pages {
    let mut pages = bindings::uvm_rust_pages::default();
    // SAFETY: by this function's contract; `pages` is ours for the call.
    unsafe { bindings::uvm_seam_block_pages(of, gpu, &mut pages) };
    pages
}

/// The pages of a va_block that only the host has.
pub(super) fn only_host(of: &bindings::uvm_rust_pages) -> PageMask {
    of.host.set() - of.duplicated.set() - of.reached.set()
}

pub(super) fn handle(block: &Block) -> BlockHandle {
    BlockHandle(NonNull::from(block))
}

/// # Safety
///
/// `block` is as [`known`] asks, and the va_block's lock is held for `'a`; one such reference exists at a time.
unsafe fn own<'a>(block: *mut uvm_rust_flash_block) -> &'a mut Own {
    // SAFETY: by this function's contract nobody else uses it.
    unsafe { &mut *known(block).own.get() }
}

/// The state of the pages; `None` if there is no block, or it has no state.
///
/// # Safety
///
/// `block` is null, or as for [`own`].
pub(super) unsafe fn used<'a>(block: *mut uvm_rust_flash_block) -> Option<&'a mut State> {
    if block.is_null() {
        return None;
    }
    // SAFETY: by this function's contract.
    unsafe { own(block) }.state.as_deref_mut()
}

/// Makes `block` the tier's state of the va_block.
///
/// # Safety
///
/// `slot` is that of `of`, and empty; the va_block's lock is held. `block` came from [`Block::new`], and nobody else
/// has it.
pub(super) unsafe fn publish(
    block: NonNull<Block>,
    slot: *mut *mut uvm_rust_flash_block,
    of: *mut uvm_va_block_struct,
) {
    // SAFETY: by this function's contract.
    unsafe {
        *slot = block.as_ptr().cast();
        let has_pages = used(*slot).is_some();
        let block = block.as_ref();
        *block.of.get() = of;
        block
            .owner
            .with(|tier, live| tier.add_block(live, handle(block), has_pages));
    }
}

/// Frees the tier's state of the va_block, if there is one.
///
/// # Safety
///
/// I-lock: its lock is held, or it is dying.
pub(super) unsafe fn forget(of: *mut uvm_va_block_struct) {
    // SAFETY: by this function's contract. The tier knows nothing of it any more when it is freed, and no
    // reference to it is left.
    unsafe {
        let slot = bindings::uvm_seam_flash_slot(of);
        if slot.is_null() {
            return;
        }
        let Some(block) = NonNull::new((*slot).cast::<Block>()) else {
            return;
        };
        *slot = null_mut();
        let owner = block.as_ref().owner;
        owner.with(|tier, live| tier.remove_block(live, BlockHandle(block)));
        free(block);
    }
}

/// Counts the host memory of a va_block; `used`: some pages have just come there.
///
/// # Safety
///
/// I-lock: its lock is held; there is a tier.
pub(super) unsafe fn count(of: *mut uvm_va_block_struct, mut used: bool) {
    // SAFETY: by this function's contract; I-owner for the tenant.
    unsafe {
        let slot = bindings::uvm_seam_flash_slot(of);
        if slot.is_null() {
            return;
        }
        let pages = bindings::uvm_seam_flash_host_pages(of);
        if (*slot).is_null() {
            if pages == 0 {
                return;
            }
            let Some(owner) = owner_of(space_of_block(of)) else {
                return;
            };
            // Without memory for that, the block is neither counted nor spilled.
            let Some(block) = Block::new(owner) else {
                return;
            };
            publish(block, slot, of);
            used = true;
        }
        super::tier::count(known(*slot), pages, used);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_note(of: *mut uvm_va_block_struct, used: bool) {
    // SAFETY: I-lock; who calls has looked for a tier.
    unsafe { count(of, used) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_block_gone(of: *mut uvm_va_block_struct) {
    // SAFETY: I-lock.
    unsafe { forget(of) };
}

/// Gives a va_block of `pages` pages a state of this device, unless it has one; the first spill calls this. False
/// without memory, or while the state is of a device that is gone. The memory is charged to the tenant, if its cgroup
/// has room.
///
/// # Safety
///
/// `block` is as [`own`] asks.
pub(super) unsafe fn use_device(
    block: *mut uvm_rust_flash_block,
    dev: &Arc<Dev>,
    pages: u16,
) -> bool {
    // SAFETY: by this function's contract.
    let (own, owner) = unsafe { (own(block), known(block).owner) };
    // The state of a device that is gone, and of which it holds nothing.
    let of_another = |s: &mut KBox<State>| !s.is_on(dev) && s.pages.is_idle();
    drop(own.state.take_if(of_another));
    if own.state.is_none() {
        // SAFETY: the tenant keeps its group, and outlives this (I-owner).
        let _charging = unsafe { Charging::to(owner.group()) };
        let new = State {
            pages: BlockPages::new(pages),
            device: dev.clone(),
        };
        // A tenant whose memory cgroup is full has its blocks spilled all the same.
        own.state = charged_box(new).ok();
    }
    own.state.as_ref().is_some_and(|s| s.is_on(dev))
}

/// A reference on the device of the block's state; `None` without a state.
///
/// # Safety
///
/// `block` is as [`used`] asks.
pub(super) unsafe fn device_of(block: *mut uvm_rust_flash_block) -> Option<Arc<Dev>> {
    // SAFETY: by this function's contract.
    unsafe { used(block) }.map(|s| s.device.clone())
}

/// Frees the state if it says nothing of any page.
///
/// # Safety
///
/// `block` is as [`used`] asks.
pub(super) unsafe fn drop_idle(block: *mut uvm_rust_flash_block) {
    if !block.is_null() {
        // SAFETY: by this function's contract.
        drop(unsafe { own(block) }.state.take_if(|s| s.pages.is_idle()));
    }
}

/// Whether the set `of` of the state holds page `page`.
///
/// # Safety
///
/// `block` is as [`used`] asks.
unsafe fn has(
    block: *mut uvm_rust_flash_block,
    page: u32,
    of: fn(&BlockPages) -> PageMask,
) -> bool {
    // SAFETY: by this function's contract.
    unsafe { used(block) }.is_some_and(|state| of(&state.pages).test(short(page)))
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_is_lost(
    block: *mut uvm_rust_flash_block,
    page: u32,
    by_gpu: bool,
) -> bool {
    if block.is_null() {
        return false;
    }
    // SAFETY: I-own and I-lock.
    let Own { wants, state, .. } = unsafe { own(block) };
    let (Some(state), page) = (state, short(page)) else {
        return false;
    };
    // If the page failed some time ago, it is read again, except for a GPU fault that is to find out that it is lost.
    if state.pages.kept().test(page) {
        let now = now_us();
        if !(by_gpu && wants.finds_out(page, now)) {
            let mut pages = PageMask::EMPTY;
            pages.set(page);
            state.pages.read_again_at(now, &pages);
        }
    }
    let is_lost = state.pages.lost().test(page);
    if is_lost && by_gpu {
        wants.found_out(page);
    }
    is_lost
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_may_only_read(
    block: *mut uvm_rust_flash_block,
    page: u32,
    some_cannot_fault: bool,
) -> bool {
    // SAFETY: null, or I-own and I-lock.
    let is_copied = unsafe { has(block, page, BlockPages::copies) };
    may_only_read(is_copied, some_cannot_fault)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_add_stored(
    block: *mut uvm_rust_flash_block,
    pages: *mut uvm_rust_mask,
) {
    // SAFETY: null, or I-own and I-lock, for `block`; I-call for `pages`.
    unsafe {
        if let Some(state) = used(block) {
            write(pages, &(read(pages) | state.pages.on_flash()));
        }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_leave_copied(
    block: *mut uvm_rust_flash_block,
    pages: *mut uvm_rust_mask,
) {
    // SAFETY: null, or I-own and I-lock, for `block`; I-call for `pages`.
    unsafe {
        if let Some(state) = used(block) {
            write(pages, &(read(pages) - state.pages.copies()));
        }
    }
}

/// Forgets the copies of `pages`, which are discarded, on a device.
///
/// # Safety
///
/// I-lock: the va_block's lock is held.
pub(in crate::ffi) unsafe fn discarded(of: *mut uvm_va_block_struct, pages: &PageMask) {
    // SAFETY: by this function's contract; what is known of a dead block is gone.
    if let Some(state) = unsafe { used(known_of(of)) } {
        let (block, flash) = state.split();
        block.forget(&mut flash.table.lock(), pages);
    }
}

/// The pages of a va_block that are on a device and nowhere else.
///
/// # Safety
///
/// I-lock: the va_block's lock is held.
pub(in crate::ffi) unsafe fn stored(of: *mut uvm_va_block_struct) -> PageMask {
    // SAFETY: by this function's contract; what is known of a dead block is gone.
    let state = unsafe { used(known_of(of)) };
    state.map_or(PageMask::EMPTY, |state| state.pages.on_flash())
}

/// The pages of a va_block that are being written to a device, and that nobody has mapped since. The write holds
/// their host memory.
///
/// # Safety
///
/// I-lock: the va_block's lock is held.
pub(in crate::ffi) unsafe fn spilling(of: *mut uvm_va_block_struct) -> PageMask {
    // SAFETY: by this function's contract; what is known of a dead block is gone.
    let state = unsafe { used(known_of(of)) };
    state.map_or(PageMask::EMPTY, |state| state.pages.spilling())
}

/// What a device has of a va_block's pages, as the prefetcher needs to know it.
///
/// # Safety
///
/// I-lock: the va_block's lock is held.
pub(in crate::ffi) unsafe fn on_device(of: *mut uvm_va_block_struct) -> Stored {
    // SAFETY: by this function's contract; what is known of a dead block is gone.
    let block = unsafe { known_of(of) };
    if block.is_null() {
        return Stored::default();
    }
    // SAFETY: by this function's contract; it is known.
    let own = unsafe { own(block) };
    let state = own.state.as_ref();
    state.map_or(Stored::default(), |state| own.wants.stored(&state.pages))
}

/// Asks for `pages`, which are on a device, for a prefetch. Returns whether a reader will read them.
///
/// # Safety
///
/// I-lock: the va_block's lock is held.
pub(in crate::ffi) unsafe fn ask_for_prefetch(
    of: *mut uvm_va_block_struct,
    pages: &PageMask,
) -> bool {
    // SAFETY: by this function's contract.
    let block = unsafe { known_of(of) };
    if block.is_null() || !PREFETCHERS.is_made() {
        return false;
    }
    // SAFETY: by this function's contract; it is known.
    unsafe { ask(block, pages, Asks::Prefetch) };
    true
}

/// Has the VA space's prefetcher told whenever a read of the va_block ends, until no more reads are asked for.
///
/// # Safety
///
/// I-lock: the va_block's lock is held.
pub(in crate::ffi) unsafe fn tell_of_reads(of: *mut uvm_va_block_struct) {
    // SAFETY: by this function's contract; what is known of a dead block is gone.
    unsafe {
        let block = known_of(of);
        if !block.is_null() {
            own(block).wants.tell_prefetch();
        }
    }
}

/// Tells the VA space's prefetcher, if it waits for that, that a read of a va_block has ended, or has been tried.
///
/// # Safety
///
/// I-lock: the va_block's lock is held, and the va_block is alive. So its VA space exists, whose prefetcher outlives
/// all of its blocks.
pub(super) unsafe fn read_ended(of: *mut uvm_va_block_struct) {
    // SAFETY: by this function's contract.
    unsafe {
        let block = known_of(of);
        if block.is_null() {
            return;
        }
        let own = own(block);
        let state = own.state.as_ref().map(|state| &state.pages);
        if !own.wants.tells_prefetch(state) {
            return;
        }
        let space = space::of(space_of_block(of));
        if let Some(process) = space.and_then(|space| space.process()) {
            process.read_ended();
        }
    }
}

/// Gives up the copies of `pages`, and returns how many there were.
pub(super) fn give_up(state: &mut State, pages: &PageMask) -> u32 {
    let (block, flash) = state.split();
    let copies = block.copies() & *pages;
    // Nearly always there are no copies, and the mutex is not needed.
    if !copies.is_empty() {
        block.may_write(&mut flash.table.lock(), &copies);
    }
    copies.count().into()
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_maps(
    block: *mut uvm_rust_flash_block,
    pages: *const uvm_rust_mask,
    writes: bool,
) {
    // SAFETY: null, or I-own and I-lock, for `block`; I-call for `pages`.
    let (state, pages) = unsafe { (used(block), read(pages)) };
    let Some(state) = state else { return };
    // Most mappings are of blocks without copies, which need no lock.
    state.pages.touched(&pages);
    if writes {
        give_up(state, &pages);
    }
}

/// Prepares a split at page `at`. Returns the block of the upper half, which is not published. `None` without memory;
/// then nothing has changed except that a write has ended.
///
/// # Safety
///
/// `block` is as [`own`] asks, and has a state.
pub(super) unsafe fn cut(block: *mut uvm_rust_flash_block, at: u32) -> Option<NonNull<Block>> {
    // SAFETY: by this function's contract.
    let (owner, state) = unsafe { (known(block).owner, used(block)) };
    let state = state?;
    let rest = State {
        pages: BlockPages::new(0),
        device: state.device.clone(),
    };
    let rest = KBox::new(rest, GFP_KERNEL).ok()?;
    let upper = Block::new(owner)?;
    let (pages, flash) = state.split();
    if pages.cut(&mut flash.table.lock(), short(at)).is_err() {
        // SAFETY: it is new, and nobody knows of it.
        unsafe { free(upper) };
        return None;
    }
    // SAFETY: it is new, and nobody else knows of it.
    unsafe { own(upper.as_ptr().cast()) }.state = Some(rest);
    Some(upper)
}

/// Moves the state of the pages from `at` on to `upper`, which [`cut`] made.
///
/// # Safety
///
/// `block` is as [`own`] asks; nobody else has `upper`.
pub(super) unsafe fn share(block: *mut uvm_rust_flash_block, at: u32, upper: NonNull<Block>) {
    // SAFETY: by this function's contract; they are not the same.
    let (state, upper) = unsafe { (used(block), used(upper.as_ptr().cast())) };
    if let (Some(state), Some(upper)) = (state, upper) {
        let (pages, flash) = state.split();
        upper.pages = pages.split(&mut flash.table.lock(), short(at));
    }
}

/// The pages of a block that are on flash.
///
/// # Safety
///
/// `block` is null, or as [`used`] asks.
pub(super) unsafe fn on_flash(block: *mut uvm_rust_flash_block) -> PageMask {
    // SAFETY: by this function's contract.
    let state = unsafe { used(block) };
    state.map_or(PageMask::EMPTY, |state| state.pages.on_flash())
}

/// Asks for `pages`, which are on flash, and wakes a reader.
///
/// # Safety
///
/// `block` is as [`own`] asks.
pub(super) unsafe fn ask(block: *mut uvm_rust_flash_block, pages: &PageMask, asks: Asks) {
    // SAFETY: by this function's contract.
    unsafe {
        let of = own(block);
        let is_news = of.wants.ask(pages, asks);
        if asks == Asks::Fault && of.waits.is_none() {
            let wants = &of.wants;
            let to_begin = of.state.as_ref().filter(|s| wants.has_to_begin(&s.pages));
            of.waits = to_begin.map(|state| Waits::new(state.device.clone()));
        }
        if is_news {
            super::tier::ask(known(block), asks);
        }
    }
}

/// Whether a GPU's faults on `pages` have to be put off. If so, asks for the pages that they wait for.
///
/// # Safety
///
/// `block` is as [`used`] asks.
pub(super) unsafe fn parks(block: *mut uvm_rust_flash_block, pages: &PageMask) -> bool {
    let park = |wants: &mut Wants, state: &mut BlockPages| wants.park(state, now_us(), pages);
    // SAFETY: by this function's contract.
    unsafe { parks_by(block, park) }
}

/// As [`parks`], for a copy engine's fault.
///
/// # Safety
///
/// `block` is as [`used`] asks.
pub(super) unsafe fn parks_copy(block: *mut uvm_rust_flash_block, pages: &PageMask) -> bool {
    // SAFETY: by this function's contract.
    unsafe { parks_by(block, |_, state| Wants::park_copy(state, pages)) }
}

/// # Safety
///
/// `block` is as [`used`] asks.
unsafe fn parks_by(
    block: *mut uvm_rust_flash_block,
    park: impl FnOnce(&mut Wants, &mut BlockPages) -> Park,
) -> bool {
    if block.is_null() {
        return false;
    }
    // SAFETY: by this function's contract; the reference ends before anything is asked for.
    unsafe {
        let own = own(block);
        let park = own
            .state
            .as_mut()
            .map(|state| park(&mut own.wants, &mut state.pages));
        if let Some(Park::Ask(wanted)) = &park {
            ask(block, wanted, Asks::Fault);
        }
        park.is_some_and(|park| park != Park::No)
    }
}

/// The pages of a block that were asked for and have not come; and for whom a reader of the kind `reader` reads them,
/// `None` if that reader leaves them alone (`Wants::read_by`).
///
/// # Safety
///
/// `block` is as [`own`] asks.
pub(super) unsafe fn asked(
    block: *mut uvm_rust_flash_block,
    reader: Asks,
) -> (PageMask, Option<Asks>) {
    // SAFETY: by this function's contract.
    let wants = unsafe { &own(block).wants };
    (wants.asked(), wants.read_by(reader))
}

/// Notes that a call has `pages`, which it may have asked for.
///
/// # Safety
///
/// `block` is null, or as [`own`] asks.
pub(super) unsafe fn came(block: *mut uvm_rust_flash_block, pages: &PageMask) {
    if !block.is_null() {
        // SAFETY: by this function's contract.
        unsafe { own(block) }.wants.came(pages);
    }
}

/// Notes that `pages` have come to memory.
///
/// # Safety
///
/// `block` is null, or as [`own`] asks.
pub(super) unsafe fn arrived(block: *mut uvm_rust_flash_block, pages: &PageMask) {
    if !block.is_null() {
        // SAFETY: by this function's contract.
        unsafe { own(block) }.wants.arrived(pages);
    }
}

/// Notes that a reader has tried to fetch what was asked for, and whether that failed.
///
/// # Safety
///
/// `block` is as [`own`] asks.
pub(super) unsafe fn tried(block: *mut uvm_rust_flash_block, reader: Asks, failed: bool) {
    // SAFETY: by this function's contract.
    let own = unsafe { own(block) };
    let state = own.state.as_ref().map(|state| &state.pages);
    own.wants.tried(reader, failed, state);
    own.waits = None;
}

/// A read of `pages` pages for faults begins. Faults stop waiting once all of their pages are being read.
///
/// # Safety
///
/// `block` is as [`used`] asks.
pub(super) unsafe fn begins(block: *mut uvm_rust_flash_block, pages: u64) {
    if block.is_null() {
        return;
    }
    // SAFETY: by this function's contract.
    let own = unsafe { own(block) };
    let begins = |_: &mut Waits| match &own.state {
        Some(state) => !own.wants.has_to_begin(&state.pages),
        None => true,
    };
    if let Some(waits) = own.waits.take_if(begins) {
        waits.begin(pages);
    }
}

/// The first and last address of a va_block.
///
/// # Safety
///
/// The va_block exists, and its lock or that of its VA space is held, so that nobody splits it.
pub(super) unsafe fn span(of: *mut uvm_va_block_struct) -> bindings::uvm_rust_span {
    let mut span = bindings::uvm_rust_span::default();
    // SAFETY: by this function's contract; `span` is ours for the call.
    unsafe { bindings::uvm_seam_block_span(of, &mut span) };
    span
}
