// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Prefetching: what the worker asks of C.

use super::seam;
use super::tenant::Charged;
use super::work::{Charging, Kind, Work, WorkQueue};
use super::{bindings, discard, flash, gpu, space};
use crate::driver::fault;
use crate::driver::discard::status;
use crate::driver::prefetch::{Prefetcher, Process};
use crate::policy::evict::{Queue, RootChunks};
use crate::policy::mask::PageMask;
use crate::policy::prefetch::worker::{
    self, Found, Hindrances, Machine, Migrated, Outcome, Pages, To,
};
use crate::policy::prefetch::{Correlator, Feed, Share};
use core::ffi::c_void;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

/// The VA space that a [`Process`] belongs to, which it does not outlive.
pub(crate) struct Home(NonNull<bindings::uvm_seam_space>);

// SAFETY: an address; what is done with it says which locks it needs.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    /// As the chunks know it.
    fn holder(&self) -> u64 {
        self.0.as_ptr() as usize as u64
    }
}

/// Those of all VA spaces; an item of it runs on one CPU at a time.
pub(super) static WORKERS: WorkQueue = WorkQueue::none();

/// The worker of a VA space, from the first announcement on.
pub(crate) struct Worker(AtomicPtr<Made>);

/// What upstream works with to move va_blocks. Invariant: it came from `uvm_seam_prefetch_create`, and is freed when
/// this is dropped.
pub(super) struct Migration(NonNull<bindings::uvm_seam_prefetch>);

impl Migration {
    /// Makes one; `None` without memory.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: no preconditions.
        NonNull::new(unsafe { bindings::uvm_seam_prefetch_create() }).map(Self)
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::uvm_seam_prefetch {
        self.0.as_ptr()
    }
}

impl Drop for Migration {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant, and nobody uses it any more.
        unsafe { bindings::uvm_seam_prefetch_free(self.as_ptr()) };
    }
}

/// What the worker works with.
struct Made {
    /// The first to be dropped, so that the worker has stopped before what it uses goes.
    work: Option<Work>,
    call: Migration,
    /// What the worker, a kernel thread, allocates is charged to this, which outlives it.
    group: *mut bindings::mem_cgroup,
}

/// A turn of the worker: learns, and prefetches.
///
/// # Safety
///
/// `of` is what [`Worker::make`] made the work of, which this is.
unsafe extern "C" fn work(of: *mut c_void) {
    // SAFETY: `make` gave it, and a process stops its worker before it goes.
    let process = unsafe { &*of.cast::<Process>() };
    let Some(made) = process.worker().get() else {
        return;
    };
    // SAFETY: the group outlives the worker.
    let _charging = unsafe { Charging::to(made.group) };
    process.work(|prefetcher| {
        // SAFETY: a work item runs on one CPU at a time, and not after `end` stopped it.
        let turning = unsafe { Turning::new(process, prefetcher) };
        turning.is_some_and(|mut turning| prefetcher.work(&mut turning))
    });
}

impl Worker {
    /// Makes a worker that does not work before it is made.
    pub(crate) const fn new() -> Self {
        // Invariant: null, or a boxed `Made`, which is freed by `drop`.
        Self(AtomicPtr::new(null_mut()))
    }

    fn get(&self) -> Option<&Made> {
        // SAFETY: by the type's invariant; only shared references are made to it.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Whether there is one.
    pub(crate) fn is_made(&self) -> bool {
        self.get().is_some()
    }

    /// Makes that of `process`, which this is a part of, if there is none, charged to `charged`, which outlives
    /// it. One thread at a time.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make(&self, process: &Process, charged: &Charged) -> Result {
        if self.is_made() {
            return Ok(());
        }
        let mut made = Made {
            work: None,
            call: Migration::new().ok_or(ENOMEM)?,
            group: charged.group(),
        };
        let process = core::ptr::from_ref(process).cast_mut().cast();
        // SAFETY: a process stays where it is, and ends its worker before it goes (I-own).
        made.work = Some(unsafe { Work::new(Kind::Prefetch, work, process) }?);
        let made = KBox::new(made, GFP_KERNEL_ACCOUNT)?;
        self.0.store(made.into_foreign().cast_mut().cast(), Release);
        Ok(())
    }

    /// Has `Process::work` called, once more if it runs.
    pub(crate) fn wake(&self) {
        if let Some(work) = self.get().and_then(|made| made.work.as_ref()) {
            work.queue(&WORKERS);
        }
    }

    /// Waits until it does not run, and takes back that it was woken. Sleeps. Whoever calls this sees to
    /// it that nobody wakes it any more.
    pub(crate) fn stop(&self) {
        if let Some(work) = self.get().and_then(|made| made.work.as_ref()) {
            work.stop();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let made = self.0.swap(null_mut(), AcqRel);
        if !made.is_null() {
            // SAFETY: by the type's invariant, and nobody has it any more: a process ends before it is
            // dropped (I-own), and with it the work item, if there was one.
            drop(unsafe { <KBox<Made> as ForeignOwnable>::from_foreign(made.cast()) });
        }
    }
}

/// A number that nobody can foresee.
pub(crate) fn random() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bindings::get_random_u64() }
}

/// The module parameters of prefetching. What is out of range is clamped by who takes it.
pub(crate) struct Parameters {
    /// Prefetch; otherwise the worker only learns.
    pub(crate) act: bool,
    /// Chunks that are kept ready; 0: no pre-eviction.
    pub(crate) watermark: u32,
    /// Kernels to look ahead.
    pub(crate) ahead: u32,
    /// Of a kernel's block table.
    pub(crate) rows: u32,
    /// Blocks in a row.
    pub(crate) assoc: u32,
    /// Successors of a block.
    pub(crate) succs: u32,
    /// Bytes that a tenant's tables for a GPU may take.
    pub(crate) memory: usize,
}

impl Parameters {
    /// Reads the module's parameters as they were at load.
    pub(crate) fn read() -> Self {
        // SAFETY: nobody writes them once the module is loaded.
        unsafe {
            Self {
                act: bindings::uvm_rust_prefetch,
                watermark: bindings::uvm_rust_preevict,
                ahead: bindings::uvm_rust_prefetch_ahead,
                rows: bindings::uvm_rust_prefetch_rows,
                assoc: bindings::uvm_rust_prefetch_assoc,
                succs: bindings::uvm_rust_prefetch_succs,
                memory: (bindings::uvm_rust_prefetch_memory as usize) << 20,
            }
        }
    }
}

/// Which locks of a VA space are held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// Between `enter` and `leave`. So the GPU is there, and no va_block of the VA space goes.
    Entered,
    /// The VA space's lock alone, in the end of it. The GPU is there.
    Ending,
}

/// A va_block, and what stands against moving it.
type Chosen = (NonNull<bindings::uvm_va_block_struct>, Hindrances);

/// A VA space and a GPU, for the length of one turn of the worker, or at the end of the VA space.
///
/// What C needs for a call is checked here: that the locks are held, a va_block was chosen since, and
/// that it is locked.
pub(crate) struct Turning<'a> {
    /// Invariant: valid for `'a`, and used by nobody else.
    call: *mut bindings::uvm_seam_prefetch,
    process: &'a Process,
    prefetcher: &'a Prefetcher,
    /// Invariant: what was last asked of C says so.
    held: Held,
    /// Invariant: valid while something is held; else null.
    gpu: *mut bindings::uvm_gpu_struct,
    /// Invariant: a va_block that was chosen since `enter`.
    chosen: Option<NonNull<bindings::uvm_va_block_struct>>,
    /// What the chunk that was picked holds, and where that begins: to be looked for before it is used.
    noted: Option<(NonNull<bindings::uvm_va_block_struct>, u64)>,
    /// Invariant: that va_block is locked, if this is where it is moved to.
    locked: Option<To>,
    /// Where C keeps what of it is discarded. Invariant: the va_block's, valid while it is locked.
    discarded: *mut *mut bindings::uvm_rust_block,
    /// Invariant: null, or the VA space's, held since it was locked.
    mm: *mut bindings::mm_struct,
}

impl<'a> Turning<'a> {
    /// For a turn of `process` on the GPU of `prefetcher`; `None` if it has no worker.
    ///
    /// # Safety
    ///
    /// Nobody else has one of `process` for `'a`.
    unsafe fn new(process: &'a Process, prefetcher: &'a Prefetcher) -> Option<Self> {
        Some(Self {
            call: process.worker().get()?.call.as_ptr(),
            process,
            prefetcher,
            held: Held::Nothing,
            gpu: null_mut(),
            chosen: None,
            noted: None,
            locked: None,
            discarded: null_mut(),
            mm: null_mut(),
        })
    }

    fn entered(&self) -> bool {
        self.held == Held::Entered
    }

    /// The VA space that this turn works in.
    fn space(&self) -> *mut bindings::uvm_seam_space {
        self.process.home().0.as_ptr()
    }

    /// The va_block that is locked.
    fn block(&self) -> Option<*mut bindings::uvm_va_block_struct> {
        self.chosen
            .filter(|_| self.locked.is_some())
            .map(NonNull::as_ptr)
    }

    /// Takes the VA space's lock, if it has the GPU; whether it has.
    fn visit(&mut self, held: Held) -> bool {
        let (space, number) = (self.space(), self.prefetcher.gpu());
        // SAFETY: the VA space outlives its process, and no lock of it is held; from then on, the lock
        // keeps its GPUs.
        unsafe {
            bindings::uvm_seam_space_lock(space, false);
            self.gpu = bindings::uvm_seam_prefetch_gpu(space, number, held == Held::Ending);
            if self.gpu.is_null() {
                bindings::uvm_seam_space_unlock(space, null_mut());
                return false;
            }
        }
        self.held = held;
        true
    }

    /// Lets it go, and with it what was found.
    fn depart(&mut self) {
        self.unlock();
        (self.held, self.gpu) = (Held::Nothing, null_mut());
        (self.chosen, self.noted) = (None, None);
        // SAFETY: `visit` took it, and no va_block's is held.
        unsafe { bindings::uvm_seam_space_unlock(self.space(), null_mut()) };
    }

    /// Calls `then` at the end of the VA space, with the GPU if it is still registered there.
    fn ending(&mut self, then: impl FnOnce(&mut Self)) {
        let there = self.visit(Held::Ending);
        then(self);
        if there {
            self.depart();
        }
    }

    /// The va_block at the first memory from `from` to `last`, if there is memory, and where that ends.
    fn find(&self, from: u64, last: u64) -> Option<(Option<Chosen>, u64)> {
        if !self.entered() {
            return None;
        }
        let (space, mut at) = (self.space(), bindings::uvm_rust_range::default());
        // SAFETY: the VA space's lock is held, and the GPU there; what is filled in is ours for the calls. The
        // address is in the range, if that is managed memory.
        unsafe {
            let range = bindings::uvm_seam_range(space, from, last, &mut at);
            if range.is_null() {
                return None;
            }
            let mut block = None;
            if at.managed {
                block = NonNull::new(bindings::uvm_seam_range_block(range, from.max(at.first)));
            }
            let chosen = block.map(|block| {
                let span = span(block);
                let hindrances = Hindrances {
                    no_block: false,
                    preferred_elsewhere: at.preferred != bindings::UVM_RUST_MEMORY_NONE
                        && space::gpu_of(at.preferred) != Some(self.prefetcher.gpu()),
                    read_duplicated: at.read_duplicated,
                    lite: bindings::uvm_seam_prefetch_is_lite(range, self.gpu),
                    group_stays: !bindings::uvm_range_group_all_migratable(
                        space.cast(),
                        span.first,
                        span.last,
                    ),
                };
                (block, hindrances)
            });
            Some((chosen, at.last.wrapping_add(1)))
        }
    }

    /// As [`Machine::chunks`], with the PMM's `list_lock` held throughout, and also where there are no
    /// queues.
    fn with_lock<R>(
        &mut self,
        look: impl FnOnce(&mut Self, Option<&mut RootChunks>) -> R,
    ) -> Option<R> {
        if self.held == Held::Nothing {
            return None;
        }
        let gpu = self.gpu;
        // SAFETY: the GPU is there.
        unsafe { bindings::uvm_seam_lock_chunks(gpu) };
        // SAFETY: the `list_lock` is held until the unlock below. `look` cannot keep the
        // reference, nor get another: it is handed `self`, whose `gpu` and `noted` it uses only.
        let roots = unsafe { gpu::queues(self.prefetcher.gpu()) };
        let result = look(self, roots);
        // SAFETY: the GPU is there, and the lock was taken above.
        unsafe { bindings::uvm_seam_unlock_chunks(gpu) };
        Some(result)
    }
}

/// A va_block's addresses.
///
/// # Safety
///
/// The lock of its VA space is held.
unsafe fn span(block: NonNull<bindings::uvm_va_block_struct>) -> bindings::uvm_rust_span {
    let mut span = bindings::uvm_rust_span::default();
    // SAFETY: by this function's contract; `span` is ours for the call.
    unsafe { bindings::uvm_seam_block_span(block.as_ptr(), &mut span) };
    span
}

// Numbers that both sides count with.
const _: () = assert!(worker::IN_FLIGHT == bindings::UVM_RUST_PREFETCH_COPIES);

fn is_number(chunk: u32) -> Option<u32> {
    (chunk != bindings::UVM_RUST_NO_CHUNK).then_some(chunk)
}

// In all blocks below `self.call` is valid by the type's invariant; what else a call needs is in
// each comment.
impl Machine for Turning<'_> {
    const CHECKS: bool = cfg!(uvm_checks);

    fn broken(&mut self, invariant: &'static str) {
        pr_err!("prefetching: {invariant}\n");
    }

    fn tables<R>(&mut self, look: impl FnOnce(&mut Correlator, &Feed, &Share) -> R) -> R {
        self.prefetcher.tables(look)
    }

    fn is_stopping(&mut self) -> bool {
        self.process.is_ending()
    }

    fn faults(&mut self) -> bool {
        fault::is_busy(self.prefetcher.parent())
    }

    fn wait_faults(&mut self) -> bool {
        // Locks that were held would cost time, not safety.
        fault::wait_idle(self.prefetcher.parent(), worker::FAULTS_WITHIN)
    }

    fn enter(&mut self) -> bool {
        if self.held != Held::Nothing || self.is_stopping() {
            return self.entered();
        }
        // SAFETY: only tried for: this thread neither delays a suspend nor waits behind one.
        if !unsafe { bindings::uvm_seam_pm_trylock() } {
            return false;
        }
        if !seam::healthy() || !self.visit(Held::Entered) {
            // SAFETY: taken above.
            unsafe { bindings::uvm_seam_pm_unlock() };
        }
        self.entered()
    }

    fn leave(&mut self) {
        if self.entered() {
            self.depart();
            // SAFETY: `enter` took it, and nothing below it is held.
            unsafe { bindings::uvm_seam_pm_unlock() };
        }
    }

    fn holder(&self) -> u64 {
        self.process.home().holder()
    }

    fn chunks<R>(&mut self, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R> {
        let number = self.prefetcher.gpu();
        self.with_lock(|_, roots| roots.map(|roots| look(roots, gpu::generation(number))))
            .flatten()
    }

    fn free_chunks(&mut self, enough: u32) -> u32 {
        if !self.entered() {
            return 0;
        }
        // SAFETY: the GPU is there.
        let pma = unsafe { bindings::uvm_seam_pma_free(self.gpu) };
        let more = enough.saturating_sub(u32::try_from(pma).unwrap_or(u32::MAX));
        if more == 0 {
            return enough;
        }
        let listed = self.with_lock(|turning, roots| match roots {
            Some(roots) => roots.length(Queue::Free),
            // SAFETY: the GPU is there, and the `list_lock` held.
            None => unsafe { gpu::Lists::of(turning.gpu) }
                .chunks(bindings::UVM_RUST_QUEUE_FREE)
                .take(more as usize)
                .count() as u32,
        });
        enough - more + listed.map_or(0, |listed| listed.min(more))
    }

    fn pick(&mut self, choose: impl FnOnce(&RootChunks) -> Option<u32>) -> Option<u32> {
        self.with_lock(|turning, roots| {
            let roots = roots?;
            let chunk = choose(roots).filter(|c| roots.has(*c))?;
            let mut start = 0;
            // SAFETY: the `list_lock` is held, and the chunk is one of those that the queues
            // were made for: as many as the PMM has root chunks.
            let block =
                unsafe { bindings::uvm_seam_prefetch_holds(turning.gpu, chunk, &mut start) };
            turning.noted = NonNull::new(block).map(|block| (block, start));
            Some(chunk)
        })
        .flatten()
    }

    fn victim(&mut self) -> Option<Hindrances> {
        self.unlock();
        self.chosen = None;
        let (noted, start) = self.noted?;
        // It is ours, and alive, if our own tree says so.
        let (block, hindrances) = self.find(start, start)?.0?;
        self.chosen = (block == noted).then_some(block);
        self.chosen.map(|_| hindrances)
    }

    fn next_block(&mut self, from: u64, last: u64) -> Option<Found> {
        self.unlock();
        self.chosen = None;
        let (block, next) = self.find(from, last)?;
        self.chosen = block.map(|(block, _)| block);
        let none = Hindrances {
            no_block: true,
            ..Hindrances::default()
        };
        let hindrances = block.map_or(none, |(_, hindrances)| hindrances);
        Some(Found { hindrances, next })
    }

    fn lock(&mut self, to: To) {
        let (Some(block), None) = (self.chosen, self.locked) else {
            return;
        };
        self.locked = Some(to);
        // SAFETY: a va_block is chosen, and not locked; the VA space is there.
        unsafe {
            if to == To::Host {
                // As upstream's evictions: its pages there are charged to the process's memory cgroup.
                self.mm = bindings::uvm_va_space_mm_retain(self.space().cast());
            }
            self.discarded = bindings::uvm_seam_prefetch_lock(self.call, block.as_ptr(), self.mm);
        }
    }

    fn unlock(&mut self) {
        let Some(block) = self.block() else { return };
        self.locked = None;
        // SAFETY: `lock` locked the va_block, which is still the chosen one, and held `mm` if there
        // is one.
        unsafe {
            bindings::uvm_seam_prefetch_unlock(self.call, block);
            if !core::mem::replace(&mut self.mm, null_mut()).is_null() {
                bindings::uvm_va_space_mm_release(self.space().cast());
            }
        }
    }

    fn pages(&mut self) -> Pages {
        let Some(block) = self.block() else {
            return Pages::default();
        };
        // SAFETY: the va_block is locked, and the GPU there. By I-own and I-lock, the state that it has is used
        // by nobody else as long as it is locked.
        let (of, discarded) = unsafe {
            // It may have come while a migration had let the lock go.
            let state = self.discarded.as_ref().map_or(null_mut(), |state| *state);
            let state = (!state.is_null()).then(|| discard::borrow(state));
            let discarded = state.map_or(PageMask::EMPTY, |state| state.discarded());
            (flash::pages_of(block, self.gpu), discarded)
        };
        Pages {
            populated: of.host.set() | of.there.set() | of.staged.set() | of.reached.set(),
            thrashing: of.thrashing.set(),
            discarded,
            there: of.there.set(),
        }
    }

    fn chunk(&mut self) -> Option<u32> {
        let block = self.block()?;
        // SAFETY: the va_block is locked, and the GPU there.
        is_number(unsafe {
            let span = span(NonNull::new_unchecked(block));
            bindings::uvm_seam_block_chunk(block, self.gpu, span.first)
        })
    }

    fn migrate(&mut self, copy: u32, pages: &PageMask, to: To) -> Migrated {
        let block = self.block().filter(|_| self.locked == Some(to));
        let (Some(block), true) = (block, copy < worker::IN_FLIGHT) else {
            return Migrated::Failed;
        };
        let gpu = if to == To::Host { null_mut() } else { self.gpu };
        for run in pages.runs() {
            let (first, outer) = (run.first(), run.outer());
            // SAFETY: the va_block is locked, for the same destination, and has these pages, as the
            // worker moves those that `pages` gave; there is a tracker with that number.
            let status = unsafe {
                bindings::uvm_seam_prefetch_migrate(self.call, block, gpu, copy, first, outer)
            };
            match status {
                status::OK => {}
                status::AGAIN => return Migrated::Again,
                _ => return Migrated::Failed,
            }
        }
        Migrated::Begun
    }

    fn settle(&mut self, copy: u32) -> bool {
        copy < worker::IN_FLIGHT
            && self.entered()
            // SAFETY: there is a tracker with that number, whose GPU the VA space's lock keeps.
            && unsafe { bindings::uvm_seam_prefetch_settle(self.call, copy) } == status::OK
    }

    fn brought(&mut self, outcome: Outcome, pages: u32) {
        self.prefetcher.brought(outcome, pages);
    }

    fn pushed_out(&mut self, pages: u32) {
        self.prefetcher.pushed_out(pages);
    }
}

/// What the kernels of a VA space, whose state this becomes, are known to do; `None` if announcements are not taken.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn process_of(
    space: NonNull<bindings::uvm_seam_space>,
) -> Result<Option<Pin<KBox<Process>>>> {
    let taken = seam::announce_enabled();
    taken.then(|| Process::new(Home(space))).transpose()
}

/// The VA space ends. Its worker does not run after this; faults may still come.
///
/// # Safety
///
/// This is called once.
pub(super) unsafe fn end(process: &Process) {
    process.end(|prefetcher| {
        // SAFETY: the worker has stopped, and by this function's contract.
        if let Some(mut turning) = unsafe { Turning::new(process, prefetcher) } {
            turning.ending(|turning| prefetcher.leave(turning));
        }
    });
}
