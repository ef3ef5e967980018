// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::fake::Fake;

const ENTRIES: u32 = 8;

fn buffer() -> (Fake, FaultBuffer, Slot) {
    let mut m = Fake::new(0, 0);
    let registers = m.alloc(reg::BYTES).unwrap();
    let mut b = FaultBuffer::new(&mut m, registers, ENTRIES).unwrap();
    b.reset(&m).unwrap();
    (m, b, registers)
}

fn fault(va: u64, utlb: u32) -> Fault {
    Fault {
        instance: 0x12_3456_7000,
        va,
        kind: FaultType::InvalidPte,
        access: Access::Write,
        utlb,
    }
}

fn put(b: &mut FaultBuffer, m: &Fake, va: u64, utlb: u32) -> Put {
    b.write(m, &Personality::TURING, &fault(va, utlb), false)
        .unwrap()
}

fn register(m: &Fake, slot: Slot, offset: u64) -> u32 {
    m.load32(Loc::buffer(slot, offset)).unwrap()
}

#[test]
fn an_entry_says_it_all() {
    let (m, mut b, registers) = buffer();
    let va = 0x1_2345_6789_abcd;
    assert_eq!(put(&mut b, &m, va, 7), Put::Written { duplicate: false });
    assert_eq!(register(&m, registers, reg::FAULT_PUT), 1);
    let w: [u32; 8] =
        core::array::from_fn(|i| m.load32(Loc::buffer(b.slot(), 4 * i as u64)).unwrap());
    assert_eq!(w[0], 0x3456_7000);
    assert_eq!(w[1], 0x12);
    assert_eq!((w[2], w[3]), (0x6789_a000, 0x1_2345));
    assert_eq!(w[6], 64);
    assert_eq!(w[7] & 0x1f, 2, "fault type");
    assert_eq!(w[7] >> 7 & 1, 1, "replayable");
    assert_eq!(w[7] >> 8 & 0x7f, 6, "client: the unit on uTLB 3");
    assert_eq!(w[7] >> 16 & 0xf, 1, "access type");
    assert_eq!(w[7] >> 20 & 1, 0, "GPC");
    assert_eq!(w[7] >> 24 & 0x1f, 1, "GPC number");
    assert_eq!(w[7] >> 30, 3, "enabled and valid");
}

/// The number of the graphics engine, and of a client for each µTLB of a GPC: as UVM reads them.
#[test]
fn engines_and_clients_are_the_chips() {
    for (chip, engine, clients) in [
        (&Personality::TURING, 64, [0, 2, 4, 6]),
        (&Personality::VOLTA, 64, [0, 2, 4, 6]),
        (&Personality::AMPERE, 64, [0, 1, 2, 3]),
        (&Personality::HOPPER, 384, [0, 7, 0x21, 0x36]),
        (&Personality::BLACKWELL, 384, [0, 7, 0x21, 0x38]),
    ] {
        let (m, mut b, _) = buffer();
        let va = 0x1ff_ffff_ffff_f000;
        for utlb in 4..8 {
            let written = b.write(&m, chip, &fault(va, utlb), false);
            assert!(matches!(written, Ok(Put::Written { .. })));
        }
        for (i, client) in clients.into_iter().enumerate() {
            let word = |w: u64| m.load32(Loc::buffer(b.slot(), 32 * i as u64 + 4 * w));
            assert_eq!(word(6), Ok(engine), "{}", chip.name);
            let last = word(7).unwrap();
            assert_eq!((last >> 8 & 0x7f, last >> 24 & 0x1f), (client, 1));
            assert_eq!((word(2), word(3)), (Ok(0xffff_f000), Ok(0x1ff_ffff)));
        }
    }
}

#[test]
fn one_place_stays_free_and_get_makes_room() {
    let (m, mut b, registers) = buffer();
    for i in 0..u64::from(ENTRIES) - 1 {
        assert!(matches!(put(&mut b, &m, i << 12, 0), Put::Written { .. }));
    }
    assert_eq!(put(&mut b, &m, 0, 0), Put::Dropped);
    let overflow = |put: u32| put | 1 << 31;
    assert_eq!(
        register(&m, registers, reg::FAULT_PUT),
        overflow(ENTRIES - 1)
    );
    let get = Loc::buffer(registers, reg::FAULT_GET);
    // Room alone does not end it, nor does the other bit.
    for written in [2, 0x4000_0002] {
        m.store32(get, written).unwrap();
        assert_eq!(put(&mut b, &m, 0, 0), Put::Dropped);
        assert_eq!(m.load32(get), Ok(2));
    }
    m.store32(get, 0xc000_0000 | 2).unwrap();
    assert!(matches!(put(&mut b, &m, 0, 0), Put::Written { .. }));
    assert!(matches!(put(&mut b, &m, 0, 0), Put::Written { .. }));
    assert_eq!(register(&m, registers, reg::FAULT_PUT), 1, "wrapped");
    assert_eq!(put(&mut b, &m, 0, 0), Put::Dropped);
    b.reset(&m).unwrap();
    assert_eq!(register(&m, registers, reg::FAULT_PUT), 0);
    assert!(matches!(put(&mut b, &m, 0, 0), Put::Written { .. }));
}

#[test]
fn duplicates_and_outstanding_count_until_the_replay() {
    let (m, mut b, _) = buffer();
    assert_eq!(
        put(&mut b, &m, 0x1000, 3),
        Put::Written { duplicate: false }
    );
    assert_eq!(put(&mut b, &m, 0x1fff, 4), Put::Written { duplicate: true });
    assert_eq!(
        put(&mut b, &m, 0x2000, 3),
        Put::Written { duplicate: false }
    );
    assert_eq!(
        (b.outstanding(3), b.outstanding(4), b.outstanding(5)),
        (2, 1, 0)
    );
    b.replay();
    assert_eq!(b.outstanding(3), 0);
    assert_eq!(
        put(&mut b, &m, 0x1000, 3),
        Put::Written { duplicate: false }
    );
}

#[test]
fn fullness_can_be_injected() {
    let (m, mut b, _) = buffer();
    b.pretend_full = 2;
    assert_eq!(put(&mut b, &m, 0, 0), Put::Full);
    assert_eq!(put(&mut b, &m, 0, 0), Put::Full);
    assert!(matches!(put(&mut b, &m, 0, 0), Put::Written { .. }));
}

#[test]
fn reset_empties_it() {
    let (m, mut b, registers) = buffer();
    put(&mut b, &m, 0, 0);
    b.reset(&m).unwrap();
    assert_eq!(register(&m, registers, reg::FAULT_PUT), 0);
    assert_eq!(
        m.load32(Loc::buffer(b.slot(), 28)).unwrap(),
        0,
        "not valid any more"
    );
}

/// More pages than the set has room for in one round, over many rounds.
#[test]
fn the_set_of_pages_never_forgets_nor_invents() {
    let (m, mut b, registers) = buffer();
    let get = Loc::buffer(registers, reg::FAULT_GET);
    for round in 0..3 {
        for again in [false, true] {
            for i in 0..u64::from(UTLBS * UTLB_FAULTS_MAX) / 2 {
                let got = put(&mut b, &m, (round * 1_000_003 + i * 7919) << 12, 0);
                assert_eq!(got, Put::Written { duplicate: again }, "{round} {i}");
                m.store32(get, register(&m, registers, reg::FAULT_PUT))
                    .unwrap();
            }
        }
        b.replay();
    }
}
