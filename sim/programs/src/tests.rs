// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What moves under each policy, against what must.

use super::*;

fn policy(evict: &str, prefetch: bool) -> Policy {
    let evict = Choice::named(evict).unwrap();
    Policy { evict, prefetch }
}

/// Two, four and eight programs, with and without a word at the end of a turn, and two sizes of a GPU.
fn all() -> Vec<Programs> {
    let mut all = Vec::new();
    for programs in [2, 4, 8] {
        for working_set in [32, 200] {
            for rests in [true, false] {
                all.push(Programs {
                    rests,
                    ..Programs::on_one_and_a_half(programs, working_set)
                });
            }
        }
    }
    all
}

#[test]
fn turns_move_little_more_than_must_move() {
    for programs in all() {
        let least = programs.least().unwrap();
        for prefetch in [true, false] {
            let moved = programs.run(policy("turns", prefetch)).unwrap();
            println!("{programs:?}, prefetch {prefetch}: {moved:?}, least {least}");
            assert!(moved.blocks >= least, "{programs:?}: {moved:?} < {least}");
            assert!(
                10 * moved.blocks <= 11 * least,
                "{programs:?}: {moved:?}, {least}"
            );
        }
    }
}

/// What must move is what a GPU lacks that keeps, of those that wait, as much as fits beside a working set.
#[test]
fn the_least_is_what_does_not_fit() {
    for programs in all() {
        let Programs {
            programs: n,
            working_set: w,
            chunks,
            turns,
            ..
        } = programs;
        let (kept, turns) = (chunks - w, (turns - 1) * n);
        // Each chunk that is kept saves one block in as many turns as there are other programs.
        let about = n * w + turns * w - turns * kept / (n - 1);
        let least = programs.least().unwrap();
        assert!(
            least.abs_diff(about.into()) <= u64::from(w),
            "{programs:?}: {least}, {about}"
        );
    }
}

/// A turn comes back whole before it runs: from the second one on, no kernel waits for a block.
#[test]
fn no_kernel_waits_from_the_second_turn_on() {
    for programs in all() {
        let moved = programs.run(policy("turns", true)).unwrap();
        let first = u64::from(programs.programs * programs.working_set);
        assert_eq!(moved.faults, first, "{programs:?}");
    }
}

/// Plain UVM brings the whole working set at each turn, and so does DeepUM.
#[test]
fn the_order_of_last_use_moves_all() {
    for programs in all() {
        let Programs {
            programs: n,
            working_set,
            turns,
            ..
        } = programs;
        let whole = u64::from(n * working_set * turns);
        let plain = programs.run(policy("lru", false)).unwrap();
        assert_eq!((plain.blocks, plain.faults), (whole, whole), "{programs:?}");
        let deepum = programs.run(policy("lru", true)).unwrap();
        println!("{programs:?}: deepum {deepum:?} of {whole}");
        assert!(deepum.blocks >= programs.least().unwrap());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let right = Programs::on_one_and_a_half(2, 8);
    let wrong = [
        Programs {
            programs: 0,
            ..right
        },
        Programs { turns: 0, ..right },
        Programs { passes: 0, ..right },
        Programs {
            kernels: 0,
            ..right
        },
        Programs {
            kernels: 9,
            ..right
        },
        Programs { chunks: 7, ..right },
    ];
    for programs in wrong {
        assert_eq!(programs.run(policy("lru", false)), Err(Error::Shape));
        assert_eq!(programs.least(), Err(Error::Shape));
    }
    assert!(right.run(policy("lru", false)).is_ok());
}
