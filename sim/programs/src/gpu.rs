// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A GPU without time: chunks, faults, and a prefetcher for each program that does all that it predicts at once.

use uvm_policy::evict::{Change, Chunk, Holder, Lists, Owner, Queue, RootChunks};
use uvm_policy::mem::OutOfMemory;
use uvm_policy::prefetch::{Config, Correlator, ExecId, Feed, Next, Prefetch, UmBlock};

use crate::{Moved, Policy, Programs, BLOCK};

/// The chunks' own state is never another than the queues say.
struct Agrees;

impl Lists for Agrees {
    fn evictable(&mut self, _: Chunk) -> bool {
        true
    }
}

/// What the driver has of a program that announces kernels.
struct Prefetcher {
    correlator: Correlator,
    feed: Feed,
    owner: Owner,
}

struct Program {
    holder: Holder,
    /// The chunk of each block that is there.
    chunks: Vec<Option<Chunk>>,
    prefetcher: Option<Prefetcher>,
}

pub struct Gpu {
    roots: RootChunks,
    /// The program and the block that each chunk holds.
    holds: Vec<Option<(u32, u32)>>,
    programs: Vec<Program>,
    pub moved: Moved,
}

impl Gpu {
    /// A GPU on which all chunks are free.
    pub fn new(of: &Programs, policy: Policy) -> Result<Self, OutOfMemory> {
        let mut roots = RootChunks::with_policy(of.chunks, policy.evict)?;
        for chunk in 0..of.chunks {
            roots
                .change(chunk, Change::Free { zeroed: false })
                .map_err(|_| OutOfMemory)?;
        }
        let mut programs = Vec::new();
        for number in 0..of.programs {
            let holder = Holder::from(number) + 1;
            let prefetcher = policy.prefetch.then(|| -> Result<Prefetcher, OutOfMemory> {
                Ok(Prefetcher {
                    correlator: Correlator::new(Config::default())?,
                    feed: Feed::new(16, 4096)?,
                    owner: roots.add_owner(holder),
                })
            });
            programs.push(Program {
                holder,
                chunks: vec![None; of.working_set as usize],
                prefetcher: prefetcher.transpose()?,
            });
        }
        Ok(Self {
            roots,
            holds: vec![None; of.chunks as usize],
            programs,
            moved: Moved::default(),
        })
    }

    /// The program announces a kernel; 0: none follows. What is predicted then is brought.
    pub fn announce(&mut self, program: u32, kernel: u32) {
        let it = &mut self.programs[program as usize];
        let begins_turn = self.roots.announced(it.holder, kernel != 0);
        if let Some(p) = &mut it.prefetcher {
            if !self.roots.begins(p.owner) {
                p.owner = self.roots.add_owner(it.holder);
                self.roots.begins(p.owner);
            }
            if begins_turn {
                p.feed.announce(ExecId(0));
            }
            p.feed.announce(ExecId(kernel.into()));
        }
        while self.prefetches(program) {}
    }

    /// The program accesses one of its blocks.
    pub fn access(&mut self, program: u32, block: u32) {
        if self.programs[program as usize].chunks[block as usize].is_some() {
            return;
        }
        self.moved.faults += 1;
        self.bring(program, block, None);
        if let (Some(p), Some(block)) = (&self.programs[program as usize].prefetcher, named(block))
        {
            p.feed.fault(block);
        }
        while self.prefetches(program) {}
    }

    /// A step of the program's worker, as `uvm_policy::prefetch::worker` takes it where nothing is in the way. False if
    /// nothing is left to do.
    fn prefetches(&mut self, program: u32) -> bool {
        let it = &mut self.programs[program as usize];
        let Some(p) = &mut it.prefetcher else {
            return false;
        };
        while !p.correlator.absorb(&p.feed, 64) {}
        let now = p.correlator.now();
        self.roots.set_now(p.owner, now);
        let prefetch = match p.correlator.next(256) {
            Next::Idle => return false,
            Next::More => return true,
            Next::Prefetch(prefetch) => prefetch,
        };
        let until = now.wrapping_add(prefetch.ahead);
        let block = (prefetch.block.address() / BLOCK) as u32;
        if let Some(chunk) = it.chunks[block as usize] {
            self.roots.expect(chunk, p.owner, until);
        } else if self.roots.has_room_for(it.holder, prefetch.ahead) {
            self.bring(program, block, Some(until));
        } else {
            self.holds_back(program, prefetch);
        }
        true
    }

    fn holds_back(&mut self, program: u32, prefetch: Prefetch) {
        if let Some(p) = &mut self.programs[program as usize].prefetcher {
            p.correlator.hold(prefetch);
        }
    }

    /// Brings a block, which a fault asks for, or a prediction for the kernels up to a number.
    fn bring(&mut self, program: u32, block: u32, until: Option<u32>) {
        let chunk = self.roots.choose(&mut Agrees).unwrap_or(0);
        let was_used = self.roots.queue_of(chunk) == Some(Queue::Used);
        self.roots.begin_eviction(chunk);
        let _ = self.roots.eviction_over(chunk, true);
        let before = self.holds[chunk as usize].replace((program, block));
        assert_eq!(was_used, before.is_some(), "what is used holds a block");
        if let Some((program, block)) = before {
            self.programs[program as usize].chunks[block as usize] = None;
        }
        let it = &mut self.programs[program as usize];
        it.chunks[block as usize] = Some(chunk);
        let _ = self.roots.change(chunk, Change::Pinned);
        let _ = self.roots.claim(chunk, it.holder);
        let _ = self.roots.used_by_claimant(chunk);
        if let (Some(until), Some(p)) = (until, &it.prefetcher) {
            self.roots.expect(chunk, p.owner, until);
            self.roots.brought(chunk, p.owner);
        }
        let _ = self.roots.change(chunk, Change::Whole(it.holder));
        self.moved.blocks += 1;
    }
}

/// The name that the prefetcher has for a block.
fn named(block: u32) -> Option<UmBlock> {
    UmBlock::from_address(u64::from(block) * BLOCK)
}
