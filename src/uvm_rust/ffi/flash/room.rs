// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Waiting for host memory: the machine of `policy/flash/room.rs`.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::block::{self, span, used};
use super::fetch::{fetch_locked, For};
use super::tier::{count_of_device, current, device, kick_workers, must_wait, OwnerHandle};
use super::{bindings, FETCHERS, READERS};
use crate::driver::discard::status;
use crate::driver::flash::Counter;
use crate::ffi::discard::{read, write};
use crate::ffi::gpu::GpuHandle;
use crate::ffi::seam::PmLock;
use crate::ffi::space::{self, cause_of};
use crate::ffi::tenant;
use crate::ffi::time::{self, now_us};
use crate::ffi::vaspace::space_of_block;
use crate::policy::discard::BLOCK_BYTES;
use crate::policy::evict::Queue;
use crate::policy::fault::{run_within, Record};
use crate::policy::flash::room::{fault_waits, first_touch_waits, waits, Facts, Machine, To, Why};
use crate::policy::flash::wants::{Asks, Wants};
use crate::policy::mask::PageMask;
use bindings::{
    uvm_gpu_struct, uvm_rust_mask, uvm_seam_context, uvm_seam_space, uvm_va_block_struct,
};
use core::ptr::null_mut;
use kernel::page::PAGE_SIZE;

crate::ffi::check_exports!(uvm_rust_flash_before_populate, uvm_rust_flash_along);

/// For how long a thread waits for room at a time, in microseconds; then it looks again whether it still has to.
const ROOM_US: u64 = 100_000;

/// How long the thread sleeps for the first fault of a batch that is put off, in microseconds. The GPU repeats its faults
/// at once; the sleep leaves the CPU to the threads that read the pages.
const PARKED_US: u64 = 50;

/// Upstream's cause of a fault that the GPU repeats, and of a CPU's.
const REPLAYS: u32 = 0;

/// A va_block, or memory that has none yet, and a GPU that its pages may go to.
///
/// Invariant: the VA space is locked, and so is the block, which is null if there is none yet. So the tenant exists,
/// and the GPU, which is null for none.
pub(super) struct Room {
    block: *mut uvm_va_block_struct,
    owner: OwnerHandle,
    gpu: *mut uvm_gpu_struct,
    /// Whether memory without a block prefers host memory.
    prefers_host: bool,
}

/// The tenant of a VA space; `None` without a tier.
///
/// # Safety
///
/// The VA space exists, and is set up.
pub(super) unsafe fn owner_of(space: *mut uvm_seam_space) -> Option<OwnerHandle> {
    // SAFETY: by this function's contract what there is of it stays.
    let state = unsafe { space::of(space) };
    state?.tenant().map(tenant::flash_owner)
}

impl Room {
    /// # Safety
    ///
    /// As the type's invariant; the block is alive.
    pub(super) unsafe fn of(
        block: *mut uvm_va_block_struct,
        gpu: *mut uvm_gpu_struct,
    ) -> Option<Self> {
        Some(Self {
            block,
            // SAFETY: by this function's contract.
            owner: unsafe { owner_of(space_of_block(block)) }?,
            gpu,
            prefers_host: false,
        })
    }
}

// In all blocks below the pointers are valid, and the locks held, by the type's invariant.
impl Machine for Room {
    fn must_wait(&mut self) -> bool {
        // SAFETY: see above.
        unsafe { must_wait(self.owner) }
    }

    fn facts(&mut self) -> Facts {
        // SAFETY: see above; the reference ends with this function.
        let (of, on_flash) = unsafe {
            let of = block::pages_of(self.block, self.gpu);
            let state = used(block::known_of(self.block));
            (of, state.map(|state| state.pages.on_flash()))
        };
        Facts {
            allocated: of.allocated.set(),
            thrashing: of.thrashing.set(),
            there: of.there.set(),
            staged: of.staged.set() | on_flash.unwrap_or(PageMask::EMPTY),
        }
    }

    fn lacks_chunk(&mut self, pages: &PageMask) -> bool {
        // SAFETY: see above.
        let start = unsafe { span(self.block) }.first;
        let has_none = |page: u16| {
            let address = start + u64::from(page) * PAGE_SIZE as u64;
            // SAFETY: see above.
            let chunk = unsafe { bindings::uvm_seam_block_chunk(self.block, self.gpu, address) };
            chunk == bindings::UVM_RUST_NO_CHUNK
        };
        pages.pages().any(has_none)
    }

    fn evicts_to_host(&mut self) -> bool {
        // SAFETY: see above; the numbers are ours for the call.
        let gpu = unsafe {
            let (mut number, mut parent) = (0, 0);
            bindings::uvm_seam_gpu_numbers(self.gpu, &mut number, &mut parent);
            GpuHandle::new(self.gpu, number)
        };
        if gpu.pma_free() > 0 {
            return false;
        }
        let mut chunks = gpu.chunks();
        let to_spare = [Queue::Free, Queue::Unused, Queue::Discarded];
        !to_spare
            .into_iter()
            .any(|queue| chunks.length(queue, 1) > 0)
    }

    fn prefers_host(&mut self) -> bool {
        if self.block.is_null() {
            return self.prefers_host;
        }
        // SAFETY: see above.
        unsafe { block::memory_of(self.block) }.preferred == bindings::UVM_RUST_MEMORY_HOST
    }

    fn kick(&mut self) {
        // SAFETY: there is a tier.
        unsafe { kick_workers(current()) };
    }
}

/// Waits for room, for at most [`ROOM_US`].
///
/// # Safety
///
/// The owner exists. No va_block is locked.
unsafe fn wait_room(owner: OwnerHandle) {
    // SAFETY: there is a tier.
    let Some(dev) = (unsafe { device(current()) }) else {
        return;
    };
    let end = now_us() + ROOM_US;
    // SAFETY: there is a tier; by this function's contract.
    unsafe {
        kick_workers(current());
        loop {
            // A thread that makes room after this raises the number.
            let progress = dev.progress();
            let left = end.saturating_sub(now_us());
            if left == 0 || !must_wait(owner) {
                break;
            }
            dev.wait(progress, left.div_ceil(1000) as u32);
        }
    }
}

/// Whether GPU faults are put off: the loop in Rust services them, and the module parameter says so.
fn parks() -> bool {
    // SAFETY: one is fixed from the load of the module on, and a byte of the other is read at once.
    let asked = unsafe {
        bindings::uvm_rust_fault && (&raw const bindings::uvm_rust_flash_park).read_volatile()
    };
    asked && FETCHERS.is_made()
}

/// How many of a GPU's faults on one block, from the first on, have to be put off; a replay brings them back. 0 if
/// they can be serviced. All are of one batch; `is_first`: the first is the batch's first.
///
/// # Safety
///
/// The VA space is locked, and the GPU registered there; the records are published, and the first is its fault. A device
/// has been attached.
pub(in crate::ffi) unsafe fn park(
    space: *mut uvm_seam_space,
    gpu: *mut uvm_gpu_struct,
    records: &[Record],
    is_first: bool,
) -> u32 {
    let Some(first) = records.first().filter(|_| parks()) else {
        return 0;
    };
    let mut block = null_mut();
    // SAFETY: by this function's contract; `block` is ours for the call.
    let parked = unsafe {
        match bindings::uvm_va_block_find(space.cast(), first.address, &mut block) {
            status::OK => park_of_block(block, gpu, records),
            status::OBJECT_NOT_FOUND => park_first_touch(space, gpu, records, first.address),
            _ => 0,
        }
    };
    if parked > 0 {
        if is_first {
            time::sleep_us(PARKED_US);
        }
        // SAFETY: there is a tier, as a device has been attached.
        unsafe { count_of_device(current(), Counter::Parked, parked.into()) };
    }
    parked
}

/// How many faults on this block have to be put off.
///
/// # Safety
///
/// The VA space is locked, and the GPU registered there; the block was found under that lock.
unsafe fn park_of_block(
    block: *mut uvm_va_block_struct,
    gpu: *mut uvm_gpu_struct,
    records: &[Record],
) -> u32 {
    // SAFETY: by this function's contract.
    let span = unsafe { span(block) };
    let faults = run_within(records, span.first, span.last);
    let mut pages = PageMask::EMPTY;
    for fault in faults {
        pages.set(((fault.address - span.first) / PAGE_SIZE as u64) as u16);
    }
    // SAFETY: by this function's contract; what is known of the block is looked at with its lock.
    let parks = unsafe {
        if faults.is_empty() || bindings::uvm_seam_flash_slot(block).is_null() {
            return 0;
        }
        bindings::uvm_seam_block_lock(block);
        let parks = !bindings::uvm_seam_flash_slot(block).is_null()
            && (Room::of(block, gpu).is_some_and(|mut room| fault_waits(&mut room, &pages))
                || block::parks(block::known_of(block), &pages));
        bindings::uvm_seam_block_unlock(block);
        parks
    };
    if parks {
        faults.len() as u32
    } else {
        0
    }
}

/// How many faults on a block that does not exist yet have to be put off.
///
/// # Safety
///
/// The VA space is locked, and the GPU registered there.
unsafe fn park_first_touch(
    space: *mut uvm_seam_space,
    gpu: *mut uvm_gpu_struct,
    records: &[Record],
    address: u64,
) -> u32 {
    let mut range = bindings::uvm_rust_range::default();
    // SAFETY: by this function's contract; `range` is ours for the call.
    let waits = unsafe {
        let found = bindings::uvm_seam_range(space, address, address, &mut range);
        let room = owner_of(space).map(|owner| Room {
            block: null_mut(),
            owner,
            gpu,
            prefers_host: range.preferred == bindings::UVM_RUST_MEMORY_HOST,
        });
        !found.is_null()
            && range.managed
            && room.is_some_and(|mut room| first_touch_waits(&mut room))
    };
    if !waits {
        return 0;
    }
    let start = address - address % BLOCK_BYTES;
    let last = range.last.min(start + (BLOCK_BYTES - 1));
    run_within(records, range.first.max(start), last).len() as u32
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_before_populate(
    block: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    gpu: *mut uvm_gpu_struct,
    cause: u32,
    by_kernel: bool,
    wanted: *const uvm_rust_mask,
) -> u32 {
    let replays = cause == REPLAYS;
    let cause = cause_of(cause);
    let why = Why::of(cause, replays, by_kernel);
    let to = if gpu.is_null() { To::Host } else { To::Gpu };
    // SAFETY: I-call and I-lock: the block is locked, and so is its VA space, which keeps it; but for the wait.
    unsafe {
        let wanted = read(wanted);
        let Some(mut room) = Room::of(block, gpu) else {
            return status::OK;
        };
        if waits(&mut room, why, to, &wanted, parks(), time::rest) {
            bindings::uvm_seam_block_unlock(block);
            wait_room(room.owner);
            bindings::uvm_seam_block_lock(block);
            return status::AGAIN;
        }
        // Before the system sleeps nothing is put off: no fetcher reads then. What is put off uses nothing yet.
        let may_wait = why == Why::CopyFault && parks() && PmLock::try_read().is_some();
        if may_wait && block::parks_copy(block::known_of(block), &wanted) {
            count_of_device(current(), Counter::Parked, 1);
            return status::NOT_READY;
        }
        let Some(state) = used(block::known_of(block)) else {
            return status::OK;
        };
        state.pages.touched(&wanted);
        // A page that was discarded while it is read is in flight only. Its memory must not be used before the read
        // ends.
        let away = state.pages.on_flash() | state.pages.in_flight() | state.pages.lost();
        if why == Why::Eviction || away.is_empty() {
            return status::OK;
        }
        let whom = if why == Why::Call {
            For::Others
        } else {
            For::Fault
        };
        fetch_locked(block, context, &wanted, whom)
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_along(
    block: *mut uvm_va_block_struct,
    to_gpu: bool,
    pages: *mut uvm_rust_mask,
) -> bool {
    // SAFETY: I-lock; I-call for `pages`. The reference ends before anything is asked for.
    unsafe {
        let known = block::known_of(block);
        let Some(state) = used(known) else {
            return true;
        };
        let before = read(pages);
        let (along, asked) = Wants::along(&state.pages, &before, to_gpu && parks());
        // No fault waits for those.
        if !asked.is_empty() {
            let asks = if READERS.is_made() {
                Asks::Call
            } else {
                Asks::Fault
            };
            block::ask(known, &asked, asks);
        }
        along == before || write(pages, &along)
    }
}
