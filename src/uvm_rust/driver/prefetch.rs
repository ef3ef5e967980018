// SPDX-License-Identifier: GPL-2.0 OR MIT

//! DeepUM in the driver: what a process's kernels on one GPU are known to do, and the
//! worker that acts on it (`policy/prefetch.rs`; docs/prefetch.md).
//!
//! One [`Prefetcher`] for each GPU that a process announces kernels on. The ioctl and
//! the fault loop feed it through rings without a lock; the VA space's worker, one
//! thread at a time, learns from them and prefetches.
//!
//! Locks: `correlator` is a mutex that the worker holds while it learns or walks the
//! tables, and lets go before it asks for a block to be moved. Below the VA space's
//! lock ([`Prefetcher::forget`] runs with that in write mode), above none. Counters are
//! relaxed atomics.

use crate::ffi::bindings::{self as c, uvm_rust_prefetch_params};
use crate::ffi::prefetch::Call;
use crate::policy::prefetch::{Config, Correlator, ExecId, Feed, Next, Shape, Share, UmBlock};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};

/// Announcements and faults that may wait for the worker.
const KERNELS_WAITING: u32 = 256;
const FAULTS_WAITING: u32 = 4096;
/// How much one turn of the worker learns and moves, at most; then others' turns come.
const EVENTS_A_TURN: u32 = 1024;
const BLOCKS_A_TURN: u32 = 32;
/// Steps of a walk through the tables while their lock is held.
const STEPS: u32 = 256;

/// What the worker did. Counters never go back.
#[derive(Default)]
struct Counters {
    /// By what became of it: `UVM_RUST_PREFETCHED` and so on.
    blocks: [AtomicU64; 6],
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
    /// Prefetch, or only learn.
    act: bool,
    push_out: bool,
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
        let (act, push_out) = (p.act, p.push_out);
        KBox::pin_init(
            pin_init!(Self {
                feed,
                correlator <- new_mutex!(correlator),
                share,
                counters: Counters::default(),
                act,
                push_out,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The VA space ends: what its tables take is others' from now on.
    pub(crate) fn leave(&self) {
        self.correlator.lock().leave(&self.share);
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
    pub(crate) fn work(&self, call: &mut Call<'_>) -> bool {
        let mut said = None;
        for _ in 0..BLOCKS_A_TURN {
            let (next, now, foresees) = {
                let mut correlator = self.correlator.lock();
                // What happened goes before what may.
                let all = correlator.absorb(&self.feed, EVENTS_A_TURN);
                correlator.settle(&self.share);
                let next = match (all, self.act) {
                    (false, _) => Next::More,
                    (true, false) => return false,
                    (true, true) => correlator.next(STEPS),
                };
                (next, correlator.now(), correlator.foresees())
            };
            if said.replace(now) != Some(now) {
                call.set_now(now);
            }
            let prefetch = match next {
                Next::Prefetch(p) => p,
                Next::More => continue,
                Next::Idle => return self.push_out && foresees && self.make_room(call),
            };
            let until = now.wrapping_add(prefetch.ahead);
            let (outcome, pages) = call.prefetch(prefetch.block.address(), until);
            if let Some(n) = self.counters.blocks.get(outcome as usize) {
                n.fetch_add(1, Relaxed);
            }
            self.counters.pages_in.fetch_add(pages.into(), Relaxed);
            match outcome {
                c::UVM_RUST_PREFETCH_NO_ROOM => self.correlator.lock().hold(prefetch),
                c::UVM_RUST_PREFETCH_STOP => return false,
                _ => {}
            }
        }
        true
    }

    /// Pushes a chunk out if memory is short; whether another may follow.
    fn make_room(&self, call: &mut Call<'_>) -> bool {
        let (outcome, pages) = call.push_out();
        if outcome != c::UVM_RUST_PREFETCHED {
            return false;
        }
        self.counters.blocks_out.fetch_add(1, Relaxed);
        self.counters.pages_out.fetch_add(pages.into(), Relaxed);
        true
    }

    /// Fills in `UVM_RUST_GET_PREFETCH_STATS`.
    pub(crate) fn fill(&self, out: &mut c::uvm_rust_prefetch_stats) {
        let s = self.correlator.lock().stats();
        let blocks = |i: u32| {
            let n = self.counters.blocks.get(i as usize);
            n.map_or(0, |n| n.load(Relaxed))
        };
        (out.dropped_kernels, out.dropped_faults) = self.feed.dropped();
        out.kernels = s.kernels;
        out.kernels_right = s.kernels_right;
        out.kernels_wrong = s.kernels_wrong;
        out.blocks = s.faults;
        out.blocks_unknown = s.faults_unknown;
        out.predicted = s.prefetches;
        out.prefetched = blocks(c::UVM_RUST_PREFETCHED);
        out.resident = blocks(c::UVM_RUST_PREFETCH_RESIDENT);
        out.held = blocks(c::UVM_RUST_PREFETCH_NO_ROOM);
        out.unfit = blocks(c::UVM_RUST_PREFETCH_UNFIT);
        out.failed = blocks(c::UVM_RUST_PREFETCH_FAILED);
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
