// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Cost of the correlation tables, in CPU time: 2000 kernels of 24 blocks, learnt.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, Criterion};
use std::hint::black_box;
use uvm_policy::prefetch::{Config, ExecId, Next, Predictor, UmBlock};
use uvmsim_cputime::CpuTime;

const KERNELS: u64 = 2000;
const BLOCKS: u64 = 24;

fn block(kernel: u64, n: u64) -> UmBlock {
    UmBlock::from_address((kernel * BLOCKS / 2 + n) << 21).unwrap()
}

fn learnt() -> Predictor {
    let mut p = Predictor::new(Config::default()).unwrap();
    for _ in 0..3 {
        for k in 0..KERNELS {
            p.on_kernel(ExecId(k)).unwrap();
            for n in 0..BLOCKS {
                p.on_fault(block(k, n)).unwrap();
            }
        }
    }
    p
}

fn benches(c: &mut Criterion<CpuTime>) {
    let mut p = learnt();
    eprintln!("{:?}", p.stats());
    let mut k = 0;
    c.bench_function("prefetch/on-kernel", |b| {
        b.iter(|| {
            k = (k + 1) % KERNELS;
            p.on_kernel(black_box(ExecId(k)))
        })
    });
    let mut n = 0;
    c.bench_function("prefetch/on-fault", |b| {
        b.iter(|| {
            n = (n + 1) % BLOCKS;
            p.on_fault(black_box(block(k, n)))
        })
    });
    // A kernel announced now and then, so that the chain never ends.
    let mut p = learnt();
    let mut k = 0;
    c.bench_function("prefetch/next", |b| {
        b.iter(|| loop {
            match p.next(64) {
                Next::Prefetch(x) => break x,
                Next::More => {}
                Next::Idle => {
                    k = (k + 1) % KERNELS;
                    p.on_kernel(ExecId(k)).unwrap();
                }
            }
        })
    });
}

criterion_group! {
    name = group;
    config = uvmsim_cputime::criterion();
    targets = benches
}
criterion_main!(group);
