// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What comes along with the faults of each VA space on each GPU, where that is picked (`policy/chooser.rs`).
//!
//! The fault loop asks before it services faults on a va_block, and the tree prefetcher heeds the pick for the length of that
//! call (`driver/tree.rs`).
//!
//! Locks: [`Choosing`] has a spinlock, a leaf, held for as long as it takes to count. It is taken with a va_block's lock held
//! or without.

use crate::ffi::seam;
#[cfg(not(uvm_native))]
use crate::policy::chooser::service_work;
use crate::policy::chooser::{Along, Chooser};
use crate::policy::stats::{Cause, Direction};
use kernel::prelude::*;
use kernel::sync::{new_spinlock, SpinLock};

/// What is known of one VA space on one GPU, if its picks are its own.
#[pin_data]
pub(crate) struct Choosing {
    #[pin]
    chooser: SpinLock<Option<Chooser>>,
}

/// The chooser for a GPU with so many root chunks; `None` where nothing is picked, or memory is short.
fn chooser(root_chunks: u32) -> Option<Chooser> {
    let new = || Chooser::new(root_chunks).ok();
    seam::chooses().then(new)?
}

impl Choosing {
    /// Knows nothing yet of a VA space on a GPU with so many root chunks.
    pub(crate) fn new(root_chunks: u32) -> impl PinInit<Self> {
        let chooser = chooser(root_chunks);
        pin_init!(Self { chooser <- new_spinlock!(chooser) })
    }

    /// Forgets all, for a new GPU with so many root chunks.
    pub(crate) fn begin_anew(&self, root_chunks: u32) {
        let mut chooser = chooser(root_chunks);
        core::mem::swap(&mut *self.chooser.lock(), &mut chooser);
        // The old one is freed here, outside the lock.
    }

    fn with<R>(&self, look: impl FnOnce(&mut Chooser) -> R) -> Option<R> {
        // Without the parameter nobody pays for the lock.
        if !seam::chooses() {
            return None;
        }
        self.chooser.lock().as_mut().map(look)
    }

    /// Faults on the block at `address` are about to be serviced. Returns what comes along; `None`: what upstream says.
    #[cfg(not(uvm_native))]
    pub(crate) fn faults(&self, address: u64) -> Option<Along> {
        self.with(|chooser| chooser.faults(address))
    }

    /// So many bytes of the block at `address` are being copied, for this cause. Only what comes to the GPU counts: evictions
    /// do not, as in uvmsim (docs/simulator-physical.md).
    pub(crate) fn copied(&self, direction: Direction, cause: Cause, address: u64, bytes: u64) {
        let comes = direction != Direction::GpuToHost;
        if comes && matches!(cause, Cause::Fault | Cause::Prefetch) {
            self.with(|chooser| chooser.copied(address, bytes.div_ceil(4096)));
        }
    }

    /// So many faults on the block at `address`, which is one of so many `blocks` of a batch, were serviced.
    #[cfg(not(uvm_native))]
    pub(crate) fn served(&self, address: u64, faulted: u32, blocks: u32) {
        self.with(|chooser| chooser.served(address, faulted, service_work(blocks)));
    }

    /// The block at `address` was evicted, or memory of it is freed.
    pub(crate) fn left(&self, address: u64) {
        self.with(|chooser| chooser.left(address));
    }

    /// What is picked; `None`: what upstream says.
    pub(crate) fn picked(&self) -> Option<Along> {
        self.with(|chooser| chooser.picked())
    }
}
