// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls about who uses the tier. All of it takes the tier's lock.
//!
//! Invariants besides those of `ffi.rs`:
//!
//! - **I-owner**: a tenant outlives its va_blocks, and the tier its tenants. What is C's of a tenant
//!   outlives what is Rust's.
//! - **I-record**: the handles in the tier's state are of blocks and owners that are there, as their
//!   `destroy` takes them out first. Their records are looked at under the tier's lock only.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::block::{handle, known, Block};
use super::{bindings, flash, table_of};
use crate::driver::flash::{Counter, Tier};
use crate::policy::flash::pace::Ns;
use crate::policy::flash::pressure::Tried;
use crate::policy::flash::tier as policy;
use crate::policy::flash::tier::Records;
use bindings::{
    uvm_rust_flash_block, uvm_rust_flash_owner, uvm_rust_owner, uvm_rust_tier, uvm_seam_flash_dev,
    uvm_va_block_struct,
};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

crate::ffi::check_exports!(
    uvm_rust_tier_create,
    uvm_rust_tier_destroy,
    uvm_rust_tier_device,
    uvm_rust_tier_parked,
    uvm_rust_tier_kick,
    uvm_rust_owner_create,
    uvm_rust_owner_destroy,
    uvm_rust_owner_must_wait,
    uvm_rust_owner_asking,
    uvm_rust_owner_fetched,
);

const _: () = assert!(policy::FETCHERS_EACH == bindings::UVM_RUST_FLASH_FETCHERS_EACH);

pub(super) type Record = policy::Block<BlockHandle, OwnerHandle>;
/// The tier, over what the records are found by here.
pub(super) type State = policy::Tier<BlockHandle, OwnerHandle, DeviceHandle>;

/// Names what is known of a va_block.
#[derive(Clone, Copy)]
pub(crate) struct BlockHandle(pub(super) NonNull<Block>);

/// Names what is known of a tenant.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct OwnerHandle(NonNull<Owner>);

/// Names an open device. The tier does not look into it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct DeviceHandle(*mut uvm_seam_flash_dev);

// SAFETY: what it names is used by whoever has the lock that protects it, on any CPU.
unsafe impl Send for BlockHandle {}
// SAFETY: as above.
unsafe impl Send for OwnerHandle {}
// SAFETY: as above.
unsafe impl Send for DeviceHandle {}

/// What is known of a tenant.
pub(super) struct Owner {
    tier: *mut uvm_rust_tier,
    seam: *mut uvm_rust_flash_owner,
    /// To the table: a number that no other tenant ever gets.
    key: u64,
    /// Looked at under the tier's lock only.
    record: UnsafeCell<policy::Owner<BlockHandle, OwnerHandle>>,
}

impl OwnerHandle {
    /// # Safety
    ///
    /// I-own: `owner` came from [`uvm_rust_owner_create`].
    pub(super) unsafe fn new(owner: *mut uvm_rust_owner) -> Self {
        // SAFETY: by this function's contract it is not null.
        Self(unsafe { NonNull::new_unchecked(owner.cast()) })
    }

    /// What is C's of it.
    pub(super) fn seam(self) -> *mut uvm_rust_flash_owner {
        // SAFETY: handles are made of owners that are there, and kept no longer (I-owner).
        unsafe { self.0.as_ref() }.seam
    }

    pub(super) fn key(self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.key
    }

    /// Works on the tier's state, under its lock.
    ///
    /// # Safety
    ///
    /// The owner is there; what is given to `f` gets no handle but of what is there.
    pub(super) unsafe fn with<T>(self, f: impl FnOnce(&mut State, &mut Live) -> T) -> T {
        // SAFETY: by this function's contract, and I-owner.
        unsafe { with(self.0.as_ref().tier, f) }
    }
}

/// Finds the records, while the tier's lock is held.
pub(super) struct Live(());

impl Records for Live {
    type Block = BlockHandle;
    type Owner = OwnerHandle;

    fn block(&mut self, of: BlockHandle) -> &mut Record {
        // SAFETY: I-record; the lock is held as long as `self` is there, which is borrowed.
        unsafe { &mut *of.0.as_ref().record() }
    }

    fn owner(&mut self, of: OwnerHandle) -> &mut policy::Owner<BlockHandle, OwnerHandle> {
        // SAFETY: I-record; the lock is held as long as `self` is there, which is borrowed.
        unsafe { &mut *of.0.as_ref().record.get() }
    }

    fn hold(&mut self, of: BlockHandle) -> bool {
        // SAFETY: I-record: it is published, and its va_block is there, which destroys it before
        // it goes.
        unsafe { bindings::uvm_seam_va_block_hold(of.0.as_ref().of()) }
    }
}

/// # Safety
///
/// `tier` came from [`uvm_rust_tier_create`] and is not destroyed during `'a`.
unsafe fn of<'a>(tier: *mut uvm_rust_tier) -> &'a Tier {
    // SAFETY: by this function's contract; only shared references are made to it.
    unsafe { &*tier.cast::<Tier>() }
}

/// Works on the tier's state, under its lock.
///
/// # Safety
///
/// As [`of`]; what is given to `f` gets no handle but of what is there.
unsafe fn with<T>(tier: *mut uvm_rust_tier, f: impl FnOnce(&mut State, &mut Live) -> T) -> T {
    // SAFETY: by this function's contract.
    let mut state = unsafe { of(tier) }.state.lock();
    f(&mut state, &mut Live(()))
}

/// As [`with`]; gives the va_block of what `f` gives, with the reference that it took. It is looked up
/// under the lock: what is known of a va_block dies before its last reference goes.
///
/// # Safety
///
/// As [`with`].
unsafe fn take(
    tier: *mut uvm_rust_tier,
    f: impl FnOnce(&mut State, &mut Live) -> Option<BlockHandle>,
) -> *mut uvm_va_block_struct {
    // SAFETY: by this function's contract; I-record, and what the tier knows of is published.
    let of = |block: BlockHandle| unsafe { block.0.as_ref().of() };
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, live| f(state, live).map_or(null_mut(), of)) }
}

/// In milliseconds.
fn now() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bindings::uvm_seam_now() }
}

fn now_ns() -> Ns {
    // SAFETY: no preconditions.
    Ns(unsafe { bindings::uvm_seam_flash_now_us() }.saturating_mul(1000))
}

/// Wakes those for whom there is something to do.
fn kick(state: &State) {
    if state.device().is_none() {
        return;
    }
    let count = state.wakes(now());
    if count > 0 {
        // SAFETY: the tier's lock is held, and that many workers are there as long as the device is
        // attached.
        unsafe { bindings::uvm_seam_flash_wake(count) };
    }
}

/// Whether there is something to do for `dev`'s workers.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn goes_on_for(tier: *mut uvm_rust_tier, dev: *mut uvm_seam_flash_dev) -> bool {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.goes_on(DeviceHandle(dev), now())) }
}

/// The va_block to be spilled next, with a reference, or null.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn victim(tier: *mut uvm_rust_tier) -> *mut uvm_va_block_struct {
    // SAFETY: by this function's contract.
    unsafe { take(tier, State::victim) }
}

/// A try of one of `dev`'s workers ended so. Returns whether the worker ends.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn ended(
    tier: *mut uvm_rust_tier,
    dev: *mut uvm_seam_flash_dev,
    tried: Tried,
) -> bool {
    let end = |state: &mut State, _: &mut Live| {
        let ended = state.ended(DeviceHandle(dev), tried, now());
        if let Some(ms) = ended.again {
            // SAFETY: the tier's lock is held, and the device attached.
            unsafe { bindings::uvm_seam_flash_look_again(ms) };
        }
        ended.stops
    };
    // SAFETY: by this function's contract.
    unsafe { with(tier, end) }
}

/// The next time, all blocks are looked at.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn hope_for_all(tier: *mut uvm_rust_tier) {
    // SAFETY: by this function's contract.
    unsafe { with(tier, State::hope_for_all) };
}

/// The va_block that has had copies longest, of this tenant or, with 0, of anybody, with a reference; or
/// null. It has none from now on.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn oldest_copies(
    tier: *mut uvm_rust_tier,
    tenant: u64,
) -> *mut uvm_va_block_struct {
    let of = (tenant != 0).then_some(tenant);
    // SAFETY: by this function's contract.
    unsafe { take(tier, |state, live| state.oldest_copies(live, of)) }
}

/// A detaching begins; its number.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn detaching(tier: *mut uvm_rust_tier) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.detaching()) }
}

/// The next va_block that this detaching has not seen, with a reference; or null.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn unseen(tier: *mut uvm_rust_tier, detaching: u32) -> *mut uvm_va_block_struct {
    // SAFETY: by this function's contract.
    unsafe { take(tier, |state, live| state.unseen(live, detaching)) }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tier_create() -> *mut uvm_rust_tier {
    Tier::new().map_or(null_mut(), |tier| tier.into_foreign().cast_mut().cast())
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tier_destroy(tier: *mut uvm_rust_tier) {
    // SAFETY: I-own: it came from `into_foreign` and this is its one destroy.
    drop(unsafe { <Pin<KBox<Tier>> as ForeignOwnable>::from_foreign(tier.cast::<c_void>()) });
}

/// The tier; null without one.
pub(super) fn current() -> *mut uvm_rust_tier {
    // SAFETY: it is fixed from the module's init to its exit, between which all calls come.
    unsafe { bindings::uvm_rust_tier }
}

/// A device is there, for so many workers; with more than `limit` pages there is too little host memory.
///
/// # Safety
///
/// I-own for both: whoever calls keeps the device until [`detach`].
pub(super) unsafe fn attach(
    tier: *mut uvm_rust_tier,
    dev: *mut uvm_seam_flash_dev,
    limit: u64,
    workers: u32,
) {
    // SAFETY: by this function's contract.
    unsafe {
        with(tier, |state, _| {
            state.attach(DeviceHandle(dev), limit, workers)
        });
        of(tier).is_attached.store(true, Relaxed);
        with(tier, |state, _| kick(state));
    }
}

/// It is not from now on: no worker is woken any more.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn detach(tier: *mut uvm_rust_tier) {
    // SAFETY: by this function's contract.
    unsafe {
        of(tier).is_attached.store(false, Relaxed);
        with(tier, |state, _| state.detach());
    }
}

/// Whether a device is attached, now.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn has_device(tier: *mut uvm_rust_tier) -> bool {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.device().is_some()) }
}

/// How many spill to the attached device.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn workers(tier: *mut uvm_rust_tier) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.workers()) }
}

/// Pages of host memory, and the most since the device was attached.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn host(tier: *mut uvm_rust_tier) -> (u64, u64) {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.host()) }
}

/// The attached device, with a reference, or null.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn device(tier: *mut uvm_rust_tier) -> *mut uvm_seam_flash_dev {
    let get = |state: &mut State, _: &mut Live| {
        let DeviceHandle(dev) = state.device()?;
        // SAFETY: the caller of `attach` keeps it until it has been detached, for which the lock is
        // needed that is held.
        unsafe { bindings::uvm_seam_flash_dev_get(dev) };
        Some(dev)
    };
    // SAFETY: by this function's contract.
    unsafe { with(tier, get) }.unwrap_or(null_mut())
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tier_device(tier: *mut uvm_rust_tier) -> *mut uvm_seam_flash_dev {
    // SAFETY: I-own.
    unsafe { device(tier) }
}

/// Whether this is the attached device.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn is_attached(tier: *mut uvm_rust_tier, dev: *mut uvm_seam_flash_dev) -> bool {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.device() == Some(DeviceHandle(dev))) }
}

/// Adds to what is counted of the attached device, if there is one.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn count_of_device(tier: *mut uvm_rust_tier, counter: Counter, n: u64) {
    // SAFETY: by this function's contract; what is given is kept until it is put.
    unsafe {
        let dev = device(tier);
        if !dev.is_null() {
            flash(table_of(dev)).counters.add(counter, n);
            bindings::uvm_seam_flash_dev_put(dev);
        }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tier_parked(tier: *mut uvm_rust_tier, faults: u32) {
    // SAFETY: I-own.
    unsafe { count_of_device(tier, Counter::Parked, faults.into()) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tier_kick(tier: *mut uvm_rust_tier) {
    // SAFETY: I-own.
    unsafe { with(tier, |state, _| kick(state)) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_owner_create(
    tier: *mut uvm_rust_tier,
    seam: *mut uvm_rust_flash_owner,
) -> *mut uvm_rust_owner {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let key = KEYS.fetch_add(1, Relaxed) + 1;
    let owner = Owner {
        tier,
        seam,
        key,
        record: UnsafeCell::new(policy::Owner::new(key)),
    };
    let Ok(owner) = KBox::new(owner, GFP_KERNEL_ACCOUNT) else {
        return null_mut();
    };
    let owner = owner.into_foreign().cast_mut().cast::<uvm_rust_owner>();
    // SAFETY: it is there from now on; I-own for `tier`.
    unsafe {
        let owner = OwnerHandle::new(owner);
        owner.with(|state, live| state.add_owner(live, owner));
    }
    owner
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_owner_destroy(owner: *mut uvm_rust_owner) {
    // SAFETY: I-own: it came from `into_foreign` and this is its one destroy, after which the tier
    // knows nothing of it.
    unsafe {
        let handle = OwnerHandle::new(owner);
        handle.with(|state, live| state.remove_owner(live, handle));
        drop(<KBox<Owner> as ForeignOwnable>::from_foreign(
            owner.cast::<c_void>(),
        ));
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_owner_must_wait(owner: *mut uvm_rust_owner) -> bool {
    // SAFETY: I-own, and I-owner for the tier.
    unsafe {
        let owner = OwnerHandle::new(owner);
        of(owner.0.as_ref().tier).is_attached.load(Relaxed)
            && owner.with(|state, live| state.must_wait(live, owner))
    }
}

/// Whether the tenant may write by call again.
///
/// # Safety
///
/// The owner is there.
pub(super) unsafe fn may_write(owner: OwnerHandle) -> bool {
    // SAFETY: by this function's contract.
    unsafe { owner.with(|state, live| state.may_write(live, owner, now_ns())) }
}

/// The tenant has written so many bytes by call, at `mib` MiB a second.
///
/// # Safety
///
/// The owner is there.
pub(super) unsafe fn wrote(owner: OwnerHandle, bytes: u64, mib: u32) {
    // SAFETY: by this function's contract.
    unsafe { owner.with(|state, live| state.wrote(live, owner, now_ns(), bytes, mib)) };
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_owner_asking(owner: *mut uvm_rust_owner) -> *mut uvm_va_block_struct {
    // SAFETY: I-own.
    unsafe {
        let owner = OwnerHandle::new(owner);
        take(owner.0.as_ref().tier, |state, live| {
            state.next_asking(live, owner)
        })
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_owner_fetched(owner: *mut uvm_rust_owner, fetcher: u32) -> bool {
    // SAFETY: I-own.
    unsafe {
        let owner = OwnerHandle::new(owner);
        owner.with(|state, live| state.fetched(live, owner, fetcher))
    }
}

/// The block has so many pages of host memory; `used`: some have just come there. Wakes workers.
///
/// # Safety
///
/// I-own: it was published, and is not destroyed meanwhile.
pub(super) unsafe fn count(block: &Block, pages: u32, used: bool) {
    // SAFETY: by this function's contract, and I-owner.
    unsafe {
        block.owner().with(|state, live| {
            state.note(live, handle(block), pages, used);
            kick(state);
        });
    }
}

/// Some of its pages may be on flash as well now.
///
/// # Safety
///
/// Null, or I-own and I-lock: it was published, and is locked.
pub(super) unsafe fn note_copies(block: *mut uvm_rust_flash_block) {
    // SAFETY: by this function's contract.
    if unsafe { super::block::used(block) }.is_none_or(|s| s.pages.copies().is_empty()) {
        return;
    }
    // SAFETY: by this function's contract.
    unsafe {
        let block = known(block);
        block
            .owner()
            .with(|state, live| state.note_copies(live, handle(block)));
    }
}
