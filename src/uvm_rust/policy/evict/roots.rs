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

use super::holders::{Holder, Holders};
use super::policies::{Choice, Chooser, Used, REACH};
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

/// An owner, and its current kernel's number.
#[derive(Clone, Copy, Default)]
struct Present {
    owner: Owner,
    now: u32,
}

/// The root chunks of one GPU. Locking as for [`Queues`]: only [`RootChunks::new`] and
/// [`RootChunks::with_policy`] allocate.
pub struct RootChunks {
    queues: Queues,
    /// Which of the used chunks goes first.
    policy: Chooser,
    belongs: TryVec<Queue>,
    /// Those that are on the used queue and were not passed over.
    holders: Holders,
    marks: TryVec<Mark>,
    /// The kernel that each owner runs now, by owner modulo [`OWNERS`].
    present: TryVec<Present>,
    last_owner: Owner,
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
            holders: Holders::new(chunks)?,
            marks: TryVec::filled(chunks as usize, Mark::default())?,
            present: TryVec::filled(OWNERS as usize, Present::default())?,
            last_owner: 0,
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

    /// The used chunk of `holder` to push out ahead of need (pre-eviction, DeepUM §5.1): the
    /// oldest that is not expected and was not passed over, looking at so many of its chunks
    /// at most as a policy does. It stays where it is.
    pub fn pick_early(&self, holder: Holder) -> Option<Chunk> {
        self.holders
            .of(holder)
            .take(REACH)
            .find(|&c| self.needed_in(c).is_none())
    }

    /// `holder` uses `chunk`, from now on: as [`RootChunks::set`] with [`Queue::Used`].
    pub fn used_by(&mut self, chunk: Chunk, holder: Holder) -> Result<(), NoSuchChunk> {
        self.holders.give(chunk, holder);
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

    /// A new owner, whose current kernel has number 0.
    pub fn add_owner(&mut self) -> Owner {
        let owner = self.last_owner.wrapping_add(1).max(1);
        self.last_owner = owner;
        if let Some(p) = self.present.get_mut((owner % OWNERS) as usize) {
            *p = Present { owner, now: 0 };
        }
        owner
    }

    /// An owner goes, and its marks with it.
    pub fn remove_owner(&mut self, owner: Owner) {
        if let Some(p) = self.present_mut(owner) {
            *p = Present::default();
        }
    }

    /// The current kernel of an owner has number `now`. False if that owner is no more.
    pub fn set_now(&mut self, owner: Owner, now: u32) -> bool {
        self.present_mut(owner).map(|p| p.now = now).is_some()
    }

    /// `owner` expects an access to `chunk` up to its kernel number `until`.
    pub fn expect(&mut self, chunk: Chunk, owner: Owner, until: u32) {
        let Some(left) = self.left(owner, until) else {
            return;
        };
        if self.needed_in(chunk).is_none_or(|before| left > before) {
            if let Some(mark) = self.marks.get_mut(chunk as usize) {
                *mark = Mark { owner, until };
            }
        }
    }

    /// Nobody expects `chunk` any more.
    pub fn unexpect(&mut self, chunk: Chunk) {
        if let Some(mark) = self.marks.get_mut(chunk as usize) {
            *mark = Mark::default();
        }
    }

    /// Kernels until the one up to which `chunk` is expected, if it is.
    pub fn needed_in(&self, chunk: Chunk) -> Option<u32> {
        let mark = self.marks.get(chunk as usize)?;
        self.left(mark.owner, mark.until)
    }

    /// Kernels of `owner` from its current one to `until`; `None` if that is over.
    fn left(&self, owner: Owner, until: u32) -> Option<u32> {
        let p = self.present.get((owner % OWNERS) as usize)?;
        if owner == 0 || p.owner != owner {
            return None;
        }
        u32::try_from(until.wrapping_sub(p.now) as i32).ok()
    }

    fn present_mut(&mut self, owner: Owner) -> Option<&mut Present> {
        let p = self.present.get_mut((owner % OWNERS) as usize)?;
        (owner != 0 && p.owner == owner).then_some(p)
    }

    /// The queue that `chunk` is on.
    pub fn queue_of(&self, chunk: Chunk) -> Option<Queue> {
        self.queues.queue_of(chunk)
    }

    /// Whether `chunk` is one of these.
    pub fn has(&self, chunk: Chunk) -> bool {
        (chunk as usize) < self.marks.len()
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const HOLDER: Holder = 5;

    fn evictable(chunks: u32) -> RootChunks {
        let mut roots = RootChunks::new(chunks).unwrap();
        (0..chunks).for_each(|c| roots.used_by(c, HOLDER).unwrap());
        (0..chunks).for_each(|c| roots.insert(c, HOLDER).unwrap());
        roots
    }

    #[test]
    fn discarded_goes_before_used_and_in_order() {
        let mut roots = evictable(4);
        roots.set(2, Queue::Discarded).unwrap();
        roots.set(1, Queue::Discarded).unwrap();
        roots.set(3, Queue::Unused).unwrap();
        let order: Vec<_> = core::iter::from_fn(|| {
            let chunk = roots.pick()?;
            roots.remove(chunk);
            Some(chunk)
        })
        .collect();
        assert_eq!(order, [3, 2, 1, 0]);
    }

    #[test]
    fn what_changes_while_pinned_counts_when_unpinned() {
        let mut roots = evictable(2);
        assert_eq!(roots.remove(0), Some(Queue::Used));
        roots.set(0, Queue::Discarded).unwrap();
        assert_eq!((roots.queue_of(0), roots.pick()), (None, Some(1)));
        roots.insert(0, HOLDER).unwrap();
        assert_eq!(
            (roots.queue_of(0), roots.pick()),
            (Some(Queue::Discarded), Some(0))
        );
        assert_eq!(roots.length(Queue::Discarded), 1);
        // An eviction that failed: back where it was.
        roots.remove(0);
        roots.insert(0, HOLDER).unwrap();
        assert_eq!(roots.queue_of(0), Some(Queue::Discarded));
    }

    #[test]
    fn what_is_expected_is_spared_until_its_kernel_has_run() {
        let mut roots = evictable(3);
        let owner = roots.add_owner();
        assert!(roots.set_now(owner, u32::MAX));
        roots.expect(0, owner, 1);
        roots.expect(1, owner, 0);
        assert_eq!((roots.needed_in(0), roots.needed_in(1)), (Some(2), Some(1)));
        assert_eq!((roots.pick(), roots.pick_early(HOLDER)), (Some(2), Some(2)));
        roots.expect(2, owner, 5);
        // All are expected: the one needed last, and only for need.
        let victim = roots.victim().unwrap();
        assert_eq!((victim.chunk, victim.expected), (2, true));
        assert_eq!(roots.pick_early(HOLDER), None);
        // An earlier kernel does not take a mark back; a fresh owner of the chunk does.
        roots.expect(2, owner, 0);
        assert_eq!(roots.needed_in(2), Some(6));
        roots.unexpect(2);
        assert_eq!(roots.pick_early(HOLDER), Some(2));
        roots.set_now(owner, 1);
        assert_eq!(
            (roots.needed_in(1), roots.pick_early(HOLDER)),
            (None, Some(1))
        );
        roots.remove_owner(owner);
        assert_eq!((roots.needed_in(0), roots.pick()), (None, Some(0)));
    }

    #[test]
    fn one_owner_too_many_takes_the_place_of_the_first() {
        let mut roots = evictable(2);
        let first = roots.add_owner();
        roots.expect(0, first, 9);
        assert_eq!((roots.needed_in(0), roots.pick()), (Some(9), Some(1)));
        let others: Vec<_> = (0..OWNERS).map(|_| roots.add_owner()).collect();
        assert!(!roots.set_now(first, 1), "it has to come again");
        assert_eq!((roots.needed_in(0), roots.pick()), (None, Some(0)));
        assert!(others.iter().all(|&o| roots.set_now(o, 1)));
        roots.expect(0, 0, 9);
        roots.expect(9, others[0], 9);
        assert_eq!(roots.needed_in(0), None, "0 is nobody");
    }

    /// Pre-eviction moves memory of the process that asks for it, and no other.
    #[test]
    fn a_foreign_chunk_is_no_obstacle_to_pushing_out() {
        let (ours, theirs) = (7, 8);
        let mut roots = RootChunks::new(2000).unwrap();
        // The oldest are another's, and far more than any walk looks at.
        (0..1900).for_each(|c| roots.used_by(c, theirs).unwrap());
        (1900..1903).for_each(|c| roots.used_by(c, ours).unwrap());
        for c in 0..2000 {
            let whose = roots.holders.holder_of(c);
            roots.insert(c, whose).unwrap();
        }
        assert_eq!(roots.pick_early(ours), Some(1900));
        assert_eq!(roots.pick_early(theirs), Some(0));
        assert_eq!(roots.pick_early(9), None);
        // For need the oldest of all goes, whoever's.
        assert_eq!(roots.pick(), Some(0));
        // It changes hands.
        roots.used_by(1900, theirs).unwrap();
        assert_eq!(roots.pick_early(ours), Some(1901));
    }

    #[test]
    fn what_cannot_be_pushed_out_is_not_chosen_again_until_it_is_used() {
        let mut roots = evictable(3);
        roots.pass_over(0, HOLDER);
        assert_eq!((roots.pick_early(HOLDER), roots.pick()), (Some(1), Some(0)));
        roots.pass_over(1, HOLDER);
        roots.pass_over(2, HOLDER);
        assert_eq!(roots.pick_early(HOLDER), None);
        roots.used_by(1, HOLDER).unwrap();
        assert_eq!(roots.pick_early(HOLDER), Some(1));
        // What was pinned may have changed.
        roots.pass_over(1, HOLDER);
        roots.remove(0);
        roots.insert(0, HOLDER).unwrap();
        assert_eq!(roots.pick_early(HOLDER), Some(0));
    }

    /// Split, it holds pages of several processes, and none of them is told apart.
    #[test]
    fn what_was_freed_is_nobodys_when_it_comes_back() {
        let mut roots = evictable(2);
        let owner = roots.add_owner();
        roots.expect(0, owner, 9);
        roots.free(0);
        assert_eq!((roots.queue_of(0), roots.needed_in(0)), (None, None));
        // Another gets it, splits it, and works on its parts.
        for _ in 0..3 {
            roots.set(0, Queue::Used).unwrap();
            roots.insert(0, 0).unwrap();
        }
        assert_eq!(roots.pick_early(HOLDER), Some(1));
        roots.remove(1);
        assert_eq!(roots.pick_early(HOLDER), None, "0 is not its any more");
        assert_eq!(roots.pick_early(0), None, "and 0 is nobody");
        // For need it goes as any other.
        assert_eq!(roots.pick(), Some(0));
        roots.used_by(0, HOLDER + 1).unwrap();
        assert_eq!(roots.pick_early(HOLDER + 1), Some(0));
    }

    /// A chunk is pinned through all of the operation that fills it, and whose it is is told
    /// when that is over: pages that one migration brought are never used again otherwise.
    #[test]
    fn what_one_operation_filled_can_be_pushed_out() {
        let mut roots = RootChunks::new(2).unwrap();
        for chunk in 0..2 {
            roots.used_by(chunk, 0).unwrap();
            roots.insert(chunk, HOLDER).unwrap();
        }
        assert_eq!(roots.pick_early(HOLDER), Some(0));
        // Pinned, and as it was: no sooner than the other, which was not.
        roots.remove(0);
        roots.insert(0, HOLDER).unwrap();
        assert_eq!(roots.pick_early(HOLDER), Some(1));
    }

    /// Between choosing a chunk and passing it over, no lock is held.
    #[test]
    fn a_chunk_is_not_passed_over_for_the_sake_of_its_last_holder() {
        let mut roots = evictable(1);
        let chunk = roots.pick_early(HOLDER).unwrap();
        roots.used_by(chunk, HOLDER + 1).unwrap();
        roots.pass_over(chunk, HOLDER);
        assert_eq!(roots.pick_early(HOLDER + 1), Some(chunk));
        roots.pass_over(chunk, HOLDER + 1);
        assert_eq!(roots.pick_early(HOLDER + 1), None);
    }

    #[test]
    fn a_chunk_out_of_range_is_refused() {
        let mut roots = evictable(1);
        assert_eq!(roots.set(1, Queue::Used), Err(NoSuchChunk));
        assert_eq!(roots.insert(1, HOLDER), Err(NoSuchChunk));
        assert_eq!(roots.used_by(1, 3), Err(NoSuchChunk));
        roots.pass_over(1, 0);
        roots.free(1);
        assert_eq!((roots.remove(1), roots.queue_of(1)), (None, None));
    }

    proptest! {
        #![proptest_config(crate::testing::model(512))]

        /// Against a list of chunks in order of arrival, looked through from end to end.
        #[test]
        fn picks_as_a_plain_list_would(steps in proptest::collection::vec((0..6u32, 0..9u8, 0..3u64), 1..crate::testing::steps(100))) {
            let kinds = [Queue::Unused, Queue::Discarded, Queue::Used];
            let mut roots = RootChunks::new(6).unwrap();
            let owner = roots.add_owner();
            // Of each chunk: where it belongs, who holds it, whether it is passed over.
            let mut chunks = [(Queue::Used, 0, false); 6];
            let mut on: Vec<u32> = Vec::new();
            for (chunk, step, holder) in steps {
                let was = on.iter().position(|&c| c == chunk);
                let one = &mut chunks[chunk as usize];
                match step {
                    0..=3 => {
                        if step == 3 {
                            roots.used_by(chunk, holder).unwrap();
                            *one = (Queue::Used, holder, false);
                        } else {
                            let queue = kinds[step as usize];
                            roots.set(chunk, queue).unwrap();
                            *one = (queue, one.1, false);
                        }
                        if let Some(at) = was {
                            on.remove(at);
                            on.push(chunk);
                        }
                    }
                    4 => {
                        roots.insert(chunk, holder).unwrap();
                        (one.1, one.2) = (holder, false);
                        on.retain(|&c| c != chunk);
                        on.push(chunk);
                    }
                    5 => {
                        roots.pass_over(chunk, holder);
                        one.2 |= one.1 == holder;
                    }
                    // Expected up to the kernel after this, and that is over at once, or not.
                    6 => {
                        roots.expect(chunk, owner, 1);
                        roots.set_now(owner, 2 * u32::from(holder == 0));
                    }
                    7 => {
                        roots.free(chunk);
                        prop_assert_eq!(roots.needed_in(chunk), None);
                        (one.0, one.1) = (Queue::Used, 0);
                        on.retain(|&c| c != chunk);
                    }
                    _ => {
                        let removed = roots.remove(chunk);
                        prop_assert_eq!(removed, was.map(|_| one.0));
                        on.retain(|&c| c != chunk);
                    }
                }
                let belongs = |c: u32| chunks[c as usize].0;
                let first = on.iter().copied().min_by_key(|&c| (belongs(c), roots.needed_in(c).is_some()));
                if first.is_none_or(|c| roots.needed_in(c).is_none() || belongs(c) < Queue::Used) {
                    let first = on.iter().copied().min_by_key(|&c| (belongs(c), belongs(c) == Queue::Used && roots.needed_in(c).is_some()));
                    prop_assert_eq!(roots.pick(), first);
                }
                for holder in 0..3 {
                    // 0 is nobody, who pushes nothing out.
                    let early = on.iter().copied().find(|&c| {
                        holder != 0 && chunks[c as usize] == (Queue::Used, holder, false) && roots.needed_in(c).is_none()
                    });
                    prop_assert_eq!(roots.pick_early(holder), early);
                }
            }
        }
    }
}
