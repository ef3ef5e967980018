// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The SSD tier in the driver: the table of a device, and its ioctls.
//!
//! C does the I/O, and carries out on va_blocks what `policy/flash.rs` decides
//! (`uvm_rust_flash.c`, `uvm_rust_flash_block.h`).

use super::ioctl::{awake, EOPNOTSUPP};
use super::params;
use crate::ffi::bindings as uapi;
use crate::ffi::flash::{
    is_admin, mark, move_range as move_range_of, open, sets, workers_of_parameter, BlockHandle,
    Dev, DeviceHandle, Io, OwnerHandle, Writing,
};
use crate::ffi::{path, seam, time, uaccess};
use crate::policy::flash::drain::Stays;
use crate::policy::flash::moves::{Failed, To};
use crate::policy::flash::pool::Pool;
use crate::policy::flash::{tier, Config, Table};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};

/// The table of an attached device. Its mutex is taken inside all other locks, and
/// nothing but allocations sleeps under it.
#[pin_data]
pub(crate) struct Flash {
    #[pin]
    pub(crate) table: Mutex<Table>,
    /// What reads are made with. Its mutex is taken inside all other locks as well, without the table's.
    #[pin]
    pub(crate) sets: Mutex<Pool<Io>>,
    pub(crate) counters: Counters,
}

/// What is counted of a device; `uvm_rust_flash_stats` says what each means.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Written,
    Spilled,
    Fetched,
    Relocated,
    Dropped,
    Unwritten,
    WriteErrors,
    ReadErrors,
    LostPages,
    Refused,
    Parked,
    Throttled,
    Trimmed,
    /// Microseconds in which workers rested; the last counter.
    RestedUs,
}

/// A number for each [`Counter`]. No lock.
#[derive(Default)]
pub(crate) struct Counters([AtomicU64; Counter::RestedUs as usize + 1]);

impl Counters {
    /// Adds `n`, and returns what is there then.
    pub(crate) fn add(&self, counter: Counter, n: u64) -> u64 {
        let of = self.0.get(counter as usize);
        of.map_or(0, |of| of.fetch_add(n, Relaxed).wrapping_add(n))
    }

    pub(crate) fn get(&self, counter: Counter) -> u64 {
        let of = self.0.get(counter as usize);
        of.map_or(0, |of| of.load(Relaxed))
    }
}

impl Flash {
    /// Fills in what is known of the device.
    pub(crate) fn fill(&self, stats: &mut uapi::uvm_rust_flash_stats) {
        let usage = self.table.lock().usage();
        let get = |counter| self.counters.get(counter);
        stats.slots = usage.slots;
        stats.free_slots = usage.free_slots;
        stats.extents = usage.extents;
        stats.pages = usage.pages;
        stats.written = get(Counter::Written);
        stats.spilled = get(Counter::Spilled);
        stats.fetched = get(Counter::Fetched);
        stats.relocated = get(Counter::Relocated);
        stats.dropped = get(Counter::Dropped);
        stats.unwritten = get(Counter::Unwritten);
        stats.write_errors = get(Counter::WriteErrors);
        stats.read_errors = get(Counter::ReadErrors);
        stats.lost_pages = get(Counter::LostPages);
        stats.refused = get(Counter::Refused);
        stats.parked = get(Counter::Parked);
        stats.throttled = get(Counter::Throttled);
        stats.trimmed = get(Counter::Trimmed);
        stats.rested_us = get(Counter::RestedUs);
    }

    /// An empty device, which is read with `sets`, and written by so many workers.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(config: Config, sets: Pool<Io>, workers: u32) -> Result<Pin<KBox<Self>>> {
        let mut table = Table::new(config).map_err(|_| ENOMEM)?;
        let prepared = table.prepare(sets.count(), workers as usize);
        prepared.map_err(|_| ENOMEM)?;
        KBox::pin_init(
            pin_init!(Self {
                table <- new_mutex!(table),
                sets <- new_mutex!(sets),
                counters: Counters::default(),
            }),
            GFP_KERNEL,
        )
    }
}

/// Who uses the tier, as long as the module is loaded with it.
#[pin_data]
pub(crate) struct Tier {
    /// Taken inside all other locks.
    #[pin]
    pub(crate) state: SpinLock<tier::Tier<BlockHandle, OwnerHandle, DeviceHandle>>,
    /// Whether `state` has a device, for who asks often, and may find out a moment later.
    pub(crate) is_attached: AtomicBool,
    /// The device that is attached or leaving, and whether it is attached. It changes under the lock of attaching, which
    /// is held for long where a device is detached; who only looks takes this one alone, inside all others. Nothing is
    /// dropped with it.
    #[pin]
    pub(crate) there: SpinLock<Option<(Arc<Dev>, bool)>>,
}

impl Tier {
    /// Makes the state of a tier that has neither tenants nor a device yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                state <- new_spinlock!(tier::Tier::default()),
                is_attached: AtomicBool::new(false),
                there <- new_spinlock!(None),
            }),
            GFP_KERNEL,
        )
    }
}

/// Fails with `EOPNOTSUPP` without a tier.
pub(crate) fn enabled() -> Result {
    if seam::flash_enabled() {
        Ok(())
    } else {
        Err(Error::from_errno(-EOPNOTSUPP))
    }
}

/// Does `UVM_RUST_FLASH_ATTACH`: a block device becomes the tier's.
pub(crate) fn attach(arg: usize) -> Result {
    let (attach, _) = params::read_sized::<uapi::uvm_rust_flash_attach>(
        arg,
        uapi::UVM_RUST_FLASH_ATTACH_SIZE_V1,
    )?;
    let known = uapi::UVM_RUST_FLASH_FORCE | uapi::UVM_RUST_FLASH_NO_CHECKSUMS;
    if attach.flags & !known != 0 || attach.host_bytes == 0 {
        return Err(EINVAL);
    }
    enabled()?;
    is_admin()?;
    let path = path::read(attach.path as usize)?;
    awake(|| attach_file(&attach, &path))
}

/// The same, by a path of the kernel's.
fn attach_file(attach: &uapi::uvm_rust_flash_attach, path: &path::Path) -> Result {
    let mut lock = Writing::lock().ok_or(ENODEV)?;
    if lock.has_device() {
        return Err(EEXIST);
    }
    let (seam, bytes) = open(path)?;
    let slots = Config::slots_of(bytes).ok_or(ENOSPC)?;
    mark(&seam, attach.flags & uapi::UVM_RUST_FLASH_FORCE != 0)?;
    let config = Config {
        slots,
        checksums: attach.flags & uapi::UVM_RUST_FLASH_NO_CHECKSUMS == 0,
        quota: Config::quota_of(attach.quota_bytes),
    };
    let flash = Flash::new(config, sets(&seam)?, workers_of_parameter())?;
    let limit = attach.host_bytes / kernel::page::PAGE_SIZE as u64;
    lock.attach(Dev::new(seam, flash)?, limit)?;
    pr_info!("flash: attached, {slots} slots\n");
    Ok(())
}

/// Does `UVM_RUST_FLASH_DETACH`: all that is on the device comes back, and the device is let go.
pub(crate) fn detach(arg: usize) -> Result {
    let (detach, _) = params::read_sized::<uapi::uvm_rust_flash_detach>(
        arg,
        uapi::UVM_RUST_FLASH_DETACH_SIZE_V1,
    )?;
    if detach.flags != 0 {
        return Err(EINVAL);
    }
    enabled()?;
    is_admin()?;
    awake(drain)
}

/// All comes back, and there is no device any more.
fn drain() -> Result {
    let mut lock = Writing::lock().ok_or(ENODEV)?;
    let dev = lock.stop().ok_or(ENODEV)?;
    // Nobody has to wait for room any more.
    dev.tell();
    lock.drain().map_err(|stays| match stays {
        Stays::Interrupted if time::rest() => EINTR,
        // Somebody waits to suspend the system.
        Stays::Interrupted => EAGAIN,
        Stays::Busy => EBUSY,
    })?;
    pr_info!("flash: detached\n");
    Ok(())
}

/// Does `UVM_RUST_FLASH_GET_STATS`, which anybody may call.
pub(crate) fn stats(file: &seam::File<'_>, arg: usize) -> Result {
    let (mut stats, size) =
        params::read_sized::<uapi::uvm_rust_flash_stats>(arg, uapi::UVM_RUST_FLASH_STATS_SIZE_V1)?;
    if stats.flags != 0 {
        return Err(EINVAL);
    }
    enabled()?;
    let space = file.space();
    // Without a device nothing is filled in, and nothing of the caller's is to come back.
    stats = uapi::uvm_rust_flash_stats {
        size: stats.size,
        ..Default::default()
    };
    awake(|| {
        crate::ffi::flash::stats(space.as_ref(), &mut stats);
        Ok(())
    })?;
    if !seam::sees_others() {
        // What all processes did together, and the files of others, are not theirs to see.
        stats = uapi::uvm_rust_flash_stats {
            size: stats.size,
            attached: stats.attached,
            slots: stats.slots,
            pages_mine: stats.pages_mine,
            ..Default::default()
        };
    }
    uaccess::write_sized(arg, stats, size)
}

/// Does `UVM_RUST_FLASH_MOVE`: a range of the caller's goes to the device, or comes back, to a GPU if it is to.
pub(crate) fn move_range(file: &seam::File<'_>, arg: usize) -> Result {
    let (range, _) = params::read_sized::<uapi::uvm_rust_flash_move_range>(
        arg,
        uapi::UVM_RUST_FLASH_MOVE_SIZE_V1,
    )?;
    let to = checked(range.base, range.length, range.flags)?;
    enabled()?;
    let space = file.space().ok_or(EPERM)?;
    // It keeps the system awake part by part, and waits for none of the process' locks meanwhile.
    move_range_of(&space, range.base, range.length, to, range.gpu_uuid).map_err(why)
}

/// Where a range of the caller's goes.
///
/// # Errors
///
/// `EINVAL` if it is not one of whole pages, or the flags are unknown.
pub(crate) fn checked(base: u64, length: u64, flags: u32) -> Result<To> {
    let page = kernel::page::PAGE_SIZE as u64;
    let end = base.checked_add(length).ok_or(EINVAL)?;
    let aligned = base % page == 0 && length % page == 0;
    if !aligned || end == base {
        return Err(EINVAL);
    }
    match flags {
        0 => Ok(To::Device),
        uapi::UVM_RUST_FLASH_TO_HOST => Ok(To::Host),
        uapi::UVM_RUST_FLASH_TO_GPU => Ok(To::Gpu),
        _ => Err(EINVAL),
    }
}

/// Why a range was not moved.
pub(crate) fn why(failed: Failed) -> Error {
    match failed {
        Failed::NoDevice => ENODEV,
        Failed::NoMemory => ENOMEM,
        Failed::NotManaged => ENXIO,
        Failed::Interrupted => EINTR,
        Failed::Again => EAGAIN,
        Failed::Unreadable => EIO,
        Failed::NoGpu => ENODEV,
    }
}
