// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What C does for this crate: `c/helpers.c`, and its stand-in on the host.

use crate::layout::{CLockClassKey, CMutex, CSpinLock, CWaitQueue};
use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};

#[cfg(not(MODULE))]
mod host;
#[cfg(not(MODULE))]
pub use host::testing;
#[cfg(not(MODULE))]
pub(crate) use host::*;

// `c/helpers.h` says what each does.
#[cfg(MODULE)]
extern "C" {
    pub(crate) fn uvm_rust_k_kmalloc(size: usize, flags: u32) -> *mut c_void;
    pub(crate) fn uvm_rust_k_kfree(ptr: *const c_void);
    pub(crate) fn uvm_rust_k_kvmalloc(size: usize, flags: u32) -> *mut c_void;
    pub(crate) fn uvm_rust_k_kvfree(ptr: *const c_void);
    pub(crate) fn uvm_rust_k_mutex_init(
        m: *mut CMutex,
        name: *const c_char,
        key: *mut CLockClassKey,
    );
    pub(crate) fn uvm_rust_k_mutex_lock(m: *mut CMutex);
    pub(crate) fn uvm_rust_k_mutex_unlock(m: *mut CMutex);
    pub(crate) fn uvm_rust_k_spin_init(
        l: *mut CSpinLock,
        name: *const c_char,
        key: *mut CLockClassKey,
    );
    pub(crate) fn uvm_rust_k_spin_lock(l: *mut CSpinLock);
    pub(crate) fn uvm_rust_k_spin_unlock(l: *mut CSpinLock);
    pub(crate) fn uvm_rust_k_queue_init(
        q: *mut CWaitQueue,
        name: *const c_char,
        key: *mut CLockClassKey,
    );
    pub(crate) fn uvm_rust_k_queue_wake_all(q: *mut CWaitQueue);
    pub(crate) fn uvm_rust_k_queue_wait(
        q: *mut CWaitQueue,
        m: *mut CMutex,
        jiffies: c_long,
    ) -> c_long;
    pub(crate) fn uvm_rust_k_signal_pending() -> c_int;
    pub(crate) fn uvm_rust_k_copy_from_user(to: *mut u8, from: c_ulong, n: usize) -> usize;
    pub(crate) fn uvm_rust_k_copy_to_user(to: c_ulong, from: *const u8, n: usize) -> usize;
    pub(crate) fn uvm_rust_k_print(level: c_int, text: *const u8, n: usize);
    pub(crate) fn uvm_rust_k_refcount_warn();
    pub(crate) fn uvm_rust_k_bug();
}
