// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The GPU as UVM and users see it: faults, replays, cancels, eviction, handles.

use std::vec;
use std::vec::Vec;

use super::vidmem::POISON;
use super::*;
use crate::emu::late::Who;
use crate::emu::pma::GRANULE;
use crate::emu::walk::FaultType;
use crate::emu::walk::Pdb;
use crate::emu::AllocRequest;
use crate::emu::Launch;
use crate::emu::Op;
use crate::emu::Outcome;
use crate::emu::Owner;
use crate::emu::State;
use crate::emu::UserChannel;
use crate::fake::Fake;
use crate::fake::Size;
use crate::fake::Tables;
use crate::fake::NO_ATOMICS;
use crate::fake::READ_ONLY;
use crate::fake::SYSMEM;

pub(crate) fn config() -> Config {
    Config {
        index: 0,
        chip: &Personality::TURING,
        vidmem_bytes: 16 << 20,
        fault_entries: 64,
        tlb: true,
        drop_invalidates: false,
        poison: true,
        zero: false,
        order: Order::Kind,
    }
}

const CLIENT: u32 = 7;
/// In PUT and GET of the fault buffer.
const OVERFLOW: u32 = 1 << 31;
pub(crate) const VA: u64 = 0x7000_0000_0000;

/// A GPU with a user's channel that is bound.
pub(crate) struct Bench {
    pub(crate) gpu: Gpu<Fake>,
    tables: Tables,
    space: SpaceId,
    h_vaspace: u32,
    pub(crate) h_channel: u32,
}

impl Bench {
    pub(crate) fn new(config: Config) -> Self {
        let mut gpu = Gpu::new(Fake::new(config.vidmem_bytes, 4 << 20), config).unwrap();
        let tables = Tables::new(4 << 20, SYSMEM + (1 << 20), false);
        // Tables want zeroed memory.
        gpu.hw.fill_vidmem(4 << 20, 2 << 20, 0);
        let h_vaspace = gpu.create_vaspace(CLIENT).unwrap();
        let h_channel = create_channel(&mut gpu, CLIENT, h_vaspace).unwrap();
        let space = gpu.dup_space(CLIENT, h_vaspace).unwrap();
        gpu.set_pdb(space, tables.root.at, true).unwrap();
        gpu.retain_channel(space, CLIENT, h_channel).unwrap();
        Self {
            gpu,
            tables,
            space,
            h_vaspace,
            h_channel,
        }
    }

    /// Maps a page as a driver does, which invalidates after every change of an entry.
    pub(crate) fn map(&mut self, va: u64, to: Loc, flags: u64) {
        self.tables.map(&self.gpu.hw.m, va, Size::Small, to, flags);
        self.gpu.hw.invalidate(&Invalidate::all(None));
    }

    fn unmap(&mut self, va: u64) {
        let entry = self.tables.entry(&self.gpu.hw.m, va, Size::Small);
        self.gpu.hw.m.set(entry, 0);
    }

    fn submit_ops(&mut self, ops: &[Op], utlb_faults: u32) -> Result<u64, Error> {
        let launch = Launch::new(ops, utlb_faults)?;
        self.gpu.submit(CLIENT, self.h_channel, launch)
    }

    fn submit(&mut self, ops: &[Op]) -> u64 {
        self.submit_ops(ops, 0).unwrap()
    }

    /// Runs until nothing goes on.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            if !self.gpu.run().any {
                return;
            }
        }
        panic!("goes on for ever");
    }

    /// UVM's part: the method that clears a channel's faulted bit.
    pub(crate) fn clear_faulted(&mut self, value: u32) {
        self.gpu.hw.clear_faulted(value);
    }

    fn result(&self, fence: u64) -> Option<Outcome> {
        self.gpu.result(CLIENT, self.h_channel, fence).unwrap()
    }

    fn done(&mut self, ops: &[Op]) -> Outcome {
        let fence = self.submit(ops);
        self.run();
        self.result(fence).expect("not finished")
    }

    /// UVM's part: takes the entries off the buffer. Gives (va, type, access).
    fn fetch(&mut self) -> Vec<(u64, u32, u32)> {
        let m = &self.gpu.hw.m;
        let register = |r| Loc::buffer(self.gpu.hw.registers, r);
        let mut get = m.load32(register(reg::FAULT_GET)).unwrap() & !OVERFLOW;
        let put = m.load32(register(reg::FAULT_PUT)).unwrap() & !OVERFLOW;
        let mut faults = Vec::new();
        while get != put {
            let entry = Loc::buffer(self.gpu.fault_buffer(), u64::from(get) * 32);
            let w = |i: u64| m.load32(entry.plus(4 * i)).unwrap();
            assert_eq!(w(7) >> 31, 1);
            faults.push((
                u64::from(w(3)) << 32 | u64::from(w(2)),
                w(7) & 0x1f,
                w(7) >> 16 & 0xf,
            ));
            get = (get + 1) % self.gpu.config.fault_entries;
        }
        m.store32(register(reg::FAULT_GET), get | OVERFLOW).unwrap();
        faults
    }

    /// Whether PUT says that faults are dropped.
    fn overflows(&self) -> bool {
        let put = Loc::buffer(self.gpu.hw.registers, reg::FAULT_PUT);
        self.gpu.hw.m.load32(put).unwrap() & OVERFLOW != 0
    }
}

fn create_channel(g: &mut Gpu<Fake>, h_client: u32, h_vaspace: u32) -> Result<u32, Error> {
    g.add_user_channel(UserChannel::new()?, h_client, h_vaspace, Owner::Admin)
}

fn bench() -> Bench {
    Bench::new(config())
}

fn op(kind: u32, va: u64, count: u64) -> Op {
    Op {
        kind,
        va,
        stride: 4096,
        count,
        width: 8,
        value: 1000,
        value_stride: 1,
        ..Op::default()
    }
}

const READ: u32 = 0;
const WRITE: u32 = 1;
const ADD: u32 = 2;
const CHECK: u32 = 3;
const PREFETCH: u32 = 4;

#[test]
fn mapped_accesses_do_what_they_say() {
    let mut b = bench();
    b.map(VA, Loc::vidmem(8 << 20), 0);
    b.map(VA + 4096, Loc::sysmem(SYSMEM), 0);
    let all = Op {
        width: 4096,
        ..op(WRITE, VA, 2)
    };
    let o = b.done(&[all]);
    assert_eq!((o.state, o.accesses, o.faults), (State::Done, 2, 0));
    assert_eq!(b.gpu.hw.m.get(Loc::sysmem(SYSMEM + 8)), 1000 + 512 + 1);
    let ops = [
        Op { kind: CHECK, ..all },
        Op {
            kind: ADD,
            value: 1,
            value_stride: 0,
            flags: 1,
            ..all
        },
        Op {
            kind: CHECK,
            value: 1001,
            flags: 1,
            ..all
        },
        Op {
            kind: READ,
            flags: 1,
            ..all
        },
    ];
    let o = b.done(&ops);
    assert_eq!((o.state, o.mismatches), (State::Done, 0));
    assert_eq!(o.sum, (0..1024).map(|i| 1001 + i).sum());
    let s = b.gpu.stats();
    assert_eq!((s.local_accesses, s.remote_accesses, s.kernels), (5, 5, 2));
    let wrong = b.done(&[Op {
        kind: CHECK,
        value_stride: 0,
        value: 1001,
        ..all
    }]);
    assert_eq!((wrong.mismatches, wrong.bad_va), (1023, VA + 8));
    assert_eq!((wrong.bad_expected, wrong.bad_seen), (1001, 1002));
}

#[test]
fn narrow_accesses() {
    let mut b = bench();
    b.map(VA, Loc::vidmem(8 << 20), 0);
    let narrow = Op {
        width: 4,
        stride: 4,
        ..op(WRITE, VA, 8)
    };
    b.done(&[narrow]);
    assert_eq!(b.gpu.hw.m.get(Loc::vidmem(8 << 20)), 1001 << 32 | 1000);
    let add = Op {
        kind: ADD,
        value: u64::from(u32::MAX),
        value_stride: 0,
        ..narrow
    };
    let check = Op {
        kind: CHECK,
        value: 999,
        flags: 1,
        ..narrow
    };
    assert_eq!(b.done(&[add, check]).mismatches, 0, "32 bits wrap");
}

#[test]
fn a_missing_page_faults_until_a_replay_finds_it() {
    let mut b = bench();
    let fence = b.submit(&[op(WRITE, VA, 1)]);
    b.run();
    assert_eq!(b.result(fence), None);
    assert_eq!(b.fetch(), [(VA, 0, 1)], "no page directory yet");
    b.map(VA, Loc::vidmem(8 << 20), 0);
    b.run();
    assert_eq!(b.result(fence), None, "not before the replay");
    b.gpu.hw.replay();
    b.run();
    let o = b.result(fence).unwrap();
    assert_eq!(
        (o.state, o.faults, o.replays, o.refaults),
        (State::Done, 1, 1, 0)
    );
    assert_eq!(b.gpu.hw.m.get(Loc::vidmem(8 << 20)), 1000);
}

#[test]
fn a_replay_without_the_page_faults_again() {
    let mut b = bench();
    let fence = b.submit(&[op(READ, VA, 1)]);
    for round in 1..=3 {
        b.run();
        assert_eq!(b.fetch().len(), 1, "round {round}");
        b.gpu.hw.replay();
    }
    b.map(VA, Loc::vidmem(8 << 20), 0);
    b.run();
    let o = b.result(fence).unwrap();
    assert_eq!((o.faults, o.refaults, o.duplicates), (3, 2, 0));
}

#[test]
fn permissions_fault_by_type() {
    let mut b = bench();
    b.map(VA, Loc::vidmem(8 << 20), READ_ONLY);
    b.map(VA + 4096, Loc::vidmem(8 << 20), NO_ATOMICS);
    b.submit(&[
        op(WRITE, VA, 1),
        op(ADD, VA + 4096, 1),
        op(READ, VA + 8192, 1),
    ]);
    b.run();
    let mut faults = b.fetch();
    faults.sort();
    assert_eq!(faults, [(VA, 6, 1), (VA + 4096, 15, 2), (VA + 8192, 2, 0)]);
}

#[test]
fn lanes_of_an_instruction_share_a_fault_warps_do_not() {
    let mut b = bench();
    let dense = Op {
        stride: 8,
        ..op(READ, VA, 64)
    };
    b.submit(&[Op { warps: 2, ..dense }]);
    b.run();
    assert_eq!(b.fetch().len(), 2);
    assert_eq!(b.gpu.stats().fault_duplicates, 1);
}

/// A, B, A, B, ...: "an instruction's lanes on one page fault once" (the interface), in
/// whatever order the lanes come.
#[test]
fn lanes_that_alternate_between_pages_share_their_faults() {
    for kind in [READ, WRITE, ADD, PREFETCH] {
        for pages in [2u64, 3, 8] {
            let mut b = bench();
            let turns = Op {
                stride: 4096,
                row_stride: 8,
                rows: 32 / pages,
                ..op(kind, VA, pages)
            };
            let fence = b.submit(&[turns]);
            b.run();
            let seen: Vec<u64> = b.fetch().iter().map(|f| f.0).collect();
            let each: Vec<u64> = (0..pages).map(|i| VA + i * 4096).collect();
            assert_eq!(seen, each, "kind {kind}, {pages} pages");
            assert_eq!(b.gpu.stats().fault_duplicates, 0);
            for page in each {
                b.map(page, Loc::vidmem(8 << 20), 0);
            }
            b.gpu.hw.replay();
            b.run();
            let o = b.result(fence).unwrap();
            let accesses = 32 / pages * pages;
            assert_eq!((o.accesses, o.faults, o.refaults), (accesses, pages, 0));
        }
    }
}

#[test]
fn utlbs_have_their_limit() {
    let mut b = bench();
    let wide = Op {
        warps: 64,
        lanes: 1,
        utlb_count: 2,
        ..op(READ, VA, 64)
    };
    let fence = b.submit_ops(&[wide], 3).unwrap();
    let mut rounds = 0;
    while b.result(fence).is_none() {
        b.run();
        let faults = b.fetch();
        assert!(faults.len() <= 6, "two uTLBs, three each");
        for (va, ..) in faults {
            b.map(va, Loc::vidmem(8 << 20), 0);
        }
        b.gpu.hw.replay();
        rounds += 1;
        assert!(rounds < 100);
    }
    assert!(rounds >= 64 / 6);
    assert!(b.gpu.stats().faults_held > 0);
    assert_eq!(b.submit_ops(&[wide], 513), Err(Error::Invalid));
}

#[test]
fn a_full_buffer_holds_accesses_back() {
    let mut b = Bench::new(Config {
        fault_entries: 4,
        ..config()
    });
    let fence = b.submit(&[Op {
        warps: 10,
        lanes: 1,
        ..op(WRITE, VA, 10)
    }]);
    let mut seen = 0;
    while b.result(fence).is_none() {
        for _ in 0..10 {
            b.gpu.run();
        }
        let faults = b.fetch();
        assert!(faults.len() <= 3);
        seen += faults.len();
        for (va, ..) in faults {
            b.map(va, Loc::vidmem(8 << 20), 0);
        }
        b.gpu.hw.replay();
        assert!(seen < 1000);
    }
    assert!(seen >= 10);
    b.gpu.inject(Injection::FaultBufferFull(5)).unwrap();
    b.submit(&[op(READ, VA + (1 << 20), 1)]);
    for _ in 0..4 {
        b.gpu.run();
        assert_eq!(b.fetch().len(), 0);
    }
    b.gpu.run();
    b.gpu.run();
    assert_eq!(b.fetch().len(), 1, "without any replay");
}

#[test]
fn a_preempted_user_stands_still() {
    let mut b = Bench::new(config());
    b.map(VA, Loc::vidmem(8 << 20), 0);
    b.gpu.inject(Injection::Preempt(true)).unwrap();
    let fence = b.submit(&[op(WRITE, VA, 1), op(READ, VA + (1 << 20), 1)]);
    for _ in 0..10 {
        assert!(!b.gpu.run().any);
    }
    assert!(b.fetch().is_empty() && b.result(fence).is_none());
    b.gpu.inject(Injection::Preempt(false)).unwrap();
    for _ in 0..10 {
        b.gpu.run();
    }
    assert_eq!(b.fetch().len(), 1);
}

/// What meets a full buffer is lost, and comes again with a replay alone.
#[test]
fn a_full_buffer_drops_faults_until_a_replay() {
    let mut b = Bench::new(Config {
        fault_entries: 8,
        ..config()
    });
    let page = |i: u64| VA + i * 4096;
    // One warp of 16 lanes, of which 7 find room.
    let fence = b.submit(&[op(READ, VA, 16)]);
    b.run();
    assert!(b.overflows());
    let pages: Vec<u64> = b.fetch().iter().map(|f| f.0).collect();
    assert_eq!(pages, (0..7).map(page).collect::<Vec<_>>());
    b.run();
    assert!(
        !b.overflows() && b.fetch().is_empty(),
        "nothing is replayed"
    );
    pages
        .iter()
        .for_each(|&va| b.map(va, Loc::vidmem(8 << 20), 0));
    b.gpu.hw.replay();
    b.run();
    let pages: Vec<u64> = b.fetch().iter().map(|f| f.0).collect();
    assert_eq!(pages, (7..14).map(page).collect::<Vec<_>>());
    b.map(page(14), Loc::vidmem(8 << 20), 0);
    b.map(page(15), Loc::vidmem(8 << 20), 0);
    pages
        .iter()
        .for_each(|&va| b.map(va, Loc::vidmem(8 << 20), 0));
    b.gpu.hw.replay();
    b.run();
    let o = b.result(fence).unwrap();
    assert_eq!((o.state, o.faults, o.refaults), (State::Done, 14, 0));
    assert_eq!(b.gpu.stats().faults_held, 9 + 2);
}

/// Replays before there is room, and before UVM says that it knows.
#[test]
fn an_overflow_outlasts_replays_and_room() {
    let mut b = Bench::new(Config {
        fault_entries: 4,
        ..config()
    });
    let get = Loc::buffer(b.gpu.hw.registers, reg::FAULT_GET);
    let fence = b.submit(&[op(READ, VA, 4)]);
    b.run();
    b.gpu.hw.replay();
    b.run();
    assert_eq!(b.gpu.stats().faults, 3, "there is no room");
    b.gpu.hw.m.store32(get, 3).unwrap();
    b.gpu.hw.replay();
    b.run();
    assert_eq!(b.gpu.stats().faults, 3, "and it does not know of room");
    b.gpu.hw.m.store32(get, 3 | 3 << 30).unwrap();
    b.run();
    assert_eq!(b.gpu.hw.m.load32(get), Ok(3), "what was written reads as 0");
    assert!(!b.overflows());
    b.gpu.hw.replay();
    b.run();
    assert_eq!(b.gpu.stats().faults, 6);
    assert!(b.result(fence).is_none() && b.overflows());
}

#[test]
fn a_prefetch_that_meets_a_full_buffer_is_over() {
    let mut b = Bench::new(Config {
        fault_entries: 4,
        ..config()
    });
    let o = b.done(&[op(PREFETCH, VA, 5)]);
    assert_eq!((o.state, o.accesses, o.faults), (State::Done, 5, 3));
    assert!(b.overflows());
}

/// Bits that UVM wrote before the overflow say nothing about it; a sleep takes them away.
#[test]
fn old_bits_of_get_do_not_end_an_overflow() {
    let mut b = Bench::new(Config {
        fault_entries: 4,
        ..config()
    });
    let get = Loc::buffer(b.gpu.hw.registers, reg::FAULT_GET);
    b.gpu.hw.m.store32(get, OVERFLOW).unwrap();
    b.submit(&[op(READ, VA, 4)]);
    b.run();
    b.run();
    assert!(b.overflows());
    b.gpu.hw.m.store32(get, 3 | OVERFLOW).unwrap();
    b.gpu.inject(Injection::Preempt(true)).unwrap();
    assert!(!b.overflows());
    assert_eq!(b.gpu.hw.m.load32(get), Ok(3));
}

#[test]
fn prefetches_fault_but_never_wait() {
    let mut b = bench();
    let o = b.done(&[op(PREFETCH, VA, 5)]);
    assert_eq!((o.state, o.accesses, o.faults), (State::Done, 5, 5));
    assert!(b.fetch().iter().all(|f| f.2 == 3));
    let dense = Op {
        stride: 8,
        ..op(PREFETCH, VA, 100)
    };
    assert_eq!(b.done(&[dense]).accesses, 100);
}

#[test]
fn cancels_end_the_kernels_they_mean() {
    let mut b = bench();
    let pdb = Pdb {
        at: b.tables.root.at,
        vidmem: true,
    };
    let first = b.submit(&[op(READ, VA, 1)]);
    let second = b.submit(&[op(READ, VA, 0x10)]);
    b.run();
    for (pdb, va, kind) in [
        (Pdb { at: 0, ..pdb }, VA, 7),
        (pdb, VA + 4096, 7),
        (pdb, VA, 6),
        (pdb, VA, 1),
    ] {
        b.gpu.hw.cancel(pdb, va, kind);
        b.run();
        assert_eq!(b.result(first), None, "{va:#x} {kind}");
    }
    b.gpu.hw.cancel(pdb, VA, 7);
    let o = b.result(first).unwrap();
    assert_eq!(
        (o.state, o.fault_va, o.fault),
        (State::Faulted, VA, Some((0, 0)))
    );
    assert_eq!(b.result(second), None, "the next one runs");
    b.run();
    b.gpu.hw.cancel_all();
    assert_eq!(b.result(second).map(|o| o.state), Some(State::Faulted));
    let write = b.submit(&[op(WRITE, VA, 1)]);
    b.run();
    b.gpu.hw.cancel(pdb, VA, 6);
    assert_eq!(b.result(write).map(|o| o.state), Some(State::Faulted));
}

/// Lanes of a warp fault for different reasons; the one that is cancelled says its own.
#[test]
fn a_cancel_tells_the_fault_of_the_lane_it_hit() {
    // Of each lane: what is mapped at its page, and the type of a write's fault.
    let lanes = [
        (Some(READ_ONLY), FaultType::WriteToReadOnly),
        (None, FaultType::InvalidPte),
        (Some(READ_ONLY), FaultType::WriteToReadOnly),
        (None, FaultType::InvalidPte),
    ];
    for (hit, (_, kind)) in lanes.iter().enumerate() {
        let mut b = bench();
        for (lane, (mapped, _)) in lanes.iter().enumerate() {
            let va = VA + lane as u64 * 4096;
            b.map(va, Loc::vidmem(8 << 20), mapped.unwrap_or(0));
            if mapped.is_none() {
                b.unmap(va);
            }
        }
        let fence = b.submit(&[op(WRITE, VA, lanes.len() as u64)]);
        b.run();
        assert_eq!(b.fetch().len(), lanes.len());
        let pdb = Pdb {
            at: b.tables.root.at,
            vidmem: true,
        };
        let va = VA + hit as u64 * 4096;
        b.gpu.hw.cancel(pdb, va, 7);
        let o = b.result(fence).unwrap();
        assert_eq!((o.state, o.fault_va), (State::Faulted, va));
        assert_eq!(o.fault, Some((*kind as u32, WRITE)), "lane {hit}");
    }
}

/// An atomic to a page without atomics beside one without a page: each its own type, also
/// once one of them has tried again.
#[test]
fn a_lane_keeps_its_fault_through_replays() {
    let mut b = bench();
    b.map(VA, Loc::vidmem(8 << 20), NO_ATOMICS);
    let fence = b.submit(&[op(ADD, VA, 2)]);
    b.run();
    b.map(VA + 4096, Loc::vidmem(9 << 20), READ_ONLY);
    b.gpu.hw.replay();
    b.run();
    let types: Vec<u32> = b.fetch().iter().map(|f| f.1).collect();
    assert_eq!(types, [15, 2, 15, 6]);
    let pdb = Pdb {
        at: b.tables.root.at,
        vidmem: true,
    };
    b.gpu.hw.cancel(pdb, VA, 7);
    let o = b.result(fence).unwrap();
    let want = (FaultType::AtomicDisabled as u32, ADD);
    assert_eq!(o.fault, Some(want));
}

/// An invalidate of all levels: of one page directory, or of all; of a range, or of all.
fn of(pdb: Option<Pdb>, range: Option<(u64, u64)>) -> Invalidate {
    Invalidate {
        range,
        ..Invalidate::all(pdb)
    }
}

#[test]
fn a_missing_invalidate_shows() {
    for drop_invalidates in [false, true] {
        let mut b = Bench::new(Config {
            drop_invalidates,
            ..config()
        });
        let pdb = Pdb {
            at: b.tables.root.at,
            vidmem: true,
        };
        let page = Loc::vidmem(8 << 20);
        b.tables.map(&b.gpu.hw.m, VA, Size::Small, page, 0);
        b.done(&[op(WRITE, VA, 1)]);
        b.unmap(VA);
        b.gpu.hw.invalidate(&of(Some(pdb), Some((VA, 1))));
        let fence = b.submit(&[op(WRITE, VA, 1)]);
        b.run();
        // Without the invalidate the access goes to the page that is gone.
        assert_eq!(b.result(fence).is_some(), drop_invalidates);
        assert_eq!(
            b.gpu.stats().tlb_invalidates_dropped,
            u64::from(drop_invalidates)
        );
    }
}

#[test]
fn invalidates_are_by_page_directory_and_range() {
    let mut b = bench();
    let pdb = Pdb {
        at: b.tables.root.at,
        vidmem: true,
    };
    let cached = |b: &Bench, va| b.gpu.hw.gpc_tlb.find(b.space, va).is_some();
    b.map(VA, Loc::vidmem(8 << 20), 0);
    b.map(VA + 4096, Loc::vidmem(8 << 20), 0);
    b.done(&[op(READ, VA, 2)]);
    let sysmem = Pdb {
        vidmem: false,
        ..pdb
    };
    let other = Pdb { at: 0, ..pdb };
    b.gpu.hw.invalidate(&of(Some(sysmem), None));
    b.gpu.hw.invalidate(&of(Some(other), Some((VA, 2))));
    b.gpu.hw.invalidate(&of(Some(pdb), Some((VA + 4096, 1))));
    assert!(cached(&b, VA) && !cached(&b, VA + 4096));
    b.gpu.inject(Injection::DropInvalidates(1)).unwrap();
    b.gpu.hw.invalidate(&of(None, None));
    assert!(cached(&b, VA));
    b.gpu.hw.invalidate(&of(Some(pdb), None));
    assert!(!cached(&b, VA));
    b.done(&[op(READ, VA, 1)]);
    b.gpu.unset_pdb(b.space).unwrap();
    assert!(!cached(&b, VA));
}

#[test]
fn mappings_to_nowhere_end_the_kernel() {
    let mut b = bench();
    b.map(VA, Loc::vidmem(1 << 33), 0);
    let o = b.done(&[op(READ, VA, 1)]);
    assert_eq!((o.state, o.fault_va), (State::Error, VA));
    assert_eq!(b.gpu.stats().bad_addresses, 1);
    assert!(b.gpu.hw.m.log.borrow()[0].contains("vgpu0: kernel 1: Read at 0x700000000000"));
}

#[test]
fn kernels_wait_their_turn_and_results_are_kept_a_while() {
    let mut b = bench();
    b.map(VA, Loc::vidmem(8 << 20), 0);
    for i in 1..=300 {
        assert_eq!(b.submit(&[op(WRITE, VA, 1)]), i);
        b.run();
    }
    let result = |f| b.gpu.result(CLIENT, b.h_channel, f);
    assert_eq!(result(0), Err(Error::NotFound));
    assert_eq!(result(301), Err(Error::NotFound));
    assert_eq!(result(172), Err(Error::NotFound), "too old");
    assert!(result(173).unwrap().is_some());
    let mut queued = 0;
    let error = loop {
        match b.submit_ops(&[op(READ, VA + (1 << 30), 1)], 0) {
            Ok(_) => queued += 1,
            Err(e) => break e,
        }
    };
    assert_eq!((queued, error), (128, Error::Full));
}

#[test]
fn stopping_ends_all_kernels_for_good() {
    let mut b = bench();
    let fences = [b.submit(&[op(READ, VA, 1)]), b.submit(&[op(READ, VA, 1)])];
    b.run();
    b.gpu.stop_channel(b.h_channel).unwrap();
    for f in fences {
        assert_eq!(b.result(f).map(|o| o.state), Some(State::Stopped));
    }
    let s = b.gpu.stats();
    assert_eq!((s.kernels, s.stopped_faulting), (2, 1), "one had begun");
    let again = b.submit_ops(&[op(READ, VA, 1)], 0);
    assert_eq!(again, Err(Error::Stopped));
    assert!(b.gpu.run().finished);
    b.gpu.hw.replay();
    b.run();
    assert_eq!(b.fetch().len(), 1, "nothing new");
}

#[test]
fn handles_are_their_clients_own() {
    let mut b = bench();
    let (v, c) = (b.h_vaspace, b.h_channel);
    let launch = || Launch::new(&[op(READ, VA, 1)], 0).unwrap();
    let other = CLIENT + 1;
    let g = &mut b.gpu;
    assert_eq!(Gpu::<Fake>::handle_gpu(c), Some(0));
    assert_eq!(create_channel(g, other, v), Err(Error::NotFound));
    assert_eq!(g.submit(other, c, launch()), Err(Error::NotFound));
    assert_eq!(g.destroy_handle(other, c), Err(Error::NotFound));
    assert_eq!(g.result(other, c, 1), Err(Error::NotFound));
    assert_eq!(g.translate(other, v, VA), Err(Error::NotFound));
    assert_eq!(g.dup_space(other, v), Err(Error::NotFound));
    assert_eq!(g.dup_space(CLIENT, v), Err(Error::Busy), "UVM has it");
    assert_eq!(g.retain_channel(b.space, other, c), Err(Error::NotFound));
    assert_eq!(
        g.destroy_handle(CLIENT, v),
        Err(Error::Busy),
        "has a channel"
    );
    assert_eq!(
        g.retain_channel(b.space, CLIENT, c),
        g.retain_channel(b.space, CLIENT, c)
    );
    let unbound = create_channel(g, CLIENT, v).unwrap();
    assert_eq!(g.submit(CLIENT, unbound, launch()), Err(Error::NotBound));
    let v2 = g.create_vaspace(CLIENT).unwrap();
    let c2 = create_channel(g, CLIENT, v2).unwrap();
    assert_eq!(
        g.retain_channel(b.space, CLIENT, c2),
        Err(Error::Invalid),
        "another space's"
    );
    let own = g.create_space().unwrap();
    assert_eq!(g.retain_channel(own, CLIENT, c2), Err(Error::Invalid));
    g.destroy_handle(CLIENT, c2).unwrap();
    assert_eq!(g.destroy_handle(CLIENT, c2), Err(Error::NotFound));
    g.destroy_handle(CLIENT, v2).unwrap();
    // One address space of this client's and two channels exist.
    let made = (0..99)
        .take_while(|_| g.create_vaspace(CLIENT).is_ok())
        .count();
    assert_eq!(made, 15);
    let made = (0..99)
        .take_while(|_| create_channel(g, CLIENT, v).is_ok())
        .count();
    assert_eq!(made, 14);
}

impl Bench {
    /// Another client's channel, bound by UVM to an address space with the same tables.
    fn another(&mut self, h_client: u32) -> u32 {
        self.another_of(h_client, Owner::Admin)
    }

    fn another_of(&mut self, h_client: u32, owner: Owner) -> u32 {
        let g = &mut self.gpu;
        let h_vaspace = g.create_vaspace(h_client).unwrap();
        let channel = UserChannel::new().unwrap();
        let h_channel = g
            .add_user_channel(channel, h_client, h_vaspace, owner)
            .unwrap();
        let space = g.dup_space(h_client, h_vaspace).unwrap();
        g.set_pdb(space, self.tables.root.at, true).unwrap();
        g.retain_channel(space, h_client, h_channel).unwrap();
        h_channel
    }
}

/// UVM waits for the GPU's mutex inside of its own locks: what all users together do in
/// one turn is bounded, and everybody's turn comes.
#[test]
fn a_turn_is_bounded_for_all_users_together() {
    const USERS: u32 = 40;
    const MOST_BYTES: u64 = 4 << 20;
    const MOST_ACCESSES: u64 = 128 * 32;
    for width in [8u64, 4096] {
        let mut b = bench();
        b.map(VA, Loc::vidmem(8 << 20), 0);
        let endless = Op {
            stride: 0,
            width: width as u32,
            warps: 8,
            ..op(READ, VA, 1 << 30)
        };
        let clients = 100..100 + USERS;
        for h_client in clients.clone() {
            let h_channel = b.another(h_client);
            let launch = Launch::new(&[endless], 0).unwrap();
            b.gpu.submit(h_client, h_channel, launch).unwrap();
        }
        let made = |b: &Bench| -> Vec<u64> {
            let users = b.gpu.hw.users.iter().filter(|u| u.h_client >= 100);
            users.map(|u| u.running_accesses()).collect()
        };
        let mut before = 0;
        for turn in 0..4 * USERS {
            assert!(b.gpu.run().any);
            let now: u64 = made(&b).iter().sum();
            let done = now - before;
            before = now;
            assert!(done > 0 && done <= MOST_ACCESSES, "turn {turn}: {done}");
            assert!(done * width <= MOST_BYTES, "turn {turn}: {done} accesses");
        }
        let made = made(&b);
        let (least, most) = (made.iter().min().unwrap(), made.iter().max().unwrap());
        assert!(
            least * 2 > *most,
            "{least} accesses of one, {most} of another"
        );
    }
}

#[test]
fn channels_of_all_files_together_are_bounded() {
    let mut b = bench();
    let mut made = 1;
    let mut clients = 100..;
    let full = loop {
        let h_client = clients.next().unwrap();
        let h_vaspace = b.gpu.create_vaspace(h_client).unwrap();
        let mine = (0..16).take_while(|_| create_channel(&mut b.gpu, h_client, h_vaspace).is_ok());
        let mine = mine.count();
        made += mine;
        if mine < 16 {
            break h_client;
        }
        assert!(made < 4096, "no end of channels");
    };
    assert_eq!(made, 256);
    b.gpu.close_client(full - 1);
    let h_vaspace = b.gpu.create_vaspace(full).unwrap();
    create_channel(&mut b.gpu, full, h_vaspace).expect("there is room again");
}

/// One who is not the administrator can neither have all channels, by opening many files,
/// nor together with other users all that there are.
#[test]
fn no_user_has_all_channels() {
    let mut b = bench();
    let mut client = 100;
    let mut as_many_as_possible = |g: &mut Gpu<Fake>, owner| {
        let mut made = 0;
        loop {
            client += 1;
            let h_vaspace = g.create_vaspace(client).unwrap();
            let channel = || UserChannel::new().unwrap();
            let add = |_: &u32| {
                g.add_user_channel(channel(), client, h_vaspace, owner)
                    .is_ok()
            };
            let mine = (0..16).take_while(add).count();
            made += mine;
            if mine < 16 {
                return made;
            }
            assert!(made < 4096, "no end of channels");
        }
    };
    // The bench's is the administrator's.
    assert_eq!(as_many_as_possible(&mut b.gpu, Owner::User(1000)), 64);
    assert_eq!(as_many_as_possible(&mut b.gpu, Owner::User(1001)), 64);
    assert_eq!(as_many_as_possible(&mut b.gpu, Owner::User(1002)), 64);
    assert_eq!(as_many_as_possible(&mut b.gpu, Owner::User(1003)), 0);
    assert_eq!(as_many_as_possible(&mut b.gpu, Owner::Admin), 63);
}

/// A replay looks at all warps of running kernels, with the mutex held. What a user has
/// submitted beyond waits for his own kernels, and for nobody else's.
#[test]
fn warps_that_run_are_bounded_for_each_user() {
    const MOST: usize = 65536;
    let mut b = bench();
    b.map(VA, Loc::vidmem(8 << 20), 0);
    // 16384 warps, which wait for a fault at first.
    let many = Op {
        stride: 0,
        width: 8,
        warps: 16384,
        ..op(READ, VA + 4096, 16384 * 32)
    };
    let few = op(READ, VA, 1);
    let queue = |b: &mut Bench, client, owner, op: Op| {
        let h_channel = b.another_of(client, owner);
        let launch = Launch::new(&[op], 0).unwrap();
        (
            client,
            h_channel,
            b.gpu.submit(client, h_channel, launch).unwrap(),
        )
    };
    let of_one: Vec<_> = (100..108)
        .map(|client| queue(&mut b, client, Owner::User(1000), many))
        .collect();
    let turns = |b: &mut Bench| (0..2000).for_each(|_| _ = b.gpu.run());
    turns(&mut b);
    let running = |b: &Bench| -> usize {
        let users = b.gpu.hw.users.iter();
        users.map(|u| u.running_warps()).sum()
    };
    assert_eq!(running(&b), MOST);
    let other = queue(&mut b, 200, Owner::User(1001), few);
    let admin = queue(&mut b, 201, Owner::Admin, few);
    turns(&mut b);
    for (client, h_channel, fence) in [other, admin] {
        let outcome = b.gpu.result(client, h_channel, fence).unwrap();
        assert_eq!(outcome.map(|o| o.state), Some(State::Done));
    }
    // When the page is there, all of them come to their end.
    b.map(VA + 4096, Loc::vidmem(8 << 20), 0);
    b.fetch();
    b.gpu.hw.replay();
    for _ in 0..100_000 {
        assert!(running(&b) <= MOST);
        if !b.gpu.run().any {
            break;
        }
    }
    for (client, h_channel, fence) in of_one {
        let outcome = b.gpu.result(client, h_channel, fence).unwrap();
        assert_eq!(outcome.map(|o| o.state), Some(State::Done));
    }
}

/// A phase of many warps of which one has something to do is work as well.
#[test]
fn phases_are_part_of_a_turn() {
    let mut b = bench();
    b.map(VA, Loc::vidmem(8 << 20), 0);
    let idle = Op {
        flags: 1,
        warps: 160,
        ..op(READ, VA, 1)
    };
    b.submit(&vec![idle; 100]);
    let mut turns = 0;
    while b.gpu.run().any {
        turns += 1;
    }
    // 100 instructions and 16,000 warps, of 128 instructions in a turn.
    assert!(turns >= 8, "{turns} turns");
}

#[test]
fn a_closed_client_leaves_when_uvm_lets_go() {
    let mut b = bench();
    b.submit(&[op(READ, VA, 1)]);
    b.run();
    b.gpu.close_client(CLIENT);
    assert!(b.gpu.user_spaces.is_empty());
    assert_eq!(b.gpu.hw.users.len(), 1, "UVM holds it");
    assert_eq!(
        b.gpu.retain_channel(b.space, CLIENT, b.h_channel),
        Err(Error::NotFound)
    );
    b.gpu.stop_channel(b.h_channel).unwrap();
    b.gpu.release_channel(b.h_channel).unwrap();
    assert!(b.gpu.hw.users.is_empty());
    b.gpu.destroy_space(b.space).unwrap();
    assert_eq!(b.gpu.leaks(), (0, 0, 0, 0));
    assert_eq!(b.gpu.destroy_space(b.space), Err(Error::NotFound));
}

#[test]
fn a_destroyed_space_stops_its_channels() {
    let mut b = bench();
    let fence = b.submit(&[op(READ, VA, 1)]);
    b.run();
    b.gpu.destroy_space(b.space).unwrap();
    assert_eq!(b.result(fence).map(|o| o.state), Some(State::Stopped));
    b.run();
}

#[test]
fn translations_can_be_asked_for() {
    let mut b = bench();
    b.map(VA, Loc::sysmem(SYSMEM), READ_ONLY);
    let v = b.h_vaspace;
    assert_eq!(
        b.gpu.translate(CLIENT, v, VA + 5),
        Ok((2, 4096, 1, u32::MAX))
    );
    assert_eq!(b.gpu.translate(CLIENT, v, VA + 4096), Ok((0, 0, 0, 2)));
    let end = b.gpu.config.chip.mmu.va_end();
    assert_eq!(b.gpu.translate(CLIENT, v, end), Err(Error::Invalid));
    assert_eq!(b.gpu.stats().walks, 0, "not counted");
}

/// What is above the addresses of one GPU may be below those of another.
#[test]
fn kernels_end_where_the_gpus_addresses_do() {
    for (chip, bits) in [(&Personality::TURING, 49), (&Personality::HOPPER, 57)] {
        let mut gpu = Gpu::new(Fake::new(16 << 20, 4 << 20), Config { chip, ..config() }).unwrap();
        let h_vaspace = gpu.create_vaspace(CLIENT).unwrap();
        let h_channel = create_channel(&mut gpu, CLIENT, h_vaspace).unwrap();
        let space = gpu.dup_space(CLIENT, h_vaspace).unwrap();
        gpu.retain_channel(space, CLIENT, h_channel).unwrap();
        let end = 1 << bits;
        for (va, want) in [(end - 4096, Ok(1)), (end, Err(Error::Invalid))] {
            let launch = Launch::new(&[op(READ, va, 1)], 0);
            let got = launch.and_then(|l| gpu.submit(CLIENT, h_channel, l));
            assert_eq!(got, want, "{va:#x} of {}", chip.name);
        }
        let translated = |va| gpu.translate(CLIENT, h_vaspace, va);
        assert!(translated(end - 1).is_ok());
        assert_eq!(translated(end), Err(Error::Invalid));
    }
}

/// Where a channel's addresses end, UVM asks for memory above 2^40 in one test of its own.
#[test]
fn memory_of_rms_lies_where_channels_reach_it() {
    for (chip, tera) in [(&Personality::TURING, false), (&Personality::HOPPER, true)] {
        let mut gpu = Gpu::new(Fake::new(16 << 20, 4 << 20), Config { chip, ..config() }).unwrap();
        let space = gpu.create_space().unwrap();
        let (va, _) = gpu.alloc_buffer(space, 4096, 0).unwrap();
        assert!(va >> 32 != 0 && va < chip.rm_end);
        let far = gpu.alloc_buffer(space, 1 << 20, 1 << 40);
        assert_eq!(far.is_ok(), tera, "{}", chip.name);
        if let Ok((va, _)) = far {
            assert!(va >= 1 << 40 && va % (1 << 40) == 0, "{va:#x}");
        }
    }
}

pub(crate) fn ask(count: u64) -> AllocRequest {
    AllocRequest {
        count,
        page_bytes: CHUNK,
        contiguous: false,
        partial: false,
        pinned: false,
        begin: 0,
        end: u64::MAX,
    }
}

#[test]
fn freed_memory_is_poisoned_where_it_was_written() {
    let mut b = bench();
    let all = b.gpu.stats().poisoned_bytes;
    assert_eq!(all, (16 << 20) - RESERVED);
    let mut pages = [0; 7];
    assert_eq!(b.gpu.pma_alloc(&ask(7), false, &mut pages), Ok((7, false)));
    let page = pages[3];
    assert_eq!(b.gpu.hw.m.get(Loc::vidmem(page)), POISON);
    b.map(VA, Loc::vidmem(page + (1 << 20)), 0);
    b.done(&[op(WRITE, VA, 1)]);
    b.gpu.pma_free(&pages, 7, CHUNK, false).unwrap();
    for at in (page..page + CHUNK).step_by(4096) {
        assert_eq!(b.gpu.hw.m.get(Loc::vidmem(at)), POISON, "{at:#x}");
    }
    assert_eq!(b.gpu.stats().poisoned_bytes, all + GRANULE);
    assert_eq!(b.gpu.pma_free(&pages, 7, CHUNK, false), Err(Error::Invalid));
    assert_eq!(b.gpu.stats().pma_frees, 7);
}

/// A store that arrives after its memory was given back is found there, and goes with the next
/// owner's data.
#[test]
fn what_arrives_late_is_poisoned_the_next_time() {
    let order = Order::Adversarial { seed: 1 };
    let mut b = Bench::new(Config { order, ..config() });
    let mut pages = [0];
    b.gpu.pma_alloc(&ask(1), false, &mut pages).unwrap();
    let at = Loc::vidmem(pages[0]);
    let who = Who::User(0);
    b.gpu.hw.hold(who, None, at, 8, |_, data| data.fill(1));
    b.gpu.pma_free(&pages, 1, CHUNK, false).unwrap();
    assert_eq!(b.gpu.hw.m.get(at), POISON);
    b.gpu.hw.all_arrive();
    assert_eq!(b.gpu.hw.m.get(at), 0x0101_0101_0101_0101);
    let mut again = [0; 7];
    assert_eq!(b.gpu.pma_alloc(&ask(7), false, &mut again), Ok((7, false)));
    b.gpu.pma_free(&again, 7, CHUNK, false).unwrap();
    assert_eq!(b.gpu.hw.m.get(at), POISON);
}

#[test]
fn zero_is_said_only_of_what_is_zero() {
    let mut b = Bench::new(Config {
        zero: true,
        ..config()
    });
    let mut pages = [0];
    assert_eq!(
        b.gpu.pma_alloc(&ask(1), true, &mut pages),
        Ok((1, false)),
        "not wanted"
    );
    let mut more = [0; 2];
    assert_eq!(b.gpu.pma_alloc(&ask(2), false, &mut more), Ok((2, true)));
    for at in more {
        assert!((0..CHUNK / 8).all(|i| b.gpu.hw.m.get(Loc::vidmem(at + 8 * i)) == 0));
    }
    b.gpu.pma_free(&more, 2, CHUNK, false).unwrap();
    assert_eq!(b.gpu.hw.m.get(Loc::vidmem(more[0])), POISON);
}

#[test]
fn allocations_fail_on_request() {
    let mut b = bench();
    b.gpu
        .inject(Injection::PmaFailure { skip: 1, count: 2 })
        .unwrap();
    let mut got = Vec::new();
    for _ in 0..4 {
        got.push(b.gpu.pma_alloc(&ask(1), false, &mut [0]).is_ok());
    }
    assert_eq!(got, [true, false, false, true]);
    assert_eq!(b.gpu.stats().pma_failures, 2);
}

#[test]
fn evictions_claim_what_uvm_freed() {
    let mut b = bench();
    let mut pages = [0; 7];
    b.gpu.pma_alloc(&ask(7), false, &mut pages).unwrap();
    b.gpu.pma_pin(&pages[..1], 1, CHUNK).unwrap();
    let (begin, end) = (pages[1], pages[3] + CHUNK);
    assert_eq!(
        b.gpu.begin_eviction(0, 16 << 20),
        Err(Error::Busy),
        "pinned"
    );
    assert_eq!(b.gpu.begin_eviction(begin + 1, end), Err(Error::Invalid));
    assert_eq!(b.gpu.begin_eviction(end, begin), Err(Error::Invalid));
    b.gpu.begin_eviction(begin, end).unwrap();
    b.gpu.pma_free(&pages[1..4], 3, CHUNK, false).unwrap();
    assert_eq!(
        b.gpu.pma_alloc(&ask(1), false, &mut [0]),
        Err(Error::NoVidmem),
        "held back"
    );
    let mut mine = [0; 8];
    assert_eq!(b.gpu.end_eviction(begin, end, &mut mine), 3);
    assert_eq!(mine[..3], pages[1..4]);
}

/// UVM relies on it: what it could pin is not asked back, and what is asked back it cannot
/// pin (NV_ERR_IN_USE).
#[test]
fn what_is_being_evicted_cannot_be_pinned() {
    let mut b = bench();
    let mut pages = [0; 7];
    b.gpu.pma_alloc(&ask(7), false, &mut pages).unwrap();
    b.gpu.begin_eviction(pages[1], pages[3]).unwrap();
    assert_eq!(b.gpu.pma_pin(&pages[2..3], 1, CHUNK), Err(Error::Busy));
    assert_eq!(b.gpu.pma_pin(&pages[1..2], 1, GRANULE), Err(Error::Busy));
    let some = [pages[4], pages[2]];
    assert_eq!(b.gpu.pma_pin(&some, 2, CHUNK), Err(Error::Busy));
    b.gpu
        .begin_eviction(pages[4], pages[5])
        .expect("none was pinned");
    b.gpu.pma_pin(&pages[3..4], 1, CHUNK).unwrap();
    assert_eq!(b.gpu.end_eviction(pages[1], pages[3], &mut [0; 2]), 0);
    b.gpu.pma_pin(&pages[2..3], 1, CHUNK).unwrap();
}

/// Two callers of VGPU_INJECT evict ranges at the same time.
#[test]
fn evictions_of_ranges_may_run_at_the_same_time() {
    let mut b = bench();
    let mut pages = [0; 7];
    b.gpu.pma_alloc(&ask(7), false, &mut pages).unwrap();
    let (first, second) = (pages[1]..pages[3], pages[4]..pages[6]);
    b.gpu.begin_eviction(first.start, first.end).unwrap();
    b.gpu.begin_eviction(second.start, second.end).unwrap();
    b.gpu.pma_free(&pages[1..3], 2, CHUNK, false).unwrap();
    b.gpu.pma_free(&pages[4..6], 2, CHUNK, false).unwrap();
    let taken = |b: &mut Bench| b.gpu.pma_alloc(&ask(1), false, &mut [0]);
    assert_eq!(taken(&mut b), Err(Error::NoVidmem), "both are held back");
    for (begin, end) in [
        (first.start, first.end),
        (pages[2], pages[4]),
        (second.start + CHUNK, second.end + CHUNK),
        (pages[1], pages[6]),
    ] {
        assert_eq!(b.gpu.begin_eviction(begin, end), Err(Error::Busy));
    }
    let mut mine = [0; 8];
    assert_eq!(b.gpu.end_eviction(second.start, second.end, &mut mine), 2);
    assert_eq!(mine[..2], pages[4..6]);
    assert_eq!(taken(&mut b), Err(Error::NoVidmem), "the first still is");
    assert_eq!(b.gpu.end_eviction(first.start, first.end, &mut mine), 2);
    assert_eq!(mine[..2], pages[1..3]);
    b.gpu.pma_free(&pages[4..6], 2, CHUNK, false).unwrap();
    assert!(taken(&mut b).is_ok(), "nothing is held back any more");
}

#[test]
fn buffers_have_addresses_and_are_freed() {
    let mut b = bench();
    let live = b.gpu.hw.m.live();
    let s = b.gpu.create_space().unwrap();
    let (va, slot) = b.gpu.alloc_buffer(s, 5000, 1 << 21).unwrap();
    assert!(va >= 1 << 32 && va % (1 << 21) == 0);
    assert_eq!(
        b.gpu.map_buffer(s, va + 4096, 4096),
        Ok(Loc::buffer(slot, 4096))
    );
    assert_eq!(b.gpu.map_buffer(s, va, 8193), Err(Error::Invalid));
    assert_eq!(b.gpu.alloc_buffer(s, 0, 0), Err(Error::Invalid));
    assert_eq!(b.gpu.alloc_buffer(s, 8, 3), Err(Error::Invalid));
    b.gpu.free_buffer(s, va).unwrap();
    assert_eq!(b.gpu.free_buffer(s, va), Err(Error::NotFound));
    b.gpu.alloc_buffer(s, 8, 0).unwrap();
    let (c, _) = b.gpu.create_channel(s, 0, 8).unwrap();
    b.gpu.destroy_channel(c).unwrap();
    b.gpu.destroy_space(s).unwrap();
    assert!(b.gpu.hw.m.log.borrow()[0].contains("with memory in it"));
    assert_eq!(b.gpu.hw.m.live(), live);
}

#[test]
fn no_memory_leaves_nothing_behind() {
    let mut b = bench();
    let live = b.gpu.hw.m.live();
    for allowed in 0..2 {
        b.gpu.hw.m.allocations = allowed;
        assert_eq!(
            b.gpu.create_channel(b.space, 0, 8).err(),
            Some(Error::NoMemory)
        );
    }
    assert_eq!(b.gpu.hw.m.live(), live);
    for allowed in 0..3 {
        let mut m = Fake::new(16 << 20, 0);
        m.allocations = allowed;
        assert!(matches!(Gpu::new(m, config()), Err(Error::NoMemory)));
    }
}

#[test]
fn bad_configurations_are_refused() {
    let bad = [
        Config {
            vidmem_bytes: 6 << 20,
            ..config()
        },
        Config {
            vidmem_bytes: (16 << 20) + 4096,
            ..config()
        },
        Config {
            fault_entries: 3,
            ..config()
        },
        Config {
            fault_entries: 65537,
            ..config()
        },
        Config {
            index: 8,
            ..config()
        },
        // More than RM's part of it has marks for.
        Config {
            vidmem_bytes: (1 << 40) + (2 << 20),
            ..config()
        },
    ];
    for c in bad {
        let bytes = c.vidmem_bytes.min(16 << 20);
        assert!(
            matches!(Gpu::new(Fake::new(bytes, 0), c), Err(Error::Invalid)),
            "{c:?}"
        );
    }
}

#[test]
fn access_counters_see_remote_accesses_only() {
    let mut b = bench();
    b.gpu.reset_counters().unwrap();
    b.gpu.enable_counters(2, 3);
    b.map(VA, Loc::sysmem(SYSMEM), 0);
    b.map(VA + 4096, Loc::vidmem(8 << 20), 0);
    b.done(&[Op {
        stride: 0,
        lanes: 1,
        ..op(READ, VA + 4096, 10)
    }]);
    assert_eq!(b.gpu.stats().access_notifications, 0);
    b.done(&[Op {
        stride: 0,
        lanes: 1,
        ..op(READ, VA, 10)
    }]);
    assert_eq!(b.gpu.stats().access_notifications, 1);
    b.gpu.disable_counters();
}

/// A clear names the kind of counter: MIMC, which are emulated, or MOMC, which are not.
#[test]
fn clears_of_momc_counters_leave_mimc_alone() {
    const MIMC: u32 = 0;
    const MOMC: u32 = 1;
    const ALL: u32 = 2;
    const TARGETED: u32 = 3;
    const TARGETED_MOMC: u32 = TARGETED | 1 << 2;
    for (kind, clears) in [
        (MIMC, true),
        (MOMC, false),
        (ALL, true),
        (TARGETED, true),
        (TARGETED_MOMC, false),
    ] {
        let mut b = bench();
        b.gpu.reset_counters().unwrap();
        b.gpu.enable_counters(2, 3);
        b.map(VA, Loc::sysmem(SYSMEM), 0);
        let read = |count| Op {
            stride: 0,
            lanes: 1,
            ..op(READ, VA, count)
        };
        b.done(&[read(3)]);
        let notified = |b: &Bench| b.gpu.stats().access_notifications;
        assert_eq!(notified(&b), 1);
        let entry = Loc::buffer(b.gpu.counter_buffer(), 0);
        let tag = b.gpu.hw.m.load32(entry.plus(4 * 5)).unwrap();

        // MEM_OP_A to D in one segment of a channel of UVM's.
        let space = b.gpu.create_space().unwrap();
        let (va, buffer) = b.gpu.alloc_buffer(space, 4096, 0).unwrap();
        let (_, place) = b.gpu.create_channel(space, 0, 4).unwrap();
        let words = [1 << 29 | 4 << 16 | 0x28 >> 2, 0, 0, tag, 0x16 << 27 | kind];
        let m = &b.gpu.hw.m;
        for (i, word) in words.iter().enumerate() {
            let at = Loc::buffer(buffer, 4 * i as u64);
            m.store32(at, *word).unwrap();
        }
        m.set(Loc::buffer(place.ring, 0), va | (words.len() as u64) << 42);
        m.submit(place, 1);
        b.run();
        let s = b.gpu.stats();
        assert_eq!((s.access_clears, s.channel_errors), (1, 0));

        // A counter that was cleared counts up to its threshold again.
        b.done(&[read(3)]);
        assert_eq!(notified(&b), 1 + u64::from(clears), "clear of type {kind}");
    }
}

#[test]
fn random_kernels_agree_with_a_model() {
    random_kernels(Order::Kind, 300);
    for seed in 1..=4 {
        random_kernels(Order::Adversarial { seed }, 100);
    }
}

/// Random kernels over pages that are mapped on demand, against plain memory.
fn random_kernels(order: Order, rounds: u32) {
    let mut seed = 0x1234_5678_9abc_def0u64;
    std::println!("{order:?}, seed {seed:#x}");
    let mut random = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let pages = 24;
    let words = pages * 512;
    let mut model = vec![0u64; words as usize];
    let mut b = Bench::new(Config { order, ..config() });
    b.gpu.hw.fill_vidmem(8 << 20, pages * 4096, 0);
    for round in 0..rounds {
        let width = 8 << random(4);
        let count = 1 + random(words * 8 / width);
        let kind = [WRITE, ADD, CHECK][random(3) as usize];
        let (value, value_stride) = (random(1 << 40), random(5));
        let o = Op {
            kind,
            flags: [0, 2, 4, 6][random(4) as usize],
            va: VA,
            stride: width as i64,
            count,
            width: width as u32,
            warps: 1 + random(9) as u32,
            lanes: random(33) as u32,
            value,
            value_stride,
            ..Op::default()
        };
        let mut wrong = 0;
        for (k, word) in model[..(count * width / 8) as usize].iter_mut().enumerate() {
            let pattern = value.wrapping_add(value_stride * k as u64);
            match kind {
                WRITE => *word = pattern,
                ADD => *word = word.wrapping_add(pattern),
                _ => wrong += u64::from(*word != pattern),
            }
        }
        let fence = b.submit(&[o]);
        while b.result(fence).is_none() {
            b.gpu.run();
            // Not before an entry is valid.
            b.gpu.hw.m.pass(1 << 30);
            if b.gpu.run().any {
                continue;
            }
            for (va, ..) in b.fetch() {
                b.map(va, Loc::vidmem((8 << 20) + (va - VA)), 0);
            }
            b.gpu.hw.replay();
        }
        let result = b.result(fence).unwrap();
        assert_eq!(
            (result.accesses, result.mismatches),
            (count, wrong),
            "round {round}: {o:?}"
        );
        if random(4) == 0 {
            let va = VA + random(pages) * 4096;
            b.unmap(va);
            b.gpu.hw.invalidate(&of(None, Some((va, 1))));
        }
    }
    for (i, word) in model.iter().enumerate() {
        assert_eq!(
            b.gpu.hw.m.get(Loc::vidmem((8 << 20) + 8 * i as u64)),
            *word,
            "word {i}"
        );
    }
}
