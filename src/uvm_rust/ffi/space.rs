// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What there is of a VA space: one object, behind the pointer that C keeps there.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::seam::{self, SeqFile};
use super::{bindings, gpu};
#[cfg(not(uvm_native))]
use super::{prefetch, tenant};
use crate::driver::stats::Space;
#[cfg(not(uvm_native))]
use crate::driver::{prefetch::Process, tenant::Held};
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
);
#[cfg(not(uvm_native))]
super::check_exports!(uvm_rust_space_stop, uvm_rust_space_forget);

/// What there is of a VA space.
pub(super) struct State {
    /// What its kernels are known to do; `None` if announcements are not taken.
    #[cfg(not(uvm_native))]
    pub(super) process: Option<Pin<KBox<Process>>>,
    /// Whose it is, to the SSD tier; `None` without one.
    #[cfg(not(uvm_native))]
    pub(super) tenant: Option<Held>,
    /// What is counted of it; `None` without statistics.
    pub(super) stats: Option<Space>,
}

impl State {
    #[cfg_attr(uvm_native, allow(unused_variables))]
    fn new(space: NonNull<bindings::uvm_seam_space>, pid: u32, gpus: u32) -> Result<Self> {
        Ok(Self {
            #[cfg(not(uvm_native))]
            process: prefetch::process_of(space)?,
            #[cfg(not(uvm_native))]
            tenant: tenant::of_flash()?,
            stats: seam::stats_enabled()
                .then(|| Space::new(pid, gpus))
                .transpose()?,
        })
    }

    fn counts(&self, count: impl FnOnce(&Space)) {
        if let Some(stats) = &self.stats {
            count(stats);
        }
    }
}

/// What there is of a VA space.
///
/// # Safety
///
/// `space` came from [`uvm_rust_space_create`] and is not destroyed during `'a`.
pub(super) unsafe fn borrow<'a>(space: *mut bindings::uvm_rust_space) -> &'a State {
    // SAFETY: by this function's contract `space` points to a live, boxed `State`, to which only shared
    // references are made.
    unsafe { &*space.cast::<State>() }
}

/// What there is of a VA space; `None` if its set-up has failed.
///
/// # Safety
///
/// For `'a` the VA space's lock is held, or that of one of its va_blocks, which is alive, or its file is
/// kept: it is unloaded after all of its va_blocks have been killed, and when its file is let go.
pub(super) unsafe fn of<'a>(space: *mut bindings::uvm_seam_space) -> Option<&'a State> {
    // SAFETY: by this function's contract; I-own: it is destroyed when the VA space is unloaded.
    unsafe {
        let state = bindings::uvm_seam_space_state(space);
        (!state.is_null()).then(|| borrow(state))
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_create(
    of: *mut bindings::uvm_seam_space,
    pid: u32,
    gpus: u32,
) -> *mut bindings::uvm_rust_space {
    let state = NonNull::new(of).ok_or(EINVAL).and_then(|of| {
        let state = State::new(of, pid, gpus)?;
        Ok(KBox::new(state, GFP_KERNEL_ACCOUNT)?)
    });
    match state {
        Ok(state) => state.into_foreign().cast_mut().cast(),
        Err(_) => core::ptr::null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_destroy(space: *mut bindings::uvm_rust_space) {
    // SAFETY: I-own: `space` came from `into_foreign` and this is its one destroy.
    drop(unsafe { <KBox<State> as ForeignOwnable>::from_foreign(space.cast::<c_void>()) });
}

#[cfg(not(uvm_native))]
#[no_mangle]
unsafe extern "C" fn uvm_rust_space_stop(space: *mut bindings::uvm_rust_space) {
    // SAFETY: I-own.
    if let Some(process) = unsafe { &borrow(space).process } {
        process.end();
    }
}

#[cfg(not(uvm_native))]
#[no_mangle]
unsafe extern "C" fn uvm_rust_space_forget(
    space: *mut bindings::uvm_rust_space,
    first: u64,
    last: u64,
) {
    // SAFETY: I-own.
    if let Some(process) = unsafe { &borrow(space).process } {
        process.forget(first, last);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_add_gpu(space: *mut bindings::uvm_rust_space, gpu_index: u32) {
    // SAFETY: I-own for `space`; I-gpu: a VA space retains the GPUs that are registered in it.
    let (space, gpu) = unsafe { (borrow(space), gpu::stats(gpu_index)) };
    space.counts(|space| {
        if gpu.is_some_and(|gpu| space.add_gpu(gpu_index, gpu).is_err()) {
            pr_warn_once();
        }
    });
}

/// The GPU with this number among memories; `None` for the host, which is before them.
pub(super) fn gpu_of(memory: u32) -> Option<u32> {
    memory.checked_sub(bindings::UVM_RUST_MEMORY_HOST + 1)
}

/// Says once that some process goes uncounted.
fn pr_warn_once() {
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        pr_warn!("no memory for a process's statistics; they are not kept\n");
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
    if let (Some(space), Some(gpu)) = (&space.stats, gpu) {
        space.note_fault(gpu, gpu_index, batch, instances, duplicates);
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_copy(
    space: *mut bindings::uvm_rust_space,
    dst: u32,
    src: u32,
    cause: u32,
    bytes: u64,
) {
    let cause = match cause {
        bindings::UVM_RUST_CAUSE_FAULT => Cause::Fault,
        bindings::UVM_RUST_CAUSE_PREFETCH => Cause::Prefetch,
        bindings::UVM_RUST_CAUSE_EVICTION => Cause::Eviction,
        bindings::UVM_RUST_CAUSE_ACCESS_COUNTER => Cause::AccessCounter,
        _ => Cause::Api,
    };
    // SAFETY: I-own.
    let space = unsafe { borrow(space) };
    space.counts(|space| space.note_copy(gpu_of(dst), gpu_of(src), cause, bytes));
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_evicted(
    space: *mut bindings::uvm_rust_space,
    gpu_index: u32,
    root_index: u32,
) {
    // SAFETY: I-own.
    let space = unsafe { borrow(space) };
    space.counts(|space| space.note_evicted(gpu_index, root_index));
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_show(
    space: *mut bindings::uvm_rust_space,
    seq: *mut bindings::seq_file,
) {
    // SAFETY: I-own for `space`, I-call for `seq`.
    let (space, mut out) = unsafe { (borrow(space), SeqFile::new(seq)) };
    // An overflow makes seq_file call again with more room.
    space.counts(|space| {
        let _ = space.show(&mut out);
    });
    #[cfg(not(uvm_native))]
    if let Some(process) = &space.process {
        let _ = process.show(&mut out);
    }
}
