// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Bits that belong to no field, or to one that is not emulated, stop the channel; those that
//! drivers set do not. The fields are written as in NVIDIA's class headers.

use super::*;

/// Whether bit `n` is in one of the fields (high, low).
fn is_in(fields: &[(u32, u32)], n: u32) -> bool {
    fields.iter().any(|&(high, low)| (low..=high).contains(&n))
}

/// Pushes `words(bit)` for each bit of a word: the channel must refuse those out of `fields`.
fn each_bit(
    chip: &'static Personality,
    what: &str,
    fields: &[(u32, u32)],
    words: impl Fn(&Bench, u32) -> Vec<u32>,
) {
    for n in 0..32 {
        let mut b = Bench::new(chip);
        let words = words(&b, 1 << n);
        b.run(&words);
        let (status, log) = b.error();
        let refused = log.contains("are not known");
        assert_eq!(refused, !is_in(fields, n), "{what}, bit {n}: {log}");
        if refused {
            assert_eq!(status, 0xffff, "{what}, bit {n}");
            assert_eq!(b.gpu.stats().unknown_methods, 1, "{what}, bit {n}");
        }
    }
}

#[test]
fn registers_of_the_copy_engine() {
    const ALL: &[(u32, u32)] = &[(31, 0)];
    const TARGET: &[(u32, u32)] = &[(1, 0)];
    const COMPONENTS: &[(u32, u32)] = &[
        (2, 0),
        (6, 4),
        (10, 8),
        (14, 12),
        (17, 16),
        (21, 20),
        (25, 24),
    ];
    for (chip, upper) in [
        (&Personality::TURING, &[(16, 0)][..]),
        (&Personality::HOPPER, &[(24, 0)]),
    ] {
        for method in [0x240, 0x400, 0x408] {
            let what = std::format!("{method:#x} of {}", chip.name);
            each_bit(chip, &what, upper, |_, bit| increasing(CE, method, &[bit]));
        }
    }
    for (method, fields) in [
        (0x244, ALL),
        (0x248, ALL),
        (0x260, TARGET),
        (0x264, TARGET),
        (0x404, ALL),
        (0x40c, ALL),
        (0x418, ALL),
        (0x700, ALL),
        (0x704, ALL),
        (0x708, COMPONENTS),
    ] {
        let what = std::format!("{method:#x}");
        each_bit(&Personality::TURING, &what, fields, |_, bit| {
            increasing(CE, method, &[bit])
        });
    }
}

#[test]
fn launches() {
    let fields = [(4, 0), (10, 7), (13, 12), (19, 14), (25, 25)];
    let more = [&fields[..], &[(23, 23), (26, 26)]].concat();
    for (chip, fields) in [
        (&Personality::TURING, &fields[..]),
        (&Personality::VOLTA, &fields),
        (&Personality::AMPERE, &fields),
        (&Personality::HOPPER, &more),
    ] {
        each_bit(chip, "LAUNCH_DMA", fields, |_, bit| {
            increasing(CE, 0x300, &[bit])
        });
    }
    // Fields that are known, with values that are not.
    for (launch, what) in [
        (COPY | 3, "kind of transfer"),
        (1 << 19, "semaphore reduction"),
        (1 << 3 | 6 << 14, "semaphore reduction"),
        (1 << 3 | 1 << 18, "semaphore reduction"),
        (1 << 3 | 1 << 19 | 6 << 14, "semaphore reduction"),
    ] {
        let mut b = bench();
        let va = b.data();
        b.ce(&[(0x240, high(va)), (0x244, va as u32), (0x300, launch)]);
        assert!(b.error().1.contains(what), "{launch:#x}: {:?}", b.error());
    }
}

#[test]
fn registers_of_the_host() {
    for (method, fields) in [
        (0x5c, &[(31, 2)][..]),
        (0x60, &[(7, 0)]),
        (0x64, &[(31, 0)]),
        (0x68, &[(31, 0)]),
        (0x78, &[(0, 0)]),
    ] {
        let what = std::format!("{method:#x}");
        each_bit(&Personality::TURING, &what, fields, |_, bit| {
            increasing(0, method, &[bit])
        });
    }
    each_bit(&Personality::HOPPER, "0x60", &[(24, 0)], |_, bit| {
        increasing(0, 0x60, &[bit])
    });
    for (method, fields) in [
        (0x10, &[(7, 0)][..]),
        (0x14, &[(31, 2)]),
        (0x18, &[(31, 0)]),
    ] {
        let what = std::format!("{method:#x}");
        each_bit(&Personality::VOLTA, &what, fields, |_, bit| {
            increasing(0, method, &[bit])
        });
    }
    each_bit(&Personality::TURING, "SET_OBJECT", &[(20, 0)], |_, bit| {
        increasing(0, 0, &[0xc5b5 ^ bit])
    });
}

/// The operations of both kinds of semaphores, with what drivers set beside them.
#[test]
fn semaphore_operations() {
    let new = |operation: u32| {
        move |b: &Bench, bit: u32| {
            let va = b.data();
            increasing(0, 0x5c, &[va as u32, high(va), 0, 0, operation | bit])
        }
    };
    let release = [(2, 0), (20, 20), (25, 24)];
    each_bit(&Personality::TURING, "release", &release, new(1));
    let acquire = [(2, 0), (12, 12), (24, 24)];
    each_bit(&Personality::TURING, "acquire", &acquire, new(3));
    let old = |operation: u32| {
        move |b: &Bench, bit: u32| {
            let va = b.data();
            increasing(0, 0x10, &[high(va), va as u32, 0, operation | bit])
        }
    };
    let release = [(4, 0), (20, 20), (24, 24)];
    each_bit(&Personality::VOLTA, "old release", &release, old(2));
    let acquire = [(4, 0), (12, 12)];
    each_bit(&Personality::VOLTA, "old acquire", &acquire, old(4));
}

/// A memory operation: its name, words A to D, and the fields of each.
type MemOp = (&'static str, [u32; 4], [&'static [(u32, u32)]; 4]);

#[test]
fn memory_operations() {
    const ALL: &[(u32, u32)] = &[(31, 0)];
    const ADDRESS: &[(u32, u32)] = &[(5, 0), (11, 11), (31, 12)];
    const ENGINE: &[(u32, u32)] = &[(6, 0), (11, 11), (31, 12)];
    const OPERATION: &[(u32, u32)] = &[(31, 27)];
    let operations: [MemOp; 6] = [
        (
            "membar",
            [0, 0, 0, 5 << 27],
            [&[], &[], &[(0, 0)], OPERATION],
        ),
        (
            "invalidate",
            [0, 0, 0, 9 << 27],
            [&[(11, 11)], &[], ALL, ALL],
        ),
        (
            "targeted invalidate",
            [0, 0, 0, 0xa << 27],
            [ADDRESS, ALL, ALL, ALL],
        ),
        ("cancel", [0, 0, 5 << 2, 0xa << 27], [ENGINE, ALL, ALL, ALL]),
        (
            "clear",
            [0, 0, 0, 0x16 << 27 | 2],
            [&[], &[], &[(19, 0)], &[(1, 0), (31, 27)]],
        ),
        (
            "targeted clear",
            [0, 0, 0, 0x16 << 27 | 3],
            [&[], &[], &[(19, 0)], &[(6, 0), (31, 27)]],
        ),
    ];
    for (what, words, fields) in operations {
        for (i, fields) in fields.into_iter().enumerate() {
            let what = std::format!("{what}, word {i}");
            each_bit(&Personality::TURING, &what, fields, |_, bit| {
                let mut words = words;
                // A bit of the operation would make another one of it.
                if i < 3 || bit < 1 << 27 {
                    words[i] |= bit;
                }
                increasing(0, 0x28, &words)
            });
        }
    }
    let engine = &[(8, 0), (11, 11), (31, 12)];
    each_bit(&Personality::HOPPER, "cancel", engine, |_, bit| {
        increasing(0, 0x28, &[bit, 0, 5 << 2, 0xa << 27])
    });
    for aperture in [1, 3] {
        let mut b = bench();
        b.run(&increasing(0, 0x28, &[0, 0, aperture << 10, 9 << 27]));
        assert!(b.error().1.contains("aperture"), "{:?}", b.error());
    }
}

/// Ampere's drivers say of each invalidate that it is not for the TLBs of links.
#[test]
fn scopes_of_invalidates() {
    const SCOPE: (u32, u32) = (7, 6);
    const ALL: &[(u32, u32)] = &[SCOPE, (11, 11)];
    const TARGETED: &[(u32, u32)] = &[(5, 0), SCOPE, (11, 11), (31, 12)];
    for (operation, fields) in [(9, ALL), (0xa, TARGETED)] {
        let words = |bit| increasing(0, 0x28, &[bit, 0, 0, operation << 27]);
        let what = std::format!("operation {operation}");
        each_bit(&Personality::AMPERE, &what, fields, |_, bit| words(bit));
        for (scope, status) in [(0, 0), (1 << 6, 0xffff), (2 << 6, 0), (3 << 6, 0xffff)] {
            let mut b = Bench::new(&Personality::AMPERE);
            b.run(&words(scope));
            assert_eq!(b.error().0, status, "{what}, {scope:#x}: {}", b.error().1);
        }
    }
    // A replay goes with none.
    let mut b = Bench::new(&Personality::AMPERE);
    b.run(&increasing(0, 0x28, &[2 << 6, 0, 1 << 2, 9 << 27]));
    assert!(b.error().1.contains("are not known"), "{:?}", b.error());
}

#[test]
fn entries_of_the_ring() {
    let chips = [
        (&Personality::TURING, &[(30, 10), (7, 0)][..]),
        (&Personality::AMPERE, &[(30, 10), (7, 0)]),
        (&Personality::VOLTA, &[(30, 10), (8, 0)]),
        (&Personality::HOPPER, &[(30, 10), (7, 0)]),
    ];
    for (chip, fields) in chips {
        for n in 0..64 {
            let mut b = Bench::new(chip);
            let at = Loc::buffer(b.place.ring, u64::from(b.put) * 8);
            b.push(&increasing(0, 0x78, &[0]));
            let m = b.gpu.machine();
            m.set(at, m.get(at) ^ 1 << n);
            b.gpu.run();
            let refused = b.error().1.contains("are not known");
            let known = if n < 32 {
                is_in(&[(31, 2)], n)
            } else {
                is_in(fields, n - 32)
            };
            assert_eq!(refused, !known, "{}, bit {n}: {:?}", chip.name, b.error());
        }
    }
}

#[test]
fn headers_that_promise_too_much() {
    for kind in [1, 3, 5] {
        for (method, subchannel) in [(0x64, 0), (0x418, CE), (0x8, 0)] {
            for missing in [1u32, 2, 0x1000] {
                let count = 2 + missing;
                let header = kind << 29 | count << 16 | subchannel << 13 | method >> 2;
                let mut b = bench();
                b.run(&[header, 0, 0]);
                let (status, log) = b.error();
                assert_eq!(status, 0xffff, "{kind} {method:#x} {missing}");
                assert!(log.contains("promises more words"), "{log}");
                assert_eq!(b.gpu.stats().methods, 0, "nothing of it was executed");
            }
        }
    }
    // An immediate one has its data in the header, and a count of nothing is nothing.
    let mut b = bench();
    b.run(&[4 << 29 | 0x1fff << 16 | 0x64 >> 2, 1 << 29 | 0x64 >> 2]);
    b.expect_done();
    let mut b = bench();
    b.run(&[1 << 29 | 1 << 16 | 1 << 12 | 0x64 >> 2, 0]);
    assert!(b.error().1.contains("no method header"), "{:?}", b.error());
}
