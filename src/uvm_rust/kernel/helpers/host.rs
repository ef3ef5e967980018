// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The host's stand-in for `c/helpers.c`, as strict as the kernel or stricter. Memory is
//! aligned no better than `kmalloc()` promises, and comes filled with rubbish. Freed memory must have been allocated, and
//! the bytes behind it must be untouched. User space is a map from addresses to bytes.
//!
//! Counts, failures, signals and user space belong to one thread, as each test has a thread. Only locks are shared.

use super::*;
use crate::layout::{KMALLOC_MINALIGN, PAGE_SIZE};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::string::String;
use std::sync::Mutex as StdMutex;
use std::thread;
use std::time::{Duration, Instant};

/// A tick of the host's timer.
const JIFFY: Duration = Duration::from_millis(4);

/// The layout of each allocation, by its address.
static ALLOCATED: StdMutex<BTreeMap<usize, Layout>> = StdMutex::new(BTreeMap::new());

/// The value of the bytes behind each allocation, which nobody may change.
const GUARD: u8 = 0x5c;

std::thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static UNTIL_FAILURE: Cell<Option<u32>> = const { Cell::new(None) };
    static WARNINGS: Cell<u32> = const { Cell::new(0) };
    static SIGNAL: Cell<bool> = const { Cell::new(false) };
    static LAST_LINE: RefCell<(c_int, String)> = const { RefCell::new((0, String::new())) };
    static USER: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static LAST_CLASS: RefCell<(usize, String)> = const { RefCell::new((0, String::new())) };
}

pub(crate) fn now() -> i64 {
    static START: StdMutex<Option<Instant>> = StdMutex::new(None);
    let mut start = START.lock().unwrap_or_else(|e| e.into_inner());
    start.get_or_insert_with(Instant::now).elapsed().as_nanos() as i64
}

/// As well aligned as `kmalloc()` promises for a size, and not better.
pub(crate) unsafe fn uvm_rust_k_kmalloc(size: usize, _flags: u32) -> *mut c_void {
    assert_ne!(size, 0, "memory without a size is asked for");
    if let Some(n) = UNTIL_FAILURE.get() {
        UNTIL_FAILURE.set(n.checked_sub(1));
        if n == 0 {
            return null_mut();
        }
    }
    let align = if size.is_power_of_two() || size > PAGE_SIZE {
        size.min(PAGE_SIZE)
    } else {
        KMALLOC_MINALIGN
    };
    let align = align.max(KMALLOC_MINALIGN);
    let Some(whole) = size.checked_add(2 * align) else {
        return null_mut();
    };
    let Ok(layout) = Layout::from_size_align(whole, 2 * align) else {
        return null_mut();
    };
    // No machine has so much memory, but Miri would try to allocate it.
    if size > 1 << 40 {
        return null_mut();
    }
    // SAFETY: The size is not 0.
    let start = unsafe { std::alloc::alloc(layout) };
    if start.is_null() {
        return null_mut();
    }
    // SAFETY: `align` bytes on there are still `size + align`.
    let ptr = unsafe { start.add(align) };
    // SAFETY: So there are as many to fill.
    unsafe { ptr.write_bytes(0xa5, size) };
    // SAFETY: And `align` more behind them.
    unsafe { ptr.add(size).write_bytes(GUARD, align) };
    HELD.set(HELD.get() + 1);
    let mut allocated = ALLOCATED.lock().unwrap_or_else(|e| e.into_inner());
    allocated.insert(ptr as usize, layout);
    ptr.cast()
}

pub(crate) unsafe fn uvm_rust_k_kfree(ptr: *const c_void) {
    let mut allocated = ALLOCATED.lock().unwrap_or_else(|e| e.into_inner());
    let layout = allocated.remove(&(ptr as usize));
    drop(allocated);
    let layout = layout.unwrap_or_else(|| panic!("{ptr:p} is freed, and was not allocated"));
    let align = layout.align() / 2;
    let size = layout.size() - 2 * align;
    // SAFETY: `kmalloc` above wrote as many bytes there.
    let guard = unsafe { core::slice::from_raw_parts(ptr.cast::<u8>().add(size), align) };
    assert!(guard.iter().all(|b| *b == GUARD), "written behind {ptr:p}");
    HELD.set(HELD.get() - 1);
    // SAFETY: `kmalloc` above went on by as much from what the allocator gave it.
    unsafe { std::alloc::dealloc(ptr.cast_mut().cast::<u8>().sub(align), layout) }
}

pub(crate) unsafe fn uvm_rust_k_kvmalloc(size: usize, flags: u32) -> *mut c_void {
    // SAFETY: The contract is the same.
    unsafe { uvm_rust_k_kmalloc(size, flags) }
}

pub(crate) unsafe fn uvm_rust_k_kvfree(ptr: *const c_void) {
    // SAFETY: The contract is the same.
    unsafe { uvm_rust_k_kfree(ptr) }
}

/// Looks at the word that a C lock begins with, here.
unsafe fn word<'a, T>(state: *mut T) -> &'a AtomicU32 {
    // SAFETY: The stand-ins of C's locks have 4 bytes or more, aligned so, all initialised,
    // and nobody else looks at them but through this function.
    unsafe { &*state.cast::<AtomicU32>() }
}

unsafe fn init<T>(state: *mut T, name: *const c_char, key: *mut CLockClassKey) {
    // SAFETY: The caller's memory is the lock's, unused until now.
    unsafe { state.cast::<AtomicU32>().write(AtomicU32::new(0)) };
    // SAFETY: A name ends with a zero byte.
    let name = unsafe { core::ffi::CStr::from_ptr(name) };
    LAST_CLASS.set((key as usize, name.to_string_lossy().into_owned()));
}

unsafe fn lock<T>(state: *mut T) {
    // SAFETY: It was made by `init`.
    let word = unsafe { word(state) };
    while word.swap(1, Ordering::Acquire) != 0 {
        thread::yield_now();
    }
}

unsafe fn unlock<T>(state: *mut T) {
    // SAFETY: It was made by `init`.
    let held = unsafe { word(state) }.swap(0, Ordering::Release);
    assert_eq!(held, 1, "a lock is given back that nobody holds");
}

pub(crate) unsafe fn uvm_rust_k_mutex_init(
    m: *mut CMutex,
    name: *const c_char,
    key: *mut CLockClassKey,
) {
    // SAFETY: The contract is the same.
    unsafe { init(m, name, key) }
}

pub(crate) unsafe fn uvm_rust_k_mutex_lock(m: *mut CMutex) {
    // SAFETY: The contract is the same.
    unsafe { lock(m) }
}

pub(crate) unsafe fn uvm_rust_k_mutex_unlock(m: *mut CMutex) {
    // SAFETY: The contract is the same.
    unsafe { unlock(m) }
}

pub(crate) unsafe fn uvm_rust_k_spin_init(
    l: *mut CSpinLock,
    name: *const c_char,
    key: *mut CLockClassKey,
) {
    // SAFETY: The contract is the same.
    unsafe { init(l, name, key) }
}

pub(crate) unsafe fn uvm_rust_k_spin_lock(l: *mut CSpinLock) {
    // SAFETY: The contract is the same.
    unsafe { lock(l) }
}

pub(crate) unsafe fn uvm_rust_k_spin_unlock(l: *mut CSpinLock) {
    // SAFETY: The contract is the same.
    unsafe { unlock(l) }
}

pub(crate) unsafe fn uvm_rust_k_queue_init(
    q: *mut CWaitQueue,
    name: *const c_char,
    key: *mut CLockClassKey,
) {
    // SAFETY: The contract is the same.
    unsafe { init(q, name, key) }
}

/// The queue's word counts how often it was woken.
pub(crate) unsafe fn uvm_rust_k_queue_wake_all(q: *mut CWaitQueue) {
    // SAFETY: It was made by `init`.
    unsafe { word(q) }.fetch_add(1, Ordering::AcqRel);
}

pub(crate) unsafe fn uvm_rust_k_queue_wait(
    q: *mut CWaitQueue,
    m: *mut CMutex,
    jiffies: c_long,
) -> c_long {
    // The kernel's `schedule_timeout()` warns of a negative timeout, and does not wait.
    assert!(jiffies >= 0, "a wait of {jiffies} jiffies");
    let until = Instant::now() + JIFFY * jiffies.min(10_000) as u32;
    // SAFETY: It was made by `init`.
    let word = unsafe { word(q) };
    let woken = word.load(Ordering::Acquire);
    // SAFETY: The caller holds it.
    unsafe { unlock(m) };
    let left = loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || SIGNAL.get() || word.load(Ordering::Acquire) != woken {
            break left;
        }
        thread::yield_now();
    };
    // SAFETY: It was made by `init`.
    unsafe { lock(m) };
    left.as_nanos().div_ceil(JIFFY.as_nanos()) as c_long
}

pub(crate) unsafe fn uvm_rust_k_signal_pending() -> c_int {
    SIGNAL.get().into()
}

/// How many of `n` bytes at `address` are not mapped.
fn unmapped(address: c_ulong, n: usize) -> usize {
    let (start, length) = USER.get();
    let mapped = (start..=start + length).contains(&(address as usize));
    let there = if mapped {
        start + length - address as usize
    } else {
        0
    };
    n.saturating_sub(there)
}

pub(crate) unsafe fn uvm_rust_k_copy_from_user(to: *mut u8, from: c_ulong, n: usize) -> usize {
    let left = unmapped(from, n);
    let from = core::ptr::with_exposed_provenance::<u8>(from as usize);
    // SAFETY: The caller has as many bytes, and the test's memory has them too.
    unsafe { from.copy_to(to, n - left) };
    left
}

pub(crate) unsafe fn uvm_rust_k_copy_to_user(to: c_ulong, from: *const u8, n: usize) -> usize {
    let left = unmapped(to, n);
    let to = core::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: The caller has as many bytes, and the test's memory has them too.
    unsafe { from.copy_to(to, n - left) };
    left
}

pub(crate) unsafe fn uvm_rust_k_print(level: c_int, text: *const u8, n: usize) {
    // SAFETY: The caller has as many bytes.
    let text = unsafe { core::slice::from_raw_parts(text, n) };
    LAST_LINE.set((level, String::from_utf8_lossy(text).into_owned()));
}

pub(crate) unsafe fn uvm_rust_k_refcount_warn() {
    WARNINGS.set(WARNINGS.get() + 1);
}

/// What the tests of this crate ask of the stand-in.
pub mod testing {
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    /// Lets so many allocations of this thread succeed, and the next one fail.
    pub fn fail_after(n: u32) {
        UNTIL_FAILURE.set(Some(n));
    }

    /// Lets all allocations of this thread succeed again.
    pub fn fail_never() {
        UNTIL_FAILURE.set(None);
    }

    /// Whether this address is that of an allocation.
    pub fn is_allocated<T>(ptr: *const T) -> bool {
        ALLOCATED
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .contains_key(&(ptr as usize))
    }

    /// How many allocations this thread holds: what it got, less what it gave back.
    pub fn held() -> i64 {
        HELD.get()
    }

    /// How often this thread found a broken reference count.
    pub fn refcount_warnings() -> u32 {
        WARNINGS.get()
    }

    /// Sets whether this thread has a pending signal.
    pub fn signal(pending: bool) {
        SIGNAL.set(pending);
    }

    /// The level and the text of the line that this thread printed last.
    pub fn last_line() -> (c_int, String) {
        LAST_LINE.take()
    }

    /// The lockdep class and the name of the lock that this thread made last.
    pub fn last_class() -> (usize, String) {
        LAST_CLASS.take()
    }

    /// The user memory of a process.
    pub struct UserMemory(*mut [u8]);

    /// Makes these bytes the whole user space of this thread, until the next call.
    pub fn user_memory(bytes: &[u8]) -> UserMemory {
        let memory = Box::into_raw(bytes.to_vec().into_boxed_slice());
        USER.set((memory.cast::<u8>().expose_provenance(), bytes.len()));
        UserMemory(memory)
    }

    impl UserMemory {
        /// The address at which the user memory begins.
        pub fn address(&self) -> usize {
            self.0.cast::<u8>() as usize
        }

        /// A copy of the user memory as it is now.
        pub fn bytes(&self) -> Vec<u8> {
            // SAFETY: It is the box's that `drop` frees, and nobody writes to it now.
            unsafe { &*self.0 }.to_vec()
        }
    }

    impl Drop for UserMemory {
        fn drop(&mut self) {
            USER.set((0, 0));
            // SAFETY: It was a box's, and is dropped once.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}
