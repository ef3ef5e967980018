// SPDX-License-Identifier: GPL-2.0-only OR MIT

use proptest::prelude::*;
use std::collections::BTreeMap;

use super::*;
use crate::emu::PeerId;
use crate::fake::Fake;
use crate::fake::Size;
use crate::fake::Tables;
use crate::fake::NO_ATOMICS;
use crate::fake::READ_ONLY;
use crate::fake::SYSMEM;
use crate::fake::UNCACHED;

mod version_3;

const VIDMEM: u64 = 8 << 20;
const BOTH: [Mmu; 2] = [Mmu::V2, Mmu::V3];

fn tables(mmu: Mmu, mixed: bool) -> (Fake, Tables, Pdb) {
    let m = Fake::new(VIDMEM, 4 << 20);
    let mut t = Tables::new(1 << 20, SYSMEM, mixed);
    if mmu == Mmu::V3 {
        t = t.version_3();
    }
    let pdb = Pdb {
        at: t.root.at,
        vidmem: true,
    };
    (m, t, pdb)
}

#[test]
fn nothing_is_mapped_at_first() {
    for (mmu, end) in [(Mmu::V2, 1 << 49), (Mmu::V3, 1 << 57)] {
        let (m, mut t, pdb) = tables(mmu, false);
        assert_eq!(mmu.va_end(), end);
        assert_eq!(walk(&m, mmu, pdb, 0), Err(PDE_FAULT));
        // Tables down to the last level, but no page.
        t.entry(&m, 0x1234_5000, Size::Small);
        assert_eq!(walk(&m, mmu, pdb, 0x1234_5000), Err(PTE_FAULT));
        // Above the end nothing is found by the lower bits.
        t.map(&m, 0, Size::Small, Loc::vidmem(0), 0);
        t.map(&m, end - 4096, Size::Small, Loc::vidmem(0), 0);
        for va in [end, !0xfff] {
            assert_eq!(walk(&m, mmu, pdb, va), Err(PDE_FAULT), "{va:#x}");
        }
        assert!(walk(&m, mmu, pdb, end - 1).is_ok());
    }
}

#[test]
fn every_size_and_place() {
    for (mmu, mixed) in BOTH.into_iter().flat_map(|v| [(v, false), (v, true)]) {
        for size in [Size::Small, Size::Big, Size::Huge] {
            for to in [Loc::vidmem(4 << 20), Loc::sysmem(0x12_3460_0000)] {
                let (m, mut t, pdb) = tables(mmu, mixed);
                let va = (mmu.va_end() - 0x8000_0000_0000) | 0x7fff_ffc0_0000;
                t.map(&m, va, size, to, 0);
                let bytes = size as u64;
                let page = Page {
                    base: to,
                    bytes,
                    writable: true,
                    atomic: true,
                };
                assert_eq!(walk(&m, mmu, pdb, va), Ok(page));
                assert_eq!(walk(&m, mmu, pdb, va + bytes - 1), Ok(page));
                assert!(walk(&m, mmu, pdb, va - 1).is_err());
                assert!(walk(&m, mmu, pdb, va + bytes).is_err());
            }
        }
    }
}

#[test]
fn permissions() {
    for mmu in BOTH {
        let (m, mut t, pdb) = tables(mmu, false);
        let at = Loc::vidmem(0);
        t.map(&m, 0, Size::Small, at, READ_ONLY);
        t.map(&m, 4096, Size::Small, at, NO_ATOMICS);
        let page = |va| walk(&m, mmu, pdb, va).map(|p| (p.writable, p.atomic));
        assert_eq!(page(0), Ok((false, true)));
        assert_eq!(page(4096), Ok((true, false)));
    }
}

/// An entry of 4 KiB that is none that a driver writes: sparse, in whatever way, or one that has lost its valid bit alone.
#[test]
fn invalid_entries_that_say_more_are_not_emulated() {
    for (mmu, entries) in [
        (Mmu::V2, &[1 << 3, 1 << 3 | 1 << 5][..]),
        (Mmu::V3, &[1 << 3, 2 << 3, 3 << 3, 4 << 3, 0x664][..]),
    ] {
        for entry in entries {
            let (m, mut t, pdb) = tables(mmu, false);
            let at = t.entry(&m, 0x1000, Size::Small);
            m.set(at, *entry);
            let found = walk(&m, mmu, pdb, 0x1000);
            assert_eq!(found, Err(Miss::NotEmulated(*entry)), "{entry:#x}");
        }
    }
}

#[test]
fn big_pages_come_before_small_ones() {
    // Invalid, but private; and invalid with the PCF that says the same.
    for (mmu, unmapped) in [(Mmu::V2, 1 << 5), (Mmu::V3, 3 << 3)] {
        let (m, mut t, pdb) = tables(mmu, false);
        t.map(&m, 0x1000, Size::Small, Loc::vidmem(0x5000), 0);
        // The big entry is all zero: look at the small one.
        let big = t.entry(&m, 0, Size::Big);
        assert_eq!(walk(&m, mmu, pdb, 0x1000).map(|p| p.bytes), Ok(4096));
        // The small one does not count.
        m.set(big, unmapped);
        assert_eq!(walk(&m, mmu, pdb, 0x1000), Err(PTE_FAULT));
        t.map(&m, 0, Size::Big, Loc::vidmem(0x10000), 0);
        assert_eq!(walk(&m, mmu, pdb, 0x1000).map(|p| p.bytes), Ok(65536));
    }
}

#[test]
fn what_is_not_emulated_is_no_fault() {
    for (mmu, size) in BOTH
        .into_iter()
        .flat_map(|v| [(v, Size::Small), (v, Size::Big)])
    {
        let (m, mut t, pdb) = tables(mmu, false);
        let sparse = 1 << 3;
        let entry = t.entry(&m, 0, size);
        m.set(entry, sparse);
        assert_eq!(
            walk(&m, mmu, pdb, 0),
            Err(Miss::NotEmulated(sparse)),
            "{size:?}"
        );
    }
    let (m, mut t, pdb) = tables(Mmu::V2, false);
    // An address behind a switch.
    let peer = 1 | 1 << 1 | UNCACHED | 1 << 36;
    let entry = t.entry(&m, 0, Size::Small);
    m.set(entry, peer);
    assert_eq!(walk(&m, Mmu::V2, pdb, 0), Err(Miss::NotEmulated(peer)));
    m.set(entry, 1 | 1 << 1 | UNCACHED | 5 << 33 | 0x1_2345 << 8);
    let found = walk(&m, Mmu::V2, pdb, 0).unwrap();
    assert_eq!(found.base, Loc::peer(PeerId::of(5), 0x1234_5000));
}

/// Caches are coherent with this GPU's own memory alone, and no other kind of memory is emulated. A page of vidmem may be cached or not.
#[test]
fn entries_say_what_memory_they_are_of() {
    let at = 0x12 << 8;
    let pages = [
        (0, true),
        (UNCACHED, true),
        (1 << 1 | UNCACHED, true),
        (2 << 1 | UNCACHED, true),
        (6 << 56, true),
        (6 << 56 | 1 << 1 | UNCACHED, true),
        (6 << 56 | 2 << 1 | UNCACHED, true),
        (2 << 56, false),
        (4 << 56, false),
        (6 << 56 | 2 << 1, false),
        (1 << 1, false),
        (2 << 1, false),
        (3 << 1 | UNCACHED, false),
        (1 << 4, false),
        (1 << 5, false),
        (1 << 56, false),
        (0x80 << 56, false),
        (1 << 56 | 2 << 1 | UNCACHED, false),
    ];
    let (m, mut t, pdb) = tables(Mmu::V2, false);
    for (size, (bits, is_emulated)) in [Size::Small, Size::Big, Size::Huge]
        .into_iter()
        .flat_map(|s| pages.map(|p| (s, p)))
    {
        let va = (size as u64) << 4;
        let entry = t.entry(&m, va, size);
        m.set(entry, at | bits | 1);
        let found = walk(&m, Mmu::V2, pdb, va);
        let refused = Err(Miss::NotEmulated(at | bits | 1));
        assert_eq!(found != refused, is_emulated, "{bits:#x}");
        assert_eq!(found.is_ok(), is_emulated, "{bits:#x}");
    }
    for bits in [1 << 1, 2 << 1, 3 << 1 | UNCACHED, 3 << 1, UNCACHED] {
        let refused = Err(Miss::NotEmulated(at | bits));
        assert_eq!(v2::V2::small(at | bits), refused, "{bits:#x}");
        assert_eq!(
            v2::V2::big(at | bits),
            Err(Miss::NotEmulated(at | bits)),
            "{bits:#x}"
        );
    }
    for bits in [1 << 1 | UNCACHED, 2 << 1 | UNCACHED] {
        assert!(v2::V2::small(at | bits).is_ok() && v2::V2::big(at | bits).is_ok());
    }
}

#[test]
fn tables_that_are_nowhere_are_told() {
    let (m, t, pdb) = tables(Mmu::V2, false);
    let beyond = VIDMEM;
    m.set(t.root, beyond >> 12 << 8 | UNCACHED | 1 << 1);
    assert_eq!(
        walk(&m, Mmu::V2, pdb, 0),
        Err(Miss::BadTable(Loc::vidmem(beyond)))
    );
    m.set(t.root, UNCACHED | 2 << 1);
    assert_eq!(
        walk(&m, Mmu::V2, pdb, 0),
        Err(Miss::BadTable(Loc::sysmem(0)))
    );
}

/// Maps pages at random and compares with a map from page number to target.
fn check_random(mmu: Mmu, pages: &[(u64, Size, u64, u64)], probes: &[u64]) {
    let (m, mut t, pdb) = tables(mmu, true);
    let mut model = BTreeMap::new();
    for &(block, size, slot, flags) in pages {
        // One size per 2 MiB, as UVM never leaves others under a valid page.
        let va = (0x7000 + block) << 21;
        let bytes = size as u64;
        let va = va + slot * bytes % (2 << 20);
        let overlaps = model
            .iter()
            .any(|(&v, &(b, _, _)): (&u64, &(u64, Loc, u64))| v >> 21 == va >> 21 && b != bytes);
        if overlaps {
            continue;
        }
        // Pages begin at multiples of their size.
        let to = if slot % 2 == 0 {
            Loc::vidmem(slot * bytes)
        } else {
            Loc::sysmem(slot * bytes)
        };
        t.map(&m, va, size, to, flags);
        model.insert(va, (bytes, to, flags));
    }
    let everywhere = model
        .keys()
        .copied()
        .chain(probes.iter().map(|p| (0x7000 << 21) + p));
    for va in everywhere {
        let hit = model
            .range(..=va)
            .next_back()
            .filter(|(&v, &(b, _, _))| va < v + b);
        match (hit, walk(&m, mmu, pdb, va)) {
            (Some((_, &(bytes, base, flags))), Ok(page)) => {
                let (writable, atomic) = (flags & READ_ONLY == 0, flags & NO_ATOMICS == 0);
                assert_eq!(
                    page,
                    Page {
                        base,
                        bytes,
                        writable,
                        atomic
                    }
                );
            }
            (None, Err(Miss::Fault(_))) => {}
            (want, got) => panic!("{va:#x}: {want:?}, {got:?}"),
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_a_map(
        pages in proptest::collection::vec(
            (
                0u64..600,
                prop_oneof![Just(Size::Small), Just(Size::Big), Just(Size::Huge)],
                0u64..512,
                prop_oneof![Just(0), Just(READ_ONLY), Just(NO_ATOMICS)],
            ),
            1..40,
        ),
        probes in proptest::collection::vec(0u64..(600 << 21), 20),
    ) {
        for mmu in BOTH {
            check_random(mmu, &pages, &probes);
        }
    }
}
