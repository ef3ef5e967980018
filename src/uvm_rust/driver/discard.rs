// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discard in the driver: the ioctls, and `policy/discard` on upstream's VA spaces.
//!
//! A discard (call.rs) takes `mmap_lock` and the VA space's lock in
//! read mode, and within them one va_block's lock at a time; upstream's code takes the locks below. It waits for
//! `mmap_lock` before it keeps the system awake: a process has that lock held for as long as it likes. The
//! discard waits for GPUs with the first two held, which keep the GPUs. The discard state of a va_block hangs off that
//! block (`uvm_va_block_t.uvm_rust`), and the block's lock guards it.

#[cfg(not(uvm_native))]
use super::evict;
use super::ioctl::{awake, unsuspended, EOPNOTSUPP};
use super::params::{self, Params};
use super::space::State;
use crate::ffi::bindings as uapi;
use crate::ffi::status::Status;
use crate::ffi::vaspace::MmLock;
use crate::ffi::{seam, trace, uaccess};
use crate::policy::discard::{self as policy, Failure};
use core::mem::size_of;
use kernel::prelude::*;

#[cfg(not(uvm_native))]
pub(crate) mod call;
#[cfg(not(uvm_native))]
pub(crate) mod drops;
#[cfg(uvm_discards)]
mod native;
pub(crate) mod pages;
#[cfg(not(uvm_native))]
pub(crate) mod split;

/// Status codes of NVIDIA's, as far as they are needed here.
pub(crate) mod status {
    pub(crate) const OK: u32 = 0;
    pub(crate) const ILLEGAL_ACTION: u32 = 0x16;
    pub(crate) const IN_USE: u32 = 0x17;
    pub(crate) const INVALID_ADDRESS: u32 = 0x1e;
    pub(crate) const INVALID_ARGUMENT: u32 = 0x1f;
    pub(crate) const INVALID_DEVICE: u32 = 0x26;
    pub(crate) const INVALID_OPERATION: u32 = 0x38;
    pub(crate) const INVALID_STATE: u32 = 0x40;
    /// `NV_ERR_MORE_PROCESSING_REQUIRED`: a lock was let go on the way.
    pub(crate) const AGAIN: u32 = 0x4d;
    pub(crate) const NO_MEMORY: u32 = 0x51;
    /// `NV_ERR_NOT_READY`: what a fault needs has been asked for, and is to be serviced again once it is there.
    pub(crate) const NOT_READY: u32 = 0x55;
    pub(crate) const OBJECT_NOT_FOUND: u32 = 0x57;
    pub(crate) const PAGE_TABLE_NOT_AVAIL: u32 = 0x5d;
    pub(crate) const SIGNAL_PENDING: u32 = 0x64;
    pub(crate) const TIMEOUT: u32 = 0x65;
    pub(crate) const MISMATCHED_TARGET: u32 = 0x1_0004;
    /// `NV_WARN_MORE_PROCESSING_REQUIRED`: the block's lock was let go, and all is to be looked at anew.
    pub(crate) const MORE_PROCESSING: u32 = 0x1_0005;
    pub(crate) const NOTHING_TO_DO: u32 = 0x1_0006;
}

/// NVIDIA's numbers, of drivers from 580 on: `UVM_DISCARD`, and of the built-in
/// tests `UVM_TEST_VA_BLOCK_DISCARD_STATUS` and `UVM_TEST_PMM_GET_ALLOC_LIST`.
const DISCARD: u32 = 80;
const TEST_DISCARD_STATUS: u32 = 200 + 110;
const TEST_ALLOC_LIST: u32 = 200 + 111;

/// NVIDIA's number for the list of unused chunks, which those of discarded and of used ones follow:
/// `UVM_TEST_VA_BLOCK_DISCARD_PMM_STATE_UNUSED` in 580, `UVM_TEST_PMM_ALLOC_LIST_TYPE` later.
#[cfg(not(uvm_native))]
const LIST_UNUSED: u32 = cfg!(uvm_pmm_state) as u32;

/// `UVM_DISCARD_FLAGS_UNMAP`: the eager discard, which unmaps the pages.
const UNMAP: u64 = 1;

/// An ioctl that a later upstream knows, and would answer otherwise. Its convention: the result is the
/// `rmStatus` at the end of the structure, and the call fails only where the
/// structure cannot be read or written. `None` if the number is not one of these.
#[cfg(not(uvm_native))]
pub(crate) fn dispatch(file: &seam::File<'_>, cmd: u32, arg: usize) -> Option<Result> {
    Some(match cmd {
        DISCARD if seam::discard_enabled() && !seam::discard_is_upstreams() => {
            params::update::<32>(arg, |p| discard(file, p))
        }
        // The chunks are in our queues, whoever discards: upstream would not find them in its lists.
        TEST_ALLOC_LIST if seam::tests_enabled() => {
            params::update::<32>(arg, |p| unsuspended(|| alloc_list(file, p)))
        }
        _ if seam::discard_is_upstreams() => return None,
        TEST_DISCARD_STATUS if seam::tests_enabled() => {
            params::update::<16>(arg, |p| unsuspended(|| discard_status(file, p)))
        }
        _ => return None,
    })
}

/// The VA space of the call; without one, the `rmStatus` to return.
#[cfg(not(uvm_native))]
fn space<'a>(file: &seam::File<'a>) -> Result<seam::VaSpace<'a>, u32> {
    match seam::global_status() {
        status::OK => file.space().ok_or(status::ILLEGAL_ACTION),
        failed => Err(failed),
    }
}

#[cfg(not(uvm_native))]
fn checked(result: u32) -> Result<(), u32> {
    match result {
        status::OK => Ok(()),
        failed => Err(failed),
    }
}

/// {base: u64, length: u64, flags: u64, rmStatus: u32, padding}
#[cfg(not(uvm_native))]
fn discard(file: &seam::File<'_>, p: &mut Params<'_>) -> Result {
    let (base, length, flags) = (p.u64(0), p.u64(8), p.u64(16));
    let mm = file.space().map(|space| space.lock_mm().ok_or(EINTR));
    let mm = mm.transpose()?;
    let run = || {
        let (space, mm) = (space(file)?, mm.ok_or(status::ILLEGAL_ACTION)?);
        if flags & !UNMAP != 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        let eager = flags & UNMAP != 0;
        let mut counts = NO_BLOCKS;
        checked(discard_range(
            (file, space, mm),
            base,
            length,
            eager,
            &mut counts,
        ))
    };
    let result = unsuspended(|| Ok(run().err().unwrap_or(status::OK)))?;
    p.set_u32(24, result);
    Ok(())
}

/// {lookup_address: u64, discarded: u8, padding, rmStatus: u32}
#[cfg(not(uvm_native))]
fn discard_status(file: &seam::File<'_>, p: &mut Params<'_>) -> Result {
    let address = p.u64(0);
    let run = || {
        let space = space(file)?.lock();
        let mut block = space.block(address)?.lock();
        let page = (address - block.span().first) / kernel::page::PAGE_SIZE as u64;
        let state = block.state();
        Ok(state.is_some_and(|state| state.status(page as u16) != policy::Status::Live))
    };
    let (discarded, result) = match run() {
        Ok(discarded) => (discarded, status::OK),
        // Nobody has touched the memory.
        Err(status::OBJECT_NOT_FOUND) => (false, status::OK),
        Err(failed) => (false, failed),
    };
    p.set_u8(8, discarded.into());
    p.set_u32(12, result);
    Ok(())
}

/// {address: u64, gpu_uuid: [u8; 16], list_type: u32, rmStatus: u32}
#[cfg(not(uvm_native))]
fn alloc_list(file: &seam::File<'_>, p: &mut Params<'_>) -> Result {
    let (address, uuid) = (p.u64(0), p.uuid(8));
    let run = || {
        let space = space(file)?.lock();
        let gpu = space.gpu(&uuid).ok_or(status::INVALID_DEVICE)?;
        let block = space.block(address)?.lock();
        let chunk = block.chunk(gpu, address);
        let queue = chunk.and_then(|chunk| evict::queue_of(gpu, chunk));
        queue.ok_or(status::INVALID_STATE)
    };
    let (list, result) = match run() {
        Ok(queue) => (
            LIST_UNUSED + (queue as u32 - uapi::UVM_RUST_QUEUE_UNUSED),
            status::OK,
        ),
        // In 580, which counts from 1, a chunk that is on no list is no error.
        Err(status::INVALID_STATE) if cfg!(uvm_pmm_state) => (0, status::OK),
        Err(failed) => (0, failed),
    };
    p.set_u32(24, list);
    p.set_u32(28, result);
    Ok(())
}

/// How many blocks a discard has met, by what became of them.
pub(crate) type Counts = uapi::uvm_seam_discarded;

/// The counts before the first block.
const NO_BLOCKS: Counts = Counts {
    discarded: 0,
    skipped: 0,
    partial: 0,
};

/// Adds what a discard has `met` to `counts`. Returns NVIDIA's status code for how it ended.
pub(crate) fn ended(
    result: Result<(), Failure<Status>>,
    met: &policy::Counts,
    counts: &mut Counts,
) -> u32 {
    counts.discarded += met.discarded;
    counts.skipped += met.skipped;
    counts.partial += met.partial;
    match result {
        Ok(()) => status::OK,
        Err(Failure::NotPages | Failure::Unknown) => status::INVALID_ADDRESS,
        Err(Failure::CannotFault) => status::INVALID_DEVICE,
        Err(Failure::Ordinary) => status::NOTHING_TO_DO,
        Err(Failure::Killed) => status::SIGNAL_PENDING,
        Err(Failure::NoMemory) => status::NO_MEMORY,
        Err(Failure::Machine(failed)) => failed.number(),
    }
}

/// Discards a range of a file's VA space, and tells who listens. Returns an `NV_STATUS`; the blocks are added to `counts`.
fn discard_range(
    (file, space, mm): (&seam::File<'_>, seam::VaSpace<'_>, MmLock<'_>),
    base: u64,
    length: u64,
    eager: bool,
    counts: &mut Counts,
) -> u32 {
    let mut met = NO_BLOCKS;
    let status = discard_by((space, mm), base, length, eager, &mut met);
    counts.discarded += met.discarded;
    counts.skipped += met.skipped;
    counts.partial += met.partial;
    trace::discard(&trace::Discard {
        pid: file.state().map_or(0, State::pid),
        eager: eager.into(),
        address: base,
        bytes: length,
        discarded: met.discarded,
        skipped: met.skipped,
        partial: met.partial,
        status,
    });
    status
}

/// The same by the discard that is on, ours or upstream's.
#[cfg_attr(uvm_native, allow(unused_variables))]
fn discard_by(
    (space, mm): (seam::VaSpace<'_>, MmLock<'_>),
    base: u64,
    length: u64,
    eager: bool,
    counts: &mut Counts,
) -> u32 {
    #[cfg(uvm_discards)]
    if seam::discard_is_upstreams() {
        return native::discard(mm, base, length, eager, counts);
    }
    #[cfg(not(uvm_native))]
    {
        crate::ffi::discard::call::discard((space, mm), base, length, eager, counts)
    }
    #[cfg(uvm_native)]
    {
        status::INVALID_OPERATION
    }
}

/// Does `UVM_RUST_DISCARD_BATCH`, many ranges in one call. A suspend waits for one range at a time.
pub(crate) fn batch(file: &seam::File<'_>, arg: usize) -> Result {
    let (mut batch, size) = params::read_sized::<uapi::uvm_rust_discard_batch>(
        arg,
        uapi::UVM_RUST_DISCARD_BATCH_SIZE_V1,
    )?;
    check_batch(&batch)?;
    if !seam::discard_enabled() {
        return Err(Error::from_errno(-EOPNOTSUPP));
    }
    let space = file.space().ok_or(EPERM)?;
    // If the result cannot be written back, nothing is to be discarded. This write tries it, with the bytes just read.
    uaccess::write_with_size(arg, batch, size, size as u32)?;
    let mut counts = NO_BLOCKS;
    batch.first_failed = batch.range_count;
    let mut result = Ok(());
    for index in 0..batch.range_count {
        result = discard_element((file, space), &batch, index, &mut counts);
        if result.is_err() {
            batch.first_failed = index;
            break;
        }
    }
    batch.blocks_discarded = counts.discarded;
    batch.blocks_skipped = counts.skipped;
    batch.blocks_partial = counts.partial;
    // After EAGAIN the same call can be made again, with the size that the caller gave.
    let known = size_of::<uapi::uvm_rust_discard_batch>();
    let told = if result == Err(EAGAIN) { size } else { known };
    uaccess::write_with_size(arg, batch, size, told as u32)?;
    result
}

fn check_batch(batch: &uapi::uvm_rust_discard_batch) -> Result {
    let valid = batch.flags & !uapi::UVM_RUST_DISCARD_EAGER == 0
        && batch.range_count <= uapi::UVM_RUST_DISCARD_MAX_RANGES
        && batch.range_size >= uapi::UVM_RUST_DISCARD_RANGE_SIZE_V1
        && batch.range_size <= 256
        && batch.range_size % 8 == 0
        && batch.reserved == 0;
    // The end of the array is an address too.
    let bytes = u64::from(batch.range_count) * u64::from(batch.range_size);
    if !valid || batch.ranges.checked_add(bytes).is_none() {
        return Err(EINVAL);
    }
    Ok(())
}

fn discard_element(
    (file, space): (&seam::File<'_>, seam::VaSpace<'_>),
    batch: &uapi::uvm_rust_discard_batch,
    index: u32,
    counts: &mut Counts,
) -> Result {
    // No overflow: `check_batch`.
    let at = batch.ranges + u64::from(index) * u64::from(batch.range_size);
    let range = uaccess::read_element::<uapi::uvm_rust_discard_range>(
        at as usize,
        batch.range_size as usize,
    )?;
    let page = kernel::page::PAGE_SIZE as u64;
    let end = range.base.checked_add(range.length).ok_or(EINVAL)?;
    if range.base % page != 0 || range.length % page != 0 || end == range.base {
        return Err(EINVAL);
    }
    let eager = batch.flags & uapi::UVM_RUST_DISCARD_EAGER != 0;
    let mm = space.lock_mm().ok_or(EINTR)?;
    awake(
        || match discard_range((file, space, mm), range.base, range.length, eager, counts) {
            status::OK => Ok(()),
            status::NO_MEMORY => Err(ENOMEM),
            status::SIGNAL_PENDING => Err(EINTR),
            status::INVALID_DEVICE => Err(Error::from_errno(-EOPNOTSUPP)),
            status::INVALID_ADDRESS | status::NOTHING_TO_DO => Err(ENXIO),
            _ => Err(EIO),
        },
    )
}
