// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Statistics of GPUs and of VA spaces.
//!
//! One [`Gpu`] per GPU that UVM knows and one [`Space`] per VA space, made and
//! torn down by `uvm_perf_heuristics_*`. A `Space` holds one [`Share`] for each
//! GPU that was ever registered in it, until the `Space` goes, so that counts
//! survive an unregister.
//!
//! Lifetimes: a `Share` keeps its `Gpu` alive, so the `Gpu` of a GPU that is
//! gone stays until the last VA space that used it is gone. If the GPU comes
//! back it is a new `Gpu`, and the share is joined to that one.

use crate::policy::stats::{Cause, Counters, Direction, Queue, Snapshot};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// Most VA spaces whose replays one call of the fault service can tell apart;
/// those beyond it count faults but no replays.
const SERVED_MAX: usize = 16;

/// What all processes did on one GPU.
#[pin_data]
pub(crate) struct Gpu {
    counters: Counters,
    /// The queue each root chunk was last reclaimed from, by chunk number.
    /// Written under the PMM's list_lock, read by the thread that reclaims.
    reclaimed_from: KVVec<AtomicU8>,
    /// The shares that the running call of the fault service handled faults of.
    /// Only the bottom half takes this lock while faults are serviced, so it is
    /// never contended.
    #[pin]
    served: SpinLock<Served>,
    /// Replays that this call has sent.
    replays: AtomicU64,
}

struct Served {
    shares: [Option<Arc<Share>>; SERVED_MAX],
    len: usize,
}

/// What one VA space did on one GPU.
pub(crate) struct Share {
    counters: Counters,
    gpu: Arc<Gpu>,
    /// 1 while this share stands in `gpu.served`; written under that lock.
    served: AtomicU64,
}

/// The statistics of one VA space.
#[pin_data]
pub(crate) struct Space {
    pid: u32,
    /// By GPU number. An entry is set under the VA space's lock in write mode and
    /// is read with no more than the va_block's lock, hence the spinlock, held
    /// for as long as it takes to find the share and count. `Gpu::served` is below it.
    #[pin]
    shares: SpinLock<KVec<Option<Arc<Share>>>>,
}

impl Gpu {
    /// For a GPU with this many 2 MiB root chunks.
    pub(crate) fn new(root_chunks: u32) -> Result<Arc<Self>> {
        let mut reclaimed_from = KVVec::with_capacity(root_chunks as usize, GFP_KERNEL)?;
        for _ in 0..root_chunks {
            reclaimed_from.push(AtomicU8::new(Queue::Address as u8), GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                counters: Counters::default(),
                reclaimed_from,
                served <- new_spinlock!(Served {
                    shares: [const { None }; SERVED_MAX],
                    len: 0,
                }),
                replays: AtomicU64::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Root chunk `index` leaves `queue` to be reclaimed.
    pub(crate) fn note_reclaim(&self, index: u32, queue: Queue) {
        self.counters.evicted(queue);
        if let Some(q) = self.reclaimed_from.get(index as usize) {
            q.store(queue as u8, Relaxed);
        }
    }

    /// The running call of the fault service sent this many replays.
    pub(crate) fn note_replays(&self, replays: u64) {
        self.replays.fetch_add(replays, Relaxed);
    }

    /// That call ends: its replays count for all whose faults it handled.
    pub(crate) fn end_service(&self) {
        let replays = self.replays.swap(0, Relaxed);
        self.counters.replayed(replays);
        loop {
            // One at a time, so that a share is dropped (and perhaps freed)
            // outside the lock.
            let share = {
                let mut served = self.served.lock();
                let Some(last) = served.len.checked_sub(1) else {
                    break;
                };
                served.len = last;
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

    fn note_served(&self, share: &Arc<Share>) {
        if share.served.load(Relaxed) != 0 {
            return;
        }
        let mut served = self.served.lock();
        let len = served.len;
        if let Some(slot) = served.shares.get_mut(len) {
            *slot = Some(share.clone());
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

impl Space {
    /// For the process `pid`, with room for GPU numbers below `gpus`.
    pub(crate) fn new(pid: u32, gpus: u32) -> Result<Pin<KBox<Self>>> {
        let mut shares = KVec::with_capacity(gpus as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..gpus {
            shares.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        KBox::pin_init(
            pin_init!(Self {
                pid,
                shares <- new_spinlock!(shares),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// GPU number `index` was registered; it is counted from now on.
    pub(crate) fn add_gpu(&self, index: u32, gpu: &Arc<Gpu>) -> Result {
        if let Some(share) = self.share(index) {
            if core::ptr::eq(&*share.gpu, &**gpu) {
                return Ok(());
            }
        }
        let fresh = Arc::new(
            Share {
                counters: Counters::default(),
                gpu: gpu.clone(),
                served: AtomicU64::new(0),
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        let old = match self.shares.lock().get_mut(index as usize) {
            Some(slot) => slot.replace(fresh),
            None => return Err(EINVAL),
        };
        // Freed here, outside the lock.
        drop(old);
        Ok(())
    }

    fn share(&self, index: u32) -> Option<Arc<Share>> {
        self.with_share(index, Arc::clone)
    }

    /// Calls `count` with the share of GPU `index`, if there is one, under a spinlock: to
    /// count takes less than to keep the share alive without.
    fn with_share<R>(&self, index: u32, count: impl FnOnce(&Arc<Share>) -> R) -> Option<R> {
        Some(count(self.shares.lock().get(index as usize)?.as_ref()?))
    }

    /// `instances` faults of `batch`, `duplicates` of which needed no work.
    pub(crate) fn note_fault(&self, index: u32, batch: u32, instances: u64, duplicates: u64) {
        self.with_share(index, |share| {
            share.counters.faulted(batch, instances, duplicates);
            share.gpu.counters.faulted(batch, instances, duplicates);
            share.gpu.note_served(share);
        });
    }

    /// `bytes` are being copied; `None` stands for the CPU.
    pub(crate) fn note_copy(&self, dst: Option<u32>, src: Option<u32>, cause: Cause, bytes: u64) {
        let (index, direction) = match (dst, src) {
            (Some(dst), None) => (dst, Direction::HostToGpu),
            (None, Some(src)) => (src, Direction::GpuToHost),
            (Some(dst), Some(_)) => (dst, Direction::GpuToGpu),
            // Between NUMA nodes: no GPU took part.
            (None, None) => return,
        };
        self.with_share(index, |share| {
            share.counters.copied(direction, cause, bytes);
            share.gpu.counters.copied(direction, cause, bytes);
        });
    }

    /// Chunks of this VA space in root chunk `chunk` of GPU `index` are taken.
    pub(crate) fn note_evicted(&self, index: u32, chunk: u32) {
        self.with_share(index, |share| {
            let from = share.gpu.reclaimed_from.get(chunk as usize);
            let queue = from.and_then(|q| Queue::from_number(q.load(Relaxed).into()));
            share.counters.evicted(queue.unwrap_or(Queue::Address));
        });
    }

    /// What this VA space did on GPU `index`, a registered one; `None` if memory
    /// was short when it was registered.
    pub(crate) fn snapshot(&self, index: u32) -> Option<Snapshot> {
        Some(self.share(index)?.counters.snapshot())
    }

    /// This VA space's part of `processes` in debugfs.
    pub(crate) fn show(&self, out: &mut dyn Write) -> fmt::Result {
        let gpus = self.shares.lock().len();
        for index in 0..gpus as u32 {
            if let Some(share) = self.share(index) {
                // GPU numbers as upstream prints them: an id, the CPU's being 0.
                writeln!(out, "process {} gpu-{}", self.pid, index + 1)?;
                write!(out, "{}", share.counters.snapshot())?;
            }
        }
        Ok(())
    }
}
