// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Programs of a driver's, each right or with one thing forgotten. In the kind order all of them
//! work. In the adversarial one those that are right work with every seed, and the others fail
//! with many.

use std::string::String;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::bench::access;
use crate::bench::copy;
use crate::bench::memory_operation;
use crate::bench::own_va;
use crate::bench::replay;
use crate::bench::Bench;
use crate::bench::Method;
use crate::bench::Tlbi;
use crate::bench::FREE;
use crate::bench::VA;
use crate::emu::reg;
use crate::emu::Op;
use crate::emu::Personality;
use crate::emu::State;
use crate::fake::Size;
use crate::fake::Tables;
use crate::fake::READ_ONLY;
use crate::fake::SYSMEM;

const SEEDS: u64 = 60;
/// Of a launch: the kind of transfer, and its flush.
const PIPELINED: u32 = 1;
const NOT_PIPELINED: u32 = 2;
const FLUSH_SYS: u32 = 1 << 2;
const FLUSH_GPU: u32 = 1 << 2 | 1 << 25;
const TO_PHYSICAL: u32 = 1 << 13;
const VALUE: u64 = 0x1122_3344_5566_7788;

const WFI: Method = (0, 0x78, 0);

fn membar(gpu: u32) -> Vec<Method> {
    memory_operation([0, 0, gpu, 5 << 27])
}

fn membar_sys() -> Vec<Method> {
    membar(0)
}

fn membar_gpu() -> Vec<Method> {
    membar(1)
}

/// A host semaphore's release, by Volta's methods and later ones'.
fn release(va: u64, flags: u32) -> Vec<Method> {
    vec![
        (0, 0x5c, va as u32),
        (0, 0x60, (va >> 32) as u32),
        (0, 0x64, 1),
        (0, 0x68, 0),
        (0, 0x6c, 1 | flags),
    ]
}

/// Runs a program in both orders, and looks whether it works: `right`, or with a mistake that
/// has a name.
fn check(right: &str, wrong: &[&str], works: impl Fn(&mut Bench, &str) -> bool) {
    check_on(&Personality::VOLTA, right, wrong, works);
}

fn check_on(
    chip: &'static Personality,
    right: &str,
    wrong: &[&str],
    works: impl Fn(&mut Bench, &str) -> bool,
) {
    let run = |order, how: &str| {
        let mut b = Bench::new(order, chip);
        let works = works(&mut b, how);
        let log: String = b.gpu.machine().log.borrow().concat();
        assert_eq!(log, "", "{how}: {order:?}");
        works
    };
    for how in wrong.iter().chain([&right]) {
        assert!(run(Order::Kind, how), "{how}: in the kind order");
        let fails = |&seed: &u64| !run(Order::Adversarial { seed }, how);
        let failed: Vec<u64> = (0..SEEDS).filter(fails).collect();
        if *how == right {
            assert!(failed.is_empty(), "{how}: seeds {failed:?}");
        } else {
            assert!(failed.len() as u64 > SEEDS / 8, "{how}: {failed:?}");
        }
    }
}

/// A word of the data that a program makes, and one that is copied from.
const MADE: u64 = 0x100;
const SOURCE: u64 = 0x200;
const DONE: u64 = 0x300;

fn source(b: &Bench) {
    b.gpu.machine().set(b.at(SOURCE), VALUE);
}

fn made(b: &Bench) -> bool {
    b.gpu.machine().get(b.at(MADE)) == VALUE
}

#[test]
fn a_copy_is_flushed_before_its_semaphore() {
    check("a flush", &["no flush", "a flush for the GPU"], |b, how| {
        source(b);
        let flush = match how {
            "a flush" => FLUSH_SYS,
            "no flush" => 0,
            _ => FLUSH_GPU,
        };
        let done = b.data(DONE);
        let semaphore = vec![
            (4, 0x240, (done >> 32) as u32),
            (4, 0x244, done as u32),
            (4, 0x248, 1),
        ];
        let launch = NOT_PIPELINED | flush | 1 << 3;
        let copied = copy(b.data(SOURCE), b.data(MADE), 8, launch);
        b.execute(&[semaphore, copied].concat());
        assert_eq!(b.gpu.machine().get(b.at(DONE)), 1);
        made(b)
    });
}

/// Hopper's scrubs are stores as other fills are.
#[test]
fn a_scrub_is_flushed_before_its_semaphore() {
    check_on(&Personality::HOPPER, "a flush", &["no flush"], |b, how| {
        let flush = if how == "a flush" { FLUSH_GPU } else { 0 };
        let done = b.data(DONE);
        b.execute(&[
            (4, 0x700, VALUE as u32),
            (4, 0x704, (VALUE >> 32) as u32),
            (4, 0x6fc, 0),
            (4, 0x264, 0),
            (4, 0x408, 0),
            (4, 0x40c, FREE as u32),
            (4, 0x418, 0x1000),
            (4, 0x240, (done >> 32) as u32),
            (4, 0x244, done as u32),
            (4, 0x248, 1),
            (
                4,
                0x300,
                NOT_PIPELINED | 3 << 7 | TO_PHYSICAL | flush | 1 << 3 | 1 << 23,
            ),
        ]);
        assert_eq!(b.gpu.machine().get(b.at(DONE)), 1);
        b.gpu.machine().get(Loc::vidmem(FREE + 0xff8)) == VALUE
    });
}

#[test]
fn the_host_waits_for_the_engine_and_then_for_memory() {
    let wrong = [
        "no wait for idle",
        "no membar",
        "a membar for the GPU",
        "the membar first",
    ];
    check("all of it", &wrong, |b, how| {
        source(b);
        let copied = copy(b.data(SOURCE), b.data(MADE), 8, PIPELINED);
        let end = release(b.data(DONE), 0);
        let wait = vec![WFI];
        let middle = match how {
            "no wait for idle" => membar_sys(),
            "no membar" => wait,
            "a membar for the GPU" => [wait, membar_gpu()].concat(),
            "the membar first" => [membar_sys(), wait].concat(),
            _ => [wait, membar_sys()].concat(),
        };
        b.execute(&[copied, middle, end].concat());
        made(b)
    });
}

/// A semaphore's release can wait for the engine as well, and says so by one bit, which means
/// the opposite in Maxwell's methods.
#[test]
fn a_release_may_wait_for_idle() {
    for is_old in [false, true] {
        check("it waits", &["it does not"], |b, how| {
            source(b);
            let waits = how == "it waits";
            let copied = copy(b.data(SOURCE), b.data(MADE), 8, PIPELINED);
            let done = b.data(DONE);
            let end = if is_old {
                let wait = u32::from(!waits) << 20;
                vec![
                    (0, 0x10, (done >> 32) as u32),
                    (0, 0x14, done as u32),
                    (0, 0x18, 1),
                    (0, 0x1c, 2 | 1 << 24 | wait),
                ]
            } else {
                release(done, u32::from(waits) << 20)
            };
            b.execute(&[copied, end, membar_sys()].concat());
            made(b)
        });
    }
}

#[test]
fn a_launch_that_is_pipelined_does_not_see_the_one_before() {
    check("it waits", &["it is pipelined"], |b, how| {
        source(b);
        let second = match how {
            "it waits" => NOT_PIPELINED,
            _ => PIPELINED,
        };
        let middle = b.data(0x400);
        let first = copy(b.data(SOURCE), middle, 8, PIPELINED);
        let second = copy(middle, b.data(MADE), 8, second | FLUSH_SYS);
        b.execute(&[first, second].concat());
        made(b)
    });
}

/// Another channel sees it with a membar for the GPU, wherever it is, and the CPU does not.
#[test]
fn another_channel_needs_a_membar_for_the_gpu() {
    check("a membar", &["none"], |b, how| {
        source(b);
        let middle = b.data(0x400);
        let first = copy(b.data(SOURCE), middle, 8, PIPELINED);
        let membar = if how == "none" { vec![] } else { membar_gpu() };
        b.execute(&[first, vec![WFI], membar].concat());
        let second = copy(middle, b.data(MADE), 8, PIPELINED | FLUSH_SYS);
        b.push(1, &second);
        b.run();
        assert!(b.is_done(1));
        made(b)
    });
}

/// Stores of one channel to one place keep their order, if the driver asks for it.
#[test]
fn the_last_store_stays() {
    check("it waits", &["it is pipelined"], |b, how| {
        source(b);
        let old = 0x480;
        b.gpu.machine().set(b.at(old), 1);
        let second = match how {
            "it waits" => NOT_PIPELINED,
            _ => PIPELINED,
        };
        let first = copy(b.data(old), b.data(MADE), 8, PIPELINED);
        let second = copy(b.data(SOURCE), b.data(MADE), 8, second);
        b.execute(&[first, second].concat());
        // All of it, after a time.
        b.gpu.machine().pass(LINGER_NS);
        b.run();
        made(b)
    });
}

/// A driver writes a page table entry by copy engine, and then invalidates.
fn entry_written(b: &mut Bench, middle: &[Method], target: Loc, entry: Loc) -> bool {
    let m = b.gpu.machine();
    for (page, value) in [(FREE, 1), (FREE + 0x1000, VALUE)] {
        m.set(Loc::vidmem(page), value);
    }
    assert_eq!(b.read(VA), Some(1));
    let aperture = u32::from(entry.space != Space::Vidmem);
    let new = (target.at >> 12 << 8) | crate::fake::VALID;
    b.gpu.machine().set(b.at(SOURCE), new);
    let write = copy(b.data(SOURCE), entry.at, 8, PIPELINED | TO_PHYSICAL);
    let mode = [(4, 0x264, aperture)];
    b.execute(&[&mode[..], &write, middle, &Tlbi::ALL.methods()].concat());
    b.read(VA) == Some(VALUE)
}

#[test]
fn an_entry_is_written_before_its_invalidate() {
    let wrong = [
        "no wait for idle",
        "no membar",
        "neither",
        "the membar last",
    ];
    check("both", &wrong, |b, how| {
        let page = Loc::vidmem(FREE);
        b.user.map(b.gpu.machine(), VA, Size::Small, page, 0);
        let entry = b.user.entry(b.gpu.machine(), VA, Size::Small);
        let middle = match how {
            "no wait for idle" => membar_gpu(),
            "no membar" => vec![WFI],
            "neither" => vec![],
            "the membar last" => [membar_gpu(), vec![WFI]].concat(),
            _ => [vec![WFI], membar_gpu()].concat(),
        };
        entry_written(b, &middle, Loc::vidmem(FREE + 0x1000), entry)
    });
}

/// Page tables that are in vidmem and system memory by turns, in place of the user's.
fn mixed(b: &Bench) -> Tables {
    Tables::new(b.user.root.at, SYSMEM + (1 << 19), true)
}

/// The MMU sees what a copy engine writes to system memory with a membar for the system.
#[test]
fn entries_in_system_memory_need_a_membar_for_the_system() {
    check("for the system", &["for the GPU"], |b, how| {
        b.user = mixed(b);
        let m = b.gpu.machine();
        b.user.map(m, VA, Size::Small, Loc::vidmem(FREE), 0);
        let mut entry = b.user.entry(m, VA, Size::Small);
        if entry.space == Space::Vidmem {
            // Tables are in both by turns: of the next size they are in the other one.
            b.user = mixed(b);
            entry = b.user.entry(m, VA, Size::Big);
        }
        assert_eq!(entry.space, Space::Sysmem);
        m.set(entry, (FREE >> 12 << 8) | crate::fake::VALID);
        let membar = match how {
            "for the GPU" => membar_gpu(),
            _ => membar_sys(),
        };
        let middle = [vec![WFI], membar].concat();
        entry_written(b, &middle, Loc::vidmem(FREE + 0x1000), entry)
    });
}

/// A kernel that writes a page and waits for another one, the page of which a driver takes away.
fn page_taken(b: &mut Bench, page: Loc, methods: &[Method]) -> u64 {
    page_left(b, page, methods);
    // By another channel, as a driver's would be that acquires a semaphore.
    let mode = (4, 0x260, u32::from(page.space != Space::Vidmem));
    let taken = copy(page.at, b.data(MADE), 8, PIPELINED | FLUSH_SYS | 1 << 12);
    b.push(1, &[vec![mode], taken].concat());
    b.run();
    assert!(b.is_done(1));
    b.gpu.machine().get(b.at(MADE))
}

/// A kernel that waits has stored to a page, which is unmapped, and then the methods are executed.
fn page_left(b: &mut Bench, page: Loc, methods: &[Method]) {
    b.user.map(b.gpu.machine(), VA, Size::Small, page, 0);
    let write = Op {
        stride: 4096,
        count: 2,
        lanes: 1,
        value_stride: 0,
        ..access(1, VA, VALUE)
    };
    let fence = b.launch(write);
    b.run();
    assert_eq!(b.outcome(fence), None, "it waits for the second page");
    let entry = b.user.entry(b.gpu.machine(), VA, Size::Small);
    b.gpu.machine().set(entry, 0);
    b.execute(methods);
}

#[test]
fn a_page_is_taken_once_its_stores_are_over() {
    let wrong = [
        "no acknowledgement",
        "the hub's alone",
        "no membar",
        "the membar first",
        "neither",
    ];
    for page in [Loc::vidmem(FREE), Loc::sysmem(SYSMEM)] {
        check("both", &wrong, |b, how| {
            let tlbi = |ack| {
                let what = Tlbi { ack, ..Tlbi::ALL };
                what.methods()
            };
            let methods = match how {
                "no acknowledgement" => [tlbi(0), membar_sys()].concat(),
                "the hub's alone" => {
                    let hub = Tlbi {
                        gpcs: false,
                        ..Tlbi::ALL
                    };
                    [hub.methods(), membar_sys()].concat()
                }
                "no membar" => tlbi(1),
                "the membar first" => [membar_sys(), tlbi(1)].concat(),
                "neither" => tlbi(0),
                _ => [tlbi(1), membar_sys()].concat(),
            };
            page_taken(b, page, &methods) == VALUE
        });
    }
}

/// The invalidate's own membar, and one for the GPU, which is enough for vidmem.
#[test]
fn other_membars_do_as_well() {
    for ack in [1, 2] {
        let of = |root, range| Tlbi {
            ack,
            root,
            range,
            ..Tlbi::ALL
        };
        let wrong = ["of another page", "of other page tables"];
        check("of the page", &wrong, |b, how| {
            let root = Some(b.user.root);
            let tlbi = match how {
                "of another page" => of(root, Some((VA + 0x1000, 0))),
                "of other page tables" => of(Some(b.own.root), None),
                _ => of(root, Some((VA, 0))),
            };
            let sysmembar = Tlbi {
                sysmembar: true,
                ..tlbi
            };
            page_taken(b, Loc::sysmem(SYSMEM), &sysmembar.methods()) == VALUE
        });
        check("of the page", &wrong, |b, how| {
            let tlbi = match how {
                "of another page" => of(None, Some((VA + 0x1000, 0))),
                "of other page tables" => of(Some(b.own.root), None),
                _ => of(None, None),
            };
            let methods = [tlbi.methods(), membar_gpu()].concat();
            page_taken(b, Loc::vidmem(FREE), &methods) == VALUE
        });
    }
}

/// Blackwell's drivers have no membar after an invalidate, but for the bit of it that is for the
/// system.
#[test]
fn blackwells_acknowledgement_is_a_membar() {
    for chip in [&Personality::BLACKWELL, &Personality::HOPPER] {
        let alone = if chip.acks_are_membars { "its" } else { "both" };
        let wrong = match alone {
            "its" => &["none"][..],
            _ => &["none", "its"],
        };
        check_on(chip, alone, wrong, |b, how| {
            let ack = u32::from(how != "none");
            let tlbi = Tlbi { ack, ..Tlbi::ALL }.methods();
            let membar = if how == "both" { membar_gpu() } else { vec![] };
            let methods = [tlbi, membar].concat();
            page_taken(b, Loc::vidmem(FREE), &methods) == VALUE
        });
    }
    check_on(
        &Personality::BLACKWELL,
        "both",
        &["none", "the bit"],
        |b, how| {
            let tlbi = Tlbi {
                ack: u32::from(how == "both"),
                sysmembar: how != "none",
                ..Tlbi::ALL
            };
            page_taken(b, Loc::sysmem(SYSMEM), &tlbi.methods()) == VALUE
        },
    );
}

/// So vidmem has what was stored there, also for RM, which gives it to others.
#[test]
fn blackwells_acknowledgement_brings_stores_to_vidmem() {
    check_on(&Personality::BLACKWELL, "its", &["none"], |b, how| {
        let ack = u32::from(how != "none");
        let tlbi = Tlbi { ack, ..Tlbi::ALL }.methods();
        page_left(b, Loc::vidmem(FREE), &tlbi);
        b.gpu.machine().get(Loc::vidmem(FREE)) == VALUE
    });
}

#[test]
fn an_invalidate_is_over_with_its_acknowledgement() {
    let wrong = ["none", "of one before", "the hub's"];
    for right in ["its own", "of a later one", "a replay"] {
        check(right, &wrong, |b, how| {
            for (page, value) in [(FREE, 1), (FREE + 0x1000, VALUE)] {
                let m = b.gpu.machine();
                m.set(Loc::vidmem(page), value);
            }
            let map = |b: &mut Bench, page| {
                b.user
                    .map(b.gpu.machine(), VA, Size::Small, Loc::vidmem(page), 0);
            };
            map(b, FREE);
            assert_eq!(b.read(VA), Some(1));
            map(b, FREE + 0x1000);
            let late = Tlbi {
                ack: 0,
                ..Tlbi::ALL
            };
            let other = Tlbi {
                range: Some((own_va(&Personality::TURING), 0)),
                ..Tlbi::ALL
            };
            let methods = match how {
                "its own" => Tlbi::ALL.methods(),
                "of a later one" => [late.methods(), other.methods()].concat(),
                "a replay" => [late.methods(), replay()].concat(),
                "the hub's" => {
                    let hub = Tlbi {
                        gpcs: false,
                        ..Tlbi::ALL
                    };
                    [late.methods(), hub.methods()].concat()
                }
                "of one before" => [other.methods(), late.methods()].concat(),
                _ => late.methods(),
            };
            b.execute(&methods);
            b.read(VA) == Some(VALUE)
        });
    }
}

/// The valid bits of entries 0 to PUT.
fn valid(b: &Bench) -> Vec<bool> {
    let m = b.gpu.machine();
    let put = Loc::buffer(b.gpu.registers(), reg::FAULT_PUT);
    let put = m.load32(put).unwrap();
    let last = |i| Loc::buffer(b.gpu.fault_buffer(), u64::from(i) * 32 + 28);
    (0..put)
        .map(|i| m.load32(last(i)).unwrap() >> 31 == 1)
        .collect()
}

#[test]
fn put_is_ahead_of_the_valid_bit() {
    for right in ["waits", "replays"] {
        check(right, &["believes PUT"], |b, how| {
            let missing = Op {
                stride: 4096,
                count: 8,
                ..access(0, VA, 0)
            };
            b.launch(missing);
            b.run();
            if how == "waits" {
                b.gpu.machine().pass(LINGER_NS);
                b.run();
            }
            let first = valid(b);
            assert_eq!(first.len(), 8);
            if how == "replays" {
                b.execute(&replay());
                assert!(valid(b)[..8].iter().all(|&v| v), "none is later than that");
                return true;
            }
            first.iter().all(|&v| v)
        });
    }
}

/// Notifications of access counters are as late as faults are, and nothing that UVM pushes is waited for.
#[test]
fn put_is_ahead_of_a_notifications_valid_bit() {
    check("waits", &["believes PUT"], |b, how| {
        b.gpu.enable_counters(1, 1);
        let pages = 4;
        for i in 0..pages {
            let page = Loc::sysmem(SYSMEM + (i << 16));
            let va = VA + (i << 16);
            b.user.map(b.gpu.machine(), va, Size::Small, page, 0);
        }
        b.launch(Op {
            stride: 1 << 16,
            count: pages,
            ..access(0, VA, 0)
        });
        b.run();
        if how == "waits" {
            b.gpu.machine().pass(LINGER_NS);
            b.run();
        }
        let m = b.gpu.machine();
        let put = Loc::buffer(b.gpu.registers(), reg::COUNTER_PUT);
        assert_eq!(m.load32(put), Ok(pages as u32));
        let last = |i| Loc::buffer(b.gpu.counter_buffer(), i * 32 + 28);
        (0..pages).all(|i| m.load32(last(i)).unwrap() >> 31 == 1)
    });
}

/// Entries of both rings arrive while there is something else to do.
#[test]
fn late_entries_arrive_one_by_one() {
    let arrive = |seed| {
        let mut b = Bench::new(Order::Adversarial { seed }, &Personality::VOLTA);
        let entry = [1 << 31; 8];
        let hw = &mut b.gpu.hw;
        for i in 0..8 {
            hw.faults.entries.write(&hw.m, i, entry, true).unwrap();
            hw.counters.entries.write(&hw.m, i, entry, true).unwrap();
        }
        let mut steps = 0;
        while hw.faults.entries.on_their_way() + hw.counters.entries.on_their_way() > 0 {
            hw.arrive();
            steps += 1;
            assert!(steps < 1000);
        }
        let m = b.gpu.machine();
        for slot in [b.gpu.fault_buffer(), b.gpu.counter_buffer()] {
            let last = |i: u64| Loc::buffer(slot, i * 32 + 28);
            assert!((0..8).all(|i| m.load32(last(i)) == Ok(1 << 31)));
        }
    };
    (0..10).for_each(arrive);
}

/// A kernel sees what it wrote, as do its later phases, and the CPU once it is over.
#[test]
fn a_kernel_sees_its_own_stores() {
    for width in [4u64, 8, 64, 4096] {
        check("always", &[], |b, _| {
            let page = Loc::sysmem(SYSMEM);
            b.user.map(b.gpu.machine(), VA, Size::Small, page, 0);
            let pattern = |kind, flags| Op {
                kind,
                flags,
                stride: width as i64,
                count: 4096 / width,
                width: width as u32,
                value_stride: 3,
                warps: 3,
                ..access(0, VA, VALUE)
            };
            let ops = [pattern(1, 0), pattern(3, 1)];
            let fence = b.launch_all(&ops);
            b.run();
            let outcome = b.outcome(fence).unwrap();
            assert_eq!((outcome.state, outcome.mismatches), (State::Done, 0));
            let n = 4096 / width.max(8);
            let last = b.gpu.machine().get(Loc::sysmem(SYSMEM + 4088));
            width == 4 || last == VALUE + 3 * (n * width.max(8) / 8 - 1)
        });
    }
}

/// What a kernel and the CPU add to a word of system memory. The kernel waits for another page, and has not ended.
fn added_with_the_cpu(b: &mut Bench, first: &[Method], width: u32) -> bool {
    let page = Loc::sysmem(SYSMEM);
    b.user.map(b.gpu.machine(), VA, Size::Small, page, 0);
    let add = Op {
        width,
        ..access(2, VA, 1)
    };
    let channels = [b.h_channel, b.another_channel()];
    for channel in channels {
        b.launch_on(channel, &[add, access(0, VA + 4096, 0)]);
    }
    b.run();
    if !first.is_empty() {
        b.user
            .map(b.gpu.machine(), VA, Size::Small, page, READ_ONLY);
        b.execute(first);
    }
    let (m, word) = (b.gpu.machine(), Loc::sysmem(SYSMEM));
    m.set(word, m.get(word) + 1);
    b.gpu.machine().pass(LINGER_NS);
    b.run();
    b.gpu.machine().get(word) == 3
}

/// A GPU has no native atomics to system memory, as `has_native_atomics` of the driver says for all but coherent ones. So nobody else
/// may write there meanwhile. Two channels of the GPU's lose nothing.
#[test]
fn an_atomic_to_system_memory_is_one_for_its_gpu_alone() {
    for width in [4, 8] {
        check("taken first", &["not taken"], |b, how| {
            let taken = [Tlbi::ALL.methods(), membar_sys()].concat();
            let first = if how == "taken first" {
                &taken[..]
            } else {
                &[]
            };
            added_with_the_cpu(b, first, width)
        });
    }
}

/// It is the same channel's.
#[test]
fn a_copy_engine_adds_to_what_a_kernel_has_stored() {
    for seed in 0..SEEDS {
        let mut b = Bench::new(Order::Adversarial { seed }, &Personality::TURING);
        let page = Loc::sysmem(SYSMEM);
        b.user.map(b.gpu.machine(), VA, Size::Small, page, 0);
        // The second page faults, so that the kernel is not over.
        b.launch(Op {
            stride: 4096,
            count: 2,
            lanes: 1,
            ..access(1, VA, VALUE)
        });
        b.run();
        b.gpu.copy(b.h_channel, VA).unwrap();
        b.run();
        b.gpu.machine().pass(2 * LINGER_NS);
        b.run();
        assert_eq!(b.gpu.copies(b.h_channel), Ok((1, 0)), "seed {seed}");
        assert_eq!(b.gpu.machine().get(page), VALUE + 1, "seed {seed}");
    }
}

/// What nobody waits for arrives all the same, after a time in which nobody could go on.
#[test]
fn what_is_late_arrives() {
    let mut seen = 0;
    for seed in 0..SEEDS {
        let mut b = Bench::new(Order::Adversarial { seed }, &Personality::TURING);
        source(&b);
        let methods = copy(b.data(SOURCE), b.data(MADE), 8, PIPELINED);
        b.execute(&methods);
        let late = !made(&b);
        seen += u32::from(late);
        b.gpu.machine().pass(LINGER_NS / 2);
        b.run();
        assert_eq!(!made(&b), late, "seed {seed}: too early");
        b.gpu.machine().pass(LINGER_NS);
        b.run();
        assert!(made(&b), "seed {seed}");
    }
    assert!(seen > 10, "{seen} of {SEEDS} were late");
}

/// More than there is room for is late as well, and nothing is lost.
#[test]
fn many_stores_are_late() {
    for seed in 0..SEEDS {
        let mut b = Bench::new(Order::Adversarial { seed }, &Personality::TURING);
        for i in 0..200u64 {
            b.gpu.machine().set(b.at(SOURCE), i + 1);
            let to = b.data(0x1000 + 8 * i);
            let launch = if i == 199 { FLUSH_SYS } else { 0 };
            let methods = copy(b.data(SOURCE), to, 8, PIPELINED | launch);
            b.execute(&methods);
        }
        for i in 0..200 {
            let word = b.gpu.machine().get(b.at(0x1000 + 8 * i));
            assert_eq!(word, i + 1, "seed {seed}");
        }
    }
}

/// Whoever stops, or is stopped, has no store left.
#[test]
fn a_channel_that_ends_leaves_nothing_behind() {
    for seed in 0..SEEDS {
        for how in 0..4 {
            let mut b = Bench::new(Order::Adversarial { seed }, &Personality::TURING);
            let page = Loc::vidmem(FREE);
            b.user.map(b.gpu.machine(), VA, Size::Small, page, 0);
            let write = Op {
                stride: 4096,
                count: 2,
                lanes: 1,
                ..access(1, VA, VALUE)
            };
            b.launch(write);
            b.run();
            match how {
                0 => b.stop_user(),
                1 => b.execute(&memory_operation([0, 0, 4 << 2, 9 << 27])),
                2 => b.destroy_user_space(),
                _ => {
                    let preempt = crate::emu::Injection::Preempt(true);
                    b.gpu.inject(preempt).unwrap();
                }
            }
            assert_eq!(b.gpu.machine().get(page), VALUE, "seed {seed}, {how}");
        }
    }
}

#[test]
fn stores_overlap_where_they_have_bytes_in_common() {
    let store = Store {
        who: Who::User(0),
        through: None,
        is_sum: false,
        to: Loc::vidmem(0x1000),
        data: [0; LINE],
        bytes: 8,
        stage: Stage::Issued,
    };
    for (at, bytes, overlaps) in [
        (Loc::vidmem(0x1000), 8, true),
        (Loc::vidmem(0x1007), 1, true),
        (Loc::vidmem(0x1008), 8, false),
        (Loc::vidmem(0xff8), 8, false),
        (Loc::vidmem(0xff8), 9, true),
        (Loc::vidmem(0), u64::MAX, true),
        (Loc::sysmem(0x1000), 8, false),
        (Loc::buffer(crate::emu::Slot(0), 0x1000), 8, false),
    ] {
        assert_eq!(store.overlaps(at, bytes), overlaps, "{at} {bytes:#x}");
    }
}
