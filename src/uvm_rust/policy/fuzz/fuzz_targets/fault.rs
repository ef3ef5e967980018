// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Any content of the fault buffer: no panic, no fault lost, and all in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uvm_policy::fault::{groups, order, pages, Access, Coalescer, Fault, Key, Last, Summary};

fuzz_target!(|data: &[u8]| {
    let record = |c: &[u8]| Fault {
        address: u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], 0, 0]),
        space: u64::from(c[6]),
        utlb: u16::from(c[7]),
        access: Access::from_number(c[8] % 5).unwrap_or_default(),
        flags: c[9],
        instances: u32::from(c[9]),
        ..Fault::default()
    };
    let input: Vec<Fault> = data.chunks_exact(10).map(record).collect();
    let mut faults = vec![Fault::default(); input.len()];
    let mut utlbs = [Last::default(); 100];
    let merges = data.len() % 2 == 0;
    let mut c = Coalescer::new(&mut faults, &mut utlbs, 1, merges);
    for f in &input {
        assert!(c.add(*f).is_some());
    }
    let distinct = c.distinct();
    let mut keys = vec![Key::default(); distinct];
    let order = order(&faults, &mut keys).expect("room for all");
    assert_eq!(order.len(), distinct);
    assert!(order.windows(2).all(|w| w[0] < w[1]));
    assert_eq!(groups(order).map(|g| g.keys.len()).sum::<usize>(), distinct);
    assert_eq!(pages(order).map(|p| p.keys.len()).sum::<usize>(), distinct);
    assert_eq!(Summary::of(&faults, order).faults as usize, input.len());
});
