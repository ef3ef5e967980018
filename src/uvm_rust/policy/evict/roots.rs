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

use super::holders::{list_of, Holder, Holders, LISTS};
use super::lows::Lows;
use super::one::Search;
use super::policies::{self, Choice, Chooser, Standing, Used, REACH};
use super::stats::held::Contents;
use super::{Chunk, NoSuchChunk, Queue, Queues, Victim};
use crate::mem::{OutOfMemory, TryVec};

/// How many processes can mark chunks of one GPU at a time. A further process takes the place of the one that has been
/// there for longest, which must then register again.
pub const OWNERS: u32 = 64;

/// A process that marks chunks. Numbers are not used twice (within 2^32) by one
/// [`RootChunks`]; 0 is none.
pub type Owner = u32;

/// The owner that expects a chunk, and the kernel up to which it does.
#[derive(Clone, Copy, Default)]
struct Mark {
    owner: Owner,
    /// A kernel's number in its owner's sequence.
    until: u32,
}

/// The kernel that ran when a chunk was last asked for.
#[derive(Clone, Copy, Default)]
struct Asked {
    owner: Owner,
    /// The kernel's number among those that its owner has begun.
    kernel: u32,
}

/// An owner, the process that it is, and its current kernel.
#[derive(Clone, Copy, Default)]
struct Present {
    owner: Owner,
    holder: Holder,
    /// The previous owner among those whose processes share a list; 0 for none.
    next: Owner,
    /// The number of the current kernel, as far as the prefetcher has learnt. Marks are compared with it.
    now: u32,
    /// How many kernels the owner has begun, whether or not the prefetcher has learnt of them.
    begun: u32,
    /// The count of evictions when the last of these kernels began.
    since: u64,
}

/// Whether a chunk was taken for an eviction, and has not come back since.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Leaving {
    #[default]
    No,
    /// The chunk is evicted for anybody.
    Yes,
    /// The chunk goes because its own process wants another one.
    ForOwner,
}

/// The root chunks of one GPU. Locking as for [`Queues`]: only [`RootChunks::new`] and
/// [`RootChunks::with_policy`] allocate.
pub struct RootChunks {
    queues: Queues,
    /// The policy: which used chunk is evicted first.
    policy: Chooser,
    belongs: TryVec<Queue>,
    /// Whether each chunk was taken for an eviction, and has not come back since.
    leaving: TryVec<Leaving>,
    /// The chunks on the used queue that pre-eviction has not passed over.
    holders: Holders,
    /// What is protected of processes' used chunks.
    lows: Lows,
    marks: TryVec<Mark>,
    /// For each chunk, the kernel that ran when the chunk was last asked for. It has no owner if no kernel was known, or
    /// if nobody has asked for the chunk.
    asked: TryVec<Asked>,
    /// For each chunk, the mark for which a prediction brought it, until somebody asks for the chunk.
    brought: TryVec<Mark>,
    /// The owners and the kernels that they run now, by owner modulo [`OWNERS`].
    present: TryVec<Present>,
    /// The owner that came last of those whose processes have a list, by the number of that. The others follow by
    /// [`Present::next`]; each of them is in `present`.
    owners: TryVec<Owner>,
    last_owner: Owner,
    /// Evictions of used chunks that have begun, but for those that came to nothing.
    evictions: u64,
    /// Whether an eviction of each chunk is under way that counts there.
    counted: TryVec<bool>,
    /// Which eviction of each chunk has failed, as a change has told, whose end is not told yet.
    failed: TryVec<Leaving>,
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
            belongs: TryVec::filled(chunks as usize, Queue::Used)?,
            leaving: TryVec::filled(chunks as usize, Leaving::No)?,
            holders: Holders::new(chunks)?,
            lows: Lows::new(chunks)?,
            marks: TryVec::filled(chunks as usize, Mark::default())?,
            asked: TryVec::filled(chunks as usize, Asked::default())?,
            brought: TryVec::filled(chunks as usize, Mark::default())?,
            owners: TryVec::filled(LISTS, 0)?,
            present: TryVec::filled(OWNERS as usize, Present::default())?,
            last_owner: 0,
            evictions: 0,
            counted: TryVec::filled(chunks as usize, false)?,
            failed: TryVec::filled(chunks as usize, Leaving::No)?,
            by_default: false,
            room: chunks,
            chosen: None,
            chosen_for_owner: false,
            searches: TryVec::filled(LISTS, Search::default())?,
        })
    }

    /// Notes that the contents of `chunk` changed: the chunk belongs to the tail of `queue` now.
    pub fn set(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        *self.belongs.get_mut(chunk as usize).ok_or(NoSuchChunk)? = queue;
        match self.queues.queue_of(chunk) {
            // A pinned chunk joins its queue when it is inserted. A free chunk is empty: a late report does not change that.
            None | Some(Queue::Free) => Ok(()),
            Some(_) => self.enqueue(chunk, queue),
        }
    }

    /// Notes that `chunk` may be evicted from now on, and belongs to `holder`. A chunk whose contents changed while it was
    /// pinned goes to the queue of its last [`RootChunks::set`].
    pub fn insert(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        let queue = *self.belongs.get(chunk as usize).ok_or(NoSuchChunk)?;
        let before = self.holders.holder_of(chunk);
        if before != holder {
            self.give(chunk, holder);
            // A chunk that was evicted while its owner freed it comes back here without having been free.
            if before != 0 {
                self.unexpect(chunk);
            }
            // The owner was not known when the chunk was used. A chunk that the worker brought was not asked for.
            if self.asked.get(chunk as usize).is_some_and(|a| a.owner == 0) {
                self.ask(chunk, holder);
            }
        }
        self.enqueue(chunk, queue)
    }

    /// Moves `chunk` to the tail of `queue`. The holder's lists keep the orders of the queues.
    pub(super) fn enqueue(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        self.moves(chunk, Some(queue));
        let was = self.queues.enqueue(chunk, queue)?;
        match queue {
            Queue::Used => {
                self.holders.append(chunk);
                self.policy.used(chunk, self.holders.holder_of(chunk));
                return Ok(());
            }
            Queue::Discarded => self.holders.append_discarded(chunk),
            Queue::Unused => self.holders.append_unused(chunk),
            Queue::Free => self.holders.unlink(chunk),
        }
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

    /// The chunks of each process.
    pub(super) fn holders(&self) -> &Holders {
        &self.holders
    }

    /// How many chunks there are.
    pub(super) fn count(&self) -> u32 {
        self.belongs.len() as u32
    }

    /// Whether `chunk` was taken for an eviction, of which no change has told the end.
    pub fn is_leaving(&self, chunk: Chunk) -> bool {
        self.leaving_of(chunk) != Leaving::No
    }

    /// Whether that eviction makes room for the chunk's own process ([`RootChunks::choose_of`]).
    pub fn leaves_for_owner(&self, chunk: Chunk) -> bool {
        self.leaving_of(chunk) == Leaving::ForOwner
    }

    fn leaving_of(&self, chunk: Chunk) -> Leaving {
        let leaving = self.leaving.get(chunk as usize).copied();
        leaving.unwrap_or_default()
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
    pub fn holder_of(&self, chunk: Chunk) -> Holder {
        self.holders.holder_of(chunk)
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
        match self.belongs.get(chunk as usize) {
            _ if self.is_leaving(chunk) => Contents::Empty,
            Some(Queue::Used) => Contents::Data,
            Some(Queue::Discarded) => Contents::Discarded,
            _ => Contents::Empty,
        }
    }

    /// The used chunk of `holder` to push out ahead of need (pre-eviction, DeepUM §5.1): the
    /// oldest that is neither expected nor the running kernel's and was not passed over, looking at so
    /// many of its chunks at most as a policy does. It stays where it is.
    pub fn pick_early(&self, holder: Holder) -> Option<Chunk> {
        self.holders
            .of(holder)
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
        if self.queue_of(chunk) == Some(Queue::Free) {
            return Ok(());
        }
        self.give(chunk, holder);
        self.ask(chunk, holder);
        self.set(chunk, Queue::Used)
    }

    /// Notes that `chunk` has no owner any more, and may not be evicted. The next owner starts afresh.
    pub fn free(&mut self, chunk: Chunk) {
        self.remove(chunk);
        self.give(chunk, 0);
        if let Some(queue) = self.belongs.get_mut(chunk as usize) {
            *queue = Queue::Used;
        }
        self.unexpect(chunk);
    }

    /// `chunk`, which [`RootChunks::pick_early`] gave for `holder`, cannot be pushed out. It is
    /// not chosen again before it was used, or pinned. Nothing happens if it is another's by
    /// now: the caller has let the lock go in between.
    pub fn pass_over(&mut self, chunk: Chunk, holder: Holder) {
        if self.holders.holder_of(chunk) == holder {
            self.holders.unlink(chunk);
        }
    }

    /// Adds an owner, whose current kernel has number 0: the process that uses chunks as `holder`.
    pub fn add_owner(&mut self, holder: Holder) -> Owner {
        let owner = self.last_owner.wrapping_add(1).max(1);
        self.last_owner = owner;
        let place = (owner % OWNERS) as usize;
        // The owner that had this place before goes.
        if let Some(first) = self.present.get(place).map(|p| p.owner) {
            self.remove_owner(first);
        }
        let since = self.evictions;
        let of_list = self.owners.get_mut(list_of(holder));
        if let (Some(p), Some(of_list)) = (self.present.get_mut(place), of_list) {
            *p = Present {
                owner,
                holder,
                next: core::mem::replace(of_list, owner),
                now: 0,
                begun: 0,
                since,
            };
        }
        owner
    }

    /// Removes an owner, and makes its marks void.
    pub fn remove_owner(&mut self, owner: Owner) {
        let Some(gone) = self.present_mut(owner).map(core::mem::take) else {
            return;
        };
        let list = list_of(gone.holder);
        let before = self.of_list(list).find(|p| p.next == owner);
        let link = match before.map(|p| p.owner) {
            Some(before) => self.present_mut(before).map(|p| &mut p.next),
            None => self.owners.get_mut(list),
        };
        if let Some(link) = link {
            *link = gone.next;
        }
    }

    /// Removes all owners that are the process `holder`, which comes to the GPU, maybe once more. What it announced before
    /// it left the GPU is over. One that was there before may have had its number, and gone without a word.
    pub fn remove_owners_of(&mut self, holder: Holder) {
        while let Some(owner) = self.announces(holder).map(|p| p.owner) {
            self.remove_owner(owner);
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

    /// Notes that the process of an owner begins another kernel. The announcement calls this at once: otherwise chunks that
    /// the kernel asks for would count as the last kernel's until the prefetcher learns of it. False if the owner is gone.
    pub fn begins(&mut self, owner: Owner) -> bool {
        let since = self.evictions;
        let Some(p) = self.present_mut(owner) else {
            return false;
        };
        (p.begun, p.since) = (p.begun.wrapping_add(1), since);
        true
    }

    /// Notes the prefetcher's knowledge that the owner's current kernel has number `now`: marks up to earlier kernels are
    /// void. False if the owner is gone.
    pub fn set_now(&mut self, owner: Owner, now: u32) -> bool {
        self.present_mut(owner).map(|p| p.now = now).is_some()
    }

    /// Sets how many chunks can have contents at the same time. Without this call all can.
    pub fn set_room(&mut self, chunks: u32) {
        self.room = chunks;
    }

    /// Counts an eviction of `chunk`, a used one, which begins now.
    pub(super) fn count_eviction(&mut self, chunk: Chunk) {
        self.evictions = self.evictions.saturating_add(1);
        if let Some(counted) = self.counted.get_mut(chunk as usize) {
            *counted = true;
        }
    }

    /// The eviction of `chunk` is over, and counts no more unless it `got` the chunk.
    pub(super) fn eviction_counts(&mut self, chunk: Chunk, got: bool) {
        let counted = self.counted.get_mut(chunk as usize);
        if counted.is_some_and(core::mem::take) && !got {
            self.evictions = self.evictions.saturating_sub(1);
        }
    }

    /// The eviction of `chunk` fails: the chunk stays, and the eviction counts no more.
    pub(super) fn eviction_fails(&mut self, chunk: Chunk) {
        let which = self.leaving_of(chunk);
        let used = self.belongs.get(chunk as usize) == Some(&Queue::Used);
        if which == Leaving::ForOwner && !used {
            self.used_comes_first(self.holder_of(chunk));
        }
        self.leaves(chunk, Leaving::No);
        self.eviction_counts(chunk, false);
        if let Some(failed) = self.failed.get_mut(chunk as usize) {
            *failed = which;
        }
    }

    /// Which eviction of `chunk` has failed, as a change has told; [`Leaving::No`] if none has. The answer is given once.
    pub(super) fn has_failed(&mut self, chunk: Chunk) -> Leaving {
        let failed = self.failed.get_mut(chunk as usize);
        failed.map(core::mem::take).unwrap_or_default()
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
            if let Some(mark) = self.marks.get_mut(chunk as usize) {
                *mark = Mark { owner, until };
            }
        }
        self.policy.expected(chunk);
    }

    /// Notes that `holder` has asked for `chunk`, for the kernel that it runs, if that is known.
    fn ask(&mut self, chunk: Chunk, holder: Holder) {
        let running = self.announces(holder).map(|p| Asked {
            owner: p.owner,
            kernel: p.begun,
        });
        if let Some(asked) = self.asked.get_mut(chunk as usize) {
            *asked = running.unwrap_or_default();
        }
        self.not_brought(chunk);
        self.policy.brings(holder, false);
    }

    /// Forgets who expects `chunk`, and which kernel has asked for it.
    pub fn unexpect(&mut self, chunk: Chunk) {
        if let Some(mark) = self.marks.get_mut(chunk as usize) {
            *mark = Mark::default();
        }
        if let Some(asked) = self.asked.get_mut(chunk as usize) {
            *asked = Asked::default();
        }
        self.not_brought(chunk);
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
        let asked = self.asked.get(chunk as usize)?;
        let p = self.present_of(asked.owner)?;
        (p.begun == asked.kernel).then_some(p.owner)
    }

    /// Kernels until the one up to which `chunk` is marked as expected, if it is.
    fn marked(&self, chunk: Chunk) -> Option<u32> {
        let mark = self.marks.get(chunk as usize)?;
        self.left(mark.owner, mark.until)
    }

    /// Kernels of `owner` from its current one to `until`; `None` if that is over.
    fn left(&self, owner: Owner, until: u32) -> Option<u32> {
        let p = self.present_of(owner)?;
        u32::try_from(until.wrapping_sub(p.now) as i32).ok()
    }

    /// Whether the current kernel of `owner` may not have had room yet for all that it needs at once.
    fn needs_room(&self, owner: Owner) -> bool {
        let since = self.present_of(owner).map(|p| p.since);
        // An eviction that came to nothing may have been counted in `since`.
        since.is_some_and(|since| self.evictions.saturating_sub(since) <= self.room.into())
    }

    fn present_of(&self, owner: Owner) -> Option<&Present> {
        let p = self.present.get((owner % OWNERS) as usize)?;
        (owner != 0 && p.owner == owner).then_some(p)
    }

    /// The owner whose process is `holder`, if there is one; the last that was added.
    fn announces(&self, holder: Holder) -> Option<&Present> {
        let mut owners = self.of_list(list_of(holder));
        owners.find(|p| holder != 0 && p.holder == holder)
    }

    /// The owners whose processes have list number `list`, the one that came last first.
    fn of_list(&self, list: usize) -> impl Iterator<Item = &Present> + '_ {
        let last = self.owners.get(list).and_then(|&o| self.present_of(o));
        core::iter::successors(last, |p| self.present_of(p.next)).take(OWNERS as usize)
    }

    fn present_mut(&mut self, owner: Owner) -> Option<&mut Present> {
        let p = self.present.get_mut((owner % OWNERS) as usize)?;
        (owner != 0 && p.owner == owner).then_some(p)
    }

    /// The queue that `chunk` is on.
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
}

mod brought;
mod protect;
#[cfg(test)]
mod tests;
