// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Statistics of GPUs and of VA spaces.
//!
//! One [`Gpu`] per GPU that UVM knows and one [`Space`] per VA space, made and
//! torn down by `uvm_perf_heuristics_*`. A `Space` holds one [`Share`] for each
//! GPU that was ever registered in it, until the `Space` goes, so that counts
//! survive an unregister.
//!
//! Lifetimes: a `Share` keeps its `Gpu` alive, so the `Gpu` of a GPU that is
//! gone stays until the last VA space that used it is gone. If the GPU comes
//! back it is a new `Gpu`: the share is joined to that one, and counts from 0 again.
//! A share itself stays as long as its `Space`, so that it is found without a lock.

use super::choose::Choosing;
use crate::ffi::seam;
use crate::ffi::slot::Slot;
use crate::ffi::trace;
use crate::policy::quota::{Limits, Low, Max, Quota};
use crate::policy::stats::evicting::{Evicting, Eviction, Outcome};
use crate::policy::stats::fdinfo::{Address, Told};
use crate::policy::stats::held::{Contents, Held};
use crate::policy::stats::returns::Returns;
use crate::policy::stats::{Cause, Counters, Direction, Queue, Snapshot};
use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, ArcBorrow, SpinLock};

/// Most VA spaces whose replays one call of the fault service can tell apart;
/// those beyond it count faults but no replays.
const SERVED_MAX: usize = 16;

/// What all processes did on one GPU.
#[pin_data]
pub(crate) struct Gpu {
    counters: Counters,
    /// The address of the GPU's PCI device.
    address: Address,
    /// The queue each root chunk was last reclaimed from, by chunk number, and [`EARLY`].
    /// Written under the PMM's list_lock, read by the thread that reclaims.
    reclaimed_from: KVVec<AtomicU8>,
    /// How many bytes of the GPU each VA space holds, and how many of those are resident; `None` without the eviction
    /// queues, which know it. Written under the PMM's list_lock, read without a lock.
    held: Option<Held>,
    /// What was evicted last, of all VA spaces.
    returns: Returns,
    /// The shares that the running call of the fault service handled faults of.
    /// Only the bottom half takes this lock while faults are serviced, so it is
    /// never contended.
    #[pin]
    served: SpinLock<Served>,
    /// Replays that this call has sent.
    replays: AtomicU64,
}

/// Beside a chunk's queue: a prediction had brought the chunk, whose kernel had not begun.
const EARLY: u8 = 1 << 7;

struct Served {
    shares: [Option<Arc<Share>>; SERVED_MAX],
    len: usize,
}

/// What one VA space did on one GPU.
#[pin_data]
pub(crate) struct Share {
    counters: Counters,
    /// Changes under the VA space's lock in write mode, and is read with no more than a va_block's, hence the
    /// spinlock: a leaf, held for as long as it takes to count.
    #[pin]
    gpu: SpinLock<Arc<Gpu>>,
    /// 1 while this share is in `gpu.served`; written under the lock of that list.
    served: AtomicU64,
    /// How much of the GPU the VA space may hold, and how much of that is protected.
    quota: Quota,
    /// Evictions from the VA space that are under way.
    evicting: Evicting,
    /// What comes along with the VA space's faults.
    #[pin]
    choosing: Choosing,
}

/// The statistics of one VA space.
pub(crate) struct Space {
    pid: u32,
    /// A number that no other VA space has.
    client: u32,
    /// The shares by GPU number. An entry is made under the VA space's lock in write mode, and stays.
    shares: KVec<Slot<Arc<Share>>>,
    /// No entry was made from this number on.
    made: AtomicU32,
}

/// The limits that `uvm_rust_gpu_max` and `uvm_rust_gpu_low` give each VA space on this GPU, of which a maximum is at
/// least the least that there may be; none without hooks of ours.
fn limits_of_parameters(gpu: &Gpu) -> Limits {
    #[cfg(not(uvm_native))]
    let (max, low) = (seam::gpu_max(), seam::gpu_low());
    #[cfg(uvm_native)]
    let (max, low) = (0, 0);
    Limits {
        max: Max::of_mib(max).max(Max::least(gpu.root_chunks())),
        low: Low::of_mib(low),
    }
}

impl Gpu {
    /// Makes the statistics of a GPU with this many 2 MiB root chunks, at this address on the PCI bus; `queued` if there
    /// are queues of its chunks.
    pub(crate) fn new(root_chunks: u32, address: &CStr, queued: bool) -> Result<Arc<Self>> {
        let held = queued.then(|| Held::new(root_chunks)).transpose();
        let held = held.map_err(|_| ENOMEM)?;
        let returns = Returns::new(root_chunks).map_err(|_| ENOMEM)?;
        let mut reclaimed_from = KVVec::with_capacity(root_chunks as usize, GFP_KERNEL)?;
        for _ in 0..root_chunks {
            reclaimed_from.push(AtomicU8::new(Queue::Address as u8), GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                counters: Counters::default(),
                address: Address::new(address.to_bytes()),
                reclaimed_from,
                held,
                returns,
                served <- new_spinlock!(Served {
                    shares: [const { None }; SERVED_MAX],
                    len: 0,
                }),
                replays: AtomicU64::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Counts that root chunk `index` was reclaimed, from the queue that [`Gpu::note_reclaim`] was told.
    pub(crate) fn count_reclaim(&self, index: u32) {
        self.counters.evicted(self.reclaimed_from(index));
    }

    /// The queue that root chunk `index` was last reclaimed from.
    fn reclaimed_from(&self, index: u32) -> Queue {
        let from = self.reclaimed_from.get(index as usize);
        let queue = from.and_then(|q| Queue::from_number((q.load(Relaxed) & !EARLY).into()));
        queue.unwrap_or(Queue::Address)
    }

    /// Whether root chunk `index` was last reclaimed [`EARLY`].
    fn reclaimed_early(&self, index: u32) -> bool {
        let from = self.reclaimed_from.get(index as usize);
        from.is_some_and(|q| q.load(Relaxed) & EARLY != 0)
    }

    /// Notes that root chunk `index` leaves `queue` to be reclaimed; `early` if a prediction had brought it for a kernel
    /// that has not begun.
    pub(crate) fn note_reclaim(&self, index: u32, queue: Queue, early: bool) {
        if let Some(q) = self.reclaimed_from.get(index as usize) {
            q.store(queue as u8 | if early { EARLY } else { 0 }, Relaxed);
        }
    }

    /// Root chunk `chunk` is held by the VA space that the queues have this number for, or by none: 0. The PMM's
    /// list_lock is held.
    #[cfg(not(uvm_native))]
    pub(crate) fn note_holder(&self, chunk: u32, holder: u64, contents: Contents) {
        if let Some(held) = &self.held {
            held.give(chunk, holder, contents);
        }
    }

    /// How many root chunks the GPU has.
    pub(crate) fn root_chunks(&self) -> u32 {
        self.reclaimed_from.len() as u32
    }

    /// How many root chunks a VA space holds, that the queues have this number for; `None` if that is not known.
    #[cfg(not(uvm_native))]
    pub(crate) fn held_by(&self, holder: u64) -> Option<u32> {
        self.held.as_ref()?.chunks(holder)
    }

    /// Counts the replays that the running call of the fault service sent.
    pub(crate) fn note_replays(&self, replays: u64) {
        self.replays.fetch_add(replays, Relaxed);
    }

    /// Ends a call of the fault service: its replays count for every VA space whose faults it handled.
    pub(crate) fn end_service(&self) {
        let replays = self.replays.swap(0, Relaxed);
        self.counters.replayed(replays);
        let mut more = true;
        while more {
            // One at a time, so that a share is dropped (and perhaps freed)
            // outside the lock.
            let share = {
                let mut served = self.served.lock();
                let Some(last) = served.len.checked_sub(1) else {
                    break;
                };
                served.len = last;
                more = last > 0;
                let share = served.shares.get_mut(last).and_then(Option::take);
                if let Some(share) = &share {
                    share.served.store(0, Relaxed);
                }
                share
            };
            if let Some(share) = share {
                share.counters.replayed(replays);
            }
        }
    }

    /// Notes the first fault of this share's VA space in a call of the fault service.
    fn note_served(&self, share: ArcBorrow<'_, Share>) {
        let mut served = self.served.lock();
        let len = served.len;
        if let Some(slot) = served.shares.get_mut(len) {
            *slot = Some(share.into());
            served.len = len + 1;
            share.served.store(1, Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.counters.snapshot()
    }

    /// The text of `gpu-N` in debugfs.
    pub(crate) fn show(&self, out: &mut dyn Write) -> fmt::Result {
        write!(out, "{}", self.snapshot())
    }
}

/// A GPU's number as upstream prints it: an id, the CPU's being 0.
pub(crate) const fn number_of(index: u32) -> u32 {
    index + 1
}

impl Share {
    /// How much of the GPU the VA space may hold.
    #[cfg(not(uvm_native))]
    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// What comes along with the VA space's faults.
    #[cfg(not(uvm_native))]
    pub(crate) fn choosing(&self) -> &Choosing {
        &self.choosing
    }
}

impl Space {
    /// Makes the statistics of a VA space of process `pid`, with a number `client` that no other has, and room for GPU
    /// numbers below `gpus`.
    pub(crate) fn new(pid: u32, client: u32, gpus: u32) -> Result<Self> {
        let mut shares = KVec::with_capacity(gpus as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..gpus {
            shares.push(Slot::empty(), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            pid,
            client,
            shares,
            made: AtomicU32::new(0),
        })
    }

    /// GPU number `index` was registered; it is counted from now on. One thread at a time calls this.
    pub(crate) fn add_gpu(&self, index: u32, gpu: &Arc<Gpu>) -> Result {
        if let Some(share) = self.share(index) {
            let mut joined = share.gpu.lock();
            if core::ptr::eq(&**joined, &**gpu) {
                return Ok(());
            }
            let before = core::mem::replace(&mut *joined, gpu.clone());
            drop(joined);
            // Nobody counts there: the GPU that had this number is gone, and this one is new. The limits stay, or
            // its process could raise them that way; but for what any process needs on this GPU.
            share.counters.reset();
            let least = Max::least(gpu.root_chunks());
            let raised = |now: Limits| Limits {
                max: now.max.max(least),
                ..now
            };
            let _ = share.quota.set(raised, true);
            share.choosing.begin_anew(gpu.root_chunks());
            // Freed here, outside the lock.
            drop(before);
            return Ok(());
        }
        let (gpu, limits) = (gpu.clone(), limits_of_parameters(gpu));
        let choosing = Choosing::new(gpu.root_chunks());
        let fresh = Arc::pin_init(
            pin_init!(Share {
                counters: Counters::default(),
                gpu <- new_spinlock!(gpu),
                served: AtomicU64::new(0),
                quota: Quota::new(limits),
                evicting: Evicting::default(),
                choosing <- choosing,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let slot = self.shares.get(index as usize).ok_or(EINVAL)?;
        slot.fill(fresh).map_err(|_| EBUSY)?;
        self.made.fetch_max(index + 1, Relaxed);
        Ok(())
    }

    /// The share of GPU `index`; `None` if that was never registered here, or memory was short.
    #[inline(always)]
    pub(crate) fn share(&self, index: u32) -> Option<ArcBorrow<'_, Share>> {
        self.shares.get(index as usize)?.get()
    }

    /// `instances` faults of `batch` on `gpu`, which has number `index`; `duplicates` of them needed no work.
    /// Called by the GPU's bottom half, with the VA space's lock held.
    #[inline(always)]
    pub(crate) fn note_fault(
        &self,
        gpu: &Gpu,
        index: u32,
        batch: u32,
        instances: u64,
        duplicates: u64,
    ) {
        if let Some(share) = self.share(index) {
            share.counters.faulted(batch, instances, duplicates);
            gpu.counters.faulted(batch, instances, duplicates);
            if share.served.load(Relaxed) == 0 {
                gpu.note_served(share);
            }
        }
    }

    /// Counts `bytes` that are copied for `address`; `None` stands for the CPU.
    pub(crate) fn note_copy(
        &self,
        (dst, src): (Option<u32>, Option<u32>),
        cause: Cause,
        address: u64,
        bytes: u64,
    ) {
        let (index, direction) = match (dst, src) {
            (Some(dst), None) => (dst, Direction::HostToGpu),
            (None, Some(src)) => (src, Direction::GpuToHost),
            (Some(dst), Some(_)) => (dst, Direction::GpuToGpu),
            // The copy is between NUMA nodes: no GPU takes part.
            (None, None) => return,
        };
        if let Some(share) = self.share(index) {
            share.counters.copied(direction, cause, bytes);
            share.choosing.copied(direction, cause, address, bytes);
            if (direction, cause) == (Direction::GpuToHost, Cause::Eviction) {
                share.evicting.copied(seam::this_thread(), address, bytes);
            }
            let gpu = share.gpu.lock();
            gpu.counters.copied(direction, cause, bytes);
            if direction != Direction::GpuToHost && gpu.returns.copied_in(self.client, address) {
                share.counters.thrashed();
                gpu.counters.thrashed();
            }
        }
    }

    /// Counts that the va_block at `address` is to lose its chunks in a root chunk of a GPU, both by their numbers. Returns
    /// the eviction, for [`Self::evicted`].
    pub(crate) fn note_evicted(&self, (index, chunk): (u32, u32), address: u64) -> Eviction {
        let Some(share) = self.share(index) else {
            return Eviction(0);
        };
        share
            .counters
            .evicted(share.gpu.lock().reclaimed_from(chunk));
        let so_far = share.counters.evicted_bytes();
        share.evicting.begin(seam::this_thread(), address, so_far)
    }

    /// Counts, and tells who listens, that the va_block at `address` has lost its chunks in a root chunk of a GPU, both by their
    /// numbers. It is the thread that has begun this `eviction`.
    pub(crate) fn evicted(
        &self,
        (index, chunk): (u32, u32),
        address: u64,
        eviction: Eviction,
        status: u32,
    ) {
        let Some(share) = self.share(index) else {
            return;
        };
        let so_far = share.counters.evicted_bytes();
        let thread = seam::this_thread();
        let bytes = share.evicting.end(eviction, thread, address, so_far);
        let (queue, has_left) = {
            let gpu = share.gpu.lock();
            let outcome = Outcome {
                bytes,
                failed: status != 0,
                early: gpu.reclaimed_early(chunk),
            };
            if outcome.took_data() {
                gpu.returns.evicted(self.client, address);
            }
            if outcome.wasted() {
                share.counters.prefetch_wasted();
                gpu.counters.prefetch_wasted();
            }
            (gpu.reclaimed_from(chunk) as u32, outcome.has_left())
        };
        if has_left {
            share.choosing.left(address);
        }
        trace::evict(&trace::Evict {
            gpu: number_of(index),
            pid: self.pid,
            address,
            bytes,
            queue,
            status,
        });
    }

    /// The va_block at `address` is freed: what comes there later is other memory.
    #[cfg(not(uvm_native))]
    pub(crate) fn freed(&self, address: u64) {
        let made = self.made.load(Relaxed) as usize;
        for share in self.shares.iter().take(made).filter_map(Slot::get) {
            share.gpu.lock().returns.freed(self.client, address);
            share.choosing.left(address);
        }
    }

    /// What this VA space did on GPU `index`, a registered one; `None` if memory
    /// was short when it was registered.
    pub(crate) fn snapshot(&self, index: u32) -> Option<Snapshot> {
        Some(self.share(index)?.counters.snapshot())
    }

    /// What this VA space did on each GPU that was ever registered in it, and what it holds there as the queues'
    /// `holder`.
    pub(crate) fn told(&self, holder: u64) -> impl Iterator<Item = Told> + Clone + '_ {
        let told = move |(index, share): (usize, &Slot<Arc<Share>>)| {
            let share = share.get()?;
            let gpu = share.gpu.lock();
            let address = gpu.address;
            let bytes = |of: fn(&Held, u64) -> Option<u64>| of(gpu.held.as_ref()?, holder);
            let (held, discarded) = (bytes(Held::bytes), bytes(Held::discarded_bytes));
            drop(gpu);
            Some(Told {
                gpu: number_of(index as u32),
                address,
                held,
                discarded,
                max: share.quota.told(),
                low: share.quota.low().told(),
                counts: share.counters.snapshot(),
            })
        };
        self.shares.iter().enumerate().filter_map(told)
    }

    /// Writes this VA space's part of `processes` in debugfs.
    pub(crate) fn show(&self, out: &mut dyn Write) -> fmt::Result {
        for (index, share) in self.shares.iter().enumerate() {
            if let Some(share) = share.get() {
                writeln!(out, "process {} gpu-{}", self.pid, number_of(index as u32))?;
                write!(out, "{}", share.counters.snapshot())?;
                if let Some(along) = share.choosing.picked() {
                    writeln!(out, "{:<22} {}", "along", along.name())?;
                }
            }
        }
        Ok(())
    }
}
