// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a driver must invalidate: a test for each thing that it may forget, of SMs and of copy
//! engines, on each GPU.

use std::vec::Vec;

use super::*;
use crate::bench::has_version_3;
use crate::bench::own_va;
use crate::bench::spare_tables;
use crate::bench::Bench;
use crate::bench::Tlbi;
use crate::bench::FREE;
use crate::bench::VA;
use crate::emu::Loc;
use crate::emu::Order;
use crate::emu::Personality;
use crate::fake::Fake;
use crate::fake::Size;
use crate::fake::Tables;
use crate::fake::SYSMEM;

const CHIPS: [&Personality; 5] = Personality::ALL;

/// Level of the root, as the number of its PDE.
fn root(chip: &Personality) -> u32 {
    if has_version_3(chip) {
        4
    } else {
        3
    }
}

/// The levels of an invalidate: all, and then from entries of page tables alone up to the root's.
fn levels(chip: &Personality) -> core::ops::RangeInclusive<u32> {
    0..=root(chip) + 2
}

/// Two pages of any size up to 2 MiB, whose first words are [`OLD`] and [`NEW`]; and two of
/// 512 MiB, of which a part is there.
const PAGES: [Loc; 2] = [Loc::vidmem(FREE), Loc::vidmem(FREE + (2 << 20))];
const GIANTS: [Loc; 2] = [Loc::vidmem(0), Loc::sysmem(SYSMEM)];
const OLD: u64 = 0x0123_4567;
const NEW: u64 = 0x89ab_cdef;

/// The unit that translates an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Sm,
    CopyEngine,
}

const UNITS: [Unit; 2] = [Unit::Sm, Unit::CopyEngine];

impl Unit {
    fn va(self, chip: &Personality) -> u64 {
        match self {
            Self::Sm => VA,
            Self::CopyEngine => own_va(chip),
        }
    }

    fn tables(self, b: &mut Bench) -> &mut Tables {
        match self {
            Self::Sm => &mut b.user,
            Self::CopyEngine => &mut b.own,
        }
    }

    fn root(self, b: &mut Bench) -> Loc {
        self.tables(b).root
    }

    /// What it reads there.
    fn read(self, b: &mut Bench) -> Option<u64> {
        match self {
            Self::Sm => b.read(VA),
            Self::CopyEngine => Some(b.copied(own_va(b.gpu.config().chip))),
        }
    }

    fn map(self, b: &mut Bench, size: Size, to: Loc) {
        let chip = b.gpu.config().chip;
        let mut tables = core::mem::replace(self.tables(b), spare_tables(chip));
        tables.map(b.gpu.machine(), self.va(chip), size, to, 0);
        *self.tables(b) = tables;
    }
}

/// An entry that leads to a page: a page table's of some size, or a directory's of some level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Page(Size),
    Directory(u32),
}

/// Those of Hopper begin with two that others have not.
const ENTRIES: [Entry; 9] = [
    Entry::Page(Size::Giant),
    Entry::Directory(4),
    Entry::Page(Size::Small),
    Entry::Page(Size::Big),
    Entry::Page(Size::Huge),
    Entry::Directory(0),
    Entry::Directory(1),
    Entry::Directory(2),
    Entry::Directory(3),
];

fn entries(chip: &Personality) -> impl Iterator<Item = Entry> {
    let skipped = if root(chip) == 4 { 0 } else { 2 };
    ENTRIES.into_iter().skip(skipped)
}

impl Entry {
    fn size(self) -> Size {
        match self {
            Self::Page(size) => size,
            Self::Directory(_) => Size::Small,
        }
    }

    /// The level up to which an invalidate must go.
    fn level(self) -> u32 {
        match self {
            Self::Page(Size::Giant) => 3,
            Self::Page(Size::Huge) => 2,
            Self::Page(_) => 1,
            Self::Directory(level) => level + 2,
        }
    }

    /// The words of this entry of `va` below `root`, all of whose tables are in vidmem.
    fn words(self, m: &Fake, chip: &Personality, tables: &mut Tables, va: u64) -> Vec<Loc> {
        let Self::Directory(last) = self else {
            return [tables.entry(m, va, self.size())].into();
        };
        let (low, entries) = match root(chip) {
            4 => (12, [256, 512, 512, 512, 2]),
            _ => (8, [256, 512, 512, 4, 0]),
        };
        let mut at = tables.root;
        for level in (last as usize..=root(chip) as usize).rev() {
            let bytes = if level == 0 { 16 } else { 8 };
            let entry = at.plus((va >> DIRECTORY_SHIFTS[level]) % entries[level] * bytes);
            if level == last as usize {
                return (0..bytes / 8).map(|i| entry.plus(8 * i)).collect();
            }
            at = Loc::vidmem((m.get(entry) >> low & 0x1ff_ffff) << 12);
        }
        unreachable!()
    }
}

/// A GPU whose unit has a page mapped by way of an entry; and what that entry must be to lead
/// to another page.
fn mapped(unit: Unit, entry: Entry, chip: &'static Personality) -> (Bench, Vec<(Loc, u64)>) {
    let mut b = Bench::new(Order::Kind, chip);
    let pages = match entry.size() {
        Size::Giant => GIANTS,
        _ => PAGES,
    };
    for (page, value) in pages.into_iter().zip([OLD, NEW]) {
        b.gpu.machine().set(page, value);
    }
    unit.map(&mut b, entry.size(), pages[0]);
    let mut other = spare_tables(chip);
    let (m, va) = (b.gpu.machine(), unit.va(chip));
    other.map(m, va, entry.size(), pages[1], 0);
    let values = entry.words(m, chip, &mut other, va);
    let values: Vec<u64> = values.into_iter().map(|at| m.get(at)).collect();
    let mut tables = core::mem::replace(unit.tables(&mut b), spare_tables(chip));
    let words = entry.words(b.gpu.machine(), chip, &mut tables, va);
    *unit.tables(&mut b) = tables;
    (b, words.into_iter().zip(values).collect())
}

fn write(b: &Bench, words: &[(Loc, u64)]) {
    for &(at, value) in words {
        b.gpu.machine().set(at, value);
    }
}

/// A driver changes an entry, and invalidates. Gives what the unit reads then.
fn after(unit: Unit, entry: Entry, chip: &'static Personality, tlbi: Option<Tlbi>) -> u64 {
    let (mut b, words) = mapped(unit, entry, chip);
    assert_eq!(unit.read(&mut b), Some(OLD), "{unit:?} {entry:?}");
    write(&b, &words);
    if let Some(tlbi) = tlbi {
        b.execute(&tlbi.methods());
    }
    unit.read(&mut b).unwrap()
}

#[test]
fn a_missing_or_too_shallow_invalidate_shows() {
    for (unit, chip) in UNITS.into_iter().flat_map(|u| CHIPS.map(|c| (u, c))) {
        for entry in entries(chip) {
            let what = std::format!("{unit:?} of {}, {entry:?}", chip.name);
            assert_eq!(after(unit, entry, chip, None), OLD, "{what}");
            for level in levels(chip) {
                let range = Some((unit.va(chip) & !0xffff, 4));
                for range in [None, range] {
                    let tlbi = Tlbi {
                        level,
                        range,
                        ..Tlbi::ALL
                    };
                    let deep = level == 0 || level >= entry.level();
                    let want = if deep { NEW } else { OLD };
                    let got = after(unit, entry, chip, Some(tlbi));
                    assert_eq!(got, want, "{what}: level {level}, {range:x?}");
                }
            }
        }
    }
}

#[test]
fn an_invalidate_is_for_what_it_names() {
    for (unit, chip) in UNITS.into_iter().flat_map(|u| CHIPS.map(|c| (u, c))) {
        for entry in entries(chip) {
            let (mut b, _) = mapped(unit, entry, chip);
            let root = unit.root(&mut b);
            let bytes = entry.size() as u64;
            let va = unit.va(chip);
            let far = va + (1 << 48);
            let cases = [
                // The page directory, one that is nobody's, and all.
                (Some(root), None, true),
                (Some(Loc::vidmem(0x1000)), None, false),
                (None, None, true),
                // Its page, one that is within the page, and the next one.
                (Some(root), Some((va, 0)), true),
                (Some(root), Some((va + bytes - 0x1000, 0)), true),
                (Some(root), Some((far, 0)), false),
                // One that is aligned down to its size.
                (Some(root), Some((va + 0x20_0000, 10)), true),
            ];
            for (root, range, forgets) in cases {
                let tlbi = Tlbi {
                    root,
                    range,
                    ..Tlbi::ALL
                };
                let want = if forgets { NEW } else { OLD };
                let got = after(unit, entry, chip, Some(tlbi));
                assert_eq!(got, want, "{unit:?} {entry:?}: {root:?} {range:x?}");
            }
        }
    }
}

/// The page next to one that is invalidated stays.
#[test]
fn the_next_page_is_another_one() {
    for (chip, size, next) in [
        (CHIPS[0], Size::Small, 0x1000),
        (CHIPS[0], Size::Big, 0x1_0000),
        (CHIPS[0], Size::Huge, 2 << 20),
        (&Personality::HOPPER, Size::Huge, 2 << 20),
        (&Personality::HOPPER, Size::Giant, 512 << 20),
    ] {
        let tlbi = Tlbi {
            range: Some((VA + next, 0)),
            ..Tlbi::ALL
        };
        let got = after(Unit::Sm, Entry::Page(size), chip, Some(tlbi));
        assert_eq!(got, OLD, "{size:?}");
    }
}

#[test]
fn without_the_gpcs_it_is_for_the_hub() {
    let tlbi = Tlbi {
        gpcs: false,
        ..Tlbi::ALL
    };
    for chip in CHIPS {
        for entry in entries(chip) {
            let got = UNITS.map(|unit| after(unit, entry, chip, Some(tlbi)));
            assert_eq!(got, [OLD, NEW], "{entry:?}");
        }
    }
}

/// An access faults as there is no way to its page; a driver makes one. Until it invalidates
/// what is known not to be there, a replay finds the same.
#[test]
fn what_is_missing_is_kept_as_well() {
    for chip in CHIPS {
        for entry in entries(chip) {
            for level in levels(chip) {
                let (mut b, words) = mapped(Unit::Sm, entry, chip);
                let none: Vec<(Loc, u64)> = words.iter().map(|&(at, _)| (at, 0)).collect();
                write(&b, &none);
                assert_eq!(b.read(VA), None, "{entry:?}");
                write(&b, &words);
                b.execute(&crate::bench::replay());
                assert_eq!(b.gpu.stats().faults, 2, "{entry:?} without an invalidate");
                let tlbi = Tlbi { level, ..Tlbi::ALL };
                b.execute(&[tlbi.methods(), crate::bench::replay()].concat());
                // A missing page of 2 MiB is a directory's entry without anything.
                let found = b.gpu.stats().faults == 2;
                let deep = level == 0 || level >= entry.level();
                assert_eq!(found, deep, "{entry:?} of {}: level {level}", chip.name);
            }
        }
    }
}

#[test]
fn a_page_is_one_entry_whatever_its_size() {
    for size in [Size::Small, Size::Big, Size::Huge] {
        let (mut b, _) = mapped(Unit::Sm, Entry::Page(size), CHIPS[0]);
        for va in [VA, VA + size as u64 - 8, VA + size as u64 / 2] {
            b.read(va).unwrap();
        }
        let stats = b.gpu.stats();
        assert_eq!((stats.walks, stats.tlb_hits), (1, 2), "{size:?}");
    }
}

/// What `drop_invalidates` keeps are pages. Whoever faulted may find what is there by now.
#[test]
fn a_dropped_invalidate_keeps_pages_only() {
    let (mut b, words) = mapped(Unit::Sm, Entry::Directory(0), CHIPS[0]);
    let none: Vec<(Loc, u64)> = words.iter().map(|&(at, _)| (at, 0)).collect();
    write(&b, &none);
    assert_eq!(b.read(VA), None);
    write(&b, &words);
    let injection = crate::emu::Injection::DropInvalidates(1);
    b.gpu.inject(injection).unwrap();
    b.execute(&[Tlbi::ALL.methods(), crate::bench::replay()].concat());
    let stats = b.gpu.stats();
    assert_eq!((stats.faults, stats.kernels), (1, 1));
}

#[test]
fn levels_and_replays_that_are_not_there_are_refused() {
    let (turing, hopper) = (CHIPS[0], &Personality::HOPPER);
    for (chip, c, what) in [
        (turing, 6 << 7, "page table level"),
        (turing, 7 << 7, "page table level"),
        (hopper, 7 << 7, "page table level"),
        (turing, 1 << 1 | 1 << 2, "without the GPCs"),
        (turing, 1 << 1 | 4 << 2, "without the GPCs"),
    ] {
        let mut b = Bench::new(Order::Kind, chip);
        let methods = crate::bench::memory_operation([0, 0, c, 9 << 27]);
        b.push(0, &methods);
        b.run();
        let log = b.gpu.machine().log.borrow().clone();
        assert!(log.concat().contains(what), "{c:#x}: {log:?}");
    }
}

/// Random lines, forgotten by random invalidates, against a list of all of them.
#[test]
fn a_set_agrees_with_a_list() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    std::println!("seed {seed:#x}");
    let mut random = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let mut set = Set::new(12, 64).unwrap();
    // By index: what a direct-mapped set holds.
    let mut list = std::collections::BTreeMap::new();
    for round in 0..20_000u64 {
        let (space, va) = (SpaceId(1 + random(3)), random(200) << 12);
        if random(8) > 0 {
            set.insert(space, va, round);
            list.insert(set.index(space, va >> 12), (space, va, round));
            continue;
        }
        let most = 1 << random(20);
        let bytes = (va, va + (random(most) | 0xfff));
        let of = (random(4) > 0).then_some(space);
        set.invalidate(of, bytes);
        list.retain(|_, (s, v, _)| {
            let hit = (bytes.0..=bytes.1).contains(v) && of.is_none_or(|of| of == *s);
            !hit
        });
        for s in 1..=3 {
            for number in 0..200 {
                let found = set.find(SpaceId(s), number << 12).copied();
                let index = set.index(SpaceId(s), number);
                let listed = list.get(&index).filter(|l| l.0 == SpaceId(s));
                let listed = listed.filter(|l| l.1 == number << 12).map(|l| l.2);
                assert_eq!(found, listed, "round {round}");
            }
        }
        assert_eq!(set.used, list.len(), "round {round}");
    }
}
