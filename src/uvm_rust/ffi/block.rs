// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The memory ranges of a VA space and its va_blocks, while the lock of the VA space is held.
//!
//! A handle that borrows another one is good as long as that one is: a [`Range`] and a [`Block`] as long as the VA
//! space's lock is held, and what a [`LockedBlock`] shows as long as the va_block's is.

use super::bindings::{self, uvm_va_block_struct, uvm_va_range_struct};
use super::discard::{as_c, short, state_at};
use super::flash;
use super::gpu::{BlockName, GpuHandle};
use super::prefetch::Migration;
use super::space::gpu_of;
use super::status::Status;
use super::vaspace::{space_of_block, Context, LockedVaSpace, VaSpace};
use crate::driver::discard::status;
use crate::policy::discard::{BlockState, Facts, Held, Memory, Span, PAGE_BYTES};
use crate::policy::evict::Queue;
use crate::policy::flash::wants::Stored;
use crate::policy::mask::{PageMask, Region};
use crate::policy::prefetch::worker::{Settled, IN_FLIGHT};
use core::marker::PhantomData;
use core::ptr::{null_mut, NonNull};
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

impl LockedVaSpace<'_> {
    /// Whether all of `span` may migrate.
    pub(crate) fn may_migrate(&self, span: Span) -> bool {
        let space = self.space.as_ptr().cast();
        // SAFETY: the lock is held.
        unsafe { bindings::uvm_range_group_all_migratable(space, span.first, span.last) }
    }

    /// The first memory with a part from `from` to `last`, if there is some.
    pub(crate) fn range(&self, from: u64, last: u64) -> Option<Range<'_>> {
        let mut facts = bindings::uvm_rust_range::default();
        // SAFETY: the lock is held; `facts` is ours for the call.
        let range =
            unsafe { bindings::uvm_seam_range(self.space.as_ptr(), from, last, &mut facts) };
        let space = self.space;
        NonNull::new(range).map(|range| Range {
            range,
            facts,
            space,
        })
    }

    /// The va_block of managed memory that has `address`.
    ///
    /// # Errors
    ///
    /// NVIDIA's status code: there is no such memory, or nobody has touched it.
    pub(crate) fn block(&self, address: u64) -> Result<Block<'_>, u32> {
        let mut block = null_mut();
        // SAFETY: the lock is held, which keeps the va_blocks; `block` is ours for the call.
        let status =
            unsafe { bindings::uvm_va_block_find(self.space.as_ptr().cast(), address, &mut block) };
        match (status, NonNull::new(block)) {
            (status::OK, Some(block)) => Ok(Block(block, self.space)),
            (status::OK, None) => Err(status::OBJECT_NOT_FOUND),
            (failed, _) => Err(failed),
        }
    }
}

/// A range of upstream's: memory of a process.
///
/// Invariant: the lock of its VA space is held for `'l`.
#[derive(Clone, Copy)]
pub(crate) struct Range<'l> {
    range: NonNull<uvm_va_range_struct>,
    facts: bindings::uvm_rust_range,
    space: VaSpace<'l>,
}

impl<'l> Range<'l> {
    /// The first and last address.
    pub(crate) fn span(&self) -> Span {
        Span {
            first: self.facts.first,
            last: self.facts.last,
        }
    }

    /// Whether the range is managed, and its preferred location.
    pub(crate) fn facts(&self) -> &bindings::uvm_rust_range {
        &self.facts
    }

    /// The range's va_block at `at`; `None` if nobody has touched that block, or the range is not managed or does not
    /// hold `at`.
    pub(crate) fn block(&self, at: u64) -> Option<Block<'l>> {
        if !self.facts.managed || !(self.facts.first..=self.facts.last).contains(&at) {
            return None;
        }
        // SAFETY: by the type's invariant; `at` is in the range, which is managed.
        let block = unsafe { bindings::uvm_seam_range_block(self.range.as_ptr(), at) };
        NonNull::new(block).map(|block| Block(block, self.space))
    }

    /// Whether the preferred location is another place than this GPU.
    pub(crate) fn is_preferred_elsewhere(&self, gpu: GpuHandle<'_>) -> bool {
        let preferred = self.facts.preferred;
        preferred != bindings::UVM_RUST_MEMORY_NONE && gpu_of(preferred) != Some(gpu.index())
    }

    /// Whether a GPU uses the range where it is, in UVM-Lite mode.
    pub(crate) fn is_lite(&self, gpu: GpuHandle<'_>) -> bool {
        // SAFETY: by the type's invariant, and that of the GPU's.
        self.facts.managed
            && unsafe { bindings::uvm_seam_prefetch_is_lite(self.range.as_ptr(), gpu.as_ptr()) }
    }
}

/// A va_block of managed memory.
///
/// Invariant: the lock of its VA space is held for `'l`, which keeps the block alive.
#[derive(Clone, Copy)]
pub(crate) struct Block<'l>(
    pub(super) NonNull<uvm_va_block_struct>,
    pub(super) VaSpace<'l>,
);

impl Block<'_> {
    pub(super) fn as_ptr(&self) -> *mut uvm_va_block_struct {
        self.0.as_ptr()
    }

    /// The first and last address.
    pub(crate) fn span(&self) -> Span {
        let mut span = bindings::uvm_rust_span::default();
        // SAFETY: by the type's invariant; `span` is ours for the call.
        unsafe { bindings::uvm_seam_block_span(self.as_ptr(), &mut span) };
        Span {
            first: span.first,
            last: span.last,
        }
    }
}

/// A va_block whose lock is held until this is dropped, or longer if C holds it.
///
/// Invariant: what C keeps as the discard state at `place` is null or came from `into_foreign`, and changes under the
/// va_block's lock only (I-own, I-lock).
pub(crate) struct LockedBlock<'l> {
    block: Block<'l>,
    place: NonNull<*mut bindings::uvm_rust_block>,
    /// The memory that [`LockedBlock::held`] gave last, if it has a root chunk there.
    root: Option<Memory>,
    /// Who releases the lock, and how.
    by: By,
}

/// Who holds a va_block's lock.
enum By {
    Us,
    /// This value, to move the block by this migration.
    Mover(Mover),
    /// C. The place of the discard state is a copy.
    C,
}

/// A migration of a va_block. Invariant: C's part of it is valid, and used for this block only, as long as this value.
struct Mover {
    call: *mut bindings::uvm_seam_prefetch,
    /// Null, or the VA space's `mm_struct`, which is retained, and which pays for host memory.
    mm: *mut bindings::mm_struct,
}

impl<'l> Block<'l> {
    /// Takes the block's lock; the caller does not hold it yet. Sleeps.
    pub(crate) fn lock(self) -> LockedBlock<'l> {
        // SAFETY: by the type's invariant; `Drop` gives it back. The place is in the block.
        let place = unsafe { NonNull::new_unchecked(bindings::uvm_seam_block_lock(self.as_ptr())) };
        LockedBlock {
            block: self,
            place,
            root: None,
            by: By::Us,
        }
    }

    /// Takes the block's lock for a migration. Host memory for it is charged to the process, as by upstream's evictions.
    ///
    /// # Safety
    ///
    /// The migration is used for nothing else as long as the result.
    unsafe fn lock_to_move(self, migration: &mut Migration, to_host: bool) -> LockedBlock<'l> {
        let call = migration.as_ptr();
        // SAFETY: by the types' invariants, and this function's contract; `Drop` gives both back.
        unsafe {
            let mm = match to_host {
                true => bindings::uvm_va_space_mm_retain(self.1.as_ptr().cast()),
                false => null_mut(),
            };
            let place = bindings::uvm_seam_prefetch_lock(call, self.as_ptr(), mm);
            LockedBlock {
                block: self,
                place: NonNull::new_unchecked(place),
                root: None,
                by: By::Mover(Mover { call, mm }),
            }
        }
    }

    /// The name of the block.
    pub(crate) fn name(&self) -> BlockName {
        BlockName(self.0)
    }
}

impl Drop for LockedBlock<'_> {
    fn drop(&mut self) {
        let block = self.as_ptr();
        // SAFETY: it was taken when this was made, and what moves it with it.
        unsafe {
            match &self.by {
                By::C => {}
                By::Us => bindings::uvm_seam_block_unlock(block),
                By::Mover(mover) => {
                    bindings::uvm_seam_prefetch_unlock(mover.call, block);
                    if !mover.mm.is_null() {
                        bindings::uvm_va_space_mm_release(self.block.1.as_ptr().cast());
                    }
                }
            }
        }
    }
}

impl LockedBlock<'_> {
    /// The block of which C holds the lock, and which has this state; `None` if the block has no VA space.
    ///
    /// # Safety
    ///
    /// C holds the lock as long as the result lives, and nobody else uses the state.
    pub(super) unsafe fn of_c(
        block: *mut uvm_va_block_struct,
        state: &mut *mut bindings::uvm_rust_block,
    ) -> Option<Self> {
        // SAFETY: by this function's contract.
        let block = unsafe {
            let space = NonNull::new(space_of_block(block))?;
            Block(NonNull::new(block)?, VaSpace::new(space))
        };
        Some(LockedBlock {
            block,
            place: NonNull::from(state),
            root: None,
            by: By::C,
        })
    }

    fn as_ptr(&self) -> *mut uvm_va_block_struct {
        self.block.as_ptr()
    }

    /// The first and last address.
    pub(crate) fn span(&self) -> Span {
        self.block.span()
    }

    /// Whether no copy of the block's is under way, nor other work of GPUs on it.
    pub(crate) fn is_settled(&self) -> bool {
        // SAFETY: it is locked.
        unsafe { bindings::uvm_seam_block_wait(self.as_ptr(), false) == status::OK }
    }

    /// The block's discard state; `None` before its first discard.
    pub(crate) fn state(&mut self) -> Option<&mut BlockState> {
        // SAFETY: by the type's invariant; nobody else uses it as long as `self` is borrowed, as C, which may look
        // into it too, is called with `self` only.
        unsafe { state_at(self.place.as_ptr()) }
    }

    /// Makes `state` the block's discard state, unless the block has one already.
    pub(crate) fn keep(&mut self, state: KBox<BlockState>) {
        if self.state().is_none() {
            // SAFETY: by the type's invariant.
            unsafe { self.place.write(state.into_foreign().cast_mut().cast()) };
        }
    }

    /// The block's pages that are resident anywhere, and whether some processor maps the block by one entry.
    pub(crate) fn facts(&mut self) -> Facts {
        let mut resident = bindings::uvm_rust_mask::default();
        // SAFETY: it is locked; `resident` is written once.
        let mapped_2m = unsafe { bindings::uvm_seam_discard_facts(self.as_ptr(), &mut resident) };
        Facts {
            resident: resident.set(),
            mapped_2m,
        }
    }

    /// The memory with the lowest number, not below `from`, in which the block may have chunks.
    pub(crate) fn held(&mut self, from: Memory) -> Option<Held> {
        let mut held = bindings::uvm_rust_held::default();
        let (space, block) = (self.block.1.as_ptr(), self.as_ptr());
        // SAFETY: it is locked, and its VA space; `held` is written at most once.
        if !unsafe { bindings::uvm_seam_discard_held(space, block, from.0.into(), &mut held) } {
            return None;
        }
        let memory = Memory(short(held.memory));
        self.root = held.root_chunk.then_some(memory);
        Some(Held {
            memory,
            resident: held.resident.set(),
            one_place: held.one_place,
            root_chunk: held.root_chunk,
        })
    }

    /// Those of `pages` that are resident in host memory which somebody holds without a mapping. Who writes the pages to a
    /// device is nobody: a spill begins only with pages that nobody else holds.
    pub(crate) fn pinned(&mut self, pages: &PageMask) -> PageMask {
        let on_host = self.held(Memory::HOST);
        let on_host = on_host.map_or(PageMask::EMPTY, |host| host.resident & *pages);
        if on_host.is_empty() {
            return on_host;
        }
        let mut free = as_c(&on_host);
        // SAFETY: it is locked, which keeps its host memory; the mask is ours for the call.
        unsafe {
            bindings::uvm_seam_flash_host(self.as_ptr(), &mut free, null_mut(), true);
            on_host - free.set() - flash::spilling(self.as_ptr())
        }
    }

    /// Moves the block's root chunk in `memory` to the new end of `queue`, discarded or used, if [`LockedBlock::held`]
    /// has given that memory last.
    pub(crate) fn requeue(&mut self, memory: Memory, queue: Queue) {
        if self.root == Some(memory) {
            let (space, block) = (self.block.1.as_ptr(), self.as_ptr());
            // SAFETY: it is locked; C gave the memory with a root chunk under this hold of the lock.
            unsafe {
                bindings::uvm_seam_discard_requeue(space, block, memory.0.into(), queue as u32);
            }
        }
    }

    /// Unmaps `unmap` from all processors, and takes residency of `pages`, a part of it, from all. Returns an
    /// `NV_STATUS`; after `status::AGAIN` nothing that was known of the block holds.
    pub(crate) fn drop_pages(
        &mut self,
        context: &Context<'_>,
        unmap: &PageMask,
        pages: &PageMask,
    ) -> u32 {
        let (block, context) = (self.as_ptr(), context.as_ptr());
        // SAFETY: it is locked, and its VA space; the masks are read. A copy of what C keeps is of no use once the lock
        // was let go.
        unsafe {
            let result = bindings::uvm_seam_block_unmap(block, context, &as_c(unmap));
            match result {
                status::OK => bindings::uvm_seam_block_drop(block, &as_c(pages), true),
                _ if matches!(self.by, By::C) => self.place.write(null_mut()),
                _ => {}
            }
            self.root = None;
            result
        }
    }

    /// Forgets which processors thrash on `pages`.
    pub(crate) fn forget_thrashing(&mut self, pages: &PageMask) {
        // SAFETY: it is locked; the mask is read.
        unsafe { bindings::uvm_seam_block_forget_thrashing(self.as_ptr(), &as_c(pages)) };
    }

    /// Forgets the copies of `pages` on a device.
    pub(crate) fn forget_stored(&mut self, pages: &PageMask) {
        // SAFETY: it is locked.
        unsafe { flash::discarded(self.as_ptr(), pages) };
    }

    /// The block's pages that are on a device and nowhere else.
    pub(crate) fn stored(&self) -> PageMask {
        // SAFETY: it is locked.
        unsafe { flash::stored(self.as_ptr()) }
    }

    /// What a device has of the block's pages, for who prefetches them.
    pub(crate) fn on_device(&self) -> Stored {
        // SAFETY: it is locked.
        unsafe { flash::on_device(self.as_ptr()) }
    }

    /// Has others read `pages`, which are on a device, and tell the VA space's prefetcher when that was tried. Returns
    /// whether somebody does so. Nothing is waited for.
    pub(crate) fn ask_for_prefetch(&mut self, pages: &PageMask) -> bool {
        // SAFETY: it is locked.
        unsafe { flash::ask_for_prefetch(self.as_ptr(), pages) }
    }

    /// Has the VA space's prefetcher told whenever a read of the block from a device ends.
    pub(crate) fn tell_of_reads(&mut self) {
        // SAFETY: it is locked.
        unsafe { flash::tell_of_reads(self.as_ptr()) };
    }

    /// The root chunk of the page at `address` on a GPU, if it has one there.
    pub(crate) fn chunk(&self, gpu: GpuHandle<'_>, address: u64) -> Option<u32> {
        let span = self.block.span();
        if !(span.first..=span.last).contains(&address) {
            return None;
        }
        // SAFETY: it is locked, and has the page; the GPU is retained.
        let chunk = unsafe { bindings::uvm_seam_block_chunk(self.as_ptr(), gpu.as_ptr(), address) };
        (chunk != bindings::UVM_RUST_NO_CHUNK).then_some(chunk)
    }
}

/// A block that is locked for a migration.
impl LockedBlock<'_> {
    /// Where the block's pages are, as a GPU sees them.
    pub(crate) fn pages(&self, gpu: GpuHandle<'_>) -> bindings::uvm_rust_pages {
        // SAFETY: it is locked, and alive, and the GPU retained.
        unsafe { flash::pages_of(self.as_ptr(), gpu.as_ptr()) }
    }

    /// Begins to move these pages of the block to a GPU, or to the host, by copies with number `copy`, and to map them there
    /// or not. Returns an `NV_STATUS`; after `status::AGAIN` nothing that was known of the block holds.
    pub(crate) fn migrate(
        &mut self,
        gpu: Option<GpuHandle<'_>>,
        map: bool,
        copy: u32,
        pages: Region,
    ) -> u32 {
        let (span, (first, outer)) = (self.span(), (pages.first(), pages.outer()));
        let has_pages = u64::from(outer) * PAGE_BYTES <= span.last - span.first + 1;
        let By::Mover(mover) = &self.by else {
            return status::INVALID_STATE;
        };
        if copy >= IN_FLIGHT || first >= outer || !has_pages {
            return status::INVALID_ARGUMENT;
        }
        let (call, block, space) = (mover.call, self.as_ptr(), self.block.1.as_ptr());
        let to = gpu.map_or(null_mut(), GpuHandle::as_ptr);
        self.root = None;
        // SAFETY: it is locked for this, and has the pages; the VA space has the GPU, and there is such a copy.
        unsafe {
            let has_gpu = |gpu: GpuHandle<'_>| {
                bindings::uvm_seam_prefetch_gpu(space, gpu.index(), false) == gpu.as_ptr()
            };
            if !gpu.is_none_or(has_gpu) {
                return status::INVALID_DEVICE;
            }
            bindings::uvm_seam_prefetch_migrate(call, block, to, map, copy, first, outer)
        }
    }
}

/// GPU work that somebody has to wait for.
///
/// Invariant: the tracker is valid, and used by nobody else, for `'a`.
pub(crate) struct Tracker<'a>(*mut bindings::uvm_seam_tracker, PhantomData<&'a mut ()>);

impl Tracker<'_> {
    /// # Safety
    ///
    /// As the type's invariant; the tracker is not used after `'a`.
    pub(super) unsafe fn new(tracker: *mut bindings::uvm_seam_tracker) -> Self {
        Self(tracker, PhantomData)
    }

    /// Notes the GPU work on a block. An error means that the work was waited for at once, and that the wait failed.
    pub(crate) fn add(&mut self, block: &LockedBlock<'_>) -> Result<(), Status> {
        // SAFETY: by the type's invariant, and the block is locked.
        Status::check(unsafe { bindings::uvm_seam_tracker_add(self.0, block.as_ptr()) })
    }

    /// Waits for all noted work, which was noted since the VA space was locked. Sleeps; the caller holds the lock of
    /// no block.
    pub(crate) fn wait(self, _: &LockedVaSpace<'_>) -> Result<(), Status> {
        // SAFETY: by the type's invariant, and it is used no more. The channels that it names are those of GPUs of the
        // VA space, none of which can be unregistered while that is locked.
        Status::check(unsafe { bindings::uvm_seam_tracker_end(self.0) })
    }
}

/// A VA space that is entered, and where in it: a range, and a va_block of it, which may be locked.
pub(crate) struct Walk<'a> {
    // Lower fields keep upper ones alive, whose true lifetime is shorter than `'a`. So upper fields are dropped first, and
    // lent for a shorter time only.
    locked: Option<LockedBlock<'a>>,
    block: Option<Block<'a>>,
    range: Option<Range<'a>>,
    context: Option<Context<'a>>,
    migration: Option<KBox<Migration>>,
    space: LockedVaSpace<'a>,
}

impl<'a> Walk<'a> {
    /// Begins a walk in a VA space, which is entered for it.
    pub(crate) fn new(space: LockedVaSpace<'a>) -> Self {
        Self {
            locked: None,
            block: None,
            range: None,
            context: None,
            migration: None,
            space,
        }
    }

    /// As above, with this memory for migrations.
    pub(crate) fn to_move(space: LockedVaSpace<'a>, migration: KBox<Migration>) -> Self {
        Self {
            migration: Some(migration),
            ..Self::new(space)
        }
    }

    /// Leaves the VA space. Returns the memory for migrations.
    pub(crate) fn leave(mut self) -> Option<KBox<Migration>> {
        self.unlock();
        self.migration.take()
    }

    /// The VA space, whose lock is held.
    pub(crate) fn space(&self) -> &LockedVaSpace<'a> {
        &self.space
    }

    /// Gets what unmapping needs, until [`Walk::close`]; false without memory.
    pub(crate) fn open(&mut self) -> bool {
        // SAFETY: `self` has both, and drops the context first.
        self.context = unsafe { Context::new(self.space.mm()) };
        self.context.is_some()
    }

    /// Gives back what [`Walk::open`] got, if it got anything.
    pub(crate) fn close(&mut self) {
        self.context = None;
    }

    /// Whether [`Walk::open`] was called, and not yet [`Walk::close`].
    pub(crate) fn is_open(&self) -> bool {
        self.context.is_some()
    }

    /// Chooses the first memory from `from` to `last`, unless a block is locked.
    pub(crate) fn choose_range(&mut self, from: u64, last: u64) -> Option<&Range<'_>> {
        if self.locked.is_none() {
            self.block = None;
            let range = self.space.range(from, last);
            // The range is valid as long as the lock is held, which `self` does.
            self.range = range.map(|range| Range {
                space: self.space.space,
                ..range
            });
        }
        self.range.as_ref()
    }

    /// Chooses the range's block at `at`, unless one is locked. Returns the block's addresses.
    pub(crate) fn choose_block(&mut self, at: u64) -> Option<Block<'_>> {
        if self.locked.is_none() {
            self.block = self.range.and_then(|range| range.block(at));
        }
        self.block
    }

    /// The range that was chosen.
    pub(crate) fn range(&self) -> Option<Range<'_>> {
        self.range
    }

    /// The block that was chosen.
    pub(crate) fn chosen(&self) -> Option<Block<'_>> {
        self.block
    }

    /// Chooses no block, unless one is locked.
    pub(crate) fn choose_none(&mut self) {
        if self.locked.is_none() {
            self.block = None;
        }
    }

    /// Locks the chosen block; false if none is chosen, or it is locked already.
    pub(crate) fn lock(&mut self) -> bool {
        let is_locked = self.locked.is_some();
        if let (false, Some(block)) = (is_locked, self.block) {
            self.locked = Some(block.lock());
        }
        !is_locked && self.locked.is_some()
    }

    /// Locks the chosen block for a migration, with the memory that [`Walk::to_move`] was given.
    pub(crate) fn lock_to_move(&mut self, to_host: bool) {
        if let (None, Some(block), Some(migration)) =
            (&self.locked, self.block, &mut self.migration)
        {
            // SAFETY: one block is locked at a time, and goes before the migration, which nobody else has.
            self.locked = Some(unsafe { block.lock_to_move(migration, to_host) });
        }
    }

    /// Waits until the copies with number `copy` are done.
    pub(crate) fn settle(&mut self, copy: u32) -> Settled {
        let mut settled = Settled::default();
        if let Some(migration) = &mut self.migration {
            if copy < IN_FLIGHT {
                let (call, under_way) = (migration.as_ptr(), &mut settled.waited);
                // SAFETY: there is a tracker with that number, whose GPU the VA space's lock keeps.
                let status = unsafe { bindings::uvm_seam_prefetch_settle(call, copy, under_way) };
                settled.good = status == status::OK;
            }
        }
        settled
    }

    /// Unlocks the block, if one is locked.
    pub(crate) fn unlock(&mut self) {
        self.locked = None;
    }

    /// Whether a block is locked.
    pub(crate) fn is_locked(&self) -> bool {
        self.locked.is_some()
    }

    /// The discard state of the locked block; `None` before its first discard.
    pub(crate) fn state(&mut self) -> Option<&mut BlockState> {
        self.locked.as_mut()?.state()
    }

    /// Calls `then` with the block that is locked, if one is.
    pub(crate) fn with_locked<R>(&mut self, then: impl FnOnce(Locked<'_>) -> R) -> Option<R> {
        let block = core::ptr::from_mut(self.locked.as_mut()?).cast();
        Some(then(Locked {
            // SAFETY: it has another lifetime, which `then` does not choose. So nothing that another walk has can be put
            // here, nor this there.
            block: unsafe { &mut *block },
            context: self.context.as_ref(),
            space: &self.space,
        }))
    }
}

/// A block that is locked, and what goes with it.
pub(crate) struct Locked<'w> {
    pub(crate) block: &'w mut LockedBlock<'w>,
    /// What [`Walk::open`] got, if it did.
    pub(crate) context: Option<&'w Context<'w>>,
    pub(crate) space: &'w LockedVaSpace<'w>,
}
