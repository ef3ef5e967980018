// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Moving a range by call: the machine of `policy/flash/moves.rs`.

use super::attach::Reading;
use super::block::{ask, came, known_of, on_flash, only_host, pages_of, span};
use super::chosen::Chosen;
use super::io::Io;
use super::room::owner_of;
use super::spill::move_out;
use super::tier::{
    count_of_device, current, device, has_device, may_write, must_wait, wrote, OwnerHandle,
};
use super::{bindings, READERS};
use crate::driver::discard::status;
use crate::driver::evict;
use crate::driver::flash::Counter;
use crate::ffi::prefetch::Migration;
use crate::ffi::seam::{self, PmLock};
use crate::ffi::space::gpu_of;
use crate::ffi::time;
use crate::ffi::vaspace::{LockedVaSpace, VaSpace};
use crate::ffi::work::Charging;
use crate::policy::discard::{Kind, Span, BLOCK_BYTES};
use crate::policy::flash::cause::Cause;
use crate::policy::flash::drain::Fetched;
use crate::policy::flash::moves::{run, Failed, Machine, To};
use crate::policy::flash::queue::Job;
use crate::policy::flash::turn::Ticket;
use crate::policy::flash::wants::Asks;
use crate::policy::mask::{PageMask, Region};
use crate::policy::prefetch::worker;
use bindings::{uvm_gpu_struct, uvm_seam_space, uvm_va_block_struct, uvm_va_range_struct};
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

/// Milliseconds for which a waiting thread sleeps at a time: the rate may change, and the process may be killed.
const NAP_MS: u32 = 10;

/// The one copy number that a move uses.
const COPY: u32 = 0;

/// MiB a second that a tenant may write by call.
fn rate() -> u32 {
    read_parameter!(uvm_rust_flash_move_mib)
}

/// Which thread moves, and how it is told to stop.
#[derive(Clone, Copy)]
enum By<'a> {
    /// A thread of a process in a call, which a signal stops.
    Call,
    /// A kernel thread, which this flag stops.
    Worker(&'a AtomicBool),
}

/// One call of `UVM_RUST_FLASH_MOVE`, or a part of a request.
///
/// Invariant: the VA space, its tenant and the tier exist. Pointers to what was not taken are null.
struct Moving<'a> {
    by: By<'a>,
    space: *mut uvm_seam_space,
    owner: OwnerHandle,
    /// The ticket of the tenant's turn, while it is held.
    ticket: Option<Ticket>,
    io: Option<Io>,
    device: Option<Reading>,
    at: Chosen,
    block: *mut uvm_va_block_struct,
    pages: PageMask,
    /// The destination GPU's UUID.
    uuid: [u8; 16],
    /// The destination GPU; valid while the VA space is locked.
    gpu: *mut uvm_gpu_struct,
    /// The number of `gpu`.
    number: u32,
    /// What upstream copies to a GPU with, between `prepare` and `put`.
    copies: Option<Migration>,
    /// The destination is host memory.
    home: bool,
    /// The move needs no SSD.
    needs_none: bool,
    /// Upstream forbids moving the chosen block there.
    stays: bool,
    /// Bytes that were given to the device and do not yet count for the tenant's rate.
    wrote: u64,
    /// Whether the chosen block is locked by way of `copies`.
    is_locked: bool,
    /// The locked VA space, and its process if that lives. Dropped, and so unlocked, after all fields above, which are used
    /// under that lock.
    entered: Option<LockedVaSpace<'a>>,
    /// The power-management lock of a call, between `enter_space` and `leave_space`; a worker's is held by its caller.
    /// Dropped after all other locks.
    pm: Option<PmLock>,
}

/// A range of managed memory, and its facts.
type Memory = (*mut uvm_va_range_struct, bindings::uvm_rust_range);

/// A va_block, some of its pages, and its range.
type Next = (*mut uvm_va_block_struct, PageMask, Memory);

/// The first va_block with pages between `start` and `end`, which are managed memory, and those pages.
///
/// # Safety
///
/// The VA space is locked.
unsafe fn next_block(space: *mut uvm_seam_space, start: u64, end: u64) -> Option<Next> {
    let (mut range, mut at) = (bindings::uvm_rust_range::default(), start);
    while at <= end {
        // SAFETY: by this function's contract; `range` is ours for the call.
        let memory = unsafe { bindings::uvm_seam_range(space, at, end, &mut range) };
        if memory.is_null() {
            return None;
        }
        let last = end.min(range.last);
        at = at.max(range.first);
        while range.managed && at <= last {
            // SAFETY: the range is there, and has that address.
            let block = unsafe { bindings::uvm_seam_range_block(memory, at) };
            if !block.is_null() {
                // SAFETY: the VA space is locked.
                let of = unsafe { span(block) };
                let page = |address: u64| ((address - of.first) / PAGE_SIZE as u64) as u16;
                let pages = Region::new(page(at), page(last.min(of.last)) + 1);
                return Some((block, pages.into(), (memory, range)));
            }
            at = (at - at % BLOCK_BYTES).saturating_add(BLOCK_BYTES);
        }
        at = range.last.saturating_add(1);
    }
    None
}

// In all blocks below the pointers are valid by the type's invariant, and locks are held as the policy
// documents it (V-order).
impl Machine for Moving<'_> {
    fn take_turn(&mut self) -> Result<(), Failed> {
        let by = &self.by;
        let is_worker = matches!(by, By::Worker(_));
        let is_over = || by.is_stopped() || is_worker && seam::suspends();
        // SAFETY: see above.
        self.ticket = unsafe { self.owner.get() }.take_turn(is_over);
        match self.ticket {
            Some(_) => Ok(()),
            None if is_worker && !by.is_stopped() => Err(Failed::Again),
            None => Err(Failed::Interrupted),
        }
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
        seam::suspends()
    }

    fn count_throttled(&mut self) {
        // Without the attach lock, as a detach may take long.
        // SAFETY: see above.
        unsafe { count_of_device(current(), Counter::Throttled, 1) };
    }

    fn nap(&mut self) -> bool {
        // SAFETY: no spinlock is held.
        let slept = unsafe { bindings::msleep_interruptible(NAP_MS) == 0 };
        slept && !self.by.is_stopped()
    }

    fn stand_in_line(&mut self) {
        // SAFETY: see above.
        let dev = unsafe { device(current()) };
        let is_over = || self.by.is_stopped() || seam::suspends() || time::rest();
        if let Some(dev) = dev {
            dev.pass_unless(Cause::Part, is_over);
        }
    }

    fn open(&mut self) -> bool {
        self.io = Io::new(true, true);
        self.io.is_some()
    }

    fn close(&mut self) {
        self.io = None;
    }

    fn keep_device(&mut self) -> Result<(), Failed> {
        let lock = Reading::try_lock().ok_or(Failed::Again)?;
        if lock.attached().is_none() && !self.needs_none {
            return Err(Failed::NoDevice);
        }
        self.device = Some(lock);
        Ok(())
    }

    fn wait_for_device(&mut self) -> Result<(), Failed> {
        match self.by {
            By::Call if Reading::wait() => Ok(()),
            By::Call => Err(Failed::Interrupted),
            // The end of the VA space waits for the worker. So the worker must not wait until a detach has brought
            // all data back.
            By::Worker(_) => Err(Failed::Again),
        }
    }

    fn leave_device(&mut self) {
        self.device = None;
    }

    fn enter_space(&mut self) -> Result<(), Failed> {
        if self.entered.is_some() {
            self.broken();
            return Err(Failed::Unreadable);
        }
        let space = NonNull::new(self.space).ok_or(Failed::NotManaged)?;
        // SAFETY: see above.
        let space = unsafe { VaSpace::new(space) };
        let mm = match self.by {
            By::Call => {
                let mm = space.lock_mm().ok_or(Failed::Interrupted)?;
                self.pm = Some(PmLock::try_read().ok_or(Failed::Again)?);
                mm
            }
            // A worker keeps the system awake, and the end of the VA space waits for it.
            By::Worker(_) => space.try_lock_mm().ok_or(Failed::Again)?,
        };
        // After a fatal error of the driver nothing may be done any more.
        if !seam::healthy() {
            drop(mm);
            self.pm = None;
            return Err(Failed::Unreadable);
        }
        self.entered = Some(mm.lock_space());
        Ok(())
    }

    fn leave_space(&mut self) {
        self.gpu = null_mut();
        self.entered = None;
        self.pm = None;
    }

    fn is_managed(&mut self, base: u64, length: u64) -> bool {
        let last = length.checked_sub(1).and_then(|n| base.checked_add(n));
        let (Some(entered), Some(last)) = (self.entered(), last) else {
            return false;
        };
        entered.kind(Span { first: base, last }) == Kind::Managed
    }

    fn is_empty(&mut self, base: u64, end: u64) -> bool {
        let Some(entered) = self.entered() else {
            return true;
        };
        // SAFETY: the VA space is locked.
        unsafe { next_block(entered.space.as_ptr(), base, end) }.is_none()
    }

    fn has_to_write(&mut self, base: u64, end: u64) -> bool {
        let Some(space) = self.entered().map(|entered| entered.space.as_ptr()) else {
            return false;
        };
        let mut at = base;
        while at <= end {
            // SAFETY: the VA space is locked, which keeps the block; it is looked at with its lock, if it is alive.
            unsafe {
                let Some((block, pages, _)) = next_block(space, at, end) else {
                    return false;
                };
                bindings::uvm_seam_block_lock(block);
                let is_known = !known_of(block).is_null();
                let only_host = is_known.then(|| only_host(&pages_of(block, null_mut())));
                bindings::uvm_seam_block_unlock(block);
                if only_host.is_some_and(|there| there.intersects(&pages)) {
                    return true;
                }
                at = span(block).last.saturating_add(1);
            }
        }
        false
    }

    fn prepare(&mut self) -> bool {
        if !self.gpu.is_null() || self.home {
            self.copies = Migration::new();
            return self.copies.is_some();
        }
        let Some(mm) = self.entered().map(LockedVaSpace::mm) else {
            return false;
        };
        // SAFETY: the process is kept until `leave_space`, which comes after `put`.
        unsafe { self.at.open_for(mm) }
    }

    fn put(&mut self) {
        self.copies = None;
        self.at.close();
    }

    fn choose(&mut self, base: u64, end: u64) -> Option<u64> {
        let space = self.entered()?.space.as_ptr();
        // SAFETY: the VA space is locked, and with a GPU that is there.
        unsafe {
            let next = next_block(space, base, end);
            (self.block, self.pages, self.stays) = (null_mut(), PageMask::EMPTY, false);
            if let Some((block, pages, memory)) = next {
                (self.block, self.pages) = (block, pages);
                self.stays = (!self.gpu.is_null() || self.home) && self.must_stay(memory);
            }
        }
        // SAFETY: the VA space's lock keeps the block, until another is chosen or all is let go.
        unsafe { (self.at.choose(self.block)).then(|| span(self.block).last + 1) }
    }

    fn write(&mut self) {
        let dev = self.device.as_ref().and_then(Reading::attached);
        let (Some(dev), Some(io)) = (&dev, &mut self.io) else {
            return;
        };
        // SAFETY: the lock keeps the device, and the VA space's the block, which is not locked; the buffer has
        // pages of its own.
        let bytes = unsafe { move_out(dev, io, self.block, &self.pages) };
        self.wrote = self.wrote.saturating_add(bytes);
    }

    fn ask(&mut self, base: u64, end: u64) -> Option<u64> {
        if !READERS.is_made() {
            return None;
        }
        let space = self.entered()?.space.as_ptr();
        // SAFETY: the VA space is locked, which keeps the block; what is known of that is looked at with its lock.
        unsafe {
            let (block, pages, _) = next_block(space, base, end)?;
            bindings::uvm_seam_block_lock(block);
            let known = known_of(block);
            let wanted = on_flash(known) & pages;
            if !wanted.is_empty() {
                ask(known, &wanted, Asks::Call);
            }
            bindings::uvm_seam_block_unlock(block);
            Some(span(block).last + 1)
        }
    }

    fn has_gpu(&mut self) -> bool {
        let Some(space) = self.entered().map(|entered| entered.space.as_ptr()) else {
            return false;
        };
        let mut gpu = null_mut();
        // SAFETY: the VA space is locked; `gpu` is ours for the call.
        let memory = unsafe { bindings::uvm_seam_space_gpu(space, self.uuid.as_ptr(), &mut gpu) };
        if let Some(number) = gpu_of(memory) {
            self.number = number;
            // SAFETY: the VA space is locked.
            self.gpu = unsafe { bindings::uvm_seam_prefetch_gpu(space, number, false) };
        }
        !self.gpu.is_null()
    }

    fn copies_home(&mut self) {
        self.home = true;
    }

    fn lock(&mut self) {
        let Some(copies) = &self.copies else {
            return self.at.lock();
        };
        let (Some(entered), false) = (&self.entered, self.is_locked) else {
            return self.broken();
        };
        // SAFETY: the block is chosen, and not locked by us; the process is kept until `leave_space`.
        unsafe { bindings::uvm_seam_prefetch_lock(copies.as_ptr(), self.block, entered.mm()) };
        self.is_locked = true;
    }

    fn unlock(&mut self) {
        let is_locked = match &self.copies {
            Some(_) => core::mem::take(&mut self.is_locked),
            None => self.at.locked().is_some(),
        };
        if !is_locked {
            return self.broken();
        }
        if !self.home {
            // SAFETY: the block is locked. What was asked for ahead is wanted no more.
            unsafe { came(known_of(self.block), &self.pages) };
        }
        match &self.copies {
            // SAFETY: `lock` locked it.
            Some(copies) => unsafe {
                bindings::uvm_seam_prefetch_unlock(copies.as_ptr(), self.block);
            },
            None => self.at.unlock(),
        }
    }

    fn fetch(&mut self) -> Fetched {
        self.at.fetch(&self.pages)
    }

    fn has_host_room(&mut self) -> bool {
        // SAFETY: see above.
        !unsafe { must_wait(self.owner) }
    }

    fn copy(&mut self) -> Result<Fetched, Failed> {
        let Some(copies) = self.copies.as_ref().filter(|_| !self.stays) else {
            return Ok(Fetched::All);
        };
        let mut pages = self.pages;
        if self.home {
            // SAFETY: the block is locked. What flash has stays there.
            pages &= unsafe { pages_of(self.block, null_mut()) }.reached.set();
        }
        // A call waits for memory as a fault does. A worker takes what there is (Q-room of `policy/flash/queue.rs`).
        let is_guess = !self.home && matches!(self.by, By::Worker(_));
        // Too many others guess right now, which does not mean that memory is short.
        let guess = || evict::guess(!self.owner.key()).ok_or(Failed::Again);
        let _guess = is_guess.then(guess).transpose()?;
        let (call, block, gpu) = (copies.as_ptr(), self.block, self.gpu);
        let map = match gpu.is_null() {
            true => worker::To::Host.is_mapped(),
            false => worker::To::Gpu.is_mapped(),
        };
        for run in pages.runs() {
            let (first, outer) = (run.first(), run.outer());
            // SAFETY: the block is locked, and has these pages; the GPU is there, and there is such a number.
            let begun = unsafe {
                bindings::uvm_seam_prefetch_migrate(call, block, gpu, map, COPY, first, outer)
            };
            match begun {
                status::OK => {}
                status::AGAIN => return Ok(Fetched::Again),
                status::NO_MEMORY => return Ok(Fetched::NoMemory),
                _ => return Ok(Fetched::Failed),
            }
        }
        Ok(Fetched::All)
    }

    fn settle(&mut self) -> bool {
        let Some(copies) = &self.copies else {
            return true;
        };
        let (call, under_way) = (copies.as_ptr(), &mut false);
        // SAFETY: there is such a number, and the VA space's lock keeps the GPU.
        unsafe { bindings::uvm_seam_prefetch_settle(call, COPY, under_way) == status::OK }
    }

    fn dying(&mut self) -> bool {
        self.by.is_stopped() || time::rest()
    }

    fn rest(&mut self) {
        time::rest();
    }

    fn pay(&mut self) {
        // SAFETY: see above.
        unsafe { wrote(self.owner, core::mem::take(&mut self.wrote), rate()) };
    }
}

impl<'a> Moving<'a> {
    /// Reports a breach of V-order; the caller then neither locks nor unlocks anything twice.
    fn broken(&self) {
        pr_err!("flash: V-order does not hold\n");
    }

    /// The locked VA space. If it is not locked, somebody broke V-order.
    fn entered(&self) -> Option<&LockedVaSpace<'a>> {
        if self.entered.is_none() {
            self.broken();
        }
        self.entered.as_ref()
    }

    /// Whether upstream's own calls would not move the chosen block to the GPU: its range group may not migrate, or
    /// the GPU cannot address it, or the GPU cannot fault and uses the memory from where it is.
    ///
    /// # Safety
    ///
    /// The VA space is locked, `gpu` is null or valid, and the block is in the range.
    unsafe fn must_stay(&self, (of, range): Memory) -> bool {
        // SAFETY: by this function's contract.
        unsafe {
            let span = span(self.block);
            let length = span.last - span.first + 1;
            if !bindings::uvm_range_group_all_migratable(self.space.cast(), span.first, span.last) {
                return true;
            }
            if self.gpu.is_null() {
                return false;
            }
            !bindings::uvm_gpu_can_address(self.gpu, span.first, length)
                || bindings::uvm_seam_prefetch_is_lite(of, self.gpu)
                    && gpu_of(range.preferred) != Some(self.number)
        }
    }
}

impl By<'_> {
    /// Whether a worker is told to stop. A signal tells a call.
    fn is_stopped(&self) -> bool {
        match self {
            By::Call => false,
            By::Worker(ending) => ending.load(Relaxed),
        }
    }
}

impl<'a> Moving<'a> {
    /// A move in the VA space of this tenant, both of which live for `'a`. `uuid` is the destination GPU's, if it is
    /// a GPU.
    fn new(by: By<'a>, space: *mut uvm_seam_space, owner: OwnerHandle, uuid: [u8; 16]) -> Self {
        Self {
            by,
            space,
            owner,
            ticket: None,
            io: None,
            device: None,
            at: Chosen::none(),
            block: null_mut(),
            pages: PageMask::EMPTY,
            uuid,
            gpu: null_mut(),
            number: 0,
            copies: None,
            home: false,
            needs_none: false,
            stays: false,
            wrote: 0,
            is_locked: false,
            entered: None,
            pm: None,
        }
    }
}

/// Moves a range between a GPU, host memory and the device. `uuid` is the destination GPU's, if it is a GPU. Sleeps,
/// and takes the VA space's lock itself. There is a tier.
pub(crate) fn move_range(
    space: &VaSpace<'_>,
    base: u64,
    length: u64,
    to: To,
    uuid: [u8; 16],
) -> Result<(), Failed> {
    let space = space.as_ptr();
    // SAFETY: the VA space is there, and has a tenant, as there is a tier.
    let Some(owner) = (unsafe { owner_of(space) }) else {
        return Err(Failed::NoDevice);
    };
    run(
        &mut Moving::new(By::Call, space, owner, uuid),
        base,
        length,
        to,
    )
}

/// Moves the next part of a request, for a worker; ends early when `ending` says so. Sleeps, and takes all locks
/// itself.
///
/// # Safety
///
/// The VA space, its tenant and the tier exist.
pub(super) unsafe fn step(
    space: *mut uvm_seam_space,
    owner: OwnerHandle,
    job: &mut Job,
    ending: &AtomicBool,
) -> Result<(), Failed> {
    let mut moving = Moving::new(By::Worker(ending), space, owner, job.gpu);
    moving.needs_none = job.to() != To::Device;
    // What of it is the tenant's to pay for.
    // SAFETY: the tenant keeps its group.
    let _charging = unsafe { Charging::to(owner.group()) };
    job.step(&mut moving)
}
