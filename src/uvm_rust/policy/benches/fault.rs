// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Cost of a batch of faults from coalescing to the list of pages.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use std::hint::black_box;
use uvm_policy::fault::{groups, order, Access, Coalescer, Fault, Key, Last, Summary};

/// A batch over 8 va_blocks and 64 µTLBs, of which `duplicates` % repeat a page.
fn batch(n: u64, duplicates: u64) -> Vec<Fault> {
    let distinct = (n * (100 - duplicates) / 100).max(1);
    (0..n)
        .map(|i| {
            let x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let page = x % distinct;
            Fault {
                address: (page % 8) << 21 | (page / 8) << 12,
                space: 1,
                utlb: (x / 7 % 64) as u16,
                access: if page % 3 == 0 {
                    Access::Write
                } else {
                    Access::Read
                },
                ..Fault::default()
            }
        })
        .collect()
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("fault");
    for n in [1, 16, 256] {
        for duplicates in [0, 50, 90] {
            let input = batch(n, duplicates);
            let mut faults = vec![Fault::default(); input.len()];
            let mut keys = vec![Key::default(); input.len()];
            let mut utlbs = vec![Last::default(); 64];
            let mut number = 0;
            group.throughput(Throughput::Elements(n));
            group.bench_function(format!("{n}/{duplicates}"), |b| {
                b.iter(|| {
                    number += 1;
                    let mut c = Coalescer::new(&mut faults, &mut utlbs, number, true);
                    for f in black_box(&input) {
                        c.add(*f);
                    }
                    let order = order(&faults, &mut keys).unwrap();
                    black_box(groups(order).count());
                    Summary::of(&faults, order)
                })
            });
        }
    }
    group.finish();
}

criterion_group!(group, benches);
criterion_main!(group);
