// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A hostile stream of execution IDs, faults and freed ranges: bounded memory, no
//! panic, and no prediction of what never faulted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;
use uvm_policy::prefetch::{Config, ExecId, Next, Predictor, Shape, UmBlock, Walk};

fn block(n: u8, high: bool) -> UmBlock {
    let address = u64::from(n) << 21 | u64::from(high) << 52;
    UmBlock::from_address(address).expect("below 2^53 - 2^21")
}

fuzz_target!(|data: &[u8]| {
    let [head, ops @ ..] = data else { return };
    let limit = 4096 + usize::from(*head) * 256;
    let mut p = Predictor::new(Config {
        shape: Shape {
            rows: 16,
            assoc: 1 + u32::from(head & 3),
            succs: 1 + u32::from(head >> 6),
        },
        ahead: u32::from(head >> 2 & 7),
        walk: if head & 1 == 0 {
            Walk::ToEnd
        } else {
            Walk::Exhaustive
        },
        max_kernels: 24,
        max_records: 4,
        memory_limit: limit,
        seed: 0,
    })
    .expect("memory");
    // Queues, which do not grow.
    let fixed = p.stats().table_bytes;
    let mut faulted = HashSet::new();
    for op in ops.chunks_exact(2) {
        let (what, n) = (op[0], op[1]);
        match what % 8 {
            0 | 1 => drop(p.on_kernel(ExecId(u64::from(n) << (what / 8)))),
            2..=4 => {
                let b = block(n, what & 128 != 0);
                faulted.insert(b);
                let _ = p.on_fault(b);
            }
            5 | 6 => {
                if let Next::Prefetch(x) = p.next(u32::from(what / 8)) {
                    assert!(faulted.contains(&x.block));
                }
            }
            _ => {
                let (first, last) = (block(n, false), block(n.saturating_add(what / 8), false));
                faulted.retain(|b| *b < first || *b > last);
                p.forget(first, last);
            }
        }
        let s = p.stats();
        assert!(s.table_bytes <= fixed + limit, "{s:?}");
        assert!(s.remembered <= 24, "{s:?}");
    }
});
