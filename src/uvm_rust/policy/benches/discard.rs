// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Cost of the discard state machine per va_block.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, Criterion};
use std::hint::black_box;
use uvm_policy::discard::{BlockState, Facts, Memory, Mode};
use uvm_policy::mask::{PageMask, Region};

const GPU: Memory = Memory(1);

fn benches(c: &mut Criterion) {
    let mut s = BlockState::new(512);
    s.track(Memory(0), &PageMask::EMPTY).unwrap();
    s.track(GPU, &PageMask::FULL).unwrap();
    let facts = Facts {
        resident: PageMask::FULL,
        mapped_2m: true,
    };
    for (name, mode) in [("eager", Mode::Eager), ("lazy", Mode::Lazy)] {
        c.bench_function(&format!("discard/{name}-then-prefetch"), |b| {
            b.iter(|| {
                let plan = s.plan(black_box(Region::WHOLE), mode, 4, &facts);
                s.commit(&plan);
                black_box(s.stale(&PageMask::FULL, &PageMask::FULL));
                s.accessed(&PageMask::FULL);
            })
        });
    }
    let half = PageMask::from(Region::new(0, 256));
    c.bench_function("discard/zeroing-decision", |b| {
        b.iter(|| {
            s.zeroing(
                GPU,
                Region::WHOLE,
                black_box(&half),
                &PageMask::EMPTY,
                &half,
            )
        })
    });
    c.bench_function("discard/queue-decision", |b| {
        b.iter(|| s.queue(GPU, black_box(&half)))
    });
}

criterion_group!(group, benches);
criterion_main!(group);
