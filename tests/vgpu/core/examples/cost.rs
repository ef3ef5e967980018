// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the emulator does some number of times, for `scripts/vgpu-cost.sh` to count.
//!
//! Each row is a function of the module [`rows`], which does one thing so many times with a
//! GPU over arrays. The script has callgrind count what is executed within each of them.

use std::fmt::Display;
use std::fmt::Formatter;
use std::process::ExitCode;

use vgpu_core::emu;
use vgpu_core::mem;

// The tests' machine, which names the emulator as a part of its own crate. It has more than is
// needed here, and ends a program that asks for what is not there, as a test may.
#[allow(dead_code, clippy::unwrap_used)]
#[path = "../fake.rs"]
mod fake;

use emu::reg;
use emu::ChannelPlace;
use emu::Config;
use emu::Gpu;
use emu::Launch;
use emu::Loc;
use emu::Machine;
use emu::Op;
use emu::Order;
use emu::Owner;
use emu::Personality;
use emu::Slot;
use emu::UserChannel;
use fake::Fake;
use fake::Size;
use fake::Tables;
use fake::SYSMEM;

const CLIENT: u32 = 7;
const VA: u64 = 0x7000_0000_0000;
/// What kernels access, and copies take from: eight pages of vidmem from here on.
const DATA: u64 = 8 << 20;
const TABLES: u64 = 4 << 20;
/// Entries of the channel's ring; one of them is always free.
const ENTRIES: u32 = 64;

/// Why there is nothing to count.
#[derive(Debug)]
enum Failure {
    /// The emulator refuses a call.
    Emulator(emu::Error),
    /// What was submitted did not end, or not well.
    Unfinished(&'static str),
}

impl From<emu::Error> for Failure {
    fn from(e: emu::Error) -> Self {
        Self::Emulator(e)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Emulator(e) => write!(f, "the emulator says {e:?}"),
            Self::Unfinished(what) => write!(f, "{what} did not end as it should"),
        }
    }
}

/// A GPU with a user's channel, and one of UVM's.
struct Bench {
    gpu: Gpu<Fake>,
    tables: Tables,
    h_channel: u32,
    place: ChannelPlace,
    words: Slot,
    va: u64,
    put: u32,
}

impl Bench {
    fn new(tlb: bool, order: Order) -> Result<Self, Failure> {
        let config = Config {
            index: 0,
            chip: &Personality::TURING,
            vidmem_bytes: 16 << 20,
            fault_entries: 64,
            tlb,
            drop_invalidates: false,
            // Memory that nobody has written is zero, which page tables need.
            poison: false,
            zero: false,
            order,
        };
        let mut gpu = Gpu::new(Fake::new(config.vidmem_bytes, 4 << 20), config)?;
        let mut tables = Tables::new(TABLES, SYSMEM + (1 << 20), false);
        for page in 0..8 {
            let (va, at) = (VA + page * 4096, DATA + page * 4096);
            tables.map(gpu.machine(), va, Size::Small, Loc::vidmem(at), 0);
        }
        let h_vaspace = gpu.create_vaspace(CLIENT)?;
        let user = UserChannel::new().map_err(emu::Error::from)?;
        let h_channel = gpu.add_user_channel(user, CLIENT, h_vaspace, Owner::Admin)?;
        let space = gpu.dup_space(CLIENT, h_vaspace)?;
        gpu.set_pdb(space, tables.root.at, true)?;
        gpu.retain_channel(space, CLIENT, h_channel)?;
        let own = gpu.create_space()?;
        let (va, words) = gpu.alloc_buffer(own, 0x10000, 0)?;
        let (_, place) = gpu.create_channel(own, 0, ENTRIES)?;
        Ok(Self {
            gpu,
            tables,
            h_channel,
            place,
            words,
            va,
            put: 0,
        })
    }

    /// Gives the emulator its turns until nothing goes on.
    fn run(&mut self) {
        while self.gpu.run().any {}
    }

    /// A kernel of so many instructions of 32 lanes, each with its access to one page.
    fn kernel(&mut self, instructions: u64, va: u64) -> Result<u64, Failure> {
        let op = Op {
            va,
            stride: 8,
            count: 32,
            rows: instructions,
            width: 8,
            ..Op::default()
        };
        let launch = Launch::new(&[op], 0)?;
        Ok(self.gpu.submit(CLIENT, self.h_channel, launch)?)
    }

    /// The kernel has ended, and all its accesses were made.
    fn expect_done(&self, fence: u64) -> Result<(), Failure> {
        match self.gpu.result(CLIENT, self.h_channel, fence)? {
            Some(o) if o.state == emu::State::Done => Ok(()),
            _ => Err(Failure::Unfinished("a kernel")),
        }
    }

    /// Pushes `segment` that many times, and runs it.
    fn push(&mut self, segment: &[u32], times: u64) -> Result<(), Failure> {
        let full = |_| Failure::Unfinished("a push");
        for (i, w) in segment.iter().enumerate() {
            let at = Loc::buffer(self.words, 4 * i as u64);
            self.gpu.machine().store32(at, *w).map_err(full)?;
        }
        let entry = self.va | (segment.len() as u64) << 42;
        let control = self.place.control;
        for _ in 0..times {
            let slot = Loc::buffer(self.place.ring, u64::from(self.put) * 8);
            self.gpu.machine().set(slot, entry);
            self.put = (self.put + 1) % ENTRIES;
            self.gpu.machine().submit(self.place, self.put);
            self.run();
        }
        let get = Loc::buffer(control, reg::CHANNEL_GET);
        match self.gpu.machine().load32(get) {
            Ok(get) if get == self.put => Ok(()),
            _ => Err(Failure::Unfinished("a push")),
        }
    }
}

/// A segment of methods, each its subchannel, address and data.
fn methods(all: &[(u32, u32, u32)]) -> Vec<u32> {
    let one = |&(subchannel, address, value): &(u32, u32, u32)| {
        let header = (1 << 29) | (1 << 16) | (subchannel << 13) | (address >> 2);
        [header, value]
    };
    all.iter().flat_map(one).collect()
}

/// A copy or fill of `bytes` from [`DATA`] on, with physical addresses.
fn launch(bytes: u32, target_mode: u32, target: u64, flags: u32) -> Vec<u32> {
    // Pipelined, both sides pitch and physical.
    let launch = 1 | (3 << 7) | (3 << 12) | flags;
    let fill = flags & FILL != 0;
    methods(&[
        (4, 0x260, 0),
        (4, 0x264, target_mode),
        (4, 0x400, 0),
        (4, 0x404, DATA as u32),
        (4, 0x408, (target >> 32) as u32),
        (4, 0x40c, target as u32),
        (4, 0x418, if fill { bytes / 8 } else { bytes }),
        // Two components of 4 bytes, from the two constants.
        (4, 0x708, 4 | (5 << 4) | (3 << 16) | (1 << 24)),
        (4, 0x300, launch),
    ])
}

const FILL: u32 = 1 << 10;
/// Methods of each segment of the row `method`.
const METHODS: usize = 256;

/// The rows: each does what it is named for `count` times.
mod rows {
    use super::*;

    /// Accesses of 8 bytes, of 32 lanes to one page at a time.
    fn accesses(b: &mut Bench, count: u64) -> Result<(), Failure> {
        let fence = b.kernel(count / 32, VA)?;
        b.run();
        b.expect_done(fence)
    }

    #[inline(never)]
    pub(super) fn access_hit(b: &mut Bench, count: u64) -> Result<(), Failure> {
        accesses(b, count)?;
        // A page is walked to once.
        match b.gpu.stats().tlb_hits {
            n if n + 8 >= count => Ok(()),
            _ => Err(Failure::Unfinished("hitting the TLB")),
        }
    }

    #[inline(never)]
    pub(super) fn access_walk(b: &mut Bench, count: u64) -> Result<(), Failure> {
        accesses(b, count)?;
        match b.gpu.stats().walks {
            n if n == count => Ok(()),
            _ => Err(Failure::Unfinished("walking")),
        }
    }

    /// Kernels that fault on a page that nobody had, which is mapped and replayed.
    #[inline(never)]
    pub(super) fn fault(b: &mut Bench, count: u64) -> Result<(), Failure> {
        let put = Loc::buffer(b.gpu.registers(), reg::FAULT_PUT);
        let get = Loc::buffer(b.gpu.registers(), reg::FAULT_GET);
        // MEM_OP A to D: an invalidate of all that starts a replay.
        let replay = methods(&[
            (0, 0x28, 0),
            (0, 0x2c, 0),
            (0, 0x30, (1 << 2) | 1),
            (0, 0x34, 9 << 27),
        ]);
        for page in 0..count {
            let missing = VA + (64 << 10) + page * 4096;
            let fence = b.kernel(1, missing)?;
            b.run();
            let seen = b.gpu.machine().load32(put);
            let taken = seen.and_then(|put| b.gpu.machine().store32(get, put));
            taken.map_err(|_| Failure::Unfinished("a fault"))?;
            let page = Loc::vidmem(DATA);
            b.tables.map(b.gpu.machine(), missing, Size::Small, page, 0);
            b.push(&replay, 1)?;
            b.expect_done(fence)?;
        }
        match b.gpu.stats().faults {
            n if n == count => Ok(()),
            _ => Err(Failure::Unfinished("a fault")),
        }
    }

    #[inline(never)]
    pub(super) fn push(b: &mut Bench, count: u64) -> Result<(), Failure> {
        let va = b.va + 0x8000;
        let segment = methods(&[
            (0, 0x5c, va as u32),
            (0, 0x60, (va >> 32) as u32),
            (0, 0x64, 1),
            (0, 0x68, 0),
            (0, 0x6c, 1),
        ]);
        b.push(&segment, count)
    }

    #[inline(never)]
    pub(super) fn method(b: &mut Bench, count: u64) -> Result<(), Failure> {
        let segment = methods(&[(4, 0x418, 1); METHODS]);
        b.push(&segment, count / METHODS as u64)
    }

    #[inline(never)]
    pub(super) fn copy_4k(b: &mut Bench, count: u64) -> Result<(), Failure> {
        b.push(&launch(4 << 10, 1, SYSMEM, 0), count)
    }

    #[inline(never)]
    pub(super) fn copy_64k(b: &mut Bench, count: u64) -> Result<(), Failure> {
        b.push(&launch(64 << 10, 0, DATA + (1 << 20), 0), count)
    }

    #[inline(never)]
    pub(super) fn fill_64k(b: &mut Bench, count: u64) -> Result<(), Failure> {
        b.push(&launch(64 << 10, 0, DATA, FILL), count)
    }

    #[inline(never)]
    pub(super) fn idle(b: &mut Bench, count: u64) -> Result<(), Failure> {
        (0..count).for_each(|_| b.run());
        Ok(())
    }
}

/// A row: its function's name, the function, how often it is done, and what one of it is.
type Row = (
    &'static str,
    fn(&mut Bench, u64) -> Result<(), Failure>,
    u64,
    &'static str,
);

#[rustfmt::skip]
const ROWS: [Row; 9] = [
    ("access_hit", rows::access_hit, 4096, "an access of 8 bytes that the TLB translates"),
    ("access_walk", rows::access_walk, 4096, "the same, without a TLB: the page tables are walked"),
    ("fault", rows::fault, 64, "a kernel whose one instruction faults, the replay, and its end"),
    ("push", rows::push, 256, "a push of four methods and a semaphore's release"),
    ("method", rows::method, 4096, "a method that sets a register"),
    ("copy_4k", rows::copy_4k, 64, "a copy of 4 KiB from vidmem to system memory"),
    ("copy_64k", rows::copy_64k, 8, "a copy of 64 KiB from vidmem to vidmem"),
    ("fill_64k", rows::fill_64k, 8, "a fill of 64 KiB of vidmem"),
    ("idle", rows::idle, 256, "a turn without anything to do"),
];

/// The order that the command line asks for, the kind one without a seed.
fn order() -> Option<Order> {
    match std::env::args().nth(1) {
        None => Some(Order::Kind),
        Some(seed) => seed.parse().ok().map(|seed| Order::Adversarial { seed }),
    }
}

fn main() -> ExitCode {
    let Some(order) = order() else {
        eprintln!("cost: use cost [SEED]");
        return ExitCode::FAILURE;
    };
    for (name, row, count, what) in ROWS {
        let done = Bench::new(name != "access_walk", order).and_then(|mut b| row(&mut b, count));
        if let Err(e) = done {
            eprintln!("cost: {name}: {e}");
            return ExitCode::FAILURE;
        }
        println!("{name}\t{count}\t{what}");
    }
    ExitCode::SUCCESS
}
