// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The driver's object of a VA space, behind the pointer that C keeps in its own.
//!
//! Invariant besides those of `ffi.rs`, kept by `uvm_rust_seam.c` and upstream:
//!
//! - **I-space**: the pointer is set before the VA space can be found, and cleared, with the object destroyed, after its
//!   va_blocks have been killed; both under the VA space's lock in write mode. A caller that looks it up holds that lock, or
//!   the lock of a va_block that is alive, or keeps the VA space's file, or holds upstream's `va_spaces.lock` with the VA
//!   space on its list. What a work item uses of the object is there until [`State::end`] has stopped the work.
//!   `tests/loom/tests/va_spaces.rs` takes each of these out of a model.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::seam::SeqFile;
use super::vaspace::VaSpace;
use super::{bindings, gpu};
use crate::driver::space::State;
use crate::policy::stats::evicting::Eviction;
use crate::policy::stats::Cause;
use core::ffi::c_void;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_space_create,
    uvm_rust_space_destroy,
    uvm_rust_space_add_gpu,
    uvm_rust_space_show,
    uvm_rust_note_fault,
    uvm_rust_note_copy,
    uvm_rust_note_evicted,
    uvm_rust_evicted,
);
#[cfg(not(uvm_native))]
super::check_exports!(
    uvm_rust_space_stop,
    uvm_rust_space_forget,
    uvm_rust_block_freed
);

/// The VA space that the driver's object belongs to. The object does not outlive it.
#[derive(Clone, Copy)]
pub(crate) struct Home(NonNull<bindings::uvm_seam_space>);

// SAFETY: an address; what is done with it says which locks it needs.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    /// The VA space itself.
    pub(crate) fn space(&self) -> VaSpace<'_> {
        // SAFETY: by the type's documentation; its set-up ends with what is known of it.
        unsafe { VaSpace::new(self.0) }
    }
}

/// The driver's object of a VA space.
///
/// # Safety
///
/// `space` came from [`uvm_rust_space_create`] and is not destroyed during `'a`.
pub(super) unsafe fn borrow<'a>(space: *mut bindings::uvm_rust_space) -> &'a State {
    // SAFETY: by this function's contract `space` points to a live, boxed `State`, to which only shared
    // references are made.
    unsafe { &*space.cast::<State>() }
}

/// The same; `None` for a VA space whose set-up has failed, which has none.
///
/// # Safety
///
/// As for [`borrow`], unless `space` is null.
unsafe fn known<'a>(space: *mut bindings::uvm_rust_space) -> Option<&'a State> {
    // SAFETY: by this function's contract.
    (!space.is_null()).then(|| unsafe { borrow(space) })
}

/// The driver's object of a VA space; `None` if its set-up has failed.
///
/// # Safety
///
/// One of the things that I-space names is held for `'a`.
pub(super) unsafe fn of<'a>(space: *mut bindings::uvm_seam_space) -> Option<&'a State> {
    // SAFETY: by this function's contract it is not destroyed for `'a` (I-space).
    unsafe { known(bindings::uvm_seam_space_state(space)) }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_create(
    of: *mut bindings::uvm_seam_space,
    pid: u32,
    gpus: u32,
) -> *mut bindings::uvm_rust_space {
    let state = NonNull::new(of).ok_or(EINVAL).and_then(|of| {
        let state = State::new(Home(of), pid, gpus)?;
        Ok(KBox::new(state, GFP_KERNEL_ACCOUNT)?)
    });
    match state {
        Ok(state) => state.into_foreign().cast_mut().cast(),
        Err(_) => core::ptr::null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_destroy(space: *mut bindings::uvm_rust_space) {
    if !space.is_null() {
        // SAFETY: I-own: `space` came from `into_foreign` and this is its one destroy.
        drop(unsafe { <KBox<State> as ForeignOwnable>::from_foreign(space.cast::<c_void>()) });
    }
}

#[cfg(not(uvm_native))]
#[no_mangle]
unsafe extern "C" fn uvm_rust_space_stop(space: *mut bindings::uvm_rust_space) {
    // SAFETY: I-own.
    unsafe { borrow(space) }.end();
}

#[cfg(not(uvm_native))]
#[no_mangle]
unsafe extern "C" fn uvm_rust_space_forget(
    space: *mut bindings::uvm_rust_space,
    first: u64,
    last: u64,
) {
    // SAFETY: I-own.
    unsafe { borrow(space) }.forget(first, last);
}

#[no_mangle]
#[cfg_attr(uvm_native, allow(unused_variables))]
unsafe extern "C" fn uvm_rust_space_add_gpu(
    space: *mut bindings::uvm_rust_space,
    of: *mut bindings::uvm_gpu_struct,
    gpu_index: u32,
) {
    // SAFETY: I-own for `space`; I-gpu: a VA space retains the GPUs that are registered in it.
    let (space, gpu) = unsafe { (known(space), gpu::stats(gpu_index)) };
    let Some(space) = space else {
        return;
    };
    if let Some(gpu) = gpu {
        space.add_gpu(gpu_index, gpu);
    }
    // SAFETY: I-call for `of`, of which that is the number.
    #[cfg(not(uvm_native))]
    space.begins_on(unsafe { gpu::GpuHandle::new(of, gpu_index) });
}

/// The GPU with this number among memories; `None` for the host, which is before them.
pub(super) fn gpu_of(memory: u32) -> Option<u32> {
    memory.checked_sub(bindings::UVM_RUST_MEMORY_HOST + 1)
}

/// Why upstream makes pages resident, by its `uvm_make_resident_cause_t`. `uvm_rust_seam.c` checks the numbers.
pub(super) fn cause_of(upstreams: u32) -> Cause {
    match upstreams {
        0 | 1 => Cause::Fault,
        2 => Cause::AccessCounter,
        3 => Cause::Prefetch,
        4 => Cause::Eviction,
        _ => Cause::Api,
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_fault(
    space: *mut bindings::uvm_rust_space,
    gpu_index: u32,
    batch: u32,
    instances: u64,
    duplicates: u64,
) {
    // SAFETY: I-own for `space`; I-gpu: the caller is the GPU's bottom half.
    let (space, gpu) = unsafe { (borrow(space), gpu::stats(gpu_index)) };
    if let (Some(space), Some(gpu)) = (space.stats(), gpu) {
        space.note_fault(gpu, gpu_index, batch, instances, duplicates);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_copy(
    space: *mut bindings::uvm_rust_space,
    dst: u32,
    src: u32,
    cause: u32,
    address: u64,
    bytes: u64,
) {
    // SAFETY: I-own.
    let space = unsafe { borrow(space) };
    space.note_copy((gpu_of(dst), gpu_of(src)), cause_of(cause), address, bytes);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_evicted(
    space: *mut bindings::uvm_rust_space,
    gpu_index: u32,
    root_index: u32,
    address: u64,
) -> u64 {
    // SAFETY: I-own.
    let space = unsafe { borrow(space) };
    space.note_evicted((gpu_index, root_index), address).0
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_evicted(
    space: *mut bindings::uvm_rust_space,
    gpu_index: u32,
    root_index: u32,
    address: u64,
    eviction: u64,
    status: u32,
) {
    // SAFETY: I-own.
    let space = unsafe { borrow(space) };
    let of = (gpu_index, root_index);
    space.evicted(of, address, Eviction(eviction), status);
}

#[cfg(not(uvm_native))]
#[no_mangle]
unsafe extern "C" fn uvm_rust_block_freed(space: *mut bindings::uvm_rust_space, address: u64) {
    // SAFETY: I-own.
    unsafe { borrow(space) }.freed_block(address);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_show(
    space: *mut bindings::uvm_rust_space,
    seq: *mut bindings::seq_file,
) {
    // SAFETY: I-own for `space`, I-call for `seq`.
    let (space, mut out) = unsafe { (known(space), SeqFile::new(seq)) };
    // An overflow makes seq_file call again with more room.
    let _ = space.map(|space| space.show(&mut out));
}
