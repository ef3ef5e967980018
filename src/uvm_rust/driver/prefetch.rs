// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! DeepUM in the driver: the predictor of a process's kernels on one GPU, and the worker that acts on its
//! predictions (`policy/prefetch.rs`; docs/prefetch.md).
//!
//! One [`Process`] for each VA space, and in it one [`Prefetcher`] for each GPU that kernels are
//! announced on. The ioctl and the fault loop feed it through rings without a lock; the VA space's
//! worker, one thread at a time, learns from them and prefetches.
//!
//! What the worker does when is decided in `policy/prefetch/worker.rs`; its operations are
//! those of [`Turning`].
//!
//! With `uvm_rust_choose=1` the worker prefetches for a process only while its kernels come as predicted
//! (`policy/chooser.rs`).
//!
//! Locks, outermost first, all of them below the VA space's, which `forget` runs with in write mode, and
//! announcements and turns in read mode:
//!
//! - `announcing` is a mutex that serialises announcements, and with it changes of `gpus`.
//! - `gpus` is a spinlock, held while an entry is looked up, or a fault put into its ring.
//! - `correlator` is a mutex that the worker holds while it learns or walks the tables. The worker lets it
//!   go before it asks for a block to be moved.
//!
//! No two of these three are held together but `announcing` and one of the others. Below `announcing` is also the
//! `list_lock` of the GPU's PMM, a spinlock, under which the chunks hear of a kernel that begins. `wakes` and `ahead` are
//! spinlocks and leaves. Counters are relaxed atomics.

use super::tenant::{Held, Tenant};
use crate::ffi::bindings as c;
use crate::ffi::gpu::GpuHandle;
use crate::ffi::prefetch::Worker;
use crate::ffi::seam;
use crate::ffi::space::Home;
use crate::ffi::tenant::registry;
use crate::policy::chooser::Ahead;
use crate::policy::evict::RootChunks;
use crate::policy::prefetch::worker::{self, Outcome, Params};
use crate::policy::prefetch::{Config, Correlator, ExecId, Feed, Shape, Share, UmBlock};
use crate::policy::wakes::{self, Wakes};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};

mod turning;

use turning::Turning;

/// Announcements and faults that may wait for the worker.
const KERNELS_WAITING: u32 = 256;
const FAULTS_WAITING: u32 = 4096;

/// Shows the queues of a GPU, and their generation, to `look`, which must neither sleep nor allocate.
fn with_queues<R>(gpu: GpuHandle<'_>, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R> {
    let mut chunks = gpu.chunks();
    let generation = chunks.generation();
    let (queues, _) = chunks.queues();
    queues.map(|queues| look(queues, generation))
}

/// What the worker did. Counters never go back.
#[derive(Default)]
struct Counters {
    /// Blocks by their [`Outcome`].
    blocks: [AtomicU64; 5],
    /// 4 KiB pages moved to the GPU.
    pages_in: AtomicU64,
    /// Blocks and pages pushed out ahead of need.
    blocks_out: AtomicU64,
    pages_out: AtomicU64,
    /// Blocks whose copies were waited for, and those of them after which another block's copies had begun.
    waited: AtomicU64,
    beside: AtomicU64,
}

/// The predictors of the kernels of one VA space.
#[pin_data]
pub(crate) struct Process {
    home: Home,
    worker: Worker,
    /// What was asked of the worker, and whether the VA space ends: from then on the worker begins no move, and nobody
    /// wakes it (L-wake). The lock is a leaf.
    #[pin]
    wakes: SpinLock<Wakes>,
    /// Held during an announcement. The value is the tenant of the first announcer, who pays for all of this memory.
    #[pin]
    announcing: Mutex<Option<Held>>,
    /// The GPUs on which kernels were announced, even if they are no longer registered. An entry stays until the VA
    /// space is gone.
    #[pin]
    gpus: SpinLock<KVec<Arc<Prefetcher>>>,
}

impl Process {
    /// Makes the predictors of a VA space that has announced no kernel yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(home: Home) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                home,
                worker: Worker::new(),
                wakes <- new_spinlock!(Wakes::new()),
                announcing <- new_mutex!(None),
                gpus <- new_spinlock!(KVec::new()),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.wakes.lock().is_ending()
    }

    /// The predictor for a GPU; `None` before the first kernel was announced there.
    pub(crate) fn of(&self, gpu: u32) -> Option<Arc<Prefetcher>> {
        self.gpus.lock().iter().find(|p| p.gpu == gpu).cloned()
    }

    /// Calls `each` for all GPUs, with no lock held.
    fn for_each(&self, mut each: impl FnMut(&Prefetcher)) {
        let nth = |n: usize| self.gpus.lock().get(n).cloned();
        for n in 0.. {
            match nth(n) {
                Some(prefetcher) => each(&prefetcher),
                None => break,
            }
        }
    }

    /// Makes void what was announced on `gpu` by this VA space before the GPU was unregistered, or by one of the same
    /// address. A VA space that ends withdraws its marks from the GPUs that it has then, and from no others.
    pub(crate) fn begins_on(&self, gpu: GpuHandle<'_>) {
        let holder = self.home.space().holder();
        let _ = with_queues(gpu, |queues, _| queues.remove_owners_of(holder));
    }

    /// Announces a kernel that is about to run on a GPU, and wakes the worker. 0 stands for an unknown kernel.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn announce(&self, gpu: GpuHandle<'_>, parent: u32, exec_id: u64) -> Result {
        let mut announcing = self.announcing.lock();
        let tenant = match &mut *announcing {
            Some(tenant) => tenant,
            none => none.insert(Held::of_this_thread(registry().ok_or(ENOMEM)?)?),
        };
        self.worker.make(self, tenant.charged())?;
        let prefetcher = match self.of(gpu.index()) {
            Some(known) => known,
            None => self.add(tenant, gpu.index(), parent)?,
        };
        let holder = self.home.space().holder();
        let begins_turn = with_queues(gpu, |queues, generation| {
            prefetcher.worker.begins(queues, generation, holder);
            queues.announced(holder, exec_id != 0)
        });
        if begins_turn == Some(true) {
            // What was predicted and there in the last turn may be gone, and is predicted again.
            prefetcher.announce(0);
        }
        prefetcher.announce(exec_id);
        drop(announcing);
        self.wake();
        Ok(())
    }

    /// Makes the predictor for a GPU. The caller holds `announcing`.
    fn add(&self, tenant: &Tenant, gpu: u32, parent: u32) -> Result<Arc<Prefetcher>> {
        let share = tenant.share(gpu, (seam::prefetch_memory() as usize) << 20)?;
        let added = Prefetcher::new(gpu, parent, share, tenant.number())?;
        // This is a statement of its own: within the next one, the lock would be held during its allocation.
        let known = self.gpus.lock().len();
        let mut gpus = KVec::with_capacity(known + 1, GFP_KERNEL_ACCOUNT)?;
        {
            // There is room, so that nothing is allocated under the lock.
            let mut before = self.gpus.lock();
            for prefetcher in before.iter() {
                gpus.push(prefetcher.clone(), GFP_NOWAIT)?;
            }
            gpus.push(added.clone(), GFP_NOWAIT)?;
            core::mem::swap(&mut *before, &mut gpus);
        }
        // The old array is freed here, outside the lock.
        Ok(added)
    }

    /// Notes a fault that was serviced.
    pub(crate) fn fault(&self, gpu: u32, address: u64) {
        if !self.worker.is_made() {
            return;
        }
        let fault = |gpus: &[Arc<Prefetcher>]| {
            let prefetcher = gpus.iter().find(|p| p.gpu == gpu);
            prefetcher.is_some_and(|p| p.fault(address))
        };
        if fault(&self.gpus.lock()) {
            self.wake();
        }
    }

    /// Notes that the addresses `first` to `last` were freed.
    pub(crate) fn forget(&self, first: u64, last: u64) {
        if !self.is_ending() {
            self.for_each(|prefetcher| prefetcher.forget(first, last));
        }
    }

    /// Tells the worker that a read of the SSD has ended, which it may wait for. The caller may hold a va_block's lock.
    pub(crate) fn read_ended(&self) {
        if self.worker.is_made() {
            let gpus = self.gpus.lock();
            gpus.iter().for_each(|p| p.feed.read_ended());
            drop(gpus);
            self.wake();
        }
    }

    /// Runs the worker: one turn for each GPU. Each call ends after that, so that no process keeps a thread for itself.
    pub(crate) fn work(&self) {
        wakes::turn(self, || {
            let mut more = false;
            self.for_each(|prefetcher| {
                prefetcher.picks();
                let mut turning = Turning::new(self, prefetcher);
                more |= prefetcher.worker.turn(&mut turning).is_more();
            });
            more
        });
    }

    /// Has the worker run, unless the VA space ends.
    fn wake(&self) {
        wakes::wake(self);
    }

    /// Ends the VA space's prefetching, once: stops the worker, then withdraws the marks on each GPU. Faults may still
    /// come, and are noted.
    pub(crate) fn end(&self) {
        wakes::end(self);
        self.for_each(|prefetcher| {
            Turning::new(self, prefetcher).ending(|turning| prefetcher.leave(turning));
        });
    }

    /// Writes the process's part of `processes` in debugfs.
    pub(crate) fn show(&self, out: &mut dyn Write) -> fmt::Result {
        let mut result = Ok(());
        if self.worker.is_made() {
            let is_idle = self.wakes.lock().is_idle();
            let state = if is_idle { "idle" } else { "at work" };
            result = writeln!(out, "prefetch worker {state}");
        }
        self.for_each(|prefetcher| {
            if result.is_ok() {
                result = prefetcher.show(out);
            }
        });
        result
    }
}

impl wakes::Worker for Process {
    fn with<R>(&self, look: impl FnOnce(&mut Wakes) -> R) -> R {
        look(&mut self.wakes.lock())
    }

    fn queue(&self) {
        self.worker.wake();
    }

    fn stop(&self) {
        self.worker.stop();
    }
}

/// A process's prefetching on one GPU.
#[pin_data]
pub(crate) struct Prefetcher {
    gpu: u32,
    /// The number of the parent GPU, whose fault service has priority over the worker.
    parent: u32,
    feed: Feed,
    #[pin]
    correlator: Mutex<Correlator>,
    /// What the process's tables for this GPU may take, those of its other VA spaces
    /// included.
    share: Arc<Share>,
    counters: Counters,
    worker: worker::Worker,
    /// Whether what is predicted is brought, where that is picked.
    #[pin]
    ahead: SpinLock<Ahead>,
}

impl Prefetcher {
    /// Makes the predictor for one GPU, which knows no kernel yet, of a process of the tenant with this number.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new(gpu: u32, parent: u32, share: Arc<Share>, tenant: u64) -> Result<Arc<Self>> {
        // `Prefetch` clamps parameters that are out of range.
        let config = Config {
            shape: Shape {
                rows: seam::prefetch_rows(),
                assoc: seam::prefetch_assoc(),
                succs: seam::prefetch_succs(),
            },
            ahead: seam::prefetch_ahead(),
            seed: seam::random(),
            ..Config::default()
        };
        let feed = Feed::new(KERNELS_WAITING, FAULTS_WAITING).map_err(|_| ENOMEM)?;
        let correlator = Correlator::new(config).map_err(|_| ENOMEM)?;
        let worker = worker::Worker::new(Params {
            act: seam::prefetch(),
            watermark: seam::preevict(),
            tenant,
        });
        Arc::pin_init(
            pin_init!(Self {
                gpu,
                parent,
                feed,
                correlator <- new_mutex!(correlator),
                share,
                counters: Counters::default(),
                worker,
                ahead <- new_spinlock!(Ahead::default()),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The number of the GPU.
    pub(crate) fn gpu(&self) -> u32 {
        self.gpu
    }

    /// The number of its parent GPU.
    pub(crate) fn parent(&self) -> u32 {
        self.parent
    }

    /// The number of the tenant whose process it is.
    pub(crate) fn tenant(&self) -> u64 {
        self.worker.tenant()
    }

    /// Ends the VA space's part: gives the bytes of its tables back to the share, and withdraws its marks.
    fn leave(&self, turning: &mut Turning<'_>) {
        self.correlator.lock().leave(&self.share);
        self.worker.retire(turning);
    }

    /// Picks whether the worker brings what is predicted, by what it has learnt so far.
    fn picks(&self) {
        if seam::chooses() {
            let stats = self.correlator.lock().stats();
            let is_on = self.ahead.lock().looks(&stats);
            self.worker.set_acts(is_on);
        }
    }

    /// Announces a kernel that is about to run; 0 stands for an unknown kernel.
    pub(crate) fn announce(&self, exec_id: u64) {
        self.feed.announce(ExecId(exec_id));
    }

    /// Notes a fault that was serviced. Returns whether the worker should run.
    pub(crate) fn fault(&self, address: u64) -> bool {
        UmBlock::from_address(address).is_some_and(|b| self.feed.fault(b))
    }

    /// Notes that the addresses `first` to `last` were freed.
    pub(crate) fn forget(&self, first: u64, last: u64) {
        if let (Some(first), Some(last)) =
            (UmBlock::from_address(first), UmBlock::from_address(last))
        {
            self.correlator.lock().forget(first, last);
        }
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

    /// Counts a block whose copies were waited for, after those of so many further blocks had begun.
    pub(crate) fn waited(&self, beside: u32) {
        self.counters.waited.fetch_add(1, Relaxed);
        let beside = u64::from(beside > 0);
        self.counters.beside.fetch_add(beside, Relaxed);
    }

    /// Fills in what `UVM_RUST_GET_PREFETCH_STATS` gives of one GPU.
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

    /// Writes the process's part of `processes` in debugfs.
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
        if seam::chooses() && seam::prefetch() {
            let is_on = self.ahead.lock().picked();
            writeln!(out, "prefetch picked {}", if is_on { "on" } else { "off" })?;
        }
        writeln!(
            out,
            "prefetch waited for copies of {} blocks, of {} beside another's",
            self.counters.waited.load(Relaxed),
            self.counters.beside.load(Relaxed)
        )?;
        writeln!(
            out,
            "prefetch tables {} bytes, {} ids, {} dropped, window {}",
            s.table_bytes, s.ids, s.ids_dropped, s.window
        )
    }
}
