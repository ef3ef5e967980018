// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Queues for a manager that pins chunks while they are worked on.
//!
//! Upstream's physical memory manager (PMM) pins a chunk while a va_block works on it, and evicts none that is
//! pinned. What a pinned chunk holds may change all the same, so each chunk has,
//! besides the queue it is on, the queue it belongs to. For the same reason a
//! chunk whose eviction failed returns to where it came from.
//!
//! A free chunk is on the free queue too ([`RootChunks::change`]), and on the PMM's own free list, from which
//! allocations take it; a chunk that is split, and its free parts, are the PMM's alone.
//!
//! A used chunk is somebody's: pre-eviction takes the oldest of one process, not of all
//! (`holders.rs`). A used chunk may be expected (DeepUM §5.1): one of several owners, a process that
//! prefetches, has marked it up to one of its kernels, and is spared until that has
//! run. An owner's marks are void when it goes, or a chunk's when it changes hands.
//!
//! A kernel may need what nobody expects. So a chunk that came while the owner's kernel runs, for a fault
//! or a migration that was asked for, is the running kernel's until the next one begins, and goes after all
//! that is only expected ([`Standing`]). It is so for as many evictions of used chunks as there are chunks: by then the
//! kernel has had room for all that it can have at once. A process that announces nothing more, as it
//! waits for its user or is over, holds nothing back from others for longer than that: what its kernel asked for is then
//! like a chunk of a process that announces nothing. It is not like one of a kernel that is over, which makes way for
//! what is expected: a kernel that goes through much memory would have to fault for ever on what it needs at once.

use super::holders::{list_of, Holder, Holders, LISTS};
use super::policies::{Choice, Chooser, Standing, Used, REACH};
use super::{Chunk, NoSuchChunk, Queue, Queues, Victim};
use crate::mem::{OutOfMemory, TryVec};

/// Processes that can mark chunks of one GPU at a time; one more takes the place of the
/// one that has been there for longest, which then has to come again.
pub const OWNERS: u32 = 64;

/// A process that marks chunks. Numbers are not used twice (within 2^32) by one
/// [`RootChunks`]; 0 is none.
pub type Owner = u32;

/// Up to when a chunk is expected, and by whom.
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
    /// Its number among those that its owner has begun.
    kernel: u32,
}

/// An owner, the process that it is, and its current kernel.
#[derive(Clone, Copy, Default)]
struct Present {
    owner: Owner,
    holder: Holder,
    /// The owner that came before it, of those whose processes have the same list; 0 for none.
    next: Owner,
    /// The number of its current kernel, as far as the prefetcher has learnt: what marks are compared with.
    now: u32,
    /// Kernels that it has begun, learnt of or not.
    begun: u32,
    /// Evictions that there had been when the last of them began.
    since: u64,
}

/// The root chunks of one GPU. Locking as for [`Queues`]: only [`RootChunks::new`] and
/// [`RootChunks::with_policy`] allocate.
pub struct RootChunks {
    queues: Queues,
    /// Which of the used chunks goes first.
    policy: Chooser,
    belongs: TryVec<Queue>,
    /// Whether each chunk was taken for an eviction, and has not come back since.
    leaving: TryVec<bool>,
    /// Those that are on the used queue and were not passed over.
    holders: Holders,
    marks: TryVec<Mark>,
    /// The kernel that ran when each chunk was last asked for; that of no owner if no kernel was known, or
    /// if the chunk is not asked for.
    asked: TryVec<Asked>,
    /// The owners and the kernels that they run now, by owner modulo [`OWNERS`].
    present: TryVec<Present>,
    /// The owner that came last of those whose processes have a list, by the number of that. The others follow by
    /// [`Present::next`]; each of them is in `present`.
    owners: TryVec<Owner>,
    last_owner: Owner,
    /// Evictions of used chunks that have begun.
    evictions: u64,
    /// Chunks that may hold something at the same time.
    room: u32,
    /// The chunk that was chosen last, until an eviction begins.
    pub(super) chosen: Option<Chunk>,
}

impl RootChunks {
    /// For chunks 0 to `chunks` - 1, all of them pinned or free; used ones go by the default policy.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Self::with_policy(chunks, Choice::default())
    }

    /// As [`RootChunks::new`], with a policy of the caller's choice.
    pub fn with_policy(chunks: u32, choice: Choice) -> Result<Self, OutOfMemory> {
        Ok(Self {
            queues: Queues::new(chunks)?,
            policy: Chooser::new(choice, chunks)?,
            belongs: TryVec::filled(chunks as usize, Queue::Used)?,
            leaving: TryVec::filled(chunks as usize, false)?,
            holders: Holders::new(chunks)?,
            marks: TryVec::filled(chunks as usize, Mark::default())?,
            asked: TryVec::filled(chunks as usize, Asked::default())?,
            owners: TryVec::filled(LISTS, 0)?,
            present: TryVec::filled(OWNERS as usize, Present::default())?,
            last_owner: 0,
            evictions: 0,
            room: chunks,
            chosen: None,
        })
    }

    /// What `chunk` holds changed: it belongs to `queue` now, at its tail.
    pub fn set(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        *self.belongs.get_mut(chunk as usize).ok_or(NoSuchChunk)? = queue;
        match self.queues.queue_of(chunk) {
            // It holds nothing, whatever it came to hold last.
            None | Some(Queue::Free) => Ok(()),
            Some(_) => self.enqueue(chunk, queue),
        }
    }

    /// `chunk` may be evicted from now on, and is `holder`'s. What a chunk came to hold while
    /// it was pinned is on the queue it was [`RootChunks::set`] to.
    pub fn insert(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        let queue = *self.belongs.get(chunk as usize).ok_or(NoSuchChunk)?;
        let before = self.holders.holder_of(chunk);
        if before != holder {
            self.holders.give(chunk, holder);
            // What was evicted while its owner freed it comes back without having been free.
            if before != 0 {
                self.unexpect(chunk);
            }
            // Nobody knew whose it was when it was used. What the worker brought is nobody's wish.
            if self.asked.get(chunk as usize).is_some_and(|a| a.owner == 0) {
                self.ask(chunk, holder);
            }
        }
        self.enqueue(chunk, queue)
    }

    /// `chunk` goes to the tail of `queue`. Its holder's list has the order of the used queue.
    pub(super) fn enqueue(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        let was = self.queues.enqueue(chunk, queue)?;
        if queue == Queue::Used {
            self.holders.append(chunk);
            self.policy.used(chunk);
        } else {
            self.holders.unlink(chunk);
            if was == Some(Queue::Used) {
                self.policy.left(chunk);
            }
        }
        Ok(())
    }

    /// `chunk` is free, after others that are if it is `zeroed`, before them if it is not.
    pub(super) fn queue_free(&mut self, chunk: Chunk, zeroed: bool) -> Result<(), NoSuchChunk> {
        self.enqueue(chunk, Queue::Free)?;
        if !zeroed {
            self.queues.make_oldest(chunk);
        }
        Ok(())
    }

    /// `chunk` may not be evicted from now on. Returns the queue it was on.
    pub fn remove(&mut self, chunk: Chunk) -> Option<Queue> {
        self.holders.unlink(chunk);
        let was = self.queues.remove(chunk).ok().flatten();
        if was == Some(Queue::Used) {
            self.policy.left(chunk);
        }
        was
    }

    /// Says whether `chunk` is taken for an eviction.
    pub(super) fn leaves(&mut self, chunk: Chunk, whether: bool) {
        if let Some(leaving) = self.leaving.get_mut(chunk as usize) {
            *leaving = whether;
        }
    }

    /// The chunk to reclaim next; it stays where it is.
    pub fn pick(&self) -> Option<Chunk> {
        Some(self.victim()?.chunk)
    }

    /// The same, with where it is and whether it is expected.
    pub fn victim(&self) -> Option<Victim> {
        self.queues.for_nothing().or_else(|| {
            let chosen = self.policy.choose(Used(self));
            // Whatever the policy says, what goes is a chunk that may be evicted.
            let chunk = chosen
                .filter(|&c| self.queue_of(c) == Some(Queue::Used))
                .or_else(|| self.queues.oldest(Queue::Used))?;
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

    /// Whose `chunk` is; 0 if it is several processes', or nobody's.
    pub(super) fn holder_of(&self, chunk: Chunk) -> Holder {
        self.holders.holder_of(chunk)
    }

    /// Whose pages are resident in `chunk`, pinned or not; 0 if there are none, or several processes'. Those of a
    /// chunk that is being evicted are nobody's: if its owner frees it meanwhile, no change tells of that.
    pub fn resident_of(&self, chunk: Chunk) -> Holder {
        if self.leaving.get(chunk as usize) == Some(&true) {
            return 0;
        }
        match self.belongs.get(chunk as usize) {
            Some(Queue::Used | Queue::Discarded) => self.holder_of(chunk),
            _ => 0,
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

    /// `holder` uses `chunk`, from now on: as [`RootChunks::set`] with [`Queue::Used`].
    pub fn used_by(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        self.holders.give(chunk, holder);
        self.ask(chunk, holder);
        self.set(chunk, Queue::Used)
    }

    /// `chunk` is nobody's any more, and may not be evicted: whoever gets it next starts
    /// afresh.
    pub fn free(&mut self, chunk: Chunk) {
        self.remove(chunk);
        self.holders.give(chunk, 0);
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

    /// A new owner, whose current kernel has number 0: the process that uses chunks as `holder`.
    pub fn add_owner(&mut self, holder: Holder) -> Owner {
        let owner = self.last_owner.wrapping_add(1).max(1);
        self.last_owner = owner;
        let place = (owner % OWNERS) as usize;
        // Who was there before.
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

    /// An owner goes, and its marks with it.
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

    /// The process of an owner begins another kernel: whoever runs it says so at once, so that what this kernel asks for
    /// is not taken for the last one's until the prefetcher learns of it. False if that owner is no more.
    pub fn begins(&mut self, owner: Owner) -> bool {
        let since = self.evictions;
        let Some(p) = self.present_mut(owner) else {
            return false;
        };
        (p.begun, p.since) = (p.begun.wrapping_add(1), since);
        true
    }

    /// The prefetcher has learnt that the current kernel of an owner has number `now`: marks up to earlier ones are
    /// void. False if that owner is no more.
    pub fn set_now(&mut self, owner: Owner, now: u32) -> bool {
        self.present_mut(owner).map(|p| p.now = now).is_some()
    }

    /// No more than so many of the chunks hold something at the same time. Without this call all may.
    pub fn set_room(&mut self, chunks: u32) {
        self.room = chunks;
    }

    /// Counts an eviction of a used chunk, which begins now.
    pub(super) fn count_eviction(&mut self) {
        self.evictions = self.evictions.wrapping_add(1);
    }

    /// `owner` expects an access to `chunk` up to its kernel number `until`.
    pub fn expect(&mut self, chunk: Chunk, owner: Owner, until: u32) {
        let Some(left) = self.left(owner, until) else {
            return;
        };
        if self.marked(chunk).is_none_or(|before| left > before) {
            if let Some(mark) = self.marks.get_mut(chunk as usize) {
                *mark = Mark { owner, until };
            }
        }
    }

    /// `owner` has brought `chunk` on a guess: no kernel has asked for it yet.
    pub fn brought(&mut self, chunk: Chunk, owner: Owner) {
        let before = self.present_of(owner).map(|p| p.begun.wrapping_sub(1));
        if let (Some(asked), Some(kernel)) = (self.asked.get_mut(chunk as usize), before) {
            *asked = Asked { owner, kernel };
        }
    }

    /// `holder` has asked for `chunk`, for the kernel that it runs if that is known.
    fn ask(&mut self, chunk: Chunk, holder: Holder) {
        let running = self.announces(holder).map(|p| Asked {
            owner: p.owner,
            kernel: p.begun,
        });
        if let Some(asked) = self.asked.get_mut(chunk as usize) {
            *asked = running.unwrap_or_default();
        }
    }

    /// Nobody expects `chunk` any more, and no kernel has asked for it.
    pub fn unexpect(&mut self, chunk: Chunk) {
        if let Some(mark) = self.marks.get_mut(chunk as usize) {
            *mark = Mark::default();
        }
        if let Some(asked) = self.asked.get_mut(chunk as usize) {
            *asked = Asked::default();
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

    /// What is known of who needs `chunk`.
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
        since.is_some_and(|since| self.evictions.wrapping_sub(since) <= self.room.into())
    }

    fn present_of(&self, owner: Owner) -> Option<&Present> {
        let p = self.present.get((owner % OWNERS) as usize)?;
        (owner != 0 && p.owner == owner).then_some(p)
    }

    /// The owner that `holder` is, if it is one: the one that came last.
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

#[cfg(test)]
mod tests;
