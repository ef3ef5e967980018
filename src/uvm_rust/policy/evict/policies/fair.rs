// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The process that has the most used chunks gives up its oldest, so that the processes which want memory come to
//! equal shares of it.
//!
//! Under `lru` the process that faults most gets most: its chunks are always the newest. A program that goes through
//! more memory than the GPU has, again and again, so takes from its neighbours all that they do not fault on. Under
//! this policy such a program evicts its own memory as soon as no other process has more. Memory that nobody else asks
//! for is lent.
//!
//! A chunk that is split is several processes', or its process is not known: ordinary memory (HMM), and managed memory in
//! pieces of less than 2 MiB. All of these together count as one process more. If one is the oldest of all, it
//! goes first, whoever has most: what nobody has used for longest would stay for ever beside a process that has more.
//!
//! # Why a kernel gets on
//!
//! A kernel that needs several blocks at once never gets on if its own process's chunks evict each other. So a process
//! with [`spared`] chunks or fewer gives up none while another has more. If no process has more, the oldest chunk of all
//! goes, as under `lru`. What one batch of faults brings therefore never evicts what the same batch, or one
//! instruction, has brought. On a GPU of less than 5 GiB an eighth of the chunks is spared instead, as nobody would
//! have more otherwise. Kernels of one process that together need more than its share at the same moment can evict each
//! other's blocks for longer than under `lru`, which gives them the whole GPU.
//!
//! If evictions fail, as pages are held, the caller asks the default policy instead
//! ([`RootChunks::set_by_default`](super::super::RootChunks::set_by_default)).

use super::super::chains::Chains;
use super::super::holders::list_of;
use super::{first_of_one, lru, spared, Chunk, Holder, OutOfMemory, Policy, Used, REACH};
use crate::mem::TryVec;

/// How many processes with chunks can have a number of their own. A further process takes another's number for the chunks
/// that it uses from then on, and these two have one share.
const PROCESSES: usize = 64;

/// A process that has used chunks, if `count` is not 0.
#[derive(Clone, Copy)]
struct Process {
    holder: Holder,
    count: u32,
    /// When it last used a chunk, by [`Fair::uses`].
    last: u64,
}

/// The policy `fair`, with the used chunks of each process in the order of the used queue.
pub(super) struct Fair {
    /// A list for each process, by its number.
    chains: Chains<PROCESSES>,
    processes: TryVec<Process>,
    /// How often a chunk was used.
    uses: u64,
    /// Chunks that a process keeps while another one has more.
    spared: u32,
}

impl Policy for Fair {
    const NAME: &'static str = "fair";

    fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        let nobody = Process {
            holder: 0,
            count: 0,
            last: 0,
        };
        Ok(Self {
            chains: Chains::new(chunks)?,
            processes: TryVec::filled(PROCESSES, nobody)?,
            uses: 0,
            spared: spared(chunks),
        })
    }

    fn used(&mut self, chunk: Chunk, holder: Holder) {
        self.left(chunk);
        let number = self.number_of(holder);
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        if process.count == 0 {
            process.holder = holder;
        }
        self.uses += 1;
        process.last = self.uses;
        process.count += 1;
        self.chains.append(number, chunk);
    }

    fn left(&mut self, chunk: Chunk) {
        let list = self.chains.unlink(chunk);
        if let Some(process) = list.and_then(|number| self.processes.get_mut(number)) {
            process.count -= 1;
        }
    }

    fn choose(&self, used: Used<'_>) -> Option<Chunk> {
        let oldest = used.oldest()?;
        if used.holder_of(oldest) == 0 {
            return Some(oldest);
        }
        let largest = self.largest(used).and_then(|number| {
            // A number that two have may have chunks that are protected, besides others.
            let chunks = self.chains.iter(number).take(REACH);
            first_of_one(used, chunks.filter(|&chunk| used.may_go(chunk)))
        });
        largest.or_else(|| lru::Lru.choose(used))
    }
}

impl Fair {
    /// The number of the process that has more chunks than all others which may give up any, and more than are spared. Of
    /// several that have so many, it is the one that used a chunk last: the fault that asks is most likely its own.
    fn largest(&self, used: Used<'_>) -> Option<usize> {
        let processes = self.processes.iter().enumerate();
        let processes = processes.filter(|(_, p)| !used.spares(p.holder));
        let (number, most) = processes.max_by_key(|(_, p)| (p.count, p.last))?;
        (most.count > self.spared).then_some(number)
    }

    /// The number of the process that `holder` is, or is to be. One that has no chunk yet takes a number that nobody has;
    /// if there is none, it takes another's.
    fn number_of(&self, holder: Holder) -> usize {
        let first = list_of(holder) % PROCESSES;
        let mut nobody = None;
        for i in (first..PROCESSES).chain(0..first) {
            match self.processes.get(i) {
                Some(p) if p.count == 0 => _ = nobody.get_or_insert(i),
                Some(p) if p.holder == holder => return i,
                _ => {}
            }
        }
        nobody.unwrap_or(first)
    }
}

#[cfg(test)]
mod tests;
