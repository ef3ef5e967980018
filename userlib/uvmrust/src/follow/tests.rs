// SPDX-License-Identifier: GPL-2.0-only OR MIT

#![allow(clippy::unwrap_used)]

use super::*;

const MIB: u64 = 1 << 20;

/// Two launches and two allocations, then steps of a, b, c with one allocation before b.
const PLAN: &str = "uvmplan 1\nkernels 3\nspan 4194304\n\
    at 0 prefetch 0 0 1048576\nat 0 allocate 2 2097152 1048576\nat 1 evict 1 1048576 1048576 ssd\n\
    at 2 evict 0 0 1048576 host\nat 2 copy 1 0 1048576 host\nat 0 free 2 2097152 1048576\n\
    start 2\nlaunch 0 a\nlaunch 1 b\nlaunch 2 c\n\
    tensor 0 alloc0\ntensor 1 alloc1\ntensor 2 kernel1.0\n";

fn plan() -> Plan {
    Plan::parse(PLAN).unwrap()
}

/// What is moved, as (MiB at which it lies, where to).
fn moved(before: Before) -> Vec<(u64, Whereto)> {
    match before {
        Before::Plan(moves) => moves
            .into_iter()
            .map(|(memory, to)| (memory.range.base / MIB, to))
            .collect(),
        Before::Off(wanted) => panic!("off: {wanted:?}"),
    }
}

/// A follower after the launches before the first step; the two allocations lie here, in MiB.
fn started(plan: &Plan, at: [u64; 2]) -> Follower<'_> {
    let mut follower = Follower::new(plan).unwrap();
    for (i, at) in at.into_iter().enumerate() {
        follower.allocated(at * MIB, (1 + i as u64) * MIB);
        assert_eq!(moved(follower.launch("init")), []);
    }
    follower
}

/// Frees what begins here, in MiB.
fn free(follower: &mut Follower<'_>, at: u64) {
    let gone = follower.allocations().begins(at * MIB).unwrap();
    follower.freed(gone);
}

/// One step, with its own allocation here.
fn step(follower: &mut Follower<'_>, at: u64) -> [Vec<(u64, Whereto)>; 3] {
    let a = moved(follower.launch("a"));
    follower.allocated(at * MIB, MIB);
    let b = moved(follower.launch("b"));
    let c = moved(follower.launch("c"));
    free(follower, at);
    [a, b, c]
}

#[test]
fn only_the_plan_of_a_record_can_be_followed() {
    let plain = PLAN.split("start").next().unwrap();
    assert!(Follower::new(&Plan::parse(plain).unwrap()).is_none());
}

#[test]
fn a_plan_is_followed_wherever_memory_lies() {
    use Whereto::{Gpu, Host, Ssd};
    let plan = plan();
    for (at, own) in [([10, 20], 30), ([90, 50], 70)] {
        let mut follower = started(&plan, at);
        for _ in 0..3 {
            // What is asked for too early comes as soon as it is there.
            let expected = [
                vec![(at[0], Gpu)],
                vec![(own, Gpu), (at[1], Ssd)],
                vec![(at[0], Host)],
            ];
            assert_eq!(step(&mut follower, own), expected);
        }
        // The whole of an allocation, whatever its size is now.
        let memory = follower
            .allocations()
            .at(at[1] * MIB + 2 * MIB - 1)
            .unwrap();
        assert_eq!((memory.number, memory.range.length), (1, 2 * MIB));
    }
}

#[test]
fn what_is_freed_is_not_moved_nor_what_comes_in_its_place() {
    let plan = plan();
    let mut follower = started(&plan, [10, 20]);
    free(&mut follower, 10);
    follower.allocated(10 * MIB, MIB);
    assert_eq!(step(&mut follower, 30)[0], []);
    let mut follower = started(&plan, [10, 20]);
    let all: Vec<_> = follower.allocations().all().collect();
    all.into_iter().for_each(|gone| follower.freed(gone));
    let expected = [vec![], vec![(30, Whereto::Gpu)], vec![]];
    assert_eq!(step(&mut follower, 30), expected);
}

/// A free is told when CUDA has made it, and another thread may have the address by then.
#[test]
fn a_free_that_is_told_late_leaves_what_came_in_its_place() {
    let plan = plan();
    let mut follower = started(&plan, [10, 20]);
    let gone = follower.allocations().begins(10 * MIB).unwrap();
    follower.allocated(10 * MIB, MIB);
    follower.freed(gone);
    let found = follower.allocations().begins(10 * MIB).unwrap();
    assert_eq!(found.number, 2);
    follower.freed(found);
    assert_eq!(follower.allocations().begins(10 * MIB), None);
}

#[test]
fn a_program_that_leaves_the_plan_is_found_again() {
    let plan = plan();
    let mut follower = started(&plan, [10, 20]);
    step(&mut follower, 30);
    assert_eq!(moved(follower.launch("a")), [(10, Whereto::Gpu)]);
    assert_eq!(follower.launch("x"), Before::Off(Some(1)));
    // It goes on where it was, which is known again after a whole step of launches.
    assert_eq!(follower.launch("b"), Before::Off(None));
    follower.allocated(40 * MIB, MIB);
    assert_eq!(follower.launch("c"), Before::Off(None));
    assert_eq!(moved(follower.launch("a")), [(10, Whereto::Gpu)]);
    free(&mut follower, 40);
    follower.allocated(50 * MIB, MIB);
    let expected = [(50, Whereto::Gpu), (20, Whereto::Ssd)];
    assert_eq!(moved(follower.launch("b")), expected);
}

#[test]
fn other_launches_before_the_first_step_do_no_harm() {
    let plan = plan();
    let mut follower = started(&plan, [10, 20]);
    assert_eq!(follower.launch("init"), Before::Off(Some(0)));
    for name in ["a", "b"] {
        assert_eq!(follower.launch(name), Before::Off(None));
    }
    assert_eq!(moved(follower.launch("c")), [(10, Whereto::Host)]);
    step(&mut follower, 30);
}

#[test]
fn kernels_without_a_name_are_counted() {
    let text = PLAN.replace("launch 1 b", "launch 1 ?");
    let plan = Plan::parse(&text).unwrap();
    let mut follower = started(&plan, [10, 20]);
    step(&mut follower, 30);
    moved(follower.launch(ANY));
    moved(follower.launch("anything"));
    moved(follower.launch("c"));
}

#[test]
fn a_place_that_occurs_twice_in_a_step_is_not_taken_for_one() {
    let names: Vec<_> = (0..3 * WINDOW).map(|_| "same").chain(["last"]).collect();
    let mut text = format!("uvmplan 1\nkernels {}\nspan 4096\nstart 0\n", names.len());
    for (i, name) in names.iter().enumerate() {
        text += &format!("launch {i} {name}\n");
    }
    let plan = Plan::parse(&text).unwrap();
    let mut follower = Follower::new(&plan).unwrap();
    assert_eq!(follower.launch("other"), Before::Off(Some(0)));
    for _ in 0..2 * WINDOW {
        assert_eq!(follower.launch("same"), Before::Off(None));
    }
    moved(follower.launch("last"));
    names
        .iter()
        .for_each(|name| assert_eq!(moved(follower.launch(name)), []));
}

#[test]
fn an_address_belongs_to_what_was_allocated_there_last() {
    let mut allocations = Allocations::default();
    let first = allocations.add(4096, 8192);
    let second = allocations.add(16384, 4096);
    assert_eq!(allocations.at(4095), None);
    assert_eq!(allocations.at(12287), Some(first));
    assert_eq!(allocations.at(12288), None);
    assert_eq!(allocations.at(u64::MAX), None);
    // Its context was destroyed, which was not told.
    let third = allocations.add(8192, 12288);
    assert!(!allocations.is_live(first) && !allocations.is_live(second));
    assert_eq!(allocations.at(17000), Some(third));
    assert_eq!(allocations.at(4096), None);
    assert!(!allocations.remove(first) && allocations.begins(4096).is_none());
    assert_eq!(allocations.begins(8192), Some(third));
    assert_eq!(allocations.all().collect::<Vec<_>>(), [third]);
    assert!(allocations.remove(third));
    assert_eq!(allocations.at(17000), None);
}
