// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Methods, through a channel: what is pushed must have its effect, and nothing
//! unknown may pass.

use std::vec;
use std::vec::Vec;

use crate::emu::gpu::tests::config;
use crate::emu::reg;
use crate::emu::ChannelId;
use crate::emu::ChannelPlace;
use crate::emu::Gpu;
use crate::emu::Loc;
use crate::emu::Machine;
use crate::emu::Personality;
use crate::emu::Slot;
use crate::emu::SpaceId;
use crate::fake::Fake;
use crate::fake::SYSMEM;

const ENTRIES: u32 = 4;
const CE: u32 = 4;
/// Launch: pipelined transfer, pitch layouts on both sides.
const COPY: u32 = 1 | 1 << 7 | 1 << 8;
const FROM_PHYSICAL: u32 = 1 << 12;
const TO_PHYSICAL: u32 = 1 << 13;
const REMAP: u32 = 1 << 10;

mod fields;
mod hopper;

/// A GPU with one channel and a buffer of 64 KiB, half of it the pushbuffer.
struct Bench {
    gpu: Gpu<Fake>,
    space: SpaceId,
    channel: ChannelId,
    place: ChannelPlace,
    buffer: Slot,
    va: u64,
    put: u32,
}

/// Where data is in the buffer.
const DATA: u64 = 0x8000;

fn increasing(subchannel: u32, method: u32, data: &[u32]) -> Vec<u32> {
    let header = 1 << 29 | (data.len() as u32) << 16 | subchannel << 13 | method >> 2;
    [&[header], data].concat()
}

impl Bench {
    fn new(chip: &'static Personality) -> Self {
        let mut c = config();
        c.chip = chip;
        let mut gpu = Gpu::new(Fake::new(c.vidmem_bytes, 1 << 20), c).unwrap();
        let space = gpu.create_space().unwrap();
        let (va, buffer) = gpu.alloc_buffer(space, 0x10000, 0).unwrap();
        let (channel, place) = gpu.create_channel(space, 0, ENTRIES).unwrap();
        let mut bench = Self {
            gpu,
            space,
            channel,
            place,
            buffer,
            va,
            put: 0,
        };
        // What an entry cannot say of its segment's address.
        if let base @ 1.. = va >> 40 {
            bench.entry(4 << 32 | base << 8);
        }
        bench
    }

    fn data(&self) -> u64 {
        self.va + DATA
    }

    fn at(&self, offset: u64) -> Loc {
        Loc::buffer(self.buffer, DATA + offset)
    }

    fn word(&self, offset: u64) -> u32 {
        self.gpu.machine().load32(self.at(offset)).unwrap()
    }

    /// Pushes words without running.
    fn push(&mut self, words: &[u32]) {
        let m = self.gpu.machine();
        for (i, w) in words.iter().enumerate() {
            m.store32(Loc::buffer(self.buffer, 4 * i as u64), *w)
                .unwrap();
        }
        let va = self.va & ((1 << 40) - 1);
        let entry = va | (words.len() as u64) << 42;
        m.set(Loc::buffer(self.place.ring, u64::from(self.put) * 8), entry);
        self.put = (self.put + 1) % ENTRIES;
        m.submit(self.place, self.put);
    }

    fn run(&mut self, words: &[u32]) {
        self.push(words);
        self.gpu.run();
    }

    /// What the error notifier says, and the log's last line.
    fn error(&self) -> (u32, std::string::String) {
        let m = self.gpu.machine();
        let notifier = Loc::buffer(self.place.control, reg::CHANNEL_NOTIFIER + 12);
        (
            m.load32(notifier).unwrap() >> 16,
            m.log.borrow().last().cloned().unwrap_or_default(),
        )
    }

    fn expect_done(&self) {
        assert_eq!(self.error(), (0, "".into()));
        let get = Loc::buffer(self.place.control, reg::CHANNEL_GET);
        assert_eq!(self.gpu.machine().load32(get), Ok(self.put));
    }

    fn ce(&mut self, methods: &[(u32, u32)]) {
        let words: Vec<u32> = methods
            .iter()
            .flat_map(|&(m, v)| increasing(CE, m, &[v]))
            .collect();
        self.run(&words);
    }
}

fn bench() -> Bench {
    Bench::new(&Personality::TURING)
}

fn high(va: u64) -> u32 {
    (va >> 32) as u32
}

#[test]
fn set_object_knows_its_classes() {
    let mut b = bench();
    b.run(&[increasing(0, 0, &[0xc5b5]), increasing(5, 0, &[0xc076])].concat());
    b.expect_done();
    b.run(&increasing(0, 0, &[0xc6b5]));
    assert_eq!(b.error().0, 0xffff);
}

#[test]
fn all_header_kinds() {
    let mut b = bench();
    let va = b.data();
    let not_increasing = 3 << 29 | 2 << 16 | 0x64 >> 2;
    let increasing_once = 5 << 29 | 3 << 16 | 0x5c >> 2;
    let immediate = 4 << 29 | 1 << 16 | 0x6c >> 2;
    b.run(
        &[
            // Address low, then high twice: the method stays after the first.
            &[increasing_once, va as u32, 99, high(va)][..],
            &[not_increasing, 98, 42],
            &[immediate],
        ]
        .concat(),
    );
    b.expect_done();
    assert_eq!(b.word(0), 42);
    b.run(&[2 << 29 | 1 << 16, 0]);
    assert!(b.error().1.contains("no method header"), "{:?}", b.error());
}

#[test]
fn semaphores_release_with_time() {
    let mut b = bench();
    let va = b.data() + 16;
    let address = [va as u32, high(va), 7, 0];
    b.run(&increasing(
        0,
        0x5c,
        &[&address[..], &[1 | 1 << 20]].concat(),
    ));
    assert_eq!([b.word(16), b.word(24)], [7, 0]);
    b.run(&increasing(
        0,
        0x5c,
        &[&address[..], &[1 | 1 << 25]].concat(),
    ));
    b.expect_done();
    assert_eq!([b.word(16), b.word(20)], [7, 0]);
    let time = b.word(24);
    assert!(time > 0);
    let shown = b
        .gpu
        .machine()
        .load32(Loc::buffer(b.gpu.registers(), reg::TIME_LOW));
    assert!(shown.unwrap() >= time);
}

#[test]
fn acquires_wait_modulo_2_to_the_32() {
    let mut b = bench();
    let va = b.data();
    let set = |b: &Bench, v: u32| b.gpu.machine().store32(b.at(0), v).unwrap();
    set(&b, 0xffff_fff0);
    let acquire = [va as u32, high(va), 5, 0, 3];
    let release = [(va + 64) as u32, high(va), 1, 0, 1];
    b.push(&[increasing(0, 0x5c, &acquire), increasing(0, 0x5c, &release)].concat());
    for _ in 0..3 {
        b.gpu.run();
    }
    assert_eq!(b.word(64), 0);
    assert_eq!(b.gpu.stats().semaphore_blocks, 1);
    set(&b, 4);
    b.gpu.run();
    assert_eq!(b.word(64), 0);
    set(&b, 6);
    b.gpu.run();
    assert_eq!(b.word(64), 1);
    b.expect_done();
}

#[test]
fn old_semaphores_on_volta_only() {
    let words = |va: u64| increasing(0, 0x10, &[high(va), va as u32, 9, 2 | 1 << 24]);
    let mut volta = Bench::new(&Personality::VOLTA);
    let va = volta.data();
    volta.run(&words(va));
    volta.expect_done();
    assert_eq!(volta.word(0), 9);
    let mut turing = bench();
    turing.run(&words(turing.data()));
    assert_eq!(turing.gpu.stats().unknown_methods, 1);
}

#[test]
fn memory_operations_are_counted() {
    let mut b = bench();
    let op = |c: u32, d: u32| increasing(0, 0x28, &[0, 0, c, d << 27]);
    b.run(
        &[
            op(0, 5),
            op(1, 9),
            op(0, 0xa),
            op(1 << 2, 0xa),
            op(2 << 2, 9),
            op(0, 0x16),
        ]
        .concat(),
    );
    b.expect_done();
    let s = b.gpu.stats();
    assert_eq!((s.membars, s.access_clears), (1, 1));
    assert_eq!((s.tlb_invalidates_all, s.tlb_invalidates_targeted), (2, 2));
    assert_eq!((s.replays_start, s.replays_ack), (1, 1));
    // One that comes with an invalidate, by its bit of the first word.
    for (a, membars) in [(1 << 11, 2), (1 << 12 | 3, 2)] {
        b.run(&increasing(0, 0x28, &[a, 0, 0, 0xa << 27]));
        assert_eq!(b.gpu.stats().membars, membars);
    }
    let cancel = increasing(0, 0x28, &[64, 0, 5 << 2, 0xa << 27]);
    b.run(&[op(4 << 2, 9), cancel].concat());
    let s = b.gpu.stats();
    assert_eq!((s.cancels_global, s.cancels_va), (1, 1));
    b.run(&op(3 << 2, 0xa));
    assert!(b.error().1.contains("targeted cancel"));
    let mut b = bench();
    b.run(&op(0, 0x1f));
    assert!(b.error().1.contains("memory operation"));
}

#[test]
fn harmless_methods_and_data_in_nops() {
    let mut b = bench();
    let nop = 3 << 29 | 3 << 16 | 0x8 >> 2;
    b.run(
        &[
            &increasing(0, 0x20, &[0])[..],
            &[nop, 0xdead, 0xbeef, 0xffff_ffff],
            &increasing(0, 0x78, &[0]),
            &increasing(0, 0x84, &[0]),
        ]
        .concat(),
    );
    b.expect_done();
}

/// Every method address that is not named above must stop the channel.
#[test]
fn unknown_methods_stop_the_channel() {
    let host = [
        0x0, 0x8, 0x20, 0x28, 0x2c, 0x30, 0x34, 0x5c, 0x60, 0x64, 0x68, 0x6c, 0x78, 0x84,
    ];
    let ce = [
        0x240, 0x244, 0x248, 0x260, 0x264, 0x300, 0x400, 0x404, 0x408, 0x40c, 0x418, 0x700, 0x704,
        0x708,
    ];
    for (chip, scrub) in [(&Personality::TURING, 0x700), (&Personality::HOPPER, 0x6fc)] {
        refused_but(chip, &host, &[&ce[..], &[scrub]].concat());
    }
}

/// A chip refuses all methods but those of the host and of the copy engine that are named.
fn refused_but(chip: &'static Personality, host: &[u32], ce: &[u32]) {
    let mut b = Bench::new(chip);
    let base = b.va >> 40;
    for method in (0..0x2000).step_by(4) {
        for subchannel in [0, CE, 5] {
            if host.contains(&method) || subchannel == CE && ce.contains(&method) {
                continue;
            }
            let before = b.gpu.stats().unknown_methods;
            b.run(&increasing(subchannel, method, &[0]));
            assert_eq!(
                b.gpu.stats().unknown_methods,
                before + 1,
                "{method:#x} on {subchannel}"
            );
            let (status, log) = b.error();
            assert_eq!(status, 0xffff);
            assert!(log.contains(&std::format!(
                "method {method:#x} of subchannel {subchannel}"
            )));
            assert!(log.contains("channel stopped"));
            // A new one for the next method.
            b.gpu.destroy_channel(b.channel).unwrap();
            (b.channel, b.place) = b.gpu.create_channel(b.space, 0, ENTRIES).unwrap();
            b.put = 0;
            if base != 0 {
                b.entry(4 << 32 | base << 8);
            }
        }
    }
}

#[test]
fn a_stopped_channel_does_nothing_more() {
    let mut b = bench();
    b.run(&increasing(0, 0x4, &[0]));
    let va = b.data();
    b.run(&increasing(0, 0x5c, &[va as u32, high(va), 7, 0, 1]));
    assert_eq!(b.word(0), 0);
    assert_eq!(b.gpu.stats().channel_errors, 1);
}

/// What a driver that writes a wrong PUT must see: an error, and not a GPU that never
/// lets go of its lock. The turn runs in a thread of its own, as it may not come back.
#[test]
fn a_put_beyond_the_ring_stops_the_channel() {
    for put in [ENTRIES, ENTRIES + 1, u32::MAX] {
        let (send, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut b = bench();
            b.gpu.machine().submit(b.place, put);
            b.gpu.run();
            let get = Loc::buffer(b.place.control, reg::CHANNEL_GET);
            let get = b.gpu.machine().load32(get).unwrap();
            let _ = send.send((b.error(), get, b.gpu.stats().channel_errors));
        });
        let patience = std::time::Duration::from_secs(20);
        let ((status, text), get, errors) = ended
            .recv_timeout(patience)
            .unwrap_or_else(|_| panic!("PUT of {put:#x}: the turn does not end"));
        assert_eq!((status, get, errors), (0xffff, 0, 1), "PUT of {put:#x}");
        assert!(text.contains("PUT") && text.contains("stopped"), "{text}");
    }
}

/// A host reads PUT when its doorbell is rung, and at no other time.
#[test]
fn put_counts_when_the_doorbell_is_rung() {
    let mut b = bench();
    let release = |value| increasing(0, 0x5c, &[b.data() as u32, high(b.data()), value, 0, 1]);
    let (first, second) = (release(7), release(8));
    b.push(&first);
    let bell = Loc::buffer(b.place.control, reg::CHANNEL_DOORBELL);
    b.gpu.machine().store32(bell, 0).unwrap();
    assert!(!b.gpu.run().any);
    assert_eq!(b.word(0), 0, "nobody has rung");
    b.gpu.machine().store32(bell, b.place.token).unwrap();
    assert!(b.gpu.run().any);
    assert_eq!(b.word(0), 7);
    assert_eq!(b.gpu.machine().load32(bell), Ok(0));
    // A ring that PUT is behind of is answered without any work.
    b.gpu.machine().store32(bell, b.place.token).unwrap();
    assert!(!b.gpu.run().any);
    b.push(&second);
    b.gpu.machine().store32(bell, 0).unwrap();
    assert!(!b.gpu.run().any);
    b.gpu.machine().store32(bell, b.place.token).unwrap();
    b.gpu.run();
    assert_eq!(b.word(0), 8);
    b.expect_done();
}

#[test]
fn another_token_stops_the_channel() {
    let mut b = bench();
    let (_, other) = b.gpu.create_channel(b.space, 0, ENTRIES).unwrap();
    assert!(other.token != 0 && b.place.token != 0 && other.token != b.place.token);
    let bell = Loc::buffer(b.place.control, reg::CHANNEL_DOORBELL);
    b.gpu.machine().store32(bell, other.token).unwrap();
    b.gpu.run();
    let (status, text) = b.error();
    assert_eq!((status, b.gpu.stats().channel_errors), (0xffff, 1));
    assert!(text.contains("token") && text.contains("stopped"), "{text}");
}

/// An entry without work is work of a turn all the same: a driver may write more of them
/// as fast as they are taken off the ring.
#[test]
fn entries_of_no_operation_are_bounded_by_the_turn() {
    const MANY: u32 = 1000;
    let mut b = bench();
    b.gpu.destroy_channel(b.channel).unwrap();
    let (_, place) = b.gpu.create_channel(b.space, 0, MANY).unwrap();
    let control = |r| Loc::buffer(place.control, r);
    let m = b.gpu.machine();
    m.submit(place, MANY - 1);
    let mut before = 0;
    for turn in 1.. {
        let progress = b.gpu.run();
        let get = b.gpu.machine().load32(control(reg::CHANNEL_GET)).unwrap();
        let taken = get - before;
        assert!(taken <= 64, "turn {turn} took {taken} entries");
        assert_eq!(progress.any, taken > 0, "turn {turn}");
        if taken == 0 {
            break;
        }
        before = get;
    }
    assert_eq!(before, MANY - 1);
    assert_eq!(b.gpu.stats().channel_errors, 0);
}

#[test]
fn addresses_that_lead_nowhere_are_named() {
    let mut b = bench();
    b.run(&increasing(0, 0x5c, &[0xffff_fffc, 0, 7, 0, 1]));
    let (status, log) = b.error();
    assert_eq!(status, 0xffff);
    assert!(log.contains("vgpu0: channel 0 (engine 0)") && log.contains("semaphore at 0xfffffffc"));
    assert_eq!(b.gpu.stats().bad_addresses, 1);
    // Across the end of a buffer, and a physical address beyond vidmem.
    let mut b = bench();
    let end = b.va + 0x10000 - 4;
    b.run(&increasing(
        0,
        0x5c,
        &[end as u32, high(end), 7, 0, 1 | 1 << 25],
    ));
    assert!(b.error().1.contains("end of semaphore"));
    let mut b = bench();
    let beyond = config().vidmem_bytes as u32;
    b.ce(&[
        (0x40c, beyond),
        (0x418, 8),
        (0x300, COPY | TO_PHYSICAL | FROM_PHYSICAL),
    ]);
    assert!(
        b.error().1.contains("copy target at vidmem"),
        "{:?}",
        b.error()
    );
}

#[test]
fn copies_between_all_apertures_are_counted_by_direction() {
    let mut b = bench();
    let n = 0x3000;
    let m = b.gpu.machine();
    for i in (0..n).step_by(8) {
        m.set(Loc::sysmem(SYSMEM + i), i ^ 0x1234);
    }
    let (vid, other) = (4 << 20, 5 << 20);
    let physical = COPY | FROM_PHYSICAL | TO_PHYSICAL;
    let sys_high = high(SYSMEM);
    // Host to device, within the device, device to host, then by address.
    b.ce(&[
        (0x260, 1),
        (0x264, 0),
        (0x400, sys_high),
        (0x404, 0),
        (0x408, 0),
        (0x40c, vid),
    ]);
    b.ce(&[(0x418, n as u32), (0x300, physical)]);
    b.ce(&[
        (0x260, 0),
        (0x400, 0),
        (0x404, vid),
        (0x40c, other),
        (0x300, physical),
    ]);
    b.ce(&[
        (0x264, 1),
        (0x404, other),
        (0x408, sys_high),
        (0x40c, 0x4000),
        (0x300, physical),
    ]);
    let va = b.data();
    b.ce(&[
        (0x400, sys_high),
        (0x404, 0x4000),
        (0x260, 1),
        (0x408, high(va)),
        (0x40c, va as u32),
    ]);
    b.ce(&[(0x418, 0x1000), (0x300, COPY | FROM_PHYSICAL)]);
    b.expect_done();
    for i in (0..n).step_by(8) {
        assert_eq!(
            b.gpu.machine().get(Loc::sysmem(SYSMEM + 0x4000 + i)),
            i ^ 0x1234
        );
    }
    assert_eq!(b.word(8), 8 ^ 0x1234);
    let s = b.gpu.stats();
    assert_eq!(
        (s.h2d_bytes, s.d2d_bytes, s.d2h_bytes, s.h2h_bytes),
        (n, n, n, 0)
    );
    assert_eq!((s.virtual_bytes, s.ce_copies), (0x1000, 4));
}

#[test]
fn fills_repeat_their_components() {
    // (components register, length, bytes expected)
    let cases: [(u32, u32, Vec<u8>); 3] = [
        (4, 5, vec![0x78; 5]),
        (
            4 | 3 << 16,
            2,
            vec![0x78, 0x56, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12],
        ),
        (
            4 | 5 << 4 | 3 << 16 | 1 << 24,
            1,
            vec![0x78, 0x56, 0x34, 0x12, 4, 3, 2, 1],
        ),
    ];
    for (components, length, want) in cases {
        let mut b = bench();
        let va = b.data() + 4;
        b.ce(&[
            (0x700, 0x1234_5678),
            (0x704, 0x0102_0304),
            (0x708, components),
        ]);
        b.ce(&[
            (0x408, high(va)),
            (0x40c, va as u32),
            (0x418, length),
            (0x300, COPY | REMAP),
        ]);
        b.expect_done();
        let got: Vec<u8> = (0..want.len() as u64 + 1)
            .map(|i| (b.word((4 + i) & !3) >> (8 * ((4 + i) % 4))) as u8)
            .collect();
        assert_eq!(got[..want.len()], want[..]);
        assert_eq!(got[want.len()], 0, "not one byte more");
        assert_eq!(b.gpu.stats().memset_bytes, want.len() as u64);
    }
}

#[test]
fn launches_release_and_count() {
    let mut b = bench();
    let va = b.data();
    b.ce(&[(0x240, high(va)), (0x244, va as u32), (0x248, 2)]);
    let increment = 1 << 3 | 6 << 14 | 1 << 18 | 1 << 19;
    let mut seen = Vec::new();
    for _ in 0..4 {
        b.ce(&[(0x300, increment)]);
        seen.push(b.word(0));
    }
    assert_eq!(seen, [1, 2, 0, 1], "wraps after the payload");
    b.ce(&[(0x248, 77), (0x300, 1 << 3 | 1 << 2)]);
    assert_eq!(b.word(0), 77);
    b.ce(&[(0x300, 2 << 3)]);
    assert!(b.word(8) > 0, "time");
    assert_eq!(b.gpu.stats().membars, 1);
    b.expect_done();
    b.ce(&[(0x300, increment & !(6 << 14))]);
    assert!(b.error().1.contains("reduction"));
}

#[test]
fn launches_that_are_not_emulated_are_errors() {
    for (launch, what) in [
        (COPY | 1 << 9, "several lines"),
        (COPY & !(1 << 7), "block-linear"),
        (COPY | REMAP, "remap from the source"),
    ] {
        let mut b = bench();
        b.ce(&[(0x418, 4), (0x300, launch)]);
        assert!(b.error().1.contains(what), "{:?}", b.error());
    }
    for (target, what) in [(2, "not coherent"), (3, "peer")] {
        for (mode, physical) in [(0x260, FROM_PHYSICAL), (0x264, TO_PHYSICAL)] {
            let mut b = bench();
            b.ce(&[(mode, target), (0x418, 4), (0x300, COPY | physical)]);
            assert!(b.error().1.contains(what), "{:?}", b.error());
        }
    }
}
