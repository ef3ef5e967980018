// SPDX-License-Identifier: GPL-2.0-only OR MIT

use proptest::prelude::*;
use std::vec;

use super::*;

fn op() -> Op {
    Op {
        va: 1 << 40,
        stride: 8,
        count: 10,
        width: 8,
        ..Op::default()
    }
}

#[test]
fn bad_ops_are_refused() {
    type Change = fn(&mut Op);
    let bad: &[(&str, Change)] = &[
        ("kind", |o| o.kind = 5),
        ("flag", |o| o.flags = 8),
        ("reserved", |o| o.reserved = 1),
        ("no accesses", |o| o.count = 0),
        ("width 0", |o| o.width = 0),
        ("width 2", |o| o.width = 2),
        ("width 12", |o| o.width = 12),
        ("width 8192", |o| o.width = 8192),
        ("unaligned", |o| o.va += 4),
        ("unaligned stride", |o| o.stride = 12),
        ("unaligned rows", |o| o.row_stride = 4),
        ("lanes", |o| o.lanes = 33),
        ("warps", |o| o.warps = MAX_WARPS as u32 + 1),
        ("first uTLB", |o| o.utlb_first = UTLBS),
        ("uTLBs", |o| o.utlb_count = UTLBS + 1),
        ("accesses", |o| (o.stride, o.count) = (0, (1 << 40) + 1)),
        ("product", |o| {
            (o.stride, o.count, o.rows) = (0, 1 << 33, 1 << 33)
        }),
        ("end", |o| o.va = VA_END - 72),
        ("end by rows", |o| (o.rows, o.row_stride) = (2, 1 << 57)),
        ("below 0", |o| o.stride = -(1 << 39)),
        ("huge stride", |o| o.stride = i64::MIN),
        ("huge rows", |o| {
            (o.rows, o.row_stride) = (1 << 30, i64::MAX - 7)
        }),
        ("huge va", |o| o.va = u64::MAX - 7),
    ];
    let plan = |o: &Op| Kernel::new(&[*o], 1);
    assert!(plan(&op()).is_ok());
    for (what, change) in bad {
        let mut o = op();
        change(&mut o);
        assert!(matches!(plan(&o), Err(Error::Invalid)), "{what}");
    }
    let last = Op {
        va: VA_END - 80,
        ..op()
    };
    assert!(plan(&last).is_ok());
    let down = Op {
        va: 72,
        stride: -8,
        ..op()
    };
    assert!(plan(&down).is_ok());
    for (op, end) in [(last, VA_END), (down, 80), (op(), (1 << 40) + 80)] {
        assert_eq!(Kernel::new(&[down, op], 1).unwrap().end, end);
    }
    assert!(Kernel::new(&[], 1).is_err());
    assert!(Kernel::new(&vec![op(); MAX_OPS + 1], 1).is_err());
    let wide = Op {
        warps: MAX_WARPS as u32,
        ..op()
    };
    assert!(Kernel::new(&[wide], 1).is_ok());
    assert!(Kernel::new(&[wide, op()], 1).is_err());
}

#[test]
fn phases_end_at_barriers() {
    let barrier = Op {
        flags: FLAG_BARRIER,
        warps: 7,
        ..op()
    };
    let k = Kernel::new(&[op(), op(), barrier, op(), barrier], 1).unwrap();
    assert_eq!([k.phase_end(0), k.phase_end(2), k.phase_end(4)], [2, 4, 5]);
    assert_eq!(k.most_warps(), 8);
}

#[test]
fn patterns_count_elements() {
    let o = Op {
        width: 16,
        value: 100,
        value_stride: 3,
        stride: 16,
        ..op()
    };
    let p = Plan::new(&o).unwrap();
    assert_eq!(p.first_value(0), 100);
    assert_eq!(p.first_value(5), 100 + 3 * 10);
    let narrow = Plan::new(&Op {
        width: 4,
        stride: 4,
        value_stride: 1,
        ..op()
    })
    .unwrap();
    assert_eq!(narrow.first_value(5), 5);
}

#[test]
fn warps_go_round_their_utlbs() {
    let o = Op {
        utlb_first: UTLBS - 1,
        utlb_count: 2,
        ..op()
    };
    let p = Plan::new(&o).unwrap();
    assert_eq!([p.utlb(0), p.utlb(1), p.utlb(2)], [UTLBS - 1, 0, UTLBS - 1]);
}

proptest! {
    /// Every access is made exactly once, at the address the interface states.
    #[test]
    fn every_access_once(
        count in 1u64..200,
        rows in 0u64..9,
        warps in 0u32..20,
        lanes in 0u32..33,
        flags in prop_oneof![Just(0), Just(FLAG_BLOCKED), Just(FLAG_PERMUTE), Just(6)],
        stride in -3i64..4,
        row_stride in -300i64..300,
    ) {
        let o = Op {
            count, rows, warps, lanes, flags, stride: stride * 8, row_stride: row_stride * 8,
            va: 1 << 30, width: 8, ..Op::default()
        };
        let p = Plan::new(&o).unwrap();
        let total = count * rows.max(1);
        let mut seen = vec![false; total as usize];
        for warp in 0..warps.max(1) {
            let mut step = 0;
            while let Some((first, n)) = p.instruction(warp, step) {
                let most = if lanes == 0 { 32 } else { lanes };
                prop_assert!(n >= 1 && n <= most);
                for i in first..first + u64::from(n) {
                    let (number, va) = p.access(i);
                    let (row, column) = ((number / count) as i64, (number % count) as i64);
                    let want = (1i64 << 30) + row * row_stride * 8 + column * stride * 8;
                    prop_assert_eq!(va as i64, want);
                    prop_assert!(!std::mem::replace(&mut seen[number as usize], true));
                }
                step += 1;
            }
        }
        prop_assert!(!seen.contains(&false));
    }

    /// The scattered order is one-to-one at any size; shown by its factor.
    #[test]
    fn scattering_is_one_to_one(total in 1u64..(1 << 40), i in 0u64..(1 << 40)) {
        let (factor, shift) = permutation(total);
        prop_assert_eq!(gcd(factor, total), 1);
        let o = Op { count: total, stride: 0, flags: FLAG_PERMUTE, ..op() };
        let p = Plan::new(&o).unwrap();
        let i = i % total;
        let want = (u128::from(i) * u128::from(factor) + u128::from(shift)) % u128::from(total);
        prop_assert_eq!(u128::from(p.access(i).0), if factor == 1 { u128::from(i) } else { want });
    }
}
