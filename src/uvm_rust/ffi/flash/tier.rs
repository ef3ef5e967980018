// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Calls on the tier, each under the tier's lock.
//!
//! Invariants besides those of `ffi.rs`:
//!
//! - **I-owner**: a tenant outlives its va_blocks, and the tier outlives its tenants.
//! - **I-record**: the handles in the tier's state are of blocks and owners that exist, because their end takes them
//!   out first. Their records are read and written under the tier's lock only.

use super::asked::Fetcher;
use super::block::{handle, known, Block};
use super::dev::Dev;
use super::{bindings, workers};
use crate::driver::flash::{Counter, Tier};
use crate::ffi::time::{now, now_us};
use crate::ffi::work::WorkQueue;
use crate::policy::flash::pace::Ns;
use crate::policy::flash::pressure::Tried;
use crate::policy::flash::queue::{Way, AT_WORK};
use crate::policy::flash::tier as policy;
use crate::policy::flash::tier::Records;
use crate::policy::flash::turn::{Ticket, Turns};
use crate::policy::flash::wants::Asks;
use bindings::{mem_cgroup, uvm_rust_flash_block, uvm_va_block_struct};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use kernel::prelude::*;
use kernel::sync::{new_condvar, new_mutex, Arc, CondVar, CondVarTimeoutResult, Mutex};
use kernel::time::Jiffies;
use kernel::types::ForeignOwnable;

/// After how long a thread that waits for a turn looks again without being told. A suspend may wait for so long.
const TURN_JIFFIES: Jiffies = 100;

pub(super) type Record = policy::Block<BlockHandle, OwnerHandle>;
/// The tier's state, over the handles of this module.
pub(super) type State = policy::Tier<BlockHandle, OwnerHandle, DeviceHandle>;

/// A handle of a va_block's record.
#[derive(Clone, Copy)]
pub(crate) struct BlockHandle(pub(super) NonNull<Block>);

/// A handle of a tenant's record.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct OwnerHandle(NonNull<Owner>);

/// A handle of an open device, opaque to the tier. That of the attached device was made of a reference.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct DeviceHandle(*const Dev);

// SAFETY: what it names is used by whoever has the lock that protects it, on any CPU.
unsafe impl Send for BlockHandle {}
// SAFETY: as above.
unsafe impl Send for OwnerHandle {}
// SAFETY: as above.
unsafe impl Send for DeviceHandle {}

/// A tenant, as the SSD tier knows it.
#[pin_data]
pub(crate) struct Owner {
    tier: *const Tier,
    /// The memory cgroup that pays for its memory; its tenant keeps the cgroup.
    group: *mut mem_cgroup,
    /// The tenant's number in tables, which no other tenant ever gets.
    key: u64,
    /// Read and written under the tier's lock only.
    record: UnsafeCell<policy::Owner<BlockHandle, OwnerHandle>>,
    /// The readers for its GPU faults and for its calls. Fixed once the owner exists.
    fetchers: UnsafeCell<[Fetcher; policy::ALL_EACH as usize]>,
    /// Whose turn it is to write by `UVM_RUST_FLASH_MOVE`. A call holds its turn from the check of the tenant's rate
    /// until it has counted what it wrote; otherwise all threads would check before the first has counted. The turn
    /// is outside all other locks, and this mutex inside all.
    #[pin]
    turns: Mutex<Turns>,
    #[pin]
    turn: CondVar,
    /// How many VA spaces use `lanes`. The queues exist while any does.
    #[pin]
    movers: Mutex<u32>,
    /// The work queues that carry out its requests, by way; made and ended under the lock of `movers`.
    lanes: [WorkQueue; 2],
    /// Whether the tenant is about to go. Its readers then wait neither for a turn with the device nor for a set of
    /// buffers; a read that has begun is waited for. Once true, it stays so.
    ending: AtomicBool,
}

impl Owner {
    /// Makes a tenant of this user, which `group` pays for.
    ///
    /// # Safety
    ///
    /// The tier and the group outlive the result, which [`Owner::destroy`] ends.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(in crate::ffi) unsafe fn create(
        tier: *const Tier,
        group: *mut mem_cgroup,
        user: u32,
    ) -> Result<NonNull<Self>> {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let key = KEYS.fetch_add(1, Relaxed) + 1;
        let record = UnsafeCell::new(policy::Owner::new(key, user));
        let owner = KBox::pin_init(
            pin_init!(Self {
                tier,
                group,
                key,
                record,
                fetchers: UnsafeCell::new([const { Fetcher::none() }; policy::ALL_EACH as usize]),
                turns <- new_mutex!(Turns::default()),
                turn <- new_condvar!(),
                movers <- new_mutex!(0),
                lanes: [const { WorkQueue::none() }; 2],
                ending: AtomicBool::new(false),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let owner = owner.into_foreign().cast_mut().cast::<Self>();
        // SAFETY: it is there from now on, and nobody else knows of it before the tier does; by this function's
        // contract for the tier.
        unsafe {
            let handle = OwnerHandle::new(owner);
            for (number, fetcher) in (0..).zip(&mut *(*owner).fetchers.get()) {
                if let Err(failed) = fetcher.begin(handle, number) {
                    drop(<Pin<KBox<Self>> as ForeignOwnable>::from_foreign(
                        owner.cast(),
                    ));
                    return Err(failed);
                }
            }
            handle.with(|state, live| state.add_owner(live, handle));
            Ok(handle.0)
        }
    }

    /// Stops the owner's fetchers, takes the owner out of the tier, and frees it.
    ///
    /// # Safety
    ///
    /// I-own: `owner` came from [`Owner::create`], and this is its one end; it has no block any more.
    pub(in crate::ffi) unsafe fn destroy(owner: *mut Self) {
        // SAFETY: by this function's contract. Once its fetchers have stopped, which no block wakes any more,
        // and the tier knows nothing of it, nobody does.
        unsafe {
            let handle = OwnerHandle::new(owner);
            (*owner).ending.store(true, Relaxed);
            (*(*owner).fetchers.get()).iter().for_each(Fetcher::stop);
            handle.with(|state, live| state.remove_owner(live, handle));
            drop(<Pin<KBox<Self>> as ForeignOwnable>::from_foreign(
                owner.cast(),
            ));
        }
    }
}

impl Owner {
    /// Waits for a turn; `None` if a signal has come, or if `is_stopped` says so. Whoever makes `is_stopped` true
    /// calls [`Owner::look_again`]. Sleeps, with no lock held.
    pub(super) fn take_turn(&self, is_stopped: impl Fn() -> bool) -> Option<Ticket> {
        let mut turns = self.turns.lock();
        let mut ticket = None;
        loop {
            ticket = ticket.or_else(|| turns.come());
            if let Some(ticket) = ticket.filter(|ticket| turns.is(*ticket)) {
                return Some(ticket);
            }
            let stops = is_stopped() || {
                let woken = self
                    .turn
                    .wait_interruptible_timeout(&mut turns, TURN_JIFFIES);
                matches!(woken, CondVarTimeoutResult::Signal { .. })
            };
            if stops {
                if ticket.is_some_and(|ticket| turns.leave(ticket)) {
                    self.turn.notify_all();
                }
                return None;
            }
        }
    }

    /// Wakes the threads that wait for a turn, so that they look again.
    pub(super) fn look_again(&self) {
        // Under the lock, so that no thread is between its look and its wait.
        let _turns = self.turns.lock();
        self.turn.notify_all();
    }

    /// The work queue of all lanes of a way.
    pub(super) fn queue_of(&self, way: Way) -> &WorkQueue {
        let [out, into] = &self.lanes;
        match way {
            Way::Out => out,
            Way::In => into,
        }
    }

    /// Makes the work queues of the lanes, unless they exist. `has` notes for the VA space that it uses them until
    /// [`Owner::end_lanes`].
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is no memory for them.
    pub(super) fn make_lanes(&self, has: &AtomicBool) -> Result {
        let mut movers = self.movers.lock();
        if has.load(Relaxed) {
            return Ok(());
        }
        let missing = Way::ALL
            .into_iter()
            .filter(|&way| !self.queue_of(way).is_made());
        for way in missing {
            if let Err(failed) = self.queue_of(way).make(c"uvm-rust-move", AT_WORK) {
                // SAFETY: a queue is only missing where no VA space has them, so nothing is queued there.
                self.lanes.iter().for_each(|lane| unsafe { lane.end() });
                return Err(failed);
            }
        }
        *movers += 1;
        has.store(true, Release);
        Ok(())
    }

    /// Gives the work queues back for a VA space that ends, and of which nothing is queued any more. The last VA
    /// space destroys the queues. This sleeps under a lock that no worker takes, so the caller holds no VA space's
    /// lock, which the workers take.
    pub(super) fn end_lanes(&self, has: &AtomicBool) {
        let mut movers = self.movers.lock();
        if !has.swap(false, Relaxed) {
            return;
        }
        *movers -= 1;
        if *movers == 0 {
            // SAFETY: the last VA space that has them ends, of which nothing is queued any more.
            self.lanes.iter().for_each(|lane| unsafe { lane.end() });
        }
    }

    /// Ends the turn of this ticket, and wakes the next in line.
    pub(super) fn end_turn(&self, ticket: Ticket) {
        if self.turns.lock().leave(ticket) {
            self.turn.notify_all();
        }
    }
}

impl OwnerHandle {
    /// # Safety
    ///
    /// I-own: `owner` came from [`Owner::create`].
    pub(in crate::ffi) unsafe fn new(owner: *mut Owner) -> Self {
        // SAFETY: by this function's contract it is not null.
        Self(unsafe { NonNull::new_unchecked(owner) })
    }

    /// The owner behind the handle.
    ///
    /// # Safety
    ///
    /// The owner lives for `'a`.
    pub(super) unsafe fn get<'a>(self) -> &'a Owner {
        // SAFETY: by this function's contract; only shared references are made.
        unsafe { self.0.as_ref() }
    }

    /// The memory cgroup that pays for the tenant's memory.
    pub(super) fn group(self) -> *mut mem_cgroup {
        // SAFETY: handles are made of owners that are there, and kept no longer (I-owner).
        unsafe { self.0.as_ref() }.group
    }

    pub(super) fn key(self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.key
    }

    /// Whether the tenant is about to go.
    pub(super) fn is_ending(self) -> bool {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.ending.load(Relaxed)
    }

    /// Works on the tier's state, under its lock.
    ///
    /// # Safety
    ///
    /// The owner exists; `f` puts no handle into the state but of what exists.
    pub(super) unsafe fn with<T>(self, f: impl FnOnce(&mut State, &mut Live) -> T) -> T {
        // SAFETY: by this function's contract, and I-owner.
        unsafe { with(self.0.as_ref().tier, f) }
    }
}

/// Access to the records behind handles, while the tier's lock is held.
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
/// `tier` is what [`current`] gave, not null, during `'a`.
unsafe fn of<'a>(tier: *const Tier) -> &'a Tier {
    // SAFETY: by this function's contract; only shared references are made to it.
    unsafe { &*tier }
}

/// Works on the tier's state, under its lock.
///
/// # Safety
///
/// As [`of`]; `f` puts no handle into the state but of what exists.
unsafe fn with<T>(tier: *const Tier, f: impl FnOnce(&mut State, &mut Live) -> T) -> T {
    // SAFETY: by this function's contract.
    let mut state = unsafe { of(tier) }.state.lock();
    f(&mut state, &mut Live(()))
}

/// As [`with`]; returns the va_block of the block that `f` returns, with the reference that `f` took. The va_block is
/// looked up under the lock, because a va_block's record dies before its last reference goes.
///
/// # Safety
///
/// As [`with`].
unsafe fn take(
    tier: *const Tier,
    f: impl FnOnce(&mut State, &mut Live) -> Option<BlockHandle>,
) -> *mut uvm_va_block_struct {
    // SAFETY: by this function's contract; I-record, and what the tier knows of is published.
    let of = |block: BlockHandle| unsafe { block.0.as_ref().of() };
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, live| f(state, live).map_or(null_mut(), of)) }
}

fn now_ns() -> Ns {
    Ns(now_us().saturating_mul(1000))
}

/// Wakes as many workers as there is work for.
fn kick(state: &State) {
    if state.device().is_none() {
        return;
    }
    let count = state.wakes(now());
    if count > 0 {
        // SAFETY: the tier's lock is held, and a device attached.
        unsafe { workers::wake(count) };
    }
}

/// Whether `dev`'s workers have something to do.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn goes_on_for(tier: *const Tier, dev: &Dev) -> bool {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.goes_on(DeviceHandle(dev), now())) }
}

/// Whether too much host memory is in use, so that somebody may wait for what is spilled.
///
/// # Safety
///
/// `tier` is what [`current`] gave, not null.
pub(super) unsafe fn is_short(tier: *const Tier) -> bool {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.is_short()) }
}

/// The va_block to be spilled next, with a reference, or null.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn victim(tier: *const Tier) -> *mut uvm_va_block_struct {
    // SAFETY: by this function's contract.
    unsafe { take(tier, State::victim) }
}

/// Tells the tier how a try of one of `dev`'s workers ended. Returns whether the worker stops for now.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn ended(tier: *const Tier, dev: &Dev, tried: Tried) -> bool {
    let end = |state: &mut State, _: &mut Live| {
        let ended = state.ended(DeviceHandle(dev), tried, now());
        if let Some(ms) = ended.again {
            // SAFETY: the tier's lock is held, and the device attached.
            unsafe { workers::look_again(ms) };
        }
        ended.stops
    };
    // SAFETY: by this function's contract.
    unsafe { with(tier, end) }
}

/// Has the next search look at all blocks again.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn hope_for_all(tier: *const Tier) {
    // SAFETY: by this function's contract.
    unsafe { with(tier, State::hope_for_all) };
}

/// The va_block that has had copies longest, of this tenant or, with 0, of any, with a reference; or null. To the
/// tier the block has no copies from now on.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn oldest_copies(tier: *const Tier, tenant: u64) -> *mut uvm_va_block_struct {
    let of = (tenant != 0).then_some(tenant);
    // SAFETY: by this function's contract.
    unsafe { take(tier, |state, live| state.oldest_copies(live, of)) }
}

/// Begins a detaching. Returns its number.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn detaching(tier: *const Tier) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.detaching()) }
}

/// The next va_block that this detaching has not seen yet, with a reference; or null.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn unseen(tier: *const Tier, detaching: u32) -> *mut uvm_va_block_struct {
    // SAFETY: by this function's contract.
    unsafe { take(tier, |state, live| state.unseen(live, detaching)) }
}

/// The tier while the module is loaded with one, else null.
static TIER: AtomicPtr<Tier> = AtomicPtr::new(null_mut());

/// The tier; null without one.
pub(crate) fn current() -> *const Tier {
    TIER.load(Acquire)
}

/// Makes the tier; without memory there will be none.
pub(super) fn create() {
    if let Ok(tier) = Tier::new() {
        TIER.store(tier.into_foreign().cast_mut().cast(), Release);
    }
}

/// Frees the tier, if there is one.
///
/// # Safety
///
/// All owners are gone, and no device is attached.
pub(super) unsafe fn destroy() {
    let tier = TIER.swap(null_mut(), AcqRel);
    if !tier.is_null() {
        // SAFETY: it came from `into_foreign`, and nobody uses it any more.
        drop(unsafe { <Pin<KBox<Tier>> as ForeignOwnable>::from_foreign(tier.cast::<c_void>()) });
    }
}

/// Attaches a device with `workers` workers. More than `limit` pages of host memory are too many from now on.
///
/// # Safety
///
/// As [`of`]; no device is attached.
pub(super) unsafe fn attach(tier: *const Tier, dev: Arc<Dev>, limit: u64, workers: u32) {
    let dev = DeviceHandle(Arc::into_raw(dev));
    // SAFETY: by this function's contract.
    unsafe {
        with(tier, |state, _| state.attach(dev, limit, workers));
        of(tier).is_attached.store(true, Relaxed);
        with(tier, |state, _| kick(state));
    }
}

/// Detaches the device: no worker is woken from now on.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn detach(tier: *const Tier) {
    let leave = |state: &mut State, _: &mut Live| {
        let dev = state.device();
        state.detach();
        dev
    };
    // SAFETY: by this function's contract; what the tier had is that of `attach`, and nobody finds it any more.
    // It is let go without the lock.
    unsafe {
        of(tier).is_attached.store(false, Relaxed);
        drop(with(tier, leave).map(|DeviceHandle(dev)| Arc::from_raw(dev)));
    }
}

/// Sets which device there is, attached (`true`) or leaving; or none.
///
/// # Safety
///
/// `tier` is what [`current`] gave, not null, and the lock of attaching is held in write mode.
pub(super) unsafe fn set_there(tier: *const Tier, dev: Option<(Arc<Dev>, bool)>) {
    // SAFETY: by this function's contract.
    let before = unsafe { core::mem::replace(&mut *of(tier).there.lock(), dev) };
    // Outside the lock, which was released at the end of the statement above.
    drop(before);
}

/// The device that is attached or leaving, and whether it is attached. Both stay so while the attach lock is held.
///
/// # Safety
///
/// `tier` is what [`current`] gave, not null.
pub(super) unsafe fn there(tier: *const Tier) -> Option<(Arc<Dev>, bool)> {
    // SAFETY: by this function's contract.
    let there = unsafe { of(tier) }.there.lock();
    there.clone()
}

/// Whether a device is attached now.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn has_device(tier: *const Tier) -> bool {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.device().is_some()) }
}

/// How many workers spill to the attached device.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn workers(tier: *const Tier) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.workers()) }
}

/// How many pages of host memory count now, and the most since the device was attached.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn host(tier: *const Tier) -> (u64, u64) {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.host()) }
}

/// The attached device; `None` without.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn device(tier: *const Tier) -> Option<Arc<Dev>> {
    let get = |state: &mut State, _: &mut Live| {
        let DeviceHandle(dev) = state.device()?;
        // SAFETY: the tier's reference, which `attach` made this of, is there as long as the lock is held, and
        // stays the tier's.
        let dev = ManuallyDrop::new(unsafe { Arc::from_raw(dev) });
        Some(Arc::clone(&dev))
    };
    // SAFETY: by this function's contract.
    unsafe { with(tier, get) }
}

/// Whether `dev` is the attached device.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn is_attached(tier: *const Tier, dev: &Dev) -> bool {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| state.device() == Some(DeviceHandle(dev))) }
}

/// Adds `n` to a counter of the attached device, if there is one.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn count_of_device(tier: *const Tier, counter: Counter, n: u64) {
    // SAFETY: by this function's contract.
    if let Some(dev) = unsafe { device(tier) } {
        dev.counts(counter, n);
    }
}

/// Wakes the workers if they have something to do.
///
/// # Safety
///
/// As [`of`].
pub(super) unsafe fn kick_workers(tier: *const Tier) {
    // SAFETY: by this function's contract.
    unsafe { with(tier, |state, _| kick(state)) };
}

/// Has the trimming work look at `dev` in `ms` milliseconds, while `dev` is attached, unless that is queued already.
///
/// # Safety
///
/// The contract is that of [`of`].
pub(super) unsafe fn trim_in(tier: *const Tier, dev: &Dev, ms: u64) {
    if dev.is_looked_after(true) {
        return;
    }
    let queue = |state: &mut State, _: &mut Live| {
        if state.device() == Some(DeviceHandle(dev)) {
            // SAFETY: the tier's lock is held, and a device attached.
            unsafe { workers::trim_in(ms) };
        }
    };
    // SAFETY: by this function's contract.
    unsafe { with(tier, queue) };
}

/// Whether the tenant must wait: too much host memory is in use, the tenant has its share of it, and waiting may
/// help.
///
/// # Safety
///
/// The owner is there.
pub(super) unsafe fn must_wait(owner: OwnerHandle) -> bool {
    // SAFETY: by this function's contract, and I-owner for the tier.
    unsafe {
        of(owner.get().tier).is_attached.load(Relaxed)
            && owner.with(|state, live| state.must_wait(live, owner))
    }
}

/// Whether a reader for `asks` must leave host memory to others.
///
/// # Safety
///
/// The owner is there.
pub(super) unsafe fn lacks_room(owner: OwnerHandle, asks: Asks) -> bool {
    // SAFETY: by this function's contract.
    unsafe { owner.with(|state, live| state.lacks_room(live, owner, asks)) }
}

/// Notes that the tenant writes nothing any more. Its excess over its rate is kept for the next owner that is the
/// same tenant.
///
/// # Safety
///
/// The owner is there.
pub(in crate::ffi) unsafe fn tenant_leaves(owner: OwnerHandle) {
    // SAFETY: by this function's contract.
    unsafe { owner.with(|state, live| state.owner_leaves(live, owner)) };
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

/// Counts bytes that the tenant has written by call, at a rate of `mib` MiB a second.
///
/// # Safety
///
/// The owner is there.
pub(super) unsafe fn wrote(owner: OwnerHandle, bytes: u64, mib: u32) {
    // SAFETY: by this function's contract.
    unsafe { owner.with(|state, live| state.wrote(live, owner, now_ns(), bytes, mib)) };
}

/// Of the tenant's blocks that this fetcher reads, the one that asked first, with a reference; or null.
///
/// # Safety
///
/// The owner is there.
pub(super) unsafe fn asking(owner: OwnerHandle, number: u32) -> *mut uvm_va_block_struct {
    // SAFETY: by this function's contract.
    unsafe {
        take(owner.get().tier, |state, live| {
            state.next_asking(live, owner, number)
        })
    }
}

/// Tells the tier that a fetcher is done with its block. Returns whether there is more.
///
/// # Safety
///
/// The owner is there.
pub(super) unsafe fn fetched(owner: OwnerHandle, fetcher: u32) -> bool {
    // SAFETY: by this function's contract.
    unsafe { owner.with(|state, live| state.fetched(live, owner, fetcher)) }
}

/// Notes that pages of the block are asked for, and wakes a sleeping reader of the tenant.
///
/// # Safety
///
/// I-own: the block was published, and is not destroyed meanwhile.
pub(super) unsafe fn ask(block: &Block, asks: Asks) {
    let owner = block.owner();
    // SAFETY: by this function's contract, and I-owner.
    unsafe {
        let woken = owner.with(|state, live| state.ask(live, handle(block), asks));
        let fetchers = &*owner.get().fetchers.get();
        if let Some(fetcher) = woken.and_then(|n| fetchers.get(n as usize)) {
            fetcher.wake();
        }
    }
}

/// Counts the block's pages of host memory; `used`: some have just come there. Wakes workers.
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

/// Notes that some of the block's pages may also be on flash now.
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
