// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A GPU whose faults are being serviced, as the loop sees it.
//!
//! Invariants besides those of `ffi.rs`, kept by `uvm_rust_fault.c`:
//!
//! - **I-cache**: the fault cache, its view in order, and the ring have
//!   `uvm_rust_fault_params.ring` entries each.
//! - **I-space**: a number that `uvm_seam_fault_translate` gave is the address of
//!   a VA space that lives at least as long as the service lock is held: its end
//!   flushes the ring under that lock first.

// What each asks of its caller is in uvm_rust_fault_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::status::Status;
use super::{evict, flash, gpu, space};
use crate::driver::discard::status;
use crate::driver::fault::FaultLoop;
use crate::driver::prefetch::Process;
use crate::driver::stats::Space;
use crate::policy::fault::{
    Flush, Looked, Machine, Outcome, PrefetchFaults, PrefetchSwitch, Record, Served, Translated,
};
use core::marker::PhantomData;
use core::mem::{offset_of, size_of};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_fault_create,
    uvm_rust_fault_destroy,
    uvm_rust_fault_service,
);

/// A GPU for the length of one call of the service loop.
pub(crate) struct FaultGpu<'a> {
    /// Invariant: valid for `'a`, and used by nobody else. What it says of a VA space is what C has
    /// locked since `enter`, and not let go.
    fault: *mut bindings::uvm_seam_fault,
    /// The number of the GPU.
    gpu: u32,
    /// What service left of the running batch: its number, and how many duplicates it has.
    batch: u32,
    duplicates: u32,
    /// Whether that batch holds a fatal fault.
    fatal: bool,
    /// Whether some of it was put off.
    parked: bool,
    /// The GPU in the VA space that is entered; null if it is not registered there.
    there: *mut bindings::uvm_gpu_struct,
    /// Length of the order that was last published.
    published: u32,
    /// Between `enter` and `leave`.
    entered: bool,
    _call: PhantomData<&'a ()>,
}

// What C writes is what the policy reads: see `FaultGpu::fetch`.
const _: () = {
    assert!(size_of::<Record>() == size_of::<bindings::uvm_rust_fault>());
    macro_rules! same_place {
        ($($field:ident)*) => {$(
            assert!(offset_of!(Record, $field) == offset_of!(bindings::uvm_rust_fault, $field));
        )*};
    }
    same_place!(address who entry instances utlb access accesses fatal reserved);
    assert!(Flush::CachedPut as u32 == bindings::UVM_RUST_FLUSH_CACHED_PUT);
    assert!(Flush::UpdatePut as u32 == bindings::UVM_RUST_FLUSH_UPDATE_PUT);
    assert!(Flush::WaitUpdatePut as u32 == bindings::UVM_RUST_FLUSH_WAIT_UPDATE_PUT);
};

impl FaultGpu<'_> {
    /// # Safety
    ///
    /// `fault` is valid, and used by nobody else, for the returned value's lifetime;
    /// the service lock of its GPU is held.
    unsafe fn new(fault: *mut bindings::uvm_seam_fault, gpu: u32) -> Self {
        Self {
            fault,
            gpu,
            batch: 0,
            duplicates: 0,
            fatal: false,
            parked: false,
            there: null_mut(),
            published: 0,
            entered: false,
            _call: PhantomData,
        }
    }

    /// The VA space that is entered, if one is.
    fn space(&self) -> Option<*mut bindings::uvm_seam_space> {
        // SAFETY: valid by the type's invariant.
        let space = unsafe { (*self.fault).va_space };
        self.entered.then_some(space.cast())
    }

    /// What is counted of the VA space that is entered, if it is.
    fn stats(&self) -> Option<&Space> {
        // SAFETY: the VA space is entered, so its lock is held, which keeps its statistics (I-own) for
        // as long as `self` is borrowed.
        unsafe { space::of(self.space()?) }?.stats.as_ref()
    }

    /// What is known of the kernels of the VA space that is entered, if announcements are taken.
    fn process(&self) -> Option<&Process> {
        // SAFETY: as for `stats`.
        unsafe { space::of(self.space()?) }?.process.as_deref()
    }

    /// How many of `n` faults from `first` are in the published order.
    fn clip(&self, first: u32, n: u32) -> u32 {
        n.min(self.published.saturating_sub(first))
    }
}

// In all blocks below `self.fault` is valid by the type's invariant; what else a
// call needs is in each comment.
impl Machine for FaultGpu<'_> {
    type Error = Status;

    const CHECKS: bool = cfg!(uvm_checks);

    fn broken(&mut self, invariant: &'static str) {
        pr_err!(
            "Assert failed: GPU {}: invariant {} of the fault service loop\n",
            self.gpu,
            invariant
        );
    }

    fn ring(&mut self) -> (u32, u32) {
        // SAFETY: upstream's copies are the service lock's, which is held.
        unsafe {
            let (get, put) = ((*self.fault).get, (*self.fault).put);
            if *get == *put {
                bindings::uvm_seam_fault_read_put(self.fault);
            }
            (*get, *put)
        }
    }

    fn fetch(&mut self, at: u32, n: u32, entry: u32, out: &mut [Record]) -> Result<u32, Status> {
        let n = n.min(out.len().try_into().unwrap_or(u32::MAX));
        let mut got = 0;
        // SAFETY: `out` has room for `n` records, which have the layout of C's (see
        // above) and are plain numbers. `entry + n` is within the cache (I-cache):
        // `entry` counts the records before `out` in an array as long as the ring,
        // or more that were merged into those, and the loop asks for no more than
        // the ring holds; `at` is GET, or was reached from it modulo the ring.
        let status = unsafe {
            let out = out.as_mut_ptr().cast::<bindings::uvm_rust_fault>();
            bindings::uvm_seam_fault_fetch(self.fault, at, n, entry, out, &mut got)
        };
        Status::check(status)?;
        Ok(got)
    }

    fn wait_for(&mut self, at: u32) -> Result<(), Status> {
        // SAFETY: `at` is in the ring, as above.
        Status::check(unsafe { bindings::uvm_seam_fault_wait_for(self.fault, at) })
    }

    fn set_get(&mut self, get: u32) {
        // SAFETY: `get` is in the ring, as above.
        unsafe { bindings::uvm_seam_fault_set_get(self.fault, get) };
    }

    fn begin(&mut self) {
        (self.duplicates, self.fatal, self.parked) = (0, false, false);
        // SAFETY: upstream's counts are the service lock's, which is held.
        unsafe {
            let batch = &*self.fault;
            (*batch.invalid_prefetches, *batch.duplicates, *batch.replays) = (0, 0, 0);
            (*batch.fatal_space, *batch.throttled) = (null_mut(), false);
            *batch.number = (*batch.number).wrapping_add(1);
        }
    }

    fn translate(&mut self, entry: u32) -> Translated {
        let mut space = 0;
        // SAFETY: `entry` is of a record that `fetch` filled.
        match unsafe { bindings::uvm_seam_fault_translate(self.fault, entry, &mut space) } {
            status::OK => Translated::Space(space),
            status::PAGE_TABLE_NOT_AVAIL => Translated::NoSubcontext,
            _ => Translated::Stale,
        }
    }

    fn cancel_channel(&mut self, entry: u32) -> Result<(), Status> {
        // SAFETY: as for `translate`.
        Status::check(unsafe { bindings::uvm_seam_fault_cancel_channel(self.fault, entry) })
    }

    fn publish(&mut self, records: &[Record], representatives: &[u32]) {
        self.published = records.len() as u32;
        // SAFETY: the arrays are as long as said. Their entries were fetched in this
        // batch, so they are below `representatives.len()` and in the cache; `who`
        // is what `translate` gave for them.
        unsafe {
            bindings::uvm_seam_fault_publish(
                self.fault,
                records.as_ptr().cast(),
                records.len() as u32,
                representatives.as_ptr(),
                representatives.len() as u32,
            );
        }
    }

    fn enter(&mut self, space: u64, to_cancel: bool) -> bool {
        if self.entered {
            self.broken("F-lock");
            self.leave();
        }
        self.entered = true;
        // SAFETY: `space` is one that `translate` gave, and alive (I-space); nothing
        // is entered.
        self.there = unsafe { bindings::uvm_seam_fault_enter(self.fault, space, to_cancel) };
        !self.there.is_null()
    }

    fn invalidate(&mut self) -> Result<(), Status> {
        if !self.entered {
            self.broken("F-lock");
            return Ok(());
        }
        // SAFETY: a VA space is entered.
        Status::check(unsafe { bindings::uvm_seam_fault_invalidate(self.fault) })
    }

    fn leave(&mut self) {
        if core::mem::take(&mut self.entered) {
            // SAFETY: a VA space is entered, and is left once.
            unsafe { bindings::uvm_seam_fault_leave(self.fault) };
        }
    }

    #[inline]
    fn park(&mut self, first: u32, records: &[Record]) -> Option<Served> {
        let space = self.space()?;
        // SAFETY: a VA space is entered, in which the GPU is registered since the loop heeds what
        // `enter` said; `records` is what was published from `first` on.
        let faults = unsafe { flash::park(space, self.there, records, first == 0) };
        self.parked |= faults > 0;
        let fatal = self.fatal;
        (faults > 0).then_some(Served::Faults { faults, fatal })
    }

    #[inline]
    fn service(
        &mut self,
        first: u32,
        per_block: bool,
        in_place: bool,
        looked: &mut Looked,
    ) -> Result<Served, Status> {
        if !self.entered || self.clip(first, 1) == 0 {
            self.broken("F-lock, F-order");
            return Ok(Served::Faults {
                faults: 1,
                fatal: false,
            });
        }
        let (mut faults, before) = (0, self.duplicates);
        // SAFETY: as for `park`; `faults` is ours for the call, and upstream's counts are the service lock's.
        let result = unsafe {
            let of = self.fault;
            let result =
                bindings::uvm_seam_fault_service(of, first, per_block, in_place, &mut faults);
            (self.batch, self.duplicates) = (*(*of).number, *(*of).duplicates);
            self.fatal = !(*(*of).fatal_space).is_null();
            result
        };
        *looked = Looked {
            faults,
            duplicates: self.duplicates.saturating_sub(before),
        };
        match result {
            status::MORE_PROCESSING => Ok(Served::Again),
            status::MISMATCHED_TARGET => Ok(Served::AgainInPlace),
            other => Status::check(other).map(|()| Served::Faults {
                faults,
                fatal: self.fatal,
            }),
        }
    }

    #[inline]
    fn count(&mut self, instances: u64, duplicates: u32) {
        // SAFETY: I-gpu: the caller is the GPU's bottom half.
        if let (Some(stats), Some(gpu)) = (self.stats(), unsafe { gpu::stats(self.gpu) }) {
            stats.note_fault(gpu, self.gpu, self.batch, instances, duplicates.into());
        }
    }

    #[inline]
    fn missed(&mut self, address: u64) {
        if let Some(process) = self.process() {
            process.fault(self.gpu, address);
        }
    }

    fn found_fatal(&mut self, first: u32) {
        if self.clip(first, 1) != 0 && self.entered {
            self.fatal = true;
            // SAFETY: `first` is in the order, and what is entered is its VA space; upstream's note of that is
            // the service lock's.
            unsafe {
                bindings::uvm_seam_fault_found_fatal(self.fault, first);
                let fault = &*self.fault;
                if (*fault.fatal_space).is_null() {
                    *fault.fatal_space = fault.va_space;
                }
            }
        }
    }

    fn outcome(&mut self) -> Outcome {
        let mut prefetch = bindings::uvm_rust_fault_prefetch::default();
        // SAFETY: `prefetch` is ours for the call, and upstream's counts are the service lock's.
        let (batch, throttled, fatal) = unsafe {
            let batch = &*self.fault;
            // Prefetch faults that are on stay so while none is invalid.
            if *batch.prefetches_are_on && *batch.invalid_prefetches == 0 {
                (prefetch.has_switch, prefetch.is_on) = (1, 1);
            } else {
                bindings::uvm_seam_fault_prefetch(self.fault, &mut prefetch);
            }
            (batch, *batch.throttled, *batch.fatal_space as usize as u64)
        };
        Outcome {
            // SAFETY: as above.
            duplicates: unsafe { *batch.duplicates },
            // SAFETY: as above.
            invalid_prefetches: unsafe { *batch.invalid_prefetches },
            throttled: throttled || self.parked,
            fatal: (fatal != 0).then_some(fatal),
            prefetch_faults: match (prefetch.has_switch, prefetch.is_on) {
                (0, _) => PrefetchFaults::Fixed,
                (_, 0) => PrefetchFaults::Off(prefetch.off_ns),
                _ => PrefetchFaults::On,
            },
            prefetch_lapse_ms: prefetch.lapse_ms,
            in_test: prefetch.in_test != 0,
        }
    }

    fn switch_prefetch_faults(&mut self, to: PrefetchSwitch) {
        // SAFETY: as for all.
        unsafe { bindings::uvm_seam_fault_switch_prefetch(self.fault, to == PrefetchSwitch::On) };
    }

    fn replay(&mut self, renumber: bool) -> Result<(), Status> {
        // SAFETY: as for all; the number is the service lock's.
        Status::check(unsafe {
            let result = bindings::uvm_seam_fault_replay(self.fault);
            let number = (*self.fault).number;
            *number = (*number).wrapping_add(renumber.into());
            result
        })
    }

    fn flush(&mut self, how: Flush) -> Result<(), Status> {
        // SAFETY: `how` has the numbers of C's (see above).
        Status::check(unsafe { bindings::uvm_seam_fault_flush(self.fault, how as u32) })
    }

    fn wait_replays(&mut self, settle: bool) -> Result<(), Status> {
        // SAFETY: as for all.
        Status::check(unsafe { bindings::uvm_seam_fault_wait(self.fault, true) })?;
        if settle {
            // SAFETY: as for all.
            Status::check(unsafe { bindings::uvm_seam_fault_settle(self.fault) })?;
        }
        Ok(())
    }

    fn wait_service(&mut self) -> Result<(), Status> {
        // SAFETY: as for all.
        Status::check(unsafe { bindings::uvm_seam_fault_wait(self.fault, false) })
    }

    fn cancel(&mut self, first: u32, n: u32, reason: Option<Status>) -> Result<(), Status> {
        let n = self.clip(first, n);
        if !self.entered {
            self.broken("F-lock");
            return Ok(());
        }
        let reason = reason.map_or(0, Status::number);
        (first..first.saturating_add(n)).try_for_each(|at| {
            // SAFETY: a VA space is entered, in which the GPU is registered since the loop
            // heeds what `enter` said, and `at` is in the order.
            Status::check(unsafe { bindings::uvm_seam_fault_cancel(self.fault, at, reason) })
        })
    }

    fn cancel_utlbs(&mut self, reason: Option<Status>) -> Result<(), Status> {
        self.leave();
        let reason = reason.map_or(0, Status::number);
        // SAFETY: nothing is entered.
        Status::check(unsafe { bindings::uvm_seam_fault_cancel_utlbs(self.fault, reason) })
    }
}

/// The loop of each parent GPU, by its number; null for none. It is boxed, and lives from create to
/// destroy, between which faults are serviced.
static LOOPS: [AtomicPtr<FaultLoop>; bindings::UVM_RUST_MAX_GPUS as usize] =
    [const { AtomicPtr::new(null_mut()) }; bindings::UVM_RUST_MAX_GPUS as usize];

#[no_mangle]
unsafe extern "C" fn uvm_rust_fault_create(
    parent: u32,
    params: *const bindings::uvm_rust_fault_params,
) -> bool {
    // SAFETY: I-call.
    let made = FaultLoop::new(unsafe { &*params });
    let (Some(place), Ok(made)) = (LOOPS.get(parent as usize), made) else {
        return false;
    };
    place.store(made.into_foreign().cast_mut().cast(), Release);
    true
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_fault_destroy(parent: u32) {
    let place = LOOPS.get(parent as usize);
    let fault_loop = place.map_or(null_mut(), |place| place.swap(null_mut(), AcqRel));
    if !fault_loop.is_null() {
        // SAFETY: it came from `into_foreign`, and is taken from its place once. I-lock: no fault
        // can be serviced.
        drop(unsafe { <KBox<FaultLoop> as ForeignOwnable>::from_foreign(fault_loop.cast()) });
    }
}

/// Whose faults are being serviced: of each parent GPU, by its number.
static BUSY: [AtomicBool; bindings::UVM_RUST_MAX_GPUS as usize] =
    [const { AtomicBool::new(false) }; bindings::UVM_RUST_MAX_GPUS as usize];

/// Whether the faults of a parent GPU are being serviced. It may be otherwise at once.
pub(super) fn is_busy(parent: u32) -> bool {
    let busy = BUSY.get(parent as usize);
    busy.is_some_and(|busy| busy.load(Relaxed))
}

/// Waits until they are not, for so many milliseconds at most; whether they are not. Sleeps.
pub(super) fn wait_idle(parent: u32, within: u64) -> bool {
    let until = evict::now() + within;
    while is_busy(parent) {
        if evict::now() > until {
            return false;
        }
        evict::nap();
    }
    true
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_fault_service(
    parent: u32,
    number: u32,
    fault: *mut bindings::uvm_seam_fault,
) {
    let is_busy = |is| {
        if let Some(busy) = BUSY.get(parent as usize) {
            busy.store(is, Relaxed);
        }
    };
    is_busy(true);
    // SAFETY: I-call, and I-lock: the caller holds the service lock of its one GPU. The parameter is
    // one that nobody writes once the module is loaded.
    unsafe {
        if bindings::uvm_rust_fault {
            let result = service(parent, number, fault);
            if result != status::OK {
                bindings::uvm_seam_fault_cancelled(fault, result);
            }
        } else {
            bindings::uvm_gpu_service_replayable_faults__c((*fault).gpu);
        }
        // I-gpu: the caller is the GPU's bottom half.
        if let Some(gpu) = gpu::stats(number) {
            gpu.end_service();
        }
    }
    is_busy(false);
}

/// Services what is in the ring, by the loop here. Returns an `NV_STATUS`.
///
/// # Safety
///
/// `fault` is valid for the call, and the service lock of its GPU is held, which is that of no other call.
unsafe fn service(parent: u32, number: u32, fault: *mut bindings::uvm_seam_fault) -> u32 {
    let place = LOOPS.get(parent as usize);
    let fault_loop = place.map_or(null_mut(), |place| place.load(Acquire));
    // SAFETY: null, or from `into_foreign`; by this function's contract there is no other reference
    // to it, and it is not destroyed.
    let Some(fault_loop) = (unsafe { fault_loop.as_mut() }) else {
        return status::INVALID_STATE;
    };
    // SAFETY: this function's contract.
    fault_loop.service(&mut unsafe { FaultGpu::new(fault, number) })
}
