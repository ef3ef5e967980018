// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A GPU whose faults are being serviced: its state in C, and which of its operations are allowed when.
//!
//! Invariants besides those of `ffi.rs`, kept by `uvm_rust_fault.c`:
//!
//! - **I-cache**: the fault cache, its view in order, and the ring have
//!   `uvm_seam_fault.ring` entries each.
//! - **I-space**: a number that `uvm_seam_fault_translate` gave is the address of
//!   a VA space that lives at least as long as the service lock is held: its end
//!   flushes the ring under that lock first.

// What each asks of its caller is in uvm_rust_fault_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::alarm::Alarm;
use super::bindings::{
    self, mm_struct, uvm_rust_fault, uvm_seam_entered, uvm_seam_fault, uvm_seam_space,
    uvm_va_space_struct,
};
use super::status::Status;
use super::time::{now_us, sleep_us};
use super::{flash, gpu, seam, space};
use crate::driver::discard::status;
use crate::driver::fault;
use crate::driver::prefetch::Process;
use crate::driver::space::State;
use crate::driver::stats::{Gpu, Space};
use crate::mem::{OutOfMemory, TryVec};
use crate::policy::fault::{CancelAs, Entered, Flush, Record, Translated};
use core::cell::Cell;
use core::mem::{offset_of, size_of};
use core::ptr::null_mut;

super::check_exports!(
    uvm_rust_fault_create,
    uvm_rust_fault_destroy,
    uvm_rust_fault_service,
    uvm_rust_note_mapped,
);

// The policy reads the entries as C writes them: see `FaultGpu::fetch`.
const _: () = {
    assert!(size_of::<Record>() == size_of::<uvm_rust_fault>());
    macro_rules! same_place {
        ($($field:ident)*) => {$(
            assert!(offset_of!(Record, $field) == offset_of!(uvm_rust_fault, $field));
        )*};
    }
    same_place!(address who entry instances utlb access accesses fatal reserved);
    assert!(Flush::CachedPut as u32 == bindings::UVM_RUST_FLUSH_CACHED_PUT);
    assert!(Flush::UpdatePut as u32 == bindings::UVM_RUST_FLUSH_UPDATE_PUT);
    assert!(Flush::WaitUpdatePut as u32 == bindings::UVM_RUST_FLUSH_WAIT_UPDATE_PUT);
};

/// So long who waits for a VA space's lock sleeps between two tries. It does not stand in line: writers one right after the
/// other can keep it from the lock until its wait is over.
const TRY_US: u64 = 50;

/// VA spaces that one call of the service loop has met. The service lock keeps them alive (I-space).
pub(crate) struct Met {
    spaces: TryVec<u64>,
    count: usize,
    /// The VA space that was looked up last; 0 for none.
    last: u64,
}

impl Met {
    /// Makes an empty set with room for the VA spaces of a ring of so many entries.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub(crate) fn new(ring: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            spaces: TryVec::filled(ring as usize, 0)?,
            count: 0,
            last: 0,
        })
    }

    /// Whether this call has met the VA space.
    #[inline(always)]
    fn has(&mut self, space: u64) -> bool {
        (space == self.last && space != 0) || self.finds(space)
    }

    #[cold]
    fn finds(&mut self, space: u64) -> bool {
        let met = self.spaces.get(..self.count).unwrap_or_default();
        let has = met.contains(&space);
        self.last = if has { space } else { 0 };
        has
    }

    /// Adds a VA space. Returns false if there is no room.
    #[inline(always)]
    fn add(&mut self, space: u64) -> bool {
        space != 0 && (self.has(space) || self.adds(space))
    }

    #[cold]
    fn adds(&mut self, space: u64) -> bool {
        let Some(place) = self.spaces.get_mut(self.count) else {
            return false;
        };
        *place = space;
        self.count += 1;
        self.last = space;
        true
    }
}

/// A call of the fault service: a GPU, whose service lock is held.
///
/// Invariant: C's part of the GPU is valid for `'a`, and only this call uses it.
pub(crate) struct Call<'a>(&'a mut uvm_seam_fault, u32);

impl<'a> Call<'a> {
    /// Has the faults serviced by upstream's loop.
    pub(crate) fn run_in_c(&mut self) {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_fault_upstream(self.0.gpu) };
    }

    /// The number of the GPU.
    pub(crate) fn gpu(&self) -> u32 {
        self.1
    }

    /// The GPU's statistics; `None` if statistics are off.
    pub(crate) fn stats(&self) -> Option<&'a Gpu> {
        // SAFETY: I-gpu: the caller is the GPU's bottom half.
        unsafe { gpu::stats(self.1) }.map(|gpu| &**gpu)
    }
}

/// State of the ring and of the running batch that C reads and writes as well.
#[derive(Clone, Copy)]
pub(crate) struct Counts<'a> {
    get: &'a Cell<u32>,
    put: &'a Cell<u32>,
    pub(crate) number: &'a Cell<u32>,
    pub(crate) replays: &'a Cell<u32>,
    pub(crate) duplicates: &'a Cell<u32>,
    pub(crate) invalid_prefetches: &'a Cell<u32>,
    pub(crate) throttled: &'a Cell<bool>,
    /// Whether the GPU reports prefetches that miss.
    pub(crate) prefetches_are_on: &'a Cell<bool>,
    /// The first VA space with a fatal fault, or null.
    fatal: &'a Cell<*mut uvm_va_space_struct>,
}

impl Counts<'_> {
    /// GET and PUT, as they were last read or written.
    #[inline]
    pub(crate) fn ring(&self) -> (u32, u32) {
        (self.get.get(), self.put.get())
    }

    /// The first VA space with a fatal fault.
    #[inline]
    pub(crate) fn fatal(&self) -> Option<u64> {
        let space = self.fatal.get();
        (!space.is_null()).then_some(space as usize as u64)
    }

    /// Forgets the VA space with a fatal fault, as a batch begins.
    #[inline]
    pub(crate) fn forget_fatal(&self) {
        self.fatal.set(null_mut());
    }
}

/// The GPU of a call, for the loop in Rust.
pub(crate) struct FaultGpu<'a> {
    /// C's part of the GPU, as [`Call`] has it.
    c: &'a mut uvm_seam_fault,
    pub(crate) counts: Counts<'a>,
    met: &'a mut Met,
    /// The VA space that is entered, whose locks this has, and the GPU there, which is null if it is not registered.
    /// Without an entered VA space nobody looks at it.
    there: uvm_seam_entered,
    /// Length of the order that was last published.
    published: u32,
    /// Whether a VA space is entered.
    entered: bool,
}

/// A call of C's that needs no more than the GPU, as all of these do.
macro_rules! of_gpu {
    ($(#[$doc:meta] $name:ident = $c:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[$doc]
        #[inline]
        pub(crate) fn $name(&mut self, $($arg: $type),*) -> Result<(), Status> {
            // SAFETY: by the type's invariant.
            Status::check(unsafe { bindings::$c(self.c, $($arg),*) })
        }
    )*};
}

impl<'a> FaultGpu<'a> {
    /// Makes the loop's view of the GPU, for the length of this call, which has met no VA space yet.
    pub(crate) fn new(call: Call<'a>, met: &'a mut Met) -> Self {
        (met.count, met.last) = (0, 0);
        let c = call.0;
        // SAFETY: upstream's numbers are the service lock's, and valid, as `c` is; C writes to them when it is
        // called only.
        let counts = unsafe {
            Counts {
                get: &*c.get.cast(),
                put: &*c.put.cast(),
                number: &*c.number.cast(),
                replays: &*c.replays.cast(),
                duplicates: &*c.duplicates.cast(),
                invalid_prefetches: &*c.invalid_prefetches.cast(),
                throttled: &*c.throttled.cast(),
                prefetches_are_on: &*c.prefetches_are_on.cast(),
                fatal: &*c.fatal_space.cast(),
            }
        };
        Self {
            c,
            counts,
            met,
            there: uvm_seam_entered::default(),
            published: 0,
            entered: false,
        }
    }

    of_gpu! {
        /// Has the GPU try again what is stalled.
        replay = uvm_seam_fault_replay();
        /// Waits for the replays, or for what service gave the GPUs to do.
        wait = uvm_seam_fault_wait(for_replays: bool);
        /// Waits until what GSP has of the ring is in it.
        settle = uvm_seam_fault_settle();
    }

    /// Reads PUT from the GPU.
    pub(crate) fn read_put(&mut self) {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_fault_read_put(self.c) };
    }

    /// The number of an entry of the ring or of the cache.
    #[inline]
    fn entry(&self, number: u32) -> Result<u32, Status> {
        (number < self.c.ring)
            .then_some(number)
            .ok_or(Status::BROKEN)
    }

    /// Copies up to `n` entries from `at` on to `entry` and after in the fault cache, and to `out`. Returns how many.
    #[inline(always)]
    pub(crate) fn fetch(
        &mut self,
        at: u32,
        n: u32,
        entry: u32,
        out: &mut [Record],
    ) -> Result<u32, Status> {
        let at = self.entry(at)?;
        let room = u32::try_from(out.len()).unwrap_or(u32::MAX);
        let n = n.min(room).min(self.c.ring.saturating_sub(entry));
        let (out, mut got) = (out.as_mut_ptr().cast(), 0);
        // SAFETY: `out` has room for `n` records, which have the layout of C's (see above) and are plain numbers;
        // `at`, and `n` entries from `entry` on, are there (I-cache).
        let status = unsafe { bindings::uvm_seam_fault_fetch(self.c, at, n, entry, out, &mut got) };
        Status::check(status)?;
        Ok(got)
    }

    /// Whether the GPU has written the entry at place `at`.
    pub(crate) fn is_written(&mut self, at: u32) -> Result<bool, Status> {
        let at = self.entry(at)?;
        // SAFETY: `at` is in the ring.
        Ok(unsafe { bindings::uvm_seam_fault_is_written(self.c, at) })
    }

    /// Tells the GPU that the ring is free up to place `get`.
    #[inline(always)]
    pub(crate) fn set_get(&mut self, get: u32) {
        if let Ok(get) = self.entry(get) {
            // SAFETY: `get` is in the ring.
            unsafe { bindings::uvm_seam_fault_set_get(self.c, get) };
        }
    }

    /// What the instance pointer and subcontext of `entry` stand for.
    #[inline(always)]
    pub(crate) fn translate(&mut self, entry: u32) -> Translated {
        let Ok(entry) = self.entry(entry) else {
            return Translated::Stale;
        };
        let mut space = 0;
        // SAFETY: `entry` is of the cache; `space` is ours for the call.
        match unsafe { bindings::uvm_seam_fault_translate(self.c, entry, &mut space) } {
            status::OK if self.met.add(space) => Translated::Space(space),
            status::PAGE_TABLE_NOT_AVAIL => Translated::NoSubcontext,
            _ => Translated::Stale,
        }
    }

    /// Cancels what the channel of `entry` does, on all of the GPU, or where its fault came from.
    pub(crate) fn cancel_channel(&mut self, entry: u32, targeted: bool) -> Result<(), Status> {
        let entry = self.entry(entry)?;
        // SAFETY: `entry` is of the cache.
        Status::check(unsafe { bindings::uvm_seam_fault_cancel_channel(self.c, entry, targeted) })
    }

    /// Gives upstream the order of the batch. Returns false if an entry is not in the cache, or names a VA space that
    /// this call has not met.
    #[inline(always)]
    pub(crate) fn publish(&mut self, records: &[Record], representatives: &[u32]) -> bool {
        let entries = representatives.len() as u32;
        let mut is_sound = entries <= self.c.ring && records.len() <= representatives.len();
        for of in representatives {
            is_sound &= *of < entries;
        }
        for record in records {
            is_sound &= record.entry < entries && self.met.has(record.who);
        }
        self.published = if is_sound { records.len() as u32 } else { 0 };
        if is_sound {
            let (records, stand) = (records.as_ptr().cast(), representatives.as_ptr());
            // SAFETY: the arrays are as long as said, and hold what C asks for.
            unsafe {
                bindings::uvm_seam_fault_publish(self.c, records, self.published, stand, entries)
            };
        }
        is_sound
    }

    /// For how many nanoseconds the GPU's prefetch faults have been off, if they are, and for how many milliseconds
    /// they stay off now.
    pub(crate) fn prefetch_off(&mut self) -> (u64, u32) {
        let mut lapse_ms = 0;
        // SAFETY: by the type's invariant; `lapse_ms` is ours for the call.
        let off_ns = unsafe { bindings::uvm_seam_fault_prefetch_off(self.c, &mut lapse_ms) };
        (off_ns, lapse_ms)
    }

    /// Logs that the service ended by this error, before the ring was empty. Programs may have lost their GPU contexts.
    pub(crate) fn failed(&mut self, why: Status) {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_fault_failed(self.c, why.number()) };
    }

    /// Turns prefetch faults on or off.
    pub(crate) fn switch_prefetch(&mut self, on: bool) {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_fault_switch_prefetch(self.c, on) };
    }

    /// Discards what is in the ring, then replays.
    pub(crate) fn flush(&mut self, how: Flush) -> Result<(), Status> {
        // SAFETY: `how` has the numbers of C's (see above).
        Status::check(unsafe { bindings::uvm_seam_fault_flush(self.c, how as u32) })
    }

    /// Cancels the uTLBs with fatal faults, or all that the batch has for a reason. Leaves the VA space.
    pub(crate) fn cancel_utlbs(&mut self, reason: Option<Status>) -> Result<(), Status> {
        self.leave();
        // SAFETY: nothing is entered.
        unsafe {
            match reason {
                None => Status::check(bindings::uvm_seam_fault_cancel_utlbs(self.c)),
                Some(reason) => {
                    bindings::uvm_seam_fault_refuse_utlbs(self.c, reason.number());
                    Ok(())
                }
            }
        }
    }

    /// Enters a VA space: takes its locks if they can be had at once, unless another one is entered. One that this call
    /// has not met is not entered, and the GPU counts as not registered there.
    #[inline(always)]
    pub(crate) fn enter(&mut self, space: u64, to_cancel: bool) -> Entered {
        self.enter_by(space, to_cancel, |space| {
            // SAFETY: by what `enter_by` says of it.
            unsafe { try_locks(space, to_cancel) }
        })
    }

    /// As `enter`, but waits for the locks in line, for so many microseconds.
    #[cold]
    pub(crate) fn enter_within(
        &mut self,
        space: u64,
        to_cancel: bool,
        alarm: &Alarm,
        us: u64,
    ) -> Entered {
        self.enter_by(space, to_cancel, |space| {
            // SAFETY: by what `enter_by` says of it; the caller of the service is the GPU's bottom half, a thread of
            // the kernel's, and its loop has the alarm.
            unsafe { wait_for_locks(space, to_cancel, alarm, us) }
        })
    }

    /// Enters a VA space whose locks `lock` takes: it is called with one that is alive, while none is entered.
    #[inline(always)]
    fn enter_by(
        &mut self,
        space: u64,
        to_cancel: bool,
        lock: impl FnOnce(*mut uvm_seam_space) -> Option<*mut mm_struct>,
    ) -> Entered {
        if self.entered || !self.met.has(space) {
            return Entered::Unregistered;
        }
        // It was met, so it is alive (I-space).
        let space = space as usize as *mut uvm_seam_space;
        let Some(mm) = lock(space) else {
            return Entered::Busy;
        };
        self.entered = true;
        (self.there.space, self.there.mm) = (space, mm);
        // SAFETY: the VA space is alive, and its locks were taken.
        unsafe { bindings::uvm_seam_fault_enter(self.c, &mut self.there, to_cancel) };
        if self.there.gpu.is_null() {
            Entered::Unregistered
        } else {
            Entered::Registered
        }
    }

    /// Leaves the VA space that is entered, if there is one, and releases its locks.
    pub(crate) fn leave(&mut self) {
        if core::mem::take(&mut self.entered) {
            // SAFETY: `enter_by` took the VA space's lock, and that of `mm` unless it is null; they are given back once.
            unsafe {
                bindings::uvm_seam_space_unlock(self.there.space);
                bindings::uvm_seam_mm_unlock(self.there.space, self.there.mm);
            }
        }
    }

    /// The VA space that is entered, if one is.
    #[inline(always)]
    pub(crate) fn inside(&mut self) -> Option<Inside<'_, 'a>> {
        self.entered.then_some(Inside(self))
    }
}

impl Drop for FaultGpu<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Takes the locks of a VA space if they can be had at once: that of its process' memory, unless it is `to_cancel`, and its
/// own. Gives the memory, which is null for nobody's; `None`: nothing is taken.
///
/// # Safety
///
/// The VA space is alive, and this thread has none of the locks.
#[inline]
unsafe fn try_locks(space: *mut uvm_seam_space, to_cancel: bool) -> Option<*mut mm_struct> {
    let mut mm = null_mut();
    // SAFETY: by this function's contract; `mm` is ours for the call. What is taken is given back if the other is not.
    unsafe {
        if !to_cancel && !bindings::uvm_seam_mm_lock(space, false, &mut mm) {
            return None;
        }
        if bindings::uvm_seam_space_trylock(space) {
            return Some(mm);
        }
        bindings::uvm_seam_mm_unlock(space, mm);
    }
    None
}

/// The same, for who waits `us` microseconds for them. The memory's lock is waited for in its line. The VA space's is tried
/// again and again.
///
/// # Safety
///
/// As for `try_locks`; the thread is one of the kernel's, which expects no signal and alone has the alarm.
unsafe fn wait_for_locks(
    space: *mut uvm_seam_space,
    to_cancel: bool,
    alarm: &Alarm,
    us: u64,
) -> Option<*mut mm_struct> {
    let (end, mut mm) = (now_us().saturating_add(us), null_mut());
    // SAFETY: by this function's contract; `mm` is ours for the call. What is taken is given back if the other is not.
    unsafe {
        let wait = || bindings::uvm_seam_mm_lock(space, true, &mut mm);
        if !to_cancel && !alarm.within(us / 1000, wait) {
            return None;
        }
        while !bindings::uvm_seam_space_trylock(space) {
            if now_us() >= end {
                bindings::uvm_seam_mm_unlock(space, mm);
                return None;
            }
            sleep_us(TRY_US);
        }
    }
    Some(mm)
}

/// The VA space that a GPU's faults are serviced in.
///
/// Invariant: the VA space stays entered as long as this value lives.
pub(crate) struct Inside<'g, 'a>(&'g mut FaultGpu<'a>);

impl<'g> Inside<'g, '_> {
    /// The driver's object of the VA space.
    #[inline]
    fn state(self) -> Option<&'g State> {
        let state = self.0.there.state;
        // SAFETY: I-own: the VA space's lock, which is held as long as the result by the type's invariant, keeps it.
        (!state.is_null()).then(|| unsafe { space::borrow(state) })
    }

    /// The VA space's statistics; `None` if statistics are off.
    #[inline]
    pub(crate) fn stats(self) -> Option<&'g Space> {
        self.state()?.stats()
    }

    /// The predictors of the VA space's kernels; `None` if announcements are off.
    #[inline]
    pub(crate) fn process(self) -> Option<&'g Process> {
        self.state()?.process()
    }

    /// How many of `n` faults from `first` are in the published order.
    pub(crate) fn clip(&self, first: u32, n: u32) -> u32 {
        n.min(self.0.published.saturating_sub(first))
    }

    /// How many faults, of `records` from the first on, have to wait elsewhere; `first` if they are a batch's first.
    #[inline]
    pub(crate) fn park(&self, records: &[Record], first: bool) -> u32 {
        let there = &self.0.there;
        if there.gpu.is_null() || !flash::is_used() {
            return 0;
        }
        // SAFETY: the VA space is locked, in which the GPU is registered, by the type's invariant.
        unsafe { flash::park(there.space, there.gpu, records, first) }
    }

    /// Services fault `first` and those after it; upstream's status, and how many were looked at. `None` if there
    /// is no such fault, or the GPU is not registered here.
    #[inline(always)]
    pub(crate) fn service(
        &mut self,
        first: u32,
        per_block: bool,
        in_place: bool,
    ) -> Option<(u32, u32)> {
        let there = &self.0.there;
        if there.gpu.is_null() || self.clip(first, 1) == 0 {
            return None;
        }
        let (c, mut faults) = (&mut *self.0.c, 0);
        // SAFETY: the GPU is registered in the VA space, by the type's invariant; `first` is in the order, and
        // `faults` ours for the call.
        let status = unsafe {
            bindings::uvm_seam_fault_service(c, there, first, per_block, in_place, &mut faults)
        };
        Some((status, faults))
    }

    /// Notes that fault `first` is fatal by its type. Returns whether there is such a fault.
    pub(crate) fn found_fatal(&mut self, first: u32) -> bool {
        let is_there = self.clip(first, 1) > 0;
        if is_there {
            // SAFETY: `first` is in the order.
            unsafe { bindings::uvm_seam_fault_found_fatal(self.0.c, first) };
            if self.0.counts.fatal.get().is_null() {
                self.0.counts.fatal.set(self.0.there.space.cast());
            }
        }
        is_there
    }

    /// Invalidates what servicing left in the GPU's TLBs.
    pub(crate) fn invalidate(&mut self) -> Result<(), Status> {
        // SAFETY: a VA space is entered, by the type's invariant.
        Status::check(unsafe { bindings::uvm_seam_fault_invalidate(self.0.c, &self.0.there) })
    }

    /// Cancels fault `at` as `how` says, which is told whether the fault is fatal.
    pub(crate) fn cancel(
        &mut self,
        at: u32,
        how: impl FnOnce(bool) -> CancelAs<Status>,
    ) -> Result<(), Status> {
        if self.0.there.gpu.is_null() || self.clip(at, 1) == 0 {
            return Err(Status::BROKEN);
        }
        let c = &mut *self.0.c;
        // SAFETY: the GPU is registered in the VA space, by the type's invariant; `at` is in the order.
        let status = unsafe {
            match how(bindings::uvm_seam_fault_is_fatal(c, at)) {
                CancelAs::Nothing => status::OK,
                CancelAs::Found => bindings::uvm_seam_fault_cancel(c, at),
                CancelAs::All(reason) => bindings::uvm_seam_fault_refuse(c, at, reason.number()),
            }
        };
        Status::check(status)
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_fault_create(
    parent: u32,
    params: *const bindings::uvm_rust_fault_params,
) -> bool {
    // SAFETY: I-call.
    fault::create(parent, unsafe { &*params }).is_ok()
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_fault_destroy(parent: u32) {
    fault::destroy(parent);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_fault_service(parent: u32, number: u32, fault: *mut uvm_seam_fault) {
    // SAFETY: I-call, and I-lock: the caller holds the service lock of its one GPU.
    fault::service(parent, Call(unsafe { &mut *fault }, number));
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_mapped(
    parent: u32,
    number: u32,
    space: *mut bindings::uvm_rust_space,
    batch: u32,
) -> bool {
    fault::note_mapped(parent);
    if !seam::faults_are_counted() && !space.is_null() {
        // SAFETY: I-own for `space`; I-gpu: the caller is the GPU's bottom half.
        let (space, gpu) = unsafe { (space::borrow(space), gpu::stats(number)) };
        if let (Some(space), Some(gpu)) = (space.stats(), gpu) {
            space.note_fault(gpu, number, batch, 0, 1);
        }
    }
    true
}
