// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Queues for a manager that pins chunks while they are worked on.
//!
//! Upstream's physical memory manager (PMM) pins a chunk while a va_block works on it, and evicts none that is
//! pinned. The contents of a pinned chunk may still change. So each chunk has the queue that it is on, and the queue
//! that it belongs to. For the same reason, a chunk whose eviction failed returns to the queue that it came from.
//!
//! A free chunk is on the free queue too ([`RootChunks::change`]), and on the PMM's own free list, from which
//! allocations take it; a chunk that is split, and its free parts, are the PMM's alone.
//!
//! A used chunk belongs to a process: pre-eviction takes the oldest chunk of one process, not of all
//! (`holders.rs`). A used chunk may be expected (DeepUM §5.1): an owner, which is a process that prefetches, has marked
//! the chunk up to one of its kernels, and eviction spares the chunk until that kernel has run. An owner's marks are
//! void once the owner is gone, and a chunk's mark is void once the chunk belongs to another process.
//!
//! A kernel may need chunks that nobody expects. A fault or a requested migration may bring a chunk while the owner's
//! kernel runs. Such a chunk belongs to the running kernel until the next one begins, and is evicted after all chunks
//! that are only expected ([`Standing`]). This lasts for as many evictions of used chunks as there are chunks: by then
//! the kernel has had room for all that it can have at once. A process that announces no further kernel, because it
//! waits for its user or has ended, keeps chunks from others no longer than that. Its chunks then count like those of a
//! process that announces nothing. They do not count like those of a finished kernel, which make way for expected
//! chunks: a kernel that goes through much memory would fault for ever on chunks that it needs at once.

use super::holders::{Holder, Holders, LISTS};
use super::lows::Lows;
use super::one::Search;
use super::policies::{self, Choice, Chooser, Standing, Used, REACH};
use super::stats::held::Contents;
use super::{Chunk, NoSuchChunk, Queue, Queues, Victim};
use crate::mem::{OutOfMemory, TryVec};
use owners::Present;
pub use owners::{Owner, Tenant, OWNERS};
use root::{Asked, Mark};
pub(super) use root::{Leaving, Root};

/// The root chunks of one GPU. Locking as for [`Queues`]: only [`RootChunks::new`] and
/// [`RootChunks::with_policy`] allocate.
pub struct RootChunks {
    queues: Queues,
    /// The policy: which used chunk is evicted first.
    policy: Chooser,
    roots: TryVec<Root>,
    /// The chunks on the used queue that pre-eviction has not passed over.
    holders: Holders,
    /// What is protected of processes' used chunks.
    lows: Lows,
    /// The owners and the kernels that they run now, by owner modulo [`OWNERS`].
    present: TryVec<Present>,
    /// The owner that came last of those whose processes have a list, by the number of that. The others follow by
    /// [`Present::next`]; each of them is in `present`.
    owners: TryVec<Owner>,
    last_owner: Owner,
    /// How many owners there are.
    owners_now: u32,
    /// Evictions of used chunks that have begun, but for those that came to nothing.
    evictions: u64,
    /// The default policy is asked, whichever is in force.
    by_default: bool,
    /// Chunks that may hold something at the same time.
    room: u32,
    /// The chunk that was chosen last, until an eviction begins.
    pub(super) chosen: Option<Chunk>,
    /// That chunk goes to make room for its own process ([`RootChunks::choose_of`]).
    pub(super) chosen_for_owner: bool,
    /// What is known of the searches for one process's chunks ([`RootChunks::choose_of`]), by the number of its list: no
    /// process's search goes by what another's has met, unless both have the same list.
    pub(super) searches: TryVec<Search>,
}

impl RootChunks {
    /// Makes the state of chunks 0 to `chunks` - 1, all of them pinned or free, with the default policy.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Self::with_policy(chunks, Choice::default())
    }

    /// As [`RootChunks::new`], with a policy of the caller's choice.
    pub fn with_policy(chunks: u32, choice: Choice) -> Result<Self, OutOfMemory> {
        Ok(Self {
            queues: Queues::new(chunks)?,
            policy: Chooser::new(choice, chunks)?,
            roots: TryVec::filled(chunks as usize, Root::new())?,
            holders: Holders::new(chunks)?,
            lows: Lows::new(chunks)?,
            owners: TryVec::filled(LISTS, 0)?,
            present: TryVec::filled(OWNERS as usize, Present::default())?,
            last_owner: 0,
            owners_now: 0,
            evictions: 0,
            by_default: false,
            room: chunks,
            chosen: None,
            chosen_for_owner: false,
            searches: TryVec::filled(LISTS, Search::default())?,
        })
    }

    /// Notes that the contents of `chunk` changed: the chunk belongs to the tail of `queue` now.
    pub fn set(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        self.root_mut(chunk)?.belongs = queue;
        match self.queues.queue_of(chunk) {
            // A pinned chunk joins its queue when it is inserted. A free chunk is empty: a late report does not change that.
            None | Some(Queue::Free) => Ok(()),
            Some(_) => self.enqueue(chunk, queue),
        }
    }

    /// Notes that `chunk` may be evicted from now on, and belongs to `holder`. A chunk whose contents changed while it was
    /// pinned goes to the queue of its last [`RootChunks::set`].
    #[inline(always)]
    pub fn insert(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        let root = self.root(chunk).ok_or(NoSuchChunk)?;
        let queue = root.belongs;
        if root.holder != holder {
            self.comes_to(chunk, holder)?;
        }
        match queue {
            Queue::Used => self.enqueue_used(chunk, holder),
            others => self.enqueue_in(chunk, others),
        }
    }

    /// `chunk`, which is another's so far, is `holder`'s, and may be evicted.
    #[inline(never)]
    fn comes_to(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        let before = self.holder_of(chunk);
        let root = self.give(chunk, holder)?;
        // A chunk that was evicted while its owner freed it comes back here without having been free.
        if before != 0 {
            root.forget();
        }
        // The owner was not known when the chunk was used. A chunk that the worker brought was not asked for.
        if root.asked.owner == 0 {
            let running = self.running(holder);
            self.root_mut(chunk)?.ask(running);
            self.policy.brings(holder, false);
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn root(&self, chunk: Chunk) -> Option<&Root> {
        self.roots.get(chunk as usize)
    }

    #[inline(always)]
    pub(super) fn root_mut(&mut self, chunk: Chunk) -> Result<&mut Root, NoSuchChunk> {
        self.roots.get_mut(chunk as usize).ok_or(NoSuchChunk)
    }

    /// Moves `chunk` to the tail of `queue`. The holder's lists keep the orders of the queues.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        match queue {
            Queue::Used => self.enqueue_used(chunk, self.holder_of(chunk)),
            others => self.enqueue_in(chunk, others),
        }
    }

    /// The same, of the used queue. The chunk is `holder`'s.
    #[inline(always)]
    fn enqueue_used(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        self.moves(chunk, Some(Queue::Used));
        self.queues.enqueue(chunk, Queue::Used)?;
        self.comes_last(chunk, holder);
        Ok(())
    }

    /// `chunk`, which is `holder`'s, has come to the tail of the used queue.
    #[inline(always)]
    fn comes_last(&mut self, chunk: Chunk, holder: Holder) {
        self.holders.append(chunk, holder, Queue::Used);
        self.policy.used(chunk, holder);
    }

    /// The same, of another queue.
    #[inline(never)]
    fn enqueue_in(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        self.moves(chunk, Some(queue));
        let was = self.queues.enqueue(chunk, queue)?;
        self.holders.append(chunk, self.holder_of(chunk), queue);
        if was == Some(Queue::Used) {
            self.policy.left(chunk);
        }
        Ok(())
    }

    /// Notes that `chunk` is free. A `zeroed` chunk goes behind the other free chunks, any other one before them.
    pub(super) fn queue_free(&mut self, chunk: Chunk, zeroed: bool) -> Result<(), NoSuchChunk> {
        self.enqueue(chunk, Queue::Free)?;
        if !zeroed {
            self.queues.make_oldest(chunk);
        }
        Ok(())
    }

    /// Notes that `chunk` may not be evicted from now on. Returns the queue that it was on.
    #[inline(always)]
    pub fn remove(&mut self, chunk: Chunk) -> Option<Queue> {
        self.moves(chunk, None);
        self.holders.unlink(chunk);
        let was = self.queues.remove(chunk).ok().flatten();
        if was == Some(Queue::Used) {
            self.policy.left(chunk);
        }
        was
    }

    /// The chunks of `holder` that are on `queue`, oldest first, within reach. Of the used ones, none that was passed over;
    /// of free ones there are none.
    pub(super) fn of(&self, queue: Queue, holder: Holder) -> impl Iterator<Item = Chunk> + '_ {
        let list = self.holders.list(queue, holder);
        list.filter(move |&chunk| self.holder_of(chunk) == holder)
    }

    /// How many chunks there are.
    pub(super) fn count(&self) -> u32 {
        self.roots.len() as u32
    }

    /// Whether `chunk` was taken for an eviction, of which no change has told the end.
    #[inline(always)]
    pub fn is_leaving(&self, chunk: Chunk) -> bool {
        self.leaving_of(chunk) != Leaving::No
    }

    /// Whether that eviction makes room for the chunk's own process ([`RootChunks::choose_of`]).
    #[inline(always)]
    pub fn leaves_for_owner(&self, chunk: Chunk) -> bool {
        self.leaving_of(chunk) == Leaving::ForOwner
    }

    #[inline(always)]
    fn leaving_of(&self, chunk: Chunk) -> Leaving {
        self.root(chunk)
            .map(|root| root.leaving)
            .unwrap_or_default()
    }

    /// The chunk to reclaim next; it stays where it is.
    #[inline]
    pub fn pick(&self) -> Option<Chunk> {
        match self.queues.oldest_for_nothing() {
            Some((chunk, _)) => Some(chunk),
            None => self.choose_used(),
        }
    }

    /// The same, with where it is and whether it is expected.
    pub fn victim(&self) -> Option<Victim> {
        self.queues.for_nothing().or_else(|| {
            let chunk = self.choose_used()?;
            Some(Victim {
                chunk,
                queue: Queue::Used,
                expected: self.needed_in(chunk).is_some(),
            })
        })
    }

    /// The queues themselves, for the policies to look at.
    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The process that owns `chunk`, from its allocation until it is free or evicted; 0 if several do, or none.
    #[inline(always)]
    pub fn holder_of(&self, chunk: Chunk) -> Holder {
        holder_in(&self.roots, chunk)
    }

    /// Whose pages are resident in `chunk`, pinned or not; 0 if there are none, or several processes'. Those of a
    /// chunk that is being evicted are nobody's: if its owner frees it meanwhile, no change tells of that.
    pub fn resident_of(&self, chunk: Chunk) -> Holder {
        match self.contents_of(chunk) {
            Contents::Empty => 0,
            _ => self.holder_of(chunk),
        }
    }

    /// What there is in `chunk`, as its last owner said; nothing in one that is being evicted.
    pub fn contents_of(&self, chunk: Chunk) -> Contents {
        match self.root(chunk).map(|root| (root.leaving, root.belongs)) {
            Some((Leaving::No, Queue::Used)) => Contents::Data,
            Some((Leaving::No, Queue::Discarded)) => Contents::Discarded,
            _ => Contents::Empty,
        }
    }

    /// The used chunk of `holder` to push out ahead of need (pre-eviction, DeepUM §5.1): the
    /// oldest that is neither expected nor the running kernel's and was not passed over, looking at so
    /// many of its chunks at most as a policy does. It stays where it is.
    pub fn pick_early(&self, holder: Holder) -> Option<Chunk> {
        self.of(Queue::Used, holder)
            .take(REACH)
            .find(|&c| self.may_leave_early(c))
    }

    /// Whether `chunk` is neither expected nor asked for by a kernel that still runs, however long it does.
    pub fn may_leave_early(&self, chunk: Chunk) -> bool {
        self.needed_in(chunk).is_none() && self.asked_by_running(chunk).is_none()
    }

    /// Notes that `holder` uses `chunk` from now on: as [`RootChunks::set`] with [`Queue::Used`]. A free chunk stays
    /// nobody's: the report is late.
    #[inline(always)]
    pub fn used_by(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        let queue = self.queue_of(chunk);
        if queue == Some(Queue::Free) {
            return Ok(());
        }
        let running = self.running(holder);
        let root = self.give(chunk, holder)?;
        root.ask(running);
        root.belongs = Queue::Used;
        self.policy.brings(holder, false);
        match queue {
            // A pinned chunk joins its queue when it is inserted.
            None => {}
            Some(Queue::Used) => {
                self.moves(chunk, Some(Queue::Used));
                self.queues.renew(chunk, Queue::Used);
                self.comes_last(chunk, holder);
            }
            Some(_) => self.enqueue_used(chunk, holder)?,
        }
        Ok(())
    }

    /// Notes that `chunk` has no owner any more, and may not be evicted. The next owner starts afresh.
    pub fn free(&mut self, chunk: Chunk) {
        self.remove(chunk);
        if let Ok(root) = self.give(chunk, 0) {
            root.belongs = Queue::Used;
            root.forget();
        }
    }

    /// `chunk`, which [`RootChunks::pick_early`] gave for `holder`, cannot be pushed out. It is
    /// not chosen again before it was used, or pinned. Nothing happens if it is another's by
    /// now: the caller has let the lock go in between.
    pub fn pass_over(&mut self, chunk: Chunk, holder: Holder) {
        if self.holder_of(chunk) == holder {
            self.holders.unlink(chunk);
        }
    }

    /// Notes that `holder` announces a kernel, or, without `kernel`, that no known one follows: the policy may go by whose
    /// turn it is, whether or not anything is prefetched. Returns whether a turn of `holder` begins, by the policy: then the
    /// prefetcher has to look anew at what it has brought or met ([`Feed::announce`] of no kernel, before this one).
    ///
    /// [`Feed::announce`]: crate::policy::prefetch::Feed::announce
    pub fn announced(&mut self, holder: Holder, kernel: bool) -> bool {
        self.policy.begins(holder, kernel)
    }

    /// Whether there is a chunk for a block that `holder` does not have on the GPU, and that its kernel is predicted to
    /// access which is `ahead` kernels after the current one. Memory that moves no bytes is there for everybody. If
    /// all is used, the policy says whether the chunk may go that goes first, and otherwise the chunk must not be expected.
    pub fn has_room_for(&self, holder: Holder, ahead: u32) -> bool {
        let may_go = |victim: Victim| {
            let says = match victim.queue {
                Queue::Used if !self.by_default => {
                    self.policy.may_bring(holder, ahead, victim.chunk)
                }
                _ => None,
            };
            says.unwrap_or(!victim.expected)
        };
        self.victim().is_some_and(may_go)
    }

    /// Sets how many chunks can have contents at the same time. Without this call all can.
    pub fn set_room(&mut self, chunks: u32) {
        self.room = chunks;
    }

    /// The eviction of `chunk` fails: the chunk stays, and the eviction counts no more.
    #[cold]
    pub(super) fn eviction_fails(&mut self, chunk: Chunk) {
        let Ok(root) = self.root_mut(chunk) else {
            return;
        };
        let (which, used) = (root.leaving, root.belongs == Queue::Used);
        root.failed = which;
        if which == Leaving::ForOwner && !used {
            self.used_comes_first(self.holder_of(chunk));
        }
        self.comes_back(chunk, false);
    }

    /// Says whether the default policy is asked from now on, whichever is in force. A policy may insist on chunks whose
    /// eviction fails, and in the default order all chunks have their turn.
    pub fn set_by_default(&mut self, by_default: bool) {
        self.by_default = by_default;
    }

    /// Marks that `owner` expects an access to `chunk` up to its kernel number `until`.
    pub fn expect(&mut self, chunk: Chunk, owner: Owner, until: u32) {
        let Some(left) = self.left(owner, until) else {
            return;
        };
        if self.marked(chunk).is_none_or(|before| left > before) {
            if let Ok(root) = self.root_mut(chunk) {
                root.mark = Mark { owner, until };
            }
        }
        self.policy.expected(chunk);
    }

    /// Forgets who expects `chunk`, and which kernel has asked for it.
    pub fn unexpect(&mut self, chunk: Chunk) {
        if let Ok(root) = self.root_mut(chunk) {
            root.forget();
        }
    }

    /// Kernels until the one that needs `chunk`: until the one up to which it is expected, and 0 for what
    /// the running kernel has asked for and may not have had room for.
    pub fn needed_in(&self, chunk: Chunk) -> Option<u32> {
        match self.standing(chunk) {
            Standing::Running => Some(0),
            Standing::Expected(kernels) => Some(kernels),
            Standing::Over | Standing::Unknown => None,
        }
    }

    /// Whether [`RootChunks::needed_in`] has a number for `chunk`.
    #[inline(always)]
    pub(super) fn is_needed(&self, chunk: Chunk) -> bool {
        let owners = self
            .root(chunk)
            .map(|root| root.asked.owner | root.mark.owner);
        // Most processes announce nothing.
        owners.is_some_and(|owners| owners != 0) && self.needed_in(chunk).is_some()
    }

    /// How the need for `chunk` stands.
    pub(super) fn standing(&self, chunk: Chunk) -> Standing {
        let asked_by = self.asked_by_running(chunk);
        if asked_by.is_some_and(|owner| self.needs_room(owner)) {
            return Standing::Running;
        }
        if let Some(kernels) = self.marked(chunk) {
            return Standing::Expected(kernels);
        }
        match self.announces(self.holder_of(chunk)) {
            Some(_) if asked_by.is_none() => Standing::Over,
            _ => Standing::Unknown,
        }
    }

    /// The owner whose current kernel has asked for `chunk`.
    fn asked_by_running(&self, chunk: Chunk) -> Option<Owner> {
        let asked = self.root(chunk)?.asked;
        let p = self.present_of(asked.owner)?;
        (p.begun == asked.kernel).then_some(p.owner)
    }

    /// Kernels until the one up to which `chunk` is marked as expected, if it is.
    fn marked(&self, chunk: Chunk) -> Option<u32> {
        let mark = self.root(chunk)?.mark;
        self.left(mark.owner, mark.until)
    }

    /// Kernels of `owner` from its current one to `until`; `None` if that is over.
    #[inline(always)]
    fn left(&self, owner: Owner, until: u32) -> Option<u32> {
        let p = self.present_of(owner)?;
        u32::try_from(until.wrapping_sub(p.now) as i32).ok()
    }

    /// The queue that `chunk` is on.
    #[inline(always)]
    pub fn queue_of(&self, chunk: Chunk) -> Option<Queue> {
        self.queues.queue_of(chunk)
    }

    /// How many chunks are on `queue`.
    pub fn length(&self, queue: Queue) -> u32 {
        self.queues
            .counts()
            .lengths
            .get(queue as usize)
            .copied()
            .unwrap_or(0)
    }

    /// How many chunks an eviction may choose from: those that are neither free nor being evicted.
    pub fn evictable(&self) -> u32 {
        Queue::HELD.map(|queue| self.length(queue)).iter().sum()
    }
}

/// Whose `chunk` is; 0 for nobody, or several.
#[inline(always)]
fn holder_in(roots: &[Root], chunk: Chunk) -> Holder {
    roots.get(chunk as usize).map_or(0, |root| root.holder)
}

mod brought;
mod owners;
mod protect;
mod root;
#[cfg(test)]
mod tests;
