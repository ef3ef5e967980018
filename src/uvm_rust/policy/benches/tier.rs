// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Cost of what is asked of the SSD tier under its lock, in CPU time: with one tenant, and with 1,000.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, Criterion};
use std::hint::black_box;
use uvm_policy::flash::tier::{Block, Owner, Records, Tier};
use uvmsim_cputime::CpuTime;

/// Pages of host memory that each tenant has, and above which there is too little.
const EACH: u32 = 512;
const LIMIT: u64 = 100;

#[derive(Default)]
struct Live {
    blocks: Vec<Block<usize, usize>>,
    owners: Vec<Owner<usize, usize>>,
}

impl Records for Live {
    type Block = usize;
    type Owner = usize;

    fn block(&mut self, of: usize) -> &mut Block<usize, usize> {
        &mut self.blocks[of]
    }

    fn owner(&mut self, of: usize) -> &mut Owner<usize, usize> {
        &mut self.owners[of]
    }

    fn hold(&mut self, _: usize) -> bool {
        true
    }
}

/// So many tenants, with a block each.
fn tier(tenants: usize) -> (Tier<usize, usize, u32>, Live) {
    let (mut tier, mut live) = (Tier::default(), Live::default());
    for n in 0..tenants {
        live.owners.push(Owner::new(n as u64 + 1, n as u32));
        tier.add_owner(&mut live, n);
        live.blocks.push(Block::new(n));
        tier.add_block(&mut live, n, false);
        tier.note(&mut live, n, EACH, true);
    }
    tier.attach(1, LIMIT, 1);
    (tier, live)
}

fn benches(c: &mut Criterion<CpuTime>) {
    for tenants in [1, 1000] {
        let (mut tier, mut live) = tier(tenants);
        let mut pages = 0;
        c.bench_function(&format!("tier/must-wait/{tenants}"), |b| {
            b.iter(|| tier.must_wait(&mut live, black_box(0)))
        });
        c.bench_function(&format!("tier/note/{tenants}"), |b| {
            b.iter(|| {
                pages = (pages + 100) % (EACH + 1);
                tier.note(&mut live, black_box(0), pages, true);
            })
        });
        tier.note(&mut live, 0, EACH, true);
        c.bench_function(&format!("tier/victim/{tenants}"), |b| {
            b.iter(|| {
                let victim = tier.victim(&mut live);
                tier.hope(&mut live, 0);
                black_box(victim)
            })
        });
    }
}

criterion_group! {
    name = group;
    config = uvmsim_cputime::criterion();
    targets = benches
}
criterion_main!(group);
