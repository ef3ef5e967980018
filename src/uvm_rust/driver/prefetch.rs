// SPDX-License-Identifier: GPL-2.0 OR MIT

//! DeepUM in the driver: what a process's kernels on one GPU are known to do, and the
//! worker that acts on it (`policy/prefetch.rs`; docs/prefetch.md).
//!
//! One [`Prefetcher`] for each GPU that a process announces kernels on. The ioctl and
//! the fault loop feed it through rings without a lock; the VA space's worker, one
//! thread at a time, learns from them and prefetches.
//!
//! What the worker does when is decided in `policy/prefetch/worker.rs`; its operations are
//! those of [`Turning`].
//!
//! Locks: `correlator` is a mutex that the worker holds while it learns or walks the
//! tables, and lets go before it asks for a block to be moved. Below the VA space's
//! lock ([`Prefetcher::forget`] runs with that in write mode, a turn with it in read mode),
//! above none. Counters are relaxed atomics.

use crate::ffi::bindings::{self as c, uvm_rust_prefetch_params};
use crate::ffi::prefetch::Turning;
use crate::policy::prefetch::worker::{Outcome, Params, Worker};
use crate::policy::prefetch::{Config, Correlator, ExecId, Feed, Shape, Share, UmBlock};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};

/// Announcements and faults that may wait for the worker.
const KERNELS_WAITING: u32 = 256;
const FAULTS_WAITING: u32 = 4096;

/// What the worker did. Counters never go back.
#[derive(Default)]
struct Counters {
    /// By what became of it ([`Outcome`]).
    blocks: [AtomicU64; 5],
    /// 4 KiB pages moved to the GPU.
    pages_in: AtomicU64,
    /// Blocks and pages pushed out ahead of need.
    blocks_out: AtomicU64,
    pages_out: AtomicU64,
}

/// A process's prefetching on one GPU.
#[pin_data]
pub(crate) struct Prefetcher {
    feed: Feed,
    #[pin]
    correlator: Mutex<Correlator>,
    /// What the process's tables for this GPU may take, those of its other VA spaces
    /// included.
    share: Arc<Share>,
    counters: Counters,
    worker: Worker,
}

impl Prefetcher {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(p: &uvm_rust_prefetch_params, share: Arc<Share>) -> Result<Pin<KBox<Self>>> {
        let config = Config {
            shape: Shape {
                rows: p.rows,
                assoc: p.assoc,
                succs: p.succs,
            },
            ahead: p.ahead,
            seed: p.seed,
            ..Config::default()
        };
        let feed = Feed::new(KERNELS_WAITING, FAULTS_WAITING).map_err(|_| ENOMEM)?;
        let correlator = Correlator::new(config).map_err(|_| ENOMEM)?;
        let worker = Worker::new(Params {
            act: p.act,
            watermark: p.watermark,
        });
        KBox::pin_init(
            pin_init!(Self {
                feed,
                correlator <- new_mutex!(correlator),
                share,
                counters: Counters::default(),
                worker,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The VA space ends: what its tables take is others' from now on, and its marks are void.
    pub(crate) fn leave(&self, turning: &mut Turning<'_>) {
        self.correlator.lock().leave(&self.share);
        self.worker.retire(turning);
    }

    /// A kernel is about to run; 0: one that is not known.
    pub(crate) fn announce(&self, exec_id: u64) {
        self.feed.announce(ExecId(exec_id));
    }

    /// A fault was serviced; whether the worker has something to do.
    pub(crate) fn fault(&self, address: u64) -> bool {
        UmBlock::from_address(address).is_some_and(|b| self.feed.fault(b))
    }

    /// Addresses `first` to `last` are memory no more.
    pub(crate) fn forget(&self, first: u64, last: u64) {
        if let (Some(first), Some(last)) =
            (UmBlock::from_address(first), UmBlock::from_address(last))
        {
            self.correlator.lock().forget(first, last);
        }
    }

    /// A turn of the worker: learns, prefetches, pushes out. Whether there is more.
    pub(crate) fn work(&self, turning: &mut Turning<'_>) -> bool {
        self.worker.turn(turning).is_more()
    }

    /// Shows the tables, and what they are fed with, to `look`.
    pub(crate) fn tables<R>(&self, look: impl FnOnce(&mut Correlator, &Feed, &Share) -> R) -> R {
        look(&mut self.correlator.lock(), &self.feed, &self.share)
    }

    /// Counts a block that was predicted, and the pages that were brought.
    pub(crate) fn brought(&self, outcome: Outcome, pages: u32) {
        if let Some(n) = self.counters.blocks.get(outcome as usize) {
            n.fetch_add(1, Relaxed);
        }
        self.counters.pages_in.fetch_add(pages.into(), Relaxed);
    }

    /// Counts a block that was pushed out, and its pages.
    pub(crate) fn pushed_out(&self, pages: u32) {
        self.counters.blocks_out.fetch_add(1, Relaxed);
        self.counters.pages_out.fetch_add(pages.into(), Relaxed);
    }

    /// Fills in `UVM_RUST_GET_PREFETCH_STATS`.
    pub(crate) fn fill(&self, out: &mut c::uvm_rust_prefetch_stats) {
        let s = self.correlator.lock().stats();
        let blocks = |outcome: Outcome| {
            let n = self.counters.blocks.get(outcome as usize);
            n.map_or(0, |n| n.load(Relaxed))
        };
        (out.dropped_kernels, out.dropped_faults) = self.feed.dropped();
        out.kernels = s.kernels;
        out.kernels_right = s.kernels_right;
        out.kernels_wrong = s.kernels_wrong;
        out.blocks = s.faults;
        out.blocks_unknown = s.faults_unknown;
        out.predicted = s.prefetches;
        out.prefetched = blocks(Outcome::Moved);
        out.resident = blocks(Outcome::Resident);
        out.held = blocks(Outcome::NoRoom);
        out.unfit = blocks(Outcome::Unfit);
        out.failed = blocks(Outcome::Failed);
        out.bytes_in = self.counters.pages_in.load(Relaxed) * kernel::page::PAGE_SIZE as u64;
        out.pushed_out = self.counters.blocks_out.load(Relaxed);
        out.bytes_out = self.counters.pages_out.load(Relaxed) * kernel::page::PAGE_SIZE as u64;
        out.table_bytes = s.table_bytes as u64;
        out.ids_dropped = s.dropped;
        out.ids = s.remembered;
        out.window = s.window;
    }

    /// This process's part of `processes` in debugfs.
    pub(crate) fn show(&self, out: &mut dyn Write) -> fmt::Result {
        let mut s = c::uvm_rust_prefetch_stats::default();
        self.fill(&mut s);
        writeln!(
            out,
            "prefetch kernels {} right {} wrong {} dropped {}",
            s.kernels, s.kernels_right, s.kernels_wrong, s.dropped_kernels
        )?;
        writeln!(
            out,
            "prefetch faulted blocks {} unknown {} dropped {}",
            s.blocks, s.blocks_unknown, s.dropped_faults
        )?;
        writeln!(
            out,
            "prefetch predicted {} moved {} resident {} held {} unfit {} failed {} bytes {}",
            s.predicted, s.prefetched, s.resident, s.held, s.unfit, s.failed, s.bytes_in
        )?;
        writeln!(
            out,
            "prefetch pushed out {} bytes {}",
            s.pushed_out, s.bytes_out
        )?;
        writeln!(
            out,
            "prefetch tables {} bytes, {} ids, {} dropped, window {}",
            s.table_bytes, s.ids, s.ids_dropped, s.window
        )
    }
}
