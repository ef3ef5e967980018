// SPDX-License-Identifier: GPL-2.0-only OR MIT

use proptest::prelude::*;
use std::vec::Vec;

use super::*;
use crate::fake::Fake;
use crate::fake::SYSMEM;

fn bytes_of(m: &Fake, at: Loc, n: usize) -> Vec<u8> {
    m.bytes(at, n)
        .unwrap()
        .iter()
        .map(|b| b.load(Ordering::Relaxed))
        .collect()
}

fn machine() -> Fake {
    let m = Fake::new(4096, 8192);
    for i in 0..4096 {
        m.bytes(Loc::vidmem(i), 1).unwrap()[0].store(i as u8 ^ 0x5a, Ordering::Relaxed);
    }
    m
}

proptest! {
    #[test]
    fn copies_exactly(to in 0u64..100, from in 0u64..100, n in 0u64..200) {
        let m = machine();
        let before = bytes_of(&m, Loc::vidmem(0), 4096);
        m.copy(Loc::vidmem(2048 + to), Loc::vidmem(from), n).unwrap();
        let mut want = before.clone();
        for i in 0..n as usize {
            want[2048 + to as usize + i] = before[from as usize + i];
        }
        prop_assert_eq!(bytes_of(&m, Loc::vidmem(0), 4096), want);
    }

    #[test]
    fn fills_exactly(
        to in 0u64..100,
        n in 0u64..200,
        pattern in proptest::collection::vec(any::<u8>(), 1..16),
        phase in 0usize..16,
    ) {
        let m = machine();
        let mut want = bytes_of(&m, Loc::vidmem(0), 4096);
        m.fill(Loc::vidmem(to), n, &pattern, phase).unwrap();
        for i in 0..n as usize {
            want[to as usize + i] = pattern[(phase + i) % pattern.len()];
        }
        prop_assert_eq!(bytes_of(&m, Loc::vidmem(0), 4096), want);
    }
}

#[test]
fn bad_addresses_are_errors() {
    let m = machine();
    assert_eq!(m.load32(Loc::vidmem(2)), Err(BadAddress(Loc::vidmem(2))));
    assert_eq!(
        m.load32(Loc::vidmem(4096)),
        Err(BadAddress(Loc::vidmem(4096)))
    );
    assert!(load64(&m, Loc::vidmem(4)).is_err());
    assert!(load64(&m, Loc::sysmem(SYSMEM - 8)).is_err());
    assert!(m.copy(Loc::vidmem(4090), Loc::vidmem(0), 8).is_err());
    assert!(m.copy(Loc::vidmem(0), Loc::buffer(Slot(3), 0), 8).is_err());
    // System memory is contiguous within a page only.
    assert!(m.fill(Loc::sysmem(SYSMEM + 4088), 16, &[1], 0).is_err());
    assert_eq!(m.extent(Loc::sysmem(SYSMEM + 4088)), 8);
}
