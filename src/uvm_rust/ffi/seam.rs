// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What Rust asks of upstream that belongs to nothing else: files, parameters, states of the whole driver.

use super::bindings;
pub(crate) use super::vaspace::VaSpace;
use crate::driver::space::State;
use core::ffi::{c_char, CStr};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// An open `/dev/nvidia-uvm`, for the length of one call.
pub(crate) struct File<'a> {
    /// Invariant: valid for `'a`.
    filp: *mut bindings::file,
    _call: PhantomData<&'a ()>,
}

impl<'a> File<'a> {
    /// # Safety
    ///
    /// `filp` is an open file of this driver for `'a`.
    pub(super) unsafe fn new(filp: *mut bindings::file) -> Self {
        Self {
            filp,
            _call: PhantomData,
        }
    }

    /// Its VA space; `None` before `UVM_INITIALIZE`.
    pub(crate) fn space(&self) -> Option<VaSpace<'a>> {
        // SAFETY: `filp` is valid by the type's invariant. A VA space lives as long as its file, so `'a` fits.
        unsafe {
            let space = NonNull::new(bindings::uvm_seam_space_of(self.filp))?;
            Some(VaSpace::new(space))
        }
    }

    /// What there is of its VA space.
    pub(crate) fn state(&self) -> Option<&'a State> {
        let space = self.space()?;
        // SAFETY: the file is kept for `'a`.
        unsafe { super::space::of(space.as_ptr()) }
    }
}

/// A number that no other thread has at the same time, and never 0; C gives the same number for this thread.
#[cfg(not(uvm_native))]
pub(crate) fn this_thread() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bindings::uvm_seam_this_thread() }
}

/// The same number for all threads. Without hooks of ours, C does not give one.
#[cfg(uvm_native)]
pub(crate) fn this_thread() -> u64 {
    0
}

/// Whether upstream works at all: false after a fatal error of the driver.
pub(crate) fn healthy() -> bool {
    global_status() == 0
}

/// NVIDIA's status code of the whole driver: not 0 after a fatal error.
pub(crate) fn global_status() -> u32 {
    // SAFETY: reads one word; no preconditions.
    unsafe { bindings::uvm_seam_global_status() }
}

/// Whether the calling thread may see what all processes together did: it has
/// `CAP_SYS_ADMIN`, or the module parameter `uvm_rust_stats_public` is set.
pub(crate) fn sees_others() -> bool {
    // SAFETY: reads a parameter that never changes after load, and the credentials of
    // the calling thread; no preconditions.
    unsafe { bindings::uvm_seam_sees_others() }
}

/// Module parameters that nobody writes once the module is loaded, by what each says.
macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $parameter:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name() -> $type {
            // SAFETY: nobody writes it once the module is loaded.
            unsafe { bindings::$parameter }
        }
    )*};
}

parameters! {
    /// Whether statistics are kept.
    stats_enabled: bool = uvm_rust_stats;
    /// Whether root chunks have queues of ours.
    has_queues: bool = uvm_rust_evict;
    /// Whether the fault loop is Rust's, which counts the faults that it services.
    faults_are_counted: bool = uvm_rust_fault;
    /// Microseconds of a VA space's turn in the fault loop; 0: nobody takes turns.
    fault_turn_us: u32 = uvm_rust_fault_turn_us;
    /// MiB that a VA space has on its way at a time, by `UVM_MIGRATE`, while others copy; 0: any.
    link_quantum: u32 = uvm_rust_link_quantum;
    /// Granularity, in KiB, of blocks that a discard covers in part.
    discard_granule: u32 = uvm_rust_discard_granule;
    choose_parameter: bool = uvm_rust_choose;
    /// Prefetch; otherwise the worker only learns.
    prefetch: bool = uvm_rust_prefetch;
    /// Chunks that are kept ready; 0: no pre-eviction.
    preevict: u32 = uvm_rust_preevict;
    /// Kernels to look ahead.
    prefetch_ahead: u32 = uvm_rust_prefetch_ahead;
    /// Rows of a kernel's block table.
    prefetch_rows: u32 = uvm_rust_prefetch_rows;
    /// Blocks in a row.
    prefetch_assoc: u32 = uvm_rust_prefetch_assoc;
    /// Successors of a block.
    prefetch_succs: u32 = uvm_rust_prefetch_succs;
    /// MiB that a tenant's tables for a GPU may take.
    prefetch_memory: u32 = uvm_rust_prefetch_memory;
    /// MiB of a GPU that a process may hold; 0: all there is.
    gpu_max: u32 = uvm_rust_gpu_max;
    /// MiB of a GPU that are protected from others, for each process.
    gpu_low: u32 = uvm_rust_gpu_low;
    discard_parameter: bool = uvm_rust_discard;
    announce_parameter: bool = uvm_rust_announce;
    tests_parameter: i32 = uvm_enable_builtin_tests;
    evict_policy_parameter: *mut c_char = uvm_rust_evict_policy;
}

/// Whether discard is offered, as it is where upstream has its own.
pub(crate) fn discard_enabled() -> bool {
    cfg!(uvm_discards) || discard_parameter()
}

/// Whether the discard that is offered is upstream's.
pub(crate) fn discard_is_upstreams() -> bool {
    cfg!(uvm_native) || (cfg!(uvm_discards) && !discard_parameter())
}

/// Whether the built-in tests are (NVIDIA's `uvm_enable_builtin_tests`), unless upstream answers
/// them all.
pub(crate) fn tests_enabled() -> bool {
    cfg!(not(uvm_native)) && tests_parameter() != 0
}

/// Whether announcements are taken, which needs our hooks.
pub(crate) fn announce_enabled() -> bool {
    cfg!(not(uvm_native)) && announce_parameter()
}

/// Whether what a process holds is known and can be evicted, which needs our hooks.
pub(crate) fn quotas_enabled() -> bool {
    cfg!(not(uvm_native)) && stats_enabled() && has_queues()
}

/// Whether the driver picks for each process what comes along with its faults. Statistics, the loop in Rust and our hooks say
/// what the picks go by.
pub(crate) fn chooses() -> bool {
    cfg!(not(uvm_native)) && choose_parameter() && stats_enabled() && faults_are_counted()
}

/// The name of the eviction policy that was asked for.
pub(crate) fn evict_policy() -> Option<&'static str> {
    // SAFETY: a string that ends with a NUL, which nobody writes once the module is loaded.
    let name = unsafe { CStr::from_ptr(evict_policy_parameter()) };
    name.to_str().ok()
}

/// Whether there is an SSD tier (module parameter `uvm_rust_flash`), which needs our hooks.
pub(crate) fn flash_enabled() -> bool {
    #[cfg(not(uvm_native))]
    let has_tier = !super::flash::current().is_null();
    #[cfg(uvm_native)]
    let has_tier = false;
    has_tier
}

/// Text output of a file of debugfs or procfs.
pub(crate) struct SeqFile<'a> {
    /// Invariant: valid for `'a`.
    seq: *mut bindings::seq_file,
    _call: PhantomData<&'a mut ()>,
}

impl SeqFile<'_> {
    /// # Safety
    ///
    /// `seq` is valid and used by nobody else for the returned value's lifetime.
    pub(super) unsafe fn new(seq: *mut bindings::seq_file) -> Self {
        Self {
            seq,
            _call: PhantomData,
        }
    }
}

impl fmt::Write for SeqFile<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // SAFETY: `seq` is valid by the type's invariant, and `s` has `len` bytes.
        unsafe { bindings::seq_write(self.seq, s.as_ptr().cast(), s.len() as _) };
        Ok(())
    }
}

/// A random number from the kernel, which nobody can predict.
pub(crate) fn random() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bindings::get_random_u64() }
}

/// Whether somebody waits to suspend the system. All calls that begin meanwhile are refused.
#[cfg(not(uvm_native))]
pub(crate) fn suspends() -> bool {
    // SAFETY: no preconditions.
    unsafe { bindings::uvm_seam_suspends() }
}

/// The lock of power management, held in read mode until this is dropped.
pub(crate) struct PmLock(());

impl PmLock {
    /// Takes it, if it can be had at once: this thread neither delays a suspend nor waits behind one.
    pub(crate) fn try_read() -> Option<Self> {
        // SAFETY: only tried for; `Drop` gives it back.
        let is_taken = unsafe { bindings::uvm_seam_pm_trylock() };
        // Made only if it is taken: what `then_some` is given would be dropped otherwise, and unlock.
        is_taken.then(|| Self(()))
    }
}

impl Drop for PmLock {
    fn drop(&mut self) {
        // SAFETY: `try_read` took it.
        unsafe { bindings::uvm_seam_pm_unlock() };
    }
}
