// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The functions that C may call, each a safe one behind a pointer.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::seam::{self, SeqFile};
use crate::driver::stats::{Gpu, Space};
use crate::driver::{discard, ioctl};
use crate::policy::stats::{Cause, Queue};
use core::ffi::{c_long, c_ulong, c_void};
use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_gpu_create,
    uvm_rust_gpu_destroy,
    uvm_rust_space_create,
    uvm_rust_space_destroy,
    uvm_rust_space_add_gpu,
    uvm_rust_note_fault,
    uvm_rust_note_replays,
    uvm_rust_note_copy,
    uvm_rust_note_reclaim,
    uvm_rust_note_evicted,
    uvm_rust_gpu_show,
    uvm_rust_space_show,
    uvm_rust_ioctl,
);

/// The GPU behind a pointer that C keeps.
///
/// # Safety
///
/// `gpu` came from [`uvm_rust_gpu_create`] and is not destroyed during `'a`.
pub(super) unsafe fn borrow_gpu<'a>(gpu: *mut bindings::uvm_rust_gpu) -> ArcBorrow<'a, Gpu> {
    // SAFETY: by this function's contract `gpu` is what `into_foreign` gave.
    unsafe { <Arc<Gpu> as ForeignOwnable>::borrow(gpu.cast::<c_void>()) }
}

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
unsafe extern "C" fn uvm_rust_gpu_create(root_chunks: u32) -> *mut bindings::uvm_rust_gpu {
    match Gpu::new(root_chunks) {
        Ok(gpu) => gpu.into_foreign().cast_mut().cast(),
        Err(_) => core::ptr::null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_gpu_destroy(gpu: *mut bindings::uvm_rust_gpu) {
    // SAFETY: I-own: `gpu` came from `into_foreign` and this is its one destroy.
    drop(unsafe { <Arc<Gpu> as ForeignOwnable>::from_foreign(gpu.cast::<c_void>()) });
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
unsafe extern "C" fn uvm_rust_space_add_gpu(
    space: *mut bindings::uvm_rust_space,
    gpu_index: u32,
    gpu: *mut bindings::uvm_rust_gpu,
) {
    if gpu.is_null() {
        return;
    }
    // SAFETY: I-own for both.
    let (space, gpu) = unsafe { (borrow_space(space), borrow_gpu(gpu)) };
    if space.add_gpu(gpu_index, &gpu.into()).is_err() {
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
unsafe extern "C" fn uvm_rust_note_replays(gpu: *mut bindings::uvm_rust_gpu, replays: u64) {
    // SAFETY: I-own.
    unsafe { borrow_gpu(gpu) }.note_replays(replays);
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
unsafe extern "C" fn uvm_rust_note_reclaim(
    gpu: *mut bindings::uvm_rust_gpu,
    root_index: u32,
    queue: u32,
) {
    if let Some(queue) = Queue::from_number(queue) {
        // SAFETY: I-own.
        unsafe { borrow_gpu(gpu) }.note_reclaim(root_index, queue);
    }
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
unsafe extern "C" fn uvm_rust_gpu_show(
    gpu: *mut bindings::uvm_rust_gpu,
    seq: *mut bindings::seq_file,
) {
    // SAFETY: I-own for `gpu`, I-call for `seq`.
    let (gpu, mut out) = unsafe { (borrow_gpu(gpu), SeqFile::new(seq)) };
    // An overflow makes seq_file call again with more room.
    let _ = gpu.show(&mut out);
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
