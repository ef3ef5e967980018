// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls about a va_block: what is known of it (`uvm_va_block_t.uvm_rust_flash`), which its
//! lock protects, but for what is the tier's.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::tier::{BlockHandle, OwnerHandle, Record};
use super::{bindings, flash, table_of};
use crate::driver::flash::Flash;
use crate::ffi::discard::{read, short, write};
use crate::policy::flash::tier;
use crate::policy::flash::wants::{Park, Wants};
use crate::policy::flash::BlockPages;
use crate::policy::mask::PageMask;
use bindings::{
    uvm_rust_flash_block, uvm_rust_flash_table, uvm_rust_mask, uvm_seam_flash_dev,
    uvm_va_block_struct,
};
use core::cell::UnsafeCell;
use core::ptr::{null_mut, NonNull};
use kernel::prelude::*;

crate::ffi::check_exports!(
    uvm_rust_flash_note,
    uvm_rust_flash_block_gone,
    uvm_rust_flash_block_use,
    uvm_rust_flash_block_is_used,
    uvm_rust_flash_pages,
    uvm_rust_flash_touched,
    uvm_rust_flash_forget,
    uvm_rust_flash_may_write,
    uvm_rust_flash_block_parks,
    uvm_rust_flash_block_ask,
    uvm_rust_flash_block_asked,
    uvm_rust_flash_block_tried,
);

/// A reference on an open device, and its table.
pub(super) struct Device {
    /// Invariant: this owns one of its references.
    dev: NonNull<uvm_seam_flash_dev>,
    /// Invariant: the device's, which has it until its last reference goes.
    table: *mut uvm_rust_flash_table,
}

impl Device {
    /// # Safety
    ///
    /// `dev` is an open device with a table, on which somebody has a reference.
    unsafe fn new(dev: NonNull<uvm_seam_flash_dev>) -> Self {
        // SAFETY: by this function's contract; given back by `Drop`.
        unsafe { bindings::uvm_seam_flash_dev_get(dev.as_ptr()) };
        Self {
            dev,
            // SAFETY: by this function's contract.
            table: unsafe { table_of(dev.as_ptr()) },
        }
    }

    pub(super) fn as_ptr(&self) -> *mut uvm_seam_flash_dev {
        self.dev.as_ptr()
    }

    pub(super) fn table(&self) -> &Flash {
        // SAFETY: by the type's invariants it is not destroyed as long as `self` is there.
        unsafe { flash(self.table) }
    }
}

impl Clone for Device {
    fn clone(&self) -> Self {
        // SAFETY: by the type's invariants.
        unsafe { Self::new(self.dev) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the reference is this one's, and the table is not used any more.
        unsafe { bindings::uvm_seam_flash_dev_put(self.dev.as_ptr()) };
    }
}

/// Which pages are on a device. Gives their places back when it is dropped.
pub(super) struct State {
    pub(super) pages: BlockPages,
    device: Device,
}

impl State {
    /// Whether it is of this device.
    pub(super) fn is_on(&self, dev: *mut uvm_seam_flash_dev) -> bool {
        self.device.dev.as_ptr() == dev
    }

    pub(super) fn split(&mut self) -> (&mut BlockPages, &Flash) {
        (&mut self.pages, self.device.table())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.pages.release(&mut self.device.table().table.lock());
    }
}

/// What the va_block's lock protects.
#[derive(Default)]
struct Own {
    wants: Wants,
    /// None until its first spill.
    state: Option<KBox<State>>,
}

/// What is known of a va_block.
pub(super) struct Block {
    owner: OwnerHandle,
    /// Looked at under the tier's lock only.
    record: UnsafeCell<Record>,
    /// Null until it is published, and fixed from then on.
    of: UnsafeCell<*mut uvm_va_block_struct>,
    own: UnsafeCell<Own>,
}

impl Block {
    /// In memory of its own, which [`free`] gives back.
    fn new(owner: OwnerHandle) -> Option<NonNull<Self>> {
        let size = core::mem::size_of::<Self>() as u64;
        // SAFETY: the owner's C part outlives it, and so does the owner its blocks (I-owner).
        let memory = unsafe { bindings::uvm_seam_flash_block_alloc(owner.seam(), size) };
        let block = NonNull::new(memory.cast::<Self>())?;
        let new = Self {
            owner,
            record: UnsafeCell::new(tier::Block::new(owner)),
            of: UnsafeCell::new(null_mut()),
            own: UnsafeCell::default(),
        };
        // SAFETY: it is memory of this size that nobody else has, aligned as the slab allocator's is.
        unsafe { block.write(new) };
        Some(block)
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
/// `block` came from [`Block::new`] and is not used again; the tier knows nothing of it.
pub(super) unsafe fn free(block: NonNull<Block>) {
    // SAFETY: by this function's contract; what `new` wrote is dropped once.
    unsafe {
        block.drop_in_place();
        bindings::uvm_seam_flash_block_free(block.as_ptr().cast());
    }
}

/// # Safety
///
/// I-own: `block` came from [`Block::new`] and is not destroyed during `'a`.
pub(super) unsafe fn known<'a>(block: *mut uvm_rust_flash_block) -> &'a Block {
    // SAFETY: by this function's contract; only shared references are made to the whole.
    unsafe { &*block.cast::<Block>() }
}

pub(super) fn handle(block: &Block) -> BlockHandle {
    BlockHandle(NonNull::from(block))
}

/// # Safety
///
/// As [`known`], and the va_block's lock is held for `'a`; one such reference exists at a time.
unsafe fn own<'a>(block: *mut uvm_rust_flash_block) -> &'a mut Own {
    // SAFETY: by this function's contract nobody else uses it.
    unsafe { &mut *known(block).own.get() }
}

/// The state of the pages; `None` if nothing is known of the block, or it has none.
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

/// What is known of the va_block from now on.
///
/// # Safety
///
/// `slot` is that of `of`, empty, and its lock is held; `block` came from [`Block::new`], and nobody else
/// knows of it.
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

/// Nothing is known of the va_block from now on, if anything was.
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

/// Counts the host memory of a va_block; `used`: some has just come there.
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
            let owner = OwnerHandle::new(bindings::uvm_seam_flash_owner(of));
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

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_block_use(
    block: *mut uvm_rust_flash_block,
    dev: *mut uvm_seam_flash_dev,
    pages: u32,
) -> bool {
    // SAFETY: I-own and I-lock.
    let own = unsafe { own(block) };
    let Some(dev) = NonNull::new(dev) else {
        return false;
    };
    // Of a device that is gone, for which it holds nothing.
    let of_another = |s: &mut KBox<State>| s.device.dev != dev && s.pages.is_idle();
    drop(own.state.take_if(of_another));
    if own.state.is_none() {
        let new = || State {
            pages: BlockPages::new(short(pages)),
            // SAFETY: I-call: the caller has a reference on the device.
            device: unsafe { Device::new(dev) },
        };
        // A tenant whose memory cgroup is full is spilled all the same.
        let charged = KBox::new(new(), GFP_KERNEL_ACCOUNT);
        own.state = charged.or_else(|_| KBox::new(new(), GFP_KERNEL)).ok();
    }
    own.state.as_ref().is_some_and(|s| s.device.dev == dev)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_block_is_used(block: *mut uvm_rust_flash_block) -> bool {
    // SAFETY: null, or I-own and I-lock.
    unsafe { used(block) }.is_some()
}

/// The device of its state, which keeps it; null without.
///
/// # Safety
///
/// As [`used`].
pub(super) unsafe fn device(block: *mut uvm_rust_flash_block) -> *mut uvm_seam_flash_dev {
    // SAFETY: by this function's contract.
    unsafe { used(block) }.map_or(null_mut(), |s| s.device.dev.as_ptr())
}

/// A reference on the device of its state; `None` without.
///
/// # Safety
///
/// As [`used`].
pub(super) unsafe fn device_of(block: *mut uvm_rust_flash_block) -> Option<Device> {
    // SAFETY: by this function's contract.
    unsafe { used(block) }.map(|s| s.device.clone())
}

/// Forgets the state if nothing is known of the pages.
///
/// # Safety
///
/// As [`used`].
pub(super) unsafe fn drop_idle(block: *mut uvm_rust_flash_block) {
    if !block.is_null() {
        // SAFETY: by this function's contract.
        drop(unsafe { own(block) }.state.take_if(|s| s.pages.is_idle()));
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_pages(
    block: *mut uvm_rust_flash_block,
    set: u32,
    out: *mut uvm_rust_mask,
) -> bool {
    // SAFETY: null, or I-own and I-lock.
    let Some(State { pages: block, .. }) = (unsafe { used(block) }) else {
        return false;
    };
    let pages = match set {
        bindings::UVM_RUST_FLASH_ON_FLASH => block.on_flash(),
        bindings::UVM_RUST_FLASH_IN_FLIGHT => block.in_flight(),
        bindings::UVM_RUST_FLASH_LOST => block.lost(),
        bindings::UVM_RUST_FLASH_SPILLING => block.spilling(),
        bindings::UVM_RUST_FLASH_COPIES => block.copies(),
        _ => PageMask::EMPTY,
    };
    // SAFETY: I-call.
    unsafe { write(out, &pages) }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_touched(
    block: *mut uvm_rust_flash_block,
    pages: *const uvm_rust_mask,
) {
    // SAFETY: null, or I-own and I-lock, for `block`; I-call for `pages`.
    let (state, pages) = unsafe { (used(block), read(pages)) };
    if let Some(state) = state {
        state.pages.touched(&pages);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_forget(
    block: *mut uvm_rust_flash_block,
    pages: *const uvm_rust_mask,
) {
    // SAFETY: null, or I-own and I-lock, for `block`; I-call for `pages`.
    let (state, pages) = unsafe { (used(block), read(pages)) };
    if let Some(state) = state {
        let (block, flash) = state.split();
        block.forget(&mut flash.table.lock(), &pages);
    }
}

/// Gives up the copies of `pages`, and returns how many there were.
pub(super) fn give_up(state: &mut State, pages: &PageMask) -> u32 {
    let (block, flash) = state.split();
    let copies = block.copies() & *pages;
    // Nearly always there is none, and the mutex is not needed.
    if !copies.is_empty() {
        block.may_write(&mut flash.table.lock(), &copies);
    }
    copies.count().into()
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_may_write(
    block: *mut uvm_rust_flash_block,
    pages: *const uvm_rust_mask,
) {
    // SAFETY: null, or I-own and I-lock, for `block`; I-call for `pages`.
    let (state, pages) = unsafe { (used(block), read(pages)) };
    if let Some(state) = state {
        give_up(state, &pages);
    }
}

/// Prepares a split at page `at`: gives what the upper half is to be, which is not published, or `None`
/// without memory, and then nothing has changed but that a write has ended.
///
/// # Safety
///
/// As [`own`]; it has a state.
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

/// Moves the state of the pages from `at` on to `upper`, which [`cut`] gave.
///
/// # Safety
///
/// As [`own`] for the first; the other is known to nobody.
pub(super) unsafe fn share(block: *mut uvm_rust_flash_block, at: u32, upper: NonNull<Block>) {
    // SAFETY: by this function's contract; they are not the same.
    let (state, upper) = unsafe { (used(block), used(upper.as_ptr().cast())) };
    if let (Some(state), Some(upper)) = (state, upper) {
        let (pages, flash) = state.split();
        upper.pages = pages.split(&mut flash.table.lock(), short(at));
    }
}

/// Asks for `pages`, which are on flash, and has somebody told.
///
/// # Safety
///
/// As [`own`].
unsafe fn ask(block: *mut uvm_rust_flash_block, pages: &PageMask) {
    // SAFETY: by this function's contract.
    let (block, own) = unsafe { (known(block), own(block)) };
    if !own.wants.ask(pages) {
        return;
    }
    // SAFETY: the owner outlives its blocks (I-owner).
    let woken = unsafe { block.owner.with(|tier, live| tier.ask(live, handle(block))) };
    if let Some(fetcher) = woken {
        // SAFETY: so does its C part.
        unsafe { bindings::uvm_seam_flash_fetch(block.owner.seam(), fetcher) };
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_block_parks(
    block: *mut uvm_rust_flash_block,
    pages: *const uvm_rust_mask,
) -> bool {
    if block.is_null() {
        return false;
    }
    // SAFETY: I-own and I-lock for `block`; I-call for `pages`.
    let (own, pages) = unsafe { (own(block), read(pages)) };
    let Some(state) = &own.state else {
        return false;
    };
    match own.wants.park(&state.pages, &pages) {
        Park::No => false,
        Park::Wait => true,
        Park::Ask(wanted) => {
            // SAFETY: I-own and I-lock; the references above are not used any more.
            unsafe { ask(block, &wanted) };
            true
        }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_block_ask(
    block: *mut uvm_rust_flash_block,
    pages: *const uvm_rust_mask,
) {
    // SAFETY: I-own and I-lock for `block`; I-call for `pages`.
    unsafe { ask(block, &read(pages)) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_block_asked(
    block: *mut uvm_rust_flash_block,
    out: *mut uvm_rust_mask,
) {
    // SAFETY: I-own and I-lock for `block`; I-call for `out`.
    unsafe { write(out, &own(block).wants.asked()) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_block_tried(block: *mut uvm_rust_flash_block, failed: bool) {
    // SAFETY: I-own and I-lock.
    unsafe { own(block) }.wants.tried(failed);
}
