// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What threads of the driver share without a lock, under every interleaving that loom finds and with all that the
//! orders of memory allow: the arbiter of a device, reclaim of a GPU, the prefetcher's lanes, and who shares a GPU's link.
//!
//! Then each use of an atomic is made weaker, one at a time: its order taken away, or what it reads and writes
//! torn apart. Each must be found by a model, except those that a test names, as no order depends on these.

#![allow(clippy::unwrap_used)]

mod common;

use common::{every_interleaving, Model};
use loom::thread;
use std::fmt::Debug;
use uvm_loom::arbiter::{Arbiter, Class, Turn, AGE_US, DEPTH, SHARE_PAGES, YIELD_US};
use uvm_loom::evict::reclaim::Reclaim;
use uvm_loom::evict::wait::{Ended, HELD_CHUNKS, HELD_MS};
use uvm_loom::lane::Lane;
use uvm_loom::policy::sync::{make_weaker, possible, Change};
use uvm_loom::sharers::{Sharers, RECENT_US};

/// A use, by its line of `source`.
fn named(source: &str, (at, weaker): Change) -> String {
    let line = source
        .lines()
        .nth(at.line() as usize - 1)
        .unwrap_or_default();
    format!("{weaker:?}: {}", line.trim())
}

/// All models are right. Each use that is made weaker makes one of them wrong, but for those that begin as
/// one of `harmless` does, each of which there is.
fn all_is_needed(what: &str, source: &str, models: &[(&str, Model)], harmless: &[&str]) {
    let _ = possible();
    let mut counted = Vec::new();
    for (name, model) in models {
        let count = every_interleaving(*model);
        println!("{what}, {name}: {count:?} interleavings");
        assert!(count > Some(1), "{what}, {name}: wrong, or not interleaved");
        counted.push((count, *name, *model));
    }
    // What takes few interleavings comes first, so that most uses are soon found.
    counted.sort_by_key(|(count, ..)| *count);
    let found_by = |weaker: &[Change]| {
        make_weaker(weaker);
        let mut by = counted.iter();
        let by = by.find(|(_, _, model)| every_interleaving(*model).is_none());
        make_weaker(&[]);
        by.map(|(_, name, _)| *name)
    };
    let changes: Vec<_> = possible().into_iter().collect();
    let is_harmless = |change: &Change| harmless.contains(&named(source, *change).as_str());
    let allowed: Vec<_> = changes.iter().copied().filter(is_harmless).collect();
    // What no model finds of all of them, none finds of one: that would be among what all make possible.
    let none_is_found = !allowed.is_empty() && found_by(&allowed).is_none();
    let mut unfound = Vec::new();
    for change in changes {
        let by = match none_is_found && allowed.contains(&change) {
            true => None,
            false => found_by(&[change]),
        };
        let name = named(source, change);
        let none = match is_harmless(&change) {
            true => "harmless",
            false => "NOT FOUND",
        };
        println!(
            "mutant: {what}, line {}, {}: {}",
            change.0.line(),
            name.replace(": ", " "),
            by.unwrap_or(none)
        );
        if by.is_none() {
            unfound.push(name);
        }
    }
    unfound.sort();
    let mut harmless: Vec<_> = harmless.iter().map(ToString::to_string).collect();
    harmless.sort();
    assert_eq!(unfound, harmless, "{what}: what nobody notices");
}

/// To share, with all of its atomics made.
fn shared<T: Debug>(value: T) -> loom::sync::Arc<T> {
    let _ = format!("{value:?}");
    loom::sync::Arc::new(value)
}

/// Runs both at the same time as each other; what they came to when both have ended.
fn together<T: 'static, A, B: 'static>(
    shared: &loom::sync::Arc<T>,
    here: impl FnOnce(&T) -> A,
    there: impl FnOnce(&T) -> B + 'static,
) -> (A, B) {
    let theirs = loom::sync::Arc::clone(shared);
    let other = thread::spawn(move || there(&theirs));
    let here = here(shared);
    (here, other.join().unwrap())
}

/// Whether somebody may begin, who does not wait for it.
fn others_begin(arbiter: &Arbiter) -> bool {
    let mut turn = Turn::default();
    let begun = arbiter.others_begin(&mut turn, 0);
    arbiter.leave(turn);
    begun
}

/// An arbiter whose device is busy, so that nobody else begins.
fn busy() -> loom::sync::Arc<Arbiter> {
    let arbiter = shared(Arbiter::new());
    (0..DEPTH).for_each(|_| assert!(others_begin(&arbiter)));
    arbiter
}

/// Somebody who looks in vain, and so waits.
fn waits(arbiter: &Arbiter, class: Class, now_us: u64) -> Turn {
    let mut turn = Turn::new(class);
    assert!(!arbiter.others_begin(&mut turn, now_us));
    turn
}

/// Whether nothing is under way, and nobody waits: as many may begin as may at all, and no more. They end.
fn is_at_rest(arbiter: &Arbiter) -> bool {
    let began = (0..=DEPTH).filter(|_| others_begin(arbiter)).count() as u64;
    (0..began).for_each(|_| arbiter.others_end());
    began == DEPTH
}

/// D-depth: there is room for one more, and two want it.
fn two_want_the_last_place() -> bool {
    let arbiter = shared(Arbiter::new());
    (1..DEPTH).for_each(|_| assert!(others_begin(&arbiter)));
    let begun = together(&arbiter, others_begin, others_begin);
    (0..DEPTH).for_each(|_| arbiter.others_end());
    (begun.0 != begun.1) && is_at_rest(&arbiter)
}

/// No end of an operation is lost.
fn two_end() -> bool {
    let arbiter = busy();
    together(&arbiter, Arbiter::others_end, Arbiter::others_end);
    is_at_rest(&arbiter)
}

/// D-first: a fault comes and reads, while others begin and end.
fn a_fault_among_others() -> bool {
    let arbiter = shared(Arbiter::new());
    together(
        &arbiter,
        |a| a.begin(a.wait(0), 1),
        |a| {
            for _ in 0..2 {
                if others_begin(a) {
                    a.others_end();
                }
            }
        },
    );
    arbiter.most_ahead() <= 1 && is_at_rest(&arbiter)
}

/// Two faults read, one of which found an operation of others ahead of it, and a third waits: the share that they
/// have read lets one of the others begin, once.
fn two_faults_read() -> bool {
    let arbiter = shared(Arbiter::new());
    assert!(others_begin(&arbiter));
    let behind = arbiter.wait(0);
    arbiter.others_end();
    let (first, third) = (arbiter.wait(0), arbiter.wait(0));
    together(
        &arbiter,
        |a| a.begin(behind, SHARE_PAGES / 2),
        |a| a.begin(first, SHARE_PAGES / 2),
    );
    let begun = [(); 2].map(|()| others_begin(&arbiter));
    let most = arbiter.most_ahead();
    arbiter.others_end();
    arbiter.give_up(third);
    begun == [true, false] && most == 1 && is_at_rest(&arbiter)
}

/// D-order: two of a class that has waited long look at the same time, and there is room for both. One of them begins,
/// and then who waits in the first class.
fn two_are_next_for_their_age() -> bool {
    let arbiter = busy();
    let [mut here, mut there] = [(); 2].map(|()| waits(&arbiter, Class::Spill, 0));
    let mut fetch = waits(&arbiter, Class::Fetch, 1);
    (0..DEPTH).for_each(|_| arbiter.others_end());
    let begun = together(
        &arbiter,
        move |a| a.others_begin(&mut here, AGE_US),
        move |a| a.others_begin(&mut there, AGE_US),
    );
    begun.0 != begun.1 && arbiter.others_begin(&mut fetch, AGE_US)
}

/// D-order: whoever is next does not come, and two have found that for long when there is room for both. One of them begins,
/// and the room that is left is that one's who is next for as long again.
fn two_pass_one_over() -> bool {
    let arbiter = busy();
    let mut fetch = waits(&arbiter, Class::Fetch, 0);
    (0..DEPTH).for_each(|_| arbiter.others_end());
    let [mut here, mut there] = [(); 2].map(|()| waits(&arbiter, Class::Spill, 0));
    let begun = together(
        &arbiter,
        move |a| a.others_begin(&mut here, YIELD_US),
        move |a| a.others_begin(&mut there, YIELD_US),
    );
    begun.0 != begun.1 && arbiter.others_begin(&mut fetch, YIELD_US)
}

/// D-order: a class of which something began long ago has waited for nothing when somebody comes to its line. Whoever is
/// first meanwhile begins.
fn one_joins_an_empty_line() -> bool {
    let arbiter = busy();
    let mut fetch = waits(&arbiter, Class::Fetch, AGE_US);
    (0..DEPTH).for_each(|_| arbiter.others_end());
    let (_, begun) = together(
        &arbiter,
        |a| {
            let mut spill = Turn::new(Class::Spill);
            let begun = a.others_begin(&mut spill, AGE_US);
            a.leave(spill);
            begun
        },
        move |a| a.others_begin(&mut fetch, AGE_US),
    );
    begun
}

/// Two of a class come at the same time, behind one that leaves: whoever has waited longer begins first.
fn two_come_one_after_the_other() -> bool {
    let arbiter = busy();
    arbiter.leave(waits(&arbiter, Class::Spill, 1));
    let comes = |now_us| move |a: &Arbiter| waits(a, Class::Spill, now_us);
    let (mut elder, mut younger) = together(&arbiter, comes(2), comes(3));
    arbiter.others_end();
    let begun = [&mut younger, &mut elder].map(|turn| arbiter.others_begin(turn, 4));
    begun == [false, true]
}

/// Whoever has waited longest leaves as another one comes: whoever comes later knows of that one.
fn one_leaves_as_another_comes() -> bool {
    let arbiter = busy();
    let eldest = waits(&arbiter, Class::Spill, 2);
    let (_, mut another) = together(
        &arbiter,
        move |a| a.leave(eldest),
        // By another CPU's clock.
        |a| waits(a, Class::Spill, 1),
    );
    arbiter.others_end();
    let begun = [&mut Turn::default(), &mut another].map(|turn| arbiter.others_begin(turn, 3));
    begun == [false, true]
}

/// Somebody of `class` looks for the first time, behind one that is next and begins meanwhile. Either that one finds somebody in
/// line, whom it tells, or the other begins at once, as there is room for both.
fn one_comes_as_another_begins(class: Class, looks: fn(&Arbiter, &mut Turn, u64) -> bool) -> bool {
    let arbiter = busy();
    let mut fetch = waits(&arbiter, Class::Fetch, 1);
    (0..DEPTH).for_each(|_| arbiter.others_end());
    let (told, begun) = together(
        &arbiter,
        move |a| a.others_begin(&mut fetch, 2) && a.has_room_for_another(),
        move |a| looks(a, &mut Turn::new(class), 3),
    );
    told || begun
}

/// The other is of a less urgent class.
fn one_comes_behind_a_class() -> bool {
    one_comes_as_another_begins(Class::Spill, Arbiter::others_begin)
}

/// The other is of the same class, and has come later.
fn one_comes_behind_its_elder() -> bool {
    one_comes_as_another_begins(Class::Fetch, Arbiter::others_begin)
}

/// The other only passes.
fn one_comes_to_pass() -> bool {
    one_comes_as_another_begins(Class::Evict, Arbiter::may_pass)
}

/// Two wait in a line that is before that of the rest, and leave it: nobody is counted in it any more, and as many may
/// begin as before.
fn two_wait_in_line() -> bool {
    let arbiter = busy();
    let passes = |a: &Arbiter| a.leave(waits(a, Class::Fetch, 0));
    together(&arbiter, passes, passes);
    (0..DEPTH).for_each(|_| arbiter.others_end());
    is_at_rest(&arbiter)
}

/// What is so at one moment is in one number, whose changes come one after the other whatever their order says: what
/// the arbiter needs of its atomics is that none of them is torn.
#[test]
fn an_arbiter_lets_as_many_begin_as_may() {
    all_is_needed(
        "arbiter",
        include_str!("../../../src/uvm_rust/policy/flash/arbiter.rs"),
        &[
            ("two want the last place", two_want_the_last_place),
            ("two end", two_end),
            ("a fault among others", a_fault_among_others),
            ("two faults read", two_faults_read),
            ("two wait in line", two_wait_in_line),
            ("two are next for their age", two_are_next_for_their_age),
            ("two pass one over", two_pass_one_over),
            ("one joins an empty line", one_joins_an_empty_line),
            ("two come one after the other", two_come_one_after_the_other),
            ("one leaves as another comes", one_leaves_as_another_comes),
            ("one comes behind a class", one_comes_behind_a_class),
            ("one comes behind its elder", one_comes_behind_its_elder),
            ("one comes to pass", one_comes_to_pass),
        ],
        &[
            "Relaxed: let begun = self.now.fetch_update(AcqRel, Acquire, |now| {",
            "Relaxed: let changed = self.now.fetch_update(AcqRel, Acquire, |now| {",
            "Relaxed: let now = Now::from(self.now.load(Acquire));",
            "Relaxed: let seen = Now::from(self.now.load(Acquire));",
            "Relaxed: let passes = turn.finds(look, self.now.load(Acquire).into()) != Next::No;",
        ],
    );
}

const ME: u64 = 1;
const OTHER: u64 = 2;

/// Whether `thread` gives up, as it has found so many chunks held.
fn gives_up(reclaim: &Reclaim, thread: u64) -> bool {
    (0..u64::from(HELD_CHUNKS)).any(|n| {
        reclaim.eviction_begins();
        reclaim.eviction_ended(Ended::Held { of: u32::MAX }, thread, n * HELD_MS)
    })
}

/// Whoever sees that an eviction has ended sees what it gained.
fn an_eviction_ends() -> bool {
    let reclaim = shared(Reclaim::new());
    let gains = reclaim.begin(ME);
    reclaim.eviction_begins();
    let looks = move |r: &Reclaim| r.goes_on(gains);
    let ends = |r: &Reclaim| r.eviction_ended(Ended::Got, OTHER, 0);
    together(&reclaim, looks, ends).0
}

/// Whoever sees that RM's call has ended sees that it gave memory back.
fn a_call_of_rms_ends() -> bool {
    let reclaim = shared(Reclaim::new());
    let gains = reclaim.begin(ME);
    reclaim.rm_call_begins();
    let looks = move |r: &Reclaim| r.goes_on(gains);
    together(&reclaim, looks, |r| r.rm_call_ended(false)).0
}

/// So does who has given up.
fn a_call_of_rms_ends_for_who_gave_up() -> bool {
    let reclaim = shared(Reclaim::new());
    let gains = reclaim.begin(ME);
    assert!(gives_up(&reclaim, ME));
    reclaim.rm_call_begins();
    let looks = move |r: &Reclaim| r.given_up(ME, gains);
    !together(&reclaim, looks, |r| r.rm_call_ended(false)).0
}

/// No beginning, end or gain is lost.
fn all_is_counted() -> bool {
    let reclaim = shared(Reclaim::new());
    reclaim.eviction_begins();
    reclaim.rm_call_begins();
    together(
        &reclaim,
        |r| {
            r.eviction_ended(Ended::Got, ME, 0);
            r.rm_call_begins();
        },
        |r| {
            r.rm_call_ended(false);
            r.eviction_begins();
        },
    );
    let two = reclaim.begin(ME) == 2;
    reclaim.eviction_ended(Ended::Failed, ME, 0);
    reclaim.rm_call_ended(true);
    two && !reclaim.goes_on(2)
}

/// Nothing is said here of a thread that begins anew while another one gives up. loom lets an exchange read what a
/// store without order has overwritten, and of the two the exchange then counts as the later one. No processor does that.
#[test]
fn reclaim_shows_what_others_gain() {
    all_is_needed(
        "reclaim",
        include_str!("../../../src/uvm_rust/policy/evict/reclaim.rs"),
        &[
            ("an eviction ends", an_eviction_ends),
            ("a call of RM's ends", a_call_of_rms_ends),
            ("all is counted", all_is_counted),
            ("one who gave up", a_call_of_rms_ends_for_who_gave_up),
        ],
        &["Torn: .compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);"],
    );
}

/// A lane for two numbers, all of whose atomics are made, and whose places have been used.
fn used_lane() -> loom::sync::Arc<Lane> {
    let lane = Lane::new(2).ok().unwrap();
    for number in [8, 9] {
        assert!(lane.push(number) && lane.front() == Some(number) && lane.pop() == Some(number));
    }
    loom::sync::Arc::new(lane)
}

/// What was put is taken, in its order, and nothing else; places are used again.
fn numbers_go_through() -> bool {
    let lane = used_lane();
    let takes = |lane: &Lane| (0..3).filter_map(|_| lane.pop()).collect();
    let puts = |lane: &Lane| (1..=3).filter(|n| lane.push(*n)).collect();
    let (mut taken, put): (Vec<u64>, Vec<u64>) = together(&lane, takes, puts);
    taken.extend(core::iter::from_fn(|| lane.pop()));
    put == taken && put.starts_with(&[1, 2])
}

/// The consumer's count needs its order where a processor lets a later store overtake an earlier load, which loom does
/// not: it runs each thread's steps in their order.
#[test]
fn a_lane_gives_what_was_put() {
    all_is_needed(
        "lane",
        include_str!("../../../src/uvm_rust/policy/prefetch/lane.rs"),
        &[("numbers go through", numbers_go_through)],
        &[
            "Relaxed: let taken = self.taken.load(Ordering::Acquire);",
            "Relaxed: self.taken.store(taken.wrapping_add(1), Ordering::Release);",
        ],
    );
}

/// Two VA spaces copy for the first time at once: one of them follows the other.
fn two_copy_at_once() -> bool {
    let sharers = shared(Sharers::new());
    together(&sharers, |s| s.meets(1), |s| s.meets(2));
    sharers.are_several(|| 1)
}

/// Somebody asks when the last change is long ago, as another one copies and asks as well. From then on they are several.
fn one_asks_as_another_copies() -> bool {
    let sharers = shared(Sharers::new());
    sharers.meets(1);
    sharers.meets(2);
    let now = 1 + RECENT_US;
    let are_several = sharers.are_several(|| 1);
    let asks = move |s: &Sharers| s.are_several(|| now);
    let (_, also) = together(&sharers, asks, move |s| {
        s.meets(1);
        s.are_several(|| now)
    });
    are_several && also && sharers.are_several(|| now + 1)
}

/// Who asks in the middle of a change may still be told otherwise, which no model says anything of.
#[test]
fn sharers_of_a_link_are_known() {
    all_is_needed(
        "sharers",
        include_str!("../../../src/uvm_rust/policy/link/sharers.rs"),
        &[
            ("two copy at once", two_copy_at_once),
            ("one asks as another copies", one_asks_as_another_copies),
        ],
        &[],
    );
}
