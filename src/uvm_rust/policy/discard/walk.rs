// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The discard of an address range: the walk over its ranges and va_blocks, and what is done
//! to each block in which order.
//!
//! ```text
//!  discard    enter the VA space, walk, wait for the GPUs, leave it
//!    ranges   the ranges of managed memory that the addresses lie in
//!      blocks 2 MiB at a time: skipped, or
//!        block    lock; plan, drop, record, queue; unlock
//! ```
//!
//! The walk acts only through [`Machine`]: in the driver that is upstream's VA space, under
//! `cargo test` a model of one.
//!
//! # Invariants
//!
//! - **D-lock**: each `enter` is followed by one `leave`, each `open` that succeeds by one
//!   `close` before that, and each `lock` by one `unlock` before another `lock` and before
//!   the `close`.
//! - **D-order**: a page is called discarded only after it was unmapped and dropped as the mode
//!   asks for, under the same hold of the block's lock. So an error leaves the block as if it had
//!   not been discarded; at most mappings are gone, which the next access brings back.
//! - **D-all**: blocks are discarded in the order of their addresses. The first that fails ends
//!   the walk; those before it stay discarded, those behind it are as they were.
//! - **D-rest**: between two looks at a block others may run, and a thread that is to die
//!   ends: a kernel without preemption has no other place for either, and a range may be
//!   terabytes of blocks that are skipped.
//! - **D-wait**: the call does not end, with an error or without, before the GPUs have done what
//!   an eager discard gave them to do: an access through a mapping that is still cached somewhere
//!   would go unnoticed. It waits before it leaves the VA space: the work belongs to channels of
//!   GPUs, which go when another thread takes a GPU out of the VA space.
//!
//! Locking: none here. The machine takes the VA space's lock in read mode (`enter`) and within
//! it one block's at a time (`lock`).

use super::{BlockState, Facts, Granules, Memory, Mode, Plan};
use crate::mem::OutOfMemory;
use crate::policy::evict::Queue;
use crate::policy::mask::{PageMask, Region, PAGES};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes between the beginnings of two va_blocks.
pub const BLOCK_BYTES: u64 = PAGES as u64 * PAGE_BYTES;

/// Addresses from the first byte to the last, both of which belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The address of the first byte.
    pub first: u64,
    /// The address of the last byte, which is not before the first.
    pub last: u64,
}

impl Span {
    /// The `length` bytes from `base`; `None` unless both are multiples of the page size and not 0, and the last byte
    /// has an address. Upstream asks the same of a range.
    pub fn of_pages(base: u64, length: u64) -> Option<Self> {
        let end = base.checked_add(length)?;
        let valid = base != 0 && length != 0 && base % PAGE_BYTES == 0 && length % PAGE_BYTES == 0;
        // 0 bytes from address 0 have no last byte.
        valid.then(|| Self {
            first: base,
            last: end - 1,
        })
    }

    /// How many pages a va_block at these addresses has, 512 at most.
    fn pages(self) -> u16 {
        page_number(self.last.saturating_sub(self.first)).saturating_add(1)
    }

    /// The pages that `part` has of a va_block at these addresses, as the block counts them.
    fn region(self, part: Self) -> Region {
        let page = |address: u64| page_number(address.saturating_sub(self.first));
        Region::new(page(part.first), page(part.last).saturating_add(1))
    }

    /// The granules of `1 << shift` pages of a va_block at these addresses.
    fn granules(self, shift: u32) -> Granules {
        Granules {
            shift,
            before: page_number(self.first % BLOCK_BYTES),
        }
    }
}

/// The page that has the byte at `offset` of a va_block.
fn page_number(offset: u64) -> u16 {
    u16::try_from(offset / PAGE_BYTES).unwrap_or(u16::MAX)
}

/// What kind of memory a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of it managed.
    Managed,
    /// Ordinary memory, which a GPU reaches through HMM or ATS.
    Ordinary,
    /// In part nothing that the driver knows, or of several kinds.
    Unknown,
}

/// A discard to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The first address to discard; a multiple of the page size, and not 0.
    pub base: u64,
    /// How many bytes to discard; a multiple of the page size, and not 0.
    pub length: u64,
    /// Whether what is discarded is unmapped.
    pub mode: Mode,
    /// Granularity of blocks that are covered in part; see [`granule_shift`].
    pub granule_shift: u32,
}

/// What became of the blocks that a discard met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Discarded as far as the range covers them.
    pub discarded: u64,
    /// Left alone: never touched, not to be migrated, or covered in a part that is too small.
    pub skipped: u64,
    /// Discarded in part of what the range covers.
    pub partial: u64,
}

/// Why a discard ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// The addresses are no range of pages; nothing was looked at.
    NotPages,
    /// A GPU that cannot fault is registered. It could not get back a page that was unmapped.
    CannotFault,
    /// The range is ordinary memory, not managed memory.
    Ordinary,
    /// Part of the range is memory that the driver does not know, or of another kind.
    Unknown,
    /// The thread has a fatal signal.
    Killed,
    /// There is no memory for the state of a block.
    NoMemory,
    /// A call of the machine failed.
    Machine(E),
}

impl<E> From<OutOfMemory> for Failure<E> {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}

/// A memory that the locked block may have chunks in.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The number of this memory.
    pub memory: Memory,
    /// The pages that are resident there.
    pub resident: PageMask,
    /// Whether this number stands for a single memory, so that a page that is resident there is prepared there. A host
    /// with several NUMA nodes is not a single memory: a page's node is known only once the page is resident. So
    /// none of its pages counts as prepared, and all are zeroed.
    pub one_place: bool,
    /// Whether this memory has one chunk for the whole block, and reclaims such chunks.
    pub root_chunk: bool,
}

/// How a drop came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// All is unmapped and dropped.
    All,
    /// The machine released the block's lock on the way, so that earlier facts of the block are void. Mappings may be
    /// gone, and nothing else.
    Again,
}

/// What the walk works on: a VA space, its ranges, and one va_block at a time.
///
/// [`Machine::range`] chooses a range, and [`Machine::block`] a va_block of it; what speaks of
/// "the block" means that one.
pub trait Machine {
    /// The machine's own errors.
    type Error: Copy;

    /// Whether the invariants are checked.
    const CHECKS: bool;

    /// Reports that an invariant does not hold. The walk goes on.
    fn broken(&mut self, invariant: &'static str);

    // The VA space.

    /// Takes the locks of the VA space, in read mode.
    fn enter(&mut self);

    /// Lets the locks of [`Machine::enter`] go.
    fn leave(&mut self);

    /// Whether a GPU is registered in the VA space that cannot fault.
    fn has_non_faultable(&mut self) -> bool;

    /// What kind of memory these addresses are.
    fn kind(&mut self, span: Span) -> Kind;

    /// Gets what unmapping needs, for all blocks of the call.
    fn open(&mut self) -> Result<(), Self::Error>;

    /// Gives back what [`Machine::open`] got. Called once, and only if that succeeded.
    fn close(&mut self);

    /// Waits until the GPUs have done what [`Machine::note_work`] noted. Called once, right before
    /// `leave`: the locks of the VA space are held, and no block's.
    fn wait(&mut self) -> Result<(), Self::Error>;

    // The walk.

    /// Chooses the range that holds `at`. The first call is with the first address of the
    /// call, each other with the address behind the range that is chosen. `None` if there is no
    /// such range, or it begins behind `last`.
    fn range(&mut self, at: u64, last: u64) -> Option<Span>;

    /// Lets other threads run. The locks of the VA space are held, and no block's.
    fn rest(&mut self);

    /// Whether the thread is to die.
    fn dying(&mut self) -> bool;

    /// Chooses the va_block that holds `at`, an address of the chosen range; `None` if nobody has
    /// touched it.
    fn block(&mut self, at: u64) -> Option<Span>;

    /// Whether all of `span` may migrate. Where that is forbidden mappings must stay, as a fault
    /// may be fatal there.
    fn may_migrate(&mut self, span: Span) -> bool;

    // One block: all of these between `lock` and `unlock`.

    /// Takes the block's lock.
    fn lock(&mut self);

    /// Lets the block's lock go.
    fn unlock(&mut self);

    /// What the plan must know of the block.
    fn facts(&mut self) -> Facts;

    /// Those of `pages` that are resident in host memory of which somebody has a reference without a mapping: direct I/O,
    /// RDMA, a pipe. Their users write there without a fault.
    fn pinned(&mut self, pages: &PageMask) -> PageMask;

    /// The state of the block; `None` before its first discard.
    fn state(&mut self) -> Option<&mut BlockState>;

    /// Keeps `state` as that of the block, which has none. Others wait for the block's lock, so that no process' memory limit is
    /// waited for.
    fn keep(&mut self, state: BlockState) -> Result<(), OutOfMemory>;

    /// The memory with the lowest number, not below `from`, that the block may have chunks in.
    fn held(&mut self, from: Memory) -> Option<Held>;

    /// Unmaps `pages` from all processors and takes residency of them from all, copying
    /// nothing. After an error mappings may be gone, and no more than those.
    fn drop_pages(&mut self, pages: &PageMask) -> Result<Dropped, Self::Error>;

    /// Forgets which processors thrash on `pages`, which are resident nowhere now. The record would name the place
    /// where thrashing had pinned them.
    fn forget_thrashing(&mut self, pages: &PageMask);

    /// Forgets the copies of `pages` on a slower tier.
    fn forget_stored(&mut self, pages: &PageMask);

    /// Moves the block's root chunk in `memory` to the new end of `queue`: [`Queue::Discarded`] where all its contents are
    /// discarded, or [`Queue::Used`].
    fn requeue(&mut self, memory: Memory, queue: Queue);

    /// Notes the block's GPU work that is not done yet, for [`Machine::wait`]. An error means that the machine waited
    /// for the work at once, and that the wait failed.
    fn note_work(&mut self) -> Result<(), Self::Error>;
}

/// The shift for granules of `kib` KiB: a power of two from 4 to 2048, and if it is not, the next
/// below. With 9, for 2 MiB, blocks that are covered in part are left alone.
pub fn granule_shift(kib: u32) -> u32 {
    (kib.max(4).ilog2() - 2).min(9)
}

/// Discards what `request` names, adding what became of the blocks to `counts`.
///
/// # Errors
///
/// D-all: what was discarded before stays so, and is in `counts`.
pub fn discard<M: Machine>(
    machine: &mut M,
    request: &Request,
    counts: &mut Counts,
) -> Result<(), Failure<M::Error>> {
    let span = Span::of_pages(request.base, request.length).ok_or(Failure::NotPages)?;
    let mut walk = Walk {
        machine,
        request,
        counts,
    };
    walk.machine.enter();
    let result = walk.entered(span);
    // D-wait: also for the blocks before one that failed.
    let waited = walk.machine.wait().map_err(Failure::Machine);
    walk.machine.leave();
    result.and(waited)
}

/// One call of [`discard`].
struct Walk<'a, M: Machine> {
    machine: &'a mut M,
    request: &'a Request,
    counts: &'a mut Counts,
}

/// How [`Walk::locked`] came out.
enum Progress {
    Done,
    /// The block's lock was released: the block is looked at again from the start.
    Again,
}

impl<M: Machine> Walk<'_, M> {
    /// Walks the addresses; the locks of the VA space are held.
    fn entered(&mut self, span: Span) -> Result<(), Failure<M::Error>> {
        if self.machine.has_non_faultable() {
            return Err(Failure::CannotFault);
        }
        match self.machine.kind(span) {
            Kind::Managed => {}
            Kind::Ordinary => return Err(Failure::Ordinary),
            Kind::Unknown => return Err(Failure::Unknown),
        }
        self.machine.open().map_err(Failure::Machine)?;
        let result = self.ranges(span);
        self.machine.close();
        result
    }

    /// The ranges that `span` lies in.
    fn ranges(&mut self, span: Span) -> Result<(), Failure<M::Error>> {
        let mut first = span.first;
        while let Some(range) = self.machine.range(first, span.last) {
            self.check(range.first <= first && first <= range.last, "D-all");
            let last = range.last.clamp(first, span.last);
            self.blocks(Span { first, last })?;
            if last == span.last {
                return Ok(());
            }
            first = last + 1;
        }
        // `kind` said that the whole range is managed memory, and the lock is still held.
        self.check(false, "D-all");
        Ok(())
    }

    /// The va_blocks of `span`, which lies in the chosen range.
    fn blocks(&mut self, span: Span) -> Result<(), Failure<M::Error>> {
        let mut first = span.first;
        loop {
            let last = (first | (BLOCK_BYTES - 1)).min(span.last);
            let part = Span { first, last };
            // D-rest: every block comes past this place.
            self.machine.rest();
            if self.machine.dying() {
                return Err(Failure::Killed);
            }
            match self.machine.block(first) {
                Some(block) if self.machine.may_migrate(part) => self.block(block, part)?,
                Some(block) => self.must_stay(block, part),
                None => self.counts.skipped += 1,
            }
            if last == span.last {
                return Ok(());
            }
            first = last + 1;
        }
    }

    /// The chosen block, at the addresses `block`, of which `part` may not migrate. The group that forbids it may have a
    /// few pages only, so that others were discarded lazily before.
    fn must_stay(&mut self, block: Span, part: Span) {
        let pages = block.pages();
        let plan = Plan::leaving(pages, block.region(part), self.request.mode);
        self.machine.lock();
        self.leave(pages, &plan);
        self.machine.unlock();
    }

    /// The chosen block, at the addresses `block`, of which `part` is to be discarded.
    fn block(&mut self, block: Span, part: Span) -> Result<(), Failure<M::Error>> {
        self.check(
            block.first <= part.first && part.last <= block.last,
            "D-all",
        );
        self.machine.lock();
        let result = loop {
            match self.locked(block, block.region(part)) {
                Ok(Progress::Again) => {}
                Ok(Progress::Done) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        self.machine.unlock();
        result
    }

    /// The pages `region` of the locked block at the addresses `block`.
    fn locked(&mut self, block: Span, region: Region) -> Result<Progress, Failure<M::Error>> {
        let facts = self.machine.facts();
        let (request, pages) = (self.request, block.pages());
        let granules = block.granules(request.granule_shift);
        let mut plan = Plan::new(pages, region, request.mode, granules, &facts);
        if !plan.drop.is_empty() {
            plan.keep(&self.machine.pinned(&plan.drop), facts.mapped_2m);
        }
        if plan.is_empty() {
            self.leave(pages, &plan);
            return Ok(Progress::Done);
        }
        self.have_state(pages)?;
        if !plan.drop.is_empty() {
            let dropped = self.machine.drop_pages(&plan.drop);
            if let Dropped::Again = dropped.map_err(Failure::Machine)? {
                return Ok(Progress::Again);
            }
            self.machine.forget_thrashing(&plan.drop);
        }
        // D-order.
        let revived = self.machine.state().map(|state| state.commit(&plan));
        self.check(revived.is_some(), "D-order");
        self.machine.forget_stored(&plan.discarded);
        self.requeue(pages, &plan, &revived.unwrap_or(PageMask::EMPTY));
        if plan.ignored.is_empty() {
            self.counts.discarded += 1;
        } else {
            self.counts.partial += 1;
        }
        if request.mode == Mode::Eager {
            // D-wait.
            self.machine.note_work().map_err(Failure::Machine)?;
        }
        Ok(Progress::Done)
    }

    /// Discards nothing of the locked block: what was discarded lazily before is live again, if the discard is eager.
    fn leave(&mut self, pages: u16, plan: &Plan) {
        let revived = self.machine.state().map(|state| state.commit(plan));
        if let Some(revived) = revived.filter(|revived| !revived.is_empty()) {
            self.requeue(pages, plan, &revived);
        }
        self.counts.skipped += 1;
    }

    /// Makes the state of the locked block if it has none, with what is resident now taken as
    /// prepared.
    fn have_state(&mut self, pages: u16) -> Result<(), Failure<M::Error>> {
        if self.machine.state().is_some() {
            return Ok(());
        }
        let mut state = BlockState::new(pages);
        let mut from = Some(Memory::HOST);
        while let Some(held) = self.next_held(&mut from) {
            if held.one_place {
                // If there is no memory for the record, every page of that memory is zeroed before it is handed out.
                let _ = state.track(held.memory, &held.resident);
            }
        }
        Ok(self.machine.keep(state)?)
    }

    /// Queues the block's root chunks for reclaim, after `plan`: those all contents of which are discarded now, and those with
    /// pages that were discarded lazily and are `revived`. Only a block of 2 MiB has a root chunk for itself.
    fn requeue(&mut self, pages: u16, plan: &Plan, revived: &PageMask) {
        if pages != PAGES {
            return;
        }
        let mut from = Memory::HOST.next();
        while let Some(held) = self.next_held(&mut from) {
            let queue = |state: &mut BlockState| state.queue(held.memory, &held.resident);
            let queue = self.machine.state().map(queue);
            let moves = match queue {
                Some(Queue::Discarded) => !plan.is_empty(),
                Some(Queue::Used) => held.resident.intersects(revived),
                _ => false,
            };
            if let Some(queue) = queue.filter(|_| held.root_chunk && moves) {
                self.machine.requeue(held.memory, queue);
            }
        }
    }

    /// The block's next memory from `from` on; `from` moves past it.
    fn next_held(&mut self, from: &mut Option<Memory>) -> Option<Held> {
        let held = self.machine.held((*from)?)?;
        *from = held.memory.max((*from)?).next();
        Some(held)
    }

    fn check(&mut self, holds: bool, invariant: &'static str) {
        if M::CHECKS && !holds {
            self.machine.broken(invariant);
        }
    }
}
