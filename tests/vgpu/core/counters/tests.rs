// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::fake::Fake;

const REMOTE: Remote = Remote {
    instance: 0x5000,
    va: 0x7000_0012_3000,
    physical: 0x1_2345_6000,
};

fn counters() -> (Fake, AccessCounters, Slot) {
    let mut m = Fake::new(0, 0);
    let registers = m.alloc(reg::BYTES).unwrap();
    let mut c = AccessCounters::new(&mut m, registers).unwrap();
    c.reset(&m).unwrap();
    (m, c, registers)
}

fn count(m: &Fake, c: &mut AccessCounters, chip: &Personality, n: u32) -> bool {
    c.count(m, chip, &REMOTE, n, || false).unwrap()
}

#[test]
fn off_until_enabled() {
    let (m, mut c, _) = counters();
    assert!(!count(&m, &mut c, &Personality::TURING, 1000));
    c.enable(2, 10);
    assert!(count(&m, &mut c, &Personality::TURING, 1000));
    c.disable();
    assert!(!count(&m, &mut c, &Personality::TURING, 1000));
}

#[test]
fn notifies_once_at_the_threshold_until_cleared() {
    let (m, mut c, registers) = counters();
    c.enable(2, 3);
    let chip = &Personality::VOLTA;
    assert!(!count(&m, &mut c, chip, 2));
    assert!(count(&m, &mut c, chip, 1));
    assert!(!count(&m, &mut c, chip, 100));
    assert_eq!(m.load32(Loc::buffer(registers, reg::COUNTER_PUT)), Ok(1));
    let w: [u32; 8] =
        core::array::from_fn(|i| m.load32(Loc::buffer(c.slot(), 4 * i as u64)).unwrap());
    assert_eq!(
        w[0],
        1 | 1 << 1 | 2 << 8 | 0x5000,
        "by a GPU, physical, system memory"
    );
    assert_eq!((w[2], w[3]), (0x2345_0000, 1), "64 KiB aligned");
    assert_eq!(w[4], 1 << ((REMOTE.physical >> 16) & 31));
    assert_eq!(w[6], 3);
    assert_eq!(w[7] >> 31, 1);
    c.clear(Some(w[5]));
    assert!(!count(&m, &mut c, chip, 2));
    assert!(count(&m, &mut c, chip, 1));
    c.clear(None);
    assert!(count(&m, &mut c, chip, 3));
    c.clear(Some(u32::MAX));
}

#[test]
fn virtual_addresses_for_turing() {
    let (m, mut c, _) = counters();
    c.enable(1, 1);
    assert!(count(&m, &mut c, &Personality::TURING, 1));
    assert_eq!(m.load32(Loc::buffer(c.slot(), 0)).unwrap() & 2, 0);
    assert_eq!(m.load32(Loc::buffer(c.slot(), 8)), Ok(0x0012_0000));
}

#[test]
fn the_engine_is_the_chips() {
    for (chip, engine) in [(&Personality::TURING, 64), (&Personality::HOPPER, 384)] {
        let (m, mut c, _) = counters();
        c.enable(1, 1);
        assert!(count(&m, &mut c, chip, 1));
        let word = m.load32(Loc::buffer(c.slot(), 28)).unwrap();
        assert_eq!(word >> 20 & 0x1ff, engine);
    }
}

#[test]
fn a_full_buffer_loses_the_notification_not_the_count() {
    let (m, mut c, registers) = counters();
    c.enable(1, 1);
    let mut sent = 0;
    for i in 0..2 * u64::from(ENTRIES) {
        // All regions in turn, so that collisions start counters over.
        let r = Remote {
            va: i << 16,
            ..REMOTE
        };
        sent += u32::from(c.count(&m, &Personality::TURING, &r, 1, || false).unwrap());
    }
    assert_eq!(sent, ENTRIES - 1);
    m.store32(Loc::buffer(registers, reg::COUNTER_GET), ENTRIES - 1)
        .unwrap();
    let r = Remote {
        va: 1 << 40,
        ..REMOTE
    };
    assert!(c.count(&m, &Personality::TURING, &r, 1, || false).unwrap());
}
