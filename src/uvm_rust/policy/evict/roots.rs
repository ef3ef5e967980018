// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Queues for a manager that pins chunks while they are worked on.
//!
//! Upstream's physical memory manager (PMM) pins a chunk while a va_block works on it, and evicts none that is
//! pinned. What a pinned chunk holds may change all the same, so each chunk has,
//! besides the queue it is on, the queue it belongs to. For the same reason a
//! chunk whose eviction failed returns to where it came from.
//!
//! Free chunks stay on the PMM's own free lists, where parts of chunks are
//! merged; they are on none of these queues.
//!
//! A used chunk may be expected (DeepUM §5.1): one of several owners, a process that
//! prefetches, has marked it up to one of its kernels, and is spared until that has
//! run. An owner's marks are void when it goes, or a chunk's when it changes hands.

use super::{Chunk, NoSuchChunk, Queue, Queues, Victim};
use crate::mem::{OutOfMemory, TryVec};

/// Processes that can mark chunks of one GPU at a time; one more takes the place of the
/// one that has been there for longest, which then has to come again.
pub const OWNERS: u32 = 64;
/// Used chunks looked at for one that is not expected.
const PATIENCE: u32 = 64;

/// A process that marks chunks. Numbers are not used twice (within 2^32); 0 is none.
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

/// The root chunks of one GPU. Locking as for [`Queues`]: only [`RootChunks::new`]
/// allocates.
pub struct RootChunks {
    queues: Queues,
    belongs: TryVec<Queue>,
    marks: TryVec<Mark>,
    /// By owner modulo [`OWNERS`].
    present: [Present; OWNERS as usize],
    last_owner: Owner,
}

impl RootChunks {
    /// For chunks 0 to `chunks` - 1, all of them pinned or free.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            queues: Queues::new(chunks)?,
            belongs: TryVec::filled(chunks as usize, Queue::Used)?,
            marks: TryVec::filled(chunks as usize, Mark::default())?,
            present: [Present::default(); OWNERS as usize],
            last_owner: 0,
        })
    }

    /// What `chunk` holds changed: it belongs to `queue` now, at its tail.
    pub fn set(&mut self, chunk: Chunk, queue: Queue) -> Result<(), NoSuchChunk> {
        *self.belongs.get_mut(chunk as usize).ok_or(NoSuchChunk)? = queue;
        if self.queues.queue_of(chunk).is_some() {
            self.queues.enqueue(chunk, queue)?;
        }
        Ok(())
    }

    /// `chunk` may be evicted from now on.
    pub fn insert(&mut self, chunk: Chunk) -> Result<(), NoSuchChunk> {
        let queue = *self.belongs.get(chunk as usize).ok_or(NoSuchChunk)?;
        self.queues.enqueue(chunk, queue)?;
        Ok(())
    }

    /// `chunk` may not be evicted from now on. Returns the queue it was on.
    pub fn remove(&mut self, chunk: Chunk) -> Option<Queue> {
        self.queues.remove(chunk).ok().flatten()
    }

    /// The chunk to reclaim next; it stays where it is.
    pub fn pick(&self) -> Option<Chunk> {
        Some(self.victim()?.chunk)
    }

    /// The same, with where it is and whether it is expected.
    pub fn victim(&self) -> Option<Victim> {
        self.queues.pick(PATIENCE, |c| self.needed_in(c))
    }

    /// The used chunk to push out ahead of need, if one is not expected; it stays
    /// where it is.
    pub fn pick_early(&self) -> Option<Chunk> {
        self.queues.pick_early(PATIENCE, |c| self.needed_in(c))
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

    fn evictable(chunks: u32) -> RootChunks {
        let mut roots = RootChunks::new(chunks).unwrap();
        (0..chunks).for_each(|c| roots.insert(c).unwrap());
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
        roots.insert(0).unwrap();
        assert_eq!(
            (roots.queue_of(0), roots.pick()),
            (Some(Queue::Discarded), Some(0))
        );
        assert_eq!(roots.length(Queue::Discarded), 1);
        // An eviction that failed: back where it was.
        roots.remove(0);
        roots.insert(0).unwrap();
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
        assert_eq!((roots.pick(), roots.pick_early()), (Some(2), Some(2)));
        roots.expect(2, owner, 5);
        // All are expected: the one needed last, and only for need.
        let victim = roots.victim().unwrap();
        assert_eq!((victim.chunk, victim.expected), (2, true));
        assert_eq!(roots.pick_early(), None);
        // An earlier kernel does not take a mark back; a fresh owner of the chunk does.
        roots.expect(2, owner, 0);
        assert_eq!(roots.needed_in(2), Some(6));
        roots.unexpect(2);
        assert_eq!(roots.pick_early(), Some(2));
        roots.set_now(owner, 1);
        assert_eq!((roots.needed_in(1), roots.pick_early()), (None, Some(1)));
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

    #[test]
    fn a_chunk_out_of_range_is_refused() {
        let mut roots = evictable(1);
        assert_eq!(roots.set(1, Queue::Used), Err(NoSuchChunk));
        assert_eq!(roots.insert(1), Err(NoSuchChunk));
        assert_eq!((roots.remove(1), roots.queue_of(1)), (None, None));
    }

    proptest! {
        #![proptest_config(crate::testing::model(256))]

        /// Against a list of (chunk, queue) in order of arrival.
        #[test]
        fn picks_as_a_plain_list_would(steps in proptest::collection::vec((0..4u32, 0..5u8), 1..crate::testing::steps(60))) {
            let kinds = [Queue::Unused, Queue::Discarded, Queue::Used];
            let mut roots = RootChunks::new(4).unwrap();
            let mut belongs = [Queue::Used; 4];
            let mut on: Vec<u32> = Vec::new();
            for (chunk, step) in steps {
                let was = on.iter().position(|&c| c == chunk);
                match step {
                    0..=2 => {
                        let queue = kinds[step as usize];
                        roots.set(chunk, queue).unwrap();
                        belongs[chunk as usize] = queue;
                        if let Some(at) = was {
                            on.remove(at);
                            on.push(chunk);
                        }
                    }
                    3 => {
                        roots.insert(chunk).unwrap();
                        on.retain(|&c| c != chunk);
                        on.push(chunk);
                    }
                    _ => {
                        let removed = roots.remove(chunk);
                        prop_assert_eq!(removed, was.map(|_| belongs[chunk as usize]));
                        on.retain(|&c| c != chunk);
                    }
                }
                let first = on.iter().copied().min_by_key(|&c| belongs[c as usize]);
                prop_assert_eq!(roots.pick(), first);
            }
        }
    }
}
