// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What becomes of chunks, one at a time, and against the memory manager in short.

use super::*;
use crate::evict::Owner;
use crate::stats::held::Contents;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const HOLDER: Holder = 5;

/// Chunks that may be evicted, of `HOLDER`'s, the first of them expected by the owner.
fn chunks(n: u32) -> (RootChunks, Owner) {
    let mut roots = RootChunks::new(n).unwrap();
    for chunk in 0..n {
        roots.used_by(chunk, HOLDER).unwrap();
        roots.change(chunk, Change::Whole(HOLDER)).unwrap();
    }
    let owner = roots.add_owner(HOLDER);
    roots.expect(0, owner, 9);
    (roots, owner)
}

/// Lists that contradict so many times, and what they were asked about.
struct Asked(usize, Vec<Chunk>);

impl Lists for Asked {
    fn evictable(&mut self, chunk: Chunk) -> bool {
        self.1.push(chunk);
        self.1.len() > self.0
    }
}

/// Whose pages are in a chunk, in each of the ways in which they come and go.
#[test]
fn pages_are_whose_the_chunk_is_while_there_are_any() {
    let mut roots = RootChunks::new(1).unwrap();
    let now = |roots: &RootChunks| roots.resident_of(0);
    roots.change(0, Change::Free { zeroed: false }).unwrap();
    assert_eq!(now(&roots), 0);
    roots.change(0, Change::Pinned).unwrap();
    roots.used_by(0, 0).unwrap();
    assert_eq!(now(&roots), 0, "nobody's yet");
    roots.change(0, Change::Whole(HOLDER)).unwrap();
    assert_eq!(now(&roots), HOLDER);
    roots.change(0, Change::Pinned).unwrap();
    assert_eq!(now(&roots), HOLDER);
    roots.change(0, Change::Whole(HOLDER)).unwrap();
    roots.set(0, Queue::Discarded).unwrap();
    assert_eq!(now(&roots), HOLDER, "until it is reclaimed");
    assert_eq!(roots.contents_of(0), Contents::Discarded);
    roots.set(0, Queue::Unused).unwrap();
    assert_eq!(now(&roots), 0, "all of it has gone to the host");
    roots.used_by(0, HOLDER).unwrap();
    assert_eq!(now(&roots), HOLDER);
    roots.change(0, Change::Split).unwrap();
    assert_eq!(now(&roots), 0, "parts are not told apart");
    roots.change(0, Change::Whole(HOLDER)).unwrap();
    roots.begin_eviction(0);
    roots.evicted(0).unwrap();
    assert_eq!(now(&roots), 0);
    assert_eq!(roots.resident_of(1), 0);
}

/// Its owner may free it meanwhile, which pins it and is told to nobody. Or it stays.
#[test]
fn what_is_being_evicted_is_nobodys() {
    let (mut roots, _) = chunks(1);
    roots.begin_eviction(0);
    assert_eq!(roots.resident_of(0), 0);
    // What its owner says of it comes late.
    roots.used_by(0, HOLDER).unwrap();
    assert_eq!(roots.resident_of(0), 0);
    roots.change(0, Change::Whole(HOLDER)).unwrap();
    assert_eq!(roots.resident_of(0), HOLDER, "it was held");
    roots.begin_eviction(0);
    // PMA has it, and then somebody else.
    roots.change(0, Change::Pinned).unwrap();
    assert_eq!(roots.resident_of(0), 0);
    roots.change(0, Change::Whole(HOLDER + 1)).unwrap();
    assert_eq!(roots.resident_of(0), HOLDER + 1);
}

/// Of a chunk that stays nobody asks whose it is: its va_block's range may be on its way out.
#[test]
fn a_chunk_that_stays_is_whose_it_was() {
    let (mut roots, _) = chunks(2);
    for queue in [Queue::Used, Queue::Discarded] {
        roots.set(0, queue).unwrap();
        roots.begin_eviction(0);
        assert!(roots.is_leaving(0) && !roots.is_leaving(1));
        roots.change(0, Change::Pinned).unwrap();
        assert!(roots.is_leaving(0), "it is not over");
        roots.change(0, Change::Stays).unwrap();
        assert!(!roots.is_leaving(0));
        assert_eq!(
            (roots.queue_of(0), roots.resident_of(0)),
            (Some(queue), HOLDER)
        );
    }
    assert_eq!(roots.needed_in(0), Some(9), "it is still expected");
    // One that an eviction gets is its next owner's, who says so.
    roots.begin_eviction(0);
    roots.eviction_over(0, true).unwrap();
    assert!(!roots.is_leaving(0) && !roots.is_leaving(9));
    roots.change(0, Change::Whole(HOLDER + 1)).unwrap();
    assert_eq!(roots.resident_of(0), HOLDER + 1);
}

/// Who holds pages of its chunk must not use up what a running kernel's chunks are spared for.
#[test]
fn an_eviction_that_gets_nothing_does_not_count() {
    let (mut roots, owner) = chunks(2);
    roots.begins(owner);
    roots.used_by(1, HOLDER).unwrap();
    for got in [false, true] {
        for _ in 0..9 {
            assert_eq!(
                roots.needed_in(1),
                Some(0),
                "{got}: it is the running kernel's"
            );
            roots.change(0, Change::Whole(HOLDER)).unwrap();
            roots.begin_eviction(0);
            if !got {
                roots.change(0, Change::Whole(HOLDER)).unwrap();
            }
            roots.eviction_over(0, got).unwrap();
            let whose = if got { 0 } else { HOLDER };
            assert_eq!(roots.resident_of(0), whose);
            if got && roots.needed_in(1).is_none() {
                return;
            }
        }
    }
    panic!("evictions do not count");
}

/// A kernel may begin while an eviction is under way that comes to nothing.
#[test]
fn an_eviction_in_vain_takes_nothing_from_a_kernel_that_began_meanwhile() {
    let (mut roots, owner) = chunks(2);
    roots.begin_eviction(0);
    roots.begins(owner);
    roots.used_by(1, HOLDER).unwrap();
    roots.change(0, Change::Whole(HOLDER)).unwrap();
    roots.eviction_over(0, false).unwrap();
    assert_eq!(roots.needed_in(1), Some(0));
    // Its end is told once.
    roots.eviction_over(0, false).unwrap();
    roots.eviction_over(7, false).unwrap();
    assert_eq!(roots.needed_in(1), Some(0));
}

/// The memory manager puts the chunk back under the list lock, and tells of the end afterwards, without that lock.
/// RM's eviction of a range takes the list lock alone as it begins.
#[test]
fn the_end_of_a_failed_eviction_says_nothing_of_the_next() {
    for change in [Change::Stays, Change::Whole(HOLDER), Change::Split] {
        let (mut roots, owner) = chunks(2);
        roots.set_room(1);
        roots.begins(owner);
        roots.used_by(1, HOLDER).unwrap();
        roots.begin_eviction(0);
        roots.change(0, change).unwrap();
        roots.begin_eviction(0);
        roots.eviction_over(0, false).unwrap();
        assert!(roots.is_leaving(0), "{change:?}: the second has it");
        roots.change(0, Change::Stays).unwrap();
        let holder = if change == Change::Split { 0 } else { HOLDER };
        assert_eq!(roots.resident_of(0), holder, "{change:?}");
        roots.eviction_over(0, false).unwrap();
        assert_eq!(roots.resident_of(0), holder, "{change:?}");
        assert!(!roots.is_leaving(0), "{change:?}");
        // Neither counts; the room is for one, and the third and the fourth do.
        for kernels in [Some(0), None] {
            roots.begin_eviction(0);
            roots.eviction_over(0, true).unwrap();
            assert_eq!(roots.resident_of(0), 0, "{change:?}");
            assert_eq!(roots.needed_in(1), kernels, "{change:?}");
            roots.change(0, Change::Whole(HOLDER)).unwrap();
        }
    }
}

/// A failure that is told twice, or a change that comes in between, must not hide that an eviction got the chunk.
#[test]
fn an_eviction_that_gets_its_chunk_is_over_whatever_was_told() {
    let (mut roots, _) = chunks(1);
    roots.begin_eviction(0);
    roots.change(0, Change::Stays).unwrap();
    roots.begin_eviction(0);
    roots.eviction_over(0, true).unwrap();
    assert!(!roots.is_leaving(0));
    assert_eq!(roots.resident_of(0), 0);
    // Nothing of what was told is left.
    roots.change(0, Change::Whole(HOLDER)).unwrap();
    roots.begin_eviction(0);
    roots.eviction_over(0, false).unwrap();
    assert!(!roots.is_leaving(0));
}

#[test]
fn what_is_free_is_nobodys() {
    let (mut roots, _) = chunks(1);
    roots.change(0, Change::Free { zeroed: false }).unwrap();
    assert_eq!(
        (roots.queue_of(0), roots.needed_in(0)),
        (Some(Queue::Free), None)
    );
    // Reports of a chunk's last owner may come late, when the chunk is free.
    roots.set(0, Queue::Discarded).unwrap();
    roots.used_by(0, HOLDER).unwrap();
    assert_eq!(roots.queue_of(0), Some(Queue::Free));
    assert_eq!((roots.pick_early(HOLDER), roots.holder_of(0)), (None, 0));
    roots.change(0, Change::Free { zeroed: false }).unwrap();
    roots.change(0, Change::Whole(0)).unwrap();
    assert_eq!(roots.pick_early(HOLDER), None);
}

#[test]
fn what_is_pinned_is_not_chosen_and_is_still_its_holders() {
    let (mut roots, _) = chunks(2);
    roots.change(1, Change::Pinned).unwrap();
    assert_eq!(roots.queue_of(1), None);
    assert_eq!(roots.choose(&mut Asked(0, vec![])), Some(0));
    roots.change(1, Change::Whole(HOLDER)).unwrap();
    assert_eq!(roots.pick_early(HOLDER), Some(1));
}

/// A split chunk counts as used, on whatever queue it was: not all owners have discarded their parts.
#[test]
fn what_is_split_is_used_and_nobodys() {
    for queue in [Queue::Unused, Queue::Discarded, Queue::Used] {
        let (mut roots, _) = chunks(2);
        roots.set(1, queue).unwrap();
        roots.change(1, Change::Pinned).unwrap();
        roots.change(1, Change::Split).unwrap();
        assert_eq!(roots.queue_of(1), Some(Queue::Used), "{queue:?}");
        assert_eq!(roots.pick_early(HOLDER), None, "{queue:?}");
    }
}

#[test]
fn a_chunk_knows_best() {
    for contradicted in 0..4 {
        let (mut roots, _) = chunks(3);
        let mut lists = Asked(contradicted, vec![]);
        let chosen = roots.choose(&mut lists);
        // The first chunk is expected, so it is evicted last.
        let order = [1, 2, 0];
        assert_eq!(chosen, order.get(contradicted).copied());
        assert_eq!(lists.1, order[..(contradicted + 1).min(3)]);
        assert_eq!(roots.length(Queue::Used) as usize, 3 - contradicted.min(3));
        // The chunk's next change puts it at the end of its queue.
        roots.change(1, Change::Whole(HOLDER)).unwrap();
        let next = if contradicted < 2 { 2 } else { 1 };
        assert_eq!(roots.pick(), Some(next));
    }
}

#[test]
fn an_eviction_tells_where_its_chunk_was_chosen_from() {
    for queue in [Queue::Unused, Queue::Discarded, Queue::Used] {
        let (mut roots, _) = chunks(3);
        roots.set(1, queue).unwrap();
        let chosen = roots.choose(&mut Asked(0, vec![])).unwrap();
        assert_eq!(roots.begin_eviction(chosen), Some(queue));
        assert_eq!(roots.queue_of(chosen), None);
    }
    // PMA asks by address for any of them, also for the one that would be next, and a choice is
    // one eviction's.
    let (mut roots, _) = chunks(3);
    assert_eq!(roots.pick(), Some(1));
    assert_eq!(roots.begin_eviction(1), None);
    roots.change(1, Change::Whole(HOLDER)).unwrap();
    let chosen = roots.choose(&mut Asked(0, vec![])).unwrap();
    assert_eq!(roots.begin_eviction(chosen), Some(Queue::Used));
    roots.change(chosen, Change::Whole(HOLDER)).unwrap();
    assert_eq!(roots.begin_eviction(chosen), None);
    let (mut roots, _) = chunks(3);
    assert_eq!(roots.begin_eviction(2), None);
    assert_eq!(roots.queue_of(2), None);
    roots.change(1, Change::Free { zeroed: false }).unwrap();
    assert_eq!(roots.begin_eviction(1), Some(Queue::Free));
}

#[test]
fn without_queues_the_lists_say_where_a_chunk_was() {
    use stats::Queue::{Address, Discarded, Free, Used};
    for list in [Free, Used, Address] {
        assert_eq!(reclaimed_from(None, 0, || list), list);
    }
    // Those of the PMM know nothing of discarded chunks.
    let (mut roots, _) = chunks(3);
    roots.set(0, Queue::Discarded).unwrap();
    let chosen = roots.choose(&mut Asked(0, vec![])).unwrap();
    let unasked = || panic!("the PMM's lists were looked at");
    let reclaimed = |roots: &mut RootChunks, chunk| reclaimed_from(Some(roots), chunk, unasked);
    assert_eq!(reclaimed(&mut roots, chosen), Discarded);
    assert_eq!(roots.queue_of(chosen), None);
    assert_eq!(reclaimed(&mut roots, 2), Address);
    roots.change(1, Change::Free { zeroed: false }).unwrap();
    assert_eq!(reclaimed(&mut roots, 1), Free);
}

#[test]
fn what_was_evicted_starts_afresh() {
    let (mut roots, _) = chunks(1);
    roots.set(0, Queue::Discarded).unwrap();
    roots.begin_eviction(0);
    roots.evicted(0).unwrap();
    assert_eq!(roots.needed_in(0), None);
    roots.change(0, Change::Whole(0)).unwrap();
    assert_eq!(roots.queue_of(0), Some(Queue::Used));
    assert_eq!(roots.pick_early(HOLDER), None);
}

/// The first of these has got its chunk, and counts; the second does not count, and fails.
#[test]
fn an_eviction_in_vain_takes_nothing_from_the_one_before() {
    let (mut roots, owner) = chunks(2);
    roots.set_room(1);
    roots.begins(owner);
    roots.used_by(1, HOLDER).unwrap();
    for (queue, got) in [
        (Queue::Used, true),
        (Queue::Discarded, false),
        (Queue::Used, true),
    ] {
        assert_eq!(roots.needed_in(1), Some(0));
        roots.set(0, queue).unwrap();
        roots.begin_eviction(0);
        if got {
            roots.eviction_over(0, true).unwrap();
        }
        roots.change(0, Change::Whole(HOLDER)).unwrap();
        if !got {
            roots.eviction_over(0, false).unwrap();
        }
    }
    assert_eq!(roots.needed_in(1), None);
}

/// The report comes late: the chunk may be evicted again, or is free.
#[test]
fn what_was_evicted_is_nobodys_wherever_it_is() {
    for queue in [Queue::Unused, Queue::Discarded, Queue::Used] {
        let (mut roots, _) = chunks(3);
        roots.set(0, queue).unwrap();
        roots.evicted(0).unwrap();
        assert_eq!((roots.needed_in(0), roots.holder_of(0)), (None, 0));
        let order: Vec<_> = roots.queues().iter(Queue::Used).collect();
        assert_eq!(order, [1, 2, 0], "{queue:?}");
    }
    let (mut roots, owner) = chunks(1);
    roots.change(0, Change::Free { zeroed: false }).unwrap();
    roots.expect(0, owner, 9);
    roots.evicted(0).unwrap();
    assert_eq!((roots.needed_in(0), roots.holder_of(0)), (None, 0));
    assert_eq!(roots.queue_of(0), Some(Queue::Free));
}

/// What moves no bytes leaves a running kernel no more room than there was.
#[test]
fn only_evictions_of_used_chunks_count() {
    for (queue, needed) in [(Queue::Discarded, Some(0)), (Queue::Used, None)] {
        let (mut roots, owner) = chunks(2);
        roots.set_room(1);
        roots.begins(owner);
        roots.used_by(1, HOLDER).unwrap();
        for _ in 0..2 {
            roots.set(0, queue).unwrap();
            roots.begin_eviction(0);
            roots.eviction_over(0, true).unwrap();
            roots.change(0, Change::Whole(HOLDER)).unwrap();
        }
        assert_eq!(roots.needed_in(1), needed, "{queue:?}");
    }
}

#[test]
fn a_chunk_out_of_range_is_refused() {
    let (mut roots, _) = chunks(1);
    for change in [
        Change::Whole(HOLDER),
        Change::Split,
        Change::Free { zeroed: true },
    ] {
        assert_eq!(roots.change(1, change), Err(NoSuchChunk));
    }
    assert_eq!(roots.change(1, Change::Pinned), Ok(()));
    assert_eq!(roots.evicted(1), Err(NoSuchChunk));
    assert_eq!(roots.begin_eviction(1), None);
}

/// What a root chunk is to the PMM.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Physical memory that is not UVM's.
    Pma,
    Free,
    Pinned,
    Owned(Holder),
    InEviction,
}

/// The PMM in short: what it does to its chunks, and which chunk upstream's rules would take next.
struct Pmm {
    roots: RootChunks,
    states: Vec<State>,
    /// The queue on which each chunk belongs, by its contents.
    holds: Vec<Queue>,
    /// Chunks that are free or may be evicted, in the order in which they came to be, or were marked.
    order: Vec<Chunk>,
    /// The one that was chosen since an eviction began.
    chosen: Option<Chunk>,
}

/// A chunk says the truth of itself, and is never asked about one that it would contradict.
struct Truthful<'a>(&'a [State]);

impl Lists for Truthful<'_> {
    fn evictable(&mut self, chunk: Chunk) -> bool {
        let state = self.0[chunk as usize];
        assert!(
            matches!(state, State::Free | State::Owned(_)),
            "{chunk} was chosen, and is {state:?}"
        );
        true
    }
}

impl Pmm {
    fn new(chunks: u32) -> Self {
        Self {
            roots: RootChunks::new(chunks).unwrap(),
            states: vec![State::Pma; chunks as usize],
            holds: vec![Queue::Used; chunks as usize],
            order: vec![],
            chosen: None,
        }
    }

    fn queue(&self, chunk: Chunk) -> Option<Queue> {
        match self.states[chunk as usize] {
            State::Free => Some(Queue::Free),
            State::Owned(_) => Some(self.holds[chunk as usize]),
            _ => None,
        }
    }

    /// The next of the first queue that has one.
    fn next(&self) -> Option<Chunk> {
        self.order.iter().copied().min_by_key(|&c| self.queue(c))
    }

    fn becomes(&mut self, chunk: Chunk, state: State) {
        self.states[chunk as usize] = state;
        self.order.retain(|&c| c != chunk);
        let change = match state {
            // Pinned chunks are given back to PMA, and evictions have an event of their own.
            State::Pma | State::InEviction => return,
            State::Pinned => Change::Pinned,
            State::Free => {
                self.holds[chunk as usize] = Queue::Used;
                // Zeroed or not by its number: half of them are.
                let zeroed = chunk % 2 == 0;
                self.roots.change(chunk, Change::Free { zeroed }).unwrap();
                self.order
                    .insert(if zeroed { self.order.len() } else { 0 }, chunk);
                return;
            }
            State::Owned(holder) => Change::Whole(holder),
        };
        if change != Change::Pinned {
            self.order.push(chunk);
        }
        self.roots.change(chunk, change).unwrap();
    }

    fn mark(&mut self, chunk: Chunk, queue: Queue) {
        self.holds[chunk as usize] = queue;
        self.roots.set(chunk, queue).unwrap();
        if self.order.contains(&chunk) {
            self.order.retain(|&c| c != chunk);
            self.order.push(chunk);
        }
    }

    fn evict(&mut self, chunk: Chunk) {
        let from = self.queue(chunk);
        let chosen = self.chosen.take() == Some(chunk);
        let expected = from.filter(|&queue| chosen || queue == Queue::Free);
        assert_eq!(self.roots.begin_eviction(chunk), expected);
        self.becomes(chunk, State::InEviction);
    }

    /// One step at `chunk`; which one, its state and `what` say.
    fn step(&mut self, chunk: Chunk, what: u8) {
        let holder = HOLDER + Holder::from(what % 2);
        match (self.states[chunk as usize], what) {
            // An allocation takes a chunk from PMA, or a free one.
            (State::Pma | State::Free, 0..=3) => self.becomes(chunk, State::Pinned),
            (State::Pma, _) => {}
            (State::Pinned, 0) => self.becomes(chunk, State::Pma),
            (State::Pinned, 1) => self.becomes(chunk, State::Free),
            (State::Pinned, 2..=4) => self.becomes(chunk, State::Owned(holder)),
            (State::Owned(_), 0) => self.becomes(chunk, State::Pinned),
            (State::Owned(_), 1) => self.becomes(chunk, State::Free),
            (State::Pinned | State::Owned(_), 5) => self.mark(chunk, Queue::Unused),
            (State::Pinned | State::Owned(_), 6) => self.mark(chunk, Queue::Discarded),
            (State::Pinned | State::Owned(_), 7) => self.mark(chunk, Queue::Used),
            // Somebody asks for it by its address.
            (State::Owned(_) | State::Free, _) => self.evict(chunk),
            (State::Pinned, _) => {}
            (State::InEviction, 0..=3) => {
                self.roots.evicted(chunk).unwrap();
                self.holds[chunk as usize] = Queue::Used;
                self.becomes(chunk, State::Pinned);
            }
            // It was held, and stays what it was.
            (State::InEviction, _) => self.becomes(chunk, State::Owned(holder)),
        }
    }
}

proptest! {
    #![proptest_config(crate::testing::model(512))]

    /// The queues have what is free or may be evicted, and nothing else, and choose by the rules.
    #[test]
    fn the_queues_are_the_truth(steps in proptest::collection::vec((0..6u32, 0..10u8), 1..crate::testing::steps(200))) {
        let mut pmm = Pmm::new(6);
        for (chunk, what) in steps {
            pmm.step(chunk, what);
            let next = pmm.next();
            pmm.chosen = pmm.roots.choose(&mut Truthful(&pmm.states));
            prop_assert_eq!(pmm.chosen, next);
            for chunk in 0..6 {
                prop_assert_eq!(pmm.roots.queue_of(chunk), pmm.queue(chunk));
            }
            // Half of the time the next is evicted.
            if let Some(next) = next.filter(|_| what % 2 == 0) {
                pmm.evict(next);
            }
        }
    }
}
