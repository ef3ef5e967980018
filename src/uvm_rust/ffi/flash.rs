// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What C calls about the SSD tier.
//!
//! The table has a mutex inside. What is known of a va_block (block.rs) is used by one thread at a
//! time, as its lock is held (I-lock); who uses the tier (tier.rs) has a spinlock.

use super::bindings;
use crate::ffi::work::WorkQueue;
use crate::policy::flash::tier::{FETCHERS_EACH, PREFETCHERS_EACH, READERS_EACH};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use kernel::prelude::*;

/// Reads a module parameter of C's by its name, which root may change at any time.
macro_rules! read_parameter {
    ($name:ident) => {{
        let parameter: *const u32 = &raw const $crate::ffi::bindings::$name;
        // SAFETY: it is a static, of which a word is read at once.
        unsafe { parameter.read_volatile() }
    }};
}

mod asked;
mod attach;
mod block;
mod chosen;
mod dev;
mod drain;
mod fetch;
mod io;
mod moves;
mod queue;
mod room;
mod spill;
mod split;
mod tier;
mod trim;
mod workers;

pub(crate) use attach::{
    is_admin, mark, open, pages_of_tenant, sets, stats, workers_of_parameter, Writing,
};
pub(super) use block::{
    ask_for_prefetch, discarded, on_device, pages_of, spilling, stored, tell_of_reads,
};
pub(crate) use dev::Dev;
pub(crate) use io::Io;
pub(crate) use moves::move_range;
pub(crate) use queue::Moves;
pub(super) use room::park;
pub(crate) use split::Split;
pub(super) use tier::tenant_leaves;
pub(crate) use tier::{current, BlockHandle, DeviceHandle, Owner, OwnerHandle};

/// The work queue of the readers for GPU faults that were put off; it exists while there is a tier.
static FETCHERS: WorkQueue = WorkQueue::none();

/// The work queue of the readers of what calls will need soon; it exists while there is a tier.
static READERS: WorkQueue = WorkQueue::none();

/// The work queue of the readers of what prefetches bring to GPUs; it exists while there is a tier.
static PREFETCHERS: WorkQueue = WorkQueue::none();

/// Whether a device has ever been attached: before, no va_block has a state.
static USED: AtomicBool = AtomicBool::new(false);

/// Whether a device has ever been attached.
#[inline(always)]
pub(super) fn is_used() -> bool {
    USED.load(Relaxed)
}

/// How many readers for GPU faults run at the same time, of all tenants.
const FETCHERS_ALL: u32 = 2 * FETCHERS_EACH;

/// So many read for calls.
const READERS_ALL: u32 = 2 * READERS_EACH;

/// So many read for prefetches.
const PREFETCHERS_ALL: u32 = 2 * PREFETCHERS_EACH;

/// The module begins: there is a tier, if that is asked for, and there is memory for it.
pub(crate) fn init() {
    // SAFETY: a parameter, which nobody writes once the module is loaded.
    if !unsafe { bindings::uvm_rust_flash } {
        return;
    }
    tier::create();
    if current().is_null() {
        return;
    }
    if FETCHERS.make(c"uvm-rust-fetch", FETCHERS_ALL).is_err() {
        pr_warn!("flash: no memory: GPU faults wait for the device by themselves\n");
    }
    if READERS.make(c"uvm-rust-read", READERS_ALL).is_err() {
        pr_warn!("flash: no memory: calls read one page after the other\n");
    }
    if PREFETCHERS
        .make(c"uvm-rust-guess", PREFETCHERS_ALL)
        .is_err()
    {
        pr_warn!("flash: no memory: what is on the device is not prefetched\n");
    }
    // SAFETY: it may sleep here.
    unsafe { bindings::uvm_seam_flash_hook(false) };
}

/// The module ends, whether or not there is a tier.
///
/// # Safety
///
/// No VA space exists, and no call is under way.
pub(super) unsafe fn exit() {
    if !current().is_null() {
        attach::let_go();
        // SAFETY: by this function's contract all owners are gone, with all work of theirs, and no device is attached
        // any more.
        unsafe {
            FETCHERS.end();
            READERS.end();
            PREFETCHERS.end();
            tier::destroy();
        }
    }
}
