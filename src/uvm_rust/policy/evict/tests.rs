// SPDX-License-Identifier: GPL-2.0-only OR MIT

pub(super) mod gpu;

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

fn queues(chunks: u32, on: &[(Chunk, Queue)]) -> Queues {
    let mut q = Queues::new(chunks).unwrap();
    for &(c, to) in on {
        q.enqueue(c, to).unwrap();
    }
    q
}

#[test]
fn reclaim_goes_free_unused_discarded_used() {
    let mut q = queues(
        8,
        &[
            (0, Queue::Used),
            (1, Queue::Discarded),
            (2, Queue::Unused),
            (3, Queue::Free),
            (4, Queue::Used),
            (5, Queue::Discarded),
        ],
    );
    assert_eq!(q.available(), 4);
    let order: Vec<_> = core::iter::from_fn(|| q.take(8, |_| None))
        .map(|v| v.chunk)
        .collect();
    assert_eq!(order, [3, 2, 1, 5, 0, 4]);
    assert_eq!(q.counts().reclaimed, [1, 1, 2, 2]);
    assert_eq!(q.counts().lengths, [0; 4]);
}

#[test]
fn the_queues_have_just_what_the_pmm_lists() {
    let mut roots = RootChunks::new(8).unwrap();
    for (chunk, zeroed) in [(0, false), (1, true)] {
        roots.change(chunk, Change::Free { zeroed }).unwrap();
    }
    for chunk in [2, 3] {
        roots.change(chunk, Change::Whole(7)).unwrap();
    }
    roots.set(3, Queue::Discarded).unwrap();
    let has_just =
        |those: &[Queue], listed: &[Chunk]| roots.has_just(those, listed.iter().copied());
    let held = [Queue::Unused, Queue::Discarded, Queue::Used];
    assert!(has_just(&[Queue::Free], &[1, 0]) && has_just(&held, &[2, 3]));
    // One is missing, one too many, one is in no queue in place of another, and one is in a queue of the other list.
    for listed in [&[3][..], &[], &[2, 3, 4], &[2, 4], &[0, 2]] {
        assert!(!has_just(&held, listed), "{listed:?}");
    }
    let mut read = 0;
    let endless = core::iter::repeat_with(|| {
        read += 1;
        2
    });
    assert!(!roots.has_just(&held, endless));
    assert_eq!(read, 3);
}

#[test]
fn migration_makes_a_chunk_most_recent() {
    let mut q = queues(3, &[(0, Queue::Used), (1, Queue::Used), (2, Queue::Used)]);
    assert_eq!(q.enqueue(0, Queue::Used), Ok(Some(Queue::Used)));
    assert_eq!(q.iter(Queue::Used).collect::<Vec<_>>(), [1, 2, 0]);
}

#[test]
fn expected_chunks_are_spared_within_patience() {
    let q = queues(
        4,
        &[
            (0, Queue::Used),
            (1, Queue::Used),
            (2, Queue::Used),
            (3, Queue::Used),
        ],
    );
    // Chunk 0 is needed next, chunk 1 after it.
    let soon = |c: Chunk| (c < 2).then_some(c);
    assert_eq!(
        q.pick(8, soon).map(|v| (v.chunk, v.expected)),
        Some((2, false))
    );
    assert_eq!(
        q.pick(2, soon).map(|v| (v.chunk, v.expected)),
        Some((1, true))
    );
    assert_eq!(
        q.pick(0, soon).map(|v| (v.chunk, v.expected)),
        Some((0, false))
    );
}

#[test]
fn no_more_than_patience_chunks_are_asked_about() {
    let mut q = Queues::new(1000).unwrap();
    for c in 0..1000 {
        q.enqueue(c, Queue::Used).unwrap();
    }
    let mut asked = 0;
    q.pick(32, |_| {
        asked += 1;
        Some(0)
    });
    assert_eq!(asked, 32);
}

#[test]
fn a_failed_eviction_keeps_the_kind_and_lets_others_go_first() {
    let mut q = queues(
        3,
        &[
            (0, Queue::Discarded),
            (1, Queue::Discarded),
            (2, Queue::Used),
        ],
    );
    let v = q.take(1, |_| None).unwrap();
    assert_eq!(q.queue_of(v.chunk), None);
    q.put_back(v).unwrap();
    assert_eq!(q.counts().reclaimed, [0; 4]);
    assert_eq!(q.iter(Queue::Discarded).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn chunks_that_do_not_exist_are_refused() {
    let mut q = Queues::new(2).unwrap();
    for c in [2, 3, u32::MAX] {
        assert_eq!(q.enqueue(c, Queue::Used), Err(NoSuchChunk));
        assert_eq!(q.remove(c), Err(NoSuchChunk));
        assert_eq!(q.queue_of(c), None);
    }
    assert_eq!(Queues::new(0).unwrap().pick(1, |_| None), None);
}

/// The reference: four deques, searched from end to end.
#[derive(Default)]
struct Model([VecDeque<Chunk>; 4]);

impl Model {
    fn remove(&mut self, c: Chunk) -> Option<Queue> {
        Queue::ORDER.into_iter().find(|&q| {
            let d = &mut self.0[q as usize];
            d.iter()
                .position(|&x| x == c)
                .and_then(|i| d.remove(i))
                .is_some()
        })
    }

    fn pick(&self, patience: u32, expected: impl Fn(Chunk) -> Option<u32>) -> Option<Chunk> {
        for q in [Queue::Free, Queue::Unused, Queue::Discarded] {
            if let Some(&c) = self.0[q as usize].front() {
                return Some(c);
            }
        }
        let used = &self.0[Queue::Used as usize];
        let reach: Vec<_> = used.iter().copied().take(patience as usize).collect();
        let spared = reach.iter().copied().find(|&c| expected(c).is_none());
        // Of equals `max_by_key` takes the last: seen from behind, the oldest.
        let last = reach.iter().copied().rev().max_by_key(|&c| expected(c));
        spared.or(last).or(used.front().copied())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue(Chunk, usize),
    Remove(Chunk),
    MakeOldest(Chunk),
    Renew(Chunk),
    Take {
        patience: u32,
        expected: u64,
        fails: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..34u32, 0..4usize).prop_map(|(c, q)| Op::Enqueue(c, q)),
        1 => (0..34u32).prop_map(Op::Remove),
        1 => (0..34u32).prop_map(Op::MakeOldest),
        1 => (0..34u32).prop_map(Op::Renew),
        2 => (0..9u32, any::<u64>(), any::<bool>())
            .prop_map(|(patience, expected, fails)| Op::Take { patience, expected, fails }),
    ]
}

const CHUNKS: u32 = 32;

proptest! {
    #![proptest_config(crate::testing::model(512))]

    #[test]
    fn behaves_like_four_deques(ops in prop::collection::vec(op(), 1..crate::testing::steps(200))) {
        let mut q = Queues::new(CHUNKS).unwrap();
        let mut m = Model::default();
        let mut reclaimed = [0; 4];
        for op in ops {
            match op {
                Op::Enqueue(c, to) => {
                    let to = Queue::ORDER[to];
                    let was = (c < CHUNKS).then(|| m.remove(c)).ok_or(NoSuchChunk);
                    if c < CHUNKS {
                        m.0[to as usize].push_back(c);
                    }
                    prop_assert_eq!(q.enqueue(c, to), was);
                }
                Op::Remove(c) => {
                    let was = (c < CHUNKS).then(|| m.remove(c)).ok_or(NoSuchChunk);
                    prop_assert_eq!(q.remove(c), was);
                }
                Op::MakeOldest(c) => {
                    if let Some(queue) = m.remove(c) {
                        m.0[queue as usize].push_front(c);
                    }
                    q.make_oldest(c);
                }
                Op::Renew(c) => {
                    if let Some(queue) = m.remove(c) {
                        m.0[queue as usize].push_back(c);
                        q.renew(c, queue);
                    } else if c >= CHUNKS {
                        q.renew(c, Queue::Used);
                    }
                }
                Op::Take { patience, expected, fails } => {
                    let soon = |c: Chunk| (expected >> c & 1 != 0).then_some(c * 7 % 5);
                    let want = m.pick(patience, soon);
                    let got = q.take(patience, soon);
                    prop_assert_eq!(got.map(|v| v.chunk), want);
                    if let Some(v) = got {
                        prop_assert_eq!(m.remove(v.chunk), Some(v.queue));
                        if fails {
                            q.put_back(v).unwrap();
                            m.0[v.queue as usize].push_back(v.chunk);
                        } else {
                            reclaimed[v.queue as usize] += 1;
                        }
                    }
                }
            }
            for queue in Queue::ORDER {
                let want = &m.0[queue as usize];
                prop_assert_eq!(&q.iter(queue).collect::<VecDeque<_>>(), want);
                prop_assert_eq!(q.counts().lengths[queue as usize] as usize, want.len());
                prop_assert!(want.iter().all(|&c| q.queue_of(c) == Some(queue)));
            }
            prop_assert_eq!(q.counts().reclaimed, reclaimed);
        }
    }
}
