// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Any content of the fault buffer: no panic, no fault lost, and all in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uvm_policy::fault::{Batch, Record};

fuzz_target!(|data: &[u8]| {
    let record = |(i, c): (usize, &[u8])| Record {
        address: u64::from_le_bytes([0, c[0] & 0xf0, c[1], c[2], c[3], c[4], c[5], 0]),
        who: u64::from(c[6]),
        entry: i as u32,
        instances: 1,
        utlb: u16::from(c[7]),
        access: c[8] % 5,
        accesses: 1 << (c[8] % 5),
        fatal: u8::from(c[9] == 0),
        ..Record::default()
    };
    let input: Vec<Record> = data.chunks_exact(10).enumerate().map(record).collect();
    let coalesce = data.len() % 2 == 0;
    let mut batch = Batch::new(input.len() as u32).expect("memory");
    for part in input.chunks(data.len() % 7 + 1) {
        batch.room()[..part.len()].copy_from_slice(part);
        batch.absorb(part.len(), coalesce);
    }
    batch.order(coalesce);
    batch
        .translate(|entry| Ok::<_, ()>(input[entry as usize].who / 2))
        .expect("no error");
    assert!(batch.is_sound());
    assert_eq!(batch.entries(), input.len());
    for (entry, by) in batch.representatives().iter().enumerate() {
        assert_eq!(batch.representatives()[*by as usize], *by);
        assert_eq!(input[*by as usize].address, input[entry].address);
        assert!(coalesce || *by as usize == entry);
    }
});
