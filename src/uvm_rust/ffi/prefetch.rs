// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Prefetching: what C calls, and what the worker asks of C.

// What each asks of its caller is in uvm_rust_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::seam::SeqFile;
use crate::driver::prefetch::Prefetcher;
use crate::policy::prefetch::Share;
use core::ffi::c_void;
use core::marker::PhantomData;
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

/// A VA space and a GPU, for the length of one turn of the worker.
pub(crate) struct Call<'a> {
    /// Invariant: valid for `'a`, and used by nobody else.
    call: *mut bindings::uvm_seam_prefetch,
    _call: PhantomData<&'a ()>,
}

impl Call<'_> {
    /// Brings the va_block at `address` to the GPU: `UVM_RUST_PREFETCHED` or why not,
    /// and how many pages moved. Sleeps, and takes the VA space's lock.
    pub(crate) fn prefetch(&mut self, address: u64, until: u32) -> (u32, u32) {
        let mut pages = 0;
        // SAFETY: valid by the type's invariant; `pages` is written at most once.
        let outcome =
            unsafe { bindings::uvm_seam_prefetch_block(self.call, address, until, &mut pages) };
        (outcome, pages)
    }

    /// The current kernel has this number.
    pub(crate) fn set_now(&mut self, now: u32) {
        // SAFETY: valid by the type's invariant.
        unsafe { bindings::uvm_seam_prefetch_now(self.call, now) };
    }

    /// Pushes a block out if memory is short. As [`Call::prefetch`].
    pub(crate) fn push_out(&mut self) -> (u32, u32) {
        let mut pages = 0;
        // SAFETY: as for `prefetch`.
        let outcome = unsafe { bindings::uvm_seam_push_out(self.call, &mut pages) };
        (outcome, pages)
    }
}

/// The prefetcher behind a pointer that C keeps.
///
/// # Safety
///
/// `prefetch` came from [`uvm_rust_prefetch_create`] and is not destroyed during `'a`.
pub(super) unsafe fn borrow<'a>(prefetch: *mut c_void) -> &'a Prefetcher {
    // SAFETY: by this function's contract `prefetch` points to a live, boxed
    // `Prefetcher`, to which only shared references are made.
    unsafe { &*prefetch.cast::<Prefetcher>() }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_share_create(limit: u64) -> *mut c_void {
    match Arc::new(Share::new(limit as usize), GFP_KERNEL_ACCOUNT) {
        Ok(share) => share.into_foreign().cast_mut(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_share_destroy(share: *mut c_void) {
    // SAFETY: I-own: it came from `into_foreign` and this is its one destroy.
    drop(unsafe { <Arc<Share> as ForeignOwnable>::from_foreign(share) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_create(
    params: *const bindings::uvm_rust_prefetch_params,
    share: *mut c_void,
) -> *mut c_void {
    // SAFETY: I-own: not destroyed during the call.
    let share = unsafe { <Arc<Share> as ForeignOwnable>::borrow(share) };
    // SAFETY: I-call.
    match Prefetcher::new(unsafe { &*params }, share.into()) {
        Ok(prefetch) => prefetch.into_foreign().cast_mut(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_destroy(prefetch: *mut c_void) {
    // SAFETY: I-own: not destroyed yet.
    unsafe { borrow(prefetch) }.leave();
    // SAFETY: I-own: it came from `into_foreign` and this is its one destroy.
    drop(unsafe { <Pin<KBox<Prefetcher>> as ForeignOwnable>::from_foreign(prefetch) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_announce(prefetch: *mut c_void, exec_id: u64) {
    // SAFETY: I-own.
    unsafe { borrow(prefetch) }.announce(exec_id);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_fault(prefetch: *mut c_void, address: u64) -> bool {
    // SAFETY: I-own.
    unsafe { borrow(prefetch) }.fault(address)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_work(
    prefetch: *mut c_void,
    call: *mut bindings::uvm_seam_prefetch,
) -> bool {
    let mut call = Call {
        call,
        _call: PhantomData,
    };
    // SAFETY: I-own for `prefetch`; I-call for `call`, which is the worker's own.
    unsafe { borrow(prefetch) }.work(&mut call)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_forget(prefetch: *mut c_void, first: u64, last: u64) {
    // SAFETY: I-own.
    unsafe { borrow(prefetch) }.forget(first, last);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_prefetch_show(prefetch: *mut c_void, seq: *mut bindings::seq_file) {
    // SAFETY: I-own for `prefetch`, I-call for `seq`.
    let (prefetch, mut out) = unsafe { (borrow(prefetch), SeqFile::new(seq)) };
    let _ = prefetch.show(&mut out);
}
