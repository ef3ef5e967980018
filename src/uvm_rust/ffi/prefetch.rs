// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Prefetching: what C calls, and what the worker asks of C.

// What each asks of its caller is in uvm_rust_prefetch_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::seam::SeqFile;
use super::tenant::Charged;
use super::{bindings, gpu};
use crate::driver::prefetch::{Prefetcher, Process};
use crate::policy::evict::RootChunks;
use crate::policy::mask::PageMask;
use crate::policy::prefetch::worker::{
    self, Found, Hindrances, Machine, Migrated, Outcome, Pages, To,
};
use crate::policy::prefetch::{Correlator, Feed, Share};
use core::ffi::c_void;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_prefetch_create,
    uvm_rust_prefetch_destroy,
    uvm_rust_prefetch_end,
    uvm_rust_prefetch_fault,
    uvm_rust_prefetch_work,
    uvm_rust_prefetch_forget,
    uvm_rust_prefetch_show,
);

/// The VA space that a [`Process`] belongs to, which it does not outlive.
pub(crate) struct Home(NonNull<bindings::uvm_seam_space>);

// SAFETY: an address; what is done with it says which locks it needs.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    /// As the chunks know it.
    fn holder(&self) -> u64 {
        self.0.as_ptr() as usize as u64
    }
}

/// What the worker of a VA space works with, in C, from the first announcement on.
pub(crate) struct Worker(AtomicPtr<bindings::uvm_seam_prefetch>);

impl Worker {
    /// None yet.
    pub(crate) const fn new() -> Self {
        // Invariant: null, or what `uvm_seam_prefetch_create` gave, which is freed by `drop`.
        Self(AtomicPtr::new(null_mut()))
    }

    fn get(&self) -> Option<NonNull<bindings::uvm_seam_prefetch>> {
        NonNull::new(self.0.load(Acquire))
    }

    /// Whether there is one.
    pub(crate) fn is_made(&self) -> bool {
        self.get().is_some()
    }

    /// Makes it if there is none, charged to `charged`, which outlives it. One thread at a time.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make(&self, home: &Home, charged: &Charged) -> Result {
        if !self.is_made() {
            let (space, group) = (home.0.as_ptr(), charged.group());
            // SAFETY: the VA space outlives this, and so does the group.
            let made = unsafe { bindings::uvm_seam_prefetch_create(space, group) };
            let made = NonNull::new(made).ok_or(ENOMEM)?;
            self.0.store(made.as_ptr(), Release);
        }
        Ok(())
    }

    /// Has `Process::work` called, once more if it runs.
    pub(crate) fn wake(&self) {
        if let Some(call) = self.get() {
            // SAFETY: valid by the type's invariant.
            unsafe { bindings::uvm_seam_prefetch_wake(call.as_ptr()) };
        }
    }

    /// Waits until it does not run, and takes back that it was woken. Sleeps. Whoever calls this sees to
    /// it that nobody wakes it any more.
    pub(crate) fn stop(&self) {
        if let Some(call) = self.get() {
            // SAFETY: valid by the type's invariant; no lock is held that the worker takes.
            unsafe { bindings::uvm_seam_prefetch_stop(call.as_ptr()) };
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(call) = self.get() {
            // SAFETY: valid by the type's invariant, and nobody has it any more: a process ends
            // before it is dropped (I-own), and with it the work item, if there was one.
            unsafe { bindings::uvm_seam_prefetch_free(call.as_ptr()) };
        }
    }
}

/// A number that nobody can foresee.
pub(crate) fn random() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bindings::uvm_seam_random() }
}

/// The module parameters of prefetching. What is out of range is clamped by who takes it.
pub(crate) struct Parameters {
    /// Prefetch; otherwise the worker only learns.
    pub(crate) act: bool,
    /// Chunks that are kept ready; 0: no pre-eviction.
    pub(crate) watermark: u32,
    /// Kernels to look ahead.
    pub(crate) ahead: u32,
    /// Of a kernel's block table.
    pub(crate) rows: u32,
    /// Blocks in a row.
    pub(crate) assoc: u32,
    /// Successors of a block.
    pub(crate) succs: u32,
    /// Bytes that a tenant's tables for a GPU may take.
    pub(crate) memory: usize,
}

impl Parameters {
    /// As they are.
    pub(crate) fn read() -> Self {
        // SAFETY: nobody writes them once the module is loaded.
        unsafe {
            Self {
                act: bindings::uvm_rust_prefetch,
                watermark: bindings::uvm_rust_preevict,
                ahead: bindings::uvm_rust_prefetch_ahead,
                rows: bindings::uvm_rust_prefetch_rows,
                assoc: bindings::uvm_rust_prefetch_assoc,
                succs: bindings::uvm_rust_prefetch_succs,
                memory: (bindings::uvm_rust_prefetch_memory as usize) << 20,
            }
        }
    }
}

/// Which locks of a VA space are held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// Between `enter` and `leave`. So the GPU is there, and no va_block of the VA space goes.
    Entered,
    /// The VA space's lock alone, in the end of it. The GPU is there.
    Ending,
}

/// A VA space and a GPU, for the length of one turn of the worker, or at the end of the VA space.
///
/// What C needs for a call is checked here: that the locks are held, a va_block was chosen since, and
/// that it is locked.
pub(crate) struct Turning<'a> {
    /// Invariant: valid for `'a`, and used by nobody else.
    call: *mut bindings::uvm_seam_prefetch,
    process: &'a Process,
    prefetcher: &'a Prefetcher,
    /// Invariant: what was last asked of C says so.
    held: Held,
    /// Invariant: C has a va_block that was chosen since `enter`.
    chosen: bool,
    /// Invariant: that va_block is locked.
    locked: bool,
}

impl<'a> Turning<'a> {
    /// For a turn of `process` on the GPU of `prefetcher`; `None` if it has no worker.
    ///
    /// # Safety
    ///
    /// Nobody else has one of `process` for `'a`.
    unsafe fn new(process: &'a Process, prefetcher: &'a Prefetcher) -> Option<Self> {
        Some(Self {
            call: process.worker().get()?.as_ptr(),
            process,
            prefetcher,
            held: Held::Nothing,
            chosen: false,
            locked: false,
        })
    }

    fn entered(&self) -> bool {
        self.held == Held::Entered
    }

    /// Calls `then` at the end of the VA space, with the GPU if it is still registered there.
    fn ending(&mut self, then: impl FnOnce(&mut Self)) {
        // SAFETY: `call` is valid, and no lock is held.
        let there =
            unsafe { bindings::uvm_seam_prefetch_visit(self.call, self.prefetcher.gpu(), true) };
        if there {
            self.held = Held::Ending;
        }
        then(self);
        if core::mem::replace(&mut self.held, Held::Nothing) == Held::Ending {
            // SAFETY: the lock was taken above.
            unsafe { bindings::uvm_seam_prefetch_depart(self.call) };
        }
    }

    /// As [`Machine::chunks`], with the PMM's `list_lock` held throughout.
    fn with_chunks<R>(
        &mut self,
        look: impl FnOnce(&mut Self, &mut RootChunks, u32) -> R,
    ) -> Option<R> {
        if self.held == Held::Nothing {
            return None;
        }
        let number = self.prefetcher.gpu();
        // SAFETY: the GPU is there.
        unsafe { bindings::uvm_seam_prefetch_lock_chunks(self.call) };
        // SAFETY: the `list_lock` is held until the unlock below. `look` cannot keep the
        // reference, nor get another: it is handed `self`, of which it calls `note` only.
        let roots = unsafe { gpu::queues(number) };
        let result = roots.map(|roots| look(self, roots, gpu::generation(number)));
        // SAFETY: `call` is valid, and the lock was taken above.
        unsafe { bindings::uvm_seam_prefetch_unlock_chunks(self.call) };
        result
    }
}

// Numbers that both sides count with.
const _: () = assert!(worker::IN_FLIGHT == bindings::UVM_RUST_PREFETCH_COPIES);

fn hindrances(found: u32) -> Hindrances {
    let has = |bit| found & bit != 0;
    Hindrances {
        no_block: has(bindings::UVM_RUST_STAYS_NO_BLOCK),
        preferred_elsewhere: has(bindings::UVM_RUST_STAYS_PREFERRED),
        read_duplicated: has(bindings::UVM_RUST_STAYS_DUPLICATED),
        lite: has(bindings::UVM_RUST_STAYS_LITE),
        group_stays: has(bindings::UVM_RUST_STAYS_GROUP),
    }
}

fn is_number(chunk: u32) -> Option<u32> {
    (chunk != bindings::UVM_RUST_NO_CHUNK).then_some(chunk)
}

// In all blocks below `self.call` is valid by the type's invariant; what else a call needs is in
// each comment.
impl Machine for Turning<'_> {
    const CHECKS: bool = cfg!(uvm_checks);

    fn broken(&mut self, invariant: &'static str) {
        pr_err!("prefetching: {invariant}\n");
    }

    fn tables<R>(&mut self, look: impl FnOnce(&mut Correlator, &Feed, &Share) -> R) -> R {
        self.prefetcher.tables(look)
    }

    fn is_stopping(&mut self) -> bool {
        self.process.is_ending()
    }

    fn faults(&mut self) -> bool {
        // SAFETY: the number is that of a parent GPU.
        unsafe { bindings::uvm_seam_fault_busy(self.prefetcher.parent()) }
    }

    fn wait_faults(&mut self) -> bool {
        // SAFETY: as for `faults`. Locks that were held would cost time, not safety.
        unsafe { bindings::uvm_seam_fault_wait_idle(self.prefetcher.parent()) }
    }

    fn enter(&mut self) -> bool {
        let number = self.prefetcher.gpu();
        if self.held == Held::Nothing
            && !self.is_stopping()
            // SAFETY: the locks are not held.
            && unsafe { bindings::uvm_seam_prefetch_enter(self.call, number) }
        {
            self.held = Held::Entered;
        }
        self.entered()
    }

    fn leave(&mut self) {
        self.unlock();
        self.chosen = false;
        if self.entered() {
            self.held = Held::Nothing;
            // SAFETY: `enter` took the locks, and no va_block's is held.
            unsafe { bindings::uvm_seam_prefetch_leave(self.call) };
        }
    }

    fn holder(&self) -> u64 {
        self.process.home().holder()
    }

    fn chunks<R>(&mut self, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R> {
        self.with_chunks(|_, roots, generation| look(roots, generation))
    }

    fn free_chunks(&mut self, enough: u32) -> u32 {
        if !self.entered() {
            return 0;
        }
        // SAFETY: the GPU is there.
        unsafe { bindings::uvm_seam_prefetch_free_chunks(self.call, enough) }
    }

    fn pick(&mut self, choose: impl FnOnce(&RootChunks) -> Option<u32>) -> Option<u32> {
        self.with_chunks(|turning, roots, _| {
            let chunk = choose(roots).filter(|c| roots.has(*c))?;
            // SAFETY: the `list_lock` is held, and the chunk is one of those that the queues
            // were made for: as many as the PMM has root chunks.
            unsafe { bindings::uvm_seam_prefetch_note(turning.call, chunk) };
            Some(chunk)
        })
        .flatten()
    }

    fn victim(&mut self) -> Option<Hindrances> {
        let mut found = 0;
        self.unlock();
        self.chosen = self.entered()
            // SAFETY: the VA space's lock is held if `entered`; `found` is written at most once.
            && unsafe { bindings::uvm_seam_prefetch_victim(self.call, &mut found) };
        self.chosen.then(|| hindrances(found))
    }

    fn next_block(&mut self, from: u64, last: u64) -> Option<Found> {
        let (mut next, mut found) = (0, 0);
        self.unlock();
        self.chosen = false;
        let any = self.entered()
            // SAFETY: the VA space's lock is held if `entered`; both numbers are written at most once.
            && unsafe {
                bindings::uvm_seam_prefetch_next(self.call, from, last, &mut next, &mut found)
            };
        let hindrances = hindrances(found);
        self.chosen = any && !hindrances.no_block;
        any.then_some(Found { hindrances, next })
    }

    fn lock(&mut self, to: To) {
        if self.chosen && !self.locked {
            self.locked = true;
            // SAFETY: a va_block is chosen, and not locked.
            unsafe { bindings::uvm_seam_prefetch_lock(self.call, to == To::Host) };
        }
    }

    fn unlock(&mut self) {
        if core::mem::take(&mut self.locked) {
            // SAFETY: `lock` locked the va_block, which is still the chosen one.
            unsafe { bindings::uvm_seam_prefetch_unlock(self.call) };
        }
    }

    fn pages(&mut self) -> Pages {
        let mut out = bindings::uvm_rust_prefetch_pages::default();
        if self.locked {
            // SAFETY: the va_block is locked, and `out` is valid for writing.
            unsafe { bindings::uvm_seam_prefetch_pages(self.call, &mut out) };
        }
        let mask = |m: bindings::uvm_rust_mask| PageMask::from_words(m.words);
        Pages {
            populated: mask(out.populated),
            thrashing: mask(out.thrashing),
            discarded: mask(out.discarded),
            there: mask(out.there),
        }
    }

    fn chunk(&mut self) -> Option<u32> {
        if !self.locked {
            return None;
        }
        // SAFETY: the va_block is locked.
        is_number(unsafe { bindings::uvm_seam_prefetch_chunk(self.call) })
    }

    fn migrate(&mut self, copy: u32, pages: &PageMask, to: To) -> Migrated {
        if !self.locked || copy >= worker::IN_FLIGHT {
            return Migrated::Failed;
        }
        let mask = bindings::uvm_rust_mask {
            words: *pages.words(),
        };
        // SAFETY: the va_block is locked, for the same destination; there is a tracker with
        // that number; `mask` is valid for reading.
        let migrated =
            unsafe { bindings::uvm_seam_prefetch_migrate(self.call, copy, &mask, to == To::Host) };
        match migrated {
            bindings::UVM_RUST_MIGRATE_BEGUN => Migrated::Begun,
            bindings::UVM_RUST_MIGRATE_AGAIN => Migrated::Again,
            _ => Migrated::Failed,
        }
    }

    fn settle(&mut self, copy: u32) -> bool {
        copy < worker::IN_FLIGHT
            && self.entered()
            // SAFETY: there is a tracker with that number, whose GPU the VA space's lock keeps.
            && unsafe { bindings::uvm_seam_prefetch_settle(self.call, copy) }
    }

    fn brought(&mut self, outcome: Outcome, pages: u32) {
        self.prefetcher.brought(outcome, pages);
    }

    fn pushed_out(&mut self, pages: u32) {
        self.prefetcher.pushed_out(pages);
    }
}

/// The process behind a pointer that C keeps.
///
/// # Safety
///
/// `prefetch` came from [`uvm_rust_prefetch_create`] and is not destroyed during `'a`.
pub(super) unsafe fn borrow<'a>(prefetch: *mut bindings::uvm_rust_prefetch) -> &'a Process {
    // SAFETY: by this function's contract `prefetch` points to a live, boxed
    // `Process`, to which only shared references are made.
    unsafe { &*prefetch.cast::<Process>() }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_create(
    space: *mut bindings::uvm_seam_space,
) -> *mut bindings::uvm_rust_prefetch {
    let process = NonNull::new(space).and_then(|space| Process::new(Home(space)).ok());
    process.map_or(null_mut(), |p| p.into_foreign().cast_mut().cast())
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_destroy(prefetch: *mut bindings::uvm_rust_prefetch) {
    // SAFETY: I-own: it came from `into_foreign` and this is its one destroy.
    drop(unsafe {
        <Pin<KBox<Process>> as ForeignOwnable>::from_foreign(prefetch.cast::<c_void>())
    });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_end(prefetch: *mut bindings::uvm_rust_prefetch) {
    // SAFETY: I-own.
    let process = unsafe { borrow(prefetch) };
    process.end(|prefetcher| {
        // SAFETY: the worker has stopped, and C ends a process once.
        if let Some(mut turning) = unsafe { Turning::new(process, prefetcher) } {
            turning.ending(|turning| prefetcher.leave(turning));
        }
    });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_fault(
    prefetch: *mut bindings::uvm_rust_prefetch,
    gpu: u32,
    address: u64,
) {
    // SAFETY: I-own.
    unsafe { borrow(prefetch) }.fault(gpu, address);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_work(prefetch: *mut bindings::uvm_rust_prefetch) {
    // SAFETY: I-own.
    let process = unsafe { borrow(prefetch) };
    process.work(|prefetcher| {
        // SAFETY: a work item runs on one CPU at a time, and not after `end` stopped it.
        let turning = unsafe { Turning::new(process, prefetcher) };
        turning.is_some_and(|mut turning| prefetcher.work(&mut turning))
    });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_forget(
    prefetch: *mut bindings::uvm_rust_prefetch,
    first: u64,
    last: u64,
) {
    // SAFETY: I-own.
    unsafe { borrow(prefetch) }.forget(first, last);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_show(
    prefetch: *mut bindings::uvm_rust_prefetch,
    seq: *mut bindings::seq_file,
) {
    // SAFETY: I-own for `prefetch`, I-call for `seq`.
    let (process, mut out) = unsafe { (borrow(prefetch), SeqFile::new(seq)) };
    let _ = process.show(&mut out);
}
