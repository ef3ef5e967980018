// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Cost of a batch of faults from the ring to the order that va_blocks are serviced in.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use std::hint::black_box;
use uvm_policy::fault::{Access, Batch, Record};

/// A batch over 8 va_blocks and 64 µTLBs, of which `duplicates` % repeat a page.
fn batch(n: u64, duplicates: u64) -> Vec<Record> {
    let distinct = (n * (100 - duplicates) / 100).max(1);
    (0..n)
        .map(|i| {
            let x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let page = x % distinct;
            let access = if page % 3 == 0 {
                Access::Write
            } else {
                Access::Read
            };
            Record {
                address: (page % 8) << 21 | (page / 8) << 12,
                who: 1,
                entry: i as u32,
                instances: 1,
                utlb: (x / 7 % 64) as u16,
                access: access as u8,
                accesses: 1 << access as u8,
                ..Record::default()
            }
        })
        .collect()
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("fault");
    for n in [1, 16, 256] {
        for duplicates in [0, 50, 90] {
            let input = batch(n, duplicates);
            let mut batch = Batch::new(n as u32).unwrap();
            group.throughput(Throughput::Elements(n));
            group.bench_function(format!("{n}/{duplicates}"), |b| {
                b.iter(|| {
                    batch.clear();
                    batch.room().copy_from_slice(black_box(&input));
                    batch.absorb(input.len(), true);
                    batch.order(true);
                    batch.translate(|_| Ok::<_, ()>(1)).unwrap();
                    batch.records().len()
                })
            });
        }
    }
    group.finish();
}

criterion_group!(group, benches);
criterion_main!(group);
