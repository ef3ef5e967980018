// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the adversarial order finds, that it is the seed's alone, and that nobody starves.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::emu::gpu::tests::config;
use crate::emu::reg;
use crate::emu::ChannelPlace;
use crate::emu::Config;
use crate::emu::Gpu;
use crate::emu::Injection;
use crate::emu::Launch;
use crate::emu::Loc;
use crate::emu::Machine;
use crate::emu::Op;
use crate::emu::Owner;
use crate::emu::Slot;
use crate::emu::State;
use crate::emu::UserChannel;
use crate::fake::Fake;
use crate::fake::Size;
use crate::fake::Tables;
use crate::fake::SYSMEM;

const ENTRIES: u32 = 4;
const CLIENT: u32 = 7;
const VA: u64 = 0x7000_0000_0000;
/// Each channel's segments in the buffer, and after them the data.
const SEGMENT: u64 = 0x1000;
const DATA: u64 = 0x8000;
/// Words of the data: a semaphore, what one channel makes, and what another one takes.
const DONE: u64 = 0;
const MADE: u64 = 0x100;
const TAKEN: u64 = 0x200;
/// What the first channel writes for the second one to copy.
const VALUE: u32 = 42;

/// A GPU with two channels of UVM's, a buffer that both use, and a user's channel.
struct Bench {
    gpu: Gpu<Fake>,
    places: Vec<ChannelPlace>,
    puts: Vec<u32>,
    buffer: Slot,
    va: u64,
    h_channel: u32,
}

impl Bench {
    fn new(order: Order) -> Self {
        let config = Config {
            order,
            poison: false,
            ..config()
        };
        let mut gpu = Gpu::new(Fake::new(config.vidmem_bytes, 4 << 20), config).unwrap();
        let own = gpu.create_space().unwrap();
        let (va, buffer) = gpu.alloc_buffer(own, 0x10000, 0).unwrap();
        let places = vec![
            gpu.create_channel(own, 0, ENTRIES).unwrap().1,
            gpu.create_channel(own, 1, ENTRIES).unwrap().1,
        ];
        let mut tables = Tables::new(4 << 20, SYSMEM + (1 << 20), false);
        let page = Loc::vidmem(8 << 20);
        tables.map(gpu.machine(), VA, Size::Small, page, 0);
        let h_vaspace = gpu.create_vaspace(CLIENT).unwrap();
        let user = UserChannel::new().unwrap();
        let h_channel = gpu
            .add_user_channel(user, CLIENT, h_vaspace, Owner::Admin)
            .unwrap();
        let space = gpu.dup_space(CLIENT, h_vaspace).unwrap();
        gpu.set_pdb(space, tables.root.at, true).unwrap();
        gpu.retain_channel(space, CLIENT, h_channel).unwrap();
        Self {
            gpu,
            puts: vec![0; places.len()],
            places,
            buffer,
            va,
            h_channel,
        }
    }

    fn adversarial(seed: u64) -> Self {
        Self::new(Order::Adversarial { seed })
    }

    fn at(&self, word: u64) -> Loc {
        Loc::buffer(self.buffer, DATA + word)
    }

    fn word(&self, word: u64) -> u32 {
        self.gpu.machine().load32(self.at(word)).unwrap()
    }

    fn set(&self, word: u64, value: u32) {
        self.gpu.machine().store32(self.at(word), value).unwrap();
    }

    /// A host semaphore operation on a word of the data.
    fn semaphore(&self, word: u64, value: u32, operation: u32) -> Vec<(u32, u32, u32)> {
        let va = self.va + DATA + word;
        vec![
            (0, 0x5c, va as u32),
            (0, 0x60, (va >> 32) as u32),
            (0, 0x64, value),
            (0, 0x68, 0),
            (0, 0x6c, operation),
        ]
    }

    fn release(&self, word: u64, value: u32) -> Vec<(u32, u32, u32)> {
        self.semaphore(word, value, 1)
    }

    fn acquire(&self, word: u64, value: u32) -> Vec<(u32, u32, u32)> {
        self.semaphore(word, value, 3)
    }

    /// A copy of one word of the data to another one.
    fn copy(&self, from: u64, to: u64) -> Vec<(u32, u32, u32)> {
        let (from, to) = (self.va + DATA + from, self.va + DATA + to);
        vec![
            (4, 0x400, (from >> 32) as u32),
            (4, 0x404, from as u32),
            (4, 0x408, (to >> 32) as u32),
            (4, 0x40c, to as u32),
            (4, 0x418, 4),
            // Flushed: this is not about what is late.
            (4, 0x300, 1 | 1 << 2 | 3 << 7),
        ]
    }

    /// Pushes methods (subchannel, address, data) to a channel.
    fn push(&mut self, channel: usize, methods: &[(u32, u32, u32)]) {
        let offset = channel as u64 * SEGMENT;
        let words = methods
            .iter()
            .flat_map(|&(s, a, v)| [1 << 29 | 1 << 16 | s << 13 | a >> 2, v]);
        let m = self.gpu.machine();
        for (i, w) in words.enumerate() {
            let at = Loc::buffer(self.buffer, offset + 4 * i as u64);
            m.store32(at, w).unwrap();
        }
        let (place, put) = (self.places[channel], &mut self.puts[channel]);
        let entry = (self.va + offset) | (2 * methods.len() as u64) << 42;
        m.set(Loc::buffer(place.ring, u64::from(*put) * 8), entry);
        *put = (*put + 1) % ENTRIES;
        m.submit(place, *put);
    }

    fn is_done(&self, channel: usize) -> bool {
        let get = Loc::buffer(self.places[channel].control, reg::CHANNEL_GET);
        self.gpu.machine().load32(get) == Ok(self.puts[channel])
    }

    /// A kernel of so many instructions on the page that is mapped.
    fn kernel(&mut self, instructions: u64) -> u64 {
        let op = Op {
            va: VA,
            stride: 8,
            count: 32,
            rows: instructions,
            width: 8,
            ..Op::default()
        };
        let launch = Launch::new(&[op], 0).unwrap();
        self.gpu.submit(CLIENT, self.h_channel, launch).unwrap()
    }

    fn is_kernel_done(&self, fence: u64) -> bool {
        let outcome = self.gpu.result(CLIENT, self.h_channel, fence).unwrap();
        outcome.is_some_and(|o| o.state == State::Done)
    }

    fn run(&mut self) {
        for _ in 0..10_000 {
            if !self.gpu.run().any {
                return;
            }
        }
        panic!("goes on for ever");
    }
}

/// One channel makes something, another one takes it; a driver's tracker has it wait, or
/// forgets to. True if what was made was taken.
fn makes_and_takes(order: Order, waits: bool) -> bool {
    let mut b = Bench::new(order);
    let made = [b.release(MADE, VALUE), b.release(DONE, 1)].concat();
    let acquire = if waits { b.acquire(DONE, 1) } else { vec![] };
    let taken = [acquire, b.copy(MADE, TAKEN)].concat();
    b.push(0, &made);
    b.push(1, &taken);
    b.run();
    assert!(b.is_done(0) && b.is_done(1), "{order:?}");
    assert_eq!(b.gpu.stats().channel_errors, 0, "{order:?}");
    b.word(TAKEN) == VALUE
}

#[test]
fn a_dependency_that_was_forgotten_shows_in_some_seed() {
    assert!(makes_and_takes(Order::Kind, true));
    assert!(makes_and_takes(Order::Kind, false), "by luck");
    let seeds = 0..200;
    let count = |waits| {
        let lost = |&seed: &u64| !makes_and_takes(Order::Adversarial { seed }, waits);
        seeds.clone().filter(lost).count()
    };
    assert_eq!(count(true), 0);
    let shown = count(false);
    assert!((50..=150).contains(&shown), "{shown} of 200");
}

/// The same between a kernel and a channel, of which neither waits for the other: all orders
/// come, also those where one is in the middle of the other.
#[test]
fn kernels_and_channels_interleave() {
    let (mut first, mut last, mut between) = (0, 0, 0);
    for seed in 0..100 {
        let mut b = Bench::adversarial(seed);
        let fence = b.kernel(40);
        let made = b.release(MADE, VALUE).repeat(8);
        b.push(0, &made);
        b.run();
        assert!(b.is_done(0) && b.is_kernel_done(fence), "seed {seed}");
        let of = |party: &Party| matches!(party, Party::User(_));
        let start = b.gpu.trace.iter().position(of).unwrap();
        let end = b.gpu.trace.iter().rposition(of).unwrap();
        first += u32::from(start == 0);
        last += u32::from(end == b.gpu.trace.len() - 1);
        between += u32::from(b.gpu.trace[start..end].iter().any(|p| !of(p)));
    }
    for (which, n) in [("first", first), ("last", last), ("between", between)] {
        assert!((10..=90).contains(&n), "{which}: {n} of 100");
    }
}

/// A program of three parties, one of which waits for the CPU. Between what the CPU does the
/// emulator looks `looks` times more than it must.
fn trace(seed: u64, looks: u32) -> Vec<Party> {
    let mut b = Bench::adversarial(seed);
    let look = |b: &mut Bench| {
        for _ in 0..looks {
            assert!(!b.gpu.run().any, "seed {seed}");
        }
    };
    look(&mut b);
    let waits = [b.acquire(DONE, 7), b.copy(MADE, TAKEN)].concat();
    b.push(1, &waits);
    let made = [b.release(MADE, 1), b.release(MADE, VALUE)].concat();
    b.push(0, &made);
    b.kernel(5);
    b.run();
    look(&mut b);
    assert_eq!((b.word(MADE), b.word(TAKEN)), (VALUE, 0), "seed {seed}");
    b.set(DONE, 7);
    b.push(0, &made);
    b.kernel(40);
    b.run();
    look(&mut b);
    assert!(b.is_done(0) && b.is_done(1), "seed {seed}");
    b.gpu.trace
}

#[test]
fn a_seed_is_the_whole_order() {
    let mut all = Vec::new();
    for seed in 0..50 {
        let once = trace(seed, 0);
        assert_eq!(once, trace(seed, 0), "seed {seed}");
        assert_eq!(once, trace(seed, 37), "seed {seed}: an idle look decides");
        all.push(once);
    }
    all.sort_by_key(|t| std::format!("{t:?}"));
    all.dedup();
    assert!(all.len() > 40, "{} orders of 50 seeds", all.len());
}

#[test]
fn two_gpus_do_not_go_in_step() {
    let order = Order::Adversarial { seed: 1 };
    let ranks = |index| {
        let s = Schedule::new(order, index).unwrap();
        [0, 1, 2].map(|i| s.rank(Party::User(i), 0, 3))
    };
    assert_ne!(ranks(0), ranks(1));
    assert!(Schedule::new(Order::Kind, 0).is_none());
}

#[test]
fn in_each_eight_epochs_all_are_first_once() {
    for seed in 0..50 {
        for parties in 1..=9 {
            let mut s = Schedule::new(Order::Adversarial { seed }, 0).unwrap();
            let mut firsts = vec![0; parties];
            for _ in 0..FAIR {
                loop {
                    if s.is_fair() {
                        let rank = |&i: &usize| s.rank(Party::User(i as u32), i, parties);
                        firsts[(0..parties).max_by_key(rank).unwrap()] += 1;
                    }
                    if s.stepped(parties) {
                        break;
                    }
                }
            }
            assert_eq!(firsts, vec![1; parties], "seed {seed}");
        }
    }
}

/// A channel that never runs out of work does not keep the others from theirs.
#[test]
fn nobody_starves() {
    // Each of the steps that a push and a kernel take, of one method each, may have to wait
    // for a fair epoch.
    let bound = 64 * FAIR as usize;
    for seed in 0..100 {
        let mut b = Bench::adversarial(seed);
        let busy = b.release(MADE, 1).repeat(40);
        let once = [b.release(TAKEN, VALUE), b.release(DONE, 1)].concat();
        b.push(1, &once);
        let fence = b.kernel(16);
        let mut turns = 0;
        while !b.is_done(1) || !b.is_kernel_done(fence) {
            // Two entries are ahead whenever a turn begins.
            while b.is_done(0) {
                b.push(0, &busy);
                b.push(0, &busy);
            }
            assert!(b.gpu.run().any, "seed {seed}");
            turns += 1;
            assert!(turns < bound, "seed {seed}");
        }
    }
}

#[test]
fn a_preempted_user_and_a_stopped_channel_take_no_steps() {
    for seed in 0..20 {
        let mut b = Bench::adversarial(seed);
        b.gpu.inject(Injection::Preempt(true)).unwrap();
        let fence = b.kernel(1);
        b.push(0, &[(4, 0x7fc, 0)]);
        let made = b.release(MADE, VALUE);
        b.push(1, &made);
        b.run();
        assert_eq!(b.gpu.stats().unknown_methods, 1, "seed {seed}");
        assert_eq!(b.word(MADE), VALUE, "seed {seed}: the other one goes on");
        assert!(!b.is_kernel_done(fence), "seed {seed}");
        b.gpu.inject(Injection::Preempt(false)).unwrap();
        b.run();
        assert!(b.is_kernel_done(fence), "seed {seed}");
    }
}
