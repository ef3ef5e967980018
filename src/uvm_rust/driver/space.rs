// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The driver's object of a VA space. C keeps a pointer to it in its own (`ffi/space.rs`).

use super::stats::{Gpu, Space as Stats};
#[cfg(not(uvm_native))]
use super::{link::Link, prefetch::Process, quota, tenant::Held};
use crate::ffi::seam;
use crate::ffi::space::Home;
#[cfg(not(uvm_native))]
use crate::ffi::{flash::Moves, gpu::GpuHandle};
use crate::policy::stats::evicting::Eviction;
use crate::policy::stats::fdinfo::client_id;
use crate::policy::stats::Cause;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::Arc;

/// The driver's object of a VA space.
pub(crate) struct State {
    /// No other VA space of the last 2^32 has had this number.
    client: u32,
    /// The process that made the VA space.
    pid: u32,
    /// The number by which root chunks know the VA space.
    #[cfg(not(uvm_native))]
    holder: u64,
    /// The predictors of the VA space's kernels; `None` if announcements are off.
    #[cfg(not(uvm_native))]
    process: Option<Pin<KBox<Process>>>,
    /// The queue of the VA space's requests to move memory; `None` without an SSD tier.
    #[cfg(not(uvm_native))]
    moves: Option<Pin<KBox<Moves>>>,
    /// The tenant of the SSD tier that owns the VA space; `None` without the tier.
    #[cfg(not(uvm_native))]
    tenant: Option<Held>,
    /// What the VA space has on its way by `UVM_MIGRATE`; `None` if that is not limited.
    #[cfg(not(uvm_native))]
    link: Option<Pin<KBox<Link>>>,
    /// The VA space's statistics; `None` if they are off.
    stats: Option<Stats>,
}

/// A number for a VA space, which tells nobody how many others there were.
fn new_client() -> u32 {
    static MADE: AtomicU32 = AtomicU32::new(0);
    static KEY: AtomicU64 = AtomicU64::new(0);
    if KEY.load(Relaxed) == 0 {
        // Of several threads that come first, one's number stays; it is no 0.
        let _ = KEY.compare_exchange(0, seam::random() | 1, Relaxed, Relaxed);
    }
    client_id(MADE.fetch_add(1, Relaxed), KEY.load(Relaxed))
}

impl State {
    /// Makes the object for a VA space of the process `pid`, with room for so many GPUs.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is no memory for any of its parts.
    #[cfg_attr(uvm_native, allow(unused_variables))]
    pub(crate) fn new(home: Home, pid: u32, gpus: u32) -> Result<Self> {
        #[cfg(not(uvm_native))]
        let tenant = Held::of_flash()?;
        let client = new_client();
        Ok(Self {
            client,
            pid,
            #[cfg(not(uvm_native))]
            holder: home.space().holder(),
            #[cfg(not(uvm_native))]
            process: seam::announce_enabled()
                .then(|| Process::new(home))
                .transpose()?,
            #[cfg(not(uvm_native))]
            moves: tenant
                .as_ref()
                .map_or(Ok(None), |held| Moves::of(home, held))?,
            #[cfg(not(uvm_native))]
            tenant,
            #[cfg(not(uvm_native))]
            link: Link::of_parameters(client)?,
            stats: seam::stats_enabled()
                .then(|| Stats::new(pid, client, gpus))
                .transpose()?,
        })
    }

    /// The number that no other VA space of the last 2^32 has had.
    pub(crate) fn client(&self) -> u32 {
        self.client
    }

    /// The process that made the VA space, by its number in the first PID namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The predictors of the VA space's kernels; `None` if announcements are off.
    #[cfg(not(uvm_native))]
    pub(crate) fn process(&self) -> Option<&Process> {
        self.process.as_deref()
    }

    /// The tenant of the SSD tier that owns the VA space; `None` without the tier.
    #[cfg(not(uvm_native))]
    pub(crate) fn tenant(&self) -> Option<&Held> {
        self.tenant.as_ref()
    }

    /// What the VA space has on its way by `UVM_MIGRATE`; `None` if that is not limited.
    #[cfg(not(uvm_native))]
    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.as_deref()
    }

    /// The queue of the VA space's requests to move memory; `None` without an SSD tier.
    #[cfg(not(uvm_native))]
    pub(crate) fn moves(&self) -> Option<&Moves> {
        self.moves.as_deref()
    }

    /// The VA space's statistics; `None` if they are off.
    #[inline(always)]
    pub(crate) fn stats(&self) -> Option<&Stats> {
        self.stats.as_ref()
    }

    /// Ends the VA space; called once. Its workers do not run after this call, but faults may still come.
    #[cfg(not(uvm_native))]
    pub(crate) fn end(&self) {
        if let Some(process) = self.process() {
            process.end();
        }
        if let Some(moves) = self.moves() {
            moves.end();
        }
    }

    /// Notes that the addresses `first` to `last` were freed.
    #[cfg(not(uvm_native))]
    pub(crate) fn forget(&self, first: u64, last: u64) {
        if let Some(process) = self.process() {
            process.forget(first, last);
        }
    }

    /// Notes that this GPU, which has this number, was registered. One thread at a time calls this.
    pub(crate) fn add_gpu(&self, index: u32, gpu: &Arc<Gpu>) {
        static SAID: AtomicBool = AtomicBool::new(false);
        let stats = self.stats();
        let failed = stats.is_some_and(|stats| stats.add_gpu(index, gpu).is_err());
        // Once, of some process.
        if failed && !SAID.swap(true, Relaxed) {
            pr_warn!("no memory for a process's statistics; they are not kept\n");
        }
    }

    /// Forgets what a VA space that is gone has announced on a GPU, and what was protected of it, if it had this one's
    /// address; and has the GPU heed what is protected of this one. The GPU was just registered here.
    #[cfg(not(uvm_native))]
    pub(crate) fn begins_on(&self, gpu: GpuHandle<'_>) {
        if let Some(share) = self.stats().and_then(|stats| stats.share(gpu.index())) {
            quota::heed(gpu, share.quota(), self.holder);
        }
        if let Some(process) = self.process() {
            process.begins_on(gpu);
        }
    }

    /// Counts `bytes` for `address` that are copied to one memory from another; `None` is the host.
    pub(crate) fn note_copy(
        &self,
        of: (Option<u32>, Option<u32>),
        cause: Cause,
        address: u64,
        bytes: u64,
    ) {
        #[cfg(not(uvm_native))]
        if let Some(link) = self.link() {
            link.copies(of, cause);
        }
        if let Some(stats) = self.stats() {
            stats.note_copy(of, cause, address, bytes);
        }
    }

    /// Counts that the va_block at `address` is to lose its chunks in a root chunk of a GPU, both by their numbers. Returns
    /// the eviction, for [`Self::evicted`].
    pub(crate) fn note_evicted(&self, of: (u32, u32), address: u64) -> Eviction {
        let stats = self.stats();
        stats.map_or(Eviction(0), |stats| stats.note_evicted(of, address))
    }

    /// Tells who listens that the va_block at `address` has lost its chunks in a root chunk of a GPU, both by their
    /// numbers, by this `eviction`.
    pub(crate) fn evicted(&self, of: (u32, u32), address: u64, eviction: Eviction, status: u32) {
        if let Some(stats) = self.stats() {
            stats.evicted(of, address, eviction, status);
        }
    }

    /// Notes that the va_block at `address` is freed.
    #[cfg(not(uvm_native))]
    pub(crate) fn freed_block(&self, address: u64) {
        if let Some(stats) = self.stats() {
            stats.freed(address);
        }
    }

    /// Writes the VA space's part of `processes` in debugfs.
    pub(crate) fn show(&self, out: &mut dyn Write) -> fmt::Result {
        if let Some(stats) = self.stats() {
            stats.show(out)?;
        }
        #[cfg(not(uvm_native))]
        if let Some(process) = self.process() {
            process.show(out)?;
        }
        Ok(())
    }
}
