// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Marks, holders, and which chunk goes.

use super::super::holders::list_of;
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

/// The owner begins kernel `now`, and its prefetcher learns of it at once.
fn begin(roots: &mut RootChunks, owner: Owner, now: u32) {
    assert!(roots.begins(owner) && roots.set_now(owner, now));
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
fn an_eviction_may_choose_from_what_is_on_a_queue_and_not_free() {
    let mut roots = evictable(4);
    assert_eq!(roots.evictable(), 4);
    roots.set(0, Queue::Discarded).unwrap();
    roots.set(1, Queue::Unused).unwrap();
    assert_eq!(roots.evictable(), 4);
    // One is being evicted, and one is free.
    roots.remove(1);
    roots.free(2);
    assert_eq!(roots.evictable(), 2);
}

#[test]
fn what_is_expected_is_spared_until_its_kernel_has_run() {
    let mut roots = evictable(3);
    let owner = roots.add_owner(HOLDER);
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

/// The worker neither brings something in its place, nor pushes it out.
#[test]
fn what_the_running_kernel_asked_for_goes_last() {
    let mut roots = RootChunks::new(3).unwrap();
    let owner = roots.add_owner(HOLDER);
    for chunk in 0..3 {
        roots.used_by(chunk, HOLDER).unwrap();
        roots.insert(chunk, HOLDER).unwrap();
    }
    let all = |roots: &RootChunks| {
        let victim = roots.victim().unwrap();
        (victim.chunk, victim.expected, roots.pick_early(HOLDER))
    };
    assert_eq!(all(&roots), (0, true, None));
    // What is merely expected goes before it, the one that the same kernel needs, too.
    roots.expect(2, owner, 0);
    roots.brought(2, owner);
    assert_eq!(all(&roots), (2, true, None));
    // A prediction takes nothing back that was asked for.
    roots.expect(1, owner, 7);
    assert_eq!(
        (roots.needed_in(1), all(&roots)),
        (Some(0), (2, true, None))
    );
    begin(&mut roots, owner, 1);
    assert_eq!(all(&roots), (0, false, Some(0)));
    roots.used_by(0, HOLDER).unwrap();
    assert_eq!(all(&roots), (2, false, Some(2)));
    roots.remove(2);
    // The other is needed in six kernels.
    assert_eq!(all(&roots), (1, true, None));
}

/// Whoever announces nothing has no part in it: what is his goes as without marks.
#[test]
fn a_mark_costs_nobody_else_a_chunk() {
    let other = HOLDER + 1;
    let mut roots = RootChunks::new(4).unwrap();
    let owner = roots.add_owner(HOLDER);
    for (chunk, holder) in [(0, HOLDER), (1, other), (2, other), (3, HOLDER)] {
        roots.used_by(chunk, holder).unwrap();
        roots.insert(chunk, holder).unwrap();
    }
    begin(&mut roots, owner, 1);
    roots.expect(0, owner, 2);
    assert_eq!(roots.pick(), Some(3), "of a kernel that is over");
    roots.expect(3, owner, 1);
    let victim = roots.victim().unwrap();
    assert_eq!((victim.chunk, victim.expected), (0, true));
    // What is the oldest goes, as upstream's would.
    roots.insert(0, HOLDER).unwrap();
    let victim = roots.victim().unwrap();
    assert_eq!((victim.chunk, victim.expected), (1, false));
    assert_eq!(roots.pick_early(other), Some(1));
}

#[test]
fn one_owner_too_many_takes_the_place_of_the_first() {
    let mut roots = evictable(2);
    let first = roots.add_owner(HOLDER);
    roots.expect(0, first, 9);
    assert_eq!((roots.needed_in(0), roots.pick()), (Some(9), Some(1)));
    let others: Vec<_> = (0..OWNERS).map(|_| roots.add_owner(HOLDER)).collect();
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
        let whose = roots.holder_of(c);
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
    let owner = roots.add_owner(HOLDER);
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
    fn picks_as_a_plain_list_would(steps in proptest::collection::vec((0..6u32, 0..10u8, 0..3u64), 1..crate::testing::steps(100))) {
        let kinds = [Queue::Unused, Queue::Discarded, Queue::Used];
        let mut roots = RootChunks::new(6).unwrap();
        // Who holds chunks as 1 announces kernels.
        let owner = roots.add_owner(1);
        let (mut now, mut begun) = (0, 0);
        // Of each chunk: where it belongs, who holds it, whether it is passed over.
        let mut chunks = [(Queue::Used, 0, false); 6];
        // And the kernel that it was last asked for: none, or the one that there is not.
        let mut asked: [Option<i32>; 6] = [None; 6];
        let mut marked = [false; 6];
        let mut on: Vec<u32> = Vec::new();
        for (chunk, step, holder) in steps {
            let was = on.iter().position(|&c| c == chunk);
            let one = &mut chunks[chunk as usize];
            let asks = (holder == 1).then_some(begun);
            match step {
                0..=3 => {
                    if step == 3 {
                        roots.used_by(chunk, holder).unwrap();
                        *one = (Queue::Used, holder, false);
                        asked[chunk as usize] = asks;
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
                    if one.1 != holder {
                        if one.1 != 0 {
                            asked[chunk as usize] = None;
                            marked[chunk as usize] = false;
                        }
                        let asked = &mut asked[chunk as usize];
                        *asked = asked.or(asks);
                    }
                    (one.1, one.2) = (holder, false);
                    on.retain(|&c| c != chunk);
                    on.push(chunk);
                }
                5 => {
                    roots.pass_over(chunk, holder);
                    one.2 |= one.1 == holder;
                }
                // Expected up to the kernel after this, and that is over at once, or not.
                6 | 9 => {
                    roots.expect(chunk, owner, 1);
                    if step == 9 {
                        roots.brought(chunk, owner);
                        asked[chunk as usize] = Some(begun - 1);
                    }
                    marked[chunk as usize] |= now <= 1;
                    let next = 2 * i32::from(holder == 0);
                    if now != next {
                        begin(&mut roots, owner, next as u32);
                        begun += 1;
                    }
                    now = next;
                }
                7 => {
                    roots.free(chunk);
                    prop_assert_eq!(roots.needed_in(chunk), None);
                    (one.0, one.1) = (Queue::Used, 0);
                    (asked[chunk as usize], marked[chunk as usize]) = (None, false);
                    on.retain(|&c| c != chunk);
                }
                _ => {
                    let removed = roots.remove(chunk);
                    prop_assert_eq!(removed, was.map(|_| one.0));
                    on.retain(|&c| c != chunk);
                }
            }
            let belongs = |c: u32| chunks[c as usize].0;
            // Needed by the running kernel, expected, of no kernel, or of one that is over.
            let standing = |c: u32| match (asked[c as usize], marked[c as usize]) {
                (Some(kernel), _) if kernel == begun => Standing::Running,
                (_, true) if now <= 1 => Standing::Expected((1 - now) as u32),
                _ if chunks[c as usize].1 == 1 => Standing::Over,
                _ => Standing::Unknown,
            };
            let used: Vec<_> = on.iter().copied().filter(|&c| belongs(c) == Queue::Used).collect();
            let first = |like: fn(Standing) -> bool| used.iter().copied().find(|&c| like(standing(c)));
            let victim = on.iter().copied().filter(|&c| belongs(c) != Queue::Used).min_by_key(|&c| belongs(c))
                .or_else(|| used.first().copied().filter(|&c| standing(c) == Standing::Unknown))
                .or_else(|| first(|s| s == Standing::Over))
                .or_else(|| first(|s| matches!(s, Standing::Expected(_))))
                .or_else(|| used.first().copied());
            prop_assert_eq!(roots.pick(), victim);
            for chunk in 0..=6 {
                prop_assert_eq!(roots.is_needed(chunk), roots.needed_in(chunk).is_some());
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

/// A process that waits for its user, or is gone without its owner's being removed, keeps nothing from others.
#[test]
fn who_announces_no_more_holds_nothing_back_for_ever() {
    let mut roots = evictable(4);
    let owner = roots.add_owner(HOLDER);
    begin(&mut roots, owner, 1);
    (0..4).for_each(|c| roots.used_by(c, HOLDER).unwrap());
    for _ in 0..=4 {
        assert!(roots.victim().is_some_and(|victim| victim.expected));
        assert!(roots.set_now(owner, 1), "it is the same kernel");
        assert_eq!(roots.begin_eviction(0), None);
        roots.insert(0, HOLDER).unwrap();
        roots.used_by(0, HOLDER).unwrap();
    }
    assert!(roots.victim().is_some_and(|victim| !victim.expected));
    // What is merely expected goes first all the same, and the process's worker pushes none of it out.
    roots.expect(3, owner, 1);
    let standing = [1, 3].map(|c| roots.standing(c));
    assert_eq!(standing, [Standing::Unknown, Standing::Expected(0)]);
    assert_eq!(roots.pick_early(HOLDER), None);
    begin(&mut roots, owner, 2);
    assert_eq!(roots.pick_early(HOLDER), Some(1));
    roots.used_by(1, HOLDER).unwrap();
    assert_eq!((roots.needed_in(1), roots.needed_in(2)), (Some(0), None));
}

/// A process is known by the address of its VA space. One that unregisters the GPU before it ends withdraws nothing, and
/// the next process may get that address.
#[test]
fn who_gets_the_number_of_one_that_is_gone_inherits_nothing() {
    let mut roots = evictable(4);
    let other = of_the_same_list(0);
    let kept = roots.add_owner(other);
    let gone = [HOLDER, HOLDER].map(|h| roots.add_owner(h));
    begin(&mut roots, kept, 1);
    gone.into_iter().for_each(|o| begin(&mut roots, o, 1));
    roots.expect(2, gone[1], 9);
    roots.remove_owners_of(HOLDER);
    roots.used_by(0, HOLDER).unwrap();
    roots.used_by(1, other).unwrap();
    let standing = [0, 1, 2].map(|c| roots.standing(c));
    assert_eq!(
        standing,
        [Standing::Unknown, Standing::Running, Standing::Unknown]
    );
    assert!(!roots.begins(gone[0]) && !roots.begins(gone[1]) && roots.begins(kept));
    // Nobody is no process.
    roots.remove_owners_of(0);
    assert!(roots.begins(kept));
}

/// A holder of the same list as `HOLDER`, after `n` others.
fn of_the_same_list(n: usize) -> Holder {
    let others = (HOLDER + 1..).filter(|h| list_of(*h) == list_of(HOLDER));
    others.skip(n).take(1).sum()
}

/// The prefetcher may learn late of a kernel, and what that has asked for is its own all the same. What the last one asked
/// for is not.
#[test]
fn a_kernel_has_begun_before_that_is_learnt() {
    let mut roots = evictable(3);
    let owner = roots.add_owner(HOLDER);
    begin(&mut roots, owner, 1);
    roots.used_by(0, HOLDER).unwrap();
    roots.expect(2, owner, 2);
    assert!(roots.begins(owner));
    roots.used_by(1, HOLDER).unwrap();
    let standing = |roots: &RootChunks| [0, 1, 2].map(|c| roots.standing(c));
    let (over, running) = (Standing::Over, Standing::Running);
    assert_eq!(standing(&roots), [over, running, Standing::Expected(1)]);
    // A jump is as good as a step.
    assert!(roots.set_now(owner, 2));
    assert_eq!(standing(&roots), [over, running, Standing::Expected(0)]);
    assert!(roots.set_now(owner, 9));
    assert_eq!(standing(&roots), [over, running, over]);
    // What was brought meanwhile is no kernel's.
    roots.brought(1, owner);
    assert_eq!(standing(&roots), [over; 3]);
}

/// Each takes its turns, and what it has asked for is known to be its running kernel's.
#[test]
fn owners_of_one_list_are_told_apart() {
    let mut roots = evictable(6);
    let holders = [HOLDER, of_the_same_list(0), of_the_same_list(1)];
    let owners = holders.map(|holder| roots.add_owner(holder));
    for now in 1..4 {
        for (chunk, (&holder, &owner)) in (0..).zip(holders.iter().zip(&owners)) {
            begin(&mut roots, owner, now);
            for chunk in [chunk, chunk + 3] {
                roots.used_by(chunk, holder).unwrap();
                roots.insert(chunk, holder).unwrap();
            }
        }
        let needed = [0, 1, 2, 3, 4, 5].map(|c| roots.needed_in(c));
        assert_eq!(needed, [Some(0); 6], "kernel {now}");
    }
}

/// In whatever order owners of one list go, the others are found.
#[test]
fn an_owner_is_found_when_another_of_its_list_is_gone() {
    for gone in 0..3 {
        let mut roots = evictable(3);
        let holders = [HOLDER, of_the_same_list(0), of_the_same_list(1)];
        let owners = holders.map(|holder| roots.add_owner(holder));
        let found = |roots: &RootChunks| {
            let found = holders.map(|h| roots.announces(h).map(|p| p.owner));
            found.map(Option::unwrap_or_default)
        };
        assert_eq!(found(&roots), owners);
        let mut left = owners;
        for n in [gone, (gone + 1) % 3, (gone + 2) % 3] {
            roots.remove_owner(owners[n]);
            left[n] = 0;
            assert_eq!(found(&roots), left);
            let count = left.iter().filter(|&&owner| owner != 0).count();
            assert_eq!(roots.owners_now as usize, count);
        }
        // Who comes again, and who takes the place of the first.
        let again = roots.add_owner(HOLDER);
        assert_eq!(found(&roots), [again, 0, 0]);
        (0..OWNERS).for_each(|n| _ = roots.add_owner(HOLDER + Holder::from(n)));
        assert_eq!(roots.owners_now, OWNERS);
        assert_ne!(found(&roots)[0], again);
        assert_eq!(
            roots
                .of_list(list_of(HOLDER))
                .filter(|p| p.owner == again)
                .count(),
            0
        );
    }
}
