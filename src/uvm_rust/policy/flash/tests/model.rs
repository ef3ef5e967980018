// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Random programs against a reference that remembers each page's last value.
//!
//! Reads, writes and moves begin and end apart from each other, and the bytes of a
//! device that is no more than a map go by [`Place`]. A write brings them some time after
//! it began, to the places that it was told then, as the driver does; a read takes them
//! when it ends, so that a place that was handed out again too early is seen.

use super::super::table::{Next, Trim};
use super::super::*;
use crate::policy::mask::{PageMask, Region};
use crate::testing;
use proptest::prelude::*;
use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

const BLOCKS: usize = 6;
const SLOTS: u32 = 6;

#[derive(Clone, Debug)]
enum Op {
    Use(usize, u16, u16),
    BeginSpill(usize, u16, u16),
    WriteBytes(usize),
    EndSpill(usize, u16, u16),
    BeginRead(usize, u16, u16),
    EndRead(usize, u16, u16, bool),
    DropClean(usize, u16, u16),
    Forget(usize, u16, u16),
    ReadAgain(usize),
    Restart(usize),
    Split(usize, u16),
    BeginMove,
    EndMove(bool),
    BeginTrim(u32, u32),
    EndTrim(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let b = 0..BLOCKS;
    // Granules of 16 pages now and then, so that whole blocks and few pages both occur.
    let p = prop_oneof![
        0u16..513,
        (0u16..33).prop_map(|g| g * 16),
        Just(0),
        Just(512)
    ];
    let range = (b.clone(), p.clone(), p.clone()).boxed();
    prop_oneof![
        2 => range.clone().prop_map(|(b, f, o)| Op::Use(b, f, o)),
        4 => range.clone().prop_map(|(b, f, o)| Op::BeginSpill(b, f, o)),
        4 => b.clone().prop_map(Op::WriteBytes),
        4 => range.clone().prop_map(|(b, f, o)| Op::EndSpill(b, f, o)),
        3 => range.clone().prop_map(|(b, f, o)| Op::BeginRead(b, f, o)),
        3 => (range.clone(), any::<bool>())
            .prop_map(|((b, f, o), keep)| Op::EndRead(b, f, o, keep)),
        2 => range.clone().prop_map(|(b, f, o)| Op::DropClean(b, f, o)),
        2 => range.prop_map(|(b, f, o)| Op::Forget(b, f, o)),
        2 => b.clone().prop_map(Op::ReadAgain),
        1 => b.clone().prop_map(Op::Restart),
        1 => (b, p).prop_map(|(b, at)| Op::Split(b, at)),
        4 => any::<Option<bool>>().prop_map(|m| m.map_or(Op::BeginMove, Op::EndMove)),
        2 => (1u32..4, 0u32..3).prop_map(|(most, reserve)| Op::BeginTrim(most, reserve)),
        2 => any::<bool>().prop_map(Op::EndTrim),
    ]
}

struct Block {
    state: BlockPages,
    length: u16,
    /// The last value of each page; 0 for none.
    value: [u64; 512],
    spill: Option<Writing>,
    reads: Vec<Read>,
}

/// A spill, the places that it was told when it began, and whether the device has the bytes.
struct Writing {
    spill: Spill,
    pieces: Vec<Piece>,
    written: bool,
}

impl Block {
    fn new(length: u16) -> Self {
        Self {
            state: BlockPages::new(length),
            length,
            value: [0; 512],
            spill: None,
            reads: Vec::new(),
        }
    }
}

struct World {
    extents: u32,
    table: Table,
    device: HashMap<Place, (u64, u64)>,
    blocks: Vec<Block>,
    moving: Option<Move>,
    trims: Vec<Trim>,
    clock: u64,
}

fn at(place: Place, k: u16) -> Place {
    Place {
        offset: place.offset + k,
        ..place
    }
}

impl World {
    fn new(extents: u32) -> Self {
        let mut table = super::table(SLOTS);
        table.limit_extents(extents);
        table.memory_for_extents(extents);
        Self {
            extents,
            table,
            device: HashMap::new(),
            blocks: (0..BLOCKS).map(|_| Block::new(512)).collect(),
            moving: None,
            trims: Vec::new(),
            clock: 0,
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Use(b, f, o) => self.use_pages(b, Region::new(f, o)),
            Op::BeginSpill(b, f, o) => self.begin_spill(b, Region::new(f, o)),
            Op::WriteBytes(b) => self.write_bytes(b),
            Op::EndSpill(b, f, o) => self.end_spill(b, Region::new(f, o)),
            Op::BeginRead(b, f, o) => self.begin_read(b, Region::new(f, o)),
            Op::EndRead(b, f, o, keep) => self.end_read(b, Region::new(f, o), keep),
            Op::DropClean(b, f, o) => {
                let mask = PageMask::from(Region::new(f, o));
                let had = self.blocks[b].state.copies();
                assert_eq!(self.blocks[b].state.drop_clean(&mask), had & mask);
            }
            Op::Forget(b, f, o) => {
                let mask = PageMask::from(Region::new(f, o));
                self.blocks[b].state.forget(&mut self.table, &mask);
            }
            Op::ReadAgain(b) => self.blocks[b].state.read_again(),
            Op::Restart(b) => self.restart(b),
            Op::Split(b, at) => self.split(b, at),
            Op::BeginMove => self.begin_move(),
            Op::EndMove(copied) => self.end_move(copied),
            Op::BeginTrim(most, reserve) => self.begin_trim(most, reserve),
            Op::EndTrim(trimmed) => self.end_trim(trimmed),
        }
    }

    /// Whoever uses a page has it in the host first.
    fn use_pages(&mut self, b: usize, region: Region) {
        let block = &mut self.blocks[b];
        let mask = PageMask::from(region) - block.state.on_flash() - block.state.kept();
        block.state.touched(&mask);
        block.state.may_write(&mut self.table, &mask);
        for p in mask.pages() {
            self.clock += 1;
            block.value[p as usize] = self.clock;
        }
    }

    fn begin_spill(&mut self, b: usize, region: Region) {
        let block = &mut self.blocks[b];
        let tenant = self.table.tenant(b as u64 % 2).unwrap();
        let wanted = region.into();
        match block.state.begin_spill(&mut self.table, tenant, &wanted) {
            Ok(spill) => {
                assert!(block.spill.is_none());
                block.spill = Some(Writing {
                    pieces: spill.pieces().to_vec(),
                    spill,
                    written: false,
                });
            }
            Err(Error::Busy) => assert!(block.spill.is_some()),
            Err(Error::Full) => assert!(self.table.is_low(1)),
            Err(Error::Fragmented | Error::OutOfMemory) => assert!(self.extents < u32::MAX),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// What the pages hold by then goes to the device.
    fn write_bytes(&mut self, b: usize) {
        let block = &mut self.blocks[b];
        let Some(writing) = &mut block.spill else {
            return;
        };
        for piece in &writing.pieces {
            for (k, p) in (piece.pages.first()..piece.pages.outer()).enumerate() {
                let place = at(piece.place, k as u16);
                let stamp = piece.stamp + k as u64;
                self.device.insert(place, (block.value[p as usize], stamp));
                self.table.set_sum(place, stamp as u32);
            }
        }
        writing.written = true;
    }

    /// Of the pages in `wanted` the device says that it has them, if it does.
    fn end_spill(&mut self, b: usize, wanted: Region) {
        let block = &mut self.blocks[b];
        if let Some(writing) = block.spill.take() {
            let written = if writing.written {
                wanted.into()
            } else {
                PageMask::EMPTY
            };
            let spill = writing.spill;
            let moved = block.state.end_spill(&mut self.table, spill, &written);
            assert!(moved.is_subset(&block.state.on_flash()));
            assert!(moved.is_subset(&written));
        }
    }

    fn begin_read(&mut self, b: usize, region: Region) {
        let block = &mut self.blocks[b];
        let wanted = region.into();
        match block.state.begin_read(&mut self.table, &wanted) {
            Ok(None) => assert!(!block.state.on_flash().intersects(&wanted)),
            Ok(Some(read)) => block.reads.push(read),
            Err(ReadError::Wait) => assert!(!block.reads.is_empty()),
            Err(ReadError::Lost) => assert!(block.state.lost().intersects(&wanted)),
            Err(ReadError::OutOfMemory) => panic!("no memory"),
        }
    }

    /// Ends the oldest read, of which pages in `bad` fail: for good, for now, or as they are something else.
    fn end_read(&mut self, b: usize, bad: Region, keep: bool) {
        let block = &mut self.blocks[b];
        if block.reads.is_empty() {
            return;
        }
        let read = block.reads.remove(0);
        let mut seen = [None; 512];
        for piece in read.pieces.iter() {
            for (k, p) in (piece.pages.first()..piece.pages.outer()).enumerate() {
                let place = at(piece.place, k as u16);
                let want = piece.stamp + k as u64;
                let (value, stamp) = self.device.get(&place).copied().unwrap_or_default();
                assert_eq!(stamp, want, "the device has another page in {place:?}");
                assert_eq!(self.table.sum(place), Some(want as u32), "checksum");
                seen[p as usize] = Some(value);
            }
        }
        let all = read.pages;
        // Rarely, or everything is lost soon.
        let failed = if bad.pages() < 8 {
            bad.into()
        } else {
            PageMask::EMPTY
        };
        let none = PageMask::EMPTY;
        let (good, [never, fails, wrong]) = match bad.first() % 3 {
            0 => (all, [failed, none, none]),
            1 => (all - failed, [none, failed, none]),
            _ => (all - failed, [none, none, failed]),
        };
        let kept = block.state.kept();
        let lost = block.state.put_off(&read, (&fails, &wrong), self.clock);
        assert_eq!(block.state.kept(), kept | lost);
        let arrived = block
            .state
            .end_read(&mut self.table, read, &good, &never, keep);
        for p in arrived.pages() {
            assert_eq!(seen[p as usize], Some(block.value[p as usize]), "page {p}");
        }
        assert!(!arrived.intersects(&failed));
    }

    fn restart(&mut self, b: usize) {
        let block = &mut self.blocks[b];
        for read in block.reads.drain(..) {
            let none = PageMask::EMPTY;
            let _ = block
                .state
                .end_read(&mut self.table, read, &none, &none, false);
        }
        if let Some(writing) = block.spill.take() {
            writing.spill.abandon(&mut self.table);
        }
        block.state.release(&mut self.table);
        *block = Block::new(512);
    }

    /// The upper half takes the place of another block.
    fn split(&mut self, b: usize, at: u16) {
        if !self.blocks[b].reads.is_empty() {
            return;
        }
        let other = (b + 1) % BLOCKS;
        self.restart(other);
        let block = &mut self.blocks[b];
        let at = at.min(block.length);
        if block.state.cut(&mut self.table, at).is_err() {
            return;
        }
        let upper = block.state.split(&mut self.table, at);
        let mut value = [0; 512];
        value[..512 - at as usize].copy_from_slice(&block.value[at as usize..]);
        let length = block.length - at;
        block.length = at;
        self.blocks[other] = Block {
            state: upper,
            length,
            value,
            spill: None,
            reads: Vec::new(),
        };
    }

    fn begin_move(&mut self) {
        if self.moving.is_none() {
            self.moving = self.table.relocate_begin();
        }
    }

    fn end_move(&mut self, copied: bool) {
        let Some(m) = self.moving.take() else { return };
        if copied {
            for k in 0..m.pages {
                // What was never written there is copied as well, and nobody asks for it.
                let bytes = self.device.get(&at(m.from, k)).copied();
                self.device.insert(at(m.to, k), bytes.unwrap_or_default());
            }
        }
        let _ = self.table.relocate_end(m, copied);
    }

    fn begin_trim(&mut self, most: u32, reserve: u32) {
        let free = self.table.usage().free_slots;
        match self.table.trim_begin(most, reserve) {
            Next::Run(trim) => {
                assert!(trim.slots() <= most && trim.slots() <= free - reserve);
                self.trims.push(trim);
            }
            Next::More => panic!("it looks at all of so few slots"),
            Next::Nothing => {}
        }
    }

    /// The device forgets the slots when it likes, here at the end, all of them.
    fn end_trim(&mut self, trimmed: bool) {
        if self.trims.is_empty() {
            return;
        }
        let trim = self.trims.remove(0);
        let slots = trim.first()..trim.first() + trim.slots();
        if trimmed {
            self.device.retain(|place, _| !slots.contains(&place.slot));
        }
        self.table.trim_end(trim, trimmed);
    }

    fn check(&self) {
        self.table.check();
        let mut taken = HashMap::new();
        for (b, block) in self.blocks.iter().enumerate() {
            let mut placed = PageMask::EMPTY;
            for piece in block.state.places(&self.table).iter() {
                let pages = PageMask::from(piece.pages);
                assert!(!placed.intersects(&pages), "two places of a page");
                placed |= pages;
                for k in 0..piece.pages.pages() {
                    let before = taken.insert(at(piece.place, k), b);
                    assert_eq!(before, None, "two pages have {:?}", piece.place);
                }
            }
            assert!(block.state.kept().is_subset(&block.state.lost()));
            let held = block.state.on_flash() | block.state.copies() | block.state.kept();
            assert!(held.is_subset(&placed));
            assert!(!block.state.copies().intersects(&block.state.on_flash()));
            assert!(!block.state.copies().intersects(&block.state.spilling()));
            assert!(!block.state.copies().intersects(&block.state.lost()));
            assert!(held.is_subset(&Region::new(0, block.length).into()));
            assert!(!block.state.on_flash().intersects(&block.state.lost()));
            assert!(!block.state.on_flash().intersects(&block.state.spilling()));
        }
    }

    fn finish(mut self) {
        for b in 0..BLOCKS {
            self.restart(b);
        }
        self.end_move(true);
        while !self.trims.is_empty() {
            self.end_trim(true);
        }
        // Whatever order that was in, all that is on the device can be trimmed.
        for _ in 0..2 * SLOTS {
            self.begin_trim(SLOTS, 0);
            self.end_trim(true);
        }
        assert!(!self.table.has_written());
        assert!(self.device.is_empty(), "something is left on the device");
        self.table.check();
        let usage = self.table.usage();
        assert_eq!((usage.pages, usage.extents), (0, 0), "slots leak");
        assert_eq!(usage.free_slots, SLOTS);
        assert_eq!(self.table.held(0) + self.table.held(1), 0);
    }
}

proptest! {
    // Miri takes minutes for one long program.
    #![proptest_config(testing::model(256))]

    #[test]
    fn every_page_comes_back_and_no_slot_leaks(extents in prop_oneof![Just(u32::MAX), 2u32..12], ops in prop::collection::vec(op(), 1..if cfg!(miri) { 6 } else { 120 })) {
        let mut world = World::new(extents);
        for op in &ops {
            world.run(op);
            world.check();
        }
        world.finish();
    }
}
