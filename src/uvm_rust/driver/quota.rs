// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a VA space may hold of a GPU's memory, and what is protected of that (`policy/quota.rs`): the allocations that ask
//! for it, and the call that sets it.
//!
//! Locks: the quota is in the VA space's share of the GPU (`driver/stats.rs`), and needs none; the VA space's lock is
//! held all the time. Evictions sleep, so that no spinlock and no va_block's lock is held. A chunk becomes the VA
//! space's under the `list_lock` of the GPU's PMM. The queues, which that lock guards, have a copy of each low, for as long
//! as the VA space holds chunks. Whoever writes the copy reads the quota under the lock, so that the last one that is set
//! is the one that stays.

use super::discard::status;
use super::ioctl::{awake, EOPNOTSUPP};
use super::stats::{Gpu, Share};
use super::{evict, params};
use crate::ffi::bindings as uapi;
use crate::ffi::flash::is_admin;
use crate::ffi::gpu::GpuHandle;
use crate::ffi::vaspace::{LockedVaSpace, VaSpace};
use crate::ffi::{seam, time, uaccess};
use crate::policy::evict::RootChunks;
use crate::policy::quota::{
    give_up, make_room, Limits, Low, Machine, Max, Quota, LISTED_AT_A_TIME,
};
use kernel::prelude::*;
use kernel::sync::ArcBorrow;

/// A VA space that wants a root chunk, or has too many. Its lock is held.
struct Asking<'a> {
    gpu: GpuHandle<'a>,
    space: VaSpace<'a>,
}

impl Machine for Asking<'_> {
    fn held(&mut self) -> Option<u32> {
        self.gpu.stats()?.held_by(self.space.holder())
    }

    fn evict(&mut self) -> bool {
        // After another failure pages are held or pinned, or host memory is short. If the GPU is broken, the allocation
        // will say so.
        self.gpu.evict_of(self.space) != status::NOTHING_TO_DO
    }

    fn dying(&mut self) -> bool {
        time::rest()
    }
}

/// Checks the parameters that set each VA space's limits.
///
/// # Errors
///
/// `EINVAL`, and a line in the log, if there would be limits to which nobody keeps.
pub(crate) fn check_parameters() -> Result {
    if (seam::gpu_max(), seam::gpu_low()) == (0, 0) || seam::quotas_enabled() {
        return Ok(());
    }
    pr_err!("uvm_rust_gpu_max and uvm_rust_gpu_low need uvm_rust_stats=1 and uvm_rust_evict=1\n");
    Err(EINVAL)
}

/// Whether `space`, whose lock is held, evicts before it gets another root chunk.
pub(crate) fn is_full(gpu: GpuHandle<'_>, quota: &Quota, space: VaSpace<'_>) -> bool {
    let held = || Asking { gpu, space }.held();
    // Most have no maximum, and look for no count.
    quota.max() != Max::NONE && held().is_some_and(|held| quota.is_full(held))
}

/// Begins an allocation of a root chunk for `space`, with or without eviction. False if the caller is to try with
/// eviction.
pub(crate) fn begin(gpu: GpuHandle<'_>, quota: &Quota, space: VaSpace<'_>, evict: bool) -> bool {
    // Nothing is evicted from a GPU without replayable faults.
    if !is_full(gpu, quota, space) || gpu.parent().is_none() {
        return true;
    }
    if evict {
        make_room(quota, &mut Asking { gpu, space });
    }
    evict
}

/// Ends it: `chunk` is the VA space's from now on. Without a limit, the first use of the chunk says so.
pub(crate) fn end(gpu: GpuHandle<'_>, quota: &Quota, holder: u64, chunk: u32) {
    if quota.limits() == Limits::NONE {
        return;
    }
    let mut chunks = gpu.chunks();
    if let Some(queues) = chunks.queues().0 {
        evict::claim((queues, gpu.stats()), chunk, holder);
        // The first chunk of the VA space has the queues know its low.
        protect((queues, gpu.stats()), quota, holder);
    }
}

/// Tells the queues of a GPU, whose lock is held, how much of `holder`'s is protected.
fn protect((queues, stats): (&mut RootChunks, Option<&Gpu>), quota: &Quota, holder: u64) {
    if let Some(held) = stats.and_then(|gpu| gpu.held_by(holder)) {
        // With too many other VA spaces nothing is, until one of them holds nothing.
        let _ = queues.protect(holder, quota.low().chunks(), held);
    }
}

/// Has the queues of a GPU heed the low of `holder`, which was set, or whose VA space has just registered the GPU. The first
/// low on a GPU takes a while, and the GPU's lock is let go in between.
pub(crate) fn heed(gpu: GpuHandle<'_>, quota: &Quota, holder: u64) {
    let mut heeded = quota.low() == Low::NONE;
    while !heeded {
        let mut chunks = gpu.chunks();
        let (queues, _) = chunks.queues();
        heeded = queues.is_none_or(|queues| queues.heed_lows(LISTED_AT_A_TIME));
    }
    let mut chunks = gpu.chunks();
    if let Some(queues) = chunks.queues().0 {
        protect((queues, gpu.stats()), quota, holder);
        queues.unsettle_low(holder);
    }
    drop(chunks);
    let mut settled = false;
    while !settled {
        let mut chunks = gpu.chunks();
        let (queues, _) = chunks.queues();
        settled = queues.is_none_or(|queues| queues.settle_low(holder, LISTED_AT_A_TIME));
    }
}

/// What a call sets, and leaves as it is.
struct Wanted {
    max: Option<Max>,
    low: Option<Low>,
}

/// Does `UVM_RUST_SET_QUOTA`: the caller lowers what its own VA space may hold and what is protected of that, or raises
/// both as an administrator.
pub(crate) fn call(file: &seam::File<'_>, arg: usize) -> Result {
    let (mut what, size) =
        params::read_sized::<uapi::uvm_rust_quota>(arg, uapi::UVM_RUST_QUOTA_SIZE_V1)?;
    if what.flags & !(uapi::UVM_RUST_QUOTA_MAX | uapi::UVM_RUST_QUOTA_LOW) != 0 {
        return Err(EINVAL);
    }
    if !seam::quotas_enabled() {
        return Err(Error::from_errno(-EOPNOTSUPP));
    }
    let space = file.space().ok_or(EPERM)?;
    let sets = |flag| what.flags & flag != 0;
    let max = sets(uapi::UVM_RUST_QUOTA_MAX).then(|| Max::of_bytes(what.max));
    let low = sets(uapi::UVM_RUST_QUOTA_LOW).then(|| Low::of_bytes(what.low));
    let mut left = if max.is_some() { u32::MAX } else { 0 };
    let mut wanted = Some(Wanted { max, low });
    // Whoever suspends waits for one round.
    loop {
        left = awake(|| round(space, &mut what, wanted.take(), left))?;
        if left == 0 {
            break;
        }
    }
    uaccess::write_sized(arg, what, size)
}

/// Sets the limits that are `wanted`, evicts some of what is beyond the maximum, but no more than `left`, and fills in what
/// there is then. Returns how much is left to evict.
fn round(
    space: VaSpace<'_>,
    what: &mut uapi::uvm_rust_quota,
    wanted: Option<Wanted>,
    left: u32,
) -> Result<u32> {
    let locked = space.lock();
    let (gpu, share) = share_of(&locked, &what.gpu_uuid)?;
    let (quota, mut asking) = (share.quota(), Asking { gpu, space });
    if let Some(wanted) = wanted {
        set(gpu, quota, &wanted)?;
        if wanted.low.is_some() {
            heed(gpu, quota, space.holder());
        }
    }
    let left = give_up(quota, &mut asking, left);
    (what.max, what.low) = (quota.max().bytes(), quota.low().bytes());
    what.held = asking.held().map_or(u64::MAX, Max::bytes_of);
    what.beyond = quota.beyond();
    Ok(left)
}

/// A GPU that is registered in a VA space, and what the VA space has there.
fn share_of<'l>(
    locked: &'l LockedVaSpace<'_>,
    uuid: &[u8; 16],
) -> Result<(GpuHandle<'l>, ArcBorrow<'l, Share>)> {
    let gpu = locked.gpu(uuid).ok_or(ENODEV)?;
    gpu.parent().ok_or(Error::from_errno(-EOPNOTSUPP))?;
    let share = locked.stats().and_then(|stats| stats.share(gpu.index()));
    Ok((gpu, share.ok_or(ENOMEM)?))
}

/// Sets limits, for the time being without effect on what is there.
fn set(gpu: GpuHandle<'_>, quota: &Quota, wanted: &Wanted) -> Result {
    let chunks = gpu.stats().ok_or(ENOMEM)?.root_chunks();
    if wanted.max.is_some_and(|max| max < Max::least(chunks)) {
        return Err(EINVAL);
    }
    let changed = |now: Limits| Limits {
        max: wanted.max.unwrap_or(now.max),
        low: wanted.low.unwrap_or(now.low),
    };
    if quota.set(changed, false).is_err() {
        is_admin()?;
        let _ = quota.set(changed, true);
    }
    Ok(())
}
