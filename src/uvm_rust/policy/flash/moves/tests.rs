// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A call whose steps are noted, with what stands in its way.

use super::*;
use std::vec::Vec;

mod beside;
mod turns;

const MIB: u64 = 1 << 20;

/// A call, whose steps are noted, and what stands in its way.
#[derive(Default)]
struct Script {
    said: Vec<&'static str>,
    held: Vec<&'static str>,
    parts: Vec<(u64, u64)>,
    /// What is so from the start, or at the n-th look.
    no_device: bool,
    no_memory: Option<&'static str>,
    not_managed: bool,
    /// What is so many bytes from 0 on is managed memory.
    managed: Option<u64>,
    /// From there on nothing was ever touched, up to there.
    empty: core::ops::Range<u64>,
    /// How often a device is being detached when it is asked for.
    detaching: u32,
    unpaid: u32,
    awaited_after: Option<usize>,
    dies_after: Option<usize>,
    signal: bool,
    /// Why the turn is waited for in vain, which another one has.
    no_turn: Option<Failed>,
    fetches: Vec<Fetched>,
    no_gpu: bool,
    /// A copy to the GPU fails.
    loses: bool,
    copying: bool,
    /// Blocks that were asked for.
    asked: Vec<u64>,
    /// The VA space cannot be entered.
    no_entry: Option<Failed>,
    /// Too many others copy to a GPU.
    too_many: bool,
    /// How often it stood in line for the device.
    lines: usize,
    /// Nothing of the range is in host memory from there on, up to there.
    away: core::ops::Range<u64>,
    /// The host has room for so many blocks, if not for all.
    room: Option<usize>,
    /// What the tenant has paid for, if anything is to be paid.
    rate: Option<turns::Rate>,
}

impl Script {
    fn take(&mut self, what: &'static str, inside: &[&'static str]) {
        self.said.push(what);
        assert_eq!(self.held, inside, "V-order: {what}");
        self.held.push(what);
    }

    fn give(&mut self, what: &'static str) {
        assert_eq!(self.held.pop(), Some(what), "V-order");
    }

    fn count(&self, what: &str) -> usize {
        self.said.iter().filter(|said| **said == what).count()
    }

    fn writes(&self) -> bool {
        self.held.first() == Some(&"turn")
    }
}

impl Machine for Script {
    fn take_turn(&mut self) -> Result<(), Failed> {
        if let Some(why) = self.no_turn {
            return Err(why);
        }
        self.take("turn", &[]);
        Ok(())
    }

    fn end_turn(&mut self) {
        self.give("turn");
    }

    fn has_device(&mut self) -> bool {
        !self.no_device
    }

    fn may_write(&mut self) -> bool {
        assert_eq!(self.held, ["turn"], "V-wait");
        self.unpaid = self.unpaid.saturating_sub(1);
        self.unpaid == 0 && self.rate.as_ref().is_none_or(turns::Rate::is_paid)
    }

    fn is_awaited(&mut self) -> bool {
        let suspends = self.rate.as_ref().is_some_and(turns::Rate::is_awaited);
        suspends || self.awaited_after.is_some_and(|n| self.said.len() >= n)
    }

    fn count_throttled(&mut self) {
        self.said.push("throttled");
    }

    fn nap(&mut self) -> bool {
        assert_eq!(self.held, ["turn"], "V-wait");
        self.said.push("nap");
        self.rate.iter_mut().for_each(turns::Rate::nap);
        !self.signal
    }

    fn stand_in_line(&mut self) {
        assert_eq!(self.held, ["turn"], "V-line");
        self.lines += 1;
    }

    fn open(&mut self) -> bool {
        if self.no_memory == Some("buffer") {
            return false;
        }
        self.take("buffer", &["turn"]);
        true
    }

    fn close(&mut self) {
        self.give("buffer");
    }

    fn keep_device(&mut self) -> Result<(), Failed> {
        let outer = self.held.clone();
        assert_eq!(outer.last(), Some(&"space"), "V-order");
        if self.no_device {
            return Err(Failed::NoDevice);
        }
        if self.detaching > 0 {
            return Err(Failed::Again);
        }
        self.take("device", &outer);
        Ok(())
    }

    fn wait_for_device(&mut self) -> Result<(), Failed> {
        assert!(!self.held.contains(&"space"), "V-order");
        self.said.push("waits");
        self.detaching -= 1;
        if self.signal {
            return Err(Failed::Interrupted);
        }
        Ok(())
    }

    fn leave_device(&mut self) {
        self.give("device");
    }

    fn enter_space(&mut self) -> Result<(), Failed> {
        // V-line: without a buffer it only looks.
        let outer = self.held.clone();
        assert!(["", "turn", "turn buffer"].contains(&&*outer.join(" ")));
        if let Some(failed) = self.no_entry {
            return Err(failed);
        }
        self.take("space", &outer);
        Ok(())
    }

    fn leave_space(&mut self) {
        assert!(!self.copying, "V-copies");
        self.give("space");
    }

    fn is_managed(&mut self, base: u64, length: u64) -> bool {
        assert_eq!(self.held.last(), Some(&"device"));
        self.parts.push((base, length));
        !self.not_managed && self.managed.is_none_or(|end| base + length <= end)
    }

    fn is_empty(&mut self, base: u64, end: u64) -> bool {
        assert_eq!(self.held.last(), Some(&"device"));
        self.empty.contains(&base) && self.empty.contains(&end)
    }

    fn has_to_write(&mut self, base: u64, end: u64) -> bool {
        assert_eq!(self.held, ["turn", "space", "device"], "V-line");
        let gone = |range: &core::ops::Range<u64>| range.contains(&base) && range.contains(&end);
        !self.not_managed && !gone(&self.empty) && !gone(&self.away)
    }

    fn prepare(&mut self) -> bool {
        if self.no_memory == Some("context") {
            return false;
        }
        let outer = self.held.clone();
        self.take("context", &outer);
        true
    }

    fn put(&mut self) {
        self.give("context");
    }

    fn choose(&mut self, base: u64, end: u64) -> Option<u64> {
        assert_eq!(self.held.last(), Some(&"context"));
        assert!(base <= end);
        // The one at 4 MiB was never touched.
        let first = if self.empty.contains(&base) {
            self.empty.end
        } else {
            base
        };
        let block = first / BLOCK_BYTES;
        let block = if block == 2 { 3 } else { block };
        (block * BLOCK_BYTES <= end).then_some((block + 1) * BLOCK_BYTES)
    }

    fn write(&mut self) {
        assert!(self.writes());
        self.said.push("write");
    }

    fn ask(&mut self, base: u64, end: u64) -> Option<u64> {
        assert_eq!(self.held.last(), Some(&"context"));
        assert!(base <= end && !self.writes());
        let block = base / BLOCK_BYTES;
        self.asked.push(block);
        (block * BLOCK_BYTES <= end).then_some((block + 1) * BLOCK_BYTES)
    }

    fn has_gpu(&mut self) -> bool {
        assert_eq!(self.held.last(), Some(&"device"));
        !self.no_gpu
    }

    fn copies_home(&mut self) {
        assert_eq!(self.held.last(), Some(&"device"));
        self.said.push("home");
    }

    fn lock(&mut self) {
        let outer = self.held.clone();
        self.take("block", &outer);
    }

    fn unlock(&mut self) {
        self.give("block");
    }

    fn fetch(&mut self) -> Fetched {
        assert_eq!(self.held.last(), Some(&"block"));
        self.said.push("fetch");
        self.fetches.pop().unwrap_or(Fetched::All)
    }

    fn has_host_room(&mut self) -> bool {
        assert_eq!(self.held.last(), Some(&"context"));
        self.room.is_none_or(|room| self.count("copy") < room)
    }

    fn copy(&mut self) -> Result<Fetched, Failed> {
        assert_eq!(self.held.last(), Some(&"block"));
        let is_full = self.room.is_some_and(|room| self.count("copy") >= room);
        assert!(!is_full || !self.writes(), "V-wait: it waits for room");
        self.said.push("copy");
        if self.too_many {
            return Err(Failed::Again);
        }
        self.copying = true;
        Ok(self.fetches.pop().unwrap_or(Fetched::All))
    }

    fn settle(&mut self) -> bool {
        assert_eq!(self.held.last(), Some(&"context"), "V-copies");
        self.said.push("settle");
        self.copying = false;
        !self.loses
    }

    fn dying(&mut self) -> bool {
        self.dies_after.is_some_and(|n| self.said.len() >= n)
    }

    fn rest(&mut self) {
        assert_eq!(self.held.last(), Some(&"context"));
    }

    fn pay(&mut self) {
        assert!(
            self.writes() && self.held.last() == Some(&"device"),
            "V-paid"
        );
        self.said.push("pay");
        let blocks = self.count("write") as u64;
        self.rate.iter_mut().for_each(|rate| rate.pay(blocks));
    }
}

#[test]
fn a_range_is_moved_in_parts_that_end_with_a_block() {
    let mut m = Script::default();
    assert_eq!(run(&mut m, MIB, 40 * MIB, To::Device), Ok(()));
    let parts = [(1, 15), (16, 16), (32, 9)].map(|(at, some)| (at * MIB, some * MIB));
    assert_eq!(m.parts, parts);
    // The one that was never touched is left out.
    assert_eq!(
        (m.count("write"), m.count("turn"), m.count("pay")),
        (20, 3, 3)
    );
    assert!(m.held.is_empty());
}

/// Or one thread that holds up its own VA space holds up who detaches, and with that everybody.
#[test]
fn who_detaches_is_waited_for_without_the_va_space() {
    for to in [To::Host, To::Device] {
        let mut m = Script {
            detaching: 3,
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, to), Ok(()));
        // Who writes has looked first.
        let spaces = 4 + usize::from(to == To::Device);
        assert_eq!((m.count("waits"), m.count("space")), (3, spaces));
        let mut m = Script {
            detaching: 3,
            signal: true,
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, to), Err(Failed::Interrupted));
        assert_eq!((m.count("waits"), m.held.len()), (1, 0));
    }
}

#[test]
fn who_cannot_enter_has_nothing_left_to_let_go() {
    let failures = [Failed::Again, Failed::Interrupted, Failed::Unreadable];
    for (failed, to) in failures.into_iter().zip([To::Device, To::Host, To::Gpu]) {
        let mut m = Script {
            no_entry: Some(failed),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, to), Err(failed));
        assert!(m.held.is_empty() && m.parts.is_empty(), "{to:?}");
    }
}

#[test]
fn too_many_who_copy_are_no_lack_of_memory() {
    let mut m = Script {
        too_many: true,
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, MIB, To::Gpu), Err(Failed::Again));
    assert!(m.held.is_empty() && m.count("settle") == 1, "V-copies");
}

/// Terabytes that were never touched are gone through in few steps, and nothing in between is passed over.
#[test]
fn what_was_never_touched_costs_little() {
    const TIB: u64 = 1 << 40;
    for to in [To::Host, To::Device, To::Gpu, To::Home] {
        let mut m = Script {
            empty: MIB * 64..16 * TIB,
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, 16 * TIB + 6 * MIB, to), Ok(()));
        assert!(m.parts.len() < 1_100, "{to:?}: {}", m.parts.len());
        let moved = m.count("write") + m.count("block");
        assert_eq!(moved, 31 + 3, "{to:?}");
        if to == To::Device {
            assert!(m.count("turn") < 50, "nobody writes what is not there");
        }
        assert!(m.held.is_empty());
    }
    // What is not managed memory is not passed over.
    let mut m = Script {
        empty: 0..4 * TIB,
        managed: Some(TIB),
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, 2 * TIB, To::Host), Err(Failed::NotManaged));
    // Where memory ends that is managed, all before that is moved still.
    let mut m = Script {
        empty: 0..TIB,
        managed: Some(TIB + 32 * MIB),
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, 2 * TIB, To::Host), Err(Failed::NotManaged));
    assert_eq!(m.count("block"), 16);
}

#[test]
fn to_the_host_nobody_waits_or_pays() {
    let mut m = Script {
        fetches: [Fetched::All, Fetched::Again, Fetched::Again].into(),
        unpaid: 9,
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, 20 * MIB, To::Host), Ok(()));
    assert_eq!(
        (m.count("fetch"), m.count("block"), m.count("context")),
        (11, 9, 2)
    );
    assert_eq!((m.count("pay"), m.count("turn"), m.count("nap")), (0, 0, 0));
}

/// Its writes begin with the VA space locked, so they wait for nobody else.
#[test]
fn a_part_that_is_written_stands_in_line_once() {
    for (to, lines) in [(To::Device, 3), (To::Host, 0), (To::Gpu, 0)] {
        let mut m = Script::default();
        assert_eq!(run(&mut m, 0, 2 * AT_ONCE + MIB, to), Ok(()));
        assert_eq!(m.lines, lines, "{to:?}");
    }
}

/// What anybody may call as often as it likes keeps nobody from the device if it gives that nothing to do.
#[test]
fn a_part_without_anything_to_write_stands_in_no_line() {
    let part = 2 * MIB..2 * MIB + AT_ONCE;
    let scripts = [
        Script {
            empty: part.clone(),
            ..Script::default()
        },
        Script {
            away: part.clone(),
            ..Script::default()
        },
        Script {
            not_managed: true,
            ..Script::default()
        },
    ];
    for (n, mut m) in scripts.into_iter().enumerate() {
        let moved = run(&mut m, part.start, MIB, To::Device);
        assert_eq!((m.lines, moved.is_ok()), (0, n < 2), "case {n}");
        assert!(m.held.is_empty());
    }
    // The parts before and behind it do.
    let mut m = Script {
        away: AT_ONCE..2 * AT_ONCE,
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, 3 * AT_ONCE, To::Device), Ok(()));
    assert_eq!(m.lines, 2);
}

#[test]
fn who_has_written_much_waits_and_is_counted_once() {
    let mut m = Script {
        unpaid: 4,
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, MIB, To::Device), Ok(()));
    assert_eq!(
        (m.count("nap"), m.count("throttled"), m.count("write")),
        (3, 1, 1)
    );
    let mut m = Script {
        unpaid: 4,
        signal: true,
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, MIB, To::Device), Err(Failed::Interrupted));
    assert_eq!((m.count("nap"), m.count("write")), (1, 0));
    assert!(m.held.is_empty());
}

#[test]
fn a_turn_that_does_not_come_ends_a_part_as_it_says() {
    for why in [Failed::Again, Failed::Interrupted] {
        let mut m = Script {
            no_turn: Some(why),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, To::Device), Err(why));
        assert_eq!((m.said.len(), m.held.len()), (0, 0));
    }
}

#[test]
fn who_suspends_comes_first() {
    // While it waits for its rate, and between two va_blocks or parts; but not after the last.
    for (unpaid, after, parts) in [(9, 2, 0), (0, 1, 1)] {
        let mut m = Script {
            unpaid,
            awaited_after: Some(after),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, 17 * MIB, To::Device), Err(Failed::Again));
        assert_eq!((m.parts.len(), m.held.len()), (parts, 0));
    }
    let mut m = Script {
        awaited_after: Some(1),
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, MIB, To::Device), Ok(()));
}

/// Each va_block of a part may wait behind what others ask of the device.
#[test]
fn who_suspends_waits_for_no_more_than_a_block() {
    for (to, what) in [(To::Device, "write"), (To::Host, "fetch")] {
        let mut blocks = std::collections::BTreeSet::new();
        for after in 1..200 {
            let mut m = Script {
                awaited_after: Some(after),
                ..Script::default()
            };
            let moved = run(&mut m, 0, AT_ONCE, to);
            assert!(m.held.is_empty());
            // The one at 4 MiB was never touched.
            let is_done = m.count(what) == 7;
            assert_eq!(moved, is_done.then_some(()).ok_or(Failed::Again));
            blocks.insert(m.count(what));
        }
        assert_eq!(blocks, (1..8).collect(), "{to:?}");
    }
}

#[test]
fn all_is_let_go_whatever_fails() {
    let failures = [
        (
            Failed::NoDevice,
            Script {
                no_device: true,
                ..Script::default()
            },
        ),
        (
            Failed::NotManaged,
            Script {
                not_managed: true,
                ..Script::default()
            },
        ),
        (
            Failed::NoMemory,
            Script {
                no_memory: Some("context"),
                ..Script::default()
            },
        ),
        (
            Failed::Interrupted,
            Script {
                dies_after: Some(2),
                ..Script::default()
            },
        ),
    ];
    for (failed, mut m) in failures {
        assert_eq!(run(&mut m, 0, MIB, To::Host), Err(failed));
        assert!(m.held.is_empty(), "{failed:?}");
        (m.said, m.dies_after) = (Vec::new(), m.dies_after.map(|n| n + 2));
        let kept = !m.no_device;
        assert_eq!(run(&mut m, 0, MIB, To::Device), Err(failed));
        assert!(m.held.is_empty(), "{failed:?}");
        assert_eq!(m.count("pay"), usize::from(kept), "V-paid");
    }
    let mut m = Script {
        no_memory: Some("buffer"),
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, MIB, To::Device), Err(Failed::NoMemory));
    assert!(m.held.is_empty());
    // What is whole on the device is not said to be lost.
    for (fetched, failed) in [
        (Fetched::NoMemory, Failed::NoMemory),
        (Fetched::Failed, Failed::Unreadable),
    ] {
        let mut m = Script {
            fetches: [fetched].into(),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, To::Host), Err(failed));
        assert!(m.held.is_empty());
    }
    // A fetch that never ends.
    let mut m = Script {
        fetches: [Fetched::Again; 99].into(),
        dies_after: Some(8),
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, MIB, To::Host), Err(Failed::Interrupted));
    assert!(m.count("fetch") < 9 && m.held.is_empty());
}

#[test]
fn what_comes_next_is_asked_for_once_and_not_too_early() {
    let mut m = Script::default();
    assert_eq!(run(&mut m, 0, 60 * MIB, To::Host), Ok(()));
    // All blocks but the first, which is read at once.
    assert_eq!(m.asked, (1..30).collect::<Vec<_>>());
    for (to, asked) in [(To::Gpu, 8), (To::Host, 8), (To::Device, 0)] {
        let mut m = Script {
            fetches: [Fetched::Failed].into(),
            ..Script::default()
        };
        let failed = run(&mut m, 0, 60 * MIB, to) == Err(Failed::Unreadable);
        assert_eq!((failed, m.asked.len()), (to != To::Device, asked));
    }
    // The end of the range is the end.
    let mut m = Script::default();
    assert_eq!(run(&mut m, MIB, 4 * MIB, To::Host), Ok(()));
    assert_eq!(m.asked, [1, 2]);
}

#[test]
fn what_comes_from_gpus_is_copied_and_the_device_not_asked() {
    let mut m = Script {
        fetches: [Fetched::All, Fetched::Again].into(),
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, 20 * MIB, To::Home), Ok(()));
    assert_eq!(
        (m.count("copy"), m.count("settle"), m.count("home")),
        (10, 2, 2)
    );
    assert!(m.asked.is_empty() && m.count("write") == 0 && m.held.is_empty());
    let mut m = Script {
        loses: true,
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, MIB, To::Home), Err(Failed::Unreadable));
    assert!(m.held.is_empty() && !m.copying);
}

#[test]
fn copies_to_a_gpu_are_begun_one_after_the_other_and_waited_for_at_the_end_of_a_part() {
    let mut m = Script {
        fetches: [Fetched::All, Fetched::Again].into(),
        ..Script::default()
    };
    assert_eq!(run(&mut m, 0, 20 * MIB, To::Gpu), Ok(()));
    assert_eq!(
        (m.count("copy"), m.count("settle"), m.count("fetch")),
        (10, 2, 0)
    );
    for (failed, mut m) in [
        (
            Failed::NoGpu,
            Script {
                no_gpu: true,
                ..Script::default()
            },
        ),
        (
            Failed::Unreadable,
            Script {
                loses: true,
                ..Script::default()
            },
        ),
        (
            Failed::NoMemory,
            Script {
                fetches: [Fetched::NoMemory].into(),
                ..Script::default()
            },
        ),
        (
            Failed::Interrupted,
            Script {
                dies_after: Some(9),
                ..Script::default()
            },
        ),
    ] {
        assert_eq!(run(&mut m, 0, 20 * MIB, To::Gpu), Err(failed));
        assert!(m.held.is_empty() && !m.copying, "{failed:?}");
    }
}
