// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The ioctls of `include/uapi/uvm_rust_ioctl.h`.
//!
//! A fault on the process' memory may wait for whom the process likes, and even for who suspends the system. For this
//! reason each call copies from and to its process without a lock, and takes upstream's lock of power management,
//! `g_uvm_global.pm.lock`, for what is in between ([`awake`]): whoever suspends waits for that alone.

use super::{discard, evict, params};
#[cfg(not(uvm_native))]
use super::{flash, moves, quota};
use crate::ffi::bindings as uapi;
use crate::ffi::{seam, uaccess};
use crate::policy::stats::{Snapshot, Traffic, CAUSES, QUEUES};
use core::ffi::c_long;
use kernel::prelude::*;

/// `UVM_RUST_FEATURE_STATS`, which is not in a form that bindgen reads.
const FEATURE_STATS: u64 = 1 << 0;

/// `UVM_RUST_FEATURE_DISCARD`: the discard calls are there.
const FEATURE_DISCARD: u64 = 1 << 1;

/// `UVM_RUST_FEATURE_EXEC_ID`: kernels can be announced.
const FEATURE_EXEC_ID: u64 = 1 << 2;

/// `UVM_RUST_FEATURE_NATIVE_DISCARD`: the discard calls follow NVIDIA's rules.
const FEATURE_NATIVE_DISCARD: u64 = 1 << 3;

/// `UVM_RUST_FEATURE_QUOTA`: a process's share of a GPU can be limited.
const FEATURE_QUOTA: u64 = 1 << 4;

/// `UVM_RUST_FEATURE_QUOTA_LOW`: a process's share of a GPU can be protected.
const FEATURE_QUOTA_LOW: u64 = 1 << 5;

/// `UVM_RUST_FEATURE_FLASH`: an SSD can be attached.
const FEATURE_FLASH: u64 = 1 << 8;

/// `UVM_RUST_FEATURE_FLASH_QUEUE`: the SSD tier takes requests without waiting.
const FEATURE_FLASH_QUEUE: u64 = 1 << 9;

/// `UVM_RUST_FEATURE_FLASH_AFTER`: such a request may wait for all that were submitted before it.
const FEATURE_FLASH_AFTER: u64 = 1 << 10;

/// The kernel crate of Linux 6.12 has no name for it.
pub(crate) const EOPNOTSUPP: core::ffi::c_int = 95;

const _: () = {
    assert!(CAUSES == uapi::UVM_RUST_CAUSE_MAX as usize);
    assert!(QUEUES == uapi::UVM_RUST_QUEUE_MAX as usize);
    assert!(
        core::mem::size_of::<uapi::uvm_rust_version>() == uapi::UVM_RUST_VERSION_SIZE_V1 as usize
    );
    assert!(core::mem::size_of::<uapi::uvm_rust_stats>() == uapi::UVM_RUST_STATS_SIZE_V3 as usize);
    assert!(
        core::mem::size_of::<uapi::uvm_rust_discard_batch>()
            == uapi::UVM_RUST_DISCARD_BATCH_SIZE_V1 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_discard_range>()
            == uapi::UVM_RUST_DISCARD_RANGE_SIZE_V1 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_announce>() == uapi::UVM_RUST_ANNOUNCE_SIZE_V1 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_prefetch_stats>()
            == uapi::UVM_RUST_PREFETCH_STATS_SIZE_V1 as usize
    );
    assert!(core::mem::size_of::<uapi::uvm_rust_quota>() == uapi::UVM_RUST_QUOTA_SIZE_V1 as usize);
    assert!(
        core::mem::size_of::<uapi::uvm_rust_flash_attach>()
            == uapi::UVM_RUST_FLASH_ATTACH_SIZE_V1 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_flash_detach>()
            == uapi::UVM_RUST_FLASH_DETACH_SIZE_V1 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_flash_stats>()
            == uapi::UVM_RUST_FLASH_STATS_SIZE_V4 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_flash_move_range>()
            == uapi::UVM_RUST_FLASH_MOVE_SIZE_V2 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_flash_request>()
            == uapi::UVM_RUST_FLASH_REQUEST_SIZE_V1 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_flash_submit>()
            == uapi::UVM_RUST_FLASH_SUBMIT_SIZE_V1 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_flash_completion>()
            == uapi::UVM_RUST_FLASH_COMPLETION_SIZE_V1 as usize
    );
    assert!(
        core::mem::size_of::<uapi::uvm_rust_flash_reap>()
            == uapi::UVM_RUST_FLASH_REAP_SIZE_V1 as usize
    );
};

/// Does what one of our ioctls asks for: 0, or what went wrong. `None` if it is upstream's. Caller holds no lock.
pub(crate) fn answer(file: &seam::File<'_>, cmd: u32, arg: usize) -> Option<c_long> {
    // An upstream with a discard of its own answers its own numbers.
    #[cfg(not(uvm_native))]
    if let Some(result) = discard::dispatch(file, cmd, arg) {
        return Some(errno(result));
    }
    dispatch(file, cmd, arg).map(errno)
}

/// Calls `f` while the system neither sleeps nor is suspended, for which whoever suspends waits: `f` copies nothing from
/// or to user space, and waits for no lock of a process' memory.
///
/// # Errors
///
/// `EAGAIN` if the system sleeps, or somebody waits to suspend it; and those of `f`.
pub(crate) fn unsuspended<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    let _pm = seam::PmLock::try_read().ok_or(EAGAIN)?;
    f()
}

/// Calls `f` as [`unsuspended`] does, if the driver works.
///
/// # Errors
///
/// `EIO` after a fatal error of the driver, which does nothing any more; and those of [`unsuspended`].
pub(crate) fn awake<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    unsuspended(|| if seam::healthy() { f() } else { Err(EIO) })
}

/// What an ioctl returns: 0, or the negative errno.
fn errno(result: Result) -> c_long {
    result.map_or_else(|e| c_long::from(e.to_errno()), |()| 0)
}

/// Whether an ioctl is one of ours, which upstream does not know.
#[cfg(uvm_native)]
fn is_ours(cmd: u32) -> bool {
    matches!(
        cmd,
        uapi::UVM_RUST_GET_VERSION
            | uapi::UVM_RUST_GET_STATS
            | uapi::UVM_RUST_DISCARD_BATCH
            | uapi::UVM_RUST_ANNOUNCE
            | uapi::UVM_RUST_GET_PREFETCH_STATS
            | uapi::UVM_RUST_SET_QUOTA
            | uapi::UVM_RUST_FLASH_ATTACH
            | uapi::UVM_RUST_FLASH_DETACH
            | uapi::UVM_RUST_FLASH_GET_STATS
            | uapi::UVM_RUST_FLASH_MOVE
            | uapi::UVM_RUST_FLASH_SUBMIT
            | uapi::UVM_RUST_FLASH_REAP
    )
}

/// Does what one of our ioctls asks for; `None` if it is none of ours.
fn dispatch(file: &seam::File<'_>, cmd: u32, arg: usize) -> Option<Result> {
    Some(match cmd {
        uapi::UVM_RUST_GET_VERSION => get_version(arg),
        uapi::UVM_RUST_GET_STATS => get_stats(file, arg),
        uapi::UVM_RUST_DISCARD_BATCH => discard::batch(file, arg),
        _ => return dispatch_hooked(file, cmd, arg),
    })
}

/// The calls that need our hooks in upstream.
#[cfg(not(uvm_native))]
fn dispatch_hooked(file: &seam::File<'_>, cmd: u32, arg: usize) -> Option<Result> {
    Some(match cmd {
        uapi::UVM_RUST_ANNOUNCE => announce(file, arg),
        uapi::UVM_RUST_GET_PREFETCH_STATS => get_prefetch_stats(file, arg),
        uapi::UVM_RUST_SET_QUOTA => quota::call(file, arg),
        uapi::UVM_RUST_FLASH_ATTACH => flash::attach(arg),
        uapi::UVM_RUST_FLASH_DETACH => flash::detach(arg),
        uapi::UVM_RUST_FLASH_GET_STATS => flash::stats(file, arg),
        uapi::UVM_RUST_FLASH_MOVE => flash::move_range(file, arg),
        uapi::UVM_RUST_FLASH_SUBMIT => moves::submit(file, arg),
        uapi::UVM_RUST_FLASH_REAP => moves::reap(file, arg),
        _ => return None,
    })
}

/// These calls on a driver that has none of the hooks.
#[cfg(uvm_native)]
fn dispatch_hooked(_: &seam::File<'_>, cmd: u32, _: usize) -> Option<Result> {
    is_ours(cmd).then(|| Err(Error::from_errno(-EOPNOTSUPP)))
}

fn get_version(arg: usize) -> Result {
    let (mut version, size) =
        params::read_sized::<uapi::uvm_rust_version>(arg, uapi::UVM_RUST_VERSION_SIZE_V1)?;
    version.version = uapi::UVM_RUST_VERSION;
    version.features = 0;
    if seam::stats_enabled() {
        version.features |= FEATURE_STATS;
    }
    if seam::discard_enabled() {
        version.features |= FEATURE_DISCARD;
    }
    if seam::discard_is_upstreams() {
        version.features |= FEATURE_NATIVE_DISCARD;
    }
    if seam::announce_enabled() {
        version.features |= FEATURE_EXEC_ID;
    }
    if seam::quotas_enabled() {
        version.features |= FEATURE_QUOTA | FEATURE_QUOTA_LOW;
    }
    if seam::flash_enabled() {
        version.features |= FEATURE_FLASH | FEATURE_FLASH_QUEUE | FEATURE_FLASH_AFTER;
    }
    uaccess::write_sized(arg, version, size)
}

fn get_stats(file: &seam::File<'_>, arg: usize) -> Result {
    let (mut stats, size) =
        params::read_sized::<uapi::uvm_rust_stats>(arg, uapi::UVM_RUST_STATS_SIZE_V1)?;
    if stats.flags & !uapi::UVM_RUST_STATS_WHOLE_GPU != 0 {
        return Err(EINVAL);
    }
    if !seam::stats_enabled() {
        return Err(Error::from_errno(-EOPNOTSUPP));
    }
    let space = file.space().ok_or(EPERM)?;
    let sees_others = seam::sees_others();
    let whole_gpu = stats.flags & uapi::UVM_RUST_STATS_WHOLE_GPU != 0;
    if whole_gpu && !sees_others {
        return Err(EPERM);
    }
    stats.queued = Default::default();
    let snapshot = awake(|| {
        let space = space.lock();
        let gpu = space.gpu(&stats.gpu_uuid).ok_or(ENODEV)?;
        // The queues hold all processes' chunks.
        if sees_others {
            evict::queued(gpu, &mut stats.queued);
        }
        let whole = gpu.stats().ok_or(ENODEV)?;
        if whole_gpu {
            return Ok(whole.snapshot());
        }
        let mine = space.stats().ok_or(ENOMEM)?;
        mine.snapshot(gpu.index()).ok_or(ENOMEM)
    })?;
    fill(&mut stats, &snapshot);
    uaccess::write_sized(arg, stats, size)
}

#[cfg(not(uvm_native))]
fn announce(file: &seam::File<'_>, arg: usize) -> Result {
    let (what, _) =
        params::read_sized::<uapi::uvm_rust_announce>(arg, uapi::UVM_RUST_ANNOUNCE_SIZE_V1)?;
    let idle = what.flags & uapi::UVM_RUST_ANNOUNCE_IDLE != 0;
    // The call has an ID, or has none and says so.
    if what.flags & !uapi::UVM_RUST_ANNOUNCE_IDLE != 0 || idle != (what.exec_id == 0) {
        return Err(EINVAL);
    }
    if !seam::announce_enabled() {
        return Err(Error::from_errno(-EOPNOTSUPP));
    }
    let space = file.space().ok_or(EPERM)?;
    awake(|| {
        let space = space.lock();
        let gpu = space.gpu(&what.gpu_uuid).ok_or(ENODEV)?;
        let parent = gpu.parent().ok_or(Error::from_errno(-EOPNOTSUPP))?;
        let process = space.process().ok_or(ENOMEM)?;
        process.announce(gpu, parent, what.exec_id)
    })
}

#[cfg(not(uvm_native))]
fn get_prefetch_stats(file: &seam::File<'_>, arg: usize) -> Result {
    let (mut stats, size) = params::read_sized::<uapi::uvm_rust_prefetch_stats>(
        arg,
        uapi::UVM_RUST_PREFETCH_STATS_SIZE_V1,
    )?;
    if stats.flags != 0 {
        return Err(EINVAL);
    }
    if !seam::announce_enabled() {
        return Err(Error::from_errno(-EOPNOTSUPP));
    }
    let space = file.space().ok_or(EPERM)?;
    awake(|| {
        let space = space.lock();
        let gpu = space.gpu(&stats.gpu_uuid).ok_or(ENODEV)?;
        stats = uapi::uvm_rust_prefetch_stats {
            gpu_uuid: stats.gpu_uuid,
            ..Default::default()
        };
        if let Some(prefetcher) = space.process().and_then(|p| p.of(gpu.index())) {
            prefetcher.fill(&mut stats);
        }
        Ok(())
    })?;
    uaccess::write_sized(arg, stats, size)
}

fn fill(out: &mut uapi::uvm_rust_stats, s: &Snapshot) {
    let traffic = |from: &[Traffic; CAUSES]| {
        from.map(|t| uapi::uvm_rust_traffic {
            bytes: t.bytes,
            pages: t.pages,
        })
    };
    out.host_to_gpu = traffic(&s.host_to_gpu);
    out.gpu_to_host = traffic(&s.gpu_to_host);
    out.gpu_to_gpu = traffic(&s.gpu_to_gpu);
    out.faults = s.faults;
    out.duplicates = s.duplicates;
    out.batches = s.batches;
    out.replays = s.replays;
    out.evictions = s.evictions;
    out.thrashed = s.thrashed;
    out.prefetch_wasted = s.prefetch_wasted;
}
