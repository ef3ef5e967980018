// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Cost of the eviction queues on a GPU of 80 GiB, all chunks used.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, BatchSize, Criterion};
use std::hint::black_box;
use uvm_policy::evict::{Queue, Queues};

const CHUNKS: u32 = 40960;

fn all_used() -> Queues {
    let mut q = Queues::new(CHUNKS).unwrap();
    // An odd stride, so that neighbours in the queue are not neighbours in memory.
    for i in 0..CHUNKS {
        q.enqueue(i.wrapping_mul(2654435761) % CHUNKS, Queue::Used)
            .unwrap();
    }
    for i in 0..CHUNKS {
        if q.queue_of(i).is_none() {
            q.enqueue(i, Queue::Used).unwrap();
        }
    }
    q
}

fn benches(c: &mut Criterion) {
    let mut q = all_used();
    let mut chunk = 0u32;
    c.bench_function("evict/mark-used", |b| {
        b.iter(|| {
            chunk = chunk.wrapping_mul(1664525).wrapping_add(1013904223);
            q.enqueue(black_box(chunk % CHUNKS), Queue::Used)
        })
    });
    c.bench_function("evict/take-and-reuse", |b| {
        b.iter(|| {
            let v = q.take(32, |_| None).unwrap();
            q.enqueue(v.chunk, Queue::Used)
        })
    });
    c.bench_function("evict/pick-31-of-32-expected", |b| {
        b.iter(|| {
            let mut n = 0;
            black_box(&q).pick(32, |_| {
                n += 1;
                (n < 32).then_some(n)
            })
        })
    });
    c.bench_function("evict/set-up-80GiB", |b| {
        b.iter_batched(|| (), |()| Queues::new(CHUNKS), BatchSize::SmallInput)
    });
}

criterion_group!(group, benches);
criterion_main!(group);
