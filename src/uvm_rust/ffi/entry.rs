// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The functions that C may call, each a safe one behind a pointer.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::seam::{self, SeqFile};
use super::{bindings, gpu};
use crate::driver::stats::Space;
use crate::driver::{discard, ioctl};
use crate::policy::stats::Cause;
use core::ffi::{c_long, c_ulong, c_void};
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_space_create,
    uvm_rust_space_destroy,
    uvm_rust_space_add_gpu,
    uvm_rust_note_fault,
    uvm_rust_note_copy,
    uvm_rust_note_evicted,
    uvm_rust_space_show,
    uvm_rust_ioctl,
);

/// The VA space behind a pointer that C keeps.
///
/// # Safety
///
/// `space` came from [`uvm_rust_space_create`] and is not destroyed during `'a`.
pub(super) unsafe fn borrow_space<'a>(space: *mut bindings::uvm_rust_space) -> &'a Space {
    // SAFETY: by this function's contract `space` points to a live `Space`,
    // which `uvm_rust_space_create` boxed and to which only shared references
    // are made.
    unsafe { &*space.cast::<Space>() }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_create(pid: u32, gpus: u32) -> *mut bindings::uvm_rust_space {
    match Space::new(pid, gpus) {
        Ok(space) => space.into_foreign().cast_mut().cast(),
        Err(_) => core::ptr::null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_destroy(space: *mut bindings::uvm_rust_space) {
    // SAFETY: I-own: `space` came from `into_foreign` and this is its one destroy.
    drop(unsafe { <Pin<KBox<Space>> as ForeignOwnable>::from_foreign(space.cast::<c_void>()) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_add_gpu(space: *mut bindings::uvm_rust_space, gpu_index: u32) {
    // SAFETY: I-own for `space`; I-gpu: a VA space retains the GPUs that are registered in it.
    let (space, gpu) = unsafe { (borrow_space(space), gpu::stats(gpu_index)) };
    if gpu.is_some_and(|gpu| space.add_gpu(gpu_index, gpu).is_err()) {
        pr_warn_once();
    }
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
    // SAFETY: I-own.
    unsafe { borrow_space(space) }.note_fault(gpu_index, batch, instances, duplicates);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_copy(
    space: *mut bindings::uvm_rust_space,
    dst: u32,
    src: u32,
    cause: u32,
    bytes: u64,
) {
    let gpu = |n| (n != bindings::UVM_RUST_CPU).then_some(n);
    let cause = match cause {
        bindings::UVM_RUST_CAUSE_FAULT => Cause::Fault,
        bindings::UVM_RUST_CAUSE_PREFETCH => Cause::Prefetch,
        bindings::UVM_RUST_CAUSE_EVICTION => Cause::Eviction,
        bindings::UVM_RUST_CAUSE_ACCESS_COUNTER => Cause::AccessCounter,
        _ => Cause::Api,
    };
    // SAFETY: I-own.
    unsafe { borrow_space(space) }.note_copy(gpu(dst), gpu(src), cause, bytes);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_note_evicted(
    space: *mut bindings::uvm_rust_space,
    gpu_index: u32,
    root_index: u32,
) {
    // SAFETY: I-own.
    unsafe { borrow_space(space) }.note_evicted(gpu_index, root_index);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_space_show(
    space: *mut bindings::uvm_rust_space,
    seq: *mut bindings::seq_file,
) {
    // SAFETY: I-own for `space`, I-call for `seq`.
    let (space, mut out) = unsafe { (borrow_space(space), SeqFile::new(seq)) };
    let _ = space.show(&mut out);
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_ioctl(filp: *mut bindings::file, cmd: u32, arg: c_ulong) -> c_long {
    // SAFETY: I-call.
    let file = unsafe { seam::File::new(filp) };
    // An upstream with a discard of its own answers its own numbers.
    if cfg!(not(uvm_native)) {
        if let Some(result) = discard::dispatch(&file, cmd, arg as usize) {
            return result.map_or_else(|e| e.to_errno().into(), |()| 0);
        }
    }
    // After a fatal error nothing is done any more, so ask before doing it.
    if ioctl::is_ours(cmd) && !seam::healthy() {
        return EIO.to_errno().into();
    }
    match ioctl::dispatch(&file, cmd, arg as usize) {
        None => bindings::UVM_RUST_NOT_OURS.into(),
        Some(Ok(())) => 0,
        Some(Err(e)) => e.to_errno().into(),
    }
}
