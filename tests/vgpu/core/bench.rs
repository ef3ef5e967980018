// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A GPU with a driver and a user, for tests of what a driver must not forget.
//!
//! The driver has two channels, a buffer that both use, and page tables for its own address
//! space and the user's. Whatever it does to the GPU it pushes.

use std::vec;
use std::vec::Vec;

use crate::emu::reg;
use crate::emu::ChannelPlace;
use crate::emu::Config;
use crate::emu::Gpu;
use crate::emu::Launch;
use crate::emu::Loc;
use crate::emu::Machine;
use crate::emu::Op;
use crate::emu::Order;
use crate::emu::Outcome;
use crate::emu::Owner;
use crate::emu::Personality;
use crate::emu::Slot;
use crate::emu::SpaceId;
use crate::emu::State;
use crate::emu::UserChannel;
use crate::fake::Fake;
use crate::fake::Tables;
use crate::fake::SYSMEM;

pub(crate) const ENTRIES: u32 = 16;
const CLIENT: u32 = 7;
/// An address of the user's.
pub(crate) const VA: u64 = 0x7000_0000_0000;
/// Each channel's segments in the buffer, and after them the data.
const SEGMENT: u64 = 0x4000;
const DATA: u64 = 0x8000;
/// Where page tables are made, of the user's and the driver's space, and of a third kind.
const TABLES: [u64; 3] = [2 << 20, (2 << 20) + (1 << 18), (2 << 20) + (2 << 18)];
/// Vidmem from here on is nobody's yet.
pub(crate) const FREE: u64 = 4 << 20;

/// A method: subchannel, address and data.
pub(crate) type Method = (u32, u32, u32);

pub(crate) struct Bench {
    pub(crate) gpu: Gpu<Fake>,
    pub(crate) user: Tables,
    pub(crate) own: Tables,
    places: Vec<ChannelPlace>,
    puts: Vec<u32>,
    used: Vec<u64>,
    buffer: Slot,
    va: u64,
    pub(crate) h_channel: u32,
    h_vaspace: u32,
    space: SpaceId,
}

/// Whether a chip's page tables are of version 3: Hopper's, and later ones'.
pub(crate) fn has_version_3(chip: &Personality) -> bool {
    chip.va_bits() == 57
}

/// An address of the driver's that page tables map.
pub(crate) fn own_va(chip: &Personality) -> u64 {
    match has_version_3(chip) {
        true => 1 << 56,
        false => 0x8000_0000_0000,
    }
}

fn tables(chip: &Personality, i: usize) -> Tables {
    let tables = Tables::new(TABLES[i], SYSMEM + (1 << 19), false);
    match has_version_3(chip) {
        true => tables.version_3(),
        false => tables,
    }
}

/// Page tables that nobody has yet.
pub(crate) fn spare_tables(chip: &Personality) -> Tables {
    tables(chip, 2)
}

pub(crate) fn config(order: Order, chip: &'static Personality) -> Config {
    Config {
        index: 0,
        chip,
        vidmem_bytes: 8 << 20,
        fault_entries: 64,
        tlb: true,
        drop_invalidates: false,
        poison: false,
        zero: false,
        order,
    }
}

impl Bench {
    pub(crate) fn new(order: Order, chip: &'static Personality) -> Self {
        Self::beside(None, config(order, chip))
    }

    /// One with the system memory of another one's machine, if there is one.
    pub(crate) fn beside(other: Option<&Fake>, config: Config) -> Self {
        let (chip, bytes) = (config.chip, config.vidmem_bytes);
        let machine = other.map_or_else(|| Fake::new(bytes, 1 << 20), |o| o.beside(bytes));
        let mut gpu = Gpu::new(machine, config).unwrap();
        // Page tables want zeros, whatever else is there.
        let place = Loc::vidmem(TABLES[0]);
        let zeros = FREE - TABLES[0];
        gpu.machine().fill(place, zeros, &[0], 0).unwrap();
        let own_space = gpu.create_space().unwrap();
        let (va, buffer) = gpu.alloc_buffer(own_space, 0x10000, 0).unwrap();
        let places = (0..2)
            .map(|engine| gpu.create_channel(own_space, engine, ENTRIES).unwrap().1)
            .collect();
        let (user, own) = (tables(chip, 0), tables(chip, 1));
        gpu.set_pdb(own_space, own.root.at, true).unwrap();
        let h_vaspace = gpu.create_vaspace(CLIENT).unwrap();
        let channel = UserChannel::new().unwrap();
        let h_channel = gpu
            .add_user_channel(channel, CLIENT, h_vaspace, Owner::Admin)
            .unwrap();
        let space = gpu.dup_space(CLIENT, h_vaspace).unwrap();
        gpu.set_pdb(space, user.root.at, true).unwrap();
        gpu.retain_channel(space, CLIENT, h_channel).unwrap();
        Self {
            gpu,
            user,
            own,
            places,
            puts: vec![0; 2],
            used: vec![0; 2],
            buffer,
            va,
            h_channel,
            h_vaspace,
            space,
        }
        .with_segments()
    }

    /// Tells channels where segments are, if their entries cannot.
    fn with_segments(mut self) -> Self {
        let base = self.va >> 40;
        if base == 0 {
            return self;
        }
        let entry = 4 << 32 | base << 8;
        for channel in 0..2 {
            let place = self.places[channel];
            let m = self.gpu.machine();
            m.set(Loc::buffer(place.ring, 0), entry);
            m.submit(place, 1);
            self.puts[channel] = 1;
        }
        self.run();
        self
    }

    /// Where byte `offset` of the data is.
    pub(crate) fn at(&self, offset: u64) -> Loc {
        Loc::buffer(self.buffer, DATA + offset)
    }

    /// The address of byte `offset` of the data.
    pub(crate) fn data(&self, offset: u64) -> u64 {
        self.va + DATA + offset
    }

    /// Pushes methods to a channel, and does not run.
    pub(crate) fn push(&mut self, channel: usize, methods: &[Method]) {
        let bytes = 8 * methods.len() as u64;
        if self.used[channel] + bytes > SEGMENT {
            self.used[channel] = 0;
        }
        let offset = channel as u64 * SEGMENT + self.used[channel];
        self.used[channel] += bytes;
        let words = methods
            .iter()
            .flat_map(|&(s, a, v)| [1 << 29 | 1 << 16 | s << 13 | a >> 2, v]);
        let m = self.gpu.machine();
        for (i, w) in words.enumerate() {
            m.store32(Loc::buffer(self.buffer, offset + 4 * i as u64), w)
                .unwrap();
        }
        let (place, put) = (self.places[channel], &mut self.puts[channel]);
        let va = (self.va + offset) & ((1 << 40) - 1);
        let entry = va | (2 * methods.len() as u64) << 42;
        m.set(Loc::buffer(place.ring, u64::from(*put) * 8), entry);
        *put = (*put + 1) % ENTRIES;
        m.submit(place, *put);
    }

    pub(crate) fn is_done(&self, channel: usize) -> bool {
        let get = Loc::buffer(self.places[channel].control, reg::CHANNEL_GET);
        self.gpu.machine().load32(get) == Ok(self.puts[channel])
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

    /// Pushes methods, runs them to their end, and has no error.
    pub(crate) fn execute(&mut self, methods: &[Method]) {
        self.push(0, methods);
        self.run();
        let log = self.gpu.machine().log.borrow().clone();
        assert!(self.is_done(0) && log.is_empty(), "{log:?}");
    }

    pub(crate) fn launch_all(&mut self, ops: &[Op]) -> u64 {
        self.launch_on(self.h_channel, ops)
    }

    pub(crate) fn launch(&mut self, op: Op) -> u64 {
        self.launch_all(&[op])
    }

    /// One more channel of the user's, which can go on beside the first one.
    pub(crate) fn another_channel(&mut self) -> u32 {
        let channel = UserChannel::new().unwrap();
        let made = self
            .gpu
            .add_user_channel(channel, CLIENT, self.h_vaspace, Owner::Admin);
        let h_channel = made.unwrap();
        self.gpu
            .retain_channel(self.space, CLIENT, h_channel)
            .unwrap();
        h_channel
    }

    /// Launches a kernel on a channel of the user's.
    pub(crate) fn launch_on(&mut self, h_channel: u32, ops: &[Op]) -> u64 {
        let launch = Launch::new(ops, 0).unwrap();
        self.gpu.submit(CLIENT, h_channel, launch).unwrap()
    }

    pub(crate) fn stop_user(&mut self) {
        self.gpu.stop_channel(self.h_channel).unwrap();
    }

    pub(crate) fn destroy_user_space(&mut self) {
        self.gpu.destroy_space(self.space).unwrap();
    }

    pub(crate) fn outcome(&self, fence: u64) -> Option<Outcome> {
        self.gpu.result(CLIENT, self.h_channel, fence).unwrap()
    }

    /// What a kernel reads at `va`: the sum of one word; `None` if it waits for a replay.
    pub(crate) fn read(&mut self, va: u64) -> Option<u64> {
        let fence = self.launch(access(0, va, 0));
        self.run();
        let outcome = self.outcome(fence)?;
        assert_eq!(outcome.state, State::Done);
        Some(outcome.sum)
    }

    /// What a copy engine reads at `va` of the driver's own address space.
    pub(crate) fn copied(&mut self, va: u64) -> u64 {
        let methods = copy(va, self.data(0), 8, 1);
        self.execute(&methods);
        self.gpu.machine().get(self.at(0))
    }
}

/// One access of 8 bytes.
pub(crate) fn access(kind: u32, va: u64, value: u64) -> Op {
    Op {
        kind,
        va,
        count: 1,
        width: 8,
        value,
        ..Op::default()
    }
}

/// A copy between addresses of the driver's; `launch` is what it has beside pitch layouts.
pub(crate) fn copy(from: u64, to: u64, bytes: u32, launch: u32) -> Vec<Method> {
    vec![
        (4, 0x400, (from >> 32) as u32),
        (4, 0x404, from as u32),
        (4, 0x408, (to >> 32) as u32),
        (4, 0x40c, to as u32),
        (4, 0x418, bytes),
        (4, 0x300, launch | 3 << 7),
    ]
}

/// A memory operation of the host: words A to D.
pub(crate) fn memory_operation(words: [u32; 4]) -> Vec<Method> {
    (0..4)
        .map(|i| (0, 0x28 + 4 * i, words[i as usize]))
        .collect()
}

/// An invalidate: what it is for, as in the methods' fields.
#[derive(Clone, Copy)]
pub(crate) struct Tlbi {
    /// The page directory, in vidmem; all without.
    pub(crate) root: Option<Loc>,
    /// Address and binary logarithm of 4 KiB pages; all without.
    pub(crate) range: Option<(u64, u32)>,
    pub(crate) level: u32,
    pub(crate) gpcs: bool,
    pub(crate) ack: u32,
    pub(crate) sysmembar: bool,
}

impl Tlbi {
    /// Of all there is.
    pub(crate) const ALL: Self = Self {
        root: None,
        range: None,
        level: 0,
        gpcs: true,
        ack: 1,
        sysmembar: false,
    };

    pub(crate) fn methods(&self) -> Vec<Method> {
        let (va, size) = self.range.unwrap_or((0, 0));
        let root = self.root.map_or(0, |l| l.at);
        let operation = if self.range.is_some() { 0xa } else { 9 };
        let all = u32::from(self.root.is_none());
        memory_operation([
            va as u32 | size | u32::from(self.sysmembar) << 11,
            (va >> 32) as u32,
            root as u32 | all | u32::from(!self.gpcs) << 1 | self.ack << 5 | self.level << 7,
            operation << 27 | (root >> 32) as u32,
        ])
    }
}

/// A replay, which invalidates nothing that anybody has.
pub(crate) fn replay() -> Vec<Method> {
    memory_operation([0, 0, 1 << 2 | 1 << 7, 0xa << 27])
}
