// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Any sequence of reads, writes, discards, splits and moves on a small device: no
//! panic, no page in two states, and nothing left in use at the end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uvm_policy::flash::{BlockPages, Config, Read, Spill, Table};
use uvm_policy::mask::{PageMask, Region};

#[derive(Default)]
struct InFlight {
    spill: Option<Spill>,
    reads: Vec<Read>,
}

fuzz_target!(|data: &[u8]| {
    let config = Config {
        slots: 4,
        checksums: false,
        quota: 1200,
    };
    let mut t = Table::new(config).unwrap();
    let mut blocks = [(); 4].map(|()| (BlockPages::new(512), InFlight::default()));
    let mut moving = None;
    let none = PageMask::EMPTY;
    for op in data.chunks_exact(3) {
        let i = usize::from(op[0] >> 4 & 3);
        let mask = PageMask::from(Region::new(u16::from(op[1]) * 3, u16::from(op[2]) * 3));
        let (b, flying) = &mut blocks[i];
        match op[0] & 15 {
            0..=2 => {
                let tenant = t.tenant(i as u64).unwrap();
                if let Ok(spill) = b.begin_spill(&mut t, tenant, &mask) {
                    assert!(flying.spill.is_none());
                    flying.spill = Some(spill);
                }
            }
            3 | 4 => {
                if let Some(spill) = flying.spill.take() {
                    assert!(b.end_spill(&mut t, spill, &mask).is_subset(&mask));
                }
            }
            5 if op[1] & 7 == 0 => b.read_again(),
            5 => b.touched(&mask),
            6 | 7 => {
                if let Ok(Some(read)) = b.begin_read(&mut t, &mask) {
                    flying.reads.push(read);
                }
            }
            8 | 9 => {
                if let Some(read) = flying.reads.pop() {
                    let keep = op[1] & 1 == 0;
                    // What does not come fails, or is something else.
                    let bad = PageMask::FULL - mask;
                    let (failed, wrong) = if keep { (bad, none) } else { (none, bad) };
                    assert!(b.put_off(&read, (&failed, &wrong), 0).is_subset(&bad));
                    let arrived = b.end_read(&mut t, read, &mask, &none, keep);
                    assert!(arrived.is_subset(&mask));
                }
            }
            10 => b.forget(&mut t, &mask),
            11 if flying.reads.is_empty() => {
                let at = u16::from(op[1]) * 3;
                if b.cut(&mut t, at).is_ok() {
                    b.split(&mut t, at).release(&mut t);
                }
            }
            12 if moving.is_none() => moving = t.relocate_begin(),
            13 => {
                if let Some(m) = moving.take() {
                    t.relocate_end(m, op[1] & 1 == 0);
                }
            }
            14 => assert!(b.drop_clean(&mask).is_subset(&mask)),
            15 => b.may_write(&mut t, &mask),
            _ => {}
        }
        let b = &blocks[i].0;
        assert!(b.kept().is_subset(&b.lost()));
        assert!(!b.on_flash().intersects(&b.lost()));
        assert!(!b.on_flash().intersects(&b.spilling()));
        assert!(!b
            .copies()
            .intersects(&(b.on_flash() | b.spilling() | b.lost())));
    }
    for (mut b, flying) in blocks {
        for read in flying.reads {
            b.end_read(&mut t, read, &none, &none, false);
        }
        if let Some(spill) = flying.spill {
            spill.abandon(&mut t);
        }
        b.release(&mut t);
    }
    if let Some(m) = moving {
        t.relocate_end(m, true);
    }
    assert_eq!((t.usage().pages, t.usage().free_slots), (0, 4));
});
