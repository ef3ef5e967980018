// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Any sequence of calls with any ranges, also in the wrong order: no panic, and
//! the masks stay apart and within the block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uvm_policy::discard::{BlockState, Facts, Memory, Mode};
use uvm_policy::mask::{PageMask, Region};

fuzz_target!(|data: &[u8]| {
    let [pages, ops @ ..] = data else { return };
    let mut length = (u16::from(*pages) * 2 + 2).min(512);
    let mut s = BlockState::new(length);
    let mut resident = PageMask::EMPTY;
    for op in ops.chunks_exact(4) {
        let memory = Memory(u16::from(op[0] >> 4 & 3));
        let range = Region::new(u16::from(op[1]) * 3, u16::from(op[2]) * 3);
        let mask = PageMask::from(range);
        match op[0] & 15 {
            0 => {
                let _ = s.track(memory, &mask);
            }
            1 => resident = mask,
            2 | 3 => {
                let mode = if op[0] & 1 == 0 {
                    Mode::Eager
                } else {
                    Mode::Lazy
                };
                let facts = Facts {
                    resident,
                    mapped_2m: op[3] & 128 != 0,
                };
                let plan = s.plan(range, mode, u32::from(op[3] & 15), &facts);
                assert!(plan.drop.is_subset(&plan.discarded));
                assert!(!plan.discarded.intersects(&plan.ignored));
                resident -= plan.drop;
                s.commit(&plan);
                assert!(plan.discarded.is_subset(&s.discarded()));
            }
            4 => s.dropped(&s.stale(&mask, &resident)),
            5 => s.dropped(&s.needless(&(resident & range.into()))),
            6 => s.accessed(&mask),
            7 => s.added(memory, range, &resident),
            8 => s.released(memory, range),
            9 => {
                let z = s
                    .zeroing(memory, range, &resident, &PageMask::EMPTY, &mask)
                    .pages();
                assert!(z.is_subset(&mask));
                s.prepare(memory, &z);
            }
            10 => drop(s.queue(memory, &mask)),
            11 => {
                let at = u16::from(op[3]) * 3;
                if let Ok(upper) = s.split(at) {
                    if op[1] & 1 == 0 {
                        length = at.min(length);
                    } else {
                        length -= at.min(length);
                        s = upper;
                    }
                }
            }
            _ => s.prepare(memory, &mask),
        }
        let inside = PageMask::from(Region::new(0, length));
        assert!(s.discarded().is_subset(&inside));
        assert!((0..4).all(|m| s.prepared_in(Memory(m)).is_subset(&inside)));
    }
});
