// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Prefetching: what C calls, and what the worker asks of C.

// What each asks of its caller is in uvm_rust_prefetch_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::gpu;
use super::seam::SeqFile;
use crate::driver::prefetch::Prefetcher;
use crate::policy::evict::RootChunks;
use crate::policy::mask::PageMask;
use crate::policy::prefetch::worker::{
    self, Found, Hindrances, Machine, Migrated, Outcome, Pages, To,
};
use crate::policy::prefetch::{Correlator, Feed, Share};
use core::ffi::c_void;
use core::ptr::null_mut;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_share_create,
    uvm_rust_share_destroy,
    uvm_rust_prefetch_create,
    uvm_rust_prefetch_destroy,
    uvm_rust_prefetch_announce,
    uvm_rust_prefetch_fault,
    uvm_rust_prefetch_work,
    uvm_rust_prefetch_forget,
    uvm_rust_prefetch_show,
);

/// A VA space and a GPU, for the length of one turn of the worker, or at the end of the VA space.
///
/// What C needs for a call is checked here: that the locks are held, a va_block was chosen since, and
/// that it is locked.
pub(crate) struct Turning<'a> {
    /// Invariant: valid for `'a`, and used by nobody else.
    call: *mut bindings::uvm_seam_prefetch,
    prefetcher: &'a Prefetcher,
    /// Between `enter` and `leave`. So the GPU is there, and no va_block of the VA space goes.
    entered: bool,
    /// Invariant: C has a va_block that was chosen since `enter`.
    chosen: bool,
    /// Invariant: that va_block is locked.
    locked: bool,
}

impl<'a> Turning<'a> {
    /// # Safety
    ///
    /// `call` is valid, and used by nobody else, for `'a`.
    unsafe fn new(call: *mut bindings::uvm_seam_prefetch, prefetcher: &'a Prefetcher) -> Self {
        Self {
            call,
            prefetcher,
            entered: false,
            chosen: false,
            locked: false,
        }
    }

    /// As [`Machine::chunks`], with the PMM's `list_lock` held throughout.
    fn with_chunks<R>(
        &mut self,
        look: impl FnOnce(&mut Self, &mut RootChunks, u32) -> R,
    ) -> Option<R> {
        let mut number = 0;
        // SAFETY: `call` is valid, and `number` is written at most once.
        if !unsafe { bindings::uvm_seam_prefetch_lock_chunks(self.call, &mut number) } {
            return None;
        }
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
        // SAFETY: as for all.
        unsafe { bindings::uvm_seam_prefetch_is_stopping(self.call) }
    }

    fn faults(&mut self) -> bool {
        // SAFETY: as for all.
        unsafe { bindings::uvm_seam_prefetch_faults(self.call) }
    }

    fn wait_faults(&mut self) -> bool {
        // SAFETY: as for all. Locks that were held would cost time, not safety.
        unsafe { bindings::uvm_seam_prefetch_wait_faults(self.call) }
    }

    fn enter(&mut self) -> bool {
        if !self.entered {
            // SAFETY: the locks are not held, as `leave` clears `entered`.
            self.entered = unsafe { bindings::uvm_seam_prefetch_enter(self.call) };
        }
        self.entered
    }

    fn leave(&mut self) {
        self.unlock();
        self.chosen = false;
        if core::mem::take(&mut self.entered) {
            // SAFETY: `enter` took the locks, and no va_block's is held.
            unsafe { bindings::uvm_seam_prefetch_leave(self.call) };
        }
    }

    fn holder(&self) -> u64 {
        // SAFETY: as for all.
        unsafe { bindings::uvm_seam_prefetch_holder(self.call) }
    }

    fn chunks<R>(&mut self, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R> {
        self.with_chunks(|_, roots, generation| look(roots, generation))
    }

    fn free_chunks(&mut self, enough: u32) -> u32 {
        if !self.entered {
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
        self.chosen = self.entered
            // SAFETY: the VA space's lock is held if `entered`; `found` is written at most once.
            && unsafe { bindings::uvm_seam_prefetch_victim(self.call, &mut found) };
        self.chosen.then(|| hindrances(found))
    }

    fn next_block(&mut self, from: u64, last: u64) -> Option<Found> {
        let (mut next, mut found) = (0, 0);
        self.unlock();
        self.chosen = false;
        let any = self.entered
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
            && self.entered
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

/// The prefetcher behind a pointer that C keeps.
///
/// # Safety
///
/// `prefetch` came from [`uvm_rust_prefetch_create`] and is not destroyed during `'a`.
pub(super) unsafe fn borrow<'a>(prefetch: *mut bindings::uvm_rust_prefetch) -> &'a Prefetcher {
    // SAFETY: by this function's contract `prefetch` points to a live, boxed
    // `Prefetcher`, to which only shared references are made.
    unsafe { &*prefetch.cast::<Prefetcher>() }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_share_create(limit: u64) -> *mut bindings::uvm_rust_share {
    match Arc::new(Share::new(limit as usize), GFP_KERNEL_ACCOUNT) {
        Ok(share) => share.into_foreign().cast_mut().cast(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_share_destroy(share: *mut bindings::uvm_rust_share) {
    // SAFETY: I-own: it came from `into_foreign` and this is its one destroy.
    drop(unsafe { <Arc<Share> as ForeignOwnable>::from_foreign(share.cast::<c_void>()) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_create(
    params: *const bindings::uvm_rust_prefetch_params,
    share: *mut bindings::uvm_rust_share,
) -> *mut bindings::uvm_rust_prefetch {
    // SAFETY: I-own: not destroyed during the call.
    let share = unsafe { <Arc<Share> as ForeignOwnable>::borrow(share.cast::<c_void>()) };
    // SAFETY: I-call.
    match Prefetcher::new(unsafe { &*params }, share.into()) {
        Ok(prefetch) => prefetch.into_foreign().cast_mut().cast(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_destroy(
    prefetch: *mut bindings::uvm_rust_prefetch,
    call: *mut bindings::uvm_seam_prefetch,
) {
    {
        // SAFETY: I-own: not destroyed yet.
        let prefetcher = unsafe { borrow(prefetch) };
        // SAFETY: I-call; it is the caller's own.
        prefetcher.leave(&mut unsafe { Turning::new(call, prefetcher) });
    }
    // SAFETY: I-own: it came from `into_foreign` and this is its one destroy.
    drop(unsafe {
        <Pin<KBox<Prefetcher>> as ForeignOwnable>::from_foreign(prefetch.cast::<c_void>())
    });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_announce(
    prefetch: *mut bindings::uvm_rust_prefetch,
    exec_id: u64,
) {
    // SAFETY: I-own.
    unsafe { borrow(prefetch) }.announce(exec_id);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_fault(
    prefetch: *mut bindings::uvm_rust_prefetch,
    address: u64,
) -> bool {
    // SAFETY: I-own.
    unsafe { borrow(prefetch) }.fault(address)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_work(
    prefetch: *mut bindings::uvm_rust_prefetch,
    call: *mut bindings::uvm_seam_prefetch,
) -> bool {
    // SAFETY: I-own.
    let prefetcher = unsafe { borrow(prefetch) };
    // SAFETY: I-call for `call`, which is the worker's own.
    let mut turning = unsafe { Turning::new(call, prefetcher) };
    prefetcher.work(&mut turning)
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
    let (prefetch, mut out) = unsafe { (borrow(prefetch), SeqFile::new(seq)) };
    let _ = prefetch.show(&mut out);
}
