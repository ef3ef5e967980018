// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Eight GPUs that reach each other's memory, by kernels and by copy engines.

use std::collections::BTreeSet;
use std::vec::Vec;

use super::*;
use crate::bench::access;
use crate::bench::config;
use crate::bench::copy;
use crate::bench::memory_operation;
use crate::bench::own_va;
use crate::bench::Bench;
use crate::bench::Method;
use crate::bench::Tlbi;
use crate::bench::FREE;
use crate::bench::VA;
use crate::emu::AllocRequest;
use crate::emu::Config;
use crate::emu::Op;
use crate::emu::Order;
use crate::emu::Outcome;
use crate::emu::Personality;
use crate::emu::State;
use crate::fake::Size;
use crate::fake::NO_ATOMICS;

const READ: u32 = 0;
const WRITE: u32 = 1;
const ADD: u32 = 2;
const GPUS: usize = 8;
/// Of a launch: pipelined, and of physical addresses.
const COPY: u32 = 1;
const FROM_PHYSICAL: u32 = 1 << 12;
const TO_PHYSICAL: u32 = 1 << 13;
const PAGE: u64 = 4096;
/// What freed memory is filled with, as `include/uapi/vgpu.h` says.
const POISON: u64 = 0x5eed_5eed_bad0_bad0;

/// GPUs of one machine, each a peer of each.
struct Machines {
    benches: Vec<Bench>,
}

impl Machines {
    fn new(count: usize, order: Order, chip: &'static Personality, has_atomics: bool) -> Self {
        Self::with(count, config(order, chip), has_atomics)
    }

    fn with(count: usize, config: Config, has_atomics: bool) -> Self {
        let mut benches: Vec<Bench> = Vec::new();
        for index in 0..count as u32 {
            let first = benches.first().map(|b| b.gpu.machine());
            benches.push(Bench::beside(first, Config { index, ..config }));
        }
        let mut all = Self { benches };
        for (a, b) in pairs(count) {
            all.join(a, b, has_atomics);
        }
        all
    }

    fn of(chip: &'static Personality) -> Self {
        Self::new(GPUS, Order::Kind, chip, false)
    }

    /// Makes `b` a peer of `a`, which is one half of a P2P object.
    fn join(&mut self, a: usize, b: usize, has_atomics: bool) {
        let id = self.benches[a].gpu.add_peer(b as u32, has_atomics).unwrap();
        let vidmem = self.benches[b].gpu.machine().vidmem();
        let machine = self.benches[a].gpu.machine_mut();
        machine.set_peer(id, Some(vidmem));
    }

    fn id(&self, a: usize, b: usize) -> PeerId {
        self.benches[a].gpu.peer_id(b as u32).unwrap()
    }

    /// An address in the memory of `b`, as `a` names it.
    fn peer(&self, a: usize, b: usize, at: u64) -> Loc {
        Loc::peer(self.id(a, b), at)
    }

    fn word(&self, gpu: usize, at: u64) -> u64 {
        self.benches[gpu].gpu.machine().get(Loc::vidmem(at))
    }

    /// Maps an address of the user's of `a`, who has never used it.
    fn map(&mut self, a: usize, va: u64, to: Loc, flags: u64) {
        let bench = &mut self.benches[a];
        let m = bench.gpu.machine();
        bench.user.map(m, va, Size::Small, to, flags);
    }

    fn kernel(&mut self, gpu: usize, kind: u32, va: u64, value: u64) -> Outcome {
        let bench = &mut self.benches[gpu];
        let fence = bench.launch(access(kind, va, value));
        bench.run();
        bench.outcome(fence).expect("waits")
    }
}

/// All pairs of GPUs, in both directions.
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    let each = move |a| (0..count).map(move |b| (a, b));
    (0..count).flat_map(each).filter(|(a, b)| a != b)
}

fn last_log(bench: &Bench) -> std::string::String {
    let log = bench.gpu.machine().log.borrow();
    log.last().cloned().unwrap_or_default()
}

/// What a pair's test writes, and where.
fn value(a: usize, b: usize) -> u64 {
    0x1000 + 16 * a as u64 + b as u64
}

fn place(a: usize) -> u64 {
    FREE + PAGE * a as u64
}

/// The memory of each GPU has what the others wrote, each in its own place, and its own place is as it was.
fn check_places(all: &Machines) {
    for b in 0..GPUS {
        for a in 0..GPUS {
            let want = if a == b { 0 } else { value(a, b) };
            assert_eq!(all.word(b, place(a)), want, "{a} to {b}");
        }
    }
}

#[test]
fn kernels_reach_each_from_each() {
    for chip in [&Personality::TURING, &Personality::HOPPER] {
        let mut all = Machines::of(chip);
        for (a, b) in pairs(GPUS) {
            let (va, to) = (VA + PAGE * b as u64, all.peer(a, b, place(a)));
            all.map(a, va, to, 0);
            let wrote = all.kernel(a, WRITE, va, value(a, b));
            assert_eq!((wrote.state, wrote.faults), (State::Done, 0));
        }
        check_places(&all);
        for (a, b) in pairs(GPUS) {
            let read = all.kernel(a, READ, VA + PAGE * b as u64, 0);
            assert_eq!((read.state, read.sum), (State::Done, value(a, b)));
        }
        for bench in &all.benches {
            let s = bench.gpu.stats();
            let others = GPUS as u64 - 1;
            assert_eq!(
                (s.peer_accesses, s.local_accesses, s.remote_accesses),
                (2 * others, 0, 0)
            );
            assert_eq!(s.access_notifications, 0);
        }
    }
}

#[test]
fn pages_of_all_sizes_are_of_peers() {
    for chip in [&Personality::AMPERE, &Personality::HOPPER] {
        let mut all = Machines::of(chip);
        let (at, offset) = (FREE + (2 << 20), 0x1_2340);
        for (i, size) in [Size::Small, Size::Big, Size::Huge].into_iter().enumerate() {
            let (va, bytes) = (VA + ((i as u64) << 30), size as u64);
            let (start, offset) = (at, offset % bytes);
            let to = all.peer(1, 6, start);
            let bench = &mut all.benches[1];
            bench.user.map(bench.gpu.machine(), va, size, to, 0);
            let wrote = all.kernel(1, WRITE, va + offset, 7 + bytes);
            assert_eq!(wrote.state, State::Done);
            assert_eq!(all.word(6, start + offset), 7 + bytes, "{size:?}");
        }
    }
}

#[test]
fn a_number_that_names_no_peer_ends_a_kernel() {
    for chip in [&Personality::VOLTA, &Personality::BLACKWELL] {
        let mut all = Machines::of(chip);
        // Seven of eight numbers are peers'.
        let known: Vec<_> = (1..GPUS).map(|b| all.id(0, b).number()).collect();
        let free = (0..MAX_PEERS).find(|n| !known.contains(n)).unwrap();
        all.map(0, VA, Loc::peer(PeerId::of(free as u64), FREE), 0);
        let read = all.kernel(0, READ, VA, 0);
        assert_eq!(read.state, State::Error);
        let said = std::format!("BadTable(Loc {{ space: Peer({free})");
        assert!(last_log(&all.benches[0]).contains(&said), "{said}");
        // Beyond a peer's memory there is nothing.
        let beyond = all.peer(0, 1, 8 << 20);
        all.map(0, VA + PAGE, beyond, 0);
        assert_eq!(all.kernel(0, WRITE, VA + PAGE, 0).state, State::Error);
        assert_eq!(all.benches[0].gpu.stats().bad_addresses, 2);
    }
}

/// Methods that copy a word between physical addresses; a mode is a target, and a peer's number.
fn physical(from: (u64, u32), to: (u64, u32)) -> Vec<Method> {
    let modes = [(4, 0x260, from.1), (4, 0x264, to.1)];
    let launch = COPY | FROM_PHYSICAL | TO_PHYSICAL;
    let copied = copy(from.0, to.0, 8, launch);
    modes.into_iter().chain(copied).collect()
}

const LOCAL: u32 = 0;

fn peer_mode(id: PeerId) -> u32 {
    3 | (id.number() as u32) << 6
}

#[test]
fn copy_engines_copy_between_each_pair_by_physical_address() {
    for chip in [&Personality::AMPERE, &Personality::HOPPER] {
        let mut all = Machines::of(chip);
        let (source, back) = (FREE + (1 << 20), FREE + (1 << 19));
        for (a, b) in pairs(GPUS) {
            let mode = peer_mode(all.id(a, b));
            let m = all.benches[a].gpu.machine();
            m.set(Loc::vidmem(source), value(a, b));
            all.benches[a].execute(&physical((source, LOCAL), (place(a), mode)));
            all.benches[a].execute(&physical((place(a), mode), (back, LOCAL)));
            assert_eq!(all.word(a, back), value(a, b), "{b} to {a}");
        }
        check_places(&all);
        for bench in &all.benches {
            let s = bench.gpu.stats();
            assert_eq!((s.peer_bytes, s.d2d_bytes), (2 * 8 * (GPUS as u64 - 1), 0));
        }
    }
}

/// As Turing's copies are, which have no physical addresses of peers: by a mapping of all of a peer's memory.
#[test]
fn copy_engines_copy_between_each_pair_by_virtual_address() {
    for chip in [&Personality::TURING, &Personality::HOPPER] {
        let mut all = Machines::of(chip);
        for (a, b) in pairs(GPUS) {
            let window = own_va(chip) + ((b as u64) << 30);
            for huge in 0..4 {
                let to = all.peer(a, b, huge << 21);
                let bench = &mut all.benches[a];
                let m = bench.gpu.machine();
                bench
                    .own
                    .map(m, window + (huge << 21), Size::Huge, to, NO_ATOMICS);
            }
            let bench = &mut all.benches[a];
            bench.gpu.machine().set(bench.at(0), value(a, b));
            let copied = copy(bench.data(0), window + place(a), 8, COPY);
            bench.execute(&copied);
            assert_eq!(bench.copied(window + place(a)), value(a, b));
        }
        check_places(&all);
        for bench in &all.benches {
            let s = bench.gpu.stats();
            assert_eq!(
                (s.peer_bytes, s.virtual_bytes),
                (2 * 8 * (GPUS as u64 - 1), 0)
            );
        }
    }
}

#[test]
fn a_copy_engine_is_stopped_by_a_number_that_names_no_peer() {
    let mut all = Machines::of(&Personality::AMPERE);
    let id = all.benches[3].gpu.remove_peer(5).unwrap();
    all.benches[3].gpu.machine_mut().set_peer(id, None);
    let bench = &mut all.benches[3];
    bench.push(0, &physical((FREE, LOCAL), (FREE, peer_mode(id))));
    bench.run();
    assert!(last_log(bench).contains("peer"), "{}", last_log(bench));
    assert_eq!(bench.gpu.stats().channel_errors, 1);
}

#[test]
fn what_a_peer_mode_may_say() {
    // Turing's copy engines have no such target, and no word for a number.
    for (chip, mode, is_known) in [
        (&Personality::TURING, 1 << 6, false),
        (&Personality::VOLTA, 1 << 6, false),
        (&Personality::AMPERE, 7 << 6, true),
        (&Personality::AMPERE, 1 << 9, false),
        (&Personality::HOPPER, 7 << 6, true),
        (&Personality::BLACKWELL, 1 << 2, false),
    ] {
        for method in [0x260, 0x264] {
            let mut bench = Bench::new(Order::Kind, chip);
            bench.push(0, &[(4, method, mode)]);
            bench.run();
            assert_eq!(last_log(&bench).is_empty(), is_known, "{mode:#x}");
        }
    }
}

#[test]
fn an_invalidate_is_for_one_gpu() {
    let mut all = Machines::of(&Personality::TURING);
    for gpu in 0..GPUS {
        let m = all.benches[gpu].gpu.machine();
        m.set(Loc::vidmem(FREE), 100 + gpu as u64);
    }
    // All but the last two read the memory of one of these, and then that of the other one.
    let (old, new) = (6, 7);
    for gpu in 0..old {
        let at = all.peer(gpu, old, FREE);
        all.map(gpu, VA, at, 0);
        assert_eq!(all.benches[gpu].read(VA), Some(106));
        let at = all.peer(gpu, new, FREE);
        all.map(gpu, VA, at, 0);
    }
    for gpu in 0..old {
        all.benches[gpu].execute(&Tlbi::ALL.methods());
        for other in 0..old {
            let want = if other <= gpu { 107 } else { 106 };
            assert_eq!(all.benches[other].read(VA), Some(want), "{gpu}: {other}");
        }
    }
}

#[test]
fn atomics_add_to_peers() {
    for chip in [&Personality::VOLTA, &Personality::HOPPER] {
        for has_atomics in [false, true] {
            let mut all = Machines::new(GPUS, Order::Kind, chip, has_atomics);
            for (a, b) in pairs(GPUS) {
                let (va, to) = (VA + PAGE * b as u64, all.peer(a, b, FREE));
                all.map(a, va, to, 0);
                for width in [4, 8, 128] {
                    let add = Op {
                        width,
                        value_stride: 1,
                        ..access(ADD, va + u64::from(width), 3)
                    };
                    let bench = &mut all.benches[a];
                    let fence = bench.launch(add);
                    bench.run();
                    assert_eq!(bench.outcome(fence).unwrap().state, State::Done);
                }
            }
            let others = GPUS as u64 - 1;
            for gpu in 0..GPUS {
                // The upper half of the word at 0.
                assert_eq!(all.word(gpu, FREE) >> 32, 3 * others);
                assert_eq!(all.word(gpu, FREE + 8), 3 * others);
                for i in 0..16 {
                    assert_eq!(all.word(gpu, FREE + 128 + 8 * i), (3 + i) * others);
                }
                assert_eq!(all.word(gpu, FREE + 256), 0);
            }
        }
    }
}

/// What two GPUs add to a word of a third one's, by kernels that fault elsewhere and so are under way at the same time.
fn added_at_once(seed: u64, has_atomics: bool, width: u32) -> u64 {
    let order = Order::Adversarial { seed };
    let mut all = Machines::new(3, order, &Personality::VOLTA, has_atomics);
    for gpu in 0..2 {
        let to = all.peer(gpu, 2, FREE);
        all.map(gpu, VA, to, 0);
        let add = Op {
            width,
            ..access(ADD, VA, 1)
        };
        all.benches[gpu].launch_all(&[add, access(READ, VA + PAGE, 0)]);
        all.benches[gpu].run();
    }
    for gpu in 0..2 {
        // What is late arrives.
        all.benches[gpu].gpu.remove_peer(2).unwrap();
    }
    all.word(2, FREE) & 0xffff_ffff
}

/// Over PCIe one of two may be lost: a driver that lets both add at once is found out.
#[test]
fn atomics_are_atomic_over_nvlink_alone() {
    for width in [4, 8] {
        for seed in 0..60 {
            assert_eq!(added_at_once(seed, true, width), 2, "{seed}");
        }
        let lost = |&seed: &u64| added_at_once(seed, false, width) == 1;
        assert!((0..60).filter(lost).count() > 7);
    }
}

/// A GPU's own atomics are atomic to each other, whichever channels' they are: UVM allows them to a GPU, not to a channel.
#[test]
fn channels_of_a_gpu_lose_no_atomics_to_a_peer() {
    for (width, seed) in [4, 8, 128]
        .into_iter()
        .flat_map(|w| (0..40).map(move |s| (w, s)))
    {
        let order = Order::Adversarial { seed };
        let mut all = Machines::new(2, order, &Personality::VOLTA, false);
        let to = all.peer(0, 1, FREE);
        all.map(0, VA, to, 0);
        let bench = &mut all.benches[0];
        let add = Op {
            width,
            ..access(ADD, VA, 1)
        };
        for channel in [bench.h_channel, bench.another_channel()] {
            // Both are under way to their ends, as they fault elsewhere.
            bench.launch_on(channel, &[add, access(READ, VA + PAGE, 0)]);
        }
        bench.run();
        bench.gpu.remove_peer(1).unwrap();
        assert_eq!(all.word(1, FREE) & 0xffff_ffff, 2, "{width} {seed}");
    }
}

/// A driver asks for a fault where somebody else may write.
#[test]
fn an_atomic_that_the_page_forbids_faults() {
    for has_atomics in [false, true] {
        let mut all = Machines::new(2, Order::Kind, &Personality::TURING, has_atomics);
        let to = all.peer(0, 1, FREE);
        all.map(0, VA, to, NO_ATOMICS);
        let bench = &mut all.benches[0];
        let fence = bench.launch(access(ADD, VA, 1));
        bench.run();
        assert_eq!((bench.outcome(fence), bench.gpu.stats().faults), (None, 1));
    }
}

/// Bytes of memory that GPU 1 has, once GPU 0 has written some of them and UVM has freed it.
fn freed(by: impl Fn(&mut Machines, u64), at: u64) -> u64 {
    let config = Config {
        poison: true,
        ..config(Order::Kind, &Personality::AMPERE)
    };
    let mut all = Machines::with(2, config, false);
    let ask = AllocRequest {
        count: 1,
        page_bytes: 2 << 20,
        contiguous: false,
        partial: false,
        pinned: false,
        begin: FREE,
        end: 8 << 20,
    };
    let mut page = [0];
    let owner = |all: &mut Machines, page: &mut [u64; 1], frees: bool| {
        let gpu = &mut all.benches[1].gpu;
        match frees {
            true => gpu.pma_free(page, 1, 2 << 20, false).unwrap(),
            false => drop(gpu.pma_alloc(&ask, false, page).unwrap()),
        }
    };
    owner(&mut all, &mut page, false);
    owner(&mut all, &mut page, true);
    owner(&mut all, &mut page, false);
    let before = all.benches[1].gpu.stats().poisoned_bytes;
    let m = all.benches[1].gpu.machine();
    assert_eq!(m.get(Loc::vidmem(page[0] + at)), POISON);
    let source = all.benches[0].gpu.machine();
    source.set(Loc::vidmem(FREE), 1);
    source.set(Loc::vidmem(FREE + 8), 1);
    by(&mut all, page[0] + at);
    assert_ne!(all.word(1, page[0] + at), POISON);
    owner(&mut all, &mut page, true);
    assert_eq!(all.word(1, page[0] + at), POISON);
    all.benches[1].gpu.stats().poisoned_bytes - before
}

#[test]
fn what_a_peer_wrote_is_poisoned_and_no_more() {
    let by_kernel = |all: &mut Machines, at| {
        let to = all.peer(0, 1, at / PAGE * PAGE);
        all.map(0, VA, to, 0);
        all.kernel(0, WRITE, VA + at % PAGE, 1);
    };
    let by_copy = |all: &mut Machines, at| {
        let mode = peer_mode(all.id(0, 1));
        all.benches[0].execute(&physical((FREE, LOCAL), (at, mode)));
    };
    for at in [0, GRANULE, 5 * GRANULE + 8, 32 * GRANULE - 8] {
        assert_eq!(freed(by_kernel, at), GRANULE, "{at:#x}");
        assert_eq!(freed(by_copy, at), GRANULE, "{at:#x}");
    }
    // On the border of two granules.
    let twice = |all: &mut Machines, at| {
        let mode = peer_mode(all.id(0, 1));
        let bytes = (4, 0x418, 16);
        let mut methods = physical((FREE, LOCAL), (at - 8, mode));
        let launch = methods.len() - 1;
        methods.insert(launch, bytes);
        all.benches[0].execute(&methods);
    };
    assert_eq!(freed(twice, GRANULE), 2 * GRANULE);
}

/// A peer's memory is beyond the GPU: what a copy wrote is there after a membar for the system, not after one for the GPU.
#[test]
fn late_stores_to_peers_want_a_membar_for_the_system() {
    let is_late = |seed, gpu_only: u32| {
        let order = Order::Adversarial { seed };
        let mut all = Machines::new(2, order, &Personality::AMPERE, false);
        let mode = peer_mode(all.id(0, 1));
        let m = all.benches[0].gpu.machine();
        m.set(Loc::vidmem(FREE + 8), 77);
        let wait = [(0, 0x78, 0)];
        let methods: Vec<Method> = physical((FREE + 8, LOCAL), (FREE, mode))
            .into_iter()
            .chain(wait)
            .chain(memory_operation([0, 0, gpu_only, 5 << 27]))
            .collect();
        all.benches[0].push(0, &methods);
        for _ in 0..10_000 {
            let got = all.benches[0].gpu.run();
            if all.benches[0].is_done(0) || !got.any {
                break;
            }
        }
        all.word(1, FREE) != 77
    };
    assert!((0..60).all(|seed| !is_late(seed, 0)));
    assert!((0..60).filter(|&seed| is_late(seed, 1)).count() > 7);
}

#[test]
fn what_is_late_arrives_before_a_peer_goes() {
    for seed in 0..20 {
        let order = Order::Adversarial { seed };
        let mut all = Machines::new(2, order, &Personality::AMPERE, false);
        let mode = peer_mode(all.id(0, 1));
        let m = all.benches[0].gpu.machine();
        m.set(Loc::vidmem(FREE + 8), 77);
        all.benches[0].push(0, &physical((FREE + 8, LOCAL), (FREE, mode)));
        while !all.benches[0].is_done(0) {
            all.benches[0].gpu.run();
        }
        all.benches[0].gpu.remove_peer(1).unwrap();
        assert_eq!(all.word(1, FREE), 77, "{seed}");
    }
}

#[test]
fn numbers_are_each_gpus_own() {
    let mut all = Machines::of(&Personality::TURING);
    for a in 0..GPUS {
        let ids = (0..GPUS).filter(|&b| a != b).map(|b| all.id(a, b).number());
        assert_eq!(ids.collect::<BTreeSet<_>>().len(), GPUS - 1);
    }
    assert_ne!(all.id(0, 1), all.id(1, 0));
    let gpu = &mut all.benches[2].gpu;
    assert_eq!(gpu.add_peer(2, false), Err(Error::Invalid));
    assert_eq!(gpu.add_peer(3, false), Err(Error::Busy));
    assert_eq!(gpu.peer_id(2), None);
    assert_eq!(gpu.leaks().3, GPUS - 1);
    let id = gpu.peer_id(3).unwrap();
    assert_eq!(gpu.remove_peer(3), Ok(id));
    assert_eq!(gpu.remove_peer(3), Err(Error::NotFound));
    assert_eq!((gpu.peer_id(3), gpu.leaks().3), (None, GPUS - 2));
    // There is nobody with these indices, but nothing more than eight numbers.
    assert!(gpu.add_peer(100, false).is_ok() && gpu.add_peer(101, false).is_ok());
    assert_eq!(gpu.add_peer(102, false), Err(Error::Full));
}
